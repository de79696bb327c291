//! Why is this not running, asked from the command line?

use super::Outcome;
use super::args::{EventRef, event_ref};
use super::job::job_id;
use super::output::{self, OutputArgs, as_json, list, shown};
use super::target::{Access, Target, TargetArgs};
use crate::http::explain::{ExplainedShape, not_yet};
use anyhow::bail;
use clap::Args;
use ensue::jobs::JobId;
use ensue::{Ensue, Error, Found, GroupName, ObjectKey};
use serde_json::Value;

/// `ensue explain`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue explain job:01a1e2e6-451a-783a-8000-000000000001
  ensue explain event:12                                     # for every handler
  ensue explain event:12 --handler order.paid.invoice
  ensue explain event:12 --group billing                     # a group that is read from outside
  ensue explain object:order:1                               # what of it stands still, and why
  ensue explain schedule:nightly                             # why it does not fire

Each reason says what to do about it. With --json: the answer of GET /v1/explain.")]
pub struct ExplainArgs {
    /// event:SEQ (or its id), job:ID, object:KEY or schedule:NAME
    #[arg(value_name = "WHAT", value_parser = what)]
    what: What,
    /// Of an event: for this handler
    #[arg(long, value_name = "KEY", conflicts_with = "group")]
    handler: Option<String>,
    /// Of an event: for this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Event(EventRef),
    Job(JobId),
    Object(ObjectKey),
    Schedule(GroupName),
}

/// For `clap`: what is asked about.
fn what(text: &str) -> Result<What, String> {
    match text.split_once(':') {
        Some(("event", event)) => event_ref(event).map(What::Event),
        Some(("job", id)) => job_id(id).map(What::Job),
        Some(("object", key)) => ObjectKey::parse_filter(key).map(What::Object).map_err(|invalid| invalid.reason),
        Some(("schedule", name)) => {
            GroupName::parse("schedule", name).map(What::Schedule).map_err(|invalid| invalid.reason)
        }
        Some(_) | None => Err("write event:12, job:ID, object:KEY or schedule:NAME".into()),
    }
}

impl What {
    fn pair(&self) -> (&'static str, String) {
        match self {
            Self::Event(event) => ("event", event.to_text()),
            Self::Job(id) => ("job", id.to_string()),
            Self::Object(object) => ("object", object.to_string()),
            Self::Schedule(name) => ("schedule", name.to_string()),
        }
    }
}

/// Carries out `ensue explain`.
pub async fn run(args: ExplainArgs) -> anyhow::Result<Outcome> {
    if !matches!(args.what, What::Event(_)) && (args.handler.is_some() || args.group.is_some()) {
        bail!("--handler and --group go with event:SEQ");
    }
    let target = args.target.open(Access::Read).await?;
    let answer = match &target {
        Target::Server(remote) => {
            let mut query = vec![args.what.pair()];
            query.extend(args.handler.map(|handler| ("handler", handler)));
            query.extend(args.group.map(|group| ("group", group)));
            remote.get_json(&["v1", "explain"], &query).await?
        }
        Target::Store(bus) => match &args.what {
            What::Job(id) => as_json(&ExplainedShape::from(&bus.explain_job(*id).await?))?,
            What::Schedule(name) => as_json(&ExplainedShape::from(&bus.explain_schedule(name).await?))?,
            What::Object(object) => as_json(&ExplainedShape::from(&bus.explain_object(object).await?))?,
            What::Event(event) => match target.event(*event).await? {
                Found::Pending(pending) => as_json(&ExplainedShape::from(&not_yet(&pending)))?,
                Found::Logged(event) => of_event(bus, event.seq, args.handler, args.group).await?,
            },
        },
    };
    target.close().await;
    match args.output.json {
        true => output::json(&answer)?,
        false => tell(&args.what, &answer)?,
    }
    Ok(Outcome::Done)
}

async fn of_event(bus: &Ensue, seq: u64, handler: Option<String>, group: Option<String>) -> anyhow::Result<Value> {
    let gone = || Error::NotFound(format!("event {seq} is gone from the log by retention"));
    let name = |field: &str, name: Option<String>| name.map(|name| GroupName::parse(field, &name)).transpose();
    let explanation = match (name("handler", handler)?, name("group", group)?) {
        (Some(handler), _) => {
            let explained = bus.explain_event(seq, Some(&handler)).await?;
            explained.and_then(|all| all.into_iter().next()).map(|one| one.explanation)
        }
        (None, Some(group)) => bus.explain_event_for_group(seq, &group).await?,
        (None, None) => {
            return as_json(&ExplainedShape::from(&bus.explain_event_in_all(seq).await?.ok_or_else(gone)?));
        }
    };
    as_json(&ExplainedShape::from(&explanation.ok_or_else(gone)?))
}

fn tell(what: &What, answer: &Value) -> anyhow::Result<()> {
    let (kind, name) = what.pair();
    output::line(format_args!("{kind} {name}: {}", shown(&answer["verdict"])))?;
    because(answer, "  ")?;
    for one in list(answer, "handlers") {
        output::line(format_args!("handler {}: {}", shown(&one["handler"]), shown(&one["verdict"])))?;
        because(one, "  ")?;
    }
    Ok(())
}

fn because(answer: &Value, indent: &str) -> anyhow::Result<()> {
    for reason in list(answer, "because") {
        output::line(format_args!("{indent}{:11}  {}", shown(&reason["kind"]), shown(&reason["detail"])))?;
        if let Some(fix) = reason["fix"].as_str() {
            output::line(format_args!("{indent}             → {fix}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_about_has_its_word_before_it() {
        assert_eq!(what("event:12"), Ok(What::Event(EventRef::Seq(12))));
        assert_eq!(what("object:order:1"), Ok(What::Object(ObjectKey::stored("order:1"))));
        for bad in ["", "12", "job:12", "schedule:", "order:1"] {
            assert!(what(bad).is_err(), "{bad}");
        }
    }
}
