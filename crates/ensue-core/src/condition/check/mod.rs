//! Does the expression make sense, and of which type are its parts?
//!
//! Follows Postgres: a quoted literal has no type until its neighbour gives it one, numbers widen, and everything that
//! Postgres would refuse before it runs is refused here, with the part by name.

mod branch;
mod call;
mod cast;
mod leaf;
mod list;
mod operator;

use super::eval::{Evaluator, from_text};
use super::expr::{Comparison, Expr};
use super::meter::Meter;
use super::row::Row;
use super::source::{DEPTH_MAX, refused_part, too_deep};
use super::types::{Scalar, Type};
use super::value::Value;
use crate::error::Invalid;
use sqlparser::ast;
use std::borrow::Cow;

/// A checked part with what is known about it.
#[derive(Debug, Clone)]
pub(super) struct Typed {
    pub(super) expr: Expr,
    kind: Kind,
    /// Does it read a column?
    reads: bool,
}

/// What is known about the type of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A quoted literal or NULL, which takes the type that is wanted of it.
    Literal,
    Known(Type),
}

/// Checks a whole condition: a boolean.
pub(super) fn condition(tree: &ast::Expr) -> Result<Expr, Invalid> {
    let typed = check(tree, 0)?;
    Ok(coerce(typed, Scalar::Bool.into(), tree, "a condition")?.expr)
}

/// Checks an expression of any type: what tests compare with Postgres.
pub(super) fn expression(tree: &ast::Expr) -> Result<Expr, Invalid> {
    check(tree, 0).map(|typed| typed.expr)
}

/// Checks one part and everything below it.
fn check(tree: &ast::Expr, depth: usize) -> Result<Typed, Invalid> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    let depth = depth + 1;
    match tree {
        ast::Expr::Nested(inner) => check(inner, depth),
        ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) => leaf::column(tree),
        ast::Expr::Value(value) => leaf::literal(&value.value),
        ast::Expr::UnaryOp { op, expr } => operator::unary(tree, *op, expr, depth),
        ast::Expr::BinaryOp { left, op, right } => operator::binary(tree, left, op, right, depth),
        ast::Expr::IsNull(operand) => branch::is_null(tree, operand, false, depth),
        ast::Expr::IsNotNull(operand) => branch::is_null(tree, operand, true, depth),
        ast::Expr::IsTrue(operand) => branch::is_truth(tree, operand, Some(true), false, depth),
        ast::Expr::IsNotTrue(operand) => branch::is_truth(tree, operand, Some(true), true, depth),
        ast::Expr::IsFalse(operand) => branch::is_truth(tree, operand, Some(false), false, depth),
        ast::Expr::IsNotFalse(operand) => branch::is_truth(tree, operand, Some(false), true, depth),
        ast::Expr::IsUnknown(operand) => branch::is_truth(tree, operand, None, false, depth),
        ast::Expr::IsNotUnknown(operand) => branch::is_truth(tree, operand, None, true, depth),
        ast::Expr::IsDistinctFrom(left, right) => operator::distinct(tree, left, right, false, depth),
        ast::Expr::IsNotDistinctFrom(left, right) => operator::distinct(tree, left, right, true, depth),
        ast::Expr::InList { expr, list, negated } => list::in_list(tree, expr, list, *negated, depth),
        ast::Expr::Between { expr, negated, low, high } => list::between(tree, expr, low, high, *negated, depth),
        ast::Expr::AnyOp { left, compare_op, right, is_some: _ } => {
            list::quantified(tree, left, compare_op, right, false, depth)
        }
        ast::Expr::AllOp { left, compare_op, right } => list::quantified(tree, left, compare_op, right, true, depth),
        ast::Expr::Like { .. } | ast::Expr::ILike { .. } => operator::like(tree, depth),
        ast::Expr::Cast { kind, expr, data_type, format } => cast::cast(tree, kind, expr, data_type, format, depth),
        ast::Expr::TypedString(typed) => cast::typed_string(tree, typed),
        ast::Expr::Case { operand, conditions, else_result, .. } => {
            branch::case(tree, operand.as_deref(), conditions, else_result.as_deref(), depth)
        }
        ast::Expr::Array(array) => list::array(tree, array, depth),
        ast::Expr::Function(function) => call::call(tree, function, depth),
        ast::Expr::Subquery(_) | ast::Expr::Exists { .. } | ast::Expr::InSubquery { .. } => {
            Err(refused_part(tree, "there are no subqueries; a condition sees one event (e) and one subscription (s)"))
        }
        ast::Expr::CompoundFieldAccess { .. } => Err(refused_part(tree, "there are no subscripts; use -> and #>")),
        ast::Expr::SimilarTo { .. } | ast::Expr::RLike { .. } => {
            Err(refused_part(tree, "there are no regular expressions; use LIKE"))
        }
        other => Err(refused_part(other, "this is not part of the language of conditions")),
    }
}

/// A part whose value does not depend on the event is evaluated now, once. If it fails it stays as it is: perhaps nobody
/// ever asks for it.
fn known(expr: Expr, kind: impl Into<Type>, reads: bool) -> Typed {
    let kind = Kind::Known(kind.into());
    if matches!(expr, Expr::Constant(_)) {
        return Typed { expr, kind, reads };
    }
    if null_for_certain(&expr) {
        return Typed { expr: Expr::Constant(Value::Null), kind, reads: false };
    }
    if !reads {
        let folded = Evaluator::new(Row::EMPTY).value(&expr).map(Value::into_owned);
        if let Ok(value) = folded {
            return Typed { expr: Expr::Constant(value), kind, reads };
        }
    }
    Typed { expr, kind, reads }
}

/// Is it an operator that gives NULL because an operand is the constant NULL, whatever the others are?
fn null_for_certain(expr: &Expr) -> bool {
    let null = |expr: &Expr| matches!(expr, Expr::Constant(Value::Null));
    match expr {
        Expr::Compare { left, right, .. } | Expr::Arithmetic { left, right, .. } => null(left) || null(right),
        Expr::ConcatText(left, right) | Expr::ConcatJson(left, right) => null(left) || null(right),
        Expr::Member { value, key, .. } | Expr::HasKey { value, key } => null(value) || null(key),
        Expr::Path { value, path, .. } => null(value) || null(path),
        Expr::HasKeys { value, keys, .. } => null(value) || null(keys),
        Expr::Contains { whole, part } => null(whole) || null(part),
        Expr::Like { operand, pattern, escape, .. } => {
            null(operand) || null(pattern) || escape.as_deref().is_some_and(null)
        }
        Expr::Negate(operand) | Expr::Not(operand) => null(operand),
        Expr::Cast { operand, .. } | Expr::Fit { operand, .. } => null(operand),
        Expr::Constant(_)
        | Expr::Column(_)
        | Expr::And(_)
        | Expr::Or(_)
        | Expr::IsNull { .. }
        | Expr::IsTruth { .. }
        | Expr::Distinct { .. }
        | Expr::Between { .. }
        | Expr::In { .. }
        | Expr::Quantified { .. }
        | Expr::Case { .. }
        | Expr::CaseOf { .. }
        | Expr::Coalesce(_)
        | Expr::Array(_)
        | Expr::Call { .. } => false,
    }
}

/// The part as a value of the wanted type: a literal is read, a number widened, anything else is refused.
fn coerce(typed: Typed, to: Type, part: &ast::Expr, wanted_by: &str) -> Result<Typed, Invalid> {
    match typed.kind {
        Kind::Literal => literal_as(typed, to, part),
        Kind::Known(from) if from == to => Ok(typed),
        Kind::Known(from) if from.meet(to) == Some(to) => {
            let reads = typed.reads;
            Ok(known(Expr::Cast { operand: Box::new(typed.expr), from, to }, to, reads))
        }
        Kind::Known(from) => {
            Err(refused_part(part, format!("it is {from}, and {wanted_by} wants {to}; cast it with ::{}", short(to))))
        }
    }
}

/// The name of a type as one writes it after `::`.
fn short(kind: Type) -> String {
    match kind {
        Type::Scalar(Scalar::Float8) => "float8".into(),
        other => other.to_string(),
    }
}

fn literal_as(typed: Typed, to: Type, part: &ast::Expr) -> Result<Typed, Invalid> {
    let value = match typed.expr {
        Expr::Constant(Value::Text(text)) => from_text(Cow::Borrowed(&text), to, &Meter::new())
            .map(Value::into_owned)
            .map_err(|_| refused_part(part, format!("it cannot be read as {to}")))?,
        _ => Value::Null,
    };
    Ok(Typed { expr: Expr::Constant(value), kind: Kind::Known(to), reads: false })
}

/// The type in which two parts meet: that of the other for a literal, text for two of them.
fn meeting(left: Kind, right: Kind) -> Option<Type> {
    match (left, right) {
        (Kind::Literal, Kind::Literal) => Some(Scalar::Text.into()),
        (Kind::Literal, Kind::Known(kind)) | (Kind::Known(kind), Kind::Literal) => Some(kind),
        (Kind::Known(left), Kind::Known(right)) => left.meet(right),
    }
}

/// The type in which all parts meet: text if all are literals.
fn common(kinds: impl IntoIterator<Item = Kind>) -> Option<Type> {
    let known = kinds.into_iter().filter_map(|kind| match kind {
        Kind::Literal => None,
        Kind::Known(kind) => Some(kind),
    });
    known.map(Some).reduce(|all, next| all?.meet(next?)).unwrap_or(Some(Scalar::Text.into()))
}

/// How a kind is called in a message.
fn named(kind: Kind) -> String {
    match kind {
        Kind::Literal => "a literal".into(),
        Kind::Known(kind) => kind.to_string(),
    }
}

/// Both sides of a comparison, in types that can be compared.
fn comparable(
    tree: &ast::Expr,
    op: Comparison,
    left: (Typed, &ast::Expr),
    right: (Typed, &ast::Expr),
) -> Result<(Typed, Typed), Invalid> {
    let sides = (left.0.kind, right.0.kind);
    let Some(at) = meeting(sides.0, sides.1) else {
        let reason = format!("{} cannot be compared with {}; cast one side", named(sides.0), named(sides.1));
        return Err(refused_part(tree, reason));
    };
    let Some(at) = at.scalar() else {
        return Err(refused_part(tree, format!("arrays are compared by element: x {} ANY (array)", sign(op))));
    };
    // The two integer types are compared as they are.
    if at == Scalar::Int8 && sides.0 != Kind::Literal && sides.1 != Kind::Literal {
        return Ok((left.0, right.0));
    }
    Ok((coerce(left.0, at.into(), left.1, sign(op))?, coerce(right.0, at.into(), right.1, sign(op))?))
}

/// The sign of a comparison.
fn sign(op: Comparison) -> &'static str {
    match op {
        Comparison::Equal => "=",
        Comparison::NotEqual => "<>",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    }
}
