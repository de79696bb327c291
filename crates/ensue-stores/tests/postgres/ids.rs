//! An id is the same whoever puts it together: the program or the server.

use crate::support::{Log, on};
use ensue_conformance::suite::checked;
use ensue_core::store::Read;
use ensue_core::{Filter, Found, NewEvent, Timestamp};
use ensue_stores::postgres::PostgresOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Before 1970 and after it, on a millisecond, just after one, and just before the next.
const TIMES: [i64; 5] = [-1_500, 0, 999, 1_763_200_000_123_000, 1_763_200_000_123_999];

#[tokio::test]
async fn the_server_and_the_program_put_ids_together_alike_and_find_them() {
    let log = Log::new().await;
    let micros = Arc::new(AtomicI64::new(0));
    let clock = {
        let micros = micros.clone();
        Arc::new(move || Timestamp::from_microsecond(micros.load(Ordering::SeqCst)).unwrap())
    };
    let store = log.open_with(PostgresOptions { clock: Some(clock), ..PostgresOptions::default() }).await;
    let mut answers = Vec::new();
    for time in TIMES {
        micros.store(time, Ordering::SeqCst);
        answers.extend(store.append(on("o")).await.unwrap());
        // Accepted now, in the log a second later: its id has a time of its own.
        let due = Timestamp::from_microsecond(time + 1_000_000).unwrap();
        answers.extend(store.append(checked(vec![NewEvent::new("t").not_before(due)])).await.unwrap());
        let keyed = || checked(vec![NewEvent::new("t").key(format!("key at {time}"))]);
        let first = store.append(keyed()).await.unwrap()[0];
        let again = store.append(keyed()).await.unwrap()[0];
        assert!(again.repeated);
        assert_eq!(again.id, first.id, "as the server answers it, and as the program does");
        answers.push(first);
    }
    micros.store(TIMES[4] + 2_000_000, Ordering::SeqCst);
    assert_eq!(store.release_due(100).await.unwrap().count, TIMES.len());

    let page = store.read(Read { after: 0, limit: 100, filter: Filter::default() }).await.unwrap();
    let mut read: Vec<_> = page.events.iter().map(|event| event.id).collect();
    let mut told: Vec<_> = answers.iter().map(|answer| answer.id).collect();
    read.sort();
    told.sort();
    assert_eq!(read, told, "what is read is what was answered");
    for event in &page.events {
        // What was recorded before 1970 has an id, but none that tells its time.
        if event.recorded_at >= Timestamp::UNIX_EPOCH {
            assert_eq!(store.find(event.id).await.unwrap(), Some(Found::Logged(event.clone())));
        }
        let same = format!(
            "SELECT count(*) FROM LOG.stored_events WHERE seq = {} AND LOG.event_id(id_part, recorded_at) = '{}'",
            event.seq, event.id
        );
        assert_eq!(log.number(&same).await, 1, "{event:?}");
    }
    store.close().await;
}
