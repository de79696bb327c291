//! Comparisons.

use crate::condition::expr::Comparison;
use crate::condition::failure::Failure;
use crate::condition::meter::Meter;
use crate::condition::value::Value;
use crate::condition::{float, json};
use std::cmp::Ordering;

/// Does it hold between two values? None if one of them is NULL.
pub(super) fn holds(
    op: Comparison,
    left: &Value<'_>,
    right: &Value<'_>,
    meter: &Meter,
) -> Result<Option<bool>, Failure> {
    // Most comparisons are of texts for equality, which their lengths decide most of the time.
    if let (Value::Text(left), Value::Text(right)) = (left, right)
        && matches!(op, Comparison::Equal | Comparison::NotEqual)
    {
        meter.bytes(left.len().min(right.len()))?;
        return Ok(Some((left == right) == (op == Comparison::Equal)));
    }
    let Some(order) = order(left, right, meter)? else { return Ok(None) };
    Ok(Some(match op {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }))
}

/// The order of two values that the checker has brought to one type; none if one of them is NULL.
fn order(left: &Value<'_>, right: &Value<'_>, meter: &Meter) -> Result<Option<Ordering>, Failure> {
    Ok(Some(match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Int4(left), Value::Int4(right)) => left.cmp(right),
        (Value::Int8(left), Value::Int8(right)) => left.cmp(right),
        (Value::Int4(left), Value::Int8(right)) => i64::from(*left).cmp(right),
        (Value::Int8(left), Value::Int4(right)) => left.cmp(&i64::from(*right)),
        (Value::Numeric(left), Value::Numeric(right)) => {
            meter.digits(left.digits() + right.digits())?;
            left.cmp(right)
        }
        (Value::Float8(left), Value::Float8(right)) => float::compare(*left, *right),
        (Value::Text(left), Value::Text(right)) => {
            meter.bytes(left.len().min(right.len()))?;
            left.as_bytes().cmp(right.as_bytes())
        }
        (Value::Json(left), Value::Json(right)) => json::compare(left.tree(), right.tree(), meter)?,
        (Value::Time(left), Value::Time(right)) => left.cmp(right),
        (Value::Uuid(left), Value::Uuid(right)) => left.as_bytes().cmp(right.as_bytes()),
        // NULL on either side. Other pairs of types do not pass the checker.
        _ => return Ok(None),
    }))
}
