//! Under which number does a value go?
//!
//! Values that are equal in a condition have the same number: `1` and `1.00` of jsonb, integers of either size. Values
//! that differ may share one, as with every hash.

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

/// Adds a value. Every value is led by its kind, and every text by its length.
pub(super) fn put(hasher: &mut impl Hasher, value: &Value<'_>) {
    match value {
        Value::Null => hasher.write_u8(0),
        Value::Bool(value) => hasher.write(&[1, u8::from(*value)]),
        Value::Int4(number) => put_whole(hasher, i64::from(*number)),
        Value::Int8(number) => put_whole(hasher, *number),
        Value::Numeric(number) => put_number(hasher, &number.to_string()),
        Value::Float8(number) => {
            // Both zeros are equal, and so are all that are no numbers.
            let number = if *number == 0.0 { 0.0 } else { *number };
            hasher.write_u8(3);
            hasher.write_u64(if number.is_nan() { u64::MAX } else { number.to_bits() });
        }
        Value::Text(text) => put_text(hasher, 4, text),
        Value::Json(nodes) => nodes.iter().for_each(|node| put_node(hasher, node)),
        Value::Time(micros) => {
            hasher.write_u8(5);
            hasher.write_i64(*micros);
        }
        Value::Uuid(uuid) => {
            hasher.write_u8(6);
            hasher.write(uuid.as_bytes());
        }
        Value::Array(elements) => {
            hasher.write_u8(7);
            hasher.write_usize(elements.len());
            elements.iter().for_each(|element| put(hasher, element));
        }
    }
}

/// Adds a scalar of jsonb, or the head of an array or an object.
pub(super) fn put_node(hasher: &mut impl Hasher, node: &Node<'_>) {
    match node {
        Node::Null => hasher.write_u8(10),
        Node::Bool(value) => hasher.write(&[11, u8::from(*value)]),
        Node::Number(number) => put_number(hasher, &number_text(number)),
        Node::Text(text) => put_text(hasher, 12, text),
        Node::Array { items, .. } => {
            hasher.write_u8(13);
            hasher.write_u32(*items);
        }
        Node::Object { pairs, .. } => {
            hasher.write_u8(14);
            hasher.write_u32(*pairs);
        }
    }
}

fn put_whole(hasher: &mut impl Hasher, number: i64) {
    hasher.write_u8(2);
    hasher.write_i64(number);
}

fn put_text(hasher: &mut impl Hasher, kind: u8, text: &str) {
    hasher.write_u8(kind);
    hasher.write_usize(text.len());
    hasher.write(text.as_bytes());
}

/// A decimal number without the zeros that change nothing.
fn put_number(hasher: &mut impl Hasher, text: &str) {
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
    put_text(hasher, 15, if text == "-0" { "0" } else { text });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::DefaultHasher;

    fn hashed(value: &Value<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        put(&mut hasher, value);
        hasher.finish()
    }

    fn node(text: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        put_node(&mut hasher, &Node::Number(text.into()));
        hasher.finish()
    }

    #[test]
    fn what_is_equal_has_one_number() {
        assert_eq!(hashed(&Value::Int4(5)), hashed(&Value::Int8(5)));
        assert_eq!(hashed(&Value::Float8(0.0)), hashed(&Value::Float8(-0.0)));
        for (a, b) in [("1", "1.00"), ("1e3", "1000"), ("-0", "0"), ("-0.0", "0"), ("100", "1e2"), ("1.50", "1.5")] {
            assert_eq!(node(a), node(b), "{a} and {b}");
        }
        assert_ne!(node("100"), node("1"));
        assert_ne!(hashed(&Value::Text("1".into())), node("1"));
    }
}
