//! When does a schedule fire?
//!
//! A cron expression read on the clock of a time zone, or every so often. Zones come from a database that is part of the program, so
//! that every process that runs the same version computes the same times.

use super::cron::Cron;
use crate::error::Invalid;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use std::sync::OnceLock;

/// The shortest interval.
pub const EVERY_MIN: SignedDuration = SignedDuration::from_secs(1);
/// The longest interval.
pub const EVERY_MAX: SignedDuration = SignedDuration::from_hours(366 * 24);
/// Whose clock is meant unless told.
pub const ZONE: &str = "UTC";

/// What its times are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// A cron expression.
    Cron(Box<Cron>),
    /// Every so often, counted from the beginning of 1970: so it needs to remember nothing, and `every: 5m` comes at
    /// five past.
    Every(SignedDuration),
}

/// When a schedule fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    when: When,
    zone_name: String,
    zone: TimeZone,
}

/// The zones there are.
fn zones() -> &'static TimeZoneDatabase {
    static ZONES: OnceLock<TimeZoneDatabase> = OnceLock::new();
    ZONES.get_or_init(TimeZoneDatabase::bundled)
}

/// The zone of this name, with its name as it is usually written.
fn zone(name: &str) -> Result<(String, TimeZone), Invalid> {
    let known = || zones().get(name).ok().and_then(|zone| Some((zone.iana_name()?.to_owned(), zone)));
    known().ok_or_else(|| {
        let reason =
            format!("{name:?} is not a time zone that is known; write an IANA name such as `Europe/Berlin` or `UTC`");
        Invalid::new("timezone", reason)
    })
}

impl Timing {
    /// By a cron expression, on the clock of a zone; UTC unless told.
    pub fn cron(expression: &str, zone_name: Option<&str>) -> Result<Self, Invalid> {
        let (zone_name, zone) = zone(zone_name.unwrap_or(ZONE))?;
        Ok(Self { when: When::Cron(Box::new(Cron::parse(expression)?)), zone_name, zone })
    }

    /// Every so often. The zone only says how its times are shown.
    pub fn every(every: SignedDuration, zone_name: Option<&str>) -> Result<Self, Invalid> {
        if !(EVERY_MIN..=EVERY_MAX).contains(&every) {
            return Err(Invalid::new("every", "is too short or too long: write 1s to 366d, such as `5m`"));
        }
        if every.subsec_nanos() % 1_000 != 0 {
            return Err(Invalid::new("every", "has parts of a microsecond: write whole ones"));
        }
        let (zone_name, zone) = zone(zone_name.unwrap_or(ZONE))?;
        Ok(Self { when: When::Every(every), zone_name, zone })
    }

    /// What its times are made of.
    pub fn when(&self) -> &When {
        &self.when
    }

    /// The name of its zone.
    pub fn zone_name(&self) -> &str {
        &self.zone_name
    }

    /// Its zone.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The first time after this one at which it fires; none if there is none any more.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        match &self.when {
            When::Cron(cron) => cron.next_after(time, &self.zone),
            When::Every(every) => {
                let every = i64::try_from(every.as_micros()).ok()?;
                let next = time.as_microsecond().div_euclid(every).checked_add(1)?.checked_mul(every)?;
                Timestamp::from_microsecond(next).ok()
            }
        }
    }

    /// Does it fire when that one does? The zone of an interval only says how its times are shown.
    pub fn has_times_of(&self, other: &Self) -> bool {
        match self.when {
            When::Cron(_) => self == other,
            When::Every(_) => self.when == other.when,
        }
    }

    /// The next times after this one: at most so many.
    pub fn upcoming(&self, after: Timestamp, count: usize) -> Vec<Timestamp> {
        let first = self.next_after(after);
        std::iter::successors(first, |time| self.next_after(*time)).take(count).collect()
    }

    /// The last time up to this one, if there is one after `since`. Found by halving, so that it does not matter how many
    /// lie between.
    pub fn last_until(&self, since: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let mut last = self.next_after(since).filter(|first| *first <= until)?;
        // Nothing comes after this one that is wanted.
        let mut end = until;
        while let Some(next) = self.next_after(last).filter(|next| *next <= end) {
            let middle = last + end.duration_since(last) / 2;
            match self.next_after(middle).filter(|time| *time <= end) {
                Some(time) => last = time,
                None => (last, end) = (next, middle),
            }
        }
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn next(cron: &str, zone: &str, after: &str) -> String {
        let timing = Timing::cron(cron, Some(zone)).unwrap();
        timing
            .next_after(at(after))
            .map_or("never".into(), |time| time.to_zoned(timing.zone().clone()).datetime().to_string())
    }

    /// H20: 02:30 does not come on 2026-03-29 and comes twice on 2026-10-25; it fires once each.
    #[test]
    fn a_time_that_the_clock_leaps_over_or_shows_twice_comes_once() {
        let timing = Timing::cron("30 2 * * *", Some("Europe/Berlin")).unwrap();
        let spring = timing.upcoming(at("2026-03-28T00:00:00Z"), 3);
        assert_eq!(spring, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"].map(at));
        let autumn = timing.upcoming(at("2026-10-24T00:00:00Z"), 3);
        assert_eq!(autumn, ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"].map(at));
        // From within the hour that comes twice.
        assert_eq!(timing.next_after(at("2026-10-25T01:10:00Z")), Some(at("2026-10-26T01:30:00Z")));
        // Four times that the clock leaps over come together at the end of the leap: once.
        let quarters = Timing::cron("*/15 2 * * *", Some("Europe/Berlin")).unwrap();
        let leapt = quarters.upcoming(at("2026-03-28T01:45:00Z"), 2);
        assert_eq!(leapt, ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"].map(at));
    }

    #[test]
    fn what_comes_every_hour_follows_the_time_that_passes() {
        let timing = Timing::cron("30 * * * *", Some("Europe/Berlin")).unwrap();
        for from in ["2026-03-28T22:00:00Z", "2026-10-24T22:00:00Z"] {
            let times = timing.upcoming(at(from), 8);
            assert!(times.windows(2).all(|pair| pair[1].duration_since(pair[0]).as_secs() == 3_600), "{times:?}");
        }
    }

    #[test]
    fn five_six_and_seven_fields_and_descriptors_are_read() {
        let monday = "2026-11-16T11:00:00Z";
        for (cron, expected) in [
            ("30 2 * * *", "2026-11-17T02:30:00"),
            ("15 30 2 * * *", "2026-11-17T02:30:15"),
            ("0 30 2 1 1 ? 2030", "2030-01-01T02:30:00"),
            ("@daily", "2026-11-17T00:00:00"),
            ("@Midnight", "2026-11-17T00:00:00"),
            ("@hourly", "2026-11-16T12:00:00"),
            ("@weekly", "2026-11-22T00:00:00"),
            ("@monthly", "2026-12-01T00:00:00"),
            ("@yearly", "2027-01-01T00:00:00"),
            // Seed 004: every second of hour 0, and not every minute.
            ("0/1 * 0 ? * * *", "2026-11-17T00:00:00"),
            ("0 0/5 * ? * * *", "2026-11-16T11:05:00"),
            // Unix counts from Sunday = 0, Quartz from Sunday = 1.
            ("0 12 * * 1", "2026-11-16T12:00:00"),
            ("0 0 12 * * 1", "2026-11-16T12:00:00"),
            ("0 0 12 ? * 1", "2026-11-22T12:00:00"),
            ("0 0 12 * * 1 *", "2026-11-22T12:00:00"),
            ("0 12 ? * 7", "2026-11-21T12:00:00"),
            ("0 12 * * 7", "2026-11-22T12:00:00"),
            ("0 0 12 ? * L", "2026-11-21T12:00:00"),
            ("0 0 12 ? * 6L", "2026-11-27T12:00:00"),
            ("0 0 12 ? * 6#3", "2026-11-20T12:00:00"),
            ("0 12 * * 7L", "2026-11-29T12:00:00"),
            ("0 12 * * 7#3", "2026-12-20T12:00:00"),
            ("0 0 12 ? * */2", "2026-11-17T12:00:00"),
            ("0 0 12 ? * FRI#3", "2026-11-20T12:00:00"),
            ("0 0 12 L * ?", "2026-11-30T12:00:00"),
            ("0 0 12 15W 8 ?", "2027-08-16T12:00:00"),
            ("0 0 12 LW 1 ?", "2027-01-29T12:00:00"),
            ("0 0 29 2 *", "2028-02-29T00:00:00"),
        ] {
            assert_eq!(next(cron, "UTC", monday), expected, "{cron}");
        }
        assert_eq!(next("0 0 0 1 1 ? 2020", "UTC", monday), "never");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_field() {
        for (cron, part) in [
            ("", "0 bytes"),
            ("* * *", "3 fields"),
            ("61 * * * *", "`61` as its minute (field 1)"),
            ("* 24 * * *", "`24` as its hour (field 2)"),
            ("61 * * * * *", "`61` as its second (field 1)"),
            ("0 0 32 * *", "`32` as its day of month (field 3)"),
            ("0 0 1 FOO *", "`FOO` as its month (field 4)"),
            ("0 0 * * ABC", "`ABC` as its day of week (field 5)"),
            ("0 0 12 ? * 0", "`0` as its day of week (field 6)"),
            ("0 0 0 1 1 ? nope", "`nope` as its year (field 7)"),
            ("1,,2 * * * *", "`1,,2` as its minute"),
            ("*/0 * * * *", "`*/0` as its minute"),
            ("5-1 * * * *", "`5-1` as its minute"),
            ("? * * * *", "`?` as its minute"),
            ("@fortnightly", "@daily"),
            ("@every 5m", "write `every`"),
        ] {
            let invalid = Timing::cron(cron, None).unwrap_err();
            assert_eq!(invalid.field, "cron");
            assert!(invalid.reason.contains(part), "{cron}: {invalid}");
        }
        for zone in ["Mars/Olympus", "", "+02:00", "CEST"] {
            assert_eq!(Timing::cron("@daily", Some(zone)).unwrap_err().field, "timezone", "{zone}");
        }
        assert_eq!(Timing::cron("@daily", Some("europe/berlin")).unwrap().zone_name(), "Europe/Berlin");
        for every in [SignedDuration::ZERO, SignedDuration::from_millis(999), SignedDuration::from_hours(24 * 400)] {
            assert_eq!(Timing::every(every, None).unwrap_err().field, "every");
        }
    }

    #[test]
    fn an_interval_needs_to_remember_nothing() {
        let timing = Timing::every(SignedDuration::from_mins(5), None).unwrap();
        let times = timing.upcoming(at("2026-11-16T11:02:03.5Z"), 2);
        assert_eq!(times, ["2026-11-16T11:05:00Z", "2026-11-16T11:10:00Z"].map(at));
        assert_eq!(timing.next_after(at("1969-12-31T23:59:59Z")), Some(Timestamp::UNIX_EPOCH));
        assert_eq!(timing.next_after(Timestamp::MAX), None);
        let elsewhere = Timing::every(SignedDuration::from_mins(5), Some("Europe/Berlin")).unwrap();
        assert!(timing.has_times_of(&elsewhere) && timing != elsewhere);
        let cron = |zone| Timing::cron("@daily", Some(zone)).unwrap();
        assert!(cron("UTC").has_times_of(&cron("UTC")) && !cron("UTC").has_times_of(&cron("Europe/Berlin")));
    }

    #[test]
    fn the_last_time_is_found_however_many_lie_between() {
        for timing in [
            Timing::cron("* * 0 * * *", Some("Europe/Berlin")).unwrap(),
            Timing::cron("30 2 * * *", Some("Europe/Berlin")).unwrap(),
            Timing::every(SignedDuration::from_secs(7), None).unwrap(),
        ] {
            let (since, until) = (at("2026-10-23T12:00:00Z"), at("2026-10-26T12:00:00Z"));
            let times = std::iter::successors(timing.next_after(since), |time| timing.next_after(*time));
            let all: Vec<_> = times.take_while(|time| *time <= until).collect();
            assert_eq!(timing.last_until(since, until), all.last().copied());
            assert_eq!(timing.last_until(since, all[0]), Some(all[0]));
            let before = all[0] - SignedDuration::from_micros(1);
            assert_eq!(timing.last_until(since, before), None);
            assert_eq!(timing.last_until(since, all[1] - SignedDuration::from_micros(1)), Some(all[0]));
        }
    }
}
