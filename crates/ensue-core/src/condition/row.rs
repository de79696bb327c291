//! Columns that a condition reads: one event and one subscription, borrowed.
//!
//! Their JSON is parsed when a condition first asks for it. The nodes of an event can be kept ([`ParsedEvent`]), so that an event is
//! parsed once for everybody who looks at it.
//!
//! All evaluations on one event share an allowance, so that many costly conditions cannot add up: see [`EventView::new`]. A
//! [quick view](EventView::quick) has a small one, for a thread that others wait for.

use super::failure::Failure;
use super::json::{self, Parsed, Tree};
use super::meter::{Meter, QUICK_STEPS_MAX, STEPS_MAX};
use crate::event::Event;
use crate::json::Json;
use std::cell::{Cell, OnceCell};
use std::sync::OnceLock;
use uuid::Uuid;

/// Steps of all evaluations on one event, up to which each has the whole budget: about 80 ms.
const EVENT_STEPS_MAX: u64 = 16 * STEPS_MAX as u64;
/// Budgets of the evaluations after that, so that a cheap condition always has its answer.
const LATE_STEPS_MAX: u32 = STEPS_MAX / 16;
const LATEST_STEPS_MAX: u32 = STEPS_MAX / 256;
/// Steps to parse a byte of an event.
const PARSE_STEPS_PER_BYTE: usize = 3;

/// The nodes of a JSON text whose size and form were checked when it came in.
fn parsed(text: &str) -> Parsed {
    // A `Json` is checked when it is made, so it can always be parsed. NULL matches nothing.
    json::parse_uncharged(text).unwrap_or_else(Parsed::null)
}

/// The parsed payload and metadata of an event, as far as conditions have asked for them.
#[derive(Debug, Default)]
pub struct ParsedEvent {
    payload: OnceLock<Parsed>,
    metadata: OnceLock<Parsed>,
}

impl ParsedEvent {
    /// Memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        [&self.payload, &self.metadata].into_iter().filter_map(OnceLock::get).map(Parsed::bytes).sum()
    }
}

/// Own or shared.
enum Nodes<'a> {
    Own(ParsedEvent),
    Shared(&'a ParsedEvent),
}

/// An event as conditions see it.
pub struct EventView<'a> {
    event: &'a Event,
    nodes: Nodes<'a>,
    is_quick: bool,
    /// Steps that evaluations on this event were charged.
    spent: Cell<u64>,
    is_exhausted: Cell<bool>,
}

impl<'a> EventView<'a> {
    /// A view of an event. Each evaluation gets the whole budget until all together have spent 16 budgets, then a smaller
    /// one.
    pub fn new(event: &'a Event) -> Self {
        let nodes = Nodes::Own(ParsedEvent::default());
        Self { event, nodes, is_quick: false, spent: Cell::new(0), is_exhausted: Cell::new(false) }
    }

    /// A view for which all evaluations together have [`QUICK_STEPS_MAX`] steps. If
    /// [that was not enough](Self::is_exhausted), nothing that was found counts.
    pub fn quick(event: &'a Event) -> Self {
        Self { is_quick: true, ..Self::new(event) }
    }

    /// A view with nodes that are shared with others who look at the same event.
    pub fn shared(event: &'a Event, nodes: &'a ParsedEvent) -> Self {
        Self { nodes: Nodes::Shared(nodes), ..Self::new(event) }
    }

    /// The event itself.
    pub fn event(&self) -> &'a Event {
        self.event
    }

    /// Whether an evaluation exceeded the quick budget.
    pub fn is_exhausted(&self) -> bool {
        self.is_quick && self.is_exhausted.get()
    }

    /// Steps that all evaluations on this event have taken.
    pub fn steps(&self) -> u64 {
        self.spent.get()
    }

    /// The budget of work that is not an evaluation, to be [charged](Self::charge) after it.
    #[inline]
    pub(crate) fn meter(&self) -> Meter {
        Meter::of(self.allowance())
    }

    /// Counts steps that no meter has counted; false if a quick view has not so many left.
    #[inline]
    pub(crate) fn spend(&self, steps: u32) -> bool {
        let spent = self.spent.get() + u64::from(steps);
        if self.is_quick && spent > u64::from(QUICK_STEPS_MAX) {
            self.spent.set(u64::from(QUICK_STEPS_MAX));
            self.is_exhausted.set(true);
            return false;
        }
        self.spent.set(spent);
        true
    }

    /// Steps that the next evaluation may take.
    #[inline]
    pub(super) fn allowance(&self) -> u32 {
        match self.spent.get() {
            spent if self.is_quick => QUICK_STEPS_MAX.saturating_sub(u32::try_from(spent).unwrap_or(u32::MAX)),
            0..EVENT_STEPS_MAX => STEPS_MAX,
            spent if spent < 2 * EVENT_STEPS_MAX => LATE_STEPS_MAX,
            _ => LATEST_STEPS_MAX,
        }
    }

    /// Counts what an evaluation has cost.
    #[inline]
    pub(crate) fn charge(&self, meter: &Meter) {
        self.spent.set(self.spent.get() + u64::from(meter.spent()));
        if meter.is_exhausted() {
            self.is_exhausted.set(true);
        }
    }

    #[inline]
    fn nodes(&self) -> &ParsedEvent {
        match &self.nodes {
            Nodes::Own(nodes) => nodes,
            Nodes::Shared(nodes) => nodes,
        }
    }

    /// A whole budget does not pay for parsing the event, which is done once for all evaluations.
    #[inline]
    fn tree<'v>(&'v self, nodes: &'v OnceLock<Parsed>, json: &'v Json, meter: &Meter) -> Result<Tree<'v>, Failure> {
        if self.is_quick && nodes.get().is_none() {
            meter.steps(json.as_str().len() * PARSE_STEPS_PER_BYTE)?;
        }
        Ok(nodes.get_or_init(|| parsed(json.as_str())).tree(json.as_str()))
    }

    #[inline]
    pub(super) fn payload(&self, meter: &Meter) -> Result<Tree<'_>, Failure> {
        #[cfg(test)]
        assert_ne!(self.event.topic.as_str(), "planted.panic", "planted by a test");
        self.tree(&self.nodes().payload, &self.event.payload, meter)
    }

    #[inline]
    pub(super) fn metadata(&self, meter: &Meter) -> Result<Tree<'_>, Failure> {
        self.tree(&self.nodes().metadata, &self.event.metadata, meter)
    }
}

/// A subscription as conditions see it.
pub struct SubscriptionView<'a> {
    pub(crate) id: Uuid,
    pub(crate) group: &'a str,
    params: &'a Json,
    nodes: OnceCell<Parsed>,
}

impl<'a> SubscriptionView<'a> {
    /// A view of a subscription; nothing is parsed yet.
    pub fn new(id: Uuid, group: &'a str, params: &'a Json) -> Self {
        Self { id, group, params, nodes: OnceCell::new() }
    }

    /// Steps to parse the params.
    #[inline]
    pub(super) fn params_steps(&self) -> usize {
        self.params.as_str().len() * PARSE_STEPS_PER_BYTE
    }

    #[inline]
    pub(super) fn params(&self) -> Tree<'_> {
        self.nodes.get_or_init(|| parsed(self.params.as_str())).tree(self.params.as_str())
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
