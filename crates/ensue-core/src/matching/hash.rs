//! Which bytes stand for a value, and under which number do they go?
//!
//! Values that are equal in a condition have the same bytes, `1` and `1.00` of jsonb, integers of either size; values
//! that differ have different ones. Bytes that differ may share a number, as with every hash, so they are compared.

use crate::condition::json::{Node, Tree, number_text, of_value, plain_number};
use crate::condition::meter::Meter;
use crate::condition::{Failure, Value};
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

/// The keys of one event, each written once however many entries ask for it.
#[derive(Debug, Default)]
pub(super) struct EventKeys {
    /// Which event this is, so that what was written for another is known as such.
    event: u64,
    written: Vec<Written>,
    bytes: KeyBytes,
    /// Up to here the bytes are kept for others; what follows is overwritten.
    kept: usize,
}

/// A key of an event that is longer than this is written again for each who asks, so that a large event needs no more
/// room than its largest key.
const KEPT_BYTES_MAX: usize = 1 << 10;

/// What is known about one form of key.
#[derive(Debug, Clone, Default)]
struct Written {
    event: u64,
    /// Where its bytes are, and their hash; none if nobody can have that key.
    place: Option<(std::ops::Range<usize>, u64)>,
}

impl EventKeys {
    /// Forgets the keys of the event before.
    pub(super) fn next_event(&mut self) {
        self.event += 1;
        self.kept = 0;
    }

    /// The bytes and the hash of a key in this form. `write` is called once per event, unless it fails or the key is long.
    pub(super) fn get(
        &mut self,
        form: usize,
        keys: &impl BuildHasher,
        write: impl FnOnce(&mut KeyBytes) -> Result<Option<()>, Failure>,
    ) -> Result<Option<(&[u8], u64)>, Failure> {
        if self.written.len() <= form {
            self.written.resize(form + 1, Written::default());
        }
        if self.written[form].event == self.event {
            let place = self.written[form].place.clone();
            return Ok(place.map(|(range, hash)| (&self.bytes.0[range], hash)));
        }
        let start = self.kept;
        let Some((key, hash)) = self.once(keys, write)? else {
            self.written[form] = Written { event: self.event, place: None };
            return Ok(None);
        };
        let end = start + key.len();
        if key.len() <= KEPT_BYTES_MAX {
            self.kept = end;
            self.written[form] = Written { event: self.event, place: Some((start..end, hash)) };
        }
        Ok(Some((&self.bytes.0[start..end], hash)))
    }

    /// The bytes and the hash of a key that is written for one alone.
    pub(super) fn once(
        &mut self,
        keys: &impl BuildHasher,
        write: impl FnOnce(&mut KeyBytes) -> Result<Option<()>, Failure>,
    ) -> Result<Option<(&[u8], u64)>, Failure> {
        self.bytes.0.truncate(self.kept);
        if write(&mut self.bytes)?.is_none() {
            return Ok(None);
        }
        let bytes = &self.bytes.0[self.kept..];
        Ok(Some((bytes, keys.hash_one(bytes))))
    }
}

/// The bytes of a key, kept: short ones without a place of their own.
#[derive(Debug, Clone)]
pub(super) enum Key {
    Short { length: u8, bytes: [u8; SHORT_MAX] },
    Long(Box<[u8]>),
}

/// So that a key takes no more room than the pointer to a long one and what goes with it.
const SHORT_MAX: usize = 22;

impl Key {
    pub(super) fn new(key: &[u8]) -> Self {
        let mut bytes = [0; SHORT_MAX];
        match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(room), Ok(length)) => {
                room.copy_from_slice(key);
                Self::Short { length, bytes }
            }
            (None, _) | (_, Err(_)) => Self::Long(key.into()),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
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
        Value::Json(json) => {
            let tree = json.tree();
            tree.nodes().iter().for_each(|node| put_node(to, tree, *node));
        }
        Value::Time(micros) => to.push(5, &micros.to_le_bytes()),
        Value::Uuid(uuid) => to.push(6, uuid.as_bytes()),
        Value::Array(elements) => {
            to.push(7, &elements.len().to_le_bytes());
            elements.iter().for_each(|element| put(to, element));
        }
    }
}

/// Adds a node of a jsonb value: a scalar, or the head of an array or an object.
fn put_node(to: &mut KeyBytes, tree: Tree<'_>, node: Node) {
    match node {
        Node::Null => to.push(10, &[]),
        Node::Bool(value) => to.push(11, &[u8::from(value)]),
        Node::Number(span) => put_number(to, &number_text(tree.text(span))),
        Node::Text(span) => put_text(to, 12, tree.text(span)),
        Node::Array { items, .. } => to.push(13, &items.to_le_bytes()),
        Node::Object { pairs, .. } => to.push(14, &pairs.to_le_bytes()),
    }
}

/// Adds a jsonb value that is a scalar.
pub(super) fn put_scalar(to: &mut KeyBytes, scalar: Tree<'_>) {
    put_node(to, scalar, scalar.head());
}

/// Adds a value as the scalar that it is inside a jsonb object or array. All arrays are the same, and all objects.
pub(super) fn put_as_scalar(to: &mut KeyBytes, value: &Value<'_>) {
    match value {
        Value::Null => to.push(10, &[]),
        Value::Array(_) => to.push(16, &[]),
        Value::Json(json) => put_member(to, json.tree()),
        Value::Bool(value) => to.push(11, &[u8::from(*value)]),
        Value::Text(text) => put_text(to, 12, text),
        Value::Numeric(number) if number.scale().is_some() => put_number(to, &number.to_string()),
        other => {
            let meter = Meter::new();
            match of_value(other, &meter) {
                Ok(json) => put_scalar(to, json.tree()),
                Err(_) => to.push(10, &[]),
            }
        }
    }
}

/// Adds the name of a member, as the text that it is.
pub(super) fn put_name(to: &mut KeyBytes, name: &str) {
    put_text(to, 12, name);
}

/// Adds a jsonb value as [`put_as_scalar`] does.
pub(super) fn put_member(to: &mut KeyBytes, value: Tree<'_>) {
    match value.head() {
        Node::Array { .. } => to.push(16, &[]),
        Node::Object { .. } => to.push(17, &[]),
        scalar => put_node(to, value, scalar),
    }
}

fn put_text(to: &mut KeyBytes, kind: u8, text: &str) {
    to.push(kind, &u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    to.0.extend_from_slice(text.as_bytes());
}

fn put_number(to: &mut KeyBytes, text: &str) {
    put_text(to, 15, plain_number(text));
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
        put_number(&mut bytes, &number_text(text));
        bytes.0
    }

    #[test]
    fn keys_of_every_length_are_kept() {
        for length in [0, 1, SHORT_MAX, SHORT_MAX + 1, 1_000] {
            let bytes = vec![7; length];
            assert_eq!(Key::new(&bytes).bytes(), bytes);
        }
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
