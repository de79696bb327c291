//! Units of work: what is registered is told in a fixed order, and what is published is there if and only if the unit is.

#![cfg(all(feature = "sqlite", feature = "postgres"))]

use crate::transaction_postgres::{Shop, client};
use ensue::unit::{Hooked, OperationError, Unit, UnitTransaction};
use ensue::{Ensue, NewEvent, Operation, TransactionError, UnitError};
use std::sync::{Arc, Mutex};

/// What was called, in order.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    fn push(&self, call: impl Into<String>) {
        self.0.lock().unwrap().push(call.into());
    }

    fn all(&self) -> String {
        self.0.lock().unwrap().join(" ")
    }
}

/// Writes down what it is told, and fails where it should.
struct Told {
    name: &'static str,
    calls: Calls,
    fails_at: Option<&'static str>,
}

impl Told {
    fn tell(&self, hook: &'static str) -> Hooked<'static> {
        let call = format!("{}.{hook}", self.name);
        self.calls.push(&call);
        let fails = self.fails_at == Some(call.as_str());
        Box::pin(async move { if fails { Err(OperationError::new("no")) } else { Ok(()) } })
    }
}

impl Operation for Told {
    fn on_register<'a>(&'a mut self, _unit: Unit<'a>) -> Hooked<'a> {
        self.tell("register")
    }
    fn on_commit<'a>(&'a mut self, mut unit: Unit<'a>) -> Hooked<'a> {
        if let Err(invalid) = unit.publish(NewEvent::new(format!("by.{}", self.name))) {
            return Box::pin(async move { Err(invalid.into()) });
        }
        self.tell("commit")
    }
    fn on_post_commit(&mut self) -> Hooked<'_> {
        self.tell("post_commit")
    }
    fn on_exception<'a>(&'a mut self, _reason: &'a str) -> Hooked<'a> {
        self.tell("exception")
    }
    fn on_rollback(&mut self) -> Hooked<'_> {
        self.tell("rollback")
    }
    fn on_post_rollback(&mut self) -> Hooked<'_> {
        self.tell("post_rollback")
    }
}

/// What fails, what is called, what is in the log and how many hooks failed after the commit (none: the unit was taken back).
type Case = (Option<&'static str>, &'static str, &'static [&'static str], Option<usize>);

const CASES: &[Case] = &[
    (
        None,
        "a.register b.register work a.commit b.commit a.post_commit b.post_commit",
        &["work", "by.a", "by.b"],
        Some(0),
    ),
    (
        Some("a.post_commit"),
        "a.register b.register work a.commit b.commit a.post_commit b.post_commit",
        &["work", "by.a", "by.b"],
        Some(1),
    ),
    (Some("a.register"), "a.register", &[], None),
    (Some("b.register"), "a.register b.register a.exception a.rollback a.post_rollback", &[], None),
    (
        Some("work"),
        "a.register b.register work b.exception a.exception b.rollback a.rollback b.post_rollback a.post_rollback",
        &[],
        None,
    ),
    (
        Some("a.commit"),
        "a.register b.register work a.commit b.exception a.exception b.rollback a.rollback b.post_rollback a.post_rollback",
        &[],
        None,
    ),
    (
        Some("b.commit"),
        "a.register b.register work a.commit b.commit b.exception a.exception b.rollback a.rollback b.post_rollback \
         a.post_rollback",
        &[],
        None,
    ),
];

fn pair(calls: &Calls, fails_at: Option<&'static str>) -> [Told; 2] {
    ["a", "b"].map(|name| Told { name, calls: calls.clone(), fails_at })
}

#[tokio::test]
async fn hooks_are_told_in_a_fixed_order_on_sqlite() {
    for (fails_at, expected, topics, failed) in CASES {
        let (bus, calls) = (Ensue::memory().await.unwrap(), Calls::default());
        bus.transaction(|tx| Ok(tx.execute_batch("CREATE TABLE orders (id INTEGER)")?)).await.unwrap();
        let ([a, b], seen) = (pair(&calls, *fails_at), calls.clone());
        let done = bus
            .unit_of_work(move |unit| {
                unit.register(a)?;
                unit.register(b)?;
                seen.push("work");
                unit.tx().execute("INSERT INTO orders VALUES (1)", [])?;
                unit.publish(NewEvent::new("work"))?;
                if *fails_at == Some("work") { Err(TransactionError::rollback("no")) } else { Ok(()) }
            })
            .await;
        assert_eq!(calls.all(), *expected, "{fails_at:?}");
        assert_eq!(done.ok().map(|(_, committed)| committed.failed.len()), *failed, "{fails_at:?}");
        let count = "SELECT count(*) FROM orders";
        let orders: i64 = bus.transaction(|tx| Ok(tx.query_row(count, [], |row| row.get(0))?)).await.unwrap();
        assert_eq!(orders as usize, topics.len().min(1), "{fails_at:?}");
        let log = bus.read(0, 10, &ensue::Wanted::default()).await.unwrap();
        let found: Vec<&str> = log.page.events.iter().map(|event| event.topic.as_str()).collect();
        assert_eq!(found, *topics, "{fails_at:?}");
    }
}

#[tokio::test]
async fn hooks_are_told_in_a_fixed_order_on_postgres() {
    for (fails_at, expected, topics, failed) in CASES {
        let (mut shop, calls) = (Shop::open("unit").await, Calls::default());
        let ([a, b], insert) = (pair(&calls, *fails_at), shop.insert(1));
        let tx = shop.client.transaction().await.unwrap();
        let (seen, fails) = (calls.clone(), *fails_at == Some("work"));
        let done: Result<(), UnitError> = shop
            .bus
            .unit_of_work_in(tx, |unit| {
                Box::pin(async move {
                    unit.register(a).await?;
                    unit.register(b).await?;
                    seen.push("work");
                    unit.tx().batch_execute(&insert).await.unwrap();
                    unit.publish(NewEvent::new("work"))?;
                    if fails { Err(refused()) } else { Ok(()) }
                })
            })
            .await;
        assert_eq!(calls.all(), *expected, "{fails_at:?}");
        assert_eq!(done.is_ok(), failed.is_some(), "{fails_at:?}");
        assert_eq!(shop.orders().await, topics.len().min(1) as i64, "{fails_at:?}");
        assert_eq!(shop.topics().await, *topics, "{fails_at:?}");
    }
}

fn refused() -> UnitError {
    UnitError::Operation { hook: "work", reason: "no".into() }
}

/// A unit in a unit that fails is taken back alone, with its operations and events; the others go on.
#[tokio::test]
async fn a_unit_in_a_unit_is_a_savepoint() {
    let expected = "a.register b.register b.exception b.rollback b.post_rollback c.register a.commit c.commit a.post_commit \
                    c.post_commit";
    let topics = ["outer", "kept", "by.a", "by.c"];
    let operations = |calls: &Calls| ["a", "b", "c"].map(|name| Told { name, calls: calls.clone(), fails_at: None });

    let (bus, calls) = (Ensue::memory().await.unwrap(), Calls::default());
    let [a, b, c] = operations(&calls);
    let ((), committed) = bus
        .unit_of_work(move |unit| {
            unit.tx().execute_batch("CREATE TABLE orders (id INTEGER)")?;
            unit.register(a)?;
            unit.publish(NewEvent::new("outer"))?;
            let failed: Result<(), _> = unit.nested(|inner| {
                inner.register(b)?;
                inner.context(&serde_json::json!({ "half": true }))?;
                inner.tx().execute("INSERT INTO orders VALUES (1)", [])?;
                inner.publish(NewEvent::new("gone"))?;
                Err(TransactionError::rollback("no"))
            });
            assert_eq!(failed.unwrap_err().to_string(), "no");
            unit.nested(|inner| {
                inner.register(c)?;
                inner.tx().execute("INSERT INTO orders VALUES (2)", [])?;
                Ok(inner.publish(NewEvent::new("kept"))?)
            })
        })
        .await
        .unwrap();
    assert_eq!((calls.all().as_str(), committed.events.len()), (expected, 4));
    let log = bus.read(0, 10, &ensue::Wanted::default()).await.unwrap();
    assert_eq!(log.page.events.iter().map(|event| event.topic.as_str()).collect::<Vec<_>>(), topics);
    assert!(log.page.events.iter().all(|event| event.metadata.as_str() == "{}"));

    let (mut shop, calls) = (Shop::open("unit").await, Calls::default());
    let ([a, b, c], inserts) = (operations(&calls), [1, 2].map(|id| shop.insert(id)));
    let tx = shop.client.transaction().await.unwrap();
    let done: Result<(), UnitError> = shop
        .bus
        .unit_of_work_in(tx, |unit| {
            Box::pin(async move {
                let [first, second] = inserts;
                unit.register(a).await?;
                unit.publish(NewEvent::new("outer"))?;
                let failing = unit.nested(|inner| {
                    Box::pin(async move {
                        inner.register(b).await?;
                        inner.tx().batch_execute(&first).await.unwrap();
                        inner.publish(NewEvent::new("gone"))?;
                        // The transaction has failed, and is whole again behind the savepoint.
                        inner.tx().batch_execute("SELECT 1 / 0").await.unwrap_err();
                        Err::<(), _>(refused())
                    })
                });
                assert_eq!(failing.await, Err(refused()));
                let kept = unit.nested(|inner| {
                    Box::pin(async move {
                        inner.register(c).await?;
                        inner.tx().batch_execute(&second).await.unwrap();
                        Ok(inner.publish(NewEvent::new("kept"))?)
                    })
                });
                kept.await
            })
        })
        .await;
    assert_eq!(done, Ok(()));
    assert_eq!(calls.all(), expected);
    assert_eq!((shop.orders().await, shop.topics().await), (1, topics.map(str::to_owned).to_vec()));
}

/// Two units lock one row one after the other: their events are in the log in that order, although the second one was the first to say
/// what it publishes.
#[tokio::test]
async fn units_about_one_object_are_in_the_order_of_their_row_locks() {
    let shop = Shop::open("unit").await;
    shop.client.batch_execute(&shop.insert(1)).await.unwrap();
    let lock = format!("SELECT 1 FROM {}.orders WHERE id = 1 FOR UPDATE", shop.schema);
    let (mut first, mut second) = (client().await, client().await);
    let mut later = shop.bus.begin_unit(second.transaction().await.unwrap()).unwrap();
    later.publish(NewEvent::new("second").object("o")).unwrap();
    let mut sooner = shop.bus.begin_unit(first.transaction().await.unwrap()).unwrap();
    sooner.tx().batch_execute(&lock).await.unwrap();
    sooner.publish(NewEvent::new("first").object("o")).unwrap();
    let (waits, ()) = tokio::join!(
        async {
            later.tx().batch_execute(&lock).await.unwrap();
            later.commit().await.unwrap()
        },
        async {
            let committed = sooner.commit().await.unwrap();
            assert_eq!(committed.events.len(), 1);
        }
    );
    assert_eq!(waits.events.len(), 1);
    assert_eq!(shop.topics().await, ["first", "second"]);
}

/// An operation's own statements are part of the unit, with every driver; what a unit knows of its request is said with each event.
#[tokio::test]
async fn operations_write_in_the_units_transaction() {
    struct Insert(String);
    impl Operation for Insert {
        fn on_commit<'a>(&'a mut self, mut unit: Unit<'a>) -> Hooked<'a> {
            Box::pin(async move {
                match unit.tx() {
                    UnitTransaction::Sqlite(connection) => drop(connection.execute(&self.0, [])?),
                    UnitTransaction::Postgres(tx) => tx.batch_execute(&self.0).await?,
                    #[cfg(feature = "sqlx")]
                    UnitTransaction::Sqlx(connection) => {
                        sqlx::raw_sql(sqlx::AssertSqlSafe(self.0.clone())).execute(connection).await?;
                    }
                    _ => return Err(OperationError::new("another engine")),
                }
                unit.context(&serde_json::json!({ "user": "ann", "request": 2 }))?;
                Ok(unit.publish(NewEvent::new("inserted").metadata_json(r#"{"user":"bob"}"#))?)
            })
        }
    }
    let mut shop = Shop::open("unit").await;
    let (first, bus) = (Insert(shop.insert(1)), shop.bus.clone());
    #[cfg(feature = "sqlx")]
    let second = Insert(shop.insert(2));
    let tx = shop.client.transaction().await.unwrap();
    let mut unit = bus.begin_unit(tx).unwrap();
    unit.context(&serde_json::json!({ "request": 1, "ip": "::1" })).unwrap();
    assert!(unit.context(&[1]).is_err());
    unit.register(first).await.unwrap();
    unit.commit().await.unwrap();
    let count = if cfg!(feature = "sqlx") { 2 } else { 1 };
    #[cfg(feature = "sqlx")]
    {
        use sqlx::Connection;
        let mut own = sqlx::PgConnection::connect(&ensue_conformance::postgres::shared_url()).await.unwrap();
        let tx = own.begin().await.unwrap();
        let done: Result<(), UnitError> = bus
            .unit_of_work_in(tx, |unit| {
                Box::pin(async move {
                    let failing = unit.nested(|inner| {
                        Box::pin(async move {
                            inner.publish(NewEvent::new("gone"))?;
                            Err::<(), _>(refused())
                        })
                    });
                    assert!(failing.await.is_err());
                    unit.register(second).await
                })
            })
            .await;
        assert_eq!(done, Ok(()));
    }
    assert_eq!(shop.orders().await, count);
    let log = shop.log().await;
    assert_eq!(log.len() as i64, count);
    let said: serde_json::Value = serde_json::from_str(log[0].metadata.as_str()).unwrap();
    assert_eq!(said, serde_json::json!({ "user": "bob", "request": 2, "ip": "::1" }));

    let embedded = Ensue::memory().await.unwrap();
    embedded.transaction(|tx| Ok(tx.execute_batch("CREATE TABLE orders (id INTEGER)")?)).await.unwrap();
    let ((), committed) =
        embedded.unit_of_work(|unit| unit.register(Insert("INSERT INTO orders VALUES (1)".into()))).await.unwrap();
    assert_eq!(committed.events.len(), 1);
}

/// One that nobody ends, or whose future is dropped, is taken back, and its operations hear of it.
#[tokio::test]
async fn a_unit_that_is_dropped_is_taken_back() {
    let (mut shop, calls) = (Shop::open("unit").await, Calls::default());
    let insert = shop.insert(1);
    let tx = shop.client.transaction().await.unwrap();
    let seen = calls.clone();
    let work = shop.bus.unit_of_work_in(tx, |unit| {
        Box::pin(async move {
            unit.register(Told { name: "a", calls: seen.clone(), fails_at: None }).await?;
            unit.tx().batch_execute(&insert).await.unwrap();
            unit.publish(NewEvent::new("gone"))?;
            seen.push("waits");
            std::future::pending::<Result<(), UnitError>>().await
        })
    });
    let heard = async {
        while !calls.all().ends_with("waits") {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! { biased; () = heard => {}, _never = work => unreachable!() }
    assert_eq!(calls.all(), "a.register waits a.rollback a.post_rollback");
    assert_eq!(shop.client.query("SELECT 1", &[]).await.unwrap().len(), 1);
    assert_eq!((shop.orders().await, shop.topics().await.len()), (0, 0));
}

/// COMMIT of a transaction in which something failed takes it back without a word: a unit says so.
#[tokio::test]
async fn a_failed_statement_that_was_passed_over_fails_the_unit() {
    let (mut shop, calls) = (Shop::open("unit").await, Calls::default());
    for publishes in [false, true] {
        let tx = shop.client.transaction().await.unwrap();
        let mut unit = shop.bus.begin_unit(tx).unwrap();
        if publishes {
            unit.publish(NewEvent::new("a")).unwrap();
        }
        unit.tx().batch_execute("SELECT 1 / 0").await.unwrap_err();
        let error = unit.commit().await.unwrap_err();
        assert!(error.to_string().contains("roll it back"), "{error}");
    }
    // And a connection that goes away before the commit: nothing is stored, and it is known.
    let pid: i32 = shop.client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let insert = shop.insert(1);
    let mut unit = shop.bus.begin_unit(shop.client.transaction().await.unwrap()).unwrap();
    unit.register(Told { name: "a", calls: calls.clone(), fails_at: None }).await.unwrap();
    unit.tx().batch_execute(&insert).await.unwrap();
    client().await.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    unit.commit().await.unwrap_err();
    assert_eq!(calls.all(), "a.register a.commit a.exception a.rollback a.post_rollback");
    assert_eq!((shop.orders().await, shop.topics().await.len()), (0, 0));
}

/// A hook that would wait on the writer's thread is refused, and says where to wait instead.
#[tokio::test]
async fn a_hook_does_not_wait_on_the_writers_thread() {
    struct Waits;
    impl Operation for Waits {
        fn on_commit<'a>(&'a mut self, _unit: Unit<'a>) -> Hooked<'a> {
            Box::pin(async {
                tokio::task::yield_now().await;
                Ok(())
            })
        }
    }
    let bus = Ensue::memory().await.unwrap();
    let error = bus.unit_of_work(|unit| unit.register(Waits)).await.unwrap_err();
    assert!(error.to_string().contains("on_post_commit"), "{error}");
    bus.publish(NewEvent::new("a")).await.unwrap();
}

/// A unit can be done in a task of its own.
#[tokio::test]
async fn futures_stay_send() {
    let shop = Shop::open("unit").await;
    let (bus, insert) = (shop.bus.clone(), shop.insert(1));
    let task = tokio::spawn(async move {
        let mut own = client().await;
        let tx = own.transaction().await.unwrap();
        let work = bus.unit_of_work_in(tx, |unit| {
            Box::pin(async move {
                unit.tx().batch_execute(&insert).await.unwrap();
                unit.publish(NewEvent::new("a"))?;
                Ok::<_, UnitError>(())
            })
        });
        work.await
    });
    task.await.unwrap().unwrap();
    assert_eq!((shop.orders().await, shop.topics().await.len()), (1, 1));
}
