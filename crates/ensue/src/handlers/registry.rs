//! Which handlers does a bus have?

use super::builder::Spec;
use super::handler::ErasedHandler;
use super::limits::HandlerLimits;
use crate::jobs::JobOptions;
use crate::tasks::CollectionHandler;
use ensue_core::handling::{OnExhausted, Retry};
use ensue_core::tasks::{check_no_task, check_priority};
use ensue_core::{GroupName, Invalid, key};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Handlers as they are bound, and code that waits to be bound by its name.
#[derive(Default)]
pub(crate) struct Registry {
    inner: Mutex<Inner>,
    /// Counts up when something has changed while the bus runs.
    changes: watch::Sender<u64>,
    /// The version of what the store keeps that this process serves.
    heard: AtomicU64,
    /// Counts up when something is bound.
    bindings: AtomicU64,
    /// The bindings whose groups are in the store.
    established: AtomicU64,
}

#[derive(Default)]
struct Inner {
    bound: Vec<Arc<Spec>>,
    by_name: HashMap<String, Registered>,
    collections: Vec<CollectionHandler>,
    started: bool,
}

impl Inner {
    fn collection(&self, handler: &GroupName) -> Option<&CollectionHandler> {
        self.collections.iter().find(|one| one.collection.handler() == *handler)
    }
}

/// What is bound, and the collections, as they were before a change.
pub(crate) struct Before {
    bound: Vec<Arc<Spec>>,
    collections: Vec<CollectionHandler>,
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
        if let Some(other) = inner.bound.iter().find(|other| other.key == spec.key) {
            return Err(taken(other));
        }
        inner.bound.push(Arc::new(spec));
        self.bindings.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// The number of bindings so far. Read it before [`bound`](Self::bound) and pass it to
    /// [`has_established`](Self::has_established).
    pub fn bindings(&self) -> u64 {
        self.bindings.load(Ordering::SeqCst)
    }

    /// The groups of the handlers that were bound by then are in the store.
    pub fn has_established(&self, bindings: u64) {
        self.established.store(bindings, Ordering::SeqCst);
    }

    /// Are the groups of all handlers in the store?
    pub fn is_established(&self) -> bool {
        self.established.load(Ordering::SeqCst) == self.bindings()
    }

    /// Takes these out and those in, at once, while the bus runs, and has these collections if any are told instead of those
    /// before; answers what was there before. Nothing is changed if a key is taken.
    pub fn change(
        &self,
        unbound: &[GroupName],
        bound: Vec<Spec>,
        collections: Option<Vec<CollectionHandler>>,
    ) -> Result<Before, Invalid> {
        let mut inner = self.lock();
        let mut changed = inner.bound.clone();
        changed.retain(|spec| spec.defined.is_some() || !unbound.contains(&spec.key));
        for spec in bound {
            if let Some(other) = changed.iter().find(|other| other.key == spec.key) {
                return Err(taken(other));
            }
            changed.push(Arc::new(spec));
        }
        let collections = collections.unwrap_or_else(|| inner.collections.clone());
        for (index, one) in collections.iter().enumerate() {
            one.job_options().check()?;
            check_priority(one.options.priority)?;
            let is_same = |other: &CollectionHandler| other.collection == one.collection;
            if collections[..index].iter().any(is_same) {
                let reason = format!("`{}` is there twice: choose another name", one.collection.dotted());
                return Err(Invalid::new("collection", reason));
            }
        }
        let before = Before {
            bound: std::mem::replace(&mut inner.bound, changed),
            collections: std::mem::replace(&mut inner.collections, collections),
        };
        self.bindings.fetch_add(1, Ordering::SeqCst);
        drop(inner);
        self.tell();
        Ok(before)
    }

    /// What the store keeps, instead of what it kept before: what is as it was stays. A key that this process binds is left to it, and
    /// answered.
    pub fn keep_defined(&self, defined: Vec<Spec>) -> Vec<GroupName> {
        let mut inner = self.lock();
        let (before, mut bound): (Vec<_>, Vec<_>) =
            std::mem::take(&mut inner.bound).into_iter().partition(|spec| spec.defined.is_some());
        let mut taken = Vec::new();
        for spec in defined {
            let same = before.iter().find(|there| there.key == spec.key && there.defined == spec.defined);
            match bound.iter().any(|other| other.key == spec.key) {
                true => taken.push(spec.key),
                false => bound.push(same.cloned().unwrap_or_else(|| Arc::new(spec))),
            }
        }
        inner.bound = bound;
        drop(inner);
        self.tell();
        taken
    }

    /// What is bound, and the collections, are as they were before.
    pub fn restore(&self, before: Before) {
        {
            let mut inner = self.lock();
            (inner.bound, inner.collections) = (before.bound, before.collections);
        }
        self.tell();
    }

    /// Changes how a handler is run; is it bound?
    pub fn set_limits(&self, key: &GroupName, limits: HandlerLimits) -> bool {
        let found = self.lock().bound.iter().find(|spec| spec.key == *key).cloned();
        if let Some(spec) = &found {
            spec.limits.set(limits);
            self.tell();
        }
        found.is_some()
    }

    /// A handler that is bound.
    pub fn find(&self, key: &GroupName) -> Option<Arc<Spec>> {
        self.lock().bound.iter().find(|spec| spec.key == *key).cloned()
    }

    /// Is a handler of this key, or below it, bound or registered here?
    pub fn has_under(&self, prefix: &GroupName) -> bool {
        let (inner, prefix) = (self.lock(), prefix.as_str());
        let is_below = |handler: &str| key::is_under(prefix, handler);
        inner.bound.iter().any(|spec| is_below(spec.key.as_str()))
            || inner.by_name.keys().any(|name| is_below(name))
            || inner.collections.iter().any(|one| is_below(one.collection.handler().as_str()))
    }

    /// Tells of what changes while the bus runs.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// This process serves what the store keeps as of this version.
    pub fn has_heard(&self, version: u64) {
        self.heard.store(version, Ordering::SeqCst);
    }

    /// Is this version news?
    pub fn is_news(&self, version: u64) -> bool {
        self.heard.load(Ordering::SeqCst) != version
    }

    fn tell(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Keeps code under a name.
    pub fn register(&self, name: &str, code: Arc<dyn ErasedHandler>, options: JobOptions) -> Result<(), Invalid> {
        check_no_task("name", &GroupName::parse("name", name)?)?;
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

    /// Why code of this name cannot be bound, and which can be.
    pub fn not_registered(&self, name: &str) -> Invalid {
        let inner = self.lock();
        let mut names: Vec<String> = inner.by_name.keys().map(|name| format!("`{name}`")).collect();
        names.sort_unstable();
        let reason = match names.pop() {
            None => format!(
                "names `{name}`, but no code is registered here: that is for an application that registers its own before the bus starts (`Ensue::register`, in a server `serve::run_with`)"
            ),
            Some(last) => {
                let names = if names.is_empty() { last } else { format!("{} or {last}", names.join(", ")) };
                format!(
                    "names `{name}`, which no code is registered under: write {names}, or register it before the bus starts"
                )
            }
        };
        Invalid::new("handlers", reason)
    }

    /// Is any code kept under a name, or for a collection?
    pub fn has_registered(&self) -> bool {
        let inner = self.lock();
        !inner.by_name.is_empty() || !inner.collections.is_empty()
    }

    /// The collections, as they were told.
    pub fn collections(&self) -> Vec<CollectionHandler> {
        self.lock().collections.clone()
    }

    /// The priority of the tasks that are jobs of this handler, if this process knows their collection.
    pub fn task_priority(&self, handler: &GroupName) -> Option<u64> {
        self.lock().collection(handler).map(|one| one.options.priority)
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
        let bound = inner.bound.iter().find(|spec| spec.key == *handler).map(|spec| spec.limits().retry.clone());
        let registered = || inner.by_name.get(handler.as_str()).map(|registered| registered.options.retry.clone());
        bound.or_else(registered).or_else(|| inner.collection(handler).map(|one| one.retry.clone()))
    }

    /// How often a job of a handler is attempted, and what happens then, if it is known here.
    pub fn job_defaults(&self, handler: &GroupName) -> Option<(u32, OnExhausted)> {
        let retry = self.job_retry(handler)?;
        let inner = self.lock();
        let bound = inner.bound.iter().find(|spec| spec.key == *handler).map(|spec| spec.limits().on_exhausted);
        let registered = || inner.by_name.get(handler.as_str()).map(|registered| registered.options.on_exhausted);
        let collected = || inner.collection(handler).map(|one| one.job_options().on_exhausted);
        let on_exhausted = bound.or_else(registered).or_else(collected)?;
        Some((retry.attempts_max(), on_exhausted))
    }

    /// How long a job of a handler that is pulled may be held, if it is known here.
    pub fn pull_timeout(&self, handler: &GroupName) -> Option<Duration> {
        let bound = self.find(handler).filter(|spec| spec.pull);
        let collected = || self.lock().collection(handler).filter(|one| one.is_pull())?.options.timeout;
        bound.and_then(|spec| spec.limits().timeout).or_else(collected)
    }

    /// Do workers elsewhere claim the tasks of this collection?
    pub fn is_pulled_collection(&self, handler: &GroupName) -> bool {
        self.lock().collection(handler).is_some_and(CollectionHandler::is_pull)
    }

    /// Is there one that is pulled and has a timeout?
    pub fn has_pull_timeouts(&self) -> bool {
        let inner = self.lock();
        inner.bound.iter().any(|spec| spec.pull && spec.limits().timeout.is_some())
            || inner.collections.iter().any(|one| one.is_pull() && one.options.timeout.is_some())
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
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn taken(other: &Spec) -> Invalid {
    let reason = match other.defined {
        None => format!("makes the key `{}`, which another handler has: choose another name", other.key),
        Some(_) => format!(
            "makes the key `{0}`, which a handler in the store has: choose another name, or delete that (`ensue handler delete {0}`)",
            other.key
        ),
    };
    Invalid::new("name", reason)
}

/// The places of those whose binding is a parent of this one's: for one event they go first.
pub(crate) fn parents_of(specs: &[Arc<Spec>], child: usize) -> Vec<usize> {
    let Some(topic) = &specs[child].topic else { return Vec::new() };
    let is_parent = |other: &Spec| {
        other.topic.as_ref().is_some_and(|parent| parent != topic && key::is_under(parent.as_str(), topic.as_str()))
    };
    (0..specs.len()).filter(|at| is_parent(&specs[*at])).collect()
}
