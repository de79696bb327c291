//! Do two JSON texts mean the same?
//!
//! An engine may keep a payload in a form of its own (Postgres' `jsonb` sorts keys, drops repeated ones and rewrites
//! numbers) but never change what it says. So texts are compared by meaning: objects without the order of their keys,
//! the last of repeated keys winning; strings unescaped; numbers by their exact decimal value, however long.

use ensue_core::{Event, EventId, Json, ObjectKey, Seq, Timestamp, Topic};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use uuid::Uuid;

/// What a JSON text says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number: its digits without zeros at either end, times ten to the power. Zero has no digits.
    Number {
        /// Is it below zero?
        negative: bool,
        /// Neither begins nor ends with a zero.
        digits: String,
        /// The power of ten that the digits are multiplied with.
        power: i64,
    },
    /// A string, unescaped.
    Text(String),
    /// An array.
    Array(Vec<Meaning>),
    /// An object.
    Object(BTreeMap<String, Meaning>),
}

impl Meaning {
    /// What this text says.
    ///
    /// # Panics
    /// When it is not JSON: no engine may hand that out.
    pub fn of(json: &Json) -> Self {
        Self::of_text(json.as_str())
    }

    fn of_text(text: &str) -> Self {
        let broken =
            |error: serde_json::Error| -> ! { panic!("the store handed out what is not JSON: {error}: {text}") };
        match text.trim_start().as_bytes().first() {
            Some(b'{') => {
                let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).unwrap_or_else(|e| broken(e));
                Self::Object(fields.into_iter().map(|(key, value)| (key, Self::of_text(value.get()))).collect())
            }
            Some(b'[') => {
                let items: Vec<Box<RawValue>> = serde_json::from_str(text).unwrap_or_else(|e| broken(e));
                Self::Array(items.into_iter().map(|item| Self::of_text(item.get())).collect())
            }
            Some(b'"') => Self::Text(serde_json::from_str(text).unwrap_or_else(|e| broken(e))),
            Some(b'-' | b'0'..=b'9') => {
                serde_json::from_str::<&RawValue>(text).unwrap_or_else(|e| broken(e));
                number(text.trim())
            }
            Some(_) | None => match serde_json::from_str::<Option<bool>>(text).unwrap_or_else(|e| broken(e)) {
                None => Self::Null,
                Some(value) => Self::Bool(value),
            },
        }
    }
}

fn number(text: &str) -> Meaning {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().expect("an exponent that was checked at the door");
    let negative = mantissa.starts_with('-');
    let mantissa = mantissa.trim_start_matches('-');
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let without_end = all.trim_end_matches('0');
    let digits = without_end.trim_start_matches('0').to_string();
    if digits.is_empty() {
        return Meaning::Number { negative: false, digits, power: 0 };
    }
    let dropped = (all.len() - without_end.len()) as i64;
    Meaning::Number { negative, digits, power: exponent - fraction.len() as i64 + dropped }
}

/// An event with its JSON by meaning: what two engines must agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of Event")]
pub struct EventMeaning {
    pub seq: Seq,
    pub prev: Option<Seq>,
    pub id: EventId,
    pub topic: Topic,
    pub object: Option<ObjectKey>,
    pub payload: Meaning,
    pub metadata: Meaning,
    pub occurred_at: Timestamp,
    pub recorded_at: Timestamp,
    pub to: Option<Uuid>,
}

impl EventMeaning {
    /// What this event says.
    pub fn of(event: &Event) -> Self {
        Self {
            seq: event.seq,
            prev: event.prev,
            id: event.id,
            topic: event.topic.clone(),
            object: event.object.clone(),
            payload: Meaning::of(&event.payload),
            metadata: Meaning::of(&event.metadata),
            occurred_at: event.occurred_at,
            recorded_at: event.recorded_at,
            to: event.to,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_repeated_keys_escapes_and_the_writing_of_numbers_do_not_matter() {
        for (one, other) in [
            (r#"{"a":1,"b":[2]}"#, r#"{"b": [2], "a": 1}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#""\u00e9\ud83d\ude00\/""#, r#""é😀/""#),
            ("100", "1E+2"),
            ("1.50", "1.5"),
            ("-0", "0.00"),
            ("-0.05e2", "-5"),
            ("1e-3", "0.001"),
        ] {
            assert_eq!(Meaning::of_text(one), Meaning::of_text(other), "{one} and {other}");
        }
    }

    #[test]
    fn everything_else_matters() {
        let long = "9".repeat(400);
        let longer_by_one = format!("{}8", "9".repeat(399));
        for (one, other) in [
            ("1", "2"),
            ("1", "-1"),
            ("1", "10"),
            ("1", "\"1\""),
            ("0.1", "0.10000000000000000001"),
            (long.as_str(), longer_by_one.as_str()),
            ("[1,2]", "[2,1]"),
            ("[]", "{}"),
            ("null", "false"),
            (r#"{"a":null}"#, "{}"),
            (r#""a""#, r#""A""#),
        ] {
            assert_ne!(Meaning::of_text(one), Meaning::of_text(other), "{one} and {other}");
        }
    }
}
