//! Events about what happens to the rows of a table: with the rows, in order, and nothing where nothing happened.

use crate::support::session::Session;
use crate::support::{Log, whole_log};
use ensue_core::store::SharedStore;

struct Watched {
    log: Log,
    store: SharedStore,
    session: Session,
}

impl Watched {
    async fn new() -> Self {
        let log = Log::new().await;
        let store = log.open().await;
        let session = Session::of(&log).await;
        session.run("CREATE SCHEMA LOG_app").await.unwrap();
        Self { log, store, session }
    }

    async fn run(&self, sql: &str) {
        self.session.run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// What is in the log since the last time: topic without its schema, object without it, and payload.
    async fn told(&self) -> Vec<(String, String, String)> {
        while self.store.release_due(1_000).await.unwrap().count > 0 {}
        let app = format!("{}_app.", self.log.schema);
        let short = |text: &str| text.strip_prefix(app.as_str()).unwrap_or(text).to_owned();
        let log = whole_log(&self.store).await;
        let last = self.store.bounds().await.unwrap().last;
        let told = log.iter().map(|event| {
            let object = event.object.as_ref().map_or(String::new(), |object| short(object.as_str()));
            (short(event.topic.as_str()), object, event.payload.as_str().to_owned())
        });
        let told = told.collect();
        self.store.trim(last + 1, 1_000_000).await.unwrap();
        told
    }

    async fn topics_and_objects(&self) -> Vec<(String, String)> {
        self.told().await.into_iter().map(|(topic, object, _)| (topic, object)).collect()
    }
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(topic, object)| ((*topic).into(), (*object).into())).collect()
}

#[tokio::test]
async fn every_row_that_changes_is_told_of_once_and_what_does_not_change_is_not() {
    let watched = Watched::new().await;
    watched.run("CREATE TABLE LOG_app.users (id int PRIMARY KEY, name text); SELECT LOG.push_table_mutations('LOG_app.users')").await;
    watched.run("INSERT INTO LOG_app.users VALUES (1, 'ann'), (2, 'bob')").await;
    watched.run("UPDATE LOG_app.users SET name = 'bert' WHERE id = 2").await;
    watched.run("UPDATE LOG_app.users SET name = name; UPDATE LOG_app.users SET name = 'x' WHERE id = 99").await;
    watched.run("DELETE FROM LOG_app.users WHERE id = 1").await;
    watched.run("BEGIN; INSERT INTO LOG_app.users VALUES (3, 'undone'); ROLLBACK").await;
    let told = watched.told().await;
    let expected = [
        ("users.insert", "users:1", "{\"row\":{\"id\":1,\"name\":\"ann\"}}"),
        ("users.insert", "users:2", "{\"row\":{\"id\":2,\"name\":\"bob\"}}"),
        (
            "users.update",
            "users:2",
            "{\"old\":{\"id\":2,\"name\":\"bob\"},\"row\":{\"id\":2,\"name\":\"bert\"},\"changed\":[\"name\"]}",
        ),
        ("users.delete", "users:1", "{\"row\":{\"id\":1,\"name\":\"ann\"}}"),
    ];
    assert_eq!(told, expected.map(|(topic, object, payload)| (topic.into(), object.into(), payload.into())));
}

/// Old and new rows belong together also where the key changes, where there is none, and where a row moves to another partition.
#[tokio::test]
async fn old_and_new_rows_are_paired_without_their_keys() {
    let watched = Watched::new().await;
    watched.run("CREATE TABLE LOG_app.t (id int PRIMARY KEY, v int); SELECT LOG.push_table_mutations('LOG_app.t', insert => false)").await;
    watched.run("INSERT INTO LOG_app.t SELECT n, n FROM generate_series(1, 100) n").await;
    watched.run("UPDATE LOG_app.t SET id = 1000 - id").await;
    let told = watched.told().await;
    assert_eq!(told.len(), 100);
    for (_, object, payload) in &told {
        let id: i64 = object.strip_prefix("t:").unwrap().parse().unwrap();
        let v = 1_000 - id;
        assert_eq!(
            payload,
            &format!("{{\"old\":{{\"v\":{v},\"id\":{v}}},\"row\":{{\"v\":{v},\"id\":{id}}},\"changed\":[\"id\"]}}")
        );
    }
    watched.run("CREATE TABLE LOG_app.p (id int, k int) PARTITION BY LIST (k); \
         CREATE TABLE LOG_app.p1 PARTITION OF LOG_app.p FOR VALUES IN (1); CREATE TABLE LOG_app.p2 PARTITION OF LOG_app.p FOR VALUES IN (2); \
         SELECT LOG.push_table_mutations('LOG_app.p'); INSERT INTO LOG_app.p VALUES (1, 1), (2, 2), (3, 1); UPDATE LOG_app.p SET k = 3 - k")
        .await;
    let told = watched.told().await;
    assert!(told.iter().all(|(_, object, _)| object.is_empty()), "without a key there is no object: {told:?}");
    let mut moved: Vec<&str> = told.iter().filter(|told| told.0 == "p.update").map(|told| told.2.as_str()).collect();
    moved.sort_unstable();
    assert_eq!(
        moved,
        [
            "{\"old\":{\"k\":1,\"id\":1},\"row\":{\"k\":2,\"id\":1},\"changed\":[\"k\"]}",
            "{\"old\":{\"k\":1,\"id\":3},\"row\":{\"k\":2,\"id\":3},\"changed\":[\"k\"]}",
            "{\"old\":{\"k\":2,\"id\":2},\"row\":{\"k\":1,\"id\":2},\"changed\":[\"k\"]}",
        ]
    );
}

#[tokio::test]
async fn columns_of_any_type_and_names_of_any_kind() {
    let watched = Watched::new().await;
    // Columns with the names of our own aliases too; settings of the session do not show.
    watched.run("SET timezone = 'Asia/Tokyo'; SET extra_float_digits = -5; SET intervalstyle = 'sql_standard'; \
         CREATE TABLE LOG_app.types (id uuid PRIMARY KEY, n numeric, r int4range, m json, image point, x xml, f float8, at timestamptz, \
         i interval, b bytea, a int[]); SELECT LOG.push_table_mutations('LOG_app.types'); \
         INSERT INTO LOG_app.types VALUES ('01a1e4ff-e856-7cff-8000-000000000001', 'NaN', '[1,3)', '{\"a\": 1}', '(1,2)', NULL, 0.1, \
         '2026-01-01 09:00+09', '1 day 02:00', '\\xff00', '{1,2}')").await;
    watched.run("UPDATE LOG_app.types SET m = '{\"a\":1}', at = '2026-01-01 00:00+00'; UPDATE LOG_app.types SET image = '(3,4)'").await;
    let told = watched.told().await;
    assert_eq!(told.len(), 2, "the same JSON and the same time are no change: {told:?}");
    assert_eq!(told[0].1, "types:01a1e4ff-e856-7cff-8000-000000000001");
    for part in [
        "\"n\":\"NaN\"",
        "\"r\":\"[1,3)\"",
        "\"m\":{\"a\":1}",
        "\"f\":0.1",
        "\"at\":\"2026-01-01T00:00:00+00:00\"",
        "\"i\":\"1 day 02:00:00\"",
        "\"b\":\"\\\\xff00\"",
        "\"a\":[1,2]",
    ] {
        assert!(told[0].2.contains(part), "{part} is not in {}", told[0].2);
    }
    assert!(told[1].2.contains("\"changed\":[\"image\"]"), "{}", told[1].2);

    watched.run("CREATE TABLE LOG_app.\"My.Täble: 1\" (\"a b\" text, \"c\"\"d\" int, PRIMARY KEY (\"a b\", \"c\"\"d\")); \
         SELECT LOG.push_table_mutations('LOG_app.\"My.Täble: 1\"'); INSERT INTO LOG_app.\"My.Täble: 1\" VALUES ('x\", 1', 2)").await;
    watched
        .run(&format!(
            "CREATE TABLE LOG_app.long (id text PRIMARY KEY); SELECT LOG.push_table_mutations('LOG_app.long'); \
         INSERT INTO LOG_app.long VALUES (E'a\\nb'), ('{}')",
            "k".repeat(600)
        ))
        .await;
    let told = watched.topics_and_objects().await;
    assert_eq!(told[0], ("My=2ET=C3=A4ble=3A=201.insert".into(), "My=2ET=C3=A4ble=3A=201:[\"x\\\", 1\", 2]".into()));
    assert!(
        told[1].1.starts_with("long:sha256=") && told[2].1.starts_with("long:sha256=") && told[1].1 != told[2].1,
        "{told:?}"
    );

    watched
        .run(
            "ALTER TABLE LOG_app.long ADD COLUMN more int DEFAULT 5; ALTER TABLE LOG_app.long RENAME TO renamed; \
         UPDATE LOG_app.renamed SET more = 6 WHERE length(id) = 3",
        )
        .await;
    let told = watched.told().await;
    assert_eq!((told.len(), told[0].0.as_str()), (1, "renamed.update"), "{told:?}");
    assert!(told[0].2.contains("\"changed\":[\"more\"]"), "{}", told[0].2);
}

#[tokio::test]
async fn what_is_told_can_be_reshaped_or_left_out() {
    let watched = Watched::new().await;
    watched
        .run(
            "CREATE TABLE LOG_app.users (id int PRIMARY KEY, secret text); SELECT LOG.push_table_mutations('LOG_app.users'); \
             CREATE OR REPLACE FUNCTION LOG.mutation_payload(p_table regclass, p_operation text, p_payload jsonb) RETURNS jsonb \
             LANGUAGE sql AS $$ SELECT CASE WHEN (p_payload -> 'row' ->> 'id')::int <= 1 THEN p_payload #- '{row,secret}' END $$",
        )
        .await;
    watched.run("INSERT INTO LOG_app.users VALUES (1, 'x'), (2, 'y')").await;
    let told = watched.told().await;
    assert_eq!(told, [("users.insert".to_owned(), "users:1".to_owned(), "{\"row\":{\"id\":1}}".to_owned())]);
}

#[tokio::test]
async fn watching_can_be_changed_and_stopped_and_refuses_what_cannot_be_watched() {
    let watched = Watched::new().await;
    watched.run("CREATE TABLE LOG_app.t (id int PRIMARY KEY); SELECT LOG.push_table_mutations('LOG_app.t', delete => false)").await;
    watched.run("INSERT INTO LOG_app.t VALUES (1); DELETE FROM LOG_app.t").await;
    assert_eq!(watched.topics_and_objects().await, pairs(&[("t.insert", "t:1")]));
    watched.run("SELECT LOG.push_table_mutations('LOG_app.t', insert => false)").await;
    watched.run("INSERT INTO LOG_app.t VALUES (2); DELETE FROM LOG_app.t").await;
    assert_eq!(watched.topics_and_objects().await, pairs(&[("t.delete", "t:2")]));
    assert_eq!(watched.session.text("SELECT LOG.stop_table_mutations('LOG_app.t')").await, "true");
    assert_eq!(watched.session.text("SELECT LOG.stop_table_mutations('LOG_app.t')").await, "false");
    watched.run("INSERT INTO LOG_app.t VALUES (3); CREATE VIEW LOG_app.v AS SELECT 1").await;
    assert_eq!(watched.topics_and_objects().await, []);
    for (relation, words) in [("LOG.outbox", "own tables"), ("LOG_app.v", "is not a table")] {
        let (code, message) = watched.session.refusal(&format!("SELECT LOG.push_table_mutations('{relation}')")).await;
        assert!(code == "22023" && message.contains(words), "{relation}: {message}");
    }
    // A row that no event has room for is not lost quietly: the statement says so.
    watched.run("CREATE TABLE LOG_app.large (v text); SELECT LOG.push_table_mutations('LOG_app.large')").await;
    let (code, message) = watched.session.refusal("INSERT INTO LOG_app.large VALUES (repeat('x', 1100000))").await;
    assert!(code == "54000" && message.contains("large.insert"), "{message}");
}

/// Who may write to the table needs no rights here; who drops the schema is rid of the triggers.
#[tokio::test]
async fn whoever_writes_to_a_watched_table_needs_no_rights_and_dropping_the_schema_ends_it() {
    let watched = Watched::new().await;
    let role = format!("{}_writer", watched.log.schema);
    watched.run("CREATE TABLE LOG_app.t (id int PRIMARY KEY); SELECT LOG.push_table_mutations('LOG_app.t')").await;
    watched.run(&format!("CREATE ROLE {role}; GRANT USAGE ON SCHEMA LOG_app TO {role}; GRANT INSERT ON LOG_app.t TO {role}; SET ROLE {role}; \
         INSERT INTO LOG_app.t VALUES (1); RESET ROLE")).await;
    assert_eq!(watched.topics_and_objects().await, pairs(&[("t.insert", "t:1")]));
    watched.store.close().await;
    watched.run("DROP SCHEMA LOG CASCADE; INSERT INTO LOG_app.t VALUES (2)").await;
    assert_eq!(watched.log.number("SELECT count(*) FROM pg_namespace WHERE nspname = 'LOG'").await, 0);
}

/// One condition on the key selects every operation, whatever the types of the columns are.
#[tokio::test]
async fn one_condition_selects_insert_update_and_delete_of_a_row() {
    let watched = Watched::new().await;
    watched.run("CREATE TYPE LOG_app.mood AS ENUM ('sad', 'ok')").await;
    for table in ["plain", "typed"] {
        let column = if table == "typed" { ", m LOG_app.mood DEFAULT 'ok'" } else { "" };
        watched.run(&format!("CREATE TABLE LOG_app.{table} (id int PRIMARY KEY, v int{column})")).await;
        watched.run(&format!("SELECT LOG.push_table_mutations('LOG_app.{table}')")).await;
        watched.run(&format!("SELECT LOG.subscribe('{table}', 'e.payload->''row''->>''id'' = ''17''')")).await;
        watched.run(&format!("INSERT INTO LOG_app.{table} VALUES (17, 1), (18, 1)")).await;
        watched.run(&format!("UPDATE LOG_app.{table} SET v = 2; DELETE FROM LOG_app.{table}")).await;
        while watched.store.release_due(1_000).await.unwrap().count > 0 {}
        let read = format!("SELECT string_agg(topic, ' ') FROM LOG.read_next_events('{table}')");
        let told = watched.session.text(&read).await.replace(&format!("{}_app.{table}.", watched.log.schema), "");
        assert_eq!(told, "insert update delete", "{table}");
    }
}
