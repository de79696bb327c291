//! kill -9 while handlers publish and emit: what an event became is there once, and in order for
//! each object.
//!
//! The process that is killed is this test's own program, started again. No worker runs the jobs,
//! so that each one that was ever sent can be counted.
#![cfg(feature = "sqlite")]

use crate::support::{LONG, name, until};
use ensue::jobs::JobQuery;
use ensue::{Context, Emit, Ensue, Event, Filter, HandlerError, NewEvent, Read, Retry, Seq, Start};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

const STORE: &str = "ENSUE_TEST_ONCE_STORE";
const OBJECTS: u32 = 20;
const PAGE: usize = 1_000;

/// A pull handler, and one that publishes and emits for two of three events.
async fn bus(store: &str) -> Ensue {
    let bus = Ensue::open(store).await.unwrap();
    // The busy object is read from the log.
    bus.set_read_ahead(64).unwrap();
    bus.on("work").named("remote").start(Start::Beginning).concurrency(16).pull().unwrap();
    bus.on("work")
        .named("echo")
        .start(Start::Beginning)
        .concurrency(16)
        .retry(Retry::attempts(1_000_000).first(Duration::from_millis(5)).max(Duration::from_millis(20)))
        .handle(|event: Event, cx: Context| async move {
            if rand::random_range(0..4) == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            if rand::random_range(0..20) == 0 {
                return Err(HandlerError::failed("by chance"));
            }
            if event.seq % 3 != 0 {
                let object = event.object.as_ref().unwrap().to_string();
                cx.publish(NewEvent::new("echo").object(&object).payload(&event.seq))?;
                cx.emit(Emit::to("sink").object(&object).payload(&event.seq))?;
            }
            Ok::<(), HandlerError>(())
        })
        .unwrap();
    bus
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is started by the tests below, and killed"]
async fn handle_until_killed() {
    let Ok(store) = std::env::var(STORE) else { return };
    let bus = bus(&store).await;
    let _running = bus.start().await.unwrap();
    loop {
        let event = |object: u32| NewEvent::new("work.done").object(format!("o{object}"));
        let events = (0..10).map(|n| event(if n < 3 { 0 } else { rand::random_range(0..OBJECTS) }));
        bus.publish_all(events.collect()).await.unwrap();
        std::io::stdout().write_all(b"stored\n").unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn work_and_kill(store: &str, batches: usize) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "crash_once::handle_until_killed", "--ignored", "--nocapture", "--test-threads", "1"])
        .env(STORE, store)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let stored = lines.map_while(Result::ok).filter(|line| line.contains("stored")).take(batches).count();
    assert_eq!(stored, batches, "it ended before it was killed");
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The events of the log: their topic, object, payload and place.
async fn log_of(bus: &Ensue) -> Vec<(String, String, String, Seq)> {
    let (mut log, mut after) = (Vec::new(), 0);
    loop {
        let page = bus.store().read(Read { after, limit: PAGE, filter: Filter::default() }).await.unwrap();
        if page.next == after {
            return log;
        }
        after = page.next;
        log.extend(page.events.into_iter().map(|event| {
            let object = event.object.map(|object| object.to_string()).unwrap_or_default();
            (event.topic.to_string(), object, event.payload.as_str().to_owned(), event.seq)
        }));
    }
}

/// The jobs that were sent to a handler, in their order: their object and the seq of their event.
async fn jobs_of(bus: &Ensue, handler: &str) -> Vec<(String, Seq)> {
    let (mut jobs, mut after) = (Vec::new(), None);
    loop {
        let query = JobQuery { handler: Some(name(handler)), after, ..JobQuery::default() };
        let page = bus.store().jobs(query, PAGE).await.unwrap();
        jobs.extend(page.jobs);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    jobs.sort_by_key(|job| job.turn);
    let row = |job: ensue::jobs::Job| {
        let object = job.object.map(|object| object.to_string()).unwrap_or_default();
        let seq = job.cause.map_or_else(|| job.payload.as_str().parse().unwrap(), |cause| cause.seq);
        (object, seq)
    };
    jobs.into_iter().map(row).collect()
}

/// Is each there once, and those of an object in order?
fn check(what: &str, wanted: &[(String, Seq)], found: &[(String, Seq)]) {
    let by_object = |all: &[(String, Seq)]| {
        let mut objects: HashMap<String, Vec<Seq>> = HashMap::new();
        all.iter().for_each(|(object, seq)| objects.entry(object.clone()).or_default().push(*seq));
        objects
    };
    let (wanted, found) = (by_object(wanted), by_object(found));
    for (object, wanted) in wanted {
        let found = found.get(&object).cloned().unwrap_or_default();
        let twice = found.iter().filter(|seq| found.iter().filter(|other| other == seq).count() > 1).count();
        assert_eq!(found, wanted, "{what} of {object}: {twice} of {} are there more than once", found.len());
    }
}

async fn becomes_one_of_each(store: &str, kills: usize) {
    for kill in 0..kills {
        work_and_kill(store, 20 + 7 * (kill % 5));
    }
    let bus = bus(store).await;
    let running = bus.start().await.unwrap();
    until("what is left is not handled", async || {
        bus.drain().await.unwrap();
        let last = bus.store().bounds().await.unwrap().last;
        bus.store().groups().await.unwrap().iter().all(|group| group.lanes == 0 && group.cursor() == last)
    })
    .await;
    running.shutdown(LONG).await.unwrap();
    let log = log_of(&bus).await;
    let work = log.iter().filter(|(topic, ..)| topic == "work.done").map(|(_, object, _, seq)| (object.clone(), *seq));
    let work: Vec<(String, Seq)> = work.collect();
    let echoed: Vec<(String, Seq)> = work.iter().filter(|(_, seq)| seq % 3 != 0).cloned().collect();
    let echoes = log.iter().filter(|(topic, ..)| topic == "echo");
    let echoes: Vec<_> = echoes.map(|(_, object, seq, _)| (object.clone(), seq.parse().unwrap())).collect();
    check("jobs", &work, &jobs_of(&bus, "work.remote").await);
    check("published events", &echoed, &echoes);
    check("emitted jobs", &echoed, &jobs_of(&bus, "sink").await);
    bus.close().await;
    println!("{kills} kills, {} events", work.len());
}

/// H45: an event that became a job, or that published something, does so once, whenever the process
/// is killed.
#[tokio::test(flavor = "multi_thread")]
async fn kill_makes_no_second_job_or_event_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    becomes_one_of_each(folder.path().join("log.db").to_str().unwrap(), 10).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn kill_makes_no_second_job_or_event_on_postgres() {
    let (url, _) = ensue_conformance::postgres::fresh_schema("once");
    becomes_one_of_each(&url, 4).await;
}
