//! H4: `prev` of a delivery is the previous event of the object that this handler gets, also after
//! a restart.

use crate::support::{LONG, event, on_both};
use ensue::{Context, Ensue, Event, HandlerError, OnExhausted, Retry, Seq, Subscription};
use std::sync::{Arc, Mutex};

on_both! {
    "prevs";
    prev_is_the_previous_event_that_the_handler_gets;
    prev_passes_over_what_the_handler_gave_up;
    prev_of_a_condition_is_found_again_after_a_restart;
    what_was_before_the_handler_is_not_claimed;
}

/// What a handler got: the place, `prev` and `prev_since`.
type Got = Arc<Mutex<Vec<(Seq, Option<Seq>, Option<Seq>)>>>;

/// Notes what it gets, and fails where the payload is 0.
fn noting(
    got: &Got,
) -> impl Fn(Event, Context) -> std::future::Ready<Result<(), HandlerError>> + Send + Sync + 'static {
    let got = got.clone();
    move |event: Event, cx: Context| {
        if event.payload.as_str() == "0" {
            return std::future::ready(Err(HandlerError::failed("no")));
        }
        got.lock().unwrap().push((event.seq, event.prev, cx.prev_since()));
        std::future::ready(Ok(()))
    }
}

fn taken(got: &Got) -> Vec<(Seq, Option<Seq>, Option<Seq>)> {
    let mut got = std::mem::take(&mut *got.lock().unwrap());
    got.sort_unstable();
    got
}

async fn publish(bus: &Ensue, events: &[(&str, &str, u32)]) {
    let events = events.iter().map(|(topic, object, payload)| event(topic, object).payload(payload));
    bus.publish_all(events.collect()).await.unwrap();
    bus.drain().await.unwrap();
}

async fn prev_is_the_previous_event_that_the_handler_gets(url: &str) {
    let (bus, got) = (Ensue::open(url).await.unwrap(), Got::default());
    bus.on("a").named("h").handle(noting(&got)).unwrap();
    let running = bus.start().await.unwrap();
    publish(&bus, &[("a", "x", 1), ("b", "x", 1), ("a", "x", 1), ("b", "y", 1), ("a", "y", 1), ("b", "y", 1)]).await;
    publish(&bus, &[("a", "y", 1), ("a.below", "x", 1)]).await;
    let expected = [(1, None, None), (3, Some(1), None), (5, None, None), (7, Some(5), None), (8, Some(3), None)];
    assert_eq!(taken(&got), expected);
    running.shutdown(LONG).await.unwrap();
    let running = bus.start().await.unwrap();
    publish(&bus, &[("b", "x", 1), ("a", "x", 1), ("a", "x", 1)]).await;
    assert_eq!(taken(&got), [(10, Some(8), None), (11, Some(10), None)], "nothing is remembered of before");
    running.shutdown(LONG).await.unwrap();
}

/// A receiver never sees what was given up: it must not wait for it.
async fn prev_passes_over_what_the_handler_gave_up(url: &str) {
    let (bus, got) = (Ensue::open(url).await.unwrap(), Got::default());
    bus.on("a").named("h").retry(Retry::never()).on_exhausted(OnExhausted::Skip).handle(noting(&got)).unwrap();
    let running = bus.start().await.unwrap();
    publish(&bus, &[("a", "x", 1), ("a", "x", 0), ("a", "x", 1)]).await;
    assert_eq!(taken(&got), [(1, None, None), (3, Some(1), None)]);
    publish(&bus, &[("a", "x", 0)]).await;
    running.shutdown(LONG).await.unwrap();
    let running = bus.start().await.unwrap();
    publish(&bus, &[("a", "x", 1)]).await;
    assert_eq!(taken(&got), [(5, Some(3), None)]);
    running.shutdown(LONG).await.unwrap();
}

async fn prev_of_a_condition_is_found_again_after_a_restart(url: &str) {
    let (bus, got) = (Ensue::open(url).await.unwrap(), Got::default());
    let large = Subscription::when("e.topic = 'large'", ensue::Json::empty_object());
    bus.on(large).named("h").handle(noting(&got)).unwrap();
    let running = bus.start().await.unwrap();
    publish(&bus, &[("large", "x", 1), ("a", "x", 1), ("large", "x", 1)]).await;
    assert_eq!(taken(&got), [(1, None, None), (3, Some(1), None)]);
    // More events than a walk looks at.
    let many: Vec<_> = (0..150).map(|_| ("a", "x", 1)).collect();
    publish(&bus, &many).await;
    running.shutdown(LONG).await.unwrap();
    let running = bus.start().await.unwrap();
    publish(&bus, &[("large", "x", 1), ("large", "x", 1)]).await;
    assert_eq!(taken(&got), [(154, None, Some(54)), (155, Some(154), None)], "bounded, and said");
    running.shutdown(LONG).await.unwrap();
}

async fn what_was_before_the_handler_is_not_claimed(url: &str) {
    let (bus, got) = (Ensue::open(url).await.unwrap(), Got::default());
    bus.publish_all(vec![event("a", "x"), event("b", "x"), event("a", "y")]).await.unwrap();
    bus.on("a").named("h").handle(noting(&got)).unwrap();
    let running = bus.start().await.unwrap();
    publish(&bus, &[("a", "x", 1), ("a", "x", 1), ("a", "new", 1)]).await;
    let expected = [(4, None, Some(3)), (5, Some(4), None), (6, None, None)];
    assert_eq!(taken(&got), expected, "it never gets what was in the log before it");
    running.shutdown(LONG).await.unwrap();
}
