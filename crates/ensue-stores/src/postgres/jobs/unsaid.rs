//! What of a job that was just claimed need not be answered?
//!
//! What the claim itself says of it, and what is so of most jobs. Null stands for it on the way from `sql/fn_jobs_fetch.sql`; whoever has asked fills it in (`row.rs`), and so do the functions
//! that programs of before call (`sql/fn_jobs_take.sql`).

use super::sql::COLUMNS;
use ensue_core::GroupName;
use jiff::SignedDuration;

/// What is known of all jobs of a claim.
pub(super) struct Unsaid<'a> {
    /// Of a claim for a single handler.
    pub handler: &'a GroupName,
    /// Of a claim for a single worker.
    pub worker: &'a str,
    pub lease: SignedDuration,
}

/// A column, what a claim answers for it where `j` is the job, and what stands for null there where `j` is that answer.
const UNSAID: [(&str, &str, &str); 9] = [
    ("started_at", "nullif(j.started_at, v_now)", "j.locked_at"),
    ("lease_until", "NULL::timestamptz", "j.locked_at + p_lease * interval '1 microsecond'"),
    ("ordered", "nullif(j.ordered, true)", "true"),
    ("cancel_asked", "nullif(j.cancel_asked, false)", "false"),
    ("redriven", "nullif(j.redriven, false)", "false"),
    ("state", "NULL::text", "'running'"),
    ("on_exhausted", "nullif(j.on_exhausted, 'hold')", "'hold'"),
    ("handler", "CASE WHEN v_count > 1 THEN j.handler END", "p_handlers[1]"),
    ("worker", "CASE WHEN p_shares IS NOT NULL THEN j.worker END", "p_worker"),
];

fn columns(of: impl Fn(&(&str, &str, &str)) -> String) -> String {
    let column = |(name, _): (&str, &str)| match UNSAID.iter().find(|(unsaid, ..)| *unsaid == name) {
        Some(unsaid) => of(unsaid),
        None => format!("j.{name}"),
    };
    COLUMNS.map(column).join(", ")
}

/// The columns of a job `j` in the answer to its claim.
pub(in super::super) fn columns_of_claim() -> String {
    columns(|(_, answered, _)| (*answered).to_owned())
}

/// All columns of a job from such an answer `j`.
pub(in super::super) fn columns_whole() -> String {
    columns(|(name, _, meant)| format!("coalesce(j.{name}, {meant})"))
}
