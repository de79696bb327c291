//! What a job says can be read while it runs.

use crate::support::{LONG, failed, sent, until, until_state};
use ensue::jobs::{JobId, JobState};
use ensue::{Context, Emit, Ensue, Event, HandlerError, JobOptions, Retry};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

async fn messages(bus: &Ensue, id: JobId) -> Vec<String> {
    bus.job_lines(id, 0, 20_000).await.unwrap().into_iter().map(|line| line.message).collect()
}

async fn both_engines(scenario: impl AsyncFn(Ensue)) {
    scenario(Ensue::memory().await.unwrap()).await;
    #[cfg(feature = "postgres")]
    {
        let (url, _) = ensue_conformance::postgres::fresh_schema("live");
        scenario(Ensue::open(&url).await.unwrap()).await;
    }
}

fn once() -> JobOptions {
    JobOptions { retry: Retry::never(), ..JobOptions::default() }
}

/// Also a handler whose lines are kept only when it fails: what was seen of it does not vanish.
#[tokio::test]
async fn lines_and_progress_are_there_while_the_job_runs_and_stay_in_order() {
    both_engines(async |bus| {
        let go_on = Arc::new(Notify::new());
        let waits = go_on.clone();
        let handler = move |_: Event, cx: Context| {
            let waits = waits.clone();
            async move {
                cx.log("one");
                cx.log("one");
                cx.progress(40, Some(100), Some("rows"));
                waits.notified().await;
                cx.log("two");
                waits.notified().await;
                cx.log("three");
                cx.progress(100, Some(100), Some("rows"));
                Ok::<_, HandlerError>(())
            }
        };
        bus.register_with("slow", once(), handler).unwrap();
        bus.register_with("quick", once(), async |_: Event, cx: Context| {
            cx.log("said and done");
            Ok(())
        })
        .unwrap();
        let running = bus.start().await.unwrap();
        let id = sent(&bus, Emit::to("slow")).await;
        let said = async |count: usize| {
            until("the lines", async || Some(messages(&bus, id).await).filter(|lines| lines.len() == count)).await
        };
        assert_eq!(said(2).await, ["one", "one"]);
        let seen = until("progress", async || bus.seen_job(id).await.unwrap().unwrap().progress).await;
        assert_eq!(seen.to_string(), "40 of 100 rows");
        assert_eq!(bus.job(id).await.unwrap().unwrap().state, JobState::Running);
        go_on.notify_one();
        said(3).await;
        go_on.notify_one();
        until_state(&bus, id, JobState::Succeeded).await;
        assert_eq!(messages(&bus, id).await, ["one", "one", "two", "three"]);
        assert_eq!(bus.seen_job(id).await.unwrap().unwrap().progress.unwrap().done, 100);
        // One that is done sooner writes nothing beside its end, and keeps nothing that it was not asked to.
        let quick = sent(&bus, Emit::to("quick")).await;
        until_state(&bus, quick, JobState::Succeeded).await;
        assert_eq!(messages(&bus, quick).await, [] as [&str; 0]);
        running.shutdown(LONG).await.unwrap();
    })
    .await;
}

/// A million lines: what is kept is bounded, the program is not held up, and the log says what was cut.
#[tokio::test]
async fn a_job_that_says_too_much_keeps_its_first_lines_and_says_how_many_were_cut() {
    both_engines(async |bus| {
        let handler = async |_: Event, cx: Context| {
            for n in 0..1_000_000 {
                cx.log(format!("line {n}"));
                if n % 1_000 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            failed::<()>("exhausted")
        };
        bus.register_with("much", once(), handler).unwrap();
        let twice = JobOptions { retry: Retry::delays([Duration::ZERO]), ..JobOptions::default() };
        bus.register_with("twice", twice, handler).unwrap();
        let running = bus.start().await.unwrap();
        let (once, twice) = (sent(&bus, Emit::to("much")).await, sent(&bus, Emit::to("twice")).await);
        let ended = until_state(&bus, once, JobState::Dead).await;
        assert_eq!(ended.errors.iter().map(|error| &*error.error).collect::<Vec<_>>(), ["exhausted"]);
        let said = messages(&bus, once).await;
        assert_eq!((said.len(), &*said[0], &*said[9_997]), (9_999, "line 0", "line 9997"));
        assert!(said[9_998].starts_with("990002 more lines were dropped"), "{}", said[9_998]);
        // Each attempt has its share.
        until_state(&bus, twice, JobState::Dead).await;
        let said = messages(&bus, twice).await;
        assert_eq!((said.len(), &*said[4_999]), (9_998, "line 0"));
        assert!(said[4_998].starts_with("995002 more lines") && said[9_997].starts_with("995002 more lines"));
        running.shutdown(LONG).await.unwrap();
    })
    .await;
}

/// One that has ended before anybody could look says how far it came all the same.
#[tokio::test]
async fn progress_of_an_attempt_that_never_waits_is_kept() {
    both_engines(async |bus| {
        bus.register_with("quick", once(), async |_: Event, cx: Context| {
            cx.progress(7, None, None);
            Ok::<_, HandlerError>(())
        })
        .unwrap();
        let running = bus.start().await.unwrap();
        let id = sent(&bus, Emit::to("quick")).await;
        until_state(&bus, id, JobState::Succeeded).await;
        assert_eq!(bus.seen_job(id).await.unwrap().unwrap().progress.map(|progress| progress.done), Some(7));
        running.shutdown(LONG).await.unwrap();
    })
    .await;
}

/// Lines that an attempt has said when it settles in its own transaction are part of it.
#[tokio::test]
async fn lines_of_an_attempt_that_settles_itself_are_kept() {
    let bus = Ensue::memory().await.unwrap();
    let (own, always) = (bus.clone(), JobOptions { logs_always: true, ..once() });
    let handler = move |_: Event, cx: Context| {
        let own = own.clone();
        async move {
            cx.log("one");
            let settles = cx.clone();
            own.transaction(move |tx| settles.done_in(tx)).await?;
            Ok::<_, HandlerError>(())
        }
    };
    bus.register_with("own", always, handler).unwrap();
    let running = bus.start().await.unwrap();
    let id = sent(&bus, Emit::to("own")).await;
    until_state(&bus, id, JobState::Succeeded).await;
    assert_eq!(messages(&bus, id).await, ["one"]);
    running.shutdown(LONG).await.unwrap();
}
