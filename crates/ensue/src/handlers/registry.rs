//! Which handlers does a bus have?

use super::builder::Spec;
use super::handler::ErasedHandler;
use crate::jobs::JobOptions;
use ensue_core::handling::{OnExhausted, Retry};
use ensue_core::{GroupName, Invalid, key};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Handlers as they were bound, and code that waits to be bound by its name.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    bound: Vec<Arc<Spec>>,
    by_name: HashMap<String, Registered>,
    started: bool,
}

/// Code under a name, and how its jobs are run.
struct Registered {
    code: Arc<dyn ErasedHandler>,
    options: JobOptions,
}

impl Registry {
    /// Adds a handler under a key that is not taken.
    pub fn add(&self, spec: Spec) -> Result<(), Invalid> {
        let mut inner = self.lock();
        if inner.started {
            return Err(Invalid::new("handlers", "are bound before the bus is started; bind this one earlier"));
        }
        if inner.bound.iter().any(|other| other.key == spec.key) {
            let reason = format!("makes the key `{}`, which another handler has: choose another name", spec.key);
            return Err(Invalid::new("name", reason));
        }
        inner.bound.push(Arc::new(spec));
        Ok(())
    }

    /// Keeps code under a name.
    pub fn register(&self, name: &str, code: Arc<dyn ErasedHandler>, options: JobOptions) -> Result<(), Invalid> {
        GroupName::parse("name", name)?;
        options.check()?;
        let mut inner = self.lock();
        if inner.started {
            return Err(Invalid::new(
                "handlers",
                "are registered before the bus is started; register this one earlier",
            ));
        }
        if inner.by_name.contains_key(name) {
            let reason = format!("`{name}` is registered already: choose another name");
            return Err(Invalid::new("name", reason));
        }
        inner.by_name.insert(name.to_owned(), Registered { code, options });
        Ok(())
    }

    /// The code of a name.
    pub fn registered(&self, name: &str) -> Option<Arc<dyn ErasedHandler>> {
        self.lock().by_name.get(name).map(|registered| registered.code.clone())
    }

    /// Is any code kept under a name?
    pub fn has_registered(&self) -> bool {
        !self.lock().by_name.is_empty()
    }

    /// All code that is kept under a name.
    pub fn all_registered(&self) -> Vec<(String, Arc<dyn ErasedHandler>, JobOptions)> {
        let inner = self.lock();
        let all = inner.by_name.iter();
        all.map(|(name, Registered { code, options })| (name.clone(), code.clone(), options.clone())).collect()
    }

    /// When the jobs of a handler are tried again, if it is known here.
    pub fn job_retry(&self, handler: &GroupName) -> Option<Retry> {
        let inner = self.lock();
        let bound = inner.bound.iter().find(|spec| spec.key == *handler).map(|spec| spec.retry.clone());
        bound.or_else(|| inner.by_name.get(handler.as_str()).map(|registered| registered.options.retry.clone()))
    }

    /// How often a job of a handler is attempted, and what happens then, if it is known here.
    pub fn job_defaults(&self, handler: &GroupName) -> Option<(u32, OnExhausted)> {
        let retry = self.job_retry(handler)?;
        let inner = self.lock();
        let bound = inner.bound.iter().find(|spec| spec.key == *handler).map(|spec| spec.on_exhausted);
        let on_exhausted =
            bound.or_else(|| inner.by_name.get(handler.as_str()).map(|registered| registered.options.on_exhausted))?;
        Some((retry.attempts_max(), on_exhausted))
    }

    /// All handlers, as they were bound.
    pub fn bound(&self) -> Vec<Arc<Spec>> {
        self.lock().bound.clone()
    }

    /// From now on no handler may be added, and nobody may start them again, until they are stopped.
    pub fn start(&self) -> Result<(), Invalid> {
        let mut inner = self.lock();
        if inner.started {
            let reason = "was called already: this bus runs; shut its `Running` down before you start it again";
            return Err(Invalid::new("start", reason));
        }
        inner.started = true;
        Ok(())
    }

    /// Handlers may be added again.
    pub fn stop(&self) {
        self.lock().started = false;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The places of those whose binding is a parent of this one's: for one event they go first.
pub(crate) fn parents_of(specs: &[Arc<Spec>], child: usize) -> Vec<usize> {
    let Some(topic) = &specs[child].topic else { return Vec::new() };
    let is_parent = |other: &Spec| {
        other.topic.as_ref().is_some_and(|parent| parent != topic && key::is_under(parent.as_str(), topic.as_str()))
    };
    (0..specs.len()).filter(|at| is_parent(&specs[*at])).collect()
}
