//! Why is this not running?
//!
//! What is known of a job, or of an event and a handler, becomes a verdict in one word and the reasons for it, each with what
//! to do about it. Everything that is looked up is an argument.

mod object;
mod reading;
mod schedule;

pub use object::{ObjectFacts, WaitingEvent, explain_object};
pub use reading::{ReadingFacts, explain_reading};
pub use schedule::{ScheduleFacts, explain_schedule};

use crate::event::Seq;
use crate::handling::{Standing, Verdict};
use crate::jobs::{Job, JobState, seen};
use crate::key::GroupName;
use crate::rules::Rule;
use jiff::Timestamp;

/// What kind of reason it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReasonKind {
    /// What was wanted, and whether it was.
    Condition,
    /// Another of the same object goes before it.
    Predecessor,
    /// Somebody has paused or blocked it.
    Rule,
    /// A worker has it.
    Lease,
    /// Everything that could run it is busy.
    Limit,
    /// Its time has not come.
    Delay,
    /// Nobody runs its handler.
    Handler,
    /// What went wrong.
    Error,
    /// It is over, or needs nothing.
    State,
}

impl ReasonKind {
    /// Its word in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Condition => "condition",
            Self::Predecessor => "predecessor",
            Self::Rule => "rule",
            Self::Lease => "lease",
            Self::Limit => "limit",
            Self::Delay => "delay",
            Self::Handler => "handler",
            Self::Error => "error",
            Self::State => "state",
        }
    }
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// What kind it is.
    pub kind: ReasonKind,
    /// What it is about: a job, an event, a rule, a handler.
    pub about: Option<String>,
    /// In words.
    pub detail: String,
    /// What to do about it, if anything.
    pub fix: Option<String>,
}

impl Reason {
    /// A reason without anything to do about it.
    pub fn new(kind: ReasonKind, about: Option<String>, detail: impl Into<String>) -> Self {
        Self { kind, about, detail: detail.into(), fix: None }
    }

    /// With what to do about it.
    pub fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

/// Why something does or does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// In one word.
    pub verdict: String,
    /// Why, what weighs most first.
    pub because: Vec<Reason>,
}

/// What is known of a job.
#[derive(Debug, Clone, Copy)]
pub struct JobFacts<'a> {
    /// The job.
    pub job: &'a Job,
    /// The one that goes before it in its lane.
    pub predecessor: Option<&'a Job>,
    /// The rules that hold it.
    pub rules: &'a [&'a Rule],
    /// Until when somebody was said to run its handler's jobs.
    pub served_until: Option<Timestamp>,
    /// Does its handler handle events, whose deliveries workers claim as jobs?
    pub is_pull: bool,
    /// How many jobs of its handler run.
    pub running: u64,
    /// The store's clock.
    pub now: Timestamp,
}

impl Rule {
    /// As a reason.
    pub fn reason(&self) -> Reason {
        let verb = match self.kind {
            crate::rules::RuleKind::Pause => "resume",
            crate::rules::RuleKind::Block => "unblock",
        };
        Reason::new(ReasonKind::Rule, Some(self.id.to_string()), self.in_words())
            .fix(format!("ensue {verb} {}", self.scope))
    }
}

/// What holds a job in few words; none if nothing does.
pub fn held_by(facts: &JobFacts<'_>) -> Option<String> {
    match facts.job.state {
        JobState::Available | JobState::Parked | JobState::Scheduled | JobState::Retrying => {
            let because = explain_job(facts).because;
            let count = facts.rules.len().max(1);
            let details: Vec<String> = because.into_iter().take(count).map(|reason| reason.detail).collect();
            (!details.is_empty()).then(|| details.join("; "))
        }
        JobState::Running | JobState::Succeeded | JobState::Dead | JobState::Cancelled => None,
    }
}

/// Why a job does or does not run.
pub fn explain_job(facts: &JobFacts<'_>) -> Explanation {
    let JobFacts { job, predecessor, rules, .. } = *facts;
    let mut because = Vec::new();
    if !job.state.is_final() && job.state != JobState::Running {
        because.extend(rules.iter().map(|rule| rule.reason()));
    }
    match job.state {
        JobState::Scheduled | JobState::Retrying => because.push(not_yet(job)),
        JobState::Parked => because.extend(predecessor.map(behind)),
        JobState::Available if rules.is_empty() => because.push(not_taken(facts)),
        JobState::Available => {}
        JobState::Running => because.push(taken(facts)),
        JobState::Succeeded => because.push(Reason::new(ReasonKind::State, None, "it is done")),
        JobState::Cancelled => because.push(Reason::new(ReasonKind::State, None, "it was cancelled")),
        JobState::Dead => {
            let detail = format!("it has died in attempt {} of {}", job.attempts, job.attempts_max);
            let fix = format!("ensue job retry {0}, or ensue job skip {0}", job.id);
            because.push(Reason::new(ReasonKind::State, None, detail).fix(fix));
        }
    }
    if let Some(error) = job.errors.last().filter(|_| job.state != JobState::Succeeded) {
        let detail = format!("attempt {} at {}: {}", error.attempt, error.at, error.error);
        because.push(Reason::new(ReasonKind::Error, None, detail));
    }
    Explanation { verdict: seen(job.state, !rules.is_empty()).as_str().to_owned(), because }
}

fn not_yet(job: &Job) -> Reason {
    let at = job.not_before.map_or_else(|| "soon".to_owned(), |at| format!("at {at}"));
    let detail = match job.state {
        JobState::Retrying => format!("it failed and is tried again {at}"),
        _ => format!("it runs no earlier than {at}"),
    };
    Reason::new(ReasonKind::Delay, None, detail).fix(format!("ensue job retry {} runs it now", job.id))
}

fn behind(first: &Job) -> Reason {
    let detail = format!("job {} of the same object goes before it, and is {}", first.id, first.state.as_str());
    let reason = Reason::new(ReasonKind::Predecessor, Some(first.id.to_string()), detail);
    match first.state {
        JobState::Dead => reason.fix(format!("ensue job retry {0}, or ensue job skip {0}", first.id)),
        _ => reason.fix(format!("ensue explain job:{}", first.id)),
    }
}

fn not_taken(facts: &JobFacts<'_>) -> Reason {
    let handler = &facts.job.handler;
    let about = Some(handler.to_string());
    match facts.served_until {
        Some(until) if until > facts.now && facts.running == 0 => {
            let detail = format!(
                "no worker claims it: no job of `{handler}` runs, although its workers were expected until {until}"
            );
            let fix = format!(
                "check that they still run; if a server runs `{handler}`, its workers are busy with other handlers; or {}",
                claim_jobs_of(handler)
            );
            Reason::new(ReasonKind::Handler, about, detail).fix(fix)
        }
        Some(until) if until > facts.now => {
            let detail = format!("it waits for a worker of `{handler}`; {} of its jobs run now", facts.running);
            Reason::new(ReasonKind::Limit, about, detail).fix("more workers or concurrency, if it waits for long")
        }
        Some(until) => {
            let detail = format!("nobody has asked for jobs of `{handler}` since about {until}");
            Reason::new(ReasonKind::Handler, about, detail).fix(format!("start a process that runs `{handler}`"))
        }
        None if facts.is_pull => {
            let detail =
                format!("no worker has asked for jobs of the pull handler `{handler}` yet; no attempt is used up");
            Reason::new(ReasonKind::Handler, about, detail).fix(claim_jobs_of(handler))
        }
        None => {
            let detail = format!("nobody has registered the handler `{handler}`; no attempt is used up");
            let fix = format!("register `{handler}` or claim its jobs; or correct the key and send the job again");
            Reason::new(ReasonKind::Handler, about, detail).fix(fix)
        }
    }
}

/// How jobs of a pull handler are claimed.
pub fn claim_jobs_of(handler: &GroupName) -> String {
    format!("start a worker that claims them: POST /v1/jobs/claim with {{\"handlers\": [\"{handler}\"]}}")
}

fn taken(facts: &JobFacts<'_>) -> Reason {
    let job = facts.job;
    let (worker, until) = (job.worker.as_deref().unwrap_or("a worker"), job.lease_until.unwrap_or(facts.now));
    let told = if job.cancel_asked { "; it was told to stop" } else { "" };
    let detail = match until > facts.now {
        true => format!("{worker} runs it, with a lease until {until}{told}"),
        false => format!("{worker} had it, and its lease has passed at {until}: it is taken up again soon"),
    };
    Reason::new(ReasonKind::Lease, job.worker.clone(), detail)
}

/// What is known of an event and a handler.
#[derive(Debug, Clone, Copy)]
pub struct DeliveryFacts<'a> {
    /// The handler's key.
    pub handler: &'a str,
    /// The event's place.
    pub seq: Seq,
    /// What became of the event.
    pub verdict: &'a Verdict,
    /// What the handler wants: a topic, a condition.
    pub wants: &'a str,
    /// What else is to be said.
    pub note: Option<&'a str>,
    /// The rules that hold it.
    pub rules: &'a [&'a Rule],
    /// Does a process run the handler right now?
    pub is_served: bool,
    /// The object's name, for what to do.
    pub object: Option<&'a str>,
}

/// Why an event was or was not handled by a handler.
pub fn explain_delivery(facts: &DeliveryFacts<'_>) -> Explanation {
    let DeliveryFacts { handler, seq, verdict, wants, note, rules, is_served, object } = *facts;
    let mut because = Vec::new();
    let is_open = verdict.standing.is_open();
    if is_open {
        because.extend(rules.iter().map(|rule| rule.reason()));
    }
    match verdict.standing {
        Standing::NotMatched => {
            because.push(Reason::new(ReasonKind::Condition, None, format!("it does not match {wants}")));
        }
        Standing::BeforeStart => {
            let detail = "it was in the log before the handler began";
            let fix = format!("ensue group seek {handler} --to SEQ moves the handler back");
            because.push(Reason::new(ReasonKind::State, None, detail).fix(fix));
        }
        Standing::Held => {
            let (detail, what) = match object {
                Some(object) => (format!("everything of {object} waits behind it"), format!("object retry {object}")),
                None => ("it waits for somebody".to_owned(), format!("event retry {seq}")),
            };
            let detail = format!("its attempts are exhausted, and {detail}");
            let fix = format!("ensue {what} --handler {handler}, or skip instead of retry");
            because.push(Reason::new(ReasonKind::State, object.map(str::to_owned), detail).fix(fix));
        }
        Standing::Done | Standing::Dead | Standing::Cancelled | Standing::Skipped => {
            let detail = format!("it matched {wants}, and is {}", verdict.standing.as_str());
            because.push(Reason::new(ReasonKind::State, None, detail));
        }
        Standing::Passed => {
            let detail = format!("the handler is past it, and came to want {wants} later");
            because.push(Reason::new(ReasonKind::State, None, detail));
        }
        Standing::Running => because.push(Reason::new(ReasonKind::Lease, None, "it is being handled right now")),
        Standing::Pending | Standing::Waiting | Standing::Retrying => {}
    }
    if let Some(behind) = verdict.behind.filter(|_| is_open) {
        let detail = format!("event {behind} of the same object goes before it");
        let reason = Reason::new(ReasonKind::Predecessor, Some(behind.to_string()), detail);
        because.push(reason.fix(format!("ensue explain event:{behind} --handler {handler}")));
    }
    if let Some(at) = verdict.next_at.filter(|_| is_open) {
        because.push(Reason::new(ReasonKind::Delay, None, format!("it is tried again at {at}")));
    }
    if is_open && !is_served {
        let detail = format!("no process runs `{handler}` right now");
        let reason = Reason::new(ReasonKind::Handler, Some(handler.to_owned()), detail);
        because.push(reason.fix("start one: `ensue serve`, or your application"));
    } else if is_open && because.is_empty() {
        let detail = format!("it matches {wants}, and waits for its turn");
        because.push(Reason::new(ReasonKind::Limit, Some(handler.to_owned()), detail));
    }
    if let Some(error) = &verdict.error {
        because.push(Reason::new(ReasonKind::Error, None, error.clone()));
    }
    because.extend(note.map(|note| Reason::new(ReasonKind::State, None, note)));
    Explanation { verdict: verdict.standing.as_str().to_owned(), because }
}
