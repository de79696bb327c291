//! What do the tables look like?
//!
//! All names begin with `ensue_`: an application's own tables may live in the same file. For the same reason the
//! version of the schema is a table and not `PRAGMA user_version`, which is the application's.
//!
//! The hot path writes one table, at its end. The index on objects follows later (`objects.rs`).

use super::connect::{cannot_open, connect_reader};
use super::error;
use super::schedules;
use ensue_core::StoreError;
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;

/// Every step from an empty file to the present, in order. A step, once released, never changes.
const MIGRATIONS: [&str; 13] = [
    LOG,
    POSITIONS,
    PARKED,
    SERVING,
    JOBS,
    REPLAY,
    DEFINITIONS,
    TASKS,
    schedules::TABLES,
    schedules::DECLARERS,
    DEAD_JOBS,
    CLAIMS,
    V13,
];

const LOG: &str = "
CREATE TABLE ensue_events (
    seq             INTEGER PRIMARY KEY,
    prev            INTEGER,
    id              BLOB NOT NULL,
    topic           TEXT NOT NULL,
    object          TEXT,
    payload         TEXT NOT NULL,
    metadata        TEXT,             -- NULL is {}
    occurred_at     INTEGER,          -- microseconds; NULL is recorded_at
    recorded_at     INTEGER NOT NULL, -- microseconds
    to_subscription BLOB
) STRICT;
-- One row: what retention took, so that numbers and times go on from there.
CREATE TABLE ensue_log_state (
    one                 INTEGER PRIMARY KEY CHECK (one = 1),
    trimmed_to          INTEGER NOT NULL,
    trimmed_recorded_at INTEGER NOT NULL,
    indexed_to          INTEGER NOT NULL  -- ensue_objects is complete up to this seq
) STRICT;
INSERT INTO ensue_log_state VALUES (1, 0, -377705023201000000, 0);

-- The events of each object; written late, see objects.rs.
CREATE TABLE ensue_objects (
    object TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (object, seq)
) STRICT, WITHOUT ROWID;

-- Delayed events; once in the log, only id and seq are kept, for finding by id.
CREATE TABLE ensue_delayed (
    accepted        INTEGER PRIMARY KEY AUTOINCREMENT,
    id              BLOB NOT NULL UNIQUE,
    not_before      INTEGER NOT NULL,
    topic           TEXT NOT NULL,
    object          TEXT,
    payload         TEXT,
    metadata        TEXT,
    occurred_at     INTEGER NOT NULL,
    to_subscription BLOB,
    key             TEXT,             -- freed when the event is cancelled
    seq             INTEGER
) STRICT;
CREATE INDEX ensue_delayed_due ON ensue_delayed (not_before, accepted) WHERE seq IS NULL;
CREATE INDEX ensue_delayed_logged ON ensue_delayed (seq) WHERE seq IS NOT NULL;

CREATE TABLE ensue_keys (
    key         TEXT PRIMARY KEY,
    fingerprint BLOB NOT NULL,
    id          BLOB NOT NULL,
    seq         INTEGER,
    prev        INTEGER,
    recorded_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ensue_keys_age ON ensue_keys (recorded_at);
";

/// Whatever may be large refers to its group by a number that is never used again: so a group is forgotten at once, and
/// what belonged to it afterwards, in short turns.
const POSITIONS: &str = "
-- One row.
CREATE TABLE ensue_positions_state (
    one           INTEGER PRIMARY KEY CHECK (one = 1),
    fence_floor   INTEGER NOT NULL, -- no forgotten group had a larger fence
    version_floor INTEGER NOT NULL, -- every forgotten group had a smaller version
    deliveries    INTEGER NOT NULL  -- rows of ensue_deliveries
) STRICT;
INSERT INTO ensue_positions_state VALUES (1, 0, 0, 0);

CREATE TABLE ensue_groups (
    number        INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT NOT NULL UNIQUE,
    kind          TEXT NOT NULL,
    created_at    INTEGER NOT NULL, -- microseconds, as all times here
    version       INTEGER NOT NULL,
    subscriptions INTEGER NOT NULL, -- rows of ensue_subscriptions
    lost_from     INTEGER,
    lost_to       INTEGER
) STRICT;
-- Forgotten groups of which something may still be there.
CREATE TABLE ensue_groups_gone (group_number INTEGER PRIMARY KEY) STRICT;

CREATE TABLE ensue_slots (
    group_number INTEGER NOT NULL,
    slot         INTEGER NOT NULL,
    cursor       INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    vanished     INTEGER NOT NULL,
    owner        BLOB,              -- one that is no member (any more) has vanished
    served_at    INTEGER NOT NULL,
    PRIMARY KEY (group_number, slot)
) STRICT, WITHOUT ROWID;
CREATE INDEX ensue_slots_owner ON ensue_slots (owner) WHERE owner IS NOT NULL;

CREATE TABLE ensue_members (
    id          BLOB PRIMARY KEY,
    name        TEXT NOT NULL,
    kind        TEXT NOT NULL,
    lease_until INTEGER NOT NULL,
    version     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ensue_members_lease ON ensue_members (kind, lease_until);

CREATE TABLE ensue_subscriptions (
    group_number    INTEGER NOT NULL,
    id              BLOB NOT NULL,
    topic           TEXT,             -- NULL is every topic
    condition       TEXT,             -- NULL is always true
    params          TEXT NOT NULL,
    params_identity TEXT NOT NULL,
    identity_hash   INTEGER NOT NULL, -- of topic, condition and params_identity, which are compared in full
    expires_in      INTEGER,          -- microseconds; NULL stays
    created_at      INTEGER NOT NULL,
    touched_at      INTEGER NOT NULL,
    created_after   INTEGER NOT NULL,
    UNIQUE (group_number, id)
) STRICT;
-- An index of the texts themselves would be six times as large, and scattered: 200,000 subscriptions of a deleted group
-- then took 8 s to delete in turns of 80 ms, instead of 2 s in turns of 20 ms.
CREATE INDEX ensue_subscriptions_same ON ensue_subscriptions (group_number, identity_hash);
CREATE INDEX ensue_subscriptions_expiry ON ensue_subscriptions (group_number, expires_in, touched_at)
    WHERE expires_in IS NOT NULL;

-- Which subscriptions the last versions of a group were about: see subscriptions.rs.
CREATE TABLE ensue_subscription_changes (
    group_number INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    id           BLOB NOT NULL,
    PRIMARY KEY (group_number, version, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE ensue_lanes (
    group_number INTEGER NOT NULL,
    lane_key     TEXT NOT NULL,
    slot         INTEGER NOT NULL,
    position     INTEGER NOT NULL,
    state        TEXT NOT NULL,
    attempts     INTEGER NOT NULL,
    not_before   INTEGER,
    error        TEXT,
    redriven     INTEGER NOT NULL,
    since        INTEGER NOT NULL,
    ask          TEXT,
    UNIQUE (group_number, lane_key)
) STRICT;
CREATE INDEX ensue_lanes_needed ON ensue_lanes (group_number, position, state) WHERE state IN ('waiting', 'held');
CREATE INDEX ensue_lanes_stuck ON ensue_lanes (since, lane_key) WHERE state IN ('held', 'dead');
CREATE INDEX ensue_lanes_stuck_of_group ON ensue_lanes (group_number, since, lane_key)
    WHERE state IN ('held', 'dead');
CREATE INDEX ensue_lanes_key ON ensue_lanes (lane_key);
CREATE INDEX ensue_lanes_asked ON ensue_lanes (group_number, slot) WHERE ask IS NOT NULL;

CREATE TABLE ensue_deliveries (
    group_number INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    object       TEXT,
    state        TEXT NOT NULL,
    attempts     INTEGER NOT NULL,
    error        TEXT,
    started_at   INTEGER NOT NULL,
    finished_at  INTEGER NOT NULL,
    UNIQUE (group_number, seq)
) STRICT;
CREATE INDEX ensue_deliveries_seq ON ensue_deliveries (seq);
CREATE INDEX ensue_deliveries_age ON ensue_deliveries (finished_at, seq, group_number);

CREATE TABLE ensue_delivery_lines (
    line         INTEGER PRIMARY KEY, -- in the order of writing
    group_number INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    level        TEXT NOT NULL,
    message      TEXT NOT NULL
) STRICT;
CREATE INDEX ensue_delivery_lines_seq ON ensue_delivery_lines (group_number, seq);
CREATE INDEX ensue_delivery_lines_age ON ensue_delivery_lines (at);
";

/// Events that lanes need and that retention takes from the log. Whatever moves a lane on or takes it away also takes what
/// was parked of it: a trigger, so that no way around it is forgotten. It costs only lanes of which something was parked.
const PARKED: &str = "
ALTER TABLE ensue_lanes ADD COLUMN parked_to INTEGER; -- what it needs before this is in ensue_parked
CREATE TABLE ensue_parked (
    group_number    INTEGER NOT NULL,
    lane_key        TEXT NOT NULL,
    seq             INTEGER NOT NULL,
    prev            INTEGER,
    id              BLOB NOT NULL,
    topic           TEXT NOT NULL,
    object          TEXT,
    payload         TEXT NOT NULL,
    metadata        TEXT,
    occurred_at     INTEGER,
    recorded_at     INTEGER NOT NULL,
    to_subscription BLOB,
    UNIQUE (group_number, lane_key, seq)
) STRICT;
CREATE INDEX ensue_parked_seq ON ensue_parked (seq);
CREATE INDEX ensue_parked_id ON ensue_parked (id);
CREATE TRIGGER ensue_lanes_passed AFTER UPDATE OF position ON ensue_lanes
WHEN NEW.parked_to IS NOT NULL AND NEW.position > OLD.position BEGIN
    DELETE FROM ensue_parked
    WHERE group_number = NEW.group_number AND lane_key = NEW.lane_key AND seq < NEW.position;
END;
CREATE TRIGGER ensue_lanes_gone AFTER DELETE ON ensue_lanes WHEN OLD.parked_to IS NOT NULL BEGIN
    DELETE FROM ensue_parked WHERE group_number = OLD.group_number AND lane_key = OLD.lane_key;
END;
";

/// By name: a process says what it serves whether the group is there or not.
const SERVING: &str = "
CREATE TABLE ensue_serving (
    member     BLOB NOT NULL,
    group_name TEXT NOT NULL,
    PRIMARY KEY (member, group_name)
) STRICT, WITHOUT ROWID;
CREATE INDEX ensue_serving_group ON ensue_serving (group_name);
";

/// Rows of jobs that are over stay until they are purged; the indexes that every job passes have only what is live.
const JOBS: &str = "
-- One row.
CREATE TABLE ensue_jobs_state (
    one           INTEGER PRIMARY KEY CHECK (one = 1),
    last_number   INTEGER NOT NULL, -- the last that was drawn, for a job or a turn
    rules_version INTEGER NOT NULL
) STRICT;
INSERT INTO ensue_jobs_state VALUES (1, 0, 0);

CREATE TABLE ensue_jobs (
    number       INTEGER PRIMARY KEY,
    id           BLOB NOT NULL,
    handler      TEXT NOT NULL,
    object       TEXT,
    ordered      INTEGER NOT NULL,
    payload      TEXT NOT NULL,
    metadata     TEXT,             -- NULL is {}
    priority     INTEGER NOT NULL, -- the order of all u64, moved to that of i64
    state        TEXT NOT NULL,
    turn         INTEGER,
    attempts     INTEGER NOT NULL,
    attempts_max INTEGER NOT NULL,
    on_exhausted TEXT NOT NULL,
    not_before   INTEGER,
    enqueued_at  INTEGER NOT NULL,
    locked_at    INTEGER,
    started_at   INTEGER,
    finished_at  INTEGER,
    worker       TEXT,
    fence        INTEGER NOT NULL,
    lease_until  INTEGER,
    errors       TEXT,             -- a JSON array; NULL is []
    unique_key   TEXT,
    event_seq    INTEGER,
    event_prev   INTEGER,
    event_id     BLOB,
    event_topic  TEXT,
    cancel_asked INTEGER NOT NULL,
    redriven     INTEGER NOT NULL,
    result       TEXT
) STRICT;
CREATE INDEX ensue_jobs_ready ON ensue_jobs (handler, priority DESC, turn) WHERE state = 'available';
CREATE INDEX ensue_jobs_leases ON ensue_jobs (lease_until, number) WHERE state = 'running';
CREATE INDEX ensue_jobs_due ON ensue_jobs (not_before, number) WHERE state IN ('scheduled', 'retrying');
CREATE INDEX ensue_jobs_lanes ON ensue_jobs (object, handler, turn) WHERE object IS NOT NULL AND turn IS NOT NULL;
CREATE INDEX ensue_jobs_lane_heads ON ensue_jobs (object, handler)
    WHERE object IS NOT NULL AND state IN ('available', 'running');
CREATE UNIQUE INDEX ensue_jobs_unique ON ensue_jobs (handler, unique_key)
    WHERE unique_key IS NOT NULL AND finished_at IS NULL;
CREATE INDEX ensue_jobs_age ON ensue_jobs (finished_at, number) WHERE finished_at IS NOT NULL AND turn IS NULL;

CREATE TABLE ensue_job_lines (
    number  INTEGER NOT NULL,
    line    INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    level   TEXT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (number, line)
) STRICT, WITHOUT ROWID;

CREATE TABLE ensue_job_servers (
    handler TEXT PRIMARY KEY,
    until   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE ensue_rules (
    kind       TEXT NOT NULL,
    scope      TEXT NOT NULL,
    id         BLOB NOT NULL,
    reason     TEXT,
    author     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    PRIMARY KEY (kind, scope)
) STRICT, WITHOUT ROWID;
CREATE TABLE ensue_rule_reports (
    member  BLOB PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Slots that run a part of the log again pass over what is after `replay_to` and up to `resume_at`: that is done.
const REPLAY: &str = "
ALTER TABLE ensue_slots ADD COLUMN replay_to INTEGER;
ALTER TABLE ensue_slots ADD COLUMN resume_at INTEGER;
";

/// A definition goes with its group, whoever deletes that, and its going counts.
const DEFINITIONS: &str = "
-- One row.
CREATE TABLE ensue_definitions_state (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
) STRICT;
INSERT INTO ensue_definitions_state VALUES (1, 0);
CREATE TABLE ensue_definitions (
    group_number INTEGER PRIMARY KEY,
    subscription BLOB NOT NULL,
    settings     TEXT NOT NULL,
    revision     INTEGER NOT NULL
) STRICT;
CREATE TRIGGER ensue_definitions_gone AFTER DELETE ON ensue_groups
WHEN EXISTS (SELECT 1 FROM ensue_definitions WHERE group_number = OLD.number) BEGIN
    DELETE FROM ensue_definitions WHERE group_number = OLD.number;
    UPDATE ensue_definitions_state SET version = version + 1;
END;
";

/// Tasks are jobs of certain handlers, by the time at which they were made: no other job is in that index.
const TASKS: &str = "
CREATE INDEX ensue_jobs_tasks ON ensue_jobs (handler, enqueued_at, number) WHERE substr(handler, 1, 5) = 'task.';
CREATE TABLE ensue_job_progress (
    number INTEGER PRIMARY KEY,
    done   INTEGER NOT NULL,
    total  INTEGER,
    unit   TEXT,
    at     INTEGER NOT NULL
) STRICT;
";

/// Jobs that died are counted, found and forgotten apart from those that ended otherwise.
const DEAD_JOBS: &str = "
DROP INDEX ensue_jobs_age;
CREATE INDEX ensue_jobs_age ON ensue_jobs (finished_at, number)
    WHERE finished_at IS NOT NULL AND turn IS NULL AND state <> 'dead';
CREATE INDEX ensue_jobs_dead ON ensue_jobs (finished_at, number, turn) WHERE state = 'dead';
";

/// How a claim was settled, and the secret key of the store. SQLite draws the key from ChaCha20, seeded by the system.
const CLAIMS: &str = "
ALTER TABLE ensue_jobs ADD COLUMN settled TEXT;
CREATE TABLE ensue_store_key (key BLOB NOT NULL) STRICT;
INSERT INTO ensue_store_key VALUES (randomblob(32));
";

/// Version 13 of the schema.
const V13: &str = "
-- Tasks are kept as long as other settings say, so that they are found apart from other jobs.
DROP INDEX ensue_jobs_age;
CREATE INDEX ensue_jobs_age ON ensue_jobs (finished_at, number)
    WHERE finished_at IS NOT NULL AND turn IS NULL AND state <> 'dead' AND substr(handler, 1, 5) <> 'task.';
CREATE INDEX ensue_jobs_tasks_age ON ensue_jobs (finished_at, number)
    WHERE finished_at IS NOT NULL AND turn IS NULL AND substr(handler, 1, 5) = 'task.';
";

/// Programs made files of these versions before `POSITIONS` had what was kept of a group's last versions.
const MENDED: std::ops::RangeInclusive<usize> = 2..=6;
const MEND: &str = "
CREATE TABLE IF NOT EXISTS ensue_subscription_changes (
    group_number INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    id           BLOB NOT NULL,
    PRIMARY KEY (group_number, version, id)
) STRICT, WITHOUT ROWID;
";

/// Can the file be looked at as it is?
pub(super) fn check_readable(path: &Path) -> Result<(), StoreError> {
    if !path.exists() {
        let message = format!(
            "there is no store at {0}; check the path, or make one with `ensue serve --store sqlite:{0}`",
            path.display()
        );
        return Err(StoreError::Engine(message));
    }
    let connection = connect_reader(path).map_err(|error| cannot_open(path, &error))?;
    match version(&connection).map_err(|error| cannot_open(path, &error))? {
        0 => Err(StoreError::Schema(format!(
            "{} is a database without an Ensue log in it; choose another file, or start `ensue serve` to make a log in this one",
            path.display()
        ))),
        found => check_version(found),
    }
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    let exists: bool =
        connection.query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'ensue_schema'", [], |row| row.get(0))?;
    if !exists {
        return Ok(0);
    }
    connection.query_row("SELECT version FROM ensue_schema", [], |row| row.get::<_, i64>(0)).map(|v| v as usize)
}

/// Has the file all that this program asks for? One of an older Ensue that is only looked at stays as it is.
pub(super) fn has_positions(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(version(connection)? >= MIGRATIONS.len())
}

/// Does the file know who serves which group?
pub(super) fn has_serving(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(version(connection)? >= 4)
}

fn check_version(found: usize) -> Result<(), StoreError> {
    if found > MIGRATIONS.len() {
        return Err(StoreError::Schema(format!(
            "the store's schema has version {found}, this program knows {}: use the newer Ensue that wrote it",
            MIGRATIONS.len()
        )));
    }
    Ok(())
}

/// What leads from this version to the present one; nothing if it is the present one.
fn script(from: usize) -> String {
    if from >= MIGRATIONS.len() {
        return String::new();
    }
    let mut script = String::new();
    if from == 0 {
        script.push_str(
            "CREATE TABLE ensue_schema (version INTEGER NOT NULL) STRICT;\nINSERT INTO ensue_schema VALUES (0);\n",
        );
    }
    if MENDED.contains(&from) {
        script.push_str(MEND);
    }
    script.extend(MIGRATIONS[from..].iter().copied());
    script.push_str(&format!("UPDATE ensue_schema SET version = {};\n", MIGRATIONS.len()));
    script
}

/// Brings the file to the present schema, in one transaction.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(error::of_write)?;
    let found = version(&transaction).map_err(error::of_write)?;
    check_version(found)?;
    if found < MIGRATIONS.len() {
        transaction.execute_batch(&script(found)).map_err(error::of_write)?;
    }
    transaction.commit().map_err(error::of_write)
}

/// The version of the schema in a file, that of this program, and what leads from one to the other. Changes nothing; a file that is
/// not there has version 0.
pub(super) fn pending(path: &Path) -> Result<(usize, usize, String), StoreError> {
    let found = match path.exists() {
        true => connect_reader(path).and_then(|connection| version(&connection)).map_err(|e| cannot_open(path, &e))?,
        false => 0,
    };
    check_version(found)?;
    Ok((found, MIGRATIONS.len(), script(found)))
}

#[cfg(test)]
mod tests {
    use super::super::connect::connect_memory;
    use super::*;

    #[test]
    fn a_schema_of_a_newer_ensue_is_refused_and_left_alone() {
        let mut connection = connect_memory().unwrap();
        migrate(&mut connection).unwrap();
        migrate(&mut connection).unwrap();
        connection.execute("UPDATE ensue_schema SET version = 99", []).unwrap();
        let error = migrate(&mut connection).unwrap_err();
        assert!(matches!(&error, StoreError::Schema(message) if message.contains("99")), "{error}");
        assert_eq!(version(&connection).unwrap(), 99);
    }

    #[test]
    fn an_applications_own_user_version_is_left_alone() {
        let mut connection = connect_memory().unwrap();
        connection.pragma_update(None, "user_version", 7).unwrap();
        migrate(&mut connection).unwrap();
        let kept: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(kept, 7);
    }
}
