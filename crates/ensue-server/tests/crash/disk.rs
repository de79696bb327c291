//! What does the server say when its disk has failed?
//!
//! A limit on the size of files makes a write of the embedded engine fail for real, and not for want of room: after that
//! nobody knows what is on the disk, and the store stops.

use crate::cli_support::Server;
use serde_json::{Value, json};
use std::process::Command;

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

    async fn get(&self, path: &str) -> (u16, Value) {
        let answer = self.client.get(format!("{}{path}", self.url)).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
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
