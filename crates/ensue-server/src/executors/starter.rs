//! How does a program end with the process that runs it, also when that is killed?
//!
//! A program that goes on after `kill -9` of the server would run beside its own next attempt. On Linux a child can ask to be
//! killed when its parent dies. The parent that counts is the *thread* that started it, and threads of a runtime come and go: so
//! all programs are started by one thread, which lives as long as the process. Elsewhere nothing like it is asked for.
//!
//! Who starts one waits for it without letting others have a turn: whoever sets a rule is answered when all who were about to start
//! something have had their first turn, and after that no program may start.

use tokio::process::{Child, Command};

/// Starts a program.
#[cfg(not(target_os = "linux"))]
pub(super) fn start(mut command: Command) -> std::io::Result<Child> {
    command.spawn()
}

#[cfg(target_os = "linux")]
pub(super) use linux::start;

#[cfg(target_os = "linux")]
mod linux {
    use super::{Child, Command};
    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
    use std::io;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{OnceLock, mpsc};
    use tokio::runtime::{Handle, RuntimeFlavor};

    /// A program to start, for a runtime that waits for it.
    struct Start {
        command: Command,
        runtime: Handle,
        answer: mpsc::SyncSender<io::Result<Child>>,
    }

    /// Starts a program that ends with this process.
    pub(in super::super) fn start(mut command: Command) -> io::Result<Child> {
        end_with_this_process(&mut command);
        let (answer, started) = mpsc::sync_channel(1);
        let gone = |_| io::Error::other("the thread that starts programs has ended: restart the server");
        let runtime = Handle::current();
        let can_make_room = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        starter()?.send(Start { command, runtime, answer }).map_err(|_| gone(mpsc::RecvError))?;
        let wait = || started.recv().map_err(gone)?;
        if can_make_room { tokio::task::block_in_place(wait) } else { wait() }
    }

    #[expect(unsafe_code, reason = "what a child does before it becomes the program has no other way")]
    fn end_with_this_process(command: &mut Command) {
        let parent = getpid();
        let ask = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // One that had died before has said nothing.
            if getppid() == Some(parent) { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
        };
        // SAFETY: between fork and exec there are two system calls, and nothing is allocated or locked.
        unsafe { command.pre_exec(ask) };
    }

    /// The one thread. It ends with the process: what it does cannot panic, nor is its channel ever closed.
    fn starter() -> io::Result<&'static mpsc::Sender<Start>> {
        static STARTER: OnceLock<mpsc::Sender<Start>> = OnceLock::new();
        if let Some(starter) = STARTER.get() {
            return Ok(starter);
        }
        let (sender, starts) = mpsc::channel::<Start>();
        // Of two that are made at once, the channel of one is dropped, and its thread ends having started nothing.
        std::thread::Builder::new().name("ensue-programs".into()).spawn(move || starts.iter().for_each(carry_out))?;
        Ok(STARTER.get_or_init(|| sender))
    }

    fn carry_out(Start { mut command, runtime, answer }: Start) {
        let started = catch_unwind(AssertUnwindSafe(|| {
            let _runtime = runtime.enter();
            command.spawn()
        }));
        let started = started.unwrap_or_else(|_| Err(io::Error::other("the runtime that waits for it has ended")));
        // Nobody waits any more: dropped, it is ended.
        drop(catch_unwind(AssertUnwindSafe(|| drop(answer.send(started)))));
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::process::Stdio;
        use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
        use tokio::runtime::Runtime;

        /// The thread that asked for it ends, and the program goes on: it is not the one that started it.
        #[test]
        fn a_program_outlives_the_thread_that_asked_for_it() {
            let runtime = Runtime::new().unwrap();
            let handle = runtime.handle().clone();
            let asks = std::thread::spawn(move || {
                let mut cat = Command::new("cat");
                cat.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
                let _runtime = handle.enter();
                start(cat).unwrap()
            });
            let mut cat = asks.join().unwrap();
            runtime.block_on(async {
                let mut stdin = cat.stdin.take().unwrap();
                let mut lines = BufReader::new(cat.stdout.take().unwrap()).lines();
                for n in 0..200 {
                    stdin.write_all(format!("{n}\n").as_bytes()).await.unwrap();
                    assert_eq!(lines.next_line().await.unwrap(), Some(n.to_string()), "it has ended with the thread");
                }
                drop(stdin);
                assert!(cat.wait().await.unwrap().success());
            });
        }
    }
}
