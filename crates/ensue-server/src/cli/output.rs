//! Output for people and for programs.
//!
//! Everything the CLI prints goes through [`line()`], [`block`], [`json`], [`json_text`] or [`note`]. They escape
//! unprintable characters, so data cannot send escape sequences to a terminal, reorder text or forge lines.

use super::Outcome;
use crate::config::redact::redact;
use clap::Args;
use comfy_table::{Table, presets};
use ensue::text::{escape, escape_json};
use ensue::{Event, Seq};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Display;
use std::io::{self, Write};

/// How much of a text is shown in a table.
const SHOWN_CHARS_MAX: usize = 160;

/// How to print.
#[derive(Debug, Clone, Copy, Args)]
pub struct OutputArgs {
    /// Print JSON for programs instead of text for people
    #[arg(long)]
    pub json: bool,
}

/// Text whose only unprintable characters are the line breaks that the CLI itself has put there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block(String);

impl Block {
    /// Several lines of text; line breaks within one of them are escaped.
    pub fn lines<L: AsRef<str>>(lines: impl IntoIterator<Item = L>) -> Self {
        let lines: Vec<String> = lines.into_iter().map(|line| escape(line.as_ref()).into_owned()).collect();
        Self(lines.join("\n"))
    }
}

impl From<String> for Block {
    fn from(line: String) -> Self {
        Self::lines([line])
    }
}

impl From<&str> for Block {
    fn from(line: &str) -> Self {
        Self::lines([line])
    }
}

/// Prints a line on stdout and flushes it.
pub fn line(text: impl Display) -> anyhow::Result<()> {
    block(text.to_string())
}

/// Prints lines on stdout and flushes them. A closed pipe is an error, not a panic as with `println!`.
pub fn block(text: impl Into<Block>) -> anyhow::Result<()> {
    let Block(text) = text.into();
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Prints a line on stderr. Errors are ignored: there is nowhere to report them.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", escape(&text.to_string()));
}

/// Prints an error on stderr. Line breaks in it are kept; lines after the first are indented, so they are not taken for
/// output of their own.
pub fn error(error: &anyhow::Error) {
    let text = redact(&format!("error: {error:#}"));
    let mut lines = text.lines();
    note(lines.next().unwrap_or_default());
    lines.for_each(|line| note(format_args!("  {line}")));
}

/// Prints a value as one line of JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    json_text(&serde_json::to_string(value)?)
}

/// Prints JSON text as one line; numbers keep their digits.
pub fn json_text(json: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", escape_json(json))?;
    Ok(out.flush()?)
}

/// Prints an answer: as JSON, or in words.
pub fn answer<W: Into<Block>>(
    answer: &impl Serialize,
    how: OutputArgs,
    words: impl FnOnce() -> W,
) -> anyhow::Result<Outcome> {
    match how.json {
        true => json(answer)?,
        false => block(words())?,
    }
    Ok(Outcome::Done)
}

/// The same, of a list of things with these fields; `nothing` if it is empty.
pub fn listed<const COLUMNS: usize>(
    whole: &Value,
    name: &str,
    fields: [&str; COLUMNS],
    nothing: &str,
    how: OutputArgs,
) -> anyhow::Result<Outcome> {
    answer(whole, how, || {
        let rows = list(whole, name).iter().map(|one| fields.map(|field| shown(&one[field])));
        if rows.len() == 0 { nothing.into() } else { table(fields, rows) }
    })
}

/// A table for people.
pub fn table<const COLUMNS: usize>(
    header: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> Block {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(header);
    for row in rows {
        table.add_row(row.map(|cell| escape(&cell).into_owned()));
    }
    Block(table.to_string())
}

/// Names and values under each other, without lines.
pub fn fields(pairs: &[(&str, String)]) -> Block {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    Block::lines(pairs.iter().map(|(name, value)| format!("{name:width$}  {value}")))
}

/// The shape of an answer over HTTP, from a store that is opened here.
pub fn as_json(shape: &impl Serialize) -> anyhow::Result<Value> {
    Ok(serde_json::to_value(shape)?)
}

/// A list of an answer.
pub fn list<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    answer[name].as_array().map_or(&[], Vec::as_slice)
}

/// A field of an answer for people: one line that is not too long, a dash where there is nothing.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) if text.chars().count() > SHOWN_CHARS_MAX => {
            let start: String = text.chars().take(SHOWN_CHARS_MAX).collect();
            format!("{} …", start.replace('\n', " / "))
        }
        Value::String(text) => text.replace('\n', " / "),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// A place, or a dash where there is none.
pub fn place(seq: Option<Seq>) -> String {
    seq.map_or("-".into(), |seq| seq.to_string())
}

/// An event in one line of a list.
pub fn event_line(event: &Event) -> String {
    let object = event.object.as_ref().map_or("-", |object| object.as_str());
    format!("{}  {}  {}  {object}  {}", event.seq, event.recorded_at, event.topic, event.payload.as_str())
}

/// How many events: `1 event`, `12,345 events`.
pub fn events(count: u64) -> String {
    counted(count, "event")
}

/// How many of something whose plural ends with `s`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// A number with separators: `12,345,678`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Comes back when whoever read our output has gone; never if that cannot be told.
pub async fn nobody_reads() {
    let (told, gone) = tokio::sync::oneshot::channel();
    let watch = move || {
        let stdout = std::io::stdout();
        // Asked for nothing, it tells only of errors: the other end of a pipe was closed.
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        while let Err(Errno::INTR) = rustix::event::poll(&mut watched, None) {}
        if watched[0].revents().contains(PollFlags::ERR) {
            let _nobody_waits = told.send(());
        }
    };
    let watching = std::thread::Builder::new().name("ensue-stdout".into()).spawn(watch);
    if watching.is_err() || gone.await.is_err() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three() {
        let shown: Vec<String> = [0, 999, 1_000, 12_345_678].into_iter().map(grouped).collect();
        assert_eq!(shown, ["0", "999", "1,000", "12,345,678"]);
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!([events(0), events(1), events(1_000)], ["0 events", "1 event", "1,000 events"]);
    }

    #[test]
    fn a_field_is_one_line_that_is_not_too_long() {
        assert_eq!([shown(&Value::Null), shown(&7.into()), shown(&"a\nb".into())], ["-", "7", "a / b"]);
        assert_eq!(shown(&"x".repeat(161).into()), format!("{} …", "x".repeat(160)));
    }

    #[test]
    fn data_puts_no_line_break_or_escape_sequence_into_output() {
        let data = "a\u{1b}[2J\nb\u{202e}".to_string();
        let escaped = "a\\u{1b}[2J\\nb\\u{202e}";
        assert_eq!(Block::from(data.clone()).0, escaped);
        assert_eq!(fields(&[("x", data.clone()), ("y", "1".into())]).0, format!("x  {escaped}\ny  1"));
        let Block(shown) = table(["x"], [[data]]);
        assert_eq!(shown.lines().count(), 5);
        assert!(shown.contains(escaped), "{shown}");
    }

    #[test]
    fn fields_stand_under_each_other() {
        assert_eq!(fields(&[("a", "1".into()), ("long", "2".into())]), Block("a     1\nlong  2".into()));
    }
}
