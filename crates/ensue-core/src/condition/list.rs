//! A list of the subscription, one of which the event must be.

use super::eval::Evaluator;
use super::expr::Expr;
use super::failure::Failure;
use super::json::{Node, Tree};
use super::meter::Meter;
use super::row::Row;
use super::value::Value;
use std::sync::Arc;

/// A list on the subscription's side.
#[derive(Debug, Clone)]
pub(crate) struct List {
    pub(super) whole: Arc<Expr>,
    /// The member of `whole` that is the list; none if it is itself.
    pub(super) name: Option<Box<str>>,
    pub(crate) kind: ListKind,
}

/// What of a value is the list?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// `list ? event`: the names of an object, the texts of an array, a text itself.
    Names,
    /// `list @> jsonb_build_array(event)`: the scalars of an array.
    Elements,
    /// `list @> to_jsonb(event)`: the scalars of an array, a scalar itself.
    Parts,
}

impl List {
    /// Memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.whole.bytes() + self.name.as_ref().map_or(0, |name| name.len())
    }

    /// Shows what the list has to `put`; false if that is more than `max`.
    pub(crate) fn each<'a>(
        &'a self,
        row: Row<'a, '_, '_>,
        max: usize,
        mut put: impl FnMut(Listed<'_>),
    ) -> Result<bool, Failure> {
        let evaluator = Evaluator::new(row);
        let Value::Json(whole) = evaluator.value(&self.whole)? else { return Ok(true) };
        let list = match &self.name {
            None => whole.tree(),
            Some(name) => match whole.tree().field(name, &Meter::new())? {
                Some(list) => list,
                None => return Ok(true),
            },
        };
        let mut left = max;
        let mut put = |listed| {
            let has_room = left > 0;
            if has_room {
                left -= 1;
                put(listed);
            }
            has_room
        };
        let counts = |node: Node| match self.kind {
            ListKind::Names => matches!(node, Node::Text(_)),
            ListKind::Elements | ListKind::Parts => node.is_scalar(),
        };
        Ok(match (list.head(), self.kind) {
            (Node::Array { .. }, _) => list.items().all(|item| !counts(item.head()) || put(Listed::Scalar(item))),
            (Node::Object { .. }, ListKind::Names) => list.pairs().all(|(name, _)| put(Listed::Name(name))),
            (scalar, ListKind::Names | ListKind::Parts) => !counts(scalar) || put(Listed::Scalar(list)),
            (_, ListKind::Elements) => true,
        })
    }
}

/// One of a list.
pub(crate) enum Listed<'a> {
    Name(&'a str),
    Scalar(Tree<'a>),
}

impl Listed<'_> {
    /// The bytes of its text.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Name(name) => name.len(),
            Self::Scalar(scalar) => scalar.bytes(),
        }
    }
}
