//! Each occurrence of a schedule is exactly one event and one job, although the server is killed around its fire times (H20).

use crate::cli_support::{PATIENCE, Server, ensue};
use ensue::jobs::JobQuery;
use ensue::{Ensue, Read, Timestamp};
use ensue_conformance::postgres::PrivatePostgres;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How many times to kill: `ENSUE_SCHEDULE_KILLS`, or 10.
fn kills() -> usize {
    std::env::var("ENSUE_SCHEDULE_KILLS").map_or(10, |text| text.parse().expect("ENSUE_SCHEDULE_KILLS is a number"))
}

/// Sleeps until about the next full second, at which the schedules fire.
fn until_about_a_fire_time() {
    let passed = Duration::from_micros(u64::try_from(Timestamp::now().subsec_microsecond()).unwrap_or(0));
    let around = Duration::from_millis(1_970) + Duration::from_millis(u64::from(rand::random::<u16>() % 60));
    std::thread::sleep(around.saturating_sub(passed));
}

#[test]
fn each_occurrence_fires_once_although_the_server_is_killed_around_it() {
    let folder = tempfile::tempdir().unwrap();
    kill_around_fire_times(&folder, &format!("sqlite:{}", folder.path().join("e.db").display()));
}

/// The last statement of a killed server may still fire when the next one begins.
#[test]
fn each_occurrence_fires_once_on_postgres_although_the_server_is_killed_around_it() {
    let postgres = PrivatePostgres::start().unwrap();
    kill_around_fire_times(&tempfile::tempdir().unwrap(), &postgres.url_with_schema("schedules"));
}

fn kill_around_fire_times(folder: &TempDir, store: &str) {
    let config = format!(
        "store: '{store}'\nlisten: 127.0.0.1:0\nschedules:\n  \
         tick: {{ every: 1s, topic: tick, misfire: all }}\n  \
         work: {{ every: 1s, handler: nobody, misfire: all, overlap: allow }}\n"
    );
    std::fs::write(folder.path().join("ensue.yaml"), config).unwrap();
    for _ in 0..kills() {
        let server = Server::start_with(&mut ensue(folder.path(), &["serve"]), folder.path());
        until_about_a_fire_time();
        server.kill9();
    }
    let server = Server::start_with(&mut ensue(folder.path(), &["serve"]), folder.path());
    let begun = Instant::now();
    loop {
        let shown = server.run(folder.path(), &["schedule", "show", "tick", "--json"]).good();
        if shown.contains("\"event\"") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing fired");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(server.terminate().success());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (events, jobs) = runtime.block_on(async {
        let bus = Ensue::open(store).await.unwrap();
        let page = bus.store().read(Read { after: 0, limit: 1_000, filter: Default::default() }).await.unwrap();
        let jobs = bus.store().jobs(JobQuery::default(), 1_000).await.unwrap().jobs;
        bus.close().await;
        let of_job = |metadata: &str| {
            let said: serde_json::Value = serde_json::from_str(metadata).unwrap();
            said["occurrence"].as_str().unwrap().parse::<Timestamp>().unwrap()
        };
        let events: Vec<Timestamp> = page.events.iter().map(|event| event.occurred_at).collect();
        (events, jobs.iter().map(|job| of_job(job.metadata.as_str())).collect::<Vec<_>>())
    });
    println!("{} kills: {} events and {} jobs, each occurrence once", kills(), events.len(), jobs.len());
    for times in [events, jobs] {
        assert!(times.len() >= kills(), "{times:?}");
        assert!(times.windows(2).all(|pair| pair[1].as_second() - pair[0].as_second() == 1), "{times:?}");
    }
}
