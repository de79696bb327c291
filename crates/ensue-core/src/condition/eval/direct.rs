//! Comparison of texts in place.
//!
//! Most conditions compare a column, or a member of the payload, with a constant. Nothing is built for these.

use super::Evaluator;
use crate::condition::expr::{Column, Comparison, Expr};
use crate::condition::failure::Failure;
use crate::condition::json::{Node, Tree};
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
        let (Some(left), Some(right)) = (self.text_in_place(left)?, self.text_in_place(right)?) else {
            return Ok(None);
        };
        let (Some(left), Some(right)) = (left, right) else { return Ok(Some(None)) };
        self.meter.bytes(left.len().min(right.len()))?;
        Ok(Some(Some((left == right) == equal)))
    }

    fn text_in_place(&self, expr: &'a Expr) -> Result<Option<Text<'a>>, Failure> {
        Ok(match expr {
            Expr::Constant(Value::Text(text)) => Some(Some(text)),
            Expr::Column(Column::Topic) => Some(self.row.event.map(|view| view.event().topic.as_str())),
            Expr::Column(Column::Object) => {
                Some(self.row.event.and_then(|view| view.event().object.as_ref()).map(|object| object.as_str()))
            }
            Expr::Column(Column::Group) => Some(self.row.subscription.map(|view| view.group)),
            Expr::Member { value, key, as_text: true } => match self.member_in_place(value, key)? {
                None => None,
                Some(None) => Some(None),
                Some(Some(part)) => match part.head() {
                    Node::Null => Some(None),
                    Node::Text(span) => Some(Some(part.text(span))),
                    Node::Bool(_) | Node::Number(_) | Node::Array { .. } | Node::Object { .. } => None,
                },
            },
            _ => None,
        })
    }

    /// A member under a constant key; the outer none means that it has to be evaluated.
    fn member_in_place(&self, value: &'a Expr, key: &'a Expr) -> Result<Option<Option<Tree<'a>>>, Failure> {
        let Expr::Constant(Value::Text(key)) = key else { return Ok(None) };
        let tree = match value {
            Expr::Column(column @ (Column::Payload | Column::Metadata | Column::Params)) => {
                match self.json_column(*column)? {
                    Some(tree) => tree,
                    None => return Ok(None),
                }
            }
            Expr::Member { value, key, as_text: false } => match self.member_in_place(value, key)? {
                Some(Some(tree)) => tree,
                Some(None) => return Ok(Some(None)),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Some(tree.field(key, &self.meter)?))
    }
}
