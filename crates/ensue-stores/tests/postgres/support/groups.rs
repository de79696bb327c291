//! What the tests of groups share: members, wishes and changes.

#![allow(dead_code, reason = "each test file uses its part")]

use super::Log;
use ensue_core::clock::ManualClock;
use ensue_core::positions::{
    Acquire, Acquired, Fence, GroupKind, Lane, LaneKey, LaneState, Member, NewGroup, NewSubscription, Positions,
    SlotChange, Start,
};
use ensue_core::{Filter, GroupName, Json, ObjectKey};
use ensue_stores::postgres::{PostgresOptions, PostgresStore};
use jiff::SignedDuration;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

pub type Engine = Arc<PostgresStore>;

pub const LEASE: SignedDuration = SignedDuration::from_secs(30);
pub const PAST_THE_LEASE: Duration = Duration::from_secs(31);

pub async fn open(url: &str, options: PostgresOptions) -> Engine {
    Arc::new(PostgresStore::open(url, options).await.expect("the store opens"))
}

/// A store whose time is told by the test.
pub async fn with_clock(log: &Log) -> (Engine, ManualClock) {
    let clock = ManualClock::at("2026-03-01T12:00:00Z".parse().unwrap());
    let options = PostgresOptions { clock: Some(clock.clock()), ..PostgresOptions::default() };
    (open(&log.url, options).await, clock)
}

pub fn name(text: &str) -> GroupName {
    GroupName::stored(text)
}

pub async fn handler_group(store: &Engine, group: &str, slots: u16) {
    let new = NewGroup { name: name(group), kind: GroupKind::Handler, start: Start::Now, slots };
    assert!(store.create_group(new).await.unwrap().1);
}

pub fn process(n: u128) -> Member {
    Member { id: Uuid::from_u128(n), name: format!("process {n}"), kind: GroupKind::Handler }
}

pub fn wish(group: &str, member: Member) -> Acquire {
    Acquire { group: name(group), member, lease: LEASE, slots: Vec::new(), go_on: None }
}

pub async fn acquire(store: &Engine, group: &str, n: u128) -> Acquired {
    store.acquire(wish(group, process(n))).await.unwrap().expect("there is such a group")
}

pub fn subscription(group: &str, condition: &str) -> NewSubscription {
    let (condition, params) = (Some(condition.to_string()), Json::empty_object());
    NewSubscription { group: name(group), topic: None, condition, params, expires_in: None }
}

pub fn change(group: &str, slot: u16, n: u128, fence: Fence) -> SlotChange {
    SlotChange::new(name(group), slot, Uuid::from_u128(n), fence)
}

/// Waits until so many statements of the stores wait for a row.
pub async fn until_waiting(log: &Log, count: i64) {
    let waiting = "SELECT count(*) FROM pg_stat_activity \
                   WHERE application_name = 'LOG' AND wait_event_type = 'Lock' AND wait_event <> 'advisory' \
                   AND NOT EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = pg_stat_activity.pid AND NOT l.granted AND l.relation IN \
                   (to_regclass('LOG.log_lock'), to_regclass('LOG.rules_lock'), to_regclass('LOG.serving_lock')))";
    log.until(waiting, count).await;
}

pub async fn events(store: &Engine) -> usize {
    let store: ensue_core::store::SharedStore = store.clone();
    ensue_conformance::suite::read_all(&store, Filter::default(), 0, 100).await.len()
}

pub fn held(object: &str, position: u64) -> Lane {
    Lane {
        key: LaneKey::Object(ObjectKey::stored(object)),
        position,
        state: LaneState::Held,
        attempts: 5,
        not_before: None,
        error: Some("it said \0 and no more".into()),
        redriven: false,
    }
}
