//! Is a release of delayed events bounded in bytes as well as in events?
#![cfg(feature = "sqlite")]

use ensue_core::store::{PAGE_BYTES_MAX, Read, Released};
use ensue_core::{Filter, NewEvent, Seq, Store, Timestamp};
use ensue_stores::clock::ManualClock;
use ensue_stores::sqlite::{SqliteOptions, SqliteStore};

const EVENTS: usize = 10;
const PAYLOAD_BYTES: usize = 900_000;

/// One release holds no more than a page in memory, and its transaction stays short; the rest follows with the next.
#[tokio::test]
async fn large_delayed_events_enter_the_log_a_page_at_a_time_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(Timestamp::from_second(1_000_000).unwrap());
    let options = SqliteOptions { clock: Some(clock.clock()), ..SqliteOptions::default() };
    let store = SqliteStore::open(folder.path().join("e.db").to_str().unwrap(), options).await.unwrap();
    let due = Timestamp::from_second(1_000_010).unwrap();
    let large = |n: usize| {
        let event = NewEvent::new(format!("t{n}")).payload(&"x".repeat(PAYLOAD_BYTES)).not_before(due);
        vec![event.check().unwrap()]
    };
    for n in 0..EVENTS {
        store.append(large(n)).await.unwrap();
    }
    clock.advance_millis(10_000);

    let a_page = PAGE_BYTES_MAX / PAYLOAD_BYTES;
    let (mut released, mut rounds) = (0, 0);
    while released < EVENTS {
        let count = a_page.min(EVENTS - released);
        released += count;
        rounds += 1;
        let next_due = (released < EVENTS).then_some(due);
        let expected = Released { count, last: released as Seq, next_due };
        assert_eq!(store.release_due(1_000).await.unwrap(), expected);
    }
    assert_eq!(rounds, EVENTS.div_ceil(a_page));
    let (mut topics, mut after) = (Vec::new(), 0);
    while topics.len() < EVENTS {
        let page = store.read(Read { after, limit: 1_000, filter: Filter::default() }).await.unwrap();
        assert!(page.events.len() <= a_page, "{} events on one page", page.events.len());
        topics.extend(page.events.iter().map(|event| event.topic.to_string()));
        after = page.next;
    }
    assert_eq!(topics, (0..EVENTS).map(|n| format!("t{n}")).collect::<Vec<_>>());
    store.close().await;
}
