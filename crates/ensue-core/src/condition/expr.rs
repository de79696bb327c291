//! What is a condition, once it is checked?
//!
//! A tree in which every operator has operands of the right types, so that evaluating it has no questions left but
//! those about values.

use super::like::Case;
use super::types::{Scalar, Type};
use super::value::Value;

/// A checked expression.
#[derive(Debug, Clone)]
pub(crate) enum Expr {
    Constant(Value<'static>),
    Column(Column),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    IsNull {
        operand: Box<Expr>,
        negated: bool,
    },
    /// `IS TRUE`, `IS FALSE`, `IS UNKNOWN` (none).
    IsTruth {
        operand: Box<Expr>,
        truth: Option<bool>,
        negated: bool,
    },
    Compare {
        op: Comparison,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    /// `IS DISTINCT FROM`, where NULL is a value like others.
    Distinct {
        left: Box<Expr>,
        right: Box<Expr>,
        negated: bool,
    },
    Between {
        operand: Box<Expr>,
        low: Box<Against>,
        high: Box<Against>,
        negated: bool,
    },
    In {
        operand: Box<Expr>,
        list: Vec<Against>,
        negated: bool,
    },
    /// `op ANY (array)` and `op ALL (array)`.
    Quantified {
        op: Comparison,
        all: bool,
        operand: Box<Expr>,
        /// The type that operand and elements are widened to.
        at: Scalar,
        array: Box<Expr>,
    },
    Like {
        operand: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<Box<Expr>>,
        case: Case,
        negated: bool,
    },
    Arithmetic {
        op: Arithmetic,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Negate(Box<Expr>),
    ConcatText(Box<Expr>, Box<Expr>),
    ConcatJson(Box<Expr>, Box<Expr>),
    /// `->` and `->>` with a key or a place.
    Member {
        value: Box<Expr>,
        key: Box<Expr>,
        as_text: bool,
    },
    /// `#>` and `#>>`
    Path {
        value: Box<Expr>,
        path: Box<Expr>,
        as_text: bool,
    },
    Contains {
        whole: Box<Expr>,
        part: Box<Expr>,
    },
    /// `?`
    HasKey {
        value: Box<Expr>,
        key: Box<Expr>,
    },
    /// `?|` and `?&`
    HasKeys {
        value: Box<Expr>,
        keys: Box<Expr>,
        all: bool,
    },
    Cast {
        operand: Box<Expr>,
        from: Type,
        to: Type,
    },
    /// `numeric(precision, scale)` of a numeric.
    Fit {
        operand: Box<Expr>,
        precision: u16,
        scale: u16,
    },
    Case {
        arms: Vec<(Expr, Expr)>,
        otherwise: Box<Expr>,
    },
    /// `CASE operand WHEN … THEN …`
    CaseOf {
        operand: Box<Expr>,
        arms: Vec<(Against, Expr)>,
        otherwise: Box<Expr>,
    },
    Coalesce(Vec<Expr>),
    Array(Vec<Expr>),
    Call {
        function: Function,
        arguments: Vec<Expr>,
    },
}

impl Expr {
    /// Memory that the expression takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let mut bytes = size_of::<Self>();
        if let Self::Constant(value) = self {
            bytes += value.bytes();
        }
        self.for_each_part(&mut |part| bytes += part.bytes());
        bytes
    }

    /// Shows each part directly below to `look`.
    pub(crate) fn for_each_part<'e>(&'e self, look: &mut dyn FnMut(&'e Expr)) {
        match self {
            Self::Constant(_) | Self::Column(_) => {}
            Self::And(parts) | Self::Or(parts) | Self::Coalesce(parts) | Self::Array(parts) => {
                parts.iter().for_each(look);
            }
            Self::Call { function: _, arguments } => arguments.iter().for_each(look),
            Self::Not(part) | Self::Negate(part) => look(part),
            Self::IsNull { operand, .. } | Self::IsTruth { operand, .. } => look(operand),
            Self::Cast { operand, .. } | Self::Fit { operand, .. } => look(operand),
            Self::Compare { left, right, .. }
            | Self::Distinct { left, right, .. }
            | Self::Arithmetic { left, right, .. }
            | Self::ConcatText(left, right)
            | Self::ConcatJson(left, right) => {
                look(left);
                look(right);
            }
            Self::Between { operand, low, high, .. } => {
                look(operand);
                look(&low.expr);
                look(&high.expr);
            }
            Self::In { operand, list, .. } => {
                look(operand);
                list.iter().for_each(|item| look(&item.expr));
            }
            Self::Quantified { operand, array, .. } => {
                look(operand);
                look(array);
            }
            Self::Like { operand, pattern, escape, .. } => {
                look(operand);
                look(pattern);
                escape.as_deref().into_iter().for_each(look);
            }
            Self::Member { value, key, .. } | Self::HasKey { value, key } => {
                look(value);
                look(key);
            }
            Self::Path { value, path, .. } => {
                look(value);
                look(path);
            }
            Self::HasKeys { value, keys, .. } => {
                look(value);
                look(keys);
            }
            Self::Contains { whole, part } => {
                look(whole);
                look(part);
            }
            Self::Case { arms, otherwise } => {
                for (when, then) in arms {
                    look(when);
                    look(then);
                }
                look(otherwise);
            }
            Self::CaseOf { operand, arms, otherwise } => {
                look(operand);
                for (when, then) in arms {
                    look(&when.expr);
                    look(then);
                }
                look(otherwise);
            }
        }
    }
}

/// What an operand that is evaluated once is compared with.
#[derive(Debug, Clone)]
pub(crate) struct Against {
    /// The type that the operand is widened to for this comparison.
    pub(crate) widen: Option<Scalar>,
    pub(crate) expr: Expr,
}

/// What a condition may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Topic,
    Object,
    Payload,
    Metadata,
    Seq,
    Id,
    OccurredAt,
    RecordedAt,
    Params,
    SubscriptionId,
    Group,
}

impl Column {
    pub(crate) const ALL: [Self; 11] = [
        Self::Topic,
        Self::Object,
        Self::Payload,
        Self::Metadata,
        Self::Seq,
        Self::Id,
        Self::OccurredAt,
        Self::RecordedAt,
        Self::Params,
        Self::SubscriptionId,
        Self::Group,
    ];

    /// Its table and its name.
    pub(crate) fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Topic => ("e", "topic"),
            Self::Object => ("e", "object"),
            Self::Payload => ("e", "payload"),
            Self::Metadata => ("e", "metadata"),
            Self::Seq => ("e", "seq"),
            Self::Id => ("e", "id"),
            Self::OccurredAt => ("e", "occurred_at"),
            Self::RecordedAt => ("e", "recorded_at"),
            Self::Params => ("s", "params"),
            Self::SubscriptionId => ("s", "id"),
            Self::Group => ("s", "group_id"),
        }
    }

    pub(crate) fn kind(self) -> Scalar {
        match self {
            Self::Topic | Self::Object | Self::Group => Scalar::Text,
            Self::Payload | Self::Metadata | Self::Params => Scalar::Jsonb,
            Self::Seq => Scalar::Int8,
            Self::Id | Self::SubscriptionId => Scalar::Uuid,
            Self::OccurredAt | Self::RecordedAt => Scalar::Time,
        }
    }

    /// Does it belong to the event, rather than to the subscription?
    pub(crate) fn is_of_event(self) -> bool {
        self.name().0 == "e"
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// A function by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Lower,
    Upper,
    Length,
    StartsWith,
    Abs,
    BuildArray,
    BuildObject,
    TypeOf,
    ArrayLength,
    ToJsonb,
    Hashtext,
}

impl Function {
    pub(crate) const ALL: [Self; 11] = [
        Self::Lower,
        Self::Upper,
        Self::Length,
        Self::StartsWith,
        Self::Abs,
        Self::BuildArray,
        Self::BuildObject,
        Self::TypeOf,
        Self::ArrayLength,
        Self::ToJsonb,
        Self::Hashtext,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lower => "lower",
            Self::Upper => "upper",
            Self::Length => "length",
            Self::StartsWith => "starts_with",
            Self::Abs => "abs",
            Self::BuildArray => "jsonb_build_array",
            Self::BuildObject => "jsonb_build_object",
            Self::TypeOf => "jsonb_typeof",
            Self::ArrayLength => "jsonb_array_length",
            Self::ToJsonb => "to_jsonb",
            Self::Hashtext => "hashtext",
        }
    }
}
