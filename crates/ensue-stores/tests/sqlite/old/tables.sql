-- The tables of the versions that were, as they were made. `in:` says of which.

-- in: 1 2 6 7 9 10 11
CREATE TABLE ensue_events (
    seq             INTEGER PRIMARY KEY,
    prev            INTEGER,
    id              BLOB NOT NULL,
    topic           TEXT NOT NULL,
    object          TEXT,
    payload         TEXT NOT NULL,
    metadata        TEXT,
    occurred_at     INTEGER,
    recorded_at     INTEGER NOT NULL,
    to_subscription BLOB
) STRICT;
CREATE TABLE ensue_log_state (
    one                 INTEGER PRIMARY KEY CHECK (one = 1),
    trimmed_to          INTEGER NOT NULL,
    trimmed_recorded_at INTEGER NOT NULL,
    indexed_to          INTEGER NOT NULL
) STRICT;
INSERT INTO ensue_log_state VALUES (1, 0, -377705023201000000, 0);
CREATE TABLE ensue_objects (
    object TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (object, seq)
) STRICT, WITHOUT ROWID;
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
    key             TEXT,
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

-- in: 2 6
CREATE TABLE ensue_positions_state (
    one           INTEGER PRIMARY KEY CHECK (one = 1),
    fence_floor   INTEGER NOT NULL,
    version_floor INTEGER NOT NULL,
    deliveries    INTEGER NOT NULL
) STRICT;
INSERT INTO ensue_positions_state VALUES (1, 0, 0, 0);
CREATE TABLE ensue_groups (
    number        INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT NOT NULL UNIQUE,
    kind          TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    version       INTEGER NOT NULL,
    subscriptions INTEGER NOT NULL,
    lost_from     INTEGER,
    lost_to       INTEGER
) STRICT;
CREATE TABLE ensue_groups_gone (group_number INTEGER PRIMARY KEY) STRICT;
CREATE TABLE ensue_slots (
    group_number INTEGER NOT NULL,
    slot         INTEGER NOT NULL,
    cursor       INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    vanished     INTEGER NOT NULL,
    owner        BLOB,
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
    topic           TEXT,
    condition       TEXT,
    params          TEXT NOT NULL,
    params_identity TEXT NOT NULL,
    identity_hash   INTEGER NOT NULL,
    expires_in      INTEGER,
    created_at      INTEGER NOT NULL,
    touched_at      INTEGER NOT NULL,
    created_after   INTEGER NOT NULL,
    UNIQUE (group_number, id)
) STRICT;
CREATE INDEX ensue_subscriptions_same ON ensue_subscriptions (group_number, identity_hash);
CREATE INDEX ensue_subscriptions_expiry ON ensue_subscriptions (group_number, expires_in, touched_at)
    WHERE expires_in IS NOT NULL;
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
    line         INTEGER PRIMARY KEY,
    group_number INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    level        TEXT NOT NULL,
    message      TEXT NOT NULL
) STRICT;
CREATE INDEX ensue_delivery_lines_seq ON ensue_delivery_lines (group_number, seq);
CREATE INDEX ensue_delivery_lines_age ON ensue_delivery_lines (at);

-- in: 7 9 10 11
CREATE TABLE ensue_positions_state (
    one           INTEGER PRIMARY KEY CHECK (one = 1),
    fence_floor   INTEGER NOT NULL,
    version_floor INTEGER NOT NULL,
    deliveries    INTEGER NOT NULL
) STRICT;
INSERT INTO ensue_positions_state VALUES (1, 0, 0, 0);
CREATE TABLE ensue_groups (
    number        INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT NOT NULL UNIQUE,
    kind          TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    version       INTEGER NOT NULL,
    subscriptions INTEGER NOT NULL,
    lost_from     INTEGER,
    lost_to       INTEGER
) STRICT;
CREATE TABLE ensue_groups_gone (group_number INTEGER PRIMARY KEY) STRICT;
CREATE TABLE ensue_slots (
    group_number INTEGER NOT NULL,
    slot         INTEGER NOT NULL,
    cursor       INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    vanished     INTEGER NOT NULL,
    owner        BLOB,
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
    topic           TEXT,
    condition       TEXT,
    params          TEXT NOT NULL,
    params_identity TEXT NOT NULL,
    identity_hash   INTEGER NOT NULL,
    expires_in      INTEGER,
    created_at      INTEGER NOT NULL,
    touched_at      INTEGER NOT NULL,
    created_after   INTEGER NOT NULL,
    UNIQUE (group_number, id)
) STRICT;
CREATE INDEX ensue_subscriptions_same ON ensue_subscriptions (group_number, identity_hash);
CREATE INDEX ensue_subscriptions_expiry ON ensue_subscriptions (group_number, expires_in, touched_at)
    WHERE expires_in IS NOT NULL;
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
    line         INTEGER PRIMARY KEY,
    group_number INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    level        TEXT NOT NULL,
    message      TEXT NOT NULL
) STRICT;
CREATE INDEX ensue_delivery_lines_seq ON ensue_delivery_lines (group_number, seq);
CREATE INDEX ensue_delivery_lines_age ON ensue_delivery_lines (at);

-- in: 6 7 9 10 11
ALTER TABLE ensue_lanes ADD COLUMN parked_to INTEGER;
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

-- in: 6 7 9 10 11
CREATE TABLE ensue_serving (
    member     BLOB NOT NULL,
    group_name TEXT NOT NULL,
    PRIMARY KEY (member, group_name)
) STRICT, WITHOUT ROWID;
CREATE INDEX ensue_serving_group ON ensue_serving (group_name);

-- in: 6 7 9 10 11
CREATE TABLE ensue_jobs_state (
    one           INTEGER PRIMARY KEY CHECK (one = 1),
    last_number   INTEGER NOT NULL,
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
    metadata     TEXT,
    priority     INTEGER NOT NULL,
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
    errors       TEXT,
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

-- in: 6 7 9 10 11
ALTER TABLE ensue_slots ADD COLUMN replay_to INTEGER;
ALTER TABLE ensue_slots ADD COLUMN resume_at INTEGER;

-- in: 7 9 10 11
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

-- in: 9 10 11
CREATE INDEX ensue_jobs_tasks ON ensue_jobs (handler, enqueued_at, number) WHERE substr(handler, 1, 5) = 'task.';
CREATE TABLE ensue_job_progress (
    number INTEGER PRIMARY KEY,
    done   INTEGER NOT NULL,
    total  INTEGER,
    unit   TEXT,
    at     INTEGER NOT NULL
) STRICT;

-- in: 9 10 11
CREATE TABLE ensue_schedules_state (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    count   INTEGER NOT NULL
) STRICT;
INSERT INTO ensue_schedules_state VALUES (1, 0, 0);
CREATE TABLE ensue_schedules (
    name       TEXT PRIMARY KEY,
    version    INTEGER NOT NULL,
    definition TEXT NOT NULL,
    managed_by TEXT,
    watermark  INTEGER NOT NULL,
    due        INTEGER,
    held       INTEGER NOT NULL,
    runs       INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ensue_schedules_due ON ensue_schedules (due, name) WHERE due IS NOT NULL AND NOT held;
CREATE INDEX ensue_schedules_managed ON ensue_schedules (name) WHERE managed_by IS NOT NULL;
CREATE TABLE ensue_schedule_runs (
    name       TEXT NOT NULL,
    number     INTEGER NOT NULL,
    occurrence INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    manual     INTEGER NOT NULL,
    event_seq  INTEGER,
    job        BLOB,
    overlapped INTEGER NOT NULL,
    skipped    TEXT,
    PRIMARY KEY (name, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE ensue_schedule_declarations (
    process BLOB NOT NULL,
    name    TEXT NOT NULL,
    until   INTEGER NOT NULL,
    PRIMARY KEY (process, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX ensue_schedule_declarations_name ON ensue_schedule_declarations (name, until);
CREATE TRIGGER ensue_schedules_gone AFTER DELETE ON ensue_schedules BEGIN
    DELETE FROM ensue_schedule_runs WHERE name = OLD.name;
    UPDATE ensue_schedules_state SET count = count - 1;
END;

-- in: 10 11
CREATE TABLE ensue_schedule_declarers (
    process BLOB PRIMARY KEY,
    until   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO ensue_schedule_declarers SELECT process, max(until) FROM ensue_schedule_declarations GROUP BY process;
DROP INDEX ensue_schedule_declarations_name;
ALTER TABLE ensue_schedule_declarations DROP COLUMN until;
CREATE INDEX ensue_schedule_declarations_name ON ensue_schedule_declarations (name);
CREATE TRIGGER ensue_schedule_declarer_gone AFTER DELETE ON ensue_schedule_declarers BEGIN
    DELETE FROM ensue_schedule_declarations WHERE process = OLD.process;
END;

-- in: 11
DROP INDEX ensue_jobs_age;
CREATE INDEX ensue_jobs_age ON ensue_jobs (finished_at, number)
    WHERE finished_at IS NOT NULL AND turn IS NULL AND state <> 'dead';
CREATE INDEX ensue_jobs_dead ON ensue_jobs (finished_at, number, turn) WHERE state = 'dead';
