//! What does a refusal mean to whoever has the transaction?
//!
//! The transaction is theirs, and so is what to do about it: most refusals leave it failed, and it can only be taken back.

use ensue_core::{Invalid, StoreError};

/// Why a statement in somebody's own transaction has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The server's code; none if the driver said so.
    code: Option<String>,
    message: String,
    hint: Option<String>,
}

impl Refusal {
    /// The driver could not send it, or has lost the connection.
    pub(super) fn by_driver(message: String) -> Self {
        Self { code: None, message, hint: None }
    }

    /// The server said no.
    pub(super) fn by_server(code: &str, message: &str, hint: Option<&str>) -> Self {
        Self { code: Some(code.to_owned()), message: message.to_owned(), hint: hint.map(str::to_owned) }
    }

    /// Is this the server's code?
    pub(super) fn is(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    /// Did the server say so? Else the connection may be lost, and what was under way done or not.
    pub fn is_told(&self) -> bool {
        self.code.is_some()
    }

    /// What the server or the driver said.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// As whoever has the transaction sees it. `schema` is where the bus is.
    pub fn explain(self, schema: &str) -> StoreError {
        let Self { code, message, hint } = self;
        let Some(code) = code else {
            return StoreError::Unavailable(format!("the connection of the transaction: {message}"));
        };
        let hint = hint.map(|hint| format!(" {hint}")).unwrap_or_default();
        let with = |advice: &str| format!("{message} ({code}); {advice}");
        match code.as_str() {
            super::OWN_LOST | super::OWN_DONE => StoreError::Conflict(format!("{message}.{hint}")),
            "25P02" => StoreError::Conflict(with(
                "an earlier statement of the transaction has failed: roll it back and begin again",
            )),
            "25006" => StoreError::Unsupported(with("begin the transaction READ WRITE, on the primary")),
            "25001" => StoreError::Unsupported(format!("{message}: {}", hint.trim_start())),
            "42883" | "42P01" | "3F000" => StoreError::Schema(with(&format!(
                "the transaction is to be on the database of the bus, whose schema is `{schema}`"
            ))),
            "42501" => StoreError::Engine(with("GRANT ensue_publish to the user of the transaction")),
            "53100" => StoreError::Full(message),
            _ => match &code[..2.min(code.len())] {
                "22" => StoreError::Invalid(Invalid::new("payload", format!("cannot be kept by Postgres: {message}"))),
                "40" => StoreError::Unavailable(with("the transaction is taken back: begin it again")),
                "08" | "57" => {
                    StoreError::Unavailable(format!("the connection of the transaction: {message} ({code})"))
                }
                _ => StoreError::Engine(format!("{message} ({code}){hint}")),
            },
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(told) => Self::by_server(told.code().code(), told.message(), told.hint()),
            None => Self::by_driver(super::super::error::Failure::from(error).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(code: &str) -> StoreError {
        Refusal::by_server(code, "the server's words", Some("Do this.")).explain("ensue")
    }

    /// Deadlock and serialization failure: the caller begins again.
    #[test]
    fn what_takes_the_transaction_back_says_to_begin_again() {
        for code in ["40001", "40P01"] {
            let error = explained(code);
            assert!(matches!(error, StoreError::Unavailable(_)), "{code}");
            assert!(error.to_string().contains("begin it again"), "{error}");
        }
        assert!(explained("25P02").to_string().contains("roll it back"));
    }

    #[test]
    fn what_somebody_must_put_right_says_how() {
        for (code, advice) in [
            ("42883", "schema is `ensue`"),
            ("3F000", "schema is `ensue`"),
            ("42501", "GRANT"),
            ("25006", "READ WRITE"),
            ("25001", "Do this."),
            (super::super::OWN_LOST, "Do this."),
        ] {
            assert!(explained(code).to_string().contains(advice), "{code}: {}", explained(code));
        }
        assert!(matches!(explained("22P05"), StoreError::Invalid(_)));
        assert!(matches!(explained("53100"), StoreError::Full(_)));
        assert!(matches!(Refusal::by_driver("gone".into()).explain("ensue"), StoreError::Unavailable(_)));
    }
}
