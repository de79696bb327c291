//! How do many workers claim in one commit?
//!
//! Those who want jobs of one handler do: what one has locked the others need not pass over, and hundreds who hear of one job ask once. Each gets as many as it wants, who came first before who
//! came later. A claim of several handlers' jobs goes alone.

use super::claim::{Claiming, Wanted};
use super::together::Work;
use ensue_core::jobs::Job;
use ensue_core::{GroupName, StoreError};
use jiff::SignedDuration;

/// More than this is not claimed at once, so that the limits of several claims can be added up.
const LIMIT_MAX: usize = u32::MAX as usize;

/// A claim of a single handler's jobs.
#[derive(Debug)]
pub(in super::super) struct HandlerClaim {
    handler: GroupName,
    limit: usize,
    lease: SignedDuration,
    worker: String,
}

impl HandlerClaim {
    pub(super) fn of(wanted: &Wanted<'_>) -> Option<Self> {
        let (&[(handler, most)], &[(worker, limit)]) = (wanted.handlers.as_slice(), wanted.workers.as_slice()) else {
            return None;
        };
        Some(Self {
            handler: handler.clone(),
            limit: limit.min(most).min(LIMIT_MAX),
            lease: wanted.lease,
            worker: worker.to_owned(),
        })
    }
}

impl Work for Claiming {
    type Part = HandlerClaim;
    type Answer = Vec<Job>;
    type Key = (GroupName, SignedDuration);
    const DOING: &'static str = "jobs were claimed";
    /// Each may have a megabyte of payload.
    const COUNT_MAX: usize = 400;
    const BESIDE_FROM: usize = 1;

    fn key(claim: &HandlerClaim) -> Self::Key {
        (claim.handler.clone(), claim.lease)
    }

    fn count(claim: &HandlerClaim) -> usize {
        claim.limit
    }

    fn bytes(_: &HandlerClaim) -> usize {
        0
    }

    async fn carry_out(&self, claims: &[HandlerClaim]) -> Result<Vec<Vec<Job>>, StoreError> {
        let Some(first) = claims.first() else { return Ok(Vec::new()) };
        let wanted = Wanted {
            handlers: vec![(&first.handler, claims.iter().map(|claim| claim.limit).sum())],
            workers: claims.iter().map(|claim| (claim.worker.as_str(), claim.limit)).collect(),
            lease: first.lease,
        };
        let (_, jobs) = self.take(&[], &wanted).await?;
        Ok(share_out(jobs, &wanted.workers))
    }
}

/// Gives each worker its own, in order.
fn share_out(jobs: Vec<Job>, workers: &[(&str, usize)]) -> Vec<Vec<Job>> {
    let mut shares: Vec<Vec<Job>> = workers.iter().map(|_| Vec::new()).collect();
    for job in jobs {
        let has_room = |((worker, limit), share): (&(&str, usize), &Vec<Job>)| {
            job.worker.as_deref() == Some(*worker) && share.len() < *limit
        };
        let whose = workers.iter().zip(&shares).position(has_room);
        match whose {
            Some(whose) => shares[whose].push(job),
            None => {
                tracing::error!(job = %job.id, "more was claimed than anybody wanted; it runs when its lease has passed")
            }
        }
    }
    shares
}
