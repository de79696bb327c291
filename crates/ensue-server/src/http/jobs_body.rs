//! What does the body of a request about jobs say?

use super::body;
use super::fields_body::{BodyFields, OneOrMany};
use super::problem::Problem;
use ensue::jobs::{ATTEMPTS_LIMIT, Emit, JOBS_MAX, JobLine, JobState};
use ensue::positions::delivery::LINE_BYTES_MAX;
use ensue::{GroupName, Level, NewEvent, ObjectKey, OnExhausted, Timestamp};
use std::borrow::Cow;

/// The most lines that one call takes.
const LINES_MAX: usize = 1_000;

/// The fields of a job to send.
pub(super) const JOB_FIELDS: &[&str] = &[
    "handler",
    "payload",
    "metadata",
    "object",
    "ordered",
    "priority",
    "not_before",
    "unique_key",
    "attempts_max",
    "on_exhausted",
];

/// The jobs of a body, with whether it was an array. A fault in an array names its place.
pub(super) fn jobs(body: OneOrMany<'_>) -> Result<(Vec<Emit>, bool), Problem> {
    match body {
        OneOrMany::One(fields) => Ok((vec![job(&fields)?], false)),
        OneOrMany::Many(all) => {
            let placed = |(index, fields): (usize, &BodyFields<'_>)| {
                job(fields).map_err(|problem| problem.rename(|field| format!("jobs[{index}].{field}").into()))
            };
            Ok((all.iter().enumerate().map(placed).collect::<Result<_, _>>()?, true))
        }
    }
}

pub(super) fn job(fields: &BodyFields<'_>) -> Result<Emit, Problem> {
    let Some(handler) = fields.text("handler")? else {
        return Err(Problem::invalid("handler", "is missing; say which handler is to run it, as in `mail.send`"));
    };
    GroupName::parse("handler", &handler)?;
    let mut job = Emit::to(handler);
    if let Some(payload) = fields.as_it_stands("payload") {
        job = job.payload_json(payload);
    }
    if let Some(metadata) = fields.json("metadata")? {
        job = job.metadata(&metadata);
    }
    if let Some(object) = fields.text("object")? {
        ObjectKey::parse(&object)?;
        job = job.object(object);
    }
    if !fields.flag_or("ordered", true)? {
        job = job.unordered();
    }
    if let Some(priority) = fields.number_exact("priority")? {
        job = job.priority(priority);
    }
    if let Some(at) = fields.time("not_before")? {
        job = job.not_before(at);
    }
    if let Some(key) = fields.text("unique_key")? {
        job = job.unique_key(key);
    }
    if let Some(attempts_max) = fields.number("attempts_max")? {
        job = job.attempts_max(attempts(attempts_max)?);
    }
    if let Some(word) = fields.text("on_exhausted")? {
        let Some(policy) = OnExhausted::parse(&word) else {
            return Err(Problem::invalid("on_exhausted", "must be `hold`, `skip` or `dead_letter_object`"));
        };
        job = job.on_exhausted(policy);
    }
    job.checked()?;
    Ok(job)
}

/// How often something may be attempted, as far as that is a number that could be meant.
pub(super) fn attempts(count: u64) -> Result<u32, Problem> {
    u32::try_from(count)
        .map_err(|_| Problem::invalid("attempts_max", format!("is {count}; choose 1 to {ATTEMPTS_LIMIT}")))
}

/// States as somebody writes them: one, or several with commas between.
pub(super) fn states(text: &str) -> Result<Vec<JobState>, String> {
    let state = |word: &str| {
        JobState::parse(word).ok_or_else(|| {
            let all = JobState::ALL.map(JobState::as_str).join(", ");
            let shown: String = word.chars().take(40).collect();
            format!("has `{shown}`, which is no state; those are {all}")
        })
    };
    text.split(',').map(|word| state(word.trim())).collect()
}

/// The events that are published with a settle.
pub(super) fn events(fields: &BodyFields<'_>) -> Result<Vec<NewEvent>, Problem> {
    match fields.as_it_stands("events").map(str::trim) {
        None | Some("null" | "[]") => Ok(Vec::new()),
        Some(text) if text.starts_with('[') => match body::batch(text, body::event)? {
            body::Published::One(event) => Ok(vec![event]),
            body::Published::Batch(events) => Ok(events),
        },
        Some(_) => Err(Problem::invalid("events", "must be a list of events, such as [{\"topic\":\"mail.sent\"}]")),
    }
}

/// The jobs that are sent with a settle.
pub(super) fn sent(fields: &BodyFields<'_>) -> Result<Vec<Emit>, Problem> {
    let all = fields.objects("jobs", JOB_FIELDS, JOBS_MAX)?.unwrap_or_default();
    let placed = |(index, fields): (usize, &BodyFields<'_>)| {
        job(fields).map_err(|problem| problem.rename(|field| format!("jobs[{index}].{field}").into()))
    };
    all.iter().enumerate().map(placed).collect()
}

/// What a worker says.
pub(super) fn lines(fields: &BodyFields<'_>, now: Timestamp) -> Result<Vec<JobLine>, Problem> {
    const KNOWN: &[&str] = &["message", "level", "time"];
    let lines = fields.objects("lines", KNOWN, LINES_MAX)?.unwrap_or_default();
    if lines.is_empty() {
        return Err(Problem::invalid("lines", "is missing or empty; send at least one {\"message\":\"…\"}"));
    }
    let placed = |(index, fields): (usize, &BodyFields<'_>)| {
        line(fields, now).map_err(|problem| problem.rename(|field| format!("lines[{index}].{field}").into()))
    };
    lines.iter().enumerate().map(placed).collect()
}

fn line(fields: &BodyFields<'_>, now: Timestamp) -> Result<JobLine, Problem> {
    let Some(message) = fields.text("message")? else {
        return Err(Problem::invalid("message", "is missing; write what happened"));
    };
    let level = match fields.text("level")? {
        None => Level::Info,
        Some(word) => Level::stored(&word)
            .ok_or_else(|| Problem::invalid("level", "must be `debug`, `info`, `warn` or `error`"))?,
    };
    let at = fields.time("time")?.unwrap_or(now);
    Ok(JobLine { line: 0, attempt: 0, at, level, message: cut(&message, LINE_BYTES_MAX).into_owned() })
}

/// As much of a text as is kept.
pub(super) fn cut(message: &str, bytes_max: usize) -> Cow<'_, str> {
    match message.len() > bytes_max {
        true => {
            let end = (0..=bytes_max).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            format!("{} …", &message[..end]).into()
        }
        false => message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_one_or_several_words() {
        assert_eq!(states("dead"), Ok(vec![JobState::Dead]));
        assert_eq!(states("dead, retrying"), Ok(vec![JobState::Dead, JobState::Retrying]));
        for bad in ["", "Dead", "dead,", "done"] {
            assert!(states(bad).unwrap_err().contains("scheduled, available"), "{bad}");
        }
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let long = "ä".repeat(LINE_BYTES_MAX);
        assert_eq!(cut(&long, LINE_BYTES_MAX).len(), LINE_BYTES_MAX + " …".len());
        assert_eq!(cut("short", 5), "short");
    }
}
