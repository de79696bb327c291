//! What a process does not ask again and again, on Postgres.
#![cfg(feature = "postgres")]

use crate::support::{LONG, sent, until, until_state, with};
use ensue::jobs::JobState;
use ensue::{Context, Emit, Ensue, Event, JobOptions};
use ensue_conformance::postgres::{fresh_schema, shared_url};
use std::sync::Arc;
use tokio::sync::Notify;

/// How often a function of this schema was called, as far as its sessions have told.
async fn calls(admin: &tokio_postgres::Client, schema: &str, function: &str) -> i64 {
    let sql =
        "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_user_functions WHERE schemaname = $1 AND funcname = $2";
    admin.query_one(sql, &[&schema, &function]).await.unwrap().get(0)
}

async fn until_pulses(admin: &tokio_postgres::Client, schema: &str, more: i64) {
    let before = calls(admin, schema, "pulse").await;
    until("pulses", async || (calls(admin, schema, "pulse").await >= before + more).then_some(())).await;
}

/// A handler that does all it may, with more waiting for it, and another that has nothing to do: nobody looks for jobs until one has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_handler_does_not_have_its_process_look_for_jobs_all_the_time() {
    let (url, schema) = fresh_schema("quiet");
    let (admin, connection) = tokio_postgres::connect(&shared_url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let bus = Ensue::open(&format!("{url}&options=-ctrack_functions%3Dall")).await.unwrap();
    let go_on = Arc::new(Notify::new());
    let slow = with(go_on.clone(), async |go_on, _: Event, _: Context| {
        go_on.notified().await;
        Ok(())
    });
    bus.register_with("slow", JobOptions { concurrency: Some(1), ..JobOptions::default() }, slow).unwrap();
    bus.register("idle", async |_: Event, _: Context| Ok(())).unwrap();
    let running = bus.start().await.unwrap();
    let first = sent(&bus, Emit::to("slow")).await;
    let second = sent(&bus, Emit::to("slow")).await;
    until_state(&bus, first, JobState::Running).await;
    // A pulse comes once a second.
    until_pulses(&admin, &schema, 1).await;
    // A session tells of its calls after a while. If they had another name, nothing would be counted.
    let told = async || Some(calls(&admin, &schema, "jobs_fetch").await).filter(|claims| *claims > 0);
    let before = until("claims that are told of", told).await;
    until_pulses(&admin, &schema, 3).await;
    let claims = calls(&admin, &schema, "jobs_fetch").await - before;
    assert!(claims < 30, "{claims} claims in about three seconds");
    go_on.notify_one();
    until_state(&bus, second, JobState::Running).await;
    go_on.notify_one();
    until_state(&bus, second, JobState::Succeeded).await;
    running.shutdown(LONG).await.unwrap();
}
