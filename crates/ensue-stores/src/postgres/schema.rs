//! Which SQL runs in this schema?
//!
//! The SQL lives in `sql/`, one statement or function a file, written for a schema to be named. Here the name is put
//! in, quoted so that any name is safe.

use super::definitions::DefinitionsSql;
use super::jobs::sql::{JobsSql, columns_of_j, columns_with_types};
use super::jobs::tasks::TasksSql;
use super::jobs::unsaid;
use super::own::{OWN_DONE, OWN_LOST};
use super::positions_sql::PositionsSql;
use super::schedules::SchedulesSql;
use super::words;
use ensue_core::event::EVENT_BYTES_MAX;
use ensue_core::jobs::job::{ERRORS_MAX, JOB_LINES_MAX};
use ensue_core::jobs::lane::DIED_WITH;
use ensue_core::jobs::notices::{JOB_DEAD, OBJECT_HELD, OWN_OBJECTS};
use ensue_core::key::{KEY_BYTES_MAX, OBJECT_BYTES_MAX, RESERVED, TOPIC_BYTES_MAX};
use ensue_core::plan::KEY_WINDOW;
use ensue_core::positions::subscription::CHANGES_KEPT;
use ensue_core::rules::RULES_MAX;
use ensue_core::schedules::port::RUNS_MAX;
use ensue_core::store::PAGE_BYTES_MAX;
use ensue_core::text::unprintable_class;
use std::time::Duration;

/// How long after its id was made an event from the outbox may be recorded and still be found by the id alone.
const ID_LAG: Duration = Duration::from_secs(1);
/// The smallest partition where there is a retention, in events.
const PARTITION_ROWS_SMALL: u64 = 10_000;
/// The part of the log, one divided by this, that may be on the disk as trimmed events besides.
const KEPT_TRIMMED_SHARE: u64 = 4;
/// Trimmed events that one commit deletes.
const DELETE_TRIMMED_MAX: u64 = 10_000;
/// How many events one row of the outbox has at most.
const OUTBOX_ROW_EVENTS_MAX: usize = 1_000;
/// Events in one call of `outbox_put`: their ids differ in five hexadecimal digits.
const OUTBOX_PUT_EVENTS_MAX: usize = (1 << 20) - 1;
/// Rows of the outbox that one transaction rejects.
const OUTBOX_REJECTED_AT_ONCE_MAX: usize = 20;
/// Events that one call of `poll_for_events` moves.
const POLL_CHUNK_MAX: usize = 100_000;
/// Whether a row `c` that is to be moved has content that readers can represent. Other faults make the move fail by
/// themselves. The size as text is only measured where the stored size leaves it open.
const OUTBOX_IS_SOUND: &str = "c.occurred_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-29 00:00:00+00' \
    AND (c.not_before IS NULL OR c.not_before BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-29 00:00:00+00') \
    AND (c.bytes <= {event_bytes_near} OR c.is_batch OR (SELECT octet_length(o.payload::text) \
        + coalesce(octet_length(o.metadata::text), 0) <= 2 * {event_bytes_max} FROM {schema}.outbox o WHERE o.ctid = c.place))";
/// When the transaction of a row `o` of the outbox is moved: by the number of its last row. One that was moved in part
/// is first.
const OUTBOX_TURN: &str = "CASE WHEN o.xid = (SELECT s.moving FROM {schema}.outbox_state s) THEN 0 \
    ELSE max(o.number) OVER (PARTITION BY o.xid) END";
/// How many events of the outbox an append takes along.
const OUTBOX_FIRST_MAX: usize = 2_000;
/// How many transactions after a look at the outbox that was noted the next is noted; until then an append looks from there, in one statement with the look for the end of the log.
const LOOK_NOTED_TRANSACTIONS_MAX: u64 = 16;
/// How long an append or a poll waits for the lock of the log. An append holds it for less.
pub(super) const LOG_LOCK_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a call over SQL waits for the lock of a lane, unless its session has a `lock_timeout`.
const LANE_LOCK_TIME_MAX: Duration = Duration::from_secs(30);
/// Characters of an error that a worker gives over SQL.
const ERROR_CHARS_MAX: &str = "16384";
/// The longest length of time that a setting may have, in years.
const SPAN_YEARS_MAX: &str = "1000";
/// The share of the server's queue of notifications beyond which nothing is added to it.
const NOTIFY_QUEUE_MAX: &str = "0.5";
/// The code of the error that says that the outbox must be moved first.
pub(super) const BACKLOG: &str = "EN001";

/// The code of the error that says that an open transaction has sent a job with the same unique key.
pub(super) const KEY_HELD: &str = "EN004";

/// The code of an error by which a function undoes what it has just done, and goes on.
const TAKEN_BACK: &str = "EN003";

/// The session's note of which transactions have been drained from the outbox, or null. Any login can set it, and an
/// invented note would let later events of an object into the log before earlier ones. So SECURITY
/// DEFINER functions neither use it nor write it.
const DRAINED_NOTE: &str =
    "CASE WHEN current_user = session_user THEN nullif(current_setting('{drained}', true), '')::pg_snapshot END";
/// Writes the note, as the argument of PERFORM.
const NOTE_DRAINED: &str = "set_config('{drained}', v_seen::text, false) WHERE current_user = session_user";

/// The number of events that the current transaction has moved or settled into the log. `outbox_move`, `release_due` and
/// `settle_append` add to the setting, which ends with the transaction; an aborted subtransaction takes its part back.
/// As any login can set it, SECURITY DEFINER functions take it for 0.
const LOGGED: &str = "CASE WHEN current_user = session_user \
     THEN coalesce(nullif(current_setting('ensue.logged', true), ''), '0')::bigint ELSE 0 END";

/// The statements of all verbs, for one schema.
#[derive(Debug)]
pub(super) struct Sql {
    pub append: String,
    pub stored: String,
    pub keys: String,
    pub live_keys: String,
    pub tail: String,
    pub release_due: String,
    pub outbox_drain: String,
    pub read_range: String,
    pub read_object: String,
    pub walk_end: String,
    pub chain: String,
    pub event: String,
    pub find_seq: String,
    pub pending: String,
    pub pending_by_id: String,
    pub pending_count: String,
    pub cancel: String,
    pub seq_before: String,
    pub bytes: String,
    pub retention_age: String,
    pub trim: String,
    pub purge_keys: String,
    pub ensure_partitions: String,
    pub partitions_resize: String,
    pub delete_trimmed: String,
    pub detach_trimmed: String,
    pub drop_detached: String,
    pub lock_holders: String,
    pub outbox_put: String,
    pub outbox_put_at: String,
    pub outbox_rejected: String,
    pub store_key: String,
    pub own_put: String,
    pub own_committed: String,
    pub positions: PositionsSql,
    pub jobs: JobsSql,
    pub definitions: DefinitionsSql,
    pub tasks: TasksSql,
    pub schedules: SchedulesSql,
}

impl Sql {
    pub fn of(schema: &Schema) -> Self {
        let sql = |template: &str| schema.fill(template);
        Self {
            append: sql(
                "SELECT a.*, CASE WHEN $19 THEN {schema}.outbox_ring() END, {logged} AS logged FROM {schema}.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
                 $11, $12, $13, $14, $15, $16, $17, $18) a",
            ),
            stored: sql("SELECT * FROM {schema}.stored($1, $2, $3)"),
            keys: sql("SELECT key, id_part, seq, prev, recorded_at FROM {schema}.keys WHERE key = ANY ($1)"),
            live_keys: sql(include_str!("sql/live_keys.sql")),
            tail: sql("SELECT * FROM {schema}.log_tail($1)"),
            release_due: sql("SELECT *, {logged} AS logged FROM {schema}.release_due($1, $2, $3, $4)"),
            outbox_drain: sql("SELECT *, {logged} AS logged FROM {schema}.outbox_drain($1, $2, $3, $4)"),
            read_range: sql(include_str!("sql/read_range.sql")),
            read_object: sql(include_str!("sql/read_object.sql")),
            walk_end: sql(include_str!("sql/walk_end.sql")),
            chain: sql(include_str!("sql/chain.sql")),
            event: sql(include_str!("sql/event.sql")),
            find_seq: sql("SELECT {schema}.find_seq($1, $2, $3, $4, $5)"),
            pending: sql(include_str!("sql/pending.sql")),
            pending_by_id: sql(include_str!("sql/pending_by_id.sql")),
            pending_count: sql(include_str!("sql/pending_count.sql")),
            cancel: sql("SELECT {schema}.cancel($1, $2, $3, $4, $5)"),
            seq_before: sql("SELECT {schema}.seq_before($1, $2)"),
            bytes: sql("SELECT {schema}.log_bytes($1)"),
            retention_age: sql(include_str!("sql/retention_age.sql")),
            trim: sql("SELECT * FROM {schema}.trim($1, $2, $3)"),
            purge_keys: sql("SELECT {schema}.purge_keys($1, $2, $3)"),
            ensure_partitions: sql("SELECT {schema}.ensure_partitions(w.o_rows, w.o_ahead), w.o_rows, w.o_ahead \
                 FROM {schema}.partitions_wanted($1, $2, $3) w"),
            partitions_resize: sql("SELECT {schema}.partitions_resize(w.o_rows, w.o_ahead, w.o_slack) \
                 FROM {schema}.partitions_wanted($1, $2, $3) w"),
            delete_trimmed: sql("SELECT {schema}.delete_trimmed($1) > 0"),
            detach_trimmed: sql("SELECT {schema}.detach_trimmed()"),
            drop_detached: sql("SELECT {schema}.drop_detached()"),
            lock_holders: sql(include_str!("sql/lock_holders.sql")),
            outbox_put: sql(&format!("SELECT {{schema}}.outbox_put({})", numbered(9))),
            outbox_put_at: sql(&format!("SELECT {{schema}}.outbox_put_at({})", numbered(10))),
            outbox_rejected: sql("SELECT count(*) FROM {schema}.outbox_rejected"),
            store_key: sql("SELECT key FROM {schema}.store_key"),
            own_put: sql(&format!("SELECT {{schema}}.own_put({})", numbered(34))),
            own_committed: sql(include_str!("sql/own_committed.sql")),
            positions: PositionsSql::of(schema),
            jobs: JobsSql::of(schema),
            definitions: DefinitionsSql::of(schema),
            tasks: TasksSql::of(schema),
            schedules: SchedulesSql::of(schema),
        }
    }
}

/// The values of a statement: `$1, $2, …`.
fn numbered(count: usize) -> String {
    (1..=count).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ")
}

/// The name of a schema, and what depends on it.
#[derive(Debug, Clone)]
pub(super) struct Schema {
    pub name: String,
}

impl Schema {
    pub fn new(name: String) -> Self {
        Self { name }
    }

    /// A template of `sql/` for this schema.
    pub fn fill(&self, template: &str) -> String {
        // The name comes last: one that looks like a placeholder is left as it is.
        words::put_in(template)
            .replace("{outbox_is_sound}", OUTBOX_IS_SOUND)
            .replace("{outbox_turn}", OUTBOX_TURN)
            .replace("{log_lock_time_max}", &format!("{}ms", LOG_LOCK_TIME_MAX.as_millis()))
            .replace("{lane_lock_time_max}", &format!("{}ms", LANE_LOCK_TIME_MAX.as_millis()))
            .replace("{lock_migrations}", &self.lock_key("migrations").to_string())
            .replace("{lock_served}", &(self.lock_key("served") as i32).to_string())
            .replace("{lock_lanes}", &(self.lock_key("lanes") as i32).to_string())
            .replace("{job_j}", &columns_of_j())
            .replace("{job_table}", &columns_with_types())
            .replace("{job_claimed}", &unsaid::columns_of_claim())
            .replace("{job_whole}", &unsaid::columns_whole())
            .replace("{errors_max}", &ERRORS_MAX.to_string())
            .replace("{lines_max}", &JOB_LINES_MAX.to_string())
            .replace("{changes_kept}", &CHANGES_KEPT.to_string())
            .replace("{runs_max}", &RUNS_MAX.to_string())
            .replace("{rules_max}", &RULES_MAX.to_string())
            .replace("{died_with}", DIED_WITH)
            .replace("{own_objects}", OWN_OBJECTS)
            .replace("{job_dead}", JOB_DEAD)
            .replace("{object_held}", OBJECT_HELD)
            .replace("{reserved}", RESERVED)
            .replace("{own_lost}", OWN_LOST)
            .replace("{own_done}", OWN_DONE)
            .replace("{drained_note}", DRAINED_NOTE)
            .replace("{note_drained}", NOTE_DRAINED)
            .replace("{drained}", &format!("ensue.drained_{:016x}", self.lock_key("drained")))
            .replace("{logged}", LOGGED)
            .replace("{bell}", &self.bell())
            .replace("{lock_asleep}", &self.lock_key("asleep").to_string())
            .replace("{lock_listening}", &self.lock_key("listening").to_string())
            .replace("{id_lag}", &format!("{} seconds", ID_LAG.as_secs()))
            .replace("{key_held}", KEY_HELD)
            .replace("{error_chars_max}", ERROR_CHARS_MAX)
            .replace("{span_years_max}", SPAN_YEARS_MAX)
            .replace("{notify_queue_max}", NOTIFY_QUEUE_MAX)
            .replace("{backlog}", BACKLOG)
            .replace("{look_noted_transactions_max}", &LOOK_NOTED_TRANSACTIONS_MAX.to_string())
            .replace("{taken_back}", TAKEN_BACK)
            .replace("{partition_rows_small}", &PARTITION_ROWS_SMALL.to_string())
            .replace("{kept_trimmed_share}", &KEPT_TRIMMED_SHARE.to_string())
            .replace("{delete_trimmed_max}", &DELETE_TRIMMED_MAX.to_string())
            .replace("{outbox_row_events_max}", &OUTBOX_ROW_EVENTS_MAX.to_string())
            .replace("{outbox_put_events_max}", &OUTBOX_PUT_EVENTS_MAX.to_string())
            .replace("{outbox_rejected_at_once_max}", &OUTBOX_REJECTED_AT_ONCE_MAX.to_string())
            .replace("{poll_chunk_max}", &POLL_CHUNK_MAX.to_string())
            .replace("{outbox_first_max}", &OUTBOX_FIRST_MAX.to_string())
            .replace("{page_bytes_max}", &PAGE_BYTES_MAX.to_string())
            .replace("{unprintable}", &unprintable_class())
            .replace("{topic_bytes_max}", &TOPIC_BYTES_MAX.to_string())
            .replace("{object_bytes_max}", &OBJECT_BYTES_MAX.to_string())
            .replace("{key_bytes_max}", &KEY_BYTES_MAX.to_string())
            .replace("{event_bytes_max}", &EVENT_BYTES_MAX.to_string())
            .replace("{event_bytes_near}", &(EVENT_BYTES_MAX / 4).to_string())
            .replace("{rank_min}", "'-9223372036854775808'::bigint")
            .replace("{rank_max}", "'9223372036854775807'::bigint")
            .replace("{bytes_of_e}", &bytes_of("e"))
            .replace("{bytes_of_d}", &bytes_of("d"))
            .replace("{key_window}", &format!("{} seconds", KEY_WINDOW.as_secs()))
            .replace("$body$", &self.body_quote())
            .split("{schema_text}")
            .map(|part| part.replace("{schema}", &self.quoted()))
            .collect::<Vec<_>>()
            .join(&format!("'{}'", self.name.replace('\'', "''")))
    }

    /// The channel on which processes are woken.
    pub fn bell(&self) -> String {
        format!("ensue_{:016x}", self.lock_key("bell"))
    }

    /// The name as an identifier.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.name.replace('"', "\"\""))
    }

    /// The key of an advisory lock that no other schema shares: FNV-1a over its purpose and the name.
    pub fn lock_key(&self, purpose: &str) -> i64 {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in ["ensue", purpose, &self.name].join("\0").bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash as i64
    }

    /// Dollar quotes that the name does not close.
    fn body_quote(&self) -> String {
        let mut tag = "$body$".to_string();
        while self.name.contains(&tag) {
            tag.insert(1, 'x');
        }
        tag
    }
}

/// The size of a row's content as text. The stored size of a small value will do, unless it is compressed; the size of
/// another is what it takes when it is read.
fn bytes_of(row: &str) -> String {
    format!(
        "CASE WHEN pg_column_size({row}.payload) < 1500 AND pg_column_compression({row}.payload) IS NULL THEN pg_column_size({row}.payload) \
         ELSE octet_length({row}.payload::text) END + coalesce(octet_length({row}.metadata::text), 2)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_kind_stays_a_name() {
        let odd = Schema::new("a\"b'c $body$ {schema_text} %I".into());
        let sql = odd.fill("CREATE FUNCTION {schema}.f() AS $body$ SELECT format('%I', {schema_text}) $body$");
        let name = "\"a\"\"b'c $body$ {schema_text} %I\"";
        let text = "'a\"b''c $body$ {schema_text} %I'";
        assert_eq!(sql, format!("CREATE FUNCTION {name}.f() AS $xbody$ SELECT format('%I', {text}) $xbody$"));
    }

    #[test]
    fn two_schemas_and_two_purposes_have_locks_of_their_own() {
        let (one, other) = (Schema::new("one".into()), Schema::new("other".into()));
        assert_ne!(one.lock_key("asleep"), other.lock_key("asleep"));
        assert_ne!(one.lock_key("asleep"), one.lock_key("migrations"));
    }
}
