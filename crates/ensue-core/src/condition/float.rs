//! How does `double precision` read, write and calculate?

use super::failure::Failure;
use super::numeric::Numeric;
use super::types::Scalar;
use num_bigint::BigInt;
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
    let scientific = shortest(number);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..15).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// The shortest text with an exponent that lies nearer to the number than to any other.
fn shortest(number: f64) -> String {
    let mut text = format!("{number:e}");
    let mut digits = text.bytes().take_while(|byte| *byte != b'e').filter(u8::is_ascii_digit).count();
    while is_between_two(number, &text) && digits < f64::DIGITS as usize + 2 {
        text = format!("{number:.digits$e}");
        digits += 1;
    }
    text
}

/// Does the text lie exactly between the number and one beside it? It reads back as the number, whose last bit is 0, but
/// Postgres writes one digit more. Only whole numbers of more than 53 bits come so close to a short text.
fn is_between_two(number: f64, scientific: &str) -> bool {
    const MANTISSA_BITS: u32 = 52;
    let bits = number.abs().to_bits();
    let (power, fraction) = (bits >> MANTISSA_BITS, bits & ((1 << MANTISSA_BITS) - 1));
    let Some(shift) = power.checked_sub(u64::from(1_023 + MANTISSA_BITS)).filter(|shift| *shift > 0) else {
        return false;
    };
    let Some((mantissa, exponent)) = scientific.trim_start_matches('-').split_once('e') else { return false };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let (Ok(exponent), Ok(text)) = (exponent.parse::<i64>(), digits.parse::<BigInt>()) else { return false };
    // Both as whole numbers of the same, perhaps finer, unit.
    let zeros = exponent + 1 - digits.len() as i64;
    let ten_to = |power: i64| BigInt::from(10).pow(u32::try_from(power.max(0)).unwrap_or(0));
    let (text, unit) = (text * ten_to(zeros), ten_to(-zeros));
    let step = (BigInt::from(1) << shift) * &unit;
    let value = (BigInt::from((1_u64 << MANTISSA_BITS) | fraction) << shift) * &unit;
    // Below a power of two the numbers stand twice as close.
    let gap = if text < value && fraction == 0 { step.clone() / 2 } else { step };
    let distance = if text < value { value - text } else { text - value };
    distance * 2 == gap
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
            (18_446_744_073_709_552.0, "1.8446744073709552e+16"),
            (9_007_199_254_740_992.0, "9.007199254740992e+15"),
            (1e22, "1e+22"),
            (1e23, "9.999999999999999e+22"),
            (2_f64.powi(70), "1.1805916207174113e+21"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
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
