//! H9: what a group has not read yet is kept, however old it is; if nobody serves the group for too long, it is told exactly
//! what it lost.

#![cfg(feature = "sqlite")]

use ensue::groups::{Pull, Wants};
use ensue::positions::{Lost, Start};
use ensue::{Ensue, Error, NewEvent, Options, Retention, Seq};
use jiff::SignedDuration;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(180);

/// A bus that forgets everything that nobody needs, as soon as it can.
async fn forgetful(url: &str, hold_max: SignedDuration) -> Ensue {
    let age = Some(SignedDuration::from_millis(1));
    let retention = Retention { age, hold_max: Some(hold_max), ..Retention::default() };
    let options = Options { retention, retention_interval: Duration::from_millis(10), ..Options::default() };
    Ensue::open_with(url, options).await.unwrap()
}

async fn until_first_is(bus: &Ensue, first: Seq) {
    let reached = async {
        while bus.store().bounds().await.unwrap().first != first {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let bounds = async || bus.store().bounds().await;
    if tokio::time::timeout(PATIENCE, reached).await.is_err() {
        panic!("the log never begins with {first}: {:?}", bounds().await);
    }
}

/// A reader that stands still keeps what it has not committed, and loses nothing of it. All else goes.
async fn what_a_group_has_not_passed_is_kept(url: &str) {
    let bus = forgetful(url, SignedDuration::from_hours(1)).await;
    let groups = bus.groups();
    groups.subscribe("slow", Wants::default()).await.unwrap();
    groups.subscribe("fast", Wants::default()).await.unwrap();
    bus.publish_all(vec![NewEvent::new("t"); 100]).await.unwrap();
    for (group, to) in [("slow", 40), ("fast", 100)] {
        let lease = groups.pull(group, Pull::default()).await.unwrap().lease.unwrap();
        groups.commit(group, &lease, Some(to), true).await.unwrap();
    }
    let running = bus.start().await.unwrap();
    until_first_is(&bus, 41).await;
    let pulled = groups.pull("slow", Pull::default()).await.unwrap();
    let seqs: Vec<Seq> = pulled.events.iter().map(|pulled| pulled.event.seq).collect();
    assert_eq!((seqs, pulled.lost), ((41..=100).collect(), None));
    groups.commit("slow", &pulled.lease.unwrap(), Some(100), true).await.unwrap();
    until_first_is(&bus, 101).await;
    // One that is made when all is gone begins there.
    let (late, _) = groups.create("late", Start::Beginning).await.unwrap();
    assert_eq!((late.cursor(), late.lost()), (100, None));
    running.shutdown(PATIENCE).await.unwrap();
    bus.close().await;
}

/// A group that nobody serves holds the log for a while and no longer; then it knows what it lost, and goes on behind it.
async fn an_orphan_is_told_what_it_lost(url: &str) {
    let bus = forgetful(url, SignedDuration::from_millis(100)).await;
    let groups = bus.groups();
    groups.subscribe("orphan", Wants::default()).await.unwrap();
    bus.publish_all(vec![NewEvent::new("t"); 50]).await.unwrap();
    let running = bus.start().await.unwrap();
    until_first_is(&bus, 51).await;
    running.shutdown(PATIENCE).await.unwrap();
    let lost = Some(Lost { from: 1, to: 50 });
    assert_eq!(groups.get("orphan").await.unwrap().lost(), lost);
    bus.publish(NewEvent::new("t")).await.unwrap();
    let pulled = groups.pull("orphan", Pull::default()).await.unwrap();
    assert_eq!((pulled.events[0].event.seq, pulled.lost), (51, lost));
    groups.commit("orphan", &pulled.lease.unwrap(), Some(51), true).await.unwrap();
    let group = groups.get("orphan").await.unwrap();
    assert_eq!((group.cursor(), group.lost()), (51, lost), "it is remembered");
    bus.close().await;
}

/// Subscriptions that have expired are forgotten by the same loop.
async fn expired_subscriptions_are_forgotten(url: &str) {
    let bus = forgetful(url, SignedDuration::from_hours(1)).await;
    let groups = bus.groups();
    let wants = Wants { expires_in: Some(SignedDuration::from_millis(150)), ..Wants::topic("t") };
    let (brief, _) = groups.subscribe("g", wants).await.unwrap();
    let before = groups.get("g").await.unwrap().state.version;
    let running = bus.start().await.unwrap();
    let forgotten = async {
        while groups.get("g").await.unwrap().state.version == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, forgotten).await.expect("it is never forgotten");
    assert!(matches!(groups.touch("g", brief.id).await, Err(Error::NotFound(_))));
    running.shutdown(PATIENCE).await.unwrap();
    bus.close().await;
}

macro_rules! on_both {
    ($($name:ident;)+) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name("sqlite::memory:").await;
                }
            )+
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(
                #[tokio::test]
                async fn $name() {
                    let (url, _schema) = ensue_conformance::postgres::fresh_schema("retention");
                    super::$name(&url).await;
                }
            )+
        }
    };
}

on_both! {
    what_a_group_has_not_passed_is_kept;
    an_orphan_is_told_what_it_lost;
    expired_subscriptions_are_forgotten;
}
