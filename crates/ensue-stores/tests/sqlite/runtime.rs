//! Is every call answered, whichever runtime the store was opened in and whatever became of it?
use ensue_core::{Appended, NewEvent, Store, StoreError};
use ensue_stores::sqlite::{SqliteOptions, SqliteStore, WriteTicket};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// How long a call may take before the test gives up waiting for it.
const PATIENCE: Duration = Duration::from_secs(180);
const CALLERS: usize = 5;

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(path.to_str().unwrap(), SqliteOptions::default()).await.unwrap())
}

type Calls = Vec<JoinHandle<Result<Vec<Appended>, StoreError>>>;

/// Calls that stand in the queue together behind a ticket, so that one commit takes them all.
async fn calls_in_one_commit(store: &Arc<SqliteStore>) -> (Calls, WriteTicket) {
    let ticket = store.write_ticket().await.unwrap();
    let call = |store: Arc<SqliteStore>| async move { store.append(vec![NewEvent::new("t").check().unwrap()]).await };
    let calls: Calls = (0..CALLERS).map(|_| tokio::spawn(call(store.clone()))).collect();
    // On a runtime of one thread a yield polls every task once: all calls are in the queue.
    tokio::task::yield_now().await;
    (calls, ticket)
}

async fn all_answered(calls: Calls) {
    for call in calls {
        let answered = tokio::time::timeout(PATIENCE, call).await.expect("an answer within the test's patience");
        answered.unwrap().expect("stored, and told so");
    }
}

/// A runtime of one thread does nothing once `block_on` has returned.
#[test]
fn a_store_opened_in_a_runtime_that_stands_still_answers_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let opener = one_thread();
    let store = opener.block_on(open(&folder.path().join("e.db")));
    one_thread().block_on(async {
        let (calls, ticket) = calls_in_one_commit(&store).await;
        drop(ticket);
        all_answered(calls).await;
    });
    drop(opener);
}

/// The runtime ends between the commit and the answers.
#[test]
fn what_is_committed_is_answered_although_the_runtime_that_opened_the_store_ends() {
    let folder = tempfile::tempdir().unwrap();
    let opener = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let path = folder.path().join("e.db");
    let store = opener.block_on(open(&path));
    // Its only thread is busy: answers that are left to it stay where they are.
    let (busy, is_busy) = mpsc::channel();
    let (go_on, until) = mpsc::channel::<()>();
    opener.spawn(async move {
        busy.send(()).unwrap();
        let _gone_on = until.recv();
    });
    is_busy.recv().unwrap();

    one_thread().block_on(async {
        let (calls, ticket) = calls_in_one_commit(&store).await;
        drop(ticket);
        while store.bounds().await.unwrap().last < CALLERS as u64 {
            tokio::task::yield_now().await;
        }
        opener.shutdown_background();
        drop(go_on);
        all_answered(calls).await;
        // And it goes on without it.
        let (calls, ticket) = calls_in_one_commit(&store).await;
        drop(ticket);
        all_answered(calls).await;
    });
}
