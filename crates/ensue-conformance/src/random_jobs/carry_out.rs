//! How is a step carried out, and what did it answer?

use super::look::SeenJob;
use super::{Draw, EndDraft, EventDraft, HANDLERS, JobDraft, LEASES_SECS, OBJECTS, PRIORITIES, SCOPES, Step};
use crate::factory::{Factory, Place};
use crate::suite::checked;
use ensue_core::clock::{Clock, ManualClock};
use ensue_core::jobs::lifecycle::expired;
use ensue_core::jobs::{
    Claim, Enqueued, Held, Job, JobChange, JobEnd, JobId, JobLine, JobRenewed, JobSettled, JobState, NewJob, Progress,
    Steered,
};
use ensue_core::positions::{GroupKind, Level, Member};
use ensue_core::rules::{NewRule, Rule, Scope};
use ensue_core::store::SharedStore;
use ensue_core::{GroupName, Json, NewEvent, ObjectKey, Seq, StoreError, Timestamp};
use jiff::SignedDuration;
use uuid::Uuid;

/// A job that was sent, or is there already: which, whether it is new, and where it stands.
type Sent = (Option<usize>, bool, JobState);

/// A rule without its id.
pub(super) type SeenRule = (String, String, Option<String>, String, [Option<Timestamp>; 2]);

/// What a step answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Sent(Vec<Sent>),
    Jobs(Vec<SeenJob>),
    Renewed(Vec<Option<JobRenewed>>),
    Settled(Vec<Told>),
    Woken { count: usize, expired: Vec<SeenJob>, next_due: Option<Timestamp>, settled: Vec<Told> },
    Steered(Vec<Led>),
    Rule(Option<SeenRule>, bool),
    Rules(Vec<SeenRule>),
    Count(usize),
    Was(bool),
    Nothing,
    Invalid,
}

/// What came of one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    Done { state: JobState, events: Vec<(Option<Seq>, Option<Seq>, bool)>, jobs: Vec<Sent> },
    LeaseLost,
    Invalid,
    Refused(StoreError),
}

/// What came of steering one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Led {
    Done(SeenJob),
    Refused(SeenJob, String),
    Unknown,
}

/// One of the two stores, and what it gave out.
pub(super) struct Side {
    place: Box<dyn Place>,
    clock: Clock,
    start: Timestamp,
    pub store: SharedStore,
    /// In the order in which they were sent.
    pub jobs: Vec<JobId>,
    claims: Vec<Held>,
    members: Vec<Uuid>,
    /// Of the rules, each that was seen.
    pub versions: Vec<u64>,
}

pub(super) fn handler(index: usize) -> GroupName {
    GroupName::stored(HANDLERS[index])
}

fn lease_of(lease: usize) -> SignedDuration {
    SignedDuration::from_secs(LEASES_SECS[lease])
}

pub(super) fn rule_as_seen(rule: &Rule) -> SeenRule {
    let times = [Some(rule.created_at), rule.expires_at];
    (rule.kind.as_str().into(), rule.scope.to_string(), rule.reason.clone(), rule.author.clone(), times)
}

impl Side {
    pub async fn new(factory: &dyn Factory, clock: &ManualClock) -> Self {
        let place = factory.make().await;
        let store = place.open(clock.clock()).await;
        let (clock, start) = (clock.clock(), clock.now());
        let (jobs, claims, members, versions) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { place, clock, start, store, jobs, claims, members, versions }
    }

    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    fn in_secs(&self, secs: i64) -> Timestamp {
        self.now() + SignedDuration::from_secs(secs)
    }

    pub fn nth(&self, id: JobId) -> Option<usize> {
        self.jobs.iter().position(|known| *known == id)
    }

    /// The job that was sent as this one; one that nobody was given if there is none.
    fn id(&self, nth: usize) -> JobId {
        self.jobs.get(nth).copied().unwrap_or(JobId::new(self.start, 7, 1_000_000))
    }

    fn claim_before(&self, before: usize) -> Held {
        let nobody = Held { id: self.id(usize::MAX), fence: 1 };
        self.claims.iter().rev().nth(before).copied().unwrap_or(nobody)
    }

    fn sent(&mut self, sent: Vec<Enqueued>) -> Vec<Sent> {
        let mut told = Vec::new();
        for one in sent {
            if one.is_new {
                let newest = self.jobs.last().map(|id| id.number());
                assert!(newest < Some(one.id.number()), "a number went back");
                self.jobs.push(one.id);
            }
            told.push((self.nth(one.id), one.is_new, one.state));
        }
        told
    }

    fn new_job(&self, draft: &JobDraft, unique: usize) -> NewJob {
        NewJob {
            object: draft.object.map(|object| ObjectKey::stored(OBJECTS[object])),
            ordered: draft.ordered,
            payload: Json::stored(format!("{{\"n\": {unique}}}")),
            priority: PRIORITIES[draft.priority],
            not_before: draft.delay_secs.map(|secs| self.in_secs(secs)),
            unique_key: draft.key.map(|key| format!("k{key}")),
            attempts_max: if draft.is_bad { 0 } else { 3 },
            on_exhausted: draft.on_exhausted,
            ..NewJob::new(handler(draft.handler))
        }
    }

    fn new_jobs(&self, drafts: &[JobDraft], unique: usize) -> Vec<NewJob> {
        drafts.iter().enumerate().map(|(n, draft)| self.new_job(draft, unique * 10 + n)).collect()
    }

    fn lines(&self, count: u8) -> Vec<JobLine> {
        let line = JobLine { line: 0, attempt: 1, at: self.now(), level: Level::Info, message: "said".into() };
        vec![line; usize::from(count)]
    }

    fn change(&self, draw: &Draw, unique: usize) -> JobChange {
        let claim = self.claim_before(draw.claim_before);
        let fence = if draw.is_forged { claim.fence + 1 } else { claim.fence };
        let error = || format!("error {unique}");
        let end = match draw.end {
            EndDraft::Succeeded => JobEnd::Succeeded,
            EndDraft::Retry { secs } => JobEnd::Retry { at: self.in_secs(secs), error: error() },
            EndDraft::Dead => JobEnd::Dead { error: error() },
            EndDraft::Snoozed { secs } => JobEnd::Snoozed { at: self.in_secs(secs) },
            EndDraft::CalledOff => JobEnd::CalledOff { why: error() },
            EndDraft::GivenBack => JobEnd::GivenBack,
            EndDraft::Lapsed { again } => JobEnd::Lapsed { at: again.then(|| self.now()), error: error() },
        };
        JobChange {
            held: Held { fence, ..claim },
            end,
            result: (draw.lines != 1).then(|| Json::stored(format!("[{unique}]"))),
            lines: self.lines(draw.lines),
            events: events(&draw.events),
            jobs: self.new_jobs(&draw.jobs, unique),
        }
    }

    async fn settle(&mut self, changes: Vec<JobChange>) -> Result<Vec<Told>, StoreError> {
        let mut told = Vec::new();
        for settled in self.store.settle_jobs(changes).await? {
            told.push(match settled {
                JobSettled::Done { state, events, jobs } => {
                    let events = events.iter().map(|one| (one.seq, one.prev, one.repeated)).collect();
                    Told::Done { state, events, jobs: self.sent(jobs) }
                }
                JobSettled::LeaseLost => Told::LeaseLost,
                JobSettled::Refused(StoreError::Invalid(_)) => Told::Invalid,
                JobSettled::Refused(error) => Told::Refused(error),
            });
        }
        Ok(told)
    }

    fn as_seen(&self, jobs: &[Job]) -> Vec<SeenJob> {
        jobs.iter().map(|job| SeenJob::of(job, self.nth(job.id))).collect()
    }

    /// Carries a step out; what a caller may be told is an answer too.
    pub async fn carry_out(&mut self, step: &Step, index: usize) -> Result<Answer, StoreError> {
        match self.try_out(step, index).await {
            Err(StoreError::Invalid(_)) => Ok(Answer::Invalid),
            other => other,
        }
    }

    async fn try_out(&mut self, step: &Step, index: usize) -> Result<Answer, StoreError> {
        Ok(match step {
            Step::Send(drafts) => {
                let sent = self.store.enqueue(self.new_jobs(drafts, index * 10)).await?;
                Answer::Sent(self.sent(sent))
            }
            Step::Claim { handlers, limit, lease } => {
                let handlers = handlers.iter().map(|(index, most)| (handler(*index), *most)).collect();
                let worker = format!("worker {index}");
                let claim =
                    Claim { handlers, limit: *limit, lease: lease_of(*lease), worker, ends_with_store: limit % 2 == 0 };
                let taken = self.store.claim(claim).await?;
                self.claims.extend(taken.iter().map(|job| Held { id: job.id, fence: job.fence }));
                Answer::Jobs(self.as_seen(&taken))
            }
            Step::Renew { claims_before, lease } => {
                let held: Vec<Held> = claims_before.iter().map(|before| self.claim_before(*before)).collect();
                Answer::Renewed(self.store.renew_jobs(&held, lease_of(*lease)).await?)
            }
            Step::Settle(draws) => {
                let draws = draws.iter().enumerate();
                let changes = draws.map(|(n, draw)| self.change(draw, index * 10 + n)).collect();
                Answer::Settled(self.settle(changes).await?)
            }
            Step::Say { claim_before, lines } => {
                Answer::Was(self.store.say(self.claim_before(*claim_before), self.lines(*lines)).await?)
            }
            Step::Progress { claim_before, done } => {
                let progress = Progress { done: *done, total: None, unit: None, at: self.now() };
                Answer::Was(self.store.report(self.claim_before(*claim_before), progress).await?)
            }
            Step::Wake { limit, settles } => {
                let woken = self.store.wake_jobs(*limit).await?;
                let end = |job: &Job| {
                    let worker = job.worker.as_deref().unwrap_or_default();
                    let end = expired(job.attempts, job.attempts_max, worker, self.now());
                    JobChange::new(Held { id: job.id, fence: job.fence }, end)
                };
                let changes = if *settles { woken.expired.iter().map(end).collect() } else { Vec::new() };
                let expired = self.as_seen(&woken.expired);
                let settled = self.settle(changes).await?;
                Answer::Woken { count: woken.count, expired, next_due: woken.next_due, settled }
            }
            Step::Steer { nths, steer } => {
                let ids: Vec<JobId> = nths.iter().map(|nth| self.id(*nth)).collect();
                let led = self.store.steer(&ids, *steer).await?.into_iter().map(|steered| match steered {
                    Steered::Done(job) => Led::Done(SeenJob::of(&job, self.nth(job.id))),
                    Steered::Refused(job, why) => {
                        // How it goes on is free.
                        let why = why.split_once(": wait").map_or(why, |(begin, _)| begin);
                        Led::Refused(SeenJob::of(&job, self.nth(job.id)), why.into())
                    }
                    Steered::Unknown => Led::Unknown,
                });
                Answer::Steered(led.collect())
            }
            Step::SetRule { kind, scope, expires_secs } => {
                let rule = NewRule {
                    kind: *kind,
                    scope: Scope::parse(SCOPES[*scope])?,
                    reason: index.is_multiple_of(2).then(|| format!("reason {index}")),
                    author: format!("author {index}"),
                    expires_at: expires_secs.map(|secs| self.in_secs(secs)),
                };
                let (rule, is_new) = self.store.set_rule(rule).await?;
                Answer::Rule(Some(rule_as_seen(&rule)), is_new)
            }
            Step::LiftRule { kind, scope } => {
                let lifted = self.store.lift_rule(*kind, &Scope::parse(SCOPES[*scope])?, "somebody").await?;
                Answer::Rule(lifted.as_ref().map(rule_as_seen), false)
            }
            Step::Join { lease } => {
                let id = Uuid::from_u128((self.members.len() as u128 + 1) << 64 | 1);
                self.members.push(id);
                let member = Member { id, name: format!("process {index}"), kind: GroupKind::Handler };
                self.store.serve(member, lease_of(*lease), Vec::new()).await?;
                Answer::Nothing
            }
            Step::Report { nth, before } => {
                let member = self.members.iter().rev().nth(*nth);
                let version = self.versions.iter().rev().nth(*before);
                if let (Some(member), Some(version)) = (member, version) {
                    self.store.report_rules(*member, *version).await?;
                }
                Answer::Nothing
            }
            Step::Serve { handlers, lease } => {
                let handlers: Vec<GroupName> = handlers.iter().map(|index| handler(*index)).collect();
                self.store.serve_jobs(&handlers, lease_of(*lease)).await?;
                Answer::Nothing
            }
            Step::Purge { before_secs, keep, limit } => {
                let before = self.start + SignedDuration::from_secs(*before_secs);
                let tasks = self.store.purge_tasks(before, *keep, *limit).await?;
                Answer::Count(tasks + self.store.purge_jobs(before, *keep, *limit).await?)
            }
            Step::Advance { seconds } => {
                if *seconds < 0 {
                    // Who was dead could live again, and may be forgotten.
                    self.all_leave().await?;
                }
                let mut lifted: Vec<SeenRule> = self.store.expire_rules().await?.iter().map(rule_as_seen).collect();
                lifted.sort();
                Answer::Rules(lifted)
            }
            Step::Reopen => {
                // An engine that only one process can open forgets them.
                self.all_leave().await?;
                self.store.close().await;
                self.store = self.place.open(self.clock.clone()).await;
                Answer::Nothing
            }
        })
    }

    async fn all_leave(&self) -> Result<(), StoreError> {
        for member in &self.members {
            self.store.leave(*member).await?;
        }
        Ok(())
    }
}

fn events(drafts: &[EventDraft]) -> Vec<ensue_core::Entry> {
    let event = |draft: &EventDraft| {
        let mut event = NewEvent::new(format!("t{}", draft.topic));
        if let Some(object) = draft.object {
            event = event.object(OBJECTS[object]);
        }
        draft.key.map_or(event.clone(), |key| event.key(format!("k{key}")))
    };
    if drafts.is_empty() { Vec::new() } else { checked(drafts.iter().map(event).collect()) }
}
