//! Numbers of `jsonb`, compared and written out as text.
//!
//! A number is a sign, digits and the position of its point. Comparing and printing work on those: the cost is that of the
//! digits as they are written, and no big integer is built.

use crate::condition::numeric::DIGITS_MAX;
use std::borrow::Cow;
use std::cmp::Ordering;

/// A well-formed JSON number.
struct Decimal<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

/// Beyond every bound is as good as any exponent beyond them.
const EXPONENT_MAX: i64 = 1 << 40;

impl<'a> Decimal<'a> {
    fn read(number: &'a str) -> Self {
        let bytes = number.as_bytes();
        let (negative, bytes) = match bytes {
            [b'-', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let end = bytes.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(bytes.len());
        let (digits, exponent) = bytes.split_at(end);
        let point = digits.iter().position(|byte| *byte == b'.').unwrap_or(digits.len());
        let (whole, fraction) = (&digits[..point], digits.get(point + 1..).unwrap_or_default());
        Self { negative, whole, fraction, exponent: read_exponent(exponent) }
    }

    /// The digits from the first that is not zero, and the power of ten above it; none is zero.
    fn significant(&self) -> Option<(i64, impl Iterator<Item = u8>)> {
        let digits = self.whole.iter().chain(self.fraction).copied();
        let zeros = digits.clone().position(|digit| digit != b'0')?;
        Some((self.whole.len() as i64 - zeros as i64 + self.exponent, digits.skip(zeros)))
    }

    /// How many digits stand after the point when it is written out; negative if zeros are added before the point.
    fn scale(&self) -> i64 {
        self.fraction.len() as i64 - self.exponent
    }
}

/// The value of `e+12`; 0 for an empty text.
fn read_exponent(text: &[u8]) -> i64 {
    let (negative, digits) = match text {
        [] => return 0,
        [_, b'-', digits @ ..] => (true, digits),
        [_, b'+', digits @ ..] => (false, digits),
        [_, digits @ ..] => (false, digits),
    };
    let add = |size: i64, digit: &u8| (size * 10 + i64::from(digit.wrapping_sub(b'0'))).min(EXPONENT_MAX);
    let size = digits.iter().fold(0, add);
    if negative { -size } else { size }
}

/// The order of two numbers.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let (a, b) = (Decimal::read(a), Decimal::read(b));
    let (a_digits, b_digits) = (a.significant(), b.significant());
    let sign = |negative: bool| if negative { Ordering::Less } else { Ordering::Greater };
    let ((a_power, a_digits), (b_power, b_digits)) = match (a_digits, b_digits) {
        (None, None) => return Ordering::Equal,
        (Some(_), None) => return sign(a.negative),
        (None, Some(_)) => return sign(b.negative).reverse(),
        (Some(_), Some(_)) if a.negative != b.negative => return sign(a.negative),
        (Some(a), Some(b)) => (a, b),
    };
    let order = a_power.cmp(&b_power).then_with(|| compare_digits(a_digits, b_digits));
    if a.negative { order.reverse() } else { order }
}

/// Digits after a common point: zeros at the end change nothing.
fn compare_digits(mut a: impl Iterator<Item = u8>, mut b: impl Iterator<Item = u8>) -> Ordering {
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (Some(a), Some(b)) if a == b => {}
            (a, b) => match a.unwrap_or(b'0').cmp(&b.unwrap_or(b'0')) {
                Ordering::Equal => {}
                other => return other,
            },
        }
    }
}

/// Has the number few enough digits on both sides of its point?
pub(super) fn is_within_digit_limit(number: &str) -> bool {
    let decimal = Decimal::read(number);
    let (room, scale) = (DIGITS_MAX as i64, decimal.scale());
    let digits = decimal.whole.len() + decimal.fraction.len();
    let power = decimal.significant().map_or(0, |(power, _)| power);
    (-room..=room).contains(&scale) && power <= room && digits <= 2 * DIGITS_MAX
}

/// About how many bytes a number takes when it is written out.
pub(super) fn written_bytes(number: &str) -> usize {
    if !number.contains(['e', 'E']) {
        return number.len();
    }
    number.len() + usize::try_from(Decimal::read(number).exponent.unsigned_abs()).unwrap_or(usize::MAX)
}

/// A number without exponent and without a minus before zero; almost always as it was written.
pub(crate) fn number_text(number: &str) -> Cow<'_, str> {
    if !number.starts_with("-0") && !number.contains(['e', 'E']) {
        return number.into();
    }
    let decimal = Decimal::read(number);
    let scale = usize::try_from(decimal.scale()).unwrap_or(0).min(2 * DIGITS_MAX);
    let zeros = usize::try_from(-decimal.scale()).unwrap_or(0).min(2 * DIGITS_MAX);
    let mut digits: Vec<u8> = decimal.significant().into_iter().flat_map(|(_, digits)| digits).collect();
    let is_zero = digits.is_empty();
    digits.resize(digits.len() + if is_zero { 0 } else { zeros }, b'0');
    // One digit before the point at least.
    let missing = (scale + 1).saturating_sub(digits.len());
    digits.splice(0..0, std::iter::repeat_n(b'0', missing));
    let mut text = String::with_capacity(digits.len() + 2);
    if decimal.negative && !is_zero {
        text.push('-');
    }
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    text.extend(whole.iter().map(|digit| char::from(*digit)));
    if scale > 0 {
        text.push('.');
        text.extend(fraction.iter().map(|digit| char::from(*digit)));
    }
    text.into()
}

/// A decimal number without the zeros that change nothing.
pub(crate) fn plain_number(text: &str) -> &str {
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
    if text == "-0" { "0" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::numeric::Numeric;

    const NUMBERS: [&str; 28] = [
        "0", "-0", "0.0", "-0.00", "0e5", "0e-3", "-0e-3", "1", "-1", "1.0", "1.50", "15e-1", "1e3", "1E+3", "1000",
        "1e-5", "0.00001", "12.5e1", "125", "-125", "-12.5e1", "99.999", "100", "1e990", "1e991", "-1e990", "10e989",
        "1e-990",
    ];

    #[test]
    fn numbers_compare_and_print_as_numerics_do() {
        for a in NUMBERS {
            let numeric = Numeric::parse(a).unwrap();
            assert_eq!(number_text(a), numeric.to_string(), "{a}");
            assert!(is_within_digit_limit(a), "{a}");
            for b in NUMBERS {
                assert_eq!(compare(a, b), numeric.cmp(&Numeric::parse(b).unwrap()), "{a} and {b}");
            }
        }
    }

    #[test]
    fn numbers_with_too_many_digits_have_no_room() {
        for text in ["1e2000", "1e-2000", "1e99999999999999999999", &"9".repeat(1_500), "12e999", "1.5e-1000"] {
            assert!(!is_within_digit_limit(text), "{text}");
        }
        for text in ["1e999", "0.5e1000", "1e-1000", &"9".repeat(1_000)] {
            assert!(is_within_digit_limit(text) && Numeric::parse(text).is_ok(), "{text}");
        }
    }
}
