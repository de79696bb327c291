//! Fire times equal those that are found by looking at every minute: none is doubled and none is missed when clocks change (H20).
//!
//! What is looked at is the clock of each zone, minute by minute, for ten years. Usually only the days around each change of
//! the clock are, and some others; `ENSUE_TEST_LONG=1` looks at all of them (`make years`).

use ensue_core::Timestamp;
use ensue_core::schedules::Timing;
use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, ToSpan};
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// What a clock shows.
#[derive(Clone, Copy)]
struct Shown {
    minute: i64,
    hour: i64,
    day: i8,
    is_last_day: bool,
    /// Sunday is 0.
    weekday: i64,
}

/// A clock without a zone: it shows how many minutes have passed since the beginning of 1970. Its own arithmetic, as that
/// is cheap, and not what is tested; the calendar is asked once a day.
#[derive(Clone)]
struct Clock {
    days: i64,
    date: Date,
}

impl Clock {
    fn new() -> Self {
        Self { days: 0, date: date(1970, 1, 1) }
    }

    fn shows(&mut self, minutes: i64) -> Shown {
        let (days, rest) = (minutes.div_euclid(24 * 60), minutes.rem_euclid(24 * 60));
        if days != self.days {
            (self.days, self.date) = (days, date(1970, 1, 1) + days.days());
        }
        let (day, is_last_day) = (self.date.day(), self.date.day() == self.date.days_in_month());
        // 1970 began with a Thursday.
        Shown { minute: rest % 60, hour: rest / 60, day, is_last_day, weekday: (days + 4) % 7 }
    }
}

/// An expression, whether it names hours, and which times on the clock it means.
type Pattern = (&'static str, bool, fn(Shown) -> bool);

const PATTERNS: [Pattern; 10] = [
    ("30 2 * * *", true, |t| t.hour == 2 && t.minute == 30),
    ("0 0 * * *", true, |t| t.hour == 0 && t.minute == 0),
    ("15,45 0-3 * * *", true, |t| t.hour <= 3 && (t.minute == 15 || t.minute == 45)),
    ("*/15 */2 * * *", true, |t| t.hour % 2 == 0 && t.minute % 15 == 0),
    ("5 1 * * SUN", true, |t| t.hour == 1 && t.minute == 5 && t.weekday == 0),
    ("0 0 1 ? * 2-6", true, |t| t.hour == 1 && t.minute == 0 && t.weekday != 0 && t.weekday != 6),
    ("30 23 L * *", true, |t| t.hour == 23 && t.minute == 30 && t.is_last_day),
    ("0 * * * *", false, |t| t.minute == 0),
    ("*/10 * * * *", false, |t| t.minute % 10 == 0),
    ("30 * 29 * *", false, |t| t.minute == 30 && t.day == 29),
];

/// How many minutes the clock of a zone is ahead, at this minute since the beginning of 1970.
fn ahead(zone: &TimeZone, minute: i64) -> i64 {
    let seconds = zone.to_offset(Timestamp::from_second(minute * 60).unwrap()).seconds();
    assert_eq!(seconds % 60, 0, "a clock that is ahead by parts of a minute");
    i64::from(seconds / 60)
}

/// The fire times of every pattern in `from..to`, found by looking at every minute.
fn enumerated(zone: &TimeZone, from: Timestamp, to: Timestamp) -> [Vec<Timestamp>; PATTERNS.len()] {
    let (mut found, mut clock) = (PATTERNS.map(|_| Vec::new()), Clock::new());
    let (from, to) = (from.as_second() / 60, to.as_second() / 60);
    // Some hours earlier, so that what is shown twice is known to be.
    let mut now = from - 3 * 60;
    let mut last = now - 1 + ahead(zone, now - 1);
    let mut furthest = last;
    while now < to {
        // The zone is asked at both ends of an hour, and every minute of it if the clock is changed meanwhile.
        let (offset, end) = (ahead(zone, now), now + 60);
        let is_changed = offset != ahead(zone, end);
        let mut minute = now;
        while minute < end.min(to) {
            let minutes = minute + if is_changed { ahead(zone, minute) } else { offset };
            if minute >= from {
                let (is_new, leapt, shows) = (minutes > furthest, last + 1..minutes, clock.shows(minutes));
                for (index, (_, names_hours, means)) in PATTERNS.iter().enumerate() {
                    let comes = means(shows) && (is_new || !names_hours);
                    // Almost never is anything leapt over.
                    let leaps = || *names_hours && leapt.clone().any(|minutes| means(clock.clone().shows(minutes)));
                    if comes || (!leapt.is_empty() && leaps()) {
                        found[index].push(Timestamp::from_second(minute * 60).unwrap());
                    }
                }
            }
            (last, furthest) = (minutes, if minutes > furthest { minutes } else { furthest });
            minute += 1;
        }
        now = end;
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

/// Compares the fire times in one zone. Answers how many windows were looked at, and how many fire times there were.
fn compare(name: &str, from: Timestamp, to: Timestamp) -> (usize, usize) {
    let timings = PATTERNS.map(|pattern| Timing::cron(pattern.0, Some(name)).unwrap());
    let zone = timings[0].zone();
    let (windows, mut fired) = (windows(zone, from, to), 0);
    for &(from, to) in &windows {
        for ((timing, expected), (text, ..)) in timings.iter().zip(enumerated(zone, from, to)).zip(PATTERNS) {
            let first = timing.next_after(from - SignedDuration::from_micros(1));
            let times = std::iter::successors(first, |time| timing.next_after(*time));
            let times: Vec<Timestamp> = times.take_while(|time| *time < to).collect();
            // Compared by hand, as both together would be pages and pages.
            let differs = times.iter().zip(&expected).find(|(time, expected)| time != expected);
            assert_eq!(differs, None, "`{text}` in {name}, {from} to {to}");
            assert_eq!(times.len(), expected.len(), "`{text}` in {name}, {from} to {to}");
            fired += times.len();
        }
    }
    (windows.len(), fired)
}

#[test]
fn fire_times_of_ten_years_in_fifty_zones_are_those_of_the_clock() {
    let (from, to): (Timestamp, Timestamp) =
        ("2026-01-01T00:00:00Z".parse().unwrap(), "2036-01-01T00:00:00Z".parse().unwrap());
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut windows, mut fired) = (0, 0);
        while let Some(name) = ZONES.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = compare(name, from, to);
            (windows, fired) = (windows + found.0, fired + found.1);
        }
        (windows, fired)
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let found: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let windows: usize = found.iter().map(|found| found.0).sum();
    let fired: usize = found.iter().map(|found| found.1).sum();
    println!("{fired} fire times of {} expressions in {} zones, in {windows} windows", PATTERNS.len(), ZONES.len());
    match std::env::var_os("ENSUE_TEST_LONG") {
        Some(_) => assert_eq!(windows, ZONES.len()),
        None => assert!(windows > 500, "{windows} windows were looked at"),
    }
}
