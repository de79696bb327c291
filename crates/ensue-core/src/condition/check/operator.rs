//! Which operator is this, and do its operands fit?

use super::{Kind, Scope, Typed, check, coerce, common, comparable, known, leaf, meeting, named};
use crate::condition::expr::{Arithmetic, Comparison, Expr};
use crate::condition::like::Case;
use crate::condition::source::refused_part;
use crate::condition::types::{Scalar, Type};
use crate::condition::value::Value;
use crate::error::Invalid;
use sqlparser::ast::{self, BinaryOperator, UnaryOperator};

/// NOT, and a sign before a number.
pub(super) fn unary(
    tree: &ast::Expr,
    op: UnaryOperator,
    operand: &ast::Expr,
    scope: Scope<'_>,
) -> Result<Typed, Invalid> {
    match op {
        UnaryOperator::Not => {
            let typed = coerce(scope, check(operand, scope)?, Scalar::Bool.into(), operand, "NOT")?;
            let reads = typed.reads;
            Ok(known(scope, Expr::Not(Box::new(typed.expr)), Scalar::Bool, reads))
        }
        UnaryOperator::Minus | UnaryOperator::Plus => {
            // A minus belongs to the number, or the smallest integer could not be written.
            if let Some(digits) = signed_digits(tree) {
                return leaf::number(scope, &digits, tree);
            }
            let typed = check(operand, scope)?;
            let Kind::Known(kind) = typed.kind else {
                return Err(refused_part(tree, "the type of the literal is not known; cast it, as in '1'::integer"));
            };
            if kind.scalar().and_then(Scalar::width).is_none() {
                return Err(refused_part(tree, format!("a sign wants a number, and this is {kind}")));
            }
            let reads = typed.reads;
            Ok(if op == UnaryOperator::Plus {
                typed
            } else {
                known(scope, Expr::Negate(Box::new(typed.expr)), kind, reads)
            })
        }
        other => Err(refused_part(tree, format!("there is no operator {other} before a value"))),
    }
}

/// The digits of a number with the minus signs before it taken in.
fn signed_digits(tree: &ast::Expr) -> Option<String> {
    let (mut tree, mut negative) = (tree, false);
    loop {
        match tree {
            ast::Expr::Nested(inner) => tree = inner,
            ast::Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
                negative = !negative;
                tree = expr;
            }
            ast::Expr::Value(value) => match &value.value {
                ast::Value::Number(digits, false) => {
                    return Some(format!("{}{digits}", if negative { "-" } else { "" }));
                }
                _ => return None,
            },
            _ => return None,
        }
    }
}

/// The comparison that an operator is.
pub(super) fn comparison(op: &BinaryOperator) -> Option<Comparison> {
    match op {
        BinaryOperator::Eq => Some(Comparison::Equal),
        BinaryOperator::NotEq => Some(Comparison::NotEqual),
        BinaryOperator::Lt => Some(Comparison::Less),
        BinaryOperator::LtEq => Some(Comparison::LessOrEqual),
        BinaryOperator::Gt => Some(Comparison::Greater),
        BinaryOperator::GtEq => Some(Comparison::GreaterOrEqual),
        _ => None,
    }
}

/// Everything between two operands.
pub(super) fn binary(
    tree: &ast::Expr,
    left: &ast::Expr,
    op: &BinaryOperator,
    right: &ast::Expr,
    scope: Scope<'_>,
) -> Result<Typed, Invalid> {
    if let Some(op) = comparison(op) {
        return compare(tree, op, left, right, scope);
    }
    match op {
        BinaryOperator::And | BinaryOperator::Or => conjunction(tree, op, scope),
        BinaryOperator::Plus => calculate(tree, Arithmetic::Add, left, right, scope),
        BinaryOperator::Minus => calculate(tree, Arithmetic::Subtract, left, right, scope),
        BinaryOperator::Multiply => calculate(tree, Arithmetic::Multiply, left, right, scope),
        BinaryOperator::Divide => calculate(tree, Arithmetic::Divide, left, right, scope),
        BinaryOperator::Modulo => calculate(tree, Arithmetic::Remainder, left, right, scope),
        BinaryOperator::StringConcat => concat(tree, left, right, scope),
        BinaryOperator::Arrow => member(tree, left, right, false, scope),
        BinaryOperator::LongArrow => member(tree, left, right, true, scope),
        BinaryOperator::HashArrow => path(tree, left, right, false, scope),
        BinaryOperator::HashLongArrow => path(tree, left, right, true, scope),
        BinaryOperator::AtArrow => contains(tree, left, right, scope),
        BinaryOperator::ArrowAt => contains(tree, right, left, scope),
        BinaryOperator::Question => {
            let (value, key, reads) = jsonb_and(left, right, Scalar::Text.into(), scope)?;
            Ok(known(scope, Expr::HasKey { value, key }, Scalar::Bool, reads))
        }
        BinaryOperator::QuestionPipe | BinaryOperator::QuestionAnd => {
            let (value, keys, reads) = jsonb_and(left, right, Type::Array(Scalar::Text), scope)?;
            let all = *op == BinaryOperator::QuestionAnd;
            Ok(known(scope, Expr::HasKeys { value, keys, all }, Scalar::Bool, reads))
        }
        other => Err(refused_part(tree, format!("there is no operator {other} in conditions"))),
    }
}

/// AND or OR: however long the chain, it is one level.
fn conjunction(tree: &ast::Expr, op: &BinaryOperator, scope: Scope<'_>) -> Result<Typed, Invalid> {
    let is_and = *op == BinaryOperator::And;
    let mut parts = Vec::new();
    let mut rest = tree;
    while let ast::Expr::BinaryOp { left, op: its, right } = rest
        && its == op
    {
        parts.push(&**right);
        rest = left;
    }
    parts.push(rest);
    let mut operands = Vec::with_capacity(parts.len());
    let (mut reads, mut decided) = (false, false);
    for part in parts.into_iter().rev() {
        let typed = coerce(scope, check(part, scope)?, Scalar::Bool.into(), part, if is_and { "AND" } else { "OR" })?;
        reads |= typed.reads;
        match typed.expr {
            // What does not change the answer is left out, what decides it is the answer.
            Expr::Constant(Value::Bool(value)) if value == is_and => {}
            Expr::Constant(Value::Bool(_)) => decided = true,
            Expr::And(inner) if is_and => operands.extend(inner),
            Expr::Or(inner) if !is_and => operands.extend(inner),
            other => operands.push(other),
        }
    }
    if decided {
        return Ok(known(scope, Expr::Constant(Value::Bool(!is_and)), Scalar::Bool, false));
    }
    let expr = match (operands.len(), is_and) {
        (0, _) => Expr::Constant(Value::Bool(is_and)),
        (1, _) => operands.remove(0),
        (_, true) => Expr::And(operands),
        (_, false) => Expr::Or(operands),
    };
    Ok(known(scope, expr, Scalar::Bool, reads))
}

/// Refuses `a LIKE b LIKE c` and its like, which Postgres does not parse: its LIKE, BETWEEN, IN and IS do not chain.
pub(super) fn no_chain(tree: &ast::Expr, operand: &ast::Expr) -> Result<(), Invalid> {
    let chains = match tree {
        ast::Expr::Like { .. } | ast::Expr::ILike { .. } | ast::Expr::Between { .. } | ast::Expr::InList { .. } => {
            matches!(operand, ast::Expr::Like { .. } | ast::Expr::ILike { .. } | ast::Expr::Between { .. })
        }
        _ => matches!(operand, ast::Expr::IsDistinctFrom(..) | ast::Expr::IsNotDistinctFrom(..)),
    };
    if chains { Err(refused_part(tree, "these operators do not chain; use parentheses")) } else { Ok(()) }
}

/// Refuses `a = b = c`: an operand that is itself a comparison needs parentheses.
pub(super) fn no_comparison(tree: &ast::Expr, operand: &ast::Expr) -> Result<(), Invalid> {
    match operand {
        ast::Expr::BinaryOp { op, .. } if comparison(op).is_some() => {
            Err(refused_part(tree, "comparisons do not chain; use AND, or parentheses"))
        }
        _ => Ok(()),
    }
}

fn compare(
    tree: &ast::Expr,
    op: Comparison,
    left: &ast::Expr,
    right: &ast::Expr,
    scope: Scope<'_>,
) -> Result<Typed, Invalid> {
    no_comparison(tree, left)?;
    no_comparison(tree, right)?;
    let sides = ((check(left, scope)?, left), (check(right, scope)?, right));
    let (left, right) = comparable(scope, tree, op, sides.0, sides.1)?;
    let reads = left.reads || right.reads;
    let expr = Expr::Compare { op, left: Box::new(left.expr), right: Box::new(right.expr) };
    Ok(known(scope, expr, Scalar::Bool, reads))
}

/// IS [NOT] DISTINCT FROM
pub(super) fn distinct(
    tree: &ast::Expr,
    left: &ast::Expr,
    right: &ast::Expr,
    negated: bool,
    scope: Scope<'_>,
) -> Result<Typed, Invalid> {
    no_chain(tree, left)?;
    let sides = ((check(left, scope)?, left), (check(right, scope)?, right));
    let (left, right) = comparable(scope, tree, Comparison::Equal, sides.0, sides.1)?;
    let reads = left.reads || right.reads;
    let expr = Expr::Distinct { left: Box::new(left.expr), right: Box::new(right.expr), negated };
    Ok(known(scope, expr, Scalar::Bool, reads))
}

fn calculate(
    tree: &ast::Expr,
    op: Arithmetic,
    left: &ast::Expr,
    right: &ast::Expr,
    scope: Scope<'_>,
) -> Result<Typed, Invalid> {
    let (first, second) = (check(left, scope)?, check(right, scope)?);
    let (kinds, reads) = ((first.kind, second.kind), first.reads || second.reads);
    if kinds == (Kind::Literal, Kind::Literal) {
        return Err(refused_part(tree, "the type of neither side is known; cast one, as in '1'::integer"));
    }
    let at = meeting(kinds.0, kinds.1).and_then(Type::scalar).filter(|kind| kind.width().is_some());
    let Some(at) = at else {
        let reason = format!("there is no such calculation with {} and {}", named(kinds.0), named(kinds.1));
        return Err(refused_part(tree, reason));
    };
    if at == Scalar::Float8 && op == Arithmetic::Remainder {
        return Err(refused_part(tree, "there is no % of double precision; cast to numeric"));
    }
    let (first, second) = if at == Scalar::Int8 && kinds.0 != Kind::Literal && kinds.1 != Kind::Literal {
        (first, second)
    } else {
        (coerce(scope, first, at.into(), left, "this")?, coerce(scope, second, at.into(), right, "this")?)
    };
    let expr = Expr::Arithmetic { op, left: Box::new(first.expr), right: Box::new(second.expr) };
    Ok(known(scope, expr, at, reads))
}

/// `||`: of two jsonb a jsonb, otherwise of texts, where one side may be any scalar.
fn concat(tree: &ast::Expr, left: &ast::Expr, right: &ast::Expr, scope: Scope<'_>) -> Result<Typed, Invalid> {
    let (first, second) = (check(left, scope)?, check(right, scope)?);
    let (kinds, reads) = ((first.kind, second.kind), first.reads || second.reads);
    let (jsonb, text) = (Kind::Known(Scalar::Jsonb.into()), Kind::Known(Scalar::Text.into()));
    let is_literal = kinds.0 == Kind::Literal || kinds.1 == Kind::Literal;
    if common([kinds.0, kinds.1]) == Some(Scalar::Jsonb.into()) && (kinds.0 == jsonb || kinds.1 == jsonb) {
        let first = coerce(scope, first, Scalar::Jsonb.into(), left, "||")?;
        let second = coerce(scope, second, Scalar::Jsonb.into(), right, "||")?;
        return Ok(known(scope, Expr::ConcatJson(Box::new(first.expr), Box::new(second.expr)), Scalar::Jsonb, reads));
    }
    let is_array = |kind| matches!(kind, Kind::Known(Type::Array(_)));
    if !(is_literal || kinds.0 == text || kinds.1 == text) || is_array(kinds.0) || is_array(kinds.1) {
        let reason = format!("|| joins texts or jsonb, not {} and {}", named(kinds.0), named(kinds.1));
        return Err(refused_part(tree, reason));
    }
    let (first, second) = (as_text(scope, first), as_text(scope, second));
    Ok(known(scope, Expr::ConcatText(Box::new(first), Box::new(second)), Scalar::Text, reads))
}

fn as_text(scope: Scope<'_>, typed: Typed) -> Expr {
    match typed.kind {
        Kind::Literal => typed.expr,
        Kind::Known(Type::Scalar(Scalar::Text)) => typed.expr,
        Kind::Known(from) => {
            let expr = Expr::Cast { operand: Box::new(typed.expr), from, to: Scalar::Text.into() };
            known(scope, expr, Scalar::Text, typed.reads).expr
        }
    }
}

/// A jsonb on the left and something of a fixed type on the right.
fn jsonb_and(
    left: &ast::Expr,
    right: &ast::Expr,
    wanted: Type,
    scope: Scope<'_>,
) -> Result<(Box<Expr>, Box<Expr>, bool), Invalid> {
    let value = coerce(scope, check(left, scope)?, Scalar::Jsonb.into(), left, "this operator")?;
    let other = coerce(scope, check(right, scope)?, wanted, right, "this operator")?;
    Ok((Box::new(value.expr), Box::new(other.expr), value.reads || other.reads))
}

fn jsonb(tree: &ast::Expr, left: &ast::Expr, scope: Scope<'_>) -> Result<Typed, Invalid> {
    let value = check(left, scope)?;
    match value.kind {
        Kind::Literal => Err(refused_part(tree, "the type of the left side is not known; cast it with ::jsonb")),
        Kind::Known(_) => coerce(scope, value, Scalar::Jsonb.into(), left, "this operator"),
    }
}

/// `->` and `->>`
fn member(
    tree: &ast::Expr,
    left: &ast::Expr,
    right: &ast::Expr,
    as_text: bool,
    scope: Scope<'_>,
) -> Result<Typed, Invalid> {
    let value = jsonb(tree, left, scope)?;
    let key = check(right, scope)?;
    let key = match key.kind {
        Kind::Known(Type::Scalar(Scalar::Int4)) => key,
        Kind::Literal | Kind::Known(_) => coerce(scope, key, Scalar::Text.into(), right, "a key of jsonb")?,
    };
    let reads = value.reads || key.reads;
    let expr = Expr::Member { value: Box::new(value.expr), key: Box::new(key.expr), as_text };
    Ok(known(scope, expr, if as_text { Scalar::Text } else { Scalar::Jsonb }, reads))
}

/// `#>` and `#>>`
fn path(
    tree: &ast::Expr,
    left: &ast::Expr,
    right: &ast::Expr,
    as_text: bool,
    scope: Scope<'_>,
) -> Result<Typed, Invalid> {
    let value = jsonb(tree, left, scope)?;
    let path = coerce(scope, check(right, scope)?, Type::Array(Scalar::Text), right, "a path")?;
    let reads = value.reads || path.reads;
    let expr = Expr::Path { value: Box::new(value.expr), path: Box::new(path.expr), as_text };
    Ok(known(scope, expr, if as_text { Scalar::Text } else { Scalar::Jsonb }, reads))
}

/// `@>` and, with its sides exchanged, `<@`
fn contains(tree: &ast::Expr, whole: &ast::Expr, part: &ast::Expr, scope: Scope<'_>) -> Result<Typed, Invalid> {
    let (first, second) = (check(whole, scope)?, check(part, scope)?);
    if (first.kind, second.kind) == (Kind::Literal, Kind::Literal) {
        return Err(refused_part(tree, "the type of neither side is known; cast one with ::jsonb"));
    }
    if [first.kind, second.kind].into_iter().any(|kind| matches!(kind, Kind::Known(Type::Array(_)))) {
        let reason = "containment is between two jsonb, and not between arrays; write to_jsonb(ARRAY[…]), or = ANY(ARRAY[…]) for one element";
        return Err(refused_part(tree, reason));
    }
    let first = coerce(scope, first, Scalar::Jsonb.into(), whole, "containment")?;
    let second = coerce(scope, second, Scalar::Jsonb.into(), part, "containment")?;
    let reads = first.reads || second.reads;
    let expr = Expr::Contains { whole: Box::new(first.expr), part: Box::new(second.expr) };
    Ok(known(scope, expr, Scalar::Bool, reads))
}

/// LIKE and ILIKE
pub(super) fn like(tree: &ast::Expr, scope: Scope<'_>) -> Result<Typed, Invalid> {
    let (case, negated, any, operand, pattern, escape) = match tree {
        ast::Expr::Like { negated, any, expr, pattern, escape_char } => {
            (Case::Kept, *negated, *any, expr, pattern, escape_char)
        }
        ast::Expr::ILike { negated, any, expr, pattern, escape_char } => {
            (Case::Ignored, *negated, *any, expr, pattern, escape_char)
        }
        other => return Err(refused_part(other, "this is not LIKE")),
    };
    if any {
        return Err(refused_part(tree, "there is no LIKE ANY; join several LIKE with OR"));
    }
    no_chain(tree, operand)?;
    let text = |part: &ast::Expr| coerce(scope, check(part, scope)?, Scalar::Text.into(), part, "LIKE");
    let (operand, pattern) = (text(operand)?, text(pattern)?);
    let escape = escape.as_deref().map(text).transpose()?;
    let reads = operand.reads || pattern.reads || escape.as_ref().is_some_and(|escape| escape.reads);
    let expr = Expr::Like {
        operand: Box::new(operand.expr),
        pattern: Box::new(pattern.expr),
        escape: escape.map(|escape| Box::new(escape.expr)),
        case,
        negated,
    };
    Ok(known(scope, expr, Scalar::Bool, reads))
}
