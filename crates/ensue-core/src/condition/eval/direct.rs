//! Is a text already there, so that nothing has to be made?
//!
//! Most conditions compare a column, or a member of the payload, with a constant. These are looked at in place.

use super::Evaluator;
use crate::condition::expr::{Column, Comparison, Expr};
use crate::condition::failure::Failure;
use crate::condition::json::{Node, field};
use crate::condition::value::Value;

/// A text in place, or NULL.
type Text<'a> = Option<&'a str>;

impl<'a> Evaluator<'a, '_, '_> {
    /// Compares two texts that are both in place; none if one of them has to be evaluated.
    pub(super) fn compare_in_place(
        &self,
        op: Comparison,
        left: &'a Expr,
        right: &'a Expr,
    ) -> Result<Option<Option<bool>>, Failure> {
        let equal = match op {
            Comparison::Equal => true,
            Comparison::NotEqual => false,
            Comparison::Less | Comparison::LessOrEqual | Comparison::Greater | Comparison::GreaterOrEqual => {
                return Ok(None);
            }
        };
        let (Some(left), Some(right)) = (self.text_in_place(left), self.text_in_place(right)) else {
            return Ok(None);
        };
        let (Some(left), Some(right)) = (left, right) else { return Ok(Some(None)) };
        self.meter.bytes(left.len().min(right.len()))?;
        Ok(Some(Some((left == right) == equal)))
    }

    fn text_in_place(&self, expr: &'a Expr) -> Option<Text<'a>> {
        match expr {
            Expr::Constant(Value::Text(text)) => Some(Some(text)),
            Expr::Column(Column::Topic) => Some(self.row.event.map(|view| view.event().topic.as_str())),
            Expr::Column(Column::Object) => {
                Some(self.row.event.and_then(|view| view.event().object.as_ref()).map(|object| object.as_str()))
            }
            Expr::Column(Column::Group) => Some(self.row.subscription.map(|view| view.group)),
            Expr::Member { value, key, as_text: true } => match self.member_in_place(value, key)? {
                None | Some([Node::Null]) => Some(None),
                Some([Node::Text(text)]) => Some(Some(text)),
                Some(_) => None,
            },
            _ => None,
        }
    }

    /// A member under a constant key; the outer none means that it has to be evaluated.
    fn member_in_place(&self, value: &'a Expr, key: &'a Expr) -> Option<Option<&'a [Node<'a>]>> {
        let Expr::Constant(Value::Text(key)) = key else { return None };
        let nodes = match value {
            Expr::Column(Column::Payload) => self.row.event?.payload(),
            Expr::Column(Column::Metadata) => self.row.event?.metadata(),
            Expr::Column(Column::Params) => self.row.subscription?.params(),
            Expr::Member { value, key, as_text: false } => match self.member_in_place(value, key)? {
                Some(nodes) => nodes,
                None => return Some(None),
            },
            _ => return None,
        };
        // A search in a large object is paid for by the evaluation proper.
        match &nodes[0] {
            Node::Object { pairs: 0..64, .. } => Some(field(nodes, key)),
            Node::Object { .. } => None,
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) | Node::Array { .. } => Some(None),
        }
    }
}
