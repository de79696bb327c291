//! Errors of commands: their exit codes, and their form with `--json`.
//!
//! A server's refusal and an error of a store that the command opened itself have the same codes: both are problems with
//! a status.

use super::output;
use crate::config::redact::{redact, shown};
use crate::http::problem::Problem as HttpProblem;
use clap::error::{ContextKind, ContextValue};
use ensue::text::escape_json;
use ensue::{Error, Invalid, StoreError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;
use std::process::ExitCode;

/// Failure without a code of its own, or problems found.
pub const FAILED: u8 = 1;
/// The command line is invalid.
pub const USAGE: u8 = 2;
/// The named event, object, job, group, handler or schedule does not exist.
pub const NOT_FOUND: u8 = 3;
/// The request was refused: invalid, in conflict with the current state, or without a valid token.
pub const REFUSED: u8 = 4;
/// The server or the store cannot be reached, or cannot do it now.
pub const UNAVAILABLE: u8 = 5;

/// Why a command failed: the problem that a server answered, or one of the same form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of problem, for programs.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The kind in words.
    pub title: String,
    /// The HTTP status, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What is wrong, and what to do.
    pub detail: Option<String>,
    /// The field in question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.detail.as_ref().unwrap_or(&self.title))
    }
}

impl std::error::Error for Failure {}

/// Nothing answers where the server or the store should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable(pub String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreachable {}

impl Failure {
    /// Input that was refused before it was sent.
    pub fn invalid(detail: impl fmt::Display) -> Self {
        let status = Some(422);
        Self { kind: None, title: "Invalid input".into(), status, detail: Some(detail.to_string()), field: None }
    }

    fn without_status(title: &str) -> Self {
        Self { kind: None, title: title.into(), status: None, detail: None, field: None }
    }

    fn of_problem(problem: &HttpProblem) -> Self {
        let (kind, title, status) = problem.kind();
        let field = problem.named_field().map(str::to_owned);
        Self { kind: Some(kind.into()), title: title.into(), status: Some(status), detail: None, field }
    }

    fn of_store(error: &StoreError) -> Self {
        Self::of_problem(&error.clone().into())
    }

    /// The failure that an error is, with all of its text.
    fn of(error: &anyhow::Error) -> Self {
        let of = || {
            if let Some(failure) = error.downcast_ref::<Self>() {
                return failure.clone();
            }
            if error.downcast_ref::<Unreachable>().is_some() {
                let kind = Some("urn:ensue:problem:unreachable".into());
                return Self { kind, ..Self::without_status("Unreachable") };
            }
            if let Some(error) = error.downcast_ref::<Error>() {
                return match error {
                    Error::Address(_) => Self::without_status("Failed"),
                    Error::Store(error) => Self::of_store(error),
                    error @ (Error::Invalid(_) | Error::NotFound(_)) => Self::of_problem(&error.clone().into()),
                };
            }
            if let Some(error) = error.downcast_ref::<StoreError>() {
                return Self::of_store(error);
            }
            if let Some(invalid) = error.downcast_ref::<Invalid>() {
                return Self::of_problem(&invalid.clone().into());
            }
            Self::without_status("Failed")
        };
        Self { detail: Some(redact(&format!("{error:#}"))), ..of() }
    }

    fn exit_code(&self) -> u8 {
        match (self.status, self.kind.as_deref()) {
            (None, Some("urn:ensue:problem:unreachable")) => UNAVAILABLE,
            (None, _) => FAILED,
            (Some(404), _) => NOT_FOUND,
            (Some(408 | 429 | 502 | 503 | 504 | 507), _) => UNAVAILABLE,
            (Some(400..=499), _) => REFUSED,
            (Some(_), _) => FAILED,
        }
    }

    /// Prints one line of JSON on stderr.
    fn print_json(&self) {
        let json = serde_json::json!({ "error": self }).to_string();
        let _ = writeln!(std::io::stderr().lock(), "{}", escape_json(&json));
    }
}

/// Whether the command line asks for JSON. It is looked for in the arguments themselves, because an invalid command line
/// has an error, too.
fn wants_json() -> bool {
    std::env::args_os().any(|argument| argument == "--json")
}

/// Reports the error of a command, and returns its exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let failure = Failure::of(error);
    match wants_json() {
        true => failure.print_json(),
        false => output::error(error),
    }
    ExitCode::from(failure.exit_code())
}

/// Prints the help that was asked for, or reports an invalid command line.
pub fn report_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe is not an error.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let mut text = redact(&error.render().to_string());
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue] {
        if let Some(ContextValue::String(word)) = error.get(kind) {
            text = text.replace(word.as_str(), shown(word));
        }
    }
    match wants_json() {
        true => {
            let detail = Some(text.trim_end().to_owned());
            Failure { detail, ..Failure::without_status("Invalid command line") }.print_json();
        }
        false => text.trim_end().lines().for_each(output::note),
    }
    ExitCode::from(USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn an_error_keeps_its_exit_code_under_any_context() {
        let text = || "x".to_string();
        let invalid = || Invalid::new("topic", "is bad");
        let server = |status| Failure { status: Some(status), ..Failure::without_status("x") };
        for (error, code) in [
            (anyhow!("x"), FAILED),
            (Error::NotFound(text()).into(), NOT_FOUND),
            (invalid().into(), REFUSED),
            (Error::Invalid(invalid()).into(), REFUSED),
            (Failure::invalid("x").into(), REFUSED),
            (Error::Store(StoreError::Conflict(text())).into(), REFUSED),
            (StoreError::KeyConflict { key: text() }.into(), REFUSED),
            (StoreError::Unavailable(text()).into(), UNAVAILABLE),
            (StoreError::Locked(text()).into(), UNAVAILABLE),
            (StoreError::Full(text()).into(), UNAVAILABLE),
            (StoreError::Engine(text()).into(), FAILED),
            (Unreachable(text()).into(), UNAVAILABLE),
            (server(404).into(), NOT_FOUND),
            (server(401).into(), REFUSED),
            (server(409).into(), REFUSED),
            (server(500).into(), FAILED),
            (server(503).into(), UNAVAILABLE),
        ] {
            let shown = format!("{error:#}");
            assert_eq!(Failure::of(&error).exit_code(), code, "{shown}");
            let wrapped = Err::<(), _>(error).context("one").context("two").unwrap_err();
            let failure = Failure::of(&wrapped);
            assert_eq!((failure.exit_code(), failure.detail), (code, Some(format!("two: one: {shown}"))));
        }
    }
}
