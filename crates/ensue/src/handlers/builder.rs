//! How is a handler bound to events, and how is it run?

use super::handler::{BatchHandler, ErasedHandler, Handler, Typed, TypedBatch};
use super::limits::{HandlerLimits, LimitsNow};
use super::pull::{NoCode, Pull};
use crate::Ensue;
use crate::error::Error;
use crate::evaluation::{self, EvaluationClass};
use crate::subscription::Subscription;
use ensue_core::condition::{Condition, EventView, Failure, SubscriptionView};
use ensue_core::handling::{OnExhausted, Retry};
use ensue_core::positions::Start;
use ensue_core::tasks::check_no_task;
use ensue_core::{Event, GroupName, Invalid, Json, Payload, StoreError, Topic, key};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// How many events a batch has, unless told, and at most.
const BATCH: usize = 100;
const BATCH_MAX: usize = 1_000;

/// Does a publish that asks for it wait for the handler?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The handler runs after the publish was answered.
    #[default]
    Async,
    /// [`Ensue::publish_and_wait`](crate::Ensue::publish_and_wait) waits for it, within bounds.
    Sync,
}

/// What a handler is bound to: a dotted key, with everything below it, or what a [`Subscription`] wants.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The dotted key, which is also the first part of the handler's own key; none for a condition.
    pub(crate) topic: Result<Option<Topic>, Invalid>,
    pub(crate) condition: Option<Arc<Condition>>,
    pub(crate) params: Json,
}

impl From<&str> for Binding {
    fn from(topic: &str) -> Self {
        let topic = Topic::parse_filter(topic).map(Some).map_err(|invalid| Invalid { field: "on".into(), ..invalid });
        Self { topic, condition: None, params: Json::empty_object() }
    }
}

impl From<Subscription> for Binding {
    fn from(subscription: Subscription) -> Self {
        subscription.into_binding()
    }
}

/// Everything that is known about a handler.
pub(crate) struct Spec {
    pub key: GroupName,
    pub topic: Option<Topic>,
    pub condition: Option<Arc<Condition>>,
    pub params: Json,
    pub start: Start,
    pub ordered: bool,
    pub limits: LimitsNow,
    /// It sees to its timeout itself.
    pub ends_itself: bool,
    pub mode: Mode,
    /// How many events are handled at once; 1 for a handler of single events.
    pub batch: usize,
    pub split_by: Option<SplitBy>,
    /// Its deliveries become jobs, which workers elsewhere claim.
    pub pull: bool,
    /// The store keeps it; else it is bound by this process.
    pub defined: Option<Defined>,
    pub code: Arc<dyn ErasedHandler>,
}

/// What the store says of a handler that it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Defined {
    pub subscription: Uuid,
    pub revision: u64,
}

/// Divides a batch: events with the same text go together.
pub(crate) type SplitBy = Arc<dyn Fn(&Event) -> String + Send + Sync>;

impl Spec {
    /// How it is run, as of now.
    pub fn limits(&self) -> Arc<HandlerLimits> {
        self.limits.get()
    }

    /// Does this process run jobs that are sent to it?
    pub fn runs_jobs(&self) -> bool {
        !self.pull && self.batch == 1
    }

    /// What the handler wants. Its subscription is what an event is sent `to`.
    pub fn wish(&self, subscription: Uuid) -> HandlerFilter {
        let condition = self.condition.clone().map(|condition| (condition, Arc::new(self.params.clone())));
        HandlerFilter { subscription, key: self.key.clone(), topic: self.topic.clone(), condition }
    }
}

/// What a handler wants, for evaluations that may run on another thread.
#[derive(Clone)]
pub(crate) struct HandlerFilter {
    subscription: Uuid,
    key: GroupName,
    topic: Option<Topic>,
    condition: Option<(Arc<Condition>, Arc<Json>)>,
}

impl HandlerFilter {
    /// Does the handler want this event?
    pub async fn wants(&self, event: &Arc<Event>) -> Result<Result<bool, Failure>, StoreError> {
        if let Some(to) = event.to {
            return Ok(Ok(to == self.subscription));
        }
        if self.topic.as_ref().is_some_and(|topic| !event.topic.is_under(topic)) {
            return Ok(Ok(false));
        }
        let Some((condition, params)) = &self.condition else { return Ok(Ok(true)) };
        if let Some(answer) = self.wants_quickly(condition, params, event) {
            return Ok(answer);
        }
        let (condition, params, wish, event) = (condition.clone(), params.clone(), self.clone(), event.clone());
        let evaluate = move || {
            let parsed = evaluation::parsed(&event);
            condition.matches(&EventView::shared(&event, &parsed), &wish.view(&params))
        };
        evaluation::run(EvaluationClass::Delivery, evaluate).await
    }

    fn wants_quickly(&self, condition: &Condition, params: &Json, event: &Event) -> Option<Result<bool, Failure>> {
        let view = EventView::quick(event);
        let answer = condition.matches(&view, &self.view(params));
        (!view.is_exhausted()).then_some(answer)
    }

    fn view<'a>(&'a self, params: &'a Json) -> SubscriptionView<'a> {
        SubscriptionView::new(self.subscription, self.key.as_str(), params)
    }
}

/// A handler that is being bound; see [`Ensue::on`](crate::Ensue::on).
#[must_use = "the handler is bound by `handle`"]
pub struct HandlerBuilder {
    bus: Ensue,
    binding: Binding,
    name: Option<String>,
    start: Start,
    ordered: bool,
    limits: HandlerLimits,
    ends_itself: bool,
    mode: Mode,
    batch: usize,
    split_by: Option<SplitBy>,
    filter: Option<(String, Json)>,
    pull: bool,
    /// Its key, where that is not made of what it is bound to and its name.
    key: Option<GroupName>,
    /// Where it waits to be bound with others, while the bus runs.
    among: Option<Gathered>,
}

impl HandlerBuilder {
    pub(crate) fn new(bus: Ensue, binding: Binding) -> Self {
        Self {
            bus,
            binding,
            name: None,
            start: Start::Now,
            ordered: true,
            limits: HandlerLimits::default(),
            ends_itself: false,
            mode: Mode::Async,
            batch: BATCH,
            split_by: None,
            filter: None,
            pull: false,
            key: None,
            among: None,
        }
    }

    /// It is bound with others, while the bus runs.
    pub(super) fn among(self, gathered: Gathered) -> Self {
        Self { among: Some(gathered), ..self }
    }

    /// Everything that can be changed later.
    pub(super) fn with_limits(self, limits: HandlerLimits) -> Self {
        Self { limits, ..self }
    }

    /// A pull handler under this key, bound nowhere yet.
    pub(super) fn pulled_as(self, key: GroupName) -> Result<Spec, Invalid> {
        self.pulled(Some(key))
    }

    fn pulled(mut self, key: Option<GroupName>) -> Result<Spec, Invalid> {
        (self.pull, self.batch, self.key) = (true, 1, key);
        let mut spec = self.check(Arc::new(NoCode))?;
        spec.code = Arc::new(Pull::of(&spec));
        Ok(spec)
    }

    /// What it is called. Its key is what it is bound to, a dot and this name; a handler of a condition has the name
    /// alone. Under its key the store remembers what it has done: keep it when you change the code.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Only events for which this condition holds, over `e`, the event, and `s.params`.
    pub fn when(self, condition: impl Into<String>, params: Json) -> Self {
        Self { filter: Some((condition.into(), params)), ..self }
    }

    /// Where it begins when it is new: after the newest event, unless told. Afterwards it goes on where it was.
    pub fn start(self, start: Start) -> Self {
        Self { start, ..self }
    }

    /// Events of one object need not be handled in order, nor one after another.
    pub fn unordered(self) -> Self {
        Self { ordered: false, ..self }
    }

    /// How many run at once in this process; 8 unless told. Those of one object run one after another all the same.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.limits.concurrency = concurrency;
        self
    }

    /// An attempt that takes longer is ended and has failed. There is no limit unless told.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        (self.limits.timeout, self.ends_itself) = (Some(timeout), false);
        self
    }

    /// The handler ends its attempts itself after this time: it is told to them ([`Context::timeout`](crate::Context::timeout)) and
    /// shown, and nobody else sees to it. None if there is no limit now, and may be one later.
    pub fn own_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        (self.limits.timeout, self.ends_itself) = (timeout.into(), true);
        self
    }

    /// How often it is attempted, and after how long.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.limits.retry = retry;
        self
    }

    /// What to do when its attempts are exhausted.
    pub fn on_exhausted(mut self, on_exhausted: OnExhausted) -> Self {
        self.limits.on_exhausted = on_exhausted;
        self
    }

    /// A publish can wait for it: see [`Ensue::publish_and_wait`](crate::Ensue::publish_and_wait).
    pub fn sync(self) -> Self {
        Self { mode: Mode::Sync, ..self }
    }

    /// Keeps the lines of attempts that succeed, too.
    pub fn logs_always(mut self) -> Self {
        self.limits.logs_always = true;
        self
    }

    /// Records every delivery, with its times and outcome.
    pub fn audit(mut self) -> Self {
        self.limits.audit = true;
        self
    }

    /// How many events a handler of batches gets at most; 100 unless told. A batch is what is there when it starts: it
    /// does not wait to be full.
    pub fn batch(self, batch: usize) -> Self {
        Self { batch, ..self }
    }

    /// Divides each batch by a key: events with the same key go together, in order; the parts run in parallel.
    pub fn split_by(self, key: impl Fn(&Event) -> String + Send + Sync + 'static) -> Self {
        Self { split_by: Some(Arc::new(key)), ..self }
    }

    /// Binds code that handles several events at once, of many objects. When it fails, each event is run alone, so that
    /// one of them cannot hold the others; from then on each has its own attempts.
    pub fn handle_batch<P: Payload>(self, handler: impl BatchHandler<P>) -> Result<(), Error> {
        self.handle_erased(Arc::new(TypedBatch::new(handler)))
    }

    /// Binds the code. Nothing is delivered before [`Ensue::start`](crate::Ensue::start).
    pub fn handle<P: Payload>(self, handler: impl Handler<P>) -> Result<(), Error> {
        Self { batch: 1, ..self }.handle_erased(Arc::new(Typed::new(handler)))
    }

    /// Binds no code: each delivery becomes a job under the handler's key, in one commit with the note that it did, and is
    /// claimed by workers elsewhere ([`Ensue::claim_jobs`](crate::Ensue::claim_jobs)). Order, retries and what happens when they
    /// are exhausted are those of the handler.
    pub fn pull(mut self) -> Result<(), Error> {
        let (bus, among) = (self.bus.clone(), self.among.take());
        let spec = self.pulled(None)?;
        bind(&bus, among, spec)
    }

    /// Binds code that was registered by name.
    pub fn handle_registered(self, name: &str) -> Result<(), Error> {
        let handlers = &self.bus.inner().handlers;
        let code = handlers.registered(name).ok_or_else(|| handlers.not_registered(name))?;
        let mut builder = if self.name.is_none() { self.named(name.rsplit('.').next().unwrap_or(name)) } else { self };
        builder.batch = 1;
        builder.handle_erased(code)
    }

    pub(crate) fn handle_erased(mut self, code: Arc<dyn ErasedHandler>) -> Result<(), Error> {
        let (bus, among) = (self.bus.clone(), self.among.take());
        let spec = self.check(code)?;
        bind(&bus, among, spec)
    }

    fn check(self, code: Arc<dyn ErasedHandler>) -> Result<Spec, Invalid> {
        let topic = self.binding.topic?;
        let name = self.name.ok_or_else(|| {
            Invalid::new("name", "is missing; call `named(…)`: under that name the store remembers what was done")
        });
        let key = match (self.key, &topic) {
            (Some(key), _) => key,
            (None, Some(topic)) => GroupName::of_handler(topic.as_str(), &name?)?,
            (None, None) => GroupName::parse("name", &name?)?,
        };
        check_no_task("name", &key)?;
        self.limits.check()?;
        if self.batch == 0 || self.batch > BATCH_MAX {
            return Err(Invalid::new("batch", format!("is {}; choose between 1 and {BATCH_MAX}", self.batch)));
        }
        let (condition, params) = match self.filter {
            Some(_) if self.binding.condition.is_some() => {
                let reason =
                    "stands beside a condition that the handler is bound to already: write one condition with AND";
                return Err(Invalid::new("when", reason));
            }
            Some((source, params)) => {
                let condition = Condition::parse(&source)?;
                condition.check_params(&params)?;
                (Some(Arc::new(condition)), params)
            }
            None => (self.binding.condition, self.binding.params),
        };
        if let (Some(on), Some(fact)) = (&topic, code.topic()) {
            check_fact(on, &fact, condition.is_some())?;
        }
        Ok(Spec {
            key,
            topic,
            condition,
            params,
            start: self.start,
            ordered: self.ordered,
            limits: LimitsNow::new(self.limits),
            ends_itself: self.ends_itself,
            mode: self.mode,
            batch: self.batch,
            split_by: self.split_by,
            pull: self.pull,
            defined: None,
            code,
        })
    }
}

/// Does what the handler is bound to have the topic of the fact that it reads? What is above that topic has other events,
/// too, unless a condition leaves them out.
fn check_fact(on: &Topic, fact: &str, has_condition: bool) -> Result<(), Invalid> {
    let on = on.as_str();
    if key::is_under(fact, on) || (has_condition && key::is_under(on, fact)) {
        return Ok(());
    }
    let reason = format!(
        "is `{on}`, but the handler reads the fact `{fact}`, and other events would fail: bind it to `{fact}`, or let \
         it read `Event<Json>`"
    );
    Err(Invalid::new("on", reason))
}

/// Handlers that are to be bound together.
pub(super) type Gathered = Arc<Mutex<Vec<Spec>>>;

fn bind(bus: &Ensue, among: Option<Gathered>, spec: Spec) -> Result<(), Error> {
    match among {
        Some(gathered) => gathered.lock().unwrap_or_else(PoisonError::into_inner).push(spec),
        None => bus.inner().handlers.add(spec)?,
    }
    Ok(())
}
