//! What holds when many ask at once?

use super::Subject;
use super::positions::{LEASE, PAST_THE_LEASE_MILLIS, entries, name, process, reader, wants_just};
use crate::factory::Factory;
use ensue_core::positions::{Acquire, GroupKind, NewGroup, Settled, SlotChange, Start};
use ensue_core::{NewEvent, Seq};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinSet;

/// A dozen processes start at once: there is one group, and each slot has one owner.
pub async fn slots_that_many_want_have_one_owner_each(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let mut tasks = JoinSet::new();
    for n in 1..=12 {
        let store = subject.store.clone();
        tasks.spawn(async move {
            let (kind, start) = (GroupKind::Handler, Start::Now);
            let new = NewGroup { name: name("h"), kind, start, slots: 8 };
            let (_, is_new) = store.create_group(new).await.expect("a group");
            let acquire = Acquire { group: name("h"), member: process(n), lease: LEASE, slots: vec![], go_on: None };
            let acquired = store.acquire(acquire).await.expect("an answer").expect("the group is there");
            (n, is_new, acquired.slots)
        });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|(_, is_new, _)| *is_new).count(), 1, "it was made once");
    let mut taken: Vec<(u16, u128, u64)> =
        answers.iter().flat_map(|(n, _, slots)| slots.iter().map(|slot| (slot.slot, *n, slot.fence))).collect();
    taken.sort_unstable();
    assert_eq!(taken.iter().map(|(slot, ..)| *slot).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    for ((_, n, fence), slot) in taken.into_iter().zip(subject.group("h").await.slots) {
        assert_eq!((slot.owner.map(|owner| owner.member), slot.fence), (Some(process(n)), fence));
    }
}

/// Many readers that ask for the same at once share one subscription, in one group.
pub async fn the_same_subscription_from_many_is_made_once(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let mut tasks = JoinSet::new();
    for n in 0..16 {
        let store = subject.store.clone();
        // The same by meaning, in two spellings.
        let params = if n % 2 == 0 { r#"{"a":1,"b":2}"# } else { r#"{"b":2.0,"a":1}"# };
        tasks
            .spawn(async move { store.subscribe(wants_just("g", "t", "true", params)).await.expect("a subscription") });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|(_, is_new)| *is_new).count(), 1);
    assert!(answers.iter().all(|(one, _)| one.id == answers[0].0.id));
    assert_eq!((subject.subscriptions("g").await.len(), subject.group("g").await.subscriptions), (1, 1));
}

/// Handlers that publish, beside publishers: one order, no gap, and each cursor says how many were published with it.
pub async fn settlements_beside_appends_leave_no_gap(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 40).await;
    let mut tasks = JoinSet::new();
    for n in 1..=3_u128 {
        let group = format!("h{n}");
        subject.make_handler(&group, 1).await;
        let change = subject.take_one(&group, &process(n)).await;
        let store = subject.store.clone();
        tasks.spawn(async move {
            for cursor in 1..=20 {
                let events = entries(vec![NewEvent::new("made").object("o"), NewEvent::new("made").object(&group)]);
                let change = SlotChange { cursor: Some(cursor), events, ..change.clone() };
                let answers = store.settle(vec![change]).await.expect("settled");
                let Settled::Done(appended) = &answers[0] else { panic!("{answers:?}") };
                let first = appended[0].seq.expect("it is logged");
                assert_eq!(appended[1].seq, Some(first + 1), "consecutive");
            }
        });
    }
    for _ in 0..2 {
        let store = subject.store.clone();
        tasks.spawn(async move {
            for _ in 0..20 {
                store.append(entries(vec![NewEvent::new("t").object("o"); 2])).await.expect("appended");
            }
        });
    }
    tasks.join_all().await;
    let log = subject.log().await;
    assert_eq!(log.len(), 40 + 3 * 40 + 2 * 40);
    subject.audit().await;
    assert!(subject.store.groups().await.expect("groups").iter().all(|group| group.cursor() == 20));
}

/// H16: an owner settles on and on while its lease passes and another takes the slot. What it was told is written is
/// where the other begins; from then on it is told that the slot is lost, every time.
pub async fn nothing_is_settled_after_a_takeover(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 2_000).await;
    subject.make_handler("h", 1).await;
    let mine = subject.take_one("h", &process(1)).await;
    let (store, taken) = (subject.store.clone(), Arc::new(AtomicBool::new(false)));
    let is_taken = taken.clone();
    let (moved, mut has_moved) = tokio::sync::watch::channel(0);
    let owner = tokio::spawn(async move {
        let (mut settled, mut lost): (Vec<Seq>, usize) = (vec![], 0);
        for cursor in 1..=2_000 {
            let (was_taken, change) =
                (is_taken.load(Ordering::SeqCst), SlotChange { cursor: Some(cursor), ..mine.clone() });
            match store.settle(vec![change]).await.expect("an answer").remove(0) {
                Settled::Done(_) => {
                    assert!(!was_taken, "{cursor} was written after the slot was taken");
                    assert_eq!(lost, 0, "{cursor} was written after the slot was lost");
                    settled.push(cursor);
                }
                Settled::FenceLost => lost += 1,
                settled @ (Settled::WentBack | Settled::Refused(_)) => panic!("{settled:?}"),
            }
            moved.send_replace(cursor);
            if lost == 5 {
                break;
            }
        }
        (settled, lost)
    });
    has_moved.wait_for(|cursor| *cursor >= 10).await.expect("the owner is at work");
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    let theirs = subject.take("h", &process(2)).await[0];
    taken.store(true, Ordering::SeqCst);
    let (settled, lost) = owner.await.expect("the owner ends");
    assert_eq!((settled.last(), lost), (Some(&theirs.cursor), 5));
    assert_eq!(subject.group("h").await.cursor(), theirs.cursor);
}

/// A reader is replaced again and again: every fence is given out once.
pub async fn every_fence_is_given_out_once(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_pull("g").await;
    let mut fences = Vec::new();
    for round in 0..5 {
        let mut tasks = JoinSet::new();
        for n in 1..=6 {
            let store = subject.store.clone();
            let member = reader(round * 10 + n);
            let acquire = Acquire { group: name("g"), member, lease: LEASE, slots: vec![], go_on: None };
            tasks.spawn(async move { store.acquire(acquire).await.expect("an answer").expect("it is there").slots });
        }
        let got: Vec<u64> = tasks.join_all().await.into_iter().flatten().map(|slot| slot.fence).collect();
        assert_eq!(got.len(), 1, "one of them got it");
        fences.extend(got);
        subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    }
    assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "{fences:?}");
}
