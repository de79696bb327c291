//! How long, and how large, as people write it?
//!
//! `1s`, `5m`, `7d` and `10GB` mean the same on the command line, in the environment and in the config file.

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// A length of time: a whole number and one of `ms s m h d w`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub SignedDuration);

/// A number of bytes: a whole number and one of `B KB MB GB TB` (thousands) or `KiB MiB GiB TiB` (1,024s).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

/// The units of a span in milliseconds, the largest last.
const SPAN_UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];
/// The units of a size in bytes.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// A number without sign and the unit behind it.
fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..digits].parse().ok()?, text[digits..].trim()))
}

/// The text, unless it is too long for what is meant here: it may be a credential in the wrong place.
fn quoted(text: &str) -> String {
    if text.len() <= 20 { format!("`{text}`") } else { "this value".to_owned() }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{} is no length of time: write a whole number and a unit, such as 500ms, 1s, 5m, 2h, 7d or 4w",
                quoted(text)
            )
        };
        let (count, unit) = split(text).ok_or_else(wrong)?;
        if count == 0 {
            return Err(format!("`{text}` is no time at all: write more than 0, or leave it out"));
        }
        let (_, millis_each) = SPAN_UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let millis = count.checked_mul(millis_each).and_then(|millis| i64::try_from(millis).ok()).ok_or_else(wrong)?;
        Ok(Self(SignedDuration::from_millis(millis)))
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{} is no size: write a whole number and a unit, such as 500MB, 10GB or 2GiB", quoted(text));
        let (count, unit) = split(text).ok_or_else(wrong)?;
        if count == 0 {
            return Err(format!("`{text}` would forget everything at once: write more than 0, or leave it out"));
        }
        let (_, bytes_each) =
            SIZE_UNITS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?;
        count.checked_mul(bytes_each).map(Self).ok_or_else(wrong)
    }
}

/// As it could be written: `7d`, never `168h`. Weeks are shown as days, which are what most people write.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis().unsigned_abs() as u64;
        let units = SPAN_UNITS.into_iter().filter(|(name, _)| *name != "w");
        let (unit, millis_each) = units.rev().find(|(_, each)| millis.is_multiple_of(*each)).unwrap_or(SPAN_UNITS[0]);
        write!(f, "{}{unit}", millis / millis_each)
    }
}

/// As it could be written, in the unit that makes it shortest: `10GB`, `2GiB`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fitting = SIZE_UNITS.into_iter().filter(|(_, each)| self.0.is_multiple_of(*each));
        let (unit, bytes_each) = fitting.max_by_key(|(_, each)| *each).unwrap_or(SIZE_UNITS[0]);
        write!(f, "{}{unit}", self.0 / bytes_each)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// A size for people: three digits at most before the unit.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1_000.0 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_have_a_number_and_a_unit() {
        assert_eq!("1s".parse(), Ok(Span(SignedDuration::from_secs(1))));
        assert_eq!("5m".parse(), Ok(Span(SignedDuration::from_mins(5))));
        assert_eq!("7d".parse(), Ok(Span(SignedDuration::from_hours(168))));
        assert_eq!("10GB".parse(), Ok(Size(10_000_000_000)));
        assert_eq!("2 GiB".parse(), Ok(Size(2 << 30)));
    }

    #[test]
    fn they_are_shown_as_one_would_write_them() {
        for text in ["500ms", "90s", "5m", "36h", "7d"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        assert_eq!("168h".parse::<Span>().unwrap().to_string(), "7d");
        for text in ["1B", "1500B", "500MB", "10GB", "2GiB"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!("1000MB".parse::<Size>().unwrap().to_string(), "1GB");
    }

    #[test]
    fn what_is_no_span_or_size_is_refused_with_an_example() {
        for bad in ["", "7", "d", "-1s", "1.5h", "7 days", "99999999999999999999d", "18446744073709551615w"] {
            assert!(bad.parse::<Span>().unwrap_err().contains("7d"), "{bad:?}");
        }
        for bad in ["", "7", "GB", "-1GB", "10 gigs", "18446744073709551615GB"] {
            assert!(bad.parse::<Size>().unwrap_err().contains("10GB"), "{bad:?}");
        }
    }

    #[test]
    fn sizes_are_shown_short() {
        assert_eq!(human_bytes(999), "999 B");
        assert_eq!(human_bytes(1_500), "1.5 kB");
        assert_eq!(human_bytes(2_000_000_000_000_000), "2000.0 TB");
    }
}
