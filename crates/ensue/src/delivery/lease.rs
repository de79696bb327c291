//! May this process start anything?
//!
//! While its lease has not passed, by our own clock from before it was asked for, and the rules were looked at since it last
//! had. A change of rules waits for every process with a lease: of one that was answered while this process had none it knows
//! nothing until it looks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The lease of a process.
pub(super) struct Lease {
    /// Nothing is started after this, unless it was renewed.
    deadline: Mutex<Instant>,
    /// How often it was given to somebody who had none.
    begun: AtomicU64,
    /// After which of these the rules were looked at.
    looked: AtomicU64,
}

impl Lease {
    /// There is none yet.
    pub fn none(now: Instant) -> Self {
        Self { deadline: Mutex::new(now), begun: AtomicU64::new(0), looked: AtomicU64::new(0) }
    }

    /// May something be started?
    pub fn lets_start(&self, now: Instant) -> bool {
        now < *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) && !self.is_behind()
    }

    /// It was renewed for so long by a call that was sent at this time.
    pub fn renewed(&self, sent: Instant, lease: Duration, now: Instant) {
        let mut deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= *deadline {
            self.begun.fetch_add(1, Ordering::SeqCst);
        }
        *deadline = deadline.max(sent + lease);
    }

    /// Was it asked for by a call that was sent less than this ago?
    pub fn was_renewed_within(&self, ago: Duration, lease: Duration, now: Instant) -> bool {
        now + lease < *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) + ago
    }

    /// Has it begun anew since the rules were looked at?
    pub fn is_behind(&self) -> bool {
        self.looked.load(Ordering::SeqCst) < self.begun.load(Ordering::SeqCst)
    }

    /// How often it has begun: to be asked before the rules are looked at, and told to [`Self::caught_up`] after that.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// The rules were looked at after it had begun so often.
    pub fn caught_up(&self, begun: u64) {
        self.looked.fetch_max(begun, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOR: Duration = Duration::from_secs(3);

    /// A process that has looked at the rules after it got a lease at this time.
    fn held_since(start: Instant) -> Lease {
        let lease = Lease::none(start);
        lease.renewed(start, FOR, start);
        lease.caught_up(lease.begun());
        lease
    }

    #[test]
    fn nothing_starts_before_there_is_a_lease_and_the_rules_were_looked_at() {
        let start = Instant::now();
        let lease = Lease::none(start);
        assert!(!lease.lets_start(start));
        lease.renewed(start, FOR, start);
        assert!(!lease.lets_start(start), "the rules of before it are not known");
        lease.caught_up(lease.begun());
        assert!(lease.lets_start(start) && !lease.lets_start(start + FOR));
    }

    #[test]
    fn it_counts_from_when_it_was_asked_for() {
        let start = Instant::now();
        let lease = held_since(start);
        let (sent, answered) = (start + FOR / 3, start + FOR / 2);
        lease.renewed(sent, FOR, answered);
        let end = sent + FOR;
        assert!(lease.lets_start(end - Duration::from_millis(1)) && !lease.lets_start(end));
        // An answer that comes late takes nothing back.
        lease.renewed(start, FOR, answered);
        assert!(lease.lets_start(end - Duration::from_millis(1)));
    }

    #[test]
    fn it_is_known_when_it_was_asked_for() {
        let start = Instant::now();
        let (moment, before) = (Duration::from_millis(100), Duration::from_millis(99));
        assert!(!Lease::none(start).was_renewed_within(moment, FOR, start), "there is none");
        let lease = held_since(start);
        assert!(lease.was_renewed_within(moment, FOR, start + before));
        assert!(!lease.was_renewed_within(moment, FOR, start + moment));
    }

    /// H17: it passed, a pause was answered without waiting for this process, it is renewed: nothing starts before it has looked.
    #[test]
    fn after_it_has_passed_nothing_starts_before_the_rules_were_looked_at() {
        let start = Instant::now();
        let lease = held_since(start);
        let late = start + FOR;
        lease.renewed(late, FOR, late);
        assert!(lease.is_behind() && !lease.lets_start(late));
        lease.caught_up(lease.begun());
        assert!(lease.lets_start(late));
        // One that is renewed in time asks for no look.
        lease.renewed(late + FOR / 2, FOR, late + FOR / 2);
        assert!(lease.lets_start(late + FOR));
    }

    /// H17: it passed again while the rules were being looked at: what was read then may be old.
    #[test]
    fn a_look_that_began_before_it_passed_again_does_not_count() {
        let start = Instant::now();
        let lease = held_since(start);
        let (late, later) = (start + FOR, start + FOR * 3);
        lease.renewed(late, FOR, late);
        let looking = lease.begun();
        lease.renewed(later, FOR, later);
        lease.caught_up(looking);
        assert!(!lease.lets_start(later), "that look was from before");
        lease.caught_up(lease.begun());
        assert!(lease.lets_start(later));
    }
}
