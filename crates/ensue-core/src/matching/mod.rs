//! Which of a million subscriptions want this event?
//!
//! Subscriptions that share a topic filter and a condition form an *entry*, and differ in their params alone. What a
//! condition says must be equal in event and subscription is hashed when somebody subscribes; an event is hashed the
//! same way, and only those under its hash are evaluated. Entries themselves are found by the event's topic and by values that
//! their conditions name. So a million subscriptions to one condition cost one lookup.
//!
//! The answer is that of evaluating every subscription: a hash only ever narrows, and candidates are evaluated in full.
//! A condition that fails on an event is reported with its subscription and concerns nobody else.
//!
//! | question | file |
//! |---|---|
//! | Which entries may want the event, and who of them? | `index` |
//! | Who of one entry wants it? | `entry` |
//! | Which entries share the keys of an event? | `form` |
//! | Under which number does a value go? | `hash` |

mod entry;
mod form;
mod hash;
mod index;

pub use index::{Found, Index};

use crate::condition::Condition;
use crate::json::Json;
use crate::key::Topic;
use std::sync::Arc;
use uuid::Uuid;

/// What subscriptions have in common.
#[derive(Debug, Clone)]
pub struct Want {
    /// This topic and those below it; every topic if there is none.
    pub topic: Option<Topic>,
    /// What must hold for the event and the subscription.
    pub condition: Arc<Condition>,
}

/// One who wants events.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// Its identity, and `s.id`.
    pub id: Uuid,
    /// Whom it belongs to, and `s.group_id`.
    pub group: Arc<str>,
    /// What it was made with, and `s.params`.
    pub params: Json,
}
