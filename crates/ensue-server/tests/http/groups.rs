//! Groups over HTTP, on the embedded engine. What must hold on any engine is in `http_support/groups.rs`.

use crate::support::{PATIENCE, Server, groups};
use serde_json::{Value, json};
use std::time::Duration;

macro_rules! on_sqlite {
    ($($name:ident;)+) => {
        $(
            #[tokio::test]
            async fn $name() {
                groups::$name(&Server::start().await).await;
            }
        )+
    };
}

on_sqlite! {
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
    let clock = ensue::testing::ManualClock::at_noon();
    let server = Server::serve(ensue::testing::memory_at(&clock).await.unwrap(), Default::default()).await;
    groups::subscriptions_are_shared_touched_listed_deleted_and_expire(&server, &clock).await;
}

#[tokio::test]
async fn twenty_thousand_subscriptions_of_one_group_stay_distinct() {
    groups::many_subscriptions_of_one_group_stay_distinct(&Server::start().await, 20_000).await;
}

#[tokio::test]
#[ignore = "takes minutes without optimisation: cargo test --release -- --ignored two_hundred_thousand"]
async fn two_hundred_thousand_subscriptions_of_one_group_stay_distinct() {
    groups::many_subscriptions_of_one_group_stay_distinct(&Server::start().await, 200_000).await;
}

/// Whoever subscribes and then publishes is read by who waited before: the subscriptions are looked at after the events.
#[tokio::test]
async fn a_reader_that_waits_hears_of_a_subscription_that_comes_meanwhile() {
    let server = Server::start().await;
    server.group_ok("PUT", "g", json!({}), 201).await;
    let read = server.group_ok("POST", "g/read", json!({"wait_ms": 20_000}), 200);
    let come = async {
        while server.group_ok("GET", "g", Value::Null, 200).await["slots"][0]["owner"].is_null() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.publish_event(json!({"topic": "before"})).await;
        server.group_ok("POST", "g/subscriptions", json!({"topic": "after"}), 201).await;
        server.publish_event(json!({"topic": "after"})).await;
    };
    let (read, ()) = tokio::join!(read, come);
    let topics: Vec<_> = read["events"].as_array().unwrap().iter().map(|event| event["topic"].clone()).collect();
    assert_eq!(topics, ["after"], "{read}");
}

/// A client that goes away while it waits leaves the group to the next.
#[tokio::test]
async fn a_reader_that_hangs_up_while_it_waits_gives_the_group_back() {
    let server = Server::start().await;
    server.group_ok("POST", "g/subscriptions", json!({"where": "true"}), 201).await;
    let body = json!({"wait_ms": 30_000, "lease_ms": 3_600_000});
    // Dropped, it closes its connection.
    let read = server.group("POST", "g/read", body);
    let waits = async {
        while server.group_ok("GET", "g", Value::Null, 200).await["slots"][0]["owner"].is_null() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        answer = read => panic!("it does not wait: {}", answer.text()),
        () = waits => {}
    }
    let next = server.until_ok("g/read", json!({})).await;
    assert!(next["lease"].is_string());
}

/// A server that stops does not wait for those who wait.
#[tokio::test]
async fn a_long_poll_ends_when_the_server_stops() {
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let options = ensue_server::HttpOptions { stop: stopping, ..Default::default() };
    let server = Server::start_with(options).await;
    server.group_ok("POST", "g/subscriptions", json!({"where": "true"}), 201).await;
    let read = server.group("POST", "g/read", json!({"wait_ms": 30_000}));
    let end = async {
        while server.group_ok("GET", "g", Value::Null, 200).await["slots"][0]["owner"].is_null() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.send_replace(true);
    };
    let (answer, ()) = tokio::time::timeout(PATIENCE, async { tokio::join!(read, end) }).await.expect("it goes on");
    assert!(answer.problem(503).contains("stops"));
}

/// A page may be empty although more follows; going on comes to the end, and to what is there.
#[tokio::test]
async fn a_rare_match_is_found_by_going_on() {
    let server = Server::start().await;
    server.group_ok("POST", "g/subscriptions", json!({"topic": "rare"}), 201).await;
    for _ in 0..25 {
        let events = vec![ensue::NewEvent::new("common"); 1_000];
        server.bus.publish_all(events).await.unwrap();
    }
    let last = server.publish_event(json!({"topic": "rare"})).await;
    let mut body = json!({});
    let mut empty = 0;
    loop {
        let read = server.group_ok("POST", "g/read", body, 200).await;
        match read["events"].as_array().unwrap().as_slice() {
            [] => empty += 1,
            [rare] => {
                assert_eq!((&rare["seq"], &read["cursor"]), (&json!(last), &json!(last)));
                break;
            }
            more => panic!("{more:?}"),
        }
        body = json!({"lease": read["lease"]});
    }
    assert!(empty >= 1);
}

/// What was given to a reader and not committed survives the end of the process, and so does its lease.
#[tokio::test]
async fn a_group_and_a_lease_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db").to_str().unwrap().to_string();
    let open = async || Server::serve(ensue::Ensue::open(&path).await.unwrap(), Default::default()).await;
    let server = open().await;
    server.group_ok("POST", "g/subscriptions", json!({"where": "true"}), 201).await;
    server.publish_event(json!({"topic": "t"})).await;
    let read = server.group_ok("POST", "g/read", json!({}), 200).await;
    server.bus.close().await;
    drop(server);
    let server = open().await;
    server.group("POST", "g/read", json!({})).await.problem(409);
    server.group_ok("POST", "g/commit", json!({"cursor": 1, "lease": read["lease"], "release": true}), 200).await;
    assert_eq!(server.group_ok("GET", "g", Value::Null, 200).await["cursor"], 1);
}

/// A group that is gone leaves no figure behind: whoever makes groups without end does not fill the server with them.
#[tokio::test]
async fn figures_of_a_group_go_with_it() {
    let server = Server::start().await;
    server.group_ok("PUT", "behind", json!({}), 201).await;
    server.publish_event(json!({"topic": "t"})).await;
    server.group_ok("PUT", "stays", json!({}), 201).await;
    server.until_figures(|figures| figures.contains("ensue_group_lag{group=\"behind\"} 1\n")).await;
    server.group_ok("DELETE", "behind", Value::Null, 200).await;
    let is_told = |figures: &str, group: &str| figures.contains(&format!("ensue_group_lag{{group=\"{group}\"}}"));
    server.until_figures(|figures| is_told(figures, "stays") && !is_told(figures, "behind")).await;
}

/// A page is bounded by bytes, too, and `next` leads on.
#[tokio::test]
async fn list_of_large_subscriptions_is_read_in_pages() {
    const COUNT: usize = 120;
    let server = Server::start().await;
    server.api_ok("PUT", "groups/g", json!({}), 201).await;
    for n in 0..COUNT {
        let params = json!({"n": n, "text": "x".repeat(60_000)});
        server.api_ok("POST", "groups/g/subscriptions", json!({"where": "true", "params": params}), 201).await;
    }
    let (mut seen, mut pages, mut after) = (0, 0, String::new());
    loop {
        let answer = server.get(&format!("/v1/groups/g/subscriptions?limit=1000{after}")).await;
        assert!(answer.text().len() < 6 << 20, "{} bytes in an answer", answer.text().len());
        let page = answer.json();
        seen += page["subscriptions"].as_array().unwrap().len();
        pages += 1;
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!((seen, pages), (COUNT, 2));
}
