//! Jobs for workers in other processes, over HTTP.
//!
//! A worker in any language claims, renews, settles and reports. It holds a claim: a text that names the job and the
//! fence, with a code under the store's key that nobody else can compute. Claims over SQL have the same text
//! (`claim_text` in `ensue-stores/src/postgres/sql/fn_sql_checks.sql`). Workers in this process hold their jobs without one.

use super::emit::Emit;
use super::job_metrics::{AttemptOutcome, JobMetrics};
use super::unheard::Unheard;
use crate::Ensue;
use crate::attempted::Attempted;
use crate::error::Error;
use ensue_core::handling::Ended;
use ensue_core::jobs::job::{JOB_LINES_MAX, JOBS_MAX};
use ensue_core::jobs::patience::lease_within;
use ensue_core::jobs::{
    Claim, ClaimUse, Held, Job, JobChange, JobEnd, JobId, JobLine, JobRenewed, JobSettled, JobState, Progress,
    Settlement,
};
use ensue_core::positions::{Fence, Level};
use ensue_core::store::PAGE_BYTES_MAX;
use ensue_core::store_key::{CODE_DIGITS, bytes_of};
use ensue_core::{GroupName, Invalid, Json, NewEvent, StoreError, StoreKey, Timestamp};
use jiff::SignedDuration;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// The longest and the shortest lease of a claim.
pub const LEASE_MAX: Duration = Duration::from_secs(24 * 3_600);
/// See [`LEASE_MAX`].
pub const LEASE_MIN: Duration = Duration::from_millis(100);
/// How often a worker that waits is given a look, where others can send jobs unheard.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How many jobs one claim takes at most; a worker that wants more is given them in several.
const ROUND_MAX: usize = 100;
/// How many jobs one call that completes many jobs may send.
const COMPLETED_JOBS_SENT_MAX: usize = 10 * JOBS_MAX;
/// How long it is known that a handler is served after somebody asked for its jobs.
const SERVED_FOR: Duration = Duration::from_secs(60);

/// The claim of a worker, as it is sent. Whether its code is right is known only to the store that gave it out.
#[derive(Clone, PartialEq, Eq)]
pub struct ClaimRef {
    held: Held,
    code: String,
}

/// The text over which the code of a claim is computed.
fn message(held: Held) -> String {
    format!("claim-{:x}-{}", held.fence, held.id)
}

impl ClaimRef {
    /// The claim of a job that is held.
    pub(crate) fn of(held: Held, key: &StoreKey) -> Self {
        Self { held, code: key.code(&message(held)) }
    }

    /// The claimed job.
    pub fn job(&self) -> JobId {
        self.held.id
    }

    /// From its text.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let parsed = text.strip_prefix("claim-").and_then(|rest| {
            let ((fence, rest), digits) = (rest.split_once('-')?, |text: &str| text.len() == CODE_DIGITS);
            let (id, code) = rest.rsplit_once('-').filter(|(_, code)| digits(code))?;
            let (fence, id) = (Fence::from_str_radix(fence, 16).ok()?, JobId::parse(id)?);
            bytes_of(code).map(|_| Self { held: Held { id, fence }, code: code.to_owned() })
        });
        parsed.ok_or_else(|| Invalid::new("claim", "is not a claim; send back the text that came with the claimed job"))
    }

    /// The job that is held; none if the store with this key has not given out the claim.
    fn held(&self, key: &StoreKey) -> Option<Held> {
        key.verifies(&message(self.held), &self.code).then_some(self.held)
    }
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", message(self.held), self.code)
    }
}

/// Without its secret.
impl fmt::Debug for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClaimRef").field(&self.held).finish()
    }
}

/// A job that a worker elsewhere has got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedJob {
    /// The job.
    pub job: Job,
    /// What to settle it with.
    pub claim: ClaimRef,
}

/// The completion of one of many claimed jobs.
#[derive(Debug, Clone)]
pub struct Completion {
    /// The claim of the job.
    pub claim: ClaimRef,
    /// What was made of it.
    pub result: Option<Json>,
    /// Events to publish in the same commit.
    pub events: Vec<NewEvent>,
    /// Jobs to send in the same commit.
    pub jobs: Vec<Emit>,
}

/// How a worker elsewhere says that an attempt has ended.
#[derive(Debug, Clone)]
pub enum JobOutcome {
    /// It is done.
    Done {
        /// What was made of it.
        result: Option<Json>,
        /// Events to publish in the same commit.
        events: Vec<NewEvent>,
        /// Jobs to send in the same commit.
        jobs: Vec<Emit>,
    },
    /// It failed.
    Failed {
        /// What went wrong.
        error: String,
        /// May it be tried again?
        retry: bool,
        /// After how long; as its handler says, unless told.
        after: Option<Duration>,
    },
    /// It is to run again after this time; no attempt is used up.
    Snoozed(Duration),
}

impl JobOutcome {
    /// The verb that it is.
    fn settlement(&self) -> Settlement {
        match self {
            Self::Done { .. } => Settlement::Complete,
            Self::Failed { .. } => Settlement::Fail,
            Self::Snoozed(_) => Settlement::Snooze,
        }
    }
}

/// The claim is somebody else's now, or the job is over: nothing was changed.
fn lost(id: JobId) -> Error {
    let why =
        format!("lease lost: job {id} was taken over or is over, and nothing was changed; drop what you have of it");
    Error::Store(StoreError::Conflict(why))
}

fn lease_of(lease: Duration) -> Result<SignedDuration, Invalid> {
    match (LEASE_MIN..=LEASE_MAX).contains(&lease) {
        true => Ok(SignedDuration::try_from(lease).unwrap_or(SignedDuration::MAX)),
        false => {
            let (shortest, longest) = (LEASE_MIN.as_millis(), LEASE_MAX.as_millis());
            Err(Invalid::new("lease_ms", format!("is {}; choose {shortest} to {longest}", lease.as_millis())))
        }
    }
}

impl Ensue {
    /// Claims jobs for a worker elsewhere: of these handlers, at most `limit`, waiting for the first at most this long.
    pub async fn claim_jobs(
        &self,
        handlers: Vec<GroupName>,
        limit: usize,
        lease: Duration,
        wait_max: Duration,
        worker: &str,
    ) -> Result<Vec<ClaimedJob>, Error> {
        let deadline = Instant::now() + wait_max;
        let claim = Claim {
            handlers: handlers.iter().map(|handler| (handler.clone(), limit)).collect(),
            limit,
            lease: lease_of(lease)?,
            worker: worker.to_owned(),
            ends_with_store: false,
        };
        let served_for = SignedDuration::try_from(SERVED_FOR + wait_max).unwrap_or(SignedDuration::MAX);
        self.store().serve_jobs(&handlers, served_for).await?;
        let mut rings = self.inner().jobs.waiting.subscribe();
        let alone = self.store().handler_slots() == 1;
        loop {
            // Listen first, then look, then wait.
            rings.mark_unchanged();
            let mut claimed = self.claim_in_rounds(&claim).await?;
            self.keep_to_timeouts(claimed.jobs_mut(), claim.lease).await?;
            if !claimed.jobs().is_empty() || Instant::now() >= deadline {
                if !claimed.jobs().is_empty() {
                    self.inner().jobs.sooner.ring();
                }
                let key = self.store().store_key().await?;
                let token = |job: Job| {
                    JobMetrics::of(&job.handler).claimed();
                    let claim = ClaimRef::of(Held { id: job.id, fence: job.fence }, &key);
                    ClaimedJob { job, claim }
                };
                return Ok(claimed.take().into_iter().map(token).collect());
            }
            let look_at = if alone { deadline } else { deadline.min(Instant::now() + LOOK_EVERY) };
            tokio::select! {
                _ = rings.changed() => {}
                () = tokio::time::sleep_until(look_at) => {}
            }
        }
    }

    /// Claims up to the limit, in rounds, and no more than an answer should hold: payloads may be large.
    async fn claim_in_rounds(&self, claim: &Claim) -> Result<Unheard, Error> {
        let mut claimed = Unheard::new(self);
        loop {
            let round = ROUND_MAX.min(claim.limit - claimed.jobs().len());
            let handlers = claim.handlers.iter().map(|(handler, _)| (handler.clone(), round)).collect();
            let count = claimed.claim(Claim { handlers, limit: round, ..claim.clone() }).await?;
            let bytes: usize = claimed.jobs().iter().map(content_bytes).sum();
            if bytes > PAGE_BYTES_MAX {
                claimed.truncate(fitting(claimed.jobs().iter().map(content_bytes)));
                return Ok(claimed);
            }
            if count < round || claimed.jobs().len() >= claim.limit || bytes >= PAGE_BYTES_MAX {
                return Ok(claimed);
            }
        }
    }

    /// Leases that go beyond the timeout of a handler that is pulled are made shorter.
    async fn keep_to_timeouts(&self, jobs: &mut [Job], lease: SignedDuration) -> Result<(), Error> {
        for job in jobs {
            let Some(claimed_at) = job.locked_at else { continue };
            let timeout = self.inner().handlers.pull_timeout(&job.handler);
            let within = lease_within(lease, timeout, claimed_at, claimed_at).unwrap_or(lease);
            if within < lease {
                let renewed = self.store().renew_jobs(&[Held { id: job.id, fence: job.fence }], within).await?;
                job.lease_until =
                    renewed.into_iter().next().flatten().map_or(job.lease_until, |new| Some(new.lease_until));
            }
        }
        Ok(())
    }

    /// The job that a claim holds. A forged claim is a lost one.
    async fn held_under(&self, claim: &ClaimRef) -> Result<Held, Error> {
        claim.held(&self.store().store_key().await?).ok_or_else(|| lost(claim.job()))
    }

    /// Renews a claim; never beyond the timeout of a handler that is pulled.
    pub async fn renew_claim(&self, claim: &ClaimRef, lease: Duration) -> Result<JobRenewed, Error> {
        let mut lease = lease_of(lease)?;
        let held = self.held_under(claim).await?;
        if self.inner().handlers.has_pull_timeouts() {
            let job = self.job(claim.job()).await?.ok_or_else(|| lost(claim.job()))?;
            let (timeout, now) = (self.inner().handlers.pull_timeout(&job.handler), self.store().now().await?);
            lease = lease_within(lease, timeout, job.locked_at.unwrap_or(now), now).ok_or_else(|| lost(claim.job()))?;
        }
        let renewed = self.store().renew_jobs(&[held], lease).await?;
        renewed.into_iter().next().flatten().ok_or_else(|| lost(claim.job()))
    }

    /// Settles a claimed job; answers the job as it is then. A repeat under the same claim answers the same.
    pub async fn settle_claim(&self, claim: &ClaimRef, outcome: JobOutcome) -> Result<Job, Error> {
        let (id, settlement, ended) = (claim.job(), outcome.settlement(), AttemptOutcome::from(&outcome));
        let held = self.held_under(claim).await?;
        let job = self.job(id).await?.ok_or_else(|| lost(id))?;
        let (change, ended_at) = match job.use_claim(held.fence, settlement) {
            ClaimUse::Settle => self.change_of(&job, held, outcome).await?,
            ClaimUse::Repeat => return Ok(job),
            ClaimUse::Lost => return Err(lost(id)),
        };
        match self.settle_jobs(vec![change]).await?.remove(0) {
            JobSettled::Done { .. } => {
                self.inner().jobs.ring();
                let settled = self.job(id).await?;
                let ended_at = ended_at.or(settled.as_ref().and_then(|job| job.finished_at));
                JobMetrics::of(&job.handler).ended(&job, ended, ended_at);
                Ok(settled.unwrap_or(job))
            }
            JobSettled::LeaseLost => self.repeated(held, settlement).await,
            JobSettled::Refused(error) => Err(error.into()),
        }
    }

    /// The job, if this claim was settled in the same way before.
    async fn repeated(&self, held: Held, settlement: Settlement) -> Result<Job, Error> {
        let repeated = |job: &Job| job.use_claim(held.fence, settlement) == ClaimUse::Repeat;
        self.job(held.id).await?.filter(repeated).ok_or_else(|| lost(held.id))
    }

    /// Completes many claimed jobs in one commit; returns the state of each job, in the same order. A
    /// refused job does not affect the others. A job is named at most once.
    pub async fn complete_claims(&self, completions: Vec<Completion>) -> Result<Vec<Result<JobState, Error>>, Error> {
        let sent: usize = completions.iter().map(|completion| completion.jobs.len()).sum();
        if sent > COMPLETED_JOBS_SENT_MAX {
            let reason =
                format!("send {sent} jobs; at most {COMPLETED_JOBS_SENT_MAX} in one call: complete fewer at once");
            return Err(Invalid::new("jobs", reason).into());
        }
        let key = self.store().store_key().await?;
        let mut changes = Vec::with_capacity(completions.len());
        let mut outcomes = Vec::with_capacity(completions.len());
        for Completion { claim, result, events, jobs } in completions {
            let held = claim.held(&key).ok_or_else(|| lost(claim.job()));
            let change = held.and_then(|held| Ok(self.done(held, result, events, jobs)?));
            outcomes.push(change.map(|change| changes.push(change)));
        }
        let held: Vec<Held> = changes.iter().map(|change| change.held).collect();
        let settled = if changes.is_empty() { Vec::new() } else { self.settle_jobs(changes).await? };
        self.inner().jobs.ring();
        let mut settled = held.into_iter().zip(settled);
        let mut states = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            states.push(match outcome.map(|()| settled.next()) {
                Err(error) => Err(error),
                Ok(None) => Err(StoreError::Engine("a settlement was not answered".into()).into()),
                Ok(Some((_, JobSettled::Done { state, .. }))) => {
                    JobMetrics::unnamed().completed();
                    Ok(state)
                }
                Ok(Some((held, JobSettled::LeaseLost))) => {
                    self.repeated(held, Settlement::Complete).await.map(|job| job.state)
                }
                Ok(Some((_, JobSettled::Refused(error)))) => Err(error.into()),
            });
        }
        Ok(states)
    }

    /// The change that records an outcome, and the time of the store's clock if it was asked for.
    async fn change_of(
        &self,
        job: &Job,
        held: Held,
        outcome: JobOutcome,
    ) -> Result<(JobChange, Option<Timestamp>), Error> {
        let ended = match outcome {
            JobOutcome::Done { result, events, jobs } => return Ok((self.done(held, result, events, jobs)?, None)),
            JobOutcome::Failed { error, retry, after } => Ended::Failed { error, after, permanent: !retry },
            JobOutcome::Snoozed(wait) => Ended::Snoozed(wait),
        };
        let retry = self.inner().handlers.job_retry(&job.handler).unwrap_or_default();
        let (retry, now) = (retry.limited_to(job.attempts_max), self.store().now().await?);
        let end = JobEnd::of(Attempted::job(job).after(ended, &retry, job.on_exhausted, now));
        Ok((JobChange::new(held, end), Some(now)))
    }

    /// A job that is done, with its result, its events and the jobs that it sends.
    fn done(
        &self,
        held: Held,
        result: Option<Json>,
        events: Vec<NewEvent>,
        jobs: Vec<Emit>,
    ) -> Result<JobChange, Invalid> {
        // A batch of no events is refused where it is published; to settle without any is usual.
        let events = if events.is_empty() { Vec::new() } else { NewEvent::check_all(events)? };
        if jobs.len() > JOBS_MAX {
            return Err(Invalid::new(
                "jobs",
                format!("are {}; at most {JOBS_MAX} may be sent with one end", jobs.len()),
            ));
        }
        let jobs = jobs.into_iter().map(|job| self.checked_job(job)).collect::<Result<_, _>>()?;
        Ok(JobChange { result, events, jobs, ..JobChange::new(held, JobEnd::Succeeded) })
    }

    /// Writes how far a worker elsewhere is with a job that it has.
    pub async fn report_under_claim(&self, claim: &ClaimRef, progress: Progress) -> Result<(), Error> {
        let held = self.held_under(claim).await?;
        match self.store().report(held, progress).await? {
            true => Ok(()),
            false => Err(lost(claim.job())),
        }
    }

    /// Writes what a worker elsewhere says about a job that it has.
    pub async fn say_under_claim(&self, claim: &ClaimRef, mut lines: Vec<JobLine>) -> Result<usize, Error> {
        let held = self.held_under(claim).await?;
        let job = self.job(claim.job()).await?.ok_or_else(|| lost(claim.job()))?;
        for line in &mut lines {
            line.attempt = job.attempts;
        }
        let room = self.room_for_lines(claim.job(), lines.len()).await?;
        let kept = lines_that_fit(&mut lines, room);
        match self.store().say(held, lines).await? {
            true => Ok(kept),
            false => Err(lost(claim.job())),
        }
    }

    /// How many lines of a job there is room for; so many and one more are looked for at most.
    async fn room_for_lines(&self, id: JobId, wanted: usize) -> Result<usize, Error> {
        let full = JOB_LINES_MAX as usize;
        let after = full.saturating_sub(wanted + 1);
        let last = self.job_lines(id, after as u64, wanted + 1).await?.last().map_or(after as u64, |line| line.line);
        Ok(full.saturating_sub(last as usize))
    }
}

fn content_bytes(job: &Job) -> usize {
    job.payload.as_str().len() + job.metadata.as_str().len()
}

/// The number of values that an answer holds: those of [`PAGE_BYTES_MAX`], but at least one.
fn fitting(bytes: impl Iterator<Item = usize>) -> usize {
    let sums = bytes.scan(0, |sum: &mut usize, bytes| {
        *sum += bytes;
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= PAGE_BYTES_MAX).count().max(1)
}

/// Leaves what there is room for, and answers how many that are. Where not all of them fit, the last place is for a line that
/// says how many more there were.
fn lines_that_fit(lines: &mut Vec<JobLine>, room: usize) -> usize {
    if lines.len() < room {
        return lines.len();
    }
    let kept = room.saturating_sub(1);
    let dropped = lines.len() - kept;
    lines.truncate(room);
    if let Some(last) = lines.get_mut(kept) {
        last.level = Level::Warn;
        last.message = format!(
            "{dropped} more lines were dropped, and all that follow are: of a job {JOB_LINES_MAX} lines are kept"
        );
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue_core::store_key::STORE_KEY_BYTES;

    #[test]
    fn what_does_not_fit_is_counted_in_the_last_line() {
        let line = |message: &str| JobLine {
            line: 0,
            attempt: 1,
            at: ensue_core::Timestamp::UNIX_EPOCH,
            level: Level::Info,
            message: message.into(),
        };
        let said = |room: usize| {
            let mut lines = ["a", "b", "c"].map(line).to_vec();
            let kept = lines_that_fit(&mut lines, room);
            (kept, lines.into_iter().map(|line| line.message).collect::<Vec<_>>())
        };
        assert_eq!(said(4), (3, vec!["a".into(), "b".into(), "c".into()]));
        for (room, kept) in [(3, 2), (2, 1), (1, 0)] {
            let (count, lines) = said(room);
            assert_eq!((count, lines.len()), (kept, room));
            assert!(lines[kept].starts_with(&format!("{} more lines were dropped", 3 - kept)), "{lines:?}");
        }
        assert_eq!(said(0), (0, vec![]));
    }

    #[test]
    fn a_claim_is_its_text() {
        let id = JobId::new(ensue_core::Timestamp::UNIX_EPOCH, 7, 42);
        let (held, key) = (Held { id, fence: 255 }, StoreKey::new([1; STORE_KEY_BYTES]));
        let token = ClaimRef::of(held, &key);
        assert_eq!(ClaimRef::parse(&token.to_string()), Ok(token.clone()));
        assert_eq!(token.held(&key), Some(held));
        assert_eq!(token.held(&StoreKey::new([2; STORE_KEY_BYTES])), None, "the key of another store");
        let of_another = ClaimRef { held: Held { fence: 254, ..held }, ..token.clone() };
        assert_eq!(of_another.held(&key), None);
        assert!(!format!("{token:?}").contains(&token.code), "a log has no secrets");
        let code = "0".repeat(CODE_DIGITS);
        for bad in [
            "",
            "claim-",
            "claim-ff",
            &format!("claim-ff-{id}"),
            &format!("claim-xx-{id}-{code}"),
            &format!("claim--{id}-{code}"),
            &format!("claim-1-nonsense-{code}"),
            &format!("claim-1-{id}-{}", &code[1..]),
            &format!("claim-1-{id}-{}", code.replace('0', "g")),
        ] {
            assert_eq!(ClaimRef::parse(bad).unwrap_err().field, "claim", "{bad}");
        }
    }
}
