//! What do the operators of jsonb find?

use super::{Answer, Evaluator};
use crate::condition::expr::Expr;
use crate::condition::failure::Failure;
use crate::condition::json::{self, Node};
use crate::condition::part::Part;
use crate::condition::value::Value;
use std::borrow::Cow;

/// What is looked for in a value: a key, a place, or the steps of a path.
enum Wanted<'k> {
    Key(&'k str),
    Place(i32),
    Path(&'k [Value<'k>]),
}

fn find<'n>(nodes: &'n [Node<'n>], wanted: &Wanted<'_>) -> Option<&'n [Node<'n>]> {
    match wanted {
        Wanted::Key(key) => json::field(nodes, key),
        Wanted::Place(at) => json::element(nodes, *at, true),
        Wanted::Path(steps) => steps.iter().try_fold(nodes, |nodes, step| match step {
            Value::Text(step) => json::step(nodes, step),
            _ => None,
        }),
    }
}

/// A part of a borrowed value stays borrowed; a part of a built one is copied out of it.
fn found<'a>(value: Part<'a, Node<'a>>, wanted: &Wanted<'_>, as_text: bool) -> Value<'a> {
    match value {
        Part::Borrowed(nodes) => match find(nodes, wanted) {
            None => Value::Null,
            Some(part) if as_text => text(part),
            Some(part) => Value::Json(Part::Borrowed(part)),
        },
        Part::Built(nodes) => match find(&nodes, wanted) {
            None => Value::Null,
            Some(part) if as_text => text(part).into_owned(),
            Some(part) => Value::Json(Part::Built(part.iter().map(|node| node.borrowed().into_owned()).collect())),
        },
    }
}

/// What `->>` gives: strings without their quotes, null as NULL, everything else as its jsonb text.
fn text<'n>(part: &'n [Node<'n>]) -> Value<'n> {
    match &part[0] {
        Node::Null => Value::Null,
        Node::Text(text) => Value::Text(Cow::Borrowed(text)),
        Node::Number(number) => Value::Text(json::number_text(number)),
        Node::Bool(_) | Node::Array { .. } | Node::Object { .. } => Value::Text(Cow::Owned(json::print(part))),
    }
}

/// How many members a search may have to pass.
fn members(nodes: &[Node<'_>]) -> usize {
    match &nodes[0] {
        Node::Array { items, .. } => *items as usize,
        Node::Object { pairs, .. } => *pairs as usize,
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) => 1,
    }
}

impl<'a> Evaluator<'a, '_, '_> {
    pub(super) fn member(&self, value: &'a Expr, key: &'a Expr, as_text: bool) -> Answer<'a> {
        let (value, key) = (self.value(value)?, self.value(key)?);
        let Value::Json(value) = value else { return Ok(Value::Null) };
        self.meter.steps(members(&value))?;
        let wanted = match &key {
            Value::Text(key) => Wanted::Key(key),
            Value::Int4(place) => Wanted::Place(*place),
            _ => return Ok(Value::Null),
        };
        self.paid(found(value, &wanted, as_text))
    }

    pub(super) fn path(&self, value: &'a Expr, path: &'a Expr, as_text: bool) -> Answer<'a> {
        let (value, path) = (self.value(value)?, self.value(path)?);
        let (Value::Json(value), Value::Array(path)) = (value, path) else { return Ok(Value::Null) };
        self.meter.steps(value.len().min(path.len().saturating_mul(members(&value))))?;
        self.paid(found(value, &Wanted::Path(&path), as_text))
    }

    /// A text that had to be made is paid for.
    fn paid(&self, value: Value<'a>) -> Answer<'a> {
        if let Value::Text(Cow::Owned(text)) = &value {
            self.meter.build(text.len())?;
        }
        Ok(value)
    }

    pub(super) fn concat_json(&self, left: &'a Expr, right: &'a Expr) -> Answer<'a> {
        let (left, right) = (self.value(left)?, self.value(right)?);
        let (Value::Json(left), Value::Json(right)) = (left, right) else { return Ok(Value::Null) };
        Ok(Value::Json(Part::Built(json::concat(&left, &right, &self.meter)?)))
    }

    pub(super) fn contains(&self, whole: &'a Expr, part: &'a Expr) -> Answer<'a> {
        let (whole, part) = (self.value(whole)?, self.value(part)?);
        let (Value::Json(whole), Value::Json(part)) = (whole, part) else { return Ok(Value::Null) };
        Ok(Value::Bool(json::contains(&whole, &part, &self.meter)?))
    }

    pub(super) fn has_key(&self, value: &'a Expr, key: &'a Expr) -> Answer<'a> {
        let (value, key) = (self.value(value)?, self.value(key)?);
        let (Value::Json(value), Value::Text(key)) = (value, key) else { return Ok(Value::Null) };
        Ok(Value::Bool(json::exists(&value, &key, &self.meter)?))
    }

    pub(super) fn has_keys(&self, value: &'a Expr, keys: &'a Expr, all: bool) -> Answer<'a> {
        let (value, keys) = (self.value(value)?, self.value(keys)?);
        let (Value::Json(value), Value::Array(keys)) = (value, keys) else { return Ok(Value::Null) };
        for key in keys.iter() {
            let Value::Text(key) = key else { continue };
            if json::exists(&value, key, &self.meter)? != all {
                return Ok(Value::Bool(!all));
            }
        }
        Ok(Value::Bool(all))
    }

    /// The length of an array; an error for everything else, as in Postgres.
    pub(super) fn array_length(nodes: &[Node<'_>]) -> Answer<'a> {
        match &nodes[0] {
            Node::Array { items, .. } => Ok(Value::Int4(i32::try_from(*items).unwrap_or(i32::MAX))),
            other => Err(Failure::NotAnArray(other.kind())),
        }
    }
}
