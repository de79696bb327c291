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
use super::failure::Failure;
use super::meter::{Meter, STEPS_MAX};
use super::row::Row;
use super::source::{DEPTH_MAX, SOURCE_BYTES_MAX, refused_part, too_deep};
use super::types::{Scalar, Type};
use super::value::Value;
use crate::error::Invalid;
use sqlparser::ast;
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::Display;

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

/// The most bytes of constants that are evaluated when a condition is checked. Beyond that they are evaluated for each event.
const FOLDED_BYTES_MAX: usize = 4 * SOURCE_BYTES_MAX;

/// Position of a part, and the budget that all constants of the condition are evaluated with.
#[derive(Clone, Copy)]
struct Scope<'m> {
    depth: usize,
    meter: &'m Meter,
    folded_bytes: &'m Cell<usize>,
}

/// Checks a whole condition: a boolean.
pub(super) fn condition(tree: &ast::Expr) -> Result<Expr, Invalid> {
    let (meter, folded_bytes) = (Meter::new(), Cell::new(0));
    let scope = Scope { depth: 0, meter: &meter, folded_bytes: &folded_bytes };
    let typed = check(tree, scope)?;
    Ok(coerce(scope, typed, Scalar::Bool.into(), tree, "a condition")?.expr)
}

/// Checks an expression of any type: what tests compare with Postgres.
pub(super) fn expression(tree: &ast::Expr) -> Result<Expr, Invalid> {
    let (meter, folded_bytes) = (Meter::new(), Cell::new(0));
    check(tree, Scope { depth: 0, meter: &meter, folded_bytes: &folded_bytes }).map(|typed| typed.expr)
}

/// A refusal of a part whose constants cost more than one evaluation may.
fn too_costly(part: impl Display) -> Invalid {
    refused_part(
        part,
        format!("its constants cost more than {STEPS_MAX} steps to evaluate; write their result instead"),
    )
}

/// Checks one part and everything below it. Stops at the part with which the budget for constants ends.
fn check(tree: &ast::Expr, scope: Scope<'_>) -> Result<Typed, Invalid> {
    if scope.depth > DEPTH_MAX {
        return Err(too_deep());
    }
    let typed = check_part(tree, Scope { depth: scope.depth + 1, ..scope })?;
    if scope.meter.is_exhausted() { Err(too_costly(tree)) } else { Ok(typed) }
}

fn check_part(tree: &ast::Expr, scope: Scope<'_>) -> Result<Typed, Invalid> {
    match tree {
        ast::Expr::Nested(inner) => check(inner, scope),
        ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) => leaf::column(tree),
        ast::Expr::Value(value) => leaf::literal(scope, &value.value),
        ast::Expr::UnaryOp { op, expr } => operator::unary(tree, *op, expr, scope),
        ast::Expr::BinaryOp { left, op, right } => operator::binary(tree, left, op, right, scope),
        ast::Expr::IsNull(operand) => branch::is_null(tree, operand, false, scope),
        ast::Expr::IsNotNull(operand) => branch::is_null(tree, operand, true, scope),
        ast::Expr::IsTrue(operand) => branch::is_truth(tree, operand, Some(true), false, scope),
        ast::Expr::IsNotTrue(operand) => branch::is_truth(tree, operand, Some(true), true, scope),
        ast::Expr::IsFalse(operand) => branch::is_truth(tree, operand, Some(false), false, scope),
        ast::Expr::IsNotFalse(operand) => branch::is_truth(tree, operand, Some(false), true, scope),
        ast::Expr::IsUnknown(operand) => branch::is_truth(tree, operand, None, false, scope),
        ast::Expr::IsNotUnknown(operand) => branch::is_truth(tree, operand, None, true, scope),
        ast::Expr::IsDistinctFrom(left, right) => operator::distinct(tree, left, right, false, scope),
        ast::Expr::IsNotDistinctFrom(left, right) => operator::distinct(tree, left, right, true, scope),
        ast::Expr::InList { expr, list, negated } => list::in_list(tree, expr, list, *negated, scope),
        ast::Expr::Between { expr, negated, low, high } => list::between(tree, expr, low, high, *negated, scope),
        ast::Expr::AnyOp { left, compare_op, right, is_some: _ } => {
            list::quantified(tree, left, compare_op, right, false, scope)
        }
        ast::Expr::AllOp { left, compare_op, right } => list::quantified(tree, left, compare_op, right, true, scope),
        ast::Expr::Like { .. } | ast::Expr::ILike { .. } => operator::like(tree, scope),
        ast::Expr::Cast { kind, expr, data_type, format } => cast::cast(tree, kind, expr, data_type, format, scope),
        ast::Expr::TypedString(typed) => cast::typed_string(scope, tree, typed),
        ast::Expr::Case { operand, conditions, else_result, .. } => {
            branch::case(tree, operand.as_deref(), conditions, else_result.as_deref(), scope)
        }
        ast::Expr::Array(array) => list::array(tree, array, scope),
        ast::Expr::Function(function) => call::call(tree, function, scope),
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
/// ever asks for it. So does one whose value takes much memory.
fn known(scope: Scope<'_>, expr: Expr, kind: impl Into<Type>, reads: bool) -> Typed {
    let kind = Kind::Known(kind.into());
    if matches!(expr, Expr::Constant(_)) {
        return Typed { expr, kind, reads };
    }
    if null_for_certain(&expr) {
        return Typed { expr: Expr::Constant(Value::Null), kind, reads: false };
    }
    if !reads {
        let evaluator = Evaluator::within(Row::EMPTY, scope.meter.left());
        let folded = evaluator.value(&expr);
        scope.meter.charge_all_of(&evaluator.meter);
        if let Ok(value) = folded {
            let bytes = scope.folded_bytes.get() + value.bytes();
            if bytes <= FOLDED_BYTES_MAX {
                scope.folded_bytes.set(bytes);
                return Typed { expr: Expr::Constant(value.into_owned()), kind, reads };
            }
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
fn coerce(scope: Scope<'_>, typed: Typed, to: Type, part: &ast::Expr, wanted_by: &str) -> Result<Typed, Invalid> {
    match typed.kind {
        Kind::Literal => literal_as(scope, typed, to, part),
        Kind::Known(from) if from == to => Ok(typed),
        Kind::Known(from) if from.meet(to) == Some(to) => {
            let reads = typed.reads;
            Ok(known(scope, Expr::Cast { operand: Box::new(typed.expr), from, to }, to, reads))
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

fn literal_as(scope: Scope<'_>, typed: Typed, to: Type, part: &ast::Expr) -> Result<Typed, Invalid> {
    let value = match typed.expr {
        Expr::Constant(Value::Text(text)) => from_text(Cow::Borrowed(&text), to, scope.meter)
            .map(Value::into_owned)
            .map_err(|failure| match failure {
                Failure::TooCostly(_) => too_costly(part),
                _ => refused_part(part, format!("it cannot be read as {to}")),
            })?,
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
    scope: Scope<'_>,
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
    Ok((coerce(scope, left.0, at.into(), left.1, sign(op))?, coerce(scope, right.0, at.into(), right.1, sign(op))?))
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
