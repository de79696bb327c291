//! How fast is it, measured against what the machine can do?
//!
//! Every figure stands beside the raw limit from the same run on the same file system, in short rounds that take turns,
//! because machines are noisy and a bare number says little. A benchmark never fails for being slow: it shows the
//! figure beside its target.
//!
//! | question | file |
//! |---|---|
//! | How fast does the log take events, beside plain inserts? | `append.rs`, `append_sqlite.rs`, `append_postgres.rs` |
//! | How fast do events come to their handlers? | `flow.rs` |
//! | How long do other objects wait beside one with much to do? | `busy.rs` |
//! | How fast are jobs sent, claimed, run and settled? | `jobs.rs`, `jobs_postgres.rs` |
//! | What does a snapshot that somebody holds cost them? | `snapshot.rs` |
//! | What does it cost to publish in a transaction of one's own? | `outbox.rs` |
//! | What do those reach by which queues on Postgres are compared? | `peers.rs` |
//! | How fast is it found who wants an event? | `matching.rs`; over SQL, beside PGMB's way, `matching_sql.rs` |
//! | How fast are single-event POSTs, beside a handler that does nothing? | `http.rs`, its client in `client.rs` |
//! | Does reading stay as cheap when the log grows? | `read.rs`, its logs in `logs.rs` |
//! | What do many streams cost a server? | `streams.rs` |
//! | What do hostile conditions cost the others? | `hostile.rs` |
//! | How late are schedules that are all due at once? | `schedules.rs` |
//! | What can be said to more than one of them? | `args.rs` |
//! | Which events are measured with, and who publishes them? | `sample.rs`, `callers.rs` |
//! | How is a noisy machine measured? | `rounds.rs` |
//! | How is a server measured from outside? | `process.rs` |
//! | How is a Postgres database used, and left as it was? | `database.rs` |
//! | How are figures shown? | `report.rs` |

mod append;
mod append_postgres;
mod append_sqlite;
mod args;
mod busy;
mod callers;
mod client;
mod database;
mod flow;
mod hostile;
mod http;
mod jobs;
mod jobs_postgres;
mod logs;
mod matching;
mod matching_sql;
mod outbox;
mod peers;
mod process;
mod read;
mod report;
mod rounds;
mod sample;
mod schedules;
mod snapshot;
mod streams;

use crate::cli::Outcome;
use clap::Subcommand;

/// `ensue bench …`
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Appending, beside plain inserts of the same rows
    Append(append::AppendArgs),
    /// From publish to handlers, beside appending alone
    Flow(flow::FlowArgs),
    /// Events of fifty objects beside one that has a hundred thousand
    Busy(busy::BusyArgs),
    /// Jobs sent, claimed, run and settled, beside a bare queue
    Jobs(jobs::JobsArgs),
    /// Jobs on Postgres while somebody holds a snapshot open
    Snapshot(snapshot::SnapshotArgs),
    /// Publishing in transactions of one's own on Postgres, until it is handled
    Outbox(outbox::OutboxArgs),
    /// What queues and brokers on Postgres are commonly compared by
    Peers(peers::PeersArgs),
    /// Which of a million subscriptions want an event
    Match(matching::MatchArgs),
    /// POST /v1/events, beside a handler that does nothing
    Http(http::HttpArgs),
    /// Reading at the end of a long log, beside a short one
    Read(read::ReadArgs),
    /// Thousands of SSE clients on one server
    Streams(streams::StreamsArgs),
    /// Others' latency while hostile clients send costly conditions
    Hostile(hostile::HostileArgs),
    /// Ten thousand schedules that are due at once
    Schedules(schedules::SchedulesArgs),
    /// The handler that does nothing, in a process of its own
    #[command(hide = true)]
    Noop,
}

/// Carries out `ensue bench …`, in a task: who calls from the thread that the runtime was started on is woken on another core for each answer, which an application that
/// publishes from its tasks is not, and which costs plain inserts and Ensue unlike shares.
pub async fn run(command: BenchCommand) -> anyhow::Result<Outcome> {
    tokio::spawn(carry_out(command)).await?
}

async fn carry_out(command: BenchCommand) -> anyhow::Result<Outcome> {
    match command {
        BenchCommand::Append(args) => append::run(args).await?,
        BenchCommand::Flow(args) => flow::run(args).await?,
        BenchCommand::Busy(args) => busy::run(args).await?,
        BenchCommand::Jobs(args) => jobs::run(args).await?,
        BenchCommand::Snapshot(args) => snapshot::run(args).await?,
        BenchCommand::Outbox(args) => outbox::run(args).await?,
        BenchCommand::Peers(args) => peers::run(args).await?,
        BenchCommand::Match(args) => matching::run(args).await?,
        BenchCommand::Http(args) => http::run(args).await?,
        BenchCommand::Read(args) => read::run(args).await?,
        BenchCommand::Streams(args) => streams::run(args).await?,
        BenchCommand::Hostile(args) => hostile::run(args).await?,
        BenchCommand::Schedules(args) => schedules::run(args).await?,
        BenchCommand::Noop => http::serve_noop().await?,
    }
    Ok(Outcome::Done)
}
