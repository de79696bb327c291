//! Publishing inside the caller's own SQLite transaction: data and event together, or neither.

use ensue::rusqlite::Connection;
use ensue::{Ensue, Error, NewEvent, StoreError, TransactionError};
use std::path::PathBuf;

struct Shop {
    _folder: tempfile::TempDir,
    path: PathBuf,
    bus: Ensue,
}

async fn shop() -> Shop {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let bus = Ensue::open(path.to_str().unwrap()).await.unwrap();
    bus.transaction(|tx| Ok(tx.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)")?)).await.unwrap();
    Shop { _folder: folder, path, bus }
}

impl Shop {
    async fn counts(&self) -> (i64, u64) {
        let orders = self.bus.transaction(|tx| Ok(tx.query_row("SELECT count(*) FROM orders", [], |row| row.get(0))?));
        (orders.await.unwrap(), self.bus.store().bounds().await.unwrap().last)
    }
}

fn placed() -> NewEvent {
    NewEvent::new("order.placed").object("order:1")
}

/// H10: there is no point at which the data is there and the event is not, or the other way round.
#[tokio::test]
async fn data_and_event_are_committed_together_or_not_at_all() {
    let shop = shop().await;
    let answer = shop.bus.transaction(|tx| {
        tx.execute("INSERT INTO orders VALUES (1)", [])?;
        tx.publish(placed())
    });
    assert_eq!(answer.await.unwrap().seq, Some(1));
    assert_eq!(shop.counts().await, (1, 1));

    let wanted_back: Result<(), _> = shop
        .bus
        .transaction(|tx| {
            tx.execute("INSERT INTO orders VALUES (2)", [])?;
            tx.publish(placed())?;
            Err(TransactionError::rollback("no stock"))
        })
        .await;
    assert_eq!(wanted_back.unwrap_err().to_string(), "no stock");

    let panicked: Result<(), _> = shop
        .bus
        .transaction(|tx| {
            tx.publish(placed())?;
            panic!("out of luck")
        })
        .await;
    assert!(matches!(panicked, Err(TransactionError::Panicked(text)) if text == "out of luck"));

    let bad_event = shop.bus.transaction(|tx| {
        tx.execute("INSERT INTO orders VALUES (3)", [])?;
        tx.publish(NewEvent::new("a..b"))
    });
    assert!(matches!(bad_event.await, Err(TransactionError::Store(StoreError::Invalid(_)))));
    assert_eq!(shop.counts().await, (1, 1));

    // After all that the writer still works, and its numbers have no gap.
    let next = shop.bus.publish(placed()).await.unwrap();
    assert_eq!((next.seq, next.prev), (Some(2), Some(1)));
}

#[tokio::test]
async fn a_closure_that_ends_the_transaction_itself_is_told_not_to() {
    let shop = shop().await;
    let ended = shop.bus.transaction(|tx| {
        tx.publish(placed())?;
        Ok(tx.execute_batch("ROLLBACK")?)
    });
    assert!(ended.await.unwrap_err().to_string().contains("leave that to `transaction`"));
    assert_eq!(shop.bus.publish(placed()).await.unwrap().seq, Some(1));
}

#[tokio::test]
async fn an_own_connection_takes_its_turn_and_publishes_in_its_own_transaction() {
    let shop = shop().await;
    let mut stream = shop.bus.stream(ensue::Subscription::topic("order")).await.unwrap();
    let mut own = Connection::open(&shop.path).unwrap();
    let ticket = shop.bus.write_ticket().await.unwrap();
    // Asked for while the ticket is out: waits for it, and comes after it.
    let later = tokio::spawn({
        let bus = shop.bus.clone();
        async move { bus.publish(placed()).await.unwrap() }
    });
    {
        let tx = ticket.begin(&mut own).unwrap();
        tx.execute("INSERT INTO orders VALUES (1)", []).unwrap();
        tx.publish(placed()).unwrap();
        tx.commit().unwrap();
        let dropped = ticket.begin(&mut own).unwrap();
        dropped.execute("INSERT INTO orders VALUES (2)", []).unwrap();
        dropped.publish(placed()).unwrap();
    }
    drop(ticket);
    let later = later.await.unwrap();
    assert_eq!((later.seq, later.prev), (Some(2), Some(1)));
    assert_eq!(shop.counts().await, (1, 2));
    assert_eq!(stream.next_event().await.unwrap().event.seq, 1);
    assert_eq!(stream.next_event().await.unwrap().event.seq, 2);
}

#[tokio::test]
async fn a_deferred_transaction_or_a_foreign_file_is_refused_with_what_to_do() {
    let shop = shop().await;
    let ticket = shop.bus.write_ticket().await.unwrap();
    let own = Connection::open(&shop.path).unwrap();
    let refused = |error: TransactionError| error.to_string();
    assert!(refused(ticket.publish_in(&own, placed()).unwrap_err()).contains("BEGIN IMMEDIATE"));
    own.execute_batch("BEGIN; SELECT count(*) FROM orders;").unwrap();
    assert!(refused(ticket.publish_in(&own, placed()).unwrap_err()).contains("BEGIN IMMEDIATE"));
    own.execute_batch("ROLLBACK; BEGIN IMMEDIATE;").unwrap();
    ticket.publish_in(&own, placed()).unwrap();
    own.execute_batch("COMMIT").unwrap();

    let elsewhere = Connection::open_in_memory().unwrap();
    elsewhere.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(refused(ticket.publish_in(&elsewhere, placed()).unwrap_err()).contains("another file"));
    drop(ticket);
    assert_eq!(shop.counts().await, (0, 1));

    let memory = Ensue::memory().await.unwrap();
    assert!(matches!(memory.write_ticket().await, Err(Error::Store(StoreError::Unsupported(_)))));
}

/// Turns at the write lock come in the order of asking, whoever asks: tickets and publishes stand in one queue.
#[tokio::test]
async fn turns_come_in_the_order_of_asking() {
    let shop = shop().await;
    let first = shop.bus.write_ticket().await.unwrap();
    let mut asked = Vec::new();
    for n in 0..5 {
        let (bus, path) = (shop.bus.clone(), shop.path.clone());
        asked.push(tokio::spawn(async move {
            if n % 2 == 0 {
                let ticket = bus.write_ticket().await.unwrap();
                let mut own = Connection::open(path).unwrap();
                let tx = ticket.begin(&mut own).unwrap();
                let answer = tx.publish(placed()).unwrap();
                tx.commit().unwrap();
                answer
            } else {
                bus.publish(placed()).await.unwrap()
            }
        }));
        // On this one-threaded runtime a yield lets the task ask before the next one is made.
        tokio::task::yield_now().await;
    }
    drop(first);
    for (n, task) in asked.into_iter().enumerate() {
        assert_eq!(task.await.unwrap().seq, Some(n as u64 + 1));
    }
}

#[tokio::test]
async fn a_ticket_nobody_waits_for_any_more_holds_up_nobody() {
    let shop = shop().await;
    let held = shop.bus.write_ticket().await.unwrap();
    let asked = tokio::spawn({
        let bus = shop.bus.clone();
        async move { bus.write_ticket().await.map(drop) }
    });
    tokio::task::yield_now().await;
    asked.abort();
    let _aborted = asked.await;
    drop(held);
    assert_eq!(shop.bus.publish(placed()).await.unwrap().seq, Some(1));
}

/// The library's futures can be spawned on any runtime.
#[test]
fn futures_stay_send() {
    fn is_send<T: Send>(_: &T) {}
    fn check(bus: &Ensue) {
        is_send(&bus.publish(placed()));
        is_send(&bus.transaction(|tx| tx.publish(placed())));
        is_send(&bus.write_ticket());
        is_send(&bus.stream(ensue::Subscription::all()));
        is_send(&bus.start());
    }
    let _compiles: fn(&Ensue) = check;
}
