//! Groups over HTTP on Postgres: the same as on the embedded engine.

use crate::support::{Server, groups};
use ensue::{PostgresOptions, PostgresStore};
use ensue_server::HttpOptions;

macro_rules! on_postgres {
    ($($name:ident;)+) => {
        $(
            #[tokio::test]
            async fn $name() {
                let (url, _schema) = ensue_conformance::postgres::fresh_schema("groups");
                let bus = ensue::Ensue::open(&url).await.unwrap();
                groups::$name(&Server::serve(bus.clone(), HttpOptions::default()).await).await;
                bus.close().await;
            }
        )+
    };
}

on_postgres! {
    a_group_reads_what_its_subscriptions_want_and_goes_on_where_it_committed;
    one_reads_at_a_time_and_a_lost_lease_changes_nothing;
    cursors_outside_of_their_bounds_are_refused_with_the_bounds;
    a_long_poll_is_woken_by_what_the_group_wants;
    a_condition_that_fails_is_told_with_its_subscription;
    an_event_to_a_subscription_is_for_it_alone;
    a_handlers_group_is_read_by_its_handler_alone;
    a_handlers_group_runs_a_range_again;
    what_retention_took_is_told;
}

#[tokio::test]
async fn subscriptions_are_shared_touched_listed_deleted_and_expire() {
    let (url, _schema) = ensue_conformance::postgres::fresh_schema("groups");
    let clock = ensue::testing::ManualClock::at_noon();
    let options = PostgresOptions { clock: Some(clock.clock()), ..PostgresOptions::default() };
    let bus = ensue::Ensue::with_store(PostgresStore::open(&url, options).await.unwrap());
    let server = Server::serve(bus.clone(), HttpOptions::default()).await;
    groups::subscriptions_are_shared_touched_listed_deleted_and_expire(&server, &clock).await;
    bus.close().await;
}

/// The subscriptions and events of one process reach a reader that waits in another.
#[tokio::test]
async fn a_long_poll_is_woken_by_another_process() {
    let (url, _schema) = ensue_conformance::postgres::fresh_schema("groups");
    let one = Server::serve(ensue::Ensue::open(&url).await.unwrap(), HttpOptions::default()).await;
    let other = ensue::Ensue::open(&url).await.unwrap();
    one.group_ok("PUT", "g", serde_json::json!({}), 201).await;
    let read = one.group_ok("POST", "g/read", serde_json::json!({"wait_ms": 20_000}), 200);
    let come = async {
        while one.group_ok("GET", "g", serde_json::Value::Null, 200).await["slots"][0]["owner"].is_null() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        other.groups().subscribe("g", ensue::groups::Wants::topic("t")).await.unwrap();
        other.publish(ensue::NewEvent::new("t")).await.unwrap();
    };
    let (read, ()) = tokio::join!(read, come);
    assert_eq!(read["events"][0]["topic"], "t");
    other.close().await;
    one.bus.close().await;
}
