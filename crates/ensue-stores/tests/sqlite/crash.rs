//! Are the chains right when the process is killed while the index of objects is being moved?
//!
//! The index follows the log a window at a time, in many small transactions. With a window of 64 events it is on its
//! way nearly always, so that kills hit it in the middle. The process that is killed is this test's own program,
//! started again to write and nothing else.
use ensue_core::chain::Audit;
use ensue_core::store::Read;
use ensue_core::{Entry, Event, Filter, NewEvent, ObjectKey, Seq, Store};
use ensue_stores::sqlite::{SqliteOptions, SqliteStore, rusqlite};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Names the store to the process that is to be killed.
const STORE: &str = "ENSUE_TEST_CRASH_STORE";
const OBJECTS: usize = 30;
const CALLERS: usize = 6;
const KILLS: usize = 25;
/// How many answers the writing process gives before it is killed, and up to twice as many.
const ANSWERS_PER_LIFE: usize = 60;

async fn open(path: &Path) -> SqliteStore {
    let options = SqliteOptions { index_window_events: Some(64), ..SqliteOptions::default() };
    SqliteStore::open(path.to_str().unwrap(), options).await.unwrap()
}

fn object(n: usize) -> ObjectKey {
    ObjectKey::parse(&format!("o{n}")).unwrap()
}

fn entry() -> Entry {
    let event = NewEvent::new("t");
    let n = rand::random::<u32>() as usize % (OBJECTS + 5);
    if n < OBJECTS { event.object(object(n).as_str()).check().unwrap() } else { event.check().unwrap() }
}

/// The process that is killed: publishes, forgets old events now and then, and prints what was acknowledged.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is started by the test below, and killed"]
async fn write_until_killed() {
    let Some(path) = std::env::var_os(STORE) else { return };
    let store = Arc::new(open(Path::new(&path)).await);
    let mut callers: JoinSet<()> = JoinSet::new();
    for caller in 0..CALLERS {
        let store = store.clone();
        callers.spawn(async move {
            loop {
                let batch: Vec<Entry> = (0..=rand::random::<u32>() % 4).map(|_| entry()).collect();
                let answers = store.append(batch).await.unwrap();
                let last = answers[answers.len() - 1].seq.unwrap();
                // One system call a line: a kill cuts between lines.
                std::io::stdout().write_all(format!("stored {last}\n").as_bytes()).unwrap();
                if caller == 0 {
                    store.trim(last.saturating_sub(300), 50).await.unwrap();
                }
            }
        });
    }
    callers.join_all().await;
}

/// Starts the writing process, and kills it after so many answers. Answers with the newest place it told of.
fn write_and_kill(path: &Path, answers: usize) -> Seq {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::write_until_killed", "--ignored", "--nocapture"])
        .env(STORE, path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut told = Vec::new();
    for line in lines {
        // After the kill, what it had written before is still read.
        let line = line.unwrap();
        told.extend(line.split_once("stored ").and_then(|(_, seq)| seq.parse::<Seq>().ok()));
        if told.len() == answers {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(told.len() >= answers, "the writing process ended by itself");
    told.into_iter().max().unwrap()
}

/// What is in the index, and how far it is said to be complete, as the killed process left them.
fn index(path: &Path) -> (BTreeMap<String, Vec<Seq>>, Seq) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let complete_to = connection.query_row("SELECT indexed_to FROM ensue_log_state", [], |row| row.get(0));
    let mut statement = connection.prepare("SELECT object, seq FROM ensue_objects ORDER BY object, seq").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)? as Seq))).unwrap();
    let mut index: BTreeMap<String, Vec<Seq>> = BTreeMap::new();
    rows.map(Result::unwrap).for_each(|(object, seq)| index.entry(object).or_default().push(seq));
    (index, complete_to.map(|seq: i64| seq as Seq).unwrap())
}

async fn everything(store: &SqliteStore) -> Vec<Event> {
    let page = store.read(Read { after: 0, limit: 10_000, filter: Filter::default() }).await.unwrap();
    assert_eq!(page.next, store.bounds().await.unwrap().last);
    page.events
}

#[tokio::test]
async fn chains_are_right_after_kills_in_the_middle_of_the_move_of_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db");
    let (mut in_the_middle, mut forgotten) = (0, 0);
    for _ in 0..KILLS {
        let answers = ANSWERS_PER_LIFE + rand::random::<u32>() as usize % ANSWERS_PER_LIFE;
        let told = write_and_kill(&path, answers);
        let (index, complete_to) = index(&path);
        let store = open(&path).await;
        let bounds = store.bounds().await.unwrap();
        assert!(bounds.last >= told, "{told} was acknowledged, the log ends at {}", bounds.last);
        let events = everything(&store).await;
        let (mut audit, mut faults) = (Audit::from(bounds.first), Vec::new());
        events.iter().for_each(|event| audit.see(event, &mut faults));
        audit.end(bounds.last, &mut faults);
        assert_eq!(faults, []);
        forgotten = bounds.first - 1;

        for object in (0..OBJECTS).map(object) {
            let of_object = events.iter().filter(|event| event.object.as_ref() == Some(&object));
            let seqs: Vec<Seq> = of_object.map(|event| event.seq).collect();
            let chain: Vec<Seq> =
                store.chain(&object, None, 10_000).await.unwrap().iter().rev().map(|event| event.seq).collect();
            assert_eq!(chain, seqs, "the chain of {object}");
            let indexed = index.get(object.as_str()).map_or(&[][..], Vec::as_slice);
            let beyond = indexed.iter().filter(|seq| **seq > complete_to).count();
            let complete = &indexed[..indexed.len() - beyond];
            let expected: Vec<Seq> = seqs.iter().copied().filter(|seq| *seq <= complete_to).collect();
            assert_eq!(complete, expected, "the index of {object}, complete to {complete_to}");
            in_the_middle += usize::from(beyond > 0);
        }
        store.close().await;
    }
    println!(
        "{KILLS} kills; {in_the_middle} chains were found half indexed; {forgotten} events were forgotten meanwhile"
    );
    assert!(in_the_middle > 0, "no kill hit the index while it was moved");
    assert!(forgotten > 0, "no event was forgotten");
}
