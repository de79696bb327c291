//! How is an answer shown, to people and to programs?

use super::Outcome;
use clap::Args;
use comfy_table::{Table, presets};
use ensue::{Event, Seq};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
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

/// Prints a line on stdout at once. A closed pipe is an error, and not a panic as with `println!`.
pub fn line(text: impl Display) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Prints a value as one line of JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string(value)?)
}

/// Prints an answer: for programs as it is, for people in these words.
pub fn answer<W: Display>(
    answer: &impl Serialize,
    how: OutputArgs,
    words: impl FnOnce() -> W,
) -> anyhow::Result<Outcome> {
    match how.json {
        true => json(answer)?,
        false => line(words())?,
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
) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table.to_string()
}

/// Names and values under each other, without lines.
pub fn fields(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    pairs.iter().map(|(name, value)| format!("{name:width$}  {value}")).collect::<Vec<_>>().join("\n")
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
            format!("{} …", harmless(&start.replace('\n', " / ")))
        }
        Value::String(text) => harmless(&text.replace('\n', " / ")).into_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// A text without what a terminal would take for an order: control characters are shown as they are written.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let is_order = |c: char| c.is_control() && c != '\t';
    match text.contains(is_order) {
        true => text.chars().map(|c| if is_order(c) { c.escape_default().to_string() } else { c.into() }).collect(),
        false => text.into(),
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
    fn nothing_that_is_shown_is_an_order_to_a_terminal() {
        assert_eq!(harmless("\u{1b}[2J\tü\r\u{9b}1m"), "\\u{1b}[2J\tü\\r\\u{9b}1m");
        assert_eq!(shown(&"\u{1b}]0;x\u{7}".into()), "\\u{1b}]0;x\\u{7}");
    }

    #[test]
    fn fields_stand_under_each_other() {
        assert_eq!(fields(&[("a", "1".into()), ("long", "2".into())]), "a     1\nlong  2");
    }
}
