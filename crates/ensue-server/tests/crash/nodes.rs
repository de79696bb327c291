//! Three nodes share one Postgres, and one of them is killed again and again: nothing is lost, every object stays in order, and the others
//! take over soon.
//!
//! Each node runs the same handler, a program that writes down which node handled what, in one file for all: so its lines are in the order in
//! which things happened. One of the nodes reaches its database through PgBouncer in transaction mode (H30).

use crate::cli_support::{PATIENCE, Server, ensue};
use crate::support::client;
use ensue::ObjectKey;
use ensue::positions::slot_of;
use ensue_conformance::bouncer::PrivateBouncer;
use ensue_conformance::postgres::PrivatePostgres;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NODES: usize = 3;
/// How many slots a handler has on Postgres.
const SLOTS: u16 = 16;
/// How many objects there are, and how often each has an event.
const OBJECTS: usize = 45;
const EVENT_EVERY: Duration = Duration::from_millis(750);
/// How soon others have what a killed node had, nine times in ten: a single one may wait for a machine that is busy with other things.
const TAKEOVER_MAX: Duration = Duration::from_secs(5);

/// How many times a node is killed (`ENSUE_NODE_KILLS`, or 3), and how long after the one before (`ENSUE_NODE_KILL_EVERY_MS`, or at once).
fn setting(name: &str, unless_told: u64) -> u64 {
    std::env::var(name).map_or(unless_told, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// What was handled, as the programs write it.
#[derive(Debug, Clone)]
struct Line {
    at: Instant,
    node: usize,
    seq: u64,
    object: String,
}

/// The file of all nodes, read as it grows.
struct Handled {
    file: PathBuf,
    read: usize,
    lines: Vec<Line>,
}

impl Handled {
    fn look(&mut self) {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for line in text[self.read..whole].lines() {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("node, seq and object");
            let node = word().trim_start_matches("node").parse().expect("the number of a node");
            let seq = word().parse().expect("a place in the log");
            self.lines.push(Line { at: Instant::now(), node, seq, object: word().to_string() });
        }
        self.read = whole;
    }

    /// Looks until this is so.
    async fn until(&mut self, what: &str, mut condition: impl FnMut(&[Line]) -> bool) {
        let begun = Instant::now();
        loop {
            self.look();
            if condition(&self.lines) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "never came true: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The objects that this node was the last to handle something of.
    fn had_by(&self, node: usize) -> BTreeSet<String> {
        let last: BTreeMap<&str, usize> = self.lines.iter().map(|line| (line.object.as_str(), line.node)).collect();
        last.into_iter().filter(|(_, by)| *by == node).map(|(object, _)| object.to_string()).collect()
    }
}

/// Where the nodes are that live.
type Urls = Arc<Mutex<Vec<Option<String>>>>;

/// What was acknowledged: places by object.
type Published = Arc<Mutex<BTreeMap<String, Vec<u64>>>>;

/// Publishes about one object, one event after another, on whichever node lives; each until it is answered.
async fn publish(object: String, urls: Urls, published: Published, stop: Arc<AtomicBool>) {
    let client = client();
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let event = json!({ "topic": "work", "object": object, "key": format!("{object}-{number}") });
        let begun = Instant::now();
        let seq = loop {
            let live: Vec<String> = urls.lock().unwrap().iter().flatten().cloned().collect();
            let url = live[rand::random::<u32>() as usize % live.len()].clone();
            let answer = client.post(format!("{url}/v1/events")).json(&[&event]).send().await;
            let answer = match answer {
                Ok(answer) if answer.status().is_success() => answer.json::<Value>().await.ok(),
                Ok(answer) if answer.status().is_server_error() => None,
                Ok(answer) => panic!("a good event was refused: {}", answer.status()),
                Err(_) => None,
            };
            if let Some(seq) = answer.and_then(|answer| answer["events"][0]["seq"].as_u64()) {
                break seq;
            }
            assert!(begun.elapsed() < PATIENCE, "no node answers");
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        published.lock().unwrap().entry(object.clone()).or_default().push(seq);
        tokio::time::sleep(EVENT_EVERY.mul_f64(0.5 + rand::random::<f64>())).await;
    }
}

/// Starts a node in its folder.
fn start(folder: &Path, node: usize) -> Server {
    let folder = folder.join(format!("node{node}"));
    Server::start_with(&mut ensue(&folder, &["serve"]), &folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_out_of_order_when_one_of_three_nodes_is_killed_again_and_again() {
    // Whichever slots a node has, there is something to do for it.
    let slot = |number| slot_of(Some(&ObjectKey::stored(&format!("o{number}"))), 1, SLOTS);
    let slots: BTreeSet<_> = (0..OBJECTS).map(slot).collect();
    assert_eq!(slots.len(), usize::from(SLOTS), "there are slots without objects");
    let postgres = tokio::task::block_in_place(PrivatePostgres::start).unwrap();
    let bouncer = tokio::task::block_in_place(|| PrivateBouncer::start(&postgres.url(), 10)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let script = "echo \"${PWD##*/} $ENSUE_EVENT_SEQ $ENSUE_OBJECT\" >> ../handled\n";
    std::fs::write(folder.path().join("script.sh"), script).unwrap();
    let mut nodes = Vec::new();
    for node in 0..NODES {
        let own = folder.path().join(format!("node{node}"));
        std::fs::create_dir(&own).unwrap();
        let database = if node == 0 { bouncer.url() } else { postgres.url() };
        let config = format!(
            "store: '{database}?schema=nodes'\nlisten: 127.0.0.1:0\nhandlers:\n  work:\n  \
             - {{ name: h, command: [sh, ../script.sh], start: beginning }}\n"
        );
        std::fs::write(own.join("ensue.yaml"), config).unwrap();
        nodes.push(Some(tokio::task::block_in_place(|| start(folder.path(), node))));
    }
    let urls: Urls = Arc::new(Mutex::new(nodes.iter().flatten().map(|node| Some(node.url.clone())).collect()));
    let (published, stop): (Published, _) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    let publishers: Vec<_> = (0..OBJECTS)
        .map(|number| tokio::spawn(publish(format!("o{number}"), urls.clone(), published.clone(), stop.clone())))
        .collect();
    let mut handled = Handled { file: folder.path().join("handled"), read: 0, lines: Vec::new() };

    let every = Duration::from_millis(setting("ENSUE_NODE_KILL_EVERY_MS", 0));
    let (mut takeovers, mut last_kill) = (Vec::new(), Instant::now());
    for kill in 0..setting("ENSUE_NODE_KILLS", 3) as usize {
        let node = kill % NODES;
        handled
            .until("the node has handled something since the last kill", |lines| {
                last_kill.elapsed() >= every && lines.iter().rev().any(|line| line.node == node && line.at > last_kill)
            })
            .await;
        urls.lock().unwrap()[node] = None;
        last_kill = Instant::now();
        tokio::task::block_in_place(|| nodes[node].take().expect("it lives").kill9());
        // What it wrote before it died is not what others have taken over.
        handled.look();
        let (had, after) = (handled.had_by(node), handled.lines.len());
        let again = tokio::task::block_in_place(|| start(folder.path(), node));
        urls.lock().unwrap()[node] = Some(again.url.clone());
        nodes[node] = Some(again);
        handled
            .until("somebody has taken over", |lines| {
                had.iter().all(|object| lines[after..].iter().any(|line| line.object == *object))
            })
            .await;
        let first_of = |object: &String| {
            let line = handled.lines[after..].iter().find(|line| line.object == *object).expect("it is there");
            line.at.saturating_duration_since(last_kill)
        };
        let mut times: Vec<Duration> = had.iter().map(first_of).collect();
        times.sort();
        if let (Some(first), Some(last)) = (times.first(), times.last()) {
            println!("node {node} killed with {} objects: handled again after {first:?} to {last:?}", had.len());
            takeovers.push((*first, *last));
        }
    }

    stop.store(true, Ordering::SeqCst);
    for publisher in publishers {
        publisher.await.unwrap();
    }
    let published = std::mem::take(&mut *published.lock().unwrap());
    let wanted: BTreeSet<u64> = published.values().flatten().copied().collect();
    handled
        .until("everything is handled", |lines| {
            let done: BTreeSet<u64> = lines.iter().map(|line| line.seq).collect();
            wanted.is_subset(&done)
        })
        .await;
    let mut repeated = 0;
    for (object, seqs) in &published {
        let mine: Vec<u64> = handled.lines.iter().filter(|line| line.object == *object).map(|line| line.seq).collect();
        // What was done in the last moments is done again after a kill, from there on in order: it may go back, and never skips one.
        let place = |seq: &u64| seqs.iter().position(|published| published == seq).expect("it was published");
        let places: Vec<usize> = mine.iter().map(place).collect();
        assert_eq!(places.first(), Some(&0), "{object} does not begin with its first event");
        let skipped = places.windows(2).find(|pair| pair[1] > pair[0] + 1);
        assert_eq!(skipped, None, "{object} out of order: {mine:?}");
        let done: BTreeSet<u64> = mine.iter().copied().collect();
        assert_eq!(done, seqs.iter().copied().collect(), "{object}: handled, and published");
        repeated += mine.len() - done.len();
    }
    for node in nodes.into_iter().flatten() {
        assert!(tokio::task::block_in_place(|| node.terminate()).success());
    }
    let (mut firsts, mut lasts): (Vec<_>, Vec<_>) = takeovers.into_iter().unzip();
    assert!(!firsts.is_empty(), "no node had anything when it was killed");
    firsts.sort();
    lasts.sort();
    println!(
        "{} events of {OBJECTS} objects, {repeated} handled again; {} kills: first object taken over after {:?} in the median, \
         {:?} at worst; the last one after {:?}, {:?}",
        wanted.len(),
        firsts.len(),
        firsts[firsts.len() / 2],
        firsts[firsts.len() - 1],
        lasts[lasts.len() / 2],
        lasts[lasts.len() - 1]
    );
    let most = firsts[(firsts.len() * 9).div_ceil(10) - 1];
    assert!(most <= TAKEOVER_MAX || firsts.len() < 10, "nine in ten takeovers took up to {most:?}");
}
