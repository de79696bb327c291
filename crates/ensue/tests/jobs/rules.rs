//! A paused or blocked handler starts nothing after the rule was acknowledged, and everything goes on when it is lifted.

use crate::support::{LONG, Seen, at_once, noting, rule, sent, until, until_state, with};
use ensue::jobs::JobState;
use ensue::rules::{NewRule, RuleKind};
use ensue::testing::{ManualClock, memory_at};
use ensue::{Context, Emit, Ensue, Event, NewEvent};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[tokio::test]
async fn a_paused_handler_of_events_stands_still_and_goes_on_where_it_was() {
    let bus = Ensue::memory().await.unwrap();
    let seen = Seen::default();
    let noted = seen.clone();
    bus.on("t")
        .named("h")
        .handle(with(noted, async |noted, event: Event, _: Context| {
            noted.add(event.seq.to_string());
            Ok(())
        }))
        .unwrap();
    let running = bus.start().await.unwrap();
    let pause = rule(RuleKind::Pause, "handler:t");
    bus.set_rule(pause.clone()).await.unwrap();
    for _ in 0..3 {
        bus.publish(NewEvent::new("t").object("o")).await.unwrap();
    }
    bus.drain().await.unwrap();
    assert_eq!(seen.all(), [""; 0]);
    let group = bus.store().group(&ensue::GroupName::stored("t.h")).await.unwrap().unwrap();
    assert!(group.cursor() < 2, "its cursor waits");
    // Both kinds coexist: the other one still holds it.
    bus.set_rule(rule(RuleKind::Block, "handler:t.h")).await.unwrap();
    bus.lift_rule(RuleKind::Pause, &pause.scope, "ann").await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.all(), [""; 0]);
    bus.lift_rule(RuleKind::Block, &rule(RuleKind::Block, "handler:t.h").scope, "ann").await.unwrap();
    until("all three", async || (seen.all().len() == 3).then_some(())).await;
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn a_paused_object_waits_while_the_others_go_on() {
    let bus = Ensue::memory().await.unwrap();
    let (events, jobs) = (Seen::default(), noting(&bus, "j"));
    let noted = events.clone();
    bus.on("t")
        .named("h")
        .handle(with(noted, async |noted, event: Event, _: Context| {
            noted.add(event.payload.as_str());
            Ok(())
        }))
        .unwrap();
    let running = bus.start().await.unwrap();
    let pause = rule(RuleKind::Pause, "object:o");
    bus.set_rule(pause.clone()).await.unwrap();
    for (object, n) in [("o", 1), ("p", 2), ("o", 3), ("p", 4)] {
        bus.publish(NewEvent::new("t").object(object).payload(&n)).await.unwrap();
        sent(&bus, Emit::to("j").object(object).payload(&n)).await;
    }
    bus.drain().await.unwrap();
    assert_eq!((events.all(), jobs.all()), (vec!["2".into(), "4".into()], vec!["2".into(), "4".into()]));
    bus.lift_rule(RuleKind::Pause, &pause.scope, "ann").await.unwrap();
    until("all of them", async || (events.all().len() == 4 && jobs.all().len() == 4).then_some(())).await;
    assert_eq!(
        (&events.all()[2..], &jobs.all()[2..]),
        (&["1".to_owned(), "3".to_owned()][..], &["1".to_owned(), "3".to_owned()][..])
    );
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn a_rule_that_expires_lifts_itself_and_each_change_is_in_the_log() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let seen = noting(&bus, "h");
    let running = bus.start().await.unwrap();
    let expires_at = Some(clock.now() + Duration::from_secs(60));
    bus.set_rule(NewRule { expires_at, ..rule(RuleKind::Pause, "handler:h") }).await.unwrap();
    let id = sent(&bus, Emit::to("h")).await;
    bus.drain().await.unwrap();
    assert_eq!(bus.job(id).await.unwrap().unwrap().state, JobState::Available);
    clock.advance(Duration::from_secs(60));
    bus.drain().await.unwrap();
    let job = until_state(&bus, id, JobState::Succeeded).await;
    assert!(job.started_at >= expires_at && seen.all().len() == 1);
    let topics = async || {
        let mut topics = Vec::new();
        for seq in 1..=bus.store().bounds().await.unwrap().last {
            topics.push(bus.store().event(seq).await.unwrap().unwrap().topic.to_string());
        }
        topics
    };
    assert_eq!(topics().await, ["ensue.rule.set", "ensue.rule.lifted"]);
    // One that has passed is refused, and changes nothing.
    let passed = Some(clock.now() - Duration::from_secs(1));
    let refused = bus.set_rule(NewRule { expires_at: passed, ..rule(RuleKind::Pause, "handler:h") }).await;
    assert!(refused.unwrap_err().to_string().contains("expires_at"));
    assert_eq!(topics().await.len(), 2);
    running.shutdown(LONG).await.unwrap();
}

/// H17: pauses race against starts of events and jobs; nothing starts after an acknowledgement.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_starts_after_a_pause_was_acknowledged() {
    let rounds = std::env::var("ENSUE_PAUSE_RACES").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let bus = Ensue::memory().await.unwrap();
    let started = Arc::new(AtomicU64::new(0));
    let (by_event, by_job) = (started.clone(), started.clone());
    bus.on("t")
        .named("h")
        .concurrency(16)
        .handle(with(by_event, async |by_event, _: Event, _: Context| {
            by_event.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }))
        .unwrap();
    bus.register(
        "t.j",
        with(by_job, async |by_job, _: Event, _: Context| {
            by_job.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }),
    )
    .unwrap();
    let running = bus.start().await.unwrap();
    let pause = rule(RuleKind::Pause, "handler:t");
    let mut sent_in_all = 0;
    for _ in 0..rounds {
        let emits = (0..20).map(|n| Emit::to("t.j").payload(&n)).collect();
        let events = (0..20).map(|n| NewEvent::new("t").object(format!("o{n}"))).collect();
        let (jobs, events, set) =
            tokio::join!(bus.emit_all(emits), bus.publish_all(events), bus.set_rule(pause.clone()));
        jobs.unwrap();
        events.unwrap();
        set.unwrap();
        let at_answer = started.load(Ordering::SeqCst);
        sent_in_all += 40;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(started.load(Ordering::SeqCst), at_answer, "something started after the answer");
        bus.lift_rule(RuleKind::Pause, &pause.scope, "ann").await.unwrap();
    }
    until("all have run", async || (started.load(Ordering::SeqCst) == sent_in_all).then_some(())).await;
    running.shutdown(LONG).await.unwrap();
}

/// H15: everything that waited goes on, however much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resume_strands_nothing() {
    let held = std::env::var("ENSUE_HELD").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let bus = Ensue::memory().await.unwrap();
    let (jobs, events) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (by_job, by_event) = (jobs.clone(), events.clone());
    bus.register(
        "t.j",
        with(by_job, async |by_job, _: Event, _: Context| {
            by_job.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }),
    )
    .unwrap();
    bus.on("t")
        .named("h")
        .handle(with(by_event, async |by_event, _: Event, _: Context| {
            by_event.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }))
        .unwrap();
    let running = bus.start().await.unwrap();
    let pause = rule(RuleKind::Pause, "handler:t");
    bus.set_rule(pause.clone()).await.unwrap();
    for chunk in 0..held / 1_000 {
        bus.emit_all((0..1_000).map(|n| Emit::to("t.j").object(format!("o{}", n % 100)).payload(&chunk)).collect())
            .await
            .unwrap();
        bus.publish_all((0..1_000).map(|n| NewEvent::new("t").object(format!("o{}", n % 100))).collect())
            .await
            .unwrap();
    }
    bus.lift_rule(RuleKind::Pause, &pause.scope, "ann").await.unwrap();
    until("all have run", async || {
        let ran = (jobs.load(Ordering::SeqCst), events.load(Ordering::SeqCst));
        (ran == (held, held)).then_some(())
    })
    .await;
    running.shutdown(LONG).await.unwrap();
}

/// What waits for a rule takes nobody's room, and nobody waits for it who waits for the rest.
#[tokio::test]
async fn much_that_a_rule_holds_leaves_room_for_the_others() {
    let bus = Ensue::memory().await.unwrap();
    let seen = Seen::default();
    let note = async |seen: Seen, event: Event, _: Context| {
        seen.add(event.object.unwrap().to_string());
        Ok(())
    };
    bus.on("t").named("ordered").handle(with(seen.clone(), note)).unwrap();
    bus.on("t").named("unordered").unordered().handle(with(seen.clone(), note)).unwrap();
    bus.on("t").named("paused").handle(with(seen.clone(), note)).unwrap();
    let running = bus.start().await.unwrap();
    let (object, handler) = (rule(RuleKind::Pause, "object:o"), rule(RuleKind::Pause, "handler:t.paused"));
    bus.set_rule(object.clone()).await.unwrap();
    bus.set_rule(handler.clone()).await.unwrap();
    for _ in 0..3 {
        bus.publish_all((0..1_000).map(|_| NewEvent::new("t").object("o")).collect()).await.unwrap();
    }
    bus.publish(NewEvent::new("t").object("p")).await.unwrap();
    tokio::time::timeout(LONG, bus.drain()).await.expect("what a rule holds is waited for by nobody").unwrap();
    assert_eq!(seen.all(), ["p", "p"]);
    bus.lift_rule(RuleKind::Pause, &object.scope, "ann").await.unwrap();
    bus.lift_rule(RuleKind::Pause, &handler.scope, "ann").await.unwrap();
    until("all have run", async || (seen.all().len() == 3 * 3_001).then_some(())).await;
    running.shutdown(LONG).await.unwrap();
}

/// A test that fails leaves nothing standing.
struct LetsGo(Arc<AtomicBool>);

impl LetsGo {
    /// Also keeps timers running until then. A handler that blocks a thread of the runtime may hold the one that drives
    /// timers; each task that is spawned from outside wakes another thread, which takes that over.
    fn with_timers(go: Arc<AtomicBool>) -> Self {
        let (runtime, blocked) = (tokio::runtime::Handle::current(), go.clone());
        std::thread::spawn(move || {
            while !blocked.load(Ordering::SeqCst) {
                runtime.spawn(async {});
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self(go)
    }
}

impl Drop for LetsGo {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// H17: jobs were claimed ahead when a pause is set: they are not started after it was acknowledged, and use up no attempt.
#[tokio::test]
async fn what_was_claimed_before_a_pause_is_not_started_after_it() {
    const JOBS: u64 = 300;
    let bus = Ensue::memory().await.unwrap();
    let (started, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let handler = async |(started, gate): (Arc<AtomicU64>, Arc<tokio::sync::Semaphore>), job: Event, _: Context| {
        started.fetch_add(1, Ordering::SeqCst);
        // Short ones come first, so that many are claimed ahead of the one that waits.
        if job.payload.as_str() == "100" {
            gate.acquire().await?.forget();
        }
        Ok(())
    };
    bus.register_with("h", at_once(1), with((started.clone(), gate.clone()), handler)).unwrap();
    let sent = bus.emit_all((0..JOBS).map(|n| Emit::to("h").payload(&n)).collect()).await.unwrap();
    let running = bus.start().await.unwrap();
    until("one waits", async || (started.load(Ordering::SeqCst) == 101).then_some(())).await;
    let pause = rule(RuleKind::Pause, "handler:h");
    bus.set_rule(pause.clone()).await.unwrap();
    gate.add_permits(1);
    until("nothing runs", async || {
        let counts = bus.store().job_counts().await.unwrap();
        counts.iter().all(|count| count.state != JobState::Running).then_some(())
    })
    .await;
    assert_eq!(started.load(Ordering::SeqCst), 101, "something started under the pause");
    bus.lift_rule(RuleKind::Pause, &pause.scope, "ann").await.unwrap();
    for job in sent {
        assert_eq!(until_state(&bus, job.id, JobState::Succeeded).await.attempts, 1);
    }
    running.shutdown(LONG).await.unwrap();
}

/// H17: who asked for a pause stops waiting for the answer while a handler is about to start. The pause is taken over all the
/// same, and nobody is told that it holds before that handler has had its first turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_change_of_rules_whose_answer_nobody_waits_for_is_taken_over_whole() {
    let bus = Ensue::memory().await.unwrap();
    let (entered, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let first_turn = async |(entered, go): (Arc<AtomicBool>, Arc<AtomicBool>), _: Event, _: Context| {
        entered.store(true, Ordering::SeqCst);
        // Without giving way: it is in its first turn until it may go on.
        while !go.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    };
    let _lets_go_at_the_end = LetsGo::with_timers(go.clone());
    bus.register("h", with((entered.clone(), go.clone()), first_turn)).unwrap();
    let running = bus.start().await.unwrap();
    sent(&bus, Emit::to("h")).await;
    until("it is about to start", async || entered.load(Ordering::SeqCst).then_some(())).await;
    let hasty = tokio::time::timeout(Duration::from_millis(50), bus.set_rule(rule(RuleKind::Pause, "handler:h")));
    assert!(hasty.await.is_err(), "it is not answered while something may start");
    let version = bus.store().rules_version().await.unwrap();
    assert_eq!(version, 1, "the rule is there");
    let awaited = async || !bus.store().rules_awaited(version).await.unwrap().is_empty();
    // Longer than the pulse takes, which looks whether the rules are those that were reported.
    for _ in 0..25 {
        assert!(awaited().await, "it was reported while something was about to start");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    go.store(true, Ordering::SeqCst);
    until("it is reported", async || (!awaited().await).then_some(())).await;
    running.shutdown(LONG).await.unwrap();
}
