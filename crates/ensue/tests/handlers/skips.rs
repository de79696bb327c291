//! Whoever skips what is held skips that, and nothing behind it.

use crate::support::{LONG, Seen, event, stuck, until};
use ensue::positions::Ask;
use ensue::{Context, Ensue, Event, HandlerError, Retry};

const OBJECTS: usize = 30;

/// What was asked is stored until the answer to it is written: each ask makes the worker look at all of them again.
async fn many_that_are_skipped_at_once_lose_one_event_each(url: &str) {
    let bus = Ensue::open(url).await.unwrap();
    let seen = Seen::default();
    let given = seen.clone();
    bus.on("a")
        .named("h")
        .retry(Retry::never())
        .handle(move |event: Event, _cx: Context| {
            given.push(&event);
            async { Err::<(), _>(HandlerError::failed("never")) }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    let objects: Vec<String> = (0..OBJECTS).map(|n| format!("o{n}")).collect();
    for _ in 0..5 {
        bus.publish_all(objects.iter().map(|object| event("a", object)).collect()).await.unwrap();
    }
    until("they are held", async || bus.stuck(1_000).await.unwrap().len() == OBJECTS).await;
    let asks = objects.iter().map(|object| {
        let (bus, stuck) = (bus.clone(), stuck(object));
        tokio::spawn(async move { bus.ask_stuck(&stuck, None, Ask::Skip).await.unwrap() })
    });
    for ask in asks.collect::<Vec<_>>() {
        ask.await.unwrap();
    }
    let held_again = |object: &String| seen.of(object).len() > 1;
    until("they are held again", async || objects.iter().all(held_again)).await;
    bus.drain().await.unwrap();
    for (n, object) in (1..).zip(&objects) {
        assert_eq!(seen.of(object), [n, n + OBJECTS as u64], "{object}: the first is skipped, the second fails");
    }
    running.shutdown(LONG).await.unwrap();
    bus.close().await;
}

crate::support::on_both! { "skips";
    many_that_are_skipped_at_once_lose_one_event_each;
}
