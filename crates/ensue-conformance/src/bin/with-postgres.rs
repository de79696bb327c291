//! How does a whole test run share one Postgres?
//!
//! `with-postgres [--no-fsync] CMD ARGS…` starts a private server, which waits for the disk unless told otherwise, runs the command with `ENSUE_TEST_POSTGRES` set to its address,
//! stops the server and exits with the command's code. SIGINT and SIGTERM are passed on to the command, and the server
//! is stopped after them too.

use anyhow::{Context, Result};
use ensue_conformance::postgres::{PrivatePostgres, SHARED_URL, signal};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal as listen};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let mut words = std::env::args_os().skip(1).peekable();
    let no_fsync = words.next_if(|word| word == "--no-fsync").is_some();
    let Some(program) = words.next() else {
        eprintln!("usage: with-postgres [--no-fsync] CMD ARGS…");
        return Ok(ExitCode::from(2));
    };
    // Listening begins before the server starts, so that no signal can leave one behind.
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let server = if no_fsync { PrivatePostgres::start_without_fsync()? } else { PrivatePostgres::start()? };
    let mut child = Command::new(&program)
        .args(words)
        .env(SHARED_URL, server.url())
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let status = loop {
        let passed_on = tokio::select! {
            status = child.wait() => break status?,
            _ = interrupt.recv() => "INT",
            _ = terminate.recv() => "TERM",
        };
        if let Some(pid) = child.id() {
            signal(passed_on, pid);
        }
    };
    // At once: nobody needs the data any more.
    drop(server);
    // As a shell does: 128 and the signal's number for a command that a signal ended.
    let code = status.code().or(status.signal().map(|number| 128 + number)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
