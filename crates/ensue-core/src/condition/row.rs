//! What does a condition look at?
//!
//! One event and one subscription, borrowed. Their JSON is parsed when a condition first asks for it, and then once for all
//! conditions that look at the same event.

use super::json::{self, Node};
use crate::event::Event;
use crate::json::Json;
use std::cell::OnceCell;
use uuid::Uuid;

/// A JSON text that is parsed at most once.
struct Lazy<'a> {
    text: &'a str,
    nodes: OnceCell<Vec<Node<'a>>>,
}

impl<'a> Lazy<'a> {
    fn new(json: &'a Json) -> Self {
        Self { text: json.as_str(), nodes: OnceCell::new() }
    }

    fn get(&self) -> &[Node<'a>] {
        self.nodes.get_or_init(|| {
            let mut nodes = Vec::with_capacity(16);
            if json::parse(self.text, &mut nodes).is_err() {
                // Cannot be: a `Json` is checked when it is made. Null matches nothing.
                nodes.clear();
                nodes.push(Node::Null);
            }
            nodes
        })
    }
}

/// An event as conditions see it.
pub struct EventView<'a> {
    event: &'a Event,
    payload: Lazy<'a>,
    metadata: Lazy<'a>,
}

impl<'a> EventView<'a> {
    /// A view of an event; nothing is parsed yet.
    pub fn new(event: &'a Event) -> Self {
        Self { event, payload: Lazy::new(&event.payload), metadata: Lazy::new(&event.metadata) }
    }

    /// The event itself.
    pub fn event(&self) -> &'a Event {
        self.event
    }

    pub(crate) fn payload(&self) -> &[Node<'a>] {
        self.payload.get()
    }

    pub(crate) fn metadata(&self) -> &[Node<'a>] {
        self.metadata.get()
    }
}

/// A subscription as conditions see it.
pub struct SubscriptionView<'a> {
    pub(crate) id: Uuid,
    pub(crate) group: &'a str,
    params: Lazy<'a>,
}

impl<'a> SubscriptionView<'a> {
    /// A view of a subscription; nothing is parsed yet.
    pub fn new(id: Uuid, group: &'a str, params: &'a Json) -> Self {
        Self { id, group, params: Lazy::new(params) }
    }

    pub(crate) fn params(&self) -> &[Node<'a>] {
        self.params.get()
    }
}

/// What columns are read from. A part of a condition that names none of a side's columns needs no such side.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a, 'e, 's> {
    pub(crate) event: Option<&'a EventView<'e>>,
    pub(crate) subscription: Option<&'a SubscriptionView<'s>>,
}

impl Row<'_, '_, '_> {
    /// For what names no column at all.
    pub(crate) const EMPTY: Self = Self { event: None, subscription: None };
}
