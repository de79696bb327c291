//! What does a program say?
//!
//! Lines of stdout and stderr become the log of the attempt. A program may say more than anybody wants to keep: lines are
//! cut, the attempt keeps a bounded part of them, and the rest is read and thrown away, so that the program can go on. A line
//! of stdout that says how far a job's program is does that, and is none of the log. Lines `::event {…}` and `::job {…}` of
//! stdout are events and jobs that are sent if the attempt succeeds.

use crate::http::sends::{SENT_BYTES_MAX, Sends};
use ensue::jobs::Progress;
use ensue::positions::delivery::LINE_BYTES_MAX;
use ensue::{Context, Level, Timestamp};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much of a line is kept; the note that it was cut has room behind it.
const LINE_KEPT_MAX: usize = LINE_BYTES_MAX - 64;
/// A line that begins with one of these words publishes an event or sends a job.
const EVENT_WORD: &str = "::event";
const JOB_WORD: &str = "::job";
/// So many bytes tell what kind of line it is.
const WORD_BYTES_MAX: usize = EVENT_WORD.len() + 1;
/// How many of the last lines of stderr are told with a failure, and how much of each.
const LAST_LINES: usize = 5;
const LAST_LINE_BYTES: usize = 400;

/// What a program has said so far.
pub(super) struct Output<'a> {
    cx: &'a Context,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    last_errors: VecDeque<String>,
    sends: Sends,
    /// The first line that cannot be sent.
    refused: Option<String>,
}

impl<'a> Output<'a> {
    pub fn new(cx: &'a Context) -> Self {
        Self { cx, said: Mutex::default() }
    }

    /// Takes every line, until nobody can write any more.
    pub async fn read(&self, mut from: impl AsyncRead + Unpin, level: Level) {
        let mut buffer = vec![0; 8 << 10];
        let mut line = Line::of(level);
        // A pipe that cannot be read any more is at its end.
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            for piece in buffer[..count].split_inclusive(|byte| *byte == b'\n') {
                match piece.strip_suffix(b"\n") {
                    Some(rest) => {
                        line.push(rest);
                        self.say(std::mem::replace(&mut line, Line::of(level)), level);
                    }
                    None => line.push(piece),
                }
            }
        }
        if !line.bytes.is_empty() {
            self.say(line, level);
        }
    }

    fn say(&self, line: Line, level: Level) {
        if line.is_send() {
            return self.send(line);
        }
        let text = line.into_text();
        if level == Level::Info
            && self.cx.is_job()
            && let Some(progress) = Progress::of_line(&text, Timestamp::now())
        {
            return self.cx.set_progress(progress);
        }
        if level == Level::Error {
            let mut said = self.said();
            if said.last_errors.len() == LAST_LINES {
                said.last_errors.pop_front();
            }
            said.last_errors.push_back(start_of(&text, LAST_LINE_BYTES).to_owned());
        }
        self.cx.log_at(level, text);
    }

    /// Takes a line that sends something. One that cannot be sent is logged; it fails the attempt.
    fn send(&self, line: Line) {
        let cut = line.cut;
        let text = line.into_text();
        let (word, json) = text.split_at(if text.starts_with(EVENT_WORD) { EVENT_WORD } else { JOB_WORD }.len());
        let mut said = self.said();
        let taken = match (cut, word) {
            (1.., _) => Err(format!("is longer than {SENT_BYTES_MAX} bytes")),
            (0, EVENT_WORD) => said.sends.event(json),
            (0, _) => said.sends.job(json),
        };
        if let Err(reason) = taken {
            said.refused.get_or_insert_with(|| format!("its line `{word}` cannot be sent, and nothing was: {reason}"));
            drop(said);
            self.cx.log_at(Level::Warn, start_of(&text, LINE_KEPT_MAX));
        }
    }

    /// What the program has sent, or why that cannot be.
    pub fn take_sends(&self) -> Result<Sends, String> {
        let mut said = self.said();
        match said.refused.take() {
            Some(refused) => Err(refused),
            None => Ok(std::mem::take(&mut said.sends)),
        }
    }

    /// The last lines of stderr, to be put behind an error.
    pub fn last_errors(&self) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.last_errors.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
        if lines.is_empty() { String::new() } else { format!(": {}", lines.join("\n")) }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line that is being read.
#[derive(Default)]
struct Line {
    /// May it send something? Only one of stdout does.
    may_send: bool,
    bytes: Vec<u8>,
    cut: u64,
}

impl Line {
    fn of(level: Level) -> Self {
        Self { may_send: level == Level::Info, ..Self::default() }
    }

    /// Does it begin with a word that sends? `::events` is another word.
    fn is_send(&self) -> bool {
        let rest = [EVENT_WORD, JOB_WORD].iter().find_map(|word| self.bytes.strip_prefix(word.as_bytes()));
        let ends =
            |rest: &[u8]| rest.first().is_none_or(|byte| !byte.is_ascii_alphanumeric() && !b"_-.:".contains(byte));
        self.may_send && rest.is_some_and(ends)
    }

    fn push(&mut self, piece: &[u8]) {
        // The first bytes tell how much of the line is kept.
        let (head, rest) = piece.split_at(WORD_BYTES_MAX.saturating_sub(self.bytes.len()).min(piece.len()));
        self.keep(head, LINE_KEPT_MAX);
        self.keep(rest, if self.is_send() { SENT_BYTES_MAX } else { LINE_KEPT_MAX });
    }

    fn keep(&mut self, piece: &[u8], bytes_max: usize) {
        let kept = piece.len().min(bytes_max.saturating_sub(self.bytes.len()));
        self.bytes.extend_from_slice(&piece[..kept]);
        self.cut += (piece.len() - kept) as u64;
    }

    fn into_text(self) -> String {
        let text = String::from_utf8_lossy(self.bytes.strip_suffix(b"\r").unwrap_or(&self.bytes));
        match self.cut {
            0 => text.into_owned(),
            cut => format!("{} … ({cut} bytes were cut)", start_of(&text, LINE_KEPT_MAX)),
        }
    }
}

/// At most so many bytes from the start, in whole characters.
fn start_of(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_any_length_is_kept_within_bounds() {
        let mut line = Line::default();
        (0..1_000).for_each(|_| line.push("ü".repeat(1_000).as_bytes()));
        let text = line.into_text();
        assert!(text.len() <= LINE_BYTES_MAX, "{}", text.len());
        assert!(text.ends_with(&format!("({} bytes were cut)", 2_000_000 - LINE_KEPT_MAX)), "{}", &text[8_000..]);
        let mut sends = Line::of(Level::Info);
        sends.push(b"::ev");
        (0..1_000).for_each(|_| sends.push("ent ü".repeat(1_000).as_bytes()));
        assert!(sends.is_send() && sends.bytes.len() == SENT_BYTES_MAX && sends.cut > 0);
        for (line, is_send) in
            [("::event {}", true), ("::job{}", true), ("::job", true), ("::events", false), (" ::event {}", false)]
        {
            let mut read = Line::of(Level::Info);
            read.push(line.as_bytes());
            assert_eq!(read.is_send(), is_send, "{line}");
        }
        let mut complaint = Line::of(Level::Error);
        complaint.push(b"::event {}");
        assert!(!complaint.is_send());
        let mut line = Line::default();
        line.push(b"\xff\xfe ok\r");
        assert_eq!(line.into_text(), "\u{fffd}\u{fffd} ok");
    }
}
