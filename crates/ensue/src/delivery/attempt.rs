//! How is one attempt run?
//!
//! It is polled where it is first: what is ready at once costs no task. What has to wait becomes a task of its own, with
//! its timeout. A panic is a failure like any other.

use crate::handlers::{Context, Spec};
use ensue_core::Event;
use ensue_core::Timestamp;
use ensue_core::handling::Ended;
use ensue_core::positions::LaneKey;
use futures_util::FutureExt;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

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

tokio::task_local! {
    /// Set while a handler runs.
    static IN_HANDLER: ();
}

/// Is this called from inside a handler?
pub(super) fn in_handler() -> bool {
    IN_HANDLER.try_with(|()| ()).is_ok()
}

/// Begins an attempt.
pub(super) async fn begin(
    spec: &Spec,
    (key, event): (LaneKey, Arc<Event>),
    others: Vec<(LaneKey, Arc<Event>)>,
    attempt: u32,
    context: Context,
) -> Begun {
    let started_at = Timestamp::now();
    let events = std::iter::once(&event).chain(others.iter().map(|(_, event)| event)).cloned().collect();
    let run = IN_HANDLER.scope((), spec.code.run(events, context.clone()));
    let mut run = Box::pin(AssertUnwindSafe(run).catch_unwind());
    if let Poll::Ready(ended) = poll_fn(|cx| Poll::Ready(run.poll_unpin(cx))).await {
        let ended = ended.unwrap_or_else(|panic| panicked(&*panic));
        return Begun::Finished(Finished { key, event, others, attempt, started_at, context, ended });
    }
    let timeout = spec.timeout.filter(|_| !spec.ends_itself);
    Begun::Waits(Box::pin(async move {
        let ended = match timeout {
            Some(timeout) => tokio::time::timeout(timeout, run).await.unwrap_or_else(|_| Ok(timed_out(timeout))),
            None => run.await,
        };
        let ended = ended.unwrap_or_else(|panic| panicked(&*panic));
        Finished { key, event, others, attempt, started_at, context, ended }
    }))
}

fn timed_out(timeout: Duration) -> Ended {
    let error = format!("it took longer than its timeout of {timeout:?} and was ended");
    Ended::Failed { error, after: None, permanent: false }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Ended {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "no message",
    };
    Ended::Failed { error: format!("it panicked: {text}"), after: None, permanent: false }
}
