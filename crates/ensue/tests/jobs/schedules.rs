//! What fires at a time fires once, whoever restarts, and says what became of it.

use crate::support::{LONG, Seen, at_once, rule, until, with};
use ensue::jobs::JobQuery;
use ensue::rules::RuleKind;
use ensue::schedules::{Misfire, Overlap, PutSchedule, Run, RunOutcome, Schedule, Target, Timing};
use ensue::tasks::{CollectionHandler, CollectionOptions};
use ensue::testing::{ManualClock, memory_at};
use ensue::{Context, Emit, Ensue, Event, GroupName, HandlerError, Json, Read, Topic};
use jiff::SignedDuration;
use std::time::Duration;
use tokio::sync::watch;

fn name(text: &str) -> GroupName {
    GroupName::parse("name", text).unwrap()
}

fn every_minute(schedule: &str, target: Target) -> Schedule {
    let timing = Timing::every(SignedDuration::from_mins(1), None).unwrap();
    Schedule::new(name(schedule), timing, target)
}

fn topic() -> Target {
    Target::Topic(Topic::parse("tick").unwrap())
}

async fn runs(bus: &Ensue, schedule: &str) -> Vec<Run> {
    bus.schedule_runs(&name(schedule), None, 100).await.unwrap()
}

async fn events(bus: &Ensue) -> Vec<Event> {
    let read = Read {
        after: 0,
        limit: 1_000,
        filter: ensue::Filter { topic: Some(Topic::parse("tick").unwrap()), ..Default::default() },
    };
    bus.store().read(read).await.unwrap().events
}

fn occurrence(event: &Event) -> String {
    let said: serde_json::Value = serde_json::from_str(event.metadata.as_str()).unwrap();
    said["occurrence"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_occurrence_is_an_event_on_the_schedules_object() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let running = bus.start().await.unwrap();
    let (made, is_new) = bus.schedule(every_minute("t", topic())).await.unwrap();
    assert!(is_new && made.next.len() == 5 && made.warning.is_none());
    for n in 1..=2 {
        clock.advance(Duration::from_secs(60));
        until("it fires", async || (events(&bus).await.len() == n).then_some(())).await;
    }
    let all = events(&bus).await;
    assert!(all.iter().all(|event| event.object.as_ref().is_some_and(|object| object.as_str() == "schedule:t")));
    assert_eq!(all[1].prev, Some(all[0].seq));
    assert_eq!(
        all.iter().map(occurrence).collect::<Vec<_>>(),
        made.next[..2].iter().map(ToString::to_string).collect::<Vec<_>>()
    );
    let outcomes: Vec<_> = runs(&bus, "t").await.into_iter().map(|run| run.outcome).collect();
    assert_eq!(outcomes, [RunOutcome::Event(all[1].seq), RunOutcome::Event(all[0].seq)]);
    assert_eq!(bus.explain_schedule(&name("t")).await.unwrap().verdict, "waiting");
    // The same again changes nothing, and nothing is missed by it.
    let (again, is_new) = bus.schedule(every_minute("t", topic())).await.unwrap();
    assert!(!is_new && again.kept.version == made.kept.version);
    running.shutdown(LONG).await.unwrap();
}

/// H20: nobody was there for five minutes and a half.
#[tokio::test]
async fn the_misfire_policy_decides_about_what_was_missed() {
    for (misfire, fired, skipped) in [(Misfire::Once, 1, 1), (Misfire::All, 5, 0), (Misfire::Skip, 0, 1)] {
        let clock = ManualClock::at_noon();
        let bus = memory_at(&clock).await.unwrap();
        bus.schedule(Schedule { misfire, ..every_minute("t", topic()) }).await.unwrap();
        clock.advance(Duration::from_secs(340));
        let running = bus.start().await.unwrap();
        until("it is decided", async || (runs(&bus, "t").await.len() == fired + skipped).then_some(())).await;
        assert_eq!(events(&bus).await.len(), fired, "{misfire:?}");
        running.shutdown(LONG).await.unwrap();
    }
}

/// What is due at once may be more than one commit has room for: it is cut by bytes, and each occurrence fires once.
#[tokio::test]
async fn much_that_is_due_at_once_fires_in_parts_and_each_once() {
    const MINUTES: usize = 20;
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let payload = Json::parse("payload", format!("\"{}\"", "x".repeat(60_000))).unwrap();
    // Some have missed more than there is room for by themselves.
    let schedules: Vec<(String, Misfire)> =
        (0..60).map(|n| (format!("s{n:02}"), if n % 10 == 0 { Misfire::All } else { Misfire::Once })).collect();
    for (name, misfire) in &schedules {
        let schedule = Schedule { misfire: *misfire, payload: payload.clone(), ..every_minute(name, topic()) };
        bus.schedule(schedule).await.unwrap();
    }
    let noon = clock.now();
    clock.advance(Duration::from_secs(MINUTES as u64 * 60 + 10));
    let running = bus.start().await.unwrap();
    let minutes: Vec<_> = (1..=MINUTES as i64).map(|n| noon + SignedDuration::from_mins(n)).collect();
    let mut seqs = Vec::new();
    for (name, misfire) in &schedules {
        let expected = match misfire {
            Misfire::All => &minutes[..],
            Misfire::Once | Misfire::Skip => &minutes[MINUTES - 1..],
        };
        until("it fires", async || {
            bus.schedule_runs(&GroupName::parse("name", name).unwrap(), None, 1).await.unwrap().pop()
        })
        .await;
        let fired: Vec<_> = runs(&bus, name)
            .await
            .into_iter()
            .rev()
            .filter_map(|run| match run.outcome {
                RunOutcome::Event(seq) => Some((run.occurrence, seq)),
                RunOutcome::Job(_) | RunOutcome::Overlapped(_) | RunOutcome::Skipped(_) => None,
            })
            .collect();
        assert_eq!(fired.iter().map(|(occurrence, _)| *occurrence).collect::<Vec<_>>(), expected, "{name}");
        seqs.extend(fired.into_iter().map(|(_, seq)| seq));
    }
    // And nothing beside: each event of the log is that of one occurrence.
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=bus.store().bounds().await.unwrap().last).collect::<Vec<_>>());
    running.shutdown(LONG).await.unwrap();
}

/// H20: a schedule fires although the service restarts more often than its period.
#[tokio::test]
async fn restarts_neither_skip_nor_double() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let (made, _) = bus.schedule(every_minute("t", topic())).await.unwrap();
    for n in 1..=9 {
        clock.advance(Duration::from_secs(34));
        let running = bus.start().await.unwrap();
        until("what is due has fired", async || (events(&bus).await.len() == n * 34 / 60).then_some(())).await;
        running.shutdown(LONG).await.unwrap();
    }
    let expected: Vec<String> = made.next.iter().map(ToString::to_string).collect();
    assert_eq!(events(&bus).await.iter().map(occurrence).collect::<Vec<_>>(), expected);
}

/// While the job of one occurrence runs the next is left out; with `queue` it waits, with `allow` it runs beside it.
#[tokio::test]
async fn the_overlap_policy_decides_while_a_job_runs() {
    for (overlap, at_once_max, sent) in [(Overlap::Skip, 1, 1), (Overlap::Queue, 1, 2), (Overlap::Allow, 2, 2)] {
        let clock = ManualClock::at_noon();
        let bus = memory_at(&clock).await.unwrap();
        let (open, seen) = (watch::Sender::new(false), Seen::default());
        let handler = with(
            (open.subscribe(), seen.clone()),
            async |(mut open, seen): (watch::Receiver<bool>, Seen), _: Event, _: Context| {
                seen.add("began");
                open.wait_for(|open| *open).await.ok();
                Ok(())
            },
        );
        bus.register_with("report", ensue::JobOptions { concurrency: Some(2), ..at_once(1) }, handler).unwrap();
        let running = bus.start().await.unwrap();
        let target = Target::Handler(name("report"));
        bus.schedule(Schedule { overlap: Some(overlap), ..every_minute("t", target) }).await.unwrap();
        for n in 1..=2 {
            clock.advance(Duration::from_secs(60));
            until("it is decided", async || (runs(&bus, "t").await.len() == n).then_some(())).await;
        }
        until("what may run runs", async || (seen.all().len() >= at_once_max).then_some(())).await;
        let jobs = bus.store().jobs(JobQuery::default(), 10).await.unwrap().jobs;
        assert_eq!((jobs.len(), seen.all().len()), (sent, at_once_max), "{overlap:?}");
        if overlap == Overlap::Skip {
            assert_eq!(runs(&bus, "t").await[0].outcome, RunOutcome::Overlapped(jobs[0].id));
            assert!(matches!(bus.run_schedule(&name("t")).await.unwrap().outcome, RunOutcome::Overlapped(_)));
        }
        open.send_replace(true);
        bus.drain().await.unwrap();
        assert_eq!(seen.all().len(), sent);
        running.shutdown(LONG).await.unwrap();
    }
}

/// A clock that leapt ahead and was set back leaves a schedule silent; put anew it goes on.
#[tokio::test]
async fn a_schedule_that_a_wrong_clock_has_fired_goes_on_when_put_anew() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let now = clock.now();
    let schedule = every_minute("t", topic());
    let ahead = now + SignedDuration::from_hours(48);
    let put = PutSchedule {
        name: name("t"),
        definition: schedule.kept(),
        managed_by: None,
        over: None,
        watermark: ahead,
        due: Some(ahead + SignedDuration::from_mins(1)),
    };
    bus.store().put_schedule(put).await.unwrap().unwrap();
    let why = bus.explain_schedule(&name("t")).await.unwrap();
    assert!(why.because[0].detail.contains("a clock that was ahead"), "{why:?}");
    let (seen, is_new) = bus.schedule(schedule).await.unwrap();
    assert!(!is_new && seen.kept.due <= Some(now + SignedDuration::from_mins(1)), "{seen:?}");
}

/// H20: the job of one waits for somebody's open transaction, which has sent a job with the same unique key.
#[tokio::test]
async fn schedule_whose_job_waits_for_a_transaction_does_not_stop_the_others() {
    let (url, schema) = ensue_conformance::postgres::fresh_schema("schedules");
    let bus = Ensue::open(&url).await.unwrap();
    let url = ensue_conformance::postgres::shared_url();
    let (session, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    session.batch_execute(&format!("BEGIN; SELECT {schema}.enqueue('task.x.y')")).await.unwrap();
    let every_second = |schedule: &str, target: Target| {
        Schedule::new(name(schedule), Timing::every(SignedDuration::from_secs(1), None).unwrap(), target)
    };
    bus.schedule(every_second("blocked", Target::Handler(name("task.x.y")))).await.unwrap();
    bus.schedule(every_second("good", topic())).await.unwrap();
    let running = bus.start().await.unwrap();
    until("the good one fires", async || (events(&bus).await.len() >= 2).then_some(())).await;
    until("the blocked one says why it does not", async || {
        let runs = runs(&bus, "blocked").await;
        runs.iter()
            .any(|run| matches!(&run.outcome, RunOutcome::Skipped(why) if why.contains("open transaction")))
            .then_some(())
    })
    .await;
    session.batch_execute("ROLLBACK").await.unwrap();
    until("the blocked one fires", async || {
        runs(&bus, "blocked").await.iter().any(|run| matches!(run.outcome, RunOutcome::Job(_))).then_some(())
    })
    .await;
    running.shutdown(LONG).await.unwrap();
}

/// H20: one that cannot be read is let be, and says so; the others fire.
#[tokio::test]
async fn one_bad_schedule_does_not_stop_the_others() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let now = clock.now();
    let unreadable = |text: &str| Json::parse("definition", text.to_owned()).unwrap();
    for (bad, text) in [("a", r#"{"cron":"nope"}"#), ("b", "{}")] {
        let due = Some(now + SignedDuration::from_secs(1));
        let put = PutSchedule {
            name: name(bad),
            definition: unreadable(text),
            managed_by: None,
            over: None,
            watermark: now,
            due,
        };
        bus.store().put_schedule(put).await.unwrap().unwrap();
    }
    bus.schedule(every_minute("good", topic())).await.unwrap();
    let running = bus.start().await.unwrap();
    clock.advance(Duration::from_secs(60));
    until("the good one fires", async || (events(&bus).await.len() == 1).then_some(())).await;
    until("the bad ones say why they do not", async || {
        let told = runs(&bus, "a").await.into_iter().chain(runs(&bus, "b").await);
        let told: Vec<Run> = told
            .filter(|run| matches!(&run.outcome, RunOutcome::Skipped(why) if why.contains("cannot be read")))
            .collect();
        (told.len() >= 2).then_some(())
    })
    .await;
    assert_eq!(bus.explain_schedule(&name("a")).await.unwrap().verdict, "failing");
    assert!(bus.find_schedule(&name("b")).await.unwrap().unwrap().schedule.is_err());
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn a_paused_schedule_fires_nothing_and_then_as_its_policy_says() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let running = bus.start().await.unwrap();
    bus.schedule(every_minute("t", topic())).await.unwrap();
    bus.schedule(every_minute("other", topic())).await.unwrap();
    bus.set_rule(rule(RuleKind::Pause, "schedule:t")).await.unwrap();
    clock.advance(Duration::from_secs(600));
    until("the other fires", async || (!events(&bus).await.is_empty()).then_some(())).await;
    assert_eq!(
        (runs(&bus, "t").await, bus.explain_schedule(&name("t")).await.unwrap().verdict.as_str()),
        (Vec::new(), "held")
    );
    assert!(bus.run_schedule(&name("t")).await.unwrap_err().to_string().contains("lift the rule"));
    bus.lift_rule(RuleKind::Pause, &rule(RuleKind::Pause, "schedule:t").scope, "ann").await.unwrap();
    until("it makes up for it once", async || (runs(&bus, "t").await.len() == 2).then_some(())).await;
    assert!(matches!(&runs(&bus, "t").await[1].outcome, RunOutcome::Skipped(why) if why.starts_with("9 were missed")));
    running.shutdown(LONG).await.unwrap();
}

/// What a config file declares goes when nobody declares it, and a restart in between loses nothing.
#[tokio::test]
async fn declared_schedules_live_as_long_as_somebody_declares_them() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let declared = |schedule: &str| Schedule { managed_by: Some("config".into()), ..every_minute(schedule, topic()) };
    bus.schedule(every_minute("mine", topic())).await.unwrap();
    let failed = bus.declare_schedules(vec![declared("a"), declared("b"), declared("mine")]).await.unwrap();
    assert_eq!(failed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["mine"], "{failed:?}");
    for refused in [bus.schedule(every_minute("a", topic())).await.map(drop), bus.delete_schedule(&name("a")).await] {
        assert!(refused.unwrap_err().to_string().contains("declared by config"));
    }
    let running = bus.start().await.unwrap();
    running.shutdown(LONG).await.unwrap();
    let names = async || {
        let all = bus.schedules(None, 10).await.unwrap();
        all.iter().map(|one| one.kept.name.to_string()).collect::<Vec<_>>()
    };
    let other = uuid::Uuid::from_u128(7);
    let lease = jiff::SignedDuration::from_secs(120);
    assert!(bus.store().declare_schedules(other, &[name("other")], lease).await.unwrap().removed.is_empty());
    assert_eq!(names().await, ["a", "b", "mine"], "who ends takes nothing along, whoever else declares something");
    let before = bus.find_schedule(&name("a")).await.unwrap().unwrap();
    clock.advance(Duration::from_secs(90));
    bus.declare_schedules(vec![declared("a")]).await.unwrap();
    assert_eq!(names().await, ["a", "mine"]);
    let after = bus.find_schedule(&name("a")).await.unwrap().unwrap();
    assert_eq!((after.kept.watermark, after.kept.version), (before.kept.watermark, before.kept.version));
    let past = Schedule { timing: Timing::cron("0 0 0 1 1 ? 2020", None).unwrap(), ..declared("past") };
    assert!(bus.declare_schedules(vec![declared("a"), past]).await.unwrap().is_empty());
    assert_eq!(bus.find_schedule(&name("past")).await.unwrap().unwrap().kept.due, None);
    bus.delete_schedule(&name("mine")).await.unwrap();
    assert!(bus.delete_schedule(&name("mine")).await.is_err());
}

/// An engine of one process has no other: what it does not declare when it starts is declared by nobody.
#[tokio::test]
async fn what_was_declared_before_a_restart_goes_at_once_where_nobody_else_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("e.db").display());
    let declared = |schedule: &str| Schedule { managed_by: Some("config".into()), ..every_minute(schedule, topic()) };
    let bus = Ensue::open(&store).await.unwrap();
    bus.declare_schedules(vec![declared("a"), declared("b")]).await.unwrap();
    let before = bus.find_schedule(&name("a")).await.unwrap().unwrap();
    bus.close().await;
    // A command that declares nothing removes nothing, and may delete what nobody who lives declares.
    let bus = Ensue::open(&store).await.unwrap();
    bus.delete_schedule(&name("b")).await.unwrap();
    bus.declare_schedules(vec![declared("a"), declared("b")]).await.unwrap();
    assert!(bus.delete_schedule(&name("b")).await.unwrap_err().to_string().contains("declared by config"));
    bus.close().await;
    let bus = Ensue::open(&store).await.unwrap();
    bus.declare_schedules(vec![declared("a")]).await.unwrap();
    assert!(bus.find_schedule(&name("b")).await.unwrap().is_none());
    let after = bus.find_schedule(&name("a")).await.unwrap().unwrap();
    assert_eq!((after.kept.watermark, after.kept.version), (before.kept.watermark, before.kept.version));
    bus.close().await;
}

/// Of a collection's tasks at most one is live, whichever schedule sends it.
#[tokio::test]
async fn a_schedule_of_ones_own_sends_no_second_task_of_a_collection() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let code = async |_task: Event<Json>, _cx: Context| Ok::<(), HandlerError>(());
    let collection = CollectionHandler::new("s", "c", CollectionOptions::default(), code).unwrap();
    bus.set_collections(vec![collection]).await.unwrap();
    let target = || Target::Handler(name("task.s.c"));
    for overlap in [Overlap::Queue, Overlap::Allow] {
        let refused = bus.schedule(Schedule { overlap: Some(overlap), ..every_minute("mine", target()) }).await;
        assert!(refused.unwrap_err().to_string().contains("`overlap` is `skip`"));
    }
    bus.schedule(every_minute("mine", target())).await.unwrap();
    let task = bus.run_task("s", "c").await.unwrap();
    let run = bus.run_schedule(&name("mine")).await.unwrap();
    assert!(matches!(run.outcome, RunOutcome::Overlapped(job) if task.id.ends_with(&job.to_string())), "{run:?}");
}

/// A task is one of its collection's also where nobody knows the collection: one is live, however it is sent.
#[tokio::test]
async fn who_does_not_know_a_collection_sends_no_second_task_of_it_either() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let target = || Target::Handler(name("task.s.c"));
    for overlap in [Overlap::Queue, Overlap::Allow] {
        let schedule = || Schedule { overlap: Some(overlap), ..every_minute("mine", target()) };
        assert!(bus.schedule(schedule()).await.unwrap_err().to_string().contains("`overlap` is `skip`"));
        // As an Ensue kept it that did not know better: it is fired as `skip`, and put anew it is refused.
        let before = overlap.as_str();
        let there = Schedule { name: name(before), ..schedule() };
        let now = bus.store().now().await.unwrap();
        let put = PutSchedule {
            name: there.name.clone(),
            definition: there.kept(),
            managed_by: None,
            over: None,
            watermark: now,
            due: None,
        };
        bus.store().put_schedule(put).await.unwrap().unwrap();
        assert!(bus.schedule(there).await.unwrap_err().to_string().contains("`overlap` is `skip`"));
    }
    let first = bus.emit(Emit::to("task.s.c").unique_key("mine").object("o")).await.unwrap();
    assert!(first.is_new && !bus.emit(Emit::to("task.s.c")).await.unwrap().is_new);
    bus.schedule(every_minute("mine", target())).await.unwrap();
    for schedule in ["mine", "queue", "allow"] {
        let run = bus.run_schedule(&name(schedule)).await.unwrap();
        assert_eq!(run.outcome, RunOutcome::Overlapped(first.id), "{schedule}");
    }
    let job = bus.job(first.id).await.unwrap().unwrap();
    assert_eq!((job.unique_key.as_deref(), job.priority), (Some("schedule:s.c"), 100));
    // Nobody else has such a key.
    let code = async |_: Event, _: Context| Ok::<(), HandlerError>(());
    let refused = [
        bus.register("task.s.c", code),
        bus.on("task.s").named("c").handle(code),
        bus.on("task.s").named("c").pull(),
        bus.define_pull(&name("task.s.c"), &ensue::PullHandler::on("a")).await.map(drop),
    ];
    for refused in refused {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("`task.s.c`") && refused.contains("collection"), "{refused}");
    }
    bus.on("task.s").named("c.mine").handle(code).unwrap();
}

/// A task has the priority of its collection, through whichever door it comes, unless it says another.
#[tokio::test]
async fn a_task_has_the_priority_of_its_collection_unless_told() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let code = async |_task: Event<Json>, _cx: Context| Ok::<(), HandlerError>(());
    let options = CollectionOptions { priority: 7, ..CollectionOptions::default() };
    let none = CollectionOptions { priority: 0, ..CollectionOptions::default() };
    let collection = CollectionHandler::new("s", "c", options, code).unwrap();
    let refused = bus.set_collections(vec![CollectionHandler::new("s", "c", none, code).unwrap()]).await.unwrap_err();
    assert!(refused.to_string().contains("`priority`"), "{refused}");
    bus.set_collections(vec![collection]).await.unwrap();
    let sends = async |_: Event, cx: Context| {
        cx.emit(Emit::to("task.s.c"))?;
        Ok::<(), HandlerError>(())
    };
    bus.register("sends", sends).unwrap();
    let running = bus.start().await.unwrap();
    bus.schedule(every_minute("mine", Target::Handler(name("task.s.c")))).await.unwrap();
    let told = Schedule { priority: 9, ..every_minute("told", Target::Handler(name("task.s.c"))) };
    bus.schedule(told).await.unwrap();
    bus.emit(Emit::to("task.s.c")).await.unwrap();
    bus.drain().await.unwrap();
    bus.emit(Emit::to("sends")).await.unwrap();
    bus.drain().await.unwrap();
    for schedule in ["mine", "told"] {
        bus.run_schedule(&name(schedule)).await.unwrap();
        bus.drain().await.unwrap();
    }
    let query = JobQuery { handler: Some(name("task.s.c")), ..JobQuery::default() };
    let mut priorities: Vec<u64> = bus.jobs(query, 10).await.unwrap().jobs.iter().map(|job| job.priority).collect();
    priorities.sort_unstable();
    assert_eq!(priorities, [7, 7, 7, 9]);
    running.shutdown(LONG).await.unwrap();
}

/// What is due is part of all that there is to do.
#[tokio::test]
async fn to_drain_is_to_fire_what_is_due_too() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let running = bus.start().await.unwrap();
    bus.schedule(every_minute("t", topic())).await.unwrap();
    clock.advance(Duration::from_secs(60));
    bus.drain().await.unwrap();
    assert_eq!(events(&bus).await.len(), 1);
    running.shutdown(LONG).await.unwrap();
}
