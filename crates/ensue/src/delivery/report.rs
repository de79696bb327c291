//! What became of an event, and how do the handlers stand?
//!
//! Gathers what is stored and lets the core decide (`ensue_core::handling::verdict`). Whoever only looks at a store, without
//! running its handlers, is answered the same.

use crate::Ensue;
use crate::error::Error;
use crate::evaluation::{self, EvaluationClass};
use crate::handlers::{HandlerInfo, info};
use ensue_core::condition::{Condition, EventView, SubscriptionView};
use ensue_core::handling::{Facts, Standing, Verdict, verdict};
use ensue_core::jobs::Job;
use ensue_core::positions::{
    GroupKind, GroupState, LaneKey, LaneQuery, LaneRow, SlotState, Start, SubscriptionState, slot_of,
};
use ensue_core::retention::Bounds;
use ensue_core::rules::{Rule, RuleSet};
use ensue_core::{Event, GroupName, Json, Seq, StoreError, Timestamp, Topic};
use jiff::SignedDuration;
use std::sync::Arc;

/// How many lanes of one object are looked at: more handlers than anybody has.
const LANES_MAX: usize = 10_000;
/// How many lanes of a handler are counted.
const STUCK_COUNTED_MAX: usize = 1_000;

/// A condition of no more bytes than this is parsed where it is needed.
const PARSED_BYTES_QUICK: usize = 512;

/// How long after its group a handler's first subscription is made, at most: a process may begin many at once.
const FIRST_WITHIN: SignedDuration = SignedDuration::from_secs(10);

/// What became of an event, for one handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryReport {
    /// The handler's key.
    pub handler: GroupName,
    /// What became of it.
    pub verdict: Verdict,
    /// What else is to be said.
    pub note: Option<String>,
    /// The job that it became, for workers elsewhere; as long as that is not forgotten.
    pub job: Option<Box<Job>>,
}

/// How a handler stands, whoever runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerReport {
    /// Its key.
    pub key: GroupName,
    /// The dotted key it is bound to, if it is bound to one.
    pub on: Option<Topic>,
    /// The condition it is bound to, if it is bound to one.
    pub condition: Option<String>,
    /// `s.params` of its condition.
    pub params: Json,
    /// How it is run, if it is bound in this process.
    pub here: Option<HandlerInfo>,
    /// How it is run wherever it is, if the store keeps it.
    pub defined: Option<HandlerInfo>,
    /// Its place in the log, if it has ever been started.
    pub group: Option<GroupState>,
    /// How many events it has not come to; each lane that was set aside counts as one.
    pub lag: u64,
    /// How many lanes wait for somebody, also those of its jobs; of each kind counted up to 1,000.
    pub held: u64,
    /// Does a process have it right now?
    pub is_served: bool,
    /// The rules on the handler and its parents that hold it now.
    pub rules: Vec<Rule>,
}

impl Ensue {
    /// What became of an event, for every handler, by key; none if there is no such event in the log.
    pub async fn deliveries(&self, seq: Seq) -> Result<Option<Vec<DeliveryReport>>, Error> {
        let mut reports = self.deliveries_to(seq, None).await?;
        if let Some(reports) = &mut reports {
            self.add_jobs(seq, reports).await?;
        }
        Ok(reports)
    }

    /// What became of an event, for these handlers or for all. One that has become a job is done.
    pub(super) async fn deliveries_to(
        &self,
        seq: Seq,
        handlers: Option<&[GroupName]>,
    ) -> Result<Option<Vec<DeliveryReport>>, Error> {
        let store = self.store();
        let Some(event) = self.event(seq).await?.map(Arc::new) else { return Ok(None) };
        let now = store.now().await?;
        let of_object = match &event.object {
            Some(object) => store.lanes(LaneQuery::Object(object.clone()), LANES_MAX).await?,
            None => Vec::new(),
        };
        let groups = match handlers {
            None => store.groups().await?,
            Some(handlers) => {
                let mut groups = Vec::with_capacity(handlers.len());
                for handler in handlers {
                    groups.extend(store.group(handler).await?);
                }
                groups
            }
        };
        let mut found = Vec::new();
        for group in handlers_of(groups) {
            let alone =
                store.lanes(LaneQuery::One(group.name.clone(), LaneKey::Event(seq)), 1).await?.into_iter().next();
            let lane = alone.or_else(|| of_object.iter().find(|row| row.group == group.name).cloned());
            let subscription = store.subscriptions(&group.name, None, 1).await?.into_iter().next();
            found.push((group, lane, subscription));
        }
        // Read last: a record that is newer than a lane tells more; a lane newer than the record would be taken for the end.
        let recorded = store.deliveries(seq).await?;
        let mut reports = Vec::with_capacity(found.len());
        for (group, lane, subscription) in found {
            let slot = slot_of(event.object.as_ref(), seq, u16::try_from(group.slots.len()).unwrap_or(1));
            let Some(slot) = group.slots.iter().find(|state| state.slot == slot) else { continue };
            let wanted = is_wanted(&event, subscription.as_ref()).await?;
            let start = self.start_of(&group.name);
            let facts = Facts {
                seq,
                is_wanted: wanted == Ok(true),
                is_before_start: is_before_start(&event, &group, subscription.as_ref(), start),
                is_before_change: is_before_change(&event, &group, subscription.as_ref()),
                cursor: done_to(slot, seq),
                lane: lane.as_ref().map(|row| &row.lane),
                recorded: recorded.iter().find(|delivery| delivery.group == group.name),
            };
            let verdict = verdict(&facts);
            let note = note(&verdict, lane.as_ref(), wanted.err(), start, is_served(slot, now));
            reports.push(DeliveryReport { handler: group.name, verdict, note, job: None });
        }
        Ok(Some(reports))
    }

    /// Every handler: those bound in this process, and those that only the store remembers; by key.
    pub async fn handler_reports(&self) -> Result<Vec<HandlerReport>, Error> {
        self.handler_reports_after(None, usize::MAX).await
    }

    /// The same page by page: at most `limit` handlers after the one of this key.
    pub async fn handler_reports_after(
        &self,
        after: Option<&GroupName>,
        limit: usize,
    ) -> Result<Vec<HandlerReport>, Error> {
        let store = self.store();
        let (now, bounds) = (store.now().await?, store.bounds().await?);
        let (mut here, defined) = (self.handlers(), self.defined_handlers().await?);
        here.retain(|info| after.is_none_or(|after| info.key > *after));
        let mut keys: Vec<(GroupName, Option<GroupState>)> = Vec::new();
        for group in store.groups_after(Some(GroupKind::Handler), after, limit).await? {
            keys.push((group.name.clone(), Some(group)));
        }
        let only_here = here.iter().filter(|info| !keys.iter().any(|(key, _)| *key == info.key));
        let only_here: Vec<_> = only_here.map(|info| (info.key.clone(), None)).collect();
        keys.extend(only_here);
        keys.sort_by(|(one, _), (other, _)| one.cmp(other));
        keys.truncate(limit);
        let holding_jobs = self.holding_jobs(None, None).await?;
        let mut reports = Vec::with_capacity(keys.len());
        for (key, group) in keys {
            let bound = here.iter().find(|info| info.key == key).cloned();
            let defined = defined.iter().find(|info| info.key == key).cloned();
            match (group, bound) {
                (Some(group), bound) => reports.push(report(self, group, (bound, defined), now, bounds).await?),
                (None, Some(info)) => reports.push(not_started(info)),
                (None, None) => {}
            }
        }
        let rules = store.rules().await?;
        for report in &mut reports {
            let held = holding_jobs.iter().filter(|job| job.handler == report.key);
            report.held += held.take(STUCK_COUNTED_MAX).count() as u64;
            report.rules = holding(&rules, &report.key, now);
        }
        Ok(reports)
    }

    /// How one handler stands; none if nobody knows it.
    pub async fn handler_report(&self, key: &GroupName) -> Result<Option<HandlerReport>, Error> {
        let store = self.store();
        let (now, bounds) = (store.now().await?, store.bounds().await?);
        let here = self.inner().handlers.find(key).map(|spec| info(&spec));
        let defined = self.defined_handlers().await?.into_iter().find(|info| info.key == *key);
        let group = store.group(key).await?.filter(|group| group.kind == GroupKind::Handler);
        let mut report = match (group, here) {
            (Some(group), here) => Some(report(self, group, (here, defined), now, bounds).await?),
            (None, here) => here.filter(|info| !info.defined).map(not_started),
        };
        if let Some(report) = &mut report {
            report.held += self.holding_jobs(Some(key), None).await?.len().min(STUCK_COUNTED_MAX) as u64;
            report.rules = holding(&store.rules().await?, key, now);
        }
        Ok(report)
    }

    /// Where a handler of this process begins when it is new.
    fn start_of(&self, key: &GroupName) -> Option<Start> {
        self.inner().handlers.bound().iter().find(|spec| spec.key == *key).map(|spec| spec.start)
    }
}

/// A handler of this process that has no place in the log yet.
fn not_started(info: HandlerInfo) -> HandlerReport {
    HandlerReport {
        key: info.key.clone(),
        on: info.on.clone(),
        condition: info.condition.clone(),
        params: info.params.clone(),
        here: Some(info),
        defined: None,
        group: None,
        lag: 0,
        held: 0,
        is_served: false,
        rules: Vec::new(),
    }
}

/// The rules that hold a handler.
fn holding(rules: &RuleSet, handler: &GroupName, now: Timestamp) -> Vec<Rule> {
    rules.all_holding(handler, None, now).into_iter().cloned().collect()
}

fn handlers_of(groups: Vec<GroupState>) -> impl Iterator<Item = GroupState> {
    groups.into_iter().filter(|group| group.kind == GroupKind::Handler)
}

/// How far a slot is, as an event at this place sees it: one that is passed over when a range is run again is done.
pub(crate) fn done_to(slot: &SlotState, seq: Seq) -> Seq {
    let skips = slot.replay.filter(|replay| replay.skips(seq));
    skips.map_or(slot.cursor, |replay| replay.resume.max(slot.cursor))
}

fn is_served(slot: &SlotState, now: Timestamp) -> bool {
    slot.owner.as_ref().is_some_and(|owner| owner.lease_until > now)
}

async fn report(
    bus: &Ensue,
    group: GroupState,
    (here, defined): (Option<HandlerInfo>, Option<HandlerInfo>),
    now: Timestamp,
    bounds: Bounds,
) -> Result<HandlerReport, StoreError> {
    let store = bus.store();
    let subscription = store.subscriptions(&group.name, None, 1).await?.into_iter().next();
    let (on, condition, params) = match subscription {
        Some(subscription) => (subscription.topic, subscription.condition, subscription.params),
        None => (None, None, Json::empty_object()),
    };
    let stuck = LaneQuery::Stuck { group: Some(group.name.clone()) };
    Ok(HandlerReport {
        key: group.name.clone(),
        on,
        condition,
        params,
        here,
        defined,
        lag: group.lag(bounds),
        held: store.lanes(stuck, STUCK_COUNTED_MAX).await?.len() as u64,
        is_served: group.slots.iter().any(|slot| is_served(slot, now)),
        rules: Vec::new(),
        group: Some(group),
    })
}

/// Does a handler want the event, as it is now? The error says why that has no answer. A costly condition is parsed and
/// evaluated on another thread.
pub(crate) async fn is_wanted(
    event: &Arc<Event>,
    subscription: Option<&SubscriptionState>,
) -> Result<Result<bool, String>, StoreError> {
    let Some(subscription) = subscription else { return Ok(Ok(false)) };
    if let Some(to) = event.to {
        return Ok(Ok(to == subscription.id));
    }
    if subscription.topic.as_ref().is_some_and(|topic| !event.topic.is_under(topic)) {
        return Ok(Ok(false));
    }
    let Some(source) = subscription.condition.clone() else { return Ok(Ok(true)) };
    if source.len() <= PARSED_BYTES_QUICK {
        let view = EventView::quick(event);
        let answer = holds(&source, subscription, &view);
        if !view.is_exhausted() {
            return Ok(answer);
        }
    }
    let (event, subscription) = (event.clone(), subscription.clone());
    let evaluate = move || {
        let parsed = evaluation::parsed(&event);
        holds(&source, &subscription, &EventView::shared(&event, &parsed))
    };
    evaluation::run(EvaluationClass::Request, evaluate).await
}

fn holds(condition: &str, subscription: &SubscriptionState, view: &EventView<'_>) -> Result<bool, String> {
    let condition = Condition::parse(condition).map_err(|invalid| invalid.to_string())?;
    let subscribed = SubscriptionView::new(subscription.id, subscription.group.as_str(), &subscription.params);
    condition.matches(view, &subscribed).map_err(|failure| failure.to_string())
}

fn is_before_start(
    event: &Event,
    group: &GroupState,
    subscription: Option<&SubscriptionState>,
    start: Option<Start>,
) -> bool {
    match start {
        Some(Start::Beginning) => false,
        Some(Start::After(seq)) => event.seq <= seq,
        // A subscription that was changed later was made later; the group was not.
        Some(Start::Now) | None => {
            event.recorded_at <= group.created_at
                && subscription.is_none_or(|subscription| event.seq <= subscription.created_after)
        }
    }
}

/// Was the event in the log before the handler got the condition that it has now? A handler's first subscription is made with
/// its group, or right after it, and holds for all that the handler ever came to.
fn is_before_change(event: &Event, group: &GroupState, subscription: Option<&SubscriptionState>) -> bool {
    subscription.is_some_and(|subscription| {
        let is_first = subscription.created_at.duration_since(group.created_at) <= FIRST_WITHIN;
        event.seq <= subscription.created_after && (!is_first || event.recorded_at > group.created_at)
    })
}

fn note(
    verdict: &Verdict,
    lane: Option<&LaneRow>,
    condition_error: Option<String>,
    start: Option<Start>,
    is_served: bool,
) -> Option<String> {
    if let Some(ask) = lane.and_then(|row| row.ask) {
        return Some(format!("somebody has asked to {} it", ask.as_str()));
    }
    match (verdict.standing, verdict.behind, condition_error) {
        (Standing::NotMatched, _, Some(error)) => Some(format!("its condition fails on this event: {error}")),
        (Standing::BeforeStart, ..) if start.is_none() => {
            Some("it was in the log before the handler was made; if that began at the beginning, it is done".into())
        }
        (Standing::Passed, ..) => Some(
            "the handler's condition was changed after it: whether it was wanted then, and ran, is not known".into(),
        ),
        (Standing::Dead, Some(behind), _) => Some(format!("its object was given up at event {behind}")),
        (Standing::Pending, Some(behind), _) => Some(format!("it waits for event {behind} of the same object")),
        (Standing::Pending | Standing::Waiting | Standing::Retrying | Standing::Running, ..) if !is_served => {
            Some("no process runs this handler now".into())
        }
        _ => None,
    }
}
