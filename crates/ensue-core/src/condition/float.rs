//! How does `double precision` read, write and calculate?

use super::failure::Failure;
use super::numeric::Numeric;
use super::types::Scalar;
use std::cmp::Ordering;

const OUT_OF_RANGE: Failure = Failure::OutOfRange(super::types::Type::Scalar(Scalar::Float8));

/// Reads a text as Postgres does; what is too large or too small to be told from zero is an error.
pub fn parse(text: &str) -> Result<f64, Failure> {
    let bad = || Failure::bad_text(Scalar::Float8.into(), text);
    let trimmed = super::text_in::trim_blanks(text);
    let unsigned = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        let sign = if trimmed.starts_with('-') { -1.0 } else { 1.0 };
        return match unsigned.to_ascii_lowercase().as_str() {
            "nan" => Ok(f64::NAN),
            "inf" | "infinity" => Ok(sign * f64::INFINITY),
            _ => Err(bad()),
        };
    }
    let number: f64 = trimmed.parse().map_err(|_| bad())?;
    let mantissa = unsigned.split(['e', 'E']).next().unwrap_or_default();
    let has_digit = mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    if number.is_infinite() || (number == 0.0 && has_digit) { Err(OUT_OF_RANGE) } else { Ok(number) }
}

/// The shortest text that reads back as the same number, with an exponent where Postgres writes one.
pub fn show(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..15).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// The total order of Postgres: NaN equals itself and is above everything; both zeros are equal.
pub fn compare(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
    }
}

/// A sum or a difference: an infinity that was not there before is an error.
pub fn sum(a: f64, b: f64) -> Result<f64, Failure> {
    let result = a + b;
    if result.is_infinite() && !a.is_infinite() && !b.is_infinite() { Err(OUT_OF_RANGE) } else { Ok(result) }
}

/// A product: what overflows or vanishes is an error.
pub fn product(a: f64, b: f64) -> Result<f64, Failure> {
    let result = a * b;
    let overflow = result.is_infinite() && !a.is_infinite() && !b.is_infinite();
    let underflow = result == 0.0 && a != 0.0 && b != 0.0;
    if overflow || underflow { Err(OUT_OF_RANGE) } else { Ok(result) }
}

/// A quotient: what overflows or vanishes is an error.
pub fn quotient(a: f64, b: f64) -> Result<f64, Failure> {
    if b == 0.0 && !a.is_nan() {
        return Err(Failure::DivisionByZero);
    }
    let result = a / b;
    let overflow = result.is_infinite() && !a.is_infinite();
    let underflow = result == 0.0 && a != 0.0 && !b.is_infinite();
    if overflow || underflow { Err(OUT_OF_RANGE) } else { Ok(result) }
}

/// The nearest `bigint`, halves to the even one.
pub fn to_i64(number: f64) -> Option<i64> {
    let rounded = number.round_ties_even();
    // 2^63 itself does not fit; -2^63 does.
    let limit = 9_223_372_036_854_775_808.0;
    (rounded >= -limit && rounded < limit).then_some(rounded as i64)
}

/// The numeric with the fifteen digits that a double is sure of.
pub fn to_numeric(number: f64) -> Result<Numeric, Failure> {
    if number.is_nan() {
        return Ok(Numeric::NaN);
    }
    if number.is_infinite() {
        return Ok(if number > 0.0 { Numeric::Infinity } else { Numeric::MinusInfinity });
    }
    let text = format!("{number:.14e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
    Numeric::parse(&format!("{mantissa}e{exponent}"))
}

/// The nearest double; too large is an error.
pub fn from_numeric(number: &Numeric) -> Result<f64, Failure> {
    parse(&number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_postgres_writes_them() {
        for (number, text) in [
            (1e15, "1e+15"),
            (1e14, "100000000000000"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (123_456_789_012_345_678.0, "1.2345678901234568e+17"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (1e300, "1e+300"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(show(number), text);
        }
    }

    #[test]
    fn too_large_and_too_small_are_errors() {
        for text in ["1e400", "-1e400", "1e-400"] {
            assert_eq!(parse(text), Err(OUT_OF_RANGE), "{text}");
        }
        assert_eq!(parse(" -Infinity "), Ok(f64::NEG_INFINITY));
        assert!(parse("0e-400").is_ok());
        for text in ["", "x", "1e", "1 2", "0x10", "infinit"] {
            assert!(matches!(parse(text), Err(Failure::BadText { .. })), "{text}");
        }
        assert_eq!(product(1e300, 1e300), Err(OUT_OF_RANGE));
        assert_eq!(product(1e-300, 1e-300), Err(OUT_OF_RANGE));
        assert_eq!(quotient(1.0, 0.0), Err(Failure::DivisionByZero));
        assert_eq!(sum(f64::MAX, f64::MAX), Err(OUT_OF_RANGE));
    }

    #[test]
    fn a_double_becomes_a_numeric_of_fifteen_digits() {
        for (number, text) in [(0.1, "0.1"), (1e20, "100000000000000000000"), (1.5e-7, "0.00000015"), (100.0, "100")] {
            assert_eq!(to_numeric(number).unwrap().to_string(), text);
        }
        assert_eq!(to_i64(2.5), Some(2));
        assert_eq!(to_i64(9.3e18), None);
        assert_eq!(to_i64(f64::NAN), None);
    }
}
