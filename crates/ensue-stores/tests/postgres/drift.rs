//! `doctor` reports objects and rights that differ from those that were installed.

use crate::support::Log;
use crate::support::groups::open;
use ensue_stores::postgres::PostgresOptions;

/// Statements that change how code runs, each with the report that it leads to.
const CHANGES: [(&str, &str); 20] = [
    ("ALTER FUNCTION LOG.mutation_name VOLATILE", "the function mutation_name is sql, volatile, security invoker"),
    (
        "ALTER FUNCTION LOG.group_delete SECURITY DEFINER",
        "the function group_delete is plpgsql, volatile, security definer",
    ),
    ("ALTER FUNCTION LOG.log_tail SET search_path = public", "search_path=public"),
    (
        "ALTER FUNCTION LOG.condition_try RESET search_path",
        "the function condition_try is plpgsql, volatile, security definer, TimeZone",
    ),
    ("ALTER FUNCTION LOG.lock_log STRICT", "the function lock_log is plpgsql, volatile, strict"),
    ("CREATE FUNCTION LOG.publish(int) RETURNS int LANGUAGE sql AS 'SELECT 1'", "the function publish is sql"),
    (
        "CREATE FUNCTION LOG.stray() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "the function stray is not part of Ensue",
    ),
    (
        "CREATE TRIGGER stray AFTER INSERT ON LOG.jobs EXECUTE FUNCTION LOG.stray()",
        "the trigger stray of jobs is not part of Ensue",
    ),
    (
        "CREATE OPERATOR LOG.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq)",
        "the operator === (int4, int4) is not part of Ensue",
    ),
    (
        "CREATE FUNCTION LOG_other.cast_to(LOG.condition_event) RETURNS json LANGUAGE sql AS $$ SELECT '1'::json $$; \
         CREATE CAST (LOG.condition_event AS json) WITH FUNCTION LOG_other.cast_to(LOG.condition_event)",
        "the cast from condition_event to json is not part of Ensue",
    ),
    (
        "CREATE RULE stray AS ON DELETE TO LOG.config DO INSTEAD NOTHING",
        "the rule stray of config is not part of Ensue",
    ),
    ("ALTER TABLE LOG.jobs ENABLE ROW LEVEL SECURITY", "the table jobs is plain, with row security"),
    ("CREATE POLICY stray ON LOG.jobs USING (true)", "the policy stray of jobs is not part of Ensue"),
    (
        "ALTER TABLE LOG.groups ADD CONSTRAINT stray CHECK (name <> '')",
        "the constraint stray of groups is not part of Ensue",
    ),
    ("ALTER TABLE LOG.groups ADD COLUMN stray int", "the column stray of groups is not part of Ensue"),
    ("ALTER DOMAIN LOG.condition_text ADD CHECK (VALUE <> 'x')", "the domain condition_text is text with a check"),
    ("CREATE DOMAIN LOG.stray AS int", "the domain stray is not part of Ensue"),
    ("GRANT SELECT ON LOG.jobs TO PUBLIC", "anybody may SELECT jobs"),
    ("ALTER FUNCTION LOG.elapsed OWNER TO LOG_other", "the function elapsed belongs to the role LOG_other"),
    ("ALTER TABLE LOG.job_calls OWNER TO LOG_other", "job_calls belongs to the role LOG_other"),
];

/// Rights that `apply_grants()` takes back.
const RIGHTS: [(&str, &str); 5] = [
    ("GRANT DELETE ON LOG.partitions TO LOG_serve", "the role LOG_serve may DELETE LOG.partitions"),
    (
        "GRANT EXECUTE ON FUNCTION LOG.condition_try TO LOG_serve",
        "the role LOG_serve may call the function LOG.condition_try(text)",
    ),
    ("GRANT UPDATE ON SEQUENCE LOG.job_numbers TO LOG_consume", "the role LOG_consume may UPDATE LOG.job_numbers"),
    ("GRANT CREATE ON SCHEMA LOG TO LOG_evaluate", "the role LOG_evaluate may CREATE LOG"),
    ("GRANT CREATE ON SCHEMA LOG TO LOG_owner", "the role LOG_owner may create objects in the schema"),
];

#[tokio::test]
async fn every_change_of_code_is_reported() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    log.run("CREATE ROLE LOG_other; CREATE SCHEMA LOG_other; GRANT CREATE ON SCHEMA LOG TO LOG_other").await;
    let reports = async || store.drift().await.unwrap().into_iter().map(|drift| drift.found).collect::<Vec<_>>();
    assert_eq!(reports().await, [""; 0]);
    for (change, report) in CHANGES.iter().chain(&RIGHTS) {
        let report = report.replace("LOG", &log.schema);
        let before = reports().await;
        assert!(!before.iter().any(|found| found.contains(&report)), "{report}: {before:?}");
        log.run(change).await;
        let after = reports().await;
        assert!(after.iter().any(|found| found.contains(&report)), "{change}: {after:?}");
        assert!(after.len() > before.len(), "{change}: {after:?}");
    }
}

#[tokio::test]
async fn apply_grants_revokes_rights_that_are_not_listed() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    for (change, _) in RIGHTS {
        log.run(change).await;
    }
    assert_eq!(store.drift().await.unwrap().len(), RIGHTS.len());
    assert_eq!(log.number("SELECT count(*) FROM LOG.apply_grants()").await, 0);
    assert_eq!(store.drift().await.unwrap(), []);
}
