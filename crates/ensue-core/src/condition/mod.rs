//! Does this subscription want this event?
//!
//! A condition is an SQL expression over the event `e` and the subscription `s`, with Postgres' meaning under collation C
//! and in UTC. It is parsed and checked once, when somebody subscribes; from then on it is a tree that is evaluated
//! in process, in bounded time, and that cannot do anything but answer. Nothing of it ever becomes part of a query.
//!
//! | question | file |
//! |---|---|
//! | Is this text an SQL expression of a reasonable size? | `source` |
//! | Are its words, signs and literals those of the language? | `tokens` |
//! | Does the expression make sense, and of which type are its parts? | `check` |
//! | What is a condition, once it is checked? | `expr` |
//! | What does a condition look at? | [`row`] |
//! | What is its value for this event? | `eval` |
//! | Can the params be what it takes them for? | `params` |
//! | How much may that cost? | `meter` |
//! | Which parts of it can an index look up? | `terms`, `list` |
//! | What can go wrong then? | [`failure`], `guard` |
//! | What are the values? | [`types`], [`value`], [`numeric`], `numeric_math`, [`json`], `float`, `time`, `text_in`, `like`, `hashtext`, `part` |

mod check;
pub(crate) mod eval;
pub(crate) mod expr;
pub mod failure;
mod float;
pub(crate) mod guard;
mod hashtext;
pub mod json;
mod like;
pub(crate) mod list;
pub(crate) mod meter;
pub mod numeric;
mod numeric_math;
mod params;
mod part;
pub mod row;
mod source;
pub(crate) mod terms;
mod text_in;
mod time;
mod tokens;
pub mod types;
pub mod value;

pub use failure::Failure;
pub use meter::{BUILT_BYTES_MAX, QUICK_STEPS_MAX, STEPS_MAX, VALUE_BYTES_MAX};
pub use part::Part;
pub use row::{EventView, ParsedEvent, SubscriptionView};
pub use source::{DEPTH_MAX, SOURCE_BYTES_MAX, TOKENS_MAX};
pub use value::Value;

use crate::error::Invalid;
use eval::Evaluator;
use expr::Expr;
use row::Row;
use terms::Terms;

/// The most memory that a checked condition takes, in bytes.
pub const CONDITION_BYTES_MAX: usize = 512 << 10;

/// A checked condition.
#[derive(Debug, Clone)]
pub struct Condition {
    source: Box<str>,
    terms: Terms,
}

impl Condition {
    /// Parses and checks a condition. A refusal names the part and says what to write instead.
    ///
    /// ```
    /// use ensue_core::condition::Condition;
    /// assert!(Condition::parse("e.topic = 'order.paid' AND (e.payload->>'total')::numeric > 100").is_ok());
    /// let refusal = Condition::parse("e.tpoic = 'order.paid'").unwrap_err();
    /// assert!(refusal.to_string().contains("e.tpoic"));
    /// ```
    pub fn parse(source: &str) -> Result<Self, Invalid> {
        let checked = guard::caught(|| {
            let parsed = source::parse(source).and_then(|parsed| check::condition(&parsed));
            Ok(parsed.map(|expr| Self { source: source.into(), terms: Terms::of(expr) }))
        });
        checked
            .unwrap_or_else(|failure| Err(source::refused(format!("cannot be checked: {failure}"))))?
            .within(CONDITION_BYTES_MAX)
    }

    /// The condition, if it takes no more memory than this.
    fn within(self, bytes_max: usize) -> Result<Self, Invalid> {
        let bytes = self.bytes();
        if bytes > bytes_max {
            let reason =
                format!("takes {bytes} bytes of memory; at most {bytes_max} are allowed: move lists into `params`");
            return Err(source::refused(reason));
        }
        Ok(self)
    }

    /// Memory that the condition takes, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.source.len() + self.terms.bytes()
    }

    /// The text it was made from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Refuses params on which it would fail whatever the event is, such as a text that it casts to a number; names the param.
    pub fn check_params(&self, params: &crate::json::Json) -> Result<(), Invalid> {
        guard::caught(|| Ok(params::check(self.terms.parts(), params)))
            .unwrap_or_else(|failure| Err(Invalid::new("params", format!("cannot be checked: {failure}"))))
    }

    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Does the subscription want the event? NULL is no.
    ///
    /// The parts of an AND are looked at in this order: equalities between event and subscription that cannot fail,
    /// then what is about the event alone, then the rest; the first that is not true decides.
    pub fn matches(&self, event: &EventView<'_>, subscription: &SubscriptionView<'_>) -> Result<bool, Failure> {
        let row = Row { event: Some(event), subscription: Some(subscription) };
        self.terms.all(row)
    }
}

/// One text for every way to write the same JSON.
pub(crate) fn identity(json: &crate::json::Json) -> String {
    // Checked JSON can always be read; if it could not, it would be its own identity.
    json::identity(json.as_str()).unwrap_or_else(|_| json.as_str().to_owned())
}

/// An expression of any type, by the rules of conditions: what tests compare with Postgres, value by value.
#[derive(Debug, Clone)]
pub struct Expression {
    expr: Expr,
}

impl Expression {
    /// Parses and checks an expression.
    pub fn parse(source: &str) -> Result<Self, Invalid> {
        Ok(Self { expr: check::expression(&source::parse(source)?)? })
    }

    /// The text of its value, as a cast to text gives it; none is NULL.
    pub fn text(&self, event: &EventView<'_>, subscription: &SubscriptionView<'_>) -> Result<Option<String>, Failure> {
        let row = Row { event: Some(event), subscription: Some(subscription) };
        let evaluator = Evaluator::new(row);
        Ok(evaluator.value(&self.expr)?.text(&evaluator.meter)?.map(|text| text.into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_that_takes_too_much_memory_is_refused_with_the_limit() {
        let condition = Condition::parse("e.topic IN ('a', 'b')").unwrap();
        let refusal = condition.clone().within(100).unwrap_err();
        assert!(refusal.reason.contains("at most 100 are allowed"), "{refusal}");
        assert!(condition.within(CONDITION_BYTES_MAX).is_ok());
    }
}
