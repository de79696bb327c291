//! What does a cron expression say, in words?
//!
//! Told from the times that it has and never from how it was written: `0-10/5` steps by five and is not every five minutes.

use croner::{CronComponent, CronPattern};

/// How croner marks a number: it is meant; it is the last of its kind in a month; the working day nearest to it is.
const MEANT: u8 = 1;
const LAST: u8 = 1 << 6;
const NEAREST: u8 = 1 << 7;
/// The first to the fifth of its kind in a month.
const NTH: [u8; 5] = [1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5];

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// Up to how many times of a day are told one by one.
const TIMES_TOLD: usize = 6;
/// Up to how many numbers that are equally far apart are told one by one.
const NUMBERS_TOLD: usize = 9;

/// What it says, without a full stop.
pub(super) fn of(pattern: &CronPattern) -> String {
    let parts = [time(pattern), days(pattern), months(pattern), years(pattern)];
    let words = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Which of the numbers of a field are meant.
enum Meant {
    /// All of them.
    All,
    /// From the first in steps that come out even, so that it goes on from one hour or day into the next.
    Every(u16),
    /// These.
    Some(Vec<u16>),
}

impl Meant {
    fn of(field: &CronComponent) -> Self {
        let numbers = field.values();
        let whole = field.max - field.min + 1;
        if numbers.len() == usize::from(whole) {
            return Self::All;
        }
        match step(&numbers) {
            Some(step)
                if numbers[0] == field.min && numbers.len() * usize::from(step) == usize::from(whole) && step > 1 =>
            {
                Self::Every(step)
            }
            _ => Self::Some(numbers),
        }
    }
}

/// How far apart numbers are, if that is the same for all.
fn step(numbers: &[u16]) -> Option<u16> {
    let step = numbers.get(1)? - numbers[0];
    numbers.windows(2).all(|pair| pair[1] - pair[0] == step).then_some(step)
}

/// When on its days.
fn time(pattern: &CronPattern) -> Option<String> {
    let (seconds, minutes, hours) = (pattern.seconds.values(), pattern.minutes.values(), pattern.hours.values());
    if seconds.len() == 1 && minutes.len() * hours.len() <= TIMES_TOLD {
        let second =
            seconds.iter().find(|second| **second > 0).map(|second| format!(":{second:02}")).unwrap_or_default();
        let times = hours.iter().flat_map(|hour| minutes.iter().map(move |minute| format!("{hour:02}:{minute:02}")));
        return Some(format!("at {}", listed(times.map(|time| format!("{time}{second}")).collect())));
    }
    let seconds = (seconds != [0]).then_some((&pattern.seconds, "second"));
    let fields = seconds.into_iter().chain([(&pattern.minutes, "minute"), (&pattern.hours, "hour")]);
    let mut said: Vec<String> = Vec::new();
    // Of numbers it is to be said of which minutes or hours; "every five minutes" is of every hour.
    let mut is_open = false;
    for (field, unit) in fields {
        let meant = Meant::of(field);
        let words = match (&meant, said.is_empty()) {
            (Meant::All, false) if !is_open => continue,
            (Meant::All, _) => format!("every {unit}"),
            (Meant::Every(step), true) => format!("every {step} {unit}s"),
            (Meant::Every(step), false) => format!("every {} {unit} from {}", ordinal(*step), field.min),
            (Meant::Some(some), true) => format!("at {}", numbers(unit, some)),
            (Meant::Some(some), false) => numbers(unit, some),
        };
        is_open = matches!(meant, Meant::Some(_));
        said.push(words);
    }
    Some(said.join(" of "))
}

/// `minute 5`, `hours 9-17`, `minutes 1 to 59 in steps of 2`.
fn numbers(unit: &str, numbers: &[u16]) -> String {
    let plural = if numbers.len() > 1 { "s" } else { "" };
    match (step(numbers), numbers) {
        (Some(step), [first, .., last]) if step > 1 && numbers.len() > NUMBERS_TOLD => {
            format!("{unit}s {first} to {last} in steps of {step}")
        }
        _ => format!("{unit}{plural} {}", in_ranges(numbers)),
    }
}

/// Numbers as one writes them: `1, 2 and 9-17`.
fn in_ranges(numbers: &[u16]) -> String {
    let mut items = Vec::new();
    for run in numbers.chunk_by(|one, next| *next == one + 1) {
        match run {
            [first, _, .., last] => items.push(format!("{first}-{last}")),
            few => items.extend(few.iter().map(u16::to_string)),
        }
    }
    listed(items)
}

fn listed(items: Vec<String>) -> String {
    match items.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        Some((last, _)) => last.clone(),
        None => String::new(),
    }
}

fn ordinal(number: u16) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// On which days.
fn days(pattern: &CronPattern) -> Option<String> {
    let (of_month, of_week) = (days_of_month(&pattern.days), days_of_week(&pattern.days_of_week));
    match (pattern.is_dom_wildcard(), pattern.is_dow_wildcard()) {
        (true, true) => None,
        (false, true) => Some(format!("on {of_month}")),
        (true, false) => Some(format!("on {of_week}")),
        (false, false) if pattern.matches_dom_and_dow() => Some(format!("on {of_month}, if it is also {of_week}")),
        (false, false) => Some(format!("on {of_month} or {of_week}")),
    }
}

fn days_of_month(days: &CronComponent) -> String {
    let (named, nearest) = (days.values(), days.get_set_values(NEAREST));
    let mut parts = Vec::new();
    if !named.is_empty() {
        parts.push(numbers("day", &named));
    }
    match (days.is_feature_enabled(LAST), days.is_feature_enabled(NEAREST)) {
        (true, true) => parts.push("the last working day of the month".into()),
        (true, false) => parts.push("the last day of the month".into()),
        (false, _) => {}
    }
    if !nearest.is_empty() {
        parts.push(format!("the working day nearest to {}", numbers("day", &nearest)));
    }
    listed(parts)
}

fn days_of_week(days: &CronComponent) -> String {
    // Both 0 and 7 are Sunday.
    let names = |bit: u8| {
        let mut days: Vec<usize> = days.get_set_values(bit).into_iter().map(|day| usize::from(day) % 7).collect();
        days.sort_unstable();
        days.dedup();
        days.into_iter().map(|day| WEEKDAYS[day].to_owned()).collect::<Vec<_>>()
    };
    let mut parts = names(MEANT);
    for (bit, number) in NTH.into_iter().zip(1..) {
        parts.extend(names(bit).into_iter().map(|day| format!("the {} {day} of the month", ordinal(number))));
    }
    parts.extend(names(LAST).into_iter().map(|day| format!("the last {day} of the month")));
    listed(parts)
}

fn months(pattern: &CronPattern) -> Option<String> {
    let months = pattern.months.values();
    let name = |month: &u16| MONTHS.get(usize::from(*month).wrapping_sub(1)).map(|name| name.to_string());
    (months.len() < MONTHS.len()).then(|| format!("in {}", listed(months.iter().filter_map(name).collect())))
}

fn years(pattern: &CronPattern) -> Option<String> {
    match Meant::of(&pattern.years) {
        Meant::All => None,
        Meant::Every(step) => Some(format!("in every {} year from {}", ordinal(step), pattern.years.min)),
        Meant::Some(years) => Some(format!("in {}", in_ranges_or_steps(&years))),
    }
}

fn in_ranges_or_steps(years: &[u16]) -> String {
    match (step(years), years) {
        (Some(step), [first, .., last]) if step > 1 && years.len() > NUMBERS_TOLD => {
            format!("{first} to {last} in steps of {step}")
        }
        _ => in_ranges(years),
    }
}
