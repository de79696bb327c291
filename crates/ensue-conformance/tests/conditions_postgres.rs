//! Conditions mean what they mean in Postgres: random expressions on random events, evaluated by both.
//!
//! Values are compared, not only truths. Errors are compared where CASE alone decides what is evaluated: elsewhere
//! Postgres may evaluate a part that we pass over. `ENSUE_CONDITIONS` multiplies the number of expressions.

use ensue_conformance::conditions::{Expressions, Order, SampleRow, rows};
use ensue_conformance::postgres::shared_url;
use ensue_core::condition::{EventView, Expression, SubscriptionView};
use tokio_postgres::{Client, NoTls};

/// Rows that every expression is tried on.
const ROWS: usize = 8;
/// Expressions per round trip.
const BATCH: usize = 250;
/// Batches per order; with eight rows each, 40,000 cases in all.
const BATCHES: usize = 10;

/// What one side said about one row.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    Value(Option<String>),
    Failed(String),
}

/// Tries the expression on all rows at once, and row by row only if that fails.
const FUNCTION: &str = "
CREATE FUNCTION pg_temp.tried(expression text, OUT failed bool[], OUT said text[]) LANGUAGE plpgsql AS $$
DECLARE one text;
BEGIN
    BEGIN
        EXECUTE 'SELECT array_agg(false ORDER BY e.n), array_agg((' || expression || ')::text ORDER BY e.n)
                 FROM pg_temp.event e JOIN pg_temp.subscription s ON s.n = e.n' INTO failed, said;
        RETURN;
    EXCEPTION WHEN OTHERS THEN
        failed := '{}';
        said := '{}';
    END;
    FOR i IN 1..(SELECT count(*) FROM pg_temp.event) LOOP
        BEGIN
            EXECUTE 'SELECT (' || expression || ')::text
                     FROM pg_temp.event e JOIN pg_temp.subscription s ON s.n = e.n WHERE e.n = $1' INTO one USING i;
            failed := failed || false;
            said := said || one;
        EXCEPTION WHEN OTHERS THEN
            failed := failed || true;
            said := said || (sqlstate || ' ' || sqlerrm);
        END;
    END LOOP;
END $$";

async fn connect() -> Client {
    let (client, connection) = tokio_postgres::connect(&shared_url(), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client.batch_execute("SET timezone = 'UTC'; SET jit = off").await.expect("settings");
    client
}

async fn prepare(client: &Client, rows: &[SampleRow]) {
    let tables = "
        CREATE TEMP TABLE event (n int PRIMARY KEY, topic text, object text, payload jsonb, metadata jsonb, seq bigint,
                                 id uuid, occurred_at timestamptz, recorded_at timestamptz);
        CREATE TEMP TABLE subscription (n int PRIMARY KEY, id uuid, group_id text, params jsonb)";
    client.batch_execute(tables).await.expect("tables");
    client.batch_execute(FUNCTION).await.expect("the function");
    for (index, row) in rows.iter().enumerate() {
        let n = i32::try_from(index + 1).expect("few rows");
        let event = &row.event;
        let values = [
            n.to_string(),
            event.topic.to_string(),
            event.payload.as_str().into(),
            event.metadata.as_str().into(),
            event.seq.to_string(),
            event.id.to_string(),
            event.occurred_at.to_string(),
            event.recorded_at.to_string(),
            row.subscription.to_string(),
            row.group.clone(),
            row.params.as_str().into(),
        ];
        let object = event.object.as_ref().map(|object| object.as_str().to_owned());
        let mut texts: Vec<Option<String>> = values.into_iter().map(Some).collect();
        texts.push(object);
        let insert = "
            WITH v AS (SELECT $1::text[] AS t),
                 s AS (INSERT INTO subscription SELECT t[1]::int, t[9]::uuid, t[10], t[11]::jsonb FROM v)
            INSERT INTO event SELECT t[1]::int, t[2], t[12], t[3]::jsonb, t[4]::jsonb, t[5]::bigint, t[6]::uuid,
                                     t[7]::timestamptz, t[8]::timestamptz FROM v";
        client.execute(insert, &[&texts]).await.expect("a row");
    }
    client.batch_execute("ANALYZE event; ANALYZE subscription").await.expect("statistics");
}

/// What Postgres says about each expression on each row.
async fn postgres(client: &Client, expressions: &[String]) -> Vec<Vec<Said>> {
    let query = "SELECT t.failed, t.said FROM unnest($1::text[]) WITH ORDINALITY AS x (expression, n),
                 LATERAL pg_temp.tried(x.expression) t ORDER BY x.n";
    let rows = client.query(query, &[&expressions]).await.expect("the expressions are tried");
    let said = |row: &tokio_postgres::Row| {
        let (failed, said): (Vec<bool>, Vec<Option<String>>) = (row.get(0), row.get(1));
        let one = |(failed, said): (bool, Option<String>)| {
            if failed { Said::Failed(said.unwrap_or_default()) } else { Said::Value(said) }
        };
        failed.into_iter().zip(said).map(one).collect()
    };
    rows.iter().map(said).collect()
}

/// What we say about an expression on each row; none if we refuse it.
fn ours(expression: &str, rows: &[SampleRow]) -> Result<Vec<Said>, String> {
    let parsed = Expression::parse(expression).map_err(|refusal| refusal.to_string())?;
    let one = |row: &SampleRow| {
        let event = EventView::new(&row.event);
        let subscription = SubscriptionView::new(row.subscription, &row.group, &row.params);
        match parsed.text(&event, &subscription) {
            Ok(text) => Said::Value(text),
            Err(failure) => Said::Failed(failure.to_string()),
        }
    };
    Ok(rows.iter().map(one).collect())
}

/// May one side fail where the other does not? Postgres evaluates constants ahead, and parts whose value cannot matter not
/// at all.
fn order_is_open(order: Order, expression: &str) -> bool {
    let lazy = [" AND ", " OR ", " IN ", "BETWEEN", "ANY", "ALL", "SOME", "COALESCE", "CASE"];
    order == Order::Open && lazy.iter().any(|word| expression.contains(word))
}

/// Postgres reads many more texts as times than the ISO forms.
fn reads_no_such_time(ours: &Said) -> bool {
    matches!(ours, Said::Failed(message) if message.contains("cannot be read as timestamptz"))
}

/// From Postgres 18 on a jsonb null that is cast is NULL; before, and with us on every engine, it fails.
fn casts_null(server_version: i32, ours: &Said) -> bool {
    server_version >= 18
        && matches!(ours, Said::Failed(message) if message.starts_with("a jsonb null cannot be cast to"))
}

/// The SQL states of what Postgres refuses before it runs anything: syntax, unknown operators, types that do not meet.
fn refused_by_postgres(said: &Said) -> bool {
    matches!(said, Said::Failed(message) if message.starts_with("42"))
}

#[derive(Default)]
struct Tally {
    cases: usize,
    values: usize,
    failures: usize,
    refusals: usize,
    differences: Vec<String>,
}

fn judge(tally: &mut Tally, server_version: i32, order: Order, expression: &str, rows: &[SampleRow], theirs: &[Said]) {
    let ours = match ours(expression, rows) {
        Ok(ours) => ours,
        Err(refusal) => {
            tally.refusals += 1;
            if let Some(row) = theirs.iter().position(|said| matches!(said, Said::Value(_))) {
                tally.differences.push(format!("{expression}\n  refused: {refusal}\n  Postgres: {:?}", theirs[row]));
            }
            return;
        }
    };
    for (row, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        tally.cases += 1;
        let agree = match (ours, theirs) {
            (Said::Value(ours), Said::Value(theirs)) => {
                tally.values += 1;
                ours == theirs
            }
            (Said::Failed(_), Said::Failed(_)) => {
                tally.failures += 1;
                !refused_by_postgres(theirs)
            }
            (Said::Failed(_), Said::Value(_)) => {
                order_is_open(order, expression) || reads_no_such_time(ours) || casts_null(server_version, ours)
            }
            (Said::Value(_), Said::Failed(_)) => order == Order::Open && !refused_by_postgres(theirs),
        };
        if !agree {
            let row = &rows[row];
            tally.differences.push(format!(
                "{expression}\n  ours: {ours:?}\n  Postgres: {theirs:?}\n  event: {:?}\n  params: {:?}",
                row.event, row.params
            ));
            return;
        }
    }
}

async fn compare(order: Order, seed: u64) -> Tally {
    let client = connect().await;
    let ask = "SELECT current_setting('server_version_num')::int / 10000";
    let server_version: i32 = client.query_one(ask, &[]).await.expect("its version").get(0);
    let rows = rows(seed, ROWS);
    prepare(&client, &rows).await;
    let factor: usize = std::env::var("ENSUE_CONDITIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut source = Expressions::new(seed, order);
    let mut tally = Tally::default();
    for _ in 0..BATCHES * factor {
        let expressions: Vec<String> = (0..BATCH).map(|_| source.next_expression()).collect();
        let theirs = postgres(&client, &expressions).await;
        for (expression, theirs) in expressions.iter().zip(&theirs) {
            judge(&mut tally, server_version, order, expression, &rows, theirs);
        }
    }
    tally
}

fn seed() -> u64 {
    std::env::var("ENSUE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

fn assert_agreement(tally: &Tally) {
    println!(
        "{} cases: {} values, {} failures on both sides; {} expressions refused; {} differences",
        tally.cases,
        tally.values,
        tally.failures,
        tally.refusals,
        tally.differences.len()
    );
    let shown = tally.differences.iter().take(12).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(tally.differences.is_empty(), "{} differences:\n{shown}", tally.differences.len());
    assert!(tally.cases >= 12_000, "too few cases: {}", tally.cases);
}

#[tokio::test]
async fn values_are_those_of_postgres() {
    assert_agreement(&compare(Order::Open, seed()).await);
}

#[tokio::test]
async fn values_and_failures_are_those_of_postgres_where_case_forces_the_order() {
    assert_agreement(&compare(Order::Forced, seed()).await);
}
