//! Does a JSON value read the same when it was written anew from its meaning?

/// With more keys in one object it is not looked whether one comes twice.
const KEYS_MAX: usize = 64;

/// Of text that is known to be JSON without blanks between its tokens.
pub(crate) fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    // The keys of each object that is open; none for an array.
    let mut open: Vec<Option<Vec<&str>>> = Vec::new();
    let mut key_follows = false;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let end = match byte {
            b'"' => string_end(bytes, at),
            b'-' | b'0'..=b'9' => at + bytes[at..].iter().take_while(|byte| is_of_number(**byte)).count(),
            _ => at + 1,
        };
        let token = &text[at..end];
        match byte {
            b'{' => open.push(Some(Vec::new())),
            b'[' => open.push(None),
            b'}' | b']' => drop(open.pop()),
            b'"' if key_follows => match open.last_mut() {
                // The same key may be written with escapes and without.
                Some(Some(keys)) if keys.len() < KEYS_MAX && !keys.contains(&token) && !token.contains('\\') => {
                    keys.push(token);
                }
                _ => return false,
            },
            b'-' | b'0'..=b'9' if token.contains(['e', 'E']) || token.starts_with("-0") => return false,
            _ => {}
        }
        key_follows = match byte {
            b'{' => true,
            b',' => matches!(open.last(), Some(Some(_))),
            _ => false,
        };
        at = end;
    }
    true
}

fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
}

/// Behind the string that begins here.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(ahead) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += ahead;
        match bytes[at] {
            b'"' => return at + 1,
            _ => at += 2,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_the_same_either_way_is_plain() {
        let plain = [
            "null",
            "true",
            "\"e\"",
            "-1.50",
            "[1,1,\"a\",\"a\"]",
            "{}",
            r#"{"a":{"a":1},"b":[{"a":2},{"a":3}],"e":"1e5"}"#,
            r#"{"a":"\\","b":"\",\"a\":"}"#,
            "{\"ä\":\"ö\"}",
        ];
        for text in plain {
            assert!(is_plain(text), "{text}");
        }
    }

    #[test]
    fn what_some_readers_refuse_and_take_when_it_is_written_anew_is_not() {
        let many = (0..100).map(|n| format!("\"k{n}\":0")).collect::<Vec<_>>().join(",");
        let others = [
            r#"{"a":1,"a":2}"#,
            r#"{"b":[{"a":1,"c":[],"a":2}]}"#,
            r#"{"a":1,"\u0061":2}"#,
            "1e2",
            "[1E-2]",
            r#"{"a":-0}"#,
            "-0.0",
            &format!("{{{many}}}"),
        ];
        for text in others {
            assert!(!is_plain(text), "{text}");
        }
    }
}
