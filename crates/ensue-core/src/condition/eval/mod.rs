//! Evaluation of expressions.
//!
//! Operands are evaluated from left to right. AND, OR, CASE, COALESCE and IN stop as soon as the answer is known; every
//! other operator evaluates all its operands and is NULL if one of them is.

mod arithmetic;
mod call;
mod cast;
mod compare;
mod direct;
mod jsonb;

pub(super) use cast::from_text;
use compare::holds;

use super::expr::{Against, Column, Comparison, Expr};
use super::failure::Failure;
use super::json::{Jsonb, Tree};
use super::like;
use super::meter::{Meter, STEPS_MAX};
use super::part::Part;
use super::row::{EventView, Row};
use super::types::Scalar;
use super::value::Value;
use std::borrow::Cow;
use std::cell::Cell;

/// Evaluates one expression within one budget.
pub(crate) struct Evaluator<'a, 'e, 's> {
    pub(super) row: Row<'a, 'e, 's>,
    pub(super) meter: Meter,
    /// Has this evaluation paid for parsing the params?
    params_paid: Cell<bool>,
}

impl Drop for Evaluator<'_, '_, '_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(event) = self.row.event {
            event.charge(&self.meter);
        }
    }
}

type Answer<'a> = Result<Value<'a>, Failure>;

impl<'a, 'e, 's> Evaluator<'a, 'e, 's> {
    /// An evaluation with the budget that the event allows.
    #[inline]
    pub(crate) fn new(row: Row<'a, 'e, 's>) -> Self {
        Self::within(row, row.event.map_or(STEPS_MAX, EventView::allowance))
    }

    /// An evaluation with a budget of so many steps.
    #[inline]
    pub(crate) fn within(row: Row<'a, 'e, 's>, steps: u32) -> Self {
        Self { row, meter: Meter::of(steps), params_paid: Cell::new(false) }
    }

    /// The value of an expression.
    pub(crate) fn value(&self, expr: &'a Expr) -> Answer<'a> {
        self.meter.steps(1)?;
        match expr {
            Expr::Constant(value) => {
                if let Value::Numeric(number) = value {
                    self.meter.steps(number.digits())?;
                }
                Ok(value.borrowed())
            }
            Expr::Column(column) => self.column(*column),
            Expr::And(operands) => self.conjunction(operands, false),
            Expr::Or(operands) => self.conjunction(operands, true),
            Expr::Not(operand) => Ok(truth(self.truth(operand)?.map(|value| !value))),
            Expr::IsNull { operand, negated } => Ok(Value::Bool(self.value(operand)?.is_null() != *negated)),
            Expr::IsTruth { operand, truth, negated } => Ok(Value::Bool((self.truth(operand)? == *truth) != *negated)),
            Expr::Compare { op, left, right } => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                Ok(truth(holds(*op, &left, &right, &self.meter)?))
            }
            Expr::Distinct { left, right, negated } => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                let same = match (left.is_null(), right.is_null()) {
                    (true, true) => true,
                    (true, false) | (false, true) => false,
                    (false, false) => holds(Comparison::Equal, &left, &right, &self.meter)? == Some(true),
                };
                Ok(Value::Bool(same == *negated))
            }
            Expr::Between { operand, low, high, negated } => {
                let operand = self.value(operand)?;
                let above = self.against(&operand, Comparison::GreaterOrEqual, low)?;
                if above == Some(false) {
                    return Ok(Value::Bool(*negated));
                }
                let below = self.against(&operand, Comparison::LessOrEqual, high)?;
                let within = match (above, below) {
                    (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    (None | Some(_), None | Some(true)) => None,
                };
                Ok(truth(within.map(|within| within != *negated)))
            }
            Expr::In { operand, list, negated } => self.is_in(operand, list, *negated),
            Expr::Quantified { op, all, operand, at, array } => self.quantified(*op, *all, operand, *at, array),
            Expr::Like { operand, pattern, escape, case, negated } => {
                let (operand, pattern) = (self.value(operand)?, self.value(pattern)?);
                let escape = escape.as_deref().map(|escape| self.value(escape)).transpose()?;
                let (Value::Text(text), Value::Text(pattern)) = (operand, pattern) else { return Ok(Value::Null) };
                let pattern = match &escape {
                    None => pattern,
                    Some(Value::Text(escape)) => {
                        Cow::Owned(like::with_backslash(&pattern, escape, &self.meter)?.into_owned())
                    }
                    Some(_) => return Ok(Value::Null),
                };
                Ok(Value::Bool(like::like(&text, &pattern, *case, &self.meter)? != *negated))
            }
            Expr::Arithmetic { op, left, right } => {
                arithmetic::calculate(*op, &self.value(left)?, &self.value(right)?, &self.meter)
            }
            Expr::Negate(operand) => arithmetic::negate(&self.value(operand)?, &self.meter),
            Expr::ConcatText(left, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                let (Value::Text(left), Value::Text(right)) = (left, right) else { return Ok(Value::Null) };
                self.meter.build(left.len() + right.len())?;
                Ok(Value::Text(Cow::Owned(format!("{left}{right}"))))
            }
            Expr::ConcatJson(left, right) => self.concat_json(left, right),
            Expr::Member { value, key, as_text } => self.member(value, key, *as_text),
            Expr::Path { value, path, as_text } => self.path(value, path, *as_text),
            Expr::Contains { whole, part } => self.contains(whole, part),
            Expr::HasKey { value, key } => self.has_key(value, key),
            Expr::HasKeys { value, keys, all } => self.has_keys(value, keys, *all),
            Expr::Cast { operand, from, to } => self.cast(self.value(operand)?, *from, *to),
            Expr::Fit { operand, precision, scale } => match self.value(operand)? {
                Value::Numeric(number) => {
                    self.meter.digits(number.digits() + usize::from(*precision))?;
                    Ok(Value::Numeric(number.fitted(*precision, *scale)?))
                }
                _ => Ok(Value::Null),
            },
            Expr::Case { arms, otherwise } => {
                for (when, then) in arms {
                    if self.truth(when)? == Some(true) {
                        return self.value(then);
                    }
                }
                self.value(otherwise)
            }
            Expr::CaseOf { operand, arms, otherwise } => {
                let operand = self.value(operand)?;
                for (when, then) in arms {
                    if self.against(&operand, Comparison::Equal, when)? == Some(true) {
                        return self.value(then);
                    }
                }
                self.value(otherwise)
            }
            Expr::Coalesce(operands) => {
                for operand in operands {
                    let value = self.value(operand)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Value::Null)
            }
            Expr::Array(elements) => {
                self.meter.build(elements.len() * size_of::<Value<'_>>())?;
                let elements: Result<Vec<_>, _> = elements.iter().map(|element| self.value(element)).collect();
                Ok(Value::Array(Part::Built(elements?)))
            }
            Expr::Call { function, arguments } => self.call(*function, arguments),
        }
    }

    /// The value of an expression that becomes a key, paid for with the bytes of the key.
    pub(crate) fn key(&self, expr: &'a Expr) -> Answer<'a> {
        let value = self.value(expr)?;
        self.meter.steps(value.bytes())?;
        Ok(value)
    }

    /// The same for a key that takes nothing of an array or an object but that it is one.
    pub(crate) fn scalar_key(&self, expr: &'a Expr) -> Answer<'a> {
        let value = self.value(expr)?;
        match &value {
            Value::Json(json) if !json.tree().head().is_scalar() => {}
            scalar => self.meter.steps(scalar.bytes())?,
        }
        Ok(value)
    }

    /// The value of a boolean expression; none is unknown.
    pub(crate) fn truth(&self, expr: &'a Expr) -> Result<Option<bool>, Failure> {
        if let Expr::Compare { op, left, right } = expr {
            self.meter.steps(1)?;
            if let Some(truth) = self.compare_in_place(*op, left, right)? {
                return Ok(truth);
            }
        }
        match self.value(expr)? {
            Value::Bool(value) => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    /// A column of type jsonb; none if its side is not there.
    fn json_column(&self, column: Column) -> Result<Option<Tree<'a>>, Failure> {
        let (event, subscription) = (self.row.event, self.row.subscription);
        match column {
            Column::Payload => event.map(|view| view.payload(&self.meter)).transpose(),
            Column::Metadata => event.map(|view| view.metadata(&self.meter)).transpose(),
            Column::Params => {
                if let Some(view) = subscription
                    && !self.params_paid.replace(true)
                {
                    self.meter.steps(view.params_steps())?;
                }
                Ok(subscription.map(|view| view.params()))
            }
            _ => Ok(None),
        }
    }

    fn column(&self, column: Column) -> Answer<'a> {
        let (event, subscription) = (self.row.event, self.row.subscription);
        let value = match column {
            Column::Topic => event.map(|view| Value::Text(Cow::Borrowed(view.event().topic.as_str()))),
            Column::Object => event
                .and_then(|view| view.event().object.as_ref())
                .map(|object| Value::Text(Cow::Borrowed(object.as_str()))),
            Column::Payload | Column::Metadata | Column::Params => {
                self.json_column(column)?.map(|tree| Value::Json(Jsonb::Borrowed(tree)))
            }
            Column::Seq => event.map(|view| Value::Int8(i64::try_from(view.event().seq).unwrap_or(i64::MAX))),
            Column::Id => event.map(|view| Value::Uuid(view.event().id.0)),
            Column::OccurredAt => event.map(|view| Value::Time(view.event().occurred_at.as_microsecond())),
            Column::RecordedAt => event.map(|view| Value::Time(view.event().recorded_at.as_microsecond())),
            Column::SubscriptionId => subscription.map(|view| Value::Uuid(view.id)),
            Column::Group => subscription.map(|view| Value::Text(Cow::Borrowed(view.group))),
        };
        Ok(value.unwrap_or(Value::Null))
    }

    /// AND (decided by false) or OR (decided by true).
    fn conjunction(&self, operands: &'a [Expr], decided_by: bool) -> Answer<'a> {
        let mut unknown = false;
        for operand in operands {
            match self.truth(operand)? {
                Some(value) if value == decided_by => return Ok(Value::Bool(decided_by)),
                Some(_) => {}
                None => unknown = true,
            }
        }
        Ok(if unknown { Value::Null } else { Value::Bool(!decided_by) })
    }

    /// Compares an operand that is known with another that is not yet.
    fn against(&self, operand: &Value<'a>, op: Comparison, other: &'a Against) -> Result<Option<bool>, Failure> {
        let right = self.value(&other.expr)?;
        match other.widen {
            None => holds(op, operand, &right, &self.meter),
            Some(to) => holds(op, &cast::widen(operand, to, &self.meter)?, &right, &self.meter),
        }
    }

    fn is_in(&self, operand: &'a Expr, list: &'a [Against], negated: bool) -> Answer<'a> {
        let operand = self.value(operand)?;
        let mut unknown = false;
        for item in list {
            match self.against(&operand, Comparison::Equal, item)? {
                Some(true) => return Ok(Value::Bool(!negated)),
                Some(false) => {}
                None => unknown = true,
            }
        }
        Ok(if unknown { Value::Null } else { Value::Bool(negated) })
    }

    fn quantified(&self, op: Comparison, all: bool, operand: &'a Expr, at: Scalar, array: &'a Expr) -> Answer<'a> {
        let (operand, array) = (self.value(operand)?, self.value(array)?);
        let Value::Array(elements) = array else { return Ok(Value::Null) };
        if elements.is_empty() {
            return Ok(Value::Bool(all));
        }
        let operand = cast::widen(&operand, at, &self.meter)?;
        let mut unknown = false;
        for element in elements.iter() {
            self.meter.steps(4)?;
            let element = cast::widen(element, at, &self.meter)?;
            match holds(op, &operand, &element, &self.meter)? {
                Some(value) if value != all => return Ok(Value::Bool(!all)),
                Some(_) => {}
                None => unknown = true,
            }
        }
        Ok(if unknown { Value::Null } else { Value::Bool(all) })
    }
}

fn truth<'a>(value: Option<bool>) -> Value<'a> {
    value.map_or(Value::Null, Value::Bool)
}
