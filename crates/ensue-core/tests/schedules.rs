//! Fire times equal those that are found by looking at every minute: none is doubled and none is missed when clocks change (H20).
//!
//! What is looked at is the clock of each zone, minute by minute, for ten years. Usually only the days around each change of
//! the clock are, and some others; `ENSUE_TEST_LONG=1` looks at all of them.

use ensue_core::Timestamp;
use ensue_core::schedules::Timing;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::collections::HashSet;

const ZONES: [&str; 50] = [
    "UTC",
    "Europe/Berlin",
    "Europe/London",
    "Europe/Dublin",
    "Europe/Lisbon",
    "Europe/Kyiv",
    "Europe/Chisinau",
    "Europe/Moscow",
    "Europe/Istanbul",
    "Atlantic/Azores",
    "Atlantic/Reykjavik",
    "Africa/Casablanca",
    "Africa/El_Aaiun",
    "Africa/Cairo",
    "Africa/Lagos",
    "Africa/Johannesburg",
    "Africa/Nairobi",
    "Asia/Jerusalem",
    "Asia/Gaza",
    "Asia/Beirut",
    "Asia/Tehran",
    "Asia/Dubai",
    "Asia/Kabul",
    "Asia/Karachi",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Asia/Dhaka",
    "Asia/Yangon",
    "Asia/Bangkok",
    "Asia/Shanghai",
    "Asia/Tokyo",
    "Australia/Perth",
    "Australia/Eucla",
    "Australia/Adelaide",
    "Australia/Sydney",
    "Australia/Lord_Howe",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Apia",
    "Pacific/Kiritimati",
    "Pacific/Norfolk",
    "Pacific/Easter",
    "America/New_York",
    "America/Los_Angeles",
    "America/St_Johns",
    "America/Havana",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/Nuuk",
    "Antarctica/Troll",
];

/// An expression, whether it names hours, and which times on the clock it means.
type Pattern = (&'static str, bool, fn(DateTime) -> bool);

const PATTERNS: [Pattern; 10] = [
    ("30 2 * * *", true, |t| t.hour() == 2 && t.minute() == 30),
    ("0 0 * * *", true, |t| t.hour() == 0 && t.minute() == 0),
    ("15,45 0-3 * * *", true, |t| t.hour() <= 3 && [15, 45].contains(&t.minute())),
    ("*/15 */2 * * *", true, |t| t.hour() % 2 == 0 && t.minute() % 15 == 0),
    ("5 1 * * SUN", true, |t| t.hour() == 1 && t.minute() == 5 && t.weekday().to_sunday_zero_offset() == 0),
    ("0 0 1 ? * 2-6", true, |t| {
        t.hour() == 1 && t.minute() == 0 && (1..=5).contains(&t.weekday().to_sunday_zero_offset())
    }),
    ("30 23 L * *", true, |t| t.hour() == 23 && t.minute() == 30 && t.day() == t.days_in_month()),
    ("0 * * * *", false, |t| t.minute() == 0),
    ("*/10 * * * *", false, |t| t.minute() % 10 == 0),
    ("30 * 29 * *", false, |t| t.minute() == 30 && t.day() == 29),
];

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// The fire times of every pattern in `from..to`, found by looking at every minute.
fn enumerated(zone: &TimeZone, from: Timestamp, to: Timestamp) -> [Vec<Timestamp>; PATTERNS.len()] {
    let (mut found, mut shown) = (PATTERNS.map(|_| Vec::new()), HashSet::new());
    // Some hours earlier, so that what is shown twice is known to be.
    let mut now = from - SignedDuration::from_hours(3);
    let mut last = zone.to_datetime(now - MINUTE);
    while now < to {
        let shows = zone.to_datetime(now);
        let is_new = shown.insert(shows);
        let leapt: Vec<DateTime> = match shows.duration_since(last) {
            passed if passed <= MINUTE => Vec::new(),
            passed => (1..passed.as_mins() as i32).map(|n| last + MINUTE * n).collect(),
        };
        if now >= from {
            for ((_, names_hours, means), found) in PATTERNS.iter().zip(&mut found) {
                let leaps = *names_hours && leapt.iter().any(|time| means(*time));
                if leaps || (means(shows) && (is_new || !*names_hours)) {
                    found.push(now);
                }
            }
        }
        (last, now) = (shows, now + MINUTE);
    }
    found
}

/// Where to look: around every change of the clock, and at a month that has none.
fn windows(zone: &TimeZone, from: Timestamp, to: Timestamp) -> Vec<(Timestamp, Timestamp)> {
    if std::env::var_os("ENSUE_TEST_LONG").is_some() {
        return vec![(from, to)];
    }
    let day = SignedDuration::from_hours(24);
    let changes = zone.following(from).map(|change| change.timestamp()).take_while(|at| *at < to);
    let mut windows: Vec<_> = changes.map(|at| (at - day, at + day)).collect();
    windows.push((from, from + day * 31));
    windows
}

#[test]
fn fire_times_of_ten_years_in_fifty_zones_are_those_of_the_clock() {
    let (from, to): (Timestamp, Timestamp) =
        ("2026-01-01T00:00:00Z".parse().unwrap(), "2036-01-01T00:00:00Z".parse().unwrap());
    let mut changes = 0;
    for name in ZONES {
        let timings = PATTERNS.map(|pattern| Timing::cron(pattern.0, Some(name)).unwrap());
        let zone = timings[0].zone();
        for (from, to) in windows(zone, from, to) {
            changes += 1;
            for (timing, expected) in timings.iter().zip(enumerated(zone, from, to)) {
                let first = timing.next_after(from - SignedDuration::from_micros(1));
                let times = std::iter::successors(first, |time| timing.next_after(*time));
                let times: Vec<Timestamp> = times.take_while(|time| *time < to).collect();
                assert_eq!(times, expected, "{:?} in {name}, {from} to {to}", timing.when());
            }
        }
    }
    assert!(std::env::var_os("ENSUE_TEST_LONG").is_some() || changes > 500, "{changes} windows were looked at");
}
