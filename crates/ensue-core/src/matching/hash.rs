//! Which bytes stand for a value, and under which number do they go?
//!
//! Values that are equal in a condition have the same bytes, `1` and `1.00` of jsonb, integers of either size; values
//! that differ have different ones. Bytes that differ may share a number, as with every hash, so they are compared.

use crate::condition::Value;
use crate::condition::json::{Node, number_text};
use std::hash::{BuildHasher, Hasher};

/// A map from numbers that are hashes already.
pub(super) type HashedMap<V> = std::collections::HashMap<u64, V, Ready>;

/// Takes a hash for what it is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ready;

/// The hash that was handed over.
#[derive(Debug, Default)]
pub(super) struct Given(u64);

impl BuildHasher for Ready {
    type Hasher = Given;

    fn build_hasher(&self) -> Given {
        Given(0)
    }
}

impl Hasher for Given {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The bytes of the values put into it, one after the other.
#[derive(Debug, Default)]
pub(super) struct KeyBytes(pub(super) Vec<u8>);

impl KeyBytes {
    fn push(&mut self, kind: u8, bytes: &[u8]) {
        self.0.push(kind);
        self.0.extend_from_slice(bytes);
    }
}

/// Adds a value. Every value is led by its kind, and every text by its length.
pub(super) fn put(to: &mut KeyBytes, value: &Value<'_>) {
    match value {
        Value::Null => to.push(0, &[]),
        Value::Bool(value) => to.push(1, &[u8::from(*value)]),
        Value::Int4(number) => to.push(2, &i64::from(*number).to_le_bytes()),
        Value::Int8(number) => to.push(2, &number.to_le_bytes()),
        Value::Numeric(number) => put_number(to, &number.to_string()),
        Value::Float8(number) => {
            // Both zeros are equal, and so are all that are no numbers.
            let number = if *number == 0.0 { 0.0 } else { *number };
            to.push(3, &if number.is_nan() { u64::MAX } else { number.to_bits() }.to_le_bytes());
        }
        Value::Text(text) => put_text(to, 4, text),
        Value::Json(nodes) => nodes.iter().for_each(|node| put_node(to, node)),
        Value::Time(micros) => to.push(5, &micros.to_le_bytes()),
        Value::Uuid(uuid) => to.push(6, uuid.as_bytes()),
        Value::Array(elements) => {
            to.push(7, &elements.len().to_le_bytes());
            elements.iter().for_each(|element| put(to, element));
        }
    }
}

/// Adds a scalar of jsonb, or the head of an array or an object.
pub(super) fn put_node(to: &mut KeyBytes, node: &Node<'_>) {
    match node {
        Node::Null => to.push(10, &[]),
        Node::Bool(value) => to.push(11, &[u8::from(*value)]),
        Node::Number(number) => put_number(to, &number_text(number)),
        Node::Text(text) => put_text(to, 12, text),
        Node::Array { items, .. } => to.push(13, &items.to_le_bytes()),
        Node::Object { pairs, .. } => to.push(14, &pairs.to_le_bytes()),
    }
}

fn put_text(to: &mut KeyBytes, kind: u8, text: &str) {
    to.push(kind, &text.len().to_le_bytes());
    to.0.extend_from_slice(text.as_bytes());
}

/// A decimal number without the zeros that change nothing.
fn put_number(to: &mut KeyBytes, text: &str) {
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
    put_text(to, 15, if text == "-0" { "0" } else { text });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(value: &Value<'_>) -> Vec<u8> {
        let mut bytes = KeyBytes::default();
        put(&mut bytes, value);
        bytes.0
    }

    fn node(text: &str) -> Vec<u8> {
        let mut bytes = KeyBytes::default();
        put_node(&mut bytes, &Node::Number(text.into()));
        bytes.0
    }

    #[test]
    fn what_is_equal_has_the_same_bytes() {
        assert_eq!(bytes(&Value::Int4(5)), bytes(&Value::Int8(5)));
        assert_eq!(bytes(&Value::Float8(0.0)), bytes(&Value::Float8(-0.0)));
        for (a, b) in [("1", "1.00"), ("1e3", "1000"), ("-0", "0"), ("-0.0", "0"), ("100", "1e2"), ("1.50", "1.5")] {
            assert_eq!(node(a), node(b), "{a} and {b}");
        }
        assert_ne!(node("100"), node("1"));
        assert_ne!(bytes(&Value::Text("1".into())), node("1"));
    }
}
