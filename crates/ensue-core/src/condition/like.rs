//! Does a text match a LIKE pattern?
//!
//! `%` is any text, `_` one character, `\` takes the next one as it is. Only the last `%` ever needs to be tried again,
//! so the work is at most text times pattern, and every step is paid for.

use super::failure::Failure;
use super::meter::Meter;
use std::borrow::Cow;

/// Steps to look at a byte of the text.
const STEPS_PER_BYTE: usize = 2;

/// Which letters count as the same?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// LIKE
    Kept,
    /// ILIKE: under collation C only ASCII letters have another case.
    Ignored,
}

/// What the pattern wants next.
enum Wanted {
    Any,
    One,
    /// This byte, and how many bytes of the pattern say so.
    Byte(u8, usize),
}

fn wanted(pattern: &[u8]) -> Result<Option<Wanted>, Failure> {
    Ok(match pattern {
        [] => None,
        [b'%', ..] => Some(Wanted::Any),
        [b'_', ..] => Some(Wanted::One),
        [b'\\'] => return Err(Failure::PatternEnd),
        [b'\\', byte, ..] => Some(Wanted::Byte(*byte, 2)),
        [byte, ..] => Some(Wanted::Byte(*byte, 1)),
    })
}

fn character_bytes(first: u8) -> usize {
    match first {
        0x00..0xC0 => 1,
        0xC0..0xE0 => 2,
        0xE0..0xF0 => 3,
        0xF0..=0xFF => 4,
    }
}

/// Does the whole text match the pattern?
pub(super) fn like(text: &str, pattern: &str, case: Case, meter: &Meter) -> Result<bool, Failure> {
    let (mut text, mut pattern) = (text.as_bytes(), pattern.as_bytes());
    let same = |a: u8, b: u8| match case {
        Case::Kept => a == b,
        Case::Ignored => a.eq_ignore_ascii_case(&b),
    };
    // Where to go on when a byte does not fit: the pattern after the last `%`, and where it was tried in the text.
    let mut again: Option<(&[u8], &[u8])> = None;
    let mut steps = 0;
    let matched = loop {
        steps += STEPS_PER_BYTE;
        if steps >= 1024 {
            meter.steps(steps)?;
            steps = 0;
        }
        if text.is_empty() {
            // What is left of the pattern may only be `%`: trying again with less text cannot help.
            let anys = pattern.iter().take_while(|byte| **byte == b'%').count();
            steps += anys;
            break anys == pattern.len();
        }
        let fits = match wanted(pattern)? {
            Some(Wanted::Any) => {
                pattern = &pattern[1..];
                while let Some(Wanted::Any | Wanted::One) = wanted(pattern)? {
                    steps += STEPS_PER_BYTE;
                    if pattern[0] == b'_' {
                        if text.is_empty() {
                            return Ok(false);
                        }
                        text = &text[character_bytes(text[0]).min(text.len())..];
                    }
                    pattern = &pattern[1..];
                }
                if pattern.is_empty() {
                    break true;
                }
                again = Some((pattern, text));
                continue;
            }
            Some(Wanted::One) => {
                text = &text[character_bytes(text[0]).min(text.len())..];
                pattern = &pattern[1..];
                true
            }
            Some(Wanted::Byte(byte, length)) if same(byte, text[0]) => {
                text = &text[1..];
                pattern = &pattern[length..];
                true
            }
            Some(Wanted::Byte(..)) | None => false,
        };
        if !fits {
            let Some((after, from)) = again else { break false };
            let from = &from[character_bytes(from[0]).min(from.len())..];
            (pattern, text) = (after, from);
            again = Some((after, from));
        }
    };
    meter.steps(steps)?;
    Ok(matched)
}

/// The pattern with `\` in the place of another escape character; an empty escape means that there is none.
pub(super) fn with_backslash<'a>(pattern: &'a str, escape: &str, meter: &Meter) -> Result<Cow<'a, str>, Failure> {
    meter.steps(pattern.len().saturating_mul(STEPS_PER_BYTE))?;
    meter.build(pattern.len().saturating_mul(2))?;
    let mut characters = escape.chars();
    let escape = match (characters.next(), characters.next()) {
        (Some('\\'), None) => return Ok(Cow::Borrowed(pattern)),
        (Some(escape), None) => Some(escape),
        (None, _) => None,
        (Some(_), Some(_)) => return Err(Failure::EscapeLength),
    };
    let mut rewritten = String::with_capacity(pattern.len() + 8);
    let mut after_escape = false;
    for character in pattern.chars() {
        if Some(character) == escape && !after_escape {
            rewritten.push('\\');
            after_escape = true;
            continue;
        }
        if character == '\\' && !after_escape {
            rewritten.push('\\');
        }
        rewritten.push(character);
        after_escape = false;
    }
    Ok(Cow::Owned(rewritten))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(text: &str, pattern: &str) -> bool {
        like(text, pattern, Case::Kept, &Meter::new()).unwrap()
    }

    #[test]
    fn patterns_match_whole_texts() {
        for (text, pattern) in [
            ("", ""),
            ("", "%"),
            ("abc", "abc"),
            ("abc", "a%"),
            ("abc", "%c"),
            ("abc", "%b%"),
            ("abc", "_b_"),
            ("aäc", "a_c"),
            ("abab", "%ab"),
            ("a%c", "a\\%c"),
            ("a\\c", "a\\\\c"),
            ("aXbXc", "a%X%c"),
            ("ää", "%_ä"),
        ] {
            assert!(matches(text, pattern), "{text} LIKE {pattern}");
        }
        for (text, pattern) in
            [("abc", "b"), ("abc", "ab"), ("", "_"), ("ä", "__"), ("abc", "a\\%"), ("ab", "%_%_%_%"), ("Abc", "abc")]
        {
            assert!(!matches(text, pattern), "{text} LIKE {pattern}");
        }
    }

    #[test]
    fn only_ascii_has_another_case() {
        let ilike = |text, pattern| like(text, pattern, Case::Ignored, &Meter::new()).unwrap();
        assert!(ilike("ORDER.Paid", "order.%"));
        assert!(!ilike("Ä", "ä"));
    }

    #[test]
    fn a_pattern_that_ends_in_its_escape_fails_where_it_is_reached() {
        assert_eq!(like("abc", "a\\", Case::Kept, &Meter::new()), Err(Failure::PatternEnd));
        assert!(!matches("abc", "x\\"));
    }

    #[test]
    fn another_escape_becomes_a_backslash() {
        assert_eq!(with_backslash("a!%\\b!!", "!", &Meter::new()).unwrap(), "a\\%\\\\b\\!");
        assert_eq!(with_backslash("a\\%", "", &Meter::new()).unwrap(), "a\\\\%");
        assert_eq!(with_backslash("a", "xx", &Meter::new()), Err(Failure::EscapeLength));
    }

    #[test]
    fn a_hostile_pattern_is_stopped() {
        let (text, pattern) = ("a".repeat(1 << 20), format!("%{}b", "a".repeat(1 << 13)));
        assert!(matches!(like(&text, &pattern, Case::Kept, &Meter::new()), Err(Failure::TooCostly(_))));
    }
}
