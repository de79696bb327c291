//! Tests: a clock that the test moves, and what was published and sent so far.
//!
//! The store of such a bus reads the time from the test's clock.
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), ensue::Error> {
//! use ensue::NewEvent;
//! use ensue::testing::{ManualClock, memory_at};
//! use std::time::Duration;
//!
//! let clock = ManualClock::at_noon();
//! let bus = memory_at(&clock).await?;
//! let in_an_hour = clock.now() + Duration::from_secs(3_600);
//! bus.publish(NewEvent::new("reminder").not_before(in_an_hour)).await?;
//!
//! assert_eq!(bus.store().release_due(100).await?.count, 0);
//! clock.advance(Duration::from_secs(3_600));
//! assert_eq!(bus.store().release_due(100).await?.count, 1);
//! # Ok(()) }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```

use crate::Ensue;
use crate::error::Error;
use crate::jobs::{Job, JobArgs, JobQuery};
use crate::open::Options;
pub use ensue_core::clock::ManualClock;
use ensue_core::store::Read;
use ensue_core::{Event, Fact, Filter, Json, ObjectKey};
use serde::Serialize;
use serde_json::Value;

pub use crate::{assert_emitted, assert_published};

/// A bus whose events live as long as the process, by this clock.
#[cfg(feature = "sqlite")]
pub async fn memory_at(clock: &ManualClock) -> Result<Ensue, Error> {
    open_at("sqlite::memory:", clock).await
}

/// A bus on a store by its address, by this clock.
pub async fn open_at(url: &str, clock: &ManualClock) -> Result<Ensue, Error> {
    Ensue::open_with(url, Options { clock: Some(clock.clone()), ..Options::default() }).await
}

/// Reads so many events or jobs at once.
const PAGE: usize = 1_000;

/// The events so far, oldest first; on Postgres with those that committed transactions have
/// published. Reads the whole log: for tests.
pub async fn events(bus: &Ensue) -> Result<Vec<Event>, Error> {
    let store = bus.store();
    while store.release_due(PAGE).await?.count > 0 {}
    let (mut events, mut after) = (Vec::new(), 0);
    loop {
        let page = store.read(Read { after, limit: PAGE, filter: Filter::default() }).await?;
        if page.next == after {
            return Ok(events);
        }
        after = page.next;
        events.extend(page.events);
    }
}

/// The jobs so far, oldest first, in whatever state they are. Reads all of them: for tests.
pub async fn jobs(bus: &Ensue) -> Result<Vec<Job>, Error> {
    let (mut jobs, mut query) = (Vec::new(), JobQuery::default());
    loop {
        let page = bus.jobs(query.clone(), PAGE).await?;
        jobs.extend(page.jobs);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(jobs),
        }
    }
}

/// What a test expects: a topic or the key of a handler, and what else is to be the same.
#[derive(Debug, Clone)]
pub struct Expected {
    name: String,
    object: Option<String>,
    payload: Option<Value>,
}

impl From<&str> for Expected {
    fn from(name: &str) -> Self {
        Self { name: name.into(), object: None, payload: None }
    }
}

impl Expected {
    /// The event that this fact becomes, on any object.
    pub fn fact<F: Fact>(fact: &F) -> Self {
        Self::from(format!("{}.{}", F::TYPE, F::ACTION).as_str()).payload(fact)
    }

    /// The job with these arguments, on any object.
    pub fn job<J: JobArgs>(args: &J) -> Self {
        Self::from(J::HANDLER).payload(args)
    }

    /// With this object.
    pub fn object(self, object: impl Into<String>) -> Self {
        Self { object: Some(object.into()), ..self }
    }

    /// With a payload that has at least these fields, or is this value.
    pub fn payload(self, payload: impl Serialize) -> Self {
        let payload = serde_json::to_value(payload).expect("the expected payload can be written as JSON");
        Self { payload: Some(payload), ..self }
    }

    fn is_met(&self, name: &str, object: Option<&ObjectKey>, payload: &Json) -> bool {
        let has_payload = |expected: &Value| {
            serde_json::from_str(payload.as_str()).is_ok_and(|there: Value| has_at_least(&there, expected))
        };
        self.name == name
            && self.object.as_deref().is_none_or(|expected| object.is_some_and(|there| there.as_str() == expected))
            && self.payload.as_ref().is_none_or(has_payload)
    }
}

/// Has the value all fields that are expected, at every depth?
fn has_at_least(there: &Value, expected: &Value) -> bool {
    match (there, expected) {
        (Value::Object(there), Value::Object(expected)) => {
            expected.iter().all(|(name, value)| there.get(name).is_some_and(|there| has_at_least(there, value)))
        }
        (there, expected) => there == expected,
    }
}

/// The first event so far that is as expected, or a text that lists what was published instead.
pub async fn published(bus: &Ensue, expected: impl Into<Expected>) -> Result<Event, String> {
    let expected = expected.into();
    let events = events(bus).await.map_err(|error| error.to_string())?;
    let line = |event: &Event| line(event.topic.as_str(), event.object.as_ref(), &event.payload);
    let lines: Vec<String> = events.iter().map(line).collect();
    let is_met = |event: &Event| expected.is_met(event.topic.as_str(), event.object.as_ref(), &event.payload);
    events.into_iter().find(is_met).ok_or_else(|| missing("published", &expected, &lines))
}

/// The first job so far that is as expected, or a text that lists what was sent instead.
pub async fn emitted(bus: &Ensue, expected: impl Into<Expected>) -> Result<Job, String> {
    let expected = expected.into();
    let jobs = jobs(bus).await.map_err(|error| error.to_string())?;
    let lines: Vec<String> =
        jobs.iter().map(|job| line(job.handler.as_str(), job.object.as_ref(), &job.payload)).collect();
    let is_met = |job: &Job| expected.is_met(job.handler.as_str(), job.object.as_ref(), &job.payload);
    jobs.into_iter().find(is_met).ok_or_else(|| missing("emitted", &expected, &lines))
}

fn line(name: &str, object: Option<&ObjectKey>, payload: &Json) -> String {
    let object = object.map_or_else(|| "no object".to_owned(), ToString::to_string);
    format!("  {name}, {object}: {}", payload.as_str())
}

fn missing(what: &str, expected: &Expected, lines: &[String]) -> String {
    let Expected { name, object, payload } = expected;
    let object = object.as_ref().map(|object| format!(" of {object}")).unwrap_or_default();
    let payload = payload.as_ref().map(|payload| format!(" with {payload}")).unwrap_or_default();
    let all = if lines.is_empty() { "  nothing".to_owned() } else { lines.join("\n") };
    format!("`{name}`{object}{payload} was not {what}; {what} so far:\n{all}")
}

/// Asserts that an event was published, and answers it: `assert_published!(bus, "order.paid")`, or
/// with what else it has, `assert_published!(bus, Expected::fact(&paid).object("order:1"))`.
/// Awaits, so it belongs in an async test.
#[macro_export]
macro_rules! assert_published {
    ($bus:expr, $expected:expr $(,)?) => {
        match $crate::testing::published(&$bus, $expected).await {
            Ok(event) => event,
            Err(missing) => panic!("{missing}"),
        }
    };
}

/// Asserts that a job was sent, in whatever state it is by now, and answers it:
/// `assert_emitted!(bus, "mail.receipt")`, or `assert_emitted!(bus, Expected::job(&args))`. Awaits,
/// so it belongs in an async test.
#[macro_export]
macro_rules! assert_emitted {
    ($bus:expr, $expected:expr $(,)?) => {
        match $crate::testing::emitted(&$bus, $expected).await {
            Ok(job) => job,
            Err(missing) => panic!("{missing}"),
        }
    };
}
