//! Figures at /metrics. They are the process's, so everything here is one test.

#[path = "http/support/mod.rs"]
mod http_support;
use http_support::Server;

async fn until_figure(server: &Server, name: &str, is: f64) {
    let figure = |text: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    server.until_figures(|text| figure(text) == Some(is)).await;
}

#[tokio::test]
async fn streams_connections_and_the_log_are_told_as_they_are() {
    let server = Server::start().await;
    let first = server.stream("", &[]).await;
    let second = server.stream("", &[]).await;
    server.until_streams_are(2).await;
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
    until_figure(&server, "ensue_log_first_seq", 3.0).await;
    until_figure(&server, "ensue_log_last_seq", 5.0).await;
    until_figure(&server, "ensue_pending_events", 2.0).await;
    server.delete(&format!("/v1/events/{}", delayed["events"][0]["id"].as_str().unwrap())).await;
    until_figure(&server, "ensue_pending_events", 1.0).await;
    // The one that asks; those before it have gone, or are about to.
    until_figure(&server, "ensue_connections", 1.0).await;
}
