//! A handler gets every event that its process publishes after binding it, also before the first
//! start.

use crate::support::{LONG, Seen, event, name, on_both, until};
use ensue::{Context, Ensue, Event, NewEvent};
use std::time::Duration;

on_both! {
    "before";
    events_published_before_the_first_start_are_handled;
    a_failed_start_keeps_what_was_published_before_it;
}

fn seeing(bus: &Ensue, key: &str) -> Seen {
    let seen = Seen::default();
    let given = seen.clone();
    let handler = move |event: Event, _cx: Context| {
        given.push(&event);
        async { Ok(()) }
    };
    bus.on("order").named(key).handle(handler).unwrap();
    seen
}

async fn events_published_before_the_first_start_are_handled(url: &str) {
    let bus = Ensue::open(url).await.unwrap();
    bus.publish(event("order.old", "o")).await.unwrap();
    let first = seeing(&bus, "first");
    bus.publish(event("order.placed", "o")).await.unwrap();
    let second = seeing(&bus, "second");
    bus.publish_all(vec![event("order.paid", "o"), event("order.sent", "o")]).await.unwrap();
    bus.publish_and_wait(event("order.waited", "o"), Duration::ZERO).await.unwrap();

    let running = bus.start().await.unwrap();
    bus.drain().await.unwrap();
    until("they never come", async || first.seqs().len() == 4).await;
    assert_eq!((first.seqs(), second.seqs()), (vec![2, 3, 4, 5], vec![3, 4, 5]));
    running.shutdown(LONG).await.unwrap();
}

async fn a_failed_start_keeps_what_was_published_before_it(url: &str) {
    let bus = Ensue::open(url).await.unwrap();
    let seen = seeing(&bus, "first");
    let running = bus.start().await.unwrap();
    let refused = bus.start().await.err().map(|error| error.to_string());
    assert!(refused.is_some_and(|error| error.contains("already")));
    bus.publish(event("order.placed", "o")).await.unwrap();
    bus.drain().await.unwrap();
    until("it never comes", async || seen.seqs() == [1]).await;
    running.shutdown(LONG).await.unwrap();
}

/// The transactions of the embedded engine publish, too.
#[tokio::test]
async fn a_transaction_before_the_first_start_is_handled() {
    let bus = Ensue::memory().await.unwrap();
    let seen = seeing(&bus, "first");
    bus.transaction(|tx| tx.publish(NewEvent::new("order.placed"))).await.unwrap();
    bus.unit_of_work(|unit| unit.publish(NewEvent::new("order.paid")).map_err(Into::into)).await.unwrap();
    let running = bus.start().await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.seqs(), [1, 2]);
    running.shutdown(LONG).await.unwrap();
}

/// What would be published under a handler that cannot be is refused, with the reason that a start
/// gives.
#[tokio::test]
async fn a_publish_for_a_handler_that_cannot_start_is_refused() {
    let bus = Ensue::memory().await.unwrap();
    bus.store()
        .create_group(ensue::positions::NewGroup {
            name: name("order.first"),
            kind: ensue::positions::GroupKind::Pull,
            start: ensue::Start::Now,
            slots: 1,
        })
        .await
        .unwrap();
    seeing(&bus, "first");
    let published = bus.publish(event("order.placed", "o")).await.unwrap_err().to_string();
    assert_eq!(bus.store().bounds().await.unwrap().last, 0);
    assert_eq!(bus.start().await.err().map(|error| error.to_string()), Some(published));
}

/// Events of a transaction of one's own, too.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn an_own_postgres_transaction_before_the_first_start_is_handled() {
    let (url, _schema) = ensue_conformance::postgres::fresh_schema("before");
    let bus = Ensue::open(&url).await.unwrap();
    let seen = seeing(&bus, "first");
    let (mut client, connection) =
        tokio_postgres::connect(&ensue_conformance::postgres::shared_url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let mut tx = client.transaction().await.unwrap();
    bus.publish_in(&mut tx, event("order.placed", "o")).await.unwrap();
    tx.commit().await.unwrap();
    // In the log before the handler starts.
    bus.store().release_due(100).await.unwrap();
    let running = bus.start().await.unwrap();
    bus.drain().await.unwrap();
    until("it never comes", async || seen.seqs() == [1]).await;
    running.shutdown(LONG).await.unwrap();
}
