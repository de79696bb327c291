//! Jobs and rules over HTTP on Postgres: the same as on the embedded engine.

use crate::support::{Server, jobs};
use ensue_server::HttpOptions;
use serde_json::{Value, json};

macro_rules! on_postgres {
    ($($name:ident;)+) => {
        $(
            #[tokio::test]
            async fn $name() {
                let (url, _schema) = ensue_conformance::postgres::fresh_schema("jobs");
                let bus = ensue::Ensue::open(&url).await.unwrap();
                jobs::$name(&Server::serve(bus.clone(), HttpOptions::default()).await).await;
                bus.close().await;
            }
        )+
    };
}

on_postgres! {
    a_job_is_sent_claimed_said_of_and_completed_with_its_events;
    jobs_run_by_priority_and_one_at_a_time_of_each_object;
    a_unique_key_is_taken_while_its_job_is_live;
    a_worker_that_lost_its_lease_changes_nothing;
    a_job_fails_dies_holds_its_object_and_is_brought_back_or_skipped;
    a_job_is_called_off_at_once_or_when_its_worker_hears_of_it;
    a_snoozed_job_comes_back_and_no_attempt_is_used_up;
    a_claim_that_waits_is_woken_by_a_job;
    jobs_are_listed_by_state_handler_and_object_in_pages;
    many_are_steered_by_a_filter_after_a_dry_run;
    a_paused_handler_gives_out_nothing_and_its_jobs_are_parked;
    a_held_object_waits_and_its_scope_may_have_slashes;
    a_rule_lifts_itself_when_its_time_has_come;
}

/// A job that one process sends is claimed at another, and a pause that one sets holds at the other.
#[tokio::test]
async fn two_processes_share_jobs_and_rules() {
    let (url, _schema) = ensue_conformance::postgres::fresh_schema("jobs");
    let one = Server::serve(ensue::Ensue::open(&url).await.unwrap(), HttpOptions::default()).await;
    let other = Server::serve(ensue::Ensue::open(&url).await.unwrap(), HttpOptions::default()).await;
    let (claimed, id) = tokio::join!(other.claim_one("h"), one.send_job(json!({"handler": "h"})));
    assert_eq!(claimed["id"].as_str(), Some(&*id));
    one.under_ok(&claimed, "complete", json!({})).await;
    one.api_ok("PUT", "rules/pause/handler:h", Value::Null, 201).await;
    let held = one.send_job(json!({"handler": "h"})).await;
    assert!(other.claim("h", 5).await.is_empty());
    assert_eq!(other.job(&held).await["state"], "parked");
    other.api_ok("DELETE", "rules/pause/handler:h", Value::Null, 200).await;
    assert_eq!(one.claim_one("h").await["id"].as_str(), Some(&*held));
    for server in [&one, &other] {
        server.bus.close().await;
    }
}
