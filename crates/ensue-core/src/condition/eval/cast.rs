//! What does a cast make of a value?

use super::{Answer, Evaluator};
use crate::condition::failure::Failure;
use crate::condition::json::{self, Node};
use crate::condition::meter::Meter;
use crate::condition::numeric::Numeric;
use crate::condition::part::Part;
use crate::condition::types::{Scalar, Type};
use crate::condition::value::Value;
use crate::condition::{float, text_in, time};
use std::borrow::Cow;

/// A number in a wider type of number; anything else as it is.
pub(super) fn widen<'a>(value: &Value<'a>, to: Scalar) -> Answer<'a> {
    Ok(match (value, to) {
        (Value::Int4(number), Scalar::Int8) => Value::Int8(i64::from(*number)),
        (Value::Int4(number), Scalar::Numeric) => Value::Numeric(Numeric::from(i64::from(*number))),
        (Value::Int4(number), Scalar::Float8) => Value::Float8(f64::from(*number)),
        (Value::Int8(number), Scalar::Numeric) => Value::Numeric(Numeric::from(*number)),
        (Value::Int8(number), Scalar::Float8) => Value::Float8(*number as f64),
        (Value::Numeric(number), Scalar::Float8) => Value::Float8(float::from_numeric(number)?),
        (other, _) => other.clone(),
    })
}

/// The value that a text stands for.
pub(in crate::condition) fn from_text<'a>(text: Cow<'a, str>, to: Type, meter: &Meter) -> Answer<'a> {
    meter.bytes(text.len())?;
    let to = match to {
        Type::Scalar(to) => to,
        Type::Array(of) => {
            meter.steps(text.len())?;
            let elements = text_in::array(&text, of)?;
            let read = |element: Option<Cow<'_, str>>| match element {
                None => Ok(Value::Null),
                Some(element) => Ok(from_text(element, of.into(), meter)?.into_owned()),
            };
            return Ok(Value::Array(Part::Built(elements.into_iter().map(read).collect::<Result<_, Failure>>()?)));
        }
    };
    Ok(match to {
        Scalar::Text => Value::Text(text),
        Scalar::Bool => Value::Bool(text_in::boolean(&text)?),
        Scalar::Int4 => Value::Int4(text_in::int4(&text)?),
        Scalar::Int8 => Value::Int8(text_in::int8(&text)?),
        Scalar::Numeric => Value::Numeric(Numeric::parse(&text)?),
        Scalar::Float8 => Value::Float8(float::parse(&text)?),
        Scalar::Time => Value::Time(time::parse(&text)?),
        Scalar::Uuid => Value::Uuid(text_in::uuid(&text)?),
        Scalar::Jsonb => {
            meter.steps(text.len() / 4)?;
            match text {
                Cow::Borrowed(text) => {
                    let mut nodes = Vec::new();
                    json::parse(text, &mut nodes)?;
                    Value::Json(Part::Built(nodes))
                }
                Cow::Owned(text) => {
                    let mut nodes = Vec::new();
                    json::parse(&text, &mut nodes)?;
                    Value::Json(Part::Built(nodes.into_iter().map(Node::into_owned).collect()))
                }
            }
        }
    })
}

fn to_i64(value: &Value<'_>, wanted: Scalar) -> Result<i64, Failure> {
    let out_of_range = Failure::OutOfRange(wanted.into());
    match value {
        Value::Int4(number) => Ok(i64::from(*number)),
        Value::Int8(number) => Ok(*number),
        Value::Numeric(number) => number.to_i64().map_err(|_| out_of_range),
        Value::Float8(number) => float::to_i64(*number).ok_or(out_of_range),
        _ => Err(out_of_range),
    }
}

/// A number of any type as a number of another.
fn number<'a>(value: Value<'a>, to: Scalar) -> Answer<'a> {
    match to {
        Scalar::Int4 => {
            let whole = to_i64(&value, Scalar::Int4)?;
            i32::try_from(whole).map(Value::Int4).map_err(|_| Failure::OutOfRange(Scalar::Int4.into()))
        }
        Scalar::Int8 => Ok(Value::Int8(to_i64(&value, Scalar::Int8)?)),
        Scalar::Numeric => match value {
            Value::Float8(number) => Ok(Value::Numeric(float::to_numeric(number)?)),
            other => widen(&other, Scalar::Numeric),
        },
        Scalar::Float8 => widen(&value, Scalar::Float8),
        // The checker casts numbers to numbers here.
        Scalar::Bool | Scalar::Text | Scalar::Jsonb | Scalar::Time | Scalar::Uuid => Ok(value),
    }
}

/// A jsonb number or boolean as one of SQL.
fn from_json<'a>(head: &Node<'_>, to: Scalar) -> Answer<'a> {
    match (head, to) {
        (Node::Bool(value), Scalar::Bool) => Ok(Value::Bool(*value)),
        (Node::Number(text), Scalar::Int4 | Scalar::Int8 | Scalar::Numeric | Scalar::Float8) => {
            number(Value::Numeric(Numeric::parse(text)?), to)
        }
        (other, _) => Err(Failure::BadJson { wanted: to.into(), found: other.kind() }),
    }
}

impl<'a> Evaluator<'a, '_, '_> {
    /// The value in another type. The checker lets through only casts that there are.
    pub(super) fn cast(&self, value: Value<'a>, from: Type, to: Type) -> Answer<'a> {
        if value.is_null() || from == to {
            return Ok(value);
        }
        let (from, to) = match (from, to) {
            (Type::Scalar(Scalar::Text), _) => match value {
                Value::Text(text) => return from_text(text, to, &self.meter),
                other => return Ok(other),
            },
            (_, Type::Scalar(Scalar::Text)) => {
                self.meter.build(value.weight())?;
                let text = value.text().map(Cow::into_owned).unwrap_or_default();
                self.meter.build(text.len())?;
                return Ok(Value::Text(Cow::Owned(text)));
            }
            (Type::Array(from), Type::Array(to)) => {
                let Value::Array(elements) = value else { return Ok(value) };
                self.meter.steps(elements.len())?;
                let each = |element: &Value<'a>| self.cast(element.clone(), from.into(), to.into());
                return Ok(Value::Array(Part::Built(elements.iter().map(each).collect::<Result<_, _>>()?)));
            }
            (Type::Scalar(from), Type::Scalar(to)) => (from, to),
            (Type::Scalar(_), Type::Array(_)) | (Type::Array(_), Type::Scalar(_)) => return Ok(value),
        };
        match (from, to, value) {
            (Scalar::Jsonb, _, Value::Json(nodes)) => from_json(&nodes[0], to),
            (Scalar::Bool, Scalar::Int4, Value::Bool(value)) => Ok(Value::Int4(i32::from(value))),
            (Scalar::Int4, Scalar::Bool, Value::Int4(number)) => Ok(Value::Bool(number != 0)),
            (_, _, other) => number(other, to),
        }
    }
}
