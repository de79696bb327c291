//! What holds when many call at once?

use super::{Subject, checked, read_all, seqs};
use crate::factory::Factory;
use crate::history::{Answer, Call, Outcome, Seen, check, check_stream};
use ensue_core::store::{Cancelled, Read, SharedStore};
use ensue_core::{Appended, Event, Filter, NewEvent, Seq, StoreError};
use jiff::SignedDuration;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::task::JoinSet;

const CLIENTS: usize = 64;
const CALLS_EACH: usize = 8;
const OBJECTS: usize = 8;

/// An event as the history checker sees it: its token is its payload.
fn seen(event: &Event) -> Seen {
    let token = event.payload.as_str().trim_matches('"').to_string();
    Seen { id: event.id, seq: event.seq, prev: event.prev, object: event.object.clone(), token }
}

fn answers(answers: &[Appended]) -> Vec<Answer> {
    let answer = |a: &Appended| Answer { id: a.id, seq: a.seq.expect("none is delayed"), prev: a.prev };
    answers.iter().map(answer).collect()
}

/// One client: batches of one to three events on changing objects, and a note of each call.
async fn client(store: SharedStore, number: usize, since: Instant) -> Vec<Call> {
    let mut calls = Vec::new();
    for call in 0..CALLS_EACH {
        let tokens: Vec<String> = (0..1 + (number + call) % 3).map(|n| format!("{number}-{call}-{n}")).collect();
        let event = |(n, token): (usize, &String)| {
            let event = NewEvent::new("t").payload(token);
            // One in nine has no object.
            if (number + call + n) % 9 == 8 {
                event
            } else {
                event.object(format!("o{}", (number * 5 + call + n) % OBJECTS))
            }
        };
        let batch = checked(tokens.iter().enumerate().map(event).collect());
        let began = since.elapsed();
        let outcome = match store.append(batch).await {
            Ok(told) => Outcome::Acknowledged(answers(&told)),
            Err(error) => outcome_of(&error),
        };
        calls.push(Call { began, ended: since.elapsed(), tokens, outcome });
    }
    calls
}

/// What an error says of the events that were sent.
fn outcome_of(error: &StoreError) -> Outcome {
    match error {
        StoreError::InDoubt(_) | StoreError::Stopped(_) => Outcome::Unknown,
        StoreError::KeyConflict { .. }
        | StoreError::Conflict(_)
        | StoreError::Invalid(_)
        | StoreError::Full(_)
        | StoreError::Overloaded(_)
        | StoreError::Unavailable(_)
        | StoreError::Closed
        | StoreError::Locked(_)
        | StoreError::Unsupported(_)
        | StoreError::Schema(_)
        | StoreError::Engine(_) => Outcome::Refused,
    }
}

/// Follows the log until `done` and the end is reached.
async fn reader(store: SharedStore, limit: usize, done: Arc<AtomicBool>) -> Vec<Seen> {
    let mut stream = Vec::new();
    let mut after = 0;
    loop {
        // Asked before the read, so that a page which comes up empty after it is the end.
        let writers_done = done.load(Ordering::SeqCst);
        let page = store.read(Read { after, limit, filter: Filter::default() }).await.expect("a page");
        stream.extend(page.events.iter().map(seen));
        if writers_done && page.next == after {
            return stream;
        }
        after = page.next;
        tokio::task::yield_now().await;
    }
}

/// 64 appenders on 8 objects, readers that follow beside them: nothing lost, doubled, reordered, forked or torn, and
/// what was acknowledged before another was sent stands before it. No reader sees anything else than the log. (H1)
pub async fn many_appenders_leave_a_clean_history(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let since = Instant::now();
    let done = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for limit in [3, 100, 1_000] {
        readers.spawn(reader(subject.store.clone(), limit, done.clone()));
    }
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(client(subject.store.clone(), number, since));
    }
    let calls: Vec<Call> = clients.join_all().await.into_iter().flatten().collect();
    done.store(true, Ordering::SeqCst);
    let streams = readers.join_all().await;
    assert!(calls.iter().all(|call| matches!(call.outcome, Outcome::Acknowledged(_))), "every call is taken");

    subject.reopen().await;
    let log: Vec<Seen> = subject.log().await.iter().map(seen).collect();
    let sent: usize = calls.iter().map(|call| call.tokens.len()).sum();
    assert_eq!(log.len(), sent);
    assert_eq!(check(&calls, &log, 1), []);
    for stream in streams {
        assert_eq!(check_stream(&log, &stream, 0), []);
        assert_eq!(stream.len(), log.len());
    }
    subject.audit().await;
}

/// The same event under the same key from 32 callers at once: one is stored, all are told of it.
pub async fn one_key_from_many_callers_is_stored_once(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for round in 0..5 {
        let mut callers = JoinSet::new();
        for _ in 0..32 {
            let store = subject.store.clone();
            let batch = checked(vec![NewEvent::new("t").object("o").key(format!("k{round}"))]);
            callers.spawn(async move { store.append(batch).await.expect("taken")[0] });
        }
        let told = callers.join_all().await;
        assert_eq!(told.iter().filter(|answer| !answer.repeated).count(), 1);
        let ids: HashSet<_> = told.iter().map(|answer| (answer.id, answer.seq, answer.prev)).collect();
        assert_eq!(ids.len(), 1);
    }
    assert_eq!(seqs(&subject.log().await), [1, 2, 3, 4, 5]);
    subject.audit().await;
}

/// Releases, cancellations and appends at once: every delayed event is in the log once or cancelled, and everyone was
/// told which.
pub async fn a_delayed_event_is_released_or_cancelled_never_both(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let due = subject.clock.now() + SignedDuration::from_secs(1);
    let delayed = subject.append(vec![NewEvent::new("delayed").object("o").not_before(due); 200]).await;
    subject.clock.advance_millis(1_000);
    let (mut releases, mut cancels, mut appends) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    for n in 0..40 {
        let store = subject.store.clone();
        releases.spawn(async move { store.release_due(1 + n % 7).await.expect("released").count });
        let store = subject.store.clone();
        let id = delayed[n * 5].id;
        cancels.spawn(async move { (id, store.cancel(id).await.expect("cancel")) });
        let store = subject.store.clone();
        appends.spawn(async move { store.append(checked(vec![NewEvent::new("t").object("o")])).await.expect("taken") });
    }
    let mut released: usize = releases.join_all().await.iter().sum();
    let cancels = cancels.join_all().await;
    appends.join_all().await;
    released += subject.store.release_due(1_000).await.expect("released").count;

    let log = subject.log().await;
    let logged: HashSet<_> = log.iter().filter(|event| event.topic.as_str() == "delayed").map(|e| e.id).collect();
    assert_eq!(logged.len(), released, "each that was released is in the log once");
    assert_eq!(log.len(), released + 40);
    let gone = cancels.iter().filter(|(_, cancelled)| *cancelled == Cancelled::Gone).count();
    assert_eq!(released + gone, 200);
    for (id, cancelled) in cancels {
        match cancelled {
            Cancelled::Gone => assert!(!logged.contains(&id), "{id} was cancelled and is logged"),
            Cancelled::AlreadyLogged(seq) => assert_eq!(log[seq as usize - 1].id, id),
            Cancelled::Unknown => panic!("{id} was accepted and is unknown"),
        }
    }
    subject.audit().await;
}

/// The old end is forgotten while the new end grows and readers are between: every page is without a hole.
pub async fn trimming_beside_appends_and_reads_tears_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 200).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for _ in 0..2 {
        let (store, done) = (subject.store.clone(), done.clone());
        readers.spawn(async move {
            while !done.load(Ordering::SeqCst) {
                let page = store.read(Read { after: 0, limit: 50, filter: Filter::default() }).await.expect("a page");
                let places = seqs(&page.events);
                assert!(places.windows(2).all(|two| two[0] + 1 == two[1]), "a page with a hole: {places:?}");
                tokio::task::yield_now().await;
            }
        });
    }
    let mut writers = JoinSet::new();
    for _ in 0..8 {
        let store = subject.store.clone();
        writers.spawn(async move {
            for _ in 0..10 {
                let batch = vec![NewEvent::new("t").object("o"), NewEvent::new("t")];
                store.append(checked(batch)).await.expect("taken");
            }
        });
    }
    let mut first: Seq = 1;
    for step in 1..=15 {
        let bounds = subject.store.trim(step * 20 + 1, 20).await.expect("trimmed");
        assert!(bounds.first >= first && bounds.first <= step * 20 + 1);
        first = bounds.first;
    }
    writers.join_all().await;
    done.store(true, Ordering::SeqCst);
    readers.join_all().await;
    let bounds = subject.bounds().await;
    assert_eq!(bounds.last, 360);
    let all = read_all(&subject.store, Filter::default(), 0, 100).await;
    assert_eq!(seqs(&all), (bounds.first..=360).collect::<Vec<_>>());
    for event in &all {
        assert!(event.prev.is_none_or(|prev| prev < event.seq));
    }
    subject.audit().await;
}

/// The store is closed while calls are under way: what was acknowledged is there afterwards, nothing is there twice,
/// and what was refused is not there.
pub async fn a_close_beside_appends_loses_nothing_acknowledged(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let since = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..16 {
        clients.spawn(client(subject.store.clone(), number, since));
    }
    let first = clients.join_next().await.expect("sixteen clients").expect("no panic");
    subject.reopen().await;
    let mut calls = first;
    calls.extend(clients.join_all().await.into_iter().flatten());
    let log: Vec<Seen> = subject.log().await.iter().map(seen).collect();
    assert_eq!(check(&calls, &log, 1), []);
    subject.audit().await;
}
