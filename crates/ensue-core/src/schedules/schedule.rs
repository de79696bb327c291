//! What is a schedule?
//!
//! Times, and what follows from each: an event on the object `schedule:NAME`, or a job for a handler. What is made of an occurrence
//! says which it was, so that whoever gets it can tell one night from the next.

use super::timing::{Timing, When};
use crate::error::{Invalid, StoreError};
use crate::event::Entry;
use crate::handling::OnExhausted;
use crate::handling::retry::ATTEMPTS_LIMIT;
use crate::jobs::NewJob;
use crate::jobs::job::JOB_ATTEMPTS_MAX;
use crate::json::Json;
use crate::key::{GroupName, ObjectKey, Topic};
use crate::tasks::{Collection, as_task};
use crate::text::check_text;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The longest jitter.
pub const JITTER_MAX: SignedDuration = SignedDuration::from_hours(24);
/// The largest content, in bytes: smaller than an event's, as many schedules may be due at once, and each may make up for a
/// hundred occurrences.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1_024;
/// The longest word for who manages a schedule, in bytes.
pub const MANAGED_BY_BYTES_MAX: usize = 255;

/// What becomes of occurrences whose time has passed while nobody was there to fire them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Misfire {
    /// They are left out.
    Skip,
    /// They are made up for by one: the last of them.
    #[default]
    Once,
    /// They are all made up for, up to [`MISFIRE_ALL_MAX`](super::firing::MISFIRE_ALL_MAX) of them: the last.
    All,
}

/// What becomes of an occurrence while the job of an earlier one is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is left out.
    #[default]
    Skip,
    /// Its job waits for the one before.
    Queue,
    /// They run side by side.
    Allow,
}

macro_rules! words {
    ($name:ident: $($variant:ident $word:literal),+) => {
        impl $name {
            /// Its word in files, bodies and answers.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// From its word.
            pub fn parse(word: &str) -> Option<Self> {
                [$(Self::$variant),+].into_iter().find(|one| one.as_str() == word)
            }
        }
    };
}
words!(Misfire: Skip "skip", Once "once", All "all");
words!(Overlap: Skip "skip", Queue "queue", Allow "allow");

/// What follows from an occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// An event on this topic.
    Topic(Topic),
    /// A job for this handler.
    Handler(GroupName),
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// What it is called.
    pub name: GroupName,
    /// When it fires.
    pub timing: Timing,
    /// What becomes of times that have passed meanwhile.
    pub misfire: Misfire,
    /// What becomes of an occurrence while the one before runs; none is [`Overlap::Skip`], and events have none.
    pub overlap: Option<Overlap>,
    /// Each occurrence fires up to so much later: always the same for the same one.
    pub jitter: SignedDuration,
    /// What follows.
    pub target: Target,
    /// The content of that.
    pub payload: Json,
    /// Of its jobs; higher first. Of tasks 0 is that of their collection.
    pub priority: u64,
    /// How often a job of it is attempted; as its handler says, unless told.
    pub attempts_max: Option<u32>,
    /// Who declares it, if it goes when nobody does any more; none if it was made to stay.
    pub managed_by: Option<String>,
}

/// A schedule without its name and who manages it, as engines keep it.
#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every_us: Option<i64>,
    timezone: String,
    misfire: Misfire,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap: Option<Overlap>,
    jitter_us: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handler: Option<String>,
    payload: Box<RawValue>,
    priority: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempts_max: Option<u32>,
}

impl Target {
    /// An event on this topic.
    pub fn topic(topic: &str) -> Result<Self, Invalid> {
        Topic::parse(topic).map(Self::Topic)
    }

    /// A job for the handler with this key.
    pub fn handler(key: &str) -> Result<Self, Invalid> {
        GroupName::parse("handler", key).map(Self::Handler)
    }
}

impl Schedule {
    /// A schedule with the usual settings, named by a text such as `nightly`.
    pub fn named(name: &str, timing: Timing, target: Target) -> Result<Self, Invalid> {
        Ok(Self::new(GroupName::parse("name", name)?, timing, target))
    }

    /// A schedule with the usual settings.
    pub fn new(name: GroupName, timing: Timing, target: Target) -> Self {
        Self {
            name,
            timing,
            misfire: Misfire::default(),
            overlap: None,
            jitter: SignedDuration::ZERO,
            target,
            payload: Json::null(),
            priority: 0,
            attempts_max: None,
            managed_by: None,
        }
    }

    /// Refuses what cannot be meant at this time.
    pub fn check(&self, now: Timestamp) -> Result<(), Invalid> {
        self.check_settings()?;
        match (self.timing.next_after(now), self.timing.when()) {
            (Some(_), _) => Ok(()),
            (None, When::Cron(cron)) => {
                let reason = format!("`{}` has no time to come: look at its day, month and year", cron.as_str());
                Err(Invalid::new("cron", reason))
            }
            (None, When::Every(_)) => Err(Invalid::new("every", "has no time to come")),
        }
    }

    /// Refuses what cannot be meant at any time. That is enough for what is declared: a file that was right stays so when the last
    /// time that it names has passed.
    pub fn check_settings(&self) -> Result<(), Invalid> {
        if !(SignedDuration::ZERO..=JITTER_MAX).contains(&self.jitter) {
            return Err(Invalid::new("jitter", "is too long: write up to 24h"));
        }
        if let Target::Topic(_) = self.target {
            if self.overlap.is_some() {
                let reason =
                    "is for a schedule with `handler`: an event is there at once, and cannot overlap; leave it out";
                return Err(Invalid::new("overlap", reason));
            }
            if self.attempts_max.is_some() {
                return Err(Invalid::new("attempts_max", "is for a schedule with `handler`; leave it out"));
            }
            if self.priority != 0 {
                return Err(Invalid::new("priority", "is for a schedule with `handler`; leave it out"));
            }
        }
        if let (Some(handler), Some(Overlap::Queue | Overlap::Allow)) = (self.of_tasks(), self.overlap) {
            // At most one of them is live: they cannot run side by side, nor wait for each other.
            let reason = format!("is `skip` for the tasks of a collection, and `{handler}` is one: leave it out");
            return Err(Invalid::new("overlap", reason));
        }
        if let Some(attempts) = self.attempts_max.filter(|attempts| !(1..=ATTEMPTS_LIMIT).contains(attempts)) {
            let reason = format!("is {attempts}; choose 1 to {ATTEMPTS_LIMIT}");
            return Err(Invalid::new("attempts_max", reason));
        }
        if let Some(manager) = &self.managed_by {
            check_text("managed_by", manager, MANAGED_BY_BYTES_MAX)?;
        }
        let bytes = self.payload.as_str().len();
        if bytes > PAYLOAD_BYTES_MAX {
            let reason = format!(
                "has {bytes} bytes; a schedule has at most {PAYLOAD_BYTES_MAX}: keep the rest where the handler finds it"
            );
            return Err(Invalid::new("payload", reason));
        }
        Ok(())
    }

    /// Why it probably does not mean what its author intended; none if nothing seems odd.
    pub fn warning(&self, now: Timestamp) -> Option<String> {
        let makes_jobs = matches!(self.target, Target::Handler(_));
        let is_lost = makes_jobs && self.misfire == Misfire::All && self.overlap() == Overlap::Skip;
        let lost = is_lost.then(|| {
            let advice = match self.of_tasks() {
                Some(_) => "of a collection one task is live: write `misfire: once`",
                None => "write `overlap: queue` or `allow`",
            };
            format!(
                "`misfire: all` sends a job for each that was missed, and `overlap: skip` leaves out all but the first of them; {advice}"
            )
        });
        let warnings: Vec<String> = self.timing.warning(now).into_iter().chain(lost).collect();
        (!warnings.is_empty()).then(|| warnings.join(". "))
    }

    /// What becomes of an occurrence while the one before runs. Of tasks it is left out, whatever was kept before that was refused.
    pub fn overlap(&self) -> Overlap {
        match self.of_tasks() {
            Some(_) => Overlap::Skip,
            None => self.overlap.unwrap_or_default(),
        }
    }

    /// The handler of its jobs, if these are the tasks of a collection.
    fn of_tasks(&self) -> Option<&GroupName> {
        match &self.target {
            Target::Handler(handler) => Collection::of_handler(handler).map(|_| handler),
            Target::Topic(_) => None,
        }
    }

    /// What it is about: the object of its events, and of its jobs if they wait for each other.
    pub fn object(&self) -> ObjectKey {
        ObjectKey::stored(&self.unique_key())
    }

    /// By which its jobs are known, if only one of them may be live.
    pub fn unique_key(&self) -> String {
        format!("schedule:{}", self.name)
    }

    /// The same without its name, as engines keep it.
    pub fn kept(&self) -> Json {
        let (cron, every_us) = match self.timing.when() {
            When::Cron(cron) => (Some(cron.as_str().to_owned()), None),
            When::Every(every) => (None, i64::try_from(every.as_micros()).ok()),
        };
        let (topic, handler) = match &self.target {
            Target::Topic(topic) => (Some(topic.to_string()), None),
            Target::Handler(handler) => (None, Some(handler.to_string())),
        };
        let null = || RawValue::NULL.to_owned();
        let kept = Kept {
            cron,
            every_us,
            timezone: self.timing.zone_name().to_owned(),
            misfire: self.misfire,
            overlap: self.overlap,
            jitter_us: i64::try_from(self.jitter.as_micros()).unwrap_or(0),
            topic,
            handler,
            payload: RawValue::from_string(self.payload.as_str().to_owned()).unwrap_or_else(|_| null()),
            priority: self.priority,
            attempts_max: self.attempts_max,
        };
        // Texts, numbers and what is JSON already all have a form in JSON.
        Json::stored(serde_json::to_string(&kept).unwrap_or_else(|_| "{}".into()))
    }

    /// Back from what an engine kept. What this program cannot read (a zone that it does not know, say) is told, so that
    /// whoever can reads it.
    pub fn stored(name: &GroupName, kept: &Json, managed_by: Option<&str>) -> Result<Self, StoreError> {
        let cannot = |reason: String| StoreError::Engine(format!("the schedule `{name}` cannot be read: {reason}"));
        let kept: Kept = serde_json::from_str(kept.as_str()).map_err(|error| cannot(error.to_string()))?;
        let zone = Some(kept.timezone.as_str());
        let timing = match (&kept.cron, kept.every_us) {
            (Some(cron), None) => Timing::cron(cron, zone),
            (None, Some(micros)) => Timing::every(SignedDuration::from_micros(micros), zone),
            _ => Err(Invalid::new("cron", "is not there, or there beside `every`")),
        };
        let target = match (&kept.topic, &kept.handler) {
            (Some(topic), None) => Target::Topic(Topic::stored(topic)),
            (None, Some(handler)) => Target::Handler(GroupName::stored(handler)),
            _ => return Err(cannot("it has not one of `topic` and `handler`".into())),
        };
        Ok(Self {
            name: name.clone(),
            timing: timing.map_err(|invalid| cannot(invalid.to_string()))?,
            misfire: kept.misfire,
            overlap: kept.overlap,
            jitter: SignedDuration::from_micros(kept.jitter_us),
            target,
            payload: Json::stored(kept.payload.get()),
            priority: kept.priority,
            attempts_max: kept.attempts_max,
            managed_by: managed_by.map(str::to_owned),
        })
    }

    /// What follows from an occurrence of it.
    pub fn makes(&self, occurrence: Timestamp) -> Makes {
        #[derive(Serialize)]
        struct Said<'a> {
            schedule: &'a str,
            occurrence: Timestamp,
        }
        let said = Said { schedule: self.name.as_str(), occurrence };
        // A name and a time have a form in JSON.
        let metadata = Json::of("metadata", &said).unwrap_or_else(|_| Json::empty_object());
        match &self.target {
            Target::Topic(topic) => Makes::Event(Entry {
                topic: topic.clone(),
                object: Some(self.object()),
                payload: self.payload.clone(),
                metadata,
                occurred_at: Some(occurrence),
                not_before: None,
                key: None,
                to: None,
            }),
            Target::Handler(handler) => {
                let job = NewJob {
                    object: (self.overlap() == Overlap::Queue).then(|| self.object()),
                    payload: self.payload.clone(),
                    metadata,
                    priority: self.priority,
                    unique_key: (self.overlap() == Overlap::Skip).then(|| self.unique_key()),
                    attempts_max: self.attempts_max.unwrap_or(JOB_ATTEMPTS_MAX),
                    // One failed night does not stop the next.
                    on_exhausted: OnExhausted::Skip,
                    ..NewJob::new(handler.clone())
                };
                Makes::Job(as_task(job, None))
            }
        }
    }
}

/// What is made of an occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Makes {
    /// An event.
    Event(Entry),
    /// A job.
    Job(NewJob),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nightly(target: Target) -> Schedule {
        let timing = Timing::cron("30 2 * * *", Some("Europe/Berlin")).unwrap();
        Schedule::new(GroupName::stored("nightly"), timing, target)
    }

    fn mail() -> Target {
        Target::Handler(GroupName::stored("mail.send"))
    }

    #[test]
    fn a_schedule_comes_back_as_it_was_kept() {
        let schedule = Schedule {
            misfire: Misfire::All,
            overlap: Some(Overlap::Queue),
            jitter: SignedDuration::from_secs(30),
            payload: Json::parse("payload", r#"{"a":1.50}"#).unwrap(),
            priority: u64::MAX,
            attempts_max: Some(2),
            managed_by: Some("config".into()),
            ..nightly(mail())
        };
        let every = Schedule {
            timing: Timing::every(SignedDuration::from_secs(5), None).unwrap(),
            ..nightly(Target::Topic(Topic::stored("t")))
        };
        for one in [schedule, every] {
            let again = Schedule::stored(&one.name, &one.kept(), one.managed_by.as_deref()).unwrap();
            assert_eq!(again, one);
            assert_eq!(again.kept(), one.kept());
        }
        let unknown = nightly(mail()).kept().as_str().replace("Europe/Berlin", "Mars/Olympus");
        let error = Schedule::stored(&GroupName::stored("n"), &Json::stored(unknown), None).unwrap_err();
        assert!(error.to_string().contains("Mars/Olympus"), "{error}");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_field() {
        let now = Timestamp::UNIX_EPOCH;
        let topic = || nightly(Target::Topic(Topic::stored("report.nightly")));
        assert!(topic().check(now).is_ok() && nightly(mail()).check(now).is_ok());
        let field = |schedule: Schedule| schedule.check(now).unwrap_err().field;
        assert_eq!(field(Schedule { overlap: Some(Overlap::Skip), ..topic() }), "overlap");
        assert_eq!(field(Schedule { priority: 1, ..topic() }), "priority");
        assert_eq!(field(Schedule { jitter: SignedDuration::from_hours(25), ..topic() }), "jitter");
        assert_eq!(field(Schedule { attempts_max: Some(0), ..nightly(mail()) }), "attempts_max");
        let never = Timing::cron("0 0 30 2 *", None).unwrap();
        assert_eq!(field(Schedule { timing: never, ..topic() }), "cron");
        let past = Timing::cron("0 0 0 1 1 ? 1969", None).unwrap();
        assert_eq!(field(Schedule { timing: past, ..topic() }), "cron");
        let sized = |bytes: usize| Json::stored(format!("\"{}\"", "x".repeat(bytes - 2)));
        assert!(Schedule { payload: sized(PAYLOAD_BYTES_MAX), ..topic() }.check(now).is_ok());
        assert_eq!(field(Schedule { payload: sized(PAYLOAD_BYTES_MAX + 1), ..topic() }), "payload");
    }

    #[test]
    fn a_policy_that_undoes_another_is_told() {
        let all = |overlap, target| Schedule { misfire: Misfire::All, overlap, ..nightly(target) };
        let now = Timestamp::UNIX_EPOCH;
        let warning = all(None, mail()).warning(now).unwrap();
        assert!(warning.contains("`overlap: queue`"), "{warning}");
        assert_eq!(all(Some(Overlap::Queue), mail()).warning(now), None);
        assert_eq!(all(None, Target::Topic(Topic::stored("t"))).warning(now), None);
    }

    #[test]
    fn an_occurrence_makes_what_its_policy_says() {
        let at: Timestamp = "2026-11-16T01:30:00Z".parse().unwrap();
        let Makes::Event(event) = nightly(Target::Topic(Topic::stored("report"))).makes(at) else { panic!("no event") };
        assert_eq!(event.object.as_ref().map(ObjectKey::as_str), Some("schedule:nightly"));
        assert_eq!(event.metadata.as_str(), r#"{"schedule":"nightly","occurrence":"2026-11-16T01:30:00Z"}"#);
        let job = |overlap| match (Schedule { overlap, ..nightly(mail()) }).makes(at) {
            Makes::Job(job) => job,
            Makes::Event(_) => panic!("an event"),
        };
        for (overlap, key, object) in [
            (None, Some("schedule:nightly"), None),
            (Some(Overlap::Skip), Some("schedule:nightly"), None),
            (Some(Overlap::Queue), None, Some("schedule:nightly")),
            (Some(Overlap::Allow), None, None),
        ] {
            let job = job(overlap);
            assert_eq!(job.unique_key.as_deref(), key);
            assert_eq!(job.object.as_ref().map(ObjectKey::as_str), object);
            assert_eq!(job.on_exhausted, OnExhausted::Skip);
            assert!(job.check().is_ok());
        }
    }
}
