//! What do the texts of a request mean: percent-encoding, times, base64?

use super::problem::{Kind, Problem};
use ensue::Timestamp;
use std::borrow::Cow;

/// Undoes percent-encoding; what is no valid escape stays as it is. None if the result is not UTF-8.
pub(super) fn percent_decode(bytes: &[u8], plus_is_space: bool) -> Option<String> {
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = match bytes[at] {
            b'%' => bytes.get(at + 1..at + 3).and_then(hex),
            _ => None,
        };
        match escape {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(if plus_is_space && bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).ok()
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(digits[0])? * 16 + digit(digits[1])?) as u8)
}

/// A time as RFC 3339 writes it, in any offset. Other spellings that a parser might take are refused, so that every
/// client's time means the same everywhere.
pub(super) fn time(kind: Kind, field: impl Into<Cow<'static, str>>, text: &str) -> Result<Timestamp, Problem> {
    let shape_is_right = {
        let bytes = text.as_bytes();
        let separator = matches!(bytes.get(10), Some(b'T' | b't' | b' '));
        let offset = match bytes.last() {
            Some(b'Z' | b'z') => true,
            _ => {
                bytes.len() > 25 - 1 && matches!(bytes[bytes.len() - 6], b'+' | b'-') && bytes[bytes.len() - 3] == b':'
            }
        };
        bytes.len() >= 20 && separator && offset && bytes[16] == b':'
    };
    match text.parse::<Timestamp>() {
        Ok(time) if shape_is_right => Ok(time),
        _ => {
            let reason = "is not a time; write it as RFC 3339, from the year 1 to 9999-12-30, such as 2026-11-15T12:00:00Z \
                          (in a query a + is written %2B)";
            Err(Problem::field(kind, field.into(), reason))
        }
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as padded base64.
pub(super) fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().chain(&[0, 0]).take(3).fold(0u32, |group, byte| group << 8 | u32::from(*byte));
        for place in 0..4 {
            let digit = BASE64[(group >> (18 - 6 * place)) as usize & 63];
            text.push(if place > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

/// Is this padded base64?
pub(super) fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    text.len().is_multiple_of(4) && text.len() - digits.len() <= 2 && digits.bytes().all(|byte| BASE64.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_anything_else_stays() {
        assert_eq!(percent_decode(b"a%20b+c%zz%", false).unwrap(), "a b+c%zz%");
        assert_eq!(percent_decode(b"a+b", true).unwrap(), "a b");
        assert_eq!(percent_decode(b"%ff", true), None);
    }

    #[test]
    fn times_are_rfc_3339_with_any_offset_and_nothing_else() {
        for good in ["2026-11-15T12:00:00Z", "2026-11-15T12:00:00.123456Z", "2026-11-15T13:00:00+01:00"] {
            assert!(time(Kind::Invalid, "t", good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "yesterday",
            "2026-11-15",
            "2026-11-15T12:00:00",
            "2026-13-01T00:00:00Z",
            "1763200000",
            "20261115T120000Z",
            "2026-11-15T12:00:00+01:00[Europe/Berlin]",
            "2026-11-15T12:00Z",
        ] {
            assert!(time(Kind::Invalid, "t", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn base64_is_written_and_recognised() {
        for (bytes, text) in [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (&[255, 254], "//4=")]
        {
            assert_eq!(base64(bytes), text);
            assert!(is_base64(text), "{text}");
        }
        for bad in ["Z", "Zg=", "Z===", "Zm9v!", "Zm9 "] {
            assert!(!is_base64(bad), "{bad}");
        }
    }
}
