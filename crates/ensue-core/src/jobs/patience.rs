//! How long may a worker elsewhere hold a job?
//!
//! A lease says when a worker is missed; it can be renewed again and again. A handler's timeout says how long one attempt may
//! take in all: no lease goes beyond it, so that an attempt that takes longer has failed as one whose worker has vanished.

use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// The lease that a worker gets who asks for this one now, having claimed the job at that time; none if its time is up.
pub fn lease_within(
    asked: SignedDuration,
    timeout: Option<Duration>,
    claimed_at: Timestamp,
    now: Timestamp,
) -> Option<SignedDuration> {
    let Some(timeout) = timeout else { return Some(asked) };
    let timeout = SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX);
    // A clock that stepped back gives nobody more than the timeout.
    let gone = now.duration_since(claimed_at).max(SignedDuration::ZERO);
    let left = timeout.checked_sub(gone).unwrap_or(SignedDuration::ZERO);
    (left > SignedDuration::ZERO).then(|| asked.min(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_lease_goes_beyond_the_timeout() {
        let at = |seconds: i64| Timestamp::from_second(1_000 + seconds).expect("a time");
        let [minute, ten] = [60, 10].map(SignedDuration::from_secs);
        let timeout = Some(Duration::from_secs(90));
        assert_eq!(lease_within(minute, None, at(0), at(500)), Some(minute));
        assert_eq!(lease_within(minute, timeout, at(0), at(0)), Some(minute));
        assert_eq!(lease_within(minute, timeout, at(0), at(80)), Some(ten));
        assert_eq!(lease_within(ten, timeout, at(0), at(80)), Some(ten));
        assert_eq!(lease_within(ten, timeout, at(0), at(90)), None);
        assert_eq!(lease_within(minute, Some(Duration::from_secs(10)), at(0), at(-5)), Some(ten));
        assert_eq!(lease_within(minute, Some(Duration::MAX), at(0), at(5)), Some(minute));
    }
}
