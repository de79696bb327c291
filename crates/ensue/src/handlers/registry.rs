//! Which handlers does a bus have?

use super::builder::Spec;
use super::handler::ErasedHandler;
use ensue_core::{GroupName, Invalid, key};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Handlers as they were bound, and code that waits to be bound by its name.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    bound: Vec<Arc<Spec>>,
    by_name: HashMap<String, Arc<dyn ErasedHandler>>,
    started: bool,
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
    pub fn register(&self, name: &str, code: Arc<dyn ErasedHandler>) -> Result<(), Invalid> {
        GroupName::parse("name", name)?;
        let mut inner = self.lock();
        if inner.by_name.contains_key(name) {
            let reason = format!("`{name}` is registered already: choose another name");
            return Err(Invalid::new("name", reason));
        }
        inner.by_name.insert(name.to_owned(), code);
        Ok(())
    }

    /// The code of a name.
    pub fn registered(&self, name: &str) -> Option<Arc<dyn ErasedHandler>> {
        self.lock().by_name.get(name).cloned()
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
