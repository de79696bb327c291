//! How does a worker get jobs, and keep them?

use super::super::PostgresStore;
use super::super::moving::Moving;
use super::super::read::{place, rows_max};
use super::super::slots::micros_of;
use super::super::types::{Micros, Place};
use super::call::Call;
use super::claim_together::HandlerClaim;
use super::columns::NewJobs;
use super::looks::{Looks, Seen, Transactions};
use super::places::Places;
use super::row::{job_of_claim, number_of, stamp_of};
use super::send::{SENT_COLUMNS, Sending, all_sent};
use super::together::Work;
use super::unsaid::Unsaid;
use ensue_core::jobs::job::{CLAIM_HANDLERS_MAX, WORKER_BYTES_MAX};
use ensue_core::jobs::{Claim, Enqueued, Held, Job, JobRenewed, NewJob};
use ensue_core::text::check_text;
use ensue_core::{GroupName, Invalid, StoreError};
use jiff::SignedDuration;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

pub(super) fn check(claim: &Claim) -> Result<(), StoreError> {
    check_text("worker", &claim.worker, WORKER_BYTES_MAX)?;
    if claim.handlers.len() > CLAIM_HANDLERS_MAX {
        let reason = format!("are {}; ask for at most {CLAIM_HANDLERS_MAX} at once", claim.handlers.len());
        return Err(Invalid::new("handlers", reason).into());
    }
    Ok(())
}

/// What is wanted at once: of each handler so many, and for each worker so many of all.
pub(super) struct Wanted<'a> {
    pub handlers: Vec<(&'a GroupName, usize)>,
    pub workers: Vec<(&'a str, usize)>,
    pub lease: SignedDuration,
}

impl<'a> Wanted<'a> {
    /// What one claim wants, each handler once; none if that is nothing.
    fn of(claim: &'a Claim) -> Option<Self> {
        let mut handlers: Vec<(&GroupName, usize)> = Vec::with_capacity(claim.handlers.len());
        for (handler, most) in claim.handlers.iter().filter(|(_, most)| *most > 0) {
            match handlers.iter_mut().find(|(known, _)| *known == handler) {
                Some((_, sum)) => *sum = sum.saturating_add(*most),
                None => handlers.push((handler, *most)),
            }
        }
        let wants_any = !handlers.is_empty() && claim.limit > 0;
        wants_any.then(|| Self { handlers, workers: vec![(&claim.worker, claim.limit)], lease: claim.lease })
    }
}

/// What it takes to claim jobs.
pub(in super::super) struct Claiming {
    pub moving: Arc<Moving>,
    pub looks: Arc<Looks>,
    pub places: Arc<Places>,
}

/// What a rule that holds a handler is called: the scopes of its key and of those above it.
fn scopes_of(handler: &GroupName) -> impl Iterator<Item = String> {
    let key = handler.as_str();
    let ends = key.match_indices('.').map(|(at, _)| at).chain([key.len()]);
    ends.map(move |end| format!("handler:{}", &key[..end]))
}

/// In how many columns is answered what there was to look at.
const FOUND_COLUMNS: usize = 5;
/// In how many behind them is answered where a job is.
const PLACE_COLUMNS: usize = 1;

/// What there was before a look, how many microseconds it took, and which handlers a rule holds.
fn found_of(row: &Row, first: usize) -> Option<(Seen, i64, Vec<i32>)> {
    let number = |column: usize| row.get::<_, Option<i64>>(first + column);
    let transactions = number(0).zip(number(1)).map(|(ended_below, next)| Transactions { ended_below, next });
    let held = row.get::<_, Option<Vec<i32>>>(first + 4).unwrap_or_default();
    Some((Seen { number: number(2)?, transactions }, number(3)?, held))
}

impl Claiming {
    /// Sends jobs, if there are any, and claims: in one commit.
    pub(super) async fn take(
        &self,
        jobs: &[NewJob],
        wanted: &Wanted<'_>,
    ) -> Result<(Vec<Enqueued>, Vec<Job>), StoreError> {
        let Wanted { handlers: asked, workers, lease } = wanted;
        let handlers: Vec<&str> = asked.iter().map(|(handler, _)| handler.as_str()).collect();
        let caps: Vec<i64> = asked.iter().map(|(_, most)| rows_max(*most)).collect();
        let (mut scopes, mut scope_of) = (Vec::new(), Vec::new());
        for ((handler, _), number) in asked.iter().zip(1_i32..) {
            for scope in scopes_of(handler) {
                scopes.push(scope);
                scope_of.push(number);
            }
        }
        // Those of the same name need not be told apart.
        let is_same = workers.iter().all(|(worker, _)| *worker == workers[0].0);
        let (names, shares) = match is_same {
            true => (vec![workers[0].0], None),
            false => {
                let (names, shares): (Vec<&str>, Vec<i64>) =
                    workers.iter().map(|(worker, limit)| (*worker, rows_max(*limit))).unzip();
                (names, Some(shares))
            }
        };
        let limit = rows_max(workers.iter().map(|(_, limit)| limit).sum());
        let lease = micros_of(*lease);
        let look = self.looks.begin(&handlers, Instant::now());
        let stretches = look.stretches();
        let sends = !jobs.is_empty();
        let sql = &self.moving.sql.jobs;
        let (doing, sql) = match sends {
            true => (Sending::DOING, &sql.enqueue_and_claim),
            false => (Self::DOING, &sql.claim),
        };
        let (mut call, now, columns) = (Call::new(doing), self.moving.clock_time(), NewJobs::of(jobs.iter()));
        let (id, lock) = (call.id, call.lock);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&now, &id, &lock];
        if sends {
            params.extend(columns.params());
        }
        let again_at = params.len();
        params.extend::<[&(dyn ToSql + Sync); 14]>([
            &false,
            &handlers,
            &caps,
            &scopes,
            &scope_of,
            &limit,
            &lease,
            &names,
            &shares,
            &stretches.of,
            &stretches.after_rank,
            &stretches.after_turn,
            &stretches.to_rank,
            &stretches.at_turn,
        ]);
        let rows = call.until_answered(&self.moving, sql, &params, Some(again_at)).await?;
        let sent = match rows.first().filter(|_| sends) {
            Some(row) => all_sent(row, jobs.len())?,
            None => Vec::new(),
        };
        // What was sent comes before what was claimed.
        let first = if sends { SENT_COLUMNS } else { 0 };
        let unsaid = Unsaid { handler: asked[0].0, worker: names[0], lease: SignedDuration::from_micros(lease) };
        let mut taken = Vec::with_capacity(rows.len());
        for row in &rows {
            taken.extend(job_of_claim(row, first + FOUND_COLUMNS + PLACE_COLUMNS, Some(&unsaid))?);
        }
        let places = rows.iter().filter_map(|row| row.get::<_, Option<Place>>(first + FOUND_COLUMNS));
        self.places.remember(taken.iter().zip(places));
        taken.sort_by_key(|job| (Reverse(job.priority), job.turn));
        // What is answered to a claim that was sent again was not looked for.
        match rows.first().and_then(|row| found_of(row, first)) {
            Some((seen, micros, held)) => look.end(seen, micros, &held, &caps, limit, &taken),
            None if taken.is_empty() => self.looks.put_off(),
            None => {}
        }
        Ok((sent, taken))
    }
}

impl PostgresStore {
    pub(super) async fn take_jobs(&self, claim: &Claim) -> Result<Vec<Job>, StoreError> {
        let Some(wanted) = Wanted::of(claim) else { return Ok(Vec::new()) };
        match HandlerClaim::of(&wanted) {
            Some(claim) => self.claiming.join(claim).await,
            None => Ok(self.claiming.alone().take(&[], &wanted).await?.1),
        }
    }

    /// Sends jobs and claims: in one commit.
    pub(super) async fn send_and_take(
        &self,
        jobs: Vec<NewJob>,
        claim: &Claim,
    ) -> Result<(Vec<Enqueued>, Vec<Job>), StoreError> {
        match Wanted::of(claim) {
            Some(wanted) => self.claiming.alone().take(&jobs, &wanted).await,
            None => Ok((self.sending.send(jobs).await?, Vec::new())),
        }
    }

    /// Done twice it is done once.
    pub(super) async fn renew_claims(
        &self,
        held: &[Held],
        lease: SignedDuration,
    ) -> Result<Vec<Option<JobRenewed>>, StoreError> {
        let mut renewed = vec![None; held.len()];
        if held.is_empty() {
            return Ok(renewed);
        }
        // To renew them moves them.
        self.places.forget(held);
        let numbers: Vec<i64> = held.iter().map(|held| number_of(held.id)).collect();
        let stamps: Vec<i64> = held.iter().map(|held| stamp_of(held.id)).collect();
        let fences: Vec<i64> = held.iter().map(|held| place(held.fence)).collect();
        let (now, lease) = (self.clock_time(), micros_of(lease));
        let renew = &self.sql.jobs.renew;
        for row in self.server.query_of_call(renew, &[&now, &lease, &numbers, &stamps, &fences]).await? {
            let index = row.get::<_, i64>(0) as usize - 1;
            renewed[index] = Some(JobRenewed { lease_until: row.get::<_, Micros>(1).0, cancel: row.get(2) });
        }
        Ok(renewed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_is_held_by_its_own_rule_and_by_those_above_it() {
        let scopes: Vec<String> = scopes_of(&GroupName::stored("acme.mail.send")).collect();
        assert_eq!(scopes, ["handler:acme", "handler:acme.mail", "handler:acme.mail.send"]);
    }

    #[test]
    fn a_handler_that_is_named_twice_is_asked_for_once() {
        let (a, b) = (GroupName::stored("a"), GroupName::stored("b"));
        let handlers = vec![(a.clone(), 2), (b.clone(), 0), (a.clone(), usize::MAX), (b.clone(), 1)];
        let claim =
            Claim { handlers, limit: 1, lease: SignedDuration::ZERO, worker: "w".into(), ends_with_store: false };
        assert_eq!(Wanted::of(&claim).unwrap().handlers, [(&a, usize::MAX), (&b, 1)]);
        assert!(Wanted::of(&Claim { limit: 0, ..claim }).is_none(), "nothing is wanted");
    }
}
