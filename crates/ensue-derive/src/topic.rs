//! May somebody publish under this topic?
//!
//! The rules are `ensue-core`'s (`key.rs`). They stand here once more because a macro that depended on the core would
//! have it, with its parser and its hashes, built a second time for the compiler; the test below holds the two together.

const BYTES_MAX: usize = 255;
const RESERVED: &str = "ensue";

/// Letters that are invisible.
const FILLERS: [char; 4] = ['\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}'];

fn segment_char(c: char) -> bool {
    c.is_alphanumeric() && !FILLERS.contains(&c) || matches!(c, '_' | '-' | ':' | '/' | '@' | '+' | '~' | '=' | '$')
}

/// Dotted segments, as `record` or `acme.record`.
pub fn check_part(part: &str) -> Result<(), String> {
    if part.is_empty() {
        return Err("is empty; write a segment such as `record`".into());
    }
    if part.split('.').any(str::is_empty) {
        return Err("has an empty segment; write one dot between segments and none at the ends".into());
    }
    match part.chars().find(|c| *c != '.' && !segment_char(*c)) {
        Some(c) => Err(format!("may not contain {c:?}; use letters, digits and _ - : / @ + ~ = $ between dots")),
        None => Ok(()),
    }
}

/// What holds for all of its parts together.
pub fn check_whole(topic: &str) -> Result<(), String> {
    if topic.len() > BYTES_MAX {
        return Err(format!("has {} bytes; at most {BYTES_MAX} are allowed: shorten it", topic.len()));
    }
    if topic.split('.').next() == Some(RESERVED) {
        return Err("begins with `ensue.`: those are the system's own events; choose another first segment".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue::Topic;

    fn is_compiled(topic: &str) -> bool {
        check_part(topic).is_ok() && check_whole(topic).is_ok()
    }

    #[test]
    fn every_character_is_judged_as_the_core_judges_it() {
        for c in '\0'..=char::MAX {
            let topic = format!("a{c}b");
            assert_eq!(is_compiled(&topic), Topic::parse(&topic).is_ok(), "{c:?}");
        }
    }

    #[test]
    fn every_shape_is_judged_as_the_core_judges_it() {
        let long = ["a".repeat(255), "a".repeat(256), format!("{}.b", "a".repeat(254)), "ü".repeat(128)];
        let short = ["", ".", "a", "a.", ".a", "a..b", "a.b.c", "ensue", "ensue.a", "ensues.a", "a.ensue", "Ensue.a"];
        for topic in long.iter().map(String::as_str).chain(short) {
            assert_eq!(is_compiled(topic), Topic::parse(topic).is_ok(), "{topic}");
        }
    }
}
