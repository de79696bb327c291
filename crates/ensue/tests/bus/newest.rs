//! A read from the end of the log has the events of a forward read, in reverse.

use ensue::{Ensue, Event, Filter, Json, NewEvent, ObjectKey, Read, Seq, Topic, Wanted, Where};

async fn all(bus: &Ensue) -> Vec<Event> {
    let (mut events, mut after) = (Vec::new(), 0);
    loop {
        let page = bus.store().read(Read { after, limit: 1_000, filter: Filter::default() }).await.unwrap();
        if page.next == after {
            return events;
        }
        after = page.next;
        events.extend(page.events);
    }
}

/// All pages, and how many there were.
async fn backward(
    bus: &Ensue,
    mut before: Option<Seq>,
    after: Seq,
    limit: usize,
    wanted: &Wanted,
) -> (Vec<Seq>, usize) {
    let (mut seqs, mut pages) = (Vec::new(), 0);
    loop {
        let page = bus.read_newest(before, after, limit, wanted).await.unwrap();
        assert!(page.events.len() <= limit);
        pages += 1;
        seqs.extend(page.events.iter().map(|event| event.seq));
        let Some(next) = page.next else { return (seqs, pages) };
        assert!(before.is_none_or(|before| next < before), "every page goes on");
        before = Some(next);
    }
}

async fn check(bus: &Ensue) {
    let mut batch = Vec::new();
    for n in 0..900_u32 {
        let (topic, object) = (["order.paid", "order", "mail"][n as usize % 3], format!("o{}", n % 7));
        batch.push(NewEvent::new(topic).object(object).payload(&n));
    }
    bus.publish_all(batch).await.unwrap();
    bus.store().trim(101, 1_000).await.unwrap();
    let all = all(bus).await;
    let topic = |topic: &str| Filter { topic: Some(Topic::stored(topic)), object: None };
    let object = |object: &str| Filter { topic: None, object: Some(ObjectKey::stored(object)) };
    let both = Filter { object: object("o3").object, ..topic("order") };
    let condition = || Some(Where::parse("(e.payload)::int % 10 = 3", Json::empty_object()).unwrap());
    for (filter, condition) in [
        (Filter::default(), None),
        (topic("order"), None),
        (topic("none"), None),
        (object("o3"), None),
        (object("none"), None),
        (both.clone(), None),
        (Filter::default(), condition()),
        (both, condition()),
    ] {
        let by_condition = condition.is_some();
        let wanted = Wanted { filter: filter.clone(), condition, ..Wanted::default() };
        let holds = |event: &Event| !by_condition || event.payload.as_str().parse::<u32>().unwrap() % 10 == 3;
        for (before, after) in
            [(None, 0), (Some(500), 0), (Some(700), 450), (Some(50), 0), (Some(5_000), 899), (None, 900)]
        {
            let range = after + 1..before.unwrap_or(Seq::MAX);
            let expected: Vec<Seq> = all
                .iter()
                .filter(|event| range.contains(&event.seq) && filter.matches(event) && holds(event))
                .map(|event| event.seq)
                .rev()
                .collect();
            for limit in [1, 7, 1_000] {
                let (seqs, _) = backward(bus, before, after, limit, &wanted).await;
                assert_eq!(seqs, expected, "{wanted:?} {before:?} {after} {limit}");
            }
        }
    }
}

/// Pages of large events end early, and none is left out.
async fn check_large(bus: &Ensue) {
    let large = "x".repeat(900_000);
    for _ in 0..11 {
        bus.publish(NewEvent::new("large").object("large").payload(&large)).await.unwrap();
    }
    let all = all(bus).await;
    let expected: Vec<Seq> = all.iter().rev().map(|event| event.seq).collect();
    let (seqs, pages) = backward(bus, None, 0, 1_000, &Wanted::default()).await;
    assert_eq!(seqs, expected);
    assert!(pages > 2, "a page is bounded in bytes");
    let object = Filter { topic: None, object: Some(ObjectKey::stored("large")) };
    let (seqs, _) = backward(bus, None, 0, 1_000, &Wanted { filter: object, ..Wanted::default() }).await;
    assert_eq!(seqs, expected[..11]);
}

#[tokio::test]
async fn a_backward_read_is_a_forward_read_reversed() {
    let bus = Ensue::memory().await.unwrap();
    check(&bus).await;
    check_large(&bus).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_backward_read_is_a_forward_read_reversed_on_postgres() {
    let (url, _schema) = ensue_conformance::postgres::fresh_schema("newest");
    let bus = Ensue::open(&url).await.unwrap();
    check(&bus).await;
    check_large(&bus).await;
}

/// However far back the wanted events are, a page looks at a bounded part of the log.
#[tokio::test]
async fn a_page_without_a_match_says_where_to_continue() {
    let bus = Ensue::memory().await.unwrap();
    bus.publish(NewEvent::new("wanted")).await.unwrap();
    for _ in 0..11 {
        bus.publish_all((0..1_000).map(|_| NewEvent::new("other")).collect()).await.unwrap();
    }
    let filter = Filter { topic: Some(Topic::stored("wanted")), object: None };
    let wanted = Wanted { filter, ..Wanted::default() };
    let page = bus.read_newest(None, 0, 10, &wanted).await.unwrap();
    assert!(page.events.is_empty() && page.next.is_some_and(|next| next >= 1_002), "{page:?}");
    let (seqs, pages) = backward(&bus, None, 0, 10, &wanted).await;
    assert_eq!(seqs, [1]);
    assert!(pages >= 2);
}
