//! How far is a job that runs?
//!
//! A worker says so as often as it likes; the newest is kept. A program says it with a line of its output:
//! `::progress 40 of 100 rows`.

use crate::error::Invalid;
use jiff::Timestamp;
use std::fmt;

/// What a line begins with that says how far its program is.
pub const PROGRESS_MARK: &str = "::progress";
/// The longest word for what is counted, in bytes.
pub const UNIT_BYTES_MAX: usize = 64;
/// The largest count: engines keep signed numbers.
const COUNT_MAX: u64 = i64::MAX as u64;

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// How much is done.
    pub done: u64,
    /// Of how much, if that is known.
    pub total: Option<u64>,
    /// What is counted, such as `rows`.
    pub unit: Option<String>,
    /// When it was said.
    pub at: Timestamp,
}

impl Progress {
    /// Refuses what no engine should keep.
    pub fn check(&self) -> Result<(), Invalid> {
        for (field, count) in [("done", Some(self.done)), ("total", self.total)] {
            if let Some(count) = count.filter(|count| *count > COUNT_MAX) {
                return Err(Invalid::new(field, format!("is {count}; at most {COUNT_MAX} can be kept")));
            }
        }
        match &self.unit {
            Some(unit) => crate::text::check_text("unit", unit, UNIT_BYTES_MAX),
            None => Ok(()),
        }
    }

    /// What a line of a program's output says at this time: `::progress 40`, `::progress 40 rows`, `::progress 40 of 100`,
    /// `::progress 40 of 100 rows` or `::progress 40%`. None if it is a line like any other.
    pub fn of_line(line: &str, at: Timestamp) -> Option<Self> {
        let rest = line.strip_prefix(PROGRESS_MARK)?;
        let mut words = rest.strip_prefix(' ')?.split_whitespace();
        let first = words.next()?;
        let (done, total, unit) = match first.strip_suffix('%') {
            Some(percent) => (percent.parse().ok()?, Some(100), Some("%".to_owned())),
            None => {
                let rest: Vec<&str> = words.by_ref().collect();
                let (total, unit) = match &rest[..] {
                    ["of", total, unit @ ..] => (Some(total.parse().ok()?), unit.join(" ")),
                    unit => (None, unit.join(" ")),
                };
                (first.parse().ok()?, total, Some(unit).filter(|unit| !unit.is_empty()))
            }
        };
        if words.next().is_some() {
            return None;
        }
        let progress = Self { done, total, unit, at };
        progress.check().is_ok().then_some(progress)
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.total, self.unit.as_deref()) {
            (Some(_), Some("%")) => write!(f, "{} %", self.done),
            (Some(total), Some(unit)) => write!(f, "{} of {total} {unit}", self.done),
            (Some(total), None) => write!(f, "{} of {total}", self.done),
            (None, Some(unit)) => write!(f, "{} {unit}", self.done),
            (None, None) => write!(f, "{}", self.done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> Option<String> {
        Progress::of_line(line, Timestamp::UNIX_EPOCH).map(|progress| progress.to_string())
    }

    #[test]
    fn a_line_says_how_far_its_program_is() {
        for (line, told) in [
            ("::progress 40 of 100 rows", "40 of 100 rows"),
            ("::progress 40 of 100", "40 of 100"),
            ("::progress  40   rows read ", "40 rows read"),
            ("::progress 40", "40"),
            ("::progress 40%", "40 %"),
            ("::progress 120 of 100 rows", "120 of 100 rows"),
        ] {
            assert_eq!(shown(line).as_deref(), Some(told), "{line}");
        }
    }

    #[test]
    fn any_other_line_is_a_line() {
        let long = format!("::progress 1 {}", "x".repeat(UNIT_BYTES_MAX + 1));
        for line in [
            "progress 40",
            " ::progress 40",
            "::progress",
            "::progress ",
            "::progressing 40",
            "::progress much",
            "::progress 40 of many",
            "::progress 40% of it",
            "::progress -1",
            "::progress 99999999999999999999",
            "::progress 9223372036854775808",
            "::progress 1 a\u{7}b",
            &long,
        ] {
            assert_eq!(shown(line), None, "{line}");
        }
    }
}
