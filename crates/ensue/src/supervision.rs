//! Tasks that run as long as the process, started again after a panic.
//!
//! Tokio ends a task that panics, and nothing else: the process would stay up, and its work would stay undone.

use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// Pause before a task is started again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Runs a task until it ends by itself. The task keeps nothing that a panic could leave half done: it begins with what the
/// store has.
pub(crate) async fn supervised<F: Future<Output = ()>>(task: &'static str, mut start: impl FnMut() -> F) {
    while has_panicked(task, start()).await {
        tokio::time::sleep(AGAIN_AFTER).await;
        tracing::info!(task, "task starts again");
    }
}

/// Whether a task ended by a panic, which is logged.
pub(crate) async fn has_panicked(task: &str, work: impl Future<Output = ()>) -> bool {
    let has_panicked = AssertUnwindSafe(work).catch_unwind().await.is_err();
    if has_panicked {
        tracing::error!(task, "task panicked");
    }
    has_panicked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn task_that_panics_is_started_again() {
        let mut starts = 0;
        let task = || {
            starts += 1;
            let is_last = starts == 3;
            async move {
                tokio::task::yield_now().await;
                assert!(is_last, "planted by a test");
            }
        };
        supervised("test", task).await;
        assert_eq!(starts, 3);
    }
}
