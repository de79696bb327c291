//! The log on stderr.
//!
//! Messages and fields contain data of events, handlers and clients. They are written through
//! [`escape`](ensue::text::escape), so one record is one line and no data reaches the terminal as an escape sequence.

use super::output;
use ensue::text::escape;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::io::{self, IsTerminal};
use std::panic::PanicHookInfo;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// The variable that selects what is logged, such as `info` or `ensue=debug`.
pub const LOG_VARIABLE: &str = "ENSUE_LOG";

/// Starts the log of this process; `default` applies if the variable is not set.
pub fn start(default: &str) {
    std::panic::set_hook(Box::new(report_panic));
    tracing_subscriber::fmt()
        .with_env_filter(filter(default))
        .with_ansi(io::stderr().is_terminal())
        .fmt_fields(debug_fn(write_field).delimited(" "))
        .with_writer(io::stderr)
        .init();
}

/// Invalid values of the variable are reported and ignored.
fn filter(default: &str) -> EnvFilter {
    match std::env::var(LOG_VARIABLE).as_deref().map(EnvFilter::try_new) {
        Ok(Ok(filter)) => filter,
        Ok(Err(error)) => {
            output::note(format_args!(
                "{LOG_VARIABLE} is not understood ({error}): write info, debug or ensue=debug, for example"
            ));
            EnvFilter::new(default)
        }
        Err(_) => EnvFilter::new(default),
    }
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    match field.name() {
        "message" => write!(writer, "{}", escape(&text)),
        name => write!(writer, "{name}={}", escape(&text)),
    }
}

/// Replaces the default hook, which prints messages as they are.
fn report_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    output::note(format_args!("thread '{}' {panic}", thread.name().unwrap_or("<unnamed>")));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        backtrace.to_string().lines().for_each(output::note);
    }
}
