//! What does the config file say?
//!
//! A mistake is answered with the file, the line and the field; nothing is guessed and nothing unknown is passed over.

use super::handlers::{HandlersSection, HistorySection, WebhooksSection};
use super::redact::redact;
use super::schedules::SchedulesSection;
use super::sources::SourcesSection;
use super::units::{Size, Span};
use anyhow::{Context, anyhow};
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::path::{Path, PathBuf};

/// Read if it is there and no other file is named.
pub const DEFAULT_FILE: &str = "ensue.yaml";

/// The keys of the config file. All are optional; paths are relative to the folder the server is started in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigFile {
    /// The store's URL.
    pub store: Option<String>,
    /// The address to listen on. Whether it is one shows only when it is looked up: its place is kept for that.
    pub listen: Option<Spanned<String>>,
    /// A file with one token per line.
    pub token_file: Option<PathBuf>,
    /// What to keep of the log.
    pub retention: Option<RetentionSection>,
    /// What follows from which events.
    pub handlers: Option<HandlersSection>,
    /// What is brought up to date, one task at a time.
    pub sources: Option<SourcesSection>,
    /// What to keep of what became of deliveries.
    pub history: Option<HistorySection>,
    /// Where webhooks may be sent.
    pub webhooks: Option<WebhooksSection>,
    /// What happens at a time, again and again.
    pub schedules: Option<SchedulesSection>,
    /// How long a server that is told to stop waits for handlers that run.
    pub drain_max: Option<Span>,
    /// How many jobs run at once.
    pub workers: Option<Spanned<usize>>,
    /// How many events each handler holds in memory.
    pub read_ahead: Option<Spanned<usize>>,
}

/// The key `retention` of the config file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionSection {
    /// Forget what is older.
    pub age: Option<Span>,
    /// Forget the oldest beyond this.
    pub size: Option<Size>,
    /// Keep what a group still needs for so long after it was last served.
    pub hold_max: Option<Span>,
}

impl ConfigFile {
    /// Reads a file that must be there.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| {
            format!("cannot read the config file {}: check the path and its permissions", path.display())
        })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Reads the named file or, without a name, [`DEFAULT_FILE`] if there is one. Answers with the file it read.
    pub fn find(named: Option<&Path>) -> anyhow::Result<(Self, Option<PathBuf>)> {
        match named {
            Some(path) => Ok((Self::read(path)?, Some(path.to_path_buf()))),
            None => {
                let path = Path::new(DEFAULT_FILE);
                match path.try_exists() {
                    Ok(false) => Ok((Self::default(), None)),
                    Ok(true) => Ok((Self::read(path)?, Some(path.to_path_buf()))),
                    Err(error) => Err(anyhow!("cannot look for {DEFAULT_FILE}: {error}")),
                }
            }
        }
    }

    /// Parses the text of a file; `name` is the file's, for the error.
    pub fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        serde_saphyr::from_str(text).map_err(|error| explain(name, text, &error))
    }
}

/// Where a value stands: `ensue.yaml:2:9`.
pub fn place<T>(file: &Path, value: &Spanned<T>) -> String {
    format!("{}:{}:{}", file.display(), value.defined.line(), value.defined.column())
}

/// The parser's message with its place in front, the line's key under it, and what to do. The value is not shown: it may
/// be a credential under a mistyped key.
fn explain(name: &str, text: &str, error: &serde_saphyr::Error) -> anyhow::Error {
    let message = error.without_snippet().to_string();
    let advice = format!("Correct it, then run `ensue config check {name}`.");
    let Some(location) = error.location() else {
        return anyhow!("{name}: {message}\n{advice}");
    };
    let (line, column) = (location.line(), location.column());
    // The place leads already; the parser repeats it at the end.
    let message = message.strip_suffix(&format!(" at line {line}, column {column}")).unwrap_or(&message);
    let source = usize::try_from(line).ok().and_then(|line| text.lines().nth(line.saturating_sub(1)));
    let quoted = source.and_then(key).map_or(String::new(), |key| format!("  {line} | {key}: …\n"));
    anyhow!("{}\n{quoted}{advice}", redact(&format!("{name}:{line}:{column}: {message}")))
}

/// The key of a line, indented as it is.
fn key(line: &str) -> Option<&str> {
    let (key, _) = line.split_once(':')?;
    let is_of_a_key = |c: char| c.is_ascii_alphanumeric() || "_-. ".contains(c);
    (key.len() <= 60 && key.chars().all(is_of_a_key)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    fn refusal(text: &str) -> String {
        ConfigFile::parse("my.yaml", text).unwrap_err().to_string()
    }

    #[test]
    fn every_key_is_read() {
        let text = "store: sqlite:a.db\nlisten: 127.0.0.1:1\ntoken_file: t\nretention: { age: 7d, size: 10GB, hold_max: 30d }\n";
        let config = ConfigFile::parse("my.yaml", text).unwrap();
        assert_eq!(config.store.as_deref(), Some("sqlite:a.db"));
        let listen = config.listen.unwrap();
        assert_eq!(
            (listen.value.as_str(), place(Path::new("my.yaml"), &listen)),
            ("127.0.0.1:1", "my.yaml:2:9".into())
        );
        assert_eq!(config.token_file.as_deref(), Some(Path::new("t")));
        let retention = config.retention.unwrap();
        assert_eq!(retention.age.unwrap().0, SignedDuration::from_hours(7 * 24));
        assert_eq!(retention.size.unwrap().0, 10_000_000_000);
        assert_eq!(retention.hold_max.unwrap().0, SignedDuration::from_hours(30 * 24));
    }

    #[test]
    fn an_empty_file_says_nothing() {
        assert_eq!(ConfigFile::parse("my.yaml", "# nothing yet\nretention:\n").unwrap(), ConfigFile::default());
    }

    #[test]
    fn a_mistake_is_answered_with_file_line_field_and_what_to_do() {
        let unknown = refusal("store: a\nretention:\n  agee: 7d\n");
        assert!(unknown.starts_with("my.yaml:3:3: unknown field `agee`"), "{unknown}");
        assert!(unknown.contains("ensue config check my.yaml"), "{unknown}");
        let span = refusal("retention:\n  age: 7\n");
        assert!(span.starts_with("my.yaml:2:8: `7` is no length of time"), "{span}");
        assert!(span.contains("2 |   age: …"), "{span}");
        let kind = refusal("store: [a]\n");
        assert!(kind.starts_with("my.yaml:1:8:") && kind.contains("1 | store: …"), "{kind}");
        assert!(refusal("store: a\nstore: b\n").starts_with("my.yaml:2:1: duplicate"));
    }
}
