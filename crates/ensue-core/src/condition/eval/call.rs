//! What does a function give?

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
                self.with_text(arguments, |text| Value::Int4(i32::try_from(text.chars().count()).unwrap_or(i32::MAX)))
            }
            Function::Hashtext => self.with_text(arguments, |text| Value::Int4(hashtext(text))),
            Function::StartsWith => {
                let (text, prefix) = (self.value(&arguments[0])?, self.value(&arguments[1])?);
                let (Value::Text(text), Value::Text(prefix)) = (text, prefix) else { return Ok(Value::Null) };
                self.meter.bytes(prefix.len())?;
                Ok(Value::Bool(text.starts_with(&*prefix)))
            }
            Function::Abs => arithmetic::abs(&self.value(&arguments[0])?),
            Function::BuildObject => self.build_object(arguments),
            Function::TypeOf => match self.value(&arguments[0])? {
                Value::Json(nodes) => Ok(Value::Text(Cow::Borrowed(nodes[0].kind()))),
                _ => Ok(Value::Null),
            },
            Function::ArrayLength => match self.value(&arguments[0])? {
                Value::Json(nodes) => Self::array_length(&nodes),
                _ => Ok(Value::Null),
            },
            Function::ToJsonb => match self.value(&arguments[0])? {
                Value::Null => Ok(Value::Null),
                json @ Value::Json(_) => Ok(json),
                other => Ok(Value::Json(Part::Built(json::of_value(&other, &self.meter)?))),
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
                Ok(map(&text))
            }
            _ => Ok(Value::Null),
        }
    }

    fn build_object(&self, arguments: &'a [Expr]) -> Answer<'a> {
        let mut pairs = Vec::with_capacity(arguments.len() / 2);
        for pair in arguments.chunks_exact(2) {
            let key = match self.value(&pair[0])? {
                Value::Null => return Err(Failure::NullKey),
                Value::Text(key) => key,
                Value::Time(micros) => Cow::Owned(time::show_in_json(micros)),
                other => Cow::Owned(other.text().map(Cow::into_owned).unwrap_or_default()),
            };
            pairs.push((key, json::of_value(&self.value(&pair[1])?, &self.meter)?));
        }
        Ok(Value::Json(Part::Built(json::object(pairs, &self.meter)?)))
    }
}
