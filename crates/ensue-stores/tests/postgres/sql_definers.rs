//! No code of a user runs with the rights of a SECURITY DEFINER function.

use crate::sql_roles::faults;
use crate::support::sql::{as_user, log};
use crate::support::{Log, connect, whole_log};
use tokio_postgres::Client;

/// A login that owns a schema, its tables and its types, and nothing of Ensue.
struct TableOwner {
    log: Log,
    client: Client,
}

impl TableOwner {
    /// Functions of this owner note in `ran` as whom they run.
    async fn new() -> Self {
        let log = log().await;
        let name = format!("{}_tables", log.schema);
        log.run(&format!(
            "CREATE ROLE {name} login; GRANT LOG_operate TO {name}; CREATE SCHEMA {name} AUTHORIZATION {name}"
        ))
        .await;
        let client = connect(&as_user(&name)).await;
        let owner = Self { log, client };
        owner
            .run(
                "GRANT USAGE, CREATE ON SCHEMA APP TO PUBLIC; CREATE TABLE APP.ran (what text, as_whom text); \
                 CREATE SEQUENCE APP.calls; GRANT INSERT ON APP.ran TO PUBLIC; GRANT USAGE ON APP.calls TO PUBLIC; \
                 CREATE FUNCTION APP.note(what text) RETURNS void LANGUAGE plpgsql AS \
                 $$ BEGIN PERFORM nextval('APP.calls'); INSERT INTO APP.ran VALUES (what, current_user); END $$",
            )
            .await;
        owner
    }

    fn filled(&self, sql: &str) -> String {
        sql.replace("APP", &format!("{}_tables", self.log.schema)).replace("LOG", &self.log.schema)
    }

    async fn run(&self, sql: &str) {
        let sql = self.filled(sql);
        self.client.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// Creates casts from a type to json, jsonb, text and int, which note that they ran.
    async fn casts(&self, from: &str) {
        for (to, value) in [("json", "1"), ("jsonb", "1"), ("text", "cast"), ("int", "1")] {
            self.run(&format!(
                "CREATE FUNCTION APP.cast_to_{to}(APP.{from}) RETURNS {to} LANGUAGE plpgsql AS \
                 $$ BEGIN PERFORM APP.note('{from} to {to}'); RETURN '{value}'; END $$; \
                 CREATE CAST (APP.{from} AS {to}) WITH FUNCTION APP.cast_to_{to}(APP.{from}) AS IMPLICIT"
            ))
            .await;
        }
    }

    /// What ran, and as whom. Calls whose transaction was rolled back are counted only.
    async fn ran(&self) -> Vec<String> {
        let sql = self.filled(
            "SELECT DISTINCT what || ' as ' || as_whom FROM APP.ran UNION ALL \
             SELECT 'rolled back' FROM APP.calls WHERE is_called AND NOT EXISTS (SELECT 1 FROM APP.ran) ORDER BY 1",
        );
        self.client.query(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// The payloads in the log, with the outbox moved.
    async fn payloads(&self) -> Vec<String> {
        let store = self.log.open().await;
        while store.release_due(1_000).await.unwrap().count > 0 {}
        let payloads = whole_log(&store).await.iter().map(|event| event.payload.as_str().to_owned()).collect();
        store.close().await;
        payloads
    }
}

/// Casts of an enum, a domain, an array, a composite type and a range, alone and inside each other.
#[tokio::test]
async fn watched_table_owner_gains_no_rights() {
    let owner = TableOwner::new().await;
    owner
        .run(
            "CREATE TYPE APP.mood AS ENUM ('sad', 'fine'); CREATE DOMAIN APP.mood_domain AS APP.mood; \
             CREATE TYPE APP.pair AS (mood APP.mood, n int); CREATE TYPE APP.mood_range AS RANGE (subtype = APP.mood); \
             CREATE DOMAIN APP.moods AS APP.mood[]; CREATE DOMAIN APP.amount AS numeric CHECK (VALUE > 0); \
             CREATE TABLE APP.parent (mood APP.mood)",
        )
        .await;
    for from in ["mood", "pair", "mood_range", "parent"] {
        owner.casts(from).await;
    }
    owner
        .run(
            "CREATE TABLE APP.t (id int PRIMARY KEY, mood APP.mood, domained APP.mood_domain, list APP.mood[], \
             grid APP.mood_domain[], pair APP.pair, pairs APP.pair[], range APP.mood_range, moods APP.moods, nested APP.moods[], \
             parent APP.parent, empty APP.pair, amount APP.amount, amounts APP.amount[], plain int[]); \
             SELECT LOG.push_table_mutations('APP.t'); \
             INSERT INTO APP.t VALUES (1, 'sad', 'fine', '{sad,NULL}', '{{sad,fine},{fine,sad}}', ROW('sad', 1), \
             ARRAY[ROW('sad', 1)::APP.pair], '[sad,fine]', '{fine}', ARRAY['{sad}'::APP.moods], ROW('sad'), ROW(NULL, NULL), 2.50, \
             '{1,2}', '{3}'); INSERT INTO APP.t VALUES (2); \
             UPDATE APP.t SET mood = 'fine', list = '{}' WHERE id = 1; DELETE FROM APP.t WHERE id = 2",
        )
        .await;
    assert_eq!(owner.ran().await, [""; 0]);
    let row = "\"id\":1,\"list\":[\"sad\",null],\"mood\":\"sad\",\"pair\":\"(sad,1)\",\"empty\":\"(,)\",\
        \"moods\":[\"fine\"],\"pairs\":[\"(sad,1)\"],\"plain\":[3],\"range\":\"[sad,fine]\",\"amount\":2.50,\
        \"nested\":[\"{sad}\"],\"parent\":\"(sad)\",\"amounts\":[1,2],\"domained\":\"fine\"";
    let payloads = owner.payloads().await;
    assert_eq!(payloads.len(), 4, "{payloads:?}");
    for part in row.split(",\"") {
        assert!(payloads[0].contains(part), "{part} is not in {}", payloads[0]);
    }
    assert!(payloads[0].contains("\"grid\":[[\"sad\",\"fine\"],[\"fine\",\"sad\"]]"), "{}", payloads[0]);
    for part in ["\"list\":null", "\"mood\":null", "\"pair\":null", "\"empty\":null"] {
        assert!(payloads[1].contains(part), "{part} is not in {}", payloads[1]);
    }
    assert!(payloads[2].contains("\"changed\":[\"list\",\"mood\"]"), "{}", payloads[2]);
    assert!(payloads[3].contains("\"id\":2"), "{}", payloads[3]);
}

/// A type that a column gets after the table was first written to, and a cast that is created later, are noticed.
#[tokio::test]
async fn types_are_checked_again_each_time_a_trigger_fires() {
    let owner = TableOwner::new().await;
    owner
        .run(
            "CREATE TABLE APP.t (id int PRIMARY KEY); SELECT LOG.push_table_mutations('APP.t'); INSERT INTO APP.t VALUES (1); \
             CREATE TYPE APP.mood AS ENUM ('sad'); ALTER TABLE APP.t ADD COLUMN mood APP.mood; INSERT INTO APP.t VALUES (2, 'sad')",
        )
        .await;
    owner.casts("mood").await;
    owner.run("INSERT INTO APP.t VALUES (3, 'sad'); UPDATE APP.t SET mood = 'sad'").await;
    assert_eq!(owner.ran().await, [""; 0]);
    assert_eq!(owner.payloads().await.len(), 4);
}

/// The names of the transition tables are not looked up among the session's temporary relations.
#[tokio::test]
async fn trigger_without_transition_tables_is_refused() {
    let owner = TableOwner::new().await;
    for operation in ["insert", "update", "delete"] {
        owner
            .run(&format!(
                "CREATE TABLE APP.{operation}_t (id int PRIMARY KEY); INSERT INTO APP.{operation}_t VALUES (1); \
                 CREATE OR REPLACE FUNCTION APP.noted() RETURNS int LANGUAGE plpgsql AS \
                 $$ BEGIN PERFORM APP.note('a view'); RETURN 1; END $$; \
                 CREATE OR REPLACE TEMP VIEW new_rows AS SELECT APP.noted() AS id; \
                 CREATE OR REPLACE TEMP VIEW old_rows AS SELECT APP.noted() + 1 AS id; \
                 GRANT SELECT ON new_rows, old_rows TO PUBLIC; \
                 CREATE TRIGGER own AFTER {operation} ON APP.{operation}_t \
                 FOR EACH STATEMENT EXECUTE FUNCTION LOG.mutations_{operation}()"
            ))
            .await;
        let sql = match operation {
            "insert" => "INSERT INTO APP.insert_t VALUES (2)",
            "update" => "UPDATE APP.update_t SET id = 2",
            _ => "DELETE FROM APP.delete_t",
        };
        // The error undoes the note, so the error is what tells.
        let refused = owner.client.batch_execute(&owner.filled(sql)).await.expect_err(sql);
        let refused = refused.as_db_error().unwrap().message();
        assert!(refused.contains("was not created by push_table_mutations"), "{refused}");
    }
    assert_eq!(owner.ran().await, [""; 0]);
}

/// One of another kind would publish rows twice, or an update as an insert.
#[tokio::test]
async fn trigger_of_another_kind_is_refused() {
    let owner = TableOwner::new().await;
    owner.run("CREATE TABLE APP.t (id int PRIMARY KEY); INSERT INTO APP.t VALUES (1)").await;
    for (kind, sql) in [
        ("UPDATE ON APP.t REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT", "UPDATE APP.t SET id = 2"),
        ("INSERT ON APP.t REFERENCING NEW TABLE AS new_rows FOR EACH ROW", "INSERT INTO APP.t VALUES (3), (4)"),
    ] {
        let create = format!("CREATE TRIGGER own AFTER {kind} EXECUTE FUNCTION LOG.mutations_insert()");
        owner.run(&create).await;
        let refused = owner.client.batch_execute(&owner.filled(sql)).await.expect_err(sql);
        let refused = refused.as_db_error().unwrap().message();
        assert!(refused.contains("was not created by push_table_mutations"), "{refused}");
        owner.run("DROP TRIGGER own ON APP.t").await;
    }
}

/// The view of the log gives a reader no operator of its search path to run, whoever reads it.
#[tokio::test]
async fn reading_the_log_calls_nothing_from_the_search_path() {
    let owner = TableOwner::new().await;
    owner
        .run(
            "CREATE FUNCTION APP.times(numeric, int) RETURNS numeric LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM APP.note('an operator'); RETURN $1 OPERATOR(pg_catalog.*) $2; END $$; \
             CREATE OPERATOR APP.* (LEFTARG = numeric, RIGHTARG = int, FUNCTION = APP.times)",
        )
        .await;
    owner.log.put("SELECT n, 't', '{}'::jsonb FROM generate_series(1, 3) n").await;
    let reader = owner.log.login(&["consume"]).await;
    let sql =
        owner.filled("SET search_path = APP; SELECT LOG.event_id(gen_random_uuid(), now()); SELECT id FROM LOG.events");
    reader.batch_execute(&sql).await.unwrap();
    assert_eq!(owner.ran().await, [""; 0]);
}

/// The rules of `sql_roles::faults` notice a function that could run code of others.
#[tokio::test]
async fn definer_that_could_run_code_of_others_is_noticed() {
    let log = log().await;
    for (planted, fault) in [
        (
            "stray(anyelement) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT $1::text'",
            "a value of a type that others define is taken by",
        ),
        (
            "stray(LOG_types.mood) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT $1::text'",
            "a value of a type that others define is taken by",
        ),
        (
            "stray() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN RETURN NULL; END'",
            "rows of tables of others are seen by",
        ),
        (
            "stray() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SELECT 1'; END $$",
            "SQL that is made at run time is executed by",
        ),
        (
            "stray() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT x FROM jobs j); END $$",
            "a relation is named without its schema by",
        ),
        (
            "stray() RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO jobs VALUES (1); END $$",
            "a relation is named without its schema by",
        ),
        ("stray() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'", "the search path is the caller's of"),
        (
            "stray() RETURNS void LANGUAGE plpgsql AS $$ DECLARE v_many text[]; BEGIN END $$",
            "a type of a variable is named without its schema by",
        ),
        (
            "stray() RETURNS void LANGUAGE plpgsql AS $$ DECLARE v_one record; v_two bigint; BEGIN END $$",
            "a type of a variable is named without its schema by",
        ),
        (
            "stray() RETURNS text LANGUAGE sql AS $$ SELECT current_setting('ensue.drained_1') $$",
            "a note of the caller's session is trusted by",
        ),
    ] {
        log.run("DROP SCHEMA IF EXISTS LOG_types CASCADE; CREATE SCHEMA LOG_types; CREATE TYPE LOG_types.mood AS ENUM ('sad')").await;
        log.run(&format!("CREATE FUNCTION LOG.{planted}")).await;
        let found = faults(&log).await;
        assert!(found.contains(&format!("{fault} stray")), "{planted}: {found:?}");
        log.run("DROP FUNCTION LOG.stray").await;
    }
    assert_eq!(faults(&log).await, [""; 0]);
}

/// Domains of the session that are called like built-in types. PL/pgSQL resolves the types of variables once per
/// session, so a function that the login calls first, and one that lends rights calls later, would use them.
#[tokio::test]
async fn temporary_domains_run_nothing_with_our_rights() {
    let ran = call_all_with_temporary_domains(&TableOwner::new().await).await;
    assert_eq!(ran, [""; 0]);
}

/// The bug that is planted: a variable's type is named without its schema.
#[tokio::test]
async fn type_without_its_schema_would_run_code_with_our_rights() {
    let owner = TableOwner::new().await;
    owner.log.plant("outbox_waits", "v_from pg_catalog.xid8", "v_from xid8").await;
    let ran = call_all_with_temporary_domains(&owner).await;
    assert_eq!(ran, [owner.filled("xid8 as LOG_owner")]);
}

/// Calls every function that the login may call, with domains of its own in place of built-in types. Returns what ran.
async fn call_all_with_temporary_domains(owner: &TableOwner) -> Vec<String> {
    owner.log.run(&owner.filled("GRANT LOG_serve, LOG_consume, LOG_publish TO APP")).await;
    owner.run("CREATE FUNCTION APP.holds(what text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM APP.note(what); RETURN true; END $$").await;
    for name in ["text", "timestamptz", "uuid", "jsonb", "bytea", "xid8", "pg_snapshot", "name", "regclass"] {
        owner
            .run(&format!(
                "CREATE DOMAIN pg_temp.{name} AS pg_catalog.{name} \
                 CHECK (CASE WHEN current_user <> session_user THEN APP.holds('{name}') ELSE true END)"
            ))
            .await;
    }
    let functions = "SELECT format('SELECT %s(%s)', p.oid::regproc, \
        (SELECT string_agg('NULL::' || format_type(t.type, NULL), ', ' ORDER BY t.n) \
         FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY t(type, n))) FROM pg_proc p \
        WHERE p.pronamespace = 'LOG'::regnamespace AND p.prorettype <> 'trigger'::regtype \
        AND has_function_privilege(p.oid, 'EXECUTE') ORDER BY p.prosecdef";
    let calls: Vec<String> =
        owner.client.query(&owner.filled(functions), &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert!(calls.len() > 80, "{calls:?}");
    // Most refuse such arguments, after they were compiled.
    for call in &calls {
        let _ = owner.client.batch_execute(call).await;
    }
    for call in [
        "SELECT LOG.publish('a', '{}', 'o')",
        "SELECT LOG.poll_for_events()",
        "SELECT LOG.enqueue('h', '{}')",
        "SELECT LOG.claim_jobs(ARRAY['h'])",
        "SELECT LOG.subscribe('g', 'true')",
        "SELECT LOG.read_next_events('g')",
        "SELECT LOG.trim(2, 10, 0)",
        "SELECT LOG.ensure_partitions(1000, 1000)",
    ] {
        owner.run(call).await;
    }
    owner.ran().await
}

/// The session's note of what was drained is not a way to move an event before an earlier one of its object.
#[tokio::test]
async fn invented_note_of_what_was_drained_reorders_nothing() {
    let log = log().await;
    let publisher = log.login(&["publish"]).await;
    let note: String = log
        .admin
        .query_one(
            "SELECT (regexp_match(p.prosrc, 'ensue[.]drained_[0-9a-f]+'))[1] FROM pg_proc p \
             WHERE p.pronamespace = $1::text::regnamespace AND p.proname = 'outbox_waits'",
            &[&log.schema],
        )
        .await
        .unwrap()
        .get(0);
    log.run("SELECT LOG.publish('first', '{}', 'o')").await;
    // The note claims that everything up to this transaction is drained.
    publisher.batch_execute(&format!("SELECT set_config('{note}', pg_current_snapshot()::text, false)")).await.unwrap();
    log.run("SELECT LOG.publish('second', '{}', 'o')").await;
    publisher.batch_execute(&format!("SELECT {}.poll_for_events()", log.schema)).await.unwrap();
    let store = log.open().await;
    while store.release_due(1_000).await.unwrap().count > 0 {}
    let topics: Vec<String> = whole_log(&store).await.iter().map(|event| event.topic.to_string()).collect();
    assert_eq!(topics, ["first", "second"]);
    store.close().await;
}

/// A table that is renamed after it is watched publishes no topic that `publish` would refuse.
#[tokio::test]
async fn renamed_table_publishes_no_invalid_topic() {
    let owner = TableOwner::new().await;
    owner.run("CREATE TABLE APP.t (id int); SELECT LOG.push_table_mutations('APP.t')").await;
    let long = "\u{1f600}".repeat(15);
    let renamed =
        owner.filled(&format!("ALTER TABLE APP.t RENAME TO \"{long}\"; ALTER SCHEMA APP RENAME TO \"{long}\""));
    owner.log.run(&renamed).await;
    let refused = owner.client.batch_execute(&format!("INSERT INTO \"{long}\".\"{long}\" VALUES (1)")).await;
    let refused = refused.expect_err("its topics are too long");
    let refused = refused.as_db_error().unwrap().message();
    assert!(refused.contains("would have topics of 368 bytes"), "{refused}");
    owner.log.run(&format!("DROP SCHEMA \"{long}\" CASCADE")).await;
}
