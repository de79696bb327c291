//! What does handler code look like?

use super::context::Context;
use ensue_core::handling::Ended;
use ensue_core::{Event, Payload};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// What a handler makes of an event. `()` is [`Outcome::Done`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// It did not work out: try again after this time. Uses up an attempt.
    Retry(Duration),
    /// Not now: run it again after this time. Uses up no attempt.
    Snooze(Duration),
    /// There is nothing to do about this event, for this reason. It counts as handled; the reason is recorded.
    Cancel(String),
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// Why a handler failed. Every error becomes one with `?`.
///
/// ```
/// use ensue::HandlerError;
/// fn parse(text: &str) -> Result<u32, HandlerError> {
///     if text.is_empty() {
///         return Err(HandlerError::permanent("there is nothing to parse")); // no other attempt would help
///     }
///     Ok(text.parse()?)
/// }
/// assert_eq!(parse("x").unwrap_err().to_string(), "invalid digit found in string");
/// ```
pub struct HandlerError {
    message: String,
    permanent: bool,
    after: Option<Duration>,
}

impl HandlerError {
    /// It failed, and may work another time.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), permanent: false, after: None }
    }

    /// It failed, and would fail again: no other attempt is made.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self { permanent: true, ..Self::failed(message) }
    }

    /// Says after how long to try again.
    pub fn retry_after(self, after: Duration) -> Self {
        Self { after: Some(after), ..self }
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.message)
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        Self::failed(message)
    }
}

/// Code that follows from an event: any `async fn(Event<P>, Context) -> Result<(), HandlerError>`, where `P` is a
/// [`Fact`](crate::Fact), [`Json`](crate::Json), a `serde_json::Value` or, for jobs, [`JobArgs`](crate::JobArgs), and `()` may be an [`Outcome`].
pub trait Handler<P>: Send + Sync + 'static {
    /// Handles one event.
    fn handle(&self, event: Event<P>, cx: Context) -> impl Future<Output = Result<Outcome, HandlerError>> + Send;
}

impl<P, F, Fut, O> Handler<P> for F
where
    P: Send + 'static,
    F: Fn(Event<P>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, HandlerError>> + Send,
    O: Into<Outcome>,
{
    async fn handle(&self, event: Event<P>, cx: Context) -> Result<Outcome, HandlerError> {
        self(event, cx).await.map(Into::into)
    }
}

/// What runs: borrows nothing, and ends in one of the ways that decisions know.
pub(crate) type Run = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// Code that follows from several events at once: any `async fn(Vec<Event<P>>, Context) -> Result<(), HandlerError>`. The
/// events are in the order of the log; what it returns is said of all of them.
pub trait BatchHandler<P>: Send + Sync + 'static {
    /// Handles some events.
    fn handle(&self, events: Vec<Event<P>>, cx: Context) -> impl Future<Output = Result<Outcome, HandlerError>> + Send;
}

impl<P, F, Fut, O> BatchHandler<P> for F
where
    P: Payload,
    F: Fn(Vec<Event<P>>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, HandlerError>> + Send,
    O: Into<Outcome>,
{
    async fn handle(&self, events: Vec<Event<P>>, cx: Context) -> Result<Outcome, HandlerError> {
        self(events, cx).await.map(Into::into)
    }
}

/// A handler without its types.
pub(crate) trait ErasedHandler: Send + Sync {
    /// Begins one attempt, at one event or, for a handler of batches, at several in the order of the log.
    fn run(&self, events: Vec<Arc<Event>>, cx: Context) -> Run;

    /// The topic of the fact that it reads; none if it reads any payload.
    fn topic(&self) -> Option<String> {
        None
    }
}

/// A handler of one type of payload.
pub(crate) struct Typed<P, H> {
    handler: Arc<H>,
    payload: PhantomData<fn() -> P>,
}

impl<P, H> Typed<P, H> {
    pub fn new(handler: H) -> Self {
        Self { handler: Arc::new(handler), payload: PhantomData }
    }
}

impl<P: Payload, H: Handler<P>> ErasedHandler for Typed<P, H> {
    fn run(&self, events: Vec<Arc<Event>>, cx: Context) -> Run {
        run_one(self.handler.clone(), events, cx, Event::read_as)
    }

    fn topic(&self) -> Option<String> {
        P::topic()
    }
}

/// Runs a handler of single events: one after another, until one of them is not done.
pub(crate) fn run_one<P: Send + 'static, H: Handler<P>>(
    handler: Arc<H>,
    events: Vec<Arc<Event>>,
    cx: Context,
    read: fn(&Event) -> Result<Event<P>, String>,
) -> Run {
    Box::pin(async move {
        for event in events {
            match read(&event) {
                Ok(event) => match ended(handler.handle(event, cx.clone()).await) {
                    Ended::Done => {}
                    other => return other,
                },
                Err(error) => return unreadable(error),
            }
        }
        Ended::Done
    })
}

/// A handler of batches of one type of payload.
pub(crate) struct TypedBatch<P, H> {
    handler: Arc<H>,
    payload: PhantomData<fn() -> P>,
}

impl<P, H> TypedBatch<P, H> {
    pub fn new(handler: H) -> Self {
        Self { handler: Arc::new(handler), payload: PhantomData }
    }
}

impl<P: Payload, H: BatchHandler<P>> ErasedHandler for TypedBatch<P, H> {
    fn run(&self, events: Vec<Arc<Event>>, cx: Context) -> Run {
        let handler = self.handler.clone();
        Box::pin(async move {
            let read: Result<Vec<Event<P>>, String> = events.iter().map(|event| event.read_as()).collect();
            match read {
                Ok(events) => ended(handler.handle(events, cx).await),
                Err(error) => unreadable(error),
            }
        })
    }

    fn topic(&self) -> Option<String> {
        P::topic()
    }
}

/// It will not decode the next time either.
fn unreadable(error: String) -> Ended {
    Ended::Unreadable(error)
}

/// What a handler's answer means.
pub(crate) fn ended(answer: Result<Outcome, HandlerError>) -> Ended {
    match answer {
        Ok(Outcome::Done) => Ended::Done,
        Ok(Outcome::Retry(after)) => Ended::Failed {
            error: "the handler asked for another attempt".into(),
            after: Some(after),
            permanent: false,
        },
        Ok(Outcome::Snooze(wait)) => Ended::Snoozed(wait),
        Ok(Outcome::Cancel(why)) => Ended::Cancelled(why),
        Err(HandlerError { message, permanent, after }) => Ended::Failed { error: message, after, permanent },
    }
}
