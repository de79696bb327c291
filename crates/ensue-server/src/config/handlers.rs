//! What does the config file say about handlers?
//!
//! Only the shape is read here; whether it can be is looked at in `handlers_check.rs`. Whatever can be wrong keeps its
//! place in the file.

use super::command_line::CommandLine;
use super::units::Span;
use ensue::{Mode, OnExhausted, Start};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The key `handlers` of the config file: dotted keys, each with its handlers, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HandlersSection(pub Vec<(Spanned<String>, Vec<Spanned<Entry>>)>);

/// One handler of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// One that is compiled into the application, by its name.
    CompiledIn(String),
    /// One that the file describes.
    Described(Box<Fields>),
}

/// What can be said about a handler.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fields {
    /// The last part of its key.
    pub name: Option<Spanned<String>>,
    /// A program and its arguments.
    pub command: Option<Spanned<CommandLine>>,
    /// A URL that every event is posted to.
    pub webhook: Option<Spanned<String>>,
    /// The form of the body that is posted.
    pub format: Option<Spanned<WebhookFormat>>,
    /// What is done with the receiver's answer.
    pub answer: Option<Spanned<WebhookAnswer>>,
    /// Workers elsewhere claim its deliveries.
    pub pull: Option<Spanned<bool>>,
    /// Only events for which this holds.
    #[serde(rename = "where")]
    pub condition: Option<Spanned<String>>,
    /// What the condition reads as `s.params`.
    pub params: Option<Spanned<serde_json::Value>>,
    /// Where it begins when it is new.
    pub start: Option<StartWord>,
    /// One after another for each object?
    pub ordered: Option<bool>,
    /// How many at once.
    pub concurrency: Option<Spanned<usize>>,
    /// How long an attempt may take.
    pub timeout: Option<Spanned<Wait>>,
    /// How often, and after how long.
    pub retry: Option<Spanned<RetryFields>>,
    /// What then.
    pub on_exhausted: Option<OnExhaustedWord>,
    /// Does a publish wait for it?
    pub mode: Option<ModeWord>,
    /// Which lines are kept.
    pub logs: Option<Logs>,
    /// Is every delivery recorded?
    pub audit: Option<bool>,
}

/// The form in which a webhook gets an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WebhookFormat {
    /// The JSON of `GET /v1/events/{seq}`.
    #[default]
    Json,
    /// A CloudEvent in structured mode.
    CloudEvents,
}

/// What is done with the answer of a webhook's receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WebhookAnswer {
    /// Nothing.
    #[default]
    Ignore,
    /// Its `events` are published and its `jobs` are sent with the end of the attempt.
    Send,
}

/// `retry`: attempts with delays that grow, or a list of delays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryFields {
    /// How many attempts, the first included.
    pub attempts_max: Option<u32>,
    /// The most that the first delay can be.
    pub first: Option<Wait>,
    /// The most that any delay can be.
    pub max: Option<Wait>,
    /// These delays exactly.
    pub delays: Option<Vec<Wait>>,
}

/// Which lines of an attempt are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Logs {
    /// Those of attempts that fail.
    #[default]
    Failures,
    /// All.
    Always,
}

/// The key `history` of the config file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HistorySection {
    /// How many recorded deliveries are kept.
    pub count: Option<u64>,
    /// For how long.
    pub age: Option<Span>,
    /// For how long tasks are kept; `age` if it is not said.
    pub tasks: Option<Span>,
}

/// The key `webhooks` of the config file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhooksSection {
    /// Addresses that are not public and are meant all the same.
    pub allow_private: Vec<std::net::IpAddr>,
    /// A PEM file with certificates of authorities that are trusted beside those of the system.
    pub ca_file: Option<Spanned<PathBuf>>,
}

/// A length of time that may be nothing at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait(pub Duration);

/// `now`, `beginning` or a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartWord(pub Start);

/// `hold`, `skip` or `dead_letter_object`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnExhaustedWord(pub OnExhausted);

/// `sync` or `async`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeWord(pub Mode);

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let unit = text.trim_start_matches('0');
        if unit.len() < text.len() && format!("1{unit}").parse::<Span>().is_ok() && !unit.starts_with(char::is_numeric)
        {
            return Ok(Self(Duration::ZERO));
        }
        let span: Span = text.parse().map_err(de::Error::custom)?;
        Ok(Self(Duration::try_from(span.0).map_err(de::Error::custom)?))
    }
}

impl<'de> Deserialize<'de> for OnExhaustedWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = Cow::<str>::deserialize(deserializer)?;
        let wrong = || de::Error::custom(format!("`{word}` is not known here: write hold, skip or dead_letter_object"));
        OnExhausted::parse(&word).map(Self).ok_or_else(wrong)
    }
}

impl<'de> Deserialize<'de> for ModeWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match &*Cow::<str>::deserialize(deserializer)? {
            "sync" => Ok(Self(Mode::Sync)),
            "async" => Ok(Self(Mode::Async)),
            word => Err(de::Error::custom(format!("`{word}` is not known here: write sync or async"))),
        }
    }
}

impl<'de> Deserialize<'de> for StartWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match &*Cow::<str>::deserialize(deserializer)? {
            "now" => Ok(Self(Start::Now)),
            "beginning" => Ok(Self(Start::Beginning)),
            word => match word.parse() {
                Ok(seq) => Ok(Self(Start::After(seq))),
                Err(_) => {
                    let wrong =
                        format!("`{word}` is no place to start: write now, beginning, or the seq to start after");
                    Err(de::Error::custom(wrong))
                }
            },
        }
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntryVisitor;

        impl<'de> Visitor<'de> for EntryVisitor {
            type Value = Entry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "the name of a compiled-in handler, or a handler with a `name` and a `command`, `webhook` or `pull: true`",
                )
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Entry, E> {
                Ok(Entry::CompiledIn(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Entry, A::Error> {
                Fields::deserialize(MapAccessDeserializer::new(map)).map(|fields| Entry::Described(Box::new(fields)))
            }
        }

        deserializer.deserialize_any(EntryVisitor)
    }
}

impl<'de> Deserialize<'de> for HandlersSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SectionVisitor;

        impl<'de> Visitor<'de> for SectionVisitor {
            type Value = HandlersSection;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("dotted keys such as `order.paid`, each with a list of handlers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HandlersSection, A::Error> {
                let mut all = Vec::new();
                while let Some((key, entries)) = map.next_entry::<Spanned<String>, Option<Vec<Spanned<Entry>>>>()? {
                    all.push((key, entries.unwrap_or_default()));
                }
                Ok(HandlersSection(all))
            }
        }

        deserializer.deserialize_map(SectionVisitor)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::file::ConfigFile;

    fn refusal(text: &str) -> String {
        ConfigFile::parse("my.yaml", text).unwrap_err().to_string()
    }

    #[test]
    fn a_mistake_is_answered_with_its_line_and_field() {
        for (entry, told) in [
            ("{ name: a, comand: [x] }", "my.yaml:3:16: unknown field `comand`"),
            ("{ name: a, timeout: 30 }", "my.yaml:3:25: `30` is no length of time"),
            ("{ name: a, retry: { first: soon } }", "my.yaml:3:32: `soon` is no length of time"),
            ("{ name: a, retry: { attempts: 3 } }", "my.yaml:3:25: unknown field `attempts`"),
            ("{ name: a, start: later }", "my.yaml:3:23: `later` is no place to start"),
            ("{ name: a, on_exhausted: stop }", "my.yaml:3:30: `stop` is not known here: write hold"),
            ("{ name: a, mode: later }", "my.yaml:3:22: `later` is not known here: write sync or async"),
            ("{ name: a, logs: never }", "my.yaml:3:22: "),
            ("[x]", "my.yaml:3:5: "),
        ] {
            let refusal = refusal(&format!("handlers:\n  a.b:\n  - {entry}\n"));
            assert!(refusal.starts_with(told), "{entry}: {refusal}");
        }
        assert!(refusal("handlers: [a]\n").starts_with("my.yaml:1:11:"), "{}", refusal("handlers: [a]\n"));
        assert!(refusal("handlers:\n  a:\n  - x\n  a:\n  - y\n").starts_with("my.yaml:4:3: duplicate"));
    }

    #[test]
    fn lists_may_be_empty_and_words_and_numbers_are_read() {
        let text = "handlers:\n  a: []\n  b:\n  c:\n  - in_rust\n  - { name: x, command: [sleep, 5], start: 7, retry: { delays: [0s, 1m] } }\n";
        let handlers = ConfigFile::parse("my.yaml", text).unwrap().handlers.unwrap();
        let counts: Vec<(&str, usize)> = handlers.0.iter().map(|(key, list)| (&*key.value, list.len())).collect();
        assert_eq!(counts, [("a", 0), ("b", 0), ("c", 2)]);
        let super::Entry::Described(fields) = &handlers.0[2].1[1].value else { panic!("it is described") };
        assert_eq!(fields.command.as_ref().unwrap().value.0, ["sleep", "5"]);
        assert_eq!(fields.start.unwrap().0, ensue::Start::After(7));
    }
}
