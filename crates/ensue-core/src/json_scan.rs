//! Is this text one JSON value that every engine can keep, and what is it without the blanks between its tokens?
//!
//! One pass, without recursion, that looks at every byte once: each event goes through here before it is stored, and
//! over HTTP every publish. What is in a string or a number is kept as it was written.

use crate::event::EVENT_BYTES_MAX;
use crate::json::{DEPTH_MAX, DIGITS_MAX, GROWTH_FREE_BYTES, GROWTH_MAX};

/// Why a text is not kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is not one JSON value.
    NotJson,
    /// It is, and not every engine can keep it.
    Refused(String),
}

/// What may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
}

/// The arrays and objects that are open, the innermost in the lowest bit; 1 is an object.
#[derive(Debug, Default)]
struct Open {
    depth: usize,
    objects: u64,
}

// One bit for each.
const _: () = assert!(DEPTH_MAX <= u64::BITS as usize);

impl Open {
    fn push(&mut self, is_object: bool) -> Result<(), Fault> {
        if self.depth == DEPTH_MAX {
            return Err(Fault::Refused(format!("is nested more than {DEPTH_MAX} levels deep; flatten it")));
        }
        self.depth += 1;
        self.objects = self.objects << 1 | u64::from(is_object);
        Ok(())
    }

    fn innermost_is_object(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.objects & 1 == 1)
    }

    fn pop(&mut self, is_object: bool) -> Result<(), Fault> {
        if self.innermost_is_object() != Some(is_object) {
            return Err(Fault::NotJson);
        }
        self.depth -= 1;
        self.objects >>= 1;
        Ok(())
    }
}

/// The value without blanks between its tokens; none if it has none.
pub(crate) fn compact(text: &str) -> Result<Option<String>, Fault> {
    let bytes = text.as_bytes();
    let mut open = Open::default();
    let mut expected = Expected::Value;
    let mut kept = String::new();
    let mut copied_to = 0; // everything before this is in `kept` or was blank
    let mut growth = 0; // bytes that writing the numbers out would add
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let (end, next) = match (expected, byte) {
            (_, b' ' | b'\t' | b'\n' | b'\r') => {
                kept.push_str(&text[copied_to..at]);
                let blanks = bytes[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
                at += blanks.count();
                copied_to = at;
                continue;
            }
            (Expected::Key | Expected::KeyOrEnd, b'"') => (string_end(bytes, at)?, Expected::Colon),
            (Expected::Colon, b':') => (at + 1, Expected::Value),
            (Expected::CommaOrEnd, b',') => match open.innermost_is_object() {
                Some(true) => (at + 1, Expected::Key),
                Some(false) => (at + 1, Expected::Value),
                None => return Err(Fault::NotJson),
            },
            (Expected::KeyOrEnd | Expected::CommaOrEnd, b'}') => {
                open.pop(true)?;
                (at + 1, Expected::CommaOrEnd)
            }
            (Expected::ValueOrEnd | Expected::CommaOrEnd, b']') => {
                open.pop(false)?;
                (at + 1, Expected::CommaOrEnd)
            }
            (Expected::Value | Expected::ValueOrEnd, b'{') => {
                open.push(true)?;
                (at + 1, Expected::KeyOrEnd)
            }
            (Expected::Value | Expected::ValueOrEnd, b'[') => {
                open.push(false)?;
                (at + 1, Expected::ValueOrEnd)
            }
            (Expected::Value | Expected::ValueOrEnd, _) => {
                let end = match byte {
                    b'"' => string_end(bytes, at)?,
                    b'-' | b'0'..=b'9' => {
                        let number = Number::read(bytes, at)?;
                        growth += number.written_bytes()?.saturating_sub(number.end - at);
                        number.end
                    }
                    b't' => word_end(bytes, at, b"true")?,
                    b'f' => word_end(bytes, at, b"false")?,
                    b'n' => word_end(bytes, at, b"null")?,
                    _ => return Err(Fault::NotJson),
                };
                (end, Expected::CommaOrEnd)
            }
            (Expected::Key | Expected::KeyOrEnd | Expected::Colon | Expected::CommaOrEnd, _) => {
                return Err(Fault::NotJson);
            }
        };
        (at, expected) = (end, next);
    }
    if expected != Expected::CommaOrEnd || open.depth > 0 {
        return Err(Fault::NotJson);
    }
    let compact = (copied_to > 0).then(|| {
        kept.push_str(&text[copied_to..]);
        kept
    });
    check_growth(compact.as_ref().map_or(text.len(), String::len), growth)?;
    Ok(compact)
}

fn check_growth(bytes: usize, growth: usize) -> Result<(), Fault> {
    let written_bytes = bytes + growth;
    let written_bytes_max = (GROWTH_MAX * bytes + GROWTH_FREE_BYTES).min(EVENT_BYTES_MAX);
    if growth > 0 && written_bytes > written_bytes_max {
        return Err(Fault::Refused(format!(
            "takes {written_bytes} bytes when its numbers are written out without exponents, and at most \
             {written_bytes_max} are allowed here; send such numbers as strings"
        )));
    }
    Ok(())
}

fn word_end(bytes: &[u8], at: usize, word: &[u8]) -> Result<usize, Fault> {
    if bytes[at..].starts_with(word) { Ok(at + word.len()) } else { Err(Fault::NotJson) }
}

/// The position after the string that opens at `at`. What is between two escapes is skipped in one go.
fn string_end(bytes: &[u8], mut at: usize) -> Result<usize, Fault> {
    at += 1;
    let mut high_surrogate_open = false;
    loop {
        let plain = memchr::memchr2(b'"', b'\\', &bytes[at..]).ok_or(Fault::NotJson)?;
        if bytes[at..at + plain].iter().fold(false, |found, byte| found | (*byte < b' ')) {
            return Err(Fault::NotJson);
        }
        at += plain;
        let (end, unit) = match bytes[at] {
            b'"' => (at + 1, None),
            _ => escape(bytes, at)?,
        };
        let is_low = unit.is_some_and(|unit| (0xDC00..0xE000).contains(&unit));
        if is_low != high_surrogate_open || (high_surrogate_open && plain > 0) {
            let reason = "has a lone surrogate in a \\u escape; write both halves of the pair, or the character";
            return Err(Fault::Refused(reason.into()));
        }
        if unit == Some(0) {
            return Err(Fault::Refused("contains \\u0000, which not every store can keep; remove it".into()));
        }
        if bytes[at] == b'"' {
            return Ok(end);
        }
        high_surrogate_open = unit.is_some_and(|unit| (0xD800..0xDC00).contains(&unit));
        at = end;
    }
}

/// The position after the escape at `at`, and the UTF-16 unit that it stands for if it says so.
fn escape(bytes: &[u8], at: usize) -> Result<(usize, Option<u16>), Fault> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok((at + 2, None)),
        Some(b'u') => {
            let digits = bytes.get(at + 2..at + 6).ok_or(Fault::NotJson)?;
            let mut unit = 0;
            for digit in digits {
                let digit = char::from(*digit).to_digit(16).ok_or(Fault::NotJson)?;
                unit = unit << 4 | digit as u16;
            }
            Ok((at + 6, Some(unit)))
        }
        Some(_) | None => Err(Fault::NotJson),
    }
}

/// A number, by the lengths of its parts.
struct Number {
    end: usize,
    whole_digits: i64,
    fraction_digits: i64,
    exponent: i64,
}

impl Number {
    fn read(bytes: &[u8], start: usize) -> Result<Self, Fault> {
        let digits_end = |from: usize| from + bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let whole = start + usize::from(bytes[start] == b'-');
        let mut end = digits_end(whole);
        if end == whole || (bytes[whole] == b'0' && end > whole + 1) {
            return Err(Fault::NotJson);
        }
        let mut number = Self { end, whole_digits: (end - whole) as i64, fraction_digits: 0, exponent: 0 };
        if bytes.get(end) == Some(&b'.') {
            let fraction = end + 1;
            end = digits_end(fraction);
            number.fraction_digits = (end - fraction) as i64;
            if end == fraction {
                return Err(Fault::NotJson);
            }
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let signed = end + 1;
            let digits = signed + usize::from(matches!(bytes.get(signed), Some(b'+' | b'-')));
            end = digits_end(digits);
            if end == digits {
                return Err(Fault::NotJson);
            }
            let size = std::str::from_utf8(&bytes[digits..end]).ok().and_then(|digits| digits.parse().ok());
            let size: i64 = size.unwrap_or(i64::from(i32::MAX));
            number.exponent = if bytes[signed] == b'-' { -size } else { size };
        }
        number.end = end;
        Ok(number)
    }

    /// How many bytes it has when written out: one digit at least, a sign and a point at most.
    fn written_bytes(&self) -> Result<usize, Fault> {
        let before = self.whole_digits.saturating_add(self.exponent);
        let after = self.fraction_digits.saturating_sub(self.exponent);
        if before > DIGITS_MAX || after > DIGITS_MAX {
            let reason = format!("has a number of more than {DIGITS_MAX} digits when written out; send it as a string");
            return Err(Fault::Refused(reason));
        }
        Ok(before.max(1) as usize + after.max(0) as usize + 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;
    use serde_json::value::RawValue;

    /// Pieces of JSON, and of what is nearly JSON.
    const PIECES: [&str; 40] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\"a\"",
        "\"b\"",
        "\\",
        "\\n",
        "\\u00e9",
        "\\u12",
        "\\u+123",
        "\\ud83d\\ude00",
        "é",
        "\u{1}",
        "\t",
        " ",
        "\n",
        "\u{a0}",
        "0",
        "1",
        "-",
        "-0",
        "01",
        "12",
        ".",
        ".5",
        "1.",
        "1.5",
        "e",
        "1e5",
        "1E-5",
        "1e+",
        "true",
        "false",
        "null",
        "nul",
        "/",
    ];

    fn pieces() -> impl Strategy<Value = String> {
        proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..12).prop_map(|pieces| pieces.concat())
    }

    /// Any JSON value, with blanks here and there.
    fn value() -> impl Strategy<Value = String> {
        let leaf =
            proptest::sample::select(vec!["0", "-1.50", "2e3", "true", "null", "\"\"", "\"a \\\"b\"", "\"\\\\\""]);
        leaf.prop_map(str::to_string).prop_recursive(4, 24, 4, |inner| {
            let blank = proptest::sample::select(vec!["", " ", "\n\t "]);
            prop_oneof![
                (proptest::collection::vec(inner.clone(), 0..4), blank.clone())
                    .prop_map(|(items, blank)| format!("[{blank}{}{blank}]", items.join(&format!("{blank},{blank}")))),
                (proptest::collection::vec(inner, 0..4), blank).prop_map(|(items, blank)| {
                    let member = |(n, item): (usize, &String)| format!("\"k{n}\"{blank}:{blank}{item}");
                    let members: Vec<String> = items.iter().enumerate().map(member).collect();
                    format!("{{{blank}{}{blank}}}", members.join(","))
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn what_is_json_and_what_is_not_is_as_another_parser_says(text in prop_oneof![pieces(), value()]) {
            let is_json = serde_json::from_str::<&RawValue>(&text).is_ok();
            match compact(&text) {
                Ok(compact) => {
                    prop_assert!(is_json, "{text}");
                    // A number may be too large for them.
                    let meaning = |text: &str| serde_json::from_str::<Value>(text).ok();
                    prop_assert_eq!(meaning(compact.as_ref().unwrap_or(&text)), meaning(&text));
                }
                Err(Fault::NotJson) => prop_assert!(!is_json, "{text}"),
                // Such as half a pair of surrogates, or a number with a large exponent.
                Err(Fault::Refused(_)) => {}
            }
        }
    }

    #[test]
    fn a_blank_is_dropped_between_tokens_and_nowhere_else() {
        assert_eq!(compact("[1,\"a b\"]"), Ok(None));
        assert_eq!(compact("\r\n[ 1\t, \"a b\" ] "), Ok(Some("[1,\"a b\"]".into())));
        for two in ["1 2", "tr ue", "1 .5", "[1 2]", "\"a\" \"b\""] {
            assert_eq!(compact(two), Err(Fault::NotJson), "{two}");
        }
    }
}
