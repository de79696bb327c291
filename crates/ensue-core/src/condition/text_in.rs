//! What value does a text stand for?
//!
//! The input of booleans, integers, uuids and arrays, as Postgres takes it.

use super::failure::Failure;
use super::types::{Scalar, Type};
use std::borrow::Cow;
use uuid::Uuid;

/// The text without the blanks of C's `isspace` around it.
pub fn trim_blanks(text: &str) -> &str {
    text.trim_matches(is_blank)
}

/// A blank by C's `isspace`.
pub fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}

/// A boolean: any beginning of true, false, yes and no, or on, off, 1 and 0, in any case.
pub fn boolean(text: &str) -> Result<bool, Failure> {
    let word = trim_blanks(text).to_ascii_lowercase();
    let begins = |full: &str| !word.is_empty() && full.starts_with(&word);
    match word.as_str() {
        "1" | "on" => Ok(true),
        "0" | "of" | "off" => Ok(false),
        _ if begins("true") || begins("yes") => Ok(true),
        _ if begins("false") || begins("no") => Ok(false),
        _ => Err(Failure::bad_text(Scalar::Bool.into(), text)),
    }
}

/// A whole number of eight bytes.
pub fn int8(text: &str) -> Result<i64, Failure> {
    whole(text, Scalar::Int8)
}

/// A whole number of four bytes.
pub fn int4(text: &str) -> Result<i32, Failure> {
    i32::try_from(whole(text, Scalar::Int4)?).map_err(|_| Failure::OutOfRange(Scalar::Int4.into()))
}

fn whole(text: &str, wanted: Scalar) -> Result<i64, Failure> {
    let trimmed = trim_blanks(text);
    let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Failure::bad_text(wanted.into(), text));
    }
    trimmed.parse().map_err(|_| Failure::OutOfRange(wanted.into()))
}

/// A uuid: 32 hexadecimal digits, hyphens after any four of them, braces around it or not.
pub fn uuid(text: &str) -> Result<Uuid, Failure> {
    parse_uuid(text.as_bytes()).ok_or_else(|| Failure::bad_text(Scalar::Uuid.into(), text))
}

fn parse_uuid(text: &[u8]) -> Option<Uuid> {
    let mut rest = match text {
        [b'{', inner @ .., b'}'] => inner,
        other => other,
    };
    let mut bytes = [0; 16];
    for (index, byte) in bytes.iter_mut().enumerate() {
        let [high, low, after @ ..] = rest else { return None };
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
        rest = match after {
            [b'-', after @ ..] if index % 2 == 1 && index < 15 => after,
            after => after,
        };
    }
    rest.is_empty().then(|| Uuid::from_bytes(bytes))
}

/// The elements of an array in its text form `{a,"b c",NULL}`; none stands for NULL.
pub fn array(text: &str, of: Scalar) -> Result<Vec<Option<Cow<'_, str>>>, Failure> {
    parse_array(trim_blanks(text)).ok_or_else(|| Failure::bad_text(Type::Array(of), text))
}

fn parse_array(text: &str) -> Option<Vec<Option<Cow<'_, str>>>> {
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    let mut elements = Vec::new();
    let mut rest = inner.trim_start_matches(is_blank);
    if rest.is_empty() {
        return Some(elements);
    }
    loop {
        rest = rest.trim_start_matches(is_blank);
        let (element, after) = if rest.starts_with('"') { quoted(rest)? } else { unquoted(rest)? };
        elements.push(element);
        let after = after.trim_start_matches(is_blank);
        if after.is_empty() {
            return Some(elements);
        }
        rest = after.strip_prefix(',')?;
    }
}

/// An element and what follows it.
type Taken<'a> = (Option<Cow<'a, str>>, &'a str);

fn quoted(text: &str) -> Option<Taken<'_>> {
    let mut element = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((Some(Cow::Owned(element)), &text[at + 1..])),
            '\\' => element.push(characters.next()?.1),
            other => element.push(other),
        }
    }
    None
}

fn unquoted(text: &str) -> Option<Taken<'_>> {
    let mut element = String::new();
    // What was escaped is neither a blank to be trimmed nor part of the word NULL.
    let (mut kept_to, mut escaped) = (0, false);
    let mut characters = text.char_indices();
    let mut end = text.len();
    while let Some((at, character)) = characters.next() {
        match character {
            ',' => {
                end = at;
                break;
            }
            '"' | '{' | '}' => return None,
            '\\' => {
                element.push(characters.next()?.1);
                escaped = true;
                kept_to = element.len();
            }
            other => {
                element.push(other);
                if !is_blank(other) {
                    kept_to = element.len();
                }
            }
        }
    }
    element.truncate(kept_to);
    if element.is_empty() && !escaped {
        return None;
    }
    let null = !escaped && element.eq_ignore_ascii_case("null");
    Some((if null { None } else { Some(Cow::Owned(element)) }, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_have_many_names() {
        for text in ["t", "TRUE", " tr ", "y", "yes", "on", "1"] {
            assert_eq!(boolean(text), Ok(true), "{text}");
        }
        for text in ["f", "false", "n", "no", "of", "off", "0"] {
            assert_eq!(boolean(text), Ok(false), "{text}");
        }
        for text in ["", "o", "truex", "2", "yess"] {
            assert!(boolean(text).is_err(), "{text}");
        }
    }

    #[test]
    fn integers_are_plain_digits_within_range() {
        assert_eq!(int4(" -7 "), Ok(-7));
        assert_eq!(int4("2147483648"), Err(Failure::OutOfRange(Scalar::Int4.into())));
        assert_eq!(int8("-9223372036854775808"), Ok(i64::MIN));
        for text in ["", "1.0", "1e3", "+", "0x1", "1 2"] {
            assert!(matches!(int8(text), Err(Failure::BadText { .. })), "{text}");
        }
    }

    #[test]
    fn uuids_may_have_braces_and_hyphens_where_postgres_allows_them() {
        let plain = "a0eebc999c0b4ef8bb6d6bb9bd380a11";
        for text in [
            plain,
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc999c0b4ef8bb6d6bb9bd380a11}",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
        ] {
            assert_eq!(uuid(text), uuid(plain), "{text}");
        }
        for text in
            ["", "a0eebc99", &plain[1..], "{a0eebc999c0b4ef8bb6d6bb9bd380a11", "a0e-ebc999c0b4ef8bb6d6bb9bd380a11"]
        {
            assert!(uuid(text).is_err(), "{text}");
        }
    }

    #[test]
    fn arrays_have_quotes_and_nulls() {
        let texts = |text| {
            array(text, Scalar::Text).map(|all| {
                all.into_iter().map(|one| one.map(Cow::into_owned).unwrap_or("-".into())).collect::<Vec<_>>().join("|")
            })
        };
        for (text, expected) in [
            ("{}", ""),
            (" { a , b c , \"d,\\\"\" } ", "a|b c|d,\""),
            ("{NULL,\"NULL\",null}", "-|NULL|-"),
            ("{\"\"}", ""),
            ("{\\,}", ","),
        ] {
            assert_eq!(texts(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["", "a", "{a", "{a,}", "{,}", "{{a}}", "{a\"b\"}", "{\"a\"b}"] {
            assert!(texts(text).is_err(), "{text}");
        }
    }
}
