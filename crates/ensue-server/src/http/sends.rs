//! Events and jobs that a program or a receiver sends with the end of its attempt.
//!
//! Read as the bodies of `POST /v1/events` and `POST /v1/jobs` are, and handed to the attempt only when it
//! has succeeded: they are committed with its settlement, or not at all.

use super::body::{self, Published};
use super::fields_body::FieldsBody;
use super::jobs_body::{self, JOB_FIELDS};
use super::problem::Problem;
use ensue::event::BATCH_MAX;
use ensue::jobs::{Emit, JOBS_MAX};
use ensue::{Context, NewEvent};

/// The most bytes that one attempt sends, as JSON text.
pub(crate) const SENT_BYTES_MAX: usize = 2 << 20;
/// The fields of an answer that sends.
const ANSWER_FIELDS: &[&str] = &["events", "jobs"];

/// What one attempt sends if it succeeds, in its order.
#[derive(Debug, Default)]
pub(crate) struct Sends {
    events: Vec<NewEvent>,
    jobs: Vec<Emit>,
    bytes: usize,
}

impl Sends {
    /// Adds an event, as JSON.
    pub fn event(&mut self, text: &str) -> Result<(), String> {
        self.measure(text)?;
        if self.events.len() >= BATCH_MAX {
            return Err(format!("is one more than the {BATCH_MAX} events that an attempt may publish"));
        }
        match body::one_or_batch(text, body::event).map_err(detail)? {
            Published::One(event) => self.events.push(event),
            Published::Batch(_) => return Err("must be one JSON object: write one line for each event".into()),
        }
        Ok(())
    }

    /// Adds a job, as JSON.
    pub fn job(&mut self, text: &str) -> Result<(), String> {
        self.measure(text)?;
        if self.jobs.len() >= JOBS_MAX {
            return Err(format!("is one more than the {JOBS_MAX} jobs that an attempt may send"));
        }
        let body = FieldsBody::of_text(text, JOB_FIELDS);
        let job = body.fields().and_then(|fields| jobs_body::job(&fields)).map_err(detail)?;
        self.jobs.push(job);
        Ok(())
    }

    /// Adds what an answer names: `{"events":[…],"jobs":[…]}`. An empty answer sends nothing.
    pub fn answer(&mut self, text: &str) -> Result<(), String> {
        self.measure(text)?;
        let body = FieldsBody::of_text(text, ANSWER_FIELDS);
        let fields = body.fields().map_err(detail)?;
        self.events.extend(jobs_body::events(&fields).map_err(detail)?);
        self.jobs.extend(jobs_body::sent(&fields).map_err(detail)?);
        Ok(())
    }

    /// Hands everything to the attempt, which commits it with its end.
    pub fn hand_over(self, cx: &Context) -> Result<(), String> {
        for (index, event) in self.events.into_iter().enumerate() {
            cx.publish(event).map_err(|invalid| format!("event {} cannot be published: {invalid}", index + 1))?;
        }
        for (index, job) in self.jobs.into_iter().enumerate() {
            cx.emit(job).map_err(|invalid| format!("job {} cannot be sent: {invalid}", index + 1))?;
        }
        Ok(())
    }

    fn measure(&mut self, text: &str) -> Result<(), String> {
        self.bytes += text.len();
        match self.bytes > SENT_BYTES_MAX {
            true => Err(format!("is too much: an attempt may send {SENT_BYTES_MAX} bytes of JSON in all")),
            false => Ok(()),
        }
    }
}

fn detail(problem: Problem) -> String {
    problem.detail().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_named_and_nothing_is_sent_beyond_the_bounds() {
        let mut sends = Sends::default();
        assert_eq!(sends.event(r#"{"topic":"a","payload":1}"#), Ok(()));
        assert_eq!(sends.job(r#"{"handler":"h","object":"o"}"#), Ok(()));
        assert_eq!(sends.answer(r#"{"events":[{"topic":"b"}],"jobs":[{"handler":"h"}]}"#), Ok(()));
        assert_eq!((sends.events.len(), sends.jobs.len()), (2, 2));
        for (refusal, named) in [
            (sends.event("{}"), "`topic` is missing"),
            (sends.event("nonsense"), "`body` is not JSON"),
            (sends.event(r#"[{"topic":"a"}]"#), "must be one JSON object"),
            (sends.event(r#"{"topic":"a","tpoic":1}"#), "`tpoic` is not a field"),
            (sends.job("{}"), "`handler` is missing"),
            (sends.job(r#"{"handler":"h","x":1}"#), "`x` is not a field"),
            (sends.answer("[]"), "`body` must be a JSON object"),
            (sends.answer(r#"{"ok":true}"#), "`ok` is not a field"),
            (sends.answer(r#"{"jobs":[{}]}"#), "`jobs[0].handler` is missing"),
            (sends.answer(r#"{"events":[{}]}"#), "`events[0].topic` is missing"),
            (sends.event(&"x".repeat(SENT_BYTES_MAX)), "is too much"),
        ] {
            let refusal = refusal.unwrap_err();
            assert!(refusal.starts_with(named), "{refusal}");
        }
        let mut many = Sends::default();
        (0..JOBS_MAX).for_each(|_| many.job(r#"{"handler":"h"}"#).unwrap());
        assert!(many.job(r#"{"handler":"h"}"#).unwrap_err().starts_with("is one more than"));
    }
}
