//! Is nothing that was acknowledged lost when the server is killed, on the embedded engine?

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("crash.db").display());
    crate::support::kill_the_server_again_and_again(folder, store).await;
}
