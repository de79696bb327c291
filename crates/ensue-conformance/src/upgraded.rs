//! Does a store that an older program has made still know everything, and does it go on?
//!
//! The engines' tests make stores as they were at each version that was, fill them with the same things, and bring them up to
//! date. What those things are is told here once: by what must be found then, through the port.

use crate::ManualClock;
use crate::suite::{checked, read_all};
use ensue_core::chain::Audit;
use ensue_core::definitions::NewDefinition;
use ensue_core::jobs::{Claim, Held, Job, JobChange, JobEnd, JobId, JobSettled, JobState, NewJob, Steer, Steered};
use ensue_core::positions::{
    Acquire, GroupKind, LaneChange, LaneKey, LaneQuery, LaneState, Member, NewSubscription, ParkedQuery, Settled,
    SlotChange, Start,
};
use ensue_core::rules::{RuleKind, Scope};
use ensue_core::schedules::{Fired, Firing, Moves, NewRun, RunOutcome, What};
use ensue_core::store::{Cancelled, SharedStore};
use ensue_core::tasks::TaskQuery;
use ensue_core::{Event, EventId, Filter, Found, GroupName, Json, NewEvent, ObjectKey, Seq, StoreError, Topic};
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use uuid::Uuid;

const LEASE: SignedDuration = SignedDuration::from_secs(30);

/// What the older program knew of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knew {
    /// The log alone.
    Log,
    /// Groups with their lanes and deliveries, too.
    Positions,
    /// What is parked, who serves what, replays, jobs and rules, too.
    Jobs,
    /// Handlers that the store keeps, too.
    Definitions,
    /// How far a job is, and schedules, too.
    Schedules,
    /// What was published in somebody's own transaction, too.
    Outbox,
}

/// So many seconds after the noon at which all of it begins.
fn at(seconds: i64) -> Timestamp {
    let noon = ManualClock::at_noon().now();
    noon.checked_add(SignedDuration::from_secs(seconds)).expect("a time")
}

/// A time at which nothing of it is due yet but what is said to be.
pub fn clock() -> ManualClock {
    ManualClock::at(at(60))
}

/// The id of the event with this number that was made at this second.
fn id(second: i64, number: u128) -> EventId {
    let millis = u128::try_from(at(second).as_millisecond()).expect("after 1970");
    EventId(Uuid::from_u128(millis << 80 | 7 << 76 | number << 64 | 8 << 60 | number))
}

fn job_id(number: u16) -> JobId {
    JobId::new(at(0), number, u64::from(number))
}

/// A subscription or rule of the fixtures.
fn known(number: u128) -> Uuid {
    Uuid::from_u128(7 << 76 | 8 << 60 | number)
}

fn name(text: &str) -> GroupName {
    GroupName::stored(text)
}

/// One event of the log as it was: where, when, and what.
fn event(seq: Seq, prev: Option<Seq>, topic: &str, object: Option<&str>, payload: &str) -> Event {
    let second = i64::try_from(seq).expect("few events");
    Event {
        seq,
        prev,
        id: id(second, seq.into()),
        topic: Topic::stored(topic),
        object: object.map(ObjectKey::stored),
        payload: Json::stored(payload),
        metadata: Json::empty_object(),
        occurred_at: at(second),
        recorded_at: at(second),
        to: None,
    }
}

/// The log as it was; retention had taken the first two.
fn the_log() -> Vec<Event> {
    vec![
        Event {
            metadata: Json::stored(r#"{"by":"ann"}"#),
            occurred_at: at(-60),
            ..event(3, Some(2), "orders.paid", Some("order/1"), r#"{"n":3}"#)
        },
        event(4, None, "a.b", None, "null"),
        Event { to: Some(known(5)), ..event(5, None, "news", None, r#"{"n":5}"#) },
        event(6, None, "orders.made", Some("order/2"), r#"{"n":6}"#),
        // It was delayed, and kept its id.
        Event { id: id(1, 7), occurred_at: at(1), ..event(7, Some(6), "later", Some("order/2"), r#"{"n":7}"#) },
        event(8, Some(3), "orders.paid", Some("order/1"), r#"{"n":8}"#),
    ]
}

/// Everything is there, and goes on. The store is at [`clock`].
pub async fn check(store: &SharedStore, clock: &ManualClock, knew: Knew) {
    log_is_read(store).await;
    if knew >= Knew::Positions {
        groups_are_known(store, knew).await;
    }
    if knew >= Knew::Jobs {
        jobs_are_known(store).await;
        rules_are_known(store).await;
    }
    if knew >= Knew::Schedules {
        schedules_are_known(store).await;
    }
    log_goes_on(store, knew).await;
    groups_go_on(store, knew).await;
    jobs_go_on(store, knew).await;
    if knew >= Knew::Definitions {
        definitions_go_on(store).await;
    }
    if knew >= Knew::Schedules {
        schedules_go_on(store).await;
    }
    delayed_events_come(store, clock).await;
    retention_goes_on(store).await;
}

/// The log is what it was. A store that is only looked at is not brought up to date, and shows that much.
pub async fn log_is_read(store: &SharedStore) {
    let bounds = store.bounds().await.unwrap();
    assert_eq!((bounds.first, bounds.last), (3, 8));
    let log = read_all(store, Filter::default(), 0, 2).await;
    assert_eq!(log, the_log());
    for event in &log {
        assert_eq!(store.find(event.id).await.unwrap(), Some(Found::Logged(event.clone())), "by its id");
    }
    let chain = store.chain(&ObjectKey::stored("order/1"), None, 10).await.unwrap();
    assert_eq!(chain.iter().map(|event| event.seq).collect::<Vec<_>>(), [8, 3]);
    let pending = store.pending(10).await.unwrap();
    let told: Vec<_> = pending.iter().map(|event| (event.id, event.topic.as_str(), event.not_before)).collect();
    assert_eq!(told, [(id(4, 20), "soon", at(3_600)), (id(5, 21), "late", at(7_200))]);
    assert_eq!(pending[1].metadata, Json::stored(r#"{"x":1}"#));
    assert_eq!(store.find(id(4, 20)).await.unwrap(), Some(Found::Pending(pending[0].clone())));
}

/// Keys still tell what was published under them, and numbers go on where they were, in the log and in the chain of each object.
async fn log_goes_on(store: &SharedStore, knew: Knew) {
    let append = async |event: NewEvent| store.append(checked(vec![event])).await;
    let again = NewEvent::new("orders.made").object("order/2").payload_json(r#"{"n":6}"#).key("k6");
    let answer = append(again).await.unwrap()[0];
    assert_eq!((answer.id, answer.seq, answer.repeated), (id(6, 6), Some(6), true));
    let another = append(NewEvent::new("orders.made").key("k6")).await;
    assert!(matches!(another, Err(StoreError::Conflict(_) | StoreError::KeyConflict { .. })), "{another:?}");
    let soon = NewEvent::new("soon").object("order/2").payload_json(r#"{"n":20}"#).not_before(at(3_600)).key("k20");
    let answer = append(soon).await.unwrap()[0];
    assert_eq!((answer.id, answer.seq, answer.repeated), (id(4, 20), None, true));

    // What waits in the outbox goes first.
    let moved: Seq = if knew >= Knew::Outbox { 2 } else { 0 };
    let batch = vec![NewEvent::new("new").object("order/1"), NewEvent::new("new").object("order/2")];
    let answers = store.append(checked(batch)).await.unwrap();
    let places: Vec<_> = answers.iter().map(|answer| (answer.seq, answer.prev)).collect();
    assert_eq!(places, [(Some(9 + moved), Some(8 + moved)), (Some(10 + moved), Some(7))]);
    if knew >= Knew::Outbox {
        let log = read_all(store, Filter::default(), 8, 10).await;
        assert_eq!((log[0].id, log[0].prev, log[0].metadata.as_str()), (id(9, 30), Some(8), r#"{"by":"sql"}"#));
        assert_eq!((log[1].id, log[1].prev), (id(9, 31), Some(9)));
        assert!(matches!(store.find(id(9, 31)).await.unwrap(), Some(Found::Logged(event)) if event.seq == 10));
        let again = NewEvent::new("sent").object("order/1").payload_json(r#"{"n":31}"#).key("k31");
        assert_eq!(append(again).await.unwrap()[0].seq, Some(10), "what was published in SQL under a key");
        assert!(matches!(store.find(id(9, 32)).await.unwrap(), Some(Found::Pending(_))));
    }
}

async fn groups_are_known(store: &SharedStore, knew: Knew) {
    let mail = store.group(&name("mail")).await.unwrap().expect("a group");
    assert_eq!((mail.kind, mail.created_at, mail.version, mail.subscriptions), (GroupKind::Handler, at(1), 4, 1));
    assert_eq!((mail.slots[0].cursor, mail.slots[0].fence, mail.slots[0].vanished), (8, 3, 0));
    let replay = mail.slots[0].replay.map(|replay| (replay.to, replay.resume));
    assert_eq!(replay, (knew >= Knew::Jobs).then_some((3, 5)));
    let reader = store.group(&name("reader")).await.unwrap().expect("a group");
    assert_eq!((reader.kind, reader.slots[0].cursor, reader.slots[0].fence), (GroupKind::Pull, 5, 2));
    let subscriptions = store.subscriptions(&name("reader"), None, 10).await.unwrap();
    let told: Vec<_> = subscriptions.iter().map(|s| (s.id, s.condition.as_deref(), s.created_after)).collect();
    assert_eq!(told, [(known(2), None, 2), (known(3), Some("e.seq > 1"), 2)]);
    assert_eq!(subscriptions[0].expires_in, Some(SignedDuration::from_hours(1)));

    let slots = vec![0];
    let lanes = store.lanes(LaneQuery::Slots { group: name("mail"), slots, after: None }, 10).await.unwrap();
    let told: Vec<_> = lanes.iter().map(|row| (row.lane.key.to_text(), row.lane.position, row.lane.state)).collect();
    let parked_from = if knew >= Knew::Jobs { 2 } else { 3 };
    let held = ("o:order/1".into(), parked_from, LaneState::Held);
    assert_eq!(told, [("e:4".into(), 4, LaneState::Dead), held, ("o:order/2".into(), 6, LaneState::Waiting)]);
    assert_eq!((lanes[0].ask.map(|ask| ask.as_str()), lanes[0].lane.redriven), (Some("retry"), true));
    assert_eq!((lanes[1].lane.attempts, lanes[1].lane.error.as_deref(), lanes[1].since), (5, Some("no"), at(5)));
    assert_eq!(lanes[2].lane.not_before, Some(at(20)));
    let delivery = &store.deliveries(4).await.unwrap()[0];
    assert_eq!((delivery.attempts, delivery.error.as_deref(), delivery.finished_at), (5, Some("boom"), at(7)));
    let lines = store.lines(&name("mail"), 4, 0, 10).await.unwrap();
    assert_eq!(lines.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["trying", "boom"]);
    if knew >= Knew::Jobs {
        let key = LaneKey::Object(ObjectKey::stored("order/1"));
        let parked = store.parked(ParkedQuery::Lane { group: name("mail"), key, after: 0 }, 10).await.unwrap();
        assert_eq!(parked, [event(2, None, "orders.made", Some("order/1"), r#"{"n":2}"#)]);
    }
}

/// Slots are taken over under a new fence, lanes are written, subscriptions are shared, made and told of.
async fn groups_go_on(store: &SharedStore, knew: Knew) {
    let wanted = |group: &str, topic: &str, expires_in| NewSubscription {
        group: name(group),
        topic: Some(Topic::stored(topic)),
        condition: None,
        params: Json::empty_object(),
        expires_in,
    };
    if knew >= Knew::Positions {
        let member = Member { id: Uuid::from_u128(9), name: "new".into(), kind: GroupKind::Handler };
        let acquire = Acquire { group: name("mail"), member, lease: LEASE, slots: Vec::new(), go_on: None };
        let acquired = store.acquire(acquire).await.unwrap().expect("a group");
        let slot = acquired.slots[0];
        assert!(
            slot.fence > 3 && slot.cursor == 8 && slot.vanished == 1,
            "its owner went without a word: {acquired:?}"
        );
        let key = LaneKey::Object(ObjectKey::stored("order/1"));
        let mut change = SlotChange::new(name("mail"), 0, Uuid::from_u128(9), slot.fence);
        (change.cursor, change.lanes) = (Some(9), vec![LaneChange::Remove(key.clone())]);
        let late = SlotChange::new(name("mail"), 0, Uuid::from_u128(1), 3);
        let settled = store.settle(vec![change, late]).await.unwrap();
        assert_eq!(settled, [Settled::Done(Vec::new()), Settled::FenceLost]);
        assert_eq!(store.group(&name("mail")).await.unwrap().expect("a group").slots[0].cursor, 9);
        let parked = ParkedQuery::Lane { group: name("mail"), key, after: 0 };
        assert_eq!(store.parked(parked, 10).await.unwrap(), [], "it goes with its lane");
        store.leave(Uuid::from_u128(9)).await.unwrap();

        let hour = Some(SignedDuration::from_hours(1));
        let (same, new) = store.subscribe(wanted("reader", "orders", hour)).await.unwrap();
        assert_eq!((same.id, new), (known(2), false));
        let before = store.group(&name("reader")).await.unwrap().expect("a group").version;
        let (other, new) = store.subscribe(wanted("reader", "news", None)).await.unwrap();
        assert!(new && other.created_after > 8, "{other:?}");
        let changes = store.subscription_changes(&name("reader"), before, 10).await.unwrap().expect("they are known");
        assert_eq!(changes.there.iter().map(|s| s.id).collect::<Vec<_>>(), [other.id]);
        let moved = store.seek(&name("mail"), 5).await.unwrap().expect("a group");
        assert_eq!(moved.slots[0].cursor, 5);
        assert!(store.delete_group(&name("reader")).await.unwrap());
    }
    assert!(store.subscribe(wanted("another", "orders", None)).await.unwrap().1);
    let member = Member { id: Uuid::from_u128(8), name: "server".into(), kind: GroupKind::Handler };
    store.serve(member, LEASE, vec![name("mail")]).await.unwrap();
    assert!(store.pulse(Some((Uuid::from_u128(8), LEASE))).await.unwrap().renewed.is_some());
}

async fn job(store: &SharedStore, number: u16) -> Job {
    store.job(job_id(number)).await.unwrap().unwrap_or_else(|| panic!("job {number}"))
}

async fn jobs_are_known(store: &SharedStore) {
    use JobState::{Available, Cancelled, Dead, Parked, Retrying, Running, Scheduled, Succeeded};
    let states = [Available, Running, Scheduled, Retrying, Parked, Succeeded, Dead, Cancelled, Available];
    for (number, state) in (1..).zip(states) {
        let job = job(store, number).await;
        assert_eq!((job.state, job.payload.as_str()), (state, format!(r#"{{"n":{number}}}"#).as_str()));
        assert_eq!((job.enqueued_at, job.attempts_max), (at(8), 5));
    }
    let first = job(store, 1).await;
    assert_eq!((first.priority, first.cause.expect("a cause").id), (7, id(6, 6)));
    let running = job(store, 2).await;
    assert_eq!((running.worker.as_deref(), running.fence, running.lease_until), (Some("w"), 4, Some(at(600))));
    let dead = job(store, 7).await;
    assert_eq!((dead.holds_lane(), dead.errors[0].error.as_str(), dead.errors[0].at), (true, "for good", at(9)));
    assert_eq!(job(store, 6).await.result, Some(Json::stored(r#"{"ok":true}"#)));
    let lines = store.job_lines(job_id(2), 0, 10).await.unwrap();
    assert_eq!(lines.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(store.job_servers().await.unwrap()[0].until, at(30));
    let counts = store.job_counts().await.unwrap();
    assert!(counts.iter().any(|count| (count.handler.as_str(), count.state, count.count) == ("send", Scheduled, 1)));
}

async fn rules_are_known(store: &SharedStore) {
    let rules = store.rules().await.unwrap();
    let pause = rules.find(RuleKind::Pause, &Scope::Handler(name("task.shop"))).expect("a rule");
    assert_eq!((pause.id, pause.author.as_str(), pause.reason.as_deref()), (known(0x11), "ann", Some("stock")));
    let block = rules.find(RuleKind::Block, &Scope::Object(ObjectKey::stored("order/7"))).expect("a rule");
    assert_eq!((block.id, block.expires_at), (known(0x12), Some(at(100))));
    assert!(rules.version() >= 2);
}

/// What ran goes on under its claim, what waits is run in its order, and what is over is over.
async fn jobs_go_on(store: &SharedStore, knew: Knew) {
    let claim = async |handler: &str| {
        let handlers = vec![(name(handler), 1)];
        let wish = Claim { handlers, limit: 1, lease: LEASE, worker: "v".into(), ends_with_store: false };
        store.claim(wish).await.unwrap().first().map(|job| Held { id: job.id, fence: job.fence })
    };
    let end = async |held: Held| {
        let settled = store.settle_jobs(vec![JobChange::new(held, JobEnd::Succeeded)]).await.unwrap();
        assert!(matches!(settled[0], JobSettled::Done { state: JobState::Succeeded, .. }), "{settled:?}");
    };
    if knew >= Knew::Jobs {
        let running = Held { id: job_id(2), fence: 4 };
        assert!(store.renew_jobs(&[running], LEASE).await.unwrap()[0].is_some(), "whoever has it keeps it");
        if knew >= Knew::Schedules {
            let progress = store.progress(&[job_id(2)]).await.unwrap()[0].clone().expect("it said how far it is");
            assert_eq!((progress.done, progress.total, progress.unit.as_deref()), (3, Some(10), Some("rows")));
        }
        end(running).await;
        let first = claim("send").await.expect("a job");
        assert_eq!(first.id, job_id(1));
        end(first).await;
        assert_eq!(store.wake_jobs(10).await.unwrap().count, 1, "one was to be tried again by now");
        for expected in [4, 5] {
            let held = claim("send").await.expect("a job of the lane");
            assert_eq!(held.id, job_id(expected), "in the order of the lane");
            end(held).await;
        }
        assert_eq!(claim("send").await, None);
        assert_eq!(claim("task.shop.orders").await, None, "a rule holds it");
        let unique = NewJob { unique_key: Some("u3".into()), ..NewJob::new(name("send")) };
        let sent = store.enqueue(vec![unique]).await.unwrap()[0];
        assert_eq!((sent.id, sent.is_new), (job_id(3), false));
        assert!(matches!(store.steer(&[job_id(7)], Steer::Retry).await.unwrap()[0], Steered::Done(_)));
        assert_eq!(claim("send").await.map(|held| held.id), Some(job_id(7)), "the dead one is back");
        let query = TaskQuery {
            source: "shop".into(),
            collection: None,
            states: Vec::new(),
            from: at(0),
            to: at(10),
            after: None,
        };
        assert_eq!(store.tasks(query, 10).await.unwrap()[0].id, job_id(9));
        assert!(store.lift_rule(RuleKind::Pause, &Scope::Handler(name("task.shop")), "ann").await.unwrap().is_some());
        end(claim("task.shop.orders").await.expect("nothing holds it")).await;
    }
    let new = store.enqueue(vec![NewJob::new(name("fresh"))]).await.unwrap()[0];
    assert!(new.is_new && (knew < Knew::Jobs || new.id.number() > 9), "{new:?}");
    end(claim("fresh").await.expect("the new job")).await;
}

async fn definitions_go_on(store: &SharedStore) {
    let (version, there) = store.definitions().await.unwrap();
    assert_eq!((version, there.len()), (1, 1));
    assert_eq!((there[0].key.as_str(), there[0].subscription, there[0].revision), ("work", known(4), 1));
    let again = NewDefinition {
        key: name("work"),
        start: Start::Now,
        slots: 1,
        topic: Some(Topic::stored("news")),
        condition: None,
        params: Json::empty_object(),
        settings: Json::stored(r#"{"a":2}"#),
        by: None,
    };
    let (definition, new) = store.define(again).await.unwrap();
    assert_eq!((definition.subscription, definition.revision, new), (known(4), 2, false));
    assert!(store.undefine(&name("work")).await.unwrap());
}

async fn schedules_are_known(store: &SharedStore) {
    let daily = store.schedule(&name("daily")).await.unwrap().expect("a schedule");
    assert_eq!((daily.definition.as_str(), daily.managed_by.as_deref()), (r#"{"every":"day"}"#, Some("app")));
    assert_eq!((daily.watermark, daily.due, daily.held, daily.version), (at(0), Some(at(50)), false, 1));
    assert!(store.schedule(&name("held")).await.unwrap().expect("a schedule").held);
    let runs = store.schedule_runs(&name("daily"), None, 10).await.unwrap();
    assert_eq!((runs.len(), runs[0].number, &runs[0].outcome), (1, 1, &RunOutcome::Event(3)));
    let declarers = store.declarers(Some(&name("daily"))).await.unwrap();
    let told: Vec<_> = declarers.iter().map(|one| (one.process, one.until)).collect();
    assert_eq!(told, [(Uuid::from_u128(1), at(90))]);
}

async fn schedules_go_on(store: &SharedStore) {
    let due = store.due_schedules(at(60), 10).await.unwrap();
    assert_eq!(due.iter().map(|kept| kept.name.as_str()).collect::<Vec<_>>(), ["daily"], "a rule holds the other");
    let firing = Firing {
        name: name("daily"),
        version: due[0].version,
        moves: Some(Moves { from: at(0), to: at(50), due: Some(at(90_000)) }),
        runs: vec![NewRun { occurrence: at(50), manual: false, what: What::Skipped("a test".into()) }],
    };
    let fired = store.fire(vec![firing.clone()]).await.unwrap();
    assert!(matches!(&fired[0], Fired::Done(runs) if runs[0].number == 2), "{fired:?}");
    assert_eq!(store.fire(vec![firing]).await.unwrap(), [Fired::Lost], "an occurrence fires once");
    let declared = store.declare_schedules(Uuid::from_u128(2), &[name("daily")], LEASE).await.unwrap();
    assert_eq!((declared.missing.len(), declared.removed.len()), (0, 0));
    let hold = Scope::Schedule(name("held"));
    assert!(store.lift_rule(RuleKind::Pause, &hold, "ann").await.unwrap().is_some());
    assert!(!store.schedule(&name("held")).await.unwrap().expect("a schedule").held);
}

async fn delayed_events_come(store: &SharedStore, clock: &ManualClock) {
    let before = store.bounds().await.unwrap().last;
    clock.advance(Duration::from_secs(3_600));
    let released = store.release_due(10).await.unwrap();
    assert_eq!((released.count, released.last), (1, before + 1));
    let soon = store.event(before + 1).await.unwrap().expect("it was due");
    assert_eq!((soon.id, soon.topic.as_str(), soon.occurred_at), (id(4, 20), "soon", at(4)));
    assert_eq!(store.cancel(id(5, 21)).await.unwrap(), Cancelled::Gone);
    assert_eq!(store.cancel(id(4, 20)).await.unwrap(), Cancelled::AlreadyLogged(before + 1));
    let log = read_all(store, Filter::default(), 0, 1_000).await;
    assert_eq!(&log[..6], the_log(), "as it was");
    let bounds = store.bounds().await.unwrap();
    let (mut audit, mut faults) = (Audit::from(bounds.first), Vec::new());
    log.iter().for_each(|event| audit.see(event, &mut faults));
    audit.end(bounds.last, &mut faults);
    assert_eq!(faults, []);
}

async fn retention_goes_on(store: &SharedStore) {
    let last = store.bounds().await.unwrap().last;
    let bounds = store.trim(6, 100).await.unwrap();
    assert_eq!((bounds.first, bounds.last), (6, last));
    assert_eq!(store.find(id(3, 3)).await.unwrap(), None);
    assert!(store.bytes().await.unwrap() > 0);
    store.purge_keys(10).await.unwrap();
    store.purge_deliveries(at(4_000), 0, 100).await.unwrap();
    store.purge_jobs(at(4_000), 0, 100).await.unwrap();
    store.purge_tasks(at(4_000), 0, 100).await.unwrap();
}
