//! How does the embedded store keep jobs?
//!
//! One table, those that are over included; indexes have only what is live. Each verb is one turn at the writer, or one
//! look that holds up nobody.
//!
//! | question | file |
//! |---|---|
//! | How is a job kept as a row? | `row.rs` |
//! | How does a job come in? | `send.rs` |
//! | How does a worker get jobs, and keep them? | `claim.rs` |
//! | How does a worker write how an attempt ended? | `settle.rs` |
//! | Which job of an object may run? | `lane.rs` |
//! | Whose time has come, and whose has passed? | `time.rs` |
//! | How is a job called off, brought back, or passed over? | `steer.rs` |
//! | Which jobs are there, and what did they say? | `read.rs` |
//! | Which tasks were made when, and how far is each job? | `tasks.rs` |

mod claim;
pub(super) mod lane;
mod read;
mod row;
pub(super) mod send;
pub(super) mod settle;
mod steer;
mod tasks;
pub(super) mod time;

use super::SqliteStore;
use super::writer::Sync;
use async_trait::async_trait;
use ensue_core::jobs::{
    Claim, Enqueued, Held, Job, JobChange, JobCount, JobId, JobLine, JobPage, JobQuery, JobRenewed, JobSettled, Jobs,
    NewJob, Progress, Server, Steer, Steered, Woken,
};
use ensue_core::tasks::TaskQuery;
use ensue_core::{GroupName, StoreError, Timestamp};
use jiff::SignedDuration;

#[async_trait]
impl Jobs for SqliteStore {
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, StoreError> {
        send::check(&jobs)?;
        self.change_of(jobs.len(), move |changing| send::enqueue(changing, &jobs)).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Job>, StoreError> {
        claim::check(&claim)?;
        let sync = if claim.ends_with_store { Sync::Later } else { Sync::Now };
        self.writer()?.change(claim.limit, sync, move |changing| claim::claim(changing, &claim)).await
    }

    async fn renew_jobs(&self, held: &[Held], lease: SignedDuration) -> Result<Vec<Option<JobRenewed>>, StoreError> {
        let held = held.to_vec();
        self.change_of(held.len(), move |changing| claim::renew(changing, &held, lease)).await
    }

    async fn settle_jobs(&self, changes: Vec<JobChange>) -> Result<Vec<JobSettled>, StoreError> {
        self.change_of(changes.len(), move |changing| settle::settle(changing, &changes)).await
    }

    async fn say(&self, held: Held, lines: Vec<JobLine>) -> Result<bool, StoreError> {
        self.change_of(lines.len(), move |changing| settle::say_under(changing, held, &lines)).await
    }

    async fn report(&self, held: Held, progress: Progress) -> Result<bool, StoreError> {
        progress.check()?;
        self.change(move |changing| tasks::report(changing, held, &progress)).await
    }

    async fn progress(&self, ids: &[JobId]) -> Result<Vec<Option<Progress>>, StoreError> {
        let ids = ids.to_vec();
        self.look_at_positions(move |connection| tasks::progress(connection, &ids)).await
    }

    async fn tasks(&self, query: TaskQuery, limit: usize) -> Result<Vec<Job>, StoreError> {
        self.look_at_positions(move |connection| tasks::tasks(connection, &query, limit)).await
    }

    async fn wake_jobs(&self, limit: usize) -> Result<Woken, StoreError> {
        let now = self.positions_now();
        // Looked at from a reader first: an idle system takes no write lock.
        match self.look_at_positions(move |connection| time::look(connection, now, limit)).await? {
            Some(woken) => Ok(woken),
            None => self.change_alone(move |changing| time::wake(changing, limit)).await,
        }
    }

    async fn steer(&self, ids: &[JobId], steer: Steer) -> Result<Vec<Steered>, StoreError> {
        let ids = ids.to_vec();
        self.change_of(ids.len(), move |changing| steer::steer(changing, &ids, steer)).await
    }

    async fn job(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.look_at_positions(move |connection| row::job(connection, id)).await
    }

    async fn jobs(&self, query: JobQuery, limit: usize) -> Result<JobPage, StoreError> {
        self.look_at_positions(move |connection| read::jobs(connection, &query, limit)).await
    }

    async fn predecessor(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.look_at_positions(move |connection| read::predecessor(connection, id)).await
    }

    async fn job_lines(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<JobLine>, StoreError> {
        self.look_at_positions(move |connection| read::lines(connection, id, after, limit)).await
    }

    async fn job_counts(&self) -> Result<Vec<JobCount>, StoreError> {
        self.look_at_positions(read::counts).await
    }

    async fn serve_jobs(&self, handlers: &[GroupName], lease: SignedDuration) -> Result<(), StoreError> {
        let handlers = handlers.to_vec();
        self.change(move |changing| {
            let until = super::slots::lease_end(changing.now(), lease);
            changing.sql(|connection| read::serve(connection, &handlers, until))
        })
        .await
    }

    async fn job_servers(&self) -> Result<Vec<Server>, StoreError> {
        self.look_at_positions(read::servers).await
    }

    async fn purge_jobs(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        self.purge(read::Past::Jobs, before, keep, limit).await
    }

    async fn purge_tasks(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        self.purge(read::Past::Tasks, before, keep, limit).await
    }
}

impl SqliteStore {
    /// Forgets a bounded part of the jobs or tasks that are over.
    async fn purge(&self, past: read::Past, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        let old = self.look_at_positions(move |connection| read::old(connection, past, before, keep, limit)).await?;
        if old.is_empty() {
            return Ok(0);
        }
        self.change_alone(move |changing| {
            changing.sql(|connection| {
                // What was brought back meanwhile is not old any more.
                let old = read::old(connection, past, before, keep, limit)?;
                read::forget(connection, &old)?;
                Ok(old.len())
            })
        })
        .await
    }
}
