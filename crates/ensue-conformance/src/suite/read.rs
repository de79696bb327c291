//! What does a page of the log hold?

use super::{Subject, object, seqs, topic};
use crate::factory::Factory;
use ensue_core::store::{PAGE_BYTES_MAX, Page, Read, SCAN_MAX};
use ensue_core::{Filter, NewEvent, ObjectKey, Seq};

impl Subject {
    async fn page(&self, after: Seq, limit: usize, filter: Filter) -> Page {
        self.store.read(Read { after, limit, filter }).await.expect("a page")
    }

    /// The places on a page, and where the next one begins.
    async fn places(&self, after: Seq, limit: usize, filter: Filter) -> (Vec<Seq>, Seq) {
        let page = self.page(after, limit, filter).await;
        (seqs(&page.events), page.next)
    }

    /// All that a filter wants, read in pages of several sizes: always the same.
    async fn wanted(&self, filter: Filter) -> Vec<Seq> {
        let all = seqs(&self.read_all(filter.clone(), 0, usize::MAX).await);
        for limit in [1, 2, 3, 1_000] {
            assert_eq!(seqs(&self.read_all(filter.clone(), 0, limit).await), all, "in pages of {limit}");
        }
        all
    }
}

/// The next page begins where this one ended.
pub async fn a_page_holds_what_follows_up_to_the_limit(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 10).await;
    let all = Filter::default;
    assert_eq!(subject.places(0, 4, all()).await, (vec![1, 2, 3, 4], 4));
    assert_eq!(subject.places(4, 4, all()).await, (vec![5, 6, 7, 8], 8));
    assert_eq!(subject.places(8, 4, all()).await, (vec![9, 10], 10));
    assert_eq!(subject.places(9, 1, all()).await, (vec![10], 10));
    assert_eq!(subject.places(3, 2, topic("t")).await, (vec![4, 5], 5));
}

/// `order` wants `order.paid`, never `orders`; nothing in a topic is a wildcard, and case counts.
pub async fn a_topic_wants_those_below_it_by_whole_segments(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let topics = [
        "order",
        "order.paid",
        "orders",
        "order-x",
        "order/x",
        "order.paid.late",
        "Order.paid",
        "order_x",
        "orderXx",
        "order.p",
        "a_b.c",
        "axb.c",
        "order.é",
        "order$",
        "orde",
        "order.paid2",
        "é.x",
        "a_b",
        "order0",
        "order.~",
    ];
    subject.append(topics.iter().map(|name| NewEvent::new(*name)).collect()).await;
    for wanted in ["order", "order.paid", "a_b", "é", "order.é", "Order", "orde", "order.p", "none", "order_x"] {
        let below = format!("{wanted}.");
        let is_wanted = |name: &str| name == wanted || name.starts_with(&below);
        let expected: Vec<Seq> = (1..).zip(topics).filter(|(_, name)| is_wanted(name)).map(|(seq, _)| seq).collect();
        assert_eq!(subject.wanted(topic(wanted)).await, expected, "{wanted}");
    }
}

/// Nothing in an object is a wildcard, case and blanks count.
pub async fn an_object_is_compared_in_full(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let objects = ["a", "A", "a ", " a", "a%", "%", "_", "a.b", "a'", "á", "a\u{301}", "NULL", "{}", "a\\", "a"];
    subject.append(objects.iter().map(|name| NewEvent::new("t").object(*name)).collect()).await;
    subject.one(NewEvent::new("t")).await;
    for name in objects {
        let expected: Vec<Seq> = (1..).zip(objects).filter(|(_, other)| *other == name).map(|(seq, _)| seq).collect();
        assert_eq!(subject.wanted(object(name)).await, expected, "{name:?}");
    }
    assert_eq!(subject.wanted(object("b")).await, [0; 0]);
}

/// Both must hold.
pub async fn a_topic_and_an_object_together_want_both(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let batch = (0..60).map(|n| NewEvent::new(["x", "x.y", "z"][n % 3]).object(["o", "p"][n / 3 % 2]));
    subject.append(batch.collect()).await;
    let both = |wanted: &str, about: &str| Filter { object: object(about).object, ..topic(wanted) };
    let expected = |wanted: &[usize], about: usize| -> Vec<Seq> {
        (0..60).filter(|n| wanted.contains(&(n % 3)) && n / 3 % 2 == about).map(|n| n as Seq + 1).collect()
    };
    assert_eq!(subject.wanted(both("x", "o")).await, expected(&[0, 1], 0));
    assert_eq!(subject.wanted(both("x.y", "p")).await, expected(&[1], 1));
    assert_eq!(subject.wanted(both("z", "o")).await, expected(&[2], 0));
    assert_eq!(subject.wanted(both("x.y.z", "o")).await, [0; 0]);
}

/// H3: chunk 10 of 100 (and other sizes), from batches of changing size, some of them delayed: all once, in order.
pub async fn chunked_reads_return_everything_once_in_order(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let due = subject.clock.now() + jiff::SignedDuration::from_secs(1);
    let mut sent = 0;
    for size in [1, 30, 2, 17, 9, 21] {
        let event = |n: usize| NewEvent::new(["a", "a.b", "c"][n % 3]).object(format!("o{}", n % 7)).payload(&n);
        subject.append((sent..sent + size).map(event).collect()).await;
        sent += size;
    }
    subject.append(vec![NewEvent::new("a").not_before(due); 20]).await;
    subject.clock.advance_millis(1_000);
    subject.store.release_due(100).await.expect("released");
    for _ in 0..2 {
        for limit in [1, 3, 10, 99, 100, 101] {
            let read = seqs(&subject.read_all(Filter::default(), 0, limit).await);
            assert_eq!(read, (1..=100).collect::<Vec<_>>(), "in pages of {limit}");
        }
        subject.reopen().await;
    }
    assert_eq!(seqs(&subject.read_all(Filter::default(), 42, 10).await), (43..=100).collect::<Vec<_>>());
}

/// What is wanted stands behind more than one scan's worth of what is not: every page is bounded, the last has it.
pub async fn a_scan_for_a_topic_is_bounded_and_goes_on(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let many = SCAN_MAX as usize + 500;
    subject.fill("noise", None, many).await;
    subject.one(NewEvent::new("wanted")).await;
    let last = many as Seq + 1;
    assert_eq!(subject.places(0, 10, topic("wanted")).await, (vec![], SCAN_MAX));
    assert_eq!(subject.places(SCAN_MAX, 10, topic("wanted")).await, (vec![last], last));
    assert_eq!(subject.places(300, 10, topic("wanted")).await, (vec![], SCAN_MAX + 300));
    assert_eq!(subject.wanted(topic("wanted")).await, [last]);
    let page = subject.page(7, usize::MAX, Filter::default()).await;
    assert_eq!((page.events.len() as u64, page.next), (SCAN_MAX, SCAN_MAX + 7));
    // Looked at is what is there: after a trim the scan begins at the first event.
    subject.store.trim(401, 1_000).await.expect("trimmed");
    assert_eq!(subject.places(0, 10, topic("wanted")).await, (vec![], SCAN_MAX + 400));
}

/// The same among the events of one object; events of others cost its reader nothing.
pub async fn a_scan_of_an_object_is_bounded_and_goes_on(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let many = SCAN_MAX as usize + 500;
    subject.fill("noise", Some("o"), many).await;
    subject.one(NewEvent::new("wanted").object("o")).await;
    subject.one(NewEvent::new("wanted").object("p")).await;
    subject.fill("noise", None, 3).await;
    let wanted_of = |about: &str| Filter { object: object(about).object, ..topic("wanted") };
    let last = many as Seq + 5;
    assert_eq!(subject.places(0, 10, wanted_of("o")).await, (vec![], SCAN_MAX));
    assert_eq!(subject.places(SCAN_MAX, 10, wanted_of("o")).await, (vec![many as Seq + 1], last));
    assert_eq!(subject.places(0, 10, wanted_of("p")).await, (vec![many as Seq + 2], last));
    assert_eq!(subject.wanted(wanted_of("o")).await, [many as Seq + 1]);
    let page = subject.page(0, usize::MAX, object("o")).await;
    assert_eq!((page.events.len() as u64, page.next), (SCAN_MAX, SCAN_MAX));
}

/// Large events: a page ends before it grows beyond its bytes, however many were asked for, and nothing is left out.
pub async fn a_page_is_bounded_in_bytes(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for n in 0..11 {
        let size = [1_000_000, 10, 700_000][n % 3];
        subject.one(NewEvent::new("t.x").object("o").payload(&"x".repeat(size))).await;
    }
    let both = Filter { object: object("o").object, ..topic("t") };
    for filter in [Filter::default(), topic("t"), object("o"), both] {
        let (mut after, mut read) = (0, Vec::new());
        while after < 11 {
            let page = subject.page(after, 1_000, filter.clone()).await;
            let bytes: usize = page.events.iter().map(|event| event.bytes()).sum();
            assert!(bytes <= PAGE_BYTES_MAX, "{bytes} bytes on a page of {filter:?}");
            assert!(page.next > after, "stands still at {after}");
            if let Some(next) = subject.store.event(page.next + 1).await.expect("read") {
                assert!(bytes + next.bytes() > PAGE_BYTES_MAX, "a page ended although seq {} had room", next.seq);
            }
            read.extend(seqs(&page.events));
            after = page.next;
        }
        assert_eq!(read, (1..=11).collect::<Vec<_>>());
    }
}

/// A chain and the list of delayed events hold no more than a page does, however large their events are.
pub async fn chains_and_lists_are_bounded_in_bytes(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let later = subject.clock.now() + jiff::SignedDuration::from_hours(1);
    for _ in 0..6 {
        let large = NewEvent::new("t").object("o").payload(&"x".repeat(1_000_000));
        subject.one(large.clone()).await;
        subject.one(large.not_before(later)).await;
    }
    let chain = subject.store.chain(&ObjectKey::stored("o"), None, 1_000).await.expect("a chain");
    assert_eq!(seqs(&chain), [6, 5, 4, 3]);
    assert_eq!(subject.store.pending(1_000).await.expect("a list").len(), 4);
}

/// A reader whose place was forgotten can tell from the page how much it missed.
pub async fn a_page_tells_where_the_log_begins(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.append(vec![NewEvent::new("t").object("o"); 10]).await;
    assert_eq!(subject.page(0, 100, Filter::default()).await.first, 1);
    subject.store.trim(6, 1_000).await.expect("a trim");
    for (after, filter) in [(2, Filter::default()), (2, topic("t")), (2, object("o")), (99, object("o"))] {
        assert_eq!(subject.page(after, 100, filter).await.first, 6);
    }
    subject.store.trim(11, 1_000).await.expect("a trim");
    assert_eq!(subject.page(0, 100, Filter::default()).await.first, 11);
}

/// A reader at the end, or with a place from another log, is told to stay there and gets what comes after.
pub async fn reading_beyond_the_end_waits_there(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let filters = [Filter::default(), topic("t"), object("o")];
    for filter in filters.clone() {
        assert_eq!(subject.places(0, 10, filter.clone()).await, (vec![], 0));
        assert_eq!(subject.places(5, 10, filter).await, (vec![], 5));
    }
    subject.fill("t", Some("o"), 3).await;
    for filter in filters {
        assert_eq!(subject.places(3, 10, filter.clone()).await, (vec![], 3));
        assert_eq!(subject.places(4, 10, filter.clone()).await, (vec![], 4));
        assert_eq!(subject.places(Seq::MAX, 10, filter.clone()).await, (vec![], Seq::MAX));
        assert_eq!(subject.places(2, 10, filter).await, (vec![3], 3));
    }
}

/// A place before the oldest event: the page begins with the oldest.
pub async fn reading_what_is_forgotten_begins_at_the_first(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 20).await;
    subject.store.trim(11, 100).await.expect("trimmed");
    for filter in [Filter::default(), topic("t"), object("o")] {
        assert_eq!(subject.places(0, 3, filter.clone()).await, (vec![11, 12, 13], 13));
        assert_eq!(subject.places(9, 3, filter.clone()).await, (vec![11, 12, 13], 13));
        assert_eq!(subject.places(10, 3, filter.clone()).await, (vec![11, 12, 13], 13));
        assert_eq!(subject.places(11, 3, filter).await, (vec![12, 13, 14], 14));
    }
    subject.store.trim(Seq::MAX, 100).await.expect("trimmed");
    for filter in [Filter::default(), topic("t"), object("o")] {
        assert_eq!(subject.places(0, 3, filter).await, (vec![], 20));
    }
}
