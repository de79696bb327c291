//! H16: a worker is frozen past its lease and wakes up: whatever it says changes nothing, and its job was taken up elsewhere
//! soon after the lease had passed.
#![cfg(feature = "postgres")]

use crate::support::{LONG, sent};
use ensue::jobs::{JobLine, JobOutcome, JobState};
use ensue::{Emit, Ensue, GroupName, Level, NewEvent, Timestamp};
use ensue_conformance::postgres::fresh_schema;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const STORE: &str = "ENSUE_TEST_FREEZE_STORE";
const LEASE: Duration = Duration::from_millis(400);
/// What a machine with much else to do may need beside what is promised.
const SLACK: Duration = Duration::from_secs(2);

fn keys() -> Vec<GroupName> {
    vec![GroupName::stored("h")]
}

/// Claims a job, says so, and when it is told to go on tries everything that a worker can do with it.
#[tokio::test]
#[ignore = "it is started by the test below, and frozen"]
async fn claim_and_be_frozen() {
    let Ok(store) = std::env::var(STORE) else { return };
    let bus = Ensue::open(&store).await.unwrap();
    let say = |text: String| std::io::stdout().write_all(format!("{text}\n").as_bytes()).unwrap();
    let mut lines = std::io::stdin().lines();
    while let Some(Ok(_)) = lines.next() {
        let claimed = bus.claim_jobs(keys(), 1, LEASE, LONG, "frozen").await.unwrap().remove(0);
        say(format!("claimed {}", claimed.claim));
        // It stands still here, and is told to go on after another has taken the job.
        lines.next().unwrap().unwrap();
        let claim = claimed.claim;
        let line = JobLine { line: 0, attempt: 0, at: Timestamp::now(), level: Level::Info, message: "late".into() };
        let done = JobOutcome::Done { result: None, events: vec![NewEvent::new("late")], jobs: Vec::new() };
        let failed = JobOutcome::Failed { error: "late".into(), retry: true, after: None };
        let refused = [
            bus.renew_claim(&claim, LEASE).await.is_err(),
            bus.say_under_claim(&claim, vec![line]).await.is_err(),
            bus.settle_claim(&claim, JobOutcome::Snoozed(LEASE)).await.is_err(),
            bus.settle_claim(&claim, failed).await.is_err(),
            bus.settle_claim(&claim, done).await.is_err(),
        ];
        say(format!("refused {}", refused.iter().all(|refused| *refused)));
    }
}

fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_frozen_past_its_lease_changes_nothing() {
    let times = std::env::var("ENSUE_FREEZES").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let (url, _) = fresh_schema("freeze");
    let bus = Ensue::open(&url).await.unwrap();
    let running = bus.start().await.unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "freeze::claim_and_be_frozen", "--ignored", "--nocapture", "--test-threads", "1"])
        .env(STORE, &url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut next = |what: &str| said.find_map(|line| Some(line.split(what).nth(1)?.trim().to_owned())).unwrap();
    let mut soonest = Duration::MAX;
    for _ in 0..times {
        let id = sent(&bus, Emit::to("h").object("o")).await;
        stdin.write_all(b"claim\n").unwrap();
        next("claimed ");
        signal(child.id(), "-STOP");
        let frozen = Instant::now();
        let taken = bus.claim_jobs(keys(), 1, LONG, LONG, "other").await.unwrap();
        soonest = soonest.min(frozen.elapsed());
        assert_eq!((taken[0].job.id, taken[0].job.attempts), (id, 2));
        let before = bus.job(id).await.unwrap();
        stdin.write_all(b"go on\n").unwrap();
        signal(child.id(), "-CONT");
        assert_eq!(next("refused "), "true");
        assert_eq!(bus.job(id).await.unwrap(), before);
        assert!(bus.job_lines(id, 0, 10).await.unwrap().is_empty());
        let done = JobOutcome::Done { result: None, events: Vec::new(), jobs: Vec::new() };
        assert_eq!(bus.settle_claim(&taken[0].claim, done).await.unwrap().state, JobState::Succeeded);
    }
    assert_eq!(bus.store().bounds().await.unwrap().last, 0, "nothing late was published");
    // A machine with much else to do has not all the time.
    assert!(soonest <= LEASE + Duration::from_secs(1) + SLACK, "it was never taken up sooner than after {soonest:?}");
    drop(stdin);
    child.wait().unwrap();
    running.shutdown(LONG).await.unwrap();
}
