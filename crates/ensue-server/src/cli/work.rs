//! How is work done without a server?

use super::Outcome;
use super::output::{self, OutputArgs};
use super::settings::SettingsArgs;
use crate::config::units::Span;
use crate::config::{Settings, handlers_on_store};
use crate::executors::Tally;
use crate::scaler::Scaler;
use crate::serve::{Signals, declare, open};
use anyhow::{Context, bail};
use clap::Args;
use ensue::GroupName;
use ensue::key::is_under;
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
  ensue work --handlers mail,order.paid.index                # only these, and all below them
  ensue work --scale 64                                      # up to 64 workers while there is much

Runs the handlers of the config file (./ensue.yaml if it is there) on its store as `ensue serve`
does, but answers no requests. Its schedules are declared and fired, too: with --drain those that
are due by then. What waits for a later attempt is not waited for. On Postgres several share the
work: each does what is its own, and what a process had that was killed. On SQLite one
process has the file: while a server or another `ensue work` runs, this is told which, and fails.
With --handlers it runs the handlers with these keys, and those below them; the tasks of a
collection are task.SOURCE.COLLECTION. Other handlers are left to other workers.
With --scale it begins with --workers (16), doubles them while more work waits than there are
workers, up to MAX, and halves them after five seconds without any; the concurrency of each
handler grows and shrinks with them.
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
    /// Run only the handlers with these keys and those below them
    #[arg(long, value_name = "KEY,…", value_delimiter = ',', value_parser = key)]
    handlers: Option<Vec<GroupName>>,
    /// Up to so many workers while there is much to do
    #[arg(long, value_name = "MAX", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    scale: Option<u32>,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// For `clap`: the key of a handler, or of a parent of several.
fn key(text: &str) -> Result<GroupName, String> {
    GroupName::parse("handlers", text).map_err(|invalid| format!("it {}", invalid.reason))
}

/// Leaves only the handlers and collections that are below one of these keys.
fn choose(settings: &mut Settings, keys: &[GroupName]) -> anyhow::Result<()> {
    let is_chosen = |handler: &GroupName| keys.iter().any(|key| is_under(key.as_str(), handler.as_str()));
    let collected = settings.collections.iter().map(|one| one.collection.handler());
    let all: Vec<GroupName> = settings.handlers.iter().map(|handler| handler.key.clone()).chain(collected).collect();
    if let Some(key) = keys.iter().find(|key| !all.iter().any(|handler| is_under(key.as_str(), handler.as_str()))) {
        let known: Vec<&str> = all.iter().map(GroupName::as_str).collect();
        bail!("--handlers names `{key}`, which no handler of the config file has; it has: {}", known.join(", "));
    }
    settings.handlers.retain(|handler| is_chosen(&handler.key));
    settings.collections.retain(|one| is_chosen(&one.collection.handler()));
    Ok(())
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
    let mut settings = args.settings.resolve()?;
    if let Some(keys) = &args.handlers {
        choose(&mut settings, keys)?;
    }
    let scaler = args.scale.map(|max| Scaler::new(&settings, max as usize)).transpose()?;
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
    bus.set_read_ahead(settings.read_ahead)?;
    let running = bus.start().await?;
    declare(&bus, &settings.schedules).await?;
    let scaling = async {
        match scaler {
            Some(scaler) => scaler.run(&bus).await,
            None => std::future::pending().await,
        }
    };
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
        never = scaling => match never {},
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
