//! The answer to a call was lost: what now?
//!
//! It is sent again with the same identity. The server keeps what it answered, or the rows have the call's mark, so that it
//! is done once; who sends it again waits for the first to end.

use super::super::error::Trouble;
use super::super::partitions::Partitions;
use super::super::server::{Params, Server};
use super::super::writer::TRIES_MAX;
use ensue_core::StoreError;
use tokio_postgres::Row;
use uuid::Uuid;

/// A call that must not be done twice.
pub(in super::super) struct Call {
    pub id: Uuid,
    /// Of an advisory lock that nobody else takes.
    pub lock: i64,
    /// For who is told that it may have been carried out.
    doing: &'static str,
    answer_was_lost: bool,
}

impl Call {
    pub fn new(doing: &'static str) -> Self {
        let id = rand::random::<u128>();
        Self { id: Uuid::from_u128(id), lock: id as i64, doing, answer_was_lost: false }
    }

    /// Was an answer lost, so that it may have been carried out by an earlier try?
    pub fn answer_was_lost(&self) -> bool {
        self.answer_was_lost
    }

    /// Sends it until it is answered, or the server has been away for too long. `params` are those of the statement; the one
    /// at `again_at` says whether an answer was lost.
    pub async fn until_answered(
        &mut self,
        server: &Server,
        partitions: &Partitions,
        sql: &str,
        params: Params<'_>,
        again_at: Option<usize>,
    ) -> Result<Vec<Row>, StoreError> {
        let answer = self.send(server, partitions, sql, params, again_at).await;
        match self.answer_was_lost {
            // Whatever went wrong after that, it may be done.
            true => answer.map_err(|error| error.in_doubt(&format!("the connection was lost while {}", self.doing))),
            false => answer,
        }
    }

    async fn send(
        &mut self,
        server: &Server,
        partitions: &Partitions,
        sql: &str,
        params: Params<'_>,
        again_at: Option<usize>,
    ) -> Result<Vec<Row>, StoreError> {
        let (mut patience, mut tries) = (server.patience(), 1);
        let mut params = params.to_vec();
        loop {
            if let Some(place) = again_at.filter(|_| self.answer_was_lost) {
                params[place] = &true;
            }
            let answer = server.reader_of_call().await?.query(sql, &params).await;
            match answer {
                Ok(rows) => return Ok(rows),
                Err(failure) if Trouble::of(&failure) == Trouble::NoPartition && tries < TRIES_MAX => {
                    tries += 1;
                    partitions.ensure().await?;
                }
                Err(failure) => {
                    self.answer_was_lost |= Trouble::of(&failure) == Trouble::Lost;
                    server.again_after(failure, &mut patience).await?;
                }
            }
        }
    }
}
