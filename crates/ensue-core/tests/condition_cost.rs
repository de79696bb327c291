//! Bounds of what a condition may cost: every operation is paid for by its bytes, digits and nodes.

use ensue_core::condition::{Condition, EventView, Failure, ParsedEvent, QUICK_STEPS_MAX, STEPS_MAX, SubscriptionView};
use ensue_core::matching::{Found, Index, Subscription, Want};
use ensue_core::{Event, EventId, Json, Timestamp, Topic};
use std::sync::Arc;
use uuid::Uuid;

fn event(payload: impl Into<String>) -> Event {
    Event {
        seq: 7,
        prev: None,
        id: EventId(Uuid::nil()),
        topic: Topic::stored("a"),
        object: None,
        payload: Json::parse("payload", payload.into()).unwrap(),
        metadata: Json::empty_object(),
        occurred_at: Timestamp::UNIX_EPOCH,
        recorded_at: Timestamp::UNIX_EPOCH,
        to: None,
    }
}

fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(",")
}

/// As many copies of a part as a condition may have.
fn repeated(part: &str) -> String {
    vec![part; 200.min(15_000 / (part.len() + 4))].join(" OR ")
}

fn evaluate(source: &str, view: &EventView<'_>) -> Result<bool, Failure> {
    let params = Json::empty_object();
    let condition = Condition::parse(source).unwrap_or_else(|refusal| panic!("{source}: {refusal}"));
    condition.matches(view, &SubscriptionView::new(Uuid::nil(), "", &params))
}

/// Either its constants or its evaluation cost too much.
#[track_caller]
fn is_stopped(source: &str, event: &Event) {
    if Condition::parse(source).is_err_and(|refusal| refusal.reason.contains("steps")) {
        return;
    }
    let answer = evaluate(source, &EventView::new(event));
    assert!(matches!(answer, Err(Failure::TooCostly(_) | Failure::TooLarge(_))), "{source:.80}: {answer:?}");
}

#[test]
fn searches_in_large_values_are_paid_for() {
    let objects = event(format!(r#"{{"o":{{{}}}}}"#, list(60_000, |n| format!(r#""{n:06}":1"#))));
    is_stopped(&repeated("e.payload#>'{o,zzzzzz}' = '1'"), &objects);
    is_stopped(&repeated("e.payload->'o'->'zzzzzz' = '1'"), &objects);
    is_stopped(&repeated("e.payload->'o' ? 'zzzzzz'"), &objects);
    is_stopped(&repeated("e.payload->'o' @> '{\"zzzzzz\": 1}'"), &objects);
    let array = event(format!(r#"{{"a":[{}]}}"#, list(110_000, |n| n.to_string())));
    is_stopped(&repeated("e.payload#>'{a,-1}' = '0'"), &array);
    is_stopped(&repeated("e.payload->'a' ? 'x'"), &array);
    is_stopped(&repeated("e.payload->'a' @> '-1'"), &array);
    // A few keys, each of which takes long to compare.
    let long = list(60, |n| format!(r#""{}{n:02}":1"#, "k".repeat(16_000)));
    let keys = event(format!(r#"{{"o":{{{long}}},"k":"{}zz"}}"#, "k".repeat(16_000)));
    is_stopped(&repeated("e.payload->'o' ? (e.payload->>'k')"), &keys);
    is_stopped(&repeated("e.payload->'o'->>(e.payload->>'k') = 'x'"), &keys);
}

#[test]
fn conversions_are_paid_for_by_bytes_and_nodes() {
    let ones = event(format!(r#"{{"t":"[{}]"}}"#, list(499_000, |_| "1".into())));
    is_stopped("(e.payload->>'t')::jsonb || (e.payload->>'t')::jsonb = '1'", &ones);
    is_stopped(&repeated("(e.payload->>'t')::jsonb = '1'"), &ones);
    is_stopped(
        "('{' || (e.payload->>'t') || '}')::text[] IS NULL",
        &event(r#"{"t":"a"}"#.replace('a', &list(300_000, |_| "1".into()))),
    );
    let array = event(format!(r#"{{"a":[{}]}}"#, list(110_000, |n| n.to_string())));
    is_stopped(&repeated("(e.payload->'a')::text = ''"), &array);
    is_stopped(&repeated("jsonb_build_object('a', e.payload) = '1'"), &array);
    is_stopped(&repeated("e.payload || e.payload = '1'"), &array);
    let text = event(format!(r#"{{"s":"{}"}}"#, "a".repeat(900_000)));
    is_stopped(&repeated("hashtext(e.payload->>'s') = 1"), &text);
    is_stopped(&repeated("to_jsonb(e.payload->>'s') = '1'"), &text);
    is_stopped(&format!("e.payload->>'s' LIKE '%{}b'", "a".repeat(10_000)), &text);
}

#[test]
fn numbers_are_paid_for_by_their_digits() {
    let one = event("1");
    for part in [
        "e.seq * 1e900 + 1 = 0",
        "(e.seq + 1e900) / 3e450 = 0",
        "(e.seq + 1e900) % 7e450 = 0",
        "(e.seq * 1e900)::text = ''",
        "(e.seq * 1e-900 + 1)::numeric(1000,500) > 9",
        "to_jsonb(e.seq * 1e900) = '1'",
    ] {
        is_stopped(&repeated(part), &one);
    }
    // The digits of a jsonb number are those that are written.
    assert_eq!(evaluate(&repeated("e.payload = '1e990'"), &EventView::new(&one)), Ok(false));
}

/// Containment of arrays takes n log n steps. The arrays of this test once took a second of a processor.
#[test]
fn containment_of_large_arrays_is_answered() {
    let large = |number: &str| list(1_200, |_| number.into());
    let source = format!("'[{},10e990]'::jsonb @> '[{}]'::jsonb", large("1e990"), large("1e991"));
    assert_eq!(evaluate(&source, &EventView::new(&event("1"))), Ok(true));
    let array = event(format!(r#"{{"a":[{}]}}"#, list(30_000, |n| n.to_string())));
    let wanted = list(1_500, |n| (28_000 + n).to_string());
    assert_eq!(evaluate(&format!("e.payload->'a' @> '[{wanted}]'"), &EventView::new(&array)), Ok(true));
    assert_eq!(evaluate(&format!("e.payload->'a' @> '[{wanted},-1]'"), &EventView::new(&array)), Ok(false));
}

#[test]
fn ordinary_conditions_on_the_largest_events_fit() {
    let text = event(format!(r#"{{"s":"{}","n":1}}"#, "a".repeat(1_000_000)));
    for (source, expected) in [
        ("e.payload->>'s' LIKE '%b%'", false),
        ("e.payload->>'s' ILIKE '%A'", true),
        ("lower(e.payload->>'s') = 'x'", false),
        ("e.payload::text LIKE '%b%'", false),
        ("length(e.payload->>'s') = 1000000", true),
        ("(e.payload->>'n')::int = 1 AND e.payload @> '{\"n\": 1}'", true),
    ] {
        assert_eq!(evaluate(source, &EventView::new(&text)), Ok(expected), "{source}");
    }
    let array = event(format!(r#"{{"a":[{}],"n":1}}"#, list(110_000, |n| n.to_string())));
    for source in ["e.payload->'a' @> '109999'", "(e.payload->'a'->-1)::int = 109999", "e.payload->>'n' = '1'"] {
        assert_eq!(evaluate(source, &EventView::new(&array)), Ok(true), "{source}");
    }
}

#[test]
fn constants_beyond_the_budget_are_refused_with_their_part() {
    let refusal = Condition::parse(&repeated("1e999 / 3e333 > e.seq")).map(|_| ()).unwrap_err();
    assert_eq!(refusal.field, "where");
    assert!(refusal.reason.contains("`1e999") && refusal.reason.contains("steps"), "{}", refusal.reason);
    // Part by part they are cheap, and together they are not.
    let parts = list(30, |n| format!("{n}e900 * 3e90 / 7e80 > 1")).replace(',', " OR e.seq = 1 AND ");
    assert!(Condition::parse(&parts).is_err());
}

/// What a condition keeps in memory is a small multiple of its text.
#[test]
fn constants_that_grow_are_not_kept() {
    let grown = format!("e.topic = ANY (ARRAY[{}])", list(150, |_| "('1e900'::jsonb)::text".into()));
    let condition = Condition::parse(&grown).unwrap();
    assert!(format!("{condition:?}").len() < 200_000, "{}", format!("{condition:?}").len());
    assert_eq!(evaluate(&grown, &EventView::new(&event("1"))), Ok(false));
}

#[test]
fn params_are_checked_within_one_budget() {
    let params = Json::parse("params", format!(r#"{{"t":"[{}]"}}"#, list(30_000, |_| "1".into()))).unwrap();
    let source = repeated("(s.params->>'t')::jsonb = '1' AND e.seq = 1");
    let refusal = Condition::parse(&source).unwrap().check_params(&params).unwrap_err();
    assert!(refusal.field == "params" && refusal.reason.contains("steps"), "{refusal}");
}

#[test]
fn quick_view_refuses_costly_work_and_says_so() {
    let (small, large) = (event(r#"{"n":1}"#), event(format!(r#"{{"s":"{}"}}"#, "a".repeat(100_000))));
    let view = EventView::quick(&small);
    assert_eq!((evaluate("(e.payload->>'n')::int = 1", &view), view.is_exhausted()), (Ok(true), false));
    // The payload of a large event is not parsed, unless the condition reads it.
    let view = EventView::quick(&large);
    assert_eq!((evaluate("e.topic = 'a'", &view), view.is_exhausted()), (Ok(true), false));
    assert!(evaluate("e.payload->>'s' = 'a'", &view).is_err() && view.is_exhausted());
    assert!(view.steps() <= u64::from(QUICK_STEPS_MAX));
}

#[test]
fn nodes_of_an_event_are_shared() {
    let event = event(format!(r#"{{"z":1,"a":[{}]}}"#, list(10_000, |n| format!(r#""\u00e4{n}""#))));
    let nodes = ParsedEvent::default();
    for _ in 0..2 {
        assert_eq!(evaluate("e.payload->'a'->>-1 = 'ä9999'", &EventView::shared(&event, &nodes)), Ok(true));
    }
    assert!((10_000..1_000_000).contains(&nodes.bytes()), "{}", nodes.bytes());
}

/// Many costly conditions on one event leave room for the cheap ones.
#[test]
fn costly_subscriptions_do_not_add_up() {
    let (mut index, group): (Index, Arc<str>) = (Index::new(), "g".into());
    let text = event(format!(r#"{{"s":"{}"}}"#, "a".repeat(900_000)));
    for n in 0..40_u128 {
        let source = format!("e.payload->>'s' LIKE '%{}b' AND e.seq > {n} - 50", "a".repeat(5_000));
        let want = Want { topic: None, condition: Arc::new(Condition::parse(&source).unwrap()) };
        let (id, params) = (Uuid::from_u128(n), Json::empty_object());
        index.add(&want, Subscription { id, group: group.clone(), params });
    }
    let want = Want { topic: None, condition: Arc::new(Condition::parse("e.payload ? 's'").unwrap()) };
    let cheap = Uuid::from_u128(1_000);
    index.add(&want, Subscription { id: cheap, group, params: Json::empty_object() });
    let (view, mut found) = (EventView::new(&text), Found::default());
    index.matches(&view, &mut found);
    assert_eq!(found.matched.iter().map(|one| one.id).collect::<Vec<_>>(), [cheap]);
    assert_eq!(found.failed.len(), 40);
    assert!(view.steps() < 25 * u64::from(STEPS_MAX), "{}", view.steps());
}

/// Objects are sorted once, however deeply they are nested.
#[test]
fn large_unsorted_objects_are_sorted() {
    let inner = list(2_000, |n| format!(r#""k{}":{n}"#, (n * 7_919) % 1_000));
    let nested = (0..50).fold(format!("{{{inner}}}"), |inner, _| format!(r#"{{"b":{inner},"a":1,"b2":0}}"#));
    let event = event(nested);
    let path = vec!["b"; 50].join(",");
    assert_eq!(evaluate(&format!("e.payload#>>'{{{path},k0}}' = '1000'"), &EventView::new(&event)), Ok(true));
    assert_eq!(evaluate(&format!("e.payload#>'{{{path},k999}}' IS NOT NULL"), &EventView::new(&event)), Ok(true));
}

/// A budget that ends within the sort of an array is a failure like others: this once was a panic of the sort.
#[test]
fn budget_that_ends_within_a_sort_is_a_failure() {
    let params = Json::parse("params", "[5,6]".to_owned()).unwrap();
    let condition = Condition::parse("e.payload @> s.params").unwrap();
    let mut state = 0x9e37_79b9_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % 1_000_000
    };
    let mut stopped = 0;
    for count in (600..900).chain([30_000, 100_000]) {
        let numbers: Vec<String> = (0..count).map(|_| random().to_string()).collect();
        let event = event(format!("[{}]", numbers.join(",")));
        for view in [EventView::quick(&event), EventView::new(&event)] {
            let answer = condition.matches(&view, &SubscriptionView::new(Uuid::nil(), "", &params));
            match answer {
                Ok(is_wanted) => assert_eq!(is_wanted, ["5", "6"].iter().all(|n| numbers.iter().any(|m| m == n))),
                Err(failure) => {
                    assert!(matches!(failure, Failure::TooCostly(_) | Failure::TooLarge(_)), "{failure:?}");
                    stopped += 1;
                }
            }
        }
    }
    assert!(stopped > 0);
}

/// Steps of one evaluation: a whole budget if it was stopped.
fn steps(source: &str, event: &Event) -> u64 {
    let view = EventView::new(event);
    match evaluate(source, &view) {
        Err(Failure::TooCostly(_)) => STEPS_MAX.into(),
        _ => view.steps(),
    }
}

/// A step is about a nanosecond. The factors are nanoseconds that a byte or an element took in a release build, rounded up.
#[test]
fn steps_follow_the_time_that_operations_take() {
    let blank_number = event(format!(r#"{{"a":[1],"z":"{}{}"}}"#, " ".repeat(500_000), "0".repeat(500_000)));
    let elements = |count: usize| event(format!(r#"{{"z":"{{{}}}"}}"#, list(count, |_| "1".into())));
    let pattern = event(format!(r#"{{"z":"{}"}}"#, "b".repeat(1_000_000)));
    let anything = event(format!(r#"{{"z":"{}","empty":""}}"#, "%".repeat(1_000_000)));
    let controls = event(format!(r#"{{"z":"{}"}}"#, r"\u0001".repeat(120_000)));
    let mut too_cheap = Vec::new();
    for (source, event, expected) in [
        ("e.payload->'a' #> ARRAY[e.payload->>'z'] IS NULL", &blank_number, 1_500_000),
        ("e.payload <> ALL ((e.payload->>'z')::jsonb[])", &elements(2_000), 2_000 * 1_400),
        ("e.payload <> ALL ((e.payload->>'z')::text[]::jsonb[])", &elements(2_000), 2_000 * 1_400),
        ("e.seq <> ALL ((e.payload->>'z')::numeric[])", &elements(10_000), 10_000 * 200),
        ("e.topic <> ALL ((e.payload->>'z')::text[])", &elements(10_000), 10_000 * 200),
        ("e.seq <> ALL ((e.payload->>'z')::text[]::int[])", &elements(5_000), 5_000 * 400),
        ("e.topic LIKE e.payload->>'z' ESCAPE '!'", &pattern, 2_000_000),
        ("e.payload->>'empty' LIKE e.payload->>'z'", &anything, 1_000_000),
        ("e.payload::text = ''", &controls, 120_000 * 16),
    ] {
        let steps = steps(source, event);
        if steps < expected {
            too_cheap.push(format!("{source}: {steps} steps of at least {expected}"));
        }
    }
    assert!(too_cheap.is_empty(), "{too_cheap:#?}");
}

/// The longest conditions of each shape, by what they keep for a byte of their text.
#[test]
fn checked_condition_takes_a_small_multiple_of_its_text() {
    let text = "x".repeat(8_100);
    let columns = vec!["e.topic"; 990].join(",");
    for source in [
        format!("'{text}' IN ({columns})"),
        format!("'{text}' NOT IN ({columns},'a','b')"),
        format!("'1' IN ({})", vec!["e.seq,e.topic"; 400].join(",")),
        format!("s.params->'{text}' @> jsonb_build_object({})", list(550, |n| format!("'{n}',e.topic"))),
        format!("e.payload @> '[{}]'", vec!["1"; 8_000].join(",")),
        format!("e.seq = ANY ('{{{}}}')", vec!["1"; 8_000].join(",")),
        format!("e.topic IN ({})", vec!["'a'"; 1_900].join(",")),
        format!("e.seq IN ({})", vec!["1"; 1_900].join(",")),
        format!("'{text}' BETWEEN e.topic AND e.topic"),
        vec!["'a'=e.topic"; 600].join(" AND "),
        vec!["e.topic=s.group_id"; 450].join(" AND "),
    ] {
        let condition = Condition::parse(&source).unwrap_or_else(|refusal| panic!("{source:.80}: {refusal}"));
        let (bytes, text) = (condition.bytes(), source.len());
        assert!(bytes <= 64 * text, "{source:.80}: {bytes} bytes of {text}");
        assert!(bytes >= text, "{source:.80}: {bytes} bytes of {text}");
    }
    let both = format!("'1' IN ({}) AND 'a' IN (e.object)", ["e.seq,e.topic"; 3].join(","));
    assert_eq!(evaluate("'7' IN (e.topic, e.seq)", &EventView::new(&event("1"))), Ok(true));
    assert_eq!(evaluate("'a' NOT IN (e.topic, 'b')", &EventView::new(&event("1"))), Ok(false));
    assert_eq!(evaluate(&both, &EventView::new(&event("1"))), Ok(false));
    assert!(Condition::parse("'a' IN (e.topic, e.seq)").is_err());
}

/// Subscriptions to `e.payload @> s.params`, each with eight of the last 40 keys of a large event: a shape of its own each.
fn shapes(index: &mut Index, count: u128) -> Event {
    let want = Want { topic: None, condition: Arc::new(Condition::parse("e.payload @> s.params").unwrap()) };
    let group: Arc<str> = "g".into();
    for n in 0..count {
        let mut keys: Vec<u128> = (0..).map(|at| 1_860 + (n * 7_919 + at * (2 * n + 1) * 7) % 40).take(60).collect();
        keys.sort_unstable();
        keys.dedup();
        let chosen = keys.iter().enumerate().filter(|(at, _)| (n >> at) & 1 == 1 || *at < 4).take(8);
        let params = chosen.map(|(_, key)| format!(r#""k{key:04}":1"#)).collect::<Vec<_>>().join(",");
        let params = Json::parse("params", format!("{{{params}}}")).unwrap();
        index.add(&want, Subscription { id: Uuid::from_u128(n), group: group.clone(), params });
    }
    event(format!("{{{}}}", list(1_900, |n| format!(r#""k{n:04}":1"#))))
}

#[test]
fn keys_of_many_shapes_exhaust_a_quick_view() {
    let mut index = Index::new();
    let event = shapes(&mut index, 3_000);
    let (view, mut found) = (EventView::quick(&event), Found::default());
    index.matches(&view, &mut found);
    assert!(view.is_exhausted(), "{} steps were charged", view.steps());
    assert!(view.steps() <= u64::from(QUICK_STEPS_MAX));
    let view = EventView::new(&event);
    index.matches(&view, &mut found);
    assert_eq!((found.matched.len(), found.failed.len()), (3_000, 0));
    assert!((1_000_000..100_000_000).contains(&view.steps()), "{}", view.steps());
}

#[test]
fn many_cheap_lookups_exhaust_a_quick_view() {
    let mut index = Index::new();
    for n in 0..10_000_u128 {
        let source = format!("e.object = s.params->>'o' AND e.seq > {n}");
        let want = Want { topic: None, condition: Arc::new(Condition::parse(&source).unwrap()) };
        let params = Json::parse("params", r#"{"o":"x"}"#.to_owned()).unwrap();
        index.add(&want, Subscription { id: Uuid::from_u128(n), group: "g".into(), params });
    }
    let event = event("{}");
    let (view, mut found) = (EventView::quick(&event), Found::default());
    index.matches(&view, &mut found);
    assert!(view.is_exhausted(), "{} steps were charged", view.steps());
}

/// A key that costs more than is left of an event's budgets hides nobody: the condition is evaluated for each.
#[test]
fn subscription_whose_key_exceeds_the_budget_is_reported() {
    let (mut index, group): (Index, Arc<str>) = (Index::new(), "g".into());
    let keys = list(20_000, |n| format!(r#""k{n:05}":1"#));
    let event = event(format!(r#"{{"a":"{}",{keys}}}"#, "a".repeat(700_000)));
    let mut add = |n: u128, source: &str, params: &str| {
        let want = Want { topic: None, condition: Arc::new(Condition::parse(source).unwrap()) };
        let params = Json::parse("params", params.to_owned()).unwrap();
        index.add(&want, Subscription { id: Uuid::from_u128(n), group: group.clone(), params });
    };
    let costly = 320;
    for n in 0..costly {
        let source = format!("e.payload->>'a' LIKE '%{}b' AND e.seq > {n} - 500", "a".repeat(5_000));
        add(n, &source, "{}");
    }
    add(1_000, "e.payload @> s.params", r#"{"k19999":1}"#);
    add(1_001, "e.payload->'k19999' = s.params->'v'", r#"{"v":1}"#);
    add(1_002, "s.params @> jsonb_build_object('v', e.payload->>'k19999')", r#"{"v":"1"}"#);
    add(1_003, "e.payload->>'k19999' = '1'", "{}");
    add(1_004, "e.payload @> s.params AND e.seq > 1000", r#"{"k19999":1}"#);
    let (view, mut found) = (EventView::new(&event), Found::default());
    index.matches(&view, &mut found);
    assert!(view.steps() > 32 * u64::from(STEPS_MAX), "{}", view.steps());
    assert_eq!(found.matched.len(), 0);
    let failed = found.failed.iter().map(|(one, _)| one.id.as_u128()).filter(|id| *id >= 1_000);
    let mut failed: Vec<u128> = failed.collect();
    failed.sort_unstable();
    assert_eq!(failed, [1_000, 1_001, 1_002, 1_003, 1_004]);
}
