//! What runs when an event comes to a handler of the config file?
//!
//! | question | file |
//! |---|---|
//! | How is a program run for an event? | `command.rs`, its start in `starter.rs`, what it says in `output.rs`, its end in `process_group.rs` |
//! | How is an event sent to a URL? | `webhook.rs` |
//! | Which addresses may it be sent to? | `guard.rs` |
//! | Whose certificates are trusted there? | `authorities.rs` |
//! | How much was done, and is it enough? | `tally.rs` |

pub mod authorities;
mod command;
pub mod guard;
mod output;
mod process_group;
mod starter;
mod tally;
mod webhook;

pub use authorities::Authorities;
pub use command::{CLAIM_VARIABLE, SECRET_VARIABLES, TASK_VARIABLES, VARIABLES};
pub use guard::Guard;
pub use tally::Tally;
pub use webhook::check_url;

use crate::config::handlers_check::{HandlerConfig, Runs};
use crate::config::sources::CollectionConfig;
use crate::http::shapes::EventShape;
use crate::http::tasks_shapes::TaskShape;
use anyhow::anyhow;
use command::Program;
use ensue::tasks::CollectionHandler;
use ensue::{Context, Ensue, Error, Event, HandlerBuilder, HandlerError, Outcome};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use webhook::Webhook;

/// Runs the handlers of a config file.
#[derive(Debug, Clone)]
pub struct Executors {
    guard: Guard,
    authorities: Authorities,
    drain_max: Duration,
    tally: Arc<Tally>,
}

impl Executors {
    /// Webhooks go where the guard lets them. When the process stops, programs have `drain_max` to come to their end.
    pub fn new(guard: Guard, drain_max: Duration) -> Self {
        Self { guard, authorities: Authorities::default(), drain_max, tally: Arc::new(Tally::default()) }
    }

    /// The same, but webhooks also trust certificates of these.
    pub fn with_authorities(self, authorities: Authorities) -> Self {
        Self { authorities, ..self }
    }

    /// The same, but only so many events are taken.
    pub fn with_tally(self, tally: Arc<Tally>) -> Self {
        Self { tally, ..self }
    }

    /// Binds the handlers to a bus that is not started yet. What is compiled in must be registered before.
    pub fn bind(&self, bus: &Ensue, handlers: &[HandlerConfig]) -> anyhow::Result<()> {
        handlers.iter().try_for_each(|handler| self.bind_one(bus.on(handler.on.as_str()), handler))
    }

    /// Binds one handler with this builder, which was begun with what it is bound to.
    pub fn bind_one(&self, builder: HandlerBuilder, handler: &HandlerConfig) -> anyhow::Result<()> {
        let wrong = |error: Error| match error {
            Error::Invalid(invalid) => handler.refusal(&invalid.field, &invalid.reason),
            error => anyhow!("{}: {error}", handler.place),
        };
        let builder = configured(builder, handler);
        match &handler.runs {
            Runs::CompiledIn(name) => builder.handle_registered(name).map_err(|error| match error {
                // The entry is the name and nothing else.
                Error::Invalid(invalid) => anyhow!("{}: `{}` {}", handler.place, handler.field, invalid.reason),
                error => wrong(error),
            }),
            Runs::Pull => builder.pull().map_err(wrong),
            Runs::Command(command) => {
                let program = Arc::new(Program::new(command, self.drain_max));
                let tally = self.tally.clone();
                let run = move |event: Event, cx: Context| {
                    let (program, tally) = (program.clone(), tally.clone());
                    async move { counted(&tally, &cx, program.run(event, &cx)).await }
                };
                builder.handle(run).map_err(wrong)
            }
            Runs::Webhook(target) => {
                let webhook = Webhook::new(target, &self.guard, &self.authorities);
                let webhook = Arc::new(webhook.map_err(|reason| handler.refusal("webhook", &reason))?);
                let tally = self.tally.clone();
                let run = move |event: Event, cx: Context| {
                    let (webhook, tally) = (webhook.clone(), tally.clone());
                    async move { counted(&tally, &cx, webhook.run(event, &cx)).await }
                };
                builder.handle(run).map_err(wrong)
            }
        }
    }
}

impl Executors {
    /// What brings the collections of a config file up to date, beside those of the application, which may also have code
    /// for collections of the file.
    pub fn collections(
        &self,
        configs: &[CollectionConfig],
        mut application: Vec<CollectionHandler>,
    ) -> anyhow::Result<Vec<CollectionHandler>> {
        let configured = configs.iter().map(|config| self.collection(config, &application));
        let configured = configured.collect::<anyhow::Result<Vec<_>>>()?;
        application.retain(|own| {
            let is_it = |config: &CollectionConfig| config.collection == *own.collection() && config.is_compiled_in();
            !configs.iter().any(is_it)
        });
        application.extend(configured);
        Ok(application)
    }

    fn collection(
        &self,
        config: &CollectionConfig,
        application: &[CollectionHandler],
    ) -> anyhow::Result<CollectionHandler> {
        let (collection, tally) = (&config.collection, self.tally.clone());
        let (source, name, options) = (collection.source(), collection.name(), config.options.clone());
        let made = match &config.runs {
            Runs::Command(command) => {
                let program = Arc::new(Program::new(command, self.drain_max));
                CollectionHandler::new(source, name, options, move |event: Event, cx: Context| {
                    let (program, tally) = (program.clone(), tally.clone());
                    async move { counted(&tally, &cx, program.run(event, &cx)).await }
                })
            }
            Runs::Webhook(target) => {
                let webhook = Webhook::new(target, &self.guard, &self.authorities);
                let webhook = Arc::new(webhook.map_err(|reason| config.refusal("webhook", &reason))?);
                CollectionHandler::new(source, name, options, move |event: Event, cx: Context| {
                    let (webhook, tally) = (webhook.clone(), tally.clone());
                    async move { counted(&tally, &cx, webhook.run(event, &cx)).await }
                })
            }
            Runs::Pull => CollectionHandler::pull(source, name, options),
            Runs::CompiledIn(_) => match application.iter().find(|own| own.collection() == collection) {
                Some(own) => Ok(own.clone().with_options(options)),
                None => {
                    let (place, field) = (&config.place, &config.field);
                    return Err(anyhow!(
                        "{place}: `{field}` says nothing to run: add a `command: [program, …]`, a `webhook: https://…` or \
                         `pull: true`, here or under the source's `default`; or let the application set its code \
                         (`Ensue::set_collections`)"
                    ));
                }
            },
        };
        let made = made.map_err(|invalid| config.refusal(&invalid.field, &invalid.reason))?;
        Ok(made.retry(config.retry.clone()))
    }
}

/// Everything but the code. Executors see to their timeouts themselves, so that a program has ended before its event is
/// tried again.
fn configured(builder: HandlerBuilder, handler: &HandlerConfig) -> HandlerBuilder {
    let options = &handler.options;
    let mut builder = builder.start(options.start).on_exhausted(options.on_exhausted);
    if let Some(name) = &handler.name {
        builder = builder.named(name.as_str());
    }
    if let Some((condition, params)) = &options.condition {
        builder = builder.when(condition.as_str(), params.clone());
    }
    if let Some(concurrency) = options.concurrency {
        builder = builder.concurrency(concurrency);
    }
    builder = match (&handler.runs, handler.timeout) {
        (Runs::CompiledIn(_) | Runs::Pull, Some(timeout)) => builder.timeout(timeout),
        (Runs::CompiledIn(_) | Runs::Pull, None) => builder,
        (Runs::Command(_) | Runs::Webhook(..), timeout) => builder.own_timeout(timeout),
    };
    builder = builder.retry(options.retry.clone().unwrap_or_default());
    builder = if options.ordered { builder } else { builder.unordered() };
    builder = match options.mode {
        ensue::Mode::Async => builder,
        ensue::Mode::Sync => builder.sync(),
    };
    builder = if options.logs_always { builder.logs_always() } else { builder };
    if options.audit { builder.audit() } else { builder }
}

/// What a program or a receiver gets: the event, and the task if it is one, as the API shows them.
fn input(event: &Event, cx: &Context) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Input<'a> {
        #[serde(flatten)]
        event: EventShape<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        task: Option<TaskShape<'a>>,
    }
    let task = cx.task();
    serde_json::to_vec(&Input {
        event: EventShape::from(event).with_prev_since(cx.prev_since()),
        task: task.as_ref().map(TaskShape::from),
    })
}

/// Runs an attempt if there is to be another one, and counts it.
async fn counted(
    tally: &Tally,
    cx: &Context,
    attempt: impl Future<Output = Result<Outcome, HandlerError>>,
) -> Result<Outcome, HandlerError> {
    if !tally.begin() {
        // Enough was taken: this one stays for whoever comes next.
        cx.cancelled().await;
        return Ok(Outcome::Snooze(Duration::ZERO));
    }
    let answer = attempt.await;
    tally.end(&answer);
    answer
}
