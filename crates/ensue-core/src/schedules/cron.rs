//! When does a cron expression fire?
//!
//! The calendar is croner's; what it leaves open is decided here. Five fields are those of Unix, six have seconds in front, seven
//! a year behind. A `?`, or seven fields, means Quartz: there Sunday is 1. An hour that does not come, or comes twice, is
//! decided by what the author has named:
//!
//! - An expression for *particular hours* fires once for each of its times on the clock. One that the clock leaps over comes at
//!   the end of the leap; one that the clock shows twice comes the first time.
//! - An expression for *every hour* follows the time that passes: what the clock leaps over does not come, what it shows twice
//!   comes twice.

use crate::error::Invalid;
use croner::parser::CronParser;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The longest expression, in bytes.
pub const CRON_BYTES_MAX: usize = 255;

/// The fields of seven: what each is called, and what may be written there.
const FIELDS: [(&str, &str); 7] = [
    ("second", "0-59"),
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day of month", "1-31, `L`, `15W`, `LW` or `?`"),
    ("month", "1-12 or JAN-DEC"),
    ("day of week", "0-7 or SUN-SAT (with `?` or seven fields 1-7, where Sunday is 1), `5L`, `5#2` or `?`"),
    ("year", "1-5000"),
];

/// What may stand for a whole expression.
const DESCRIPTORS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The seven fields of what comes every minute.
const EVERY_MINUTE: [&str; 7] = ["0", "*", "*", "*", "*", "*", "*"];

/// How many expressions are remembered.
const KNOWN_MAX: usize = 1_000;

/// The seven fields, read; or why they cannot be. Reading takes longer than most of what is done with it, and takes 10 kB, while many
/// schedules have the same expression: so what was read is remembered.
fn parsed(fields: &[String; 7], is_quartz: bool) -> Result<Arc<croner::Cron>, String> {
    static KNOWN: Mutex<BTreeMap<(String, bool), Arc<croner::Cron>>> = Mutex::new(BTreeMap::new());
    if fields.iter().any(|field| field.split(',').any(str::is_empty)) {
        return Err("a list has an empty part".into());
    }
    let key = (fields.join(" "), is_quartz);
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(parsed) = known().get(&key) {
        return Ok(parsed.clone());
    }
    let parser = CronParser::builder().alternative_weekdays(is_quartz).sloppy_ranges(true).build();
    let parsed = Arc::new(parser.parse(&key.0).map_err(|error| error.to_string())?);
    let mut known = known();
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(key, parsed.clone());
    Ok(parsed)
}

/// A cron expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    text: String,
    is_quartz: bool,
    /// Does it come in every hour of a day on which it comes?
    is_hourly: bool,
    parsed: Arc<croner::Cron>,
}

impl Cron {
    /// From its text; a refusal names the field of it that is wrong.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refuse = |reason: String| Invalid::new("cron", reason);
        let text = text.trim();
        if text.is_empty() || text.len() > CRON_BYTES_MAX {
            return Err(refuse(format!("has {} bytes; write 1 to {CRON_BYTES_MAX}, such as `30 2 * * *`", text.len())));
        }
        let expression = match text.strip_prefix('@') {
            Some(_) => described(text)?,
            None => text,
        };
        let fields: Vec<&str> = expression.split_whitespace().collect();
        let first = match fields.len() {
            5 => 1,
            6 | 7 => 0,
            count => {
                let reason = format!(
                    "has {count} fields; write five (minute hour day month weekday), six (with seconds in front) or seven (with a year behind)"
                );
                return Err(refuse(reason));
            }
        };
        let is_quartz = fields.len() == 7 || fields.iter().any(|field| field.contains('?'));
        let mut whole = EVERY_MINUTE.map(str::to_owned);
        for (index, field) in fields.iter().enumerate() {
            whole[first + index] = plain_field(first + index, field, is_quartz);
        }
        let parsed = match parsed(&whole, is_quartz) {
            Ok(parsed) => parsed,
            Err(error) => {
                // Each alone among fields that are right: which of them is it?
                let is_bad = |index: &usize| {
                    let mut alone = EVERY_MINUTE.map(str::to_owned);
                    alone[first + index].clone_from(&whole[first + index]);
                    parsed(&alone, is_quartz).is_err()
                };
                let Some(index) = (0..fields.len()).find(is_bad) else {
                    return Err(refuse(format!("cannot be read: {error}")));
                };
                let ((name, allowed), written, number) = (FIELDS[first + index], fields[index], index + 1);
                return Err(refuse(format!(
                    "has `{written}` as its {name} (field {number}): write {allowed}, `*`, or lists, ranges and steps of these",
                )));
            }
        };
        let is_hourly = parsed.pattern.hours.values().len() == 24;
        Ok(Self { text: text.to_owned(), is_quartz, is_hourly, parsed })
    }

    /// The expression as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Is its Sunday 1?
    pub fn is_quartz(&self) -> bool {
        self.is_quartz
    }

    /// The parts of it.
    pub(super) fn pattern(&self) -> &croner::CronPattern {
        &self.parsed.pattern
    }

    /// What it means, in words.
    pub(super) fn in_words(&self) -> String {
        super::words::of(self.pattern())
    }

    /// The first time after this one at which it fires; none if there is none any more.
    pub fn next_after(&self, time: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.is_hourly {
            let zoned = time.to_zoned(zone.clone());
            return self.parsed.find_next_occurrence(&zoned, false).ok().map(|next| next.timestamp());
        }
        // Whatever the clock shows up to here has been shown for the first time by now.
        let mut shown = zone.to_datetime(time);
        loop {
            shown = self.parsed.find_next_occurrence(&shown, false).ok()?;
            let comes = first_time(shown, zone)?;
            if comes > time {
                return Some(comes);
            }
        }
    }
}

/// The expression that a descriptor stands for.
fn described(text: &str) -> Result<&'static str, Invalid> {
    let found = DESCRIPTORS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, expression)| *expression).ok_or_else(|| {
        let names: Vec<&str> = DESCRIPTORS.iter().map(|(name, _)| *name).collect();
        Invalid::new("cron", format!("{text:?} is not one of {}; for an interval write `every`", names.join(", ")))
    })
}

/// A field as croner reads it.
fn plain_field(place: usize, field: &str, is_quartz: bool) -> String {
    if place != 5 {
        return field.into();
    }
    let days: Vec<String> = field.split(',').map(|day| plain_weekday(day, is_quartz)).collect();
    days.join(",")
}

/// In Quartz an `L` alone is the last day of a week, and steps begin with 1; in Unix 7 is Sunday, too.
fn plain_weekday(day: &str, is_quartz: bool) -> String {
    match (is_quartz, day.strip_prefix("*/")) {
        (true, Some(step)) => format!("1/{step}"),
        (true, None) if day.eq_ignore_ascii_case("L") => "7".into(),
        (false, _) if day.eq_ignore_ascii_case("7L") => "0L".into(),
        (false, _) if day.starts_with("7#") => day.replacen('7', "0", 1),
        _ => day.into(),
    }
}

/// When does a clock in this zone first show this time, or leap over it?
fn first_time(shown: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(shown);
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => ambiguous.unambiguous().ok(),
        AmbiguousOffset::Fold { .. } => ambiguous.earlier().ok(),
        // By the offset after the leap it is a moment before it: the leap is the next change of the clock.
        AmbiguousOffset::Gap { .. } => {
            let before = ambiguous.earlier().ok()?;
            zone.following(before).next().map(|change| change.timestamp())
        }
    }
}
