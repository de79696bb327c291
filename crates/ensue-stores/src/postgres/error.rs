//! What does a failure of the server, or of the way to it, mean to the caller?

use ensue_core::{Invalid, StoreError};
use std::error::Error as _;
use tokio_postgres::Error;
use tokio_postgres::error::DbError;

/// What to do about a statement that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The connection is gone, or the server is: connect again. What was under way may be stored.
    Lost,
    /// Somebody was in the way; nothing was stored: try again.
    Busy,
    /// The log has no partition for these places; nothing was stored: make one, try again.
    NoPartition,
    /// The server refused what it was given; nothing was stored.
    Refused,
}

impl Trouble {
    pub fn of(error: &Error) -> Self {
        let Some(refusal) = error.as_db_error() else {
            return if is_ours(error) { Self::Refused } else { Self::Lost };
        };
        match refusal.code().code() {
            // The server is shutting down, has crashed, is starting, is full or has become a standby.
            "57P01" | "57P02" | "57P03" | "53300" | "25006" => Self::Lost,
            code if code.starts_with("08") => Self::Lost,
            // A lock that was not to be had in time; a deadlock, a serialization failure.
            "55P03" => Self::Busy,
            code if code.starts_with("40") => Self::Busy,
            // The only check that a row of the log can fail is that of its place.
            "23514" => Self::NoPartition,
            _ => Self::Refused,
        }
    }
}

/// Did the driver fail to write or read a value? It keeps its kinds of error to itself, except in their texts.
fn is_ours(error: &Error) -> bool {
    let text = error.to_string();
    ["error serializing", "error deserializing", "error encoding"].iter().any(|kind| text.starts_with(kind))
}

/// The error as the caller of a verb sees it. `place` is the server, without user and password.
pub(super) fn explain(error: &Error, place: &str) -> StoreError {
    if let Some(refusal) = error.as_db_error() {
        return explain_refusal(refusal, place);
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text = format!("{text}: {deeper}");
        cause = deeper.source();
    }
    if text.starts_with("error performing TLS handshake") {
        let advice = "check sslmode, sslrootcert and the name of the host in the URL";
        return StoreError::Engine(format!("no encrypted connection to Postgres at {place} ({text}): {advice}"));
    }
    if text.starts_with("authentication error") || text.starts_with("invalid configuration") {
        return StoreError::Engine(format!("cannot log in to Postgres at {place} ({text}): correct the URL"));
    }
    match is_ours(error) {
        true => StoreError::Engine(format!("Postgres at {place}: {text}")),
        false => StoreError::Unavailable(format!("Postgres at {place}: {text}; is the server running there?")),
    }
}

fn explain_refusal(refusal: &DbError, place: &str) -> StoreError {
    let message = refusal.message();
    let code = refusal.code().code();
    let engine = |advice: &str| StoreError::Engine(format!("Postgres at {place}: {message} ({code}); {advice}"));
    match code {
        "53100" => StoreError::Full(format!("Postgres at {place}: {message}")),
        "3D000" => engine("create the database with `createdb`, or correct the URL"),
        "42501" => engine("GRANT CREATE ON DATABASE to the user of the URL, or make it the owner of the schema"),
        "42P07" | "42723" => StoreError::Schema(format!(
            "the schema at {place} holds things that are not Ensue's ({message}): choose another with ?schema=NAME"
        )),
        "42P01" | "42883" | "3F000" => StoreError::Schema(format!(
            "the schema at {place} lacks something of Ensue's ({message}): restore it, or choose another with ?schema=NAME"
        )),
        "25006" => StoreError::Unavailable(format!(
            "Postgres at {place} is read-only, perhaps a standby ({message}): name the primary in the URL"
        )),
        "55P03" => StoreError::Unavailable(format!("Postgres at {place}: {message} ({code})")),
        _ => match &code[..2] {
            "22" => StoreError::Invalid(Invalid::new("payload", format!("cannot be kept by Postgres: {message}"))),
            "28" => engine("check user and password in the URL, and the server's pg_hba.conf"),
            "08" | "40" | "53" | "57" => StoreError::Unavailable(format!("Postgres at {place}: {message} ({code})")),
            _ => StoreError::Engine(format!("Postgres at {place}: {message} ({code})")),
        },
    }
}
