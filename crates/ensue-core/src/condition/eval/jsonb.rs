//! Operators of `jsonb`.

use super::{Answer, Evaluator};
use crate::condition::expr::Expr;
use crate::condition::failure::Failure;
use crate::condition::json::{self, Found, Jsonb, Node, Tree};
use crate::condition::meter::Meter;
use crate::condition::value::Value;
use std::borrow::Cow;

/// What is looked for in a value: a key, a place, or the steps of a path.
enum Wanted<'k> {
    Key(&'k str),
    Place(i32),
    Path(&'k [Value<'k>]),
}

fn find<'n>(whole: Tree<'n>, wanted: &Wanted<'_>, meter: &Meter) -> Result<Option<Tree<'n>>, Failure> {
    match wanted {
        Wanted::Key(key) => whole.field(key, meter),
        Wanted::Place(at) => whole.element(*at, true, meter),
        Wanted::Path(steps) => {
            let mut part = whole;
            for step in *steps {
                let Value::Text(step) = step else { return Ok(None) };
                match part.step(step, meter)? {
                    Some(found) => part = found,
                    None => return Ok(None),
                }
            }
            Ok(Some(part))
        }
    }
}

/// What `->>` gives: strings without their quotes, null as NULL, everything else as its jsonb text.
fn text<'n>(part: Tree<'n>, meter: &Meter) -> Answer<'n> {
    Ok(match part.head() {
        Node::Null => Value::Null,
        Node::Text(span) => Value::Text(Cow::Borrowed(part.text(span))),
        Node::Bool(_) | Node::Number(_) | Node::Array { .. } | Node::Object { .. } => {
            Value::Text(Cow::Owned(json::print(part, meter)?))
        }
    })
}

impl<'a> Evaluator<'a, '_, '_> {
    pub(super) fn member(&self, value: &'a Expr, key: &'a Expr, as_text: bool) -> Answer<'a> {
        let (value, key) = (self.value(value)?, self.value(key)?);
        let Value::Json(value) = value else { return Ok(Value::Null) };
        let wanted = match &key {
            Value::Text(key) => Wanted::Key(key),
            Value::Int4(place) => Wanted::Place(*place),
            _ => return Ok(Value::Null),
        };
        self.found(value, &wanted, as_text)
    }

    pub(super) fn path(&self, value: &'a Expr, path: &'a Expr, as_text: bool) -> Answer<'a> {
        let (value, path) = (self.value(value)?, self.value(path)?);
        let (Value::Json(value), Value::Array(path)) = (value, path) else { return Ok(Value::Null) };
        self.found(value, &Wanted::Path(&path), as_text)
    }

    /// A part of a borrowed value stays borrowed; a part of a built one shares it. A text of a built one is copied.
    fn found(&self, value: Jsonb<'a>, wanted: &Wanted<'_>, as_text: bool) -> Answer<'a> {
        let meter = &self.meter;
        match value {
            Jsonb::Borrowed(tree) => match find(tree, wanted, meter)? {
                None => Ok(Value::Null),
                Some(part) if as_text => text(part, meter),
                Some(part) => Ok(Value::Json(Jsonb::Borrowed(part))),
            },
            built @ Jsonb::Built(..) => {
                let find = |whole: Tree<'_>| Ok(find(whole, wanted, meter)?.map(|part| Found::of(whole, part)));
                match built.part(find)? {
                    None => Ok(Value::Null),
                    Some(part) if as_text => match text(part.tree(), meter)? {
                        Value::Text(Cow::Borrowed(text)) => {
                            meter.build(text.len())?;
                            Ok(Value::Text(Cow::Owned(text.to_owned())))
                        }
                        other => Ok(other.into_owned()),
                    },
                    Some(part) => Ok(Value::Json(part)),
                }
            }
        }
    }

    pub(super) fn concat_json(&self, left: &'a Expr, right: &'a Expr) -> Answer<'a> {
        let (left, right) = (self.value(left)?, self.value(right)?);
        let (Value::Json(left), Value::Json(right)) = (left, right) else { return Ok(Value::Null) };
        Ok(Value::Json(json::concat(left.tree(), right.tree(), &self.meter)?))
    }

    pub(super) fn contains(&self, whole: &'a Expr, part: &'a Expr) -> Answer<'a> {
        let (whole, part) = (self.value(whole)?, self.value(part)?);
        let (Value::Json(whole), Value::Json(part)) = (whole, part) else { return Ok(Value::Null) };
        Ok(Value::Bool(json::contains(whole.tree(), part.tree(), &self.meter)?))
    }

    pub(super) fn has_key(&self, value: &'a Expr, key: &'a Expr) -> Answer<'a> {
        let (value, key) = (self.value(value)?, self.value(key)?);
        let (Value::Json(value), Value::Text(key)) = (value, key) else { return Ok(Value::Null) };
        Ok(Value::Bool(json::exists(value.tree(), &key, &self.meter)?))
    }

    pub(super) fn has_keys(&self, value: &'a Expr, keys: &'a Expr, all: bool) -> Answer<'a> {
        let (value, keys) = (self.value(value)?, self.value(keys)?);
        let (Value::Json(value), Value::Array(keys)) = (value, keys) else { return Ok(Value::Null) };
        for key in keys.iter() {
            let Value::Text(key) = key else { continue };
            if json::exists(value.tree(), key, &self.meter)? != all {
                return Ok(Value::Bool(!all));
            }
        }
        Ok(Value::Bool(all))
    }

    /// The length of an array; an error for everything else, as in Postgres.
    pub(super) fn array_length(head: Node) -> Answer<'a> {
        match head {
            Node::Array { items, .. } => Ok(Value::Int4(i32::try_from(items).unwrap_or(i32::MAX))),
            other => Err(Failure::NotAnArray(other.kind())),
        }
    }
}
