//! Who sleeps is woken, who is awake costs nothing, and nobody falls asleep beside what they would miss.
//!
//! A wait that is not woken takes ten minutes: a test that ends was woken.

use crate::support::groups::{LEASE, name, open};
use crate::support::{Log, WAIT_MAX, connect, on};
use ensue_conformance::postgres::shared_url;
use ensue_core::jobs::{Claim, Held, Job, JobChange, JobEnd, JobSettled, NewJob, Steer};
use ensue_core::rules::{NewRule, RuleKind, Scope};
use ensue_core::store::{SharedStore, Wake};
use ensue_core::{Jobs, ObjectKey, Rules};
use ensue_stores::postgres::PostgresOptions;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls};

const LONG: Duration = Duration::from_secs(600);

/// How many processes have the lock of those who sleep.
const ASLEEP: &str = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
    WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.granted AND a.application_name = 'LOG' AND a.state = 'idle'";

/// Has this transaction published while nobody slept, so that it does not ring?
const FOUND_AWAKE: &str = "SELECT EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' \
    AND l.granted AND l.pid = pg_backend_pid())";

/// A process that looks, waits, looks again, as one that is started does; counts its looks.
struct Process {
    store: SharedStore,
    looks: Arc<std::sync::atomic::AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Process {
    async fn start(log: &Log) -> Self {
        let store = log.open().await;
        let (looking, looks) = (store.clone(), Arc::new(std::sync::atomic::AtomicU64::new(0)));
        let counted = looks.clone();
        let task = tokio::spawn(async move {
            let wake: Arc<dyn Wake> = looking.wake().expect("a bell");
            loop {
                let Ok(pulse) = looking.pulse(None).await else { return };
                if pulse.waiting {
                    looking.release_due(1_000).await.expect("a move");
                }
                counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                wake.wait(pulse.waiting, LONG).await;
            }
        });
        Self { store, looks, task }
    }

    fn looks(&self) -> u64 {
        self.looks.load(std::sync::atomic::Ordering::SeqCst)
    }

    async fn until_more_looks(&self, before: u64) {
        let begun = Instant::now();
        while self.looks() <= before {
            assert!(begun.elapsed() < WAIT_MAX, "nobody woke it");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn end(self) {
        self.task.abort();
        self.store.close().await;
    }
}

fn held(job: &Job) -> Held {
    Held { id: job.id, fence: job.fence }
}

async fn publisher() -> Client {
    connect(&shared_url()).await
}

async fn publish(log: &Log, client: &Client) {
    client.batch_execute(&format!("SELECT {}.publish('t')", log.schema)).await.unwrap();
}

#[tokio::test]
async fn a_publish_in_a_transaction_wakes_who_sleeps() {
    let log = Log::new().await;
    let process = Process::start(&log).await;
    let client = publisher().await;
    for n in 1..=10 {
        log.until(ASLEEP, 1).await;
        publish(&log, &client).await;
        log.until("SELECT count(*) FROM LOG.stored_events", n).await;
    }
    process.end().await;
}

/// H13: the connection that listens is lost; what was published meanwhile is found, and later rings are heard.
#[tokio::test]
async fn who_has_lost_the_connection_looks_and_listens_again() {
    let log = Log::new().await;
    let process = Process::start(&log).await;
    let client = publisher().await;
    for n in 1..=3 {
        log.until(ASLEEP, 1).await;
        log.end_sessions().await;
        publish(&log, &client).await;
        log.until("SELECT count(*) FROM LOG.stored_events", n).await;
    }
    process.end().await;
}

/// A publisher who found everybody awake does not ring: until its commit nobody may fall asleep.
#[tokio::test]
async fn nobody_falls_asleep_beside_a_publisher_who_counts_on_them() {
    let log = Log::new().await;
    log.open().await.close().await;
    let client = publisher().await;
    client.batch_execute(&format!("BEGIN; SELECT {}.publish('t')", log.schema)).await.unwrap();
    let process = Process::start(&log).await;
    process.until_more_looks(20).await;
    assert_eq!(log.number(ASLEEP).await, 0, "it looks again and again");
    client.batch_execute("COMMIT").await.unwrap();
    log.until("SELECT count(*) FROM LOG.stored_events", 1).await;
    log.until(ASLEEP, 1).await;
    process.end().await;
}

/// H22: rings that come fast end: the process looks by itself, and publishers find it awake.
#[tokio::test]
async fn under_load_nobody_rings() {
    let log = Log::new().await;
    let process = Process::start(&log).await;
    let client = publisher().await;
    log.until(ASLEEP, 1).await;
    let begun = Instant::now();
    let mut published = 0;
    loop {
        publish(&log, &client).await;
        published += 1;
        if log.number(ASLEEP).await == 0 {
            break;
        }
        assert!(begun.elapsed() < WAIT_MAX, "after {published} events in a row it still sleeps between them");
    }
    log.until(ASLEEP, 1).await;
    assert_eq!(log.number("SELECT count(*) FROM LOG.stored_events").await, published);
    process.end().await;
}

/// Of several processes one has the lock; all hear, and another takes it when that one is gone.
#[tokio::test]
async fn all_who_listen_are_woken_and_one_takes_over_from_the_other() {
    let log = Log::new().await;
    let (one, other) = (Process::start(&log).await, Process::start(&log).await);
    log.until(ASLEEP, 1).await;
    let client = publisher().await;
    let before = (one.looks(), other.looks());
    // Whoever has it is awake while it looks: ring until both were woken.
    let begun = Instant::now();
    while one.looks() == before.0 || other.looks() == before.1 {
        publish(&log, &client).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(begun.elapsed() < WAIT_MAX, "one of them was not woken");
    }
    one.end().await;
    let events = log.number("SELECT count(*) FROM LOG.stored_events").await;
    // The other hears with a later look that nobody sleeps.
    let begun = Instant::now();
    while log.number(ASLEEP).await == 0 {
        other.store.pulse(None).await.unwrap();
        other.store.wake().unwrap().ring();
        log.run(&format!("SELECT pg_notify('{}', '')", channel(&log).await)).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(begun.elapsed() < WAIT_MAX, "nobody takes over");
    }
    publish(&log, &client).await;
    log.until("SELECT count(*) FROM LOG.stored_events", events + 1).await;
    other.end().await;
}

/// The channel of this schema, as the function that rings has it.
async fn channel(log: &Log) -> String {
    let sql = format!(
        "SELECT substring(prosrc FROM 'ensue_[0-9a-f]{{16}}') FROM pg_proc WHERE oid = '{}.outbox_ring'::regproc",
        log.schema
    );
    log.admin.query_one(&sql, &[]).await.unwrap().get(0)
}

/// Somebody who hears every ring, and is not one of those who sleep.
struct Ear {
    client: Client,
    rings: mpsc::UnboundedReceiver<()>,
}

impl Ear {
    async fn on(log: &Log) -> Self {
        let (client, mut connection) = tokio_postgres::connect(&shared_url(), NoTls).await.unwrap();
        let (heard, rings) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(_) = message {
                    heard.send(()).unwrap();
                }
            }
        });
        client.batch_execute(&format!("LISTEN {}", channel(log).await)).await.unwrap();
        Self { client, rings }
    }

    /// How many have rung since it was asked last: what was committed before is delivered with the answer to a statement.
    async fn count(&mut self) -> usize {
        self.client.batch_execute("SELECT 1").await.unwrap();
        std::iter::from_fn(|| self.rings.try_recv().ok()).count()
    }
}

/// A process that is the only one that listens does not ring for what it writes itself, once it has heard so; for another it does.
#[tokio::test]
async fn who_is_alone_does_not_ring_for_itself() {
    let log = Log::new().await;
    let process = Process::start(&log).await;
    log.until(ASLEEP, 1).await;
    let mut ear = Ear::on(&log).await;
    let begun = Instant::now();
    loop {
        process.store.pulse(None).await.unwrap();
        // It sleeps, so that whoever rings at all rings now.
        log.until(ASLEEP, 1).await;
        ear.count().await;
        let before = process.looks();
        process.store.append(on("o")).await.unwrap();
        if ear.count().await == 0 {
            break;
        }
        process.until_more_looks(before).await;
        assert!(begun.elapsed() < WAIT_MAX, "it rings for itself");
    }
    for _ in 0..20 {
        process.store.append(on("o")).await.unwrap();
    }
    assert_eq!(ear.count().await, 0);
    let before = process.looks();
    let elsewhere = log.open().await;
    elsewhere.append(on("o")).await.unwrap();
    process.until_more_looks(before).await;
    elsewhere.close().await;
    process.end().await;
}

/// Who finds everybody awake does not ring: the one that looks by itself tells the others what it finds, jobs and events.
#[tokio::test]
async fn who_is_awake_tells_the_others_what_it_finds() {
    let log = Log::new().await;
    let process = Process::start(&log).await;
    log.until(ASLEEP, 1).await;
    // It listens, and does not look.
    let other = log.open().await;
    other.wake().unwrap().wait(false, LONG).await;
    let (client, mut ear) = (publisher().await, Ear::on(&log).await);
    for sent in ["enqueue('h')", "publish('t')"] {
        let begun = Instant::now();
        // Rings come fast, until it has given the lock back and a publisher has it.
        loop {
            publish(&log, &client).await;
            client.batch_execute(&format!("BEGIN; SELECT {}.{sent}", log.schema)).await.unwrap();
            if client.query_one(FOUND_AWAKE, &[]).await.unwrap().get(0) {
                break;
            }
            client.batch_execute("COMMIT").await.unwrap();
            assert!(begun.elapsed() < WAIT_MAX, "it sleeps between all of them");
        }
        // All is told of that was there before.
        while ear.count().await > 0 {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        client.batch_execute("COMMIT").await.unwrap();
        let begun = Instant::now();
        while ear.count().await == 0 {
            assert!(begun.elapsed() < WAIT_MAX, "nobody tells of {sent}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    process.end().await;
    other.close().await;
}

/// What it has written itself is no reason to look every few milliseconds for more.
#[tokio::test]
async fn who_is_alone_falls_asleep_beside_its_own_appends() {
    let log = Log::new().await;
    let store = log.open().await;
    let wake = store.wake().expect("a bell");
    let begun = Instant::now();
    while log.number(ASLEEP).await == 0 {
        assert!(begun.elapsed() < WAIT_MAX, "it stays awake");
        store.append(on("o")).await.unwrap();
        store.pulse(None).await.unwrap();
        wake.wait(true, Duration::from_millis(10)).await;
    }
    store.close().await;
}

/// A worker elsewhere waits for what somebody's end, retry or rule lets go; it was found with a look a second before.
#[tokio::test]
async fn what_is_let_go_is_rung_for() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let about = |object: &str| NewJob { object: Some(ObjectKey::stored(object)), ..NewJob::new(name("h")) };
    store.enqueue(["o", "o", "p", "p", "q", "q"].map(about).to_vec()).await.unwrap();
    let claim =
        Claim { handlers: vec![(name("h"), 9)], limit: 9, lease: LEASE, worker: "w".into(), ends_with_store: false };
    let jobs = store.claim(claim).await.unwrap();
    assert_eq!(jobs.len(), 3, "one of each object");
    let rule = NewRule {
        kind: RuleKind::Pause,
        scope: Scope::parse("handler:h").unwrap(),
        reason: None,
        author: "ada".into(),
        expires_at: None,
    };
    let over_sql = publisher().await;

    let process = Process::start(&log).await;
    let mut ear = Ear::on(&log).await;
    for act in ["settle", "settle over SQL", "set a rule", "lift it", "steer"] {
        // All is told of that was there before.
        while ear.count().await > 0 {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        log.until(ASLEEP, 1).await;
        let before = process.looks();
        match act {
            "settle" => {
                let end = JobEnd::Succeeded;
                let settled = store.settle_jobs(vec![JobChange::new(held(&jobs[0]), end)]).await.unwrap();
                assert!(matches!(settled[0], JobSettled::Done { .. }), "{settled:?}");
            }
            "settle over SQL" => {
                let (id, fence) = (jobs[1].id, jobs[1].fence);
                let complete = format!("SELECT {0}.complete_job('{id}', {0}.claim_text('{id}', {fence}))", log.schema);
                over_sql.batch_execute(&complete).await.unwrap();
            }
            "set a rule" => drop(store.set_rule(rule.clone()).await.unwrap()),
            "lift it" => drop(store.lift_rule(rule.kind, &rule.scope, "ada").await.unwrap()),
            _ => drop(store.steer(&[jobs[2].id], Steer::Cancel).await.unwrap()),
        }
        process.until_more_looks(before).await;
        assert!(ear.count().await > 0, "{act}");
    }
    process.end().await;
}
