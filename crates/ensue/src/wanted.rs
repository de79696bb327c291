//! Which events does a reader want?

use crate::error::Error;
use crate::evaluation::{self, EvaluationClass};
use crate::labels::GROUPS;
use ensue_core::condition::{Condition, EventView, Failure, SubscriptionView};
use ensue_core::positions::subscription::PARAMS_BYTES_MAX;
use ensue_core::{Event, Filter, Invalid, Json, Seq, StoreError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long conditions are evaluated before other tasks get their turn.
const TURN_MAX: Duration = Duration::from_millis(2);

/// Whether a reader gets direct messages, events that are sent `to` one subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direct {
    /// None of them.
    #[default]
    Exclude,
    /// All that the filter matches and for which the condition holds.
    Include,
    /// Those to this subscription, whatever the filter and the condition are.
    To(Uuid),
}

/// What a reader wants: events that the filter matches and for which the condition holds.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Looked at first, by the store.
    pub filter: Filter,
    /// Looked at in this process, for what the filter lets through; none always holds.
    pub condition: Option<Where>,
    /// Whether direct messages are among them.
    pub direct: Direct,
}

impl Wanted {
    /// The filter with which the store is read: what it leaves out is not wanted.
    pub(crate) fn store_filter(&self) -> Filter {
        match self.direct {
            Direct::Exclude | Direct::Include => self.filter.clone(),
            Direct::To(_) => Filter::default(),
        }
    }

    /// Is the event wanted, as far as the condition is not asked?
    pub(crate) fn passes(&self, event: &Event) -> bool {
        match (event.to, self.direct) {
            (None, _) | (Some(_), Direct::Include) => self.filter.matches(event),
            (Some(_), Direct::Exclude) => false,
            (Some(to), Direct::To(id)) => to == id,
        }
    }

    /// The condition to ask for an event.
    pub(crate) fn condition_for(&self, event: &Event) -> Option<&Where> {
        let is_addressed = event.to.is_some() && matches!(self.direct, Direct::To(_));
        self.condition.as_ref().filter(|_| !is_addressed)
    }

    /// Is it wanted? An event on which the condition fails is not.
    pub(crate) async fn includes(&self, event: &Arc<Event>) -> Result<bool, StoreError> {
        match self.condition_for(event) {
            _ if !self.passes(event) => Ok(false),
            None => Ok(true),
            Some(condition) => Ok(condition.holds(EvaluationClass::Stream, event).await?.unwrap_or(false)),
        }
    }

    /// Is it wanted whatever its topic and content are, as long as it is about the right object?
    pub(crate) fn is_whole_objects(&self) -> bool {
        self.filter.topic.is_none() && self.condition.is_none()
    }
}

/// A condition and the params that it reads as `s.params`. Nobody has subscribed where only the log is read: `s.id` is
/// the nil UUID and `s.group_id` is empty.
#[derive(Debug, Clone)]
pub struct Where {
    pub(crate) condition: Arc<Condition>,
    pub(crate) params: Arc<Json>,
}

/// A condition and params of no more bytes than this together are checked where they arrive.
const CHECKED_BYTES_QUICK: usize = 512;

impl Where {
    /// Checks a condition and its params. A refusal names `where` or `params`, the part, and what to write instead.
    ///
    /// ```
    /// use ensue::{Json, Where};
    /// let params = Json::parse("params", r#"{"min": 100}"#)?;
    /// assert!(Where::parse("(e.payload->>'total')::numeric > (s.params->>'min')::numeric", params.clone()).is_ok());
    /// assert_eq!(Where::parse("e.tpoic = 'order'", params).unwrap_err().field, "where");
    /// # Ok::<(), ensue::Invalid>(())
    /// ```
    pub fn parse(condition: &str, params: Json) -> Result<Self, Invalid> {
        let condition = Arc::new(Condition::parse(condition)?);
        let bytes = params.as_str().len();
        if bytes > PARAMS_BYTES_MAX {
            let reason = format!("has {bytes} bytes; at most {PARAMS_BYTES_MAX} are allowed: make it smaller");
            return Err(Invalid::new("params", reason));
        }
        condition.check_params(&params)?;
        Ok(Self { condition, params: Arc::new(params) })
    }

    /// The same as [`Where::parse`], for a task that others wait for: a long condition is checked on another thread.
    pub async fn parse_off_thread(condition: &str, params: Json) -> Result<Self, Error> {
        if condition.len() + params.as_str().len() <= CHECKED_BYTES_QUICK {
            return Ok(Self::parse(condition, params)?);
        }
        let condition = condition.to_owned();
        Ok(evaluation::run(EvaluationClass::Request, move || Self::parse(&condition, params)).await??)
    }

    /// The condition as it was written.
    pub fn source(&self) -> &str {
        self.condition.source()
    }

    /// What it reads as `s.params`.
    pub fn params(&self) -> &Json {
        &self.params
    }

    /// The side of the subscription, to be shared by the events that are looked at together.
    pub(crate) fn subscription(&self) -> SubscriptionView<'_> {
        SubscriptionView::new(Default::default(), "", &self.params)
    }

    /// Does the condition hold for the event? None if that takes longer than others should wait.
    pub(crate) fn evaluate_quick(
        &self,
        event: &Event,
        subscription: &SubscriptionView<'_>,
    ) -> Option<Result<bool, Failure>> {
        let view = EventView::quick(event);
        let answer = self.condition.matches(&view, subscription);
        (!view.is_exhausted()).then_some(answer)
    }

    /// Does the condition hold for the event, however long that takes?
    pub(crate) async fn evaluate_full(
        &self,
        class: EvaluationClass,
        event: &Arc<Event>,
    ) -> Result<Result<bool, Failure>, StoreError> {
        let (condition, event) = (self.clone(), event.clone());
        let evaluate = move || {
            let parsed = evaluation::parsed(&event);
            condition.condition.matches(&EventView::shared(&event, &parsed), &condition.subscription())
        };
        evaluation::run(class, evaluate).await
    }

    /// Does the condition hold for the event?
    pub(crate) async fn holds(
        &self,
        class: EvaluationClass,
        event: &Arc<Event>,
    ) -> Result<Result<bool, Failure>, StoreError> {
        match self.evaluate_quick(event, &self.subscription()) {
            Some(answer) => Ok(answer),
            None => self.evaluate_full(class, event).await,
        }
    }
}

/// An event on which a condition failed, so that it has no answer and the event is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionError {
    /// The event.
    pub seq: Seq,
    /// What went wrong, and what to write instead.
    pub detail: String,
}

impl ConditionError {
    /// Counts it, too.
    pub(crate) fn counted(event: &Event, failure: &Failure) -> Self {
        count_failure("");
        Self { seq: event.seq, detail: failure.to_string() }
    }
}

/// Counts a condition that failed on an event, by group; a read or a stream has none.
pub(crate) fn count_failure(group: &str) {
    metrics::counter!("ensue_condition_errors_total", "group" => GROUPS.label(group)).increment(1);
}

/// A stretch of work on the processor, of which others wait for the end.
pub(crate) struct Turn(Instant);

impl Turn {
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    pub fn is_over(&self) -> bool {
        self.0.elapsed() >= TURN_MAX
    }

    /// Lets others work if this turn is over.
    pub async fn pass_on(&mut self) {
        if self.is_over() {
            tokio::task::yield_now().await;
            *self = Self::begin();
        }
    }
}
