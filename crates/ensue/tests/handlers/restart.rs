//! A worker that begins again, with what the store remembers.

use crate::support::{LONG, event, name, until};
use ensue::{Context, Ensue, Event, Seq, Start};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A group is moved back while its handler has nothing to do: it begins again from there.
#[tokio::test]
async fn a_handler_that_is_idle_hears_of_a_seek() {
    let bus = Ensue::memory().await.unwrap();
    let starts = Arc::new(Mutex::new(Vec::<Seq>::new()));
    let seen = starts.clone();
    let handler = move |event: Event, _cx: Context| {
        seen.lock().unwrap().push(event.seq);
        async { Ok(()) }
    };
    bus.on("a").named("h").handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("a", "o")).await.unwrap();
    bus.drain().await.unwrap();
    let cursor = async || bus.store().group(&name("a.h")).await.unwrap().unwrap().cursor();
    until("what is done is not written", async || cursor().await == 1).await;
    bus.groups().seek("a.h", Start::Beginning).await.unwrap();
    until("it never begins again", async || starts.lock().unwrap().len() == 2).await;
    running.shutdown(LONG).await.unwrap();
}

/// H5: what the life before still has on its threads has ended before the next one begins with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_lives_never_run_one_object_at_once() {
    let bus = Ensue::memory().await.unwrap();
    let (now, most, runs) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running_now, at_most, count) = (now.clone(), most.clone(), runs.clone());
    let handler = move |_event: Event, _cx: Context| {
        let (now, most, runs) = (running_now.clone(), at_most.clone(), count.clone());
        async move {
            tokio::task::yield_now().await; // becomes a task of its own
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            runs.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1_500)); // some work that does not give way
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    };
    bus.on("a").named("h").handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("a", "o")).await.unwrap();
    until("it never starts", async || runs.load(Ordering::SeqCst) > 0).await;
    // Its slots are taken away, and it hears of it: any other reason to begin again is the same.
    bus.groups().seek("a.h", Start::Beginning).await.unwrap();
    while runs.load(Ordering::SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 1, "one event ran twice at once");
    running.shutdown(LONG).await.unwrap();
}
