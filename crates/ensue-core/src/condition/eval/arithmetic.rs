//! Arithmetic.

use crate::condition::expr::Arithmetic;
use crate::condition::failure::Failure;
use crate::condition::float;
use crate::condition::meter::Meter;
use crate::condition::numeric::{DIGITS_MAX, Numeric};
use crate::condition::types::Scalar;
use crate::condition::value::Value;

/// The result of two operands that the checker has brought to types that go together.
pub(super) fn calculate<'a>(
    op: Arithmetic,
    left: &Value<'_>,
    right: &Value<'_>,
    meter: &Meter,
) -> Result<Value<'a>, Failure> {
    match (left, right) {
        (Value::Int4(left), Value::Int4(right)) => {
            let result = whole(op, i64::from(*left), i64::from(*right))?;
            i32::try_from(result).map(Value::Int4).map_err(|_| Failure::OutOfRange(Scalar::Int4.into()))
        }
        (Value::Int8(left), Value::Int8(right)) => whole(op, *left, *right).map(Value::Int8),
        (Value::Int4(left), Value::Int8(right)) => whole(op, i64::from(*left), *right).map(Value::Int8),
        (Value::Int8(left), Value::Int4(right)) => whole(op, *left, i64::from(*right)).map(Value::Int8),
        (Value::Numeric(left), Value::Numeric(right)) => {
            pay(op, left, right, meter)?;
            Ok(Value::Numeric(match op {
                Arithmetic::Add => left.add(right)?,
                Arithmetic::Subtract => left.subtract(right)?,
                Arithmetic::Multiply => left.multiply(right)?,
                Arithmetic::Divide => left.divide(right)?,
                Arithmetic::Remainder => left.remainder(right)?,
            }))
        }
        (Value::Float8(left), Value::Float8(right)) => Ok(match op {
            Arithmetic::Add => Value::Float8(float::sum(*left, *right)?),
            Arithmetic::Subtract => Value::Float8(float::sum(*left, -*right)?),
            Arithmetic::Multiply => Value::Float8(float::product(*left, *right)?),
            Arithmetic::Divide => Value::Float8(float::quotient(*left, *right)?),
            // Postgres has none, so the checker lets none through.
            Arithmetic::Remainder => Value::Null,
        }),
        // NULL on either side. Other pairs of types do not pass the checker.
        _ => Ok(Value::Null),
    }
}

/// Steps of a division, which takes big integers however small its operands are.
const DIVISION_STEPS: usize = 2_000;

/// Pays for a calculation by the digits of both operands, and those that a quotient is given.
fn pay(op: Arithmetic, left: &Numeric, right: &Numeric, meter: &Meter) -> Result<(), Failure> {
    let digits = left.digits() + right.digits();
    match op {
        Arithmetic::Divide => {
            meter.steps(DIVISION_STEPS)?;
            meter.digits(if digits > 2 { digits + DIGITS_MAX } else { digits })
        }
        Arithmetic::Add | Arithmetic::Subtract | Arithmetic::Multiply | Arithmetic::Remainder => meter.digits(digits),
    }
}

fn whole(op: Arithmetic, left: i64, right: i64) -> Result<i64, Failure> {
    let result = match op {
        Arithmetic::Add => left.checked_add(right),
        Arithmetic::Subtract => left.checked_sub(right),
        Arithmetic::Multiply => left.checked_mul(right),
        Arithmetic::Divide | Arithmetic::Remainder if right == 0 => return Err(Failure::DivisionByZero),
        Arithmetic::Divide => left.checked_div(right),
        // The smallest number by -1 leaves nothing, although the quotient would not fit.
        Arithmetic::Remainder => Some(left.wrapping_rem(right)),
    };
    result.ok_or(Failure::OutOfRange(Scalar::Int8.into()))
}

/// The operand with the other sign.
pub(super) fn negate<'a>(operand: &Value<'_>, meter: &Meter) -> Result<Value<'a>, Failure> {
    if let Value::Numeric(number) = operand {
        meter.digits(number.digits())?;
    }
    Ok(match operand {
        Value::Int4(number) => Value::Int4(number.checked_neg().ok_or(Failure::OutOfRange(Scalar::Int4.into()))?),
        Value::Int8(number) => Value::Int8(number.checked_neg().ok_or(Failure::OutOfRange(Scalar::Int8.into()))?),
        Value::Numeric(number) => Value::Numeric(number.negate()?),
        Value::Float8(number) => Value::Float8(-number),
        _ => Value::Null,
    })
}

/// The operand without its sign.
pub(super) fn abs<'a>(operand: &Value<'_>, meter: &Meter) -> Result<Value<'a>, Failure> {
    if let Value::Numeric(number) = operand {
        meter.digits(number.digits())?;
    }
    Ok(match operand {
        Value::Int4(number) => Value::Int4(number.checked_abs().ok_or(Failure::OutOfRange(Scalar::Int4.into()))?),
        Value::Int8(number) => Value::Int8(number.checked_abs().ok_or(Failure::OutOfRange(Scalar::Int8.into()))?),
        Value::Numeric(number) => Value::Numeric(number.abs()?),
        Value::Float8(number) => Value::Float8(number.abs()),
        _ => Value::Null,
    })
}
