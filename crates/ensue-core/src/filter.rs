//! Which events does a reader want?

use crate::event::Event;
use crate::key::{ObjectKey, Topic};

/// A topic (with everything below it), an object, both or neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// This topic and those below it: `order` wants `order.paid`, never `orders`.
    pub topic: Option<Topic>,
    /// This object alone.
    pub object: Option<ObjectKey>,
}

impl Filter {
    /// Does the reader want this event?
    pub fn matches(&self, event: &Event) -> bool {
        self.object.as_ref().is_none_or(|object| event.object.as_ref() == Some(object))
            && self.topic.as_ref().is_none_or(|topic| event.topic.is_under(topic))
    }
}
