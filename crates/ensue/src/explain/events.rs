//! Why was an event handled, or not?

use crate::Ensue;
use crate::delivery::is_wanted;
use crate::error::Error;
use crate::jobs::Around;
use ensue_core::explain::{
    DeliveryFacts, Explanation, ReadingFacts, Reason, ReasonKind, explain_delivery, explain_job, explain_reading,
};
use ensue_core::jobs::{Job, JobState};
use ensue_core::positions::GroupKind;
use ensue_core::{GroupName, ObjectKey, Seq};
use std::sync::Arc;

/// How many subscriptions of a group are looked at.
const SUBSCRIPTIONS_MAX: usize = 1_000;

/// Why an event was or was not handled, for one handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedDelivery {
    /// The handler's key.
    pub handler: GroupName,
    /// Why.
    pub explanation: Explanation,
}

/// Why an event was or was not handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedEvent {
    /// In all: `held` where a handler waits for somebody, `open` while one has it to do, `dead` where one gave it up, `done`, `passed` if it
    /// is not known of one whether it wanted it then, or `not_matched` if none wants it.
    pub explanation: Explanation,
    /// For each handler.
    pub handlers: Vec<ExplainedDelivery>,
}

impl Ensue {
    /// Why an event was or was not handled: by one handler, or by each; none if there is no such event in the log.
    pub async fn explain_event(
        &self,
        seq: Seq,
        handler: Option<&GroupName>,
    ) -> Result<Option<Vec<ExplainedDelivery>>, Error> {
        let Some(event) = self.event(seq).await? else { return Ok(None) };
        let Some(reports) = self.deliveries(seq).await? else { return Ok(None) };
        let (now, rules) = (self.store().now().await?, self.store().rules().await?);
        let mut explained = Vec::new();
        for report in reports.iter().filter(|report| handler.is_none_or(|key| report.handler == *key)) {
            let about = self.handler_report(&report.handler).await?;
            let wants = match &about {
                Some(about) => in_words(about.on.as_ref().map(|topic| topic.as_str()), about.condition.as_deref()),
                None => "what it wants".to_owned(),
            };
            if let Some(job) = report.job.as_deref().filter(|job| job.state != JobState::Succeeded) {
                let explanation = self.continued(job, &wants).await?;
                explained.push(ExplainedDelivery { handler: report.handler.clone(), explanation });
                continue;
            }
            let facts = DeliveryFacts {
                handler: report.handler.as_str(),
                seq: event.seq,
                verdict: &report.verdict,
                wants: &wants,
                note: report.note.as_deref(),
                rules: &rules.all_holding(&report.handler, event.object.as_ref(), now),
                is_served: about.is_some_and(|about| about.is_served),
                object: event.object.as_ref().map(ObjectKey::as_str),
            };
            let explanation = explain_delivery(&facts);
            explained.push(ExplainedDelivery { handler: report.handler.clone(), explanation });
        }
        match handler {
            Some(handler) if explained.is_empty() => {
                Err(Error::NotFound(format!("there is no handler `{handler}`; see the list of handlers")))
            }
            Some(_) | None => Ok(Some(explained)),
        }
    }

    /// Why an event was or was not handled, in all and by each handler; none if there is no such event in the log.
    pub async fn explain_event_in_all(&self, seq: Seq) -> Result<Option<ExplainedEvent>, Error> {
        let Some(handlers) = self.explain_event(seq, None).await? else { return Ok(None) };
        Ok(Some(ExplainedEvent { explanation: in_all(&handlers), handlers }))
    }

    /// Why a group that is read from outside has or has not got an event, or, for a group of a handler, why that handled it or
    /// not; none if there is no such event in the log.
    pub async fn explain_event_for_group(&self, seq: Seq, group: &GroupName) -> Result<Option<Explanation>, Error> {
        let store = self.store();
        let Some(state) = store.group(group).await? else {
            return Err(Error::NotFound(format!("there is no group `{group}`; see the list of groups")));
        };
        match state.kind {
            GroupKind::Handler => {
                let explained = self.explain_event(seq, Some(group)).await?;
                Ok(explained.and_then(|all| all.into_iter().next()).map(|one| one.explanation))
            }
            GroupKind::Pull => {
                let Some(event) = self.event(seq).await? else { return Ok(None) };
                let subscriptions = store.subscriptions(group, None, SUBSCRIPTIONS_MAX).await?;
                let (event, mut wants) = (Arc::new(event), Vec::with_capacity(subscriptions.len()));
                for one in &subscriptions {
                    wants.push((one.id, is_wanted(&event, Some(one)).await?));
                }
                let facts = ReadingFacts { seq, group: &state, wants: &wants, now: store.now().await? };
                Ok(Some(explain_reading(&facts)))
            }
        }
    }

    /// The delivery became a job: what holds the job is what is asked for.
    async fn continued(&self, job: &Job, wants: &str) -> Result<Explanation, Error> {
        let Explanation { verdict, mut because } = Around::new(self).await?.about(job, explain_job).await?;
        let became = Reason::new(ReasonKind::State, Some(job.id.to_string()), format!("it became job {}", job.id));
        because.push(became.fix(format!("ensue explain job:{}", job.id)));
        because.push(Reason::new(ReasonKind::Condition, None, format!("it matched {wants}")));
        let verdict = if job.holds_lane() { "held".to_owned() } else { verdict };
        Ok(Explanation { verdict, because })
    }
}

/// The verdict over all handlers, with the first reason of each that has not done it, or gave it up.
fn in_all(handlers: &[ExplainedDelivery]) -> Explanation {
    const SETTLED: [&str; 6] = ["done", "succeeded", "cancelled", "skipped", "not_matched", "before_start"];
    let (mut because, mut passed_over) = (Vec::new(), Vec::new());
    let (mut is_open, mut is_held, mut is_dead, mut is_matched, mut is_unknown) = (false, false, false, false, false);
    for ExplainedDelivery { handler, explanation } in handlers {
        let verdict = explanation.verdict.as_str();
        is_matched |= !matches!(verdict, "not_matched" | "before_start" | "passed");
        is_held |= verdict == "held";
        if matches!(verdict, "skipped" | "cancelled") {
            passed_over.push(format!("`{handler}`: {verdict}"));
        }
        if SETTLED.contains(&verdict) {
            continue;
        }
        match verdict {
            "passed" => is_unknown = true,
            "dead" => is_dead = true,
            _ => is_open = true,
        }
        let Some(first) = explanation.because.first() else { continue };
        let detail = format!("`{handler}`: {verdict}: {}", first.detail);
        because.push(Reason { detail, ..first.clone() });
    }
    if because.is_empty() {
        let detail = match (handlers.len(), is_matched) {
            (0, _) => "there is no handler".to_owned(),
            (count, false) => format!("none of the {count} handlers wants it"),
            (_, true) if passed_over.is_empty() => "every handler that wants it is done with it".to_owned(),
            (_, true) => format!("no handler has anything left to do for it; {}", passed_over.join(", ")),
        };
        because.push(Reason::new(ReasonKind::State, None, detail));
    }
    let verdict = match (is_held, is_open, is_dead, is_unknown, is_matched) {
        (true, ..) => "held",
        (false, true, ..) => "open",
        (false, false, true, ..) => "dead",
        (false, false, false, true, _) => "passed",
        (false, false, false, false, true) => "done",
        (false, false, false, false, false) => "not_matched",
    };
    Explanation { verdict: verdict.to_owned(), because }
}

fn in_words(topic: Option<&str>, condition: Option<&str>) -> String {
    match (topic, condition) {
        (Some(topic), Some(condition)) => format!("the topic `{topic}` and the condition {condition}"),
        (Some(topic), None) => format!("the topic `{topic}`"),
        (None, Some(condition)) => format!("the condition {condition}"),
        (None, None) => "everything".to_owned(),
    }
}
