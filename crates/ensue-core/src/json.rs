//! Is this JSON one that every engine can keep?
//!
//! Postgres' `jsonb` refuses some JSON that is well-formed: `\u0000`, lone surrogates, numbers beyond its `numeric`.
//! One such payload would fail every other event gathered into the same commit, so it is refused at the door, for
//! every engine alike. `jsonb` also writes numbers out, `1e99` as a one with 99 zeros: what would grow out of all
//! proportion is refused too. What passes is kept without the blanks between its tokens: shorter, and a single line.

use crate::error::Invalid;
use crate::json_plain;
use crate::json_scan::{self, Fault};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// How deeply arrays and objects may be nested.
pub const DEPTH_MAX: usize = 64;
/// How many digits a number may have on either side of its point when written out without an exponent.
/// Every double fits; `1e131071` (eight bytes in, 131 kB out) does not.
pub const DIGITS_MAX: i64 = 400;
/// How many times longer than its text a value may be when its numbers are written out: arrays of small constants such
/// as `6.62607015e-34` take three times their text.
pub const GROWTH_MAX: usize = 8;
/// How many bytes it may always grow by, so that a few of the largest doubles fit.
pub const GROWTH_FREE_BYTES: usize = 4 << 10;

/// A JSON value as text: well-formed, without blanks, accepted by every engine.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Cow<'static, str>);

impl Json {
    /// The value `null`.
    pub fn null() -> Self {
        Self("null".into())
    }

    /// The value `{}`.
    pub fn empty_object() -> Self {
        Self("{}".into())
    }

    /// Does it read the same after an engine has kept its value and not its text? Not if a key comes twice, or a number would
    /// be written otherwise: some readers refuse the one and take the other. Also not if it has so many keys that looking
    /// would take long.
    pub fn is_plain(&self) -> bool {
        json_plain::is_plain(&self.0)
    }

    /// Checks text from outside; `field` is named in the refusal.
    pub fn parse<'a>(field: &str, text: impl Into<Cow<'a, str>>) -> Result<Self, Invalid> {
        let text = text.into();
        match json_scan::compact(&text) {
            Ok(None) => Ok(Self(Cow::Owned(text.into_owned()))),
            Ok(Some(compact)) => Ok(Self(Cow::Owned(compact))),
            Err(Fault::Refused(reason)) => Err(Invalid::new(field, reason)),
            Err(Fault::NotJson) => Err(Invalid::new(field, not_json(&text))),
        }
    }

    /// Checks a Rust value.
    pub fn of(field: &str, value: &impl Serialize) -> Result<Self, Invalid> {
        let text = serde_json::to_string(value)
            .map_err(|error| Invalid::new(field, format!("cannot be written as JSON: {error}")))?;
        Self::parse(field, text)
    }

    /// A value read back from a store, which let only valid ones in.
    pub fn stored(text: impl Into<String>) -> Self {
        Self(Cow::Owned(text.into()))
    }

    /// The text of the value.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Two objects as one: fields of both, and where both have one, this one's.
    pub fn over(&self, under: &Json) -> Result<Json, Invalid> {
        let fields = |json: &Json| {
            serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(json.as_str())
                .map_err(|error| Invalid::new("metadata", format!("is not a JSON object: {error}")))
        };
        let mut both = fields(under)?;
        both.extend(fields(self)?);
        Json::of("metadata", &both)
    }

    /// Is it a JSON object?
    pub fn is_object(&self) -> bool {
        self.0.starts_with('{')
    }
}

/// What is wrong and where, in the words of a parser made for that: it is asked only when something is.
fn not_json(text: &str) -> String {
    match serde_json::from_str::<&RawValue>(text) {
        Err(error) => format!("is not JSON: {error}"),
        Ok(_) => "is not JSON".into(),
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(&self.0).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Json::parse("payload", text).unwrap_err().to_string()
    }

    #[test]
    fn blanks_between_tokens_go_and_blanks_in_strings_stay() {
        let json = Json::parse("payload", " { \"a b\" : [ 1 ,\n 2.50 ] , \"c\\\" \" : null }\n").unwrap();
        assert_eq!(json.as_str(), "{\"a b\":[1,2.50],\"c\\\" \":null}");
    }

    #[test]
    fn what_jsonb_refuses_is_refused_at_the_door() {
        assert!(refusal(r#""a\u0000b""#).contains("\\u0000"));
        assert!(refusal(r#""\ud800""#).contains("surrogate"));
        assert!(refusal(r#""\ud800x""#).contains("surrogate"));
        assert!(refusal(r#""\ud800x\udc00""#).contains("surrogate"));
        assert!(refusal(r#""x\udc00""#).contains("surrogate"));
        assert!(refusal(r#""\ud800\n""#).contains("surrogate"));
        assert!(refusal(r#""\udc00""#).contains("surrogate"));
        assert!(refusal(r#""\ud800\ud800""#).contains("surrogate"));
        assert!(refusal("1e400000").contains("digits"));
        assert!(refusal("[1e-400000]").contains("digits"));
        assert!(refusal("1e99999999999999999999").contains("digits"));
    }

    #[test]
    fn what_jsonb_takes_is_kept_as_it_is() {
        for good in
            [r#""\ud83d\ude00""#, r#""\\u0000""#, "4.9406564584124654e-324", "1.7976931348623157e308", "-0", "true"]
        {
            assert_eq!(Json::parse("payload", good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn numbers_that_grow_without_measure_when_written_out_are_refused() {
        let array = |number: &str, count: usize| format!("[{}]", vec![number; count].join(","));
        for grown in [array("1e399", 100), array("1e-399", 100), array("-1.5E+300", 200), array("1e200", 170_000)] {
            let refusal = refusal(&grown);
            assert!(refusal.contains("written out") && refusal.contains("as strings"), "{refusal}");
        }
        for fine in [
            array("1e399", 10),
            array("6.62607015e-34", 20_000),
            array("0.25", 100_000),
            array("12345678901234567890", 40_000),
            format!("\"{}\"", "1e399,".repeat(10_000)),
        ] {
            assert_eq!(Json::parse("payload", &fine).unwrap().as_str(), fine);
        }
    }

    #[test]
    fn the_longest_array_that_passes_keeps_the_bound_when_written_out() {
        let array = |number: &str, count: usize| format!("[{}]", vec![number; count].join(","));
        let passes = |count: usize| Json::parse("payload", array("1e399", count)).is_ok();
        let count = (1..).find(|count| !passes(count + 1)).expect("some is too large");
        let text = array("1e399", count);
        let written_out = array(&format!("1{}", "0".repeat(399)), count);
        let bytes_max = GROWTH_MAX * text.len() + GROWTH_FREE_BYTES;
        assert!(written_out.len() <= bytes_max, "{} of {bytes_max}", written_out.len());
    }

    #[test]
    fn nesting_is_bounded_and_the_check_does_not_recurse() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Json::parse("payload", nested(64)).is_ok());
        assert!(refusal(&nested(65)).contains("nested"));
        assert!(refusal(&nested(500_000)).contains("nested"));
    }

    #[test]
    fn broken_json_is_named_as_such() {
        for bad in ["", "{", "{\"a\":}", "nul", "1 2", "\"\\u00\""] {
            assert!(refusal(bad).contains("is not JSON"), "{bad}");
        }
    }
}
