//! What can take part in a unit of work?

use super::UnitError;
use super::parts::{Parts, told};
use ensue_core::{Invalid, NewEvent};
use serde::Serialize;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// What a hook does, and whether it could.
pub type Hooked<'a> = Pin<Box<dyn Future<Output = Result<(), OperationError>> + Send + 'a>>;

/// Something that takes part in a [unit of work](crate::unit). Every hook may be left out.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ensue::unit::{Hooked, Operation, Unit, done};
/// use ensue::{Ensue, NewEvent};
///
/// /// Writes a record with the commit, and tells of it.
/// struct Publish(i64);
///
/// impl Operation for Publish {
///     fn on_commit<'a>(&'a mut self, mut unit: Unit<'a>) -> Hooked<'a> {
///         Box::pin(async move {
///             unit.sqlite()?.execute("INSERT INTO records VALUES (?1)", [self.0])?;
///             Ok(unit.publish(NewEvent::new("record.published").object(format!("record:{}", self.0)))?)
///         })
///     }
///
///     fn on_post_commit(&mut self) -> Hooked<'_> {
///         println!("record {} is published", self.0);
///         done()
///     }
/// }
///
/// let bus = Ensue::memory().await?;
/// bus.transaction(|tx| Ok(tx.execute_batch("CREATE TABLE records (id INTEGER)")?)).await?;
/// let committed = bus
///     .unit_of_work(|unit| {
///         unit.context(&serde_json::json!({ "request": "r-1" }))?;
///         unit.register(Publish(7))
///     })
///     .await?
///     .1;
/// assert_eq!(committed.events[0].seq, Some(1));
/// let event = bus.store().event(1).await?.expect("it is in the log");
/// assert_eq!(event.metadata.as_str(), r#"{"request":"r-1"}"#);
/// # Ok(()) }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
pub trait Operation: Send + 'static {
    /// It is registered, in the open transaction. With an error it is not.
    fn on_register<'a>(&'a mut self, unit: Unit<'a>) -> Hooked<'a> {
        let _unused = unit;
        done()
    }

    /// The unit is about to commit. An error takes it back.
    fn on_commit<'a>(&'a mut self, unit: Unit<'a>) -> Hooked<'a> {
        let _unused = unit;
        done()
    }

    /// The unit is on disk. Nothing can undo that: an error is logged. What must happen in any case is an event with a handler.
    fn on_post_commit(&mut self) -> Hooked<'_> {
        done()
    }

    /// Something of the unit has failed, for this reason: it is taken back next. The transaction may have failed by now.
    fn on_exception<'a>(&'a mut self, reason: &'a str) -> Hooked<'a> {
        let _unused = reason;
        done()
    }

    /// The unit is about to be taken back.
    fn on_rollback(&mut self) -> Hooked<'_> {
        done()
    }

    /// The unit is taken back.
    fn on_post_rollback(&mut self) -> Hooked<'_> {
        done()
    }
}

/// A hook that has nothing more to do.
pub fn done<'a>() -> Hooked<'a> {
    Box::pin(std::future::ready(Ok(())))
}

/// Why an operation could not do something: any error, or a text.
pub struct OperationError(String);

impl OperationError {
    /// For a reason of the application's own.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<E: std::error::Error> From<E> for OperationError {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(deeper) = cause {
            text.push_str(": ");
            text.push_str(&deeper.to_string());
            cause = deeper.source();
        }
        Self(text)
    }
}

/// The transaction of a unit, as an operation sees it: whichever engine and driver it is of.
#[non_exhaustive]
pub enum UnitTransaction<'a> {
    /// On the embedded engine.
    #[cfg(feature = "sqlite")]
    Sqlite(&'a mut ensue_stores::sqlite::rusqlite::Connection),
    /// Of tokio-postgres, or of deadpool.
    #[cfg(feature = "postgres")]
    Postgres(&'a ensue_stores::postgres::tokio_postgres::Transaction<'a>),
    /// Of sqlx.
    #[cfg(feature = "sqlx")]
    Sqlx(&'a mut ensue_stores::postgres::sqlx::PgConnection),
    /// Without an engine there is none.
    #[cfg(not(any(feature = "sqlite", feature = "postgres")))]
    None(std::marker::PhantomData<&'a ()>),
}

impl UnitTransaction<'_> {
    fn again(&mut self) -> UnitTransaction<'_> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(connection) => UnitTransaction::Sqlite(connection),
            #[cfg(feature = "postgres")]
            Self::Postgres(transaction) => UnitTransaction::Postgres(transaction),
            #[cfg(feature = "sqlx")]
            Self::Sqlx(connection) => UnitTransaction::Sqlx(connection),
            #[cfg(not(any(feature = "sqlite", feature = "postgres")))]
            Self::None(_) => UnitTransaction::None(std::marker::PhantomData),
        }
    }
}

/// A unit of work, as an operation sees it.
pub struct Unit<'a> {
    tx: UnitTransaction<'a>,
    parts: &'a mut Parts,
}

impl<'u> Unit<'u> {
    pub(super) fn new(tx: UnitTransaction<'u>, parts: &'u mut Parts) -> Self {
        Self { tx, parts }
    }

    /// The same unit, for another operation.
    pub(super) fn again(&mut self) -> Unit<'_> {
        Unit { tx: self.tx.again(), parts: self.parts }
    }

    pub(super) fn parts(&mut self) -> &mut Parts {
        self.parts
    }

    /// Publishes with the commit.
    pub fn publish(&mut self, event: NewEvent) -> Result<(), Invalid> {
        self.parts.publish(event)
    }

    /// What is said in the metadata of every event of this unit.
    pub fn context(&mut self, context: &impl Serialize) -> Result<(), Invalid> {
        self.parts.add_context(context)
    }

    /// Registers another operation, behind those that are.
    pub async fn register(&mut self, operation: impl Operation) -> Result<(), UnitError> {
        let place = self.parts.reserve();
        let mut operation: Box<dyn Operation> = Box::new(operation);
        operation.on_register(self.again()).await.map_err(told("on_register"))?;
        self.parts.put(place, operation);
        Ok(())
    }

    /// The transaction, whichever it is.
    pub fn tx(&mut self) -> UnitTransaction<'_> {
        self.tx.again()
    }

    /// The transaction on the embedded engine; an error on another.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(&mut self) -> Result<&mut ensue_stores::sqlite::rusqlite::Connection, OperationError> {
        match self.tx.again() {
            UnitTransaction::Sqlite(connection) => Ok(connection),
            #[cfg(feature = "postgres")]
            UnitTransaction::Postgres(_) => Err(other_engine("tokio-postgres", "postgres")),
            #[cfg(feature = "sqlx")]
            UnitTransaction::Sqlx(_) => Err(other_engine("sqlx", "sqlx")),
        }
    }

    /// The transaction of tokio-postgres or deadpool; an error with another.
    #[cfg(feature = "postgres")]
    pub fn postgres(&mut self) -> Result<&ensue_stores::postgres::tokio_postgres::Transaction<'_>, OperationError> {
        match self.tx.again() {
            UnitTransaction::Postgres(transaction) => Ok(transaction),
            #[cfg(feature = "sqlite")]
            UnitTransaction::Sqlite(_) => Err(other_engine("the embedded engine", "sqlite")),
            #[cfg(feature = "sqlx")]
            UnitTransaction::Sqlx(_) => Err(other_engine("sqlx", "sqlx")),
        }
    }

    /// The connection of sqlx; an error with another.
    #[cfg(feature = "sqlx")]
    pub fn sqlx(&mut self) -> Result<&mut ensue_stores::postgres::sqlx::PgConnection, OperationError> {
        match self.tx.again() {
            UnitTransaction::Sqlx(connection) => Ok(connection),
            UnitTransaction::Postgres(_) => Err(other_engine("tokio-postgres", "postgres")),
            #[cfg(feature = "sqlite")]
            UnitTransaction::Sqlite(_) => Err(other_engine("the embedded engine", "sqlite")),
        }
    }
}

#[cfg(any(feature = "sqlx", all(feature = "sqlite", feature = "postgres")))]
fn other_engine(found: &str, method: &str) -> OperationError {
    OperationError(format!("the unit's transaction is of {found}: use `unit.{method}()`"))
}
