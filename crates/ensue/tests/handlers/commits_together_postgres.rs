//! A handler's effects and the note that it is done, in one Postgres transaction of the handler's own: once, whatever happens.

#![cfg(feature = "postgres")]

use crate::support::{LONG, event, lane, name, until};
use ensue::positions::LaneQuery;
use ensue::{Context, Emit, Ensue, Event, HandlerError, NewEvent, Retry, Start};
use ensue_conformance::postgres::{fresh_schema, shared_url};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_postgres::{Client, NoTls};

const STORE: &str = "ENSUE_TEST_TOGETHER_STORE";
const SCHEMA: &str = "ENSUE_TEST_TOGETHER_SCHEMA";

async fn client() -> Client {
    let (client, connection) = tokio_postgres::connect(&shared_url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn bus_with_effects(prefix: &str) -> (Ensue, String, Client) {
    let (url, schema) = fresh_schema(prefix);
    let bus = Ensue::open(&url).await.unwrap();
    let client = client().await;
    client.batch_execute(&format!("CREATE TABLE {schema}.effects (seq bigint)")).await.unwrap();
    (bus, schema, client)
}

async fn effects(client: &Client, schema: &str) -> Vec<i64> {
    let sql = format!("SELECT seq FROM {schema}.effects ORDER BY seq");
    client.query(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

fn insert(schema: &str, seq: u64) -> String {
    format!("INSERT INTO {schema}.effects VALUES ({seq})")
}

/// Is everything done, and nothing left?
async fn is_done(bus: &Ensue, group: &str, cursor: u64) -> bool {
    let group = bus.store().group(&name(group)).await.unwrap().unwrap();
    group.cursor() >= cursor && group.lanes == 0
}

/// Effects happen once, with what was published, also when the attempt fails after its commit. What is rolled back is done
/// again, also if the handler returns `Ok`.
#[tokio::test(flavor = "multi_thread")]
async fn done_in_settles_in_the_handlers_own_transaction() {
    let (bus, schema, client) = bus_with_effects("together").await;
    let own = schema.clone();
    bus.on("a")
        .named("h")
        .retry(Retry::delays([Duration::from_millis(10); 3]))
        .handle(move |event: Event, cx: Context| {
            let schema = own.clone();
            async move {
                let mut client = self::client().await;
                cx.publish(NewEvent::new("b").payload(&event.seq))?;
                let mut tx = client.transaction().await?;
                tx.batch_execute(&insert(&schema, event.seq)).await?;
                cx.done_in(&mut tx).await?;
                match (event.seq, cx.attempt()) {
                    // Taken back, and done again.
                    (2, 1) => Err(HandlerError::failed("before the commit")),
                    // Taken back, and not done whatever the handler says.
                    (3, 1) => Ok(()),
                    (3, 2) => {
                        tx.rollback().await?;
                        Ok(())
                    }
                    _ => {
                        tx.commit().await?;
                        Err(HandlerError::failed("after the commit"))
                    }
                }
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(["x", "y", "z", "x"].map(|object| event("a", object)).into()).await.unwrap();
    until("it is not done", async || is_done(&bus, "a.h", 4).await).await;
    assert_eq!(effects(&client, &schema).await, [1, 2, 3, 4]);
    until("not all was published", async || bus.store().bounds().await.unwrap().last >= 8).await;
    bus.drain().await.unwrap();
    running.shutdown(LONG).await.unwrap();
    let log = bus.read(4, 100, &ensue::Wanted::default()).await.unwrap().page.events;
    let mut said: Vec<&str> = log.iter().map(|event| event.payload.as_str()).collect();
    said.sort_unstable();
    assert_eq!(said, ["1", "2", "3", "4"], "what was published is not there once");
}

/// A transaction that stays open after it has settled keeps nobody from going on: neither the same slot's others, nor their checkpoints.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_that_has_settled_holds_up_nobody() {
    let (bus, schema, client) = bus_with_effects("open").await;
    let (own, gate) = (schema.clone(), Arc::new(Semaphore::new(0)));
    let gated = gate.clone();
    bus.on("a")
        .named("h")
        .handle(move |event: Event, cx: Context| {
            let (schema, gate) = (own.clone(), gated.clone());
            async move {
                let mut client = self::client().await;
                let mut tx = client.transaction().await?;
                tx.batch_execute(&insert(&schema, event.seq)).await?;
                cx.done_in(&mut tx).await?;
                if event.seq == 1 {
                    gate.acquire().await?.forget();
                }
                tx.commit().await?;
                Ok(())
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("a", "slow")).await.unwrap();
    bus.publish_all((0..20).map(|n| event("a", &format!("o{n}"))).collect()).await.unwrap();
    // The slow one steps aside, which is written about its lane while its own note is not committed yet; the cursor goes on.
    until("the others wait for it", async || bus.store().group(&name("a.h")).await.unwrap().unwrap().cursor() == 21)
        .await;
    assert_eq!(effects(&client, &schema).await.len(), 20);
    gate.add_permits(1);
    until("it is not done", async || is_done(&bus, "a.h", 21).await).await;
    assert_eq!(effects(&client, &schema).await.len(), 21);
    running.shutdown(LONG).await.unwrap();
}

/// H16: who has lost the slot between settling and committing cannot commit.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_over_meanwhile_takes_the_transaction_back() {
    let (bus, schema, client) = bus_with_effects("lost").await;
    let (own, refused) = (schema.clone(), Arc::new(AtomicUsize::new(0)));
    let counts = refused.clone();
    bus.on("a")
        .named("h")
        .retry(Retry::delays([Duration::from_millis(10); 100]))
        .handle(move |event: Event, cx: Context| {
            let (schema, refused) = (own.clone(), counts.clone());
            async move {
                let (mut client, thief) = (self::client().await, self::client().await);
                let mut tx = client.transaction().await?;
                tx.batch_execute(&insert(&schema, event.seq)).await?;
                cx.done_in(&mut tx).await?;
                if refused.load(Ordering::SeqCst) == 0 {
                    // Somebody else takes the slots and vanishes again: they are to be had.
                    let theft = format!("UPDATE {schema}.slots SET fence = fence + 1, owner = NULL");
                    thief.batch_execute(&theft).await?;
                    let error = tx.commit().await.unwrap_err();
                    refused.fetch_add(1, Ordering::SeqCst);
                    assert!(error.as_db_error().unwrap().message().contains("goes on elsewhere"), "{error:?}");
                    // Refused at once, too.
                    let mut tx = client.transaction().await?;
                    let error = cx.done_in(&mut tx).await.unwrap_err();
                    assert!(error.to_string().contains("drop the work"), "{error}");
                    return Err(HandlerError::failed(error));
                }
                tx.commit().await?;
                Ok(())
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("a", "o")).await.unwrap();
    until("it is not done", async || is_done(&bus, "a.h", 1).await).await;
    assert_eq!((refused.load(Ordering::SeqCst), effects(&client, &schema).await), (1, vec![1]));
    running.shutdown(LONG).await.unwrap();
}

/// An attempt is cut off by its timeout while its transaction is open, which commits all the same: it is done, and not done again.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_comes_late_counts() {
    let (bus, schema, client) = bus_with_effects("late").await;
    let own = schema.clone();
    let (cut_off, committed) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicBool::new(false)));
    let (gate, late) = (cut_off.clone(), committed.clone());
    bus.on("a")
        .named("h")
        .timeout(Duration::from_secs(1))
        .retry(Retry::delays([Duration::from_millis(10); 1_000]))
        .handle(move |event: Event, cx: Context| {
            let (schema, gate, late) = (own.clone(), gate.clone(), late.clone());
            async move {
                let mut client = self::client().await;
                if cx.attempt() == 1 {
                    // In a task that outlives the attempt.
                    let task = tokio::spawn(async move {
                        let mut tx = client.transaction().await.unwrap();
                        tx.batch_execute(&insert(&schema, event.seq)).await.unwrap();
                        cx.done_in(&mut tx).await.unwrap();
                        gate.acquire().await.unwrap().forget();
                        tx.commit().await.unwrap();
                        late.store(true, Ordering::SeqCst);
                    });
                    task.await?;
                    return Ok(());
                }
                gate.add_permits(1);
                while !late.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                let mut tx = client.transaction().await?;
                tx.batch_execute(&insert(&schema, event.seq)).await?;
                cx.done_in(&mut tx).await?;
                tx.commit().await?;
                Ok(())
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(vec![event("a", "o"), event("a", "o")]).await.unwrap();
    drop(cut_off);
    until("the first is not done", async || {
        let rows = bus.store().lanes(LaneQuery::One(name("a.h"), lane("o")), 1).await.unwrap();
        committed.load(Ordering::SeqCst) && (rows.is_empty() || rows[0].lane.position > 1)
    })
    .await;
    until("it is not done", async || effects(&client, &schema).await.len() > 1 && is_done(&bus, "a.h", 2).await).await;
    bus.drain().await.unwrap();
    assert_eq!(effects(&client, &schema).await, [1, 2], "its effects happened twice");
    running.shutdown(LONG).await.unwrap();
}

/// All events of a batch, in one transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_settles_as_one() {
    let (bus, schema, client) = bus_with_effects("batch").await;
    // From before it is bound: not its.
    bus.publish_all((0..100).map(|n| event("a", &format!("o{}", n % 7))).collect()).await.unwrap();
    let own = schema.clone();
    bus.on("a")
        .named("h")
        .retry(Retry::delays([Duration::from_millis(10); 3]))
        .batch(50)
        .handle_batch(move |events: Vec<Event>, cx: Context| {
            let schema = own.clone();
            async move {
                let mut client = self::client().await;
                let mut tx = client.transaction().await?;
                for event in &events {
                    tx.batch_execute(&insert(&schema, event.seq)).await?;
                }
                cx.done_in(&mut tx).await?;
                tx.commit().await?;
                Err::<(), _>(HandlerError::failed("after the commit"))
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all((0..100).map(|n| event("a", &format!("o{}", n % 7))).collect()).await.unwrap();
    until("it is not done", async || is_done(&bus, "a.h", 200).await).await;
    assert_eq!(effects(&client, &schema).await, (101..=200).collect::<Vec<i64>>());
    running.shutdown(LONG).await.unwrap();
}

/// A job is over with its transaction, with what it sent and published; who has lost it cannot commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_settles_in_its_own_transaction() {
    let (bus, schema, client) = bus_with_effects("jobs").await;
    let own = schema.clone();
    bus.register("work.first", move |event: Event, cx: Context| {
        let schema = own.clone();
        async move {
            let number: u64 = event.payload.as_str().parse()?;
            let mut client = self::client().await;
            cx.log("said");
            cx.publish(NewEvent::new("job.done").payload(&number))?;
            cx.emit(Emit::to("work.second").payload(&number).object("o"))?;
            let mut tx = client.transaction().await?;
            tx.batch_execute(&insert(&schema, number)).await?;
            cx.done_in(&mut tx).await?;
            if number == 2 && cx.attempt() == 1 {
                let theft = format!("UPDATE {schema}.jobs SET fence = fence + 1 WHERE payload = '2'");
                self::client().await.batch_execute(&theft).await?;
                tx.commit().await.unwrap_err();
                let back = format!("UPDATE {schema}.jobs SET fence = fence - 1 WHERE payload = '2'");
                self::client().await.batch_execute(&back).await?;
                return Err::<(), _>(HandlerError::failed("lost").retry_after(Duration::from_millis(10)));
            }
            tx.commit().await?;
            Err(HandlerError::failed("after the commit"))
        }
    })
    .unwrap();
    let (own, seconds) = (schema.clone(), Arc::new(AtomicUsize::new(0)));
    let counts = seconds.clone();
    bus.register("work.second", move |_event: Event, cx: Context| {
        let (schema, counts) = (own.clone(), counts.clone());
        async move {
            let mut client = self::client().await;
            let mut tx = client.transaction().await?;
            tx.batch_execute(&insert(&schema, 100)).await?;
            cx.done_in(&mut tx).await?;
            tx.commit().await?;
            counts.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    })
    .unwrap();
    let running = bus.start().await.unwrap();
    for number in 1..=3 {
        bus.emit(Emit::to("work.first").payload(&number).attempts_max(5)).await.unwrap();
    }
    until("the jobs are not done", async || seconds.load(Ordering::SeqCst) == 3).await;
    bus.drain().await.unwrap();
    until("not all was published", async || bus.store().bounds().await.unwrap().last >= 3).await;
    assert_eq!(effects(&client, &schema).await, [1, 2, 3, 100, 100, 100]);
    running.shutdown(LONG).await.unwrap();
    let log = bus.read(0, 100, &ensue::Wanted::default()).await.unwrap().page.events;
    let mut said: Vec<&str> = log.iter().map(|event| event.payload.as_str()).collect();
    said.sort_unstable();
    assert_eq!(said, ["1", "2", "3"]);
}

/// A transaction whose snapshot is older than what others do meanwhile cannot tell whether the work is still its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_with_an_old_snapshot_is_refused_with_what_to_do() {
    let (bus, _schema, _client) = bus_with_effects("level").await;
    let (said, says) = tokio::sync::oneshot::channel();
    let said = Arc::new(std::sync::Mutex::new(Some(said)));
    bus.on("a")
        .named("h")
        .handle(move |_event: Event, cx: Context| {
            let said = said.clone();
            async move {
                let mut client = self::client().await;
                let level = tokio_postgres::IsolationLevel::Serializable;
                let mut tx = client.build_transaction().isolation_level(level).start().await?;
                let error = cx.done_in(&mut tx).await.unwrap_err();
                if let Some(said) = said.lock().unwrap().take() {
                    said.send(error.to_string()).unwrap();
                }
                Ok(())
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("a", "o")).await.unwrap();
    let error = says.await.unwrap();
    assert!(error.contains("READ COMMITTED"), "{error}");
    running.shutdown(LONG).await.unwrap();
}

/// sqlx as the driver.
#[cfg(feature = "sqlx")]
#[tokio::test(flavor = "multi_thread")]
async fn sqlx_settles_too() {
    use sqlx::{Connection, PgConnection};
    let (bus, schema, client) = bus_with_effects("sqlx").await;
    let own = schema.clone();
    bus.on("a")
        .named("h")
        .handle(move |event: Event, cx: Context| {
            let schema = own.clone();
            async move {
                let mut own = PgConnection::connect(&shared_url()).await?;
                let mut tx = own.begin().await?;
                sqlx::raw_sql(sqlx::AssertSqlSafe(insert(&schema, event.seq))).execute(&mut *tx).await?;
                cx.done_in(&mut tx).await?;
                tx.commit().await?;
                Err::<(), _>(HandlerError::failed("after the commit"))
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(vec![event("a", "o"), event("a", "o")]).await.unwrap();
    until("it is not done", async || is_done(&bus, "a.h", 2).await).await;
    assert_eq!(effects(&client, &schema).await, [1, 2]);
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is started by the test below, and killed"]
async fn handle_until_killed() {
    let (Ok(store), Ok(schema)) = (std::env::var(STORE), std::env::var(SCHEMA)) else { return };
    let bus = Ensue::open(&store).await.unwrap();
    serve(&bus, &schema);
    let _running = bus.start().await.unwrap();
    loop {
        let events = (0..5).map(|_| event("a", &format!("o{}", rand::random_range(0..30))));
        let last = bus.publish_all(events.collect()).await.unwrap()[4].seq.unwrap();
        std::io::stdout().write_all(format!("stored {last}\n").as_bytes()).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A handler whose only effect is in its own transaction, together with an event that follows.
fn serve(bus: &Ensue, schema: &str) {
    let (own, clients) = (schema.to_owned(), Arc::new(tokio::sync::Mutex::new(Vec::<Client>::new())));
    bus.on("a")
        .named("h")
        .start(Start::Beginning)
        .concurrency(8)
        .retry(Retry::delays([Duration::from_millis(10); 1_000]))
        .handle(move |event: Event, cx: Context| {
            let (schema, clients) = (own.clone(), clients.clone());
            async move {
                let kept = clients.lock().await.pop();
                let mut client = match kept {
                    Some(client) => client,
                    None => self::client().await,
                };
                cx.publish(NewEvent::new("follows").payload(&event.seq))?;
                let mut tx = client.transaction().await?;
                tx.batch_execute(&insert(&schema, event.seq)).await?;
                cx.done_in(&mut tx).await?;
                tx.commit().await?;
                clients.lock().await.push(client);
                Ok(())
            }
        })
        .unwrap();
}

/// H18, and more: killed between effect and acknowledgement, at any point, every effect and every event that follows is there once.
#[tokio::test(flavor = "multi_thread")]
async fn effects_happen_once_although_the_process_is_killed() {
    let (url, schema) = fresh_schema("killed");
    let bus = Ensue::open(&url).await.unwrap();
    let client = client().await;
    client.batch_execute(&format!("CREATE TABLE {schema}.effects (seq bigint)")).await.unwrap();
    for round in 0..6 {
        let (url, schema) = (url.clone(), schema.clone());
        let killed = tokio::task::spawn_blocking(move || {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "commits_together_postgres::handle_until_killed", "--ignored", "--nocapture"])
                .env(STORE, &url)
                .env(SCHEMA, &schema)
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            let stored = lines.filter(|line| line.contains("stored ")).take(20 + 7 * round).count();
            // SIGKILL.
            child.kill().unwrap();
            child.wait().unwrap();
            stored
        });
        assert!(killed.await.unwrap() > 0, "it stored nothing");
    }
    serve(&bus, &schema);
    let running = bus.start().await.unwrap();
    let published = async || {
        let mut wanted: Vec<i64> = Vec::new();
        let mut followed: Vec<i64> = Vec::new();
        let mut after = 0;
        loop {
            let page = bus.read(after, 1_000, &ensue::Wanted::default()).await.unwrap().page;
            for event in &page.events {
                match event.topic.as_str() {
                    "a" => wanted.push(event.seq as i64),
                    _ => followed.push(event.payload.as_str().parse().unwrap()),
                }
            }
            if page.next == after {
                return (wanted, followed);
            }
            after = page.next;
        }
    };
    until("not everything was done, or not once", async || {
        let (wanted, followed) = published().await;
        followed.len() >= wanted.len() && effects(&client, &schema).await.len() >= wanted.len()
    })
    .await;
    running.shutdown(LONG).await.unwrap();
    let (wanted, mut followed) = published().await;
    followed.sort_unstable();
    assert_eq!(effects(&client, &schema).await, wanted, "an effect is missing or was doubled");
    assert_eq!(followed, wanted, "an event that follows is missing or was doubled");
}
