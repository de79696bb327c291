//! H43: rows of the log that were damaged, or written by hand.

use ensue_core::store::Read;
use ensue_core::{Filter, NewEvent, Store, Timestamp};
use ensue_stores::sqlite::{SqliteOptions, SqliteStore};

#[tokio::test]
async fn reader_goes_past_damaged_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db").to_str().unwrap().to_owned();
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let event = || NewEvent::new("t").object("o").payload_json(r#"{"a":"b"}"#).check().unwrap();
    for _ in 0..7 {
        store.append(vec![event()]).await.unwrap();
    }
    store.close().await;
    let by_hand = rusqlite::Connection::open(&path).unwrap();
    by_hand
        .execute_batch(
            "UPDATE ensue_events SET occurred_at = 9223372036854775807 WHERE seq = 1;
             UPDATE ensue_events SET occurred_at = -9223372036854775807 WHERE seq = 2;
             UPDATE ensue_events SET payload = CAST(x'7b2261223a22ff227d' AS TEXT) WHERE seq = 3;
             UPDATE ensue_events SET topic = CAST(x'74ff' AS TEXT), metadata = 'no json' WHERE seq = 4;
             UPDATE ensue_events SET id = x'00', to_subscription = x'00' WHERE seq = 5;
             UPDATE ensue_events SET recorded_at = 9223372036854775807 WHERE seq = 7;",
        )
        .unwrap();
    drop(by_hand);

    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let page = store.read(Read { after: 0, limit: 100, filter: Filter::default() }).await.unwrap();
    assert_eq!(page.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(page.events.iter().map(|event| event.prev.unwrap_or(0)).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
    let times = (page.events[0].occurred_at, page.events[1].occurred_at);
    assert_eq!(times, (Timestamp::MAX, Timestamp::MIN));
    assert_eq!(page.events[2].payload.as_str(), "{\"a\":\"\u{fffd}\"}");
    assert_eq!(page.events[3].topic.as_str(), "t\u{fffd}");
    let filter = Filter { topic: Some(ensue_core::Topic::parse("t").unwrap()), ..Filter::default() };
    assert_eq!(store.read(Read { after: 0, limit: 100, filter }).await.unwrap().events.len(), 6);
    assert_eq!(store.append(vec![event()]).await.unwrap()[0].seq, Some(8));
    let newest = store.event(8).await.unwrap().unwrap();
    assert!(newest.recorded_at < page.events[6].recorded_at, "the log continues by the clock");
    assert_eq!(newest.prev, Some(7));
    store.close().await;
}
