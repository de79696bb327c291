//! How is work done without a server?

use super::Outcome;
use super::output::{self, OutputArgs};
use super::settings::SettingsArgs;
use crate::config::handlers_on_store;
use crate::config::units::Span;
use crate::executors::Tally;
use crate::serve::{Signals, declare, open};
use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How long the store may take to close.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// `ensue work`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue work --drain                                         # handle what there is, then end
  ensue work --drain --ttl 55s                               # as a job of cron, every minute
  ensue work --max-events 1000 --ttl 300s                    # the same, and no more than this
  ensue work --ttl 300s                                      # for five minutes, whatever comes
  ensue work                                                 # until SIGTERM; on Postgres in many

Runs the handlers of the config file (./ensue.yaml if it is there) on its store as `ensue serve`
does, but answers no requests. Its schedules are declared and fired, too: with --drain those that
are due by then. What waits for a later attempt is not waited for. On Postgres several share the
work: each does what is its own, and what a process had that was killed. On SQLite one
process has the file: while a server or another `ensue work` runs, this is told which, and fails.
Exit code 0: it ended as it was told to; handlers that failed are tried again, or held.")]
pub struct WorkArgs {
    /// End after this many attempts, or when there is nothing to do now
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_events: Option<u64>,
    /// End after this long
    #[arg(long, value_name = "SPAN")]
    ttl: Option<Span>,
    /// End when there is nothing to do now
    #[arg(long)]
    drain: bool,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Why it ended.
#[derive(Debug, Clone, Copy)]
enum Ended {
    Drained,
    Enough,
    TimeIsUp,
    Told,
}

impl Ended {
    fn as_str(self) -> &'static str {
        match self {
            Self::Drained => "nothing is left to do now",
            Self::Enough => "as many as were asked for",
            Self::TimeIsUp => "its time is up",
            Self::Told => "told to stop",
        }
    }
}

/// Carries out `ensue work`.
pub async fn run(args: WorkArgs) -> anyhow::Result<Outcome> {
    let settings = args.settings.resolve()?;
    if settings.handlers.is_empty() && settings.collections.is_empty() && settings.schedules.is_empty() {
        bail!(
            "there is no handler to run and no schedule to fire: write one into the config file (`ensue config check --help` \
             shows how)"
        );
    }
    let mut signals = Signals::install()?;
    let bus = open(&settings).await?;
    let tally = Arc::new(args.max_events.map_or_else(Tally::default, Tally::at_most));
    let executors = settings.executors().with_tally(tally.clone());
    executors.bind(&bus, &settings.handlers)?;
    handlers_on_store::check(&bus, &settings.handlers).await?;
    bus.set_collections(executors.collections(&settings.collections, bus.collections())?).await?;
    bus.set_workers(settings.workers);
    let running = bus.start().await?;
    declare(&bus, &settings.schedules).await?;
    let drained = async {
        match args.drain || args.max_events.is_some() {
            true => bus.drain().await,
            false => std::future::pending().await,
        }
    };
    let time_is_up = async {
        match args.ttl.and_then(|ttl| Duration::try_from(ttl.0).ok()) {
            Some(ttl) => tokio::time::sleep(ttl).await,
            None => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        drained = drained => drained.map(|()| Ended::Drained)?,
        () = tally.enough() => Ended::Enough,
        () = time_is_up => Ended::TimeIsUp,
        () = signals.next() => Ended::Told,
    };
    tokio::select! {
        () = signals.next() => bail!("told to stop twice: stopped at once, without waiting for what was under way"),
        stopped = running.shutdown(settings.drain_max) => {
            stopped.context("what is done could not be written down: it is done again")?;
        }
    }
    if tokio::time::timeout(CLOSE_MAX, bus.close()).await.is_err() {
        bail!("the store did not close within {} s; what was done is on disk", CLOSE_MAX.as_secs());
    }
    let counts = tally.counts();
    if args.output.json {
        output::json(&json!({ "done": counts.done, "failed": counts.failed, "ended": ended.as_str() }))?;
    } else {
        let (done, failed) = (output::grouped(counts.done), output::grouped(counts.failed));
        output::line(format_args!("{done} done, {failed} failed: {}", ended.as_str()))?;
    }
    Ok(Outcome::Done)
}
