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
    direct_messages_reach_their_subscription_only;
    prev_of_a_read_is_the_previous_event_that_the_group_gets;
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

/// Made with SQL, read over HTTP, committed with SQL, and the other way round: one group, one cursor, one lease.
#[tokio::test]
async fn a_group_is_the_same_over_sql_and_over_http() {
    let (url, schema) = ensue_conformance::postgres::fresh_schema("groups");
    let bus = ensue::Ensue::open(&url).await.unwrap();
    let server = Server::serve(bus.clone(), HttpOptions::default()).await;
    let database = ensue_conformance::postgres::shared_url();
    let (client, connection) = tokio_postgres::connect(&database, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let sql = |text: &str| text.replace("LOG", &schema);
    let state = |error: tokio_postgres::Error| error.code().cloned().unwrap();

    let subscribe = sql("SELECT LOG.subscribe('g', $1, $2::text::jsonb)");
    let by_sql: uuid::Uuid =
        client.query_one(&subscribe, &[&"e.topic = s.params->>'topic'", &r#"{"topic": "a"}"#]).await.unwrap().get(0);
    let wants = serde_json::json!({"where": "e.topic = s.params->>'topic'", "params": {"topic": "a"}});
    assert_eq!(server.group_ok("POST", "g/subscriptions", wants, 200).await["id"], by_sql.to_string());
    let wants = serde_json::json!({"where": "e.topic = 'b'", "topic": "b"});
    let by_http = server.group_ok("POST", "g/subscriptions", wants, 201).await["id"].as_str().unwrap().to_string();
    // Postgres understands it and the matcher in process does not: nobody else is kept from reading.
    client.query_one(&subscribe, &[&"e.occurred_at > 'yesterday'", &"{}"]).await.unwrap();
    for topic in ["a", "b", "c", "a"] {
        bus.publish(ensue::NewEvent::new(topic)).await.unwrap();
    }

    let read = server.group_ok("POST", "g/read", serde_json::json!({"limit": 2}), 200).await;
    assert_eq!(read["events"][0]["subscriptions"], serde_json::json!([by_sql.to_string()]));
    assert_eq!(read["events"][1]["subscriptions"], serde_json::json!([by_http]));
    let next = sql("SELECT seq, id, next_cursor, lease FROM LOG.read_next_events('g')");
    assert_eq!(state(client.query(&next, &[]).await.unwrap_err()), tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE);
    let commit = sql("SELECT LOG.set_group_cursor('g', $1, true, $2)");
    let (cursor, lease) = (read["cursor"].as_i64().unwrap(), read["lease"].as_str().unwrap());
    assert_eq!(client.query_one(&commit, &[&cursor, &lease]).await.unwrap().get::<_, i64>(0), 2);
    let lost = client.query_one(&commit, &[&cursor, &lease]).await.unwrap_err();
    assert_eq!(state(lost), tokio_postgres::error::SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert_eq!(server.group_ok("GET", "g", serde_json::Value::Null, 200).await["cursor"], 2);

    let rows = client.query(&next, &[]).await.unwrap();
    // The third is for the one that Postgres alone understands.
    assert_eq!(rows.iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>(), [3, 4]);
    let seen = server.get(&format!("/v1/events/{}", rows[1].get::<_, uuid::Uuid>(1))).await.json();
    assert_eq!(seen["seq"], 4, "the id is the one that everybody knows");
    assert!(server.group("POST", "g/read", serde_json::json!({})).await.problem(409).contains("sql: "));
    let (cursor, lease) = (rows[1].get::<_, i64>(2), rows[1].get::<_, String>(3));
    let more = server.group_ok("POST", "g/read", serde_json::json!({"lease": lease}), 200).await;
    assert_eq!(more["events"], serde_json::json!([]), "it goes on under a lease that SQL gave out");
    let commit = serde_json::json!({"cursor": cursor, "lease": lease, "release": true});
    assert_eq!(server.group_ok("POST", "g/commit", commit, 200).await["cursor"], 4);
    assert!(client.query(&next, &[]).await.unwrap().is_empty());
    bus.close().await;
}
