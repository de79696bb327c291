//! How is a program ended with everything that it has started?
//!
//! Every program leads a process group of its own, which the processes that it starts belong to. Signals go to the group.
//! What leaves the group on purpose (`setsid`) is nobody's any more.

use rustix::process::{Pid, Signal, kill_process_group};

/// The group of a running program. Dropped while it runs, it is ended at once: whoever ran it may not any more.
#[derive(Debug)]
pub(super) struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// The group that a child leads.
    pub fn of(child: &tokio::process::Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(id.cast_signed())))
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends it.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Ends what its leader, which has just ended, has left running.
    pub fn end(mut self) {
        self.kill();
        self.0 = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0
            && let Err(error) = kill_process_group(group, signal)
        {
            // Nobody is left in it, most of the time.
            tracing::trace!(%error, ?group, "a process group took no signal");
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}
