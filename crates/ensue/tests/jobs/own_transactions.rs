//! Jobs that an application sends in a transaction of its own: with the commit, or never.

use crate::support::{LONG, noting, sent, until, until_state};
use ensue::jobs::{JobId, JobState};
use ensue::testing::{Expected, assert_emitted, emitted};
use ensue::{Context, Emit, Ensue, Event, JobArgs, TransactionError};

#[tokio::test]
async fn a_job_of_a_transaction_is_sent_with_its_commit() {
    let bus = Ensue::memory().await.unwrap();
    let seen = noting(&bus, "h");
    let running = bus.start().await.unwrap();
    let own = bus.clone();
    let ids: Vec<JobId> = bus
        .transaction(move |tx| {
            tx.execute_batch("CREATE TABLE orders (id INTEGER)")?;
            let first = own.emit_in(tx, Emit::to("h").object("o").payload(&1))?;
            let rest = own.emit_all_in(tx, vec![Emit::to("h").object("o").payload(&2), Emit::to("h").payload(&3)])?;
            Ok(std::iter::once(first).chain(rest).collect())
        })
        .await
        .unwrap();
    for id in ids {
        until_state(&bus, id, JobState::Succeeded).await;
    }
    let mut all = seen.all();
    all.sort();
    assert_eq!(all, ["1", "2", "3"]);

    let own = bus.clone();
    let taken_back: Result<(), _> = bus
        .transaction(move |tx| {
            own.emit_in(tx, Emit::to("h").payload(&4))?;
            Err(TransactionError::rollback("no"))
        })
        .await;
    assert!(taken_back.is_err());
    bus.drain().await.unwrap();
    assert_eq!(seen.all().len(), 3);
    let own = bus.clone();
    let refused = bus.transaction(move |tx| own.emit_in(tx, Emit::to("h..").payload(&5))).await.unwrap_err();
    assert!(refused.to_string().contains("handler"), "{refused}");
    running.shutdown(LONG).await.unwrap();
}

#[derive(serde::Serialize, serde::Deserialize, JobArgs)]
#[job(handler = "mail.receipt")]
struct SendReceipt {
    order: u64,
}

#[tokio::test]
async fn a_typed_job_comes_to_the_handler_of_its_type() {
    let bus = Ensue::memory().await.unwrap();
    bus.register_job(async |job: Event<SendReceipt>, cx: Context| {
        cx.publish(ensue::NewEvent::new("receipt.sent").payload(&job.payload.order))?;
        Ok(())
    })
    .unwrap();
    let running = bus.start().await.unwrap();
    let id = sent(&bus, Emit::job(&SendReceipt { order: 7 })).await;
    until_state(&bus, id, JobState::Succeeded).await;
    ensue::assert_published!(bus, Expected::from("receipt.sent").payload(7));
    let job = assert_emitted!(bus, Expected::job(&SendReceipt { order: 7 }));
    assert_eq!((job.id, job.handler.as_str()), (id, "mail.receipt"));

    // Another payload is no receipt, whatever is tried.
    let other = sent(&bus, Emit::to("mail.receipt").payload(&"all")).await;
    let dead = until("it dies", async || bus.job(other).await.unwrap().filter(|job| job.state == JobState::Dead)).await;
    assert_eq!(dead.attempts, 1);
    assert!(dead.errors[0].error.contains("`mail.receipt`"), "{:?}", dead.errors);
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn a_failed_assertion_lists_what_there_is() {
    let bus = Ensue::memory().await.unwrap();
    assert_eq!(
        ensue::testing::published(&bus, "order.paid").await.unwrap_err(),
        "`order.paid` was not published; published so far:\n  nothing"
    );
    sent(&bus, Emit::to("h").object("order:1").payload(&serde_json::json!({ "a": { "b": 1, "c": 2 } }))).await;
    let part = Expected::from("h").object("order:1").payload(serde_json::json!({ "a": { "b": 1 } }));
    assert_emitted!(bus, part.clone());
    for other in [part.clone().object("order:2"), part.payload(serde_json::json!({ "a": { "d": 1 } })), "g".into()] {
        let missing = emitted(&bus, other).await.unwrap_err();
        assert!(missing.contains("was not emitted"), "{missing}");
        assert!(missing.ends_with("so far:\n  h, order:1: {\"a\":{\"b\":1,\"c\":2}}"), "{missing}");
    }
}
