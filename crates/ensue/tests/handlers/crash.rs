//! kill -9 while handlers run: nothing stays unhandled, every object's order holds, and what is repeated is little.
//!
//! The process that is killed is this test's own program, started again to publish and handle. What its handlers do is
//! written to a file, a line at a time: `s` an event was started, `d` it was done, `k` the process was killed before.
#![cfg(feature = "sqlite")]

use crate::support::LONG;
use ensue::positions::{LaneQuery, ParkedMax};
use ensue::{Context, Ensue, Event, Filter, HandlerError, NewEvent, Options, Read, Retention, Retry, Seq, Start};
use jiff::SignedDuration;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const STORE: &str = "ENSUE_TEST_HANDLERS_STORE";
const EFFECTS: &str = "ENSUE_TEST_HANDLERS_EFFECTS";
/// Set if the log is to be forgotten as fast as it can be.
const HASTY: &str = "ENSUE_TEST_HANDLERS_HASTY";
const OBJECTS: u32 = 60;
const CONCURRENCY: usize = 16;
/// One object holds a sixteenth of it: the busy one is read from the log.
const READ_AHEAD: usize = 64;

fn say(effects: &File, line: &str) {
    // One system call a line: a kill cuts between lines.
    let mut effects = effects;
    effects.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// A bus whose handler sometimes fails, and writes down what it does.
async fn bus(store: &str, effects: &Path, hasty: bool) -> Ensue {
    let mut options = Options { read_ahead: READ_AHEAD, ..Options::default() };
    if hasty {
        let age = Some(SignedDuration::from_millis(1));
        let parked_max = ParkedMax { events: 20, bytes: 1 << 20 };
        options.retention = Retention { age, parked_max, ..Retention::default() };
        options.retention_interval = Duration::from_millis(3);
    }
    let bus = Ensue::open_with(store, options).await.unwrap();
    let effects = Arc::new(OpenOptions::new().create(true).append(true).open(effects).unwrap());
    bus.on("work")
        .named("h")
        .start(Start::Beginning)
        .concurrency(CONCURRENCY)
        .retry(Retry::attempts(1_000_000).first(Duration::from_millis(5)).max(Duration::from_millis(20)))
        .handle(move |event: Event, _cx: Context| {
            let effects = effects.clone();
            async move {
                let object = event.object.as_ref().map(|object| object.to_string()).unwrap_or_default();
                say(&effects, &format!("s {object} {}", event.seq));
                if rand::random_range(0..4) == 0 {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                if rand::random_range(0..20) == 0 {
                    return Err(HandlerError::failed("by chance"));
                }
                say(&effects, &format!("d {object} {}", event.seq));
                Ok(())
            }
        })
        .unwrap();
    bus
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is started by the tests below, and killed"]
async fn handle_until_killed() {
    let (Ok(store), Ok(effects)) = (std::env::var(STORE), std::env::var(EFFECTS)) else { return };
    let bus = bus(&store, Path::new(&effects), std::env::var_os(HASTY).is_some()).await;
    let _running = bus.start().await.unwrap();
    loop {
        let event = |object: u32| NewEvent::new("work.done").object(format!("o{object}"));
        let events = (0..10).map(|n| event(if n < 3 { 0 } else { rand::random_range(0..OBJECTS) }));
        let last = bus.publish_all(events.collect()).await.unwrap()[9].seq.unwrap();
        std::io::stdout().write_all(format!("stored {last}\n").as_bytes()).unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A process that publishes and handles.
fn worker(store: &str, effects: &Path, hasty: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    if hasty {
        command.env(HASTY, "1");
    }
    command
        .args(["--exact", "crash::handle_until_killed", "--ignored", "--nocapture", "--test-threads", "1"])
        .env(STORE, store)
        .env(EFFECTS, effects)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Lets a process work until it has stored so much more, and kills it. Answers the newest event that was acknowledged.
fn work_and_kill(store: &str, effects: &Path, batches: usize, hasty: bool) -> Seq {
    let mut child = worker(store, effects, hasty);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let stored =
        lines.map_while(Result::ok).filter_map(|line| line.split("stored ").nth(1)?.trim().parse::<Seq>().ok());
    let last = stored.take(batches).last().expect("it has stored something");
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    let file = OpenOptions::new().append(true).open(effects).unwrap();
    say(&file, "k - 0");
    last
}

/// What the file of effects says, against the log.
fn check(lines: &[(String, String, Seq)], log: &[(String, Seq)]) -> usize {
    let mut predecessor: HashMap<Seq, Seq> = HashMap::new();
    let mut newest: HashMap<&str, Seq> = HashMap::new();
    for (object, seq) in log {
        if let Some(before) = newest.insert(object, *seq) {
            predecessor.insert(*seq, before);
        }
    }
    let (mut done, mut repeats, mut worst) = (HashSet::new(), 0, 0);
    for (what, object, seq) in lines {
        match what.as_str() {
            "s" => {
                if let Some(before) = predecessor.get(seq) {
                    assert!(done.contains(before), "{object}: {seq} was started before {before} was done");
                }
            }
            "d" => repeats += usize::from(!done.insert(*seq)),
            "k" => {
                worst = worst.max(repeats);
                repeats = 0;
            }
            other => panic!("{other}"),
        }
    }
    let missed: Vec<Seq> = log.iter().map(|(_, seq)| *seq).filter(|seq| !done.contains(seq)).collect();
    assert!(
        missed.is_empty(),
        "{} events were never handled, among them {:?}",
        missed.len(),
        &missed[..missed.len().min(9)]
    );
    worst.max(repeats)
}

async fn survives_kills(store: &str, kills: usize, hasty: bool) {
    let folder = tempfile::tempdir().unwrap();
    let effects = folder.path().join("effects");
    File::create(&effects).unwrap();
    let mut acknowledged = 0;
    for kill in 0..kills {
        acknowledged = work_and_kill(store, &effects, 20 + 7 * (kill % 9), hasty);
    }
    let bus = bus(store, &effects, hasty).await;
    let running = bus.start().await.unwrap();
    all_handled(&bus).await;
    running.shutdown(LONG).await.unwrap();
    let (events, worst) = match hasty {
        true => checked_without_the_log(&bus, &effects, acknowledged).await,
        false => checked(&bus, &effects, acknowledged).await,
    };
    bus.close().await;
    println!("{kills} kills, {events} events, at most {worst} repeated after one");
}

/// Waits until everything that is in the log is handled.
async fn all_handled(bus: &Ensue) {
    let drained = async {
        loop {
            bus.drain().await.unwrap();
            let group = bus.store().groups().await.unwrap().remove(0);
            if group.lanes == 0 && group.cursor() == bus.store().bounds().await.unwrap().last {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, drained).await.expect("what is left is handled");
}

/// Compares what was done with the log: how many events there are, and how many were repeated at most after one kill.
async fn checked(bus: &Ensue, effects: &Path, acknowledged: Seq) -> (usize, usize) {
    let (mut log, mut after) = (Vec::new(), 0);
    loop {
        let page = bus.store().read(Read { after, limit: 1_000, filter: Filter::default() }).await.unwrap();
        if page.next == after {
            break;
        }
        after = page.next;
        log.extend(page.events.iter().map(|event| (event.object.clone().unwrap().to_string(), event.seq)));
    }
    assert!(after >= acknowledged, "what was acknowledged is there");
    (log.len(), check(&lines_of(effects), &log))
}

/// The same where the log is forgotten: what was started tells what was in it, and no number is missing.
async fn checked_without_the_log(bus: &Ensue, effects: &Path, acknowledged: Seq) -> (usize, usize) {
    let lines = lines_of(effects);
    let started = lines.iter().filter(|(what, ..)| what == "s");
    let log: BTreeMap<Seq, String> = started.map(|(_, object, seq)| (*seq, object.clone())).collect();
    let last = bus.store().bounds().await.unwrap().last;
    assert!(last >= acknowledged, "what was acknowledged is there");
    assert!(log.keys().copied().eq(1..=last), "{} of {last} events were started", log.len());
    assert_eq!(bus.store().groups().await.unwrap()[0].lost, None);
    let log: Vec<(String, Seq)> = log.into_iter().map(|(seq, object)| (object, seq)).collect();
    (log.len(), check(&lines, &log))
}

/// What, of which object, at which place.
fn lines_of(effects: &Path) -> Vec<(String, String, Seq)> {
    let text = std::fs::read_to_string(effects).unwrap();
    let line = |line: &str| {
        let mut parts = line.split(' ').map(str::to_owned);
        (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap().parse().unwrap())
    };
    text.lines().map(line).collect()
}

/// H16: a process is stopped for longer than its lease, another takes over, and the first goes on: what it still wants to
/// start or write changes nothing.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn who_was_stopped_for_longer_than_its_lease_starts_nothing_more() {
    use ensue_conformance::postgres::{fresh_schema, signal};
    let (url, _) = fresh_schema("stopped");
    let folder = tempfile::tempdir().unwrap();
    let effects = folder.path().join("effects");
    File::create(&effects).unwrap();
    let mut stopped = worker(&url, &effects, false);
    let mut lines = BufReader::new(stopped.stdout.take().unwrap()).lines();
    lines.by_ref().map_while(Result::ok).filter(|line| line.contains("stored ")).nth(30).expect("it works");
    signal("STOP", stopped.id());
    let bus = bus(&url, &effects, false).await;
    let running = bus.start().await.unwrap();
    all_handled(&bus).await;
    signal("CONT", stopped.id());
    // It publishes again, so it is alive; its handlers' slots are somebody else's.
    lines.map_while(Result::ok).filter(|line| line.contains("stored ")).nth(10).expect("it goes on");
    stopped.kill().unwrap();
    stopped.wait().unwrap();
    all_handled(&bus).await;
    running.shutdown(LONG).await.unwrap();
    checked(&bus, &effects, 0).await;
    bus.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_out_of_order_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let kills = std::env::var("ENSUE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(20);
    survives_kills(folder.path().join("log.db").to_str().unwrap(), kills, false).await;
}

/// H9: the same while retention takes the log from under lanes that wait: what they need was copied aside before.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_to_a_hasty_retention_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    survives_kills(folder.path().join("log.db").to_str().unwrap(), 10, true).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_to_a_hasty_retention_on_postgres() {
    let (url, _) = ensue_conformance::postgres::fresh_schema("crash");
    survives_kills(&url, 4, true).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_out_of_order_on_postgres() {
    let (url, _) = ensue_conformance::postgres::fresh_schema("crash");
    survives_kills(&url, 4, false).await;
}

/// H25: an event that ends every process that runs it uses up its attempts, which are counted before they start, and is
/// held; the others are handled.
#[tokio::test(flavor = "multi_thread")]
async fn a_poison_pill_is_held_when_its_attempts_are_used_up() {
    let lives = lives_until_the_pill_is_held("crash::swallow_the_pill").await;
    println!("held after {lives} lives");
}

/// H25: the same in lanes that are full: the cursor passes the pill, which only its row tells of.
#[tokio::test(flavor = "multi_thread")]
async fn poison_pill_in_a_full_lane_is_held_when_its_attempts_are_used_up() {
    let lives = lives_until_the_pill_is_held("crash::swallow_the_pill_of_a_full_lane").await;
    println!("held after {lives} lives");
}

/// How many processes ended before the pill was held.
async fn lives_until_the_pill_is_held(test: &str) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("log.db");
    let store = store.to_str().unwrap();
    let bus = Ensue::open(store).await.unwrap();
    let events = (0..200).map(|n| NewEvent::new("work.done").object(format!("o{}", n % 20)).payload(&(n == 77)));
    bus.publish_all(events.collect()).await.unwrap();
    bus.close().await;
    let run = || {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", test, "--ignored", "--test-threads", "1"]).env(STORE, store);
        child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
    };
    let lives = (1..=20).find(|_| run().success()).expect("it gives up at last");
    let bus = Ensue::open(store).await.unwrap();
    let stuck = bus.store().lanes(LaneQuery::Stuck { group: None }, 10).await.unwrap();
    assert_eq!(stuck.len(), 1);
    assert_eq!((stuck[0].lane.position, stuck[0].lane.attempts), (78, 3));
    assert!(stuck[0].lane.error.as_ref().unwrap().contains("never ended"));
    // The last event is the notice that an object is held.
    assert_eq!(bus.store().groups().await.unwrap()[0].cursor(), 201);
    lives
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is started by the test above, and ends itself"]
async fn swallow_the_pill() {
    swallow(Options::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is started by a test above, and ends itself"]
async fn swallow_the_pill_of_a_full_lane() {
    swallow(Options { read_ahead: 16, ..Options::default() }).await;
}

async fn swallow(options: Options) {
    let Ok(store) = std::env::var(STORE) else { return };
    let is_slow = options.read_ahead < READ_AHEAD;
    let bus = Ensue::open_with(&store, options).await.unwrap();
    bus.on("work")
        .named("h")
        .start(Start::Beginning)
        .retry(Retry::attempts(3))
        .handle(move |event: Event, _cx: Context| async move {
            if is_slow {
                // What is ready at once leaves no lane full.
                tokio::task::yield_now().await;
            }
            if event.payload.as_str() == "true" {
                std::process::abort();
            }
            Ok(())
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    bus.drain().await.unwrap();
    running.shutdown(LONG).await.unwrap();
    bus.close().await;
}
