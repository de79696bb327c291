//! How does `timestamptz` read and write?
//!
//! A time is a number of microseconds since 1970 in UTC, and UTC is the zone of every text without one. Of the many forms
//! that Postgres reads, the ISO ones are taken: `2026-01-31`, `2026-01-31 12:00`, `2026-01-31T12:00:00.5+02:00`.
//! Nothing here depends on a clock: `now` and `today` are refused.

use super::failure::Failure;
use super::types::Scalar;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// The last year that Postgres keeps.
const YEAR_MAX: i64 = 294_276;

/// Days since 1970-01-01 of a date in the Gregorian calendar.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the day that leap years add is their last.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day so many days after 1970-01-01.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, of_year - (153 * shifted + 2) / 5 + 1)
}

/// Reads a text of one of the ISO forms, or one of the two infinities, which are beyond all other times.
pub fn parse(text: &str) -> Result<i64, Failure> {
    let trimmed = super::text_in::trim_blanks(text);
    match trimmed {
        word if word.eq_ignore_ascii_case("infinity") => Ok(i64::MAX),
        word if word.eq_ignore_ascii_case("-infinity") => Ok(i64::MIN),
        _ => parse_iso(trimmed).ok_or_else(|| Failure::bad_text(Scalar::Time.into(), text)),
    }
}

fn parse_iso(text: &str) -> Option<i64> {
    let year_digits = text.find('-').filter(|count| (4..=6).contains(count))?;
    let (year, rest) = digits(text, year_digits)?;
    let (month, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_in_month = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    if year == 0 || year > YEAR_MAX || day == 0 || day > days_in_month {
        return None;
    }
    let midnight = days_of(year, month, day) * DAY;
    if rest.is_empty() {
        return Some(midnight);
    }
    let (since_midnight, rest) = time_of_day(rest.strip_prefix(['T', 't', ' '])?)?;
    Some(midnight + since_midnight - zone(rest.trim_start_matches(' '))? * SECOND)
}

fn time_of_day(text: &str) -> Option<(i64, &str)> {
    let (hour, rest) = digits(text, 2)?;
    let (minute, rest) = digits(rest.strip_prefix(':')?, 2)?;
    let (second, rest) = match rest.strip_prefix(':') {
        Some(rest) => digits(rest, 2)?,
        None => (0, rest),
    };
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(digits) => {
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            let seconds: f64 = format!("0.{}", &digits[..end]).parse().ok()?;
            ((seconds * 1e6).round_ties_even() as i64, &digits[end..])
        }
        None => (0, rest),
    };
    let midnight_of_next = hour == 24 && minute == 0 && second == 0 && fraction == 0;
    // Sixty seconds are a leap second: the next minute.
    if (hour > 23 && !midnight_of_next) || minute > 59 || second > 60 {
        return None;
    }
    Some((((hour * 60 + minute) * 60 + second) * SECOND + fraction, rest))
}

/// Seconds east of UTC.
fn zone(text: &str) -> Option<i64> {
    let sign = match text.as_bytes() {
        [] | [b'Z' | b'z'] => return Some(0),
        [b'+', ..] => 1,
        [b'-', ..] => -1,
        _ => return None,
    };
    let (hours, rest) = digits(&text[1..], 2)?;
    let (minutes, rest) = if rest.is_empty() { (0, rest) } else { digits(rest.strip_prefix(':').unwrap_or(rest), 2)? };
    let (seconds, rest) = if rest.is_empty() { (0, rest) } else { digits(rest.strip_prefix(':')?, 2)? };
    if !rest.is_empty() || hours > 15 || minutes > 59 || seconds > 59 {
        return None;
    }
    Some(sign * ((hours * 60 + minutes) * 60 + seconds))
}

/// Exactly so many digits, and what follows them.
fn digits(text: &str, count: usize) -> Option<(i64, &str)> {
    let head = text.get(..count)?;
    if !head.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((head.parse().ok()?, &text[count..]))
}

/// The text of a time: `2026-01-31 12:00:00.5+00`.
pub fn show(micros: i64) -> String {
    written(micros, ' ', "+00")
}

/// The text of a time inside jsonb: `2026-01-31T12:00:00.5+00:00`.
pub fn show_in_json(micros: i64) -> String {
    written(micros, 'T', "+00:00")
}

fn written(micros: i64, joint: char, zone: &str) -> String {
    match micros {
        i64::MAX => return "infinity".into(),
        i64::MIN => return "-infinity".into(),
        _ => {}
    }
    let (year, month, day) = date_of(micros.div_euclid(DAY));
    let rest = micros.rem_euclid(DAY);
    let (seconds, fraction) = (rest / SECOND, rest % SECOND);
    let (shown_year, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:06}") };
    let fraction = fraction.trim_end_matches('0');
    format!("{shown_year:04}-{month:02}-{day:02}{joint}{clock}{fraction}{zone}{era}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_iso_forms_are_read_and_written() {
        for (text, shown) in [
            ("2026-01-31", "2026-01-31 00:00:00+00"),
            ("2026-01-31 12:30", "2026-01-31 12:30:00+00"),
            ("2026-01-31T12:30:05.1200Z", "2026-01-31 12:30:05.12+00"),
            ("2026-01-01 10:00:00.1234567+05:30", "2026-01-01 04:30:00.123457+00"),
            ("1969-12-31 23:59:59.999999+00", "1969-12-31 23:59:59.999999+00"),
            ("2024-02-29 24:00:00 -0130", "2024-03-01 01:30:00+00"),
            ("0001-01-01 00:00:00+05", "0001-12-31 19:00:00+00 BC"),
            ("9999-12-31 23:59:60", "10000-01-01 00:00:00+00"),
            ("Infinity", "infinity"),
            ("-infinity", "-infinity"),
        ] {
            assert_eq!(show(parse(text).unwrap()), shown, "{text}");
        }
        assert_eq!(show_in_json(0), "1970-01-01T00:00:00+00:00");
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in
            ["", "now", "today", "2026-02-29", "2026-13-01", "0000-01-01", "2026-01-01 25:00", "2026-01-01 1:00"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["2026-01-01T00:00:00+16", "2026-01-01T00:00:00 x", "2026-01-01x", "2026-01-01 24:00:01"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
