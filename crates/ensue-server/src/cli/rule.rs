//! How is something paused, blocked and let go on from the command line?

use super::Outcome;
use super::args::time;
use super::output::{self, OutputArgs, as_json};
use super::target::{Access, Target, TargetArgs};
use crate::config::units::Span;
use crate::http::rules::{LiftedShape, RuleSetShape, RulesShape};
use anyhow::Context;
use clap::{Args, Subcommand};
use ensue::rules::{NewRule, RuleKind, Scope, scope_or_handler};
use ensue::{Ensue, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};

/// Who sets a rule on a store that is opened here.
const AUTHOR: &str = "local";

/// `ensue rule …`
#[derive(Debug, Subcommand)]
pub enum RuleCommand {
    /// List what is paused and blocked
    List(ListArgs),
}

/// `ensue rule list`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue rule list
  ensue rule list --json | jq -r '.rules[] | select(.kind == \"block\") | .scope'
  ensue tail --topic ensue.rule --from-beginning             # what was set and lifted before

With --json: the answer of GET /v1/rules.")]
pub struct ListArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue pause` and `ensue block`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue pause mail --reason 'the relay is down'              # the handlers mail, mail.send, …
  ensue pause mail.send --for 10m                            # lifts itself
  ensue block object:order:1 --until 2026-11-15T12:00:00Z
  ensue resume mail                                          # what waited goes on
  ensue unblock object:order:1

Returns when nothing more will start, in any process. Running attempts continue to their end. A
pause and a block differ only in who sets them; both may exist, and each is lifted separately. If
nothing has this key yet, a note on stderr says so. With --json: the rule.")]
pub struct SetArgs {
    /// handler:KEY (and all below it), object:KEY or schedule:NAME; a key alone is a handler's
    #[arg(value_name = "SCOPE", value_parser = scope)]
    scope: Scope,
    /// Why, for whoever looks at what stands still
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Lifts itself after so long, such as 10m
    #[arg(long = "for", value_name = "SPAN", value_parser = lasts, conflicts_with = "until")]
    lasts: Option<Span>,
    /// Lifts itself at this time: 2026-11-15T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue resume` and `ensue unblock`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue resume mail                                          # lifts `ensue pause mail`
  ensue unblock object:order:1                               # lifts `ensue block object:order:1`

Everything that waited for the rule goes on. A rule on a parent (mail for mail.send) is lifted where
it was set; `ensue rule list` shows those there are. If the rule does not exist, nothing changes: a
repeat succeeds. With --json: the answer of DELETE /v1/rules/{kind}/{scope}.")]
pub struct LiftArgs {
    /// handler:KEY, object:KEY or schedule:NAME; a key alone is a handler's
    #[arg(value_name = "SCOPE", value_parser = scope)]
    scope: Scope,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// For `clap`: a scope, or a handler's key alone.
fn scope(text: &str) -> Result<Scope, String> {
    scope_or_handler(text).map_err(|invalid| invalid.reason)
}

/// For `clap`: how long a rule holds.
fn lasts(text: &str) -> Result<Span, String> {
    let number = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    if !number.is_empty() && number.bytes().all(|digit| digit == b'0') {
        return Err(format!("`{text}` is over at once: write more than 0, or leave it out for a rule that stays"));
    }
    text.parse()
}

/// Carries out `ensue rule …`.
pub async fn run(command: RuleCommand) -> anyhow::Result<Outcome> {
    let RuleCommand::List(args) = command;
    let all = async |target: &Target| match target {
        Target::Server(remote) => remote.get_json(&["v1", "rules"], &[]).await,
        Target::Store(bus) => as_json(&RulesShape::at(&bus.rules().await?, bus.store().now().await?)),
    };
    let answer = args.target.ask(Access::Read, all).await?;
    let fields = ["kind", "scope", "reason", "author", "created_at", "expires_at"];
    output::listed(&answer, "rules", fields, "nothing is paused or blocked", args.output)
}

/// Carries out `ensue pause` and `ensue block`.
pub async fn set(args: SetArgs, kind: RuleKind) -> anyhow::Result<Outcome> {
    let set = async |target: &Target| match target {
        Target::Server(remote) => {
            let body = json!({
                "reason": args.reason,
                "expires_at": args.until,
                "expires_in": args.lasts.map(|span| span.to_string()),
            });
            remote.ask_json(Method::PUT, &["v1", "rules", kind.as_str(), &args.scope.to_string()], &body).await
        }
        Target::Store(bus) => {
            let expires_at = expiry(bus, args.lasts, args.until).await?;
            let (scope, reason) = (args.scope.clone(), args.reason);
            let rule = NewRule { kind, scope, reason, author: AUTHOR.into(), expires_at };
            as_json(&RuleSetShape::of(bus, &bus.set_rule(rule).await?.0).await)
        }
    };
    let rule = args.target.ask(Access::Write, set).await?;
    if let Some(warning) = rule["warning"].as_str() {
        output::note(format_args!("note: {warning}"));
    }
    output::answer(&rule, args.output, || {
        let until = rule["expires_at"].as_str().map(|at| format!(" until {at}")).unwrap_or_default();
        let verb = match kind {
            RuleKind::Pause => "paused",
            RuleKind::Block => "blocked",
        };
        format!("{verb}: nothing of {} starts any more{until}", args.scope)
    })
}

/// By the store's clock.
async fn expiry(bus: &Ensue, lasts: Option<Span>, until: Option<Timestamp>) -> anyhow::Result<Option<Timestamp>> {
    match lasts {
        Some(span) => {
            let now = bus.store().now().await?;
            Ok(Some(now.checked_add(span.0).context("--for is too long; leave it out for a rule that stays")?))
        }
        None => Ok(until),
    }
}

/// Carries out `ensue resume` and `ensue unblock`.
pub async fn lift(args: LiftArgs, kind: RuleKind) -> anyhow::Result<Outcome> {
    let lift = async |target: &Target| match target {
        Target::Server(remote) => {
            let path = ["v1", "rules", kind.as_str(), &args.scope.to_string()];
            remote.ask_json(Method::DELETE, &path, &Value::Null).await
        }
        Target::Store(bus) => as_json(&LiftedShape::from(bus.lift_rule(kind, &args.scope, AUTHOR).await?.as_ref())),
    };
    let answer = args.target.ask(Access::Write, lift).await?;
    output::answer(&answer, args.output, || {
        let (verb, held) = match kind {
            RuleKind::Pause => ("resumed", "paused"),
            RuleKind::Block => ("unblocked", "blocked"),
        };
        if answer["lifted"] == false {
            return format!("nothing to lift: {} is not {held} (`ensue rule list` shows what is)", args.scope);
        }
        format!("{verb}: {} goes on, unless another rule holds it", args.scope)
    })
}
