//! What does a rule hold?

use crate::error::Invalid;
use crate::key::{GroupName, OBJECT_BYTES_MAX, ObjectKey, is_under};
use std::fmt;

/// Whose rule it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleKind {
    /// A user's.
    Pause,
    /// An operator's.
    Block,
}

impl RuleKind {
    /// Its word in stores, paths and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Block => "block",
        }
    }

    /// From its word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Pause, Self::Block].into_iter().find(|kind| kind.as_str() == word)
    }
}

/// What a rule holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// A handler, and all whose keys are below this one.
    Handler(GroupName),
    /// An object, whoever handles it.
    Object(ObjectKey),
    /// A schedule.
    Schedule(GroupName),
}

impl Scope {
    /// From its text: `handler:KEY`, `object:KEY` or `schedule:NAME`. The object may be one that is stored already:
    /// [`NewRule::check`](super::NewRule::check) refuses characters that new objects must not have.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let Some((word, key)) = text.split_once(':') else { return Err(unknown(text)) };
        match word {
            "handler" => Ok(Self::Handler(GroupName::parse("scope", key)?)),
            "object" => match ObjectKey::parse_filter(key) {
                Ok(object) => Ok(Self::Object(object)),
                Err(invalid) => Err(Invalid::new("scope", invalid.reason)),
            },
            "schedule" => Ok(Self::Schedule(GroupName::parse("scope", key)?)),
            _ => Err(unknown(text)),
        }
    }

    /// Back from the text that an engine kept.
    pub fn stored(text: &str) -> Option<Self> {
        match text.split_once(':')? {
            ("handler", key) => Some(Self::Handler(GroupName::stored(key))),
            ("object", key) => Some(Self::Object(ObjectKey::stored(key))),
            ("schedule", key) => Some(Self::Schedule(GroupName::stored(key))),
            _ => None,
        }
    }

    /// Does it hold this handler?
    pub fn holds_handler(&self, handler: &GroupName) -> bool {
        matches!(self, Self::Handler(prefix) if is_under(prefix.as_str(), handler.as_str()))
    }

    /// The scope as the object of an event: rules on one scope are in order.
    pub fn as_object(&self) -> Option<ObjectKey> {
        let object = format!("rule:{self}");
        (object.len() <= OBJECT_BYTES_MAX).then(|| ObjectKey::stored(&object))
    }
}

fn unknown(text: &str) -> Invalid {
    let reason = format!("{text:?} is not one of `handler:KEY`, `object:KEY` and `schedule:NAME`");
    Invalid::new("scope", reason)
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handler(key) => write!(f, "handler:{key}"),
            Self::Object(key) => write!(f, "object:{key}"),
            Self::Schedule(name) => write!(f, "schedule:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_its_text() {
        for text in ["handler:acme.worker", "object:order:1", "schedule:nightly"] {
            let scope = Scope::parse(text).unwrap();
            assert_eq!(scope.to_string(), text);
            assert_eq!(Scope::stored(text), Some(scope));
        }
        for bad in ["", "acme.worker", "handler:", "handler:a..b", "object:", "queue:x", "schedule:a b", "Handler:a"] {
            assert_eq!(Scope::parse(bad).unwrap_err().field, "scope", "{bad}");
        }
    }

    #[test]
    fn a_prefix_holds_by_whole_segments() {
        let scope = Scope::parse("handler:acme.worker").unwrap();
        assert!(scope.holds_handler(&GroupName::stored("acme.worker")));
        assert!(scope.holds_handler(&GroupName::stored("acme.worker.email")));
        assert!(!scope.holds_handler(&GroupName::stored("acme.workers")));
        assert!(!Scope::parse("object:acme.worker").unwrap().holds_handler(&GroupName::stored("acme.worker")));
    }
}
