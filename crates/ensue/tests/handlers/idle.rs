//! H31: an idle process asks its database next to nothing, however many handlers it has, and still hears of everything.

#![cfg(feature = "postgres")]

use crate::support::{LONG, until};
use ensue::{Context, Ensue, Event, NewEvent, Options, Running, Seq};
use ensue_conformance::postgres::fresh_schema;
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type Handled = Arc<Mutex<HashSet<Seq>>>;

/// A way to the server that counts the statements that pass.
struct Counted {
    url: String,
    statements: Arc<AtomicUsize>,
}

impl Counted {
    fn new(url: &str) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap();
        let (authority, path) = rest.split_once('/').unwrap();
        let (user, server) = authority.rsplit_once('@').map_or(("", authority), |(user, server)| (user, server));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://{user}@{}/{path}&sslmode=disable", listener.local_addr().unwrap());
        let statements = Arc::new(AtomicUsize::new(0));
        let (counted, server) = (statements.clone(), server.to_owned());
        std::thread::spawn(move || {
            while let Ok((inner, _)) = listener.accept() {
                let outer = TcpStream::connect(&server).unwrap();
                [&inner, &outer].into_iter().for_each(|stream| stream.set_nodelay(true).unwrap());
                let (mut from_server, mut to_bus) = (outer.try_clone().unwrap(), inner.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _until_it_ends = io::copy(&mut from_server, &mut to_bus);
                    let _may_be_gone = to_bus.shutdown(Shutdown::Both);
                });
                let counted = counted.clone();
                std::thread::spawn(move || {
                    let _until_it_ends = pass_on(inner, &outer, &counted);
                    let _may_be_gone = outer.shutdown(Shutdown::Both);
                });
            }
        });
        Self { url, statements }
    }

    fn count(&self) -> usize {
        self.statements.load(Ordering::SeqCst)
    }
}

/// Messages are a letter (but not at the start), their length, and so many bytes.
fn pass_on(mut from: TcpStream, mut to: &TcpStream, statements: &AtomicUsize) -> io::Result<()> {
    let mut letters = 0;
    loop {
        let mut message = vec![0; letters + 4];
        from.read_exact(&mut message)?;
        let length = u32::from_be_bytes(*message.last_chunk().unwrap()) as usize;
        // Query and Sync end a statement.
        if letters == 1 && matches!(message[0], b'Q' | b'S') {
            statements.fetch_add(1, Ordering::SeqCst);
        }
        let head = message.len();
        message.resize(head + length - 4, 0);
        from.read_exact(&mut message[head..])?;
        to.write_all(&message)?;
        letters = 1;
    }
}

/// A process with these handlers. Retention looks every half minute; not here, where seconds are counted.
async fn process(url: &str, topics: &[&str], handled: &Handled) -> (Ensue, Running) {
    let options = Options { retention_interval: Duration::from_secs(3_600), ..Options::default() };
    let bus = Ensue::open_with(url, options).await.unwrap();
    for topic in topics {
        let handled = handled.clone();
        let handler = move |event: Event, _cx: Context| {
            handled.lock().unwrap().insert(event.seq);
            async { Ok(()) }
        };
        bus.on(*topic).named("h").handle(handler).unwrap();
    }
    let running = bus.start().await.unwrap();
    (bus, running)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_asks_one_question_a_second() {
    const WINDOW: Duration = Duration::from_secs(8);
    let (url, _) = fresh_schema("idle");
    let counted = Counted::new(&url);
    let handled = Handled::default();
    let (bus, running) = process(&counted.url, &["a", "b", "shared"], &handled).await;
    let (other, _other_running) = process(&url, &["c", "shared"], &handled).await;
    // One event is far away: what waits is no reason to ask either.
    let far = bus.store().now().await.unwrap() + Duration::from_secs(3_600);
    bus.publish(NewEvent::new("a").not_before(far)).await.unwrap();
    let events = |object: &str| ["a", "b", "c", "shared"].map(|topic| NewEvent::new(topic).object(object)).into();
    bus.publish_all(events("o")).await.unwrap();
    until("all are handled", async || handled.lock().unwrap().len() == 4).await;
    until("both share what both serve", async || {
        let group = bus.store().group(&crate::support::name("shared.h")).await.unwrap().unwrap();
        let owners: Option<HashSet<_>> = group.slots.iter().map(|slot| Some(slot.owner.as_ref()?.member.id)).collect();
        owners.is_some_and(|owners| owners.len() == 2)
    })
    .await;

    // What the work before still causes comes to its end: then there is a window in which it asks no more than that.
    let per_second = || async {
        let (before, since) = (counted.count(), Instant::now());
        tokio::time::sleep(WINDOW).await;
        (counted.count() - before) as f64 / since.elapsed().as_secs_f64()
    };
    let mut measured = Vec::new();
    until("it asks more than once a second", async || {
        measured.push(per_second().await);
        // Both ends of the window may fall together with a question.
        let most = 1.0 + 1.0 / WINDOW.as_secs_f64();
        measured.last().is_some_and(|rate| *rate <= most && *rate > 0.0)
    })
    .await;

    // Nobody rings here for what another process publishes or delays: it is heard of all the same.
    other.publish_all(events("p")).await.unwrap();
    until("what others publish is heard of", async || handled.lock().unwrap().len() == 8).await;
    let soon = other.store().now().await.unwrap() + Duration::from_millis(100);
    other.publish(NewEvent::new("a").not_before(soon)).await.unwrap();
    until("what others delay is heard of", async || handled.lock().unwrap().len() == 9).await;
    running.shutdown(LONG).await.unwrap();
}

/// So seldom does a process ask, and yet one that is gone without a word is missed soon: its lease, and one question more.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_gone_is_missed_within_five_seconds() {
    const SLACK: Duration = Duration::from_secs(3);
    let mut took = Vec::new();
    // A machine with much else to do has not at all times.
    while took.len() < 10 {
        took.push(until_missed().await);
        if took.last().is_some_and(|took| *took < Duration::from_secs(5) + SLACK) {
            return;
        }
    }
    panic!("it took {took:?}");
}

/// How long it takes until somebody has taken over from a process that is gone.
async fn until_missed() -> Duration {
    let (url, _) = fresh_schema("gone");
    let handled = Handled::default();
    let (bus, running) = process(&url, &["shared"], &handled).await;
    let (gone, gone_running) = process(&url, &["shared"], &handled).await;
    let owners = async || {
        let group = bus.store().group(&crate::support::name("shared.h")).await.unwrap().unwrap();
        let owners: Option<HashSet<_>> = group.slots.iter().map(|slot| Some(slot.owner.as_ref()?.member.id)).collect();
        owners.map_or(0, |owners| owners.len())
    };
    until("both share what both serve", async || owners().await == 2).await;
    drop(gone_running); // as by kill -9
    gone.close().await;
    let since = Instant::now();
    until("the other takes over", async || owners().await == 1).await;
    let took = since.elapsed();
    running.shutdown(LONG).await.unwrap();
    took
}
