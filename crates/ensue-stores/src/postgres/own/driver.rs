//! How is a statement run in somebody's own transaction, whichever driver it is of?
//!
//! One seam for all drivers: a statement, its values in the binary form in which the server takes them, and one row with one array
//! of texts as the answer. Values are encoded once, here; a driver only carries them.

use super::refusal::Refusal;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// What a driver does with a statement, some time later.
pub type Asked<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>;

/// An open transaction on Postgres, of a driver that Ensue knows: `tokio_postgres::Transaction`, `deadpool_postgres::Transaction` and,
/// with the feature `sqlx`, `sqlx::Transaction<'_, Postgres>` and `sqlx::PgConnection` (in which you have begun one yourself).
pub trait PostgresTransaction: Send + sealed::Sealed {
    /// Runs a statement that answers one row with one array of texts. `keep`: it may stay prepared on this connection.
    #[doc(hidden)]
    fn ask<'a>(&'a mut self, statement: &'a str, params: Vec<Param>, keep: bool) -> Asked<'a, Vec<Option<String>>>;

    /// Runs a statement without values, such as SAVEPOINT.
    #[doc(hidden)]
    fn run<'a>(&'a mut self, statement: &'a str) -> Asked<'a, ()>;
}

/// A transaction that can be ended: not a bare connection.
pub trait OwnedTransaction: PostgresTransaction + Sized {
    /// Commits it.
    #[doc(hidden)]
    fn commit<'a>(self) -> Asked<'a, ()>
    where
        Self: 'a;

    /// Takes it back.
    #[doc(hidden)]
    fn rollback<'a>(self) -> Asked<'a, ()>
    where
        Self: 'a;
}

pub(super) mod sealed {
    /// Ours alone: what a driver must do may change.
    pub trait Sealed {}
}

/// A value as the server takes it.
#[derive(Debug)]
pub struct Param {
    pub(super) kind: Type,
    /// None is null.
    pub(super) bytes: Option<Vec<u8>>,
}

impl Param {
    /// Encodes a value as this type.
    pub(super) fn of(value: &(dyn ToSql + Sync), kind: Type) -> Result<Self, Refusal> {
        let mut out = BytesMut::new();
        match value.to_sql_checked(&kind, &mut out) {
            Ok(IsNull::Yes) => Ok(Self { kind, bytes: None }),
            Ok(IsNull::No) => Ok(Self { kind, bytes: Some(out.to_vec()) }),
            Err(error) => Err(Refusal::by_driver(format!("a value cannot be sent as {kind}: {error}"))),
        }
    }

    /// Encodes values, each as its type.
    pub(super) fn all<'a>(
        values: impl IntoIterator<Item = (&'a (dyn ToSql + Sync), Type)>,
    ) -> Result<Vec<Self>, Refusal> {
        values.into_iter().map(|(value, kind)| Self::of(value, kind)).collect()
    }
}

impl ToSql for Param {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match &self.bytes {
            Some(bytes) => {
                out.extend_from_slice(bytes);
                Ok(IsNull::No)
            }
            None => Ok(IsNull::Yes),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl sealed::Sealed for tokio_postgres::Transaction<'_> {}

impl PostgresTransaction for tokio_postgres::Transaction<'_> {
    fn ask<'a>(&'a mut self, statement: &'a str, params: Vec<Param>, _: bool) -> Asked<'a, Vec<Option<String>>> {
        Box::pin(async move {
            let typed: Vec<(&(dyn ToSql + Sync), Type)> =
                params.iter().map(|param| (param as &(dyn ToSql + Sync), param.kind.clone())).collect();
            // Not prepared, so that it is one round trip, and the same through a pooler.
            let row = self.query_typed_one(statement, &typed).await?;
            Ok(row.try_get::<_, Option<Vec<Option<String>>>>(0)?.unwrap_or_default())
        })
    }

    fn run<'a>(&'a mut self, statement: &'a str) -> Asked<'a, ()> {
        Box::pin(async move { Ok(self.batch_execute(statement).await?) })
    }
}

impl OwnedTransaction for tokio_postgres::Transaction<'_> {
    fn commit<'a>(self) -> Asked<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { Ok(self.commit().await?) })
    }

    fn rollback<'a>(self) -> Asked<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { Ok(self.rollback().await?) })
    }
}

impl sealed::Sealed for deadpool_postgres::Transaction<'_> {}

impl PostgresTransaction for deadpool_postgres::Transaction<'_> {
    fn ask<'a>(&'a mut self, statement: &'a str, params: Vec<Param>, keep: bool) -> Asked<'a, Vec<Option<String>>> {
        PostgresTransaction::ask(&mut **self, statement, params, keep)
    }

    fn run<'a>(&'a mut self, statement: &'a str) -> Asked<'a, ()> {
        PostgresTransaction::run(&mut **self, statement)
    }
}

impl OwnedTransaction for deadpool_postgres::Transaction<'_> {
    fn commit<'a>(self) -> Asked<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { Ok(self.commit().await?) })
    }

    fn rollback<'a>(self) -> Asked<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { Ok(self.rollback().await?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_once_and_carried_as_they_are() {
        let param = Param::of(&vec![Some("a"), None], Type::TEXT_ARRAY).unwrap();
        let mut direct = BytesMut::new();
        vec![Some("a"), None].to_sql_checked(&Type::TEXT_ARRAY, &mut direct).unwrap();
        let mut carried = BytesMut::new();
        assert!(matches!(param.to_sql_checked(&Type::TEXT_ARRAY, &mut carried), Ok(IsNull::No)));
        assert_eq!(carried, direct);
        assert!(Param::of(&None::<Vec<i64>>, Type::INT8_ARRAY).unwrap().bytes.is_none());
        assert!(Param::of(&1_i64, Type::TEXT).is_err());
    }
}
