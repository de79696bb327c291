//! Clients that generators make from /openapi.json, and the CloudEvents SDK, against a real server.

use crate::support::Server;
use std::path::PathBuf;
use std::process::Stdio;

/// Needs python3, node and java. The first run installs the generators into the target directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_clients_publish_read_claim_and_complete() {
    let server = Server::start().await;
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let work = tempfile::tempdir().unwrap();
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("generated-clients");
    let script = tokio::process::Command::new(root.join("scripts/clients/run.sh"))
        .args([format!("http://{}", server.address).as_ref(), work.path().as_os_str(), cache.as_os_str()])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = script.await.expect("scripts/clients/run.sh cannot be started");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", said(&output.stdout), said(&output.stderr));
}
