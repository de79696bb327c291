//! What does a schedule look like in a body?

use crate::config::units::Span;
use ensue::jobs::JobId;
use ensue::schedules::{Run, RunOutcome, Schedule, SeenSchedule, Target, When};
use ensue::{Json, Seq, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A schedule to be made. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = PutSchedule)]
#[expect(dead_code, reason = "describes what `fields_body.rs` reads by hand")]
pub(super) struct PutScheduleShape {
    /// A cron expression of five, six (seconds in front) or seven fields (a year behind), or `@daily` and the like. With a `?`, or seven
    /// fields, days of the week are Quartz's: Sunday is 1. Either this or `every`.
    #[schema(max_length = 255)]
    cron: Option<String>,
    /// Every so often, such as `5m`, counted from the beginning of 1970 UTC: from `1s` to `366d`.
    every: Option<String>,
    /// The IANA name of the zone whose clock is meant, such as `Europe/Berlin`; `UTC` unless told.
    timezone: Option<String>,
    /// What becomes of occurrences that nobody fired in time: `skip`, `once` (the default: the last of them) or `all` (the last 100).
    misfire: Option<String>,
    /// With `handler`: what becomes of an occurrence while the job of an earlier one is not over: `skip` (the default), `queue` or
    /// `allow`.
    overlap: Option<String>,
    /// Each occurrence fires up to so much later, such as `30s`, and before the next one; always the same for the same occurrence.
    jitter: Option<String>,
    /// An event on this topic follows. Either this or `handler`.
    topic: Option<String>,
    /// A job for the handler with this key follows.
    handler: Option<String>,
    /// The content of the event or job, at most 65,536 bytes; null unless told.
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<serde_json::Value>,
    /// With `handler`: of its jobs, higher first; 0 unless told, which for tasks is that of their collection, or 100.
    priority: Option<u64>,
    /// With `handler`: how often a job of it is attempted; as the handler says, unless told.
    #[schema(minimum = 1)]
    attempts_max: Option<u32>,
}

/// A schedule.
#[derive(Serialize, ToSchema)]
#[schema(as = Schedule)]
pub(crate) struct ScheduleShape<'a> {
    name: &'a str,
    /// What it is; missing if this server cannot read it, with the reason in `error`.
    #[serde(flatten)]
    #[schema(inline)]
    settings: Option<SettingsShape<'a>>,
    /// `config` if config files declare it, and it goes when none does any more.
    #[schema(required = true)]
    managed_by: Option<&'a str>,
    /// Is it paused or blocked?
    held: bool,
    /// What its times mean, in plain English.
    #[schema(required = true)]
    description: Option<String>,
    /// Why it probably does not mean what its author intended, and when it fires next.
    #[schema(required = true)]
    warning: Option<&'a str>,
    /// Its next five times, without jitter.
    #[schema(value_type = Vec<String>, format = DateTime)]
    next: &'a [Timestamp],
    /// When it is looked at next, with jitter; null if nothing is to come.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    due: Option<Timestamp>,
    /// Up to where every occurrence is decided.
    #[schema(value_type = String, format = DateTime)]
    watermark: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    /// Why this server cannot read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error: Option<&'a str>,
}

/// What was said about a schedule.
#[derive(Serialize, ToSchema)]
pub(crate) struct SettingsShape<'a> {
    #[schema(required = true)]
    cron: Option<&'a str>,
    #[schema(required = true)]
    every: Option<String>,
    timezone: &'a str,
    misfire: &'static str,
    #[schema(required = true)]
    overlap: Option<&'static str>,
    #[schema(required = true)]
    jitter: Option<String>,
    #[schema(required = true)]
    topic: Option<&'a str>,
    #[schema(required = true)]
    handler: Option<&'a str>,
    #[schema(value_type = serde_json::Value)]
    payload: &'a Json,
    priority: u64,
    #[schema(required = true)]
    attempts_max: Option<u32>,
}

impl<'a> From<&'a Schedule> for SettingsShape<'a> {
    fn from(schedule: &'a Schedule) -> Self {
        let (cron, every) = match schedule.timing.when() {
            When::Cron(cron) => (Some(cron.as_str()), None),
            When::Every(every) => (None, Some(Span(*every).to_string())),
        };
        let (topic, handler, overlap) = match &schedule.target {
            Target::Topic(topic) => (Some(topic.as_str()), None, None),
            Target::Handler(handler) => (None, Some(handler.as_str()), Some(schedule.overlap().as_str())),
        };
        let jitter = (!schedule.jitter.is_zero()).then(|| Span(schedule.jitter).to_string());
        Self {
            cron,
            every,
            timezone: schedule.timing.zone_name(),
            misfire: schedule.misfire.as_str(),
            overlap,
            jitter,
            topic,
            handler,
            payload: &schedule.payload,
            priority: schedule.priority,
            attempts_max: schedule.attempts_max,
        }
    }
}

impl<'a> From<&'a SeenSchedule> for ScheduleShape<'a> {
    fn from(seen: &'a SeenSchedule) -> Self {
        let (kept, schedule) = (&seen.kept, seen.schedule.as_ref());
        Self {
            name: kept.name.as_str(),
            settings: schedule.ok().map(SettingsShape::from),
            managed_by: kept.managed_by.as_deref(),
            held: kept.held,
            description: schedule.ok().map(|schedule| schedule.timing.in_words()),
            warning: seen.warning.as_deref(),
            next: &seen.next,
            due: kept.due,
            watermark: kept.watermark,
            created_at: kept.created_at,
            updated_at: kept.updated_at,
            error: schedule.err().map(String::as_str),
        }
    }
}

/// A page of schedules, by name.
#[derive(Serialize, ToSchema)]
#[schema(as = Schedules)]
pub(crate) struct SchedulesShape<'a> {
    schedules: Vec<ScheduleShape<'a>>,
    /// The `after` of the next page; null if there is none.
    #[schema(required = true)]
    next: Option<&'a str>,
}

impl<'a> SchedulesShape<'a> {
    /// At most `limit` of these; what is beyond tells that there is another page.
    pub fn page(schedules: &'a [SeenSchedule], limit: usize) -> Self {
        let next = (schedules.len() > limit).then(|| schedules[..limit].last()).flatten();
        Self {
            schedules: schedules.iter().take(limit).map(ScheduleShape::from).collect(),
            next: next.map(|last| last.kept.name.as_str()),
        }
    }
}

/// A schedule that was deleted.
#[derive(Serialize, ToSchema)]
#[schema(as = DeletedSchedule)]
pub(crate) struct DeletedScheduleShape<'a> {
    pub name: &'a str,
    /// `deleted`.
    #[schema(value_type = String)]
    pub state: &'static str,
}

/// What became of an occurrence.
#[derive(Serialize, ToSchema)]
#[schema(as = Run)]
pub(crate) struct RunShape<'a> {
    /// Its place among the runs of its schedule.
    number: u64,
    /// Which: its time by the schedule, without jitter. Of several that were left out together, the last.
    #[schema(value_type = String, format = DateTime)]
    occurrence: Timestamp,
    /// When it was decided.
    #[schema(value_type = String, format = DateTime)]
    fired_at: Timestamp,
    /// Did somebody ask for it?
    manual: bool,
    /// `event`, `job`, `overlapped` (the job of an earlier one was not over: `job`) or `skipped`.
    outcome: &'static str,
    /// The event that was published.
    #[schema(required = true)]
    event: Option<Seq>,
    /// The job that was sent, or that was in its way.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    job: Option<JobId>,
    /// Why it was left out.
    #[schema(required = true)]
    reason: Option<&'a str>,
}

impl<'a> From<&'a Run> for RunShape<'a> {
    fn from(run: &'a Run) -> Self {
        let overlaps = "the job of an earlier occurrence was not over";
        let (outcome, event, job, reason) = match &run.outcome {
            RunOutcome::Event(seq) => ("event", Some(*seq), None, None),
            RunOutcome::Job(job) => ("job", None, Some(*job), None),
            RunOutcome::Overlapped(job) => ("overlapped", None, Some(*job), Some(overlaps)),
            RunOutcome::Skipped(reason) => ("skipped", None, None, Some(reason.as_str())),
        };
        let Run { number, occurrence, at, manual, .. } = run;
        Self { number: *number, occurrence: *occurrence, fired_at: *at, manual: *manual, outcome, event, job, reason }
    }
}

/// A page of runs, the newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = Runs)]
pub(crate) struct RunsShape<'a> {
    runs: Vec<RunShape<'a>>,
    /// The `before` of the next page; null if there is none.
    #[schema(required = true)]
    next: Option<u64>,
}

impl<'a> RunsShape<'a> {
    /// At most `limit` of these; what is beyond tells that there is another page.
    pub fn page(runs: &'a [Run], limit: usize) -> Self {
        let next = (runs.len() > limit).then(|| runs[..limit].last()).flatten();
        Self { runs: runs.iter().take(limit).map(RunShape::from).collect(), next: next.map(|last| last.number) }
    }
}
