//! Functions.

use super::{Answer, Evaluator, arithmetic};
use crate::condition::expr::{Expr, Function};
use crate::condition::failure::Failure;
use crate::condition::hashtext::hashtext;
use crate::condition::json;
use crate::condition::part::Part;
use crate::condition::time;
use crate::condition::value::Value;
use std::borrow::Cow;

impl<'a> Evaluator<'a, '_, '_> {
    pub(super) fn call(&self, function: Function, arguments: &'a [Expr]) -> Answer<'a> {
        match function {
            Function::Lower => self.map_text(arguments, str::to_ascii_lowercase),
            Function::Upper => self.map_text(arguments, str::to_ascii_uppercase),
            Function::Length => {
                let count = |text: &str| i32::try_from(text.chars().count()).unwrap_or(i32::MAX);
                self.with_text(arguments, |text| Value::Int4(count(text)))
            }
            Function::Hashtext => self.with_text(arguments, |text| Value::Int4(hashtext(text))),
            Function::StartsWith => {
                let (text, prefix) = (self.value(&arguments[0])?, self.value(&arguments[1])?);
                let (Value::Text(text), Value::Text(prefix)) = (text, prefix) else { return Ok(Value::Null) };
                self.meter.bytes(prefix.len())?;
                Ok(Value::Bool(text.starts_with(&*prefix)))
            }
            Function::Abs => arithmetic::abs(&self.value(&arguments[0])?, &self.meter),
            Function::BuildArray => self.build_array(arguments),
            Function::BuildObject => self.build_object(arguments),
            Function::TypeOf => match self.value(&arguments[0])? {
                Value::Json(json) => Ok(Value::Text(Cow::Borrowed(json.tree().head().kind()))),
                _ => Ok(Value::Null),
            },
            Function::ArrayLength => match self.value(&arguments[0])? {
                Value::Json(json) => Self::array_length(json.tree().head()),
                _ => Ok(Value::Null),
            },
            Function::ToJsonb => match self.value(&arguments[0])? {
                Value::Null => Ok(Value::Null),
                json @ Value::Json(_) => Ok(json),
                other => Ok(Value::Json(json::of_value(&other, &self.meter)?)),
            },
        }
    }

    fn map_text(&self, arguments: &'a [Expr], map: fn(&str) -> String) -> Answer<'a> {
        self.with_text(arguments, |text| Value::Text(Cow::Owned(map(text))))
    }

    fn with_text(&self, arguments: &'a [Expr], map: impl Fn(&str) -> Value<'static>) -> Answer<'a> {
        match self.value(&arguments[0])? {
            Value::Text(text) => {
                self.meter.build(text.len())?;
                // A hash looks at every byte, the others at many at once.
                self.meter.steps(text.len())?;
                Ok(map(&text))
            }
            _ => Ok(Value::Null),
        }
    }

    fn build_array(&self, arguments: &'a [Expr]) -> Answer<'a> {
        self.meter.build(arguments.len() * size_of::<Value<'_>>())?;
        let elements: Result<Vec<_>, _> = arguments.iter().map(|argument| self.value(argument)).collect();
        Ok(Value::Json(json::of_value(&Value::Array(Part::Built(elements?)), &self.meter)?))
    }

    fn build_object(&self, arguments: &'a [Expr]) -> Answer<'a> {
        let mut pairs = Vec::with_capacity(arguments.len() / 2);
        for pair in arguments.chunks_exact(2) {
            let key = match self.value(&pair[0])? {
                Value::Null => return Err(Failure::NullKey),
                Value::Text(key) => key,
                Value::Time(micros) => Cow::Owned(time::show_in_json(micros)),
                other => Cow::Owned(other.text(&self.meter)?.map(Cow::into_owned).unwrap_or_default()),
            };
            pairs.push((key, self.value(&pair[1])?));
        }
        Ok(Value::Json(json::object(pairs, &self.meter)?))
    }
}
