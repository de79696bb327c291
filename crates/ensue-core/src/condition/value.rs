//! Values of expressions.

use super::failure::Failure;
use super::json::{self, Jsonb};
use super::meter::Meter;
use super::numeric::Numeric;
use super::part::Part;
use super::{float, time};
use std::borrow::Cow;
use uuid::Uuid;

/// A value of one of the types, or NULL. Texts and jsonb are borrowed from the event wherever possible.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// NULL, of any type.
    Null,
    /// `boolean`
    Bool(bool),
    /// `integer`
    Int4(i32),
    /// `bigint`
    Int8(i64),
    /// `numeric`
    Numeric(Numeric),
    /// `double precision`
    Float8(f64),
    /// `text`
    Text(Cow<'a, str>),
    /// `jsonb`
    Json(Jsonb<'a>),
    /// `timestamptz`, in microseconds since 1970
    Time(i64),
    /// `uuid`
    Uuid(Uuid),
    /// An array.
    Array(Part<'a, Value<'a>>),
}

impl Value<'_> {
    /// Is it NULL?
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The same value without a copy of its text or jsonb.
    pub(super) fn borrowed(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int4(number) => Value::Int4(*number),
            Self::Int8(number) => Value::Int8(*number),
            Self::Numeric(number) => Value::Numeric(number.clone()),
            Self::Float8(number) => Value::Float8(*number),
            Self::Text(text) => Value::Text(Cow::Borrowed(text)),
            Self::Json(json) => Value::Json(Jsonb::Borrowed(json.tree())),
            Self::Time(micros) => Value::Time(*micros),
            Self::Uuid(uuid) => Value::Uuid(*uuid),
            Self::Array(elements) => Value::Array(Part::Borrowed(elements)),
        }
    }

    /// The same value, borrowing nothing.
    pub(super) fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int4(number) => Value::Int4(number),
            Self::Int8(number) => Value::Int8(number),
            Self::Numeric(number) => Value::Numeric(number),
            Self::Float8(number) => Value::Float8(number),
            Self::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Self::Json(json) => Value::Json(json.into_owned()),
            Self::Time(micros) => Value::Time(micros),
            Self::Uuid(uuid) => Value::Uuid(uuid),
            Self::Array(elements) => {
                Value::Array(Part::Built(elements.iter().map(|element| element.borrowed().into_owned()).collect()))
            }
        }
    }

    /// The text of the value as a cast to text gives it; none for NULL.
    pub(super) fn text(&self, meter: &Meter) -> Result<Option<Cow<'_, str>>, Failure> {
        Ok(Some(match self {
            Self::Null => return Ok(None),
            Self::Bool(value) => Cow::Borrowed(if *value { "true" } else { "false" }),
            Self::Int4(number) => Cow::Owned(number.to_string()),
            Self::Int8(number) => Cow::Owned(number.to_string()),
            Self::Numeric(number) => {
                meter.digits(number.digits())?;
                Cow::Owned(number.to_string())
            }
            Self::Float8(number) => {
                meter.float()?;
                Cow::Owned(float::show(*number))
            }
            Self::Text(text) => Cow::Borrowed(text),
            Self::Json(json) => Cow::Owned(json::print(json.tree(), meter)?),
            Self::Time(micros) => Cow::Owned(time::show(*micros)),
            Self::Uuid(uuid) => Cow::Owned(uuid.to_string()),
            Self::Array(elements) => Cow::Owned(array_text(elements, meter)?),
        }))
    }

    /// Memory that the value takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) | Self::Int4(_) | Self::Int8(_) | Self::Float8(_) => 0,
            Self::Time(_) | Self::Uuid(_) => 0,
            Self::Numeric(number) => number.digits() / 2,
            Self::Text(text) => text.len(),
            Self::Json(json) => json.tree().bytes(),
            Self::Array(elements) => elements.iter().map(|element| size_of::<Value<'_>>() + element.bytes()).sum(),
        }
    }
}

/// `{a,"b c",NULL}`
fn array_text(elements: &[Value<'_>], meter: &Meter) -> Result<String, Failure> {
    let mut text = String::from("{");
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        match element {
            Value::Null => text.push_str("NULL"),
            Value::Bool(value) => text.push(if *value { 't' } else { 'f' }),
            other => {
                let element = other.text(meter)?.unwrap_or_default();
                // Every character may take an escape.
                meter.append(text.len(), 2 * element.len() + 16)?;
                meter.steps(4 * element.len())?;
                put_element(&element, &mut text);
            }
        }
    }
    text.push('}');
    Ok(text)
}

fn put_element(element: &str, to: &mut String) {
    let special = |c: char| matches!(c, '"' | '\\' | '{' | '}' | ',') || super::text_in::is_blank(c);
    if !element.is_empty() && !element.eq_ignore_ascii_case("null") && !element.contains(special) {
        to.push_str(element);
        return;
    }
    to.push('"');
    for character in element.chars() {
        if matches!(character, '"' | '\\') {
            to.push('\\');
        }
        to.push(character);
    }
    to.push('"');
}
