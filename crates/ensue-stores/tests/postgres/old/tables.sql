-- The tables of the versions that were, as they were made. `in:` says of which; LOG stands for the schema.

-- in: 1
CREATE TABLE LOG.events (
    seq bigint NOT NULL,
    prev bigint,
    recorded_at timestamptz NOT NULL,
    occurred_at timestamptz,
    id uuid NOT NULL,
    to_subscription uuid,
    topic text COLLATE "C" NOT NULL,
    object text COLLATE "C",
    payload jsonb NOT NULL,
    metadata jsonb,
    PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);
CREATE INDEX events_object ON LOG.events (hashtextextended(object, 0), seq) WHERE object IS NOT NULL;
CREATE TABLE LOG.partitions (
    from_seq bigint PRIMARY KEY,
    to_seq bigint NOT NULL,
    detached boolean NOT NULL DEFAULT false
);
CREATE TABLE LOG.log_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    trimmed_to bigint NOT NULL DEFAULT 0,
    trimmed_recorded_at timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO LOG.log_state DEFAULT VALUES;
CREATE TABLE LOG.delayed (
    accepted bigint GENERATED ALWAYS AS IDENTITY,
    seq bigint,
    not_before timestamptz NOT NULL,
    occurred_at timestamptz NOT NULL,
    id uuid PRIMARY KEY,
    to_subscription uuid,
    topic text COLLATE "C",
    object text COLLATE "C",
    payload jsonb,
    metadata jsonb,
    key text COLLATE "C"
);
CREATE INDEX delayed_due ON LOG.delayed (not_before, accepted) WHERE seq IS NULL;
CREATE INDEX delayed_seq ON LOG.delayed (seq) WHERE seq IS NOT NULL;
CREATE TABLE LOG.keys (
    key text COLLATE "C" PRIMARY KEY,
    fingerprint bytea NOT NULL,
    id uuid NOT NULL,
    seq bigint,
    prev bigint,
    recorded_at timestamptz NOT NULL
);
CREATE INDEX keys_recorded_at ON LOG.keys (recorded_at);

-- in: 2 6_jobs 6 8 13 14 17 18
CREATE TABLE LOG.events (
    seq bigint NOT NULL,
    prev bigint,
    recorded_at timestamptz NOT NULL,
    occurred_at timestamptz,
    id_part uuid NOT NULL,
    to_subscription uuid,
    topic text COLLATE "C" NOT NULL,
    object text COLLATE "C",
    payload jsonb NOT NULL,
    metadata jsonb,
    PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);
CREATE INDEX events_object ON LOG.events (hashtextextended(object, 0), seq)
    WITH (deduplicate_items = off) WHERE object IS NOT NULL;
CREATE TABLE LOG.partitions (
    from_seq bigint PRIMARY KEY,
    to_seq bigint NOT NULL,
    detached boolean NOT NULL DEFAULT false
);
CREATE TABLE LOG.log_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    trimmed_to bigint NOT NULL DEFAULT 0,
    trimmed_recorded_at timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO LOG.log_state DEFAULT VALUES;
CREATE TABLE LOG.delayed (
    accepted bigint GENERATED ALWAYS AS IDENTITY,
    seq bigint,
    not_before timestamptz NOT NULL,
    occurred_at timestamptz NOT NULL,
    id uuid PRIMARY KEY,
    to_subscription uuid,
    topic text COLLATE "C",
    object text COLLATE "C",
    payload jsonb,
    metadata jsonb,
    key text COLLATE "C"
);
CREATE INDEX delayed_due ON LOG.delayed (not_before, accepted) WHERE seq IS NULL;
CREATE INDEX delayed_seq ON LOG.delayed (seq) WHERE seq IS NOT NULL;
CREATE TABLE LOG.keys (
    key text COLLATE "C" PRIMARY KEY,
    fingerprint bytea NOT NULL,
    id_part uuid NOT NULL,
    seq bigint,
    prev bigint,
    recorded_at timestamptz NOT NULL
);
CREATE INDEX keys_recorded_at ON LOG.keys (recorded_at);

-- in: 2 6_jobs
CREATE TABLE LOG.positions_state (
    one boolean PRIMARY KEY DEFAULT true,
    fence_floor bigint NOT NULL DEFAULT 0,
    version_floor bigint NOT NULL DEFAULT 0
);
INSERT INTO LOG.positions_state DEFAULT VALUES;
CREATE TABLE LOG.groups (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version bigint NOT NULL,
    subscriptions bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    made_by uuid NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL UNIQUE
) WITH (fillfactor = 50);
CREATE TABLE LOG.groups_gone (group_id bigint PRIMARY KEY);
CREATE TABLE LOG.slots (
    group_id bigint NOT NULL,
    cursor bigint NOT NULL,
    fence bigint NOT NULL,
    vanished bigint NOT NULL DEFAULT 0,
    served_at timestamptz NOT NULL,
    lost_from bigint,
    lost_to bigint,
    lost_nth bigint,
    owner uuid,
    slot int NOT NULL,
    PRIMARY KEY (group_id, slot)
) WITH (fillfactor = 30);
CREATE INDEX slots_owner ON LOG.slots (owner) WHERE owner IS NOT NULL;
CREATE TABLE LOG.members (
    id uuid PRIMARY KEY,
    lease_until timestamptz NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX members_lease ON LOG.members (kind, lease_until);
CREATE TABLE LOG.subscriptions (
    group_id bigint NOT NULL,
    id uuid NOT NULL,
    expires_in bigint,
    created_at timestamptz NOT NULL,
    touched_at timestamptz NOT NULL,
    created_after bigint NOT NULL,
    topic text COLLATE "C",
    condition text COLLATE "C",
    params text COLLATE "C" NOT NULL,
    params_identity text COLLATE "C" NOT NULL,
    PRIMARY KEY (group_id, id)
);
CREATE INDEX subscriptions_same ON LOG.subscriptions ((hashtextextended(
    params_identity, hashtextextended(coalesce(condition, ''), hashtextextended(coalesce(topic, ''), group_id)))));
CREATE INDEX subscriptions_expiry ON LOG.subscriptions ((group_id + 0), expires_in) WHERE expires_in IS NOT NULL;
CREATE TABLE LOG.lanes (
    group_id bigint NOT NULL,
    position bigint NOT NULL,
    attempts bigint NOT NULL,
    not_before timestamptz,
    since timestamptz NOT NULL,
    slot int NOT NULL,
    redriven boolean NOT NULL,
    state text COLLATE "C" NOT NULL,
    ask text COLLATE "C",
    key text COLLATE "C" NOT NULL,
    error text COLLATE "C",
    PRIMARY KEY (group_id, key)
) WITH (fillfactor = 70);
CREATE INDEX lanes_key ON LOG.lanes (key);
CREATE INDEX lanes_needed ON LOG.lanes (group_id, position) WHERE state IN ('waiting', 'held');
CREATE INDEX lanes_stuck ON LOG.lanes (since, key) WHERE state IN ('held', 'dead');
CREATE INDEX lanes_stuck_of_group ON LOG.lanes (group_id, since, key) WHERE state IN ('held', 'dead');
CREATE INDEX lanes_asked ON LOG.lanes (group_id, slot) WHERE ask IS NOT NULL;
CREATE TABLE LOG.deliveries (
    seq bigint NOT NULL,
    group_id bigint NOT NULL,
    attempts bigint NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    state text COLLATE "C" NOT NULL,
    object text COLLATE "C",
    error text COLLATE "C",
    PRIMARY KEY (seq, group_id)
);
CREATE INDEX deliveries_age ON LOG.deliveries (finished_at, seq, group_id);
CREATE INDEX deliveries_group ON LOG.deliveries (group_id);
CREATE TABLE LOG.delivery_lines (
    group_id bigint NOT NULL,
    seq bigint NOT NULL,
    nth bigint GENERATED ALWAYS AS IDENTITY,
    attempt bigint NOT NULL,
    at timestamptz NOT NULL,
    level text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    PRIMARY KEY (group_id, seq, nth)
);
CREATE INDEX delivery_lines_age ON LOG.delivery_lines (at, nth);
CREATE TABLE LOG.settlements (
    call uuid PRIMARY KEY,
    settled_at timestamptz NOT NULL,
    states text[] NOT NULL,
    reasons text[],
    tail bigint,
    recorded_at timestamptz[],
    seqs bigint[],
    prevs bigint[],
    ids uuid[],
    conflicts boolean[]
);
CREATE INDEX settlements_age ON LOG.settlements (settled_at);

-- in: 6 8 13 14 17 18
CREATE TABLE LOG.positions_state (
    one boolean PRIMARY KEY DEFAULT true,
    fence_floor bigint NOT NULL DEFAULT 0,
    version_floor bigint NOT NULL DEFAULT 0
);
INSERT INTO LOG.positions_state DEFAULT VALUES;
CREATE TABLE LOG.groups (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version bigint NOT NULL,
    subscriptions bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    made_by uuid NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL UNIQUE
) WITH (fillfactor = 50);
CREATE TABLE LOG.groups_gone (group_id bigint PRIMARY KEY);
CREATE TABLE LOG.slots (
    group_id bigint NOT NULL,
    cursor bigint NOT NULL,
    fence bigint NOT NULL,
    vanished bigint NOT NULL DEFAULT 0,
    served_at timestamptz NOT NULL,
    lost_from bigint,
    lost_to bigint,
    lost_nth bigint,
    replay_to bigint,
    resume_at bigint,
    owner uuid,
    slot int NOT NULL,
    PRIMARY KEY (group_id, slot)
) WITH (fillfactor = 30);
CREATE INDEX slots_owner ON LOG.slots (owner) WHERE owner IS NOT NULL;
CREATE TABLE LOG.members (
    id uuid PRIMARY KEY,
    lease_until timestamptz NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX members_lease ON LOG.members (kind, lease_until);
CREATE TABLE LOG.subscriptions (
    group_id bigint NOT NULL,
    id uuid NOT NULL,
    expires_in bigint,
    created_at timestamptz NOT NULL,
    touched_at timestamptz NOT NULL,
    created_after bigint NOT NULL,
    topic text COLLATE "C",
    condition text COLLATE "C",
    params text COLLATE "C" NOT NULL,
    params_identity text COLLATE "C" NOT NULL,
    PRIMARY KEY (group_id, id)
);
CREATE INDEX subscriptions_same ON LOG.subscriptions ((hashtextextended(
    params_identity, hashtextextended(coalesce(condition, ''), hashtextextended(coalesce(topic, ''), group_id)))));
CREATE INDEX subscriptions_expiry ON LOG.subscriptions ((group_id + 0), expires_in) WHERE expires_in IS NOT NULL;
CREATE TABLE LOG.subscription_changes (
    group_id bigint NOT NULL,
    version bigint NOT NULL,
    id uuid NOT NULL,
    PRIMARY KEY (group_id, version, id)
);
CREATE TABLE LOG.lanes (
    group_id bigint NOT NULL,
    position bigint NOT NULL,
    attempts bigint NOT NULL,
    not_before timestamptz,
    since timestamptz NOT NULL,
    slot int NOT NULL,
    redriven boolean NOT NULL,
    state text COLLATE "C" NOT NULL,
    ask text COLLATE "C",
    key text COLLATE "C" NOT NULL,
    error text COLLATE "C",
    PRIMARY KEY (group_id, key)
) WITH (fillfactor = 70);
CREATE INDEX lanes_key ON LOG.lanes (key);
CREATE INDEX lanes_needed ON LOG.lanes (group_id, position) WHERE state IN ('waiting', 'held');
CREATE INDEX lanes_stuck ON LOG.lanes (since, key) WHERE state IN ('held', 'dead');
CREATE INDEX lanes_stuck_of_group ON LOG.lanes (group_id, since, key) WHERE state IN ('held', 'dead');
CREATE INDEX lanes_asked ON LOG.lanes (group_id, slot) WHERE ask IS NOT NULL;
CREATE TABLE LOG.deliveries (
    seq bigint NOT NULL,
    group_id bigint NOT NULL,
    attempts bigint NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    state text COLLATE "C" NOT NULL,
    object text COLLATE "C",
    error text COLLATE "C",
    PRIMARY KEY (seq, group_id)
);
CREATE INDEX deliveries_age ON LOG.deliveries (finished_at, seq, group_id);
CREATE INDEX deliveries_group ON LOG.deliveries (group_id);
CREATE TABLE LOG.delivery_lines (
    group_id bigint NOT NULL,
    seq bigint NOT NULL,
    nth bigint GENERATED ALWAYS AS IDENTITY,
    attempt bigint NOT NULL,
    at timestamptz NOT NULL,
    level text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    PRIMARY KEY (group_id, seq, nth)
);
CREATE INDEX delivery_lines_age ON LOG.delivery_lines (at, nth);
CREATE TABLE LOG.settlements (
    call uuid PRIMARY KEY,
    settled_at timestamptz NOT NULL,
    states text[] NOT NULL,
    reasons text[],
    tail bigint,
    recorded_at timestamptz[],
    seqs bigint[],
    prevs bigint[],
    ids uuid[],
    conflicts boolean[]
);
CREATE INDEX settlements_age ON LOG.settlements (settled_at);

-- in: 6_jobs 6 8 13 14 17 18
ALTER TABLE LOG.lanes ADD COLUMN parked_to bigint;
CREATE TABLE LOG.parked (
    group_id bigint NOT NULL,
    seq bigint NOT NULL,
    prev bigint,
    recorded_at timestamptz NOT NULL,
    occurred_at timestamptz,
    id_part uuid NOT NULL,
    id uuid NOT NULL,
    to_subscription uuid,
    key text COLLATE "C" NOT NULL,
    topic text COLLATE "C" NOT NULL,
    object text COLLATE "C",
    payload jsonb NOT NULL,
    metadata jsonb,
    PRIMARY KEY (group_id, key, seq)
);
CREATE INDEX parked_seq ON LOG.parked (seq);
CREATE INDEX parked_id ON LOG.parked (id);
CREATE OR REPLACE FUNCTION LOG.parked_passed() RETURNS trigger LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM LOG.parked p WHERE p.group_id = OLD.group_id AND p.key = OLD.key;
    ELSE
        DELETE FROM LOG.parked p
        WHERE p.group_id = NEW.group_id AND p.key = NEW.key AND p.seq < NEW.position;
    END IF;
    RETURN NULL;
END
$body$;
CREATE TRIGGER lanes_passed AFTER UPDATE OF position ON LOG.lanes FOR EACH ROW
    WHEN (NEW.parked_to IS NOT NULL AND NEW.position > OLD.position) EXECUTE FUNCTION LOG.parked_passed();
CREATE TRIGGER lanes_gone AFTER DELETE ON LOG.lanes FOR EACH ROW
    WHEN (OLD.parked_to IS NOT NULL) EXECUTE FUNCTION LOG.parked_passed();

-- in: 6_jobs 6 8 13 14 17 18
CREATE TABLE LOG.serving (
    member uuid NOT NULL REFERENCES LOG.members (id) ON DELETE CASCADE,
    group_name text COLLATE "C" NOT NULL,
    PRIMARY KEY (member, group_name)
);
CREATE INDEX serving_group ON LOG.serving (group_name);

-- in: 6_jobs
ALTER TABLE LOG.slots ADD COLUMN replay_to bigint, ADD COLUMN resume_at bigint;

-- in: 6_jobs 6 8 13 14 17 18
CREATE SEQUENCE LOG.job_numbers;
CREATE TABLE LOG.jobs (
    number bigint PRIMARY KEY,
    stamp bigint NOT NULL,
    rank bigint NOT NULL,
    turn bigint,
    fence bigint NOT NULL DEFAULT 0,
    enqueued_at timestamptz NOT NULL,
    not_before timestamptz,
    locked_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    lease_until timestamptz,
    event_seq bigint,
    event_prev bigint,
    event_id uuid,
    call uuid,
    attempts int NOT NULL DEFAULT 0,
    attempts_max int NOT NULL,
    ordered boolean NOT NULL,
    cancel_asked boolean NOT NULL DEFAULT false,
    redriven boolean NOT NULL DEFAULT false,
    state text COLLATE "C" NOT NULL,
    on_exhausted text COLLATE "C" NOT NULL,
    handler text COLLATE "C" NOT NULL,
    object text COLLATE "C",
    unique_key text COLLATE "C",
    worker text COLLATE "C",
    event_topic text COLLATE "C",
    payload text COLLATE "C" NOT NULL,
    metadata text COLLATE "C",
    result text COLLATE "C",
    error_attempts int[],
    error_times timestamptz[],
    error_texts text[]
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX jobs_available ON LOG.jobs (handler, rank, turn) WHERE state = 'available';
CREATE INDEX jobs_running ON LOG.jobs (lease_until, number) WHERE state = 'running';
CREATE INDEX jobs_due ON LOG.jobs (not_before, number) WHERE state IN ('scheduled', 'retrying');
CREATE INDEX jobs_parked ON LOG.jobs (object) WHERE state = 'parked';
CREATE INDEX jobs_lane ON LOG.jobs (handler, object, turn)
    WHERE ordered AND object IS NOT NULL AND turn IS NOT NULL;
CREATE UNIQUE INDEX jobs_active ON LOG.jobs (handler, object)
    WHERE ordered AND object IS NOT NULL AND state IN ('available', 'running');
CREATE UNIQUE INDEX jobs_key ON LOG.jobs (handler, unique_key)
    WHERE unique_key IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_object ON LOG.jobs ((object || ''), number) WHERE object IS NOT NULL;
CREATE INDEX jobs_over ON LOG.jobs (finished_at, number) WHERE finished_at IS NOT NULL AND turn IS NULL;
CREATE TABLE LOG.job_lines (
    number bigint NOT NULL,
    line bigint NOT NULL,
    at timestamptz NOT NULL,
    attempt int NOT NULL,
    level text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    PRIMARY KEY (number, line)
);
CREATE TABLE LOG.job_servers (
    handler text COLLATE "C" PRIMARY KEY,
    until timestamptz NOT NULL
);
CREATE TABLE LOG.job_calls (
    call uuid PRIMARY KEY,
    at timestamptz NOT NULL,
    tail bigint,
    states text[],
    reasons text[],
    recorded_at timestamptz[],
    seqs bigint[],
    prevs bigint[],
    ids uuid[],
    conflicts boolean[],
    job_states text[],
    numbers bigint[],
    new boolean[]
);
CREATE INDEX job_calls_age ON LOG.job_calls (at);
CREATE TABLE LOG.rules_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL DEFAULT 0
);
INSERT INTO LOG.rules_state DEFAULT VALUES;
CREATE TABLE LOG.rules (
    id uuid NOT NULL,
    made_by uuid NOT NULL,
    set_by uuid NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    kind text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    reason text COLLATE "C",
    author text COLLATE "C" NOT NULL,
    PRIMARY KEY (scope, kind)
);
CREATE TABLE LOG.rule_reports (
    member uuid PRIMARY KEY,
    version bigint NOT NULL
);

-- in: 6 8 13 14 17 18
CREATE TABLE LOG.definitions_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL DEFAULT 0
);
INSERT INTO LOG.definitions_state DEFAULT VALUES;
CREATE TABLE LOG.definitions (
    group_id bigint PRIMARY KEY REFERENCES LOG.groups (id) ON DELETE CASCADE,
    subscription uuid NOT NULL,
    revision bigint NOT NULL,
    settings text NOT NULL
);
CREATE OR REPLACE FUNCTION LOG.definition_gone() RETURNS trigger LANGUAGE plpgsql
AS $body$
BEGIN
    UPDATE LOG.definitions_state s SET version = s.version + 1;
    RETURN NULL;
END
$body$;
CREATE TRIGGER definition_gone AFTER DELETE ON LOG.definitions
    FOR EACH ROW EXECUTE FUNCTION LOG.definition_gone();

-- in: 8 13 14 17 18
CREATE INDEX jobs_tasks ON LOG.jobs (handler, enqueued_at, number) WHERE starts_with(handler, 'task.');
CREATE TABLE LOG.job_progress (
    number bigint PRIMARY KEY REFERENCES LOG.jobs ON DELETE CASCADE,
    done bigint NOT NULL,
    total bigint,
    at timestamptz NOT NULL,
    unit text COLLATE "C"
);

-- in: 8 13 14 17 18
CREATE TABLE LOG.schedules_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL DEFAULT 0
);
INSERT INTO LOG.schedules_state DEFAULT VALUES;
CREATE TABLE LOG.schedules (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    watermark timestamptz NOT NULL,
    due timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    runs bigint NOT NULL DEFAULT 0,
    put_by uuid NOT NULL,
    fired_by uuid,
    held boolean NOT NULL,
    managed_by text,
    definition text NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX schedules_due ON LOG.schedules (due, name) WHERE due IS NOT NULL AND NOT held;
CREATE INDEX schedules_managed ON LOG.schedules (name) WHERE managed_by IS NOT NULL;
CREATE TABLE LOG.schedule_runs (
    name text COLLATE "C" NOT NULL REFERENCES LOG.schedules (name) ON DELETE CASCADE,
    number bigint NOT NULL,
    occurrence timestamptz NOT NULL,
    at timestamptz NOT NULL,
    event_seq bigint,
    job_number bigint,
    job_stamp bigint,
    call uuid NOT NULL,
    manual boolean NOT NULL,
    overlapped boolean NOT NULL,
    skipped text,
    PRIMARY KEY (name, number)
);
CREATE TABLE LOG.schedule_declarations (
    process uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (process, name)
);
CREATE INDEX schedule_declarations_name ON LOG.schedule_declarations (name, until);
CREATE OR REPLACE FUNCTION LOG.schedule_rule_changed() RETURNS trigger LANGUAGE plpgsql
AS $body$
DECLARE
    v_scope text := CASE WHEN TG_OP = 'DELETE' THEN OLD.scope ELSE NEW.scope END;
BEGIN
    IF v_scope LIKE 'schedule:%' THEN
        UPDATE LOG.schedules s SET held = EXISTS (SELECT 1 FROM LOG.rules r WHERE r.scope = v_scope)
        WHERE s.name = substr(v_scope, 10);
    END IF;
    RETURN NULL;
END
$body$;
CREATE TRIGGER schedule_rule_changed AFTER INSERT OR DELETE ON LOG.rules
    FOR EACH ROW EXECUTE FUNCTION LOG.schedule_rule_changed();

-- in: 13 14 17 18
CREATE TABLE LOG.outbox (
    number bigint GENERATED ALWAYS AS IDENTITY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    occurred_at timestamptz NOT NULL,
    not_before timestamptz,
    id uuid NOT NULL,
    to_subscription uuid,
    topic text COLLATE "C" NOT NULL,
    object text COLLATE "C",
    payload jsonb NOT NULL,
    metadata jsonb,
    key text COLLATE "C",
    fingerprint bytea
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX outbox_xid ON LOG.outbox (xid, number);
CREATE UNIQUE INDEX outbox_key ON LOG.outbox (key) WHERE key IS NOT NULL;
ALTER TABLE LOG.schema_version ADD COLUMN compatible_from int NOT NULL DEFAULT 1;

-- in: 13 14 17 18
CREATE TABLE LOG.own_settlements (
    call uuid PRIMARY KEY,
    now timestamptz,
    group_name text COLLATE "C",
    member uuid,
    slots int[],
    fences bigint[],
    lane_changes int[],
    lane_keys text[],
    lane_seqs bigint[],
    number bigint,
    stamp bigint,
    fence bigint,
    line_attempts int[],
    line_at timestamptz[],
    line_levels text[],
    line_messages text[],
    chances int[],
    handlers text[],
    objects text[],
    ordered boolean[],
    payloads text[],
    metadata text[],
    ranks bigint[],
    not_before timestamptz[],
    keys text[],
    attempts_max int[],
    exhausted text[],
    event_seqs bigint[],
    event_prevs bigint[],
    event_ids uuid[],
    event_topics text[]
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
CREATE OR REPLACE FUNCTION LOG.own_committing() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    PERFORM LOG.own_settle(NEW.call);
    RETURN NULL;
END
$body$;
CREATE CONSTRAINT TRIGGER own_committing AFTER INSERT ON LOG.own_settlements
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION LOG.own_committing();

-- in: 13 14 17 18
CREATE DOMAIN LOG.condition_text AS text COLLATE "C";
CREATE DOMAIN LOG.condition_path AS text[] COLLATE "C";
CREATE OR REPLACE FUNCTION LOG.condition_member(jsonb, LOG.condition_text) RETURNS LOG.condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT $1 OPERATOR(pg_catalog.->>) $2 $body$;
CREATE OR REPLACE FUNCTION LOG.condition_member(jsonb, int) RETURNS LOG.condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT $1 OPERATOR(pg_catalog.->>) $2 $body$;
CREATE OR REPLACE FUNCTION LOG.condition_member(jsonb, LOG.condition_path) RETURNS LOG.condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT $1 OPERATOR(pg_catalog.#>>) $2 $body$;
CREATE OR REPLACE FUNCTION LOG.condition_lower(LOG.condition_text) RETURNS LOG.condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT pg_catalog.lower($1) $body$;
CREATE OR REPLACE FUNCTION LOG.condition_upper(LOG.condition_text) RETURNS LOG.condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT pg_catalog.upper($1) $body$;
CREATE OPERATOR LOG.->> (LEFTARG = jsonb, RIGHTARG = LOG.condition_text, FUNCTION = LOG.condition_member);
CREATE OPERATOR LOG.->> (LEFTARG = jsonb, RIGHTARG = int, FUNCTION = LOG.condition_member);
CREATE OPERATOR LOG.#>> (LEFTARG = jsonb, RIGHTARG = LOG.condition_path, FUNCTION = LOG.condition_member);
CREATE TYPE LOG.condition_event AS (
    seq bigint,
    prev bigint,
    id uuid,
    topic text COLLATE "C",
    object text COLLATE "C",
    payload jsonb,
    metadata jsonb,
    occurred_at timestamptz,
    recorded_at timestamptz,
    to_subscription uuid
);
CREATE TYPE LOG.condition_subscription AS (
    id uuid,
    group_id text COLLATE "C",
    params jsonb,
    topic text COLLATE "C",
    condition text COLLATE "C"
);
ALTER TABLE LOG.subscriptions ADD COLUMN failures bigint NOT NULL DEFAULT 0;
ALTER TABLE LOG.subscriptions ADD COLUMN failed_seq bigint;
ALTER TABLE LOG.subscriptions ADD COLUMN failed_at timestamptz;
ALTER TABLE LOG.subscriptions ADD COLUMN failed_with text COLLATE "C";

-- in: 13 14 17 18
CREATE TABLE LOG.schedule_declarers (
    process uuid PRIMARY KEY,
    until timestamptz NOT NULL
) WITH (fillfactor = 50);
INSERT INTO LOG.schedule_declarers (process, until)
SELECT d.process, max(d.until) FROM LOG.schedule_declarations d GROUP BY d.process;
DROP INDEX LOG.schedule_declarations_name;
ALTER TABLE LOG.schedule_declarations DROP COLUMN until;
CREATE INDEX schedule_declarations_name ON LOG.schedule_declarations (name);
ALTER TABLE LOG.schedules_state ADD COLUMN rules_changed bigint NOT NULL DEFAULT 0;

-- in: 13 14 17 18
CREATE TABLE LOG.config (
    key text COLLATE "C" PRIMARY KEY,
    value text COLLATE "C"
);
CREATE OR REPLACE FUNCTION LOG.config_check() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_count text := '^[0-9]{1,9}$';
    v_span interval;
    v_is_span boolean := false;
BEGIN
    BEGIN
        IF NEW.value !~ '^[0-9]+$' THEN
            v_span := NEW.value::interval;
            v_is_span := v_span > interval '0';
        END IF;
    EXCEPTION WHEN data_exception THEN
        v_is_span := false;
    END;
    IF NEW.key = 'partition_retention_period' AND (NEW.value IS NULL OR v_is_span) THEN
        RETURN NEW;
    ELSIF NEW.key = 'partition_retention_period' THEN
        RAISE EXCEPTION 'partition_retention_period is %: write a length of time such as ''7 days'', or null to keep everything',
            quote_nullable(NEW.value) USING ERRCODE = 'invalid_parameter_value';
    ELSIF NEW.key IN ('partition_interval', 'future_intervals_to_create') THEN
        IF v_is_span OR NEW.value ~ v_count AND NEW.value::int > 0
            AND (NEW.key = 'partition_interval' OR NEW.value::int <= 1000) THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION '% is %: write %', NEW.key, quote_nullable(NEW.value),
            CASE WHEN NEW.key = 'partition_interval' THEN 'how many events a partition holds, such as ''1000000'''
                ELSE 'how many partitions are made ahead, 1 to 1000' END || ', or a length of time such as ''1 day'''
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF NEW.key = 'poll_chunk_size' THEN
        IF NEW.value ~ v_count AND NEW.value::int BETWEEN 1 AND 100000 THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION 'poll_chunk_size is %: write a number from 1 to 100000', quote_nullable(NEW.value)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RAISE EXCEPTION 'there is no setting %: those are partition_retention_period, partition_interval, future_intervals_to_create and poll_chunk_size',
        quote_nullable(NEW.key) USING ERRCODE = 'invalid_parameter_value';
END
$body$;
CREATE TRIGGER config_check BEFORE INSERT OR UPDATE ON LOG.config
    FOR EACH ROW EXECUTE FUNCTION LOG.config_check();
INSERT INTO LOG.config (key, value) VALUES
    ('partition_retention_period', NULL),
    ('partition_interval', '1000000'),
    ('future_intervals_to_create', '3'),
    ('poll_chunk_size', '1000');
CREATE INDEX jobs_sent ON LOG.jobs (handler, object)
    WHERE state = 'scheduled' AND not_before = enqueued_at AND ordered AND object IS NOT NULL;
CREATE OR REPLACE FUNCTION LOG.mutation_payload(p_table regclass, p_operation text, p_payload jsonb) RETURNS jsonb
LANGUAGE sql STABLE
AS $body$
    SELECT p_payload
$body$;

-- in: 14 17 18
DROP INDEX LOG.jobs_over;
CREATE INDEX jobs_over ON LOG.jobs (finished_at, number)
    WHERE finished_at IS NOT NULL AND turn IS NULL AND state <> 'dead';
CREATE INDEX jobs_dead ON LOG.jobs (finished_at, number, turn) WHERE state = 'dead';

-- in: 17 18
ALTER TABLE LOG.outbox ALTER COLUMN topic DROP NOT NULL, ALTER COLUMN payload DROP NOT NULL,
    ADD COLUMN count int, ADD COLUMN events jsonb,
    ADD CHECK ((events IS NULL) = (topic IS NOT NULL) AND (events IS NULL) = (payload IS NOT NULL)),
    SET (toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 10000, toast.autovacuum_vacuum_cost_delay = 0);
ALTER TABLE LOG.outbox ALTER COLUMN events SET STORAGE EXTERNAL;

-- in: 17 18
ALTER TABLE LOG.events RENAME TO stored_events;
DROP VIEW IF EXISTS LOG.log;
DROP FUNCTION IF EXISTS LOG.outbox_move(timestamptz, bigint, bigint, bigint);

-- in: 17 18
ALTER TABLE LOG.jobs SET (fillfactor = 50);
ALTER INDEX LOG.jobs_pkey SET (fillfactor = 40);
ALTER TABLE LOG.job_progress DROP CONSTRAINT job_progress_number_fkey;

-- in: 18
ALTER TABLE LOG.job_calls ADD COLUMN run int;
