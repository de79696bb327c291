//! Figures at /metrics. They are the process's, so everything here is one test.

#[path = "http/support/mod.rs"]
mod http_support;
use http_support::Server;

async fn figure(server: &Server, name: &str) -> f64 {
    let text = server.get("/metrics").await.text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("there is no {name}: {text}")).parse().unwrap()
}

#[tokio::test]
async fn streams_connections_and_the_log_are_told_as_they_are() {
    let server = Server::start().await;
    let first = server.stream("", &[]).await;
    let second = server.stream("", &[]).await;
    assert_eq!(server.open_streams().await, 2);
    drop(first);
    server.until_streams_are(1).await;
    drop(second);
    server.until_streams_are(0).await;

    for _ in 0..5 {
        server.publish("a", None).await;
    }
    server.bus.store().trim(3, 100).await.unwrap();
    let later =
        r#"[{"topic":"b","not_before":"2999-01-01T00:00:00Z"},{"topic":"c","not_before":"2999-01-01T00:00:00Z"}]"#;
    let delayed = server.post(later).await.json();
    assert_eq!(figure(&server, "ensue_log_first_seq").await, 3.0);
    assert_eq!(figure(&server, "ensue_log_last_seq").await, 5.0);
    assert_eq!(figure(&server, "ensue_pending_events").await, 2.0);
    server.delete(&format!("/v1/events/{}", delayed["events"][0]["id"].as_str().unwrap())).await;
    assert_eq!(figure(&server, "ensue_pending_events").await, 1.0);
    // The one that asks.
    assert_eq!(figure(&server, "ensue_connections").await, 1.0);
}
