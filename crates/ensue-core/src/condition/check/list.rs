//! Is a value in a list, a range or an array?

use super::{Kind, Scope, Typed, check, coerce, common, comparable, known, meeting, named, operator, sign};
use crate::condition::expr::{Against, Comparison, Expr};
use crate::condition::source::refused_part;
use crate::condition::types::{Scalar, Type};
use crate::error::Invalid;
use sqlparser::ast::{self, BinaryOperator};

/// What an operand with a type is compared with, at the type in which both meet or at a wider one.
fn against(
    scope: Scope<'_>,
    tree: &ast::Expr,
    op: Comparison,
    operand: &Typed,
    other: (Typed, &ast::Expr),
    at: Option<Type>,
) -> Result<Against, Invalid> {
    let at = at.or_else(|| meeting(operand.kind, other.0.kind));
    let Some(at) = at.and_then(Type::scalar) else {
        let reason = format!("{} cannot be compared with {}; cast one side", named(operand.kind), named(other.0.kind));
        return Err(refused_part(tree, reason));
    };
    let expr = coerce(scope, other.0, at.into(), other.1, sign(op))?.expr;
    let widen = (operand.kind != Kind::Known(at.into())).then_some(at);
    Ok(Against { widen, expr })
}

/// One comparison, for an operand that is a literal and takes another type each time.
fn compare_literal(
    scope: Scope<'_>,
    tree: &ast::Expr,
    op: Comparison,
    operand: (&Typed, &ast::Expr),
    other: (Typed, &ast::Expr),
) -> Result<Typed, Invalid> {
    let (left, right) = comparable(scope, tree, op, (operand.0.clone(), operand.1), other)?;
    let reads = left.reads || right.reads;
    let expr = Expr::Compare { op, left: Box::new(left.expr), right: Box::new(right.expr) };
    Ok(known(scope, expr, Scalar::Bool, reads))
}

/// `x [NOT] BETWEEN low AND high`
pub(super) fn between(
    tree: &ast::Expr,
    operand_tree: &ast::Expr,
    low_tree: &ast::Expr,
    high_tree: &ast::Expr,
    negated: bool,
    scope: Scope<'_>,
) -> Result<Typed, Invalid> {
    operator::no_chain(tree, operand_tree)?;
    if matches!(low_tree, ast::Expr::UnaryOp { op: ast::UnaryOperator::Not, .. }) {
        return Err(refused_part(tree, "put parentheses around NOT after BETWEEN"));
    }
    let operand = check(operand_tree, scope)?;
    let (low, high) = (check(low_tree, scope)?, check(high_tree, scope)?);
    let reads = operand.reads || low.reads || high.reads;
    if operand.kind == Kind::Literal {
        let operand = (&operand, operand_tree);
        let low = compare_literal(scope, tree, Comparison::GreaterOrEqual, operand, (low, low_tree))?;
        let high = compare_literal(scope, tree, Comparison::LessOrEqual, operand, (high, high_tree))?;
        let both = Expr::And(vec![low.expr, high.expr]);
        let expr = if negated { Expr::Not(Box::new(both)) } else { both };
        return Ok(known(scope, expr, Scalar::Bool, reads));
    }
    let low = against(scope, tree, Comparison::GreaterOrEqual, &operand, (low, low_tree), None)?;
    let high = against(scope, tree, Comparison::LessOrEqual, &operand, (high, high_tree), None)?;
    let expr = Expr::Between { operand: Box::new(operand.expr), low: Box::new(low), high: Box::new(high), negated };
    Ok(known(scope, expr, Scalar::Bool, reads))
}

/// The items of a list that a literal is compared with at one type.
struct Group {
    at: Type,
    operand: Expr,
    list: Vec<Against>,
}

/// A literal takes the type of each item. It is kept once for each type, however many items there are.
fn literal_in_list(
    scope: Scope<'_>,
    tree: &ast::Expr,
    (operand, operand_tree): (&Typed, &ast::Expr),
    items: Vec<(Typed, &ast::Expr)>,
    common: Option<Type>,
) -> Result<Vec<Group>, Invalid> {
    let mut groups: Vec<Group> = Vec::new();
    for (item, part) in items {
        let at = common.filter(|_| !item.reads).or_else(|| meeting(operand.kind, item.kind));
        let Some(at) = at.filter(|at| at.scalar().is_some()) else {
            return Err(refused_part(tree, "arrays are compared by element: x = ANY (array)"));
        };
        let expr = coerce(scope, item, at, part, sign(Comparison::Equal))?.expr;
        let item = Against { widen: None, expr };
        match groups.iter_mut().find(|group| group.at == at) {
            Some(group) => group.list.push(item),
            None => {
                let operand = coerce(scope, operand.clone(), at, operand_tree, sign(Comparison::Equal))?.expr;
                groups.push(Group { at, operand, list: vec![item] });
            }
        }
    }
    Ok(groups)
}

/// `x [NOT] IN (a, b, c)`
pub(super) fn in_list(
    tree: &ast::Expr,
    operand_tree: &ast::Expr,
    list: &[ast::Expr],
    negated: bool,
    scope: Scope<'_>,
) -> Result<Typed, Invalid> {
    if list.is_empty() {
        return Err(refused_part(tree, "the list is empty; give it at least one value"));
    }
    operator::no_chain(tree, operand_tree)?;
    let operand = check(operand_tree, scope)?;
    let mut items = Vec::with_capacity(list.len());
    for item in list {
        items.push((check(item, scope)?, item));
    }
    let reads = operand.reads || items.iter().any(|(item, _)| item.reads);
    // Items that read no column are compared as one array, so all of them meet in one type.
    let fixed: Vec<Kind> = items.iter().filter(|(item, _)| !item.reads).map(|(item, _)| item.kind).collect();
    let at = if fixed.len() > 1 { common(fixed.into_iter().chain([operand.kind])) } else { None };
    let expr = if operand.kind == Kind::Literal {
        let groups = literal_in_list(scope, tree, (&operand, operand_tree), items, at)?;
        let is_in = |Group { at: _, operand, list }| Expr::In { operand: Box::new(operand), list, negated: false };
        let mut any: Vec<Expr> = groups.into_iter().map(is_in).collect();
        let any = if any.len() == 1 { any.remove(0) } else { Expr::Or(any) };
        if negated { Expr::Not(Box::new(any)) } else { any }
    } else {
        let mut any = Vec::with_capacity(items.len());
        for item in items {
            let at = if item.0.reads { None } else { at };
            any.push(against(scope, tree, Comparison::Equal, &operand, item, at)?);
        }
        Expr::In { operand: Box::new(operand.expr), list: any, negated }
    };
    Ok(known(scope, expr, Scalar::Bool, reads))
}

/// `x = ANY (array)` and its like.
pub(super) fn quantified(
    tree: &ast::Expr,
    left: &ast::Expr,
    op: &BinaryOperator,
    right: &ast::Expr,
    all: bool,
    scope: Scope<'_>,
) -> Result<Typed, Invalid> {
    let Some(op) = operator::comparison(op) else {
        return Err(refused_part(tree, "only = <> < <= > >= go with ANY and ALL"));
    };
    operator::no_comparison(tree, left)?;
    let (operand, array) = (check(left, scope)?, check(right, scope)?);
    let element = match array.kind {
        Kind::Literal => Kind::Literal,
        Kind::Known(Type::Array(of)) => Kind::Known(of.into()),
        Kind::Known(Type::Scalar(other)) => {
            let reason = format!("ANY and ALL want an array, and this is {other}; for a jsonb array use: array ? text");
            return Err(refused_part(tree, reason));
        }
    };
    let Some(at) = meeting(operand.kind, element).and_then(Type::scalar) else {
        let reason = format!("{} cannot be compared with {}; cast one side", named(operand.kind), named(element));
        return Err(refused_part(tree, reason));
    };
    let array = match element {
        Kind::Literal => coerce(scope, array, Type::Array(at), right, "ANY")?,
        Kind::Known(_) => array,
    };
    let operand = match operand.kind {
        Kind::Literal => coerce(scope, operand, at.into(), left, sign(op))?,
        Kind::Known(_) => operand,
    };
    let reads = operand.reads || array.reads;
    let expr = Expr::Quantified { op, all, operand: Box::new(operand.expr), at, array: Box::new(array.expr) };
    Ok(known(scope, expr, Scalar::Bool, reads))
}

/// `ARRAY[a, b]`
pub(super) fn array(tree: &ast::Expr, array: &ast::Array, scope: Scope<'_>) -> Result<Typed, Invalid> {
    if !array.named {
        return Err(refused_part(tree, "write ARRAY[…]"));
    }
    if array.elem.is_empty() {
        return Err(refused_part(tree, "an empty array has no type; write ARRAY[]::text[]"));
    }
    let mut elements = Vec::with_capacity(array.elem.len());
    for element in &array.elem {
        elements.push((check(element, scope)?, element));
    }
    let Some(of) = common(elements.iter().map(|(element, _)| element.kind)).and_then(Type::scalar) else {
        return Err(refused_part(tree, "the elements of an array must be of one type, and no arrays themselves"));
    };
    let reads = elements.iter().any(|(element, _)| element.reads);
    let mut exprs = Vec::with_capacity(elements.len());
    for (element, part) in elements {
        exprs.push(coerce(scope, element, of.into(), part, "the array")?.expr);
    }
    Ok(known(scope, Expr::Array(exprs), Type::Array(of), reads))
}
