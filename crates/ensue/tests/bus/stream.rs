//! A stream replays history, then goes live: in order, without a gap, without a double.

use ensue::{Ensue, Error, GapReason, NewEvent, StoreError, Streamed, Subscription, Timestamp};
use std::collections::HashSet;

async fn publish(bus: &Ensue, topic: &str, object: &str) -> u64 {
    bus.publish(NewEvent::new(topic).object(object)).await.unwrap().seq.unwrap()
}

/// H14: history and live overlap while publishers run; the seam must not show.
#[tokio::test(flavor = "multi_thread")]
async fn replay_and_live_join_without_a_gap_or_a_double() {
    let bus = Ensue::memory().await.unwrap();
    for _ in 0..500 {
        publish(&bus, "t.before", "o").await;
    }
    let publisher = tokio::spawn({
        let bus = bus.clone();
        async move {
            for _ in 0..2_000 {
                publish(&bus, "t.during", "o").await;
            }
        }
    });
    let readers: Vec<_> = (0..4)
        .map(|n| {
            let bus = bus.clone();
            tokio::spawn(async move {
                let after = n * 100;
                let mut stream = bus.stream(Subscription::topic("t").after(after)).await.unwrap();
                for expected in after + 1..=2_500 {
                    let delivered = stream.next_event().await.unwrap();
                    assert_eq!(delivered.event.seq, expected);
                    assert_eq!(delivered.prev, (expected > 1).then(|| expected - 1));
                }
            })
        })
        .collect();
    for reader in readers {
        reader.await.unwrap();
    }
    publisher.await.unwrap();
}

/// A stream that is not polled while thousands of events pass has lost its place in the hand-out, and nothing else.
#[tokio::test]
async fn a_slow_stream_reads_the_store_and_misses_nothing() {
    let bus = Ensue::memory().await.unwrap();
    let mut slow = bus.stream(Subscription::all()).await.unwrap();
    let mut quick = bus.stream(Subscription::all()).await.unwrap();
    assert_eq!(slow.next().await, Some(Ok(Streamed::Caught(0))));
    for batch in 0..50 {
        bus.publish_all(vec![NewEvent::new("t"); 1_000]).await.unwrap();
        for n in 1..=1_000 {
            assert_eq!(quick.next_event().await.unwrap().event.seq, batch * 1_000 + n);
        }
    }
    for expected in 1..=50_000 {
        assert_eq!(slow.next_event().await.unwrap().event.seq, expected);
    }
}

#[tokio::test]
async fn a_stream_that_begins_outside_the_log_is_told_what_it_misses() {
    let bus = Ensue::memory().await.unwrap();
    for _ in 0..10 {
        publish(&bus, "t", "o").await;
    }
    bus.store().trim(6, 1_000).await.unwrap();
    let first = async |after: u64| {
        let mut stream = bus.stream(Subscription::all().after(after)).await.unwrap();
        stream.next().await.unwrap().unwrap()
    };
    assert_eq!(first(2).await, Streamed::Gap { from: 3, to: 5, reason: GapReason::Forgotten });
    assert_eq!(first(99).await, Streamed::Gap { from: 11, to: 99, reason: GapReason::BeyondEnd });
    let mut stream = bus.stream(Subscription::all().after(2)).await.unwrap();
    bus.store().trim(11, 1_000).await.unwrap();
    // Everything was forgotten before it was read: first the gap, then that there is nothing more.
    assert_eq!(stream.next().await, Some(Ok(Streamed::Gap { from: 3, to: 10, reason: GapReason::Forgotten })));
    assert_eq!(stream.next().await, Some(Ok(Streamed::Caught(10))));
}

#[tokio::test]
async fn a_stream_from_the_beginning_begins_with_whatever_there_is() {
    let bus = Ensue::memory().await.unwrap();
    for _ in 0..10 {
        publish(&bus, "t", "o").await;
    }
    bus.store().trim(6, 1_000).await.unwrap();
    // From the beginning means: whatever there is.
    let mut all = bus.stream(Subscription::all().after(0)).await.unwrap();
    assert_eq!(all.next_event().await.unwrap().event.seq, 6);
    // Exactly at the edge nothing is missing.
    let mut edge = bus.stream(Subscription::all().after(5)).await.unwrap();
    assert!(matches!(edge.next().await, Some(Ok(Streamed::Event(delivered))) if delivered.event.seq == 6));
}

/// H14: retention overtakes a stream that was too slow; it is told what it will not get, and goes on after it.
#[tokio::test]
async fn a_stream_that_retention_overtakes_is_told_what_it_misses() {
    let bus = Ensue::memory().await.unwrap();
    let mut slow = bus.stream(Subscription::topic("t")).await.unwrap();
    let mut quick = bus.stream(Subscription::topic("t")).await.unwrap();
    assert_eq!(slow.next().await, Some(Ok(Streamed::Caught(0))));
    for batch in 0..20 {
        bus.publish_all(vec![NewEvent::new("t"); 1_000]).await.unwrap();
        for n in 1..=1_000 {
            assert_eq!(quick.next_event().await.unwrap().event.seq, batch * 1_000 + n);
        }
    }
    bus.store().trim(15_001, 20_000).await.unwrap();
    let mut next = 1;
    let mut missed = None;
    while next <= 20_000 {
        match slow.next().await.unwrap().unwrap() {
            Streamed::Event(delivered) => {
                assert_eq!(delivered.event.seq, next);
                next += 1;
            }
            Streamed::Gap { from, to, reason: _ } => {
                assert_eq!((from, missed), (next, None));
                missed = Some(to);
                next = to + 1;
            }
            Streamed::Caught(_) => panic!("told twice"),
            Streamed::ConditionFailed(error) => panic!("there is no condition: {error:?}"),
        }
    }
    assert_eq!(missed, Some(15_000));
}

#[tokio::test]
async fn a_stream_can_begin_at_a_time() {
    let bus = Ensue::memory().await.unwrap();
    publish(&bus, "t", "o").await;
    let first = bus.store().event(1).await.unwrap().unwrap().recorded_at;
    let later = loop {
        let seq = publish(&bus, "t", "o").await;
        let at = bus.store().event(seq).await.unwrap().unwrap().recorded_at;
        if at > first {
            break (seq, at);
        }
    };
    let mut stream = bus.stream(Subscription::all().from_time(later.1)).await.unwrap();
    assert_eq!(stream.next_event().await.unwrap().event.seq, later.0);
    let mut everything = bus.stream(Subscription::all().from_time(Timestamp::UNIX_EPOCH)).await.unwrap();
    assert_eq!(everything.next_event().await.unwrap().event.seq, 1);
}

/// A receiver of a subset must be able to detect a gap, so `prev` is the previous event its filter matches.
#[tokio::test]
async fn prev_is_the_one_of_the_filter() {
    let bus = Ensue::memory().await.unwrap();
    let paid_1 = publish(&bus, "order.paid", "a").await;
    publish(&bus, "noise", "a").await;
    let paid_2 = publish(&bus, "order.paid", "a").await;
    let other = publish(&bus, "order.paid", "b").await;
    publish(&bus, "noise", "c").await;
    let first_of_c = publish(&bus, "order.paid", "c").await;
    let mut all = bus.stream(Subscription::topic("order").after(0)).await.unwrap();
    let mut resumed = bus.stream(Subscription::topic("order").after(paid_1)).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let delivered = all.next_event().await.unwrap();
        seen.push((delivered.event.seq, delivered.prev, delivered.prev_since));
    }
    let expected = [(paid_1, None, None), (paid_2, Some(paid_1), None), (other, None, None), (first_of_c, None, None)];
    assert_eq!(seen, expected);
    // Not remembered from this stream, but found by walking back.
    assert_eq!(resumed.next_event().await.unwrap().prev, Some(paid_1));
}

#[tokio::test]
async fn what_cannot_be_decided_about_prev_is_said() {
    let bus = Ensue::memory().await.unwrap();
    publish(&bus, "order.paid", "a").await;
    for _ in 0..150 {
        publish(&bus, "noise", "a").await;
    }
    let last = publish(&bus, "order.paid", "a").await;
    let mut stream = bus.stream(Subscription::topic("order").after(last - 1)).await.unwrap();
    let delivered = stream.next_event().await.unwrap();
    assert_eq!((delivered.prev, delivered.prev_since), (None, Some(last - 100)));
}

/// The tail stops when nobody listens, and starts again for the next one.
#[tokio::test]
async fn listeners_come_and_go() {
    let bus = Ensue::memory().await.unwrap();
    let mut seen = HashSet::new();
    for _ in 0..20 {
        let mut stream = bus.stream(Subscription::all()).await.unwrap();
        let seq = publish(&bus, "t", "o").await;
        assert_eq!(stream.next_event().await.unwrap().event.seq, seq);
        seen.insert(seq);
    }
    assert_eq!(seen.len(), 20);
}

/// Who waits for what comes is told that nothing will.
#[tokio::test]
async fn a_stream_of_a_closed_store_is_told() {
    let bus = Ensue::memory().await.unwrap();
    let mut stream = bus.stream(Subscription::all()).await.unwrap();
    assert_eq!(stream.next().await, Some(Ok(Streamed::Caught(0))));
    bus.close().await;
    for _ in 0..2 {
        let told = tokio::time::timeout(std::time::Duration::from_secs(180), stream.next()).await;
        assert_eq!(told.expect("the stream is silent"), Some(Err(Error::Store(StoreError::Closed))));
    }
}
