//! How are numerics calculated?
//!
//! Exactly, with Postgres' rule for how many digits the result shows: a sum the most of either, a product all of
//! both, a quotient at least sixteen significant ones.

use super::failure::Failure;
use super::numeric::{Numeric, OVERFLOW, big_power_of_ten, power_of_ten};
use super::types::Scalar;
use num_bigint::BigInt;

/// The least number of significant digits of a quotient.
const QUOTIENT_DIGITS_MIN: i64 = 16;
/// The most digits after the point that a quotient is given.
const QUOTIENT_SCALE_MAX: i64 = 1_000;
/// Postgres stores numerics in groups of so many digits, and rounds the length of a quotient to them.
const GROUP_DIGITS: i64 = 4;

impl Numeric {
    /// The sum.
    pub fn add(&self, other: &Self) -> Result<Self, Failure> {
        if let Some((a, b, scale)) = aligned(self, other)
            && let Some(sum) = a.checked_add(b)
        {
            return Self::from_small(sum, scale);
        }
        match aligned_big(self, other) {
            Some((a, b, scale)) => Self::from_big(a + b, scale),
            None => Ok(match (self, other) {
                (Self::NaN, _) | (_, Self::NaN) => Self::NaN,
                (Self::Infinity, Self::MinusInfinity) | (Self::MinusInfinity, Self::Infinity) => Self::NaN,
                (Self::Infinity, _) | (_, Self::Infinity) => Self::Infinity,
                (Self::MinusInfinity, _) | (_, Self::MinusInfinity) => Self::MinusInfinity,
                (Self::Small { .. } | Self::Big(_), Self::Small { .. } | Self::Big(_)) => Self::NaN,
            }),
        }
    }

    /// The difference.
    pub fn subtract(&self, other: &Self) -> Result<Self, Failure> {
        self.add(&other.negate()?)
    }

    /// The product.
    pub fn multiply(&self, other: &Self) -> Result<Self, Failure> {
        if let (Self::Small { mantissa: a, scale: a_scale }, Self::Small { mantissa: b, scale: b_scale }) =
            (self, other)
            && let Some(product) = a.checked_mul(*b)
        {
            return Self::from_small(product, a_scale + b_scale);
        }
        match (self.big_parts(), other.big_parts()) {
            (Some((a, a_scale)), Some((b, b_scale))) => Self::from_big(a * b, a_scale + b_scale),
            (None, _) | (_, None) => Ok(match (self, other) {
                (Self::NaN, _) | (_, Self::NaN) => Self::NaN,
                _ => Self::infinity_of_sign(self.signum() * other.signum()),
            }),
        }
    }

    fn infinity_of_sign(sign: i8) -> Self {
        match sign {
            1.. => Self::Infinity,
            0 => Self::NaN,
            ..0 => Self::MinusInfinity,
        }
    }

    /// The quotient, rounded half away from zero.
    pub fn divide(&self, other: &Self) -> Result<Self, Failure> {
        match (self, other) {
            (Self::NaN, _) | (_, Self::NaN) => Ok(Self::NaN),
            (_, divisor) if divisor.signum() == 0 => Err(Failure::DivisionByZero),
            (Self::Infinity | Self::MinusInfinity, Self::Infinity | Self::MinusInfinity) => Ok(Self::NaN),
            (Self::Infinity | Self::MinusInfinity, Self::Small { .. } | Self::Big(_)) => {
                Ok(Self::infinity_of_sign(self.signum() * other.signum()))
            }
            (Self::Small { .. } | Self::Big(_), Self::Infinity | Self::MinusInfinity) => Ok(Self::ZERO),
            (Self::Small { .. } | Self::Big(_), Self::Small { .. } | Self::Big(_)) => self.divide_finite(other),
        }
    }

    fn divide_finite(&self, other: &Self) -> Result<Self, Failure> {
        let (Some((a, a_scale)), Some((b, b_scale))) = (self.big_parts(), other.big_parts()) else {
            return Ok(Self::NaN);
        };
        let ((a_weight, a_first), (b_weight, b_first)) = (leading_group(&a, a_scale), leading_group(&b, b_scale));
        // The weight of the quotient in groups, one less where it cannot be told.
        let weight = a_weight - b_weight - i64::from(a_first <= b_first);
        let scale = (QUOTIENT_DIGITS_MIN - weight * GROUP_DIGITS)
            .max(i64::from(a_scale))
            .max(i64::from(b_scale))
            .clamp(0, QUOTIENT_SCALE_MAX);
        let scale = u16::try_from(scale).map_err(|_| OVERFLOW)?;
        let dividend = a * big_power_of_ten(scale + b_scale);
        let divisor = b * big_power_of_ten(a_scale);
        Self::from_big(divide_rounded(dividend, divisor), scale)
    }

    /// What a division to a whole number leaves; has the sign of the dividend.
    pub fn remainder(&self, other: &Self) -> Result<Self, Failure> {
        match (self, other) {
            (Self::NaN, _) | (_, Self::NaN) => return Ok(Self::NaN),
            (_, divisor) if divisor.signum() == 0 => return Err(Failure::DivisionByZero),
            (Self::Infinity | Self::MinusInfinity, _) => return Ok(Self::NaN),
            (_, Self::Infinity | Self::MinusInfinity) => return Ok(self.clone()),
            (Self::Small { .. } | Self::Big(_), Self::Small { .. } | Self::Big(_)) => {}
        }
        if let Some((a, b, scale)) = aligned(self, other)
            && let Some(rest) = a.checked_rem(b)
        {
            return Self::from_small(rest, scale);
        }
        match aligned_big(self, other) {
            Some((a, b, scale)) => Self::from_big(a % b, scale),
            None => Ok(Self::NaN),
        }
    }

    /// The number with the other sign.
    pub fn negate(&self) -> Result<Self, Failure> {
        match self {
            Self::NaN => Ok(Self::NaN),
            Self::Infinity => Ok(Self::MinusInfinity),
            Self::MinusInfinity => Ok(Self::Infinity),
            Self::Small { mantissa, scale } if *mantissa != i128::MIN => Self::from_small(-mantissa, *scale),
            Self::Small { mantissa, scale } => Self::from_big(-BigInt::from(*mantissa), *scale),
            Self::Big(big) => Self::from_big(-big.mantissa.clone(), big.scale),
        }
    }

    /// The number without its sign.
    pub fn abs(&self) -> Result<Self, Failure> {
        if self.signum() < 0 { self.negate() } else { Ok(self.clone()) }
    }

    /// The same number with so many digits after the point, rounded half away from zero.
    pub fn rounded(&self, to_scale: u16) -> Result<Self, Failure> {
        let Some(scale) = self.scale() else { return Ok(self.clone()) };
        if let (Self::Small { mantissa, .. }, Some(power)) = (self, power_of_ten(scale.abs_diff(to_scale))) {
            if to_scale >= scale {
                if let Some(mantissa) = mantissa.checked_mul(power) {
                    return Self::from_small(mantissa, to_scale);
                }
            } else {
                let (quotient, rest) = (mantissa / power, mantissa % power);
                let up = i128::from(rest.unsigned_abs() * 2 >= power.unsigned_abs()) * mantissa.signum();
                return Self::from_small(quotient + up, to_scale);
            }
        }
        let Some((mantissa, _)) = self.big_parts() else { return Ok(self.clone()) };
        if to_scale >= scale {
            return Self::from_big(mantissa * big_power_of_ten(to_scale - scale), to_scale);
        }
        Self::from_big(divide_rounded(mantissa, big_power_of_ten(scale - to_scale)), to_scale)
    }

    /// What `numeric(precision, scale)` makes of it.
    pub fn fitted(&self, precision: u16, scale: u16) -> Result<Self, Failure> {
        let overflow = Failure::FieldOverflow { precision, scale };
        match self {
            Self::NaN => Ok(Self::NaN),
            Self::Infinity | Self::MinusInfinity => Err(overflow),
            Self::Small { .. } | Self::Big(_) => {
                let rounded = self.rounded(scale)?;
                let Some((mantissa, _)) = rounded.big_parts() else { return Err(overflow) };
                let fits = mantissa.magnitude() < big_power_of_ten(precision).magnitude();
                if fits { Ok(rounded) } else { Err(overflow) }
            }
        }
    }

    /// The nearest `bigint`.
    pub fn to_i64(&self) -> Result<i64, Failure> {
        let out_of_range = Failure::OutOfRange(Scalar::Int8.into());
        match self.rounded(0)? {
            Self::Small { mantissa, .. } => i64::try_from(mantissa).map_err(|_| out_of_range),
            Self::Big(_) | Self::NaN | Self::Infinity | Self::MinusInfinity => Err(out_of_range),
        }
    }
}

/// Both as integers of one scale, where they fit.
fn aligned(a: &Numeric, b: &Numeric) -> Option<(i128, i128, u16)> {
    let (Numeric::Small { mantissa: a, scale: a_scale }, Numeric::Small { mantissa: b, scale: b_scale }) = (a, b)
    else {
        return None;
    };
    let a = a.checked_mul(power_of_ten(b_scale.saturating_sub(*a_scale))?)?;
    let b = b.checked_mul(power_of_ten(a_scale.saturating_sub(*b_scale))?)?;
    Some((a, b, *a_scale.max(b_scale)))
}

/// Both as integers of one scale; none where one is not finite.
fn aligned_big(a: &Numeric, b: &Numeric) -> Option<(BigInt, BigInt, u16)> {
    let ((a, a_scale), (b, b_scale)) = (a.big_parts()?, b.big_parts()?);
    let a = a * big_power_of_ten(b_scale.saturating_sub(a_scale));
    let b = b * big_power_of_ten(a_scale.saturating_sub(b_scale));
    Some((a, b, a_scale.max(b_scale)))
}

/// An integer division that rounds half away from zero.
fn divide_rounded(dividend: BigInt, divisor: BigInt) -> BigInt {
    let negative = (dividend.sign() == num_bigint::Sign::Minus) != (divisor.sign() == num_bigint::Sign::Minus);
    let (dividend, divisor) = (dividend.magnitude(), divisor.magnitude());
    let (mut quotient, rest) = (dividend / divisor, dividend % divisor);
    if rest * 2_u32 >= *divisor {
        quotient += 1_u32;
    }
    let quotient = BigInt::from(quotient);
    if negative { -quotient } else { quotient }
}

/// Weight and value of the first group of four digits, counted from the point; both 0 for zero.
fn leading_group(mantissa: &BigInt, scale: u16) -> (i64, u32) {
    if mantissa.sign() == num_bigint::Sign::NoSign {
        return (0, 0);
    }
    let digits = mantissa.magnitude().to_string();
    // The power of ten of the first digit, then how many digits of its group stand at or after it.
    let exponent = digits.len() as i64 - 1 - i64::from(scale);
    let weight = exponent.div_euclid(GROUP_DIGITS);
    let taken = usize::try_from(exponent.rem_euclid(GROUP_DIGITS) + 1).unwrap_or(1);
    let head = digits.bytes().chain(std::iter::repeat(b'0')).take(taken);
    (weight, head.fold(0, |value, digit| value * 10 + u32::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(text: &str) -> Numeric {
        Numeric::parse(text).unwrap()
    }

    #[test]
    fn results_show_as_many_digits_as_in_postgres() {
        for (a, op, b, expected) in [
            ("1.10", '+', "2", "3.10"),
            ("1.10", '-', "1.1", "0.00"),
            ("1.5", '*', "1.50", "2.250"),
            ("1.0", '/', "3", "0.33333333333333333333"),
            ("10", '/', "3.00", "3.3333333333333333"),
            ("100000.0", '/', "3", "33333.333333333333"),
            ("0.00001", '/', "3", "0.000003333333333333333333"),
            ("7.5", '%', "2", "1.5"),
            ("-7.5", '%', "2", "-1.5"),
            ("inf", '-', "inf", "NaN"),
            ("inf", '*', "0", "NaN"),
            ("1", '/', "-inf", "0"),
            ("1e38", '*', "1e38", &format!("1{}", "0".repeat(76))),
            ("170141183460469231731687303715884105727", '+', "1", "170141183460469231731687303715884105728"),
        ] {
            let result = match op {
                '+' => n(a).add(&n(b)),
                '-' => n(a).subtract(&n(b)),
                '*' => n(a).multiply(&n(b)),
                '/' => n(a).divide(&n(b)),
                _ => n(a).remainder(&n(b)),
            };
            assert_eq!(result.unwrap().to_string(), expected, "{a} {op} {b}");
        }
    }

    #[test]
    fn halves_are_rounded_away_from_zero() {
        for (text, scale, expected) in
            [("2.5", 0, "3"), ("-2.5", 0, "-3"), ("2.449", 1, "2.4"), ("1", 2, "1.00"), ("0.05", 1, "0.1")]
        {
            assert_eq!(n(text).rounded(scale).unwrap().to_string(), expected, "{text}");
        }
        assert_eq!(n("9223372036854775807.4").to_i64(), Ok(i64::MAX));
        assert!(n("9223372036854775807.5").to_i64().is_err());
        assert!(n("99.995").fitted(4, 2).is_err());
        assert_eq!(n("99.994").fitted(4, 2).unwrap().to_string(), "99.99");
    }

    #[test]
    fn division_by_zero_and_endless_growth_are_errors() {
        assert_eq!(n("1").divide(&n("0.00")), Err(Failure::DivisionByZero));
        assert_eq!(n("1").remainder(&n("0")), Err(Failure::DivisionByZero));
        assert_eq!(n("1e600").multiply(&n("1e600")), Err(OVERFLOW));
        assert_eq!(n("1e-600").multiply(&n("1e-600")), Err(OVERFLOW));
    }
}
