//! H35 on a real server: the last rows vanish, the sessions end, and others take the numbers. Streams are told.

#![cfg(feature = "postgres")]

use ensue::{Ensue, EventStream, GapReason, NewEvent, Streamed, Subscription};
use ensue_conformance::postgres::{fresh_schema, shared_url};
use tokio_postgres::{Client, NoTls};

pub struct Server {
    admin: Client,
    schema: String,
    pub url: String,
}

impl Server {
    pub async fn open() -> (Self, Ensue) {
        let (url, schema) = fresh_schema("failover");
        let (admin, connection) = tokio_postgres::connect(&shared_url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let bus = Ensue::open(&format!("{url}&application_name={schema}")).await.unwrap();
        (Self { admin, schema, url }, bus)
    }

    /// The end of the log is lost, and so are all connections.
    pub async fn fail_over(&self, lost_from: u64) {
        let schema = &self.schema;
        let sql = format!(
            "DELETE FROM {schema}.stored_events WHERE seq >= {lost_from};
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{schema}'"
        );
        self.admin.batch_execute(&sql).await.unwrap();
    }
}

pub async fn publish(bus: &Ensue, topic: &str, count: usize) -> Vec<ensue::EventId> {
    let batch = vec![NewEvent::new(topic).object("o"); count];
    bus.publish_all(batch).await.unwrap().iter().map(|answer| answer.id).collect()
}

#[tokio::test]
async fn a_stream_over_a_failover_is_told_and_gets_what_took_the_numbers() {
    let (server, bus) = Server::open().await;
    let mut all = bus.stream(Subscription::all().after(0)).await.unwrap();
    let mut filtered = bus.stream(Subscription::topic("kept").after(0)).await.unwrap();
    publish(&bus, "kept", 15).await;
    publish(&bus, "lost", 5).await;
    until(&mut all, 20).await;
    until(&mut filtered, 15).await;
    server.fail_over(13).await;
    let new = publish(&bus, "kept", 10).await;
    for stream in [&mut all, &mut filtered] {
        let gap = loop {
            match stream.next().await.unwrap() {
                Ok(Streamed::Event(delivered)) => panic!("{delivered:?} without a word before it"),
                Ok(Streamed::Caught(_) | Streamed::ConditionFailed(_)) => {}
                Ok(Streamed::Gap { from, to, reason }) => break (from, to, reason),
                // The streams read on after an error.
                Err(error) => eprintln!("{error}"),
            }
        };
        assert!(matches!(gap, (13, 15..=20, GapReason::WentBack)), "{gap:?}");
        for (seq, id) in (13..).zip(&new) {
            let delivered = stream.next_event().await.unwrap();
            assert_eq!((delivered.event.seq, delivered.event.id, delivered.prev), (seq, *id, Some(seq - 1)));
        }
    }
}

pub async fn until(stream: &mut EventStream, seq: u64) {
    while stream.next_event().await.unwrap().event.seq != seq {}
}
