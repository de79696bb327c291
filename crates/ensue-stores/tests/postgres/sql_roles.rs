//! S2: who may do what over SQL. Functions that run with the rights of another pin their search path, and nobody may call what was not granted.

use crate::support::sql::{Refusal, as_user, log, rand_id, refusal, seqs};
use crate::support::{Log, connect, on, whole_log};
use ensue_conformance::postgres::shared_url;
use ensue_core::store::SharedStore;
use ensue_stores::postgres::{PostgresOptions, PostgresStore, Upgrade};
use std::sync::Arc;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// The functions of the schema for which this holds, as `p`.
async fn functions(log: &Log, holds: &str) -> Vec<String> {
    let sql = format!(
        "SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = '{0}'::regnamespace AND ({1}) ORDER BY 1",
        log.schema,
        holds.replace("LOG", &log.schema)
    );
    log.admin.query(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// What is wrong with the functions of the schema, by the rules of S2.
pub async fn faults(log: &Log) -> Vec<String> {
    let mut faults = Vec::new();
    for (fault, holds) in [
        (
            "anybody may call",
            "EXISTS (SELECT 1 FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE a.grantee = 0)",
        ),
        (
            "the search path is the caller's of",
            "p.prosecdef AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)",
        ),
        (
            "no line in fn_grants.sql has",
            "p.prosecdef AND p.proname NOT IN (SELECT function_name FROM LOG.grants() WHERE runs_as <> 'caller')",
        ),
        (
            "with other rights than those of a role without a login runs",
            "p.prosecdef AND p.proowner <> (SELECT to_regrole('LOG_' || g.runs_as) FROM LOG.grants() g \
             WHERE g.function_name = p.proname AND g.runs_as <> 'installer')",
        ),
        (
            "a value of a type that others define is taken by",
            "p.prosecdef AND EXISTS (SELECT 1 FROM unnest(p.proargtypes::oid[]) a(type) JOIN pg_type t ON t.oid = a.type \
             WHERE t.typtype = 'p' OR t.oid >= 16384 AND t.typnamespace <> p.pronamespace)",
        ),
        (
            "rows of tables of others are seen by",
            "p.prosecdef AND p.prorettype = 'trigger'::regtype AND p.proname NOT IN \
             ('mutations_insert', 'mutations_update', 'mutations_delete', 'own_committing')",
        ),
        (
            "SQL that is made at run time is executed by",
            r"p.prosrc ~ '\mEXECUTE\M' AND p.proname NOT IN ('apply_grants', 'is_dotted',
             'condition_evaluate', 'condition_try', 'condition_values', 'ensure_partitions', 'detach_trimmed', 'drop_detached',
             'partitions_resize',
             'push_table_mutations', 'stop_table_mutations', 'mutations_insert', 'mutations_update', 'mutations_delete')",
        ),
        (
            // It would be looked for among the temporary ones of the session, too. `new_rows` and `old_rows` are checked by mutation_columns.
            "a relation is named without its schema by",
            r"EXISTS (SELECT 1 FROM regexp_matches(regexp_replace(p.prosrc, '--[^\n]*', '', 'g'),
             '(\S+)\s+(?:FROM|JOIN|INSERT INTO)\s+(?!LATERAL\M|ONLY\M)([A-Za-z_]\w*)\M(?!\s*[.(])', 'g') m(word)
             WHERE m.word[1] !~ '(DISTINCT|extract\(epoch)$' AND m.word[2] !~ '^(pg|v|o|p)_'
             AND NOT (p.proname ~ '^mutations_' AND m.word[2] IN ('new_rows', 'old_rows')) AND m.word[2] <> 'PUBLIC'
             AND p.prosrc !~ ('\m' || m.word[2] || '\M\s+AS\s+(MATERIALIZED\s+)?\('))",
        ),
        (
            // PL/pgSQL resolves these types once per session, with the search path of the first call.
            "a type of a variable is named without its schema by",
            r"p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'plpgsql') AND EXISTS (
             SELECT 1 FROM regexp_matches(p.prosrc, '\mDECLARE\M(.*?)\mBEGIN\M', 'g') d(block),
             regexp_matches(d.block[1], '^\s*[a-z]\w*\s+(?:CONSTANT\s+)?([a-z]\w*)\s*(?:\[\])?\s*(?:;|:=)', 'gn') m(word)
             WHERE m.word[1] NOT IN ('bigint', 'boolean', 'int', 'smallint', 'numeric', 'interval'))",
        ),
        (
            "a note of the caller's session is trusted by",
            r"p.prosrc ~ 'ensue\.drained_' AND p.proname <> 'poll_for_events' AND regexp_replace(p.prosrc,
             'CASE WHEN current_user = session_user THEN nullif\(current_setting\(''ensue\.drained_\w+''|'
             'set_config\(''ensue\.drained_\w+'', v_seen::text, false\) WHERE current_user = session_user', '', 'g')
             ~ 'ensue\.drained_'",
        ),
        (
            "granted and not listed is",
            "EXISTS (SELECT 1 FROM aclexplode(p.proacl) a JOIN unnest('{publish,consume,operate,serve,evaluate}'::text[]) r(name) \
             ON a.grantee = to_regrole('LOG_' || r.name) WHERE a.grantee <> p.proowner AND NOT EXISTS ( \
             SELECT 1 FROM LOG.grants() g WHERE g.function_name = p.proname AND r.name = ANY (g.roles)))",
        ),
    ] {
        faults.extend(functions(log, holds).await.into_iter().map(|function| format!("{fault} {function}")));
    }
    faults
}

#[tokio::test]
async fn no_function_is_for_everybody_and_those_that_lend_rights_pin_their_search_path() {
    let log = log().await;
    assert!(functions(&log, "true").await.len() > 80, "they were found");
    assert!(functions(&log, "p.prosecdef").await.len() >= 6, "they were found");
    assert_eq!(faults(&log).await, [""; 0]);
    let stray = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'LOG\\_%' AND (rolcanlogin OR rolsuper OR rolcreaterole OR rolcreatedb)";
    assert_eq!(log.number(stray).await, 0);
    assert_eq!(log.number("SELECT count(*) FROM LOG.apply_grants()").await, 0, "nothing is missing");
}

async fn state_of(client: &Client, sql: &str) -> Option<SqlState> {
    client.batch_execute(sql).await.err().map(|error| refusal(&error).state)
}

#[tokio::test]
async fn a_login_that_may_consume_reads_and_commits_and_does_nothing_else() {
    let log = log().await;
    let consumer = log.login(&["consume"]).await;
    // Where no node runs, who consumes moves what was published.
    consumer.batch_execute(&format!("SELECT {}.poll_for_events()", log.schema)).await.unwrap();
    log.subscribing(&consumer, "'g', 'lower(e.payload->>''k'') = ''a'''").await.unwrap();
    log.put("SELECT n, 't', '{\"k\": \"A\"}'::jsonb FROM generate_series(1, 5) n").await;
    let read = log.reading(&consumer, "'g'").await.unwrap();
    assert_eq!(seqs(&read), [1, 2, 3, 4, 5]);
    let commit = format!("SELECT {}.set_group_cursor($1, $2, true, $3)", log.schema);
    let done: i64 = consumer.query_one(&commit, &[&"g", &read[4].next_cursor, &read[4].lease]).await.unwrap().get(0);
    assert_eq!(done, 5);
    let seen = consumer
        .query(&format!("SELECT id, payload::text FROM {}.events WHERE seq = 3", log.schema), &[])
        .await
        .unwrap();
    assert_eq!(seen.len(), 1);

    let tables = "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'LOG'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition";
    let tables = log.admin.query(&tables.replace("LOG", &log.schema), &[]).await.unwrap();
    assert!(tables.len() > 15);
    for table in tables {
        let table: &str = table.get(0);
        for verb in ["SELECT", "DELETE"] {
            let sql = format!("{verb} FROM {}.{table}", log.schema);
            assert_eq!(state_of(&consumer, &sql).await, Some(SqlState::INSUFFICIENT_PRIVILEGE), "{sql}");
        }
    }
    for sql in [
        "SELECT LOG.log_tail(0)",
        "SELECT LOG.member_leave(NULL, NULL)",
        "SELECT LOG.group_delete('g')",
        "SELECT LOG.apply_grants()",
        "SELECT LOG.condition_sql('true')",
        "SELECT LOG.condition_evaluate('true', '{}', '{}')",
        "SELECT LOG.condition_values('true', '{}')",
        "SELECT LOG.slots_acquire(NULL, 'g', gen_random_uuid(), 'x', 'pull', 1, NULL, NULL)",
        "INSERT INTO LOG.events (seq) VALUES (1)",
        "DELETE FROM LOG.events",
        "CREATE TABLE LOG.mine (x int)",
        "CREATE OR REPLACE FUNCTION LOG.subscribe(gid text, conditions_sql text, params jsonb, expiry interval) RETURNS uuid LANGUAGE sql AS 'SELECT gen_random_uuid()'",
        "SET ROLE LOG_owner",
        "SET ROLE LOG_evaluate",
    ] {
        let sql = sql.replace("LOG", &log.schema);
        assert_eq!(state_of(&consumer, &sql).await, Some(SqlState::INSUFFICIENT_PRIVILEGE), "{sql}");
    }
    let publisher = log.login(&["publish"]).await;
    let Refusal { state, .. } = log.reading(&publisher, "'g'").await.unwrap_err();
    assert_eq!(state, SqlState::INSUFFICIENT_PRIVILEGE);
    let nobody = log.login(&[]).await;
    assert_eq!(log.reading(&nobody, "'g'").await.unwrap_err().state, SqlState::INSUFFICIENT_PRIVILEGE);
}

/// A caller's own objects, in a schema of its own or a temporary one, are not taken for ours.
#[tokio::test]
async fn what_a_caller_puts_into_its_search_path_is_not_called() {
    let log = log().await;
    let consumer = log.login(&["consume"]).await;
    consumer
        .batch_execute(
            "CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''infinity''::timestamptz';
             CREATE DOMAIN pg_temp.text AS pg_catalog.int4;
             CREATE DOMAIN pg_temp.jsonb AS pg_catalog.int4;
             CREATE TEMP TABLE events (x int); CREATE TEMP TABLE log_state (x int); CREATE TEMP TABLE pg_proc (x int);
             SET search_path = pg_temp, pg_catalog",
        )
        .await
        .unwrap();
    log.subscribing(&consumer, "'g', 'e.payload->>''a'' = ''x'' AND (e.payload->''n'')::text = ''1'''").await.unwrap();
    log.put("SELECT 1, 't', '{\"a\": \"x\", \"n\": 1}'::jsonb").await;
    assert_eq!(seqs(&log.reading(&consumer, "'g'").await.unwrap()), [1]);
}

/// S1: the second line of defence. Should a text pass that is no condition, it finds nothing that it could do.
#[tokio::test]
async fn what_is_executed_for_a_condition_has_no_rights() {
    let log = log().await;
    let evaluate = |sql: &str| {
        format!(
            "SELECT r.o_seqs, r.o_failed_with FROM {0}.condition_evaluate($x${1}$x$, \
             ARRAY[ROW(1, NULL, NULL, 't', NULL, '{{}}', '{{}}', now(), now(), NULL)::{0}.condition_event], \
             ARRAY[ROW(gen_random_uuid(), 'g', '{{}}', NULL, NULL)::{0}.condition_subscription]) r",
            log.schema,
            sql.replace("LOG", &log.schema)
        )
    };
    let answer = log.admin.query_one(&evaluate("e.topic = 't'"), &[]).await.unwrap();
    assert_eq!(answer.get::<_, Option<Vec<i64>>>(0), Some(vec![1]));
    for sql in [
        "EXISTS (SELECT 1 FROM LOG.stored_events)",
        "EXISTS (SELECT 1 FROM LOG.events)",
        "EXISTS (SELECT 1 FROM LOG.subscriptions)",
        "EXISTS (SELECT 1 FROM pg_catalog.pg_authid)",
        "pg_read_file('/etc/passwd') IS NULL",
        "LOG.group_delete('g')",
        "LOG.member_leave(NULL, NULL) IS NULL",
        "set_config('role', 'ensue', true) IS NULL",
    ] {
        let answer = log.admin.query_one(&evaluate(sql), &[]).await.unwrap();
        let said = answer.get::<_, Option<Vec<String>>>(1).unwrap_or_else(|| panic!("{sql} was answered"));
        assert!(said[0].contains("permission denied") || said[0].contains("cannot set parameter"), "{sql}: {said:?}");
    }
}

/// Who installs need not be a superuser: with CREATEROLE all of it is there, without it the functions run as the installer, who is told.
#[tokio::test]
async fn an_installer_without_all_rights_gets_as_far_as_it_may() {
    for may_make_roles in [true, false] {
        let log = Log::new().await;
        let installer = format!("{}_installer", log.schema);
        let right = if may_make_roles { "CREATEROLE" } else { "NOCREATEROLE" };
        let database = shared_url().rsplit_once('/').unwrap().1.split('?').next().unwrap().to_string();
        log.run(&format!("CREATE ROLE {installer} login {right}; GRANT CREATE ON DATABASE {database} TO {installer}"))
            .await;
        let url = format!("{}?schema={}", as_user(&installer), log.schema);
        let store = PostgresStore::open(&url, PostgresOptions::default()).await.unwrap();
        ensue_core::Store::close(&store).await;
        let as_installer = connect(&as_user(&installer)).await;
        let missing = as_installer.query(&format!("SELECT * FROM {}.apply_grants()", log.schema), &[]).await.unwrap();
        let owned_by = "SELECT count(*) FROM pg_proc p WHERE p.pronamespace = 'LOG'::regnamespace AND p.prosecdef \
            AND p.proname NOT IN (SELECT function_name FROM LOG.grants() WHERE runs_as = 'installer') AND p.proowner = ";
        let own = log.number(&format!("{owned_by} '{installer}'::regrole")).await;
        assert_eq!((missing.len(), own == 0), if may_make_roles { (0, true) } else { (6, false) });
        if let Some(first) = missing.first() {
            let told: &str = first.get(0);
            assert!(told.contains("CREATE ROLE") && told.contains("apply_grants"), "{told}");
        }
        log.subscribing(&as_installer, "'g', 'e.payload->>''k'' = ''a'''").await.unwrap();
        log.put("SELECT 1, 't', '{\"k\": \"a\"}'::jsonb").await;
        assert_eq!(seqs(&log.reading(&as_installer, "'g'").await.unwrap()), [1]);
        if may_make_roles {
            let consumer = log.login(&["consume"]).await;
            assert_eq!(log.reading(&consumer, "'g'").await.unwrap_err().state, SqlState::LOCK_NOT_AVAILABLE);
        } else {
            // An administrator makes what was missing, and the installer goes on.
            for role in ["publish", "consume", "operate", "serve", "owner", "evaluate"] {
                log.run(&format!("CREATE ROLE LOG_{role} nologin")).await;
            }
            log.run(&format!("GRANT LOG_owner, LOG_evaluate TO {installer}")).await;
            let missing =
                as_installer.query(&format!("SELECT * FROM {}.apply_grants()", log.schema), &[]).await.unwrap();
            assert_eq!(missing.len(), 0, "{:?}", missing.first().map(|row| row.get::<_, String>(0)));
            assert_eq!(log.number(&format!("{owned_by} '{installer}'::regrole")).await, 0);
        }
        // An upgrade makes every function anew, whoever has it by now.
        let all = "SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = 'LOG'::regnamespace";
        for function in log.admin.query(&all.replace("LOG", &log.schema), &[]).await.unwrap() {
            as_installer.batch_execute(function.get(0)).await.unwrap();
        }
        as_installer.batch_execute(&format!("DROP SCHEMA {} CASCADE", log.schema)).await.unwrap();
    }
}

/// A login of this name that may make a schema, and no roles.
async fn poor_login(log: &Log, name: &str) -> String {
    let database = shared_url().rsplit_once('/').unwrap().1.split('?').next().unwrap().to_string();
    log.run(&format!("CREATE ROLE {name} login; GRANT CREATE ON DATABASE {database} TO {name}")).await;
    format!("{}?schema={}", as_user(name), log.schema)
}

/// An administrator does with `apply_grants()` what the owner of the schema may not, and the owner goes on: it calls, serves and upgrades.
#[tokio::test]
async fn the_owner_of_the_schema_goes_on_when_a_superuser_has_applied_the_grants() {
    let log = Log::new().await;
    let name = format!("{}_lim", log.schema);
    let url = poor_login(&log, &name).await;
    let lim = connect(&as_user(&name)).await;
    lim.batch_execute(&Upgrade::install(&log.schema)).await.unwrap();
    assert_eq!(log.number("SELECT count(*) FROM LOG.apply_grants()").await, 0, "nothing is missing");
    assert_eq!(faults(&log).await, [""; 0]);

    for sql in ["SELECT LOG.publish('a')", "SELECT LOG.poll_for_events()", "SELECT LOG.subscribe('g', 'true')"] {
        let called = lim.batch_execute(&sql.replace("LOG", &log.schema)).await;
        called.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
    log.run("DELETE FROM LOG.schema_version WHERE version >= 20").await;
    // What these versions have made.
    log.run("DROP TABLE LOG.outbox_rejected, LOG.log_lock, LOG.serving_lock, LOG.rules_lock, LOG.store_key").await;
    log.run("DROP TABLE LOG.outbox_state, LOG.retention_state").await;
    log.run("DROP TABLE LOG.subscription_conditions, LOG.subscription_keys, LOG.subscription_counts").await;
    log.run("ALTER TABLE LOG.jobs DROP COLUMN settled").await;
    Upgrade::carry_out(&url).await.expect("the owner upgrades");
    let store = PostgresStore::open(&url, PostgresOptions::default()).await.expect("the owner serves");
    assert_eq!(ensue_core::Store::append(&store, on("o")).await.unwrap()[0].seq, Some(2));
    ensue_core::Store::close(&store).await;
    assert_eq!(faults(&log).await, [""; 0]);
}

/// A DBA installs, and the application's login, which owns nothing, serves with the role for it: partitions and upkeep included.
#[tokio::test]
async fn a_login_that_owns_nothing_serves_what_somebody_else_has_installed() {
    let log = Log::new().await;
    log.admin.batch_execute(&Upgrade::install(&log.schema)).await.unwrap();
    let name = format!("{}_app", log.schema);
    log.run(&format!("CREATE ROLE {name} login; GRANT LOG_serve TO {name}")).await;
    let url = format!("{}?schema={}", as_user(&name), log.schema);
    let options = PostgresOptions { partition_rows: Some(10), ..PostgresOptions::default() };
    let store: SharedStore = Arc::new(PostgresStore::open(&url, options).await.expect("it opens"));
    // Only as many partitions as a log of small ones has: more must be made.
    log.run("DO $$ DECLARE p record; BEGIN FOR p IN SELECT from_seq FROM LOG.partitions LOOP EXECUTE 'DROP TABLE LOG.events_p' || p.from_seq; END LOOP; END $$; DELETE FROM LOG.partitions")
        .await;
    for _ in 0..45 {
        store.append(on("o")).await.expect("an append, with the partition that it needs");
    }
    assert_eq!(whole_log(&store).await.len(), 45);
    // Retention is what the setting allows, and no more.
    let refused = store.trim(35, 1_000).await.expect_err("there is no retention period");
    let refused = refused.to_string();
    assert!(
        refused.contains("permission denied to trim") && refused.contains("Set partition_retention_period"),
        "{refused}"
    );
    let set = "UPDATE LOG.config SET value = '1 hour' WHERE key = 'partition_retention_period'";
    log.run(set).await;
    assert_eq!(store.trim(35, 1_000).await.expect("within the period").first, 1);
    log.run(&set.replace("1 hour", "1 microsecond")).await;
    assert_eq!(store.trim(35, 1_000).await.expect("after the period").first, 35);
    store.maintain(true).await.expect("the upkeep of partitions");
    assert_eq!(log.number("SELECT min(from_seq) FROM LOG.partitions").await, 31);
    assert_eq!(PostgresStore::open(&url, PostgresOptions::default()).await.unwrap().drift().await.unwrap(), []);
    let app = connect(&as_user(&name)).await;
    for sql in [
        "DROP TABLE LOG.stored_events",
        "CREATE TABLE LOG.mine (x int)",
        "CREATE FUNCTION LOG.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "ALTER FUNCTION LOG.publish SECURITY INVOKER",
        "ALTER FUNCTION LOG.maintain RESET search_path",
        "ALTER FUNCTION LOG.append RESET search_path",
        "SET ROLE LOG_owner",
        "SET ROLE LOG_evaluate",
        "SELECT LOG.apply_grants()",
        "SELECT LOG.maintain()",
        "SELECT LOG.condition_try('true')",
        "SELECT LOG.condition_sql('true')",
        "SELECT LOG.condition_evaluate('true', '{}', '{}')",
        "SELECT LOG.condition_values('true', '{}')",
        "SELECT LOG.subscribe('g')",
        "SELECT LOG.read_next_events('g')",
        "SELECT LOG.publish('a')",
        "SELECT LOG.pause('all')",
        "SELECT LOG.push_table_mutations('LOG.jobs')",
        "INSERT INTO LOG.partitions VALUES (1, 2)",
        "UPDATE LOG.partitions SET detached = true",
        "DELETE FROM LOG.partitions",
        "UPDATE LOG.log_state SET trimmed_to = 44",
        "UPDATE LOG.stored_events SET topic = 'x'",
        "DELETE FROM LOG.stored_events",
        "TRUNCATE LOG.jobs",
        "INSERT INTO LOG.schema_version VALUES (99)",
        "UPDATE LOG.schema_version SET version = 99",
        "UPDATE LOG.config SET value = NULL",
        "SELECT * FROM LOG.own_settlements",
        "DELETE FROM LOG.events_p31",
        "ALTER TABLE LOG.stored_events DETACH PARTITION LOG.events_p31",
    ] {
        let sql = sql.replace("LOG", &log.schema);
        assert_eq!(state_of(&app, &sql).await, Some(SqlState::INSUFFICIENT_PRIVILEGE), "{sql}");
    }
    let many = format!("SELECT {}.ensure_partitions(1, 1000000000)", log.schema);
    assert_eq!(state_of(&app, &many).await, Some(SqlState::INVALID_PARAMETER_VALUE));
    store.close().await;
}

/// Functions and operators in a schema that others write to are not called by a node, whatever its search path is.
#[tokio::test]
async fn node_calls_nothing_from_its_search_path() {
    let log = log().await;
    let name = format!("{}_app", log.schema);
    log.run(&format!(
        "CREATE SCHEMA LOG_public; CREATE TABLE LOG_public.ran (by_whom text); \
         GRANT USAGE ON SCHEMA LOG_public TO PUBLIC; GRANT INSERT ON LOG_public.ran TO PUBLIC; \
         CREATE FUNCTION LOG_public.joined(text, bigint) RETURNS text LANGUAGE plpgsql AS \
         $$ BEGIN INSERT INTO LOG_public.ran VALUES (current_user); RETURN $1 || $2::text; END $$; \
         CREATE OPERATOR LOG_public.|| (LEFTARG = text, RIGHTARG = bigint, FUNCTION = LOG_public.joined); \
         CREATE ROLE {name} login; GRANT LOG_serve TO {name}; ALTER ROLE {name} SET search_path = LOG_public"
    ))
    .await;
    for pooler in ["none", "transaction"] {
        let url = format!("{}?schema={}&pooler={pooler}", as_user(&name), log.schema);
        let store = PostgresStore::open(&url, PostgresOptions::default()).await.expect("it opens");
        assert_eq!(store.drift().await.unwrap(), []);
        ensue_core::Store::close(&store).await;
    }
    assert_eq!(log.number("SELECT count(*) FROM LOG_public.ran").await, 0);
}

/// A role that is there for something else is not taken.
#[tokio::test]
async fn a_role_of_the_same_name_that_can_log_in_is_left_alone() {
    let log = Log::new().await;
    log.run("CREATE ROLE LOG_owner login SUPERUSER").await;
    log.open().await.close().await;
    let told = log.admin.query(&format!("SELECT * FROM {}.apply_grants()", log.schema), &[]).await.unwrap();
    assert_eq!(told.len(), 1);
    assert!(told[0].get::<_, &str>(0).contains("can log in or has rights of its own"));
    let owned = "SELECT count(*) FROM pg_proc p WHERE p.pronamespace = 'LOG'::regnamespace AND p.proowner = 'LOG_owner'::regrole";
    assert_eq!(log.number(owned).await, 0);
    log.run("DROP ROLE LOG_owner").await;
}

/// Any name of a schema works, and long ones have roles of their own.
#[tokio::test]
async fn a_schema_of_any_name_is_consumed() {
    let (admin, random) = (connect(&shared_url()).await, rand_id().simple().to_string());
    for name in [format!("o'd\"d %I $body$ {{schema}} {}", &random[..8]), format!("{}_{}", "x".repeat(30), random)] {
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let store = PostgresStore::open(&format!("{}?schema={encoded}", shared_url()), PostgresOptions::default())
            .await
            .unwrap();
        ensue_core::Store::close(&store).await;
        let schema = format!("\"{}\"", name.replace('"', "\"\""));
        let log = Log::in_schema(schema.clone()).await;
        log.subscribe("'g', 'lower(e.payload->>''k'')::text = ''a'''").await;
        log.put("SELECT 1, 't', '{\"k\": \"A\"}'::jsonb").await;
        assert_eq!(seqs(&log.read("'g'").await), [1]);
        let roles: Vec<String> = admin
            .query(&format!("SELECT DISTINCT {schema}.role_name(r) FROM unnest('{{publish,consume,operate,serve,owner,evaluate}}'::text[]) r"), &[])
            .await
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        assert_eq!(roles.len(), 6);
        assert!(roles.iter().all(|role| role.len() <= 63));
        let there = admin.query("SELECT 1 FROM pg_roles WHERE rolname = ANY ($1)", &[&roles]).await.unwrap();
        assert_eq!(there.len(), 6, "{roles:?}");
    }
}
