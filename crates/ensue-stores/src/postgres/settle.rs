//! What do owners write about their slots?
//!
//! One round trip and one commit for many slots, under their fences (`sql/fn_slots_settle.sql`). A checkpoint moves
//! cursors and nothing else: done twice it is done once. Whatever is more has an identity, and the answer to it is kept
//! with it: if the connection is lost, it is sent again, and either done then or answered as it was.

use super::PostgresStore;
use super::error::Trouble;
use super::settle_columns::Columns;
use super::settle_events::Publishing;
use ensue_core::jobs::NewJob;
use ensue_core::positions::{Settled, SlotChange};
use ensue_core::{Invalid, StoreError};
use tokio_postgres::Row;
use uuid::Uuid;

impl PostgresStore {
    pub(super) async fn settle_changes(&self, mut changes: Vec<SlotChange>) -> Result<Vec<Settled>, StoreError> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let mut publishing = Publishing::of(self, changes.iter_mut().map(|change| &mut change.events)).await?;
        for (index, change) in changes.iter_mut().enumerate() {
            if let Err(invalid) = change.jobs.iter().try_for_each(NewJob::check) {
                publishing.refuse(index, invalid.into());
                change.jobs.clear();
            }
        }
        let columns = Columns::of(&changes, &publishing);
        let row = self.send_settlement(&columns).await?;
        self.moving.log_grew(&row, row.get(2));
        let states: Vec<&str> = row.get(0);
        let reasons: Option<Vec<Option<&str>>> = row.get(1);
        let mut answers = publishing.answers(&row, &states).await;
        let settled = |(index, state): (usize, &&str)| match (*state, answers[index].take()) {
            ("lost", _) => Ok(Settled::FenceLost),
            ("back", _) => Ok(Settled::WentBack),
            ("invalid", _) => Ok(Settled::Refused(refusal(&reasons, index))),
            ("done" | "key", Some(Ok(appended))) => Ok(Settled::Done(appended)),
            ("done" | "key", Some(Err(refused))) => Ok(Settled::Refused(refused)),
            ("done", None) => Ok(Settled::Done(Vec::new())),
            (other, _) => Err(StoreError::Engine(format!("a settlement was answered with `{other}`"))),
        };
        states.iter().enumerate().map(settled).collect()
    }

    /// Sends it until it is answered, or the server has been away for too long.
    async fn send_settlement(&self, columns: &Columns<'_>) -> Result<Row, StoreError> {
        let call = columns.must_not_be_done_twice().then(|| Uuid::from_u128(rand::random()));
        let mut answer_was_lost = false;
        let sent = self.send_until_answered(columns, call, &mut answer_was_lost).await;
        // Whatever went wrong after that, it may be done.
        let doubt = |error: StoreError| error.in_doubt("the connection was lost while slots were settled");
        if answer_was_lost && call.is_some() { sent.map_err(doubt) } else { sent }
    }

    async fn send_until_answered(
        &self,
        columns: &Columns<'_>,
        call: Option<Uuid>,
        answer_was_lost: &mut bool,
    ) -> Result<Row, StoreError> {
        let (mut patience, mut tries) = (self.server.patience(), 1);
        loop {
            let (now, hint) = (self.clock_time(), self.hint());
            let params = columns.params(&now, &hint, &call);
            let answer = self.server.reader_of_call().await?.query(&self.sql.positions.settle, &params).await;
            match answer {
                Ok(rows) => return self.server.one(rows),
                Err(failure) => {
                    *answer_was_lost |= Trouble::of(&failure) == Trouble::Lost;
                    self.moving.again_after(failure, &mut patience, &mut tries).await?;
                }
            }
        }
    }
}

/// Why the server refused the events of a change.
pub(super) fn refusal(reasons: &Option<Vec<Option<&str>>>, index: usize) -> StoreError {
    let reason = reasons.as_ref().and_then(|reasons| reasons[index]).unwrap_or("no reason was given");
    StoreError::Invalid(Invalid::new("payload", format!("cannot be kept by Postgres: {reason}")))
}
