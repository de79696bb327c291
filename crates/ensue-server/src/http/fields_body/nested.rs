//! What does a field say that is a list, or an object of its own?

use super::super::body::{self, Place};
use super::super::problem::Problem;
use super::{BodyFields, FieldsBody, not_json};
use ensue::Timestamp;
use serde_json::value::RawValue;

/// A body that is one object, or an array of them.
pub(in super::super) enum OneOrMany<'b> {
    One(BodyFields<'b>),
    Many(Vec<BodyFields<'b>>),
}

impl FieldsBody {
    /// Its objects: one alone, or those of an array, which faults call `name[3]`; at least one and at most `count_max`.
    pub fn one_or_many(&self, name: &'static str, count_max: usize) -> Result<OneOrMany<'_>, Problem> {
        let text = self.text()?;
        if !text.trim_start().starts_with('[') {
            return BodyFields::of("body", text, self.known).map(OneOrMany::One);
        }
        let elements: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| not_json("body", error))?;
        if elements.is_empty() {
            return Err(Problem::invalid(name, "is empty; send at least one"));
        }
        each(name, &elements, self.known, count_max).map(OneOrMany::Many)
    }
}

fn each<'b>(
    name: &str,
    elements: &[&'b RawValue],
    known: &'static [&'static str],
    count_max: usize,
) -> Result<Vec<BodyFields<'b>>, Problem> {
    if elements.len() > count_max {
        let reason = format!("has {} elements; at most {count_max} are allowed in one call", elements.len());
        return Err(Problem::invalid(name, reason));
    }
    let element = |(index, raw): (usize, &&'b RawValue)| {
        let place = format!("{name}[{index}]");
        BodyFields::of(&place, raw.get(), known).map_err(|problem| match problem.is_about(&place) {
            true => problem,
            false => problem.rename(|field| format!("{place}.{field}").into()),
        })
    };
    elements.iter().enumerate().map(element).collect()
}

impl<'b> BodyFields<'b> {
    /// Any whole number that 64 bits hold.
    pub fn number_exact(&self, name: &'static str) -> Result<Option<u64>, Problem> {
        let Some(value) = self.given(name) else { return Ok(None) };
        let digits = value.get().bytes().all(|byte| byte.is_ascii_digit());
        match value.get().parse() {
            Ok(number) if digits => Ok(Some(number)),
            _ => Err(Problem::invalid(name, format!("must be a whole number from 0 to {}, without quotes", u64::MAX))),
        }
    }

    /// Yes, no, or not said.
    pub fn flag_or(&self, name: &'static str, unless_told: bool) -> Result<bool, Problem> {
        match self.given(name) {
            Some(_) => self.flag(name),
            None => Ok(unless_told),
        }
    }

    /// A time.
    pub fn time(&self, name: &'static str) -> Result<Option<Timestamp>, Problem> {
        self.given(name).map(|value| body::time(Place::Alone, name, value)).transpose()
    }

    /// A value as it stands, also `null`.
    pub fn as_it_stands(&self, name: &str) -> Option<&'b str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.get())
    }

    /// A list of texts.
    pub fn texts(&self, name: &'static str) -> Result<Option<Vec<String>>, Problem> {
        let Some(value) = self.given(name) else { return Ok(None) };
        let texts: Result<Vec<String>, _> = serde_json::from_str(value.get());
        texts.map(Some).map_err(|_| Problem::invalid(name, "must be a list of strings, such as [\"mail.send\"]"))
    }

    /// The fields of an object.
    pub fn object(
        &self,
        name: &'static str,
        known: &'static [&'static str],
    ) -> Result<Option<BodyFields<'b>>, Problem> {
        self.given(name).map(|value| BodyFields::of(name, value.get(), known)).transpose()
    }

    /// Objects, at most `count_max`.
    pub fn objects(
        &self,
        name: &'static str,
        known: &'static [&'static str],
        count_max: usize,
    ) -> Result<Option<Vec<BodyFields<'b>>>, Problem> {
        let Some(value) = self.given(name) else { return Ok(None) };
        let elements: Vec<&RawValue> =
            serde_json::from_str(value.get()).map_err(|_| Problem::invalid(name, "must be a list of objects"))?;
        each(name, &elements, known, count_max).map(Some)
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, value)| value.get() == "null")
    }
}
