//! What does a stream want, and from where?

use crate::wanted::{Direct, Wanted, Where};
use ensue_core::{Filter, Invalid, Json, ObjectKey, Seq, Timestamp, Topic};
use uuid::Uuid;

/// Where a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Now,
    After(Seq),
    Time(Timestamp),
}

/// What a stream wants: a topic with all below it, an object, what a condition holds for, all of these or everything;
/// from now unless told.
///
/// ```
/// use ensue::{Json, Subscription};
/// let orders = Subscription::topic("order").after(0); // all orders, from the beginning of the log
/// let one = Subscription::all().object("order:1");    // one object, from now on
/// let params = Json::parse("params", r#"{"min": 100}"#)?;
/// let large = Subscription::topic("order").and_when("e.payload->'total' > s.params->'min'", params);
/// # Ok::<(), ensue::Invalid>(())
/// ```
#[derive(Debug, Clone)]
pub struct Subscription {
    wanted: Result<Wanted, Invalid>,
    start: Start,
}

impl Subscription {
    /// Every event.
    pub fn all() -> Self {
        Self::filter(Filter::default())
    }

    /// A topic and everything below it: `order` wants `order.paid`, never `orders`.
    pub fn topic(topic: &str) -> Self {
        let filter = Topic::parse_filter(topic).map(|topic| Filter { topic: Some(topic), object: None });
        let wanted = filter.map(|filter| Wanted { filter, ..Wanted::default() });
        Self { wanted, start: Start::Now }
    }

    /// Whatever its topic is, an event for which this condition holds, over `e`, the event, and `s.params`. A mistake in
    /// it is told where the subscription is used. What the language has is in `docs/conditions.md`.
    pub fn when(condition: &str, params: Json) -> Self {
        Self::all().and_when(condition, params)
    }

    /// What a checked filter matches.
    pub fn filter(filter: Filter) -> Self {
        Self::wanted(Wanted { filter, ..Wanted::default() })
    }

    /// What a checked filter matches and a checked condition holds for.
    pub fn wanted(wanted: Wanted) -> Self {
        Self { wanted: Ok(wanted), start: Start::Now }
    }

    /// Only events of this object.
    pub fn object(self, object: &str) -> Self {
        let with_object = |wanted: Wanted| {
            let filter = Filter { object: Some(ObjectKey::parse_filter(object)?), ..wanted.filter };
            Ok(Wanted { filter, ..wanted })
        };
        Self { wanted: self.wanted.and_then(with_object), ..self }
    }

    /// Only events for which this condition holds, too; see [`Subscription::when`].
    pub fn and_when(self, condition: &str, params: Json) -> Self {
        let with_condition = |wanted: Wanted| match wanted.condition {
            None => Ok(Wanted { condition: Some(Where::parse(condition, params)?), ..wanted }),
            Some(_) => {
                Err(Invalid::new("where", "is given twice; join both with AND, and their params into one object"))
            }
        };
        Self { wanted: self.wanted.and_then(with_condition), ..self }
    }

    /// Also direct messages, events that are sent `to` one subscription, whichever it is.
    pub fn with_direct(self) -> Self {
        self.direct(Direct::Include)
    }

    /// Also direct messages to this subscription, which a stream keeps from expiring while it is
    /// read: whatever the topic, the object and the condition of the stream are.
    pub fn addressed_as(self, subscription: Uuid) -> Self {
        self.direct(Direct::To(subscription))
    }

    fn direct(self, direct: Direct) -> Self {
        Self { wanted: self.wanted.map(|wanted| Wanted { direct, ..wanted }), ..self }
    }

    /// From the event after this place on; 0 is the beginning of the log.
    pub fn after(self, seq: Seq) -> Self {
        Self { start: Start::After(seq), ..self }
    }

    /// From the first event recorded at or after this time on.
    pub fn from_time(self, time: Timestamp) -> Self {
        Self { start: Start::Time(time), ..self }
    }

    pub(crate) fn check(self) -> Result<(Wanted, Start), Invalid> {
        Ok((self.wanted?, self.start))
    }
}
