//! What of a job that was just claimed need not be answered?
//!
//! What the claim itself says of it, and what is so of most jobs. Null stands for it on the way from `sql/fn_jobs_fetch.sql`; whoever has asked fills it in (`row.rs`), and so do the functions
//! that answer all of it (`sql/fn_jobs_take.sql`).

use super::sql::COLUMNS;
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::JobState;
use ensue_core::{GroupName, Timestamp};
use jiff::SignedDuration;

/// What is known of all jobs of a claim.
pub(super) struct Unsaid<'a> {
    /// Of a claim for a single handler.
    pub handler: &'a GroupName,
    /// Of a claim for a single worker.
    pub worker: &'a str,
    pub lease: SignedDuration,
}

impl Unsaid<'_> {
    pub const STATE: JobState = JobState::Running;
    pub const ORDERED: bool = true;
    pub const CANCEL_ASKED: bool = false;
    pub const REDRIVEN: bool = false;
    pub const ON_EXHAUSTED: OnExhausted = OnExhausted::Hold;

    pub fn lease_until(&self, locked_at: Timestamp) -> Option<Timestamp> {
        locked_at.checked_add(self.lease).ok()
    }
}

/// A column that may be left out.
struct Column {
    name: &'static str,
    /// What `jobs_fetch` answers for it, where `j` is the job: in its words, with its variables.
    answered: &'static str,
    /// What null stands for, where `j` is that answer: in the words of `jobs_take` and `jobs_claim`, and as [`Unsaid`] has it.
    meant: &'static str,
}

const fn column(name: &'static str, answered: &'static str, meant: &'static str) -> Column {
    Column { name, answered, meant }
}

const UNSAID: [Column; 10] = [
    column("started_at", "nullif(j.started_at, v_now)", "j.locked_at"),
    column("lease_until", "NULL::timestamptz", "j.locked_at + p_lease * interval '1 microsecond'"),
    column("ordered", "nullif(j.ordered, true)", "true"),
    column("cancel_asked", "nullif(j.cancel_asked, false)", "false"),
    column("redriven", "nullif(j.redriven, false)", "false"),
    column("state", "NULL::text", "'running'"),
    column("on_exhausted", "nullif(j.on_exhausted, 'hold')", "'hold'"),
    column("handler", "CASE WHEN v_count > 1 THEN j.handler END", "p_handlers[1]"),
    column("settled", "NULL::text", "NULL::text"),
    column("worker", "CASE WHEN p_shares IS NOT NULL THEN j.worker END", "p_worker"),
];

fn columns(of: impl Fn(&Column) -> String) -> String {
    let column = |(name, _): (&str, &str)| match UNSAID.iter().find(|unsaid| unsaid.name == name) {
        Some(unsaid) => of(unsaid),
        None => format!("j.{name}"),
    };
    COLUMNS.map(column).join(", ")
}

/// The columns of a job `j` in the answer to its claim.
pub(in super::super) fn columns_of_claim() -> String {
    columns(|column| column.answered.to_owned())
}

/// All columns of a job from such an answer `j`.
pub(in super::super) fn columns_whole() -> String {
    columns(|column| format!("coalesce(j.{}, {})", column.name, column.meant))
}
