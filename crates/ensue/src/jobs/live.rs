//! How is what a job says written while it runs?
//!
//! What an attempt says is gathered, and written about once a second, or when it is much; an attempt that ends sooner writes
//! it with its end, in one commit. It is written under the fence of its claim, in the order in which it was said: the end
//! waits for what is on its way. What is held of it is bounded, because an attempt may say so much and no more.

use crate::handlers::Context;
use ensue_core::StoreError;
use ensue_core::handling::Ended;
use ensue_core::jobs::{Held, JobLine, Progress};
use ensue_core::positions::LogLine;
use ensue_core::store::SharedStore;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

/// How long what is said may wait before it is written.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// How many lines are read at once.
const LINES: usize = 1_000;
/// How long it may take to write how far it came before the attempt ends without that.
const LAST_WRITE_MAX: Duration = Duration::from_secs(10);

/// A line as a job's log has it.
pub(crate) fn line_of(attempt: u32, LogLine { at, level, message, .. }: LogLine) -> JobLine {
    JobLine { line: 0, attempt, at, level, message }
}

/// Runs an attempt to its end, and meanwhile writes what it says.
pub(super) async fn run(
    store: &SharedStore,
    held: Held,
    context: &Context,
    attempt: impl Future<Output = Ended>,
) -> Ended {
    let mut attempt = pin!(attempt);
    let mut write_at = Instant::now() + WRITE_EVERY;
    let ended = loop {
        tokio::select! {
            biased;
            ended = attempt.as_mut() => break ended,
            () = context.said_enough() => {}
            () = tokio::time::sleep_until(write_at) => {}
        }
        write_at = Instant::now() + WRITE_EVERY;
        let mut writing = pin!(write(store, held, context));
        tokio::select! {
            biased;
            ended = attempt.as_mut() => {
                // However long it takes: whoever loses the job meanwhile is ended from outside.
                writing.await;
                break ended;
            }
            () = writing.as_mut() => {}
        }
    };
    // Its last lines are written with its end; how far it came is not.
    let (lines, progress) = context.take_said();
    context.put_back(lines, None);
    if let Some(progress) = progress {
        let _written_or_late = tokio::time::timeout(LAST_WRITE_MAX, report(store, held, context, progress)).await;
    }
    ended
}

async fn write(store: &SharedStore, held: Held, context: &Context) {
    let (said, progress) = context.take_said();
    if !said.is_empty() {
        let attempt = context.attempt();
        let lines = said.iter().cloned().map(|line| line_of(attempt, line)).collect();
        match store.say(held, lines).await {
            // If it is somebody else's by now, nobody wants to hear it.
            Ok(_) => context.is_written(),
            Err(error) => {
                told(held, &error);
                let in_doubt = matches!(error, StoreError::InDoubt(_));
                if !(in_doubt && is_stored(store, held, attempt, &said).await) {
                    return context.put_back(said, progress);
                }
                context.is_written();
            }
        }
    }
    if let Some(progress) = progress {
        report(store, held, context, progress).await;
    }
}

/// Is what was said there? Asked until the store answers: what is written again is there twice.
async fn is_stored(store: &SharedStore, held: Held, attempt: u32, said: &[LogLine]) -> bool {
    let is_it = |line: &JobLine, said: &LogLine| {
        // Engines keep microseconds.
        let (at, said_at) = (line.at.as_microsecond(), said.at.as_microsecond());
        (line.attempt, at, &line.message) == (attempt, said_at, &said.message)
    };
    loop {
        match last_line(store, held).await {
            // All of it was written in one commit, or nothing.
            Ok(line) => return line.as_ref().zip(said.last()).is_some_and(|(line, said)| is_it(line, said)),
            Err(StoreError::Closed) => return false,
            Err(error) => told(held, &error),
        }
        tokio::time::sleep(WRITE_EVERY).await;
    }
}

async fn last_line(store: &SharedStore, held: Held) -> Result<Option<JobLine>, StoreError> {
    let mut last: Option<JobLine> = None;
    loop {
        let after = last.as_ref().map_or(0, |line| line.line);
        match store.job_lines(held.id, after, LINES).await?.pop() {
            Some(line) => last = Some(line),
            None => return Ok(last),
        }
    }
}

async fn report(store: &SharedStore, held: Held, context: &Context, progress: Progress) {
    if let Err(error) = store.report(held, progress.clone()).await {
        told(held, &error);
        context.put_back(Vec::new(), Some(progress));
    }
}

fn told(held: Held, error: &StoreError) {
    tracing::debug!(job = %held.id, %error, "what a job says cannot be written right now; trying again");
}
