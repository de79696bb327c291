//! Which types does a condition know, and which of them go together?
//!
//! The names and the rules are Postgres': numbers widen (integer, bigint, numeric, double precision), everything else
//! meets only its own kind.

use std::fmt;

/// A type without parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// `boolean`
    Bool,
    /// `integer`, four bytes
    Int4,
    /// `bigint`, eight bytes
    Int8,
    /// `numeric`, exact
    Numeric,
    /// `double precision`
    Float8,
    /// `text`
    Text,
    /// `jsonb`
    Jsonb,
    /// `timestamptz`
    Time,
    /// `uuid`
    Uuid,
}

/// The type of an expression: a scalar, or an array of one kind of scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// One value.
    Scalar(Scalar),
    /// An array with one dimension.
    Array(Scalar),
}

impl From<Scalar> for Type {
    fn from(scalar: Scalar) -> Self {
        Self::Scalar(scalar)
    }
}

impl Scalar {
    /// Its name in Postgres.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "boolean",
            Self::Int4 => "integer",
            Self::Int8 => "bigint",
            Self::Numeric => "numeric",
            Self::Float8 => "double precision",
            Self::Text => "text",
            Self::Jsonb => "jsonb",
            Self::Time => "timestamptz",
            Self::Uuid => "uuid",
        }
    }

    /// Where a number stands in the order of widening; none for what is no number.
    pub fn width(self) -> Option<u8> {
        match self {
            Self::Int4 => Some(0),
            Self::Int8 => Some(1),
            Self::Numeric => Some(2),
            Self::Float8 => Some(3),
            Self::Bool | Self::Text | Self::Jsonb | Self::Time | Self::Uuid => None,
        }
    }

    /// The type in which two values meet without a cast, if there is one.
    pub fn meet(self, other: Self) -> Option<Self> {
        if self == other {
            return Some(self);
        }
        match (self.width(), other.width()) {
            (Some(mine), Some(its)) => Some(if mine > its { self } else { other }),
            (None, _) | (_, None) => None,
        }
    }
}

impl Type {
    /// The scalar it is, unless it is an array.
    pub fn scalar(self) -> Option<Scalar> {
        match self {
            Self::Scalar(scalar) => Some(scalar),
            Self::Array(_) => None,
        }
    }

    /// The type in which two values meet without a cast, if there is one.
    pub fn meet(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Scalar(mine), Self::Scalar(its)) => mine.meet(its).map(Self::Scalar),
            (Self::Array(mine), Self::Array(its)) => (mine == its).then_some(self),
            (Self::Scalar(_), Self::Array(_)) | (Self::Array(_), Self::Scalar(_)) => None,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(scalar) => write!(f, "{scalar}"),
            Self::Array(scalar) => write!(f, "{scalar}[]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_widen_and_nothing_else_does() {
        assert_eq!(Scalar::Int4.meet(Scalar::Int8), Some(Scalar::Int8));
        assert_eq!(Scalar::Float8.meet(Scalar::Numeric), Some(Scalar::Float8));
        assert_eq!(Scalar::Numeric.meet(Scalar::Int4), Some(Scalar::Numeric));
        assert_eq!(Scalar::Text.meet(Scalar::Text), Some(Scalar::Text));
        assert_eq!(Scalar::Text.meet(Scalar::Int4), None);
        assert_eq!(Type::Array(Scalar::Int4).meet(Type::Scalar(Scalar::Int4)), None);
    }
}
