//! What is to be said about a handler?

use super::builder::{Mode, Spec};
use crate::Ensue;
use ensue_core::handling::{OnExhausted, RetryShape};
use ensue_core::positions::Start;
use ensue_core::{GroupName, Json, Topic};
use std::time::Duration;

/// A handler as it was bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerInfo {
    /// Its key, and the name of its group.
    pub key: GroupName,
    /// The dotted key it is bound to, if it is bound to one.
    pub on: Option<Topic>,
    /// The condition it is bound to, if it is bound to one.
    pub condition: Option<String>,
    /// `s.params` of its condition.
    pub params: Json,
    /// Are events of one object handled in order?
    pub ordered: bool,
    /// Where it begins when it is new.
    pub start: Start,
    /// How many run at once in this process.
    pub concurrency: usize,
    /// When an attempt is ended.
    pub timeout: Option<Duration>,
    /// How often it is attempted.
    pub attempts_max: u32,
    /// After how long.
    pub delays: RetryShape,
    /// What is done when its attempts are exhausted.
    pub on_exhausted: OnExhausted,
    /// Can a publish wait for it?
    pub mode: Mode,
    /// Do its deliveries become jobs, which workers elsewhere claim?
    pub pull: bool,
    /// Does the store keep it? Else this process has bound it.
    pub defined: bool,
}

impl Ensue {
    /// The handlers that are bound in this process, in the order in which they were.
    pub fn handlers(&self) -> Vec<HandlerInfo> {
        self.inner().handlers.bound().iter().map(|spec| info(spec)).collect()
    }
}

pub(crate) fn info(spec: &Spec) -> HandlerInfo {
    let limits = spec.limits();
    HandlerInfo {
        key: spec.key.clone(),
        on: spec.topic.clone(),
        condition: spec.condition.as_ref().map(|condition| condition.source().to_owned()),
        params: spec.params.clone(),
        ordered: spec.ordered,
        start: spec.start,
        concurrency: limits.concurrency,
        timeout: limits.timeout,
        attempts_max: limits.retry.attempts_max(),
        delays: limits.retry.shape(),
        on_exhausted: limits.on_exhausted,
        mode: spec.mode,
        pull: spec.pull,
        defined: spec.defined.is_some(),
    }
}
