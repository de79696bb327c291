//! What is a `numeric`?
//!
//! An integer and the number of its digits that stand after the point: `1.10` is 110 with scale 2, and stays so. Almost
//! all numbers fit sixteen bytes and are never allocated; the others live in a big integer. Beside them there are
//! `NaN` (equal to itself and above everything) and the two infinities, as in Postgres.

use super::failure::Failure;
use super::types::{Scalar, Type};
use num_bigint::BigInt;
use std::cmp::Ordering;
use std::fmt;

/// How many digits may stand on either side of the point. Postgres allows more; nobody compares such numbers.
pub const DIGITS_MAX: usize = 1_000;

/// An exact decimal number.
#[derive(Debug, Clone)]
pub enum Numeric {
    /// Not a number.
    NaN,
    /// Above every finite number.
    Infinity,
    /// Below every finite number.
    MinusInfinity,
    /// `mantissa / 10^scale`
    Small {
        /// All digits.
        mantissa: i128,
        /// How many of them stand after the point.
        scale: u16,
    },
    /// The same, with more digits than `i128` holds.
    Big(Box<Big>),
}

/// A number of many digits.
#[derive(Debug, Clone)]
pub struct Big {
    /// All digits.
    pub mantissa: BigInt,
    /// How many of them stand after the point.
    pub scale: u16,
}

/// `10^n`, if it fits.
pub(super) fn power_of_ten(n: u16) -> Option<i128> {
    10_i128.checked_pow(u32::from(n))
}

/// `10^n`, however large.
pub(super) fn big_power_of_ten(n: u16) -> BigInt {
    BigInt::from(10).pow(u32::from(n))
}

pub(super) const OVERFLOW: Failure = Failure::OutOfRange(Type::Scalar(Scalar::Numeric));

impl Numeric {
    /// Zero, without digits after the point.
    pub const ZERO: Self = Self::Small { mantissa: 0, scale: 0 };

    /// A number from its digits, in the smaller form if it fits; an error if it has too many.
    pub(super) fn from_big(mantissa: BigInt, scale: u16) -> Result<Self, Failure> {
        if let Ok(mantissa) = i128::try_from(&mantissa) {
            return Self::from_small(mantissa, scale);
        }
        // A digit carries more than 3.3 bits, so a number within the bound never has more bits than this.
        let digits_max = DIGITS_MAX + usize::from(scale);
        if usize::from(scale) > DIGITS_MAX || mantissa.bits() > (digits_max as u64 * 10) / 3 + 1 {
            return Err(OVERFLOW);
        }
        Ok(Self::Big(Box::new(Big { mantissa, scale })))
    }

    pub(super) fn from_small(mantissa: i128, scale: u16) -> Result<Self, Failure> {
        if usize::from(scale) > DIGITS_MAX { Err(OVERFLOW) } else { Ok(Self::Small { mantissa, scale }) }
    }

    /// Digits and scale of a finite number.
    pub(super) fn big_parts(&self) -> Option<(BigInt, u16)> {
        match self {
            Self::Small { mantissa, scale } => Some((BigInt::from(*mantissa), *scale)),
            Self::Big(big) => Some((big.mantissa.clone(), big.scale)),
            Self::NaN | Self::Infinity | Self::MinusInfinity => None,
        }
    }

    /// About how many digits it has, with those that its scale adds: a measure of what calculating with it costs.
    pub(super) fn digits(&self) -> usize {
        match self {
            // These fit a machine's registers, unless their scale is beyond them.
            Self::NaN | Self::Infinity | Self::MinusInfinity => 1,
            Self::Small { scale: 0..=38, .. } => 1,
            Self::Small { scale, .. } => usize::from(*scale) + 39,
            // A digit carries more than 3.3 bits.
            Self::Big(big) => (big.mantissa.bits() * 3 / 10) as usize + usize::from(big.scale),
        }
    }

    /// How many digits stand after the point; none for what is not finite.
    pub fn scale(&self) -> Option<u16> {
        match self {
            Self::Small { scale, .. } => Some(*scale),
            Self::Big(big) => Some(big.scale),
            Self::NaN | Self::Infinity | Self::MinusInfinity => None,
        }
    }

    /// -1, 0 or 1; NaN counts as positive.
    pub fn signum(&self) -> i8 {
        match self {
            Self::NaN | Self::Infinity => 1,
            Self::MinusInfinity => -1,
            Self::Small { mantissa, .. } => mantissa.signum() as i8,
            Self::Big(big) => match big.mantissa.sign() {
                num_bigint::Sign::Minus => -1,
                num_bigint::Sign::NoSign => 0,
                num_bigint::Sign::Plus => 1,
            },
        }
    }

    /// Reads a number as Postgres reads the text of one: blanks around it, `NaN`, `Infinity`, an exponent.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let bad = || Failure::bad_text(Scalar::Numeric.into(), text);
        let trimmed = super::text_in::trim_blanks(text);
        let (negative, unsigned) = match trimmed.as_bytes().first() {
            Some(b'-') => (true, &trimmed[1..]),
            Some(b'+') => (false, &trimmed[1..]),
            Some(_) | None => (false, trimmed),
        };
        match unsigned.as_bytes().first() {
            Some(b'0'..=b'9' | b'.') => Self::parse_digits(unsigned, negative).ok_or_else(bad)?,
            Some(_) if trimmed.eq_ignore_ascii_case("nan") => Ok(Self::NaN),
            Some(_) if unsigned.eq_ignore_ascii_case("infinity") || unsigned.eq_ignore_ascii_case("inf") => {
                Ok(if negative { Self::MinusInfinity } else { Self::Infinity })
            }
            Some(_) | None => Err(bad()),
        }
    }

    /// None: that is no number. An inner error: it is one, with too many digits.
    fn parse_digits(text: &str, negative: bool) -> Option<Result<Self, Failure>> {
        let (digits, exponent) = match text.find(['e', 'E']) {
            Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let mut small: Option<i128> = Some(0);
        let (mut digit_count, mut fraction_count, mut point_seen) = (0_usize, 0_i64, false);
        for byte in digits.bytes() {
            match byte {
                b'0'..=b'9' => {
                    digit_count += 1;
                    fraction_count += i64::from(point_seen);
                    let digit = i128::from(byte - b'0');
                    small = small.and_then(|n| n.checked_mul(10)?.checked_add(digit));
                }
                b'.' if !point_seen => point_seen = true,
                _ => return None,
            }
        }
        if digit_count == 0 {
            return None;
        }
        let scale = fraction_count - exponent;
        let room = DIGITS_MAX as i64;
        if scale > room || -scale > room || digit_count > 2 * DIGITS_MAX {
            return Some(Err(OVERFLOW));
        }
        let zeros = u16::try_from((-scale).max(0)).ok()?;
        let scale = u16::try_from(scale.max(0)).ok()?;
        let scaled = small.and_then(|n| n.checked_mul(power_of_ten(zeros)?));
        Some(match scaled {
            Some(mantissa) => Self::from_small(if negative { -mantissa } else { mantissa }, scale),
            None => {
                let plain: String = digits.chars().filter(|c| *c != '.').collect();
                let mantissa = plain.parse::<BigInt>().ok()? * big_power_of_ten(zeros);
                Self::from_big(if negative { -mantissa } else { mantissa }, scale)
            }
        })
    }
}

/// About how many digits the number that a text stands for has; at most a few thousand, beyond which it is refused.
pub(super) fn digits_of_text(text: &str) -> usize {
    let exponent = text.find(['e', 'E']).and_then(|at| parse_exponent(&text[at + 1..])).unwrap_or(0);
    let exponent = usize::try_from(exponent.unsigned_abs()).unwrap_or(usize::MAX);
    // Few digits are read into registers.
    let digits = if text.len() + exponent <= 38 { 1 } else { text.len().saturating_add(exponent) };
    digits.min(4 * DIGITS_MAX)
}

/// The digits after `e`. Beyond every bound is as good as any number beyond them.
fn parse_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let size = digits.parse::<i64>().unwrap_or(i64::MAX).min(1 << 40);
    Some(if text.starts_with('-') { -size } else { size })
}

impl From<i64> for Numeric {
    fn from(number: i64) -> Self {
        Self::Small { mantissa: i128::from(number), scale: 0 }
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NaN => f.write_str("NaN"),
            Self::Infinity => f.write_str("Infinity"),
            Self::MinusInfinity => f.write_str("-Infinity"),
            Self::Small { mantissa, scale: 0 } => write!(f, "{mantissa}"),
            Self::Small { mantissa, scale } => {
                with_point(f, *mantissa < 0, &mantissa.unsigned_abs().to_string(), *scale)
            }
            Self::Big(big) => with_point(f, self.signum() < 0, &big.mantissa.magnitude().to_string(), big.scale),
        }
    }
}

fn with_point(f: &mut fmt::Formatter<'_>, negative: bool, digits: &str, scale: u16) -> fmt::Result {
    let scale = usize::from(scale);
    let sign = if negative { "-" } else { "" };
    if scale == 0 {
        return write!(f, "{sign}{digits}");
    }
    match digits.len().checked_sub(scale) {
        Some(whole) if whole > 0 => write!(f, "{sign}{}.{}", &digits[..whole], &digits[whole..]),
        Some(_) | None => write!(f, "{sign}0.{digits:0>scale$}"),
    }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Numeric {}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Numeric {
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Self::Small { mantissa: a, scale: a_scale }, Self::Small { mantissa: b, scale: b_scale }) =
            (self, other)
        {
            let widened = |n: i128, from: u16, to: u16| n.checked_mul(power_of_ten(to.saturating_sub(from))?);
            if let (Some(a), Some(b)) = (widened(*a, *a_scale, *b_scale), widened(*b, *b_scale, *a_scale)) {
                return a.cmp(&b);
            }
        }
        match (self.big_parts(), other.big_parts()) {
            (Some((a, a_scale)), Some((b, b_scale))) => {
                let a = a * big_power_of_ten(b_scale.saturating_sub(a_scale));
                let b = b * big_power_of_ten(a_scale.saturating_sub(b_scale));
                a.cmp(&b)
            }
            (None, _) | (_, None) => self.rank().cmp(&other.rank()),
        }
    }
}

impl Numeric {
    /// The order between what is finite and what is not.
    fn rank(&self) -> u8 {
        match self {
            Self::MinusInfinity => 0,
            Self::Small { .. } | Self::Big(_) => 1,
            Self::Infinity => 2,
            Self::NaN => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        Numeric::parse(text).unwrap().to_string()
    }

    #[test]
    fn a_number_keeps_the_digits_it_was_written_with() {
        for (text, expected) in [
            ("1.10", "1.10"),
            ("-0", "0"),
            ("-0.0", "0.0"),
            (" 1e3 ", "1000"),
            ("1.50e1", "15.0"),
            ("1e-5", "0.00001"),
            (".5", "0.5"),
            ("5.", "5"),
            ("+7", "7"),
            ("007", "7"),
            ("nan", "NaN"),
            ("-inf", "-Infinity"),
            ("Infinity", "Infinity"),
            ("123456789012345678901234567890123456789012345.67", "123456789012345678901234567890123456789012345.67"),
            ("1e40", "10000000000000000000000000000000000000000"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", " ", ".", "-", "1e", "1e+", "1.2.3", "1 2", "0x10", "e5", "--1", "+nan", "1_000", "١"] {
            assert!(matches!(Numeric::parse(text), Err(Failure::BadText { .. })), "{text:?}");
        }
        for text in ["1e2000", "1e-2000", "1e99999999999999999999", &"9".repeat(3_000)] {
            assert_eq!(Numeric::parse(text), Err(OVERFLOW), "{text:?}");
        }
    }

    #[test]
    fn the_order_is_that_of_the_values() {
        let order = ["-inf", "-1e50", "-2", "-1.5", "0", "1e-40", "1", "1.0000000000001", "1e38", "1e39", "inf", "nan"];
        let numbers: Vec<Numeric> = order.iter().map(|text| Numeric::parse(text).unwrap()).collect();
        for (i, a) in numbers.iter().enumerate() {
            for (j, b) in numbers.iter().enumerate() {
                assert_eq!(a.cmp(b), i.cmp(&j), "{} and {}", order[i], order[j]);
            }
        }
        assert_eq!(Numeric::parse("1.0").unwrap(), Numeric::parse("1.000").unwrap());
    }
}
