//! How do workers elsewhere get jobs?
//!
//! A worker in any language claims, renews, settles and says what it does; what it holds is a token that names the job and the
//! fence of its claim. For it, a job has started when the claim was answered.

use super::unheard::Unheard;
use crate::Ensue;
use crate::error::Error;
use ensue_core::handling::{Ended, after_attempt};
use ensue_core::jobs::job::JOB_LINES_MAX;
use ensue_core::jobs::patience::lease_within;
use ensue_core::jobs::{Claim, Held, Job, JobChange, JobEnd, JobId, JobLine, JobRenewed, JobSettled, Progress};
use ensue_core::positions::{Fence, Level};
use ensue_core::store::PAGE_BYTES_MAX;
use ensue_core::{GroupName, Invalid, Json, NewEvent};
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
/// How long it is known that a handler is served after somebody asked for its jobs.
const SERVED_FOR: Duration = Duration::from_secs(60);

/// What a worker elsewhere holds of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimToken(Held);

impl ClaimToken {
    /// Of what is held.
    pub(crate) fn of(held: Held) -> Self {
        Self(held)
    }

    /// The job that it is about.
    pub fn job(&self) -> JobId {
        self.0.id
    }

    /// From its text.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let parsed = text.strip_prefix("claim-").and_then(|rest| {
            let (fence, id) = rest.split_once('-')?;
            let fence = Fence::from_str_radix(fence, 16).ok()?;
            Some(Self(Held { id: JobId::parse(id)?, fence }))
        });
        parsed.ok_or_else(|| Invalid::new("claim", "is not a claim; send back the text that came with the claimed job"))
    }
}

impl fmt::Display for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claim-{:x}-{}", self.0.fence, self.0.id)
    }
}

/// A job that a worker elsewhere has got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedJob {
    /// The job.
    pub job: Job,
    /// What to settle it with.
    pub claim: ClaimToken,
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

/// The claim is somebody else's now, or the job is over: nothing was changed.
fn lost(id: JobId) -> Error {
    let why =
        format!("lease lost: job {id} was taken over or is over, and nothing was changed; drop what you have of it");
    Error::Store(ensue_core::StoreError::Conflict(why))
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
                let token = |job: Job| {
                    let claim = ClaimToken(Held { id: job.id, fence: job.fence });
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
            let bytes: usize = claimed.jobs().iter().map(|job| job.payload.as_str().len()).sum();
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

    /// Renews a claim; never beyond the timeout of a handler that is pulled.
    pub async fn renew_claim(&self, claim: ClaimToken, lease: Duration) -> Result<JobRenewed, Error> {
        let mut lease = lease_of(lease)?;
        if self.inner().handlers.has_pull_timeouts() {
            let job = self.job(claim.job()).await?.ok_or_else(|| lost(claim.job()))?;
            let (timeout, now) = (self.inner().handlers.pull_timeout(&job.handler), self.store().now().await?);
            lease = lease_within(lease, timeout, job.locked_at.unwrap_or(now), now).ok_or_else(|| lost(claim.job()))?;
        }
        let renewed = self.store().renew_jobs(&[claim.0], lease).await?;
        renewed.into_iter().next().flatten().ok_or_else(|| lost(claim.job()))
    }

    /// Settles a claimed job; answers the job as it is then.
    pub async fn settle_claim(&self, claim: ClaimToken, outcome: JobOutcome) -> Result<Job, Error> {
        let id = claim.job();
        let job = self.job(id).await?.filter(|job| job.fence == claim.0.fence).ok_or_else(|| lost(id))?;
        let change = self.change_of(&job, claim.0, outcome).await?;
        match self.settle_jobs(vec![change]).await?.remove(0) {
            JobSettled::Done { .. } => {
                self.inner().jobs.ring();
                Ok(self.job(id).await?.unwrap_or(job))
            }
            JobSettled::LeaseLost => Err(lost(id)),
            JobSettled::Refused(error) => Err(error.into()),
        }
    }

    async fn change_of(&self, job: &Job, held: Held, outcome: JobOutcome) -> Result<JobChange, Error> {
        let (ended, result, events) = match outcome {
            // A batch of no events is refused where it is published; to settle without any is usual.
            JobOutcome::Done { result, events } if events.is_empty() => (Ended::Done, result, Vec::new()),
            JobOutcome::Done { result, events } => (Ended::Done, result, NewEvent::check_all(events)?),
            JobOutcome::Failed { error, retry, after } => {
                (Ended::Failed { error, after, permanent: !retry }, None, Vec::new())
            }
            JobOutcome::Snoozed(wait) => (Ended::Snoozed(wait), None, Vec::new()),
        };
        let retry = self.inner().handlers.job_retry(&job.handler).unwrap_or_default();
        let (retry, now) = (retry.limited_to(job.attempts_max), self.store().now().await?);
        let end = JobEnd::of(after_attempt(ended, job.attempts, &retry, job.on_exhausted, now, rand::random()));
        Ok(JobChange { result, events, ..JobChange::new(held, end) })
    }

    /// Writes how far a worker elsewhere is with a job that it has.
    pub async fn report_under_claim(&self, claim: ClaimToken, progress: Progress) -> Result<(), Error> {
        match self.store().report(claim.0, progress).await? {
            true => Ok(()),
            false => Err(lost(claim.job())),
        }
    }

    /// Writes what a worker elsewhere says about a job that it has.
    pub async fn say_under_claim(&self, claim: ClaimToken, mut lines: Vec<JobLine>) -> Result<usize, Error> {
        let job = self.job(claim.job()).await?.ok_or_else(|| lost(claim.job()))?;
        for line in &mut lines {
            line.attempt = job.attempts;
        }
        let room = self.room_for_lines(claim.job(), lines.len()).await?;
        let kept = lines_that_fit(&mut lines, room);
        match self.store().say(claim.0, lines).await? {
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
        let token = ClaimToken(Held { id, fence: 255 });
        assert_eq!(ClaimToken::parse(&token.to_string()), Ok(token));
        for bad in ["", "claim-", "claim-ff", "claim-xx-1", "ff-1", "claim-1-nonsense", &format!("claim--{id}")] {
            assert_eq!(ClaimToken::parse(bad).unwrap_err().field, "claim", "{bad}");
        }
    }
}
