//! A page is of one log, although it takes several statements to read.

use crate::support::wire::Wire;
use crate::support::{Log, on, open_over};
use ensue_core::store::Read;
use ensue_core::{Filter, ObjectKey};
use ensue_stores::postgres::PostgresOptions;

/// H14: retention passes the reader between any two statements of its read. Either the page is still whole, or its
/// `first` tells exactly what is missing.
async fn trim_between_the_statements_of(filter: Filter) {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let store = open_over(&wire, &log, PostgresOptions { readers_max: 1, ..PostgresOptions::default() }).await;
    let other = log.open().await;
    let page = |after| store.read(Read { after, limit: 100, filter: filter.clone() });
    page(0).await.unwrap();
    let mut after = 0;
    for statements in 0.. {
        for _ in 0..10 {
            other.append(on("o")).await.unwrap();
        }
        wire.hold_after(statements);
        let trim = async {
            wire.until_held().await;
            other.trim(after + 6, 100).await.unwrap();
            wire.let_go();
        };
        let read = page(after);
        tokio::pin!(read);
        let read = tokio::select! {
            () = trim => read.await.unwrap(),
            page = &mut read => {
                assert_eq!(page.unwrap().events.len(), 10, "nothing was trimmed");
                assert!(statements >= 3, "a read has at least three statements");
                return;
            }
        };
        let begin = read.first.max(after + 1);
        let seqs: Vec<u64> = read.events.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, (begin..=after + 10).collect::<Vec<_>>(), "trimmed after {statements}, first {}", read.first);
        assert_eq!(read.next, after + 10);
        after += 10;
    }
}

#[tokio::test]
async fn a_trim_in_the_middle_of_a_read_of_the_log_hides_nothing() {
    trim_between_the_statements_of(Filter::default()).await;
}

#[tokio::test]
async fn a_trim_in_the_middle_of_a_read_of_an_object_hides_nothing() {
    trim_between_the_statements_of(Filter { object: Some(ObjectKey::stored("o")), ..Filter::default() }).await;
}
