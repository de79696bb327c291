//! Which column or constant is this?

use super::{Kind, Scope, Typed, too_costly};
use crate::condition::expr::{Column, Expr};
use crate::condition::numeric::{Numeric, digits_of_text};
use crate::condition::source::refused_part;
use crate::condition::tokens::no_such_column;
use crate::condition::types::Scalar;
use crate::condition::value::Value;
use crate::error::Invalid;
use sqlparser::ast;
use std::borrow::Cow;

/// A name as Postgres reads it: without quotes in lower case.
pub(super) fn folded(name: &ast::Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_ascii_lowercase() }
}

/// `e.topic` and its like.
pub(super) fn column(tree: &ast::Expr) -> Result<Typed, Invalid> {
    let names: Vec<String> = match tree {
        ast::Expr::Identifier(name) => vec![folded(name)],
        ast::Expr::CompoundIdentifier(names) => names.iter().map(folded).collect(),
        _ => Vec::new(),
    };
    let found = match names.as_slice() {
        [table, name] => Column::ALL.into_iter().find(|column| column.name() == (table.as_str(), name.as_str())),
        _ => None,
    };
    if let Some(column) = found {
        return Ok(Typed { expr: Expr::Column(column), kind: Kind::Known(column.kind().into()), reads: true });
    }
    Err(refused_part(tree, no_such_column(&names)))
}

/// A number, a quoted text, a boolean or NULL.
pub(super) fn literal(scope: Scope<'_>, value: &ast::Value) -> Result<Typed, Invalid> {
    let text = match value {
        ast::Value::Number(digits, false) => return number(scope, digits, value),
        ast::Value::Boolean(value) => return Ok(constant(Value::Bool(*value), Scalar::Bool)),
        ast::Value::Null => {
            return Ok(Typed { expr: Expr::Constant(Value::Null), kind: Kind::Literal, reads: false });
        }
        ast::Value::SingleQuotedString(text) => text,
        ast::Value::DollarQuotedString(text) => &text.value,
        other => return Err(refused_part(other, "write a plain number, or a text in single quotes: 'like this'")),
    };
    let value = Value::Text(Cow::Owned(text.clone()));
    Ok(Typed { expr: Expr::Constant(value), kind: Kind::Literal, reads: false })
}

fn constant(value: Value<'static>, kind: Scalar) -> Typed {
    Typed { expr: Expr::Constant(value), kind: Kind::Known(kind.into()), reads: false }
}

/// The narrowest type that a number fits: integer, bigint, numeric.
pub(super) fn number(scope: Scope<'_>, digits: &str, part: impl std::fmt::Display) -> Result<Typed, Invalid> {
    if !digits.contains(['.', 'e', 'E'])
        && let Ok(number) = digits.parse::<i64>()
    {
        return Ok(match i32::try_from(number) {
            Ok(number) => constant(Value::Int4(number), Scalar::Int4),
            Err(_) => constant(Value::Int8(number), Scalar::Int8),
        });
    }
    if scope.meter.digits(digits_of_text(digits)).is_err() {
        return Err(too_costly(part));
    }
    match Numeric::parse(digits) {
        Ok(number) => Ok(constant(Value::Numeric(number), Scalar::Numeric)),
        Err(_) => Err(refused_part(part, "this is no number, or one with too many digits")),
    }
}
