//! Who carries a connection's bytes?
//!
//! The driver leaves that to whoever polls the connection. Most have a task of their own for it (`connection`). The writer carries its own while it waits:
//! a task would stand in line twice for each statement, once to send it and once to hear the answer, behind whatever else the
//! process has to do. Beside a busy handler that was a fifth of a millisecond of the 1.5 that a commit takes.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::{Context, Poll};
use tokio::task::JoinHandle;

/// The connection under a client. Dropped, it is closed at once, even if the server owes an answer.
pub(super) struct Carrier(Option<BoxFuture<'static, ()>>);

impl Carrier {
    /// Of what carries for as long as it is polled, until the connection has ended. A panic in it is such an end, as it is in a task.
    pub fn new(carrying: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Some(AssertUnwindSafe(carrying).catch_unwind().map(drop).boxed()))
    }

    /// Carries while somebody waits for something.
    pub async fn until<T>(&mut self, waited_for: impl Future<Output = T>) -> T {
        let mut waited_for = pin!(waited_for);
        poll_fn(|cx| {
            // What has come is taken at once, and what is sent then is carried at once.
            self.carry(cx);
            if let Poll::Ready(answer) = waited_for.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            self.carry(cx);
            waited_for.as_mut().poll(cx)
        })
        .await
    }

    /// Carries what there is: that the connection has ended, too, while nobody was waiting.
    pub async fn once(&mut self) {
        self.until(std::future::ready(())).await;
    }

    fn carry(&mut self, cx: &mut Context<'_>) {
        if let Some(carrying) = &mut self.0
            && carrying.as_mut().poll(cx).is_ready()
        {
            // Let go of: who waits for an answer is told that none will come.
            self.0 = None;
        }
    }

    /// Has a task carry from here on.
    pub fn spawn(self) -> JoinHandle<()> {
        tokio::spawn(async move {
            if let Some(carrying) = self.0 {
                carrying.await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::{pending, ready};
    use tokio::sync::mpsc;

    /// Answers what is asked, until nobody can ask any more.
    fn echo() -> (mpsc::UnboundedSender<u32>, mpsc::UnboundedReceiver<u32>, Carrier) {
        let (ask, mut asked) = mpsc::unbounded_channel();
        let (answer, answers) = mpsc::unbounded_channel();
        let carrier = Carrier::new(async move {
            while let Some(question) = asked.recv().await {
                let _nobody_waits = answer.send(question + 1);
            }
        });
        (ask, answers, carrier)
    }

    #[tokio::test]
    async fn what_is_asked_is_carried_and_answered_in_one_poll() {
        let (ask, mut answers, mut carrier) = echo();
        let asking = async {
            ask.send(1).unwrap();
            answers.recv().await
        };
        assert_eq!(carrier.until(asking).now_or_never(), Some(Some(2)));
    }

    #[tokio::test]
    async fn who_waits_for_something_else_waits_on_when_the_connection_has_ended() {
        let mut carrier = Carrier::new(ready(()));
        carrier.until(tokio::task::yield_now()).await;
        // Nothing is polled that has ended.
        carrier.until(tokio::task::yield_now()).await;
        carrier.spawn().await.unwrap();
    }

    #[tokio::test]
    async fn who_waits_for_an_answer_is_told_when_none_will_come() {
        let (answer, mut answers) = mpsc::unbounded_channel::<u32>();
        // It ends, and with it what it would answer by.
        let mut carrier = Carrier::new(async move { drop(answer) });
        assert_eq!(carrier.until(answers.recv()).await, None);
    }

    #[tokio::test]
    async fn an_end_that_came_while_nobody_waited_is_heard_first() {
        let (held, mut holder) = mpsc::unbounded_channel::<()>();
        let mut carrier = Carrier::new(async move { drop(held) });
        carrier.once().await;
        assert!(holder.recv().now_or_never().is_some_and(|heard| heard.is_none()));
    }

    #[tokio::test]
    async fn a_panic_ends_the_connection_and_nothing_else() {
        let mut carrier = Carrier::new(async { panic!("on purpose") });
        carrier.once().await;
        assert!(carrier.0.is_none());
    }

    #[tokio::test]
    async fn who_stops_waiting_halfway_leaves_the_connection_as_it_is() {
        let (ask, mut answers, mut carrier) = echo();
        assert_eq!(carrier.until(pending::<()>()).now_or_never(), None);
        ask.send(5).unwrap();
        assert_eq!(carrier.until(answers.recv()).await, Some(6));
    }

    #[tokio::test]
    async fn a_carrier_that_is_dropped_lets_go_of_the_connection() {
        let (held, holder) = tokio::sync::oneshot::channel::<()>();
        let carrier = Carrier::new(async move {
            let _held = held;
            pending().await
        });
        drop(carrier);
        assert!(holder.await.is_err());
    }
}
