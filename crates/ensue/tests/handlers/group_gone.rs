//! A handler that runs is not left without its group; and what is told of it is what is known.

use crate::support::{LONG, Seen, event, name, on_both, until};
use ensue::{
    Binding, Context, Ensue, Error, Event, HandlerError, Standing, Start, StoreError, Subscription, SyncOutcome,
};
use std::time::Duration;

/// How long a publish waits for what cannot come.
const SHORT: Duration = Duration::from_millis(1_500);

on_both! {
    "gone";
    the_group_of_a_handler_that_runs_is_not_deleted;
    a_handler_whose_group_is_gone_begins_anew;
    a_sync_handler_that_did_not_run_is_pending;
    what_ran_under_another_condition_is_not_guessed;
}

fn noting(
    seen: &Seen,
) -> impl Fn(Event, Context) -> std::future::Ready<Result<(), HandlerError>> + Send + Sync + 'static {
    let seen = seen.clone();
    move |event: Event, _cx: Context| {
        seen.push(&event);
        std::future::ready(Ok(()))
    }
}

async fn the_group_of_a_handler_that_runs_is_not_deleted(url: &str) {
    let bus = Ensue::open(url).await.unwrap();
    bus.on("a").named("h").handle(noting(&Seen::default())).unwrap();
    let running = bus.start().await.unwrap();
    let refused = bus.groups().delete("a.h").await.unwrap_err();
    assert!(matches!(refused, Error::Store(StoreError::Conflict(_))), "{refused:?}");
    let told = refused.to_string();
    assert!(told.contains("the handler `a.h` runs") && told.contains("take it out"), "{told}");
    assert!(bus.groups().get("a.h").await.is_ok());
    // One that the store keeps goes with its group.
    bus.define_pull(&name("b.pulled"), &ensue::PullHandler::on("b")).await.unwrap();
    bus.groups().delete("b.pulled").await.unwrap();
    until("it is still served", async || bus.handlers().len() == 1).await;
    running.shutdown(LONG).await.unwrap();
    bus.groups().delete("a.h").await.unwrap();
}

/// Somebody has deleted it in the store: the handler does not stand still for ever.
async fn a_handler_whose_group_is_gone_begins_anew(url: &str) {
    let bus = Ensue::open(url).await.unwrap();
    let seen = Seen::default();
    bus.on("a").named("h").handle(noting(&seen)).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("a", "o")).await.unwrap();
    until("it does not run", async || seen.of("o") == [1]).await;
    let first = bus.groups().get("a.h").await.unwrap().state.created_at;
    assert!(bus.store().delete_group(&name("a.h")).await.unwrap());
    // Where one process alone writes, it finds out when it has something to write.
    until("its group is not made anew", async || {
        bus.publish(event("a", "noticed")).await.unwrap();
        bus.groups().get("a.h").await.is_ok_and(|group| group.state.created_at > first)
    })
    .await;
    bus.publish(event("a", "after")).await.unwrap();
    until("it runs no more", async || seen.of("after").len() == 1).await;
    until("it does not settle", async || bus.groups().get("a.h").await.unwrap().lag() == 0).await;
    assert!(bus.handler_report(&name("a.h")).await.unwrap().unwrap().is_served);
    running.shutdown(LONG).await.unwrap();
}

/// "sync: past that it answers `pending`": never done, where nothing has run.
async fn a_sync_handler_that_did_not_run_is_pending(url: &str) {
    let bus = Ensue::open(url).await.unwrap();
    let stuck = |_event: Event, _cx: Context| std::future::pending::<Result<(), HandlerError>>();
    bus.on("a").named("h").sync().handle(stuck).unwrap();
    let running = bus.start().await.unwrap();
    let wait = bus.publish_and_wait(event("a", "o"), 2 * SHORT);
    let delete = async {
        until("it is not in the log", async || bus.store().bounds().await.unwrap().last == 1).await;
        assert!(bus.store().delete_group(&name("a.h")).await.unwrap());
    };
    let (waited, ()) = tokio::join!(wait, delete);
    assert_eq!(waited.unwrap().handlers[0].outcome, SyncOutcome::Pending);
    // Made anew meanwhile, it begins after the event.
    running.shutdown(Duration::from_millis(100)).await.unwrap();
}

async fn bind_when(bus: &Ensue, condition: &str, seen: &Seen) {
    let mut change = bus.rebind();
    change.unbind(&name("h"));
    let binding: Binding = Subscription::when(condition, ensue::Json::empty_object()).into();
    change.on(binding).named("h").start(Start::Beginning).handle(noting(seen)).unwrap();
    change.apply().await.unwrap();
    bus.drain().await.unwrap();
}

async fn what_ran_under_another_condition_is_not_guessed(url: &str) {
    let bus = Ensue::open(url).await.unwrap();
    let seen = Seen::default();
    let standing = async |seq| bus.deliveries(seq).await.unwrap().unwrap()[0].verdict.standing;
    // What is done is told once it is written.
    let is_told = async |seqs: [u64; 2], wanted: [Standing; 2]| {
        until("it is not told so", async || [standing(seqs[0]).await, standing(seqs[1]).await] == wanted).await;
    };
    bus.publish(event("a", "before")).await.unwrap();
    let running = bus.start().await.unwrap();
    bind_when(&bus, "e.topic = 'a'", &seen).await;
    bus.publish_all(vec![event("a", "o"), event("b", "o")]).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.seqs(), [1, 2]);
    is_told([1, 2], [Standing::Done, Standing::Done]).await;
    is_told([2, 3], [Standing::Done, Standing::NotMatched]).await;

    bind_when(&bus, "e.topic = 'b'", &seen).await;
    bus.publish_all(vec![event("a", "o"), event("b", "o")]).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.seqs(), [1, 2, 5]);
    is_told([4, 5], [Standing::NotMatched, Standing::Done]).await;
    is_told([2, 3], [Standing::Passed, Standing::Passed]).await;
    let told = bus.deliveries(3).await.unwrap().unwrap();
    assert!(told[0].note.as_ref().is_some_and(|note| note.contains("changed")), "{told:?}");
    let explained = bus.explain_event_in_all(2).await.unwrap().unwrap();
    assert_eq!(explained.explanation.verdict, "passed");
    running.shutdown(LONG).await.unwrap();
}
