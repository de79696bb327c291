//! When does a turn go on with what it has put off?
//!
//! Who puts something off notes to when. Asked again a moment later its time may have come, and then nobody would wait for it.

use std::time::Duration;
use tokio::time::Instant;

/// The least time from one claim to the next, and from one settlement to the next, where little was claimed or is to be written: of a thousand jobs a second some
/// share a commit then. What comes to an idle process is not put off.
const PACE: Duration = Duration::from_millis(3);

/// The first of the times to which a turn has put something off.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PutOff(Option<Instant>);

impl PutOff {
    /// Puts something off to this time, unless it has come; says whether.
    pub fn to(&mut self, time: Instant, now: Instant) -> bool {
        let is_early = now < time;
        if is_early {
            self.0 = Some(self.0.map_or(time, |other| other.min(time)));
        }
        is_early
    }

    /// Puts something off if the last was sent just now; says whether.
    pub fn paced(&mut self, last: Option<Instant>, now: Instant) -> bool {
        last.is_some_and(|last| self.to(last + PACE, now))
    }

    /// Comes back at that time, if there is one.
    pub async fn is_over(self) {
        match self.0 {
            Some(time) => tokio::time::sleep_until(time).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_nanos(1);

    /// What is put off is waited for, however soon its time is; what is not is done, and nobody waits.
    #[test]
    fn what_is_put_off_is_noted_and_nothing_else() {
        let now = Instant::now();
        let mut put_off = PutOff::default();
        assert!(!put_off.to(now, now) && !put_off.paced(None, now) && !put_off.paced(Some(now - PACE), now));
        assert_eq!(put_off.0, None);
        assert!(put_off.to(now + MOMENT, now));
        assert_eq!(put_off.0, Some(now + MOMENT));
    }

    #[test]
    fn the_first_of_several_is_waited_for() {
        let now = Instant::now();
        let mut put_off = PutOff::default();
        assert!(
            put_off.paced(Some(now), now) && put_off.paced(Some(now - MOMENT), now) && put_off.to(now + PACE * 2, now)
        );
        assert_eq!(put_off.0, Some(now + PACE - MOMENT));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_over_at_its_time() {
        let now = Instant::now();
        let mut put_off = PutOff::default();
        put_off.to(now + PACE, now);
        put_off.is_over().await;
        assert!(now.elapsed() >= PACE);
    }
}
