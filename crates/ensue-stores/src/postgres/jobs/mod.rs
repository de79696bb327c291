//! How are jobs kept on Postgres? The verbs of `Jobs`, and where each is done.
//!
//! One table, those that are over included; indexes have only what is live. Each verb is one round trip.
//!
//! | question | file |
//! |---|---|
//! | Which SQL keeps jobs and rules? | `sql.rs`, and `../sql/` with one statement or function a file |
//! | How is a job kept as a row? | `row.rs` |
//! | What do new jobs look like to the functions that make them? | `columns.rs` |
//! | The answer to a call was lost: what now? | `call.rs` |
//! | How does a job come in? | `send.rs` |
//! | How do many callers have something done in one commit? | `together.rs` |
//! | How does a worker get jobs, and keep them? | `claim.rs` |
//! | How do many workers claim in one commit? | `claim_together.rs` |
//! | What of a job that was just claimed need not be answered? | `unsaid.rs` |
//! | From where on does a claim look for jobs? | `looks.rs` |
//! | Where is the row of a job that was claimed here? | `places.rs` |
//! | How does a worker write how an attempt ended? | `settle.rs` |
//! | How are successes written, of which there is nothing else to say? | `succeed.rs` |
//! | Which job of an object may run? | `../sql/fn_jobs_turn.sql` |
//! | Whose time has come, and whose has passed? | `time.rs` |
//! | How is a job called off, brought back, or passed over? | `steer.rs` |
//! | Which jobs are there, and what did they say? | `read.rs` |
//! | Which tasks were made when, and how far is each job? | `tasks.rs` |

mod call;
mod claim;
mod claim_together;
pub(super) mod columns;
mod looks;
mod places;
mod read;
pub(super) mod row;
mod send;
mod settle;
pub(super) mod sql;
mod steer;
mod succeed;
pub(super) mod tasks;
mod time;
mod together;
pub(super) mod unsaid;

pub(super) use call::Call;
pub(super) use claim::Claiming;
pub(super) use looks::Looks;
pub(super) use places::Places;
pub(super) use row::id_of;
pub(super) use send::{Sending, check as check_new};
pub(super) use succeed::Succeeding;
pub(super) use together::Together;

use super::PostgresStore;
use async_trait::async_trait;
use ensue_core::jobs::{
    Claim, Enqueued, Held, Job, JobChange, JobCount, JobId, JobLine, JobPage, JobQuery, JobRenewed, JobSettled, Jobs,
    NewJob, Progress, Server, Steer, Steered, Woken,
};
use ensue_core::tasks::TaskQuery;
use ensue_core::{GroupName, StoreError, Timestamp};
use jiff::SignedDuration;

#[async_trait]
impl Jobs for PostgresStore {
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, StoreError> {
        self.check_writable()?;
        send::check(&jobs)?;
        self.sending.send(jobs).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Job>, StoreError> {
        self.check_writable()?;
        claim::check(&claim)?;
        self.take_jobs(&claim).await
    }

    async fn enqueue_and_claim(
        &self,
        jobs: Vec<NewJob>,
        claim: Claim,
    ) -> Result<(Vec<Enqueued>, Vec<Job>), StoreError> {
        self.check_writable()?;
        send::check(&jobs)?;
        claim::check(&claim)?;
        self.send_and_take(jobs, &claim).await
    }

    async fn renew_jobs(&self, held: &[Held], lease: SignedDuration) -> Result<Vec<Option<JobRenewed>>, StoreError> {
        self.check_writable()?;
        self.renew_claims(held, lease).await
    }

    async fn settle_jobs(&self, changes: Vec<JobChange>) -> Result<Vec<JobSettled>, StoreError> {
        self.check_writable()?;
        self.settle_attempts(changes).await
    }

    async fn say(&self, held: Held, lines: Vec<JobLine>) -> Result<bool, StoreError> {
        self.check_writable()?;
        self.say_lines(held, &lines).await
    }

    async fn report(&self, held: Held, progress: Progress) -> Result<bool, StoreError> {
        self.check_writable()?;
        progress.check()?;
        self.write_progress(held, &progress).await
    }

    async fn progress(&self, ids: &[JobId]) -> Result<Vec<Option<Progress>>, StoreError> {
        self.read_progress(ids).await
    }

    async fn tasks(&self, query: TaskQuery, limit: usize) -> Result<Vec<Job>, StoreError> {
        self.read_tasks(&query, limit).await
    }

    async fn wake_jobs(&self, limit: usize) -> Result<Woken, StoreError> {
        self.check_writable()?;
        self.wake_due(limit).await
    }

    async fn steer(&self, ids: &[JobId], steer: Steer) -> Result<Vec<Steered>, StoreError> {
        self.check_writable()?;
        self.steer_jobs(ids, steer).await
    }

    async fn job(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.read_job(id).await
    }

    async fn jobs(&self, query: JobQuery, limit: usize) -> Result<JobPage, StoreError> {
        self.page_of_jobs(&query, limit).await
    }

    async fn predecessor(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.job_before(id).await
    }

    async fn job_lines(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<JobLine>, StoreError> {
        self.lines_of_job(id, after, limit).await
    }

    async fn job_counts(&self) -> Result<Vec<JobCount>, StoreError> {
        self.count_jobs().await
    }

    async fn serve_jobs(&self, handlers: &[GroupName], lease: SignedDuration) -> Result<(), StoreError> {
        self.check_writable()?;
        self.note_servers(handlers, lease).await
    }

    async fn job_servers(&self) -> Result<Vec<Server>, StoreError> {
        self.read_servers().await
    }

    async fn purge_jobs(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        self.check_writable()?;
        self.forget_jobs(false, before, keep, limit).await
    }

    async fn purge_tasks(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        self.check_writable()?;
        self.forget_jobs(true, before, keep, limit).await
    }
}
