//! Rules for text: which characters identifiers may contain, and how text is shown.
//!
//! Identifiers (objects, keys, names) contain no [unprintable](is_unprintable) character. Payloads, log lines and errors may
//! contain any. Output for terminals and logs passes through [`escape`] or [`escape_json`].

use crate::error::Invalid;
use std::borrow::Cow;
use std::fmt::Write;

/// Replacement for NUL: U+2400, the symbol for NUL.
const NUL_SHOWN: &str = "\u{2400}";

/// Ranges of characters that have no glyph and can change how a terminal or a reader interprets the text around them. The
/// SQL functions contain the same list, generated from this one by [`unprintable_class`].
const UNPRINTABLE: [(char, char); 28] = [
    // C0 controls; DEL and C1 controls.
    ('\u{0}', '\u{1f}'),
    ('\u{7f}', '\u{9f}'),
    // The format characters of Unicode (Cf) and those that are ignored by default. First soft hyphen and combining
    // grapheme joiner.
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    // Arabic signs and letter mark (bidirectional); Syriac abbreviation mark.
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    // Fillers and inherent vowels that take no room; Mongolian selectors and vowel separator.
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    // Zero-width space, non-joiner and joiner; bidirectional marks.
    ('\u{200b}', '\u{200f}'),
    // Line and paragraph separator; bidirectional embeddings and overrides.
    ('\u{2028}', '\u{202e}'),
    // Word joiner, invisible operators, bidirectional isolates, deprecated format characters.
    ('\u{2060}', '\u{206f}'),
    // Blank pattern; Hangul fillers; byte order mark; interlinear annotation.
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    // Kaithi signs; hieroglyph, shorthand and music format controls.
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    // Tags. The variation selectors behind them are combining marks, as accents are, and parts of names and emoji.
    ('\u{e0000}', '\u{e00ff}'),
    ('\u{e01f0}', '\u{e0fff}'),
];

/// Whether `c` is a control, bidirectional, zero-width or tag character. Identifiers must not contain it, and output
/// shows it escaped.
pub fn is_unprintable(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_control() } else { UNPRINTABLE.iter().any(|(from, to)| (*from..=*to).contains(&c)) }
}

/// A character in quotes, escaped if it is unprintable.
pub fn quoted(c: char) -> String {
    if is_unprintable(c) { format!("'{}'", c.escape_unicode()) } else { format!("{c:?}") }
}

/// The ranges of [`is_unprintable`] as the inside of a bracket expression of a PostgreSQL regular expression. NUL is
/// omitted: PostgreSQL text cannot contain it.
pub fn unprintable_class() -> String {
    UNPRINTABLE.iter().fold(String::new(), |mut class, (from, to)| {
        let (from, to) = (u32::from(*from).max(1), u32::from(*to));
        // Writing to a string does not fail.
        let _ = write!(class, "\\U{from:08x}-\\U{to:08x}");
        class
    })
}

/// Refuses an identifier that is empty, too long or has an unprintable character.
pub fn check_text(field: &str, text: &str, bytes_max: usize) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new(field, "is empty; leave the field out instead"));
    }
    if text.len() > bytes_max {
        let reason = format!("has {} bytes; at most {bytes_max} are allowed: shorten it", text.len());
        return Err(Invalid::new(field, reason));
    }
    match text.chars().find(|c| is_unprintable(*c)) {
        Some(c) => {
            let kind = if c.is_control() { "control character" } else { "invisible character" };
            Err(Invalid::new(field, format!("may not contain the {kind} {}; leave it out", c.escape_unicode())))
        }
        None => Ok(()),
    }
}

/// Text from an external source (an error, a log line, a name) in the form that every engine can store: PostgreSQL text
/// cannot contain NUL, so its symbol replaces it.
pub fn plain(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', NUL_SHOWN)) } else { Cow::Borrowed(text) }
}

/// Text as one line for a terminal or a log: unprintable characters are written as `\n`, `\r`, `\t` or `\u{…}`.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_with(text, |c, out| match c {
        '\n' | '\r' | '\t' => out.extend(c.escape_default()),
        c => out.extend(c.escape_unicode()),
    })
}

/// JSON text with the unprintable characters in its strings written as `\uXXXX`. Control characters outside strings are
/// white space, and become spaces.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    escape_with(json, |c, out| match c {
        '\0'..='\u{1f}' => out.push(' '),
        c => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    })
}

fn escape_with(text: &str, write_escaped: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unprintable(c) { write_escaped(c, &mut out) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_is_shown_and_all_else_stays() {
        assert_eq!(plain("a\0b\0"), "a␀b␀");
        for text in ["", "a\tb\n", "größe\u{1f}", "␀"] {
            assert!(matches!(plain(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn every_control_and_bidirectional_character_is_unprintable() {
        for c in ('\0'..=char::MAX).filter(|c| c.is_control()) {
            assert!(is_unprintable(c), "{c:?}");
        }
        let others = "\u{ad}\u{61c}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2060}\u{2066}\
                      \u{2069}\u{34f}\u{115f}\u{2800}\u{3164}\u{fff9}\u{1d173}\u{feff}\u{e0001}\u{e0041}\u{e007f}";
        assert_eq!(others.chars().find(|c| !is_unprintable(*c)), None);
        let shown = " ~üßЖ中あ한😀\u{fe0f}\u{301}\u{e0100}";
        assert_eq!(shown.chars().find(|c| is_unprintable(*c)), None);
    }

    #[test]
    fn escaped_text_is_one_printable_line() {
        assert_eq!(escape("\u{1b}[2J\tü\r\n\u{9b}1m\u{202e}x\u{e0041}"), r"\u{1b}[2J\tü\r\n\u{9b}1m\u{202e}x\u{e0041}");
        let all: String = ('\0'..=char::MAX).collect();
        assert_eq!(escape(&all).chars().find(|c| is_unprintable(*c)), None);
        assert!(matches!(escape("größe 😀"), Cow::Borrowed(_)));
    }

    #[test]
    fn escaped_json_means_the_same() {
        let all: String = ('\0'..=char::MAX).collect();
        let json = serde_json::to_string(&all).unwrap();
        let escaped = escape_json(&json);
        assert_eq!(escaped.chars().find(|c| is_unprintable(*c)), None);
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), all);
        assert_eq!(escape_json("{\n\t\"a\": 1\r\n}"), "{  \"a\": 1  }");
    }

    #[test]
    fn an_identifier_has_no_unprintable_character() {
        for c in ('\0'..=char::MAX).filter(|c| is_unprintable(*c)) {
            let reason = check_text("object", &format!("a{c}b"), 10).unwrap_err().reason;
            assert!(reason.contains(&c.escape_unicode().to_string()) && !reason.contains(is_unprintable), "{reason}");
        }
        assert!(check_text("object", "", 10).is_err());
        assert!(check_text("object", "12345678901", 10).unwrap_err().reason.contains("11 bytes"));
        assert!(check_text("object", "größe 😀", 20).is_ok());
    }
}
