//! What can go wrong when a checked condition meets an event?
//!
//! The same things that go wrong in Postgres (a text that is no number, a division by zero), and two that are ours: a
//! condition that costs too much on this event, and a value that grows too large. A panic is a fault of Ensue, and becomes a failure too.

use super::types::Type;

/// How much of a text from an event is shown in a message.
const SHOWN_CHARS_MAX: usize = 40;

/// Why a condition has no answer for this event. The event did not match; other subscriptions are not concerned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A text that cannot be read as the type it is cast to.
    #[error("{text:?} cannot be read as {wanted}; test it with CASE before the cast")]
    BadText {
        /// The type asked for.
        wanted: Type,
        /// The beginning of the text.
        text: String,
    },
    /// A jsonb value of another kind than the cast wants.
    #[error("a jsonb {found} cannot be cast to {wanted}; test jsonb_typeof with CASE before the cast")]
    BadJson {
        /// The type asked for.
        wanted: Type,
        /// The kind that was there.
        found: &'static str,
    },
    /// A number that does not fit its type.
    #[error("a value is out of range for {0}")]
    OutOfRange(Type),
    /// A number with more digits than `numeric(precision, scale)` leaves room for.
    #[error("a value has too many digits for numeric({precision},{scale})")]
    FieldOverflow {
        /// Digits in all.
        precision: u16,
        /// Digits after the point.
        scale: u16,
    },
    /// Division by zero.
    #[error("division by zero; guard it with CASE WHEN … <> 0")]
    DivisionByZero,
    /// A LIKE pattern that ends with its escape character.
    #[error("a LIKE pattern ends with its escape character; write the character twice to mean itself")]
    PatternEnd,
    /// An escape of more than one character.
    #[error("an ESCAPE has more than one character; give one, or '' for none")]
    EscapeLength,
    /// `jsonb_build_object` was given NULL as a key.
    #[error("a key of jsonb_build_object is NULL; put COALESCE around it")]
    NullKey,
    /// `jsonb_array_length` of something else.
    #[error("jsonb_array_length of a jsonb {0}; test jsonb_typeof with CASE first")]
    NotAnArray(&'static str),
    /// The evaluation took more steps than one event may cost.
    #[error("the condition costs more than {0} steps on this event; make it simpler, or the event smaller")]
    TooCostly(u32),
    /// A value grew beyond what a condition may build.
    #[error("a value of the condition grows beyond {0} bytes")]
    TooLarge(usize),
    /// The evaluation panicked, which is a fault of Ensue.
    #[error("an internal error of Ensue (the log has a panic message); report it with the condition and the event")]
    Panicked,
}

impl Failure {
    /// A text that cannot be read as `wanted`.
    pub(super) fn bad_text(wanted: Type, text: &str) -> Self {
        let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Self::BadText { wanted, text: shown }
    }
}
