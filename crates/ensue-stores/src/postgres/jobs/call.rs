//! The answer to a call was lost: what now?
//!
//! It is sent again with the same identity. The server keeps what it answered, or the rows have the call's mark, so that it
//! is done once; who sends it again waits for the first to end.

use super::super::error::Trouble;
use super::super::moving::Moving;
use super::super::server::Params;
use ensue_core::StoreError;
use tokio_postgres::Row;
use uuid::Uuid;

/// A call that must not be done twice.
#[derive(Debug, Clone)]
pub(in super::super) struct Call {
    pub id: Uuid,
    /// Of an advisory lock that nobody else takes. Callers whose successes went in one commit go on under the same call, and take none.
    pub lock: i64,
    /// For who is told that it may have been carried out.
    doing: &'static str,
    earlier: Earlier,
}

/// What may be done already of a call that is sent again?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Earlier {
    Nothing,
    /// What has its mark; the rest is not.
    Part,
    /// An answer was lost: perhaps all of it.
    Perhaps,
}

impl Call {
    pub fn new(doing: &'static str) -> Self {
        let id = rand::random::<u128>();
        Self { id: Uuid::from_u128(id), lock: id as i64, doing, earlier: Earlier::Nothing }
    }

    /// Was an answer lost, so that it may have been carried out by an earlier try?
    pub fn answer_was_lost(&self) -> bool {
        self.earlier == Earlier::Perhaps
    }

    /// Something of it is done, and the rest is sent with the same identity.
    pub fn is_done_in_part(&mut self) {
        if self.earlier == Earlier::Nothing {
            self.earlier = Earlier::Part;
        }
    }

    /// Sends it until it is answered, or the server has been away for too long. `params` are those of the statement; the one
    /// at `again_at` says whether something of it may be done already.
    pub async fn until_answered(
        &mut self,
        moving: &Moving,
        sql: &str,
        params: Params<'_>,
        again_at: Option<usize>,
    ) -> Result<Vec<Row>, StoreError> {
        let answer = self.send(moving, sql, params, again_at, false).await.map(Option::unwrap_or_default);
        self.told_of(answer)
    }

    /// The same, unless somebody is in the way: then there is no answer, and this try has done nothing.
    pub async fn until_answered_or_busy(
        &mut self,
        moving: &Moving,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Option<Vec<Row>>, StoreError> {
        let answer = self.send(moving, sql, params, None, true).await;
        self.told_of(answer)
    }

    /// What is told to who wanted it: that it may be done already, if it failed at last.
    fn told_of<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        match self.earlier {
            Earlier::Nothing => answer,
            Earlier::Part => answer.map_err(|error| error.in_doubt(&format!("{} in part", self.doing))),
            Earlier::Perhaps => {
                answer.map_err(|error| error.in_doubt(&format!("the connection was lost while {}", self.doing)))
            }
        }
    }

    async fn send(
        &mut self,
        moving: &Moving,
        sql: &str,
        params: Params<'_>,
        again_at: Option<usize>,
        gives_way: bool,
    ) -> Result<Option<Vec<Row>>, StoreError> {
        let (mut patience, mut tries) = (moving.server.patience(), 1);
        let mut params = params.to_vec();
        loop {
            if let Some(place) = again_at.filter(|_| self.earlier != Earlier::Nothing) {
                params[place] = &true;
            }
            let answer = moving.server.reader_of_call().await?.query(sql, &params).await;
            match answer {
                Ok(rows) => return Ok(Some(rows)),
                Err(failure) => {
                    match Trouble::of(&failure) {
                        Trouble::Lost => self.earlier = Earlier::Perhaps,
                        Trouble::Busy if gives_way => return Ok(None),
                        Trouble::Busy | Trouble::NoPartition | Trouble::Backlog | Trouble::Refused => {}
                    }
                    moving.again_after(failure, &mut patience, &mut tries).await?;
                }
            }
        }
    }
}
