//! Typed jobs: the type of a payload that knows the key of its handler.

use super::{Emit, JobOptions};
use crate::Ensue;
use crate::error::Error;
use crate::handlers::{Context, ErasedHandler, Handler, Run, run_one};
use ensue_core::Event;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::sync::Arc;

/// The payload of the jobs of one handler, with the key of that handler. It can be derived.
///
/// ```
/// # #[cfg(all(feature = "sqlite", feature = "derive"))]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ensue::{Context, Emit, Ensue, Event, HandlerError, JobArgs};
///
/// #[derive(serde::Serialize, serde::Deserialize, JobArgs)]
/// #[job(handler = "mail.receipt")]
/// struct SendReceipt {
///     order: u64,
/// }
///
/// async fn send_receipt(job: Event<SendReceipt>, cx: Context) -> Result<(), HandlerError> {
///     cx.log(format!("receipt of order {}", job.payload.order));
///     Ok(())
/// }
///
/// let bus = Ensue::memory().await?;
/// bus.register_job(send_receipt)?;
/// let running = bus.start().await?;
/// bus.emit(Emit::job(&SendReceipt { order: 7 })).await?;
/// bus.drain().await?;
/// # running.shutdown(std::time::Duration::from_secs(5)).await?;
/// # Ok(()) }
/// # #[cfg(not(all(feature = "sqlite", feature = "derive")))]
/// # fn main() {}
/// ```
pub trait JobArgs: Serialize + DeserializeOwned + Send + 'static {
    /// The key of the handler that runs such jobs.
    const HANDLER: &'static str;
}

impl Emit {
    /// A job with these arguments for the handler of their type.
    pub fn job<J: JobArgs>(args: &J) -> Self {
        Self::to(J::HANDLER).payload(args)
    }
}

impl Ensue {
    /// Registers the handler of a type of jobs, under the key of that type.
    pub fn register_job<J: JobArgs>(&self, handler: impl Handler<J>) -> Result<(), Error> {
        self.register_job_with(JobOptions::default(), handler)
    }

    /// Registers the handler of a type of jobs with options.
    pub fn register_job_with<J: JobArgs>(&self, options: JobOptions, handler: impl Handler<J>) -> Result<(), Error> {
        let code = Arc::new(JobHandler { handler: Arc::new(handler), args: PhantomData });
        Ok(self.inner().handlers.register(J::HANDLER, code, options)?)
    }
}

/// The handler of a type of jobs, without its types.
struct JobHandler<J, H> {
    handler: Arc<H>,
    args: PhantomData<fn() -> J>,
}

impl<J: JobArgs, H: Handler<J>> ErasedHandler for JobHandler<J, H> {
    fn run(&self, events: Vec<Arc<Event>>, cx: Context) -> Run {
        run_one(self.handler.clone(), events, cx, |event| match serde_json::from_str(event.payload.as_str()) {
            Ok(args) => Ok(event.with_payload(args)),
            Err(error) => Err(format!("the payload cannot be read as that of `{}`: {error}", J::HANDLER)),
        })
    }
}
