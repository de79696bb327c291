//! Programs at work: everything that a store is used for, at once, and a look at the end whether anything was lost, doubled or reordered.

use super::groups::{Engine, LEASE, change, held, name, process, wish};
use super::session::Session;
use super::{Log, whole_log};
use ensue_conformance::suite::checked;
use ensue_core::jobs::{Claim, Held, JobChange, JobEnd, JobSettled, NewJob};
use ensue_core::positions::{LaneChange, LaneKey, Settled};
use ensue_core::store::{Read, SharedStore};
use ensue_core::{Appended, Filter, Jobs, Json, NewEvent, ObjectKey, Positions, Seq, Store, StoreError};
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::error::SqlState;

/// Far longer than any kind of work takes, also on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(180);
/// How many rounds of each kind of work are some.
const SOME: usize = 25;

/// What they share.
#[derive(Clone)]
struct Work {
    /// The programs; each call is made by the next.
    engines: Arc<Mutex<Vec<Engine>>>,
    /// How many rounds each kind of work has made.
    rounds: Arc<[AtomicUsize; 4]>,
    /// Nothing more is begun.
    stop: Arc<AtomicBool>,
    /// And all that was begun is done.
    stopped: Arc<AtomicBool>,
    /// And is in the log.
    released: Arc<AtomicBool>,
    /// A publishing task has panicked.
    panicked: Arc<AtomicBool>,
}

/// Records a panic of the task that drops it.
struct Alarm(Work);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.panicked.store(true, Ordering::SeqCst);
        }
    }
}

impl Work {
    fn engine(&self, n: usize) -> Engine {
        let engines = self.engines.lock().unwrap();
        engines[n % engines.len()].clone()
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn did(&self, kind: usize) {
        self.rounds[kind].fetch_add(1, Ordering::SeqCst);
    }
}

pub struct Load {
    work: Work,
    /// Each answers what it has published: whatever is in the log as often, and in this order, is right.
    publishing: JoinSet<Vec<String>>,
    releasing: JoinHandle<()>,
    handling: JoinHandle<Vec<Seq>>,
}

impl Load {
    /// Begins. The group `g` has one slot.
    pub async fn begin(log: &Log, engine: &Engine) -> Self {
        let engines = Arc::new(Mutex::new(vec![engine.clone()]));
        let work = Work {
            engines,
            rounds: Arc::default(),
            stop: Arc::default(),
            stopped: Arc::default(),
            released: Arc::default(),
            panicked: Arc::default(),
        };
        let mut publishing = JoinSet::new();
        for n in 0..3 {
            publishing.spawn(append(work.clone(), n));
        }
        publishing.spawn(publish_in_sql(work.clone(), Session::of(log).await));
        publishing.spawn(run_jobs(work.clone()));
        let releasing = tokio::spawn(release(work.clone()));
        let handling = tokio::spawn(handle(work.clone(), engine.clone()));
        Self { work, publishing, releasing, handling }
    }

    /// Another program takes part.
    pub fn another(&self, engine: Engine) {
        self.work.engines.lock().unwrap().push(engine);
    }

    /// Waits until each kind of work has made some rounds more.
    pub async fn until_more(&self) {
        let so_far = || self.work.rounds.iter().map(|rounds| rounds.load(Ordering::SeqCst));
        let enough: Vec<_> = so_far().map(|rounds| rounds + SOME).collect();
        let begun = Instant::now();
        while so_far().zip(&enough).any(|(rounds, enough)| rounds < *enough) {
            assert!(!self.releasing.is_finished() && !self.handling.is_finished(), "somebody has ended");
            let rounds: Vec<_> = so_far().collect();
            assert!(begun.elapsed() < WAIT_MAX, "a task makes no rounds: {rounds:?}, wanted {enough:?}");
            assert!(!self.work.panicked.load(Ordering::SeqCst), "a publishing task has panicked");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Ends, and looks at what there is.
    pub async fn end_and_check(self, engine: &Engine) {
        self.work.stop.store(true, Ordering::SeqCst);
        let published = self.publishing.join_all().await;
        self.work.stopped.store(true, Ordering::SeqCst);
        self.releasing.await.expect("who releases");
        self.work.released.store(true, Ordering::SeqCst);
        let seen = self.handling.await.expect("who handles");
        let store: SharedStore = engine.clone();
        let log = whole_log(&store).await;
        let mut places: BTreeMap<&str, Vec<Seq>> = BTreeMap::new();
        log.iter().for_each(|event| places.entry(event.payload.as_str()).or_default().push(event.seq));
        for list in &published {
            let at: Vec<Seq> = list
                .iter()
                .map(|payload| match places.get(payload.as_str()).map(Vec::as_slice) {
                    Some([seq]) => *seq,
                    other => panic!("{payload} is at {other:?}"),
                })
                .collect();
            assert!(at.is_sorted(), "in the order in which it was published: {at:?}");
        }
        let delayed = log.iter().filter(|event| event.topic.as_str() == "delayed").count();
        assert!(delayed > 0);
        let known = published.iter().map(Vec::len).sum::<usize>() + delayed;
        assert_eq!(log.len(), known, "nothing else is there");
        assert_eq!(seen, log.iter().map(|event| event.seq).collect::<Vec<_>>(), "each was handled once, in order");
    }
}

/// Appends one event. While an upgrade holds the lock of the log for longer than an append waits,
/// the append is refused as unavailable, and nothing is stored.
async fn append_when_free(engine: &Engine, event: impl Fn() -> NewEvent) -> Appended {
    loop {
        match engine.append(checked(vec![event()])).await {
            Ok(appended) => return appended[0],
            Err(StoreError::Unavailable(why)) => eprintln!("an append is repeated: {why}"),
            Err(error) => panic!("an append during an upgrade: {error:?}"),
        }
    }
}

/// Appends under keys, some of them twice, and delays some.
async fn append(work: Work, n: usize) -> Vec<String> {
    let _alarm = Alarm(work.clone());
    let mut published = Vec::new();
    for i in 0.. {
        if work.is_over() {
            break;
        }
        let engine = work.engine(i);
        let payload = format!(r#"["append",{n},{i}]"#);
        let event = || NewEvent::new("t").object(format!("o{n}")).payload_json(&payload).key(format!("{n}-{i}"));
        let first = append_when_free(&engine, event).await;
        if i % 5 == 0 {
            let again = append_when_free(&work.engine(i + 1), event).await;
            assert_eq!((again.id, again.seq, again.repeated), (first.id, first.seq, true));
            let soon = engine.now().await.expect("the time") + SignedDuration::from_millis(20);
            let payload = format!(r#"["delayed",{n},{i}]"#);
            let late = || NewEvent::new("delayed").payload_json(&payload).not_before(soon);
            append_when_free(&engine, late).await;
        }
        published.push(payload);
        work.did(0);
    }
    published
}

/// Publishes in transactions of its own, and takes some back.
async fn publish_in_sql(work: Work, session: Session) -> Vec<String> {
    let _alarm = Alarm(work.clone());
    let mut published = Vec::new();
    for i in 0.. {
        if work.is_over() {
            break;
        }
        let end = if i % 5 == 0 { "ROLLBACK" } else { "COMMIT" };
        let payload = format!(r#"["sql",{i}]"#);
        let sql = format!("BEGIN; SELECT LOG.publish('sql', '{payload}', object => 's'); {end}");
        // The server may choose this transaction, and not the upgrade, to end a deadlock.
        while let Err(error) = session.run(&sql).await {
            assert_eq!(error.code(), Some(&SqlState::T_R_DEADLOCK_DETECTED), "a transaction: {error:?}");
            session.run("ROLLBACK").await.expect("a rollback");
        }
        if end == "COMMIT" {
            published.push(payload);
        }
        work.did(1);
    }
    published
}

/// Sends jobs and runs them; each says so in the log.
async fn run_jobs(work: Work) -> Vec<String> {
    let _alarm = Alarm(work.clone());
    let (mut sent, mut ran) = (0, Vec::new());
    for i in 0.. {
        let engine = work.engine(i);
        if !work.is_over() {
            let job = NewJob { payload: Json::stored(sent.to_string()), ..NewJob::new(name("work")) };
            sent += engine.enqueue(vec![job]).await.expect("a job during an upgrade").len();
        }
        let handlers = vec![(name("work"), 9)];
        let claim = Claim { handlers, limit: 9, lease: LEASE, worker: "w".into(), ends_with_store: false };
        let taken = engine.claim(claim).await.expect("a claim during an upgrade");
        for job in &taken {
            let payload = format!(r#"["job",{}]"#, job.payload.as_str());
            let mut end = JobChange::new(Held { id: job.id, fence: job.fence }, JobEnd::Succeeded);
            end.events = checked(vec![NewEvent::new("done").object("jobs").payload_json(&payload)]);
            let settled = engine.settle_jobs(vec![end]).await.expect("an end during an upgrade");
            assert!(matches!(settled[..], [JobSettled::Done { .. }]), "{settled:?}");
            ran.push(payload);
        }
        work.did(2);
        if work.is_over() && ran.len() == sent {
            break;
        }
    }
    ran
}

/// Lets delayed events in, and moves what waits in the outbox.
async fn release(work: Work) {
    for i in 0.. {
        let engine = work.engine(i);
        let is_over = work.stopped.load(Ordering::SeqCst);
        let released = engine.release_due(100).await.expect("a release during an upgrade");
        if is_over && released.count == 0 && engine.pending_count().await.expect("a count") == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Handles every event: moves the cursor, and now and then has a lane of its own for an object. Answers what it has seen.
async fn handle(work: Work, engine: Engine) -> Vec<Seq> {
    let acquired = engine.acquire(wish("g", process(1))).await.expect("slots").expect("a group");
    let (fence, mut cursor) = (acquired.slots[0].fence, acquired.slots[0].cursor);
    let mut seen = Vec::new();
    loop {
        let is_over = work.released.load(Ordering::SeqCst);
        let read = Read { after: cursor, limit: 50, filter: Filter::default() };
        let page = engine.read(read).await.expect("a page during an upgrade");
        seen.extend(page.events.iter().map(|event| event.seq));
        if page.next > cursor {
            cursor = page.next;
            let mut settlement = change("g", 0, 1, fence);
            settlement.cursor = Some(cursor);
            settlement.lanes =
                vec![LaneChange::Put(held("o", cursor)), LaneChange::Remove(LaneKey::Object(ObjectKey::stored("o")))];
            let settled = engine.settle(vec![settlement]).await.expect("a settlement during an upgrade");
            assert_eq!(settled, [Settled::Done(Vec::new())]);
            engine.renew(process(1).id, LEASE).await.expect("a renewal during an upgrade").expect("a member");
            work.did(3);
        } else if is_over {
            return seen;
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
