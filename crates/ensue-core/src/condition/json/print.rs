//! What is the text of a `jsonb` value?

use super::Node;
use crate::condition::failure::Failure;
use crate::condition::numeric::Numeric;

/// The text as Postgres writes it: a blank after each colon and comma, numbers without exponent.
pub(in crate::condition) fn print(value: &[Node<'_>]) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &[Node<'_>], to: &mut String) {
    match &value[0] {
        Node::Null => to.push_str("null"),
        Node::Bool(true) => to.push_str("true"),
        Node::Bool(false) => to.push_str("false"),
        Node::Number(number) => to.push_str(&number_text(number)),
        Node::Text(text) => write_string(text, to),
        Node::Array { .. } => {
            to.push('[');
            for (index, item) in super::items(value).enumerate() {
                if index > 0 {
                    to.push_str(", ");
                }
                write(item, to);
            }
            to.push(']');
        }
        Node::Object { .. } => {
            to.push('{');
            for (index, (key, item)) in super::pairs(value).enumerate() {
                if index > 0 {
                    to.push_str(", ");
                }
                write_string(key, to);
                to.push_str(": ");
                write(item, to);
            }
            to.push('}');
        }
    }
}

/// A number without exponent and without a minus before zero; almost always as it was written.
pub(crate) fn number_text(number: &str) -> std::borrow::Cow<'_, str> {
    if !number.starts_with("-0") && !number.contains(['e', 'E']) {
        return number.into();
    }
    match Numeric::parse(number) {
        Ok(numeric) => numeric.to_string().into(),
        // Cannot be: the parser let only numbers in.
        Err(_) => number.into(),
    }
}

/// One text for every way to write a value: fields in order, numbers without the zeros that change nothing.
pub(in crate::condition) fn identity(text: &str) -> Result<String, Failure> {
    let mut nodes = Vec::new();
    super::parse(text, &mut nodes)?;
    let plain = |node| match node {
        Node::Number(number) => Node::Number(plain_number(&number_text(&number)).to_owned().into()),
        other => other,
    };
    let nodes: Vec<Node<'_>> = nodes.into_iter().map(plain).collect();
    Ok(print(&nodes))
}

/// A decimal number without the zeros that change nothing.
pub(crate) fn plain_number(text: &str) -> &str {
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
    if text == "-0" { "0" } else { text }
}

fn write_string(text: &str, to: &mut String) {
    to.push('"');
    for character in text.chars() {
        match character {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            '\u{8}' => to.push_str("\\b"),
            '\u{c}' => to.push_str("\\f"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            '\0'..' ' => to.push_str(&format!("\\u{:04x}", u32::from(character))),
            other => to.push(other),
        }
    }
    to.push('"');
}
