//! What is a job?

use super::lifecycle::{ClaimUse, Glance, JobState, Settlement, use_claim};
use crate::error::Invalid;
use crate::event::{Event, Seq};
use crate::handling::OnExhausted;
use crate::handling::retry::ATTEMPTS_LIMIT;
use crate::id::EventId;
use crate::json::Json;
use crate::key::{GroupName, ObjectKey, Topic};
use crate::positions::Fence;
use crate::positions::delivery::Level;
use crate::text::check_text;
use jiff::Timestamp;
use std::fmt;
use uuid::Uuid;

/// How often a job is attempted unless told.
pub const JOB_ATTEMPTS_MAX: u32 = 5;
/// The longest `unique_key`, in bytes.
pub const UNIQUE_KEY_BYTES_MAX: usize = 512;
/// The longest name of a worker, in bytes.
pub const WORKER_BYTES_MAX: usize = 255;
/// How many of a job's errors are kept: the newest.
pub const ERRORS_MAX: usize = 20;
/// How many lines of a job are kept: the first.
pub const JOB_LINES_MAX: u64 = 10_000;
/// The most handlers that one claim may name.
pub const CLAIM_HANDLERS_MAX: usize = 200;
/// The most jobs that one call takes.
pub const JOBS_MAX: usize = 1_000;

/// The place of a job among all: it grows by one with each job that is sent.
pub type JobNumber = u64;

/// The public identity of a job: a UUIDv7 that carries the job's number, so that it leads to its row without an index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct JobId(pub Uuid);

/// The bits of an id that are its number.
const NUMBER_BITS: u32 = 62;

impl JobId {
    /// The id of the job with this number, sent at this time; twelve bits of chance tell it from one of another store.
    pub fn new(at: Timestamp, chance: u16, number: JobNumber) -> Self {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&at.as_millisecond().to_be_bytes()[2..]);
        bytes[6..8].copy_from_slice(&(0x7000 | (chance & 0x0FFF)).to_be_bytes());
        bytes[8..].copy_from_slice(&((1 << 63) | (number & ((1 << NUMBER_BITS) - 1))).to_be_bytes());
        Self(Uuid::from_bytes(bytes))
    }

    /// The job's number.
    pub fn number(self) -> JobNumber {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0.as_bytes()[8..]);
        u64::from_be_bytes(bytes) & ((1 << NUMBER_BITS) - 1)
    }

    /// From its text.
    pub fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().filter(|id| id.get_version_num() == 7).map(Self)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The event that a job follows from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Its place in the log.
    pub seq: Seq,
    /// The preceding event of its object.
    pub prev: Option<Seq>,
    /// Its id.
    pub id: EventId,
    /// Its topic.
    pub topic: Topic,
}

impl Cause {
    /// Of this event.
    pub fn of(event: &Event) -> Self {
        Self { seq: event.seq, prev: event.prev, id: event.id, topic: event.topic.clone() }
    }
}

/// A job that somebody wants to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// The key of the handler that is to run it.
    pub handler: GroupName,
    /// What it is about.
    pub object: Option<ObjectKey>,
    /// Do the jobs of one handler and object run one after another? Means nothing without an object.
    pub ordered: bool,
    /// The content.
    pub payload: Json,
    /// What is said about it: a JSON object.
    pub metadata: Json,
    /// Higher first; among equals, first come first served.
    pub priority: u64,
    /// Runs no earlier than this. Until then it has no place in its object's order.
    pub not_before: Option<Timestamp>,
    /// While a job of the same handler with this key is live, another is not made.
    pub unique_key: Option<String>,
    /// How often it is attempted.
    pub attempts_max: u32,
    /// Does its death keep the others of its object waiting?
    pub on_exhausted: OnExhausted,
    /// The event that it follows from.
    pub cause: Option<Cause>,
}

impl NewJob {
    /// A job for a handler, with `null` as its payload.
    pub fn new(handler: GroupName) -> Self {
        Self {
            handler,
            object: None,
            ordered: true,
            payload: Json::null(),
            metadata: Json::empty_object(),
            priority: 0,
            not_before: None,
            unique_key: None,
            attempts_max: JOB_ATTEMPTS_MAX,
            on_exhausted: OnExhausted::Hold,
            cause: None,
        }
    }

    /// Refuses what no engine should keep.
    pub fn check(&self) -> Result<(), Invalid> {
        if !(1..=ATTEMPTS_LIMIT).contains(&self.attempts_max) {
            let reason = format!("is {}; choose 1 to {ATTEMPTS_LIMIT}", self.attempts_max);
            return Err(Invalid::new("attempts_max", reason));
        }
        if let Some(key) = &self.unique_key {
            check_text("unique_key", key, UNIQUE_KEY_BYTES_MAX)?;
        }
        if !self.metadata.is_object() {
            return Err(Invalid::new("metadata", "is not a JSON object; write {\"name\": value}"));
        }
        let bytes = self.payload.as_str().len() + self.metadata.as_str().len();
        if bytes > crate::event::EVENT_BYTES_MAX {
            let reason = format!(
                "has {bytes} bytes with its metadata; at most {} are allowed: store it elsewhere and send a reference",
                crate::event::EVENT_BYTES_MAX
            );
            return Err(Invalid::new("payload", reason));
        }
        Ok(())
    }

    /// Is it one of a lane?
    pub fn in_lane(&self) -> bool {
        self.ordered && self.object.is_some()
    }
}

/// What went wrong in one attempt.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct JobError {
    /// Which attempt.
    pub attempt: u32,
    /// When it ended.
    pub at: Timestamp,
    /// What went wrong.
    pub error: String,
}

impl JobError {
    /// Errors as engines keep them: a JSON array of the newest [`ERRORS_MAX`], with one more if there is one.
    pub fn kept(errors: &[Self], one: Option<Self>) -> String {
        let mut errors: Vec<&Self> = errors.iter().collect();
        errors.extend(&one);
        let newest = &errors[errors.len().saturating_sub(ERRORS_MAX)..];
        // Numbers, times and texts all have a form in JSON.
        serde_json::to_string(newest).unwrap_or_else(|_| "[]".into())
    }

    /// Back from what an engine kept.
    pub fn stored(text: &str) -> Option<Vec<Self>> {
        serde_json::from_str(text).ok()
    }
}

/// A job, as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its identity; carries its number.
    pub id: JobId,
    /// The key of its handler.
    pub handler: GroupName,
    /// What it is about.
    pub object: Option<ObjectKey>,
    /// See [`NewJob::ordered`].
    pub ordered: bool,
    /// The content.
    pub payload: Json,
    /// What is said about it.
    pub metadata: Json,
    /// Higher first.
    pub priority: u64,
    /// Where it stands.
    pub state: JobState,
    /// Its place in its lane and among those of its priority; none while it has none: scheduled for the first time, or
    /// over.
    pub turn: Option<u64>,
    /// How often it was claimed, and the attempt was not given back.
    pub attempts: u32,
    /// How often it is attempted.
    pub attempts_max: u32,
    /// See [`NewJob::on_exhausted`].
    pub on_exhausted: OnExhausted,
    /// When its time comes, or came.
    pub not_before: Option<Timestamp>,
    /// When it was sent.
    pub enqueued_at: Timestamp,
    /// When it was last claimed.
    pub locked_at: Option<Timestamp>,
    /// When it was first claimed.
    pub started_at: Option<Timestamp>,
    /// When it was over.
    pub finished_at: Option<Timestamp>,
    /// Who has it, or had it last.
    pub worker: Option<String>,
    /// Grows with each claim.
    pub fence: Fence,
    /// Until when its worker has it.
    pub lease_until: Option<Timestamp>,
    /// What went wrong, the newest [`ERRORS_MAX`].
    pub errors: Vec<JobError>,
    /// See [`NewJob::unique_key`].
    pub unique_key: Option<String>,
    /// The event that it follows from.
    pub cause: Option<Cause>,
    /// Was its worker told to stop?
    pub cancel_asked: bool,
    /// Was it brought back after its death?
    pub redriven: bool,
    /// What its handler made of it.
    pub result: Option<Json>,
    /// How the worker of the last claim settled it; none while it runs, or if no worker did.
    pub settled: Option<Settlement>,
}

impl Job {
    /// What follows from a settlement under the claim with this fence.
    pub fn use_claim(&self, fence: Fence, settlement: Settlement) -> ClaimUse {
        use_claim(self.state, self.fence, self.settled, fence, settlement)
    }

    /// What a notification looks at.
    pub fn glance(&self) -> Glance {
        Glance { state: self.state, not_before: self.not_before, lease_until: self.lease_until }
    }

    /// Has it died, and do the others of its object wait until somebody retries or skips it?
    pub fn holds_lane(&self) -> bool {
        self.state == JobState::Dead && self.turn.is_some()
    }

    /// Is it one of a lane?
    pub fn in_lane(&self) -> bool {
        self.ordered && self.object.is_some()
    }
}

/// A line that a job said. Two that are equal are two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobLine {
    /// Its place among the lines of its job, 1 for the first; given by the store.
    pub line: u64,
    /// In which attempt.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// How much it matters.
    pub level: Level,
    /// What it said.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_carries_its_number_and_its_time() {
        let at = Timestamp::from_millisecond(1_763_200_000_123).unwrap();
        for number in [1, 77, (1 << 62) - 1] {
            let id = JobId::new(at, 0xFFFF, number);
            assert_eq!(id.number(), number);
            assert_eq!(EventId(id.0).time(), Some(at));
            assert_eq!(id.0.get_variant(), uuid::Variant::RFC4122);
            assert_eq!(JobId::parse(&id.to_string()), Some(id));
        }
        assert_eq!(JobId::parse("nonsense"), None);
        assert_eq!(JobId::parse(&Uuid::nil().to_string()), None);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_field() {
        let job = NewJob::new(GroupName::stored("mail.send"));
        assert!(job.check().is_ok());
        let field = |job: NewJob| job.check().unwrap_err().field;
        assert_eq!(field(NewJob { attempts_max: 0, ..job.clone() }), "attempts_max");
        assert_eq!(field(NewJob { unique_key: Some(String::new()), ..job.clone() }), "unique_key");
        assert_eq!(field(NewJob { unique_key: Some("a\u{7}".into()), ..job.clone() }), "unique_key");
        assert_eq!(field(NewJob { metadata: Json::null(), ..job }), "metadata");
    }
}
