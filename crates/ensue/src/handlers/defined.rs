//! Which handlers does the store itself keep, and how are they made?
//!
//! A handler that workers elsewhere serve needs no program: it can be defined while everything runs, by anybody who can write
//! to the store. Every bus on the store that is started brings its events to it: at once where it was defined, within a
//! second elsewhere, and again after a restart.

use super::builder::{Binding, Defined, HandlerBuilder, Spec};
use super::info::{HandlerInfo, info};
use super::limits::HandlerLimits;
use crate::Ensue;
use crate::error::Error;
use ensue_core::definitions::{Definition, NewDefinition};
use ensue_core::handling::{OnExhausted, Retry, RetryShape};
use ensue_core::positions::Start;
use ensue_core::{GroupName, Invalid, Json, StoreError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A handler whose deliveries become jobs, which workers elsewhere claim; see [`Ensue::define_pull`].
#[derive(Debug, Clone)]
pub struct PullHandler {
    /// The dotted key that it is bound to, with everything below it; every topic if there is none.
    pub on: Option<String>,
    /// Only events for which this condition holds, with these `s.params`.
    pub condition: Option<(String, Json)>,
    /// Where it begins if it is new.
    pub start: Start,
    /// Are jobs of one object run in order, one after another?
    pub ordered: bool,
    /// How it is run. `timeout` is how long a claim may be held in all, whatever lease a worker asks for.
    pub limits: HandlerLimits,
}

impl PullHandler {
    /// Bound to a dotted key, and everything below it; the rest is as it is unless told.
    pub fn on(topic: impl Into<String>) -> Self {
        let limits = HandlerLimits::default();
        Self { on: Some(topic.into()), condition: None, start: Start::Now, ordered: true, limits }
    }

    fn spec(&self, bus: &Ensue, key: &GroupName) -> Result<Spec, Invalid> {
        if self.on.is_none() && self.condition.is_none() {
            let reason = "is missing: say which events it gets, such as \"order.paid\", or write a condition";
            return Err(Invalid::new("on", reason));
        }
        let binding = match &self.on {
            Some(on) => Binding::from(on.as_str()),
            None => Binding { topic: Ok(None), condition: None, params: Json::empty_object() },
        };
        let mut builder = HandlerBuilder::new(bus.clone(), binding).start(self.start).with_limits(self.limits.clone());
        if let Some((condition, params)) = &self.condition {
            builder = builder.when(condition.as_str(), params.clone());
        }
        builder = if self.ordered { builder } else { builder.unordered() };
        builder.pulled_as(key.clone())
    }
}

/// How a handler is kept.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    on: Option<String>,
    r#where: Option<String>,
    /// As text: no number in it loses a digit.
    params: Option<String>,
    start: KeptStart,
    ordered: bool,
    concurrency: usize,
    timeout_us: Option<u64>,
    retry: KeptRetry,
    on_exhausted: String,
    logs_always: bool,
    audit: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeptStart {
    Now,
    Beginning,
    After(u64),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeptRetry {
    Doubling { attempts_max: u32, first_us: u64, max_us: u64 },
    Exactly { delays_us: Vec<u64> },
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Kept {
    fn of(handler: &PullHandler) -> Result<Self, Invalid> {
        let limits = &handler.limits;
        let retry = match limits.retry.shape() {
            RetryShape::Doubling { first, max } => {
                let attempts_max = limits.retry.attempts_max();
                KeptRetry::Doubling { attempts_max, first_us: micros(first), max_us: micros(max) }
            }
            RetryShape::Exactly(delays) => KeptRetry::Exactly { delays_us: delays.into_iter().map(micros).collect() },
            RetryShape::ByFunction => {
                let reason = "says its delays by a function, which cannot be kept: say the first and the longest, or all of them";
                return Err(Invalid::new("retry", reason));
            }
        };
        Ok(Self {
            on: handler.on.clone(),
            r#where: handler.condition.as_ref().map(|(condition, _)| condition.clone()),
            params: handler.condition.as_ref().map(|(_, params)| params.as_str().to_owned()),
            start: match handler.start {
                Start::Now => KeptStart::Now,
                Start::Beginning => KeptStart::Beginning,
                Start::After(seq) => KeptStart::After(seq),
            },
            ordered: handler.ordered,
            concurrency: limits.concurrency,
            timeout_us: limits.timeout.map(micros),
            retry,
            on_exhausted: limits.on_exhausted.as_str().to_owned(),
            logs_always: limits.logs_always,
            audit: limits.audit,
        })
    }

    fn handler(self) -> Result<PullHandler, String> {
        let retry = match self.retry {
            KeptRetry::Doubling { attempts_max, first_us, max_us } => {
                Retry::attempts(attempts_max).first(Duration::from_micros(first_us)).max(Duration::from_micros(max_us))
            }
            KeptRetry::Exactly { delays_us } => Retry::delays(delays_us.into_iter().map(Duration::from_micros)),
        };
        let on_exhausted = OnExhausted::parse(&self.on_exhausted);
        let limits = HandlerLimits {
            concurrency: self.concurrency,
            timeout: self.timeout_us.map(Duration::from_micros),
            retry,
            on_exhausted: on_exhausted.ok_or_else(|| format!("`{}` is not known", self.on_exhausted))?,
            logs_always: self.logs_always,
            audit: self.audit,
        };
        let start = match self.start {
            KeptStart::Now => Start::Now,
            KeptStart::Beginning => Start::Beginning,
            KeptStart::After(seq) => Start::After(seq),
        };
        let params = self.params.map_or_else(Json::empty_object, Json::stored);
        let condition = self.r#where.map(|condition| (condition, params));
        Ok(PullHandler { on: self.on, condition, start, ordered: self.ordered, limits })
    }
}

impl Ensue {
    /// Defines a handler whose deliveries become jobs, under this key, for workers elsewhere ([`Ensue::claim_jobs`]); is it new?
    /// The store keeps it, and every bus on it that is started serves it. Defined again, it has the new settings and goes on
    /// where it was; `start` is for one that is new. A key that a program has bound, or a group that is read, is a conflict.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ensue::{Ensue, GroupName, NewEvent, PullHandler};
    /// use std::time::Duration;
    ///
    /// let bus = Ensue::memory().await?;
    /// let running = bus.start().await?;
    /// let key = GroupName::parse("key", "order.paid.remote")?;
    /// assert!(bus.define_pull(&key, &PullHandler::on("order.paid")).await?);
    /// bus.publish(NewEvent::new("order.paid").object("order:1")).await?;
    /// let (lease, wait) = (Duration::from_secs(60), Duration::from_secs(10));
    /// let jobs = bus.claim_jobs(vec![key.clone()], 1, lease, wait, "worker 1").await?;
    /// assert_eq!(jobs[0].job.cause.as_ref().map(|event| event.seq), Some(1));
    /// # running.shutdown(Duration::from_secs(5)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn define_pull(&self, key: &GroupName, handler: &PullHandler) -> Result<bool, Error> {
        let spec = handler.spec(self, key)?;
        let here = &self.inner().handlers;
        if here.find(key).is_some_and(|bound| bound.defined.is_none()) {
            return Err(ensue_core::definitions::is_bound(key).into());
        }
        let new = NewDefinition {
            key: key.clone(),
            start: handler.start,
            slots: self.store().handler_slots(),
            topic: spec.topic.clone(),
            condition: spec.condition.as_ref().map(|condition| condition.source().to_owned()),
            params: spec.params.clone(),
            settings: Json::of("settings", &Kept::of(handler)?)?,
            by: Some(self.inner().member),
        };
        let (_, is_new) = self.store().define(new).await?;
        self.take_over_defined().await?;
        Ok(is_new)
    }

    /// Forgets a handler that was defined, with its group and its place in the log. Jobs that were made stay, and can be claimed.
    pub async fn undefine_pull(&self, key: &GroupName) -> Result<(), Error> {
        if self.store().undefine(key).await? {
            return self.take_over_defined().await;
        }
        match self.store().group(key).await? {
            Some(_) => Err(ensue_core::definitions::is_bound(key).into()),
            None => Err(Error::NotFound(format!("there is no handler `{key}`: look at the list of handlers"))),
        }
    }

    /// Serves what the store keeps, as it is now.
    ///
    /// In a task of its own: who stops waiting leaves nothing half done.
    pub(crate) async fn take_over_defined(&self) -> Result<(), Error> {
        let bus = self.clone();
        let ended = |_| Err(StoreError::InDoubt("the task that takes over handlers was ended".into()).into());
        tokio::spawn(async move { bus.take_over_defined_here().await }).await.unwrap_or_else(ended)
    }

    async fn take_over_defined_here(&self) -> Result<(), Error> {
        let inner = self.inner();
        let _turn = inner.rebinding.lock().await;
        let version = self.look_at_defined().await?;
        let deliveries = inner.deliveries().clone();
        if let Some(deliveries) = deliveries {
            deliveries.take_over(self).await?;
        }
        inner.handlers.has_heard(version);
        Ok(())
    }

    /// What is to be said of the handlers that the store keeps, by key.
    pub(crate) async fn defined_handlers(&self) -> Result<Vec<HandlerInfo>, Error> {
        let (_, defined) = self.store().definitions().await?;
        Ok(defined.iter().filter_map(|definition| self.spec_of(definition).ok()).map(|spec| info(&spec)).collect())
    }

    /// Makes what the store keeps known to this process; answers its version.
    pub(crate) async fn look_at_defined(&self) -> Result<u64, Error> {
        let (version, defined) = self.store().definitions().await?;
        let specs = defined.iter().filter_map(|definition| match self.spec_of(definition) {
            Ok(spec) => Some(spec),
            Err(why) => {
                let handler = &definition.key;
                tracing::error!(%handler, why, "a handler in the store cannot be served: define it again, or use the newer Ensue that wrote it");
                None
            }
        });
        for handler in self.inner().handlers.keep_defined(specs.collect()) {
            tracing::error!(%handler, "a handler in the store has the key of one that is bound here, and is not served by this process");
        }
        Ok(version)
    }

    fn spec_of(&self, definition: &Definition) -> Result<Spec, String> {
        let kept: Kept = serde_json::from_str(definition.settings.as_str()).map_err(|error| error.to_string())?;
        let mut spec = kept.handler()?.spec(self, &definition.key).map_err(|invalid| invalid.to_string())?;
        spec.defined = Some(Defined { subscription: definition.subscription, revision: definition.revision });
        Ok(spec)
    }
}
