//! What becomes of a schema that an older program has made, and of whoever uses it meanwhile?

use crate::old::{OLD, Old};
use crate::support::Log;
use crate::support::groups::{handler_group, open};
use crate::support::load::Load;
use ensue_conformance::upgraded;
use ensue_core::StoreError;
use ensue_core::store::SharedStore;
use ensue_stores::postgres::{PostgresOptions, PostgresStore, Upgrade};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

/// Everything that a schema is made of, a line each; LOG stands for its name. That a column may not be null is told with the column: from Postgres 18 on it is a constraint, too, with the name that the column had first. The partitions of the log are its content; what functions do is for
/// `drift` to tell.
async fn shape(log: &Log) -> Vec<String> {
    let ask = "SELECT x FROM (
        SELECT format('column %s.%s %s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
            pg_get_expr(d.adbin, d.adrelid)) AS x
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'LOG'::regnamespace AND NOT c.relispartition AND c.relkind IN ('r', 'p', 'v', 'c')
        UNION ALL SELECT format('relation %s %s %s', c.relname, c.relkind, c.reloptions) FROM pg_class c
        WHERE c.relnamespace = 'LOG'::regnamespace AND NOT c.relispartition
        UNION ALL SELECT pg_get_indexdef(c.oid) FROM pg_class c
        WHERE c.relnamespace = 'LOG'::regnamespace AND NOT c.relispartition AND c.relkind IN ('i', 'I')
        UNION ALL SELECT format('constraint %s %s', c.conname, pg_get_constraintdef(c.oid)) FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid
        WHERE c.connamespace = 'LOG'::regnamespace AND NOT r.relispartition AND c.contype <> 'n'
        UNION ALL SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = 'LOG'::regnamespace AND NOT t.tgisinternal
        UNION ALL SELECT format('view %s %s', c.relname, pg_get_viewdef(c.oid)) FROM pg_class c
        WHERE c.relnamespace = 'LOG'::regnamespace AND c.relkind = 'v'
        UNION ALL SELECT format('operator %s %s %s', o.oprname, format_type(o.oprleft, NULL), format_type(o.oprright, NULL)) FROM pg_operator o
        WHERE o.oprnamespace = 'LOG'::regnamespace
        UNION ALL SELECT format('type %s', t.typname) FROM pg_type t WHERE t.typnamespace = 'LOG'::regnamespace AND t.typtype IN ('c', 'd')
            AND NOT EXISTS (SELECT 1 FROM pg_class c WHERE c.oid = t.typrelid AND c.relispartition)
        UNION ALL SELECT CASE WHEN p.proname = 'mutation_payload' THEN 'mutation_payload' ELSE
            format('function %s(%s) %s %s %s %s', p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), p.prosecdef,
            p.proconfig, p.proacl) END
        FROM pg_proc p WHERE p.pronamespace = 'LOG'::regnamespace) y";
    let rows = log.admin.query(&ask.replace("LOG", &log.schema), &[]).await.expect("a query of the test");
    let told = |row: &Row| row.get::<_, String>(0).replace(&log.schema, "LOG").replace("\"LOG\"", "LOG");
    let mut lines: Vec<String> = rows.iter().map(told).collect();
    lines.sort_unstable();
    lines
}

/// Made by an older program, filled with all that it knew, and brought up to date.
async fn is_brought_up_to_date(old: &Old) {
    eprintln!("the schema of version {}", old.name);
    let (log, fresh) = (Log::new().await, Log::new().await);
    let newest = Upgrade::carry_out(&fresh.url).await.unwrap().to;
    if old.version == newest {
        // It is of today, and nothing makes functions of what is known of it.
        return;
    }
    old.make(&log).await;
    old.fill(&log).await;
    let done = Upgrade::carry_out(&log.url).await.unwrap();
    assert_eq!((done.from, done.to), (old.from, newest));
    assert_eq!(Upgrade::look(&log.url).await.unwrap().script, "", "once is enough");
    assert_eq!(log.number("SELECT count(*) FROM LOG.schema_version").await, i64::from(newest), "each version once");
    let (is, should_be) = (shape(&log).await, shape(&fresh).await);
    let cut = |line: &&String| line.chars().take(300).collect::<String>();
    let missing: Vec<_> = should_be.iter().filter(|line| !is.contains(line)).map(|line| cut(&line)).collect();
    let beside: Vec<_> = is.iter().filter(|line| !should_be.contains(line)).map(|line| cut(&line)).collect();
    assert!(missing.is_empty() && beside.is_empty(), "missing: {missing:#?}\nbeside: {beside:#?}");

    let clock = upgraded::clock();
    let options = PostgresOptions { clock: Some(clock.clock()), ..PostgresOptions::default() };
    let store = Arc::new(PostgresStore::open(&log.url, options).await.unwrap());
    assert_eq!(store.drift().await.unwrap(), []);
    let store: SharedStore = store;
    upgraded::check(&store, &clock, old.knew).await;
    assert!(!store.pulse(None).await.unwrap().waiting, "the outbox is empty");
    store.close().await;
    if old.version >= 13 {
        let kept = "SELECT count(*) FROM LOG.config WHERE value = '7 days'";
        assert_eq!(log.number(kept).await, 1, "settings stay");
        let own = "SELECT count(*) WHERE LOG.mutation_payload('LOG.config', 'insert', '{}') = '{\"mine\": true}'";
        assert_eq!(log.number(own).await, 1, "what users have replaced stays theirs");
    }
    log.run("SELECT LOG.publish('a.b'); SELECT LOG.poll_for_events(10); SELECT LOG.maintain()").await;
}

/// Whatever older program made the schema, everything that it knew is there, is used as before, and nothing of the schema itself
/// differs from one that is made today.
#[tokio::test]
async fn every_version_that_was_is_brought_up_to_date_with_all_that_it_knew() {
    for old in OLD {
        is_brought_up_to_date(old).await;
    }
}

/// What the server understands of what a program of this version says: what it is given, and what it answers.
async fn understood(log: &Log, old: &Old) -> Vec<String> {
    let mut understood = Vec::new();
    for statement in old.statements(log) {
        let prepared = log.admin.prepare(&statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        let columns: Vec<_> = prepared.columns().iter().map(|column| (column.name(), column.type_())).collect();
        understood.push(format!("{statement}: {:?} {columns:?}", prepared.params()));
    }
    understood
}

/// A program that the new schema lets run beside it says what it always said, and it means what it meant.
#[tokio::test]
async fn what_older_programs_say_is_understood_after_the_upgrade() {
    for old in OLD {
        let log = Log::new().await;
        old.make(&log).await;
        let before = understood(&log, old).await;
        Upgrade::carry_out(&log.url).await.unwrap();
        let from = "SELECT compatible_from::bigint FROM LOG.schema_version ORDER BY version DESC LIMIT 1";
        if i64::from(old.version) >= log.number(from).await {
            assert!(before.len() > 100, "the statements of version {}", old.name);
            assert_eq!(understood(&log, old).await, before);
        }
    }
}

/// What a newer program would run next: every table has a column more, and every function is another one; a program of today may go on beside it. The log
/// comes first: everybody reads it, and to wait for it with all other tables locked is to be in everybody's way.
fn next_upgrade(log: &Log, today: i32, version: i32) -> String {
    let made = Upgrade::install(&log.schema);
    let from = made.find(&format!("CREATE OR REPLACE FUNCTION \"{}\".lock_log(", log.schema)).expect("functions");
    let to = made.find(&format!("INSERT INTO \"{}\".schema_version", log.schema)).expect("the end");
    let functions = made[from..to].replace("AS $body$\n", &format!("AS $body$\n-- {version}\n"));
    let columns = format!(
        "DO $$ DECLARE t text; BEGIN FOR t IN SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = '{0}'::regnamespace \
         AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY c.relname <> 'stored_events', c.relname LOOP \
         EXECUTE format('ALTER TABLE %s ADD COLUMN next_{version} text', t); END LOOP; END $$;",
        log.schema
    );
    format!(
        "BEGIN; SET LOCAL statement_timeout = 0; {columns} {functions} \
         INSERT INTO {}.schema_version (version, compatible_from) VALUES ({version}, {today}); COMMIT",
        log.schema
    )
}

/// A program that runs goes on while newer ones bring the schema up to date beneath it, and beside those: nothing is lost or doubled of what is
/// appended, published in SQL, delayed, delivered and sent, and order is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn programs_go_on_during_upgrades_and_beside_newer_ones() {
    let log = Log::new().await;
    // However long an upgrade takes under this load.
    let options = || PostgresOptions { unavailable_after: Duration::from_secs(60), ..PostgresOptions::default() };
    let engine = open(&log.url, options()).await;
    handler_group(&engine, "g", 1).await;
    let today = Upgrade::look(&log.url).await.unwrap().to;
    let load = Load::begin(&log, &engine).await;
    for version in [997, 998] {
        load.until_more().await;
        let script = next_upgrade(&log, today, version);
        // As a program does: somebody may have what it needs next, and wait for what it has.
        while let Err(error) = log.admin.batch_execute(&script).await {
            assert_eq!(error.code(), Some(&SqlState::T_R_DEADLOCK_DETECTED), "an upgrade under load: {error:?}");
            log.run("ROLLBACK").await;
        }
        load.until_more().await;
        // One of today that starts beside it.
        load.another(open(&log.url, options()).await);
    }
    load.until_more().await;
    load.end_and_check(&engine).await;
    // One that is not compatible any more is told so.
    log.run("INSERT INTO LOG.schema_version (version, compatible_from) VALUES (999, 999)").await;
    match PostgresStore::open(&log.url, PostgresOptions::default()).await {
        Err(StoreError::Schema(text)) => {
            assert!(text.contains("version 999") && text.contains("use the newer Ensue"), "{text}");
        }
        other => panic!("{:?}", other.err()),
    }
    match Upgrade::carry_out(&log.url).await {
        Err(StoreError::Schema(text)) => assert!(text.contains("version 999"), "{text}"),
        other => panic!("{other:?}"),
    }
}

/// A transaction that somebody keeps open holds an upgrade up, but nobody else: it does not stand in line for long.
#[tokio::test]
async fn an_upgrade_that_waits_for_a_table_keeps_nobody_else_waiting() {
    let log = Log::new().await;
    let old = OLD.iter().find(|old| old.name == "8").unwrap();
    old.make(&log).await;
    old.fill(&log).await;
    log.hold("SELECT count(*) FROM LOG.jobs").await;
    let url = log.url.clone();
    let upgrade = tokio::spawn(async move { Upgrade::carry_out(&url).await });
    let waits = "SELECT count(*) FROM pg_locks l WHERE NOT l.granted AND l.relation = 'LOG.jobs'::regclass";
    for _ in 0..2 {
        log.until(waits, 1).await;
        // Stands behind it, and comes to its turn although what it waits for goes on.
        log.run("UPDATE LOG.jobs SET state = state").await;
    }
    assert!(!upgrade.is_finished());
    log.let_go().await;
    let done = upgrade.await.unwrap().unwrap();
    assert!(done.from == 8 && done.to > 8);
}
