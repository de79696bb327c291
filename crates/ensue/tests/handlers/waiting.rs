//! Nothing waits for ever: what is asked for, due or free to start runs.

use crate::support::{LONG, event, lane, name, stuck, until};
use ensue::positions::Ask;
use ensue::{Context, Ensue, Event, HandlerError, Outcome, Retry, Seq};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Starts = Arc<Mutex<Vec<Seq>>>;

/// "Dropping it stops them; nothing is lost, they only wait to be started again": also in the same process.
#[tokio::test]
async fn handlers_can_be_started_again_after_they_were_dropped() {
    let bus = Ensue::memory().await.unwrap();
    let starts = Starts::default();
    let seen = starts.clone();
    let handler = move |event: Event, _cx: Context| {
        seen.lock().unwrap().push(event.seq);
        async { Ok(()) }
    };
    bus.on("a").named("h").handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("a", "o")).await.unwrap();
    bus.drain().await.unwrap();
    drop(running);
    let running = bus.start().await.unwrap();
    bus.publish(event("a", "o")).await.unwrap();
    until("it is never run", async || starts.lock().unwrap().contains(&2)).await;
    running.shutdown(LONG).await.unwrap();
}

/// Two processes in a row ended while there was nothing to do; then one attempt takes long: other objects go on.
#[tokio::test]
async fn a_slow_attempt_delays_no_other_object_after_two_processes_have_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.db");
    let starts = Starts::default();
    for round in 0..4 {
        let bus = Ensue::open(path.to_str().unwrap()).await.unwrap();
        let seen = starts.clone();
        let handler = move |event: Event, _cx: Context| {
            let seen = seen.clone();
            async move {
                if event.object.as_ref().unwrap().as_str() == "slow" {
                    std::future::pending::<()>().await;
                }
                seen.lock().unwrap().push(event.seq);
                Ok(())
            }
        };
        bus.on("a").named("h").handle(handler).unwrap();
        let running = bus.start().await.unwrap();
        bus.drain().await.unwrap();
        if round == 3 {
            bus.publish_all(["slow", "b"].map(|object| event("a", object)).into()).await.unwrap();
            until("one attempt delays every other object", async || !starts.lock().unwrap().is_empty()).await;
        }
        drop(running); // as if the process had ended
        bus.close().await;
    }
}

/// H15: more lanes are asked at once than are looked at in one page.
#[tokio::test]
async fn every_lane_that_was_asked_to_go_on_does() {
    const LANES: usize = 1_200;
    let bus = Ensue::memory().await.unwrap();
    let starts = Starts::default();
    let seen = starts.clone();
    let handler = move |event: Event, cx: Context| {
        let seen = seen.clone();
        async move {
            if !cx.redriven() {
                return Err(HandlerError::permanent("no"));
            }
            seen.lock().unwrap().push(event.seq);
            Ok(())
        }
    };
    bus.on("a").named("h").handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all((0..LANES).map(|n| event("a", &format!("o{n:05}"))).collect::<Vec<_>>()[..1_000].to_vec())
        .await
        .unwrap();
    bus.publish_all((1_000..LANES).map(|n| event("a", &format!("o{n:05}"))).collect()).await.unwrap();
    bus.drain().await.unwrap();
    // As when another process asks, or this one while its worker is busy: heard of once, after the last.
    for n in 0..LANES {
        let object = format!("o{n:05}");
        if n + 1 < LANES {
            bus.store().ask_lane(&name("a.h"), &lane(&object), Ask::Retry).await.unwrap().unwrap();
        } else {
            bus.ask_stuck(&stuck(&object), None, Ask::Retry).await.unwrap();
        }
    }
    until("some are stranded", async || starts.lock().unwrap().len() == LANES).await;
    running.shutdown(LONG).await.unwrap();
}

/// Somebody skips a delivery while an attempt at it runs: when that fails, it is skipped.
#[tokio::test]
async fn a_skip_that_was_accepted_while_an_attempt_ran_is_done() {
    let bus = Ensue::memory().await.unwrap();
    let starts = Starts::default();
    let seen = starts.clone();
    let handler = move |event: Event, _cx: Context| {
        let seen = seen.clone();
        async move {
            seen.lock().unwrap().push(event.seq);
            if event.seq == 1 {
                tokio::time::sleep(Duration::from_secs(4)).await;
                return Err(HandlerError::failed("no").retry_after(Duration::from_secs(3_600)));
            }
            Ok(())
        }
    };
    bus.on("a").named("h").retry(Retry::attempts(9)).handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(["o", "o"].map(|object| event("a", object)).into()).await.unwrap();
    // It takes longer than two seconds, and has a row: it can be asked.
    until("no row", async || bus.ask_stuck(&stuck("o"), Some(&name("a.h")), Ask::Skip).await.is_ok()).await;
    until("the skip was answered, and forgotten", async || starts.lock().unwrap().contains(&2)).await;
    running.shutdown(LONG).await.unwrap();
}

/// A parent whose attempts all hang holds its own events, not those of its children.
#[tokio::test]
async fn a_parent_that_is_full_does_not_hold_its_children() {
    let bus = Ensue::memory().await.unwrap();
    let starts = Starts::default();
    let seen = starts.clone();
    bus.on("a")
        .named("parent")
        .concurrency(1)
        .handle(|_event: Event, _cx: Context| async { std::future::pending::<Result<Outcome, HandlerError>>().await })
        .unwrap();
    let handler = move |event: Event, _cx: Context| {
        seen.lock().unwrap().push(event.seq);
        async { Ok(()) }
    };
    bus.on("a.b").named("child").handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(["x", "y"].map(|object| event("a.b", object)).into()).await.unwrap();
    until("the child waits for ever", async || starts.lock().unwrap().len() == 2).await;
    running.shutdown(Duration::ZERO).await.unwrap();
}

/// A retry policy that panics fails its attempt; it does not end the handler.
#[tokio::test]
async fn a_retry_policy_that_panics_does_not_end_its_handler() {
    let bus = Ensue::memory().await.unwrap();
    let starts = Starts::default();
    let seen = starts.clone();
    let handler = move |event: Event, _cx: Context| {
        seen.lock().unwrap().push(event.seq);
        async move { if event.seq == 1 { Err(HandlerError::failed("no")) } else { Ok(()) } }
    };
    bus.on("a").named("h").retry(Retry::with(3, |_| panic!("bad policy"))).handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(["x", "y"].map(|object| event("a", object)).into()).await.unwrap();
    until("the handler has ended, and nobody was told", async || starts.lock().unwrap().contains(&2)).await;
    running.shutdown(LONG).await.unwrap();
}

/// "From inside a handler … nothing is [waited for]".
#[tokio::test]
async fn a_publish_from_inside_a_handler_does_not_wait_for_it() {
    let bus = Ensue::memory().await.unwrap();
    let starts = Starts::default();
    let (own, told) = (bus.clone(), starts.clone());
    let handler = move |seen: Event, _cx: Context| {
        let (bus, told) = (own.clone(), told.clone());
        async move {
            if seen.seq == 1 {
                bus.publish_and_wait(event("a", "o"), 10 * LONG).await.map_err(HandlerError::failed)?;
                told.lock().unwrap().push(seen.seq);
            }
            Ok(())
        }
    };
    bus.on("a").named("h").sync().handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("a", "o")).await.unwrap();
    until("it waits for itself", async || !starts.lock().unwrap().is_empty()).await;
    running.shutdown(LONG).await.unwrap();
}

/// The group of a handler is deleted: who drains is not kept waiting for ever.
#[tokio::test]
async fn a_drain_ends_when_the_group_was_deleted() {
    let bus = Ensue::memory().await.unwrap();
    bus.on("a").named("h").handle(|_event: Event, _cx: Context| async { Ok(()) }).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("a", "o")).await.unwrap();
    bus.drain().await.unwrap();
    assert!(bus.store().delete_group(&crate::support::name("a.h")).await.unwrap());
    bus.publish(event("a", "o")).await.unwrap();
    tokio::time::timeout(LONG, bus.drain()).await.expect("it waits for ever").unwrap();
    running.shutdown(LONG).await.unwrap();
}
