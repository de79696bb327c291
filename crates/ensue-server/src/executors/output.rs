//! What does a program say?
//!
//! Lines of stdout and stderr become the log of the attempt. A program may say more than anybody wants to keep: lines are
//! cut, the attempt keeps a bounded part of them, and the rest is read and thrown away, so that the program can go on. A line
//! of stdout that says how far a job's program is does that, and is none of the log.

use ensue::jobs::Progress;
use ensue::positions::delivery::LINE_BYTES_MAX;
use ensue::{Context, Level, Timestamp};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much of a line is kept; the note that it was cut has room behind it.
const LINE_KEPT_MAX: usize = LINE_BYTES_MAX - 64;
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
}

impl<'a> Output<'a> {
    pub fn new(cx: &'a Context) -> Self {
        Self { cx, said: Mutex::default() }
    }

    /// Takes every line, until nobody can write any more.
    pub async fn read(&self, mut from: impl AsyncRead + Unpin, level: Level) {
        let mut buffer = vec![0; 8 << 10];
        let mut line = Line::default();
        // A pipe that cannot be read any more is at its end.
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            for piece in buffer[..count].split_inclusive(|byte| *byte == b'\n') {
                match piece.strip_suffix(b"\n") {
                    Some(rest) => {
                        line.push(rest);
                        self.say(std::mem::take(&mut line), level);
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
    bytes: Vec<u8>,
    cut: u64,
}

impl Line {
    fn push(&mut self, piece: &[u8]) {
        let kept = piece.len().min(LINE_KEPT_MAX - self.bytes.len());
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
        let mut line = Line::default();
        line.push(b"\xff\xfe ok\r");
        assert_eq!(line.into_text(), "\u{fffd}\u{fffd} ok");
    }
}
