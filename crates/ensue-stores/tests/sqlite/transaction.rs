//! What becomes of the log when transactions end otherwise than well, or on a connection of the user's own?
use ensue_core::store::Read;
use ensue_core::{Filter, NewEvent, ObjectKey, Seq, Store};
use ensue_stores::sqlite::{SqliteOptions, SqliteStore, TransactionError, rusqlite};
use std::time::Duration;

fn about(object: &str) -> NewEvent {
    NewEvent::new("t").object(object)
}

async fn chain(store: &SqliteStore, object: &str) -> Vec<Seq> {
    let object = ObjectKey::parse(object).unwrap();
    store.chain(&object, None, 100).await.unwrap().iter().map(|event| event.seq).collect()
}

/// A publish inside a savepoint that is taken back never was: not for readers, and not for the next `prev`.
#[tokio::test]
async fn a_publish_taken_back_with_its_savepoint_leaves_no_trace_in_any_chain() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db");
    let store = SqliteStore::open(path.to_str().unwrap(), SqliteOptions::default()).await.unwrap();
    store.append(vec![about("o").check().unwrap()]).await.unwrap();
    let taken_back = store.transaction(|tx| {
        tx.execute_batch("SAVEPOINT maybe")?;
        tx.publish(about("o"))?;
        tx.publish(about("p"))?;
        Ok(tx.execute_batch("ROLLBACK TO maybe; RELEASE maybe")?)
    });
    taken_back.await.unwrap();
    assert_eq!((chain(&store, "o").await, chain(&store, "p").await), (vec![1], vec![]));
    let next = store.append(vec![about("p").check().unwrap(), about("o").check().unwrap()]).await.unwrap();
    let places: Vec<_> = next.iter().map(|answer| (answer.seq, answer.prev)).collect();
    assert_eq!(places, [(Some(2), None), (Some(3), Some(1))]);

    // Taken back and published again in the same transaction, with other objects at the same places.
    let again = store.transaction(|tx| {
        tx.execute_batch("SAVEPOINT maybe")?;
        tx.publish(about("p"))?;
        tx.execute_batch("ROLLBACK TO maybe")?;
        tx.publish(about("o"))
    });
    let (kept, _) = again.await.unwrap();
    assert_eq!((kept.seq, kept.prev), (Some(4), Some(3)));
    assert_eq!((chain(&store, "o").await, chain(&store, "p").await), (vec![4, 3, 1], vec![2]));
    store.close().await;
}

/// Nor does a publish whose whole transaction was taken back, whatever is committed next.
#[tokio::test]
async fn a_publish_that_was_rolled_back_is_not_taken_in_with_the_next_commit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db");
    let store = SqliteStore::open(path.to_str().unwrap(), SqliteOptions::default()).await.unwrap();
    store.append(vec![about("o").check().unwrap()]).await.unwrap();
    let rolled_back = store.transaction(|tx| {
        tx.publish(about("o"))?;
        Err::<(), _>(TransactionError::rollback("no stock"))
    });
    rolled_back.await.unwrap_err();
    // A commit that writes no event.
    store.purge_keys(10).await.unwrap();
    assert_eq!(chain(&store, "o").await, [1]);
    let next = store.append(vec![about("o").check().unwrap()]).await.unwrap();
    assert_eq!((next[0].seq, next[0].prev), (Some(2), Some(1)));
    assert_eq!(chain(&store, "o").await, [2, 1]);
    store.close().await;
}

/// A closure that swallows the failure of a publish has not made it undone: nothing of the transaction is stored.
#[tokio::test]
async fn a_transaction_in_which_a_publish_failed_cannot_be_committed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db");
    let store = SqliteStore::open(path.to_str().unwrap(), SqliteOptions::default()).await.unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON ensue_events WHEN NEW.topic = 'poison'
                  BEGIN SELECT RAISE(ABORT, 'no poison'); END";
    store.transaction(|tx| Ok(tx.execute_batch(refuse)?)).await.unwrap();
    let swallowed = store.transaction(|tx| {
        tx.publish(about("o"))?;
        let _swallowed = tx.publish_all(vec![about("o"), NewEvent::new("poison")]);
        Ok(())
    });
    assert!(swallowed.await.unwrap_err().to_string().contains("no poison"));
    let next = store.append(vec![about("o").check().unwrap()]).await.unwrap();
    assert_eq!((next[0].seq, next[0].prev), (Some(1), None));
    store.close().await;
}

/// While a ticket is out nothing of this process is written, not even before its holder begins.
#[tokio::test]
async fn nothing_is_written_while_a_ticket_is_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db");
    let store = SqliteStore::open(path.to_str().unwrap(), SqliteOptions::default()).await.unwrap();
    let ticket = store.write_ticket().await.unwrap();
    let mut append = std::pin::pin!(store.append(vec![about("o").check().unwrap()]));
    // However long one waits, it is not answered; a writer that did not stand aside would have done it by then. Nothing
    // happens here that could be waited for: a time too short could only miss a fault, never find one that is not there.
    tokio::time::timeout(Duration::from_millis(300), &mut append).await.expect_err("written beside the ticket");
    let mut own = rusqlite::Connection::open(&path).unwrap();
    let tx = ticket.begin(&mut own).unwrap();
    assert_eq!(tx.publish(about("o")).unwrap().seq, Some(1));
    tx.commit().unwrap();
    drop(ticket);
    let answers = append.await.unwrap();
    assert_eq!((answers[0].seq, answers[0].prev), (Some(2), Some(1)));
    assert_eq!(chain(&store, "o").await, [2, 1]);
    store.close().await;
}

/// What was published under a ticket is read once the ticket is back, whether or not anything is appended after it.
#[tokio::test]
async fn what_was_published_under_a_ticket_is_read_without_another_append() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db");
    let store = SqliteStore::open(path.to_str().unwrap(), SqliteOptions::default()).await.unwrap();
    let ticket = store.write_ticket().await.unwrap();
    let mut own = rusqlite::Connection::open(&path).unwrap();
    let tx = ticket.begin(&mut own).unwrap();
    tx.publish(about("o")).unwrap();
    tx.commit().unwrap();
    // Until then in no way: whoever reads an event finds it in its chain too.
    let read = || store.read(Read { after: 0, limit: 10, filter: Filter::default() });
    assert_eq!((read().await.unwrap().next, chain(&store, "o").await), (0, vec![]));
    drop(ticket);
    // Comes after the ticket, and writes no event.
    store.purge_keys(10).await.unwrap();
    assert_eq!((read().await.unwrap().next, chain(&store, "o").await), (1, vec![1]));
    store.close().await;
}
