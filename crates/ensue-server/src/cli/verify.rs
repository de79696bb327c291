//! Is the whole log as it was promised?
//!
//! Reads every event that was there at the start, page by page, and hands it to the core's audit. Memory holds a page
//! and the newest place of each object.

use super::Outcome;
use super::output::{self, OutputArgs};
use super::target::{Access, Target, TargetArgs};
use clap::Args;
use ensue::chain::{Audit, Fault};
use ensue::{Bounds, Direct, Seq, Wanted};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::time::Duration;

/// How many events are read at once.
const PAGE_EVENTS: usize = 1_000;
/// How many faults are listed; the others are counted.
const FAULTS_LISTED_MAX: usize = 100;

/// `ensue verify`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue verify                                               # the log of the running server
  ensue verify --store sqlite:ensue.db                       # also while a server writes to it
  ensue verify --json

Checks that seq has no gap and no double, that prev is the preceding event of the same object, and
that recorded_at never goes back. Exit code 0: all of it holds; 1: the faults are listed.")]
pub struct VerifyArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What the audit found.
#[derive(Debug, Default)]
struct Report {
    first: Option<Seq>,
    last: Option<Seq>,
    events: u64,
    objects: usize,
    faults: Vec<Fault>,
    faults_beyond: usize,
}

impl Report {
    /// Keeps the first faults and counts the others, so that a badly damaged log does not fill the memory.
    fn settle(&mut self, faults: &mut Vec<Fault>) {
        for fault in faults.drain(..) {
            if self.faults.len() < FAULTS_LISTED_MAX {
                self.faults.push(fault);
            } else {
                self.faults_beyond += 1;
            }
        }
    }
}

/// Audits the log and gives the verdict.
pub async fn run(args: VerifyArgs) -> anyhow::Result<Outcome> {
    let target = args.target.open(Access::Read).await?;
    let report = audit(&target).await?;
    target.close().await;
    let sound = report.faults.is_empty();
    if args.output.json {
        output::json(&json!({
            "ok": sound,
            "first": report.first,
            "last": report.last,
            "events": report.events,
            "objects": report.objects,
            "faults": report.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "faults_not_listed": report.faults_beyond,
        }))?;
    } else {
        for fault in &report.faults {
            output::line(fault)?;
        }
        if report.faults_beyond > 0 {
            output::line(format_args!("… and {} more", report.faults_beyond))?;
        }
        output::line(verdict(&report))?;
    }
    Ok(if sound { Outcome::Done } else { Outcome::ProblemsFound })
}

fn verdict(report: &Report) -> String {
    let (events, objects) = (output::events(report.events), output::counted(report.objects as u64, "object"));
    let faults = report.faults.len() + report.faults_beyond;
    let listed = output::counted(faults as u64, "fault");
    match (report.first, report.last) {
        (Some(first), Some(last)) if faults == 0 => {
            format!("sound: {events} (seq {first} to {last}), {objects}; no gap, no fork, in order")
        }
        (Some(_), Some(_)) => format!(
            "NOT SOUND: {listed} in {events}; stop the writers, keep a copy of the store, \
             and restore what is missing from a backup"
        ),
        (None, _) | (_, None) if faults == 0 => "sound: the log is empty".into(),
        (None, _) | (_, None) => format!("NOT SOUND: {listed}, and no event could be read"),
    }
}

/// The ends of the log as the store tells them. A server tells the beginning with its first page.
async fn bounds(target: &Target) -> anyhow::Result<Option<Bounds>> {
    match target {
        Target::Server(_) => Ok(None),
        Target::Store(bus) => Ok(Some(bus.store().bounds().await?)),
    }
}

async fn audit(target: &Target) -> anyhow::Result<Report> {
    let bounds_at_start = bounds(target).await?;
    let bar = progress(bounds_at_start);
    let mut report = Report::default();
    let mut faults = Vec::new();
    let mut audit: Option<Audit> = bounds_at_start.map(|bounds| Audit::from(bounds.first));
    let mut after = bounds_at_start.map_or(0, |bounds| bounds.first - 1);
    let until = bounds_at_start.map_or(Seq::MAX, |bounds| bounds.last);
    let wanted = Wanted { direct: Direct::Include, ..Wanted::default() };
    while after < until {
        let page = target.read(after, PAGE_EVENTS, &wanted).await?.page;
        if page.next == after {
            break;
        }
        if page.first > after + 1 {
            // What was forgotten while we read is no fault; the chain begins anew behind it.
            report.objects += audit.as_ref().map_or(0, Audit::objects);
            audit = Some(Audit::from(page.first));
        }
        for event in page.events.iter().take_while(|event| event.seq <= until) {
            report.first.get_or_insert(event.seq);
            report.last = Some(event.seq);
            report.events += 1;
            audit.get_or_insert_with(|| Audit::from(page.first)).see(event, &mut faults);
        }
        report.settle(&mut faults);
        bar.inc(page.next - after);
        after = page.next;
    }
    bar.finish_and_clear();
    if let Some(audit) = &audit {
        report.objects += audit.objects();
        if let Some(bounds) = bounds_at_start {
            audit.end(bounds.last, &mut faults);
            report.settle(&mut faults);
        }
    }
    Ok(report)
}

/// Drawn on stderr, and only if that is a terminal.
fn progress(bounds: Option<Bounds>) -> ProgressBar {
    let template = "{wide_bar} {human_pos}/{human_len} events, {per_sec}, {eta} left";
    match bounds {
        Some(bounds) => ProgressBar::new(bounds.count())
            .with_style(ProgressStyle::with_template(template).expect("a constant template")),
        None => {
            let spinner = ProgressBar::new_spinner().with_style(
                ProgressStyle::with_template("{spinner} {human_pos} events, {per_sec}").expect("a constant template"),
            );
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        }
    }
}
