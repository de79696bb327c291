//! How is one attempt run?

use super::first_turn::{FirstTurn, first_turn};
use super::prevs::Prevs;
use crate::handlers::{Context, Spec};
use ensue_core::Event;
use ensue_core::Timestamp;
use ensue_core::handling::Ended;
use ensue_core::positions::LaneKey;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// An attempt that has ended.
pub(super) struct Finished {
    pub key: LaneKey,
    pub event: Arc<Event>,
    /// The other events of a batch.
    pub others: Vec<(LaneKey, Arc<Event>)>,
    pub attempt: u32,
    pub started_at: Timestamp,
    pub context: Context,
    pub ended: Ended,
}

/// An attempt that was begun.
pub(super) enum Begun {
    Finished(Finished),
    Waits(Pin<Box<dyn Future<Output = Finished> + Send>>),
}

/// Begins an attempt.
pub(super) async fn begin(
    spec: &Spec,
    (key, event): (LaneKey, Arc<Event>),
    others: Vec<(LaneKey, Arc<Event>)>,
    attempt: u32,
    context: Context,
    prevs: &Arc<Prevs>,
) -> Begun {
    let started_at = Timestamp::now();
    let timeout = spec.limits().timeout.filter(|_| !spec.ends_itself);
    let events: Vec<_> = std::iter::once(&event).chain(others.iter().map(|(_, event)| event)).cloned().collect();
    let run = match prevs.known(&events, &context) {
        Some(events) => spec.code.run(events, context.clone()),
        None => {
            let (prevs, code, cx) = (prevs.clone(), spec.code.clone(), context.clone());
            Box::pin(async move { code.run(prevs.looked_up(&events, &cx).await, cx).await })
        }
    };
    let own = context.clone();
    let finished = move |ended| Finished { key, event, others, attempt, started_at, context, ended };
    match first_turn(run, timeout).await {
        FirstTurn::Ended(ended) if !own.has_own_transaction() => Begun::Finished(finished(ended)),
        FirstTurn::Ended(ended) => Begun::Waits(Box::pin(async move {
            own.look_for_commit().await;
            finished(ended)
        })),
        FirstTurn::Waits(rest) => Begun::Waits(Box::pin(async move {
            let ended = rest.await;
            own.look_for_commit().await;
            finished(ended)
        })),
    }
}
