//! Which function is this, and do its arguments fit?

use super::{Kind, Scope, Typed, branch, check, coerce, known, leaf};
use crate::condition::expr::{Expr, Function};
use crate::condition::source::refused_part;
use crate::condition::tokens::no_such_function;
use crate::condition::types::{Scalar, Type};
use crate::error::Invalid;
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart};

/// `name(argument, …)`
pub(super) fn call(tree: &ast::Expr, function: &ast::Function, scope: Scope<'_>) -> Result<Typed, Invalid> {
    let arguments = arguments(tree, function)?;
    let name = match function.name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => leaf::folded(name),
        _ => String::new(),
    };
    if name == "coalesce" {
        return branch::coalesce(tree, &arguments, scope);
    }
    let Some(function) = Function::ALL.into_iter().find(|function| function.name() == name) else {
        return Err(refused_part(tree, no_such_function()));
    };
    let mut typed = Vec::with_capacity(arguments.len());
    for argument in &arguments {
        typed.push(check(argument, scope)?);
    }
    let count = typed.len();
    let fits = match function {
        Function::StartsWith => count == 2,
        Function::BuildArray => true,
        Function::BuildObject => count.is_multiple_of(2),
        Function::Lower | Function::Upper | Function::Length | Function::Abs | Function::TypeOf => count == 1,
        Function::ArrayLength | Function::ToJsonb | Function::Hashtext => count == 1,
    };
    if !fits {
        return Err(refused_part(tree, format!("{name} takes another number of arguments than {count}")));
    }
    let (kind, exprs, reads) = match function {
        Function::Lower | Function::Upper => all_of(scope, Scalar::Text, typed, &arguments, &name, Scalar::Text)?,
        Function::Length | Function::Hashtext => all_of(scope, Scalar::Text, typed, &arguments, &name, Scalar::Int4)?,
        Function::StartsWith => all_of(scope, Scalar::Text, typed, &arguments, &name, Scalar::Bool)?,
        Function::TypeOf => all_of(scope, Scalar::Jsonb, typed, &arguments, &name, Scalar::Text)?,
        Function::ArrayLength => all_of(scope, Scalar::Jsonb, typed, &arguments, &name, Scalar::Int4)?,
        Function::Abs => abs(scope, tree, typed, &arguments)?,
        Function::BuildArray => build_array(typed),
        Function::BuildObject => build_object(typed, &arguments)?,
        Function::ToJsonb => {
            if typed.iter().any(|argument| argument.kind == Kind::Literal) {
                return Err(refused_part(tree, "the type of the literal is not known; cast it, as in 'a'::text"));
            }
            let reads = typed.iter().any(|argument| argument.reads);
            (Scalar::Jsonb, typed.into_iter().map(|argument| argument.expr).collect(), reads)
        }
    };
    let call = Expr::Call { function, arguments: exprs };
    let keeps_null = matches!(function, Function::BuildArray | Function::BuildObject);
    if !keeps_null && has_null(&call) {
        return Ok(known(scope, Expr::Constant(crate::condition::value::Value::Null), kind, false));
    }
    Ok(known(scope, call, kind, reads))
}

/// Is one of its arguments the constant NULL?
fn has_null(call: &Expr) -> bool {
    match call {
        Expr::Call { arguments, .. } => {
            arguments.iter().any(|argument| matches!(argument, Expr::Constant(crate::condition::value::Value::Null)))
        }
        _ => false,
    }
}

/// Plain arguments only: no DISTINCT, no ORDER BY, no OVER, no names.
fn arguments<'t>(tree: &ast::Expr, function: &'t ast::Function) -> Result<Vec<&'t ast::Expr>, Invalid> {
    let plain = function.over.is_none()
        && function.filter.is_none()
        && function.null_treatment.is_none()
        && function.within_group.is_empty()
        && !function.uses_odbc_syntax
        && matches!(function.parameters, FunctionArguments::None);
    let refused = || refused_part(tree, "write a plain call: name(argument, …)");
    match &function.args {
        FunctionArguments::List(list) if plain && list.duplicate_treatment.is_none() && list.clauses.is_empty() => {
            let plain = |argument: &'t FunctionArg| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Ok(argument),
                _ => Err(refused()),
            };
            list.args.iter().map(plain).collect()
        }
        // Without parentheses it is a word like CURRENT_USER; the caller does not find it among the functions.
        FunctionArguments::None if plain => Ok(Vec::new()),
        FunctionArguments::List(_) | FunctionArguments::None | FunctionArguments::Subquery(_) => Err(refused()),
    }
}

/// The type of the result, the arguments, and whether they read a column.
type Checked = (Scalar, Vec<Expr>, bool);

fn all_of(
    scope: Scope<'_>,
    wanted: Scalar,
    typed: Vec<Typed>,
    parts: &[&ast::Expr],
    name: &str,
    result: Scalar,
) -> Result<Checked, Invalid> {
    let mut exprs = Vec::with_capacity(typed.len());
    let mut reads = false;
    for (argument, part) in typed.into_iter().zip(parts) {
        reads |= argument.reads;
        exprs.push(coerce(scope, argument, wanted.into(), part, name)?.expr);
    }
    Ok((result, exprs, reads))
}

fn abs(scope: Scope<'_>, tree: &ast::Expr, typed: Vec<Typed>, parts: &[&ast::Expr]) -> Result<Checked, Invalid> {
    let kind = match typed.first().map(|argument| argument.kind) {
        Some(Kind::Known(Type::Scalar(kind))) if kind.width().is_some() => kind,
        Some(Kind::Literal) => Scalar::Float8,
        Some(Kind::Known(_)) | None => return Err(refused_part(tree, "abs wants a number")),
    };
    all_of(scope, kind, typed, parts, "abs", kind)
}

fn build_array(typed: Vec<Typed>) -> Checked {
    let reads = typed.iter().any(|argument| argument.reads);
    (Scalar::Jsonb, typed.into_iter().map(|argument| argument.expr).collect(), reads)
}

fn build_object(typed: Vec<Typed>, parts: &[&ast::Expr]) -> Result<Checked, Invalid> {
    let mut exprs = Vec::with_capacity(typed.len());
    let mut reads = false;
    for (index, (argument, part)) in typed.into_iter().zip(parts).enumerate() {
        let is_key = index % 2 == 0;
        match argument.kind {
            Kind::Known(Type::Array(_) | Type::Scalar(Scalar::Jsonb)) if is_key => {
                return Err(refused_part(part, "a key is a text or another simple value; use ->> to get a text"));
            }
            Kind::Known(_) | Kind::Literal => {}
        }
        reads |= argument.reads;
        exprs.push(argument.expr);
    }
    Ok((Scalar::Jsonb, exprs, reads))
}
