//! Which cast is this, and is there one?

use super::{Kind, Scope, Typed, check, known, literal_as};
use crate::condition::expr::Expr;
use crate::condition::numeric::DIGITS_MAX;
use crate::condition::source::refused_part;
use crate::condition::tokens::NO_SUCH_TYPE;
use crate::condition::types::{Scalar, Type};
use crate::error::Invalid;
use sqlparser::ast::{self, ArrayElemTypeDef, CastFormat, CastKind, DataType, ExactNumberInfo, TimezoneInfo};

/// A type as it is written after `::`.
struct Target {
    kind: Type,
    /// `numeric(precision, scale)`
    fit: Option<(u16, u16)>,
}

fn plain(kind: impl Into<Type>) -> Target {
    Target { kind: kind.into(), fit: None }
}

fn target(written: &DataType) -> Result<Target, Invalid> {
    Ok(match written {
        DataType::Text => plain(Scalar::Text),
        DataType::Int(None) | DataType::Int4(None) | DataType::Integer(None) => plain(Scalar::Int4),
        DataType::BigInt(None) | DataType::Int8(None) => plain(Scalar::Int8),
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => {
            Target { kind: Scalar::Numeric.into(), fit: fit(written, info)? }
        }
        DataType::Float8 | DataType::DoublePrecision => plain(Scalar::Float8),
        DataType::Float(ExactNumberInfo::None) => plain(Scalar::Float8),
        DataType::Bool | DataType::Boolean => plain(Scalar::Bool),
        DataType::JSONB => plain(Scalar::Jsonb),
        DataType::Uuid => plain(Scalar::Uuid),
        DataType::Timestamp(None, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => plain(Scalar::Time),
        DataType::Array(ArrayElemTypeDef::SquareBracket(of, None)) => match target(of)? {
            Target { kind: Type::Scalar(of), fit: None } => plain(Type::Array(of)),
            Target { .. } => return Err(unknown_type(written)),
        },
        other => return Err(unknown_type(other)),
    })
}

fn unknown_type(written: &DataType) -> Invalid {
    refused_part(written, NO_SUCH_TYPE)
}

fn fit(written: &DataType, info: &ExactNumberInfo) -> Result<Option<(u16, u16)>, Invalid> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok(None),
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    match (u16::try_from(precision), u16::try_from(scale)) {
        (Ok(precision @ 1..), Ok(scale)) if usize::from(precision) <= DIGITS_MAX && scale <= precision => {
            Ok(Some((precision, scale)))
        }
        _ => Err(refused_part(written, format!("precision is 1 to {DIGITS_MAX}, scale 0 to precision"))),
    }
}

/// Is there such a cast in Postgres?
fn exists(from: Type, to: Type) -> bool {
    let (from, to) = match (from, to) {
        (Type::Array(from), Type::Array(to)) => return exists(from.into(), to.into()),
        (Type::Scalar(Scalar::Text), Type::Array(_)) | (Type::Array(_), Type::Scalar(Scalar::Text)) => return true,
        (Type::Scalar(_), Type::Array(_)) | (Type::Array(_), Type::Scalar(_)) => return false,
        (Type::Scalar(from), Type::Scalar(to)) => (from, to),
    };
    if from == to || from == Scalar::Text || to == Scalar::Text {
        return true;
    }
    match (from, to) {
        (Scalar::Bool, Scalar::Int4) | (Scalar::Int4, Scalar::Bool) | (Scalar::Jsonb, Scalar::Bool) => true,
        (from, to) => to.width().is_some() && (from == Scalar::Jsonb || from.width().is_some()),
    }
}

/// `x::type` and `CAST(x AS type)`
pub(super) fn cast(
    tree: &ast::Expr,
    kind: &CastKind,
    operand: &ast::Expr,
    data_type: &DataType,
    format: &Option<CastFormat>,
    scope: Scope<'_>,
) -> Result<Typed, Invalid> {
    match kind {
        CastKind::Cast | CastKind::DoubleColon if format.is_none() => {}
        CastKind::Cast | CastKind::DoubleColon | CastKind::TryCast | CastKind::SafeCast => {
            return Err(refused_part(tree, "write value::type or CAST(value AS type)"));
        }
    }
    let target = target(data_type)?;
    // The elements of a written array are cast one by one, which gives an empty one its type.
    if let (ast::Expr::Array(array), Type::Array(of)) = (operand, target.kind)
        && array.named
    {
        let mut elements = Vec::with_capacity(array.elem.len());
        let mut reads = false;
        for element in &array.elem {
            let typed = to_type(scope, tree, element, check(element, scope)?, of.into())?;
            reads |= typed.reads;
            elements.push(typed.expr);
        }
        return Ok(known(scope, Expr::Array(elements), target.kind, reads));
    }
    let typed = to_type(scope, tree, operand, check(operand, scope)?, target.kind)?;
    Ok(fitted(scope, typed, &target))
}

/// `timestamptz '2026-01-31'`
pub(super) fn typed_string(scope: Scope<'_>, tree: &ast::Expr, typed: &ast::TypedString) -> Result<Typed, Invalid> {
    let target = target(&typed.data_type)?;
    if typed.uses_odbc_syntax {
        return Err(refused_part(tree, "write value::type"));
    }
    let typed = super::leaf::literal(scope, &typed.value.value)?;
    Ok(fitted(scope, to_type(scope, tree, tree, typed, target.kind)?, &target))
}

fn fitted(scope: Scope<'_>, typed: Typed, target: &Target) -> Typed {
    match target.fit {
        None => typed,
        Some((precision, scale)) => {
            let reads = typed.reads;
            known(scope, Expr::Fit { operand: Box::new(typed.expr), precision, scale }, target.kind, reads)
        }
    }
}

fn to_type(scope: Scope<'_>, tree: &ast::Expr, part: &ast::Expr, typed: Typed, to: Type) -> Result<Typed, Invalid> {
    match typed.kind {
        Kind::Literal => literal_as(scope, typed, to, part),
        Kind::Known(from) if from == to => Ok(typed),
        Kind::Known(from) if exists(from, to) => {
            let reads = typed.reads;
            Ok(known(scope, Expr::Cast { operand: Box::new(typed.expr), from, to }, to, reads))
        }
        Kind::Known(from) => Err(refused_part(tree, format!("{from} cannot be cast to {to}"))),
    }
}
