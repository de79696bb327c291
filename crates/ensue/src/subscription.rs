//! What does a stream want, and from where?

use ensue_core::{Filter, Invalid, ObjectKey, Seq, Timestamp, Topic};

/// Where a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Now,
    After(Seq),
    Time(Timestamp),
}

/// What a stream wants: a topic with all below it, an object, both or everything; from now unless told.
///
/// ```
/// use ensue::Subscription;
/// let orders = Subscription::topic("order").after(0); // all orders, from the beginning of the log
/// let one = Subscription::all().object("order:1");    // one object, from now on
/// ```
#[derive(Debug, Clone)]
pub struct Subscription {
    filter: Result<Filter, Invalid>,
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
        Self { filter, start: Start::Now }
    }

    /// What a checked filter matches.
    pub fn filter(filter: Filter) -> Self {
        Self { filter: Ok(filter), start: Start::Now }
    }

    /// Only events of this object.
    pub fn object(self, object: &str) -> Self {
        let with_object = |filter: Filter| Ok(Filter { object: Some(ObjectKey::parse(object)?), ..filter });
        Self { filter: self.filter.and_then(with_object), ..self }
    }

    /// From the event after this place on; 0 is the beginning of the log.
    pub fn after(self, seq: Seq) -> Self {
        Self { start: Start::After(seq), ..self }
    }

    /// From the first event recorded at or after this time on.
    pub fn from_time(self, time: Timestamp) -> Self {
        Self { start: Start::Time(time), ..self }
    }

    pub(crate) fn check(self) -> Result<(Filter, Start), Invalid> {
        Ok((self.filter?, self.start))
    }
}
