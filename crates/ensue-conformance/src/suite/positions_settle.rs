//! What does an owner write, and when is it written?

use super::Subject;
use super::jobs::{about, job};
use super::positions::{PAST_THE_LEASE_MILLIS, delivery, entries, line, object_lane, process, reader, waiting};
use super::seqs;
use crate::factory::Factory;
use ensue_core::jobs::{JobState, NewJob};
use ensue_core::positions::{EventAt, LaneChange, LaneQuery, Lost, Settled, SlotChange};
use ensue_core::{Appended, NewEvent, Seq, StoreError};
use jiff::SignedDuration;

fn placed(appended: &[Appended]) -> Vec<(Option<Seq>, Option<Seq>)> {
    appended.iter().map(|one| (one.seq, one.prev)).collect()
}

fn published(settled: &Settled) -> &[Appended] {
    match settled {
        Settled::Done(appended) => appended,
        Settled::FenceLost | Settled::WentBack | Settled::Refused(_) => panic!("{settled:?}"),
    }
}

/// A change with something of everything.
fn everything(subject: &Subject, change: SlotChange, seq: Seq) -> SlotChange {
    let at = subject.clock.now();
    SlotChange {
        cursor: Some(seq),
        lanes: vec![LaneChange::Put(waiting(object_lane("o"), seq)), LaneChange::Remove(object_lane("p"))],
        deliveries: vec![delivery(change.group.as_str(), seq, at)],
        lines: vec![line(seq, at, "said")],
        events: entries(vec![NewEvent::new("made").object("o").key(format!("{}:{seq}", change.group))]),
        lost: Some(Lost { from: 1, to: 1 }),
        ..change
    }
}

/// H44: the log has lost the event, or another has taken its place: of the change nothing is written, while what others
/// write in the same commit is. What retention took cannot be compared.
pub async fn a_change_that_relies_on_an_event_that_the_log_lacks_changes_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 5).await;
    subject.make_handler("h", 1).await;
    subject.make_handler("i", 1).await;
    let me = process(1);
    let mine = subject.take_one("h", &me).await;
    let other = subject.take_one("i", &me).await;
    subject.put_lanes(&mine, [waiting(object_lane("p"), 2)]).await;
    let (before, lane) = (subject.group("h").await, subject.lane("h", &object_lane("p")).await);

    let third = subject.store.event(3).await.expect("a look").expect("it is there");
    let held = EventAt::of(&third);
    let replaced = EventAt { seq: 4, ..held };
    let beyond = EventAt { seq: 6, ..held };
    let on = |event: EventAt, change: &SlotChange| SlotChange { relies_on: Some(event), ..change.clone() };
    let cursor_alone = SlotChange { cursor: Some(4), ..mine.clone() };
    let good = on(held, &everything(&subject, other, 3));
    let changes = vec![
        on(replaced, &everything(&subject, mine.clone(), 4)),
        on(beyond, &everything(&subject, mine.clone(), 4)),
        good,
        on(replaced, &cursor_alone),
        on(beyond, &SlotChange { fence: mine.fence + 1, ..cursor_alone.clone() }),
    ];
    let answers = subject.store.settle(changes).await.expect("settled");
    assert_eq!(placed(published(&answers[2])), [(Some(6), Some(5))]);
    for back in [0, 1, 3] {
        assert_eq!(answers[back], Settled::WentBack, "answer {back}");
    }
    assert_eq!(answers[4], Settled::FenceLost);
    assert_eq!(subject.group("h").await, before);
    assert_eq!(subject.lane("h", &object_lane("p")).await, lane);
    assert_eq!(subject.store.deliveries(4).await.expect("a look"), []);

    subject.settle_done(on(held, &SlotChange { cursor: Some(3), ..mine.clone() })).await;
    subject.store.trim(4, 10).await.expect("trimmed");
    subject.settle_done(on(held, &cursor_alone)).await;
    assert_eq!(subject.group("h").await.cursor(), 4);
}

/// H16: A stood still while B took its slot, and goes on: of all that it still has to write nothing is written, while
/// what others write in the same commit is. Its events do not enter the log, and their keys are not used up.
pub async fn a_stale_fence_changes_nothing_while_others_are_written(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 5).await;
    subject.make_handler("h", 1).await;
    subject.make_handler("i", 1).await;
    let (me, other) = (process(1), process(2));
    let mine = subject.take_one("h", &me).await;
    subject.put_lanes(&mine, [waiting(object_lane("p"), 2)]).await;
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    let theirs = subject.take_one("h", &other).await;
    let healthy = subject.take_one("i", &other).await;
    let (before, lane) = (subject.group("h").await, subject.lane("h", &object_lane("p")).await);

    let stale = everything(&subject, mine.clone(), 4);
    let borrowed = SlotChange { fence: theirs.fence, ..stale.clone() };
    let early = SlotChange { member: other.id, ..stale.clone() };
    let elsewhere = SlotChange { slot: 1, member: other.id, fence: theirs.fence, ..stale.clone() };
    let good = everything(&subject, healthy, 3);
    let answers = subject.store.settle(vec![stale, borrowed, good, early, elsewhere]).await.expect("settled");
    assert_eq!(placed(published(&answers[2])), [(Some(6), Some(5))]);
    for lost in [0, 1, 3, 4] {
        assert_eq!(answers[lost], Settled::FenceLost, "answer {lost}");
    }
    assert_eq!(subject.group("h").await, before);
    assert_eq!(subject.lane("h", &object_lane("p")).await, lane);
    assert_eq!(subject.lane("h", &object_lane("o")).await, None);
    assert_eq!((subject.deliveries(4).await, subject.messages("h", 4).await), (vec![], vec![]));
    assert_eq!(subject.bounds().await.last, 6);
    // The key of what was not written is free.
    let again = subject.one(NewEvent::new("other").key("h:4")).await;
    assert_eq!((again.seq, again.repeated), (Some(7), false));
    let written = subject.group("i").await;
    assert_eq!((written.cursor(), written.lanes, written.lost), (3, 1, Some(Lost { from: 1, to: 1 })));
    assert_eq!((subject.deliveries(3).await.len(), subject.messages("i", 3).await), (1, vec!["said".to_string()]));
    subject.audit().await;
}

/// A late or repeated checkpoint: the smaller cursor changes nothing, and the rest of the change is written.
pub async fn a_cursor_never_goes_back(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 10).await;
    subject.make_handler("h", 1).await;
    let change = subject.take_one("h", &process(1)).await;
    for (cursor, stands) in [(Some(4), 4), (Some(2), 4), (None, 4), (Some(0), 4), (Some(4), 4), (Some(9), 9)] {
        let lanes = vec![LaneChange::Put(waiting(object_lane(&format!("o{cursor:?}")), 1))];
        subject.settle_done(SlotChange { cursor, lanes, ..change.clone() }).await;
        assert_eq!(subject.group("h").await.cursor(), stands, "after {cursor:?}");
        assert!(subject.lane("h", &object_lane(&format!("o{cursor:?}"))).await.is_some());
    }
}

/// Over HTTP nobody hears that their time is over: what a reader acknowledges too late counts for nothing, although
/// nobody took its place.
pub async fn a_reader_has_lost_its_slot_when_its_lease_has_passed(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 5).await;
    subject.make_pull("g").await;
    let change = subject.take_one("g", &reader(1)).await;
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS - 1);
    subject.settle_done(SlotChange { cursor: Some(2), ..change.clone() }).await;
    subject.clock.advance_millis(1);
    assert_eq!(subject.try_settle(everything(&subject, change, 4)).await, Settled::FenceLost);
    let group = subject.group("g").await;
    assert_eq!((group.cursor(), group.lanes, group.lost), (2, 0, None));
    assert_eq!((subject.bounds().await.last, subject.deliveries(4).await), (5, vec![]));
}

/// A process was too slow to renew its lease, but what it did is done: it is written until somebody else took the slot.
pub async fn a_process_keeps_its_slot_until_somebody_takes_it(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 5).await;
    subject.make_handler("h", 1).await;
    let change = subject.take_one("h", &process(1)).await;
    subject.clock.advance_millis(100 * PAST_THE_LEASE_MILLIS);
    subject.settle_done(SlotChange { cursor: Some(2), ..change.clone() }).await;
    let theirs = subject.take("h", &process(2)).await[0];
    assert_eq!((theirs.cursor, theirs.vanished), (2, 1));
    assert_eq!(subject.try_settle(SlotChange { cursor: Some(4), ..change }).await, Settled::FenceLost);
    assert_eq!(subject.group("h").await.cursor(), 2);
}

/// What a handler publishes is in the log exactly if its delivery is settled: consecutive, chained, in the order of the
/// changes; what is delayed waits.
pub async fn events_are_published_with_the_change(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 3).await;
    for group in ["g", "h", "i"] {
        subject.make_handler(group, 1).await;
    }
    let me = process(1);
    let later = subject.clock.now() + SignedDuration::from_secs(60);
    let mut changes = Vec::new();
    for (group, events) in [
        ("g", vec![NewEvent::new("a").object("o"), NewEvent::new("b").object("p")]),
        ("h", vec![]),
        (
            "i",
            vec![NewEvent::new("c").object("p"), NewEvent::new("d").not_before(later), NewEvent::new("e").object("o")],
        ),
    ] {
        let events = if events.is_empty() { vec![] } else { entries(events) };
        changes.push(SlotChange { cursor: Some(2), events, ..subject.take_one(group, &me).await });
    }
    let answers = subject.store.settle(changes).await.expect("settled");
    assert_eq!(placed(published(&answers[0])), [(Some(4), Some(3)), (Some(5), None)]);
    assert_eq!(placed(published(&answers[1])), []);
    assert_eq!(placed(published(&answers[2])), [(Some(6), Some(5)), (None, None), (Some(7), Some(4))]);
    subject.reopen().await;
    let log = subject.log().await;
    assert_eq!(seqs(&log), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(log[3..].iter().map(|event| event.topic.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "e"]);
    assert_eq!(log[3].id, published(&answers[0])[0].id);
    assert!(log[3..].iter().all(|event| event.recorded_at == subject.clock.now()));
    assert_eq!(subject.store.pending_count().await, Ok(1));
    assert!(subject.store.groups().await.expect("groups").iter().all(|group| group.cursor() == 2));
    // The log goes on behind them.
    assert_eq!(subject.one(NewEvent::new("t").object("o")).await.prev, Some(7));
    subject.audit().await;
}

/// One handler publishes under a key that was used for another event: its own change is refused, with all that is in it,
/// and those before and after it are written, without a gap in the log.
pub async fn a_key_conflict_refuses_its_own_change_alone(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.one(NewEvent::new("t").key("k")).await;
    let me = process(1);
    let mut changes = Vec::new();
    for (group, second) in [("g", "free"), ("h", "k"), ("i", "mine")] {
        subject.make_handler(group, 1).await;
        let events = entries(vec![NewEvent::new("first").key(group), NewEvent::new("second").key(second)]);
        changes.push(SlotChange { events, ..everything(&subject, subject.take_one(group, &me).await, 1) });
    }
    let before = subject.group("h").await;
    let answers = subject.store.settle(changes.clone()).await.expect("settled");
    assert_eq!(placed(published(&answers[0])), [(Some(2), None), (Some(3), None)]);
    assert_eq!(answers[1], Settled::Refused(StoreError::KeyConflict { key: "k".into() }));
    assert_eq!(placed(published(&answers[2])), [(Some(4), None), (Some(5), None)]);
    assert_eq!(subject.group("h").await, before);
    assert_eq!((subject.lanes(LaneQuery::Object(ensue_core::ObjectKey::stored("o"))).await).len(), 2);
    let groups: Vec<String> = subject.deliveries(1).await.iter().map(|one| one.group.to_string()).collect();
    assert_eq!((groups, subject.messages("h", 1).await), (vec!["g".into(), "i".into()], vec![]));
    assert_eq!(subject.bounds().await.last, 5);
    assert!(!subject.one(NewEvent::new("t").key("h")).await.repeated, "its first key was not used up");
    // Under the same fence it may settle otherwise.
    subject.settle_done(SlotChange { events: vec![], ..changes.remove(1) }).await;
    subject.audit().await;
}

/// A handler that ran twice publishes twice, under the same key: stored once, and both are settled. Two changes of one
/// commit that use a key for different events: the first wins.
pub async fn a_repeated_key_in_a_change_is_stored_once(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let me = process(1);
    let mut changes = Vec::new();
    for (group, topic) in [("g", "a"), ("h", "a"), ("i", "b")] {
        subject.make_handler(group, 1).await;
        let events = entries(vec![NewEvent::new(topic).key("k")]);
        changes.push(SlotChange { events, ..subject.take_one(group, &me).await });
    }
    let answers = subject.store.settle(changes.clone()).await.expect("settled");
    let first = published(&answers[0])[0];
    assert_eq!((first.seq, first.repeated), (Some(1), false));
    assert_eq!(published(&answers[1]), [Appended { repeated: true, ..first }]);
    assert_eq!(answers[2], Settled::Refused(StoreError::KeyConflict { key: "k".into() }));
    let again = subject.try_settle(changes.remove(0)).await;
    assert_eq!(published(&again), [Appended { repeated: true, ..first }]);
    assert_eq!(subject.log().await.len(), 1);
}

/// Two changes of one slot in one call, and no change at all.
pub async fn changes_are_carried_out_in_their_order(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 5).await;
    subject.make_handler("h", 1).await;
    assert_eq!(subject.store.settle(vec![]).await, Ok(vec![]));
    let change = subject.take_one("h", &process(1)).await;
    let at = subject.clock.now();
    let step = |cursor, attempts, message: &str| SlotChange {
        cursor: Some(cursor),
        lanes: vec![LaneChange::Put(ensue_core::positions::Lane { attempts, ..waiting(object_lane("o"), cursor) })],
        lines: vec![line(1, at, message)],
        deliveries: vec![ensue_core::positions::Delivery { attempts, ..delivery("h", 1, at) }],
        ..change.clone()
    };
    let answers = subject.store.settle(vec![step(2, 1, "one"), step(4, 2, "two"), step(3, 3, "three")]).await;
    assert_eq!(answers, Ok(vec![Settled::Done(vec![]); 3]));
    assert_eq!(subject.group("h").await.cursor(), 4);
    // Like a cursor, a lane never goes back: what says so comes late.
    let lane = subject.lane("h", &object_lane("o")).await.expect("a lane").lane;
    assert_eq!((lane.attempts, lane.position), (2, 4));
    assert_eq!(subject.deliveries(1).await[0].attempts, 3);
    assert_eq!(subject.messages("h", 1).await, ["one", "two", "three"]);
}

/// What was acknowledged is there after a restart; the fence too, so that who was late before is late after it.
pub async fn what_was_settled_survives_a_reopen(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 5).await;
    subject.make_pull("g").await;
    let mine = subject.take_one("g", &reader(1)).await;
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    let theirs = subject.take_one("g", &reader(2)).await;
    subject.settle_done(everything(&subject, theirs.clone(), 3)).await;
    let before = subject.group("g").await;
    subject.reopen().await;
    assert_eq!(subject.group("g").await, before);
    assert_eq!(subject.log().await.len(), 6);
    assert_eq!(subject.try_settle(everything(&subject, mine, 4)).await, Settled::FenceLost);
    assert_eq!(subject.group("g").await, before);
    subject.settle_done(SlotChange { cursor: Some(5), ..theirs }).await;
}

/// What a handler sends commits with its settle, in the order in which it was sent; and if anything of the change is refused,
/// or its fence is lost, nothing of it is sent.
pub async fn jobs_are_sent_with_the_change_or_not_at_all(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 5).await;
    subject.one(NewEvent::new("first").key("k")).await;
    subject.make_handler("h", 1).await;
    let me = process(1);
    let change = subject.take_one("h", &me).await;
    let sends = |jobs: Vec<NewJob>| SlotChange { cursor: Some(2), jobs, ..change.clone() };
    let conflict = entries(vec![NewEvent::new("other").key("k")]);
    let refused = SlotChange { events: conflict, ..sends(vec![job("no")]) };
    let invalid = sends(vec![NewJob { attempts_max: 0, ..job("no") }]);
    let stale = SlotChange { fence: change.fence + 1, ..sends(vec![job("no")]) };
    let good = sends(vec![about("a", "o"), about("a", "o"), job("b")]);
    let answers = subject.store.settle(vec![refused, stale, good, invalid]).await.expect("settled");
    assert!(matches!(answers[0], Settled::Refused(StoreError::KeyConflict { .. })), "{:?}", answers[0]);
    assert_eq!(answers[1], Settled::FenceLost);
    assert_eq!(answers[2], Settled::Done(Vec::new()));
    assert!(matches!(answers[3], Settled::Refused(StoreError::Invalid(_))), "{:?}", answers[3]);
    subject.reopen().await;
    let there = subject.all_jobs().await;
    let found: Vec<_> = there.iter().map(|job| (job.handler.as_str(), job.state)).collect();
    let expected = [("a", JobState::Available), ("a", JobState::Parked), ("b", JobState::Available)];
    assert_eq!(found, expected);
    assert_eq!(subject.bounds().await.last, 6);
}
