//! Every operator of conditions by an example, and what is refused.
//!
//! The values are Postgres' own; `ensue-conformance/tests/conditions_postgres.rs` compares many more.

use ensue_core::condition::{
    Condition, DEPTH_MAX, EventView, Expression, Failure, SOURCE_BYTES_MAX, SubscriptionView, TOKENS_MAX,
};
use ensue_core::{Event, EventId, Json, ObjectKey, Timestamp, Topic};
use uuid::Uuid;

const PAYLOAD: &str = r#"{"total":120.50,"n":"7","bad":"seven","items":[{"sku":"a"},{"sku":"b"}],"none":null,
    "deep":{"er":{"est":true}},"tags":["x","y"],"big":12345678901234567890,"name":"Ädam"}"#;

fn event() -> Event {
    Event {
        seq: 42,
        prev: None,
        id: EventId(Uuid::from_u128(0xa0eebc99_9c0b_4ef8_bb6d_6bb9bd380a11)),
        topic: Topic::stored("order.paid"),
        object: Some(ObjectKey::stored("order:1")),
        payload: Json::parse("payload", PAYLOAD).unwrap(),
        metadata: Json::parse("metadata", r#"{"source":"shop"}"#).unwrap(),
        occurred_at: Timestamp::from_microsecond(1_767_225_600_500_000).unwrap(),
        recorded_at: Timestamp::from_second(1_767_225_601).unwrap(),
        to: None,
    }
}

fn evaluate(expression: &str) -> Result<Option<String>, Failure> {
    let event = event();
    let params = Json::parse("params", r#"{"topic":"order.paid","min":100,"topics":["order.paid","a"]}"#).unwrap();
    let subscription = SubscriptionView::new(Uuid::nil(), "billing", &params);
    let parsed = Expression::parse(expression).unwrap_or_else(|refusal| panic!("{expression}: {refusal}"));
    parsed.text(&EventView::new(&event), &subscription)
}

#[track_caller]
fn gives(cases: &[(&str, &str)]) {
    for (expression, expected) in cases {
        assert_eq!(evaluate(expression).as_ref().map(|text| text.as_deref()), Ok(Some(*expected)), "{expression}");
    }
}

#[track_caller]
fn is_null(expressions: &[&str]) {
    for expression in expressions {
        assert_eq!(evaluate(expression), Ok(None), "{expression}");
    }
}

#[track_caller]
fn refused(cases: &[(&str, &str)]) {
    for (source, word) in cases {
        let refusal = Condition::parse(source).map(|_| ()).expect_err(source);
        assert_eq!(refusal.field, "where", "{source}");
        assert!(refusal.reason.contains(word), "{source}: {} does not say {word}", refusal.reason);
    }
}

#[test]
fn columns_are_those_of_the_event_and_the_subscription() {
    gives(&[
        ("e.topic", "order.paid"),
        ("E.Topic", "order.paid"),
        ("e.\"object\"", "order:1"),
        ("e.seq", "42"),
        ("e.id", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("e.occurred_at", "2026-01-01 00:00:00.5+00"),
        ("e.recorded_at", "2026-01-01 00:00:01+00"),
        ("e.metadata", "{\"source\": \"shop\"}"),
        ("s.id", "00000000-0000-0000-0000-000000000000"),
        ("s.group_id", "billing"),
        ("s.params->>'min'", "100"),
    ]);
}

#[test]
fn logic_has_three_values() {
    gives(&[
        ("false AND NULL", "false"),
        ("true OR NULL", "true"),
        ("NOT false", "true"),
        ("NULL IS NULL", "true"),
        ("(NULL AND true) IS UNKNOWN", "true"),
        ("e.object IS NOT NULL", "true"),
        ("(e.seq = NULL) IS NOT TRUE", "true"),
        ("NULL IS NOT DISTINCT FROM NULL", "true"),
        ("e.topic IS DISTINCT FROM NULL", "true"),
    ]);
    is_null(&["NULL AND true", "NULL OR false", "NOT NULL", "e.seq = NULL", "1 IN (2, NULL)", "NULL BETWEEN 1 AND 2"]);
}

#[test]
fn comparisons_follow_the_types() {
    gives(&[
        ("e.seq = 42", "true"),
        ("e.seq > 41.9", "true"),
        ("e.seq <> 42::float8", "false"),
        ("e.topic < 'order.q'", "true"),
        ("'B' < 'a'", "true"),
        ("e.occurred_at < e.recorded_at", "true"),
        ("e.occurred_at >= '2026-01-01'", "true"),
        ("e.id = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "true"),
        ("e.payload->'total' = '120.5'", "true"),
        ("e.seq BETWEEN 42 AND 43", "true"),
        ("e.seq NOT BETWEEN 1 AND 41", "true"),
        ("e.topic IN ('a', 'order.paid')", "true"),
        ("e.seq NOT IN (1, 2.5)", "true"),
        ("9007199254740993 IN (9007199254740992, 0.5::float8)", "true"),
        ("9007199254740993 IN (9007199254740992)", "false"),
        ("e.topic = ANY (ARRAY['a', 'order.paid'])", "true"),
        ("e.seq = ANY ('{41,42}')", "true"),
        ("e.seq > ALL (ARRAY[1, 2])", "true"),
    ]);
}

#[test]
fn jsonb_operators_find_and_contain() {
    gives(&[
        ("e.payload->'items'->0->>'sku'", "a"),
        ("e.payload->'items'->-1", "{\"sku\": \"b\"}"),
        ("e.payload#>'{deep,er}'", "{\"est\": true}"),
        ("e.payload#>>'{items,1,sku}'", "b"),
        ("e.payload->>'total'", "120.50"),
        ("e.payload @> '{\"total\": 120.5}'", "true"),
        ("'{\"n\": \"7\"}' <@ e.payload", "true"),
        ("e.payload->'tags' ? 'x'", "true"),
        ("e.payload ?| ARRAY['zzz', 'n']", "true"),
        ("e.payload ?& '{n,zzz}'", "false"),
        ("s.params->'topics' ? e.topic", "true"),
        ("s.params @> jsonb_build_object('topic', e.topic)", "true"),
        ("to_jsonb(ARRAY[1, 2]) @> to_jsonb(ARRAY[2])", "true"),
        ("e.metadata || '{\"a\": 1}'", "{\"a\": 1, \"source\": \"shop\"}"),
        ("e.payload->'tags' || '[1]'", "[\"x\", \"y\", 1]"),
        ("jsonb_build_object('b', 1.50, 'a', e.object)", "{\"a\": \"order:1\", \"b\": 1.50}"),
        ("jsonb_build_array(e.object, NULL, 1.50, ARRAY[true])", "[\"order:1\", null, 1.50, [true]]"),
        ("jsonb_build_array()", "[]"),
        ("jsonb_typeof(e.payload->'none')", "null"),
        ("jsonb_array_length(e.payload->'items')", "2"),
        ("to_jsonb(e.occurred_at)", "\"2026-01-01T00:00:00.5+00:00\""),
    ]);
    is_null(&["e.payload->'zzz'", "e.payload->>'none'", "e.payload->'total'->'x'", "e.payload#>'{items,9}'"]);
}

#[test]
fn texts_are_matched_joined_and_measured() {
    gives(&[
        ("e.topic LIKE 'order.%'", "true"),
        ("e.topic ILIKE 'ORDER._aid'", "true"),
        ("e.topic NOT LIKE '%!%%' ESCAPE '!'", "true"),
        ("e.topic || '/' || e.seq", "order.paid/42"),
        ("lower(e.payload->>'name')", "Ädam"),
        ("upper('straße')", "STRAßE"),
        ("length(e.payload->>'name')", "4"),
        ("starts_with(e.object, 'order:')", "true"),
        ("hashtext('abc')", "-785388649"),
        ("$$it's$$ || 'it''s'", "it'sit's"),
        ("'--' || '/* no comment */'", "--/* no comment */"),
        ("e.topic /* a comment */ -- another\n", "order.paid"),
    ]);
}

#[test]
fn numbers_are_exact() {
    gives(&[
        ("(e.payload->>'n')::numeric * 1.10", "7.70"),
        ("(e.payload->'total')::numeric / 3", "40.1666666666666667"),
        ("7 / 2", "3"),
        ("-7 % 2", "-1"),
        ("1 / 3.0", "0.33333333333333333333"),
        ("(e.payload->'big')::numeric + 1", "12345678901234567891"),
        ("-2147483648", "-2147483648"),
        ("e.seq=-42", "false"),
        ("e.seq>=-42 AND e.seq<>-42 AND e.seq<+43", "true"),
        ("2*-3", "-6"),
        ("2+-3", "-1"),
        ("2- -3", "5"),
        ("abs(-5.50)", "5.50"),
        ("1e3::numeric", "1000"),
        ("2.5::int", "3"),
        ("2.5::float8::int", "2"),
        ("0.1::float8 + 0.2::float8", "0.30000000000000004"),
        ("10.255::numeric(5,2)", "10.26"),
        ("CAST('12' AS bigint) + 1", "13"),
        ("hashtext(e.object) % 4 IN (-3, -2, -1, 0, 1, 2, 3)", "true"),
    ]);
}

#[test]
fn case_and_coalesce_choose() {
    gives(&[
        ("CASE WHEN e.payload->>'bad' LIKE '%[0-9]%' THEN (e.payload->>'bad')::int ELSE 0 END", "0"),
        ("CASE e.topic WHEN 'a' THEN 1 WHEN 'order.paid' THEN 2 END", "2"),
        ("COALESCE(e.payload->>'zzz', 'nothing')", "nothing"),
        ("COALESCE(NULL, 1, 2.5)", "1"),
    ]);
    is_null(&["CASE WHEN false THEN 1 END", "COALESCE(NULL, NULL)"]);
}

#[test]
fn what_fails_in_postgres_is_a_failure_here() {
    for expression in [
        "(e.payload->>'bad')::int",
        "e.seq / 0",
        "e.seq % 0",
        "(e.seq * 100000000)::int",
        "e.seq * 9223372036854775807",
        "(e.payload->'n')::int",
        "(e.payload->'none')::numeric",
        "jsonb_array_length(e.payload)",
        "jsonb_build_object(e.payload->>'zzz', 1)",
        "(e.topic)::timestamptz",
        "(e.topic)::uuid",
        "(e.topic)::jsonb",
        "(e.seq::numeric * 1000)::numeric(3,1)",
        "e.topic LIKE 'order.paid\\' || e.object",
    ] {
        match expression {
            // The pattern is longer than the text, so its end is never reached: no failure, as in Postgres.
            "e.topic LIKE 'order.paid\\' || e.object" => assert_eq!(evaluate(expression), Ok(Some("false".into()))),
            _ => assert!(evaluate(expression).is_err(), "{expression}: {:?}", evaluate(expression)),
        }
    }
}

#[test]
fn null_does_not_match() {
    let (event, params) = (event(), Json::empty_object());
    let subscription = SubscriptionView::new(Uuid::nil(), "g", &params);
    let matches = |source: &str| Condition::parse(source).unwrap().matches(&EventView::new(&event), &subscription);
    assert_eq!(matches("e.payload->>'zzz' = 'a'"), Ok(false));
    assert_eq!(matches("'yes'"), Ok(true));
    assert_eq!(matches("NULL"), Ok(false));
}

#[test]
fn what_is_not_in_the_language_is_named() {
    refused(&include!("conditions_refused/language.in"));
}

#[test]
fn types_that_do_not_meet_are_refused_with_a_hint() {
    refused(&include!("conditions_refused/types.in"));
}

#[test]
fn size_depth_and_number_of_parts_are_bounded() {
    let nested = |open: &str, close: &str, times: usize| format!("{}true{}", open.repeat(times), close.repeat(times));
    assert!(Condition::parse(&nested("(", ")", 20)).is_ok());
    for source in [
        nested("(", ")", 1_500),
        nested("NOT ", "", 3_000),
        format!("{}1 = 1", "- ".repeat(3_000)),
        format!("{}true{}", "CASE WHEN ".repeat(500), " THEN true END".repeat(500)),
        format!("'a'{} = 'a'", " || 'a'".repeat(1_000)),
        format!("e.payload{} IS NULL", "->'a'".repeat(1_000)),
        nested("((NOT", "))", DEPTH_MAX),
        nested("lower(", ")", 200),
        nested("ARRAY[", "]", 200),
    ] {
        let refusal = Condition::parse(&source).map(|_| ()).expect_err(&source[..60]);
        assert!(refusal.reason.contains("deep"), "{}: {refusal}", &source[..60]);
    }
    refused(&[
        (&"x".repeat(1 << 20), "bytes"),
        (&nested("(", ")", 5_000), "words and signs"),
        (&format!("'{}' = ''", "x".repeat(SOURCE_BYTES_MAX)), "bytes"),
        (&format!("e.seq IN ({}1)", "1,".repeat(TOKENS_MAX / 2)), "words and signs"),
    ]);
    // A long chain is one level, not many.
    let chain = vec!["e.seq=1"; 600].join(" OR ");
    assert!(Condition::parse(&chain).is_ok());
    let chain = vec!["true"; 1_500].join(" AND ");
    assert!(Condition::parse(&chain).is_ok());
}

#[test]
fn a_condition_that_costs_too_much_is_stopped() {
    let mut event = event();
    let text = "a".repeat(600_000);
    event.payload = Json::parse("payload", format!("{{\"t\":\"{text}\"}}")).unwrap();
    let params = Json::empty_object();
    let subscription = SubscriptionView::new(Uuid::nil(), "g", &params);
    let matches = |source: &str| Condition::parse(source).unwrap().matches(&EventView::new(&event), &subscription);
    assert_eq!(matches("e.payload->>'t' LIKE '%b%'"), Ok(false));
    let hostile = format!("e.payload->>'t' LIKE '%{}b'", "a".repeat(5_000));
    assert!(matches!(matches(&hostile), Err(Failure::TooCostly(_))));
    let copies = vec!["(e.payload->>'t')"; 30].join(" || ");
    assert!(matches!(matches(&format!("{copies} = ''")), Err(Failure::TooLarge(_))));
    let many = vec!["lower(e.payload->>'t') = 'x'"; 300].join(" OR ");
    assert!(matches!(matches(&many), Err(Failure::TooCostly(_))));
}
