//! How does an attempt get its first turn?
//!
//! It is polled where it is: what is ready at once costs no task. What has to wait becomes a future for a task of its own,
//! with its timeout. A panic is a failure like any other.

use crate::handlers::Run;
use ensue_core::handling::Ended;
use futures_util::FutureExt;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

tokio::task_local! {
    /// Set while a handler runs.
    static IN_HANDLER: ();
}

/// Is this called from inside a handler?
pub(super) fn in_handler() -> bool {
    IN_HANDLER.try_with(|()| ()).is_ok()
}

/// What came of the first turn.
pub(crate) enum FirstTurn {
    /// It has ended.
    Ended(Ended),
    /// It has to wait.
    Waits(Pin<Box<dyn Future<Output = Ended> + Send>>),
}

/// Gives an attempt its first turn.
pub(crate) async fn first_turn(run: Run, timeout: Option<Duration>) -> FirstTurn {
    let run = IN_HANDLER.scope((), run);
    let mut run = Box::pin(AssertUnwindSafe(run).catch_unwind());
    if let Poll::Ready(ended) = poll_fn(|cx| Poll::Ready(run.poll_unpin(cx))).await {
        return FirstTurn::Ended(ended.unwrap_or_else(|panic| panicked(&*panic)));
    }
    FirstTurn::Waits(Box::pin(async move {
        let ended = match timeout {
            Some(timeout) => tokio::time::timeout(timeout, run).await.unwrap_or_else(|_| Ok(timed_out(timeout))),
            None => run.await,
        };
        ended.unwrap_or_else(|panic| panicked(&*panic))
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
