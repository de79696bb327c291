//! Which events does Ensue itself publish?
//!
//! `ensue.job.dead`, `ensue.object.held`, `ensue.rule.set` and `ensue.rule.lifted` are ordinary events in the log, so an
//! alert is a handler. Nobody else may publish under `ensue.`, and what fails about such an event makes no new one.
//!
//! They are about objects of their own, such as `ensue:order:1` for `order:1` and
//! `rule:handler:mail`: the chain of a user's object has the user's events alone. The object itself
//! is in the payload.

use super::job::Job;
use super::lifecycle::JobState;
use crate::event::{Entry, Seq};
use crate::json::Json;
use crate::key::{GroupName, OBJECT_BYTES_MAX, ObjectKey, RESERVED, Topic, is_under};
use crate::rules::Rule;
use crate::text::plain;
use serde::Serialize;
use uuid::Uuid;

/// A job has died.
pub const JOB_DEAD: &str = "ensue.job.dead";
/// An object of a handler waits for somebody.
pub const OBJECT_HELD: &str = "ensue.object.held";
/// How the objects begin that events about an object are about.
pub const OWN_OBJECTS: &str = "ensue:";
/// A rule was set, or set anew.
pub const RULE_SET: &str = "ensue.rule.set";
/// A rule was lifted, or has expired.
pub const RULE_LIFTED: &str = "ensue.rule.lifted";

/// Is it one of these, or was it caused by one?
pub fn is_own(topic: &Topic) -> bool {
    is_under(RESERVED, topic.as_str())
}

/// The object of a notice about an object. None if the name would be too long.
fn about_object(object: Option<&ObjectKey>) -> Option<ObjectKey> {
    let own = format!("{OWN_OBJECTS}{}", object?);
    (own.len() <= OBJECT_BYTES_MAX).then(|| ObjectKey::stored(&own))
}

fn entry(topic: &str, object: Option<ObjectKey>, payload: &impl Serialize) -> Entry {
    Entry {
        topic: Topic::stored(topic),
        object,
        // What is written here has no form that JSON does not have.
        payload: Json::of("payload", payload).unwrap_or_else(|_| Json::null()),
        metadata: Json::empty_object(),
        occurred_at: None,
        not_before: None,
        key: None,
        to: None,
    }
}

/// What is published of a job that an attempt has ended, or that died with the one before it: it is told of if it is dead,
/// and does not follow from an event of Ensue's own. One whose cancellation was asked for is cancelled, however it ended.
/// Who skips a job knows: that is not told.
pub fn job_dead(job: &Job) -> Option<Entry> {
    let follows_from_own = job.cause.as_ref().is_some_and(|cause| is_own(&cause.topic));
    if job.state != JobState::Dead || follows_from_own {
        return None;
    }
    #[derive(Serialize)]
    struct Dead<'a> {
        job: String,
        handler: &'a str,
        object: Option<&'a str>,
        attempts: u32,
        error: &'a str,
        event: Option<Seq>,
    }
    let dead = Dead {
        job: job.id.to_string(),
        handler: job.handler.as_str(),
        object: job.object.as_ref().map(ObjectKey::as_str),
        attempts: job.attempts,
        error: &plain(job.errors.last().map_or("", |last| &last.error)),
        event: job.cause.as_ref().map(|cause| cause.seq),
    };
    Some(entry(JOB_DEAD, about_object(job.object.as_ref()), &dead))
}

/// All that is published of a job that an attempt has ended, in this order: that it [died](job_dead), and, if it was an event
/// for a handler and the others of its object wait behind it, that the [object is held](object_held).
///
/// Engines publish it in the commit in which the job dies, behind what the commit publishes otherwise.
pub fn job_ended(job: &Job) -> impl Iterator<Item = Entry> {
    let held = job.cause.as_ref().filter(|_| job.holds_lane()).and_then(|cause| {
        let error = plain(job.errors.last().map_or("", |last| &last.error));
        object_held(&job.handler, job.object.as_ref(), (cause.seq, &cause.topic), job.attempts, &error)
    });
    job_dead(job).into_iter().chain(held)
}

/// What is published when an object of a handler is held; none if the event that failed is one of Ensue's own.
pub fn object_held(
    handler: &GroupName,
    object: Option<&ObjectKey>,
    failed: (Seq, &Topic),
    attempts: u32,
    error: &str,
) -> Option<Entry> {
    if is_own(failed.1) {
        return None;
    }
    #[derive(Serialize)]
    struct Held<'a> {
        handler: &'a str,
        object: Option<&'a str>,
        event: Seq,
        attempts: u32,
        error: &'a str,
    }
    let held =
        Held { handler: handler.as_str(), object: object.map(ObjectKey::as_str), event: failed.0, attempts, error };
    Some(entry(OBJECT_HELD, about_object(object), &held))
}

#[derive(Serialize)]
struct About<'a> {
    id: Uuid,
    kind: &'a str,
    scope: String,
    reason: Option<&'a str>,
    author: &'a str,
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifted_by: Option<&'a str>,
}

fn about<'a>(rule: &'a Rule, lifted_by: Option<&'a str>) -> About<'a> {
    About {
        id: rule.id,
        kind: rule.kind.as_str(),
        scope: rule.scope.to_string(),
        reason: rule.reason.as_deref(),
        author: &rule.author,
        expires_at: rule.expires_at.map(|at| at.to_string()),
        lifted_by,
    }
}

/// What is published when a rule is set.
pub fn rule_set(rule: &Rule) -> Entry {
    entry(RULE_SET, rule.scope.as_object(), &about(rule, None))
}

/// What is published when a rule is lifted, by whom; an expired one is lifted by `expiry`.
pub fn rule_lifted(rule: &Rule, by: &str) -> Entry {
    entry(RULE_LIFTED, rule.scope.as_object(), &about(rule, Some(by)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::NewJob;
    use crate::jobs::job::Cause;
    use crate::jobs::{JobError, JobId};
    use jiff::Timestamp;

    /// A job that has died.
    fn job(cause: Option<&str>) -> Job {
        let new = NewJob::new(GroupName::stored("mail.send"));
        let at = Timestamp::UNIX_EPOCH;
        Job {
            id: JobId::new(at, 0, 7),
            handler: new.handler,
            object: Some(ObjectKey::stored("user:1")),
            ordered: true,
            payload: new.payload,
            metadata: new.metadata,
            priority: 0,
            state: JobState::Dead,
            turn: Some(7),
            attempts: 5,
            attempts_max: 5,
            on_exhausted: new.on_exhausted,
            not_before: None,
            enqueued_at: at,
            locked_at: None,
            started_at: None,
            finished_at: None,
            worker: None,
            fence: 5,
            lease_until: None,
            errors: ["refused", "no\0route"].map(|error| JobError { attempt: 5, at, error: error.into() }).to_vec(),
            unique_key: None,
            cause: cause.map(|topic| Cause {
                seq: 3,
                prev: None,
                id: crate::EventId(Uuid::nil()),
                topic: Topic::stored(topic),
            }),
            cancel_asked: false,
            redriven: false,
            settled: None,
            result: None,
        }
    }

    #[test]
    fn the_death_of_a_job_is_told_with_its_reason() {
        let entry = job_dead(&job(Some("user.created"))).unwrap();
        assert_eq!(
            (entry.topic.as_str(), entry.object.as_ref().map(ObjectKey::as_str)),
            (JOB_DEAD, Some("ensue:user:1"))
        );
        for part in ["\"handler\":\"mail.send\"", "\"error\":\"no␀route\"", "\"event\":3", "\"attempts\":5"] {
            assert!(entry.payload.as_str().contains(part), "{}", entry.payload.as_str());
        }
    }

    #[test]
    fn an_object_of_a_handler_of_events_is_told_to_be_held() {
        let topics = |job: &Job| job_ended(job).map(|entry| entry.topic.to_string()).collect::<Vec<_>>();
        let waits = job(Some("user.created"));
        assert_eq!(topics(&waits), [JOB_DEAD, OBJECT_HELD]);
        let held = job_ended(&waits).nth(1).unwrap();
        assert_eq!(held.object.as_ref().map(ObjectKey::as_str), Some("ensue:user:1"));
        assert!(held.payload.as_str().contains("\"error\":\"no␀route\""), "{}", held.payload.as_str());
        assert_eq!(topics(&Job { turn: None, ..waits }), [JOB_DEAD], "nothing waits behind it");
        assert_eq!(topics(&job(None)), [JOB_DEAD], "it was sent straight to its handler");
        assert!(topics(&job(Some(JOB_DEAD))).is_empty());
    }

    /// Its cancellation was asked for: it is cancelled, whatever its last attempt said. So is one that is tried again.
    #[test]
    fn only_what_is_dead_is_told_of() {
        for state in JobState::ALL {
            assert_eq!(job_dead(&Job { state, ..job(None) }).is_some(), state == JobState::Dead, "{state:?}");
        }
    }

    /// An alert that fails is not alerted about.
    #[test]
    fn what_fails_about_ensues_own_events_makes_no_new_ones() {
        assert_eq!(job_dead(&job(Some(JOB_DEAD))), None);
        let (handler, topic) = (GroupName::stored("alert"), Topic::stored(RULE_SET));
        assert_eq!(object_held(&handler, None, (1, &topic), 5, "no"), None);
        assert!(object_held(&handler, None, (1, &Topic::stored("ensues.own")), 5, "no").is_some());
    }
}
