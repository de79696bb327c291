//! A condition that comes over SQL is let in if it is one, and is executed as a text that was written anew (S1).

use crate::support::sql::{log, rand_id, refusal};
use ensue_conformance::conditions::{Expressions, Order, rows};
use ensue_core::condition::{Condition, EventView, SubscriptionView};
use tokio_postgres::error::SqlState;

const PAGE: &str = include_str!("../../../../docs/conditions.md");

/// The lines of all code blocks of one kind.
fn blocks(kind: &str) -> Vec<&'static str> {
    let (mut lines, mut inside) = (Vec::new(), false);
    for line in PAGE.lines() {
        match line.strip_prefix("```") {
            Some(opened) => inside = !inside && opened == kind,
            None if inside => lines.push(line),
            None => {}
        }
    }
    lines
}

/// What the page says is accepted, and what it says is refused.
fn page() -> (Vec<String>, Vec<String>) {
    let (mut accepted, mut refused): (Vec<String>, _) =
        (blocks("sql").into_iter().map(Into::into).collect(), Vec::new());
    for line in blocks("text") {
        match line.split_once(' ').expect("a word and a condition") {
            ("refused", rest) => refused.push(rest.split_once("--").expect("a reason").0.trim().into()),
            (_, rest) => accepted.push(rest.trim().into()),
        }
    }
    (accepted, refused)
}

/// Beyond what is refused in process: everything that could lead out of an expression.
const TRICKS: &[&str] = &[
    "true) OR (true",
    "(true",
    "true]",
    "true UNION SELECT true",
    "true -- c\n; DROP TABLE x",
    "true /* ; */ ; DROP TABLE x",
    "true /* or false",
    "true /* /* */ */",
    "e.topic = $x$a$x$",
    "e.topic = U&'a'",
    "e.topic = x'41'",
    "e.topic = N'a'",
    "e.topic = 'a' 'b'",
    "e.topic = 'a\\'; DROP TABLE x; --'",
    "pg_catalog.pg_sleep(1) IS NULL",
    "\"pg_sleep\"(1) IS NULL",
    "e.*::text = ''",
    "e.topic.x = 'a'",
    "(e).topic = 'a'",
    "e.topic(1) = 'a'",
    "current_setting('x') = 'a'",
    "set_config('role', 'x', true) = 'a'",
    "lower((SELECT 'a')) = 'a'",
    "e.topic = ANY (SELECT 'a')",
    "array(SELECT 1) = ARRAY[1]",
    "(1, 2) = (1, 2)",
    "true LIMIT 1",
    "true FROM events",
    "true AS e",
    "DISTINCT true",
    "true::\"bool\"",
    "true::pg_catalog.bool",
    "e.topic::regclass IS NULL",
    "e.topic::regproc IS NULL",
    "NULL::events IS NULL",
    "e.prev = 1",
    "e.to_subscription IS NULL",
    "s.topic IS NULL",
    "s.condition IS NULL",
    "numeric(5) = 1",
    "text(e.seq) = '1'",
    "upper(e.topic) OPERATOR(pg_catalog.=) 'a'",
    "lower(VARIADIC ARRAY['a']) = 'a'",
    "e.occurred_at AT TIME ZONE 'UTC' IS NULL",
    "extract(epoch from e.occurred_at) > 1",
    "e.payload @@ '$.a'",
    "e.payload @? '$.a'",
    "e.payload #- '{a}' = '1'",
    "e.topic ~~ 'a'",
    "e.topic = ?",
    "e.topic = :name",
    "e.seq = 'a'::bytea",
    "e.topic =",
    "CASE",
    "END",
    "lower('a'",
    "ARRAY[1",
    "1",
    "'a'",
    "\u{a0}true\u{2028};",
    "größe = 1",
];

/// Postgres understands these, where the parser in process does not: times that depend on the clock, and a key that is no text.
const UNDERSTOOD_BY_POSTGRES: &[&str] =
    &["e.occurred_at > 'now'", "jsonb_build_object(e.payload, 1) @> '{}'", "ARRAY[1,2] @> ARRAY[2]"];

fn too_much() -> Vec<String> {
    let nested = |open: &str, close: &str, times: usize| format!("{}true{}", open.repeat(times), close.repeat(times));
    vec![
        nested("(", ")", 1_500),
        nested("NOT ", "", 3_000),
        format!("{}1 = 1", "- ".repeat(3_000)),
        format!("{}true{}", "CASE WHEN ".repeat(500), " THEN true END".repeat(500)),
        format!("'a'{} = 'a'", " || 'a'".repeat(1_000)),
        format!("e.payload{} IS NULL", "->'a'".repeat(1_000)),
        nested("lower(", ")", 200),
        nested("ARRAY[", "]", 200),
        nested("(", ")", 5_000),
        "x".repeat(1 << 20),
        format!("'{}' = ''", "x".repeat(16 << 10)),
        format!("e.seq IN ({}1)", "1,".repeat(2_000)),
    ]
}

#[tokio::test]
async fn what_the_page_lists_is_let_in_and_everything_else_is_refused_with_the_part_that_is_wrong() {
    let log = log().await;
    let subscribe = format!("SELECT {}.subscribe('g', $1)", log.schema);
    let (accepted, mut refused) = page();
    let long = [vec!["e.seq=1"; 600].join(" OR "), vec!["true"; 1_500].join(" AND ")];
    let odd =
        ["e.topic /* a comment */ = 'a' -- another\n", "\"e\".\"topic\" = $$it's \\ $$", "e.seq>=-42 AND e.seq<>-42"];
    for condition in accepted.iter().map(String::as_str).chain(long.iter().map(String::as_str)).chain(odd) {
        let made = log.admin.query(&subscribe, &[&condition]).await;
        made.unwrap_or_else(|error| panic!("{condition:.200}: {:?}", refusal(&error)));
    }
    assert!(accepted.len() > 25 && refused.len() > 10, "the examples were not found");
    let made = log.number("SELECT count(*) FROM LOG.subscriptions").await;

    let language: &[(&str, &str)] = &include!("../../../ensue-core/tests/conditions_refused/language.in");
    let types: &[(&str, &str)] = &include!("../../../ensue-core/tests/conditions_refused/types.in");
    let known = language.iter().chain(types).map(|(condition, _)| *condition);
    refused.extend(known.chain(TRICKS.iter().copied()).map(str::to_string));
    refused.extend(too_much());
    // A zero byte does not come as far as this.
    refused.retain(|condition| !condition.contains('\0') && !UNDERSTOOD_BY_POSTGRES.contains(&condition.as_str()));
    for condition in &refused {
        let told = match log.admin.query(&subscribe, &[condition]).await {
            Ok(_) => panic!("let in: {condition:.200}"),
            Err(error) => refusal(&error),
        };
        assert_eq!(told.state, SqlState::INVALID_PARAMETER_VALUE, "{condition:.200}: {told:?}");
        assert!(told.text.contains("conditions_sql") && told.text.len() < 1_000, "{condition:.200}: {told:?}");
    }
    for (condition, part) in [
        ("e.tpoic = 'a'", "`e.tpoic`: there is no such column; there are e.topic"),
        ("topic = 'a'", "`topic`: write e.topic"),
        ("pg_sleep(1) IS NULL", "`pg_sleep`: there is no such function here; there are coalesce, lower"),
        ("true; DROP TABLE x", "`;`: a condition is one expression"),
        ("e.topic = \"a\"", "single quotes"),
        ("e.seq::oid = 1", "`oid`: there is no such type here; there are text, integer"),
        ("e.topic ~ 'a'", "no operator ~ in conditions; use LIKE"),
    ] {
        let error = log.admin.query(&subscribe, &[&condition]).await.unwrap_err();
        assert!(refusal(&error).text.contains(part), "{condition}: {:?}", refusal(&error));
    }
    assert_eq!(log.number("SELECT count(*) FROM LOG.subscriptions").await, made, "what is refused leaves nothing");
}

/// Random conditions on random events, as the parser in process reads them, and as Postgres does what is written anew.
#[tokio::test]
async fn a_condition_means_over_sql_what_it_means_in_process() {
    let log = log().await;
    let rows = rows(7, 8);
    let events: Vec<String> = rows.iter().map(|row| row.event.seq.to_string()).collect();
    assert_eq!(events.len(), 8);
    let evaluate = format!(
        "SELECT r.o_seqs, r.o_failed_seqs FROM {0}.condition_evaluate({0}.condition_sql($1), \
         ARRAY[ROW($2::bigint, NULL, $3::text::uuid, $4::text, $5::text, $6::text::jsonb, $7::text::jsonb, $8::text::timestamptz, \
         $9::text::timestamptz, NULL)::{0}.condition_event], \
         ARRAY[ROW($10::text::uuid, $11::text, $12::text::jsonb, NULL, NULL)::{0}.condition_subscription]) r",
        log.schema
    );
    let evaluate = log.admin.prepare(&evaluate).await.unwrap();
    let (mut compared, mut differences) = (0, Vec::new());
    for order in [Order::Open, Order::Forced] {
        let mut source = Expressions::new(11, order);
        for _ in 0..300 {
            let condition = format!("({}) IS NOT NULL", source.next_expression());
            let Ok(parsed) = Condition::parse(&condition) else { continue };
            for row in &rows {
                let event = &row.event;
                let ours = parsed
                    .matches(&EventView::new(event), &SubscriptionView::new(row.subscription, &row.group, &row.params));
                let object = event.object.as_ref().map(|object| object.as_str().to_string());
                let (seq, id, topic) = (event.seq as i64, event.id.to_string(), event.topic.to_string());
                let (occurred_at, recorded_at) = (event.occurred_at.to_string(), event.recorded_at.to_string());
                let (payload, metadata) = (event.payload.as_str(), event.metadata.as_str());
                let (subscription, params) = (row.subscription.to_string(), row.params.as_str());
                let said = log
                    .admin
                    .query_one(
                        &evaluate,
                        &[
                            &condition,
                            &seq,
                            &id,
                            &topic,
                            &object,
                            &payload,
                            &metadata,
                            &occurred_at,
                            &recorded_at,
                            &subscription,
                            &row.group,
                            &params,
                        ],
                    )
                    .await
                    .unwrap_or_else(|error| panic!("{condition}: {:?}", refusal(&error)));
                let matched = said.get::<_, Option<Vec<i64>>>(0).is_some_and(|seqs| !seqs.is_empty());
                let failed = said.get::<_, Option<Vec<i64>>>(1).is_some_and(|seqs| !seqs.is_empty());
                // What fails may be passed over by one of the two where the order is open.
                if let (Ok(ours), false) = (&ours, failed) {
                    compared += 1;
                    if *ours != matched {
                        differences.push(format!("{condition} on {event:?}: in process {ours}, over SQL {matched}"));
                    }
                }
            }
        }
    }
    assert!(compared > 1_000, "only {compared} were compared");
    assert!(differences.is_empty(), "{} of {compared}: {}", differences.len(), differences[0]);
}

/// Whatever the collation of the database, texts are compared by bytes: here in one whose own order is that of a language.
#[tokio::test]
async fn texts_are_compared_by_bytes_whatever_the_collation_of_the_database() {
    let log = log().await;
    let name = format!("d{}", rand_id().simple());
    let made = format!(
        "CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'de-DE' LOCALE 'C' ENCODING UTF8"
    );
    if let Err(error) = log.admin.batch_execute(&made).await {
        // Postgres 14, and one that was built without ICU, have no such databases.
        println!("not tried: {:?}", refusal(&error));
        return;
    }
    let url = ensue_conformance::postgres::shared_url();
    let (server, _) = url.rsplit_once('/').unwrap();
    let elsewhere = crate::support::Log::in_database(&format!("{server}/{name}")).await;
    elsewhere.open().await.close().await;
    assert_eq!(elsewhere.number("SELECT ('B' < 'a')::int::bigint").await, 0, "the database has an order of its own");
    for (condition, wanted) in [
        ("e.payload->>'B' < 'a'", true),
        ("e.payload->'list'->>0 < 'a'", true),
        ("e.payload#>>'{B}' < 'a'", true),
        ("e.payload#>>ARRAY['B'] < 'a'", true),
        ("(e.payload->'B')::text < 'a'", true),
        ("e.topic < 'a'", true),
        ("lower(e.payload->>'ae') = e.payload->>'ae'", true),
        ("lower('ÄB') = 'Äb'", true),
        ("e.payload->>'ae' ILIKE 'ä'", false),
        ("e.payload->>(e.payload->>'key') < 'a'", true),
        ("COALESCE(e.payload->>'none', e.payload->>'B') < 'a'", true),
        ("CASE WHEN e.seq = 1 THEN e.payload->>'B' ELSE 'x' END < 'a'", true),
        ("e.payload->>'B' || 'x' < 'a'", true),
        ("s.group_id > 'B'", true),
    ] {
        elsewhere.run("DELETE FROM LOG.stored_events").await;
        let id = elsewhere.subscribe(&format!("'a.g', $c${condition}$c$")).await;
        let payload = r#"{"B": "B", "list": ["B"], "ae": "Ä", "key": "B"}"#;
        elsewhere.put(&format!("SELECT 1, 'B.t', '{payload}'::jsonb")).await;
        let read = elsewhere.read("'a.g', 0, peek => true").await;
        assert_eq!(read.len() == 1, wanted, "{condition}");
        elsewhere.admin.query(&format!("SELECT {}.unsubscribe($1)", elsewhere.schema), &[&id]).await.unwrap();
    }
}
