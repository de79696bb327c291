//! Does work wait that nobody does, or that somebody holds?

use super::Checks;
use crate::cli::output;
use ensue::explain::claim_jobs_of;
use ensue::jobs::{JobCount, JobState, Server};
use ensue::positions::GroupKind;
use ensue::rules::RuleSet;
use ensue::{Ensue, GroupName, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// How many handlers and rules are told of by name.
const NAMED_MAX: usize = 20;

/// Looks at the jobs: which wait for a handler that nobody runs, and which rules hold something.
pub(super) async fn look(bus: &Ensue, checks: &mut Checks) {
    let store = bus.store();
    let asked = tokio::try_join!(store.job_counts(), store.job_servers(), store.rules(), store.now());
    match asked {
        Ok((counts, servers, rules, now)) => {
            let mut pulls = BTreeSet::new();
            for handler in counts.iter().map(|count| &count.handler) {
                // Only of a handler whose deliveries workers claim are there both a group and jobs.
                let group = store.group(handler).await;
                if group.is_ok_and(|group| group.is_some_and(|group| group.kind == GroupKind::Handler)) {
                    pulls.insert(handler.to_string());
                }
            }
            tell(&counts, (&servers, &pulls), &rules, now, checks);
        }
        Err(error) => checks.problem("jobs", error.to_string(), "check that the store can be read"),
    }
}

fn tell(
    counts: &[JobCount],
    (servers, pulls): (&[Server], &BTreeSet<String>),
    rules: &RuleSet,
    now: Timestamp,
    checks: &mut Checks,
) {
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
        let is_pull = pulls.contains(handler);
        let since = match until {
            Some(until) => format!("nobody serves it since {until}"),
            None if is_pull => "no worker has asked for them yet".to_owned(),
            None => "nobody has registered it".to_owned(),
        };
        let wait = if count == 1 { "waits" } else { "wait" };
        let found = format!("{} {wait} for the handler `{handler}`: {since}", output::counted(count, "job"));
        let fix = match is_pull {
            true => claim_jobs_of(&GroupName::stored(handler)),
            false => format!(
                "start what runs `{handler}`, or claim its jobs; a mistyped key: ensue job cancel --handler {handler}"
            ),
        };
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
    use ensue::{Emit, NewEvent};
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

    #[tokio::test]
    async fn a_pull_handler_is_registered_before_any_worker_asks() {
        let bus = Ensue::memory().await.unwrap();
        bus.on("order").named("remote").pull().unwrap();
        let running = bus.start().await.unwrap();
        bus.publish(NewEvent::new("order")).await.unwrap();
        bus.drain().await.unwrap();
        let mut checks = Checks::default();
        look(&bus, &mut checks).await;
        let waits = &checks.checks[1];
        assert_eq!(waits.found, "1 job waits for the handler `order.remote`: no worker has asked for them yet");
        let fix = waits.fix.as_deref().unwrap();
        assert!(fix.contains("/v1/jobs/claim") && !fix.contains("cancel"), "{fix}");
        running.shutdown(Duration::from_secs(60)).await.unwrap();
    }
}
