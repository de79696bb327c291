//! Which occurrences fire now?
//!
//! A schedule has a *watermark*: up to there every occurrence is decided. Whoever finds it due decides about all that have come
//! since, and moves the watermark in the same commit that makes what follows. Two who decide at once decide the same, from the same
//! watermark, and the store lets one of them move it: so an occurrence fires once, whoever restarts and whatever
//! their clocks say.

use super::schedule::{Makes, Misfire, Schedule};
use super::timing::Timing;
use crate::event::whole_microseconds;
use crate::key::GroupName;
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

/// The most occurrences that [`Misfire::All`] makes up for.
pub const MISFIRE_ALL_MAX: usize = 100;
/// An occurrence that is fired so much later than it was due, or later than halfway to the next one, was missed.
pub const GRACE: SignedDuration = SignedDuration::from_secs(60);
/// Up to how many missed occurrences are counted.
pub const COUNTED_MAX: usize = 100;
/// A watermark that is so much ahead was moved while the clock was wrong.
pub const AHEAD_MAX: SignedDuration = SignedDuration::from_hours(24);
/// The smallest step of time that engines keep.
const STEP: SignedDuration = SignedDuration::from_micros(1);

/// What becomes of an occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// Which: its time by the schedule, without jitter. Of several that are left out together, the last.
    pub occurrence: Timestamp,
    /// Did somebody ask for it?
    pub manual: bool,
    /// What is made of it, or why nothing is.
    pub what: What,
}

/// What is made of an occurrence, or why nothing is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// It fires.
    Fires(Makes),
    /// It is left out, for this reason.
    Skipped(String),
}

/// What has come of looking at a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// Up to where everything is decided now.
    pub watermark: Timestamp,
    /// When it is to be looked at next; none if nothing is to come any more.
    pub due: Option<Timestamp>,
    /// What becomes of which occurrence, in their order.
    pub runs: Vec<NewRun>,
}

/// When a schedule that is decided up to here is to be looked at next.
pub fn due_after(schedule: &Schedule, watermark: Timestamp) -> Option<Timestamp> {
    schedule.timing.next_after(watermark).map(|occurrence| due_at(schedule, occurrence))
}

/// Was it decided up to here by a clock that was far ahead? Then nothing fires until that time, unless it is put anew.
pub fn is_ahead(watermark: Timestamp, now: Timestamp) -> bool {
    watermark.duration_since(now) > AHEAD_MAX
}

/// When an occurrence fires: at its time, and a while later if it is to be spread. Always before the next one, and the same
/// whoever computes it.
pub fn due_at(schedule: &Schedule, occurrence: Timestamp) -> Timestamp {
    if schedule.jitter.is_zero() {
        return occurrence;
    }
    let gap = schedule.timing.next_after(occurrence).map(|next| next.duration_since(occurrence) - STEP);
    let most = gap.map_or(schedule.jitter, |gap| gap.min(schedule.jitter));
    let most = u64::try_from(most.as_micros()).unwrap_or(0);
    let micros = chance(&schedule.name, occurrence) % (most + 1);
    occurrence.checked_add(SignedDuration::from_micros(micros as i64)).unwrap_or(occurrence)
}

/// A number that is as good as drawn, and always the same for one occurrence.
fn chance(name: &GroupName, occurrence: Timestamp) -> u64 {
    let mut digest = Sha256::new();
    digest.update(occurrence.as_microsecond().to_be_bytes());
    digest.update(name.as_str().as_bytes());
    let digest: [u8; 32] = digest.finalize().into();
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Decides about all occurrences after the watermark that are due by now.
pub fn decide(schedule: &Schedule, watermark: Timestamp, now: Timestamp) -> Decided {
    let timing = &schedule.timing;
    let Some(first) = timing.next_after(watermark) else {
        return Decided { watermark, due: None, runs: Vec::new() };
    };
    let second = timing.next_after(first);
    if second.is_none_or(|second| second > now) {
        // At most one has come since, as almost always: there is nothing to search, and to find a time of cron is what takes long here.
        return decide_one(schedule, watermark, first, second, now);
    }
    let is_due = |last: &Timestamp| due_at(schedule, *last) <= now;
    let last = timing.last_until(watermark, now).and_then(|last| match is_due(&last) {
        true => Some(last),
        // The one before is: it comes before this one, whatever its jitter.
        false => timing.last_until(watermark, last - STEP),
    });
    let Some(last) = last else {
        return Decided { watermark, due: due_after(schedule, watermark), runs: Vec::new() };
    };
    let fires = match schedule.misfire {
        Misfire::Once => vec![last],
        Misfire::All => newest(timing, watermark, last),
        Misfire::Skip if is_missed(schedule, last, now) => Vec::new(),
        Misfire::Skip => vec![last],
    };
    let skipped_to = match fires.first() {
        Some(first) => timing.last_until(watermark, *first - STEP),
        None => Some(last),
    };
    let mut runs = Vec::with_capacity(fires.len() + 1);
    runs.extend(skipped_to.map(|to| missed(timing, watermark, to)));
    runs.extend(fires.into_iter().map(|occurrence| NewRun {
        occurrence,
        manual: false,
        what: What::Fires(schedule.makes(occurrence)),
    }));
    Decided { watermark: last, due: due_after(schedule, last), runs }
}

/// Decides when no more than one occurrence has come since the watermark; `second` is the one after it.
fn decide_one(
    schedule: &Schedule,
    watermark: Timestamp,
    first: Timestamp,
    second: Option<Timestamp>,
    now: Timestamp,
) -> Decided {
    let due = due_at(schedule, first);
    if due > now {
        return Decided { watermark, due: Some(due), runs: Vec::new() };
    }
    let what = match schedule.misfire {
        Misfire::Skip if is_missed(schedule, first, now) => {
            return Decided {
                watermark: first,
                due: second.map(|second| due_at(schedule, second)),
                runs: vec![missed(&schedule.timing, watermark, first)],
            };
        }
        Misfire::Skip | Misfire::Once | Misfire::All => What::Fires(schedule.makes(first)),
    };
    let runs = vec![NewRun { occurrence: first, manual: false, what }];
    Decided { watermark: first, due: second.map(|second| due_at(schedule, second)), runs }
}

/// Fires now because somebody wants it; the watermark stays where it is.
pub fn by_hand(schedule: &Schedule, now: Timestamp) -> NewRun {
    // As engines keep it, so that what is made of it says the same.
    let now = whole_microseconds(now);
    NewRun { occurrence: now, manual: true, what: What::Fires(schedule.makes(now)) }
}

/// Is it too late for this occurrence?
fn is_missed(schedule: &Schedule, occurrence: Timestamp, now: Timestamp) -> bool {
    let due = due_at(schedule, occurrence);
    let halfway = due_after(schedule, occurrence).map(|next| next.duration_since(due) / 2);
    now.duration_since(due) > halfway.map_or(GRACE, |halfway| halfway.min(GRACE))
}

/// The last [`MISFIRE_ALL_MAX`] occurrences after `since`, up to this one, in their order.
fn newest(timing: &Timing, since: Timestamp, last: Timestamp) -> Vec<Timestamp> {
    let before = |time: &Timestamp| timing.last_until(since, *time - STEP);
    let mut newest: Vec<Timestamp> = std::iter::successors(Some(last), before).take(MISFIRE_ALL_MAX).collect();
    newest.reverse();
    newest
}

/// What is written of occurrences that are left out.
fn missed(timing: &Timing, since: Timestamp, to: Timestamp) -> NewRun {
    let all = std::iter::successors(timing.next_after(since), |time| timing.next_after(*time));
    let counted = all.take_while(|time| *time <= to).take(COUNTED_MAX + 1).count();
    let reason = match (counted, timing.next_after(since)) {
        (0 | 1, _) | (_, None) => "it was missed: nobody was there to fire it in time".into(),
        (counted, Some(from)) if counted > COUNTED_MAX => {
            format!("more than {COUNTED_MAX} were missed, from {from} to {to}")
        }
        (counted, Some(from)) => format!("{counted} were missed, from {from} to {to}"),
    };
    NewRun { occurrence: to, manual: false, what: What::Skipped(reason) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Topic;
    use crate::schedules::schedule::Target;

    fn at(text: &str) -> Timestamp {
        format!("2026-11-16T{text}Z").parse().unwrap()
    }

    fn every(secs: i64, misfire: Misfire) -> Schedule {
        let timing = Timing::every(SignedDuration::from_secs(secs), None).unwrap();
        let target = Target::Topic(Topic::stored("tick"));
        Schedule { misfire, ..Schedule::new(GroupName::stored("tick"), timing, target) }
    }

    fn fired(decided: &Decided) -> Vec<Timestamp> {
        let fires = decided.runs.iter().filter(|run| matches!(run.what, What::Fires(_)));
        fires.map(|run| run.occurrence).collect()
    }

    fn skipped(decided: &Decided) -> Vec<(Timestamp, &str)> {
        let skipped = decided.runs.iter().filter_map(|run| match &run.what {
            What::Skipped(reason) => Some((run.occurrence, reason.as_str())),
            What::Fires(_) => None,
        });
        skipped.collect()
    }

    #[test]
    fn what_is_due_fires_and_the_watermark_moves_there() {
        for misfire in [Misfire::Skip, Misfire::Once, Misfire::All] {
            let schedule = every(60, misfire);
            let decided = decide(&schedule, at("12:00:00"), at("12:01:00.2"));
            assert_eq!(fired(&decided), [at("12:01:00")]);
            assert_eq!((decided.watermark, decided.due), (at("12:01:00"), Some(at("12:02:00"))));
            // Whoever comes second finds nothing to decide; nor does one whose clock is behind.
            for now in ["12:01:00.3", "12:00:55"] {
                let again = decide(&schedule, decided.watermark, at(now));
                assert_eq!((again.runs.len(), again.watermark, again.due), (0, decided.watermark, decided.due));
            }
        }
    }

    #[test]
    fn the_misfire_policy_says_what_becomes_of_what_was_missed() {
        let (since, now) = (at("12:00:00"), at("12:05:40"));
        let decided = decide(&every(60, Misfire::Once), since, now);
        assert_eq!(fired(&decided), [at("12:05:00")]);
        assert_eq!(skipped(&decided)[0].0, at("12:04:00"));
        assert!(skipped(&decided)[0].1.starts_with("4 were missed, from 2026-11-16T12:01:00Z"));
        let decided = decide(&every(60, Misfire::All), since, now);
        assert_eq!((fired(&decided).len(), skipped(&decided).len()), (5, 0));
        // Forty seconds are too late for what comes every minute, and twenty are not.
        let decided = decide(&every(60, Misfire::Skip), since, now);
        assert_eq!((fired(&decided).len(), skipped(&decided)[0].0), (0, at("12:05:00")));
        assert_eq!((decided.watermark, decided.due), (at("12:05:00"), Some(at("12:06:00"))));
        let decided = decide(&every(60, Misfire::Skip), since, at("12:05:20"));
        assert_eq!(fired(&decided), [at("12:05:00")]);
    }

    #[test]
    fn making_up_for_all_is_bounded_and_says_what_was_left_out() {
        let decided = decide(&every(1, Misfire::All), at("12:00:00"), at("12:10:00.5"));
        let fired = fired(&decided);
        assert_eq!((fired.len(), fired[0], fired[99]), (MISFIRE_ALL_MAX, at("12:08:21"), at("12:10:00")));
        assert_eq!(skipped(&decided)[0].0, at("12:08:20"));
        assert!(skipped(&decided)[0].1.starts_with("more than 100 were missed"), "{:?}", skipped(&decided));
        let decided = decide(&every(1, Misfire::Once), at("02:00:00"), at("12:10:00.5"));
        assert!(skipped(&decided)[0].1.starts_with("more than 100 were missed"), "{:?}", skipped(&decided));
    }

    #[test]
    fn jitter_is_the_same_for_everybody_and_keeps_the_order() {
        let schedule = Schedule { jitter: SignedDuration::from_mins(10), ..every(60, Misfire::Once) };
        let other = Schedule { name: GroupName::stored("tock"), ..schedule.clone() };
        let occurrences = schedule.timing.upcoming(at("12:00:00"), 100);
        let dues: Vec<Timestamp> = occurrences.iter().map(|time| due_at(&schedule, *time)).collect();
        assert!(dues.is_sorted(), "an earlier occurrence fires first");
        assert!(
            dues.iter()
                .zip(&occurrences)
                .all(|(due, time)| due >= time && due.duration_since(*time) < SignedDuration::from_mins(1))
        );
        assert!(dues.iter().any(|due| due.as_second() % 60 > 30), "they are spread");
        assert_ne!(dues, occurrences.iter().map(|time| due_at(&other, *time)).collect::<Vec<_>>());
        // It fires when it is due, not at its time, and each once.
        let (mut watermark, mut seen) = (at("12:00:00"), Vec::new());
        for second in 0..600 {
            let now = at("12:00:00") + SignedDuration::from_secs(second);
            let decided = decide(&schedule, watermark, now);
            for time in fired(&decided) {
                let late = now.duration_since(due_at(&schedule, time));
                assert!(!late.is_negative() && late <= SignedDuration::from_secs(1), "{time} fired {late} late");
                seen.push(time);
            }
            assert!(skipped(&decided).is_empty());
            watermark = decided.watermark;
        }
        assert_eq!(seen, occurrences[..seen.len()]);
        assert!(seen.len() >= 9);
    }

    #[test]
    fn what_is_made_by_hand_says_the_time_that_is_kept() {
        let schedule = every(60, Misfire::Once);
        let run = by_hand(&schedule, at("12:00:00.123456789"));
        assert_eq!(run.occurrence, at("12:00:00.123456"));
        assert_eq!(run.what, What::Fires(schedule.makes(run.occurrence)));
    }

    #[test]
    fn what_never_comes_again_is_not_looked_at_again() {
        let timing = Timing::cron("0 0 13 16 11 ? 2026", None).unwrap();
        let schedule = Schedule { timing, ..every(60, Misfire::Once) };
        let decided = decide(&schedule, at("12:00:00"), at("13:00:00"));
        assert_eq!((fired(&decided).len(), decided.due), (1, None));
        assert_eq!(decide(&schedule, decided.watermark, at("14:00:00")).runs.len(), 0);
    }
}
