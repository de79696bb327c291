//! What is kept of an object that stands still?

use super::Subject;
use super::positions::{PAST_THE_LEASE_MILLIS, keys, lane_in, name, object_lane, process, reader, waiting};
use crate::factory::Factory;
use ensue_core::positions::{
    Ask, Lane, LaneChange, LaneKey, LaneQuery, LaneRow, LaneState, Settled, SlotChange, SlotNumber, StuckPlace,
};
use ensue_core::{ObjectKey, Seq};
use jiff::SignedDuration;

impl Subject {
    async fn ask(&self, group: &str, key: &LaneKey, ask: Ask) -> Option<LaneRow> {
        self.store.ask_lane(&name(group), key, ask).await.expect("an answer")
    }

    async fn remove_lane(&self, change: &SlotChange, key: LaneKey) {
        self.settle_done(SlotChange { lanes: vec![LaneChange::Remove(key)], ..change.clone() }).await;
    }
}

fn groups_of(rows: &[LaneRow]) -> Vec<&str> {
    rows.iter().map(|row| row.group.as_str()).collect()
}

/// Every field, in every state; objects are named oddly.
pub async fn a_lane_comes_back_as_it_was_put(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.make_handler("h", 3).await;
    let me = process(1);
    let slots = subject.take("h", &me).await;
    let at = subject.clock.now();
    let states = [LaneState::Waiting, LaneState::Held, LaneState::Dead, LaneState::Done];
    let objects = ["o", "e:42", "O", "o' --\\", "ü\u{1f980}%_", "o\u{301}", "o ", &"x".repeat(512)].map(object_lane);
    let mut expected = Vec::new();
    for (n, key) in objects.into_iter().chain([LaneKey::Event(42), LaneKey::Event(u64::MAX >> 1)]).enumerate() {
        let slot = (n % 3) as SlotNumber;
        let lane = Lane {
            key,
            position: 1 << n,
            state: states[n % 4],
            attempts: n as u32 * 1_000,
            not_before: (n % 2 == 0).then(|| at + SignedDuration::from_micros(1_234_567)),
            error: (n % 3 == 0).then(|| format!("it's \"{n}\"\nno route")),
            redriven: n % 2 == 1,
        };
        let change = SlotChange::new(name("h"), slot, me.id, slots[usize::from(slot)].fence);
        subject.put_lanes(&change, [lane.clone()]).await;
        expected.push(LaneRow { group: name("h"), slot, lane, since: at, ask: None, parked_to: None });
    }
    subject.reopen().await;
    for row in &expected {
        assert_eq!(subject.lane("h", &row.lane.key).await.as_ref(), Some(row));
    }
    assert_eq!(subject.lane("h", &object_lane("other")).await, None);
    assert_eq!(subject.lane("other", &object_lane("o")).await, None);
    // An object of that name is not an event of that number.
    assert_ne!(subject.lane("h", &object_lane("e:42")).await, subject.lane("h", &LaneKey::Event(42)).await);
}

/// Attempt after attempt is written over the row: since when it stands still is known, and what was asked is answered.
pub async fn putting_a_lane_again_keeps_since_and_answers_what_was_asked(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_handler("h", 1).await;
    let change = subject.take_one("h", &process(1)).await;
    let key = object_lane("o");
    let since = subject.clock.now();
    subject.put_lanes(&change, [lane_in(LaneState::Held, key.clone(), 3)]).await;
    subject.clock.advance_millis(5_000);
    for ask in [Ask::Retry, Ask::Skip, Ask::Retry] {
        let asked = subject.ask("h", &key, ask).await.expect("a lane");
        assert_eq!((asked.ask, asked.since, asked.lane.position), (Some(ask), since, 3));
        assert_eq!(subject.lane("h", &key).await, Some(asked));
    }
    // The cursor moves, and another lane is written: nothing of this one changes.
    subject.put_lanes(&SlotChange { cursor: Some(0), ..change.clone() }, [waiting(object_lane("p"), 3)]).await;
    assert_eq!(subject.lane("h", &key).await.and_then(|row| row.ask), Some(Ask::Retry));
    let again = Lane { attempts: 2, redriven: true, ..waiting(key.clone(), 4) };
    subject.put_lanes(&change, [again.clone()]).await;
    let row = LaneRow { group: name("h"), slot: 0, lane: again, since, ask: None, parked_to: None };
    assert_eq!(subject.lane("h", &key).await, Some(row));
}

/// A lane that has caught up is gone; the next trouble of that object begins anew.
pub async fn a_lane_that_was_removed_begins_anew(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_handler("g", 1).await;
    subject.make_handler("h", 1).await;
    let me = process(1);
    let key = object_lane("o");
    let (other, change) = (subject.take_one("g", &me).await, subject.take_one("h", &me).await);
    for change in [&other, &change] {
        subject.put_lanes(change, [waiting(key.clone(), 1), waiting(object_lane("p"), 1)]).await;
    }
    subject.ask("h", &key, Ask::Retry).await.expect("a lane");
    subject.remove_lane(&change, key.clone()).await;
    assert_eq!(subject.lane("h", &key).await, None);
    assert_eq!(subject.ask("h", &key, Ask::Retry).await, None);
    subject.remove_lane(&change, key.clone()).await;
    assert!(subject.lane("g", &key).await.is_some() && subject.lane("h", &object_lane("p")).await.is_some());
    subject.clock.advance_millis(1_000);
    subject.put_lanes(&change, [waiting(key.clone(), 5)]).await;
    let row = subject.lane("h", &key).await.expect("a lane");
    assert_eq!((row.since, row.ask), (subject.clock.now(), None));
    // In one change, in order.
    let (put, remove) = (LaneChange::Put(waiting(key.clone(), 7)), LaneChange::Remove(key.clone()));
    subject.settle_done(SlotChange { lanes: vec![put.clone(), remove.clone()], ..change.clone() }).await;
    assert_eq!(subject.lane("h", &key).await, None);
    subject.settle_done(SlotChange { lanes: vec![remove, put], ..change }).await;
    assert_eq!(subject.lane("h", &key).await.map(|row| row.lane.position), Some(7));
}

/// Takeover: who takes slots over reads their lanes, page by page, in any state, by the bytes of their keys.
pub async fn lanes_of_slots_come_by_key_page_by_page(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_handler("h", 3).await;
    subject.make_handler("other", 1).await;
    let me = process(1);
    let slots = subject.take("h", &me).await;
    let others = subject.take_one("other", &me).await;
    subject.put_lanes(&others, [waiting(object_lane("a"), 1)]).await;
    let objects = ["b", "a", "A", "ä", "a.b", "a b", "a-b", "Z", "z", "a_"];
    let events = [9, 10, 100];
    let key = |n: usize| objects.get(n).map_or_else(|| LaneKey::Event(events[n - objects.len()]), |o| object_lane(o));
    let states = [LaneState::Waiting, LaneState::Held, LaneState::Dead, LaneState::Done];
    let mut expected = Vec::new();
    for n in 0..objects.len() + events.len() {
        let slot = n % 3;
        let change = SlotChange::new(name("h"), slot as SlotNumber, me.id, slots[slot].fence);
        subject.put_lanes(&change, [lane_in(states[n % 4], key(n), 1)]).await;
        if slot != 1 {
            expected.push(key(n).to_text());
        }
    }
    expected.sort();
    let query = |after| LaneQuery::Slots { group: name("h"), slots: vec![2, 0], after };
    assert_eq!(keys(&subject.lanes(query(None)).await), expected);
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let page = subject.store.lanes(query(after), 2).await.expect("a page");
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2);
        after = Some(last.lane.key.clone());
        paged.extend(keys(&page));
    }
    assert_eq!(paged, expected);
    assert_eq!(subject.lanes(LaneQuery::Slots { group: name("none"), slots: vec![0], after: None }).await, []);
    assert_eq!(subject.lanes(LaneQuery::Slots { group: name("h"), slots: vec![], after: None }).await, []);
}

/// For people: what waits for somebody, the longest first, in one group or in all. What waits for its time is not theirs.
pub async fn stuck_lanes_come_with_the_oldest_first(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let me = process(1);
    for group in ["g", "h"] {
        subject.make_handler(group, 1).await;
    }
    let (g, h) = (subject.take_one("g", &me).await, subject.take_one("h", &me).await);
    let puts = [
        (&h, "c", LaneState::Held),
        (&g, "b", LaneState::Dead),
        (&g, "w", LaneState::Waiting),
        (&h, "a", LaneState::Dead),
        (&h, "d", LaneState::Done),
        (&g, "z", LaneState::Held),
    ];
    for (n, (change, object, state)) in puts.into_iter().enumerate() {
        // The position says nothing about how long a lane stands still.
        subject.put_lanes(change, [lane_in(state, object_lane(object), 100 - n as Seq)]).await;
        subject.clock.advance_millis(1_000);
    }
    let stuck = async |group: Option<&str>| keys(&subject.lanes(LaneQuery::Stuck { group: group.map(name) }).await);
    assert_eq!(stuck(None).await, ["o:c", "o:b", "o:a", "o:z"]);
    assert_eq!(stuck(Some("g")).await, ["o:b", "o:z"]);
    assert_eq!(stuck(Some("h")).await, ["o:c", "o:a"]);
    assert_eq!(stuck(Some("none")).await, Vec::<String>::new());
    let first = subject.store.lanes(LaneQuery::Stuck { group: None }, 2).await.expect("lanes");
    assert_eq!(keys(&first), ["o:c", "o:b"]);
    // Written again, it has stood still since the first time; one that runs again is not stuck.
    subject.put_lanes(&h, [lane_in(LaneState::Dead, object_lane("c"), 101)]).await;
    subject.put_lanes(&g, [waiting(object_lane("b"), 102)]).await;
    assert_eq!(stuck(None).await, ["o:c", "o:a", "o:z"]);
}

/// What stands still of an object, in all groups; compared in full.
pub async fn lanes_of_an_object_come_by_group(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let me = process(1);
    for group in ["b", "a.b", "B", "a"] {
        subject.make_handler(group, 1).await;
        let change = subject.take_one(group, &me).await;
        let alike = ["o", "O", "o ", "oo", "e:1"].map(|object| waiting(object_lane(object), 1));
        subject.put_lanes(&change, alike.into_iter().chain([waiting(LaneKey::Event(1), 1)])).await;
    }
    let of = |object: &str| LaneQuery::Object(ObjectKey::stored(object));
    let rows = subject.lanes(of("o")).await;
    assert_eq!(groups_of(&rows), ["B", "a", "a.b", "b"]);
    assert!(rows.iter().all(|row| row.lane.key == object_lane("o")));
    assert_eq!(groups_of(&subject.store.lanes(of("o"), 3).await.expect("lanes")), ["B", "a", "a.b"]);
    assert!(subject.lanes(of("e:1")).await.iter().all(|row| row.lane.key == object_lane("e:1")));
    assert_eq!(subject.lanes(of("other")).await, []);
}

/// An owner that hears that something was asked finds out what; a lane in somebody else's slot is not its own. Who takes
/// the slot over finds what the former owner did not do.
pub async fn what_is_asked_is_found_by_who_has_the_slot(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_handler("g", 2).await;
    subject.make_handler("h", 1).await;
    let (me, other) = (process(1), process(2));
    let (mine, theirs) = (subject.want("g", &me, &[0]).await.slots, subject.want("g", &other, &[1]).await.slots);
    let in_h = subject.take_one("h", &me).await;
    let zero = SlotChange::new(name("g"), 0, me.id, mine[0].fence);
    let one = SlotChange::new(name("g"), 1, other.id, theirs[0].fence);
    subject.put_lanes(&zero, ["a", "b"].map(|object| lane_in(LaneState::Held, object_lane(object), 1))).await;
    subject.put_lanes(&one, [lane_in(LaneState::Held, object_lane("c"), 1)]).await;
    subject.put_lanes(&in_h, [lane_in(LaneState::Dead, LaneKey::Event(7), 7)]).await;
    let asked = async |member: uuid::Uuid| {
        let rows = subject.lanes(LaneQuery::Asked(member)).await;
        let mut found: Vec<_> =
            rows.iter().map(|row| (row.group.to_string(), row.lane.key.to_text(), row.ask)).collect();
        found.sort_by(|one, other| one.0.cmp(&other.0).then_with(|| one.1.cmp(&other.1)));
        found
    };
    assert_eq!(asked(me.id).await, []);
    subject.ask("g", &object_lane("b"), Ask::Retry).await.expect("a lane");
    subject.ask("g", &object_lane("c"), Ask::Skip).await.expect("a lane");
    subject.ask("h", &LaneKey::Event(7), Ask::Retry).await.expect("a lane");
    let b = ("g".to_string(), "o:b".to_string(), Some(Ask::Retry));
    let c = ("g".to_string(), "o:c".to_string(), Some(Ask::Skip));
    let seven = ("h".to_string(), "e:7".to_string(), Some(Ask::Retry));
    assert_eq!(asked(me.id).await, [b.clone(), seven]);
    assert_eq!(asked(other.id).await, std::slice::from_ref(&c));
    assert_eq!(subject.store.lanes(LaneQuery::Asked(me.id), 1).await.expect("lanes").len(), 1);
    // It does what was asked of one, gives the other slot back, and the next owner finds what is left.
    subject.remove_lane(&in_h, LaneKey::Event(7)).await;
    subject.store.release(me.id, &name("g"), &[0]).await.expect("released");
    assert_eq!((asked(me.id).await, asked(other.id).await), (vec![], vec![c.clone()]));
    subject.want("g", &other, &[0]).await;
    assert_eq!(asked(other.id).await, [b, c]);
}

/// Nothing is made by asking.
pub async fn asking_of_a_lane_that_is_not_there_is_none(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_handler("h", 1).await;
    let change = subject.take_one("h", &process(1)).await;
    subject.put_lanes(&change, [waiting(object_lane("o"), 1)]).await;
    for (group, key) in [("h", object_lane("p")), ("h", LaneKey::Event(1)), ("none", object_lane("o"))] {
        assert_eq!(subject.ask(group, &key, Ask::Retry).await, None);
        assert_eq!(subject.lane(group, &key).await, None);
    }
    assert_eq!(subject.lane("h", &object_lane("o")).await.and_then(|row| row.ask), None);
}

/// H9: what retention has to keep for a group: the event after its cursor, or an older one that a lane still has to run.
pub async fn a_group_needs_the_events_of_its_lanes(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 20).await;
    subject.make_handler("h", 2).await;
    subject.make_handler("other", 1).await;
    let me = process(1);
    let slots = subject.take("h", &me).await;
    let others = subject.take_one("other", &me).await;
    subject.put_lanes(&others, [waiting(object_lane("o"), 2)]).await;
    let change = |slot: usize| SlotChange::new(name("h"), slot as SlotNumber, me.id, slots[slot].fence);
    let stands = async || {
        let group = subject.group("h").await;
        (group.lanes, group.oldest_lane, group.needs_from())
    };
    assert_eq!(stands().await, (0, None, 1));
    for (slot, cursor) in [(0, 10), (1, 12)] {
        subject.settle_done(SlotChange { cursor: Some(cursor), ..change(slot) }).await;
    }
    assert_eq!(stands().await, (0, None, 11));
    subject.put_lanes(&change(0), [waiting(object_lane("o"), 7)]).await;
    assert_eq!(stands().await, (1, Some(7), 7));
    subject.put_lanes(&change(1), [lane_in(LaneState::Held, object_lane("p"), 4)]).await;
    assert_eq!(stands().await, (2, Some(4), 4));
    subject.put_lanes(&change(1), [waiting(LaneKey::Event(15), 15)]).await;
    assert_eq!(stands().await, (3, Some(4), 4));
    // What is done waits for nothing.
    subject.put_lanes(&change(1), [lane_in(LaneState::Done, object_lane("p"), 4)]).await;
    assert_eq!(stands().await, (2, Some(7), 7));
    subject.remove_lane(&change(0), object_lane("o")).await;
    assert_eq!(stands().await, (1, Some(15), 11));
    subject.settle_done(SlotChange { cursor: Some(11), ..change(0) }).await;
    assert_eq!(stands().await, (1, Some(15), 12));
}

/// H5, H6: an object stands still, and its owner vanishes. The next owner finds the lane as it was, the attempts that
/// were begun included, so that the object goes on where it stood and no successor overtakes it; of what the former
/// owner still writes about it nothing is taken.
pub async fn a_lane_outlives_its_owner(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 5).await;
    subject.make_handler("h", 1).await;
    let (me, other) = (process(1), process(2));
    let mine = subject.take_one("h", &me).await;
    let begun = Lane { attempts: 4, ..waiting(object_lane("o"), 2) };
    subject.put_lanes(&SlotChange { cursor: Some(5), ..mine.clone() }, [begun.clone()]).await;
    let before = subject.lane("h", &begun.key).await;
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    let theirs = subject.take_one("h", &other).await;
    let found = subject.lanes(LaneQuery::Slots { group: name("h"), slots: vec![0], after: None }).await;
    assert_eq!(found.first().map(|row| &row.lane), Some(&begun));
    let late = [
        LaneChange::Put(waiting(begun.key.clone(), 3)),
        LaneChange::Remove(begun.key.clone()),
        LaneChange::Put(waiting(object_lane("new"), 3)),
    ];
    for change in late {
        let late = SlotChange { lanes: vec![change], ..mine.clone() };
        assert_eq!(subject.try_settle(late).await, Settled::FenceLost);
        assert_eq!(subject.lane("h", &begun.key).await, before);
    }
    assert_eq!(subject.group("h").await.lanes, 1);
    subject.remove_lane(&theirs, begun.key.clone()).await;
    assert_eq!(subject.lane("h", &begun.key).await, None);
}

/// Readers of a pull group have lanes too, in its one slot.
pub async fn a_reader_puts_lanes_in_its_one_slot(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 3).await;
    subject.make_pull("g").await;
    let change = subject.take_one("g", &reader(1)).await;
    subject.put_lanes(&change, [waiting(LaneKey::Event(2), 2)]).await;
    let row = subject.lane("g", &LaneKey::Event(2)).await.expect("a lane");
    assert_eq!((row.slot, row.lane.position), (0, 2));
    assert_eq!(subject.group("g").await.lanes, 1);
}

/// Pages of what stands still are the list, whatever stands still since the same moment.
pub async fn stuck_lanes_come_page_by_page(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for group in ["B", "a"] {
        subject.make_handler(group, 1).await;
    }
    let me = process(1);
    let changes = [subject.take_one("B", &me).await, subject.take_one("a", &me).await];
    for round in 0..3 {
        for change in &changes {
            let states = [LaneState::Held, LaneState::Dead, LaneState::Waiting];
            let lane = |(n, state)| lane_in(state, object_lane(&format!("o{round}{n}")), 1);
            subject.put_lanes(change, states.into_iter().enumerate().map(lane)).await;
        }
        subject.clock.advance_millis(1_000);
    }
    subject.put_lanes(&changes[0], [lane_in(LaneState::Held, LaneKey::Event(7), 7)]).await;
    let all = subject.lanes(LaneQuery::Stuck { group: None }).await;
    assert_eq!(all.len(), 13);
    for limit in [1, 2, 5, 100] {
        let mut joined = subject.store.lanes(LaneQuery::Stuck { group: None }, limit).await.expect("lanes");
        loop {
            let place = StuckPlace::of(joined.last().expect("a page"));
            let next = subject.store.lanes(LaneQuery::StuckAfter(place), limit).await.expect("lanes");
            assert!(next.len() <= limit);
            if next.is_empty() {
                break;
            }
            joined.extend(next);
        }
        assert_eq!(joined, all, "in pages of {limit}");
    }
}
