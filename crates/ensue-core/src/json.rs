//! Is this JSON one that every engine can keep?
//!
//! Postgres' `jsonb` refuses some JSON that is well-formed: `\u0000`, lone surrogates, numbers beyond its `numeric`.
//! One such payload would fail every other event gathered into the same commit, so it is refused at the door, for
//! every engine alike. `jsonb` also writes numbers out, `1e99` as a one with 99 zeros: what would grow out of all
//! proportion is refused too. What passes is kept without the blanks between its tokens: shorter, and a single line.

use crate::error::Invalid;
use crate::event::EVENT_BYTES_MAX;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
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

    /// Checks text from outside; `field` is named in the refusal.
    pub fn parse(field: &str, text: &str) -> Result<Self, Invalid> {
        serde_json::from_str::<&RawValue>(text)
            .map_err(|error| Invalid::new(field, format!("is not JSON: {error}")))?;
        let compact = compact(text).map_err(|reason| Invalid::new(field, reason))?;
        Ok(Self(compact.into_owned().into()))
    }

    /// Checks a Rust value.
    pub fn of(field: &str, value: &impl Serialize) -> Result<Self, Invalid> {
        let text = serde_json::to_string(value)
            .map_err(|error| Invalid::new(field, format!("cannot be written as JSON: {error}")))?;
        Self::parse(field, &text)
    }

    /// A value read back from a store, which let only valid ones in.
    pub fn stored(text: impl Into<String>) -> Self {
        Self(Cow::Owned(text.into()))
    }

    /// The text of the value.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Is it a JSON object?
    pub fn is_object(&self) -> bool {
        self.0.starts_with('{')
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

/// One pass over well-formed JSON: refuses what some engine cannot keep, and drops blanks between tokens.
fn compact(text: &str) -> Result<Cow<'_, str>, String> {
    let bytes = text.as_bytes();
    let mut depth = 0;
    let mut kept = String::new();
    let mut copied_to = 0; // everything before this is in `kept` or was blank
    let mut growth = 0; // bytes that writing the numbers out would add
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = string_end(bytes, at)?,
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(format!("is nested more than {DEPTH_MAX} levels deep; flatten it"));
                }
                at += 1;
            }
            b'}' | b']' => {
                depth -= 1;
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let (end, written_bytes) = number_end(bytes, at)?;
                growth += written_bytes.saturating_sub(end - at);
                at = end;
            }
            b' ' | b'\t' | b'\n' | b'\r' => {
                kept.push_str(&text[copied_to..at]);
                while at < bytes.len() && matches!(bytes[at], b' ' | b'\t' | b'\n' | b'\r') {
                    at += 1;
                }
                copied_to = at;
            }
            _ => at += 1,
        }
    }
    let compacted = match copied_to {
        0 => Cow::Borrowed(text),
        _ => {
            kept.push_str(&text[copied_to..]);
            Cow::Owned(kept)
        }
    };
    let written_bytes = compacted.len() + growth;
    let written_bytes_max = (GROWTH_MAX * compacted.len() + GROWTH_FREE_BYTES).min(EVENT_BYTES_MAX);
    if growth > 0 && written_bytes > written_bytes_max {
        return Err(format!(
            "takes {written_bytes} bytes when its numbers are written out without exponents, and at most \
             {written_bytes_max} are allowed here; send such numbers as strings"
        ));
    }
    Ok(compacted)
}

/// The position after the string that opens at `at`. Of what is in it only escapes matter: the rest is skipped in one go.
fn string_end(bytes: &[u8], mut at: usize) -> Result<usize, String> {
    at += 1;
    let mut high_surrogate_open = false;
    loop {
        let plain = memchr::memchr2(b'"', b'\\', &bytes[at..]).ok_or("has a string without an end")?;
        at += plain;
        let escape = match bytes[at..] {
            [b'\\', b'u', ..] => {
                let digits = bytes.get(at + 2..at + 6).and_then(|digits| std::str::from_utf8(digits).ok());
                let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
                Some(unit.ok_or("has a broken \\u escape")?)
            }
            _ => None,
        };
        let is_low = escape.is_some_and(|unit| (0xDC00..0xE000).contains(&unit));
        if is_low != high_surrogate_open || (high_surrogate_open && plain > 0) {
            return Err("has a lone surrogate in a \\u escape; write both halves of the pair, or the character".into());
        }
        // Only an escape can be zero: a raw control character in a string is not JSON.
        if escape == Some(0) {
            return Err("contains \\u0000, which not every store can keep; remove it".into());
        }
        if bytes[at] == b'"' {
            return Ok(at + 1);
        }
        high_surrogate_open = escape.is_some_and(|unit| (0xD800..0xDC00).contains(&unit));
        at += if escape.is_some() { 6 } else { 2 };
    }
}

/// The position after the number that begins at `at`, and how many bytes it has when written out.
fn number_end(bytes: &[u8], mut at: usize) -> Result<(usize, usize), String> {
    let start = at;
    while at < bytes.len() && matches!(bytes[at], b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') {
        at += 1;
    }
    let text = std::str::from_utf8(&bytes[start..at]).unwrap_or_default();
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(i64::from(i32::MAX));
    let mantissa = mantissa.trim_start_matches('-');
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let before = (whole.len() as i64).saturating_add(exponent);
    let after = (fraction.len() as i64).saturating_sub(exponent);
    if before > DIGITS_MAX || after > DIGITS_MAX {
        return Err(format!("has a number of more than {DIGITS_MAX} digits when written out; send it as a string"));
    }
    // One digit at least, a sign and a point at most.
    Ok((at, before.max(1) as usize + after.max(0) as usize + 2))
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

    /// However it is cut into events, a body of so many bytes takes at most this when written out.
    #[test]
    fn a_batch_cannot_grow_much_more_than_one_event() {
        let event = array_that_just_passes();
        let written = |text: &str| text.len() + text.matches("e399").count() * 397;
        assert!(written(&event) <= GROWTH_MAX * event.len() + GROWTH_FREE_BYTES, "{}", written(&event));
    }

    fn array_that_just_passes() -> String {
        let array = |count: usize| format!("[{}]", vec!["1e399"; count].join(","));
        let count = (1..).find(|count| Json::parse("payload", &array(*count)).is_err()).expect("some is too large");
        array(count - 1)
    }

    #[test]
    fn nesting_is_bounded_and_the_check_does_not_recurse() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Json::parse("payload", &nested(64)).is_ok());
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
