//! How fast do consumers over SQL find who wants an event, beside PGMB's way in the same Postgres?
//!
//! PGMB's own test: 10,000 events, and 4,000 subscriptions with four conditions, each of which wants
//! ten of them. Its way is written down here from its document: a table of subscriptions with a GIN
//! index on `params`, one statement that joins the events with them by all conditions, and reads of what
//! that has found. Ours is what consumers call: `subscribe`, `read_next_events`, `set_group_cursor`.

use super::database::{connect, drop_schemas, new_schema};
use super::report::{Report, Target};
use super::rounds::Rates;
use anyhow::{Context, ensure};
use ensue::{Address, Ensue};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// How many conditions there are, and how many subscriptions have each.
const CONDITIONS: u64 = 4;
const EACH: u64 = 1_000;
/// How many events are matched, and how many where the GIN index is of no use: PGMB evaluates 4,000 for each of them.
const EVENTS: u64 = 10_000;
const EVENTS_WITHOUT_INDEX: u64 = 500;
const ROUNDS: u64 = 3;
/// How many events one read answers, and in how many parts they are published.
const CHUNK: u64 = 1_000;

/// One way to say which events are wanted. `N` stands for the number of the condition.
struct Form {
    name: &'static str,
    condition: &'static str,
    /// The params of subscription `n`, in SQL.
    params: &'static str,
    events: u64,
}

const FORMS: [Form; 4] = [
    Form {
        name: "one topic, by @>",
        condition: "s.params @> jsonb_build_object('keyN', e.payload->>'key')",
        params: "jsonb_build_object('keyN', n::text)",
        events: EVENTS,
    },
    Form {
        name: "several topics, by @>",
        condition: "s.params @> jsonb_build_object('keysN', jsonb_build_array(e.payload->>'key'))",
        params: "jsonb_build_object('keysN', jsonb_build_array(n::text, 'other' || n, 'all'))",
        events: EVENTS,
    },
    Form {
        name: "one topic, by =",
        condition: "e.payload->>'key' = s.params->>'keyN'",
        params: "jsonb_build_object('keyN', n::text)",
        events: EVENTS_WITHOUT_INDEX,
    },
    Form {
        name: "several topics, by ?",
        condition: "s.params->'keysN' ? (e.payload->>'key')",
        params: "jsonb_build_object('keysN', jsonb_build_array(n::text, 'other' || n, 'all'))",
        events: EVENTS_WITHOUT_INDEX,
    },
];

impl Form {
    fn conditions(&self) -> impl Iterator<Item = (String, String)> {
        (0..CONDITIONS).map(|number| {
            let numbered = |text: &str| text.replace('N', &number.to_string());
            (numbered(self.condition), numbered(self.params))
        })
    }
}

/// Measures in schemas of its own, which are dropped afterwards.
pub async fn run(address: &Address) -> anyhow::Result<Report> {
    let schema = new_schema();
    let client = connect(&address.without_schema()).await?;
    let report = measure(address, &schema, &client).await;
    drop_schemas(&client, &[format!("{schema}_raw"), schema]).await?;
    report
}

async fn measure(address: &Address, schema: &str, client: &Client) -> anyhow::Result<Report> {
    let raw = format!("{schema}_raw");
    client.batch_execute(&TABLES.replace("RAW", &raw)).await.context("cannot make a schema")?;
    // It makes the schema; nothing of it runs while consumers read.
    Ensue::open(&address.with_schema(schema)).await?.close().await;
    let mut report = Report::new("Readers over SQL, beside PGMB's way in the same Postgres");
    for (number, form) in FORMS.iter().enumerate() {
        let (mut theirs, mut ours) = (Rates::default(), Rates::default());
        let (mut made_theirs, mut made_ours) = (Rates::default(), Rates::default());
        for round in 0..ROUNDS {
            let (made, read) = in_their_way(client, &raw, form).await?;
            made_theirs.add(CONDITIONS * EACH, made);
            theirs.add(form.events, read);
            let (made, read) = in_our_way(client, schema, form, &format!("'g{number}.{round}'")).await?;
            made_ours.add(CONDITIONS * EACH, made);
            ours.add(form.events, read);
        }
        report.raw_rates(format!("PGMB's way: {}", form.name), &theirs, "events/s");
        report.rates(form.name, &ours, "events/s", &theirs, Some(Target::AtLeast(1.0)));
        report.raw_rates(format!("PGMB's way: subscribing, {}", form.name), &made_theirs, "subscriptions/s");
        report.rates(format!("subscribing, {}", form.name), &made_ours, "subscriptions/s", &made_theirs, None);
    }
    Ok(report)
}

/// What its document says of tables, indexes and triggers.
const TABLES: &str = "
    CREATE SCHEMA RAW;
    CREATE TABLE RAW.events (id bigint PRIMARY KEY, topic text NOT NULL, payload jsonb NOT NULL, metadata jsonb,
        subscription_id uuid);
    CREATE TABLE RAW.unread_events (event_id bigint PRIMARY KEY);
    CREATE TABLE RAW.subscriptions (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(), group_id text NOT NULL, conditions_sql text NOT NULL,
        params jsonb NOT NULL, identity bigint GENERATED ALWAYS AS (
            hashtext(group_id || '/' || conditions_sql || '/' || jsonb_hash(params)::text)) STORED UNIQUE);
    CREATE INDEX ON RAW.subscriptions USING gin (params) WITH (fastupdate = false);
    CREATE TABLE RAW.subscription_events (id bigint, group_id text, subscription_id uuid, event_id bigint);
    CREATE INDEX ON RAW.subscription_events (group_id, id);
    CREATE FUNCTION RAW.unread() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO RAW.unread_events SELECT n.id FROM new n;
        RETURN NULL;
    END $$;
    CREATE TRIGGER unread AFTER INSERT ON RAW.events REFERENCING NEW TABLE AS new
        FOR EACH STATEMENT EXECUTE FUNCTION RAW.unread();
    CREATE FUNCTION RAW.checked() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE 'SELECT FROM jsonb_populate_recordset(NULL::RAW.events, ''[]'') e '
            || 'JOIN jsonb_populate_recordset(NULL::RAW.subscriptions, ''[]'') s ON ' || NEW.conditions_sql;
        RETURN NEW;
    END $$;
    CREATE TRIGGER checked BEFORE INSERT ON RAW.subscriptions FOR EACH ROW EXECUTE FUNCTION RAW.checked();";

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// How long it takes to subscribe, and to find and read all events.
async fn in_their_way(client: &Client, raw: &str, form: &Form) -> anyhow::Result<(Duration, Duration)> {
    let tables = ["events", "unread_events", "subscriptions", "subscription_events"];
    let tables = tables.map(|table| format!("{raw}.{table}")).join(", ");
    client.batch_execute(&format!("TRUNCATE {tables}")).await?;
    let start = Instant::now();
    for (condition, params) in form.conditions() {
        let insert = format!(
            "INSERT INTO {raw}.subscriptions (group_id, conditions_sql, params) \
             SELECT 'g', {}, {params} FROM generate_series(0, {EACH} - 1) n",
            quoted(&condition)
        );
        client.batch_execute(&insert).await?;
    }
    let made = start.elapsed();
    let events = format!(
        "INSERT INTO {raw}.events SELECT n, 't', jsonb_build_object('key', (n % {EACH})::text), '{{}}' \
         FROM generate_series(1, {}) n",
        form.events
    );
    client.batch_execute(&events).await?;
    client.batch_execute(&format!("ANALYZE {tables}")).await?;
    let wanted = form
        .conditions()
        .map(|(condition, _)| format!("(({condition}) AND s.conditions_sql = {})", quoted(&condition)))
        .collect::<Vec<_>>()
        .join(" OR ");
    let start = Instant::now();
    let poll = format!(
        "WITH polled AS (DELETE FROM {raw}.unread_events RETURNING event_id), \
         read AS (SELECT e.* FROM {raw}.events e JOIN polled p ON p.event_id = e.id) \
         INSERT INTO {raw}.subscription_events \
         SELECT row_number() OVER (), s.group_id, s.id, e.id FROM read e JOIN {raw}.subscriptions s \
         ON s.id = e.subscription_id OR e.subscription_id IS NULL AND ({wanted})"
    );
    client.batch_execute(&poll).await?;
    let read = format!(
        "WITH next AS (SELECT x.id, x.event_id, x.subscription_id FROM {raw}.subscription_events x \
             JOIN {raw}.subscriptions s ON s.id = x.subscription_id \
             WHERE x.group_id = 'g' AND x.id > $1 ORDER BY x.id LIMIT {CHUNK} * {CONDITIONS}), \
         events AS (SELECT event_id, array_agg(subscription_id) AS ids FROM next GROUP BY event_id) \
         SELECT count(e.payload), sum(cardinality(w.ids)), (SELECT max(id) FROM next) \
         FROM {raw}.events e JOIN events w ON w.event_id = e.id"
    );
    let read = client.prepare(&read).await?;
    let (mut at, mut pairs) = (0_i64, 0);
    loop {
        let row = client.query_one(&read, &[&at]).await?;
        let Some(next) = row.get::<_, Option<i64>>(2) else { break };
        at = next;
        pairs += row.get::<_, Option<i64>>(1).unwrap_or(0);
    }
    ensure!(pairs as u64 == form.events * CONDITIONS, "{pairs} were wanted: the figure would mean nothing");
    Ok((made, start.elapsed()))
}

/// The same by what consumers call, in a new group, which begins at the end of the log.
async fn in_our_way(client: &Client, schema: &str, form: &Form, group: &str) -> anyhow::Result<(Duration, Duration)> {
    let start = Instant::now();
    for (condition, params) in form.conditions() {
        let subscribe = format!(
            "SELECT count({schema}.subscribe({group}, {}, {params})) FROM generate_series(0, {EACH} - 1) n",
            quoted(&condition)
        );
        client.batch_execute(&subscribe).await?;
    }
    let made = start.elapsed();
    for part in 0..form.events.div_ceil(CHUNK) {
        let (first, last) = (part * CHUNK + 1, form.events.min((part + 1) * CHUNK));
        let publish = format!(
            "SELECT count(*) FROM {schema}.publish_many((SELECT jsonb_agg(jsonb_build_object('topic', 't', \
             'payload', jsonb_build_object('key', (n % {EACH})::text))) FROM generate_series({first}, {last}) n))"
        );
        client.batch_execute(&publish).await?;
        // In a transaction of its own: what is not committed is not moved into the log.
        client.batch_execute(&format!("SELECT {schema}.poll_for_events()")).await?;
    }
    let read = format!(
        "SELECT count(payload), sum(cardinality(subscription_ids))::bigint, max(next_cursor), max(lease) \
         FROM {schema}.read_next_events({group}, chunk_size => {CHUNK})"
    );
    let read = client.prepare(&read).await?;
    let commit = client.prepare(&format!("SELECT {schema}.set_group_cursor({group}, $1, true, $2)")).await?;
    let (mut events, mut pairs) = (0, 0);
    let start = Instant::now();
    loop {
        let row = client.query_one(&read, &[]).await?;
        let Some(cursor) = row.get::<_, Option<i64>>(2) else { break };
        events += row.get::<_, i64>(0);
        pairs += row.get::<_, Option<i64>>(1).unwrap_or(0);
        client.execute(&commit, &[&cursor, &row.get::<_, String>(3)]).await?;
    }
    let read = start.elapsed();
    ensure!(pairs as u64 == form.events * CONDITIONS, "{events} events, {pairs} pairs: the figure would mean nothing");
    Ok((made, read))
}
