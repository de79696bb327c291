//! Who wants to see what we append, and since when is it one log?

use ensue_core::Event;
use ensue_core::follow::Follower;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The follower, if there is one, and the number of the writer's connection. A server that was replaced by another, which
/// may lack the last events, was left by every connection: what is appended by one connection is one log.
#[derive(Default)]
pub(super) struct Following {
    follower: OnceLock<Arc<dyn Follower>>,
    session: AtomicU64,
}

impl Following {
    /// The first follower stays.
    pub fn set(&self, follower: Arc<dyn Follower>) {
        let _followed_already = self.follower.set(follower);
    }

    /// A connection is made: nothing was appended by it yet.
    pub fn begin(&self) {
        self.session.fetch_add(1, Ordering::SeqCst);
    }

    pub fn session(&self) -> u64 {
        self.session.load(Ordering::SeqCst)
    }

    /// Passes on what was committed, unless it reads otherwise than what the server will give back.
    pub fn tell(&self, events: &[Arc<Event>]) {
        let follower = self.follower.get().filter(|follower| follower.is_listening() && !events.is_empty());
        let is_plain = |event: &Arc<Event>| event.payload.is_plain() && event.metadata.is_plain();
        if let Some(follower) = follower
            && events.iter().all(is_plain)
        {
            follower.committed(self.session(), events);
        }
    }
}
