//! Groups on Postgres: who is first of two at once, what is sent again, and what is there a lot of.

use crate::support::groups::*;
use crate::support::wire::Wire;
use crate::support::{Log, on};
use ensue_conformance::postgres::shared_url;
use ensue_core::clock::ManualClock;
use ensue_core::positions::subscription::identity_of_params;
use ensue_core::positions::{Ask, LaneChange, LaneKey, LaneQuery, NewSubscription, Positions, Settled, SlotChange};
use ensue_core::{Json, ObjectKey, Store, StoreError, Timestamp};
use ensue_stores::postgres::PostgresOptions;
use jiff::SignedDuration;
use std::sync::atomic::Ordering;
use std::time::Duration;
use uuid::Uuid;

#[tokio::test]
async fn of_two_who_want_a_slot_at_once_one_gets_it() {
    let log = Log::new().await;
    let stores = [open(&log.url, PostgresOptions::default()).await, open(&log.url, PostgresOptions::default()).await];
    handler_group(&stores[0], "g", 4).await;
    log.hold("SELECT 1 FROM LOG.slots WHERE slot = 0 FOR UPDATE").await;
    let wanting = stores.iter().zip(1..).map(|(store, n)| {
        let store = store.clone();
        tokio::spawn(async move { acquire(&store, "g", n).await })
    });
    let wanting: Vec<_> = wanting.collect();
    until_waiting(&log, 2).await;
    log.let_go().await;
    let mut got = Vec::new();
    for (wanting, other) in wanting.into_iter().zip([2, 1]) {
        let acquired = wanting.await.unwrap();
        got.push(acquired.slots.len());
        if acquired.slots.is_empty() {
            assert_eq!(acquired.held_by.unwrap().member, process(other));
        }
    }
    got.sort_unstable();
    assert_eq!(got, [0, 4]);
    let state = stores[0].group(&name("g")).await.unwrap().unwrap();
    assert!(state.slots.iter().all(|slot| slot.fence == 1 && slot.vanished == 0), "{state:?}");
}

#[tokio::test]
async fn two_who_subscribe_to_the_same_at_once_share_one_subscription() {
    let log = Log::new().await;
    let stores = [open(&log.url, PostgresOptions::default()).await, open(&log.url, PostgresOptions::default()).await];
    for round in 0..20 {
        let group = format!("g{round}");
        let new = subscription(&group, "e.topic = 'a'");
        let (one, other) = tokio::join!(stores[0].subscribe(new.clone()), stores[1].subscribe(new));
        let ((one, one_is_new), (other, other_is_new)) = (one.unwrap(), other.unwrap());
        assert_eq!(one.id, other.id);
        assert!(one_is_new != other_is_new, "one of them made it");
        assert_eq!(stores[0].group(&name(&group)).await.unwrap().unwrap().subscriptions, 1);
    }
    assert_eq!(log.number("SELECT count(*) FROM LOG.subscriptions").await, 20);
}

/// Who renews its lease while somebody is about to take its slots: either it is first and keeps them, or it hears of it.
#[tokio::test]
async fn a_lease_that_is_renewed_at_the_last_moment_keeps_its_slots() {
    let log = Log::new().await;
    let (store, clock) = with_clock(&log).await;
    handler_group(&store, "g", 2).await;
    acquire(&store, "g", 1).await;
    clock.advance(PAST_THE_LEASE);
    log.hold("UPDATE LOG.members SET lease_until = lease_until + interval '1 hour'").await;
    let taking = tokio::spawn({
        let store = store.clone();
        async move { acquire(&store, "g", 2).await }
    });
    until_waiting(&log, 1).await;
    log.let_go().await;
    let acquired = taking.await.unwrap();
    assert!(acquired.slots.is_empty(), "{acquired:?}");
    assert_eq!(acquired.held_by.unwrap().member, process(1));

    clock.advance(Duration::from_secs(7_200));
    log.hold("SELECT 1 FROM LOG.members FOR UPDATE").await;
    let taking = tokio::spawn({
        let store = store.clone();
        async move { acquire(&store, "g", 2).await }
    });
    until_waiting(&log, 1).await;
    let renewing = tokio::spawn({
        let store = store.clone();
        async move { store.renew(Uuid::from_u128(1), LEASE).await }
    });
    until_waiting(&log, 2).await;
    log.let_go().await;
    assert_eq!(taking.await.unwrap().slots.len(), 2);
    assert_eq!(renewing.await.unwrap().unwrap().unwrap().version, 1, "it hears of it with the same call");
}

/// What has expired goes before the group is read. One that is touched at that moment stays, and a group that somebody is
/// changing is read when that is over: until then nothing of the call is there.
#[tokio::test]
async fn what_expires_while_somebody_changes_it_goes_or_stays_as_a_whole() {
    let log = Log::new().await;
    let clock = ManualClock::at("2026-03-01T12:00:00Z".parse().unwrap());
    let options = PostgresOptions { clock: Some(clock.clock()), ..PostgresOptions::default() };
    let store = open(&log.url, options.clone()).await;
    let unavailable_after = Duration::from_millis(200);
    let hasty = open(&log.url, PostgresOptions { unavailable_after, ..options }).await;
    handler_group(&store, "g", 2).await;
    for condition in ["true", "e.topic = 'touched'"] {
        let expires_in = Some(SignedDuration::from_hours(1));
        store.subscribe(NewSubscription { expires_in, ..subscription("g", condition) }).await.unwrap();
    }
    let before = store.group(&name("g")).await.unwrap().unwrap();
    clock.advance(Duration::from_secs(3_601));

    log.hold("SELECT 1 FROM LOG.groups FOR UPDATE").await;
    let refused = hasty.acquire(wish("g", process(1))).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    log.let_go().await;
    assert_eq!(log.number("SELECT count(*) FROM LOG.members").await, 0, "nothing of it is there");
    assert_eq!(log.number("SELECT count(*) FROM LOG.subscriptions").await, 2);

    log.hold("UPDATE LOG.subscriptions SET touched_at = '2026-03-01T12:59:59Z' WHERE condition <> 'true'").await;
    let taking = tokio::spawn({
        let store = store.clone();
        async move { acquire(&store, "g", 1).await }
    });
    until_waiting(&log, 1).await;
    log.let_go().await;
    let acquired = taking.await.unwrap();
    assert_eq!((acquired.slots.len(), acquired.version), (2, before.version + 1));
    let left = store.subscriptions(&name("g"), None, 10).await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].condition.as_deref(), Some("e.topic = 'touched'"));
    assert_eq!(store.group(&name("g")).await.unwrap().unwrap().subscriptions, 1);
}

/// Whoever takes the slot over at this moment reads the lane with what was asked of it.
#[tokio::test]
async fn what_is_asked_of_a_lane_reaches_whoever_has_its_slot_afterwards() {
    let log = Log::new().await;
    let (store, clock) = with_clock(&log).await;
    handler_group(&store, "g", 1).await;
    let fence = acquire(&store, "g", 1).await.slots[0].fence;
    let put = SlotChange { lanes: vec![LaneChange::Put(held("o", 1))], ..change("g", 0, 1, fence) };
    assert_eq!(store.settle(vec![put]).await.unwrap(), [Settled::Done(vec![])]);
    clock.advance(PAST_THE_LEASE);
    log.hold("SELECT 1 FROM LOG.slots FOR UPDATE").await;
    let asking = tokio::spawn({
        let store = store.clone();
        async move { store.ask_lane(&name("g"), &LaneKey::Object(ObjectKey::stored("o")), Ask::Retry).await }
    });
    until_waiting(&log, 1).await;
    let taking = tokio::spawn({
        let store = store.clone();
        async move { acquire(&store, "g", 2).await }
    });
    until_waiting(&log, 2).await;
    log.let_go().await;
    assert_eq!(asking.await.unwrap().unwrap().unwrap().ask, Some(Ask::Retry));
    assert_eq!(taking.await.unwrap().slots.len(), 1);
    let asked = store.lanes(LaneQuery::Asked(Uuid::from_u128(2)), 10).await.unwrap();
    assert_eq!(asked.len(), 1);
}

/// A row of an index has at most 2.7 kB.
#[tokio::test]
async fn a_long_condition_is_found_again_and_told_from_one_that_differs_at_its_end() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    // Nothing that compresses well.
    let condition: String = (0..60_000).map(|_| char::from(rand::random_range(b'a'..=b'z'))).collect();
    let (first, is_new) = store.subscribe(subscription("g", &condition)).await.unwrap();
    assert!(is_new);
    let (other, is_new) = store.subscribe(subscription("g", &format!("{condition}x"))).await.unwrap();
    assert!(is_new && other.id != first.id);
    let (again, is_new) = store.subscribe(subscription("g", &condition)).await.unwrap();
    assert_eq!((again.id, is_new), (first.id, false));
    assert_eq!(again.condition.as_deref(), Some(condition.as_str()));
    assert_eq!(store.subscriptions(&name("g"), None, 10).await.unwrap().len(), 2);
}

/// H28: none is taken for another, and neither the group nor its next subscription waits for the others.
#[tokio::test]
async fn many_subscriptions_stay_distinct() {
    let count = std::env::var("ENSUE_SUBSCRIPTIONS").map_or(20_000, |text| text.parse().expect("a number"));
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let params = |text: &str| Json::stored(format!("{{\"of\":\"{text}\"}}"));
    // The engine's function, many times a statement: as a client would call it, without the way to the server.
    let identity = identity_of_params(&params("' || n || '"));
    for begin in (0..count).step_by(250) {
        let made = log
            .number(&format!(
                "SELECT count(DISTINCT s.id) FROM generate_series({begin}, {begin} + 249) n CROSS JOIN LATERAL \
                 LOG.subscription_make(NULL, 0, 'g', gen_random_uuid(), NULL, 'same for all', '{}', '{identity}', NULL) s",
                params("' || n || '").as_str()
            ))
            .await;
        assert_eq!(made, 250);
    }
    let begun = std::time::Instant::now();
    assert_eq!(store.group(&name("g")).await.unwrap().unwrap().subscriptions, count as u64);
    println!("the group among {count}: {:?}", begun.elapsed());
    let begun = std::time::Instant::now();
    assert_eq!(acquire(&store, "g", 1).await.slots.len(), 1);
    println!("a slot of it: {:?}", begun.elapsed());
    let again = NewSubscription { params: params("7777"), ..subscription("g", "same for all") };
    let begun = std::time::Instant::now();
    assert!(!store.subscribe(again).await.unwrap().1);
    println!("one that is there: {:?}", begun.elapsed());
    assert_eq!(log.number("SELECT count(*) FROM LOG.subscriptions").await, count);
    // A reader that knows them hears of one more without reading them all.
    let version = store.group(&name("g")).await.unwrap().unwrap().version;
    let one_more = NewSubscription { params: params("one more"), ..subscription("g", "same for all") };
    let one_more = store.subscribe(one_more).await.unwrap().0;
    let begun = std::time::Instant::now();
    let changes = store.subscription_changes(&name("g"), version, 1_000).await.unwrap().unwrap();
    println!("what has changed: {:?}", begun.elapsed());
    assert_eq!((changes.there, changes.gone.len()), (vec![one_more], 0));
    let (begun, mut read, mut after) = (std::time::Instant::now(), 0, None);
    while let page = store.subscriptions(&name("g"), after, 1_000).await.unwrap()
        && let Some(last) = page.last()
    {
        (read, after) = (read + page.len(), Some(last.id));
    }
    println!("all {read} of them: {:?}", begun.elapsed());
    assert_eq!(log.number("SELECT count(*) FROM LOG.subscription_changes").await, 1_000, "no more are noted");
    assert!(store.delete_group(&name("g")).await.unwrap());
    assert_eq!(log.number("SELECT count(*) FROM LOG.subscriptions").await, 0, "all that belonged to it goes");
    assert_eq!(log.number("SELECT count(*) FROM LOG.subscription_changes").await, 0);
}

/// The same with what makes something: who asks is told that it made it.
#[tokio::test]
async fn a_subscription_whose_answer_was_lost_is_told_as_new() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let url = format!("{}?schema={1}&application_name={1}&sslmode=disable", wire.url, log.schema);
    let store = open(&url, PostgresOptions::default()).await;
    store.subscribe(subscription("g", "e.topic = 'a'")).await.unwrap();
    log.hold("SELECT 1 FROM LOG.groups FOR UPDATE").await;
    let subscribing = tokio::spawn({
        let store = store.clone();
        async move { store.subscribe(subscription("g", "e.topic = 'b'")).await }
    });
    until_waiting(&log, 1).await;
    wire.cut_next_answer.store(true, Ordering::SeqCst);
    log.let_go().await;
    assert!(subscribing.await.unwrap().unwrap().1);
    assert_eq!(store.group(&name("g")).await.unwrap().unwrap().subscriptions, 2);
}

/// Whoever still writes under a fence of the group that had this name before does not write to this one.
#[tokio::test]
async fn a_group_that_is_made_again_goes_on_with_its_fences_and_versions() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    handler_group(&store, "g", 2).await;
    store.subscribe(subscription("g", "e.topic = 'a'")).await.unwrap();
    let before = acquire(&store, "g", 1).await;
    assert!(store.delete_group(&name("g")).await.unwrap());
    assert!(!store.delete_group(&name("g")).await.unwrap());
    assert_eq!(store.group(&name("g")).await.unwrap(), None);
    handler_group(&store, "g", 2).await;
    let after = acquire(&store, "g", 1).await;
    assert!(after.slots[0].fence > before.slots[0].fence && after.version > before.version, "{before:?} {after:?}");
    let late = SlotChange { cursor: Some(7), ..change("g", 0, 1, before.slots[0].fence) };
    assert_eq!(store.settle(vec![late]).await.unwrap(), [Settled::FenceLost]);
}

#[tokio::test]
async fn groups_work_in_a_schema_of_any_name() {
    for odd in ["Quote%22d", "it's", "%24body%24", "per%25cent%25I", "{schema_text}", "{which_groups}"] {
        let url = format!("{}?schema={odd}{:08x}", shared_url(), rand::random::<u32>());
        let store = open(&url, PostgresOptions::default()).await;
        handler_group(&store, "g", 2).await;
        let fence = acquire(&store, "g", 1).await.slots[0].fence;
        let settlement = SlotChange {
            events: on("o"),
            lanes: vec![LaneChange::Put(held("o", 1))],
            lost: Some(ensue_core::positions::Lost { from: 1, to: 2 }),
            ..change("g", 0, 1, fence)
        };
        assert!(matches!(store.settle(vec![settlement]).await.unwrap()[..], [Settled::Done(_)]), "{odd}");
        let state = store.groups().await.unwrap().remove(0);
        assert_eq!((state.lanes, state.oldest_lane, state.lost.map(|lost| lost.to)), (1, Some(1), Some(2)), "{odd}");
        assert_eq!(store.renew(Uuid::from_u128(1), LEASE).await.unwrap().unwrap().members, [process(1)], "{odd}");
        assert_eq!(store.expire_subscriptions(10).await.unwrap(), 0, "{odd}");
        assert_eq!(store.purge_deliveries(Timestamp::MAX, 0, 10).await.unwrap(), 0, "{odd}");
        store.release(Uuid::from_u128(1), &name("g"), &[0]).await.unwrap();
        store.leave(Uuid::from_u128(1)).await.unwrap();
        assert!(store.groups().await.unwrap()[0].slots.iter().all(|slot| slot.owner.is_none()), "{odd}");
        assert!(store.delete_group(&name("g")).await.unwrap(), "{odd}");
        store.close().await;
    }
}
