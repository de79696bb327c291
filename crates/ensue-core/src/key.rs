//! What may a topic or an object be called?
//!
//! One naming system everywhere: dotted keys, parent before child. `order` is the parent of `order.paid`, never of
//! `orders`. A segment has letters and digits of any script
//! and `_ - : / @ + ~ = $`.

use crate::error::Invalid;
use crate::text::{check_text, is_unprintable, quoted};
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// The longest topic, in bytes.
pub const TOPIC_BYTES_MAX: usize = 255;
/// The longest object key, in bytes.
pub const OBJECT_BYTES_MAX: usize = 512;
/// The longest idempotency key, in bytes.
pub const KEY_BYTES_MAX: usize = 512;
/// What leads each part of an idempotency key that is made of several: a control character, which no other key can have.
pub const PART_MARK: char = '\u{1f}';
/// The first segment that only Ensue itself publishes under.
pub const RESERVED: &str = "ensue";

/// May this character stand in a segment of a dotted key?
pub fn segment_char(c: char) -> bool {
    c.is_alphanumeric() && !is_unprintable(c) || matches!(c, '_' | '-' | ':' | '/' | '@' | '+' | '~' | '=' | '$')
}

/// Is `key` the prefix itself or below it, by whole segments?
pub fn is_under(prefix: &str, key: &str) -> bool {
    match key.strip_prefix(prefix) {
        Some(rest) => rest.is_empty() || rest.starts_with('.'),
        None => false,
    }
}

fn check_dotted(field: &str, key: &str) -> Result<(), Invalid> {
    if key.is_empty() {
        return Err(Invalid::new(field, "is empty; write dotted segments such as `order.paid`"));
    }
    if key.len() > TOPIC_BYTES_MAX {
        let reason = format!("has {} bytes; at most {TOPIC_BYTES_MAX} are allowed: shorten it", key.len());
        return Err(Invalid::new(field, reason));
    }
    if key.split('.').any(str::is_empty) {
        let reason = "has an empty segment; write one dot between segments and none at the ends, as in `order.paid`";
        return Err(Invalid::new(field, reason));
    }
    if let Some(c) = key.chars().find(|c| *c != '.' && !segment_char(*c)) {
        let reason = format!("may not contain {}; use letters, digits and _ - : / @ + ~ = $ between dots", quoted(c));
        return Err(Invalid::new(field, reason));
    }
    Ok(())
}

macro_rules! text_key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The key as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// A key read back from a store, which let only valid ones in.
            pub fn stored(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }
    };
}

text_key!(
    /// What kind of thing happened: dotted, at most 255 bytes, such as `record.published`.
    Topic
);
text_key!(
    /// What an event is about, such as `work:1`: any text of up to 512 bytes without unprintable characters.
    /// Events of one object are chained and handled in order.
    ObjectKey
);
text_key!(
    /// What a group of subscriptions or a handler is called: dotted, at most 255 bytes, such as `record.published.index`.
    GroupName
);
text_key!(
    /// A caller's own name for one publish: sent twice within the window, it is stored once.
    IdempotencyKey
);

impl Topic {
    /// A topic that somebody may publish under: dotted, and not below `ensue.`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        check_dotted("topic", text)?;
        if is_under(RESERVED, text) {
            let reason = "may not be `ensue` or begin with `ensue.`: those are the system's own events; choose another first segment";
            return Err(Invalid::new("topic", reason));
        }
        Ok(Self(text.into()))
    }

    /// What an event that is being built has until it is told; without a segment, so never that of a checked one.
    pub(crate) fn unset() -> Self {
        Self(Arc::default())
    }

    /// A topic to filter by: any dotted key, the system's own included.
    pub fn parse_filter(text: &str) -> Result<Self, Invalid> {
        check_dotted("topic", text)?;
        Ok(Self(text.into()))
    }

    /// Is this topic `prefix` itself or below it?
    pub fn is_under(&self, prefix: &Topic) -> bool {
        is_under(&prefix.0, &self.0)
    }
}

impl GroupName {
    /// A group's name, checked; `field` is what its author calls it.
    pub fn parse(field: &str, text: &str) -> Result<Self, Invalid> {
        check_dotted(field, text)?;
        Ok(Self(text.into()))
    }

    /// The key of a handler: what it is bound to and its name.
    pub fn of_handler(binding: &str, name: &str) -> Result<Self, Invalid> {
        check_dotted("on", binding)?;
        check_dotted("name", name)?;
        Self::parse("name", &format!("{binding}.{name}"))
    }
}

impl ObjectKey {
    /// An object key, checked.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        check_text("object", text, OBJECT_BYTES_MAX)?;
        Ok(Self(text.into()))
    }

    /// An object key to look for. It may have characters that new keys must not have: events stored by an earlier version
    /// can.
    pub fn parse_filter(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() || text.len() > OBJECT_BYTES_MAX || text.contains('\0') {
            return Self::parse(text);
        }
        Ok(Self(text.into()))
    }
}

impl IdempotencyKey {
    /// An idempotency key, checked.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        check_text("key", text, KEY_BYTES_MAX)?;
        Ok(Self(text.into()))
    }

    /// A key made of two parts, such as a CloudEvent's `source` and `id`. Each part is led by [`PART_MARK`], which
    /// neither a part nor a key of one piece can have: so `a` + `b:c` and `a:b` + `c` differ (S8), and nobody's own key
    /// is ever taken for one made of parts.
    pub fn of_parts(first: &str, second: &str) -> Result<Self, Invalid> {
        let key = format!("{PART_MARK}{first}{PART_MARK}{second}");
        for part in [first, second] {
            check_text("key", part, KEY_BYTES_MAX)?;
        }
        if key.len() > KEY_BYTES_MAX {
            let reason = format!("has {} bytes; at most {KEY_BYTES_MAX} are allowed: shorten its parts", key.len());
            return Err(Invalid::new("key", reason));
        }
        Ok(Self(key.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_dotted_segments_of_at_most_255_bytes() {
        for good in ["a", "order.paid", "a-b_c:d/e.f", "größe.übernommen", "x.y.z", &"a".repeat(255)] {
            assert!(Topic::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "a b", "a\n", "a%", "a*", "a,b", &"a".repeat(256)] {
            let error = Topic::parse(bad).unwrap_err();
            assert_eq!(error.field, "topic", "{bad}");
        }
    }

    #[test]
    fn nobody_publishes_under_the_systems_own_prefix_but_anybody_may_read_it() {
        assert!(Topic::parse("ensue").is_err());
        assert!(Topic::parse("ensue.job.dead").is_err());
        assert!(Topic::parse("ensues.job").is_ok());
        assert!(Topic::parse_filter("ensue.job").is_ok());
    }

    #[test]
    fn a_parent_has_its_children_by_whole_segments() {
        assert!(is_under("order", "order"));
        assert!(is_under("order", "order.paid"));
        assert!(!is_under("order", "orders"));
        assert!(!is_under("order.paid", "order"));
    }

    #[test]
    fn keys_built_from_parts_do_not_run_into_each_other() {
        let one = IdempotencyKey::of_parts("a", "b:c").unwrap();
        let other = IdempotencyKey::of_parts("a:b", "c").unwrap();
        assert_ne!(one, other);
    }

    /// S8: a caller's own key cannot be the key of somebody's CloudEvent.
    #[test]
    fn a_key_of_parts_is_never_a_plain_key() {
        let of_parts = IdempotencyKey::of_parts("/shop", "17").unwrap();
        assert!(IdempotencyKey::parse(of_parts.as_str()).is_err());
        for plain in ["5:/shop:17", "/shop17", "/shop 17", "/shop:17"] {
            assert_ne!(IdempotencyKey::parse(plain).unwrap(), of_parts);
        }
        // Nor can a part reach over into the other.
        assert!(IdempotencyKey::of_parts("a\u{1f}b", "c").is_err());
        assert!(IdempotencyKey::of_parts("a", "b\u{1f}c").is_err());
    }

    #[test]
    fn a_key_of_parts_is_bounded_as_any_key_is() {
        let (source, id) = ("s".repeat(200), "i".repeat(310));
        assert_eq!(IdempotencyKey::of_parts(&source, &id).unwrap().as_str().len(), KEY_BYTES_MAX);
        assert!(IdempotencyKey::of_parts(&source, &format!("{id}i")).unwrap_err().reason.contains("513"));
        assert!(IdempotencyKey::of_parts("", "a").is_err());
    }
}
