//! What does a schedule promise that is kept?

use super::Subject;
use super::jobs::{dies, held, job, rule};
use super::positions::name;
use crate::factory::Factory;
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::{JobChange, JobEnd, JobId, JobQuery, JobState, NewJob};
use ensue_core::rules::RuleKind;
use ensue_core::schedules::port::{FIRINGS_MAX, RUNS_MAX};
use ensue_core::schedules::{
    Declared, Declarer, Fired, Firing, Kept, Makes, Moves, NewRun, PutSchedule, Run, RunOutcome, What,
};
use ensue_core::store::PAGE_BYTES_MAX;
use ensue_core::{Filter, Json, NewEvent, ObjectKey, StoreError, Timestamp};
use jiff::SignedDuration;
use tokio::task::JoinSet;
use uuid::Uuid;

const LEASE: SignedDuration = SignedDuration::from_secs(120);

fn event(schedule: &str) -> Makes {
    let event = NewEvent::new("tick").object(format!("schedule:{schedule}")).check();
    Makes::Event(event.expect("an event"))
}

fn unique(schedule: &str) -> Makes {
    let unique_key = Some(format!("schedule:{schedule}"));
    Makes::Job(NewJob { unique_key, on_exhausted: OnExhausted::Skip, ..job("h") })
}

fn fires(occurrence: Timestamp, makes: Makes) -> NewRun {
    NewRun { occurrence, manual: false, what: What::Fires(makes) }
}

fn skips(occurrence: Timestamp, reason: &str) -> NewRun {
    NewRun { occurrence, manual: false, what: What::Skipped(reason.into()) }
}

fn minute(kept: &Kept, n: i64) -> Timestamp {
    kept.watermark + SignedDuration::from_mins(n)
}

/// Fires what is due a minute after its watermark.
fn next(kept: &Kept, makes: Makes) -> Firing {
    let moves = Moves { from: kept.watermark, to: minute(kept, 1), due: Some(minute(kept, 2)) };
    let runs = vec![fires(moves.to, makes)];
    Firing { name: kept.name.clone(), version: kept.version, moves: Some(moves), runs }
}

fn outcomes(fired: &Fired) -> Vec<RunOutcome> {
    match fired {
        Fired::Done(runs) => runs.iter().map(|run| run.outcome.clone()).collect(),
        Fired::Lost | Fired::Held => panic!("{fired:?}"),
    }
}

fn job_of(fired: &Fired) -> JobId {
    match &outcomes(fired)[..] {
        [RunOutcome::Job(id)] => *id,
        other => panic!("{other:?}"),
    }
}

impl Subject {
    fn to_put(&self, schedule: &str) -> PutSchedule {
        let now = self.clock.now();
        PutSchedule {
            name: name(schedule),
            definition: Json::parse("definition", r#"{"cron":"* * * * *"}"#).expect("JSON"),
            managed_by: None,
            over: None,
            watermark: now,
            due: Some(now + SignedDuration::from_mins(1)),
        }
    }

    async fn put(&self, put: PutSchedule) -> Kept {
        self.store.put_schedule(put).await.expect("it is kept").expect("it is decided over what is there")
    }

    async fn put_new(&self, schedule: &str) -> Kept {
        self.put(self.to_put(schedule)).await
    }

    async fn kept(&self, schedule: &str) -> Kept {
        self.store.schedule(&name(schedule)).await.expect("a look").expect("it is there")
    }

    async fn fire(&self, firing: Firing) -> Fired {
        self.store.fire(vec![firing]).await.expect("it is fired").remove(0)
    }

    async fn runs(&self, schedule: &str) -> Vec<Run> {
        self.store.schedule_runs(&name(schedule), None, 1_000).await.expect("runs")
    }

    async fn due(&self) -> Vec<String> {
        let due = self.store.due_schedules(self.clock.now(), 100).await.expect("what is due");
        due.iter().map(|one| one.name.to_string()).collect()
    }

    async fn names(&self) -> Vec<String> {
        let all = self.store.schedules(None, 100).await.expect("schedules");
        all.iter().map(|one| one.name.to_string()).collect()
    }

    async fn declare(&self, process: u128, names: &[&str]) -> Declared {
        let names: Vec<_> = names.iter().map(|one| name(one)).collect();
        self.store.declare_schedules(Uuid::from_u128(process), &names, LEASE).await.expect("declared")
    }
}

/// All of it, also after a restart.
pub async fn a_schedule_comes_back_as_it_was_put(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let put = PutSchedule { managed_by: Some("config".into()), ..subject.to_put("a.ü") };
    let made = subject.put(put.clone()).await;
    let now = subject.clock.now();
    assert_eq!((made.name.as_str(), &made.definition, &made.managed_by), ("a.ü", &put.definition, &put.managed_by));
    assert_eq!((made.watermark, made.due, made.held), (put.watermark, put.due, false));
    assert_eq!((made.created_at, made.updated_at), (now, now));
    subject.reopen().await;
    assert_eq!(subject.kept("a.ü").await, made);
    assert_eq!(subject.store.schedule(&name("b")).await, Ok(None));
    assert_eq!(subject.store.next_schedule().await, Ok(put.due));
    assert_eq!(subject.store.pulse(None).await.expect("a pulse").schedules_due, put.due);
}

/// Whoever decided over what is no longer there is told so, and changes nothing; no version comes twice.
pub async fn a_schedule_is_changed_over_what_is_there(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let first = subject.put_new("s").await;
    let refused = [
        subject.to_put("s"),
        PutSchedule { over: Some((first.version + 1, first.watermark)), ..subject.to_put("s") },
        PutSchedule { over: Some((first.version, minute(&first, 1))), ..subject.to_put("s") },
        PutSchedule { over: Some((first.version, first.watermark)), ..subject.to_put("t") },
    ];
    for put in refused {
        assert_eq!(subject.store.put_schedule(put).await, Ok(None));
    }
    assert_eq!((subject.names().await, subject.kept("s").await), (vec!["s".to_owned()], first.clone()));
    subject.clock.advance_millis(5_000);
    let over = Some((first.version, first.watermark));
    let changed = subject.put(PutSchedule { over, due: None, ..subject.to_put("s") }).await;
    assert!(changed.version > first.version);
    assert_eq!((changed.created_at, changed.updated_at), (first.created_at, subject.clock.now()));
    assert_eq!((changed.watermark, changed.due), (subject.clock.now(), None));
    assert_eq!(subject.store.next_schedule().await, Ok(None));
    assert_eq!(subject.store.delete_schedule(&name("s")).await, Ok(true));
    assert_eq!(subject.store.delete_schedule(&name("s")).await, Ok(false));
    assert!(subject.put_new("s").await.version > changed.version);
}

/// By name, page by page.
pub async fn schedules_come_page_by_page(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for one in ["b", "B", "a.b", "ü", "a"] {
        subject.put_new(one).await;
    }
    assert_eq!(subject.names().await, ["B", "a", "a.b", "b", "ü"]);
    let page = subject.store.schedules(Some(&name("a")), 2).await.expect("a page");
    assert_eq!(page.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a.b", "b"]);
}

/// The longest due first, and no more than asked for.
pub async fn what_is_due_is_found_in_its_order(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let now = subject.clock.now();
    for (schedule, secs) in [("c", 10), ("b", 20), ("a", 10), ("d", 30)] {
        subject.put(PutSchedule { due: Some(now + SignedDuration::from_secs(secs)), ..subject.to_put(schedule) }).await;
    }
    subject.put(PutSchedule { due: None, ..subject.to_put("never") }).await;
    assert_eq!(subject.due().await, [""; 0]);
    subject.clock.advance_millis(20_000);
    assert_eq!(subject.due().await, ["a", "c", "b"]);
    let two = subject.store.due_schedules(subject.clock.now(), 2).await.expect("what is due");
    assert_eq!(two.len(), 2);
    assert_eq!(subject.store.next_schedule().await, Ok(Some(now + SignedDuration::from_secs(10))));
}

/// Hundreds that are due at once are read in parts: no more than a page has room for, and one at least.
pub async fn what_is_due_has_room_for_so_many_bytes(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let large = |bytes: usize| Json::parse("definition", format!("\"{}\"", "x".repeat(bytes))).expect("JSON");
    let half = PAGE_BYTES_MAX / 2 - 10;
    for (schedule, bytes) in [("a", half), ("b", half), ("c", 100), ("d", PAGE_BYTES_MAX + 1), ("e", 1)] {
        subject.put(PutSchedule { definition: large(bytes), ..subject.to_put(schedule) }).await;
    }
    subject.clock.advance_millis(60_000);
    let expected: [&[&str]; 3] = [&["a", "b"], &["c"], &["d"]];
    for names in expected {
        assert_eq!(subject.due().await, names);
        for one in names {
            subject.fire(next(&subject.kept(one).await, event(one))).await;
        }
    }
    assert_eq!(subject.due().await, ["e"]);
}

/// Who has looked need not look there again, but for what is put or let go since, also by another process.
pub async fn what_is_put_or_let_go_is_due_however_long_ago(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let early = minute(&subject.put_new("s").await, 1);
    subject.store.set_rule(rule(RuleKind::Pause, "schedule:s")).await.expect("set");
    subject.put_new("t").await;
    subject.clock.advance_millis(600_000);
    assert_eq!(subject.due().await, ["t"]);
    let late = subject.kept("t").await;
    let moves = Moves { from: late.watermark, to: minute(&late, 10), due: Some(minute(&late, 11)) };
    subject.fire(Firing { moves: Some(moves), ..next(&late, event("t")) }).await;
    assert_eq!(subject.due().await, [""; 0]);
    let next_due = async || {
        let (next, pulse) = (subject.store.next_schedule().await, subject.store.pulse(None).await);
        let next = next.expect("a look");
        assert_eq!(pulse.expect("a pulse").schedules_due, next, "the pulse tells the same");
        next
    };
    assert_eq!(next_due().await, Some(minute(&late, 11)));
    subject.put(PutSchedule { due: Some(early), ..subject.to_put("u") }).await;
    assert_eq!(next_due().await, Some(early));
    assert_eq!(subject.due().await, ["u"]);
    subject.store.delete_schedule(&name("u")).await.expect("gone");
    assert_eq!((subject.due().await, next_due().await), (vec![], Some(minute(&late, 11))));
    let scope = rule(RuleKind::Pause, "schedule:s").scope;
    subject.store.lift_rule(RuleKind::Pause, &scope, "ada").await.expect("lifted");
    assert_eq!(next_due().await, Some(early));
    assert_eq!(subject.due().await, ["s"]);
}

/// The watermark, the event and what is written of it are there together, also after a restart.
pub async fn an_event_is_published_with_the_watermark(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let kept = subject.put_new("s").await;
    subject.clock.advance_millis(60_500);
    let firing = next(&kept, event("s"));
    let fired = subject.fire(firing.clone()).await;
    assert_eq!(outcomes(&fired), [RunOutcome::Event(1)]);
    subject.reopen().await;
    let moved = subject.kept("s").await;
    assert_eq!((moved.watermark, moved.due), (minute(&kept, 1), Some(minute(&kept, 2))));
    assert_eq!(moved.version, kept.version, "it is the same schedule");
    let log = subject.log().await;
    assert_eq!((log.len(), log[0].object.as_ref().map(ObjectKey::as_str)), (1, Some("schedule:s")));
    let run = Run {
        number: 1,
        occurrence: minute(&kept, 1),
        at: subject.clock.now(),
        manual: false,
        outcome: RunOutcome::Event(1),
    };
    assert_eq!(subject.runs("s").await, [run]);
}

/// Two who have decided from the same watermark: the second is told, and nothing of it is there (H20).
pub async fn an_occurrence_fires_once(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let kept = subject.put_new("s").await;
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let (store, firing) = (subject.store.clone(), next(&kept, if n % 2 == 0 { event("s") } else { unique("s") }));
        tasks.spawn(async move { store.fire(vec![firing]).await.expect("an answer").remove(0) });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|fired| matches!(fired, Fired::Done(_))).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|fired| **fired == Fired::Lost).count(), 7);
    assert_eq!(subject.runs("s").await.len(), 1);
    let jobs = subject.store.jobs(JobQuery::default(), 10).await.expect("jobs").jobs;
    assert_eq!(subject.log().await.len() + jobs.len(), 1);
    // Nor does one that was decided about another schedule of the name, or about one that is gone.
    let moved = subject.kept("s").await;
    let stale = Firing { version: moved.version + 1, ..next(&moved, event("s")) };
    assert_eq!(subject.fire(stale).await, Fired::Lost);
    subject.store.delete_schedule(&name("s")).await.expect("deleted");
    assert_eq!(subject.fire(next(&moved, event("s"))).await, Fired::Lost);
    assert_eq!(subject.runs("s").await, []);
}

/// While the job of an earlier occurrence lives the next one is not made, and says whose job it was; after it, it is.
pub async fn an_occurrence_that_overlaps_is_left_out(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let kept = subject.put_new("s").await;
    let first = job_of(&subject.fire(next(&kept, unique("s"))).await);
    let taken = subject.take_this("h", first).await;
    let kept = subject.kept("s").await;
    assert_eq!(outcomes(&subject.fire(next(&kept, unique("s"))).await), [RunOutcome::Overlapped(first)]);
    assert_eq!(subject.runs("s").await[0].outcome, RunOutcome::Overlapped(first));
    // One failed night does not stop the next.
    subject.settle_job(JobChange::new(held(&taken), dies())).await;
    let kept = subject.kept("s").await;
    let second = job_of(&subject.fire(next(&kept, unique("s"))).await);
    assert_ne!(second, first);
    let taken = subject.take_this("h", second).await;
    subject.settle_job(JobChange::new(held(&taken), JobEnd::Succeeded)).await;
    // Several in one firing: the first is made.
    let kept = subject.kept("s").await;
    let mut firing = next(&kept, unique("s"));
    firing.runs.insert(0, fires(minute(&kept, 1) - SignedDuration::from_secs(30), unique("s")));
    let both = outcomes(&subject.fire(firing).await);
    assert!(matches!(both[..], [RunOutcome::Job(made), RunOutcome::Overlapped(by)] if made == by), "{both:?}");
}

/// Jobs of one object run one after another, whatever becomes of each.
pub async fn occurrences_wait_for_each_other_in_a_lane(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let in_lane = || {
        let object = Some(ObjectKey::stored("schedule:s"));
        Makes::Job(NewJob { object, on_exhausted: OnExhausted::Skip, ..job("h") })
    };
    let first = job_of(&subject.fire(next(&subject.put_new("s").await, in_lane())).await);
    let second = job_of(&subject.fire(next(&subject.kept("s").await, in_lane())).await);
    let taken = subject.take_this("h", first).await;
    assert_eq!(subject.job_now(second).await.state, JobState::Parked);
    subject.settle_job(JobChange::new(held(&taken), dies())).await;
    subject.take_this("h", second).await;
}

/// Each of a call gets its own answer, in order, and what one loses does not touch the others.
pub async fn many_schedules_fire_in_one_call(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let mut firings = Vec::new();
    for n in 0..20 {
        let schedule = format!("s{n:02}");
        let kept = subject.put_new(&schedule).await;
        firings.push(next(&kept, if n % 2 == 0 { event(&schedule) } else { unique(&schedule) }));
    }
    firings[4].version += 1_000;
    firings[7].moves = Some(Moves { from: Timestamp::UNIX_EPOCH, ..firings[7].moves.expect("it moves") });
    let mut skipped = firings[10].runs[0].occurrence;
    skipped -= SignedDuration::from_secs(1);
    firings[10].runs.insert(0, skips(skipped, "2 were missed"));
    let fired = subject.store.fire(firings.clone()).await.expect("fired");
    assert_eq!(fired.len(), 20);
    let mut seq = 0;
    for (n, fired) in fired.iter().enumerate() {
        let schedule = format!("s{n:02}");
        if n == 4 || n == 7 {
            assert_eq!(*fired, Fired::Lost);
            assert_eq!(subject.runs(&schedule).await, []);
            continue;
        }
        let outcomes = outcomes(fired);
        if n == 10 {
            assert_eq!(outcomes[0], RunOutcome::Skipped("2 were missed".into()));
        }
        match outcomes.last().expect("a run") {
            RunOutcome::Event(found) => {
                seq += 1;
                assert_eq!(*found, seq);
            }
            RunOutcome::Job(id) => {
                assert_eq!(subject.job_now(*id).await.unique_key, Some(format!("schedule:{schedule}")));
            }
            other => panic!("{other:?}"),
        }
        let Fired::Done(mut runs) = fired.clone() else { panic!("it is done") };
        runs.reverse();
        assert_eq!(subject.runs(&schedule).await, runs);
    }
    assert_eq!(subject.read_all(Filter::default(), 0, 100).await.len(), 9);
    subject.audit().await;
    // Bad ones fire nothing.
    for bad in [Vec::new(), vec![firings[0].clone(), firings[0].clone()]] {
        assert!(matches!(subject.store.fire(bad).await, Err(StoreError::Invalid(_))));
    }
}

/// By hand, whatever is due; the watermark stays.
pub async fn a_schedule_is_fired_by_hand(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let kept = subject.put_new("s").await;
    let now = subject.clock.now();
    let run = NewRun { occurrence: now, manual: true, what: What::Fires(event("s")) };
    let firing = Firing { name: name("s"), version: kept.version, moves: None, runs: vec![run] };
    assert_eq!(outcomes(&subject.fire(firing).await), [RunOutcome::Event(1)]);
    assert_eq!(subject.kept("s").await, kept);
    assert!(subject.runs("s").await[0].manual);
    assert_eq!(outcomes(&subject.fire(next(&kept, event("s"))).await), [RunOutcome::Event(2)]);
}

/// From the commit of the rule on nothing fires, and it costs nothing to look; after it all that was missed is due.
pub async fn a_rule_holds_a_schedule(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let (held, free) = (subject.put_new("s").await, subject.put_new("s.t").await);
    subject.store.set_rule(rule(RuleKind::Pause, "schedule:s")).await.expect("set");
    subject.store.set_rule(rule(RuleKind::Block, "schedule:s")).await.expect("set");
    subject.clock.advance_millis(3_600_000);
    assert_eq!(
        (subject.due().await, subject.kept("s").await.held),
        (vec!["s.t".to_owned()], true),
        "and nothing below it"
    );
    assert_eq!(subject.fire(next(&held, event("s"))).await, Fired::Held);
    assert_eq!(subject.runs("s").await, []);
    subject
        .fire(Firing {
            moves: free.due.map(|_| Moves { from: free.watermark, to: free.watermark, due: None }),
            ..next(&free, event("s"))
        })
        .await;
    assert_eq!(subject.store.next_schedule().await, Ok(None), "what is held is not waited for");
    let scope = rule(RuleKind::Pause, "schedule:s").scope;
    subject.store.lift_rule(RuleKind::Pause, &scope, "ada").await.expect("lifted");
    assert_eq!(subject.due().await, [""; 0], "both coexist");
    subject.store.lift_rule(RuleKind::Block, &scope, "ada").await.expect("lifted");
    assert_eq!(subject.due().await, ["s"]);
    assert!(matches!(subject.fire(next(&held, event("s"))).await, Fired::Done(_)));
    // One that is put while it is held already is held, and lives on when the rule expires.
    let expires_at = Some(subject.clock.now() + SignedDuration::from_secs(10));
    subject
        .store
        .set_rule(ensue_core::rules::NewRule { expires_at, ..rule(RuleKind::Pause, "schedule:u") })
        .await
        .expect("set");
    assert!(subject.put_new("u").await.held);
    subject.clock.advance_millis(10_000);
    subject.store.expire_rules().await.expect("expired");
    assert!(!subject.kept("u").await.held);
}

/// The last hundred, numbered on.
pub async fn runs_are_kept_up_to_a_number(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let kept = subject.put_new("s").await;
    let many: Vec<NewRun> = (0..RUNS_MAX as i64 + 20).map(|n| skips(minute(&kept, n), "missed")).collect();
    let firing = Firing { runs: many, moves: None, ..next(&kept, event("s")) };
    subject.fire(firing).await;
    subject.fire(next(&kept, event("s"))).await;
    let runs = subject.runs("s").await;
    assert_eq!((runs.len() as u64, runs[0].number, runs[99].number), (RUNS_MAX, 121, 22));
    let page = subject.store.schedule_runs(&name("s"), Some(100), 2).await.expect("runs");
    assert_eq!(page.iter().map(|run| run.number).collect::<Vec<_>>(), [99, 98]);
    let too_many = vec![skips(kept.watermark, "x"); FIRINGS_MAX + 1];
    let answer = subject.store.fire(vec![Firing { runs: too_many, ..next(&kept, event("s")) }]).await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))));
}

/// What a process declares lives as long as one declares it; what was made to stay stays.
pub async fn a_schedule_that_nobody_declares_goes(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    assert_eq!(
        subject.declare(1, &["a", "b"]).await,
        Declared { missing: vec![name("a"), name("b")], removed: Vec::new() }
    );
    for one in ["a", "b"] {
        subject.put(PutSchedule { managed_by: Some("config".into()), ..subject.to_put(one) }).await;
    }
    subject.put_new("stays").await;
    assert_eq!(subject.declare(2, &["b"]).await, Declared::default());
    assert_eq!(subject.declare(1, &["a", "stays"]).await, Declared::default());
    assert_eq!(subject.declare(2, &[]).await.removed, [name("b")]);
    assert_eq!(subject.names().await, ["a", "stays"]);
    subject.reopen().await;
    assert_eq!(subject.declare(2, &[]).await, Declared::default());
    let until = subject.clock.now() + SignedDuration::from_secs(120);
    let first = vec![Declarer { process: Uuid::from_u128(1), until }];
    for (of, declarers) in [(None, &first), (Some("a"), &first), (Some("b"), &Vec::new())] {
        let named = of.map(name);
        assert_eq!(subject.store.declarers(named.as_ref()).await.as_ref(), Ok(declarers), "of {of:?}");
    }
    // Who ends takes nothing along; who comes next, and declares nothing of it, does.
    subject.store.undeclare_schedules(Uuid::from_u128(1)).await.expect("an answer");
    assert_eq!(subject.names().await, ["a", "stays"]);
    assert_eq!(subject.declare(3, &["a"]).await, Declared::default());
    subject.clock.advance_millis(119_000);
    assert_eq!(subject.declare(4, &[]).await, Declared::default());
    // Whoever restarts, or was cut off, has as long again to come back.
    subject.clock.advance_millis(120_000);
    assert_eq!(subject.declare(4, &[]).await, Declared::default(), "it has lapsed, and counts for one lease more");
    subject.clock.advance_millis(2_000);
    assert_eq!(subject.declare(4, &[]).await.removed, [name("a")], "its time has passed");
    assert_eq!(subject.names().await, ["stays"]);
    // What is said again and again is said anew: what a process takes out is out, whatever it said between.
    for names in [&["a", "b"][..], &["a", "b"], &["b", "c", "b"], &["c"]] {
        let missing: Vec<_> =
            names.iter().map(|one| name(one)).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
        assert_eq!(subject.declare(5, names).await, Declared { missing, removed: Vec::new() });
    }
    subject.put(PutSchedule { managed_by: Some("config".into()), ..subject.to_put("c") }).await;
    subject.put(PutSchedule { managed_by: Some("config".into()), ..subject.to_put("b") }).await;
    assert_eq!(subject.declare(6, &[]).await.removed, [name("b")]);
    subject.clock.advance_millis(239_000);
    assert_eq!(subject.declare(5, &["c"]).await, Declared::default());
    subject.clock.advance_millis(200_000);
    assert_eq!(subject.declare(6, &[]).await, Declared::default(), "it was said again");
}

/// What cannot be made leaves the watermark where it was.
pub async fn a_firing_that_is_refused_changes_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let (good, bad) = (subject.put_new("good").await, subject.put_new("poison").await);
    let poison = Makes::Job(NewJob { attempts_max: 0, ..job("h") });
    let answer = subject.store.fire(vec![next(&good, event("good")), next(&bad, poison)]).await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    assert_eq!((subject.kept("good").await, subject.kept("poison").await), (good.clone(), bad));
    assert_eq!(subject.log().await.len(), 0);
    assert_eq!(outcomes(&subject.fire(next(&good, event("good"))).await), [RunOutcome::Event(1)]);
}
