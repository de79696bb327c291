//! Does work wait that nobody does, or that somebody holds?

use super::Checks;
use crate::cli::output;
use ensue::jobs::{JobCount, JobState, Server};
use ensue::rules::RuleSet;
use ensue::{Ensue, Timestamp};
use std::collections::BTreeMap;

/// How many handlers and rules are told of by name.
const NAMED_MAX: usize = 20;

/// Looks at the jobs: which wait for a handler that nobody runs, and which rules hold something.
pub(super) async fn look(bus: &Ensue, checks: &mut Checks) {
    let store = bus.store();
    let asked = tokio::try_join!(store.job_counts(), store.job_servers(), store.rules(), store.now());
    match asked {
        Ok((counts, servers, rules, now)) => tell(&counts, &servers, &rules, now, checks),
        Err(error) => checks.problem("jobs", error.to_string(), "check that the store can be read"),
    }
}

fn tell(counts: &[JobCount], servers: &[Server], rules: &RuleSet, now: Timestamp, checks: &mut Checks) {
    let of = |state: JobState| counts.iter().filter(|count| count.state == state).map(|count| count.count).sum::<u64>();
    let live = counts.iter().filter(|count| !count.state.is_final()).map(|count| count.count).sum();
    let found = match live {
        0 => "none waits or runs".to_owned(),
        live => {
            format!("{} not over, {} running", output::counted(live, "job"), output::grouped(of(JobState::Running)))
        }
    };
    checks.ok("jobs", found);
    let mut waiting: BTreeMap<&str, u64> = BTreeMap::new();
    for count in counts.iter().filter(|count| count.state == JobState::Available) {
        *waiting.entry(count.handler.as_str()).or_default() += count.count;
    }
    let mut unserved = Vec::new();
    for (handler, count) in waiting {
        let until = servers.iter().find(|server| server.handler.as_str() == handler).map(|server| server.until);
        match until {
            Some(until) if until > now => {}
            until => unserved.push((handler, count, until)),
        }
    }
    let more = unserved.len().saturating_sub(NAMED_MAX);
    for (handler, count, until) in unserved.into_iter().take(NAMED_MAX) {
        let since =
            until.map_or("nobody has registered it".to_owned(), |until| format!("nobody serves it since {until}"));
        let wait = if count == 1 { "waits" } else { "wait" };
        let found = format!("{} {wait} for the handler `{handler}`: {since}", output::counted(count, "job"));
        let fix = format!(
            "start what runs `{handler}`, or claim its jobs; a mistyped key: ensue job cancel --handler {handler}"
        );
        checks.note("jobs", found, fix);
    }
    if more > 0 {
        checks.note("jobs", format!("and {more} more such handlers"), "ensue job list --state available");
    }
    let rules: Vec<_> = rules.rules().into_iter().filter(|rule| rule.is_live(now)).collect();
    for rule in rules.iter().take(NAMED_MAX) {
        let fix = rule.reason().fix.unwrap_or_default();
        checks.note("rules", format!("{}, since {}", rule.in_words(), rule.created_at), fix);
    }
    if rules.len() > NAMED_MAX {
        checks.note("rules", format!("and {} more", rules.len() - NAMED_MAX), "ensue rule list");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue::{Emit, GroupName};
    use std::time::Duration;

    #[tokio::test]
    async fn a_handler_that_nobody_serves_is_named_and_one_that_is_asked_for_is_not() {
        let bus = Ensue::memory().await.unwrap();
        bus.emit_all(vec![Emit::to("mial.send"), Emit::to("mial.send"), Emit::to("mail.send")]).await.unwrap();
        let asked = vec![GroupName::stored("mail.send")];
        bus.claim_jobs(asked, 1, Duration::from_secs(60), Duration::ZERO, "w").await.unwrap();
        bus.emit(Emit::to("mail.send")).await.unwrap();
        let mut checks = Checks::default();
        look(&bus, &mut checks).await;
        let found: Vec<String> = checks.checks.into_iter().map(|check| check.found).collect();
        assert_eq!(
            found,
            ["4 jobs not over, 1 running", "2 jobs wait for the handler `mial.send`: nobody has registered it"]
        );
    }
}
