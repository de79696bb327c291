//! What does the server say when its disk has failed?
//!
//! A limit on the size of files makes a write of the embedded engine fail for real, and not for want of room: after that
//! nobody knows what is on the disk, and the store stops.

use crate::cli_support::{PATIENCE, Server, ensue};
use ensue_conformance::mount::mount_small;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Ignores the signal that would end the process, limits its files to 1 MiB, and becomes the server.
const WITH_SMALL_FILES: &str = r#"trap "" XFSZ; ulimit -f 1024; exec "$0" "$@""#;

struct Client {
    client: reqwest::Client,
    url: String,
}

impl Client {
    fn of(server: &Server) -> Self {
        Self { client: crate::support::client(), url: server.url.clone() }
    }

    async fn publish(&self) -> (u16, Value) {
        let event = json!({ "topic": "disk.test", "object": "o", "payload": "x".repeat(20_000) });
        let answer = self.client.post(format!("{}/v1/events", self.url)).json(&event).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn publish_large(&self) {
        let event = json!({ "topic": "disk.test", "payload": "x".repeat(500_000) });
        let answer = self.client.post(format!("{}/v1/events", self.url)).json(&event).send().await.unwrap();
        assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
    }

    async fn text(&self, path: &str) -> String {
        self.client.get(format!("{}{path}", self.url)).send().await.unwrap().text().await.unwrap()
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let answer = self.client.get(format!("{}{path}", self.url)).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
}

/// Ignores the signal that a limit on the size of files sends, and becomes the server.
const WITHOUT_SIGNAL: &str = r#"trap "" XFSZ; exec "$0" "$@""#;

/// Limits the size of the files that a running server writes, or ends that.
fn limit_files(server: &Server, bytes: Option<u64>) {
    let process = Pid::from_raw(server.pid().cast_signed());
    prlimit(process, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

async fn until_ready_is(client: &Client, status: u16) -> Value {
    let begun = Instant::now();
    loop {
        let (found, answer) = client.get("/ready").await;
        if found == status {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "/ready is {found}: {answer}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// H46: writes to the database file fail, those to the write-ahead log do not. The limit lies between
/// the sizes of the two files.
#[tokio::test(flavor = "multi_thread")]
async fn server_whose_checkpoints_fail_is_not_ready_until_they_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", "sqlite:disk.db"];
    let mut command = ensue(folder.path(), &[]);
    let mut server = Command::new("bash");
    server.args(["-c", WITHOUT_SIGNAL, env!("CARGO_BIN_EXE_ensue")]).args(serve).current_dir(folder.path());
    let server = tokio::task::block_in_place(|| Server::start_with(&mut server, folder.path()));
    let client = Client::of(&server);
    let size = |name: &str| Path::metadata(&folder.path().join(name)).map_or(0, |file| file.len());
    let mut published = 0;
    while size("disk.db") < 40 << 20 {
        client.publish_large().await;
        published += 1;
    }
    limit_files(&server, Some(38 << 20));
    let mut is_ready = true;
    while is_ready {
        client.publish_large().await;
        published += 1;
        is_ready = client.get("/ready").await.0 == 200;
        assert!(size("disk.db-wal") < 36 << 20, "no checkpoint was tried");
    }
    let not_ready = until_ready_is(&client, 503).await;
    let detail = not_ready["detail"].as_str().unwrap();
    assert!(detail.contains("check the disk") && detail.contains("do not delete it"), "{detail}");
    client.publish_large().await;
    published += 1;
    let metrics = client.text("/metrics").await;
    let failures = metrics.lines().find_map(|line| line.strip_prefix("ensue_checkpoint_failures_total "));
    assert!(failures.is_some_and(|count| count != "0"), "{failures:?}");
    limit_files(&server, None);
    until_ready_is(&client, 200).await;
    server.kill9();
    let events = command.args(["verify", "--store", "sqlite:disk.db", "--json"]).output().unwrap();
    assert!(events.status.success(), "{events:?}");
    let verified: Value = serde_json::from_slice(&events.stdout).unwrap();
    assert_eq!(verified["events"], json!(published), "{verified}");
}

/// H32: a store that has stopped is not ready, says why, is still read, and comes back whole with a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_store_has_stopped_is_not_ready_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", "sqlite:disk.db"];
    let mut limited = Command::new("bash");
    limited.args(["-c", WITH_SMALL_FILES, env!("CARGO_BIN_EXE_ensue")]).args(serve).current_dir(folder.path());
    let server = tokio::task::block_in_place(|| Server::start_with(&mut limited, folder.path()));
    let client = Client::of(&server);
    assert_eq!(client.get("/ready").await.0, 200);
    let mut acknowledged = 0;
    let problem = loop {
        match client.publish().await {
            (201, _) => acknowledged += 1,
            (503, problem) => break problem,
            (status, body) => panic!("{status}: {body}"),
        }
    };
    assert!(acknowledged > 10, "{acknowledged} events");
    // The commit that met the failure may be on the disk; those after it are not.
    assert_eq!(problem["type"], "urn:ensue:problem:in-doubt", "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("check the disk"), "{problem}");
    let (status, problem) = client.publish().await;
    assert_eq!((status, &problem["type"]), (503, &json!("urn:ensue:problem:unavailable")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("check the disk"), "{problem}");
    let (status, not_ready) = client.get("/ready").await;
    let (told, problem) = (not_ready["detail"].as_str().unwrap(), problem["detail"].as_str().unwrap());
    assert!(status == 503 && told.ends_with(problem), "{told}");
    assert_eq!(client.get("/health").await.0, 200);
    let doctor = tokio::task::block_in_place(|| server.run(folder.path(), &["doctor"]));
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.stdout.contains("the store has stopped because the disk failed: check the disk"), "{doctor:?}");
    let (status, events) = client.get("/v1/events?limit=1000").await;
    assert_eq!((status, events["events"].as_array().unwrap().len()), (200, acknowledged));
    assert!(server.terminate().success());

    let mut whole = crate::cli_support::ensue(folder.path(), &serve);
    let server = tokio::task::block_in_place(|| Server::start_with(&mut whole, folder.path()));
    let client = Client::of(&server);
    assert_eq!(client.get("/ready").await.0, 200);
    let (status, answer) = client.publish().await;
    let place = &answer["events"][0];
    assert_eq!((status, &place["seq"], &place["prev"]), (201, &json!(acknowledged + 1), &json!(acknowledged)));
    assert!(server.terminate().success());
}

/// A small mounted file system, unmounted when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        mount_small(folder.path(), 24).then(|| Self(folder))
    }

    fn fill(&self) {
        let mut ballast = File::options().create(true).append(true).open(self.0.path().join("ballast")).unwrap();
        while ballast.write_all(&[1; 4_096]).is_ok() {}
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.path().join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

/// H32: after a crash, and after an orderly end. The handler is new each time, so its start needs room.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_starts_on_a_full_disk_serves_reads_and_begins_when_there_is_room() {
    let Some(disk) = SmallDisk::mount() else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", disk.0.path().join("disk.db").display());
    let serve = |round: usize| {
        let config = format!(
            "store: {store}\nlisten: 127.0.0.1:0\nhandlers:\n  disk.test:\n  - {{ name: h{round}, command: [touch, \
             done{round}] }}\n"
        );
        std::fs::write(folder.path().join("ensue.yaml"), config).unwrap();
        Server::start_with(&mut ensue(folder.path(), &["serve"]), folder.path())
    };
    let mut server = tokio::task::block_in_place(|| serve(0));
    let mut acknowledged = 0;
    for round in 1..=2 {
        let client = Client::of(&server);
        for _ in 0..20 {
            assert_eq!(client.publish().await.0, 201);
            acknowledged += 1;
        }
        disk.fill();
        let refused = loop {
            match client.publish().await {
                (201, _) => acknowledged += 1,
                refused => break refused,
            }
        };
        assert_eq!(refused.0, 507, "{}", refused.1);
        until_ready_is(&client, 503).await;
        if round == 1 {
            server.kill9();
        } else {
            server.terminate();
        }
        disk.fill();
        server = tokio::task::block_in_place(|| serve(round));
        let client = Client::of(&server);
        let (status, page) = client.get("/v1/events?limit=1000").await;
        assert_eq!((status, page["events"].as_array().unwrap().len()), (200, acknowledged));
        let (status, problem) = client.publish().await;
        assert_eq!(status, 507, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("free some space"), "{problem}");
        until_ready_is(&client, 503).await;
        disk.empty();
        until_ready_is(&client, 200).await;
        let begun = Instant::now();
        while !folder.path().join(format!("done{round}")).exists() {
            assert!(begun.elapsed() < PATIENCE, "the handler does not run");
            assert_eq!(client.publish().await.0, 201);
            acknowledged += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    assert!(server.terminate().success());
}
