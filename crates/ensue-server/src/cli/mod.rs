//! What can one ask of `ensue` on the command line?
//!
//! One file per command. A command talks to a running server (`--url`) or opens a store itself (`--store`) through
//! the same `target::Target`, and prints for people or, with `--json`, for programs.
//!
//! | question | file |
//! |---|---|
//! | How is a server started, and what may be said to it before? | `serve.rs`, `settings.rs` |
//! | What would a server do here, and would it start? | `config.rs` |
//! | How does an event get into the log? | `publish.rs` |
//! | What happened, and what happens now? | `tail.rs`, its stream in `sse.rs` |
//! | Which events are there, and which wait? | `list.rs` |
//! | What is known about one event, and what happened to one object? | `event.rs`, `object.rs` |
//! | Which groups are there, and what do they read? | `group.rs`, `group_read.rs`, `group_ask.rs` |
//! | Which handlers are there, and what became of an event for each? | `handler.rs` |
//! | How is a handler shown, defined and deleted? | `handler_define.rs` |
//! | What stands still, and how is it brought back? | `held.rs` |
//! | How is a job sent, and which are there? | `emit.rs`, `job.rs`, `job_ask.rs` |
//! | How is a collection brought up to date, and what became of its tasks? | `task.rs`, `task_ask.rs` |
//! | Which collection is a job for that is sent straight to a store? | `collections.rs` |
//! | How is a schedule made, looked at and fired? | `schedule.rs` |
//! | How is something paused, blocked and let go on? | `rule.rs` |
//! | Why is this not running? | `explain.rs` |
//! | How is work done without a server? | `work.rs` |
//! | Which variables are meant for us and read by nobody? | `variables.rs` |
//! | Is the whole log as it was promised? | `verify.rs` |
//! | What is wrong with this installation? | `doctor/` |
//! | How is a store made, or brought up to date? | `migrate.rs` |
//! | Does a command talk to a server or to a store? | `target.rs` |
//! | Which server, and how is it talked to? | `server.rs`, `remote.rs`, its JSON in `wire.rs` |
//! | Which events is a command about? | `condition.rs` |
//! | How does a list that comes in pages become one? | `pages.rs` |
//! | How does an argument become a value, and how is an answer shown? | `args.rs`, `output.rs` |
//! | How is the log written? | `logging.rs` |
//! | Which exit code does an error have? | `failure.rs` |

mod args;
mod collections;
mod condition;
mod config;
mod doctor;
mod emit;
mod event;
mod explain;
mod failure;
mod group;
mod group_ask;
mod group_read;
mod handler;
mod handler_define;
mod held;
mod job;
mod job_ask;
mod list;
mod logging;
mod migrate;
mod object;
pub mod output;
mod pages;
mod publish;
mod remote;
mod rule;
mod schedule;
mod serve;
mod server;
mod settings;
mod sse;
mod tail;
mod target;
mod task;
mod task_ask;
mod variables;
mod verify;
mod wire;
mod work;

use crate::bench;
use clap::{CommandFactory, Parser, Subcommand};
use ensue::rules::RuleKind;
use std::io;
use std::num::NonZero;
use std::process::ExitCode;
use tokio::runtime::{Builder, Runtime};

/// How a command ended when nothing kept it from doing its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Done,
    /// It looked, and what it found is not well: it has said so itself.
    ProblemsFound,
}

/// A durable, gapless, ordered log of events.
#[derive(Debug, Parser)]
#[command(
    name = "ensue",
    version,
    about = "Things that happen after other things, durably and in order.",
    after_help = "\
A first tour, in two terminals:
  ensue serve                                                # ./ensue.db, http://127.0.0.1:4747
  ensue publish order.paid --object order:1 --payload '{\"total\": 120}'
  ensue tail --from-beginning                                # what happened, then what happens
  ensue object show order:1                                  # the chain of one object

`ensue help COMMAND` shows examples of each; --json is for programs. The commands talk to the server
that `ensue serve` starts in this folder; --url names another, --store opens a store without one.
Exit codes: 0 done; 1 failed, or a problem was found; 2 the command line is invalid; 3 not found;
4 refused (invalid, in conflict, no valid token); 5 the server or store cannot be reached or cannot
do it now. With --json an error is one line on stderr: {\"error\": {\"title\", \"detail\", \"status\"}}.
ENSUE_LOG=info (or debug) says more on stderr."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    Serve(serve::ServeArgs),
    /// Publish an event: answered when it is on disk
    Publish(publish::PublishArgs),
    /// Follow the log, one event per line
    Tail(tail::TailArgs),
    /// List and look at events
    #[command(subcommand)]
    Event(event::EventCommand),
    /// Look at the events of one object; list and bring back what is held
    #[command(subcommand)]
    Object(object::ObjectCommand),
    /// Look after groups, the durable readers of the log
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// Look after handlers: list, show, define and delete them
    #[command(subcommand)]
    Handler(handler::HandlerCommand),
    /// Send a job to a handler: answered when it is on disk
    Emit(emit::EmitArgs),
    /// Look after jobs: work that is sent straight to a handler
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Look after tasks: collections of sources that are brought up to date
    #[command(subcommand)]
    Task(task::TaskCommand),
    /// Look after schedules: what happens at a time, again and again
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    /// List what is paused and blocked
    #[command(subcommand)]
    Rule(rule::RuleCommand),
    /// Pause a handler, an object or a schedule
    Pause(rule::SetArgs),
    /// Lift a pause
    Resume(rule::LiftArgs),
    /// Block a handler, an object or a schedule, as an operator
    Block(rule::SetArgs),
    /// Lift a block
    Unblock(rule::LiftArgs),
    /// Find out why an event, a job, an object or a schedule does not run
    Explain(explain::ExplainArgs),
    /// Run the handlers of the config file without a server, as long as is asked for
    Work(work::WorkArgs),
    /// Audit the whole log: gaps, forks, order
    Verify(verify::VerifyArgs),
    /// Find out what is wrong with an installation, and what to do about it
    Doctor(doctor::DoctorArgs),
    /// Make a store, bring it to this program's version, or print the SQL that does
    Migrate(migrate::MigrateArgs),
    /// Check and show the settings
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Measure, beside the raw limit of the same machine in the same run
    #[command(subcommand)]
    Bench(bench::BenchCommand),
}

impl Command {
    /// A server tells what it does; the other commands only what goes wrong.
    fn log_default(&self) -> &'static str {
        match self {
            Command::Serve(_) => "info",
            Command::Publish(_)
            | Command::Tail(_)
            | Command::Event(_)
            | Command::Object(_)
            | Command::Group(_)
            | Command::Handler(_)
            | Command::Emit(_)
            | Command::Job(_)
            | Command::Task(_)
            | Command::Schedule(_)
            | Command::Rule(_)
            | Command::Pause(_)
            | Command::Resume(_)
            | Command::Block(_)
            | Command::Unblock(_)
            | Command::Explain(_)
            | Command::Work(_)
            | Command::Verify(_)
            | Command::Doctor(_)
            | Command::Migrate(_)
            | Command::Config(_)
            | Command::Bench(_) => "warn",
        }
    }

    async fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Command::Serve(args) => serve::run(args).await,
            Command::Publish(args) => publish::run(args).await,
            Command::Tail(args) => tail::run(args).await,
            Command::Event(command) => event::run(command).await,
            Command::Object(command) => object::run(command).await,
            Command::Group(command) => group::run(command).await,
            Command::Handler(command) => handler::run(command).await,
            Command::Emit(args) => emit::run(args).await,
            Command::Job(command) => job::run(command).await,
            Command::Task(command) => task::run(command).await,
            Command::Schedule(command) => schedule::run(command).await,
            Command::Rule(command) => rule::run(command).await,
            Command::Pause(args) => rule::set(args, RuleKind::Pause).await,
            Command::Resume(args) => rule::lift(args, RuleKind::Pause).await,
            Command::Block(args) => rule::set(args, RuleKind::Block).await,
            Command::Unblock(args) => rule::lift(args, RuleKind::Block).await,
            Command::Explain(args) => explain::run(args).await,
            Command::Work(args) => work::run(args).await,
            Command::Verify(args) => verify::run(args).await,
            Command::Doctor(args) => doctor::run(args).await,
            Command::Migrate(args) => migrate::run(args).await,
            Command::Config(command) => config::run(command).await,
            Command::Bench(command) => bench::run(command).await,
        }
    }
}

/// With one thread more than there are processors, unless `TOKIO_WORKER_THREADS` says how many: with as many busy in handlers as
/// there are processors, one is left to hear what the database and the network say.
fn make_runtime() -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        builder.worker_threads(std::thread::available_parallelism().map_or(1, NonZero::get) + 1);
    }
    builder.enable_all().build()
}

/// Parses the command line, runs the command, and returns the exit code: 0 only on success.
pub fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return failure::report_usage(&error),
    };
    variables::hide();
    for warning in variables::warnings(&Cli::command(), std::env::vars_os()) {
        output::note(format_args!("warning: {warning}"));
    }
    logging::start(command.log_default());
    // The TLS library takes its cryptography once per process, before anything speaks TLS.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        tracing::debug!("a TLS provider was installed before");
    }
    let runtime = match make_runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::note(format_args!("error: cannot start the runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(command.run()) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::ProblemsFound) => ExitCode::FAILURE,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}

/// Whoever read our output has seen enough, as in `ensue tail | head`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_teaches_by_example() {
        fn walk(command: &clap::Command, path: &str) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(command.has_subcommands() || help.contains("ensue "), "`{path}` has no example in its help");
            for line in help.lines() {
                // Longer ones are broken where nobody wants it.
                assert!(line.chars().count() <= 100, "a line in the help of `{path}` is too long: {line}");
            }
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
                walk(sub, &format!("{path} {}", sub.get_name()));
            }
        }
        walk(&Cli::command(), "ensue");
    }
}
