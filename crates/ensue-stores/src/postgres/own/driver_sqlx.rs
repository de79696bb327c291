//! How is a statement run in a transaction of sqlx?

use super::driver::{Asked, OwnedTransaction, Param, PostgresTransaction, sealed};
use super::refusal::Refusal;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgDatabaseError, PgTypeInfo, Postgres};
use sqlx::{Arguments, AssertSqlSafe, Encode, PgConnection, Row, Transaction, Type};

/// Bytes that are encoded already.
impl Encode<'_, Postgres> for Param {
    fn encode_by_ref(&self, out: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        match &self.bytes {
            Some(bytes) => {
                out.extend_from_slice(bytes);
                Ok(IsNull::No)
            }
            None => Ok(IsNull::Yes),
        }
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(PgTypeInfo::with_oid(Oid(self.kind.oid())))
    }

    fn size_hint(&self) -> usize {
        self.bytes.as_ref().map_or(0, Vec::len)
    }
}

impl Type<Postgres> for Param {
    fn type_info() -> PgTypeInfo {
        // Each says its own, above.
        PgTypeInfo::with_oid(Oid(0))
    }
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        match error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>()) {
            Some(told) => Self::by_server(told.code(), told.message(), told.hint()),
            None => Self::by_driver(error.to_string()),
        }
    }
}

impl sealed::Sealed for PgConnection {}

impl PostgresTransaction for PgConnection {
    fn ask<'a>(&'a mut self, statement: &'a str, params: Vec<Param>, keep: bool) -> Asked<'a, Vec<Option<String>>> {
        Box::pin(async move {
            let mut arguments = PgArguments::default();
            for param in params {
                arguments.add(param).map_err(|error| Refusal::by_driver(error.to_string()))?;
            }
            // Ours, with the name of the schema quoted.
            let statement = AssertSqlSafe(statement.to_owned());
            let row = sqlx::query_with(statement, arguments).persistent(keep).fetch_one(&mut *self).await?;
            Ok(row.try_get::<Option<Vec<Option<String>>>, _>(0)?.unwrap_or_default())
        })
    }

    fn run<'a>(&'a mut self, statement: &'a str) -> Asked<'a, ()> {
        Box::pin(async move {
            sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut *self).await?;
            Ok(())
        })
    }
}

impl sealed::Sealed for Transaction<'_, Postgres> {}

impl PostgresTransaction for Transaction<'_, Postgres> {
    fn ask<'a>(&'a mut self, statement: &'a str, params: Vec<Param>, keep: bool) -> Asked<'a, Vec<Option<String>>> {
        PostgresTransaction::ask(&mut **self, statement, params, keep)
    }

    fn run<'a>(&'a mut self, statement: &'a str) -> Asked<'a, ()> {
        PostgresTransaction::run(&mut **self, statement)
    }
}

impl OwnedTransaction for Transaction<'_, Postgres> {
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
