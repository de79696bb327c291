//! Bugs that are planted into the functions for consumers over SQL: each makes a test of theirs fail.

use crate::sql_consume::{commit_stale, nobody_misses_anything, read_poisoned, read_shuffled};
use crate::sql_keys::differences;
use crate::sql_roles::faults;
use crate::support::sql::{log, seqs};

/// H3: LIMIT without ORDER BY, on rows as they lie.
#[tokio::test]
async fn a_page_that_is_cut_before_it_is_ordered_is_noticed() {
    let log = log().await;
    log.plant("pull_scan", "ORDER BY log.seq LIMIT v_rows", "LIMIT v_rows").await;
    log.plant("pull_scan", "SET enable_seqscan TO 'off'", "SET enable_indexscan TO 'off' SET enable_seqscan TO 'on'")
        .await;
    assert_ne!(seqs(&read_shuffled(&log).await), (1..=100).collect::<Vec<i64>>());
}

/// H24: a page on which a condition fails is given up for all that share it; an event on which it fails, for all of its subscriptions.
#[tokio::test]
async fn a_failure_that_is_not_looked_at_row_by_row_is_noticed() {
    for (right, wrong) in [
        ("o_ids := '{}';\n    END;", "o_ids := '{}'; RETURN;\n    END;"),
        ("FOR j IN 1..cardinality(v_subscriptions) LOOP", "FOR j IN 1..0 LOOP"),
    ] {
        let log = log().await;
        log.plant("condition_evaluate", right, wrong).await;
        let (read, failing, others) = read_poisoned(&log).await;
        assert!(!nobody_misses_anything(&read, &failing, &others), "{wrong}");
    }
}

/// A key that two values have which differ; subscriptions that are found and not evaluated.
#[tokio::test]
async fn a_key_that_says_less_than_the_condition_is_noticed() {
    for (function, right, wrong) in [
        ("condition_scalar", "trim_scale(p_value::numeric)::text", "'1'"),
        ("pull_keyed", "WHERE NOT x.is_exact", "WHERE false"),
    ] {
        let log = log().await;
        log.plant(function, right, wrong).await;
        assert!(!differences(&log, 3).await.1.is_empty(), "{function}: {wrong}");
    }
}

/// H16: a commit that does not look at who has the group now.
#[tokio::test]
async fn a_commit_without_a_fence_is_noticed() {
    let log = log().await;
    let fence = "s.owner = v_lease.o_member AND s.fence = v_lease.o_fence AND m.lease_until >= clock_timestamp()";
    log.plant("set_group_cursor", fence, "true").await;
    log.subscribe("'g'").await;
    log.put("SELECT n, 't', '{}'::jsonb FROM generate_series(1, 9) n").await;
    assert_eq!(commit_stale(&log).await.0, Ok(4));
}

/// S1: a text that is passed on as it is.
#[tokio::test]
async fn a_condition_that_is_not_written_anew_is_noticed() {
    let log = log().await;
    let wrong = "\nBEGIN\n    RETURN ARRAY[p_condition];\n    IF octet_length";
    log.plant("condition_tokens", "\nBEGIN\n    IF octet_length", wrong).await;
    assert!(log.subscribing(&log.admin, "'g', 'true) OR (true'").await.is_ok());
    assert!(log.subscribing(&log.admin, "'g', 'pg_sleep(0) IS NULL'").await.is_ok());
}

/// S2: a function for everybody, one whose search path is the caller's, one that lends rights and is not listed, and its like.
#[tokio::test]
async fn rights_that_are_lent_without_care_are_noticed() {
    for (planted, fault) in [
        ("GRANT EXECUTE ON FUNCTION LOG.log_tail TO PUBLIC", "anybody may call log_tail"),
        ("ALTER FUNCTION LOG.subscribe RESET search_path", "the search path is the caller's of subscribe"),
        (
            "ALTER FUNCTION LOG.subscribe SET search_path = pg_temp, pg_catalog",
            "the search path is the caller's of subscribe",
        ),
        (
            "ALTER FUNCTION LOG.group_delete SECURITY DEFINER SET search_path = pg_catalog, pg_temp",
            "no line in fn_grants.sql has group_delete",
        ),
        (
            "ALTER FUNCTION LOG.condition_evaluate OWNER TO current_user",
            "with other rights than those of a role without a login runs condition_evaluate",
        ),
        ("GRANT EXECUTE ON FUNCTION LOG.group_delete TO LOG_consume", "granted and not listed is group_delete"),
    ] {
        let log = log().await;
        log.run(planted).await;
        assert_eq!(faults(&log).await, [fault], "{planted}");
    }
}
