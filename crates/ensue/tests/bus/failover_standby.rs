//! H44 with real servers: the primary is killed while its asynchronous standby lags behind, and the standby is promoted.
//! Every event and job that the new primary has is handled, and schedules fire on it.

#![cfg(feature = "postgres")]

use crate::failover_consumers::until;
use ensue::groups::{Pull, Wants};
use ensue::jobs::{Completion, JobQuery};
use ensue::schedules::{Schedule, Target, Timing};
use ensue::{Context, Emit, Ensue, Event, EventId, Filter, GroupName, NewEvent, Read, Start, Topic};
use ensue_conformance::postgres::{PrivatePostgres, signal};
use jiff::SignedDuration;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

/// How many events are acknowledged and handled between the last that the standby gets and the end of the primary.
const LOST: usize = 60;
/// How many are acknowledged by the new primary before the next round: more than were lost.
const NEW: usize = 150;

/// How many times the primary is killed: `ENSUE_FAILOVERS`, or 2.
fn rounds() -> usize {
    std::env::var("ENSUE_FAILOVERS").map_or(2, |text| text.parse().expect("ENSUE_FAILOVERS is a number"))
}

fn name(text: &str) -> GroupName {
    GroupName::parse("name", text).unwrap()
}

/// Events, by whom they were handled.
#[derive(Clone, Default)]
struct Handled(Arc<Mutex<HashMap<&'static str, HashSet<EventId>>>>);

impl Handled {
    fn add(&self, by: &'static str, id: EventId) {
        self.0.lock().unwrap().entry(by).or_default().insert(id);
    }

    /// How many of these events were not handled.
    fn missing(&self, by: &'static str, ids: &[EventId]) -> usize {
        let handled = self.0.lock().unwrap();
        let handled = handled.get(by);
        ids.iter().filter(|id| !handled.is_some_and(|ids| ids.contains(*id))).count()
    }
}

/// Who handles events of the topic `work`.
const CONSUMERS: [&str; 3] = ["handler", "worker", "group"];

/// What runs all the time.
struct Scene {
    bus: Ensue,
    handled: Handled,
    /// Payloads of jobs that were run.
    ran: Arc<Mutex<HashSet<String>>>,
    acknowledged: Arc<Mutex<Vec<EventId>>>,
    /// Nothing more is published and sent.
    is_full: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Scene {
    async fn begin(url: &str) -> Self {
        let bus = Ensue::open(url).await.unwrap();
        let (handled, ran): (Handled, Arc<Mutex<HashSet<String>>>) = Default::default();
        for (topic, by) in [("work", "handler"), ("tick", "ticks")] {
            let noted = handled.clone();
            let handler = move |event: Event, _: Context| {
                noted.add(by, event.id);
                async { Ok(()) }
            };
            bus.on(topic).named(by).start(Start::Beginning).concurrency(16).handle(handler).unwrap();
        }
        bus.on("work").named("remote").start(Start::Beginning).pull().unwrap();
        let noted = ran.clone();
        let run = move |job: Event, _: Context| {
            noted.lock().unwrap().insert(job.payload.as_str().to_owned());
            async { Ok(()) }
        };
        bus.register("job", run).unwrap();
        bus.groups().subscribe("g", Wants::topic("work")).await.unwrap();
        let timing = Timing::every(SignedDuration::from_secs(1), None).unwrap();
        let topic = Target::Topic(Topic::parse("tick").unwrap());
        bus.schedule(Schedule::new(name("s"), timing, topic)).await.unwrap();
        let (acknowledged, is_full, stop) = Default::default();
        Self { bus, handled, ran, acknowledged, is_full, stop, tasks: Vec::new() }
    }

    /// Publishes, emits, and serves the workers' jobs and the group, until it is to stop.
    fn run(&mut self) {
        for publisher in 0..4 {
            let (bus, stop, acknowledged) = (self.bus.clone(), self.is_full.clone(), self.acknowledged.clone());
            self.tasks.push(tokio::spawn(async move {
                for n in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let event = NewEvent::new("work").object(format!("o{}", n % 40)).payload(&(publisher, n));
                    // An event of which nobody knows whether it is stored counts if it is in the log in the end.
                    if let Ok(appended) = bus.publish(event).await {
                        acknowledged.lock().unwrap().push(appended.id);
                    }
                    // All of it can be handled on a slow machine.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }));
        }
        let (bus, stop) = (self.bus.clone(), self.is_full.clone());
        self.tasks.push(tokio::spawn(async move {
            for n in 0.. {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                // As above.
                let _is_sent = bus.emit(Emit::to("job").object(format!("o{}", n % 3)).payload(&n)).await.is_ok();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }));
        let (bus, stop, handled) = (self.bus.clone(), self.stop.clone(), self.handled.clone());
        self.tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                if work(&bus, &handled).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }));
        let (bus, stop, handled) = (self.bus.clone(), self.stop.clone(), self.handled.clone());
        self.tasks.push(tokio::spawn(async move {
            let mut lease = None;
            while !stop.load(Ordering::SeqCst) {
                lease = match read(&bus, &handled, lease).await {
                    Ok(lease) => lease,
                    Err(_) => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        None
                    }
                };
            }
        }));
    }

    fn acknowledged(&self) -> Vec<EventId> {
        self.acknowledged.lock().unwrap().clone()
    }

    /// Waits until so many events more are acknowledged, and handled by all.
    async fn more(&self, count: usize) -> Vec<EventId> {
        let before = self.acknowledged().len();
        until("events are acknowledged", async || self.acknowledged().len() >= before + count).await;
        self.acknowledged().split_off(before)
    }

    async fn are_handled(&self, ids: &[EventId]) {
        for by in CONSUMERS {
            until(by, async || self.handled.missing(by, ids) == 0).await;
        }
    }

    /// The payloads of all jobs of the handler `job` that the store has.
    async fn jobs(&self) -> Vec<String> {
        let (mut payloads, mut after) = (Vec::new(), None);
        loop {
            let query = JobQuery { handler: Some(name("job")), after, ..JobQuery::default() };
            let page = self.bus.jobs(query, 1_000).await.unwrap();
            payloads.extend(page.jobs.iter().map(|job| job.payload.as_str().to_owned()));
            after = page.next;
            if after.is_none() {
                return payloads;
            }
        }
    }

    /// The events of a topic that the log has.
    async fn log(&self, topic: &str) -> Vec<EventId> {
        let filter = Filter { topic: Some(Topic::parse(topic).unwrap()), object: None };
        let (mut ids, mut after) = (Vec::new(), 0);
        loop {
            let page = self.bus.store().read(Read { after, limit: 1_000, filter: filter.clone() }).await.unwrap();
            ids.extend(page.events.iter().map(|event| event.id));
            if page.next == after {
                return ids;
            }
            after = page.next;
        }
    }
}

/// Takes jobs of the pull handler and finishes them.
async fn work(bus: &Ensue, handled: &Handled) -> Result<(), ensue::Error> {
    let (lease, mut done) = (Duration::from_secs(5), Vec::new());
    for claimed in bus.claim_jobs(vec![name("work.remote")], 100, lease, Duration::from_millis(200), "w").await? {
        handled.add("worker", claimed.job.cause.as_ref().expect("it is a delivery").id);
        done.push(Completion { claim: claimed.claim, result: None, events: Vec::new(), jobs: Vec::new() });
    }
    // One that is lost is claimed again.
    bus.complete_claims(done).await.map(drop)
}

/// Reads what is next for the group, and commits it under a lease that is kept.
async fn read(bus: &Ensue, handled: &Handled, under: Option<String>) -> Result<Option<String>, ensue::Error> {
    let pull = Pull { wait: Duration::from_millis(200), lease: Duration::from_secs(2), under, ..Pull::default() };
    let pulled = bus.groups().pull("g", pull).await?;
    let lease = pulled.lease.expect("it is no peek");
    pulled.events.iter().for_each(|one| handled.add("group", one.event.id));
    bus.groups().commit("g", &lease, Some(pulled.cursor), false).await?;
    Ok(Some(lease))
}

/// From now on the standby gets nothing more.
async fn hold_replication(primary: &PrivatePostgres) {
    let (client, connection) = tokio_postgres::connect(&primary.url(), NoTls).await.unwrap();
    let carried = tokio::spawn(connection);
    let senders = "SELECT pid FROM pg_stat_replication WHERE state = 'streaming'";
    until("the standby follows", async || !client.query(senders, &[]).await.unwrap().is_empty()).await;
    for row in client.query(senders, &[]).await.unwrap() {
        signal("STOP", row.get::<_, i32>(0) as u32);
    }
    carried.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_on_the_promoted_standby_is_handled() {
    let blocking = |work: &mut dyn FnMut() -> PrivatePostgres| tokio::task::block_in_place(work);
    let mut primary = blocking(&mut || PrivatePostgres::start_without_fsync().unwrap());
    let mut standby = blocking(&mut || primary.standby(None).unwrap());
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port(), standby.port());
    let mut scene = Scene::begin(&format!("postgres://ensue@{hosts}/postgres?schema=failover")).await;
    let running = scene.bus.start().await.unwrap();
    scene.run();
    let mut lost_in_all = 0;
    for round in 1..=rounds() {
        let before = scene.more(20).await;
        scene.are_handled(&before).await;
        hold_replication(&primary).await;
        // What is handled now is lost soon, with the cursors that were written of it.
        let lost = scene.more(LOST).await;
        scene.are_handled(&lost).await;
        let (killed, old_port) = (Instant::now(), primary.port());
        tokio::task::block_in_place(|| {
            primary.kill9().unwrap();
            standby.promote().unwrap();
        });
        let before = scene.acknowledged().len();
        until("the new primary acknowledges", async || scene.acknowledged().len() > before).await;
        let acknowledged_after = killed.elapsed();
        let new = scene.more(NEW).await;
        scene.are_handled(&new).await;
        let handled_after = killed.elapsed();
        let log: HashSet<EventId> = scene.log("work").await.into_iter().collect();
        let lost = lost.iter().filter(|id| !log.contains(id)).count();
        lost_in_all += lost;
        let ticks = scene.log("tick").await.len();
        until("the schedule fires on", async || scene.log("tick").await.len() > ticks).await;
        println!(
            "failover {round}: {lost} events lost; acknowledged again after {acknowledged_after:?}; {NEW} new events \
             handled by all after {handled_after:?}"
        );
        let next = blocking(&mut || standby.standby(Some(old_port)).unwrap());
        primary = std::mem::replace(&mut standby, next);
    }
    scene.is_full.store(true, Ordering::SeqCst);
    let log = scene.log("work").await;
    let ticks = scene.log("tick").await;
    for (by, ids) in CONSUMERS.map(|by| (by, &log)).into_iter().chain([("ticks", &ticks)]) {
        let missing = async || scene.handled.missing(by, ids);
        until(by, async || missing().await == 0).await;
    }
    until("jobs are run", async || {
        let ran = scene.ran.lock().unwrap().clone();
        scene.jobs().await.iter().all(|payload| ran.contains(payload))
    })
    .await;
    scene.stop.store(true, Ordering::SeqCst);
    for task in scene.tasks {
        task.await.unwrap();
    }
    running.shutdown(Duration::from_secs(60)).await.unwrap();
    assert!(lost_in_all > 0, "no failover lost anything: this shows nothing");
    println!("{} events and {} ticks in the log, {lost_in_all} lost", log.len(), ticks.len());
}
