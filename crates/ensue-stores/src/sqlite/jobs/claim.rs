//! How does a worker get jobs, and keep them?
//!
//! A claim is one statement, whatever it asks for: for each handler the beginning of the index of what is available, put
//! together by priority and turn. Handlers that a rule holds are not asked for, so what they have waiting costs nothing.

use super::super::groups::place;
use super::super::rules;
use super::super::slots::lease_end;
use super::super::writer::Changing;
use super::row::{job_columns, job_of};
use ensue_core::jobs::job::{CLAIM_HANDLERS_MAX, WORKER_BYTES_MAX};
use ensue_core::jobs::{Claim, Held, Job, JobRenewed};
use ensue_core::text::check_text;
use ensue_core::{GroupName, Invalid, StoreError, Timestamp};
use jiff::SignedDuration;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};
use std::cmp::Reverse;
use std::fmt::Write;

pub(super) fn check(claim: &Claim) -> Result<(), StoreError> {
    check_text("worker", &claim.worker, WORKER_BYTES_MAX)?;
    if claim.handlers.len() > CLAIM_HANDLERS_MAX {
        let reason = format!("are {}; ask for at most {CLAIM_HANDLERS_MAX} at once", claim.handlers.len());
        return Err(Invalid::new("handlers", reason).into());
    }
    Ok(())
}

pub(super) fn claim(changing: &mut Changing<'_>, claim: &Claim) -> Result<Vec<Job>, StoreError> {
    let now = changing.now();
    changing.sql(|connection| {
        let rules = rules::all(connection)?;
        let may_run = |handler: &GroupName| rules.holding_handler(handler, now).is_none();
        let asked: Vec<_> = claim.handlers.iter().filter(|(key, most)| *most > 0 && may_run(key)).collect();
        if asked.is_empty() || claim.limit == 0 {
            return Ok(Vec::new());
        }
        let mut values = vec![
            Value::Integer(now.as_microsecond()),
            Value::Integer(lease_end(now, claim.lease).as_microsecond()),
            Value::Text(claim.worker.clone()),
            Value::Integer(claim.limit as i64),
        ];
        for (handler, most) in &asked {
            values.push(Value::Text(handler.as_str().to_owned()));
            values.push(Value::Integer(*most as i64));
        }
        let mut statement = connection.prepare_cached(&statement(asked.len()))?;
        let mut jobs = statement.query_map(params_from_iter(values), job_of)?.collect::<rusqlite::Result<Vec<_>>>()?;
        jobs.sort_by_key(|job| (Reverse(job.priority), job.turn));
        Ok(jobs)
    })
}

/// Takes what is next of so many handlers.
fn statement(handlers: usize) -> String {
    let mut next = String::new();
    for at in 0..handlers {
        let (key, most) = (5 + 2 * at, 6 + 2 * at);
        let union = if at == 0 { "" } else { " UNION ALL " };
        // Writing to a string cannot fail.
        let _infallible = write!(
            next,
            "{union}SELECT * FROM (SELECT number, priority, turn FROM ensue_jobs INDEXED BY ensue_jobs_ready
             WHERE state = 'available' AND handler = ?{key} ORDER BY priority DESC, turn LIMIT ?{most})"
        );
    }
    format!(
        "UPDATE ensue_jobs SET state = 'running', attempts = attempts + 1, fence = fence + 1, locked_at = ?1,
         started_at = coalesce(started_at, ?1), lease_until = ?2, worker = ?3
         WHERE number IN (SELECT number FROM ({next}) ORDER BY priority DESC, turn LIMIT ?4)
         RETURNING {}",
        job_columns!()
    )
}

pub(super) fn renew(
    changing: &mut Changing<'_>,
    held: &[Held],
    lease: SignedDuration,
) -> Result<Vec<Option<JobRenewed>>, StoreError> {
    let lease_until = lease_end(changing.now(), lease);
    changing.sql(|connection| held.iter().map(|held| renew_one(connection, *held, lease_until)).collect())
}

fn renew_one(connection: &Connection, held: Held, lease_until: Timestamp) -> rusqlite::Result<Option<JobRenewed>> {
    connection
        .prepare_cached(
            "UPDATE ensue_jobs SET lease_until = ?4 WHERE number = ?1 AND id = ?2 AND fence = ?3 AND state = 'running'
             RETURNING cancel_asked",
        )?
        .query_row(
            params![place(held.id.number()), held.id.0.as_bytes(), place(held.fence), lease_until.as_microsecond()],
            |row| Ok(JobRenewed { lease_until, cancel: row.get(0)? }),
        )
        .optional()
}
