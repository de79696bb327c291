//! What does a failure of the server, or of the way to it, mean to the caller?

use super::doubt::TOO_LATE;
use super::schema::{BACKLOG, KEY_HELD};
use ensue_core::{Invalid, StoreError};
use std::error::Error as _;
use std::fmt;
use std::time::Duration;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// Why a statement has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server or the driver said so.
    Told(Error),
    /// Nothing was heard for this long. The server may do it yet.
    Silence(Duration),
    /// A session that may still store something does not end.
    SessionLives,
    /// The schema is one that this program may not run beside.
    Outdated(String),
    /// A statement that always answers something has answered nothing, or something that is not known.
    Nothing,
}

impl Failure {
    /// Whether a lock was not to be had in time.
    pub fn is_lock_timeout(&self) -> bool {
        matches!(self, Self::Told(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Told(error) => {
                write!(f, "{error}")?;
                let mut cause = error.source();
                while let Some(deeper) = cause {
                    write!(f, ": {deeper}")?;
                    cause = deeper.source();
                }
                Ok(())
            }
            Self::Silence(limit) => write!(f, "no answer within {limit:?}"),
            Self::Outdated(why) => write!(f, "{why}"),
            Self::SessionLives => write!(f, "the lost session is still there and does not end"),
            Self::Nothing => write!(f, "a statement was not answered as expected"),
        }
    }
}

/// What to do about a statement that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The connection is gone, or the server is: connect again. What was under way may be stored.
    Lost,
    /// Somebody was in the way; nothing was stored: try again.
    Busy,
    /// The log has no partition for these places; nothing was stored: make one, try again.
    NoPartition,
    /// So much waits in the outbox that it must be moved first; nothing was stored: move it, try again.
    Backlog,
    /// The server refused what it was given; nothing was stored.
    Refused,
}

impl Trouble {
    pub fn of(failure: &Failure) -> Self {
        match failure {
            Failure::Silence(_) | Failure::SessionLives => Self::Lost,
            Failure::Nothing | Failure::Outdated(_) => Self::Refused,
            Failure::Told(error) => match error.code() {
                // A job with the same key was sent in somebody's own transaction, which has committed meanwhile: now it is seen.
                Some(_) if error.as_db_error().and_then(|error| error.constraint()) == Some("jobs_key") => Self::Busy,
                Some(state) => Self::of_code(state.code()),
                None if is_ours(error) => Self::Refused,
                None => Self::Lost,
            },
        }
    }

    fn of_code(code: &str) -> Self {
        match code {
            // The server is shutting down, has crashed, is starting, is full or has become a standby.
            "57P01" | "57P02" | "57P03" | "53300" | "25006" => Self::Lost,
            code if code.starts_with("08") => Self::Lost,
            // A statement that was prepared before another process brought the schema up to date answers something else now: a new
            // connection prepares it anew.
            "0A000" => Self::Lost,
            // A lock that was not to be had in time; a deadlock, a serialization failure.
            "55P03" | TOO_LATE => Self::Busy,
            code if code.starts_with("40") => Self::Busy,
            // The only check that a row of the log can fail is that of its place.
            "23514" => Self::NoPartition,
            BACKLOG => Self::Backlog,
            _ => Self::Refused,
        }
    }
}

/// Did the driver fail to write or read a value? It keeps its kinds of error to itself, except in their texts.
fn is_ours(error: &Error) -> bool {
    let text = error.to_string();
    ["error serializing", "error deserializing", "error encoding"].iter().any(|kind| text.starts_with(kind))
}

/// The failure as the caller of a verb sees it. `place` is the server, without user and password.
pub(super) fn explain(failure: &Failure, place: &str) -> StoreError {
    let error = match failure {
        Failure::Told(error) => error,
        Failure::Outdated(why) => return StoreError::Schema(why.clone()),
        Failure::Nothing => return StoreError::Engine(format!("Postgres at {place}: {failure}")),
        Failure::Silence(_) | Failure::SessionLives => {
            return StoreError::Unavailable(format!(
                "Postgres at {place}: {failure}; is the server overloaded or stuck?"
            ));
        }
    };
    if let Some(refusal) = error.as_db_error() {
        // Functions of ours that refuse a role say what to grant.
        if let ("42501", Some(hint)) = (refusal.code().code(), refusal.hint()) {
            return StoreError::Engine(format!("Postgres at {place}: {} (42501); {hint}", refusal.message()));
        }
        return explain_refusal(refusal.code().code(), refusal.message(), place);
    }
    let text = failure.to_string();
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

fn explain_refusal(code: &str, message: &str, place: &str) -> StoreError {
    let engine = |advice: &str| StoreError::Engine(format!("Postgres at {place}: {message} ({code}); {advice}"));
    match code {
        KEY_HELD => StoreError::Conflict(format!("{message}: try again when it has ended")),
        "53100" => StoreError::Full(format!("Postgres at {place}: {message}")),
        "3D000" => engine("create the database with `createdb`, or correct the URL"),
        // Another session than the one that prepared it: one that is looked at as ours is given to others.
        "26000" | "42P05" => {
            engine("a pooler gives the connection to others after each transaction: add pooler=transaction to the URL")
        }
        "42501" => engine(
            "GRANT CREATE ON DATABASE to the user of the URL, or make it the owner of the schema; to serve a schema that somebody else \
             has installed and upgrades, GRANT it the role whose name is that of the schema and `_serve`",
        ),
        // Partitions were made before this is told: something else is wrong with them.
        "23514" => engine("run `ensue doctor`, which says what the log lacks, or SELECT maintain() in its schema"),
        "42P07" | "42723" => StoreError::Schema(format!(
            "the schema at {place} holds things that are not Ensue's ({message}): choose another with ?schema=NAME"
        )),
        "42P01" | "42883" | "3F000" => StoreError::Schema(format!(
            "the schema at {place} lacks something of Ensue's ({message}): restore it, or choose another with ?schema=NAME"
        )),
        "25006" => StoreError::Unavailable(format!(
            "Postgres at {place} is read-only, perhaps a standby ({message}): name the primary in the URL"
        )),
        "55P03" | BACKLOG | TOO_LATE => StoreError::Unavailable(format!("Postgres at {place}: {message} ({code})")),
        _ => match &code[..2] {
            "22" => StoreError::Invalid(Invalid::new("payload", format!("cannot be kept by Postgres: {message}"))),
            "28" => engine("check user and password in the URL, and the server's pg_hba.conf"),
            "08" | "40" | "53" | "57" => StoreError::Unavailable(format!("Postgres at {place}: {message} ({code})")),
            _ => StoreError::Engine(format!("Postgres at {place}: {message} ({code})")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(code: &str) -> StoreError {
        explain_refusal(code, "the server's words", "host/db")
    }

    /// H32: a full disk is told apart from all else that the server may lack.
    #[test]
    fn only_a_full_disk_is_called_full() {
        assert_eq!(explained("53100"), StoreError::Full("Postgres at host/db: the server's words".into()));
        for code in ["53000", "53200", "53300", "53400"] {
            assert!(matches!(explained(code), StoreError::Unavailable(_)), "{code}");
        }
        assert_eq!(Trouble::of_code("53100"), Trouble::Refused, "it is not sent again and again to a full disk");
    }

    #[test]
    fn what_may_be_over_in_a_moment_is_unavailable() {
        for code in ["08006", "25006", "40001", "40P01", "55P03", "57014", "57P01", "57P02", "57P03"] {
            assert!(matches!(explained(code), StoreError::Unavailable(_)), "{code}");
        }
        assert!(explained("25006").to_string().contains("name the primary"));
    }

    #[test]
    fn what_somebody_must_put_right_says_how() {
        for (code, advice) in [
            ("3D000", "createdb"),
            ("26000", "pooler=transaction"),
            ("42P05", "pooler=transaction"),
            ("42501", "GRANT CREATE"),
            ("42501", "_serve"),
            ("23514", "ensue doctor"),
            ("28P01", "check user and password"),
            ("28000", "pg_hba.conf"),
        ] {
            let error = explained(code);
            assert!(matches!(error, StoreError::Engine(_)) && error.to_string().contains(advice), "{code}: {error}");
        }
        for code in ["42P07", "42723", "42P01", "42883", "3F000"] {
            let error = explained(code);
            assert!(
                matches!(error, StoreError::Schema(_)) && error.to_string().contains("?schema="),
                "{code}: {error}"
            );
        }
        assert!(matches!(explained("22P05"), StoreError::Invalid(_)));
        assert!(matches!(explained("XX000"), StoreError::Engine(_)));
    }

    /// What is called lost may be stored, and is looked for; what is called busy or refused is not, and may be sent again.
    #[test]
    fn only_what_ends_a_session_leaves_in_doubt_what_it_stored() {
        for code in ["57P01", "57P02", "57P03", "53300", "25006", "08000", "08006", "08P01", "0A000"] {
            assert_eq!(Trouble::of_code(code), Trouble::Lost, "{code}");
        }
        for code in ["55P03", "40001", "40P01", TOO_LATE] {
            assert_eq!(Trouble::of_code(code), Trouble::Busy, "{code}");
        }
        assert_eq!(Trouble::of_code("23514"), Trouble::NoPartition);
        for code in ["57014", "53100", "22P05", "23505", "42P01", "XX000"] {
            assert_eq!(Trouble::of_code(code), Trouble::Refused, "{code}");
        }
        assert_eq!(Trouble::of(&Failure::Silence(Duration::from_secs(1))), Trouble::Lost);
        assert_eq!(Trouble::of(&Failure::SessionLives), Trouble::Lost);
    }

    #[test]
    fn silence_is_unavailable_and_says_how_long_it_lasted() {
        let error = explain(&Failure::Silence(Duration::from_secs(30)), "host/db");
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        assert!(error.to_string().contains("host/db") && error.to_string().contains("within 30s"), "{error}");
    }
}
