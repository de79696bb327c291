//! How do I open, publish and stream?

use crate::delivery::{Deliveries, check_read_ahead};
use crate::error::Error;
use crate::groups::WantingCache;
use crate::handlers::{Binding, ClaimKey, Handler, HandlerBuilder, Registry, States, Typed};
use crate::health::{Health, Work, WorkFailure};
use crate::jobs::{JobLoops, JobOptions, JobsHere};
use crate::newest::{self, NewestPage};
use crate::open::{self, Opened, Options};
use crate::rules::Gate;
use crate::schedules::SchedulesHere;
use crate::selection::{self, Selection};
use crate::stream::{self, EventStream};
use crate::subscription::Subscription;
use crate::tail::Tail;
use crate::upkeep::Running;
use crate::wanted::{Direct, Wanted};
use ensue_core::store::SharedStore;
use ensue_core::{Appended, NewEvent, Payload, Seq, Store};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use uuid::Uuid;

/// A log of events and everything that follows from it. Cheap to clone: all clones are the same bus.
#[derive(Clone)]
pub struct Ensue {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub opened: Opened,
    pub options: Options,
    /// The newest `seq` this process has written: a doorbell for the tail. A lost ring costs latency, never an event.
    pub bell: watch::Sender<Seq>,
    /// Rung when an event was delayed, which may be due before the one the timer waits for.
    pub delayed: Notify,
    /// When the next delayed event is due, as it was last heard.
    pub due: watch::Sender<Option<Instant>>,
    pub tail: Arc<Tail>,
    /// What this process is called among those that share the store.
    pub member: Uuid,
    pub handlers: Registry,
    /// Held by who changes what is bound while the bus runs.
    pub rebinding: tokio::sync::Mutex<()>,
    pub states: Arc<States>,
    /// What runs the handlers, while the bus is started.
    pub deliveries: Mutex<Option<Arc<Deliveries>>>,
    /// What runs jobs, while the bus is started.
    pub job_loops: Mutex<Option<Arc<JobLoops>>>,
    /// See [`Options::read_ahead`].
    pub read_ahead: Arc<AtomicUsize>,
    /// What is known of jobs in this process.
    pub jobs: JobsHere,
    /// What is known of schedules in this process.
    pub schedules: SchedulesHere,
    /// Which work on the store fails.
    pub health: Arc<Health>,
    /// The rules that this process goes by.
    pub gate: Arc<Gate>,
    /// Who wants what, of the groups that are read from outside.
    pub wanting: WantingCache,
}

impl Ensue {
    /// Opens a store by its address: a path or `sqlite:PATH`, `sqlite::memory:`, or `postgres://…[?schema=ensue]`
    /// (feature `postgres`). It is made if it is not there.
    pub async fn open(url: &str) -> Result<Self, Error> {
        Self::open_with(url, Options::default()).await
    }

    /// Opens a store with options.
    pub async fn open_with(url: &str, options: Options) -> Result<Self, Error> {
        Ok(Self::new(open::open(url, &options).await?, options))
    }

    /// A bus whose events live as long as the process.
    #[cfg(feature = "sqlite")]
    pub async fn memory() -> Result<Self, Error> {
        Self::open("sqlite::memory:").await
    }

    /// A bus on an engine of one's own.
    pub fn with_store(store: impl Store) -> Self {
        let opened = Opened {
            store: Arc::new(store),
            #[cfg(feature = "sqlite")]
            sqlite: None,
            #[cfg(feature = "postgres")]
            postgres: None,
        };
        Self::new(opened, Options::default())
    }

    fn new(opened: Opened, options: Options) -> Self {
        let bell = watch::Sender::new(0);
        let health = Arc::<Health>::default();
        let tail = Arc::new(Tail::new(opened.store.clone(), bell.subscribe(), health.clone()));
        let (delayed, due, deliveries) = (Notify::new(), watch::Sender::new(None), Mutex::new(None));
        let (handlers, states, wanting) = (Registry::default(), Arc::<States>::default(), WantingCache::default());
        #[cfg(feature = "postgres")]
        if let Some(store) = &opened.postgres {
            states.put(crate::handlers::StoreHere(store.clone()));
        }
        let read_ahead = Arc::new(AtomicUsize::new(options.read_ahead));
        let member = ensue_core::positions::member_id(rand::random());
        Self {
            inner: Arc::new(Inner {
                opened,
                options,
                bell,
                delayed,
                due,
                tail,
                member,
                handlers,
                rebinding: tokio::sync::Mutex::default(),
                states,
                deliveries,
                job_loops: Mutex::new(None),
                read_ahead,
                jobs: JobsHere::default(),
                schedules: SchedulesHere::default(),
                health,
                gate: Arc::default(),
                wanting,
            }),
        }
    }

    /// Publishes one event: answered when it is on disk.
    pub async fn publish(&self, event: NewEvent) -> Result<Appended, Error> {
        let entry = event.check()?;
        Ok(self.append(vec![entry]).await?[0])
    }

    /// Publishes several events at once, all or none, with consecutive `seq`s.
    pub async fn publish_all(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, Error> {
        self.append(NewEvent::check_all(events)?).await
    }

    pub(crate) async fn append(&self, entries: Vec<ensue_core::Entry>) -> Result<Vec<Appended>, Error> {
        self.establish_bound().await?;
        self.check_recipients(&entries).await?;
        let call = self.inner.opened.store.append(entries);
        let answers = self.inner.health.watch(Work::Publish, call).await?;
        self.inner.announce(&answers);
        Ok(answers)
    }

    /// The engine, with every verb of the port: reading, finding, cancelling, trimming.
    pub fn store(&self) -> &SharedStore {
        &self.inner.opened.store
    }

    /// Work on the store that has failed for seconds: the one that fails for longest.
    pub fn failing(&self) -> Option<WorkFailure> {
        self.inner.health.failing()
    }

    /// Follows the log: history first if asked for, then live, without a gap or a double. Fire and forget: nothing
    /// is remembered of who has read what.
    pub async fn stream(&self, subscription: Subscription) -> Result<EventStream, Error> {
        let (wanted, start) = subscription.check()?;
        let address = match wanted.direct {
            Direct::To(id) => Some(self.address(id).await?),
            Direct::Exclude | Direct::Include => None,
        };
        Ok(stream::open(self.store().clone(), self.inner.tail.clone(), wanted, address, start).await?)
    }

    /// Reads a page of the log: at most `limit` events after `after` that are wanted. It looks at a bounded part of the log,
    /// so that a page may be empty although more would follow: go on after its `next`, until that stays where it is.
    pub async fn read(&self, after: Seq, limit: usize, wanted: &Wanted) -> Result<Selection, Error> {
        Ok(selection::read(self.store(), after, limit, wanted).await?)
    }

    /// Reads a page of the log, newest first: at most `limit` wanted events after `after` and before `before` (none: from
    /// the end). It looks at a bounded part of the log, so a page may be empty although older events would follow: continue
    /// with its `next` as `before`, until that is none.
    pub async fn read_newest(
        &self,
        before: Option<Seq>,
        after: Seq,
        limit: usize,
        wanted: &Wanted,
    ) -> Result<NewestPage, Error> {
        Ok(newest::read(self.store(), before, after, limit, wanted).await?)
    }

    /// Begins to bind a handler: to a dotted key, with everything below it, or to what a [`Subscription`] wants.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ensue::{Context, Ensue, Event, HandlerError, NewEvent, Retry};
    ///
    /// async fn index(event: Event, cx: Context) -> Result<(), HandlerError> {
    ///     cx.publish(NewEvent::new("record.indexed").object("record:1"))?; // commits with the note that it is done
    ///     Ok(())
    /// }
    ///
    /// let bus = Ensue::memory().await?;
    /// bus.on("record.published").named("index").retry(Retry::attempts(5)).handle(index)?;
    /// let running = bus.start().await?;
    /// bus.publish(NewEvent::new("record.published").object("record:1")).await?;
    /// bus.drain().await?;
    /// assert_eq!(bus.store().bounds().await?.last, 2);
    /// # running.shutdown(std::time::Duration::from_secs(5)).await?;
    /// # Ok(()) }
    /// ```
    pub fn on(&self, binding: impl Into<Binding>) -> HandlerBuilder {
        HandlerBuilder::new(self.clone(), binding.into())
    }

    /// Keeps code under a dotted name, to be bound by it later, as from a config file.
    ///
    /// Jobs that are sent to this name are run by it; see [`Emit`](crate::Emit).
    pub fn register<P: Payload>(&self, name: &str, handler: impl Handler<P>) -> Result<(), Error> {
        self.register_with(name, JobOptions::default(), handler)
    }

    /// Keeps code under a dotted name, and says how jobs that are sent to it are run.
    pub fn register_with<P: Payload>(
        &self,
        name: &str,
        options: JobOptions,
        handler: impl Handler<P>,
    ) -> Result<(), Error> {
        Ok(self.inner.handlers.register(name, Arc::new(Typed::new(handler)), options)?)
    }

    /// Gives handlers a value that they share, found by its type: see [`Context::state`](crate::Context::state).
    pub fn state<T: Send + Sync + 'static>(&self, value: T) {
        self.inner.states.put(value);
    }

    /// Starts everything that follows from events: handlers, delayed events that are due, and the forgetting of old ones.
    /// All handlers exist before anything is delivered, and a handler gets what this process publishes between its binding
    /// and the start, too. Every process that is to run handlers calls this, once (on
    /// Postgres several may); one that only publishes or reads need not.
    pub async fn start(&self) -> Result<Running, Error> {
        self.store().bounds().await?;
        self.inner.handlers.start()?;
        match self.start_loops().await {
            Ok((deliveries, jobs)) => {
                *self.inner.deliveries() = Some(deliveries.clone());
                *self.inner.job_loops() = Some(jobs.clone());
                Ok(Running::start(self.clone(), deliveries, jobs))
            }
            Err(error) => {
                self.inner.handlers.stop();
                Err(error)
            }
        }
    }

    async fn start_loops(&self) -> Result<(Arc<Deliveries>, Arc<JobLoops>), Error> {
        let _turn = self.inner.rebinding.lock().await;
        // Before anything can start.
        self.inner.states.put(ClaimKey(self.store().store_key().await?));
        self.take_over_rules().await?;
        let version = self.look_at_defined().await?;
        self.inner.handlers.has_heard(version);
        let deliveries = Arc::new(Deliveries::start(self).await?);
        let jobs = JobLoops::start(self, deliveries.clone());
        Ok((deliveries, Arc::new(jobs)))
    }

    /// How many events each handler of this process holds in memory that are not done: 1,024 by default, at most 16,384.
    /// More let more objects wait while others run; one object holds at most a sixteenth. A number below a handler's
    /// `concurrency` limits how many run at once. May be changed while the bus runs.
    pub fn set_read_ahead(&self, events: usize) -> Result<(), Error> {
        self.inner.read_ahead.store(check_read_ahead(events)?, Ordering::Relaxed);
        Ok(())
    }

    /// Finishes what was accepted and lets go of the store.
    pub async fn close(&self) {
        self.store().close().await;
        self.inner.schedules.close();
    }

    pub(crate) fn shared(&self) -> Arc<Inner> {
        self.inner.clone()
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

impl Inner {
    pub fn deliveries(&self) -> MutexGuard<'_, Option<Arc<Deliveries>>> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn job_loops(&self) -> MutexGuard<'_, Option<Arc<JobLoops>>> {
        self.job_loops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes who waits for these events.
    pub fn announce(&self, answers: &[Appended]) {
        if let Some(last) = answers.iter().filter_map(|answer| answer.seq).max() {
            self.ring(last);
        }
        if answers.iter().any(|answer| answer.seq.is_none()) {
            self.delayed.notify_one();
        }
    }

    /// Wakes the tail.
    pub fn ring(&self, last: Seq) {
        self.bell.send_modify(|rung_to| *rung_to = last.max(*rung_to));
    }
}
