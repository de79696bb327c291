//! Publishing inside the caller's own Postgres transaction: data and event together, or neither.

#![cfg(feature = "postgres")]

use ensue::groups::Wants;
use ensue::{Ensue, Error, Event, Filter, NewEvent, Read, StoreError};
use ensue_conformance::postgres::{fresh_schema, shared_url};
use std::time::Duration;
use tokio_postgres::{Client, NoTls};

/// A bus, and an application with tables and a connection of its own in the same database.
pub struct Shop {
    pub bus: Ensue,
    pub schema: String,
    pub client: Client,
}

pub async fn client() -> Client {
    let (client, connection) = tokio_postgres::connect(&shared_url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Shop {
    pub async fn open(prefix: &str) -> Self {
        let (url, schema) = fresh_schema(prefix);
        let bus = Ensue::open(&url).await.unwrap();
        let client = client().await;
        client.batch_execute(&format!("CREATE TABLE {schema}.orders (id int PRIMARY KEY)")).await.unwrap();
        Self { bus, schema, client }
    }

    /// The statement of the application.
    pub fn insert(&self, id: i32) -> String {
        format!("INSERT INTO {}.orders VALUES ({id})", self.schema)
    }

    pub async fn orders(&self) -> i64 {
        let count = format!("SELECT count(*) FROM {}.orders", self.schema);
        client().await.query_one(&count, &[]).await.unwrap().get(0)
    }

    /// The log, with what was committed by now.
    pub async fn log(&self) -> Vec<Event> {
        self.bus.store().release_due(1_000).await.unwrap();
        let read = Read { after: 0, limit: 1_000, filter: Filter::default() };
        self.bus.store().read(read).await.unwrap().events
    }

    pub async fn topics(&self) -> Vec<String> {
        self.log().await.into_iter().map(|event| event.topic.to_string()).collect()
    }
}

fn placed(id: i32) -> NewEvent {
    NewEvent::new("order.placed").object(format!("order:{id}")).payload(&id)
}

/// H10: there is no point at which the data is there and the event is not, or the other way round.
#[tokio::test]
async fn data_and_event_are_committed_together_or_not_at_all() {
    let mut shop = Shop::open("tx").await;
    let (insert, kill) = (shop.insert(1), client().await);

    let mut tx = shop.client.transaction().await.unwrap();
    tx.batch_execute(&insert).await.unwrap();
    let answer = shop.bus.publish_in(&mut tx, placed(1)).await.unwrap();
    assert_eq!((answer.seq, answer.repeated), (None, false));
    tx.commit().await.unwrap();
    let log = shop.log().await;
    assert_eq!((shop.orders().await, log.len(), log[0].id), (1, 1, answer.id));
    assert_eq!(log[0].payload.as_str(), "1");

    // Rolled back, dropped, failed by a later statement, and cut off by a server that ends the session: at each point.
    for point in 0..8 {
        let mut own = client().await;
        let pid: i32 = own.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let mut tx = own.transaction().await.unwrap();
        if point >= 4 {
            shop.bus.publish_in(&mut tx, placed(2)).await.unwrap();
            tx.batch_execute(&shop.insert(2)).await.unwrap();
        } else {
            tx.batch_execute(&shop.insert(2)).await.unwrap();
            shop.bus.publish_in(&mut tx, placed(2)).await.unwrap();
        }
        match point % 4 {
            0 => tx.rollback().await.unwrap(),
            1 => drop(tx),
            2 => {
                tx.batch_execute(&shop.insert(1)).await.unwrap_err();
                // COMMIT of a failed transaction takes it back.
                tx.commit().await.unwrap();
            }
            _ => {
                kill.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
                tx.commit().await.unwrap_err();
            }
        }
        drop(own);
        assert_eq!((shop.orders().await, shop.log().await.len()), (1, 1), "point {point}");
    }

    // What is refused before it is sent leaves the transaction as it is.
    let insert = shop.insert(3);
    let mut tx = shop.client.transaction().await.unwrap();
    for bad in [NewEvent::new("a..b"), NewEvent::new("ensue.mine"), NewEvent::new("a").payload_json("\"\\u0000\"")] {
        assert!(matches!(shop.bus.publish_in(&mut tx, bad).await, Err(Error::Invalid(_))));
    }
    tx.batch_execute(&insert).await.unwrap();
    shop.bus.publish_all_in(&mut tx, (0..500).map(|n| placed(n % 7)).collect()).await.unwrap();
    tx.commit().await.unwrap();
    let payloads: Vec<String> = shop.log().await[1..].iter().map(|event| event.payload.as_str().to_owned()).collect();
    assert_eq!(payloads, (0..500).map(|n| (n % 7).to_string()).collect::<Vec<_>>());
}

/// H34: a client commits a transactional publish, then calls publish directly on the same object: the first comes first.
#[tokio::test]
async fn what_was_committed_before_a_publish_comes_before_it() {
    let mut shop = Shop::open("causality").await;
    for round in 0..20 {
        let mut tx = shop.client.transaction().await.unwrap();
        let first = shop.bus.publish_in(&mut tx, NewEvent::new("first").object("o")).await.unwrap();
        tx.commit().await.unwrap();
        let direct = shop.bus.publish(NewEvent::new("second").object("o")).await.unwrap();
        assert_eq!((direct.seq, direct.prev), (Some(2 * round + 2), Some(2 * round + 1)));
        let found = shop.bus.store().event(2 * round + 1).await.unwrap().unwrap();
        assert_eq!((found.id, found.topic.as_str()), (first.id, "first"));
    }
}

/// H23: a transaction that has published and stays open delays nobody; what it published comes when it commits.
#[tokio::test]
async fn an_open_transaction_delays_nobody() {
    let mut shop = Shop::open("open").await;
    let mut tx = shop.client.transaction().await.unwrap();
    shop.bus.publish_in(&mut tx, NewEvent::new("late").object("o")).await.unwrap();
    let other = shop.bus.publish(NewEvent::new("early").object("o"));
    let early = tokio::time::timeout(Duration::from_secs(60), other).await.expect("it waits").unwrap();
    assert_eq!(early.seq, Some(1));
    tx.commit().await.unwrap();
    assert_eq!(shop.topics().await, ["early", "late"]);
}

/// A bus that is started hears of what others commit, without being told.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_comes_to_streams() {
    let mut shop = Shop::open("heard").await;
    let running = shop.bus.start().await.unwrap();
    let mut stream = shop.bus.stream(ensue::Subscription::topic("order")).await.unwrap();
    for id in 0..5 {
        let mut tx = shop.client.transaction().await.unwrap();
        shop.bus.publish_in(&mut tx, placed(id)).await.unwrap();
        tx.commit().await.unwrap();
        let event = tokio::time::timeout(Duration::from_secs(60), stream.next_event()).await.expect("it never comes");
        assert_eq!(event.unwrap().event.payload.as_str(), id.to_string());
    }
    running.shutdown(Duration::from_secs(60)).await.unwrap();
}

#[tokio::test]
async fn the_same_key_is_the_same_event_and_another_is_refused() {
    let mut shop = Shop::open("keys").await;
    let keyed = || placed(1).key("k");
    let mut tx = shop.client.transaction().await.unwrap();
    let both = shop.bus.publish_all_in(&mut tx, vec![keyed(), placed(2), keyed()]).await.unwrap();
    let repeated: Vec<bool> = both.iter().map(|answer| answer.repeated).collect();
    assert_eq!((both[0].id, repeated), (both[2].id, vec![false, false, true]));
    tx.commit().await.unwrap();

    // In the outbox still, then in the log.
    for moved in [false, true] {
        if moved {
            assert_eq!(shop.topics().await, ["order.placed", "order.placed"]);
        }
        let mut tx = shop.client.transaction().await.unwrap();
        let again = shop.bus.publish_in(&mut tx, keyed()).await.unwrap();
        assert_eq!((again.id, again.repeated), (both[0].id, true));
        tx.commit().await.unwrap();
        let mut tx = shop.client.transaction().await.unwrap();
        let other = shop.bus.publish_all_in(&mut tx, vec![placed(8).key("k2"), placed(9).key("k")]).await;
        assert_eq!(other, Err(Error::Store(StoreError::KeyConflict { key: "k".into() })));
        let failed = shop.bus.publish_in(&mut tx, placed(9)).await.unwrap_err();
        assert!(failed.to_string().contains("roll it back"), "{failed}");
    }
    let again = shop.bus.publish(keyed()).await.unwrap();
    assert_eq!((again.id, again.repeated), (both[0].id, true));
    assert_eq!(shop.topics().await.len(), 2);
    let within = vec![placed(1).key("k3"), placed(2).key("k3")];
    let mut tx = shop.client.transaction().await.unwrap();
    let within = shop.bus.publish_all_in(&mut tx, within).await;
    assert_eq!(within, Err(Error::Store(StoreError::KeyConflict { key: "k3".into() })));
}

#[tokio::test]
async fn every_driver_publishes_alike() {
    let shop = Shop::open("drivers").await;
    let to = subscription(&shop.bus).await;
    let full = |n: i32| {
        let at = "2020-01-02T03:04:05.678901Z".parse::<ensue::Timestamp>().unwrap();
        placed(n).metadata_json(r#"{"who": "me"}"#).occurred_at(at).key(format!("k{n}")).to(to)
    };
    let mut own = client().await;
    let mut tx = own.transaction().await.unwrap();
    shop.bus.publish_in(&mut tx, full(1)).await.unwrap();
    tx.commit().await.unwrap();

    let config = shared_url().parse().unwrap();
    let manager = deadpool_postgres::Manager::new(config, NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).max_size(1).build().unwrap();
    let mut pooled = pool.get().await.unwrap();
    let mut tx = pooled.transaction().await.unwrap();
    shop.bus.publish_in(&mut tx, full(2)).await.unwrap();
    tx.commit().await.unwrap();

    #[cfg(feature = "sqlx")]
    {
        use sqlx::{Connection, PgConnection};
        let mut own = PgConnection::connect(&shared_url()).await.unwrap();
        let mut tx = own.begin().await.unwrap();
        shop.bus.publish_in(&mut tx, full(3)).await.unwrap();
        let conflict = shop.bus.publish_in(&mut tx, placed(9).key("k3")).await;
        assert_eq!(conflict, Err(Error::Store(StoreError::KeyConflict { key: "k3".into() })));
        tx.rollback().await.unwrap();
        let mut tx = own.begin().await.unwrap();
        shop.bus.publish_in(&mut tx, full(3)).await.unwrap();
        shop.bus.publish_all_in(&mut *tx, vec![placed(4), placed(5)]).await.unwrap();
        tx.commit().await.unwrap();
    }
    let log = shop.log().await;
    assert_eq!(log.len(), if cfg!(feature = "sqlx") { 5 } else { 2 });
    for (event, n) in log.iter().zip(1..).take(3) {
        let entry = full(n).check().unwrap();
        assert_eq!((&event.topic, &event.object, event.to), (&entry.topic, &entry.object, entry.to));
        assert_eq!((event.metadata.as_str(), Some(event.occurred_at)), (r#"{"who":"me"}"#, entry.occurred_at));
        assert_eq!(event.payload.as_str(), n.to_string());
    }
}

async fn subscription(bus: &Ensue) -> uuid::Uuid {
    bus.groups().subscribe("g", Wants::when("false")).await.unwrap().0.id
}

/// A direct message to nobody is refused in the caller's transaction, too.
#[tokio::test]
async fn a_direct_message_to_an_unknown_subscription_is_refused() {
    let mut shop = Shop::open("unknown_recipient").await;
    let unknown = uuid::Uuid::from_u128(7);
    let mut tx = shop.client.transaction().await.unwrap();
    let refused = shop.bus.publish_in(&mut tx, placed(1).to(unknown)).await.unwrap_err();
    assert!(refused.to_string().contains("no subscription has this id"), "{refused}");
    tx.rollback().await.unwrap();
    let to = subscription(&shop.bus).await;
    let mut tx = shop.client.transaction().await.unwrap();
    shop.bus.publish_in(&mut tx, placed(1).to(to)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(shop.log().await[0].to, Some(to));
}

/// Each says what to do, and nothing is half done.
#[tokio::test]
async fn a_refusal_says_what_to_do() {
    let shop = Shop::open("refused").await;
    let mut own = client().await;

    // The schema is not in this database.
    own.batch_execute(&format!("CREATE DATABASE {}_other", shop.schema)).await.unwrap();
    let elsewhere = shared_url().rsplit_once('/').map(|(server, _)| format!("{server}/{}_other", shop.schema)).unwrap();
    let (mut other, connection) = tokio_postgres::connect(&elsewhere, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut tx = other.transaction().await.unwrap();
    let error = shop.bus.publish_in(&mut tx, placed(1)).await.unwrap_err();
    assert!(matches!(&error, Error::Store(StoreError::Schema(_))), "{error:?}");
    assert!(error.to_string().contains("database of the bus"), "{error}");
    drop(tx);
    drop(other);
    connection.await.unwrap().unwrap();
    own.batch_execute(&format!("DROP DATABASE {}_other", shop.schema)).await.unwrap();

    // A transaction that only reads.
    let mut tx = own.build_transaction().read_only(true).start().await.unwrap();
    let error = shop.bus.publish_in(&mut tx, placed(1)).await.unwrap_err();
    assert!(error.to_string().contains("READ WRITE"), "{error}");
    drop(tx);

    // One that cannot see who has used the key meanwhile.
    let level = tokio_postgres::IsolationLevel::RepeatableRead;
    let mut tx = own.build_transaction().isolation_level(level).start().await.unwrap();
    tx.execute("SELECT 1", &[]).await.unwrap();
    let mut third = client().await;
    let mut faster = third.transaction().await.unwrap();
    shop.bus.publish_in(&mut faster, placed(1).key("k")).await.unwrap();
    faster.commit().await.unwrap();
    let error = shop.bus.publish_in(&mut tx, placed(1).key("k")).await.unwrap_err();
    assert!(matches!(&error, Error::Store(StoreError::Unavailable(_))), "{error:?}");
    assert!(error.to_string().contains("begin it again"), "{error}");
    drop(tx);
    assert_eq!(shop.topics().await, ["order.placed"]);

    #[cfg(feature = "sqlite")]
    {
        let embedded = Ensue::memory().await.unwrap();
        let mut tx = own.transaction().await.unwrap();
        let error = embedded.publish_in(&mut tx, placed(1)).await.unwrap_err();
        assert!(error.to_string().contains("bus.transaction"), "{error}");
    }
}

/// The library's futures can be spawned on any runtime.
#[test]
fn futures_stay_send() {
    fn is_send<T: Send>(_: &T) {}
    fn check(bus: &Ensue, tx: &mut tokio_postgres::Transaction<'_>) {
        is_send(&bus.publish_in(tx, placed(1)));
        is_send(&bus.publish_all_in(tx, vec![placed(1)]));
    }
    let _compiles: fn(&Ensue, &mut tokio_postgres::Transaction<'_>) = check;
}

/// H43: a handler goes past an event that no program of ours writes.
#[tokio::test]
async fn handler_goes_past_event_with_infinite_time() {
    let shop = Shop::open("infinite").await;
    for id in 1..=3 {
        shop.bus.publish(placed(id)).await.unwrap();
    }
    let spoil = "UPDATE LOG.stored_events SET occurred_at = 'infinity', recorded_at = 'infinity' WHERE seq = 2";
    shop.client.batch_execute(&spoil.replace("LOG", &shop.schema)).await.unwrap();
    let (seen, mut arrived) = tokio::sync::mpsc::unbounded_channel();
    let handle = move |event: Event, _: ensue::Context| {
        seen.send(event.seq).unwrap();
        std::future::ready(Ok::<(), ensue::HandlerError>(()))
    };
    shop.bus.on("order").named("ship").start(ensue::Start::Beginning).handle(handle).unwrap();
    let running = shop.bus.start().await.unwrap();
    shop.bus.publish(placed(4)).await.unwrap();
    for expected in 1..=4 {
        let seq = tokio::time::timeout(Duration::from_secs(60), arrived.recv()).await.expect("it is delivered");
        assert_eq!(seq, Some(expected));
    }
    running.shutdown(Duration::from_secs(5)).await.unwrap();
    shop.bus.close().await;
}
