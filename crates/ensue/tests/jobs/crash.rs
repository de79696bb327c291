//! Processes that run jobs are killed at any moment: what was acknowledged runs all the same, in the order of each object, and
//! a job that ends every process that runs it dies.
#![cfg(feature = "sqlite")]

use crate::support::{LONG, at_once, until, until_state, with};
use ensue::jobs::{JobQuery, JobState};
use ensue::{Context, Emit, Ensue, Event, JobOptions};
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const STORE: &str = "ENSUE_TEST_JOBS_STORE";
const EFFECTS: &str = "ENSUE_TEST_JOBS_EFFECTS";
const OBJECTS: u64 = 20;

async fn bus(store: &str, effects: &Path) -> Ensue {
    let bus = Ensue::open(store).await.unwrap();
    let file = Arc::new(OpenOptions::new().append(true).create(true).open(effects).unwrap());
    let handler = with(file, async |file: Arc<File>, job: Event, _: Context| {
        tokio::task::yield_now().await;
        // One write: a line is there, or it is not.
        (&*file)
            .write_all(format!("{} {}\n", job.object.as_ref().unwrap().as_str(), job.payload.as_str()).as_bytes())?;
        Ok(())
    });
    // A kill is no fault of the job: it has attempts enough for all of them.
    let options = JobOptions { retry: ensue::Retry::attempts(100), ..JobOptions::default() };
    bus.register_with("work", options, handler).unwrap();
    bus
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is started by the test below, and killed"]
async fn work_until_killed() {
    let (Ok(store), Ok(effects)) = (std::env::var(STORE), std::env::var(EFFECTS)) else { return };
    let bus = bus(&store, Path::new(&effects)).await;
    let _running = bus.start().await.unwrap();
    let mut number = std::env::var("ENSUE_TEST_JOBS_FROM").unwrap().parse::<u64>().unwrap();
    loop {
        let job = |n: u64| Emit::to("work").object(format!("o{}", n % OBJECTS)).payload(&n);
        bus.emit_all((number..number + 10).map(job).collect()).await.unwrap();
        number += 10;
        std::io::stdout().write_all(format!("sent {number}\n").as_bytes()).unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn child(name: &str, store: &str, effects: &Path, from: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--ignored", "--nocapture", "--test-threads", "1"])
        .env(STORE, store)
        .env(EFFECTS, effects)
        .env("ENSUE_TEST_JOBS_FROM", from.to_string())
        .stderr(Stdio::null());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_runs_in_order_although_its_process_is_killed() {
    let kills = std::env::var("ENSUE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let folder = tempfile::tempdir().unwrap();
    let (store, effects) = (folder.path().join("ensue.db"), folder.path().join("effects"));
    let store = store.to_str().unwrap();
    let mut acknowledged = 0;
    for _ in 0..kills {
        // What a killed call has stored unheard is sent again under other numbers: they only have to grow.
        let from = acknowledged + 100;
        let mut child =
            child("crash::work_until_killed", store, &effects, from).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let sent = lines.filter_map(|line| line.split("sent ").nth(1)?.trim().parse::<u64>().ok());
        acknowledged = sent.take(rand::random_range(3..20)).last().expect("it has sent something");
        // SIGKILL.
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let bus = bus(store, &effects).await;
    let running = bus.start().await.unwrap();
    let open = [JobState::Scheduled, JobState::Available, JobState::Running, JobState::Parked, JobState::Retrying];
    until("all are done", async || {
        bus.drain().await.unwrap();
        let counts = bus.store().job_counts().await.unwrap();
        (!counts.iter().any(|count| open.contains(&count.state))).then_some(())
    })
    .await;
    let text = std::fs::read_to_string(&effects).unwrap();
    let mut ran = HashSet::new();
    let (mut newest, mut repeats): (HashMap<&str, u64>, usize) = (HashMap::new(), 0);
    for line in text.lines() {
        let (object, number) = line.split_once(' ').unwrap();
        let number: u64 = number.parse().unwrap();
        if !ran.insert(number) {
            repeats += 1;
            continue;
        }
        let before = newest.insert(object, number);
        assert!(before < Some(number), "{object}: {number} came first after {before:?}");
    }
    let mut stored = 0;
    let mut query = JobQuery::default();
    loop {
        let page = bus.jobs(query.clone(), 1_000).await.unwrap();
        for job in &page.jobs {
            assert_eq!(job.state, JobState::Succeeded, "{job:?}");
            assert!(ran.contains(&job.payload.as_str().parse().unwrap()), "{} did not run", job.payload.as_str());
        }
        stored += page.jobs.len();
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    assert_eq!(stored, ran.len());
    // What was under way at a kill is run again: at most one of each object.
    assert!(repeats as u64 <= kills * OBJECTS, "{repeats} repeats after {kills} kills");
    println!("{stored} jobs, {kills} kills, {repeats} repeats");
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is started by the test below, and ends itself"]
async fn swallow_the_pill() {
    let Ok(store) = std::env::var(STORE) else { return };
    let bus = Ensue::open(&store).await.unwrap();
    bus.register_with("pill", at_once(3), async |job: Event, _: Context| {
        if job.payload.as_str() == "\"poison\"" {
            std::process::abort();
        }
        Ok(())
    })
    .unwrap();
    let running = bus.start().await.unwrap();
    bus.drain().await.unwrap();
    running.shutdown(LONG).await.unwrap();
}

/// H25: attempts are counted when a job is claimed.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_ends_every_process_that_runs_it_dies() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("ensue.db");
    let store = store.to_str().unwrap();
    let bus = Ensue::open(store).await.unwrap();
    let pill = bus.emit(Emit::to("pill").payload(&"poison").attempts_max(3)).await.unwrap().id;
    let others = bus.emit_all((0..20).map(|n| Emit::to("pill").payload(&n)).collect()).await.unwrap();
    bus.close().await;
    let run = || {
        let mut child = child("crash::swallow_the_pill", store, folder.path(), 0);
        child.stdout(Stdio::null()).status().unwrap().success()
    };
    let lives = (1..=10).find(|_| run()).expect("it ends at last");
    let bus = Ensue::open(store).await.unwrap();
    let dead = until_state(&bus, pill, JobState::Dead).await;
    assert_eq!((dead.attempts, dead.errors.len()), (3, 3));
    for other in others {
        assert_eq!(bus.job(other.id).await.unwrap().unwrap().state, JobState::Succeeded);
    }
    println!("dead after {lives} lives");
}
