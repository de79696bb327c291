//! What does a group promise: where it begins, that there is one of a name, what goes with it?

use super::Subject;
use super::positions::{
    LEASE, PAST_THE_LEASE_MILLIS, delivery, lane_in, line, name, names, object_lane, process, reader, waiting, wants,
};
use crate::factory::Factory;
use ensue_core::positions::{
    Acquire, GroupKind, GroupState, LaneQuery, LaneState, Lost, NewGroup, Replay, SLOTS_MAX, Settled, SlotChange,
    SlotState, Start,
};
use ensue_core::{Seq, StoreError};

fn pull(group: &str, start: Start) -> NewGroup {
    NewGroup { name: name(group), kind: GroupKind::Pull, start, slots: 1 }
}

/// A handler that is registered again by every process that starts finds its group as it was, wherever it says that it
/// should begin and however many slots it asks for.
pub async fn a_group_that_is_there_stays_as_it_is(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 5).await;
    let handler = |start, slots| NewGroup { name: name("h"), kind: GroupKind::Handler, start, slots };
    let (made, is_new) = subject.store.create_group(handler(Start::After(3), 4)).await.expect("made");
    assert!(is_new);
    assert_eq!((made.name.as_str(), made.kind, made.cursor()), ("h", GroupKind::Handler, 3));
    let slot = |slot| SlotState {
        slot,
        cursor: 3,
        fence: made.slots[usize::from(slot)].fence,
        vanished: 0,
        owner: None,
        replay: None,
    };
    assert_eq!(made.slots, (0..4).map(slot).collect::<Vec<_>>());
    assert_eq!((made.created_at, made.served_at), (subject.clock.now(), subject.clock.now()));
    assert_eq!((made.subscriptions, made.lanes, made.oldest_lane, made.lost), (0, 0, None, None));

    subject.clock.advance_millis(1_000);
    for again in [handler(Start::Beginning, 4), handler(Start::Now, 8), handler(Start::After(1_000), 1)] {
        assert_eq!(subject.store.create_group(again).await.expect("it is there"), (made.clone(), false));
    }
    assert_eq!(subject.store.groups().await.expect("groups"), [made]);
}

/// A handler is given the name of a group that somebody reads, and the other way round.
pub async fn a_group_of_another_kind_is_a_conflict(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for (there, other) in [(GroupKind::Pull, GroupKind::Handler), (GroupKind::Handler, GroupKind::Pull)] {
        let group = format!("{there:?}");
        let made = subject.make_group(&group, there, 1).await;
        let new = NewGroup { name: name(&group), kind: other, start: Start::Now, slots: 1 };
        let answer = subject.store.create_group(new).await;
        assert!(matches!(answer, Err(StoreError::Conflict(_))), "{answer:?}");
        assert_eq!(subject.group(&group).await, made);
    }
}

/// Now is after the newest event, the beginning is before the oldest that is left, also when nothing is.
pub async fn a_group_begins_where_it_says(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let cursor = async |group: &str, start| -> Seq {
        subject.store.create_group(pull(group, start)).await.expect("made").0.cursor()
    };
    assert_eq!(cursor("empty.now", Start::Now).await, 0);
    assert_eq!(cursor("empty.beginning", Start::Beginning).await, 0);
    assert_eq!(cursor("empty.after", Start::After(0)).await, 0);
    subject.fill("t", None, 10).await;
    assert_eq!(cursor("now", Start::Now).await, 10);
    assert_eq!(cursor("beginning", Start::Beginning).await, 0);
    assert_eq!(cursor("after.newest", Start::After(10)).await, 10);
    subject.store.trim(5, 100).await.expect("trimmed");
    assert_eq!(cursor("trimmed.beginning", Start::Beginning).await, 4);
    assert_eq!(cursor("trimmed.after", Start::After(4)).await, 4);
    subject.store.trim(11, 100).await.expect("trimmed");
    assert_eq!(cursor("gone.beginning", Start::Beginning).await, 10);
    assert_eq!(cursor("gone.now", Start::Now).await, 10);
    // What was made before stays where it was.
    assert_eq!(subject.group("beginning").await.cursor(), 0);
}

/// A place behind the newest event, and one that is forgotten: the answer says what to choose, and there is no group.
pub async fn a_start_outside_of_the_log_makes_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 10).await;
    subject.store.trim(5, 100).await.expect("trimmed");
    for (after, choose) in [(11, "10"), (3, "4"), (0, "4")] {
        let answer = subject.store.create_group(pull("g", Start::After(after))).await;
        let Err(StoreError::Invalid(invalid)) = answer else { panic!("after {after}: {answer:?}") };
        assert!(invalid.reason.contains(choose), "{invalid}");
    }
    assert_eq!(subject.store.groups().await.expect("groups"), []);
    assert_eq!(subject.find_group("g").await, None);
}

/// A group without a slot would never be read, and one reader at a time needs no more than one.
pub async fn a_number_of_slots_that_cannot_be_makes_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for (kind, slots) in [
        (GroupKind::Handler, 0),
        (GroupKind::Handler, SLOTS_MAX + 1),
        (GroupKind::Handler, u16::MAX),
        (GroupKind::Pull, 0),
        (GroupKind::Pull, 2),
    ] {
        let answer = subject.store.create_group(NewGroup { name: name("g"), kind, start: Start::Now, slots }).await;
        assert!(matches!(answer, Err(StoreError::Invalid(_))), "{slots}: {answer:?}");
    }
    assert_eq!(subject.store.groups().await.expect("groups"), []);
}

/// By their bytes: the same on every engine, whatever language its server speaks.
pub async fn groups_are_listed_by_name(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for group in ["b", "a.b", "ä", "a-b", "B", "a", "a.B", "ab", "a_b"] {
        subject.make_pull(group).await;
    }
    let groups = subject.store.groups().await.expect("groups");
    assert_eq!(names(&groups), ["B", "a", "a-b", "a.B", "a.b", "a_b", "ab", "b", "ä"]);
    for group in &groups {
        assert_eq!(subject.find_group(group.name.as_str()).await.as_ref(), Some(group));
    }
}

/// As many slots as a group may have, each with an owner and a cursor of its own.
pub async fn a_group_may_have_many_slots(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 300).await;
    subject.make_handler("h", SLOTS_MAX).await;
    let me = process(1);
    let slots = subject.take("h", &me).await;
    assert_eq!(slots.len(), usize::from(SLOTS_MAX));
    let change = |slot: u16, fence| SlotChange {
        cursor: Some(u64::from(slot) + 1),
        ..SlotChange::new(name("h"), slot, me.id, fence)
    };
    let changes = slots.iter().map(|slot| change(slot.slot, slot.fence)).collect();
    let answers = subject.store.settle(changes).await.expect("settled");
    assert!(answers.iter().all(|answer| *answer == Settled::Done(vec![])), "{answers:?}");
    let group = subject.group("h").await;
    let places: Vec<(u16, Seq)> = group.slots.iter().map(|slot| (slot.slot, slot.cursor)).collect();
    assert_eq!(places, (0..SLOTS_MAX).map(|slot| (slot, u64::from(slot) + 1)).collect::<Vec<_>>());
    assert_eq!(group.cursor(), 1);
}

/// Subscriptions, lanes, deliveries and what they said go with their group, and nothing of another group does. A group
/// of the same name begins anew.
pub async fn a_deleted_group_is_forgotten_with_all_that_belongs_to_it(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 3).await;
    for group in ["g", "g.other"] {
        subject.make_pull(group).await;
        subject.subscribe_new(wants(group)).await;
        let change = subject.take_one(group, &reader(if group == "g" { 1 } else { 2 })).await;
        subject.put_lanes(&change, [waiting(object_lane("o"), 1)]).await;
        let at = subject.clock.now();
        let (deliveries, lines) = (vec![delivery(group, 1, at)], vec![line(1, at, group)]);
        subject.settle_done(SlotChange { cursor: Some(2), deliveries, lines, ..change }).await;
    }
    let other = subject.group("g.other").await;

    assert!(subject.store.delete_group(&name("g")).await.expect("deleted"));
    assert!(!subject.store.delete_group(&name("g")).await.expect("there is none"));
    assert_eq!(subject.find_group("g").await, None);
    assert_eq!(subject.store.groups().await.expect("groups"), [other]);
    let acquire = Acquire { group: name("g"), member: reader(1), lease: LEASE, slots: vec![], go_on: None };
    assert_eq!(subject.store.acquire(acquire).await, Ok(None));

    subject.make_pull("g").await;
    let anew = subject.group("g").await;
    assert_eq!((anew.cursor(), anew.subscriptions, anew.lanes, anew.oldest_lane), (0, 0, 0, None));
    assert_eq!(anew.slots[0].owner, None);
    assert_eq!(subject.subscriptions("g").await, []);
    assert_eq!(subject.lane("g", &object_lane("o")).await, None);
    assert_eq!(subject.messages("g", 1).await, Vec::<String>::new());
    let left: Vec<_> = subject.deliveries(1).await.into_iter().map(|one| one.group).collect();
    assert_eq!(left, [name("g.other")]);
    assert_eq!(subject.messages("g.other", 1).await, ["g.other"]);
    assert_eq!(subject.subscriptions("g.other").await.len(), 1);
    assert!(subject.lane("g.other", &object_lane("o")).await.is_some());
}

/// H16: an owner that has not heard of the deletion settles into nothing, into the new group of that name while nobody
/// has it, while somebody else has it, and even when it has that one itself: what it did was of the old one.
pub async fn an_owner_of_a_deleted_group_has_nothing_of_one_made_again(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 5).await;
    subject.make_handler("h", 1).await;
    let (me, other) = (process(1), process(2));
    let old = SlotChange { cursor: Some(4), ..subject.take_one("h", &me).await };
    let is_lost = async |when: &str| {
        assert_eq!(subject.try_settle(old.clone()).await, Settled::FenceLost, "{when}");
        assert_eq!(subject.find_group("h").await.map_or(0, |group| group.cursor()), 0, "{when}");
    };
    subject.store.delete_group(&name("h")).await.expect("deleted");
    is_lost("while there is none").await;
    subject.make_handler("h", 1).await;
    is_lost("while it is nobody's").await;
    let new = subject.take_one("h", &other).await;
    is_lost("while it is somebody else's").await;
    subject.store.release(other.id, &name("h"), &[0]).await.expect("released");
    subject.store.delete_group(&name("h")).await.expect("deleted");
    subject.make_handler("h", 1).await;
    let mine = subject.take_one("h", &me).await;
    assert_ne!(mine.fence, old.fence, "the fence of another life");
    is_lost("while it is its own again").await;
    assert_eq!(subject.try_settle(new).await, Settled::FenceLost);
    subject.settle_done(mine).await;
}

/// Forward to skip, back to read again; lanes are of the place it was at.
pub async fn a_seek_moves_every_cursor_and_forgets_the_lanes(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 10).await;
    subject.store.trim(3, 100).await.expect("trimmed");
    subject.make_handler("h", 2).await;
    subject.make_handler("other", 1).await;
    let me = process(1);
    let slots = subject.take("h", &me).await;
    let change = SlotChange { cursor: Some(6), ..SlotChange::new(name("h"), 1, me.id, slots[1].fence) };
    subject.put_lanes(&change, [waiting(object_lane("o"), 4)]).await;
    let others = subject.take_one("other", &me).await;
    subject.put_lanes(&others, [waiting(object_lane("o"), 4)]).await;
    assert_eq!(subject.group("h").await.slots.iter().map(|slot| slot.cursor).collect::<Vec<_>>(), [2, 6]);

    for to in [8, 3, 10, 2] {
        let moved = subject.store.seek(&name("h"), to).await.expect("moved").expect("it is there");
        assert!(moved.slots.iter().all(|slot| slot.cursor == to && slot.owner.is_none() && slot.vanished == 0));
        assert_eq!((moved.lanes, moved.oldest_lane), (0, None));
        assert_eq!(moved, subject.group("h").await);
    }
    assert_eq!(subject.lane("h", &object_lane("o")).await, None);
    assert!(subject.lane("other", &object_lane("o")).await.is_some(), "another group's lanes stay");
    assert_eq!(subject.store.seek(&name("none"), 5).await, Ok(None));
}

/// What is forgotten cannot be read again, and what is not there yet cannot be skipped.
pub async fn a_seek_outside_of_the_log_changes_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 10).await;
    subject.store.trim(5, 100).await.expect("trimmed");
    subject.make_pull("g").await;
    let change = SlotChange { cursor: Some(6), ..subject.take_one("g", &reader(1)).await };
    subject.put_lanes(&change, [waiting(object_lane("o"), 5)]).await;
    let before = subject.group("g").await;
    for to in [11, 3, 0] {
        let answer = subject.store.seek(&name("g"), to).await;
        assert!(matches!(answer, Err(StoreError::Invalid(_))), "to {to}: {answer:?}");
    }
    assert_eq!(subject.group("g").await, before);
    subject.settle_done(SlotChange { cursor: Some(7), ..change }).await;
}

/// Somebody moves a group while its owner is at work: what the owner still settles would undo that. It hears of it, and
/// takes the slot again at the new place, under another fence.
pub async fn a_seek_takes_the_slots_from_their_owner(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 10).await;
    subject.make_handler("h", 1).await;
    let me = process(1);
    let old = SlotChange { cursor: Some(9), ..subject.take_one("h", &me).await };
    let version = subject.renewed_version(&me).await;
    subject.store.seek(&name("h"), 3).await.expect("moved");
    assert_eq!(subject.try_settle(old.clone()).await, Settled::FenceLost);
    assert!(subject.renewed_version(&me).await > version, "it hears of it");
    let again = subject.take("h", &me).await;
    assert_eq!((again[0].cursor, again[0].vanished), (3, 0));
    assert!(again[0].fence > old.fence);
    assert_eq!(subject.try_settle(old).await, Settled::FenceLost);
    assert_eq!(subject.group("h").await.cursor(), 3);
}

/// While somebody has a slot, the group is served until the end of their lease at least, and after a clean end until
/// then.
pub async fn a_group_tells_when_it_was_served(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let made = subject.make_pull("g").await;
    assert_eq!(made.served_at, subject.clock.now());
    subject.clock.advance_millis(60_000);
    assert_eq!(subject.group("g").await.served_at, made.served_at, "nobody came");

    let me = reader(1);
    subject.take("g", &me).await;
    assert!(subject.group("g").await.served_at >= subject.clock.now() + LEASE);
    subject.clock.advance_millis(20_000);
    subject.renewed_version(&me).await;
    let lease_until = subject.clock.now() + LEASE;
    assert!(subject.group("g").await.served_at >= lease_until);
    // The reader is gone without a word: it served until the end of its lease.
    subject.clock.advance_millis(3 * PAST_THE_LEASE_MILLIS);
    assert_eq!(subject.group("g").await.served_at, lease_until);

    let other = reader(2);
    subject.take("g", &other).await;
    for _ in 0..4 {
        subject.clock.advance_millis(20_000);
        subject.renewed_version(&other).await;
    }
    subject.clock.advance_millis(10_000);
    subject.store.release(other.id, &name("g"), &[0]).await.expect("released");
    assert!(subject.group("g").await.served_at >= subject.clock.now(), "it was served until its release");
}

/// H9: retention took what a group had not read. Its owner says so when it reads on behind that; the last loss is kept.
pub async fn a_group_tells_what_it_lost_last(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.fill("t", None, 10).await;
    subject.make_pull("g").await;
    let change = subject.take_one("g", &reader(1)).await;
    subject.store.trim(5, 100).await.expect("trimmed");
    let first = Lost { from: 1, to: 4 };
    subject.settle_done(SlotChange { cursor: Some(4), lost: Some(first), ..change.clone() }).await;
    assert_eq!(subject.group("g").await.lost, Some(first));
    subject.settle_done(SlotChange { cursor: Some(6), ..change.clone() }).await;
    assert_eq!(subject.group("g").await.lost, Some(first), "it stays known");
    let second = Lost { from: 7, to: 8 };
    subject.settle_done(SlotChange { cursor: Some(8), lost: Some(second), ..change.clone() }).await;
    let stale = SlotChange { lost: Some(first), fence: change.fence + 1, ..change };
    assert_eq!(subject.try_settle(stale).await, Settled::FenceLost);
    subject.reopen().await;
    assert_eq!(subject.group("g").await.lost, Some(second));
}

/// Everything that is known of groups, and who reads them: a reader does not notice that its server started again.
pub async fn groups_survive_a_reopen(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 5).await;
    subject.make_pull("g").await;
    subject.subscribe_new(wants("g")).await;
    let change = subject.take_one("g", &reader(1)).await;
    subject.put_lanes(&change, [waiting(object_lane("o"), 2)]).await;
    let at = subject.clock.now();
    let (deliveries, lines) = (vec![delivery("g", 1, at)], vec![line(1, at, "said"), line(1, at, "said")]);
    subject.settle_done(SlotChange { cursor: Some(3), deliveries: deliveries.clone(), lines, ..change.clone() }).await;
    let before = subject.store.groups().await.expect("groups");
    let (subscriptions, lane) = (subject.subscriptions("g").await, subject.lane("g", &object_lane("o")).await);

    subject.reopen().await;
    assert_eq!(subject.store.groups().await.expect("groups"), before);
    assert_eq!(subject.subscriptions("g").await, subscriptions);
    assert_eq!(subject.lane("g", &object_lane("o")).await, lane);
    assert_eq!(subject.deliveries(1).await, deliveries);
    assert_eq!(subject.messages("g", 1).await, ["said", "said"]);
    assert_eq!(subject.want("g", &reader(2), &[]).await.slots, []);
    subject.settle_done(SlotChange { cursor: Some(4), ..change }).await;
}

/// H6: a process is gone and the store is opened again. Its groups are where they were; an engine that only one process
/// can open may give its slots away at once, any other does when its lease has passed: under a higher fence, and telling
/// that an owner vanished.
pub async fn the_next_process_goes_on_where_the_last_one_was(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 5).await;
    subject.make_handler("h", 2).await;
    let me = process(1);
    let slots = subject.take("h", &me).await;
    let change = |slot: usize| SlotChange::new(name("h"), slot as u16, me.id, slots[slot].fence);
    subject.settle_done(SlotChange { cursor: Some(3), ..change(0) }).await;
    subject.put_lanes(&change(1), [waiting(object_lane("o"), 2)]).await;
    let lanes = subject.lanes(LaneQuery::Slots { group: name("h"), slots: vec![0, 1], after: None }).await;

    subject.reopen().await;
    let found = subject.group("h").await;
    assert_eq!(found.slots.iter().map(|slot| (slot.cursor, slot.vanished)).collect::<Vec<_>>(), [(3, 0), (0, 0)]);
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    let next = subject.take("h", &process(2)).await;
    assert_eq!(next.iter().map(|slot| (slot.cursor, slot.vanished)).collect::<Vec<_>>(), [(3, 1), (0, 1)]);
    assert!(next.iter().zip(&slots).all(|(next, old)| next.fence > old.fence));
    assert_eq!(subject.lanes(LaneQuery::Slots { group: name("h"), slots: vec![0, 1], after: None }).await, lanes);
    for slot in [0, 1] {
        let late = SlotChange { cursor: Some(5), ..change(slot) };
        assert_eq!(subject.try_settle(late).await, Settled::FenceLost);
    }
}

/// A closed store answers nothing about groups either, and changes nothing.
pub async fn a_closed_store_refuses_what_is_asked_about_groups(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.make_pull("g").await;
    let change = subject.take_one("g", &reader(1)).await;
    let store = subject.store.clone();
    store.close().await;
    assert_eq!(store.groups().await, Err(StoreError::Closed));
    assert_eq!(store.create_group(pull("new", Start::Now)).await, Err(StoreError::Closed));
    assert_eq!(store.subscribe(wants("g")).await, Err(StoreError::Closed));
    assert_eq!(store.settle(vec![change.clone()]).await, Err(StoreError::Closed));
    assert_eq!(store.renew(change.member, LEASE).await, Err(StoreError::Closed));
    subject.reopen().await;
    assert_eq!(names(&subject.store.groups().await.expect("groups")), ["g"]);
    assert_eq!(subject.subscriptions("g").await, []);
    subject.settle_done(change).await;
}

/// However many groups there are, a page of them is bounded, and the pages are the list.
pub async fn groups_come_page_by_page(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for group in ["b", "B", "a.b", "ä", "a"] {
        subject.make_pull(group).await;
    }
    for handler in ["h.a", "h", "A.h"] {
        subject.make_handler(handler, 2).await;
    }
    let page = async |kind: Option<GroupKind>, after: Option<&str>, limit: usize| {
        let after = after.map(name);
        let groups = subject.store.groups_after(kind, after.as_ref(), limit).await.expect("groups");
        groups.into_iter().map(|group| (group.name.to_string(), group.slots.len())).collect::<Vec<_>>()
    };
    let all = subject.store.groups().await.expect("groups");
    let all: Vec<(String, usize)> = all.iter().map(|group| (group.name.to_string(), group.slots.len())).collect();
    assert_eq!(page(None, None, 100).await, all);
    let mut joined = page(None, None, 3).await;
    while joined.len() < all.len() {
        let after = joined.last().expect("a page").0.clone();
        let next = page(None, Some(&after), 3).await;
        assert!((1..=3).contains(&next.len()), "{next:?}");
        joined.extend(next);
    }
    assert_eq!(joined, all);
    assert_eq!(page(None, Some("ä"), 3).await, []);
    let handlers = [("A.h", 2), ("h", 2), ("h.a", 2)].map(|(name, slots)| (name.to_owned(), slots));
    assert_eq!(page(Some(GroupKind::Handler), None, 100).await, handlers);
    assert_eq!(page(Some(GroupKind::Handler), Some("a"), 1).await, handlers[1..2]);
    assert_eq!(page(Some(GroupKind::Pull), Some("a"), 2).await.len(), 2);
    // One that is gone is a place all the same.
    subject.store.delete_group(&name("h")).await.expect("deleted");
    assert_eq!(page(Some(GroupKind::Handler), Some("h"), 5).await, handlers[2..]);
}

/// Each slot goes back before the range and knows where it was; what has not come there yet stays where it is.
pub async fn a_replay_goes_back_and_knows_where_it_was(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.fill("t", None, 30).await;
    subject.make_handler("h", 3).await;
    let me = process(1);
    let slots = subject.take("h", &me).await;
    for (slot, cursor) in slots.iter().zip([5, 15, 30]) {
        let change = SlotChange::new(name("h"), slot.slot, me.id, slot.fence);
        subject.settle_done(SlotChange { cursor: Some(cursor), ..change }).await;
    }
    let version = subject.renewed_version(&me).await;
    let replay = async |subject: &Subject, after: Seq, to: Seq| subject.store.replay(&name("h"), after, to).await;
    let moved = replay(&subject, 9, 20).await.expect("an answer").expect("a group");
    let stands = |group: &GroupState| -> Vec<(Seq, Option<Replay>)> {
        group.slots.iter().map(|slot| (slot.cursor, slot.replay)).collect()
    };
    let expected = [(5, None), (9, None), (9, Some(Replay { to: 20, resume: 30 }))];
    assert_eq!(stands(&moved), expected);
    assert!(moved.slots.iter().all(|slot| slot.owner.is_none()), "whoever had it has lost it");
    assert!(subject.renewed_version(&me).await > version, "and is told");
    let late = SlotChange::new(name("h"), 2, me.id, slots[2].fence);
    assert_eq!(subject.try_settle(SlotChange { cursor: Some(30), ..late }).await, Settled::FenceLost);
    // Asked for again because the answer was lost, it is the same; another one has to wait.
    assert_eq!(stands(&replay(&subject, 9, 20).await.expect("an answer").expect("a group")), expected);
    assert!(matches!(replay(&subject, 9, 21).await, Err(StoreError::Conflict(_))));
    subject.reopen().await;
    assert_eq!(stands(&subject.group("h").await), expected);
    // It is known until the next one: lanes may be left in the range.
    let slots = subject.take("h", &me).await;
    let change = SlotChange::new(name("h"), 2, me.id, slots[2].fence);
    subject.settle_done(SlotChange { cursor: Some(29), ..change.clone() }).await;
    assert!(matches!(replay(&subject, 9, 20).await, Err(StoreError::Conflict(_))), "it is not through");
    subject.settle_done(SlotChange { cursor: Some(30), ..change }).await;
    assert_eq!(stands(&subject.group("h").await)[2], (30, Some(Replay { to: 20, resume: 30 })));
    let again = replay(&subject, 0, 1).await.expect("an answer").expect("a group");
    assert_eq!(stands(&again)[2], (0, Some(Replay { to: 1, resume: 30 })));
    // A seek ends it.
    let moved = subject.store.seek(&name("h"), 12).await.expect("an answer").expect("a group");
    assert_eq!(stands(&moved), [(12, None); 3]);
}

/// A range outside of the log, a group that is read, one with lanes, one that is not there.
pub async fn a_replay_that_cannot_be_changes_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 30).await;
    subject.store.trim(11, 100).await.expect("trimmed");
    subject.make_pull("g").await;
    subject.make_handler("h", 1).await;
    let change = subject.take_one("h", &process(1)).await;
    subject.settle_done(SlotChange { cursor: Some(30), ..change.clone() }).await;
    let before = subject.group("h").await;
    for (after, to) in [(9, 20), (10, 31), (12, 12), (12, 11)] {
        let refused = subject.store.replay(&name("h"), after, to).await;
        assert!(matches!(refused, Err(StoreError::Invalid(_))), "{after} to {to}: {refused:?}");
    }
    assert!(matches!(subject.store.replay(&name("g"), 10, 20).await, Err(StoreError::Conflict(_))));
    assert_eq!(subject.store.replay(&name("other"), 10, 20).await, Ok(None));
    assert_eq!(subject.group("h").await, before);
    for state in [LaneState::Waiting, LaneState::Held, LaneState::Dead, LaneState::Done] {
        subject.put_lanes(&change, [lane_in(state, object_lane("o"), 30)]).await;
        let refused = subject.store.replay(&name("h"), 10, 20).await;
        assert!(matches!(refused, Err(StoreError::Conflict(_))), "{state:?}: {refused:?}");
    }
    assert_eq!(subject.group("h").await.cursor(), 30);
}
