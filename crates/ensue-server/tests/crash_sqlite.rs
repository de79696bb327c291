//! Is nothing that was acknowledged lost when the server is killed, on the embedded engine?

mod cli_support;
mod crash_support;

use crash_support::{CALLS_PER_LIFE, Load, assert_restarts_quick, judge, kills, reader, start_ready, steady_port};

/// kill -9 under concurrent load, again and again, at a random moment after each restart.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crash.db");
    let store = format!("sqlite:{}", path.display());
    let port = steady_port();
    let (mut server, _) = start_ready(folder.path(), port, &store).await;
    let reader = reader(folder.path(), port);
    let load = Load::start(port);
    let (mut restarts, mut killed_at) = (Vec::new(), Vec::new());
    for _ in 0..kills() {
        load.answered_more(CALLS_PER_LIFE + rand::random::<u64>() % CALLS_PER_LIFE).await;
        killed_at.push(load.now());
        server.kill9();
        let (next, took) = start_ready(folder.path(), port, &store).await;
        server = next;
        restarts.push(took);
    }
    load.answered_more(CALLS_PER_LIFE).await;
    let calls = load.end().await;
    judge(&store, &calls, &killed_at, reader).await;
    assert!(server.terminate().success());
    assert_restarts_quick(restarts);
}
