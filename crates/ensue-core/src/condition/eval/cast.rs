//! Casts.

use super::{Answer, Evaluator};
use crate::condition::failure::Failure;
use crate::condition::json::{self, Node, Tree};
use crate::condition::meter::Meter;
use crate::condition::numeric::{Numeric, digits_of_text};
use crate::condition::part::Part;
use crate::condition::types::{Scalar, Type};
use crate::condition::value::Value;
use crate::condition::{float, text_in, time};
use std::borrow::Cow;

/// A number in a wider type of number; anything else as it is.
pub(super) fn widen<'v>(value: &'v Value<'_>, to: Scalar, meter: &Meter) -> Answer<'v> {
    Ok(match (value, to) {
        (Value::Int4(number), Scalar::Int8) => Value::Int8(i64::from(*number)),
        (Value::Int4(number), Scalar::Numeric) => Value::Numeric(Numeric::from(i64::from(*number))),
        (Value::Int4(number), Scalar::Float8) => Value::Float8(f64::from(*number)),
        (Value::Int8(number), Scalar::Numeric) => Value::Numeric(Numeric::from(*number)),
        (Value::Int8(number), Scalar::Float8) => Value::Float8(*number as f64),
        (Value::Numeric(number), Scalar::Float8) => {
            meter.digits(number.digits())?;
            meter.float()?;
            Value::Float8(float::from_numeric(number)?)
        }
        (other, _) => other.borrowed(),
    })
}

/// The value that a text stands for.
pub(in crate::condition) fn from_text<'a>(text: Cow<'a, str>, to: Type, meter: &Meter) -> Answer<'a> {
    let to = match to {
        Type::Scalar(to) => to,
        Type::Array(of) => return array_from_text(&text, of, meter),
    };
    if to != Scalar::Text {
        meter.steps(text.len())?;
    }
    Ok(match to {
        Scalar::Text => Value::Text(text),
        Scalar::Bool => {
            meter.build(text.len())?;
            Value::Bool(text_in::boolean(&text)?)
        }
        Scalar::Int4 => Value::Int4(text_in::int4(&text)?),
        Scalar::Int8 => Value::Int8(text_in::int8(&text)?),
        Scalar::Numeric => Value::Numeric(numeric(&text, meter)?),
        Scalar::Float8 => {
            meter.float()?;
            Value::Float8(float::parse(&text)?)
        }
        Scalar::Time => Value::Time(time::parse(&text)?),
        Scalar::Uuid => Value::Uuid(text_in::uuid(&text)?),
        Scalar::Jsonb => Value::Json(json::parse(&text, meter)?.with_text(text)),
    })
}

/// The number that a text stands for.
fn numeric(text: &str, meter: &Meter) -> Result<Numeric, Failure> {
    meter.digits(digits_of_text(text_in::trim_blanks(text)))?;
    Numeric::parse(text)
}

/// Pays for casting so many elements of an array, beside their bytes: each is allocated and freed, a jsonb several times.
fn pay_elements(count: usize, to: Scalar, meter: &Meter) -> Result<(), Failure> {
    let steps = if to == Scalar::Jsonb { 1_400 } else { 200 };
    meter.steps(count.saturating_mul(steps))
}

fn array_from_text<'a>(text: &str, of: Scalar, meter: &Meter) -> Answer<'a> {
    /// A value, and the text that it is read from, with what the allocator adds.
    const ELEMENT_BYTES: usize = size_of::<Value<'_>>() + size_of::<Option<Cow<'_, str>>>() + 32;
    meter.steps(text.len().saturating_mul(4))?;
    let elements_max = 1 + text.bytes().filter(|byte| *byte == b',').count();
    meter.build(text.len().saturating_add(elements_max.saturating_mul(ELEMENT_BYTES)))?;
    pay_elements(elements_max, of, meter)?;
    let elements = text_in::array(text, of)?;
    let read = |element: Option<Cow<'_, str>>| match element {
        None => Ok(Value::Null),
        Some(element) => Ok(from_text(element, of.into(), meter)?.into_owned()),
    };
    Ok(Value::Array(Part::Built(elements.into_iter().map(read).collect::<Result<_, Failure>>()?)))
}

fn to_i64(value: &Value<'_>, wanted: Scalar, meter: &Meter) -> Result<i64, Failure> {
    let out_of_range = Failure::OutOfRange(wanted.into());
    match value {
        Value::Int4(number) => Ok(i64::from(*number)),
        Value::Int8(number) => Ok(*number),
        Value::Numeric(number) => {
            meter.digits(number.digits())?;
            number.to_i64().map_err(|_| out_of_range)
        }
        Value::Float8(number) => float::to_i64(*number).ok_or(out_of_range),
        _ => Err(out_of_range),
    }
}

/// A number of any type as a number of another.
fn number<'a>(value: &Value<'_>, to: Scalar, meter: &Meter) -> Answer<'a> {
    match to {
        Scalar::Int4 => {
            let whole = to_i64(value, Scalar::Int4, meter)?;
            i32::try_from(whole).map(Value::Int4).map_err(|_| Failure::OutOfRange(Scalar::Int4.into()))
        }
        Scalar::Int8 => Ok(Value::Int8(to_i64(value, Scalar::Int8, meter)?)),
        Scalar::Numeric => match value {
            Value::Float8(number) => {
                meter.float()?;
                Ok(Value::Numeric(float::to_numeric(*number)?))
            }
            other => Ok(widen(other, Scalar::Numeric, meter)?.into_owned()),
        },
        Scalar::Float8 => Ok(widen(value, Scalar::Float8, meter)?.into_owned()),
        // The checker casts numbers to numbers here.
        Scalar::Bool | Scalar::Text | Scalar::Jsonb | Scalar::Time | Scalar::Uuid => Ok(Value::Null),
    }
}

/// A jsonb number or boolean as one of SQL.
fn from_json<'a>(json: Tree<'_>, to: Scalar, meter: &Meter) -> Answer<'a> {
    match (json.head(), to) {
        (Node::Bool(value), Scalar::Bool) => Ok(Value::Bool(value)),
        (Node::Number(span), Scalar::Int4 | Scalar::Int8 | Scalar::Numeric | Scalar::Float8) => {
            number(&Value::Numeric(numeric(json.text(span), meter)?), to, meter)
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
                let text = value.text(&self.meter)?.map(Cow::into_owned).unwrap_or_default();
                self.meter.build(text.len())?;
                return Ok(Value::Text(Cow::Owned(text)));
            }
            (Type::Array(from), Type::Array(to)) => {
                let Value::Array(elements) = value else { return Ok(value) };
                self.meter.build(elements.len() * size_of::<Value<'_>>())?;
                pay_elements(elements.len(), to, &self.meter)?;
                let each = |element: &Value<'a>| {
                    self.meter.build(element.bytes())?;
                    self.cast(element.clone(), from.into(), to.into())
                };
                return Ok(Value::Array(Part::Built(elements.iter().map(each).collect::<Result<_, _>>()?)));
            }
            (Type::Scalar(from), Type::Scalar(to)) => (from, to),
            (Type::Scalar(_), Type::Array(_)) | (Type::Array(_), Type::Scalar(_)) => return Ok(value),
        };
        match (from, to, value) {
            (Scalar::Jsonb, _, Value::Json(json)) => from_json(json.tree(), to, &self.meter),
            (Scalar::Bool, Scalar::Int4, Value::Bool(value)) => Ok(Value::Int4(i32::from(value))),
            (Scalar::Int4, Scalar::Bool, Value::Int4(number)) => Ok(Value::Bool(number != 0)),
            (_, _, other) => number(&other, to, &self.meter),
        }
    }
}
