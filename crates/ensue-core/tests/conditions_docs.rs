//! Every example of docs/conditions.md does what the page says.

use ensue_core::condition::{Condition, EventView, SubscriptionView};
use ensue_core::{Event, EventId, Json, Timestamp, Topic};
use uuid::Uuid;

const PAGE: &str = include_str!("../../../docs/conditions.md");

/// The lines of all code blocks of one kind.
fn blocks(kind: &str) -> Vec<&'static str> {
    let mut lines = Vec::new();
    let mut inside = false;
    for line in PAGE.lines() {
        match line.strip_prefix("```") {
            Some(opened) => inside = !inside && opened == kind,
            None if inside => lines.push(line),
            None => {}
        }
    }
    lines
}

fn event() -> Event {
    Event {
        seq: 42,
        prev: None,
        id: EventId(Uuid::nil()),
        topic: Topic::stored("order.paid"),
        object: None,
        payload: Json::parse("payload", blocks("json")[0]).expect("the page's event is JSON"),
        metadata: Json::empty_object(),
        occurred_at: Timestamp::UNIX_EPOCH,
        recorded_at: Timestamp::UNIX_EPOCH,
        to: None,
    }
}

#[test]
fn the_conditions_of_the_page_are_accepted() {
    let lines = blocks("sql");
    assert!(lines.len() >= 10, "the examples were not found");
    for line in lines {
        Condition::parse(line).unwrap_or_else(|refusal| panic!("{line}: {refusal}"));
    }
}

#[test]
fn the_answers_of_the_page_are_given() {
    let (event, params) = (event(), Json::parse("params", "{\"min\": 100}").unwrap());
    let subscription = SubscriptionView::new(Uuid::nil(), "group", &params);
    let mut seen = 0;
    for line in blocks("text") {
        let (word, rest) = line.split_once(' ').expect("a word and a condition");
        let rest = rest.trim_start();
        let answer = |source| {
            Condition::parse(source).map(|condition| condition.matches(&EventView::new(&event), &subscription))
        };
        match (word, answer(rest)) {
            ("yes", Ok(Ok(true))) | ("no", Ok(Ok(false))) | ("fails", Ok(Err(_))) => {}
            ("refused", _) => {
                let (source, why) = rest.split_once("--").expect("a reason");
                let refusal = Condition::parse(source).map(|_| ()).expect_err(source);
                assert!(refusal.reason.contains(why.trim()), "{source}: {}", refusal.reason);
            }
            (_, other) => panic!("{line}: {other:?}"),
        }
        seen += 1;
    }
    assert!(seen >= 25, "the examples were not found");
}
