//! Which events does a reader want?

use ensue_core::condition::{Condition, EventView, Failure, SubscriptionView};
use ensue_core::positions::subscription::PARAMS_BYTES_MAX;
use ensue_core::{Event, Filter, Invalid, Json, Seq};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long conditions are evaluated before other tasks get their turn.
const TURN_MAX: Duration = Duration::from_millis(2);
/// Of how many groups the failures of conditions are counted by name.
const GROUPS_COUNTED_MAX: usize = 1_000;

/// What a reader wants: events that the filter matches and for which the condition holds.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Looked at first, by the store.
    pub filter: Filter,
    /// Looked at in this process, for what the filter lets through; none always holds.
    pub condition: Option<Where>,
}

impl Wanted {
    /// Is it wanted? An event on which the condition fails is not.
    pub(crate) fn includes(&self, event: &Event) -> bool {
        let holds = |condition: &Where| condition.holds(event, &condition.subscription()).unwrap_or(false);
        self.filter.matches(event) && self.condition.as_ref().is_none_or(holds)
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
    pub(crate) params: Json,
}

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
        Ok(Self { condition, params })
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

    pub(crate) fn holds(&self, event: &Event, subscription: &SubscriptionView<'_>) -> Result<bool, Failure> {
        self.condition.matches(&EventView::new(event), subscription)
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
    static COUNTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let label = counted_as(group, &mut COUNTED.lock().unwrap_or_else(PoisonError::into_inner));
    metrics::counter!("ensue_condition_errors_total", "group" => label).increment(1);
}

/// Groups come and go, and what is counted once stays with the process: after very many, others are counted together.
fn counted_as(group: &str, counted: &mut BTreeSet<String>) -> String {
    if !counted.contains(group) {
        if counted.len() >= GROUPS_COUNTED_MAX {
            return "(others)".into();
        }
        counted.insert(group.to_owned());
    }
    group.to_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is counted is kept as long as the process runs, so names that anybody can invent are bounded.
    #[test]
    fn of_very_many_groups_the_last_are_counted_together() {
        let mut counted = BTreeSet::new();
        for n in 0..GROUPS_COUNTED_MAX {
            assert_eq!(counted_as(&format!("g{n}"), &mut counted), format!("g{n}"));
        }
        assert_eq!(counted_as("late", &mut counted), "(others)");
        assert_eq!(counted_as("g7", &mut counted), "g7");
        assert_eq!(counted.len(), GROUPS_COUNTED_MAX);
    }
}
