//! Which way does the value come from?

use super::{Kind, Scope, Typed, check, coerce, common, known, meeting, named, operator};
use crate::condition::expr::{Against, Expr};
use crate::condition::source::refused_part;
use crate::condition::types::{Scalar, Type};
use crate::condition::value::Value;
use crate::error::Invalid;
use sqlparser::ast;

/// `IS [NOT] NULL`
pub(super) fn is_null(
    tree: &ast::Expr,
    operand: &ast::Expr,
    negated: bool,
    scope: Scope<'_>,
) -> Result<Typed, Invalid> {
    operator::no_chain(tree, operand)?;
    let typed = check(operand, scope)?;
    let reads = typed.reads;
    Ok(known(scope, Expr::IsNull { operand: Box::new(typed.expr), negated }, Scalar::Bool, reads))
}

/// `IS [NOT] TRUE`, `FALSE`, `UNKNOWN`
pub(super) fn is_truth(
    tree: &ast::Expr,
    operand: &ast::Expr,
    truth: Option<bool>,
    negated: bool,
    scope: Scope<'_>,
) -> Result<Typed, Invalid> {
    operator::no_chain(tree, operand)?;
    let typed = coerce(scope, check(operand, scope)?, Scalar::Bool.into(), operand, "IS")?;
    let reads = typed.reads;
    Ok(known(scope, Expr::IsTruth { operand: Box::new(typed.expr), truth, negated }, Scalar::Bool, reads))
}

/// The type in which all results meet.
fn result_type<'t>(tree: &ast::Expr, results: impl IntoIterator<Item = &'t Typed> + Clone) -> Result<Type, Invalid> {
    common(results.clone().into_iter().map(|result| result.kind)).ok_or_else(|| {
        let kinds: Vec<String> = results.into_iter().map(|result| named(result.kind)).collect();
        refused_part(tree, format!("its results must be of one type, not {}; cast them", kinds.join(", ")))
    })
}

/// `CASE … WHEN … THEN … ELSE … END`
pub(super) fn case(
    tree: &ast::Expr,
    operand: Option<&ast::Expr>,
    arms: &[ast::CaseWhen],
    otherwise: Option<&ast::Expr>,
    scope: Scope<'_>,
) -> Result<Typed, Invalid> {
    let mut results = Vec::with_capacity(arms.len() + 1);
    for arm in arms {
        results.push((check(&arm.result, scope)?, &arm.result));
    }
    let null = Typed { expr: Expr::Constant(Value::Null), kind: Kind::Literal, reads: false };
    match otherwise {
        Some(otherwise) => results.push((check(otherwise, scope)?, otherwise)),
        None => results.push((null, tree)),
    }
    let kind = result_type(tree, results.iter().map(|(result, _)| result))?;
    let mut reads = results.iter().any(|(result, _)| result.reads);
    let mut exprs = Vec::with_capacity(results.len());
    for (result, part) in results {
        exprs.push(coerce(scope, result, kind, part, "CASE")?.expr);
    }
    let otherwise = Box::new(exprs.pop().unwrap_or(Expr::Constant(Value::Null)));
    let Some(operand_tree) = operand else {
        let mut checked = Vec::with_capacity(arms.len());
        for (arm, then) in arms.iter().zip(exprs) {
            let when = coerce(scope, check(&arm.condition, scope)?, Scalar::Bool.into(), &arm.condition, "WHEN")?;
            reads |= when.reads;
            checked.push((when.expr, then));
        }
        return Ok(known(scope, simplest(checked, *otherwise), kind, reads));
    };
    let operand = check(operand_tree, scope)?;
    let operand = match operand.kind {
        Kind::Literal => coerce(scope, operand, Scalar::Text.into(), operand_tree, "CASE")?,
        Kind::Known(_) => operand,
    };
    reads |= operand.reads;
    let mut checked = Vec::with_capacity(arms.len());
    for (arm, then) in arms.iter().zip(exprs) {
        let when = check(&arm.condition, scope)?;
        reads |= when.reads;
        let Some(at) = meeting(operand.kind, when.kind).and_then(Type::scalar) else {
            let reason = format!("{} cannot be compared with {}", named(operand.kind), named(when.kind));
            return Err(refused_part(&arm.condition, reason));
        };
        let expr = coerce(scope, when, at.into(), &arm.condition, "WHEN")?.expr;
        let widen = (operand.kind != Kind::Known(at.into())).then_some(at);
        checked.push((Against { widen, expr }, then));
    }
    Ok(known(scope, Expr::CaseOf { operand: Box::new(operand.expr), arms: checked, otherwise }, kind, reads))
}

/// The CASE without the arms that are never taken, and without those after one that always is.
fn simplest(arms: Vec<(Expr, Expr)>, mut otherwise: Expr) -> Expr {
    let mut kept = Vec::with_capacity(arms.len());
    for (when, then) in arms {
        match when {
            Expr::Constant(Value::Bool(true)) => {
                otherwise = then;
                break;
            }
            Expr::Constant(_) => {}
            other => kept.push((other, then)),
        }
    }
    if kept.is_empty() { otherwise } else { Expr::Case { arms: kept, otherwise: Box::new(otherwise) } }
}

/// `COALESCE(a, b)`
pub(super) fn coalesce(tree: &ast::Expr, arguments: &[&ast::Expr], scope: Scope<'_>) -> Result<Typed, Invalid> {
    if arguments.is_empty() {
        return Err(refused_part(tree, "COALESCE wants at least one value"));
    }
    let mut operands = Vec::with_capacity(arguments.len());
    for argument in arguments {
        operands.push((check(argument, scope)?, *argument));
    }
    let kind = result_type(tree, operands.iter().map(|(operand, _)| operand))?;
    let reads = operands.iter().any(|(operand, _)| operand.reads);
    let mut exprs = Vec::with_capacity(operands.len());
    for (operand, part) in operands {
        exprs.push(coerce(scope, operand, kind, part, "COALESCE")?.expr);
    }
    exprs.retain(|expr| !matches!(expr, Expr::Constant(Value::Null)));
    if let Some(first) = exprs.iter().position(|expr| matches!(expr, Expr::Constant(_))) {
        exprs.truncate(first + 1);
    }
    let expr = match exprs.len() {
        0 => Expr::Constant(Value::Null),
        1 => exprs.remove(0),
        _ => Expr::Coalesce(exprs),
    };
    Ok(known(scope, expr, kind, reads))
}
