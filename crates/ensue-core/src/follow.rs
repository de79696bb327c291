//! What of the log need not be read?
//!
//! Who appends has the events in hand and is told their places. An engine may pass them on as they are committed, so that
//! a process that runs its own handlers does not read back what it has just written.

use crate::Event;
use std::sync::Arc;

/// Wants to see what is appended through an engine as soon as it is durable.
pub trait Follower: Send + Sync + 'static {
    /// Is anybody there? Otherwise nothing need be kept for it.
    fn is_listening(&self) -> bool;

    /// These were committed, one place after the other, in a session of that number (see
    /// [`Store::session`](crate::Store::session)). Called before the callers are answered, one commit after the other, and from
    /// where appends wait: it returns at once.
    fn committed(&self, session: u64, events: &[Arc<Event>]);
}
