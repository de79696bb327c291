//! How is a job sent?

use ensue_core::handling::OnExhausted;
use ensue_core::jobs::NewJob;
use ensue_core::tasks::as_task;
use ensue_core::{GroupName, Invalid, Json, ObjectKey, Timestamp};
use serde::Serialize;

/// A job that somebody wants to send to a handler. Building one never fails: the first fault is kept until it is sent.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ensue::{Context, Emit, Ensue, Event, HandlerError};
/// async fn send_mail(job: Event, cx: Context) -> Result<(), HandlerError> {
///     cx.log(format!("to {}", job.payload.as_str()));
///     Ok(())
/// }
/// let bus = Ensue::memory().await?;
/// bus.register("acme.worker.email", send_mail)?;
/// let running = bus.start().await?;
/// let sent = bus.emit(Emit::to("acme.worker.email").payload(&"ann@example.com").object("user:1").priority(5)).await?;
/// bus.drain().await?;
/// assert_eq!(bus.job(sent.id).await?.map(|job| job.state.as_str()), Some("succeeded"));
/// # running.shutdown(std::time::Duration::from_secs(5)).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Emit {
    job: NewJob,
    /// Was it said how often it is attempted, and what happens then?
    attempts_said: bool,
    exhausted_said: bool,
    fault: Option<Box<Invalid>>,
}

impl Emit {
    /// A job for the handler with this key, with `null` as its payload.
    pub fn to(handler: impl AsRef<str>) -> Self {
        let (key, fault) = match GroupName::parse("handler", handler.as_ref()) {
            Ok(key) => (key, None),
            Err(invalid) => (GroupName::stored(""), Some(Box::new(invalid))),
        };
        Self { job: NewJob::new(key), attempts_said: false, exhausted_said: false, fault }
    }

    /// The content, from any value that can be written as JSON.
    pub fn payload(self, payload: &impl Serialize) -> Self {
        self.with(Json::of("payload", payload), |job, payload| job.payload = payload)
    }

    /// The content, as JSON text.
    pub fn payload_json(self, text: impl AsRef<str>) -> Self {
        self.with(Json::parse("payload", text.as_ref()), |job, payload| job.payload = payload)
    }

    /// What is said about it: a JSON object.
    pub fn metadata(self, metadata: &impl Serialize) -> Self {
        self.with(Json::of("metadata", metadata), |job, metadata| job.metadata = metadata)
    }

    /// What it is about. Jobs of one handler and object run one after another, in the order in which they were sent.
    pub fn object(self, object: impl AsRef<str>) -> Self {
        self.with(ObjectKey::parse(object.as_ref()), |job, object| job.object = Some(object))
    }

    /// Jobs of one object need not run one after another.
    pub fn unordered(self) -> Self {
        self.with(Ok(()), |job, ()| job.ordered = false)
    }

    /// Higher runs first; among equals, first come first served. 0 unless told; of a task that of its collection.
    pub fn priority(self, priority: u64) -> Self {
        self.with(Ok(priority), |job, priority| job.priority = priority)
    }

    /// Runs no earlier than this. Until then it has no place in its object's order.
    pub fn not_before(self, at: Timestamp) -> Self {
        self.with(Ok(at), |job, at| job.not_before = Some(at))
    }

    /// While a job of the handler with this key has not ended, another is not made. The tasks of a collection have one of their own.
    pub fn unique_key(self, key: impl Into<String>) -> Self {
        self.with(Ok(key.into()), |job, key| job.unique_key = Some(key))
    }

    /// How often it is attempted; as its handler says, unless told.
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.attempts_said = true;
        self.with(Ok(attempts_max), |job, attempts_max| job.attempts_max = attempts_max)
    }

    /// What happens to the other jobs of its object when it has died; as its handler says, unless told.
    pub fn on_exhausted(mut self, on_exhausted: OnExhausted) -> Self {
        self.exhausted_said = true;
        self.with(Ok(on_exhausted), |job, on_exhausted| job.on_exhausted = on_exhausted)
    }

    fn with<T>(mut self, value: Result<T, Invalid>, set: impl FnOnce(&mut NewJob, T)) -> Self {
        match value {
            Ok(value) => set(&mut self.job, value),
            Err(invalid) => {
                self.fault.get_or_insert_with(|| Box::new(invalid));
            }
        }
        self
    }

    /// Refuses what could not be sent.
    pub fn checked(&self) -> Result<(), Invalid> {
        match &self.fault {
            Some(fault) => Err((**fault).clone()),
            None => self.job.check(),
        }
    }

    /// The job, checked; what was left open is as its handler says, if this process knows it. A task has the priority of its
    /// collection, if that is known.
    pub(crate) fn check(
        self,
        known: impl FnOnce(&GroupName) -> Option<(u32, OnExhausted)>,
        priority: impl FnOnce(&GroupName) -> Option<u64>,
    ) -> Result<NewJob, Invalid> {
        if let Some(fault) = self.fault {
            return Err(*fault);
        }
        let mut job = self.job;
        if let Some((attempts_max, on_exhausted)) = known(&job.handler) {
            if !self.attempts_said {
                job.attempts_max = attempts_max;
            }
            if !self.exhausted_said {
                job.on_exhausted = on_exhausted;
            }
        }
        let priority = priority(&job.handler);
        let job = as_task(job, priority);
        job.check()?;
        Ok(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fault_is_told_when_it_is_sent() {
        let field = |emit: Emit| emit.check(|_| None, |_| None).unwrap_err().field;
        assert_eq!(field(Emit::to("a..b").object("")), "handler");
        assert_eq!(field(Emit::to("a").object("").payload_json("{")), "object");
        assert_eq!(field(Emit::to("a").payload_json("{")), "payload");
        assert_eq!(field(Emit::to("a").attempts_max(0)), "attempts_max");
    }

    #[test]
    fn what_is_left_open_is_as_the_handler_says() {
        let known = |_: &GroupName| Some((9, OnExhausted::Skip));
        let job = Emit::to("a").check(known, |_| None).unwrap();
        assert_eq!((job.attempts_max, job.on_exhausted), (9, OnExhausted::Skip));
        let job = Emit::to("a").attempts_max(2).on_exhausted(OnExhausted::Hold).check(known, |_| None).unwrap();
        assert_eq!((job.attempts_max, job.on_exhausted), (2, OnExhausted::Hold));
    }
}
