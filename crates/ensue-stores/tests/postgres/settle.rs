//! Settlements on Postgres: of many slots at once, behind a takeover, and when the answer is lost.

use crate::support::groups::*;
use crate::support::wire::Wire;
use crate::support::{Log, on};
use ensue_conformance::suite::checked;
use ensue_core::positions::{
    Delivery, DeliveryState, GroupKind, LaneChange, LaneQuery, Level, LogLine, NewGroup, Positions, Settled,
    SlotChange, Start,
};
use ensue_core::{Json, NewEvent, Store, StoreError, Timestamp};
use ensue_stores::postgres::PostgresOptions;
use std::sync::atomic::Ordering;

/// The former owner's settlement stands in line behind the one who takes its slot.
#[tokio::test]
async fn a_settlement_behind_a_takeover_changes_nothing() {
    let log = Log::new().await;
    let (store, clock) = with_clock(&log).await;
    store.append(on("o")).await.unwrap();
    handler_group(&store, "g", 1).await;
    let fence = acquire(&store, "g", 1).await.slots[0].fence;
    store.append(on("o")).await.unwrap();
    clock.advance(PAST_THE_LEASE);

    log.hold("SELECT 1 FROM LOG.slots FOR UPDATE").await;
    let taking = tokio::spawn({
        let store = store.clone();
        async move { acquire(&store, "g", 2).await }
    });
    until_waiting(&log, 1).await;
    let settling = tokio::spawn({
        let store = store.clone();
        let late = SlotChange { cursor: Some(2), events: on("late"), ..change("g", 0, 1, fence) };
        async move { store.settle(vec![late]).await }
    });
    until_waiting(&log, 2).await;
    log.let_go().await;

    let taken = taking.await.unwrap().slots[0];
    assert_eq!((taken.fence, taken.cursor, taken.vanished), (fence + 1, 1, 1));
    assert_eq!(settling.await.unwrap().unwrap(), [Settled::FenceLost]);
    assert_eq!(store.group(&name("g")).await.unwrap().unwrap().cursor(), 1);
    assert_eq!(events(&store).await, 2, "nothing of it was published");
}

#[tokio::test]
async fn a_checkpoint_of_sixteen_hundred_slots_is_one_call() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    store.append(on("o")).await.unwrap();
    let mut changes = Vec::new();
    for n in 0..100 {
        let new =
            NewGroup { name: name(&format!("g{n}")), kind: GroupKind::Handler, start: Start::Beginning, slots: 16 };
        store.create_group(new).await.unwrap();
        for slot in acquire(&store, &format!("g{n}"), 1).await.slots {
            changes.push(SlotChange { cursor: Some(1), ..change(&format!("g{n}"), slot.slot, 1, slot.fence) });
        }
    }
    changes[77].fence += 1;
    let begun = std::time::Instant::now();
    let settled = store.settle(changes).await.unwrap();
    println!("a checkpoint of 1,600 slots: {:?}", begun.elapsed());
    for (index, settled) in settled.iter().enumerate() {
        let expected = if index == 77 { Settled::FenceLost } else { Settled::Done(vec![]) };
        assert_eq!(*settled, expected, "{index}");
    }
    assert_eq!(log.number("SELECT count(*) FROM LOG.slots WHERE cursor = 1").await, 1_599);
    assert_eq!(log.number("SELECT count(*) FROM LOG.settlements").await, 0, "a checkpoint leaves nothing behind");
}

/// A lost fence, a used key, two of the same key and what `jsonb` refuses: each is its own change's matter.
#[tokio::test]
async fn the_fault_of_one_change_is_not_the_fault_of_the_others() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let keyed = |key: &str, payload: i32| checked(vec![NewEvent::new("t").key(key).payload(&payload)]);
    store.append(keyed("used", 1)).await.unwrap();
    handler_group(&store, "g", 8).await;
    let fence = acquire(&store, "g", 1).await.slots[0].fence;
    let poison = |text: &str| {
        let mut entries = on("poisoned");
        entries[0].payload = Json::stored(text);
        entries
    };
    let with = |slot: u16, events| SlotChange {
        cursor: Some(1),
        lanes: vec![LaneChange::Put(held(&format!("o{slot}"), 1))],
        events,
        ..change("g", slot, 1, fence)
    };
    store.append(on("o")).await.unwrap();
    let settled = store
        .settle(vec![
            with(0, on("a")),
            with(1, keyed("used", 2)),
            SlotChange { fence: fence + 1, ..with(2, on("a")) },
            with(3, poison("\"\\u0000\"")),
            with(4, [keyed("twice", 1), keyed("twice", 2)].concat()),
            with(5, [keyed("new", 1), keyed("new", 1), keyed("used", 1)].concat()),
            with(6, keyed("new", 1)),
            with(7, on("a")),
        ])
        .await
        .unwrap();
    let appended = |index: usize| match &settled[index] {
        Settled::Done(appended) => appended.clone(),
        other => panic!("{index}: {other:?}"),
    };
    assert_eq!(appended(0).len(), 1);
    assert_eq!(settled[1], Settled::Refused(StoreError::KeyConflict { key: "used".into() }));
    assert_eq!(settled[2], Settled::FenceLost);
    assert!(matches!(&settled[3], Settled::Refused(StoreError::Invalid(_))), "{:?}", settled[3]);
    assert_eq!(settled[4], Settled::Refused(StoreError::KeyConflict { key: "twice".into() }));
    let five = appended(5);
    assert_eq!(five.iter().map(|one| one.repeated).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!((five[1].id, five[2].seq), (five[0].id, Some(1)));
    assert_eq!((appended(6)[0].id, appended(6)[0].repeated), (five[0].id, true), "it sees what the other stored");
    assert_eq!(appended(7)[0].prev, appended(0)[0].seq, "one chain");

    let bounds = store.bounds().await.unwrap();
    assert_eq!(bounds.last, 5);
    let event = store.event(appended(7)[0].seq.unwrap()).await.unwrap().unwrap();
    assert_eq!(event.id, appended(7)[0].id);
    let state = store.group(&name("g")).await.unwrap().unwrap();
    assert_eq!(state.lanes, 4, "of what was refused nothing is written");
    let lanes = LaneQuery::Slots { group: name("g"), slots: (0..8).collect(), after: None };
    let lanes: Vec<u16> = store.lanes(lanes, 10).await.unwrap().iter().map(|row| row.slot).collect();
    assert_eq!(lanes, [0, 5, 6, 7]);
}

/// The server has settled, and its answer never comes: it is not done again, and answered as it was.
#[tokio::test]
async fn a_settlement_whose_answer_was_lost_is_done_once() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let url = format!("{}?schema={1}&application_name={1}&sslmode=disable", wire.url, log.schema);
    let store = open(&url, PostgresOptions::default()).await;
    handler_group(&store, "g", 1).await;
    let fence = acquire(&store, "g", 1).await.slots[0].fence;
    let at = Timestamp::from_second(1_700_000_000).unwrap();
    let line = LogLine { seq: 1, attempt: 1, at, level: Level::Info, message: "once".into() };
    let delivery = Delivery {
        group: name("g"),
        seq: 1,
        object: None,
        state: DeliveryState::Done,
        attempts: 1,
        error: None,
        started_at: at,
        finished_at: at,
    };
    let settlement = SlotChange {
        deliveries: vec![delivery.clone()],
        lines: vec![line.clone(), line.clone()],
        events: on("o"),
        ..change("g", 0, 1, fence)
    };
    log.hold("SELECT 1 FROM LOG.slots FOR UPDATE").await;
    let settling = tokio::spawn({
        let store = store.clone();
        async move { store.settle(vec![settlement]).await }
    });
    until_waiting(&log, 1).await;
    wire.cut_next_answer.store(true, Ordering::SeqCst);
    log.let_go().await;
    let settled = settling.await.unwrap().unwrap();
    assert!(!wire.cut_next_answer.load(Ordering::SeqCst), "the answer was swallowed");
    let [Settled::Done(appended)] = &settled[..] else { panic!("{settled:?}") };
    assert_eq!(store.event(1).await.unwrap().unwrap().id, appended[0].id);
    assert_eq!(store.bounds().await.unwrap().last, 1);
    assert_eq!(store.lines(&name("g"), 1, 0, 10).await.unwrap(), [line.clone(), line.clone()]);
    assert_eq!(store.lines(&name("g"), 1, 1, 10).await.unwrap(), [line]);
    assert_eq!(store.deliveries(1).await.unwrap(), [delivery]);
}
