\set ON_ERROR_STOP on
-- Ensue, version 20 of its schema, in the schema "ensue".
-- Run it in one transaction: psql -1 -f FILE

-- The schema, unless somebody with more rights has made it for us, and the table of its version.
DO $body$
BEGIN
    IF current_setting('server_version_num')::int < 140000 THEN
        RAISE EXCEPTION 'Ensue needs Postgres 14 or newer, and this is %', current_setting('server_version')
            USING ERRCODE = 'feature_not_supported', HINT = 'Upgrade the server.';
    END IF;
    IF to_regclass(quote_ident('ensue') || '.schema_version') IS NOT NULL THEN
        RAISE EXCEPTION 'Ensue is installed in the schema % already', quote_ident('ensue') USING ERRCODE = 'duplicate_schema',
            HINT = 'To bring it up to date run `ensue migrate`; to begin anew drop the schema, with all that is in it.';
    END IF;
    IF to_regnamespace(quote_ident('ensue')) IS NULL THEN
        IF NOT has_database_privilege(current_database(), 'CREATE') THEN
            RAISE EXCEPTION 'permission denied to make a schema in database %', current_database() USING ERRCODE = 'insufficient_privilege',
                HINT = format('GRANT CREATE ON DATABASE %I TO %I, or have somebody with that right make the schema: CREATE SCHEMA %I AUTHORIZATION %2$I',
                    current_database(), current_user, 'ensue');
        END IF;
        CREATE SCHEMA "ensue";
    END IF;
END
$body$;

CREATE TABLE "ensue".schema_version (
    version int PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The tables of the log.
--
-- `events` is insert-only and its own counter: the newest row says which number comes next. A counter row or a table of
-- heads would be updated with every append, and each version of such a row slows the next append down for as long as
-- somebody holds a snapshot; insert-only stays flat. It has one index beside its primary key, on a hash of the object
-- and seq, which finds the predecessor of an event and reads the chain of an object; who uses it compares the object
-- too. On the object itself it would cost a fifth more for keys of 10 bytes, half more for 36, and be up to twice as large.
-- No two of its entries are equal, so that Postgres is told not to look for those when a page is full. There is no index
-- on ids: an id tells its time, and `recorded_at` never decreases along `seq`, so that a binary search finds it.
--
-- `id_part` is an id without what `recorded_at` tells already: the bits of the time and the version are 0. An event whose
-- id has a time of its own (it was delayed) has the whole id there. `event_id(id_part, recorded_at)` is the id in both
-- cases. So nothing is computed for an id while the log is locked (docs/decisions/007).
--
-- Two columns are null in the common case to save room: `occurred_at` when it equals `recorded_at`, `metadata` when
-- it is `{}`. The columns of fixed length come first, so that none is padded.
CREATE TABLE "ensue".events (
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

CREATE INDEX events_object ON "ensue".events (hashtextextended(object, 0), seq)
    WITH (deduplicate_items = off) WHERE object IS NOT NULL;

-- Which places each partition holds: [from_seq, to_seq). A detached one waits to be dropped.
CREATE TABLE "ensue".partitions (
    from_seq bigint PRIMARY KEY,
    to_seq bigint NOT NULL,
    detached boolean NOT NULL DEFAULT false
);

-- What is forgotten, whether or not its rows are gone yet: the newest forgotten number and its time. They carry the
-- end of the log over the day on which it is emptied.
CREATE TABLE "ensue".log_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    trimmed_to bigint NOT NULL DEFAULT 0,
    trimmed_recorded_at timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO "ensue".log_state DEFAULT VALUES;

-- Delayed events. Once in the log (`seq` is set) only the way from id to seq is kept, until retention passes it.
CREATE TABLE "ensue".delayed (
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
    key text COLLATE "C" -- freed when the event is cancelled
);
CREATE INDEX delayed_due ON "ensue".delayed (not_before, accepted) WHERE seq IS NULL;
CREATE INDEX delayed_seq ON "ensue".delayed (seq) WHERE seq IS NOT NULL;

-- Idempotency keys with what was answered under them. Outlive their event, until their window has passed.
CREATE TABLE "ensue".keys (
    key text COLLATE "C" PRIMARY KEY,
    fingerprint bytea NOT NULL,
    id_part uuid NOT NULL, -- of the id whose time is `recorded_at`
    seq bigint,
    prev bigint,
    recorded_at timestamptz NOT NULL
);
CREATE INDEX keys_recorded_at ON "ensue".keys (recorded_at);

-- Groups and all that is known of them.
--
-- Whatever may be large refers to its group by a number that is never used again: so a group is forgotten at once, and
-- what belonged to it afterwards, in short turns.
--
-- Locks are taken in one order by everybody: positions_state, groups, slots (by group and number), members (by id),
-- lanes and deliveries, and the lock of the log after the slots. Who has the log's lock waits for no slot.
CREATE TABLE "ensue".positions_state (
    one boolean PRIMARY KEY DEFAULT true,
    fence_floor bigint NOT NULL DEFAULT 0, -- no forgotten group had a larger fence
    version_floor bigint NOT NULL DEFAULT 0 -- every forgotten group had a smaller version
);
INSERT INTO "ensue".positions_state DEFAULT VALUES;

CREATE TABLE "ensue".groups (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version bigint NOT NULL,
    subscriptions bigint NOT NULL DEFAULT 0, -- rows of that table, so that nobody need count them
    created_at timestamptz NOT NULL,
    made_by uuid NOT NULL, -- the call that made it: one whose answer was lost finds out that it did
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL UNIQUE
) WITH (fillfactor = 50);

-- Forgotten groups of which something may still be there.
CREATE TABLE "ensue".groups_gone (group_id bigint PRIMARY KEY);

-- What changes with every checkpoint is in no index: such an update stays on its page.
CREATE TABLE "ensue".slots (
    group_id bigint NOT NULL,
    cursor bigint NOT NULL,
    fence bigint NOT NULL,
    vanished bigint NOT NULL DEFAULT 0,
    served_at timestamptz NOT NULL,
    lost_from bigint,
    lost_to bigint,
    lost_nth bigint, -- the slot of a group with the largest tells what the group lost last
    replay_to bigint, -- one that runs a part of the log again passes over what is after this
    resume_at bigint, -- and up to this: that is done
    owner uuid, -- one that is no member (any more) has vanished
    slot int NOT NULL,
    PRIMARY KEY (group_id, slot)
) WITH (fillfactor = 30);
CREATE INDEX slots_owner ON "ensue".slots (owner) WHERE owner IS NOT NULL;

CREATE TABLE "ensue".members (
    id uuid PRIMARY KEY,
    lease_until timestamptz NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX members_lease ON "ensue".members (kind, lease_until);

-- Two are the same if group, topic, condition and params are, in full. A condition may be longer than a row of an index,
-- so the index on their hash finds those that are to be compared; the lock of the group's row keeps two from being made
-- at once.
--
-- `group_id + 0` in the index of expiries: on `group_id` a plan that was made for few rows may take the primary key
-- instead, and walk through all subscriptions of a group.
CREATE TABLE "ensue".subscriptions (
    group_id bigint NOT NULL,
    id uuid NOT NULL,
    expires_in bigint, -- microseconds; null stays
    created_at timestamptz NOT NULL,
    touched_at timestamptz NOT NULL,
    created_after bigint NOT NULL,
    topic text COLLATE "C",
    condition text COLLATE "C",
    params text COLLATE "C" NOT NULL,
    params_identity text COLLATE "C" NOT NULL,
    PRIMARY KEY (group_id, id)
);
CREATE INDEX subscriptions_same ON "ensue".subscriptions ((hashtextextended(
    params_identity, hashtextextended(coalesce(condition, ''), hashtextextended(coalesce(topic, ''), group_id)))));
CREATE INDEX subscriptions_expiry ON "ensue".subscriptions ((group_id + 0), expires_in) WHERE expires_in IS NOT NULL;

-- Which subscriptions the last versions of a group were about.
CREATE TABLE "ensue".subscription_changes (
    group_id bigint NOT NULL,
    version bigint NOT NULL,
    id uuid NOT NULL,
    PRIMARY KEY (group_id, version, id)
);

CREATE TABLE "ensue".lanes (
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
CREATE INDEX lanes_key ON "ensue".lanes (key);
CREATE INDEX lanes_needed ON "ensue".lanes (group_id, position) WHERE state IN ('waiting', 'held');
CREATE INDEX lanes_stuck ON "ensue".lanes (since, key) WHERE state IN ('held', 'dead');
CREATE INDEX lanes_stuck_of_group ON "ensue".lanes (group_id, since, key) WHERE state IN ('held', 'dead');
CREATE INDEX lanes_asked ON "ensue".lanes (group_id, slot) WHERE ask IS NOT NULL;

CREATE TABLE "ensue".deliveries (
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
CREATE INDEX deliveries_age ON "ensue".deliveries (finished_at, seq, group_id);
CREATE INDEX deliveries_group ON "ensue".deliveries (group_id);

-- Two lines that are equal are two.
CREATE TABLE "ensue".delivery_lines (
    group_id bigint NOT NULL,
    seq bigint NOT NULL,
    nth bigint GENERATED ALWAYS AS IDENTITY, -- in the order of writing
    attempt bigint NOT NULL,
    at timestamptz NOT NULL,
    level text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    PRIMARY KEY (group_id, seq, nth)
);
CREATE INDEX delivery_lines_age ON "ensue".delivery_lines (at, nth);

-- What was answered to a settlement that is more than a checkpoint, for who sends it again because the answer was lost:
-- it is not done twice. Kept for an hour.
CREATE TABLE "ensue".settlements (
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
CREATE INDEX settlements_age ON "ensue".settlements (settled_at);

-- Events that lanes need and that retention takes from the log; as in `events`, with their whole id.
--
-- Whatever moves a lane on or takes it away also takes what was parked of it: a trigger, so that no way around it is
-- forgotten. It costs only lanes of which something was parked.
ALTER TABLE "ensue".lanes ADD COLUMN parked_to bigint; -- what a lane needs before this is in parked

CREATE TABLE "ensue".parked (
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
CREATE INDEX parked_seq ON "ensue".parked (seq);
CREATE INDEX parked_id ON "ensue".parked (id);

CREATE OR REPLACE FUNCTION "ensue".parked_passed() RETURNS trigger LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM "ensue".parked p WHERE p.group_id = OLD.group_id AND p.key = OLD.key;
    ELSE
        DELETE FROM "ensue".parked p
        WHERE p.group_id = NEW.group_id AND p.key = NEW.key AND p.seq < NEW.position;
    END IF;
    RETURN NULL;
END
$body$;
CREATE TRIGGER lanes_passed AFTER UPDATE OF position ON "ensue".lanes FOR EACH ROW
    WHEN (NEW.parked_to IS NOT NULL AND NEW.position > OLD.position) EXECUTE FUNCTION "ensue".parked_passed();
CREATE TRIGGER lanes_gone AFTER DELETE ON "ensue".lanes FOR EACH ROW
    WHEN (OLD.parked_to IS NOT NULL) EXECUTE FUNCTION "ensue".parked_passed();

-- Which process serves which group. By name: a process says what it serves whether the group is there or not.
CREATE TABLE "ensue".serving (
    member uuid NOT NULL REFERENCES "ensue".members (id) ON DELETE CASCADE,
    group_name text COLLATE "C" NOT NULL,
    PRIMARY KEY (member, group_name)
);
CREATE INDEX serving_group ON "ensue".serving (group_name);

-- Jobs and rules.
--
-- One table of jobs, those that are over included (`finished_at` is set then); indexes have only what is live, except the
-- primary key and the one by object. A change of state is a new row version in each index that has it, so there are as few
-- of them as can be for a job without an object: three at any time.
--
-- `number` comes from job_numbers and leads from an id to its row. `stamp` is the rest of the id, its milliseconds and its
-- twelve bits of chance: who asks for a job by its id has all of it right. `rank` is the priority turned round and made
-- signed, so that the smallest is the first: a position (rank, turn) is one comparison, and exact for every u64.
-- `call` is the claim, settlement or steering that wrote the row last, for who asks again because the answer was lost.
--
-- Who looks for jobs by their numbers says nothing that is the condition of an index: with `state = 'running'` a plan that
-- was made while nothing ran reads all that runs. So it says `coalesce(state, '')`, and `object || ''` is what the index by
-- object has: a lane is not looked for among all that was ever about its object.
--
-- Locks are taken in one order by everybody: that of a call, that of the rules (shared; whoever changes a rule has it
-- alone), rows of jobs that are in no lane (by number), the locks of lanes and keys (1,024 for all, in their order), rows of
-- jobs in lanes (by number), the log. A claim takes the rules' lock and rows that nobody has, and waits for nothing else.
CREATE SEQUENCE "ensue".job_numbers;

CREATE TABLE "ensue".jobs (
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
    metadata text COLLATE "C", -- null is {}
    result text COLLATE "C",
    error_attempts int[], -- the newest errors, one element each
    error_times timestamptz[],
    error_texts text[]
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);

-- What a claim looks at.
CREATE INDEX jobs_available ON "ensue".jobs (handler, rank, turn) WHERE state = 'available';
CREATE INDEX jobs_running ON "ensue".jobs (lease_until, number) WHERE state = 'running';
CREATE INDEX jobs_due ON "ensue".jobs (not_before, number) WHERE state IN ('scheduled', 'retrying');
CREATE INDEX jobs_parked ON "ensue".jobs (object) WHERE state = 'parked';
-- A lane, in its order.
CREATE INDEX jobs_lane ON "ensue".jobs (handler, object, turn)
    WHERE ordered AND object IS NOT NULL AND turn IS NOT NULL;
-- At most one of a lane may run or runs, whatever else goes wrong.
CREATE UNIQUE INDEX jobs_active ON "ensue".jobs (handler, object)
    WHERE ordered AND object IS NOT NULL AND state IN ('available', 'running');
CREATE UNIQUE INDEX jobs_key ON "ensue".jobs (handler, unique_key)
    WHERE unique_key IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_object ON "ensue".jobs ((object || ''), number) WHERE object IS NOT NULL;
CREATE INDEX jobs_over ON "ensue".jobs (finished_at, number) WHERE finished_at IS NOT NULL AND turn IS NULL;

-- Two lines that are equal are two.
CREATE TABLE "ensue".job_lines (
    number bigint NOT NULL,
    line bigint NOT NULL,
    at timestamptz NOT NULL,
    attempt int NOT NULL,
    level text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    PRIMARY KEY (number, line)
);

-- Who was said to run the jobs of which handler, until when.
CREATE TABLE "ensue".job_servers (
    handler text COLLATE "C" PRIMARY KEY,
    until timestamptz NOT NULL
);

-- What was answered to a call that must not be done twice, for who sends it again because the answer was lost. Forgotten
-- after an hour, all together: one by one, each search for the oldest would pass over those that went before it for as long
-- as somebody holds a snapshot.
CREATE TABLE "ensue".job_calls (
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
    numbers bigint[], -- of the jobs that were sent; how they stand is looked up
    new boolean[] -- null if all are
);
CREATE INDEX job_calls_age ON "ensue".job_calls (at);

CREATE TABLE "ensue".rules_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL DEFAULT 0
);
INSERT INTO "ensue".rules_state DEFAULT VALUES;

-- `scope` is `handler:KEY`, `object:KEY` or `schedule:NAME`.
CREATE TABLE "ensue".rules (
    id uuid NOT NULL,
    made_by uuid NOT NULL, -- the call that made it
    set_by uuid NOT NULL, -- the call that set it last
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    kind text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    reason text COLLATE "C",
    author text COLLATE "C" NOT NULL,
    PRIMARY KEY (scope, kind)
);

-- Which version of the rules a process obeys.
CREATE TABLE "ensue".rule_reports (
    member uuid PRIMARY KEY,
    version bigint NOT NULL
);

-- Handlers that the store itself keeps. One goes with its group, whoever deletes that, and its going counts.
CREATE TABLE "ensue".definitions_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL DEFAULT 0
);
INSERT INTO "ensue".definitions_state DEFAULT VALUES;

CREATE TABLE "ensue".definitions (
    group_id bigint PRIMARY KEY REFERENCES "ensue".groups (id) ON DELETE CASCADE,
    subscription uuid NOT NULL,
    revision bigint NOT NULL,
    settings text NOT NULL
);

CREATE OR REPLACE FUNCTION "ensue".definition_gone() RETURNS trigger LANGUAGE plpgsql
AS $body$
BEGIN
    UPDATE "ensue".definitions_state s SET version = s.version + 1;
    RETURN NULL;
END
$body$;
CREATE TRIGGER definition_gone AFTER DELETE ON "ensue".definitions
    FOR EACH ROW EXECUTE FUNCTION "ensue".definition_gone();

-- The pulse tells their version, too; it is made anew with the schedules.
DROP FUNCTION IF EXISTS "ensue".pulse(timestamptz, bigint, uuid, bigint);

-- Tasks, which are jobs of certain handlers, by the time at which they were made: no other job is in this index. None of its
-- columns ever changes, so that a change of state writes nothing to it that it would not write anyway.
CREATE INDEX jobs_tasks ON "ensue".jobs (handler, enqueued_at, number) WHERE starts_with(handler, 'task.');

-- How far a job is: the newest that it said. It goes with its job.
CREATE TABLE "ensue".job_progress (
    number bigint PRIMARY KEY REFERENCES "ensue".jobs ON DELETE CASCADE,
    done bigint NOT NULL,
    total bigint,
    at timestamptz NOT NULL,
    unit text COLLATE "C"
);

-- Schedules. An engine does not read what fires when: it keeps a text, a watermark and a time.
CREATE TABLE "ensue".schedules_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL DEFAULT 0
);
INSERT INTO "ensue".schedules_state DEFAULT VALUES;

CREATE TABLE "ensue".schedules (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    watermark timestamptz NOT NULL,
    due timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    runs bigint NOT NULL DEFAULT 0, -- the number of the last run
    put_by uuid NOT NULL,           -- the call that put it last
    fired_by uuid,                  -- the call that fired it last
    held boolean NOT NULL,          -- is there a rule?
    managed_by text,
    definition text NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX schedules_due ON "ensue".schedules (due, name) WHERE due IS NOT NULL AND NOT held;
CREATE INDEX schedules_managed ON "ensue".schedules (name) WHERE managed_by IS NOT NULL;

CREATE TABLE "ensue".schedule_runs (
    name text COLLATE "C" NOT NULL REFERENCES "ensue".schedules (name) ON DELETE CASCADE,
    number bigint NOT NULL,
    occurrence timestamptz NOT NULL,
    at timestamptz NOT NULL,
    event_seq bigint,
    job_number bigint,
    job_stamp bigint,
    call uuid NOT NULL,
    manual boolean NOT NULL,
    overlapped boolean NOT NULL, -- is it the job of an earlier one?
    skipped text,
    PRIMARY KEY (name, number)
);

CREATE TABLE "ensue".schedule_declarations (
    process uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (process, name)
);
CREATE INDEX schedule_declarations_name ON "ensue".schedule_declarations (name, until);

-- Whether a rule holds a schedule is noted in its row, in the commit that changes the rule: so what is held is in no index that is
-- looked at for what is due. Who puts or fires has the lock of the rules.
CREATE OR REPLACE FUNCTION "ensue".schedule_rule_changed() RETURNS trigger LANGUAGE plpgsql
AS $body$
DECLARE
    v_scope pg_catalog.text := CASE WHEN TG_OP = 'DELETE' THEN OLD.scope ELSE NEW.scope END;
BEGIN
    IF v_scope LIKE 'schedule:%' THEN
        UPDATE "ensue".schedules s SET held = EXISTS (SELECT 1 FROM "ensue".rules r WHERE r.scope = v_scope)
        WHERE s.name = substr(v_scope, 10);
    END IF;
    RETURN NULL;
END
$body$;
CREATE TRIGGER schedule_rule_changed AFTER INSERT OR DELETE ON "ensue".rules
    FOR EACH ROW EXECUTE FUNCTION "ensue".schedule_rule_changed();

-- The pulse tells when the next one is due, too.
DROP FUNCTION IF EXISTS "ensue".pulse(timestamptz, bigint, uuid, bigint);

-- Events that were published in somebody's own transaction, until they are moved into the log.
--
-- Who publishes writes a row here, without a lock; nobody else sees it before the transaction commits, and it is gone with it.
-- Whoever appends, and a loop in every process, moves what is committed (fn_outbox_move.sql): to delete it here and to append it there
-- is one commit. `xid` is the transaction that wrote it, by which the move knows what it has not looked at yet; `number`
-- is the order of writing, in which rows are moved: of two transactions that lock the same thing before they publish, the one that had it first is first.
--
-- No more than a key is unique here: two transactions with the same key wait for each other, and the second finds the first.
CREATE TABLE "ensue".outbox (
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
CREATE INDEX outbox_xid ON "ensue".outbox (xid, number);
CREATE UNIQUE INDEX outbox_key ON "ensue".outbox (key) WHERE key IS NOT NULL;

-- The oldest program, by the version of the schema that it knows, that may go on beside this version.
ALTER TABLE "ensue".schema_version ADD COLUMN compatible_from int NOT NULL DEFAULT 1;

-- They answer more than they did.
DROP FUNCTION IF EXISTS "ensue".pulse(timestamptz, bigint, uuid, bigint);
DROP FUNCTION IF EXISTS "ensue".release_due(timestamptz, bigint, bigint, bigint);

-- What handlers settle in transactions of their own: written by `own_put`, carried out and removed when that transaction
-- commits (docs/decisions/013). Never seen by anybody else, and read only by its call.
--
-- A row is about a delivery, or several of one batch (`group_name` and the arrays of slots and lanes), or about a job (`number`).
-- What is sent to handlers with it has the arrays of jobs_insert.
CREATE TABLE "ensue".own_settlements (
    call uuid PRIMARY KEY,
    now timestamptz, -- of the injected clock
    group_name text COLLATE "C",
    member uuid,
    slots int[],
    fences bigint[],
    lane_changes int[], -- whose slot it is, from 1
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

-- No more than a step to what every upgrade makes anew.
CREATE OR REPLACE FUNCTION "ensue".own_committing() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    PERFORM "ensue".own_settle(NEW.call);
    RETURN NULL;
END
$body$;
CREATE CONSTRAINT TRIGGER own_committing AFTER INSERT ON "ensue".own_settlements
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "ensue".own_committing();

-- What consumers over SQL need (docs/sql.md).

-- Texts and paths of a condition compare by bytes, whatever the collation of the database is: in process they do so, too. A text
-- that comes out of jsonb has the collation of the database unless its operator says otherwise, so conditions have operators of their own.
CREATE DOMAIN "ensue".condition_text AS text COLLATE "C";
CREATE DOMAIN "ensue".condition_path AS text[] COLLATE "C";

CREATE FUNCTION "ensue".condition_member(jsonb, "ensue".condition_text) RETURNS "ensue".condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT $1 OPERATOR(pg_catalog.->>) $2 $body$;
CREATE FUNCTION "ensue".condition_member(jsonb, int) RETURNS "ensue".condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT $1 OPERATOR(pg_catalog.->>) $2 $body$;
CREATE FUNCTION "ensue".condition_member(jsonb, "ensue".condition_path) RETURNS "ensue".condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT $1 OPERATOR(pg_catalog.#>>) $2 $body$;
CREATE FUNCTION "ensue".condition_lower("ensue".condition_text) RETURNS "ensue".condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT pg_catalog.lower($1) $body$;
CREATE FUNCTION "ensue".condition_upper("ensue".condition_text) RETURNS "ensue".condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT pg_catalog.upper($1) $body$;
CREATE OPERATOR "ensue".->> (LEFTARG = jsonb, RIGHTARG = "ensue".condition_text, FUNCTION = "ensue".condition_member);
CREATE OPERATOR "ensue".->> (LEFTARG = jsonb, RIGHTARG = int, FUNCTION = "ensue".condition_member);
CREATE OPERATOR "ensue".#>> (LEFTARG = jsonb, RIGHTARG = "ensue".condition_path, FUNCTION = "ensue".condition_member);

-- An event, and a subscription, as a condition sees them; what it must not name is refused when it is read.
CREATE TYPE "ensue".condition_event AS (
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
CREATE TYPE "ensue".condition_subscription AS (
    id uuid,
    group_id text COLLATE "C",
    params jsonb,
    topic text COLLATE "C",
    condition text COLLATE "C"
);

-- On how many events its condition has failed for readers over SQL, and on which last.
ALTER TABLE "ensue".subscriptions ADD COLUMN failures bigint NOT NULL DEFAULT 0;
ALTER TABLE "ensue".subscriptions ADD COLUMN failed_seq bigint;
ALTER TABLE "ensue".subscriptions ADD COLUMN failed_at timestamptz;
ALTER TABLE "ensue".subscriptions ADD COLUMN failed_with text COLLATE "C";

-- Who declares schedules has one row that says until when, so that to say it again writes that row and not every name.
CREATE TABLE "ensue".schedule_declarers (
    process uuid PRIMARY KEY,
    until timestamptz NOT NULL
) WITH (fillfactor = 50);
INSERT INTO "ensue".schedule_declarers (process, until)
SELECT d.process, max(d.until) FROM "ensue".schedule_declarations d GROUP BY d.process;
DROP INDEX "ensue".schedule_declarations_name;
ALTER TABLE "ensue".schedule_declarations DROP COLUMN until;
CREATE INDEX schedule_declarations_name ON "ensue".schedule_declarations (name);

-- Counts what rules hold and let go: with the version it says whether a look may begin where the one before did (fn_schedules_due.sql).
ALTER TABLE "ensue".schedules_state ADD COLUMN rules_changed bigint NOT NULL DEFAULT 0;

-- What the functions for work, tables and upkeep from plain SQL need: settings that are read when they are needed, the index of jobs that were
-- sent in somebody's transaction, and a function that users may replace.

-- Settings of `maintain` and `poll_for_events`. Null where a setting has nothing to say.
CREATE TABLE "ensue".config (
    key text COLLATE "C" PRIMARY KEY,
    value text COLLATE "C"
);

-- A setting that cannot be read is refused when it is written, and not when it is needed.
CREATE OR REPLACE FUNCTION "ensue".config_check() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_count pg_catalog.text := '^[0-9]{1,9}$';
    v_span interval;
    v_is_span boolean := false;
BEGIN
    BEGIN
        IF NEW.value !~ '^[0-9]+$' THEN
            v_span := NEW.value::interval;
            v_is_span := v_span > interval '0' AND v_span <= interval '1000 years';
        END IF;
    EXCEPTION WHEN data_exception THEN
        v_is_span := false;
    END;
    IF NEW.key = 'partition_retention_period' AND (NEW.value IS NULL OR v_is_span) THEN
        RETURN NEW;
    ELSIF NEW.key = 'partition_retention_period' THEN
        RAISE EXCEPTION 'partition_retention_period is %: write a length of time such as ''7 days'', or null to keep everything',
            quote_nullable(NEW.value) USING ERRCODE = 'invalid_parameter_value', HINT = 'At most 1000 years.';
    ELSIF NEW.key IN ('partition_interval', 'future_intervals_to_create') THEN
        IF v_is_span OR NEW.value ~ v_count AND NEW.value::int > 0
            AND (NEW.key = 'partition_interval' OR NEW.value::int <= 1000) THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION '% is %: write %', NEW.key, quote_nullable(NEW.value),
            CASE WHEN NEW.key = 'partition_interval' THEN 'how many events a partition holds, such as ''1000000'''
                ELSE 'how many partitions are made ahead, 1 to 1000' END || ', or a length of time such as ''1 day'', at most 1000 years'
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
CREATE TRIGGER config_check BEFORE INSERT OR UPDATE ON "ensue".config
    FOR EACH ROW EXECUTE FUNCTION "ensue".config_check();

INSERT INTO "ensue".config (key, value) VALUES
    ('partition_retention_period', NULL),
    ('partition_interval', '1000000'),
    ('future_intervals_to_create', '3'),
    ('poll_chunk_size', '1000');

-- Jobs that were sent in somebody's transaction and have no place in their lane yet: see jobs_send.
CREATE INDEX jobs_sent ON "ensue".jobs (handler, object)
    WHERE state = 'scheduled' AND not_before = enqueued_at AND ordered AND object IS NOT NULL;

-- What is published of a row that was inserted, updated or deleted: what this answers, or nothing if it answers null. It is yours to replace:
-- it stands here and not with the functions, so that no upgrade makes it anew.
--   p_table       the table
--   p_operation   insert, update or delete
--   p_payload     the row; of an update {"row", "changed", "old"}
CREATE OR REPLACE FUNCTION "ensue".mutation_payload(p_table regclass, p_operation text, p_payload jsonb) RETURNS jsonb
LANGUAGE sql STABLE
AS $body$
    SELECT p_payload
$body$;

-- Jobs that died are counted, found and forgotten apart from those that ended otherwise: they are few, and somebody may want them
-- back.
DROP INDEX "ensue".jobs_over;
CREATE INDEX jobs_over ON "ensue".jobs (finished_at, number)
    WHERE finished_at IS NOT NULL AND turn IS NULL AND state <> 'dead';
CREATE INDEX jobs_dead ON "ensue".jobs (finished_at, number, turn) WHERE state = 'dead';

-- Many events that were published with one call, without keys and delays, are one row of the outbox: `events` has them as they were sent, `count` says how
-- many they are, and each has the id of the row with its place in the call, from 1, in the last digits. To write and delete a row for each of 1,000 would take the
-- publisher and the move twice as long. It is kept as it is, out of line: to compress it would take longer than to write it.
ALTER TABLE "ensue".outbox ALTER COLUMN topic DROP NOT NULL, ALTER COLUMN payload DROP NOT NULL,
    ADD COLUMN count int, ADD COLUMN events jsonb,
    ADD CHECK ((events IS NULL) = (topic IS NOT NULL) AND (events IS NULL) = (payload IS NOT NULL)),
    SET (toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 10000, toast.autovacuum_vacuum_cost_delay = 0);
ALTER TABLE "ensue".outbox ALTER COLUMN events SET STORAGE EXTERNAL;

-- `events` is what an event is to who reads the log with SQL (fn_log_view.sql); the table has half an id, and not what goes without saying.
ALTER TABLE "ensue".events RENAME TO stored_events;
DROP VIEW IF EXISTS "ensue".log;
-- It is made anew, and answers more.
DROP FUNCTION IF EXISTS "ensue".outbox_move(timestamptz, bigint, bigint, bigint);

-- Room for a job's next version on the page where it is, and no table that refers to jobs.
--
-- A job is written three times in a short life. On the same page only what has changed of it goes into the server's log: 268 MB instead of 357 for 200,000 jobs of 200 bytes that
-- were sent and run, and 6 % less processor time (ten runs each, in turns). What waits takes twice the room on the disk.
ALTER TABLE "ensue".jobs SET (fillfactor = 50);
-- A version that does not find room there has an entry of its own beside the first one's, in pages that new numbers have filled before.
ALTER INDEX "ensue".jobs_pkey SET (fillfactor = 40);
-- While a table refers to jobs, each change of a job asks whether that matters. Progress is forgotten by who forgets its job (fn_jobs_purge.sql).
ALTER TABLE "ensue".job_progress DROP CONSTRAINT job_progress_number_fkey;

-- Jobs that are sent together mostly have numbers that follow each other. Where `run` is not null `numbers` has the first of so many; else all of them.
ALTER TABLE "ensue".job_calls ADD COLUMN run int;

-- Changes no table: a version of its own, so that whoever calls jobs_fetch finds it.

-- Tables and columns that keep one caller from harming another (docs/security.md).

-- Claims and leases.

-- How the worker of the last claim settled a job: 'fail' or 'snooze'. Null if it succeeded, which its state tells, or if
-- no worker settled it.
ALTER TABLE "ensue".jobs ADD COLUMN settled text COLLATE "C";

-- Functions that take or answer something else from this version on. One that stays beside its successor makes calls
-- ambiguous.
DO $body$
DECLARE
    v_old pg_catalog.regprocedure;
BEGIN
    FOR v_old IN
        SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = to_regnamespace(quote_ident('ensue'))
            AND p.proname = ANY ('{jobs_fetch,jobs_take,jobs_claim,jobs_steer,jobs_wake,job_end_one,lease_parts,own_put}')
    LOOP
        EXECUTE format('DROP FUNCTION %s', v_old);
    END LOOP;
END
$body$;

-- The secret key with which nodes and functions sign claims and leases (fn_store_code.sql). The pads are those of HMAC.
CREATE TABLE "ensue".store_key (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    key bytea NOT NULL CHECK (octet_length(key) = 32),
    inner_pad bytea NOT NULL,
    outer_pad bytea NOT NULL
);
-- A UUID has 122 random bits, from the server's strong source.
WITH drawn AS MATERIALIZED (
    SELECT sha256(string_agg(uuid_send(gen_random_uuid()), '')) AS key FROM generate_series(1, 4)
)
INSERT INTO "ensue".store_key (key, inner_pad, outer_pad)
SELECT d.key,
    string_agg(set_byte(decode('00', 'hex'), 0, b.byte # 54), '' ORDER BY b.n),
    string_agg(set_byte(decode('00', 'hex'), 0, b.byte # 92), '' ORDER BY b.n)
FROM drawn d
CROSS JOIN LATERAL (
    SELECT n, CASE WHEN n < 32 THEN get_byte(d.key, n) ELSE 0 END AS byte FROM generate_series(0, 63) n
) b
GROUP BY d.key;

-- Outbox.

-- Rows of the outbox that cannot be moved into the log, with the reason, until an operator requeues or
-- deletes them (fn_outbox_move.sql).
CREATE TABLE "ensue".outbox_rejected (
    number bigint PRIMARY KEY,
    rejected_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason text NOT NULL,
    occurred_at timestamptz,
    not_before timestamptz,
    id uuid,
    to_subscription uuid,
    topic text COLLATE "C",
    object text COLLATE "C",
    payload jsonb,
    metadata jsonb,
    key text COLLATE "C",
    fingerprint bytea,
    count int,
    events jsonb
);

-- The old version took the time and the ids from its caller.
DROP FUNCTION IF EXISTS "ensue".outbox_put(timestamptz, uuid[], text[], text[], text[], timestamptz[],
    timestamptz[], uuid[], text[], text[], bytea[]);

-- Lock tables, which are empty. Locking one needs a right on it and writes nothing. Any login of the
-- database could take an advisory lock (S14).
CREATE TABLE "ensue".log_lock ();
CREATE TABLE "ensue".serving_lock ();
CREATE TABLE "ensue".rules_lock ();

-- Rights.
-- Its parameter has another name.
DROP FUNCTION IF EXISTS "ensue".condition_try(text);

-- Locks the log until the end of the transaction: one transaction at a time writes it. `append` has
-- the same statement, which spares it a call.
--
-- The mode conflicts with itself and with VACUUM, but not with pg_dump. Unlike stronger modes it does
-- not make the server look at the locks of every session. It costs what an advisory lock costs: in 25
-- turns of 1,000 appends of one event each, without waiting for the disk, the median of an append
-- was 46 µs, and 47 with an advisory lock; with 200 events 516 and 562.
CREATE OR REPLACE FUNCTION "ensue".lock_log() RETURNS void LANGUAGE plpgsql VOLATILE AS $body$
BEGIN
    LOCK TABLE "ensue".log_lock IN SHARE UPDATE EXCLUSIVE MODE;
END
$body$;

-- Where does the log end, and what of it is forgotten?
--
-- The newest row, or what was forgotten last if there is none (H38). `p_hint` is a number that the caller saw as the
-- end: partitions below it need not be opened. It is only a hint: when nothing is found from there on (a failover lost
-- the end, or it was trimmed), the whole log is asked.
--
-- The order of the two reads matters to callers without the lock: the other way round, a trim between them would make
-- the end of the log go back.
CREATE OR REPLACE FUNCTION "ensue".log_tail(
    p_hint bigint,
    OUT o_seq bigint, OUT o_recorded_at timestamptz, OUT o_trimmed_to bigint
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $body$
DECLARE
    v_trimmed_at pg_catalog.timestamptz;
BEGIN
    IF p_hint > 0 THEN
        SELECT e.seq, e.recorded_at INTO o_seq, o_recorded_at
        FROM "ensue".stored_events e WHERE e.seq >= p_hint ORDER BY e.seq DESC LIMIT 1;
    END IF;
    IF o_seq IS NULL THEN
        SELECT e.seq, e.recorded_at INTO o_seq, o_recorded_at FROM "ensue".stored_events e ORDER BY e.seq DESC LIMIT 1;
    END IF;
    SELECT s.trimmed_to, s.trimmed_recorded_at INTO STRICT o_trimmed_to, v_trimmed_at FROM "ensue".log_state s;
    IF o_seq IS NULL OR o_seq < o_trimmed_to THEN
        o_seq := o_trimmed_to;
        o_recorded_at := v_trimmed_at;
    END IF;
END
$body$;

-- What time is it for the log? The server's clock, or the injected one, but never before the newest event (H2), unless
-- that was written by hand and is at infinity.
-- `append` has the same expression in itself, which spares it a call.
CREATE OR REPLACE FUNCTION "ensue".recording_time(p_now timestamptz, p_newest timestamptz) RETURNS timestamptz
LANGUAGE sql VOLATILE
AS $body$
    SELECT greatest(coalesce(p_now, clock_timestamp()), nullif(p_newest, 'infinity'))
$body$;

-- A time of the log as readers get it: within the years that every client can represent. Rows that were
-- written by hand may have others (H43). The same as `Micros` in types.rs. The argument is not null.
CREATE OR REPLACE FUNCTION "ensue".stored_time(p_at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
    SELECT least(greatest(p_at, '0001-01-01 00:00:00+00'), '9999-12-30 22:00:00.999999+00')
$body$;

-- The id of an event, from what is stored of it: `p_part` with the time put before it, or `p_part` itself where it is
-- whole already, which its version tells. The same as `id_parts::whole`.
--
-- STABLE, because `extract` is: a function that says more of itself than what it calls is not inlined, and is planned anew in every transaction.
-- It runs with the search path of the reader, so all types fit functions and operators of Postgres exactly: no other is preferred.
CREATE OR REPLACE FUNCTION "ensue".event_id(p_part uuid, p_recorded_at timestamptz) RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
AS $body$
    SELECT CASE WHEN substr(p_part::text, 15, 1) <> '0' THEN p_part
        ELSE (right(lpad(to_hex(trunc(extract(epoch FROM "ensue".stored_time(p_recorded_at))
                * 1000::numeric)::bigint), 12, '0'), 12)
            || '7' || right(replace(p_part::text, '-', ''), 19))::uuid END
$body$;

-- When was this id made? To the millisecond.
CREATE OR REPLACE FUNCTION "ensue".id_time(p_id uuid) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
    SELECT to_timestamp(('x' || left(replace(p_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
$body$;

-- A new id: a UUIDv7 of now.
CREATE OR REPLACE FUNCTION "ensue".new_id() RETURNS uuid
LANGUAGE sql VOLATILE
AS $body$
    SELECT (lpad(to_hex(trunc(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
        || right(replace(gen_random_uuid()::text, '-', ''), 19))::uuid
$body$;

-- The first digits of new ids of this time, which differ in five digits at the end.
CREATE OR REPLACE FUNCTION "ensue".id_start(p_at timestamptz) RETURNS text
LANGUAGE sql VOLATILE
AS $body$
    SELECT left((right(lpad(to_hex(trunc(extract(epoch FROM p_at) * 1000)::bigint), 12, '0'), 12)
        || '7' || right(replace(gen_random_uuid()::text, '-', ''), 19))::uuid::text, 31)
$body$;

-- The smallest id of the first millisecond after this time: ids are compared with it, which is cheaper than to read the time of each.
CREATE OR REPLACE FUNCTION "ensue".first_id_after(p_at timestamptz) RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
AS $body$
    SELECT (lpad(to_hex(trunc(extract(epoch FROM p_at) * 1000)::bigint + 1), 12, '0') || repeat('0', 20))::uuid
$body$;

-- Is there anything in the outbox that is committed and not moved yet? If not, the session remembers up to where it has looked; not every time, as that is half of what
-- this costs, but when something was under way before, or some transactions have passed.
CREATE OR REPLACE FUNCTION "ensue".outbox_waits() RETURNS boolean LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $body$
DECLARE
    v_drained pg_catalog.pg_snapshot := CASE WHEN current_user = session_user THEN nullif(current_setting('ensue.drained_884657cb0d78dfec', true), '')::pg_snapshot END;
    v_from pg_catalog.xid8 := coalesce(pg_snapshot_xmax(v_drained), '0'::xid8);
    -- From before the looks: what they see more than this is seen again the next time.
    v_seen pg_catalog.pg_snapshot := pg_current_snapshot();
BEGIN
    IF EXISTS (SELECT 1 FROM "ensue".outbox o WHERE o.xid >= v_from) THEN
        RETURN true;
    END IF;
    IF pg_snapshot_xmin(v_drained) < v_from THEN
        IF EXISTS (SELECT 1 FROM "ensue".outbox o WHERE o.xid = ANY (ARRAY(SELECT pg_snapshot_xip(v_drained)))) THEN
            RETURN true;
        END IF;
        PERFORM set_config('ensue.drained_884657cb0d78dfec', v_seen::text, false) WHERE current_user = session_user;
    ELSIF pg_snapshot_xmax(v_seen)::text::bigint > v_from::text::bigint + 16 THEN
        PERFORM set_config('ensue.drained_884657cb0d78dfec', v_seen::text, false) WHERE current_user = session_user;
    END IF;
    RETURN false;
END
$body$;

-- Moves what is committed in the outbox into the log, in the order in which it was written. Fails if
-- one of the rows cannot be moved; outbox_move, below, finds that row.
--
-- What was there to see the last time need not be looked at again: the session remembers the snapshot of then, and only
-- transactions that had not ended by it can have brought something since: those that were under way, and those that began later. To look at all
-- rows instead takes longer with every row that was ever moved, for as long as somebody holds a snapshot (25 ms beside
-- 0.2). The memory is a setting of the session: it goes back with the transaction if this one fails, and a session without it looks at everything.
-- Whoever sets it to something else fools this session alone: others move what it leaves.
--
-- No more than p_limit events and p_bytes_max bytes at once, but always one row; o_more says that some are left. o_count is how many were taken from the outbox,
-- also those that wait for their time now and those whose key is known: 0 if nothing was there. o_tail is where the log ends then, and what comes next is recorded
-- no earlier than o_recorded_at.
--
-- First which rows are taken. If none of them has a key or a delay, which is the common case, one short statement moves them; else it is looked up what is known of
-- each. A row of many events (outbox_batches_tables.sql) has neither key nor delay, and is opened by both.
-- Of 1,000 events with one row for all, half of them with an object, the server computes for about 7 ms, of which the insert is half, and
-- the search for the event before each a fifth.
--
-- Under a key that the log knows by now, published meanwhile by somebody who was not in a transaction: the same event is not
-- appended again, another one is, without its key, because who sent it was told that it is published.
--
-- An id tells when it was made, and `find_seq` looks near that time: where the log recorded it much later, the way from id to seq is kept,
-- as for delayed events.
CREATE OR REPLACE FUNCTION "ensue".outbox_move_rows(
    p_now timestamptz, p_hint bigint, p_limit bigint, p_bytes_max bigint, OUT o_count bigint, OUT o_more boolean,
    OUT o_tail bigint, OUT o_recorded_at timestamptz, OUT o_trimmed_to bigint
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $body$
DECLARE
    v_drained pg_catalog.pg_snapshot := CASE WHEN current_user = session_user THEN nullif(current_setting('ensue.drained_884657cb0d78dfec', true), '')::pg_snapshot END;
    v_from pg_catalog.xid8 := coalesce(pg_snapshot_xmax(v_drained), '0'::xid8);
    v_under_way pg_catalog.xid8[] := ARRAY(SELECT pg_snapshot_xip(v_drained));
    -- From before the looks: what they see more than this is seen again the next time.
    v_seen pg_catalog.pg_snapshot := pg_current_snapshot();
    v_logged bigint;
    v_places pg_catalog.tid[];
    v_are_plain boolean;
    v_are_found boolean;
    v_are_sound boolean;
    v_events bigint;
    v_ids_from pg_catalog.uuid;
    v_ids_to pg_catalog.uuid;
BEGIN
    SELECT t.o_seq, "ensue".recording_time(p_now, t.o_recorded_at), t.o_trimmed_to
    INTO o_tail, o_recorded_at, o_trimmed_to
    FROM "ensue".log_tail(p_hint) t;
    -- Ids from these times are found without help.
    v_ids_from := "ensue".first_id_after(o_recorded_at - interval '1 seconds');
    v_ids_to := "ensue".first_id_after(o_recorded_at);

    SELECT array_agg(f.place) FILTER (WHERE f.is_taken), bool_and(f.is_plain) FILTER (WHERE f.is_taken),
        bool_and(f.id >= v_ids_from AND f.id < v_ids_to) FILTER (WHERE f.is_taken), coalesce(NOT bool_and(f.is_taken), false),
        bool_and(f.is_sound) FILTER (WHERE f.is_taken), sum(f.count) FILTER (WHERE f.is_taken)
    INTO v_places, v_are_plain, v_are_found, o_more, v_are_sound, v_events
    FROM (
        SELECT c.place, c.id, c.is_plain, c.count, c.occurred_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-29 00:00:00+00' AND (c.not_before IS NULL OR c.not_before BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-29 00:00:00+00') AND (c.bytes <= 262144 OR c.is_batch OR (SELECT octet_length(o.payload::text) + coalesce(octet_length(o.metadata::text), 0) <= 2 * 1048576 FROM "ensue".outbox o WHERE o.ctid = c.place)) AS is_sound,
            row_number() OVER so_far = 1 OR (sum(c.count) OVER so_far <= p_limit AND sum(c.bytes) OVER so_far <= p_bytes_max) AS is_taken
        FROM (
            SELECT n.* FROM (
                SELECT o.ctid AS place, o.number, o.id, coalesce(o.count, 1) AS count, o.key IS NULL AND o.not_before IS NULL AS is_plain,
                    coalesce(pg_column_size(o.events), pg_column_size(o.payload) + coalesce(pg_column_size(o.metadata), 0)) AS bytes,
                    o.occurred_at, o.not_before, o.events IS NOT NULL AS is_batch
                FROM "ensue".outbox o WHERE o.xid >= v_from
                UNION ALL
                SELECT o.ctid, o.number, o.id, coalesce(o.count, 1), o.key IS NULL AND o.not_before IS NULL,
                    coalesce(pg_column_size(o.events), pg_column_size(o.payload) + coalesce(pg_column_size(o.metadata), 0)),
                    o.occurred_at, o.not_before, o.events IS NOT NULL
                FROM "ensue".outbox o WHERE o.xid = ANY (v_under_way) AND o.xid < v_from
            ) n ORDER BY n.number LIMIT p_limit + 1
        ) c
        WINDOW so_far AS (ORDER BY c.number ROWS UNBOUNDED PRECEDING)
    ) f;
    IF NOT v_are_sound THEN
        RAISE EXCEPTION 'a row of the outbox is not valid' USING ERRCODE = 'data_exception';
    END IF;

    IF v_are_plain THEN
        WITH taken AS (
            DELETE FROM "ensue".outbox o WHERE o.ctid = ANY (v_places) RETURNING o.*
        ), placed AS (
            SELECT t.*, o_tail + sum(coalesce(t.count, 1)) OVER (ORDER BY t.number ROWS UNBOUNDED PRECEDING) - coalesce(t.count, 1) AS place,
                CASE WHEN t.events IS NOT NULL THEN left(t.id::text, 31) END AS id_start
            FROM taken t
        ), opened AS (
            SELECT p.place + 1 AS seq, p.occurred_at, p.id, p.to_subscription, p.topic, p.object, p.payload, p.metadata
            FROM placed p WHERE p.events IS NULL
            UNION ALL
            SELECT p.place + e.nth, p.occurred_at, (p.id_start || lpad(to_hex(e.nth), 5, '0'))::uuid, (e.value ->> 'to')::uuid,
                e.value ->> 'topic', e.value ->> 'object', coalesce(e.value -> 'payload', '{}'), nullif(nullif(e.value -> 'metadata', 'null'), '{}')
            FROM placed p CROSS JOIN LATERAL jsonb_array_elements(p.events) WITH ORDINALITY e(value, nth) WHERE p.events IS NOT NULL
        )
        INSERT INTO "ensue".stored_events
            (seq, prev, recorded_at, occurred_at, id_part, to_subscription, topic, object, payload, metadata)
        SELECT o.seq, CASE WHEN o.object IS NOT NULL THEN coalesce(
                lag(o.seq) OVER (PARTITION BY o.object ORDER BY o.seq),
                (SELECT e.seq FROM "ensue".stored_events e
                 WHERE hashtextextended(e.object, 0) = hashtextextended(o.object, 0) AND e.object = o.object
                    AND e.seq > o_trimmed_to AND e.seq <= o_tail ORDER BY e.seq DESC LIMIT 1)) END,
            o_recorded_at, o.occurred_at, o.id, o.to_subscription, o.topic, o.object, o.payload, o.metadata
        FROM opened o ORDER BY o.seq;
        GET DIAGNOSTICS o_count = ROW_COUNT;
        v_logged := o_count;
        -- The id of a row of many tells for all its events: they differ in the last digits, and not in their time.
        IF NOT v_are_found THEN
            INSERT INTO "ensue".delayed (seq, not_before, occurred_at, id)
            SELECT e.seq, o_recorded_at, e.occurred_at, e.id_part FROM "ensue".stored_events e
            WHERE e.seq > o_tail AND e.seq <= o_tail + v_logged AND (e.id_part < v_ids_from OR e.id_part >= v_ids_to);
        END IF;
    ELSE
        WITH taken AS (
            DELETE FROM "ensue".outbox o WHERE o.ctid = ANY (v_places) RETURNING o.*
        ), opened AS (
            SELECT t.number, 0::bigint AS nth, t.occurred_at, t.not_before, t.id, t.to_subscription, t.topic, t.object, t.payload, t.metadata,
                t.key, t.fingerprint
            FROM taken t WHERE t.events IS NULL
            UNION ALL
            SELECT t.number, e.nth, t.occurred_at, NULL, (left(t.id::text, 31) || lpad(to_hex(e.nth), 5, '0'))::uuid, (e.value ->> 'to')::uuid,
                e.value ->> 'topic', e.value ->> 'object', coalesce(e.value -> 'payload', '{}'), nullif(nullif(e.value -> 'metadata', 'null'), '{}'),
                NULL, NULL
            FROM taken t CROSS JOIN LATERAL jsonb_array_elements(t.events) WITH ORDINALITY e(value, nth) WHERE t.events IS NOT NULL
        ), looked_up AS (
            SELECT o.*, k.seq AS known_at, k.key IS NOT NULL AS is_known, k.fingerprint = o.fingerprint AS is_same
            FROM opened o LEFT JOIN LATERAL (
                SELECT known.* FROM "ensue".keys known
                WHERE known.key = o.key AND known.recorded_at > o_recorded_at - interval '86400 seconds' LIMIT 1
            ) k ON true
        ), sorted AS (
            SELECT l.*, NOT coalesce(l.is_same, false) AS is_new,
                NOT coalesce(l.is_same, false) AND (l.not_before IS NULL OR l.not_before <= o_recorded_at) AS is_logged
            FROM looked_up l
        ), numbered AS (
            SELECT s.*, CASE WHEN s.is_logged THEN
                o_tail + count(*) FILTER (WHERE s.is_logged) OVER (ORDER BY s.number, s.nth ROWS UNBOUNDED PRECEDING) END AS seq
            FROM sorted s
        ), chained AS MATERIALIZED (
            SELECT n.*, CASE WHEN n.is_logged AND n.object IS NOT NULL THEN coalesce(
                lag(n.seq) OVER (PARTITION BY n.object, n.is_logged ORDER BY n.seq),
                (SELECT e.seq FROM "ensue".stored_events e
                 WHERE hashtextextended(e.object, 0) = hashtextextended(n.object, 0) AND e.object = n.object
                    AND e.seq > o_trimmed_to AND e.seq <= o_tail ORDER BY e.seq DESC LIMIT 1)) END AS prev
            FROM numbered n
        ), logged AS (
            INSERT INTO "ensue".stored_events
                (seq, prev, recorded_at, occurred_at, id_part, to_subscription, topic, object, payload, metadata)
            SELECT c.seq, c.prev, o_recorded_at, c.occurred_at, c.id, c.to_subscription, c.topic, c.object, c.payload, c.metadata
            FROM chained c WHERE c.is_logged ORDER BY c.seq
        ), delayed AS (
            INSERT INTO "ensue".delayed
                (not_before, occurred_at, id, to_subscription, topic, object, payload, metadata, key)
            SELECT c.not_before, c.occurred_at, c.id, c.to_subscription, c.topic, c.object, c.payload, c.metadata,
                CASE WHEN NOT c.is_known THEN c.key END
            FROM chained c WHERE c.is_new AND NOT c.is_logged ORDER BY c.number
        ), found_by_id AS (
            INSERT INTO "ensue".delayed (seq, not_before, occurred_at, id)
            SELECT coalesce(c.seq, c.known_at), o_recorded_at, c.occurred_at, c.id
            FROM chained c
            WHERE coalesce(c.seq, c.known_at) IS NOT NULL AND (NOT c.is_new OR
                c.id < v_ids_from OR c.id >= v_ids_to)
        ), keyed AS (
            INSERT INTO "ensue".keys AS known (key, fingerprint, id_part, seq, prev, recorded_at)
            SELECT c.key, c.fingerprint, c.id, c.seq, c.prev, o_recorded_at
            FROM chained c WHERE c.key IS NOT NULL AND NOT c.is_known
            ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, id_part = excluded.id_part,
                seq = excluded.seq, prev = excluded.prev, recorded_at = excluded.recorded_at
        )
        SELECT count(*), count(c.seq) INTO o_count, v_logged FROM chained c;
    END IF;
    IF o_count <> v_events THEN
        RAISE EXCEPTION 'a row of the outbox does not have as many events as its count'
            USING ERRCODE = 'data_exception';
    END IF;
    o_tail := o_tail + v_logged;
    PERFORM set_config('ensue.logged', (CASE WHEN current_user = session_user THEN coalesce(nullif(current_setting('ensue.logged', true), ''), '0')::bigint ELSE 0 END + v_logged)::text, true);
    IF NOT o_more THEN
        PERFORM set_config('ensue.drained_884657cb0d78dfec', v_seen::text, false) WHERE current_user = session_user;
    END IF;
END
$body$;

-- The fault of a row of the outbox that its columns show, or null.
CREATE OR REPLACE FUNCTION "ensue".outbox_fault(o "ensue".outbox) RETURNS text LANGUAGE plpgsql STABLE
AS $body$
BEGIN
    RETURN coalesce(
        'occurred_at ' || "ensue".time_fault(o.occurred_at),
        'not_before ' || "ensue".time_fault(o.not_before),
        CASE WHEN o.key IS NOT NULL AND o.fingerprint IS NULL THEN 'key has no fingerprint' END,
        -- Half, as jsonb writes blanks that the text of the caller may not have had.
        "ensue".size_fault((octet_length(o.payload::text) + coalesce(octet_length(o.metadata::text), 0)) / 2),
        CASE
            WHEN jsonb_typeof(o.events) <> 'array' THEN 'events is not an array'
            WHEN o.events IS NOT NULL AND jsonb_array_length(o.events) IS DISTINCT FROM o.count
                THEN format('count is %s, but there are %s events', coalesce(o.count::text, 'null'),
                    jsonb_array_length(o.events))
        END);
END
$body$;

-- Moves the first row of the outbox to outbox_rejected with this reason, or with a better one.
-- Returns the number of rows, 1 or 0. It looks where outbox_move_rows looks.
CREATE OR REPLACE FUNCTION "ensue".outbox_reject(p_reason text) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off
AS $body$
DECLARE
    v_drained pg_catalog.pg_snapshot := CASE WHEN current_user = session_user THEN nullif(current_setting('ensue.drained_884657cb0d78dfec', true), '')::pg_snapshot END;
    v_row "ensue".outbox;
    v_reason pg_catalog.text;
BEGIN
    DELETE FROM "ensue".outbox d WHERE d.ctid = (
        SELECT o.ctid FROM "ensue".outbox o
        WHERE o.xid >= coalesce(pg_snapshot_xmax(v_drained), '0'::xid8)
            OR o.xid = ANY (ARRAY(SELECT pg_snapshot_xip(v_drained)))
        ORDER BY o.number LIMIT 1
    ) RETURNING d.* INTO v_row;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    v_reason := coalesce("ensue".outbox_fault(v_row), p_reason);
    INSERT INTO "ensue".outbox_rejected
        (number, reason, occurred_at, not_before, id, to_subscription, topic, object, payload, metadata,
        key, fingerprint, count, events)
    VALUES (v_row.number, v_reason, v_row.occurred_at, v_row.not_before, v_row.id, v_row.to_subscription,
        v_row.topic, v_row.object, v_row.payload, v_row.metadata, v_row.key, v_row.fingerprint,
        v_row.count, v_row.events);
    RAISE WARNING 'row % of the outbox is rejected: %', v_row.number, v_reason
        USING HINT = 'See the table outbox_rejected and the function requeue_rejected.';
    RETURN 1;
END
$body$;

-- Moves what is committed in the outbox into the log. The caller has locked the log, and has found
-- that something waits.
--
-- A row that cannot be moved is rejected, and the others are moved (H43). To find it the limit is
-- halved until the rows before it fit, or it is alone. Only faults of a row's content count: a missing
-- partition, a full disk or a `seq` that exists already are errors. o_count includes rejected rows.
-- The subtransaction costs about 2 µs for each move.
CREATE OR REPLACE FUNCTION "ensue".outbox_move(
    p_now timestamptz, p_hint bigint, p_limit bigint, p_bytes_max bigint, OUT o_count bigint, OUT o_more boolean,
    OUT o_tail bigint, OUT o_recorded_at timestamptz, OUT o_trimmed_to bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_limit bigint := p_limit;
    v_rejected bigint := 0;
    v_reason pg_catalog.text;
    v_table pg_catalog.text;
BEGIN
    LOOP
        BEGIN
            SELECT m.o_count, m.o_more, m.o_tail, m.o_recorded_at, m.o_trimmed_to
            INTO o_count, o_more, o_tail, o_recorded_at, o_trimmed_to
            FROM "ensue".outbox_move_rows(p_now, p_hint, v_limit, p_bytes_max) m;
            EXIT;
        EXCEPTION WHEN data_exception OR not_null_violation OR unique_violation OR program_limit_exceeded THEN
            GET STACKED DIAGNOSTICS v_reason = MESSAGE_TEXT, v_table = TABLE_NAME;
            -- The stack of the caller is not a fault of a row (54001).
            IF SQLSTATE = '54001' OR SQLSTATE = '23505' AND v_table <> 'delayed' THEN
                RAISE;
            END IF;
        END;
        IF v_limit > 1 THEN
            v_limit := v_limit / 2;
        ELSIF v_rejected < 20 AND "ensue".outbox_reject(v_reason) = 1 THEN
            v_rejected := v_rejected + 1;
            v_limit := p_limit;
        ELSE
            -- The next call continues: the log is not to be locked for long.
            o_count := 0;
            o_more := true;
            SELECT t.o_seq, "ensue".recording_time(p_now, t.o_recorded_at), t.o_trimmed_to
            INTO o_tail, o_recorded_at, o_trimmed_to
            FROM "ensue".log_tail(p_hint) t;
            EXIT;
        END IF;
    END LOOP;
    o_count := o_count + v_rejected;
END
$body$;

-- Publishes a rejected row again, with other times if they are given. Returns the number of events. A
-- row that is still not valid stays where it is, with an error.
CREATE OR REPLACE FUNCTION "ensue".requeue_rejected(
    number bigint, occurred_at timestamptz DEFAULT NULL, not_before timestamptz DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
#variable_conflict use_column
DECLARE
    v_row "ensue".outbox_rejected;
    v_id pg_catalog.uuid;
BEGIN
    DELETE FROM "ensue".outbox_rejected r WHERE r.number = requeue_rejected.number RETURNING r.* INTO v_row;
    IF NOT FOUND THEN
        PERFORM "ensue".refuse(format('number is %s; outbox_rejected has no such row',
            coalesce(requeue_rejected.number::text, 'null')));
    ELSIF v_row.events IS NOT NULL THEN
        RETURN (SELECT count(*) FROM "ensue".publish_many(v_row.events));
    END IF;
    v_row.occurred_at := coalesce(requeue_rejected.occurred_at, v_row.occurred_at);
    v_row.not_before := coalesce(requeue_rejected.not_before, v_row.not_before);
    -- What Ensue itself has published keeps its reserved topic.
    PERFORM "ensue".refuse(coalesce(
        "ensue".event_fault(CASE WHEN starts_with(v_row.topic, 'ensue.')
            THEN substr(v_row.topic, length('ensue.') + 1) ELSE v_row.topic END,
            v_row.object, v_row.key, v_row.occurred_at, v_row.not_before),
        CASE WHEN v_row.payload IS NULL THEN 'payload is missing' END,
        "ensue".size_fault((octet_length(v_row.payload::text) + coalesce(octet_length(v_row.metadata::text), 0)) / 2)));
    v_id := CASE WHEN EXISTS (SELECT 1 FROM "ensue".delayed d WHERE d.id = v_row.id)
        THEN "ensue".new_id() ELSE v_row.id END;
    IF v_row.key IS NULL THEN
        INSERT INTO "ensue".outbox
            (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
        VALUES (v_row.occurred_at, v_row.not_before, v_id, v_row.to_subscription, v_row.topic,
            v_row.object, v_row.payload, v_row.metadata);
    ELSE
        PERFORM "ensue".outbox_keyed(v_id, v_row.occurred_at, v_row.not_before, v_row.to_subscription,
            v_row.topic, v_row.object, v_row.payload, v_row.metadata, v_row.key,
            coalesce(v_row.fingerprint, "ensue".event_fingerprint(v_row.topic, v_row.object,
                v_row.payload, v_row.metadata, v_row.occurred_at, v_row.not_before,
                v_row.to_subscription)));
    END IF;
    PERFORM "ensue".outbox_ring();
    RETURN 1;
END
$body$;

-- Moves what waits in the outbox, if something does, and nothing else; answers as a release does (fn_release_due.sql).
CREATE OR REPLACE FUNCTION "ensue".outbox_drain(
    p_now timestamptz, p_hint bigint, p_limit bigint, p_bytes_max bigint,
    OUT o_count bigint, OUT o_last bigint, OUT o_next_due timestamptz, OUT o_more boolean
) LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    o_count := 0;
    o_more := false;
    IF "ensue".outbox_waits() THEN
        PERFORM "ensue".lock_log();
        SELECT m.o_count, m.o_more, m.o_tail INTO o_count, o_more, o_last FROM "ensue".outbox_move(p_now, p_hint, p_limit, p_bytes_max) m;
    ELSE
        SELECT t.o_seq INTO o_last FROM "ensue".log_tail(p_hint) t;
    END IF;
END
$body$;

-- Appends what many callers sent, in one round trip and one commit.
--
-- One VOLATILE function, called in autocommit under read committed: each statement after the lock has a snapshot from
-- after the lock. A single SQL statement would read with the snapshot from before it and fork the chain.
--
-- Arrays are parallel, one element for each entry, in the order of arrival; an array is null when all its elements
-- would be. Answers are parallel to them.
--   p_id_parts    the ids without their time, which is recorded_at's: see tables.sql
--   p_topic       the topic of all entries, or null: then p_topics has them
--   p_payloads    as text: made jsonb where the row is built. As jsonb[], parsed while the call is read, about 0.4 ms
--                 more for 1,000 events, by profile
--   p_back        how many entries back the preceding entry of the same object is, or null
--   p_heads       the newest event of the object as the caller remembers it, good up to p_heads_at: only what came
--                 after that is looked up. With p_heads_at at the very end nothing is.
--   p_known_to    the smallest of p_heads_at where it matters; 0 if the head of some object is not known. If they are
--                 all the same, p_heads_at is null
--   p_callers     whose entry it is: a caller with a key that was used for another event is left out whole
-- The paths without p_callers are for batches without keys and delays: there the caller can derive every number from
-- o_tail, and only what was looked up needs an answer, o_prevs.
--
-- Measured on two cores shared with other work, processor time of the server for 1,000 events of 200 bytes, lower
-- quartile of 240 calls in turns:
--   5.3 ms without objects, as much as a plain INSERT of the same rows; 6.0 with ids made here from text; one topic
--   instead of an array of 1,000 saves less than 0.1; payloads as jsonb[] cost 0.6 more.
--   9 to 10 ms over 10,000 objects whose heads are known. The index of objects is all of the difference, mostly cache
--   misses in its pages: 2 to 3 ms while a partition is new, 5.7 when it has a million. Neither rows sorted by hash, nor a
--   stored hash, nor a hash of 4 bytes changes it; one key of 8 bytes for both columns saves 0.5, but has no order that
--   the planner could use across partitions.
--   Arrays opened in the select list instead of `FROM unnest(…)`, which first writes all rows to a tuplestore: 0.2 ms.
CREATE OR REPLACE FUNCTION "ensue".append(
    p_now timestamptz, p_hint bigint,
    p_id_parts uuid[], p_topic text, p_topics text[], p_payloads text[],
    p_metadata text[], p_occurred_at timestamptz[], p_to uuid[],
    p_objects text[], p_back int[], p_heads bigint[], p_heads_at bigint[], p_known_to bigint,
    p_callers int[], p_keys text[], p_fingerprints bytea[], p_not_before timestamptz[],
    OUT o_tail bigint, OUT o_recorded_at timestamptz, OUT o_trimmed_to bigint, OUT o_prevs bigint[],
    OUT o_seqs bigint[], OUT o_ids uuid[], OUT o_conflicts boolean[]
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $body$
DECLARE
    v_count bigint := cardinality(p_id_parts);
    v_more boolean;
    v_drained pg_catalog.pg_snapshot;
    v_from pg_catalog.xid8;
    v_waits boolean;
BEGIN
    LOCK TABLE "ensue".log_lock IN SHARE UPDATE EXCLUSIVE MODE;
    -- What outbox_waits() and log_tail() find, in one statement, where the session looked not long ago, nothing was under way then, and the caller has a hint. They are
    -- asked if it finds nothing, or that something waits.
    v_drained := CASE WHEN current_user = session_user THEN nullif(current_setting('ensue.drained_884657cb0d78dfec', true), '')::pg_snapshot END;
    v_from := pg_snapshot_xmax(v_drained);
    IF p_hint > 0 AND pg_snapshot_xmin(v_drained) >= v_from
        AND pg_snapshot_xmax(pg_current_snapshot())::text::bigint <= v_from::text::bigint + 16
    THEN
        SELECT e.seq, greatest(coalesce(p_now, clock_timestamp()), nullif(e.recorded_at, 'infinity')), s.trimmed_to, EXISTS (SELECT 1 FROM "ensue".outbox o WHERE o.xid >= v_from)
        INTO o_tail, o_recorded_at, o_trimmed_to, v_waits
        FROM "ensue".log_state s CROSS JOIN LATERAL (
            SELECT e.seq, e.recorded_at FROM "ensue".stored_events e WHERE e.seq >= p_hint ORDER BY e.seq DESC LIMIT 1
        ) e WHERE e.seq >= s.trimmed_to;
    END IF;
    -- What somebody committed before they called us comes before (H34). If that is too much for one commit it is moved first, by itself.
    IF NOT coalesce(v_waits, true) THEN
        NULL; -- All is known.
    ELSIF "ensue".outbox_waits() THEN
        SELECT m.o_more, m.o_tail, m.o_recorded_at, m.o_trimmed_to INTO v_more, o_tail, o_recorded_at, o_trimmed_to
        FROM "ensue".outbox_move(p_now, p_hint, 2000, 4194304) m;
        IF v_more THEN
            RAISE EXCEPTION 'much waits in the outbox' USING ERRCODE = 'EN001', HINT = 'Call poll_for_events() until it answers 0.';
        END IF;
    ELSE
        SELECT t.o_seq, greatest(coalesce(p_now, clock_timestamp()), nullif(t.o_recorded_at, 'infinity')), t.o_trimmed_to
        INTO o_tail, o_recorded_at, o_trimmed_to
        FROM "ensue".log_tail(p_hint) t;
    END IF;
    IF p_hint > o_tail THEN
        -- The log ends before the place where the caller saw it end: it is another log, and what the caller remembers is
        -- not of this one.
        p_heads := NULL;
        p_heads_at := NULL;
        p_known_to := -1;
    END IF;

    IF p_callers IS NULL AND p_objects IS NULL THEN
        INSERT INTO "ensue".stored_events
            (seq, recorded_at, occurred_at, id_part, to_subscription, topic, payload, metadata)
        SELECT o_tail + b.n, o_recorded_at, b.occurred_at, b.id_part, b.to_subscription,
            coalesce(b.topic, p_topic), b.payload::jsonb, b.metadata::jsonb
        FROM (
            SELECT generate_series(1, v_count) AS n, unnest(p_id_parts) AS id_part, unnest(p_topics) AS topic,
                unnest(p_payloads) AS payload, unnest(p_metadata) AS metadata, unnest(p_occurred_at) AS occurred_at,
                unnest(p_to) AS to_subscription
        ) b;
        RETURN;
    END IF;

    IF p_callers IS NULL AND p_known_to >= o_tail THEN
        -- Every head that the caller remembers is still the newest: nothing is looked up, and the caller can derive
        -- `prev` too, from o_trimmed_to. Without the subquery and RETURNING of the next path: 0.2 to 1 ms less for
        -- 1,000 events.
        INSERT INTO "ensue".stored_events
            (seq, prev, recorded_at, occurred_at, id_part, to_subscription, topic, object, payload, metadata)
        SELECT o_tail + b.n,
            CASE WHEN b.back IS NOT NULL THEN o_tail + b.n - b.back WHEN b.head > o_trimmed_to THEN b.head END,
            o_recorded_at, b.occurred_at, b.id_part, b.to_subscription,
            coalesce(b.topic, p_topic), b.object, b.payload::jsonb, b.metadata::jsonb
        FROM (
            SELECT generate_series(1, v_count) AS n, unnest(p_id_parts) AS id_part, unnest(p_topics) AS topic,
                unnest(p_payloads) AS payload, unnest(p_metadata) AS metadata, unnest(p_occurred_at) AS occurred_at,
                unnest(p_to) AS to_subscription, unnest(p_objects) AS object, unnest(p_back) AS back,
                unnest(p_heads) AS head
        ) b;
        RETURN;
    END IF;

    IF p_callers IS NULL THEN
        -- The subquery runs only for a row that comes to its branch: the first of its object in the batch, unless the
        -- caller's head is still the newest.
        WITH stored AS (
            INSERT INTO "ensue".stored_events
                (seq, prev, recorded_at, occurred_at, id_part, to_subscription, topic, object, payload, metadata)
            SELECT o_tail + b.n,
                CASE
                    WHEN b.object IS NULL THEN NULL
                    WHEN b.back IS NOT NULL THEN o_tail + b.n - b.back
                    WHEN coalesce(b.head_at, p_known_to) >= o_tail THEN CASE WHEN b.head > o_trimmed_to THEN b.head END
                    ELSE coalesce(
                        (SELECT e.seq FROM "ensue".stored_events e
                         WHERE hashtextextended(e.object, 0) = hashtextextended(b.object, 0) AND e.object = b.object
                            AND e.seq > greatest(coalesce(b.head_at, p_known_to), o_trimmed_to)
                         ORDER BY e.seq DESC LIMIT 1),
                        CASE WHEN b.head > o_trimmed_to THEN b.head END)
                END,
                o_recorded_at, b.occurred_at, b.id_part, b.to_subscription,
                coalesce(b.topic, p_topic), b.object, b.payload::jsonb, b.metadata::jsonb
            FROM unnest(p_id_parts, p_topics, p_payloads, p_metadata, p_occurred_at, p_to,
                        p_objects, p_back, p_heads, p_heads_at) WITH ORDINALITY
                AS b(id_part, topic, payload, metadata, occurred_at, to_subscription, object, back, head, head_at, n)
            RETURNING prev
        )
        -- RETURNING keeps the order in which the rows were inserted, which is the order of the arrays.
        SELECT array_agg(s.prev) INTO o_prevs FROM stored s;
        RETURN;
    END IF;

    -- Keys and delays: every entry goes through the same chain of window functions, without a join.
    WITH batch AS (
        SELECT b.*, "ensue".event_id(k.id_part, k.recorded_at) AS key_id, k.seq AS key_seq, k.prev AS key_prev,
            coalesce(k.fingerprint <> b.fingerprint, false) AS conflict
        FROM unnest(p_id_parts, p_topics, p_payloads, p_metadata, p_occurred_at, p_to, p_objects, p_heads, p_heads_at,
                    p_callers, p_keys, p_fingerprints, p_not_before) WITH ORDINALITY
            AS b(id_part, topic, payload, metadata, occurred_at, to_subscription, object, head, head_at,
                 caller, key, fingerprint, not_before, n)
        LEFT JOIN LATERAL (
            SELECT * FROM "ensue".keys known
            WHERE known.key = b.key AND known.recorded_at > o_recorded_at - interval '86400 seconds' LIMIT 1
        ) k ON true
    ), fresh AS (
        SELECT b.*, b.key_id IS NULL AND NOT bool_or(b.conflict) OVER (PARTITION BY b.caller) AS is_new FROM batch b
    ), placed AS (
        SELECT f.*, f.is_new AND (f.not_before IS NULL OR f.not_before <= o_recorded_at) AS is_logged FROM fresh f
    ), numbered AS (
        SELECT p.*, CASE WHEN p.is_logged THEN
            o_tail + count(*) FILTER (WHERE p.is_logged) OVER (ORDER BY p.n ROWS UNBOUNDED PRECEDING) END AS seq
        FROM placed p
    ), chained AS MATERIALIZED (
        SELECT c.*, CASE WHEN c.is_logged AND c.object IS NOT NULL THEN coalesce(
                max(c.seq) OVER (PARTITION BY c.object ORDER BY c.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
                CASE WHEN coalesce(c.head_at, p_known_to) >= o_tail THEN CASE WHEN c.head > o_trimmed_to THEN c.head END
                ELSE coalesce(
                    (SELECT e.seq FROM "ensue".stored_events e
                     WHERE hashtextextended(e.object, 0) = hashtextextended(c.object, 0) AND e.object = c.object
                        AND e.seq > greatest(coalesce(c.head_at, p_known_to), o_trimmed_to)
                     ORDER BY e.seq DESC LIMIT 1),
                    CASE WHEN c.head > o_trimmed_to THEN c.head END)
                END) END AS prev
        FROM numbered c
    ), logged AS (
        INSERT INTO "ensue".stored_events
            (seq, prev, recorded_at, occurred_at, id_part, to_subscription, topic, object, payload, metadata)
        SELECT c.seq, c.prev, o_recorded_at, c.occurred_at, c.id_part, c.to_subscription,
            coalesce(c.topic, p_topic), c.object, c.payload::jsonb, c.metadata::jsonb
        FROM chained c WHERE c.is_logged
    ), delayed AS (
        INSERT INTO "ensue".delayed
            (not_before, occurred_at, id, to_subscription, topic, object, payload, metadata, key)
        SELECT c.not_before, coalesce(c.occurred_at, o_recorded_at), "ensue".event_id(c.id_part, o_recorded_at),
            c.to_subscription, coalesce(c.topic, p_topic), c.object, c.payload::jsonb, c.metadata::jsonb, c.key
        FROM chained c WHERE c.is_new AND NOT c.is_logged ORDER BY c.n
    ), keyed AS (
        -- A key whose window has passed counts as absent: its row is written over.
        INSERT INTO "ensue".keys AS known (key, fingerprint, id_part, seq, prev, recorded_at)
        SELECT c.key, c.fingerprint, c.id_part, c.seq, c.prev, o_recorded_at
        FROM chained c WHERE c.is_new AND c.key IS NOT NULL
        ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, id_part = excluded.id_part,
            seq = excluded.seq, prev = excluded.prev, recorded_at = excluded.recorded_at
    )
    SELECT array_agg(coalesce(c.prev, c.key_prev) ORDER BY c.n), array_agg(coalesce(c.seq, c.key_seq) ORDER BY c.n),
        array_agg(c.key_id ORDER BY c.n), array_agg(c.conflict ORDER BY c.n)
    INTO o_prevs, o_seqs, o_ids, o_conflicts
    FROM chained c;
    -- What is known by its key may be on this server alone, if whoever stored it was ended while it waited for a
    -- synchronous standby. Only a commit that has written something waits for the standby, as this answer must too.
    IF current_setting('synchronous_standby_names') <> '' THEN
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
    END IF;
END
$body$;

-- Which of these entries are stored? Asked after the connection was lost while a batch was under way.
--
-- Under the lock, so that nothing is half done; the lost session itself was ended before. A batch can only be after the
-- end of the log that its sender knew, and no earlier than that end's time: little is looked at. A delayed event that
-- was released meanwhile stands in both tables, in the log with its whole id: it was answered as delayed, and is
-- found there alone.
--
-- What is found may be on this server alone: to end the lost session ends its wait for a synchronous standby too. So
-- something is written, after it in the WAL: where commits wait for a standby, this one waits until the standby has both.
-- It keeps the lock until then, and nobody else is told of the batch either.
CREATE OR REPLACE FUNCTION "ensue".stored(p_after bigint, p_since timestamptz, p_id_parts uuid[])
RETURNS TABLE (o_id uuid, o_seq bigint, o_prev bigint) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off
AS $body$
BEGIN
    PERFORM "ensue".lock_log();
    RETURN QUERY
    SELECT "ensue".event_id(e.id_part, e.recorded_at), e.seq, e.prev FROM "ensue".stored_events e
    WHERE e.seq > p_after AND e.id_part = ANY (p_id_parts)
    UNION ALL
    SELECT d.id, NULL::bigint, NULL::bigint FROM "ensue".delayed d
    WHERE d.id >= rpad(right(lpad(to_hex(CASE WHEN isfinite(p_since)
                  THEN trunc(extract(epoch FROM p_since) * 1000)::bigint ELSE 0 END), 12, '0'), 12), 32, '0')::uuid
        AND right(replace(d.id::text, '-', ''), 19) IN (
            SELECT right(replace(part::text, '-', ''), 19) FROM unnest(p_id_parts) part);
    IF FOUND THEN
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
    END IF;
END
$body$;

-- Moves into the log what others have committed in the outbox, and then delayed events whose time has come, in order of
-- (not_before, acceptance). o_count is how many were taken from both, o_more says that the outbox has more, o_next_due when the next delayed event is due.
--
-- Whether there is anything is looked at before the lock is taken, so that an idle system does not take it every second.
--
-- The same lock, numbering and chaining as in append. The row in `delayed` stays, emptied, as the way from id to seq:
-- the id of a delayed event tells when it was accepted, not where it is in the log.
--
-- No more than p_bytes_max bytes enter at once, but always one event: appends wait for the lock meanwhile. A running sum
-- cuts as in read_range.sql, here over what the rows take on the disk: that is what the commit copies, and it is told
-- without reading the values, so that what waits for the next commit costs this one nothing.
CREATE OR REPLACE FUNCTION "ensue".release_due(
    p_now timestamptz, p_hint bigint, p_limit bigint, p_bytes_max bigint,
    OUT o_count bigint, OUT o_last bigint, OUT o_next_due timestamptz, OUT o_more boolean
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $body$
DECLARE
    v_tail bigint;
    v_recorded_at pg_catalog.timestamptz;
    v_trimmed_to bigint;
    v_moved bigint;
BEGIN
    o_count := 0;
    o_more := false;
    SELECT t.o_seq, "ensue".recording_time(p_now, t.o_recorded_at) INTO o_last, v_recorded_at FROM "ensue".log_tail(p_hint) t;
    SELECT d.not_before INTO o_next_due
    FROM "ensue".delayed d WHERE d.seq IS NULL ORDER BY d.not_before, d.accepted LIMIT 1;
    IF NOT (coalesce(o_next_due <= v_recorded_at, false) OR "ensue".outbox_waits()) THEN
        RETURN;
    END IF;
    PERFORM "ensue".lock_log();
    SELECT m.o_count, m.o_more, m.o_tail, m.o_recorded_at, m.o_trimmed_to INTO v_moved, o_more, v_tail, v_recorded_at, v_trimmed_to
    FROM "ensue".outbox_move(p_now, p_hint, p_limit, p_bytes_max) m;

    WITH due AS (
        SELECT s.*, v_tail + s.nth AS place
        FROM (
            SELECT d.*, row_number() OVER so_far AS nth,
                sum(pg_column_size(d.payload) + coalesce(pg_column_size(d.metadata), 0)) OVER so_far AS bytes
            FROM (
                SELECT * FROM "ensue".delayed w
                WHERE w.seq IS NULL AND w.not_before <= v_recorded_at ORDER BY w.not_before, w.accepted LIMIT p_limit
            ) d
            WINDOW so_far AS (ORDER BY d.not_before, d.accepted ROWS UNBOUNDED PRECEDING)
        ) s
        WHERE s.nth = 1 OR s.bytes <= p_bytes_max
    ), chained AS MATERIALIZED (
        SELECT d.*, CASE WHEN d.object IS NOT NULL THEN coalesce(
            lag(d.place) OVER (PARTITION BY d.object ORDER BY d.place),
            (SELECT e.seq FROM "ensue".stored_events e
             WHERE hashtextextended(e.object, 0) = hashtextextended(d.object, 0) AND e.object = d.object
                AND e.seq > v_trimmed_to ORDER BY e.seq DESC LIMIT 1)) END AS prev
        FROM due d
    ), logged AS (
        INSERT INTO "ensue".stored_events
            (seq, prev, recorded_at, occurred_at, id_part, to_subscription, topic, object, payload, metadata)
        SELECT c.place, c.prev, v_recorded_at, c.occurred_at, c.id, c.to_subscription,
            c.topic, c.object, c.payload, c.metadata
        FROM chained c
    ), emptied AS (
        UPDATE "ensue".delayed d
        SET seq = c.place, to_subscription = NULL, topic = NULL, object = NULL, payload = NULL, metadata = NULL, key = NULL
        FROM chained c WHERE d.id = c.id
    )
    SELECT count(*) INTO o_count FROM chained c;
    o_last := v_tail + o_count;
    PERFORM set_config('ensue.logged', (CASE WHEN current_user = session_user THEN coalesce(nullif(current_setting('ensue.logged', true), ''), '0')::bigint ELSE 0 END + o_count)::text, true);
    o_count := o_count + v_moved;
    SELECT d.not_before INTO o_next_due
    FROM "ensue".delayed d WHERE d.seq IS NULL ORDER BY d.not_before, d.accepted LIMIT 1;
END
$body$;

-- The place of the last event recorded before a time: a binary search, because seq has no gaps and recorded_at never
-- decreases along it. About 24 lookups by primary key in a log of ten million.
CREATE OR REPLACE FUNCTION "ensue".seq_before(p_time timestamptz, p_hint bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $body$
DECLARE
    v_low bigint; -- everything up to here is before the time
    v_high bigint; -- everything after here is not
    v_middle bigint;
    v_recorded_at pg_catalog.timestamptz;
BEGIN
    SELECT t.o_trimmed_to, t.o_seq INTO v_low, v_high FROM "ensue".log_tail(p_hint) t;
    WHILE v_low < v_high LOOP
        v_middle := v_low + (v_high - v_low + 1) / 2;
        SELECT e.recorded_at INTO v_recorded_at FROM "ensue".stored_events e WHERE e.seq = v_middle;
        -- Not found: it was trimmed meanwhile, so it is older than what is left.
        IF NOT FOUND OR v_recorded_at < p_time THEN
            v_low := v_middle;
        ELSE
            v_high := v_middle - 1;
        END IF;
    END LOOP;
    RETURN v_low;
END
$body$;

-- Where in the log is the event with this id? Its id tells the millisecond in which it was recorded (null otherwise),
-- a delayed one left its seq in `delayed`. `p_part` is the id without its time, as the
-- log has it. One that came through the outbox is there with its whole id, within 1 seconds after the time that it tells, or left its seq, too.
CREATE OR REPLACE FUNCTION "ensue".find_seq(p_id uuid, p_part uuid, p_from timestamptz, p_to timestamptz, p_hint bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $body$
DECLARE
    v_seq bigint;
    v_after bigint;
    v_until bigint;
BEGIN
    SELECT d.seq INTO v_seq FROM "ensue".delayed d WHERE d.id = p_id;
    IF FOUND OR p_from IS NULL THEN
        RETURN CASE WHEN v_seq > (SELECT s.trimmed_to FROM "ensue".log_state s) THEN v_seq END;
    END IF;
    v_after := "ensue".seq_before(p_from, p_hint);
    v_until := "ensue".seq_before(p_to, p_hint);
    SELECT e.seq INTO v_seq FROM "ensue".stored_events e
    WHERE e.seq > v_after AND e.seq <= v_until AND e.id_part = p_part ORDER BY e.seq LIMIT 1;
    IF NOT FOUND THEN
        SELECT e.seq INTO v_seq FROM "ensue".stored_events e
        WHERE e.seq > v_after AND e.seq <= "ensue".seq_before(p_to + interval '1 seconds', p_hint) AND e.id_part = p_id
        ORDER BY e.seq LIMIT 1;
    END IF;
    RETURN v_seq;
END
$body$;

-- Cancels a delayed event. Under the lock of the log: a release that has read the row would log it all the same.
-- Answers 0 if it was pending and is gone, its seq if it is in the log, null if there is no such event.
CREATE OR REPLACE FUNCTION "ensue".cancel(p_id uuid, p_part uuid, p_from timestamptz, p_to timestamptz, p_hint bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_key pg_catalog.text;
BEGIN
    PERFORM "ensue".lock_log();
    DELETE FROM "ensue".delayed d WHERE d.id = p_id AND d.seq IS NULL RETURNING d.key INTO v_key;
    IF FOUND THEN
        -- Who sends it again under the same key means it.
        DELETE FROM "ensue".keys k WHERE k.key = v_key AND k.id_part = p_part;
        RETURN 0;
    END IF;
    RETURN "ensue".find_seq(p_id, p_part, p_from, p_to, p_hint);
END
$body$;

-- Trims the oldest events: readers stop seeing them at once, because the mark moves. Their rows go
-- with their partition, later. The lock of the log is held, so that no event that is appended after
-- it points to a trimmed one.
--
-- A login that has only the role of a node trims no event that is younger than the setting
-- partition_retention_period. The schema's owner and `ensue_operate` trim any event.
CREATE OR REPLACE FUNCTION "ensue".trim(
    p_keep_from bigint, p_limit bigint, p_hint bigint, OUT o_first bigint, OUT o_last bigint
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $body$
DECLARE
    v_is_bound boolean := NOT EXISTS (
        SELECT 1 FROM pg_roles r WHERE pg_has_role(session_user, r.oid, 'MEMBER')
            AND (r.rolname = "ensue".role_name('operate')
                OR r.oid = (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'ensue')));
    v_period interval;
    v_trimmed_to bigint;
BEGIN
    IF v_is_bound THEN
        v_period := "ensue".setting('partition_retention_period', NULL)::interval;
        IF v_period IS NULL THEN
            RAISE EXCEPTION 'permission denied to trim the log' USING ERRCODE = 'insufficient_privilege',
                HINT = format('Set partition_retention_period in %I.config, or GRANT %I TO %I.',
                    'ensue', "ensue".role_name('operate'), session_user);
        END IF;
    END IF;
    PERFORM "ensue".lock_log();
    SELECT t.o_trimmed_to + 1, t.o_seq INTO o_first, o_last FROM "ensue".log_tail(p_hint) t;
    v_trimmed_to := least(p_keep_from - 1, o_first - 1 + p_limit, o_last);
    IF v_is_bound THEN
        -- Each event is looked at: a login that may append may have written any time.
        v_trimmed_to := coalesce((
            SELECT min(e.seq) - 1 FROM "ensue".stored_events e
            WHERE e.seq BETWEEN o_first AND v_trimmed_to AND e.recorded_at >= clock_timestamp() - v_period), v_trimmed_to);
    END IF;
    IF v_trimmed_to >= o_first THEN
        UPDATE "ensue".log_state s SET trimmed_to = v_trimmed_to, trimmed_recorded_at = e.recorded_at
        FROM "ensue".stored_events e WHERE e.seq = v_trimmed_to;
        DELETE FROM "ensue".delayed d WHERE d.seq <= v_trimmed_to;
        o_first := v_trimmed_to + 1;
    END IF;
END
$body$;

-- The partitions that the log should have and has not: somebody has dropped them, or has only taken them out.
CREATE OR REPLACE FUNCTION "ensue".partitions_gone() RETURNS TABLE (from_seq bigint, to_seq bigint, is_there boolean) LANGUAGE plpgsql STABLE
AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT p.from_seq, p.to_seq, c.oid IS NOT NULL
    FROM "ensue".partitions p
    LEFT JOIN pg_class c ON c.relnamespace = to_regnamespace(quote_ident('ensue')) AND c.relname = 'events_p' || p.from_seq
    WHERE NOT p.detached AND NOT coalesce(c.relispartition, false)
    ORDER BY p.from_seq;
END
$body$;

-- Makes sure that at least `p_rows_ahead` places after the end of the log have a partition; answers the first place
-- that has none. `p_rows` is the size of new ones: it may change from one start to the next, as each begins where the
-- one before it ends.
--
-- Created first, then attached: ATTACH takes SHARE UPDATE EXCLUSIVE on the log, which stops neither readers nor
-- appends. The CHECK lets ATTACH skip looking at the rows; afterwards it would only cost time with every insert, so it
-- goes. A waiting DDL stops everybody behind it, so it waits briefly and is tried again later.
--
-- One that somebody has dropped or taken out by hand is made or taken in again first: else the log would stop there, however many are ahead.
--
-- It runs as the owner of the tables, also for a node that does not own them. So it makes no more than
-- 1,000 partitions ahead, whatever the arguments are.
CREATE OR REPLACE FUNCTION "ensue".ensure_partitions(p_rows bigint, p_rows_ahead bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
DECLARE
    v_tail bigint;
    v_from bigint;
    v_name pg_catalog.text;
    v_gone pg_catalog.record;
BEGIN
    IF p_rows < 1 OR p_rows_ahead / p_rows > 1000 THEN
        RAISE EXCEPTION 'partitions of % events cannot cover % events ahead; at most 1000 are made', p_rows, p_rows_ahead
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOCK TABLE "ensue".partitions IN SHARE UPDATE EXCLUSIVE MODE;
    FOR v_gone IN SELECT g.* FROM "ensue".partitions_gone() g LOOP
        v_name := 'events_p' || v_gone.from_seq;
        IF NOT v_gone.is_there THEN
            EXECUTE format('CREATE TABLE %I.%I (LIKE %I.stored_events INCLUDING DEFAULTS INCLUDING INDEXES INCLUDING STORAGE)',
                'ensue', v_name, 'ensue');
        END IF;
        EXECUTE format('ALTER TABLE %I.stored_events ATTACH PARTITION %I.%I FOR VALUES FROM (%s) TO (%s)',
            'ensue', 'ensue', v_name, v_gone.from_seq, v_gone.to_seq);
    END LOOP;
    SELECT t.o_seq INTO v_tail FROM "ensue".log_tail(0) t;
    SELECT max(p.to_seq) INTO v_from FROM "ensue".partitions p;
    v_from := greatest(v_from, v_tail + 1);
    WHILE v_from - 1 - v_tail < p_rows_ahead LOOP
        v_name := 'events_p' || v_from;
        EXECUTE format(
            'CREATE TABLE %I.%I (LIKE %I.stored_events INCLUDING DEFAULTS INCLUDING INDEXES INCLUDING STORAGE, '
            'CONSTRAINT places CHECK (seq >= %s AND seq < %s))',
            'ensue', v_name, 'ensue', v_from, v_from + p_rows);
        EXECUTE format(
            'ALTER TABLE %I.stored_events ATTACH PARTITION %I.%I FOR VALUES FROM (%s) TO (%s)',
            'ensue', 'ensue', v_name, v_from, v_from + p_rows);
        EXECUTE format('ALTER TABLE %I.%I DROP CONSTRAINT places', 'ensue', v_name);
        INSERT INTO "ensue".partitions (from_seq, to_seq) VALUES (v_from, v_from + p_rows);
        v_from := v_from + p_rows;
    END LOOP;
    RETURN v_from;
END
$body$;

-- Takes the oldest partition out of the log if all of it is forgotten; answers whether there was one.
--
-- DETACH needs ACCESS EXCLUSIVE on the log, and everybody who comes after it waits behind it: so it gives up after
-- 100 ms, and the next trim tries again. It is a transaction of its own, because removing the files of a large
-- partition may take long, and must not happen under that lock.
CREATE OR REPLACE FUNCTION "ensue".detach_trimmed() RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $body$
DECLARE
    v_from bigint;
BEGIN
    LOCK TABLE "ensue".partitions IN SHARE UPDATE EXCLUSIVE MODE;
    SELECT p.from_seq INTO v_from FROM "ensue".partitions p
    WHERE NOT p.detached AND p.to_seq <= (SELECT s.trimmed_to + 1 FROM "ensue".log_state s)
    ORDER BY p.from_seq LIMIT 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- Somebody may have done it by hand.
    IF NOT EXISTS (SELECT 1 FROM "ensue".partitions_gone() g WHERE g.from_seq = v_from) THEN
        EXECUTE format('ALTER TABLE %I.stored_events DETACH PARTITION %I.%I',
            'ensue', 'ensue', 'events_p' || v_from);
    END IF;
    UPDATE "ensue".partitions p SET detached = true WHERE p.from_seq = v_from;
    RETURN true;
END
$body$;

-- Removes a partition that is no longer part of the log; answers whether there was one.
CREATE OR REPLACE FUNCTION "ensue".drop_detached() RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $body$
DECLARE
    v_from bigint;
BEGIN
    LOCK TABLE "ensue".partitions IN SHARE UPDATE EXCLUSIVE MODE;
    SELECT p.from_seq INTO v_from FROM "ensue".partitions p WHERE p.detached ORDER BY p.from_seq LIMIT 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS %I.%I', 'ensue', 'events_p' || v_from);
    DELETE FROM "ensue".partitions p WHERE p.from_seq = v_from;
    RETURN true;
END
$body$;

-- About how many bytes the events in the log take: the average of up to 1,000 rows spread evenly over it, times their
-- number. Counts what `Event::bytes` counts; jsonb writes blanks between its tokens, so it is a little more.
CREATE OR REPLACE FUNCTION "ensue".log_bytes(p_hint bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
DECLARE
    v_trimmed_to bigint;
    v_last bigint;
    v_average numeric;
BEGIN
    SELECT t.o_trimmed_to, t.o_seq INTO v_trimmed_to, v_last FROM "ensue".log_tail(p_hint) t;
    SELECT avg(octet_length(e.topic) + coalesce(octet_length(e.object), 0)
            + octet_length(e.payload::text) + coalesce(octet_length(e.metadata::text), 2))
    INTO v_average
    FROM generate_series(v_trimmed_to + 1, v_last, (v_last - v_trimmed_to + 999) / 1000 + (v_last = v_trimmed_to)::int) s(seq)
    CROSS JOIN LATERAL (SELECT * FROM "ensue".stored_events found WHERE found.seq = s.seq LIMIT 1) e;
    RETURN round(coalesce(v_average, 0) * (v_last - v_trimmed_to));
END
$body$;

-- Forgets idempotency keys whose window has passed, the oldest first; answers how many. Time is what an append would
-- record at, so that a key is never forgotten while it still counts. A key that an append writes over meanwhile is
-- locked by it and is left alone.
CREATE OR REPLACE FUNCTION "ensue".purge_keys(p_now timestamptz, p_hint bigint, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
DECLARE
    v_time pg_catalog.timestamptz;
    v_count bigint;
BEGIN
    SELECT "ensue".recording_time(p_now, t.o_recorded_at) INTO v_time FROM "ensue".log_tail(p_hint) t;
    DELETE FROM "ensue".keys k WHERE k.key = ANY (ARRAY(
        SELECT old.key FROM "ensue".keys old WHERE old.recorded_at <= v_time - interval '86400 seconds'
        ORDER BY old.recorded_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$body$;

-- The microseconds between two times. `infinity` counts as the last representable time.
CREATE OR REPLACE FUNCTION "ensue".elapsed(p_since timestamptz, p_now timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
    SELECT CASE WHEN num_nulls(p_since, p_now) = 0
        THEN (extract(epoch FROM "ensue".stored_time(p_now) - "ensue".stored_time(p_since)) * 1000000)::bigint END
$body$;

-- When was a group last read or moved on? While somebody has a slot of it, at least at the end of their lease.
CREATE OR REPLACE FUNCTION "ensue".served_at(p_group bigint) RETURNS timestamptz
LANGUAGE sql STABLE
AS $body$
    SELECT max(greatest(s.served_at, (SELECT m.lease_until FROM "ensue".members m WHERE m.id = s.owner)))
    FROM "ensue".slots s WHERE s.group_id = p_group
$body$;

-- Tells members that something of theirs has changed: they hear of it when they renew their leases.
CREATE OR REPLACE FUNCTION "ensue".tell_members(p_members uuid[]) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM 1 FROM "ensue".members m WHERE m.id = ANY (p_members) ORDER BY m.id FOR UPDATE;
    UPDATE "ensue".members m SET version = m.version + 1 WHERE m.id = ANY (p_members);
END
$body$;

-- Makes a group unless there is one of that name. Answers its kind, whether this call made it, and the bounds of the log;
-- no kind if it would begin outside of them.
--
-- Groups are made and forgotten one at a time: a new one must see the floors that the last one of its name left. From
-- there on it counts, so that whoever still writes under a fence of that one, or remembers its version, does not take
-- this one for it.
CREATE OR REPLACE FUNCTION "ensue".group_make(
    p_now timestamptz, p_hint bigint, p_call uuid,
    p_name text, p_kind text, p_start text, p_after bigint, p_slots int,
    OUT o_kind text, OUT o_new boolean, OUT o_first bigint, OUT o_last bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
    v_cursor bigint;
    v_group bigint;
    v_fence_floor bigint;
    v_version_floor bigint;
BEGIN
    SELECT g.kind, g.made_by = p_call INTO o_kind, o_new FROM "ensue".groups g WHERE g.name = p_name;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT s.fence_floor, s.version_floor INTO v_fence_floor, v_version_floor
    FROM "ensue".positions_state s FOR UPDATE;
    SELECT g.kind, g.made_by = p_call INTO o_kind, o_new FROM "ensue".groups g WHERE g.name = p_name;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT t.o_trimmed_to + 1, t.o_seq INTO o_first, o_last FROM "ensue".log_tail(p_hint) t;
    v_cursor := CASE p_start WHEN 'now' THEN o_last WHEN 'beginning' THEN o_first - 1 ELSE p_after END;
    IF v_cursor > o_last OR v_cursor < o_first - 1 THEN
        RETURN;
    END IF;
    v_now := coalesce(p_now, clock_timestamp());
    INSERT INTO "ensue".groups (name, kind, created_at, version, made_by)
    VALUES (p_name, p_kind, v_now, v_version_floor, p_call)
    RETURNING id INTO v_group;
    INSERT INTO "ensue".slots (group_id, slot, cursor, fence, served_at)
    SELECT v_group, n, v_cursor, v_fence_floor, v_now FROM generate_series(0, p_slots - 1) n;
    o_kind := p_kind;
    o_new := true;
END
$body$;

-- Takes a group and its slots out of the store; was there one? What belonged to it is left to group_sweep.
CREATE OR REPLACE FUNCTION "ensue".group_delete(p_name text) RETURNS boolean LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_version bigint;
BEGIN
    PERFORM 1 FROM "ensue".positions_state FOR UPDATE;
    SELECT g.id, g.version INTO v_group, v_version FROM "ensue".groups g WHERE g.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM 1 FROM "ensue".slots s WHERE s.group_id = v_group ORDER BY s.slot FOR UPDATE;
    PERFORM "ensue".tell_members(ARRAY(
        SELECT s.owner FROM "ensue".slots s WHERE s.group_id = v_group AND s.owner IS NOT NULL));
    UPDATE "ensue".positions_state p SET
        fence_floor = greatest(p.fence_floor, (SELECT max(s.fence) FROM "ensue".slots s WHERE s.group_id = v_group)),
        version_floor = greatest(p.version_floor, v_version + 1);
    DELETE FROM "ensue".slots s WHERE s.group_id = v_group;
    DELETE FROM "ensue".groups g WHERE g.id = v_group;
    INSERT INTO "ensue".groups_gone (group_id) VALUES (v_group);
    RETURN true;
END
$body$;

-- Deletes up to p_limit rows of each kind of what belonged to a forgotten group; false if there is none that nobody else
-- is sweeping.
CREATE OR REPLACE FUNCTION "ensue".group_sweep(p_limit bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_count bigint;
    v_more boolean := false;
BEGIN
    SELECT g.group_id INTO v_group FROM "ensue".groups_gone g ORDER BY g.group_id LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM "ensue".subscriptions u WHERE u.ctid = ANY (ARRAY(
        SELECT x.ctid FROM "ensue".subscriptions x WHERE x.group_id = v_group LIMIT p_limit));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_more := v_more OR v_count >= p_limit;
    DELETE FROM "ensue".subscription_changes c WHERE c.ctid = ANY (ARRAY(
        SELECT x.ctid FROM "ensue".subscription_changes x WHERE x.group_id = v_group LIMIT p_limit));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_more := v_more OR v_count >= p_limit;
    DELETE FROM "ensue".lanes l WHERE l.ctid = ANY (ARRAY(
        SELECT x.ctid FROM "ensue".lanes x WHERE x.group_id = v_group LIMIT p_limit));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_more := v_more OR v_count >= p_limit;
    DELETE FROM "ensue".delivery_lines l WHERE l.ctid = ANY (ARRAY(
        SELECT x.ctid FROM "ensue".delivery_lines x WHERE x.group_id = v_group LIMIT p_limit));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_more := v_more OR v_count >= p_limit;
    DELETE FROM "ensue".deliveries d WHERE d.ctid = ANY (ARRAY(
        SELECT x.ctid FROM "ensue".deliveries x WHERE x.group_id = v_group LIMIT p_limit));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_more := v_more OR v_count >= p_limit;
    IF NOT v_more THEN
        DELETE FROM "ensue".groups_gone g WHERE g.group_id = v_group;
    END IF;
    RETURN true;
END
$body$;

-- Moves every cursor of a group to a place in the log, forgets its lanes and what it replays, and takes its slots from
-- whoever has them. Answers whether there is such a group, and the bounds of the log; outside of them nothing is changed.
CREATE OR REPLACE FUNCTION "ensue".group_seek(
    p_now timestamptz, p_hint bigint, p_name text, p_to bigint,
    OUT o_found boolean, OUT o_first bigint, OUT o_last bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_now pg_catalog.timestamptz;
BEGIN
    SELECT g.id INTO v_group FROM "ensue".groups g WHERE g.name = p_name FOR UPDATE;
    o_found := FOUND;
    SELECT t.o_trimmed_to + 1, t.o_seq INTO o_first, o_last FROM "ensue".log_tail(p_hint) t;
    IF NOT o_found OR p_to > o_last OR p_to < o_first - 1 THEN
        RETURN;
    END IF;
    PERFORM 1 FROM "ensue".slots s WHERE s.group_id = v_group ORDER BY s.slot FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    PERFORM "ensue".expired_forget(v_group, v_now);
    PERFORM "ensue".tell_members(ARRAY(
        SELECT s.owner FROM "ensue".slots s WHERE s.group_id = v_group AND s.owner IS NOT NULL));
    UPDATE "ensue".slots s
    SET cursor = p_to, replay_to = NULL, resume_at = NULL, owner = NULL, vanished = 0, served_at = greatest(s.served_at, v_now)
    WHERE s.group_id = v_group;
    DELETE FROM "ensue".lanes l WHERE l.group_id = v_group;
END
$body$;

-- Has a handler's group run what is after p_after and up to p_to again, and then go on where it was. Answers the bounds of
-- the log and what became of it: `done`, or why nothing was changed: `missing`, `pull`, `range`, `lanes`, `under_way`. One that
-- is asked for again before it has begun, because the answer was lost, is done.
CREATE OR REPLACE FUNCTION "ensue".group_replay(
    p_now timestamptz, p_hint bigint, p_name text, p_after bigint, p_to bigint,
    OUT o_state text, OUT o_first bigint, OUT o_last bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_kind pg_catalog.text;
    v_now pg_catalog.timestamptz;
BEGIN
    SELECT g.id, g.kind INTO v_group, v_kind FROM "ensue".groups g WHERE g.name = p_name FOR UPDATE;
    o_state := CASE WHEN NOT FOUND THEN 'missing' WHEN v_kind <> 'handler' THEN 'pull' END;
    SELECT t.o_trimmed_to + 1, t.o_seq INTO o_first, o_last FROM "ensue".log_tail(p_hint) t;
    IF o_state IS NULL AND (p_after < o_first - 1 OR p_to > o_last OR p_to <= p_after) THEN
        o_state := 'range';
    END IF;
    IF o_state IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM 1 FROM "ensue".slots s WHERE s.group_id = v_group ORDER BY s.slot FOR UPDATE;
    IF EXISTS (SELECT FROM "ensue".lanes l WHERE l.group_id = v_group) THEN
        o_state := 'lanes';
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM "ensue".slots s WHERE s.group_id = v_group AND s.cursor < s.resume_at) THEN
        o_state := CASE WHEN NOT EXISTS (
            SELECT FROM "ensue".slots s WHERE s.group_id = v_group AND s.cursor < s.resume_at
                AND (s.cursor <> p_after OR s.replay_to <> p_to OR s.owner IS NOT NULL)
        ) THEN 'done' ELSE 'under_way' END;
        RETURN;
    END IF;
    v_now := coalesce(p_now, clock_timestamp());
    PERFORM "ensue".expired_forget(v_group, v_now);
    PERFORM "ensue".tell_members(ARRAY(
        SELECT s.owner FROM "ensue".slots s WHERE s.group_id = v_group AND s.owner IS NOT NULL));
    UPDATE "ensue".slots s SET
        replay_to = CASE WHEN s.cursor > p_to THEN p_to END,
        resume_at = CASE WHEN s.cursor > p_to THEN s.cursor END,
        cursor = least(s.cursor, p_after),
        owner = NULL, vanished = 0, served_at = greatest(s.served_at, v_now)
    WHERE s.group_id = v_group;
    o_state := 'done';
END
$body$;

-- Notes a change of these subscriptions of a group, whose row the caller has locked, and how many more it has now: readers of the
-- group need not read them all again. What is noted of the version that is 1000 back goes: looked for as itself, so
-- that rows which a held snapshot keeps from being cleaned up cost nothing.
CREATE OR REPLACE FUNCTION "ensue".subscriptions_changed(p_group bigint, p_more bigint, p_ids uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_version bigint;
BEGIN
    UPDATE "ensue".groups g SET version = g.version + 1, subscriptions = g.subscriptions + p_more
    WHERE g.id = p_group RETURNING g.version INTO v_version;
    INSERT INTO "ensue".subscription_changes (group_id, version, id) SELECT p_group, v_version, unnest(p_ids);
    DELETE FROM "ensue".subscription_changes c WHERE c.group_id = p_group AND c.version = v_version - 1000;
END
$body$;

-- Makes a subscription, or touches the one that is the same. Answers it, and whether it is new: also to who asks again
-- because the answer was lost, as p_id tells.
--
-- The lock of the group's row lets one subscribe at a time: two at once give one row. Compared in full; the hash only
-- finds what is to be compared.
CREATE OR REPLACE FUNCTION "ensue".subscription_make(
    p_now timestamptz, p_hint bigint, p_group text, p_id uuid,
    p_topic text, p_condition text, p_params text, p_params_identity text, p_expires_in bigint
) RETURNS SETOF "ensue".subscriptions LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_group bigint;
    v_now pg_catalog.timestamptz;
    v_same "ensue".subscriptions;
    v_expires_in bigint;
BEGIN
    LOOP
        SELECT g.id INTO v_group FROM "ensue".groups g WHERE g.name = p_group FOR UPDATE;
        EXIT WHEN FOUND;
        PERFORM "ensue".group_make(p_now, p_hint, p_id, p_group, 'pull', 'now', NULL, 1);
    END LOOP;
    v_now := coalesce(p_now, clock_timestamp());
    SELECT * INTO v_same FROM "ensue".subscriptions u
    WHERE hashtextextended(u.params_identity,
                hashtextextended(coalesce(u.condition, ''), hashtextextended(coalesce(u.topic, ''), u.group_id)))
            = hashtextextended(p_params_identity,
                hashtextextended(coalesce(p_condition, ''), hashtextextended(coalesce(p_topic, ''), v_group)))
        -- By the hash and not by the primary key, however few rows there were when this was planned.
        AND u.group_id + 0 = v_group
        AND u.params_identity = p_params_identity
        AND u.condition IS NOT DISTINCT FROM p_condition AND u.topic IS NOT DISTINCT FROM p_topic
    LIMIT 1;
    IF FOUND AND (v_same.expires_in IS NULL OR v_same.expires_in
            >= "ensue".elapsed(greatest(v_same.touched_at, "ensue".served_at(v_group)), v_now)) THEN
        -- The longer expiry; null is the longest.
        v_expires_in := CASE WHEN v_same.expires_in IS NOT NULL AND p_expires_in IS NOT NULL
            THEN greatest(v_same.expires_in, p_expires_in) END;
        IF v_expires_in IS DISTINCT FROM v_same.expires_in THEN
            PERFORM "ensue".subscriptions_changed(v_group, 0, ARRAY[v_same.id]);
        END IF;
        RETURN QUERY
        UPDATE "ensue".subscriptions u SET touched_at = v_now, expires_in = v_expires_in
        WHERE u.group_id = v_group AND u.id = v_same.id RETURNING u.*;
        RETURN;
    END IF;
    IF FOUND THEN
        DELETE FROM "ensue".subscriptions u WHERE u.group_id = v_group AND u.id = v_same.id;
        PERFORM "ensue".subscriptions_changed(v_group, -1, ARRAY[v_same.id]);
    END IF;
    PERFORM "ensue".subscriptions_changed(v_group, 1, ARRAY[p_id]);
    RETURN QUERY
    INSERT INTO "ensue".subscriptions
        (group_id, id, topic, condition, params, params_identity, expires_in, created_at, touched_at, created_after)
    VALUES (v_group, p_id, p_topic, p_condition, p_params, p_params_identity, p_expires_in, v_now, v_now,
        (SELECT t.o_seq FROM "ensue".log_tail(p_hint) t))
    RETURNING *;
END
$body$;

-- Takes a subscription out of its group; was there one that had not expired?
CREATE OR REPLACE FUNCTION "ensue".subscription_delete(p_now timestamptz, p_group text, p_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_gone "ensue".subscriptions;
BEGIN
    SELECT g.id INTO v_group FROM "ensue".groups g WHERE g.name = p_group FOR UPDATE;
    DELETE FROM "ensue".subscriptions u WHERE u.group_id = v_group AND u.id = p_id RETURNING u.* INTO v_gone;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM "ensue".subscriptions_changed(v_group, -1, ARRAY[p_id]);
    RETURN v_gone.expires_in IS NULL OR v_gone.expires_in >= "ensue".elapsed(
        greatest(v_gone.touched_at, "ensue".served_at(v_group)), coalesce(p_now, clock_timestamp()));
END
$body$;

-- Forgets up to p_limit expired subscriptions; answers how many. A group that somebody is changing is left to the next
-- time. Of each group only those are looked at that expire within the time since it was served.
CREATE OR REPLACE FUNCTION "ensue".subscriptions_expire(p_now timestamptz, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_now pg_catalog.timestamptz := coalesce(p_now, clock_timestamp());
    v_group bigint;
    v_unserved bigint;
    v_gone pg_catalog.uuid[];
    v_left bigint := p_limit;
BEGIN
    FOR v_group IN SELECT g.id FROM "ensue".groups g WHERE g.subscriptions > 0 ORDER BY g.id LOOP
        EXIT WHEN v_left <= 0;
        v_unserved := "ensue".elapsed("ensue".served_at(v_group), v_now);
        CONTINUE WHEN NOT EXISTS (
            SELECT 1 FROM "ensue".subscriptions u WHERE u.group_id + 0 = v_group AND u.expires_in < v_unserved
                AND u.expires_in < "ensue".elapsed(u.touched_at, v_now));
        PERFORM 1 FROM "ensue".groups g WHERE g.id = v_group FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        v_gone := ARRAY(
            SELECT u.id FROM "ensue".subscriptions u
            WHERE u.group_id + 0 = v_group AND u.expires_in < "ensue".elapsed("ensue".served_at(v_group), v_now)
                AND u.expires_in < "ensue".elapsed(u.touched_at, v_now)
            LIMIT v_left FOR UPDATE SKIP LOCKED);
        CONTINUE WHEN v_gone = '{}';
        DELETE FROM "ensue".subscriptions d WHERE d.group_id = v_group AND d.id = ANY (v_gone);
        PERFORM "ensue".subscriptions_changed(v_group, -cardinality(v_gone), v_gone);
        v_left := v_left - cardinality(v_gone);
    END LOOP;
    RETURN p_limit - v_left;
END
$body$;

-- Forgets what has expired of a group, for who is about to read it: otherwise it would live again, and whoever read the
-- group's subscriptions meanwhile would not know. Called for groups that have subscriptions, under the locks of slots or
-- members, which come after that of the group: so its lock is had at once, or the whole call is tried again.
CREATE OR REPLACE FUNCTION "ensue".expired_forget(p_group bigint, p_now timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_unserved bigint := "ensue".elapsed("ensue".served_at(p_group), p_now);
    v_gone pg_catalog.uuid[];
BEGIN
    IF NOT EXISTS (
            SELECT 1 FROM "ensue".subscriptions u WHERE u.group_id + 0 = p_group AND u.expires_in < v_unserved
                AND u.expires_in < "ensue".elapsed(u.touched_at, p_now)) THEN
        RETURN;
    END IF;
    PERFORM 1 FROM "ensue".groups g WHERE g.id = p_group FOR UPDATE NOWAIT;
    -- One that is touched at this moment is waited for, and looked at again: it stays.
    v_gone := ARRAY(
        SELECT u.id FROM "ensue".subscriptions u WHERE u.group_id + 0 = p_group AND u.expires_in < v_unserved
            AND u.expires_in < "ensue".elapsed(u.touched_at, p_now)
        FOR UPDATE);
    IF v_gone <> '{}' THEN
        DELETE FROM "ensue".subscriptions d WHERE d.group_id = p_group AND d.id = ANY (v_gone);
        PERFORM "ensue".subscriptions_changed(p_group, -cardinality(v_gone), v_gone);
    END IF;
END
$body$;

-- Forgets what has expired of the groups of which a member has slots, before a lease that had passed has them all read
-- again. While a lease lasts its groups are read, and nothing of them has expired.
CREATE OR REPLACE FUNCTION "ensue".member_expired_forget(p_member uuid, p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM "ensue".expired_forget(g.id, p_now) FROM (
        SELECT DISTINCT s.group_id FROM "ensue".slots s WHERE s.owner = p_member
    ) s JOIN "ensue".groups g ON g.id = s.group_id WHERE g.subscriptions > 0;
END
$body$;

-- Forgets members whose leases passed long ago and who have no slot: readers after a minute, as each of them may have
-- been another, processes after a day.
CREATE OR REPLACE FUNCTION "ensue".members_forget(p_now timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    DELETE FROM "ensue".members d WHERE d.id = ANY (ARRAY(
        SELECT m.id FROM "ensue".members m
        WHERE (m.kind = 'pull' AND m.lease_until < p_now - interval '1 minute'
               OR m.kind = 'handler' AND m.lease_until < p_now - interval '1 day')
            AND NOT EXISTS (SELECT 1 FROM "ensue".slots s WHERE s.owner = m.id)
        LIMIT 1000 FOR UPDATE SKIP LOCKED));
END
$body$;

-- Takes slots that nobody has, that the member has already, or whose owner's lease has passed. No version if there is no
-- such group.
--
-- The rows of the slots are locked in order, so of two who want one, one gets it. Then those of the members who may lose
-- something: who renews its lease at this moment either comes first, and keeps what it has, or afterwards, and hears of
-- the loss with the same call. Otherwise it would believe in a lease on what is no longer its own.
CREATE OR REPLACE FUNCTION "ensue".slots_acquire(
    p_now timestamptz, p_group text, p_member uuid, p_name text, p_kind text, p_lease bigint,
    p_slots int[], p_go_on bigint,
    OUT o_version bigint, OUT o_slots int[], OUT o_fences bigint[], OUT o_cursors bigint[], OUT o_vanished bigint[],
    OUT o_held_by uuid, OUT o_held_name text, OUT o_held_kind text, OUT o_held_until timestamptz
) LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $body$
DECLARE
    v_group bigint;
    v_subscriptions bigint;
    v_now pg_catalog.timestamptz;
    v_owners pg_catalog.uuid[];
    v_lease_until pg_catalog.timestamptz;
    v_known boolean;
    v_got int[];
BEGIN
    SELECT g.id, g.subscriptions INTO v_group, v_subscriptions FROM "ensue".groups g WHERE g.name = p_group;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM 1 FROM "ensue".slots s
    WHERE s.group_id = v_group AND (p_slots IS NULL OR s.slot = ANY (p_slots)) ORDER BY s.slot FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    v_owners := ARRAY(
        SELECT s.owner FROM "ensue".slots s WHERE s.group_id = v_group AND (p_slots IS NULL OR s.slot = ANY (p_slots))
        AND s.owner <> p_member);
    PERFORM 1 FROM "ensue".members m
    WHERE m.id = ANY (v_owners || p_member) AND (m.id = p_member OR m.lease_until < v_now) ORDER BY m.id FOR UPDATE;
    SELECT m.lease_until INTO v_lease_until FROM "ensue".members m WHERE m.id = p_member;
    v_known := FOUND;

    v_got := ARRAY(
        SELECT s.slot FROM "ensue".slots s LEFT JOIN "ensue".members m ON m.id = s.owner
        WHERE s.group_id = v_group AND (p_slots IS NULL OR s.slot = ANY (p_slots))
            AND CASE WHEN p_go_on IS NULL THEN s.owner = p_member OR m.id IS NULL OR m.lease_until < v_now
                ELSE s.owner = p_member AND s.fence = p_go_on AND m.lease_until >= v_now END
        ORDER BY s.slot);
    -- Who may not go on has its lease not renewed by that: what it once had stays lost.
    IF p_go_on IS NULL OR cardinality(v_got) > 0 THEN
        IF v_subscriptions > 0 AND cardinality(v_got) > 0 THEN
            PERFORM "ensue".expired_forget(v_group, v_now);
        END IF;
        IF v_lease_until < v_now OR NOT v_known THEN
            PERFORM "ensue".member_expired_forget(p_member, v_now);
        END IF;
        INSERT INTO "ensue".members AS m (id, name, kind, lease_until)
        VALUES (p_member, p_name, p_kind, v_now + p_lease * interval '1 microsecond')
        ON CONFLICT (id) DO UPDATE SET name = excluded.name, kind = excluded.kind, lease_until = excluded.lease_until;
    END IF;
    PERFORM "ensue".tell_members(ARRAY(
        SELECT s.owner FROM "ensue".slots s WHERE s.group_id = v_group AND s.slot = ANY (v_got) AND s.owner <> p_member));
    UPDATE "ensue".slots s
    SET owner = p_member, fence = s.fence + 1, vanished = s.vanished + (s.owner IS NOT NULL)::int,
        served_at = greatest(s.served_at, v_now)
    WHERE s.group_id = v_group AND s.slot = ANY (v_got) AND (s.owner IS DISTINCT FROM p_member OR NOT v_known);

    SELECT g.version INTO o_version FROM "ensue".groups g WHERE g.id = v_group;
    SELECT array_agg(s.slot ORDER BY s.slot), array_agg(s.fence ORDER BY s.slot), array_agg(s.cursor ORDER BY s.slot),
        array_agg(s.vanished ORDER BY s.slot)
    INTO o_slots, o_fences, o_cursors, o_vanished
    FROM "ensue".slots s WHERE s.group_id = v_group AND s.slot = ANY (v_got);
    SELECT m.id, m.name, m.kind, m.lease_until INTO o_held_by, o_held_name, o_held_kind, o_held_until
    FROM "ensue".slots s LEFT JOIN "ensue".members m ON m.id = s.owner
    WHERE s.group_id = v_group AND (p_slots IS NULL OR s.slot = ANY (p_slots)) AND s.slot <> ALL (v_got)
    ORDER BY s.slot LIMIT 1;

    IF NOT v_known AND random() < 0.02 THEN
        PERFORM "ensue".members_forget(v_now);
    END IF;
END
$body$;

-- The same for readers over HTTP, which are answered soon: somebody who reads over SQL has the slot locked until their transaction ends, and whoever waits for
-- them keeps a connection of the process. If the locks are not to be had within about a quarter of a second, the open transaction is told of as who has the slot.
-- Who goes on under a lease is not told that it is lost: that is tried again.
CREATE OR REPLACE FUNCTION "ensue".slots_acquire_soon(
    p_now timestamptz, p_group text, p_member uuid, p_name text, p_kind text, p_lease bigint,
    p_slots int[], p_go_on bigint,
    OUT o_version bigint, OUT o_slots int[], OUT o_fences bigint[], OUT o_cursors bigint[], OUT o_vanished bigint[],
    OUT o_held_by uuid, OUT o_held_name text, OUT o_held_kind text, OUT o_held_until timestamptz
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = '250ms'
AS $body$
DECLARE
    v_until pg_catalog.timestamptz := clock_timestamp() + interval '250 milliseconds';
BEGIN
    LOOP
        BEGIN
            SELECT a.* INTO o_version, o_slots, o_fences, o_cursors, o_vanished, o_held_by, o_held_name, o_held_kind, o_held_until
            FROM "ensue".slots_acquire(p_now, p_group, p_member, p_name, p_kind, p_lease, p_slots, p_go_on) a;
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            -- Somebody may be changing the group's subscriptions at this moment, too.
            IF clock_timestamp() >= v_until THEN
                IF p_go_on IS NOT NULL THEN
                    RAISE;
                END IF;
                EXIT;
            END IF;
            PERFORM pg_sleep(0.01);
        END;
    END LOOP;
    SELECT g.version INTO o_version FROM "ensue".groups g WHERE g.name = p_group;
    o_held_by := gen_random_uuid();
    o_held_name := 'a transaction that is open';
    o_held_kind := p_kind;
    o_held_until := coalesce(p_now, clock_timestamp()) + interval '1 second';
END
$body$;

-- Renews the lease of a member for p_lease microseconds, and tells it of all processes; nothing if it is not known. One
-- round trip: an idle process asks this and little else.
CREATE OR REPLACE FUNCTION "ensue".member_renew(p_now timestamptz, p_member uuid, p_lease bigint)
RETURNS TABLE (o_version bigint, o_id uuid, o_name text, o_kind text) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
    v_lease_until pg_catalog.timestamptz;
    v_version bigint;
BEGIN
    SELECT m.lease_until INTO v_lease_until FROM "ensue".members m WHERE m.id = p_member FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_now := coalesce(p_now, clock_timestamp());
    IF v_lease_until < v_now THEN
        PERFORM "ensue".member_expired_forget(p_member, v_now);
    END IF;
    UPDATE "ensue".members m SET lease_until = v_now + p_lease * interval '1 microsecond'
    WHERE m.id = p_member RETURNING m.version INTO v_version;
    RETURN QUERY
    SELECT v_version, m.id, m.name, m.kind
    FROM (SELECT 1) one LEFT JOIN "ensue".members m ON m.kind = 'handler' AND m.lease_until >= v_now
    ORDER BY m.id;
END
$body$;

-- Gives slots of a group back, cleanly.
CREATE OR REPLACE FUNCTION "ensue".slots_release(p_now timestamptz, p_member uuid, p_group text, p_slots int[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_subscriptions bigint;
    v_now pg_catalog.timestamptz;
BEGIN
    SELECT g.id, g.subscriptions INTO v_group, v_subscriptions FROM "ensue".groups g WHERE g.name = p_group;
    PERFORM 1 FROM "ensue".slots s
    WHERE s.group_id = v_group AND s.slot = ANY (p_slots) AND s.owner = p_member ORDER BY s.slot FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_now := coalesce(p_now, clock_timestamp());
    IF v_subscriptions > 0 THEN
        PERFORM "ensue".expired_forget(v_group, v_now);
    END IF;
    UPDATE "ensue".slots s
    SET owner = NULL, vanished = 0, served_at = greatest(s.served_at, v_now)
    WHERE s.group_id = v_group AND s.slot = ANY (p_slots) AND s.owner = p_member;
END
$body$;

-- Gives every slot of a member back, cleanly, and forgets the member.
CREATE OR REPLACE FUNCTION "ensue".member_leave(p_now timestamptz, p_member uuid) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
BEGIN
    PERFORM 1 FROM "ensue".slots s WHERE s.owner = p_member ORDER BY s.group_id, s.slot FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    PERFORM "ensue".member_expired_forget(p_member, v_now);
    UPDATE "ensue".slots s
    SET owner = NULL, vanished = 0, served_at = greatest(s.served_at, v_now)
    WHERE s.owner = p_member;
    DELETE FROM "ensue".members m WHERE m.id = p_member;
END
$body$;

-- Appends some of the events of a settlement: those at the places p_picked of the arrays. The one place where
-- settlements meet `append`: as callers with keys, so that each event is answered and a conflict leaves out its change
-- alone.
CREATE OR REPLACE FUNCTION "ensue".settle_append(
    p_now timestamptz, p_hint bigint, p_picked int[], p_changes int[],
    p_id_parts uuid[], p_topics text[], p_payloads text[], p_metadata text[], p_occurred_at timestamptz[], p_to uuid[],
    p_objects text[], p_keys text[], p_fingerprints bytea[], p_not_before timestamptz[],
    OUT o_tail bigint, OUT o_recorded_at timestamptz, OUT o_seqs bigint[], OUT o_prevs bigint[], OUT o_ids uuid[],
    OUT o_conflicts boolean[]
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_logged bigint;
BEGIN
    SELECT a.o_tail, a.o_recorded_at, a.o_seqs, a.o_prevs, a.o_ids, a.o_conflicts
    INTO o_tail, o_recorded_at, o_seqs, o_prevs, o_ids, o_conflicts
    FROM "ensue".append(
        p_now => p_now,
        p_hint => p_hint,
        p_id_parts => ARRAY(SELECT p_id_parts[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_topic => NULL,
        p_topics => ARRAY(SELECT p_topics[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_payloads => ARRAY(SELECT p_payloads[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_metadata => ARRAY(SELECT p_metadata[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_occurred_at => ARRAY(SELECT p_occurred_at[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_to => ARRAY(SELECT p_to[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_objects => ARRAY(SELECT p_objects[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_back => NULL,
        p_heads => NULL,
        p_heads_at => NULL,
        p_known_to => 0,
        p_callers => ARRAY(SELECT p_changes[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_keys => ARRAY(SELECT p_keys[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_fingerprints => ARRAY(SELECT p_fingerprints[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_not_before => ARRAY(SELECT p_not_before[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i)
    ) a;
    v_logged := (SELECT count(*) FROM unnest(o_seqs, o_ids) x(seq, id) WHERE x.seq IS NOT NULL AND x.id IS NULL);
    o_tail := o_tail + v_logged;
    PERFORM set_config('ensue.logged', (CASE WHEN current_user = session_user THEN coalesce(nullif(current_setting('ensue.logged', true), ''), '0')::bigint ELSE 0 END + v_logged)::text, true);
END
$body$;

-- Publishes the events of the changes that are good so far, and says which of those cannot be published: 'key' or
-- 'invalid' in o_states, with the reason.
--
-- All of a wave are appended at once. Two changes with the same key are in different waves: the second must see what
-- the first stored. If the server refuses an event of a wave, its changes are tried one by one, so that one's fault
-- does not become the others' (H37). v_queue holds what is left to do: a wave by its number, a change alone by its
-- number below zero.
CREATE OR REPLACE FUNCTION "ensue".settle_events(
    p_now timestamptz, p_hint bigint, p_states text[], p_waves int[], p_changes int[],
    p_id_parts uuid[], p_topics text[], p_payloads text[], p_metadata text[], p_occurred_at timestamptz[], p_to uuid[],
    p_objects text[], p_keys text[], p_fingerprints bytea[], p_not_before timestamptz[],
    OUT o_states text[], OUT o_reasons text[], OUT o_tail bigint, OUT o_recorded_at timestamptz[], OUT o_seqs bigint[],
    OUT o_prevs bigint[], OUT o_ids uuid[], OUT o_conflicts boolean[]
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_queue int[] := ARRAY(SELECT DISTINCT w FROM unnest(p_waves) w WHERE w > 0 ORDER BY w);
    v_next int;
    v_picked int[];
    v_count int := cardinality(p_changes);
    v_done pg_catalog.record;
BEGIN
    o_states := p_states;
    o_reasons := array_fill(NULL::text, ARRAY[cardinality(p_states)]);
    o_recorded_at := array_fill(NULL::timestamptz, ARRAY[v_count]);
    o_seqs := array_fill(NULL::bigint, ARRAY[v_count]);
    o_prevs := o_seqs;
    o_ids := array_fill(NULL::uuid, ARRAY[v_count]);
    o_conflicts := array_fill(false, ARRAY[v_count]);
    WHILE cardinality(v_queue) > 0 LOOP
        v_next := v_queue[1];
        v_queue := v_queue[2:];
        v_picked := ARRAY(
            SELECT e.n FROM unnest(p_changes) WITH ORDINALITY e(change, n)
            WHERE o_states[e.change] = 'done'
                AND CASE WHEN v_next > 0 THEN p_waves[e.change] = v_next ELSE e.change = -v_next END
            ORDER BY e.n);
        CONTINUE WHEN cardinality(v_picked) = 0;
        BEGIN
            SELECT * INTO v_done FROM "ensue".settle_append(
                p_now, p_hint, v_picked, p_changes, p_id_parts, p_topics, p_payloads, p_metadata, p_occurred_at, p_to,
                p_objects, p_keys, p_fingerprints, p_not_before);
        EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
            IF v_next < 0 THEN
                o_states[-v_next] := 'invalid';
                o_reasons[-v_next] := SQLERRM;
            ELSE
                v_queue := ARRAY(SELECT -c.change FROM (SELECT DISTINCT p_changes[n] AS change FROM unnest(v_picked) n) c
                                 ORDER BY c.change) || v_queue;
            END IF;
            CONTINUE;
        END;
        o_tail := v_done.o_tail;
        p_hint := greatest(p_hint, o_tail);
        FOR i IN 1 .. cardinality(v_picked) LOOP
            o_recorded_at[v_picked[i]] := v_done.o_recorded_at;
            o_seqs[v_picked[i]] := v_done.o_seqs[i];
            o_prevs[v_picked[i]] := v_done.o_prevs[i];
            o_ids[v_picked[i]] := v_done.o_ids[i];
            IF v_done.o_conflicts[i] THEN
                o_conflicts[v_picked[i]] := true;
                o_states[p_changes[v_picked[i]]] := 'key';
            END IF;
        END LOOP;
    END LOOP;
END
$body$;

-- Carries out changes of lanes, in their order: what was removed and written again is a new row. p_groups and p_slots
-- tell where each change of a slot belongs; no group means that nothing of it is written. No position is a removal.
CREATE OR REPLACE FUNCTION "ensue".settle_lanes(
    p_now timestamptz, p_groups bigint[], p_slots int[], p_changes int[], p_keys text[], p_positions bigint[],
    p_states text[], p_attempts bigint[], p_not_before timestamptz[], p_errors text[], p_redriven boolean[]
) RETURNS void LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $body$
BEGIN
    DELETE FROM "ensue".lanes l USING (
        SELECT DISTINCT p_groups[c.change] AS group_id, c.key
        FROM unnest(p_changes, p_keys, p_positions) c(change, key, position)
        WHERE c.position IS NULL AND p_groups[c.change] IS NOT NULL
    ) gone
    WHERE l.group_id = gone.group_id AND l.key = gone.key;
    INSERT INTO "ensue".lanes AS l
        (group_id, key, slot, position, state, attempts, not_before, error, redriven, since)
    SELECT p.group_id, p.key, p.slot, p.position, p.state, p.attempts, p.not_before, p.error, p.redriven, p_now
    FROM (
        SELECT DISTINCT ON (c.group_id, c.key) c.*
        FROM (
            SELECT p_groups[c.change] AS group_id, p_slots[c.change] AS slot, c.*,
                max(c.n) FILTER (WHERE c.position IS NULL) OVER (PARTITION BY p_groups[c.change], c.key) AS removed
            FROM unnest(p_changes, p_keys, p_positions, p_states, p_attempts, p_not_before, p_errors, p_redriven)
                WITH ORDINALITY c(change, key, position, state, attempts, not_before, error, redriven, n)
            WHERE p_groups[c.change] IS NOT NULL
        ) c
        -- What was put after the last removal: the furthest, and of those the last.
        WHERE c.position IS NOT NULL AND c.n > coalesce(c.removed, 0)
        ORDER BY c.group_id, c.key, c.position DESC, c.n DESC
    ) p
    ON CONFLICT (group_id, key) DO UPDATE SET slot = excluded.slot, position = excluded.position,
        state = excluded.state, attempts = excluded.attempts, not_before = excluded.not_before, error = excluded.error,
        redriven = excluded.redriven, ask = NULL
    WHERE excluded.position >= l.position;
END
$body$;

-- Records what became of deliveries; the last word on one is kept. p_groups tells where each change of a slot belongs; no
-- group means that nothing of it is written.
CREATE OR REPLACE FUNCTION "ensue".settle_deliveries(
    p_groups bigint[], p_changes int[], p_seqs bigint[], p_objects text[], p_states text[], p_attempts bigint[],
    p_errors text[], p_started_at timestamptz[], p_finished_at timestamptz[]
) RETURNS void LANGUAGE sql VOLATILE
AS $body$
    INSERT INTO "ensue".deliveries AS d
        (group_id, seq, object, state, attempts, error, started_at, finished_at)
    SELECT DISTINCT ON (p_groups[c.change], c.seq)
        p_groups[c.change], c.seq, c.object, c.state, c.attempts, c.error, c.started_at, c.finished_at
    FROM unnest(p_changes, p_seqs, p_objects, p_states, p_attempts, p_errors, p_started_at, p_finished_at)
        WITH ORDINALITY c(change, seq, object, state, attempts, error, started_at, finished_at, n)
    WHERE p_groups[c.change] IS NOT NULL
    ORDER BY p_groups[c.change], c.seq, c.n DESC
    ON CONFLICT (seq, group_id) DO UPDATE SET object = excluded.object, state = excluded.state,
        attempts = excluded.attempts, error = excluded.error, started_at = excluded.started_at,
        finished_at = excluded.finished_at
$body$;

-- Records what deliveries said, in order. p_groups tells where each change of a slot belongs; no group means that nothing
-- of it is written.
CREATE OR REPLACE FUNCTION "ensue".settle_lines(
    p_groups bigint[], p_changes int[], p_seqs bigint[], p_attempts bigint[], p_at timestamptz[], p_levels text[],
    p_messages text[]
) RETURNS void LANGUAGE sql VOLATILE
AS $body$
    INSERT INTO "ensue".delivery_lines (group_id, seq, attempt, at, level, message)
    SELECT p_groups[c.change], c.seq, c.attempt, c.at, c.level, c.message
    FROM unnest(p_changes, p_seqs, p_attempts, p_at, p_levels, p_messages)
        WITH ORDINALITY c(change, seq, attempt, at, level, message, n)
    WHERE p_groups[c.change] IS NOT NULL
    ORDER BY c.n
$body$;

-- Writes what owners have to say about their slots, in one round trip and one commit. For each change o_states says
-- 'done', 'lost', 'key' or 'invalid'; of all but the first nothing is written.
--
-- Arrays are parallel: those of the first line one element for each change of a slot, the others for each lane, delivery,
-- line, event and job, whose change is told by its number, from 1; null if there is none of the kind.
--   p_call    null, or the identity of a settlement that must not be done twice: who sends it again is told what was
--             answered first
--   p_waves   in which wave the events of a change are published, see settle_events; 0 if its owner has refused them:
--             then only its fence is looked at
--
-- The slots are locked in order and before the log. Whoever takes one of them over waits, or has done so before: the
-- fences are read after the lock.
CREATE OR REPLACE FUNCTION "ensue".slots_settle(
    p_now timestamptz, p_hint bigint, p_call uuid,
    p_groups text[], p_slots int[], p_members uuid[], p_fences bigint[], p_cursors bigint[], p_lost_from bigint[],
    p_lost_to bigint[], p_waves int[],
    p_lane_changes int[], p_lane_keys text[], p_lane_positions bigint[], p_lane_states text[], p_lane_attempts bigint[],
    p_lane_not_before timestamptz[], p_lane_errors text[], p_lane_redriven boolean[],
    p_delivery_changes int[], p_delivery_seqs bigint[], p_delivery_objects text[], p_delivery_states text[],
    p_delivery_attempts bigint[], p_delivery_errors text[], p_started_at timestamptz[], p_finished_at timestamptz[],
    p_line_changes int[], p_line_seqs bigint[], p_line_attempts bigint[], p_line_at timestamptz[],
    p_line_levels text[], p_line_messages text[],
    p_event_changes int[], p_id_parts uuid[], p_topics text[], p_payloads text[], p_metadata text[],
    p_occurred_at timestamptz[], p_to uuid[], p_objects text[], p_keys text[], p_fingerprints bytea[],
    p_not_before timestamptz[],
    p_job_changes int[], p_chances int[], p_handlers text[], p_job_objects text[], p_ordered boolean[],
    p_job_payloads text[], p_job_metadata text[], p_ranks bigint[], p_job_not_before timestamptz[], p_job_keys text[],
    p_attempts_max int[], p_exhausted text[], p_event_seqs bigint[], p_event_prevs bigint[], p_event_ids uuid[],
    p_event_topics text[],
    OUT o_states text[], OUT o_reasons text[], OUT o_tail bigint, OUT o_recorded_at timestamptz[], OUT o_seqs bigint[],
    OUT o_prevs bigint[], OUT o_ids uuid[], OUT o_conflicts boolean[]
) LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
    v_groups bigint[];
    v_late boolean; -- is a lease among them that has passed, so that its groups may not have been read?
    v_change pg_catalog.record;
BEGIN
    PERFORM 1 FROM "ensue".slots s
    JOIN "ensue".groups g ON g.id = s.group_id
    JOIN (SELECT DISTINCT c.name, c.slot FROM unnest(p_groups, p_slots) c(name, slot)) c
        ON g.name = c.name AND s.slot = c.slot
    ORDER BY s.group_id, s.slot FOR UPDATE OF s;
    IF p_call IS NOT NULL THEN
        SELECT t.states, t.reasons, t.tail, t.recorded_at, t.seqs, t.prevs, t.ids, t.conflicts
        INTO o_states, o_reasons, o_tail, o_recorded_at, o_seqs, o_prevs, o_ids, o_conflicts
        FROM "ensue".settlements t WHERE t.call = p_call;
        IF FOUND THEN
            -- It may be on this server alone, if whoever stored it was ended while it waited for a synchronous standby.
            -- Only a commit that has written something waits for the standby, as this answer must too.
            PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
            RETURN;
        END IF;
    END IF;
    v_now := coalesce(p_now, clock_timestamp());
    SELECT array_agg(CASE WHEN s.owner = c.member AND s.fence = c.fence
                AND (m.kind = 'handler' OR m.lease_until >= v_now) THEN 'done' ELSE 'lost' END ORDER BY c.n),
        array_agg(g.id ORDER BY c.n), bool_or(m.lease_until < v_now)
    INTO o_states, v_groups, v_late
    FROM unnest(p_groups, p_slots, p_members, p_fences) WITH ORDINALITY c(name, slot, member, fence, n)
    LEFT JOIN "ensue".groups g ON g.name = c.name
    LEFT JOIN "ensue".slots s ON s.group_id = g.id AND s.slot = c.slot
    LEFT JOIN "ensue".members m ON m.id = c.member;

    -- Before the log: everybody takes these locks in this order.
    IF p_job_objects IS NOT NULL OR p_job_keys IS NOT NULL THEN
        LOCK TABLE "ensue".rules_lock IN ROW SHARE MODE;
        PERFORM "ensue".jobs_lock(ARRAY(
            SELECT "ensue".job_bucket(b.handler, 'o' || b.object) FROM unnest(p_handlers, p_job_objects) b(handler, object)
            WHERE b.object IS NOT NULL
            UNION SELECT "ensue".job_bucket(b.handler, 'k' || b.key) FROM unnest(p_handlers, p_job_keys) b(handler, key)
            WHERE b.key IS NOT NULL));
    END IF;
    IF p_event_changes IS NOT NULL THEN
        SELECT * INTO o_states, o_reasons, o_tail, o_recorded_at, o_seqs, o_prevs, o_ids, o_conflicts
        FROM "ensue".settle_events(
            p_now, p_hint, o_states, p_waves, p_event_changes, p_id_parts, p_topics, p_payloads, p_metadata,
            p_occurred_at, p_to, p_objects, p_keys, p_fingerprints, p_not_before);
    END IF;
    v_groups := ARRAY(
        SELECT CASE WHEN c.state = 'done' AND c.wave <> 0 THEN c.group_id END
        FROM unnest(v_groups, o_states, p_waves) WITH ORDINALITY c(group_id, state, wave, n) ORDER BY c.n);

    IF v_late THEN
        PERFORM "ensue".expired_forget(g.id, v_now) FROM "ensue".groups g
        WHERE g.id = ANY (v_groups) AND g.subscriptions > 0;
    END IF;
    UPDATE "ensue".slots s SET cursor = c.cursor, vanished = 0, served_at = greatest(s.served_at, v_now)
    FROM (
        SELECT x.group_id, x.slot, max(x.cursor) AS cursor
        FROM unnest(v_groups, p_slots, p_cursors) x(group_id, slot, cursor)
        WHERE x.group_id IS NOT NULL AND x.cursor IS NOT NULL GROUP BY x.group_id, x.slot
    ) c
    WHERE s.group_id = c.group_id AND s.slot = c.slot AND s.cursor < c.cursor;
    IF p_lost_from IS NOT NULL THEN
        FOR v_change IN
            SELECT x.* FROM unnest(v_groups, p_slots, p_lost_from, p_lost_to)
                WITH ORDINALITY x(group_id, slot, lost_from, lost_to, n)
            WHERE x.group_id IS NOT NULL AND x.lost_from IS NOT NULL ORDER BY x.n
        LOOP
            UPDATE "ensue".slots s
            SET lost_from = v_change.lost_from, lost_to = v_change.lost_to, lost_nth = (
                SELECT coalesce(max(x.lost_nth), 0) + 1 FROM "ensue".slots x WHERE x.group_id = v_change.group_id)
            WHERE s.group_id = v_change.group_id AND s.slot = v_change.slot;
        END LOOP;
    END IF;
    IF p_lane_changes IS NOT NULL THEN
        PERFORM "ensue".settle_lanes(v_now, v_groups, p_slots, p_lane_changes, p_lane_keys, p_lane_positions,
            p_lane_states, p_lane_attempts, p_lane_not_before, p_lane_errors, p_lane_redriven);
    END IF;
    IF p_delivery_changes IS NOT NULL THEN
        PERFORM "ensue".settle_deliveries(v_groups, p_delivery_changes, p_delivery_seqs, p_delivery_objects,
            p_delivery_states, p_delivery_attempts, p_delivery_errors, p_started_at, p_finished_at);
    END IF;
    IF p_line_changes IS NOT NULL THEN
        PERFORM "ensue".settle_lines(v_groups, p_line_changes, p_line_seqs, p_line_attempts, p_line_at,
            p_line_levels, p_line_messages);
    END IF;
    IF p_job_changes IS NOT NULL THEN
        PERFORM "ensue".jobs_insert(v_now, ARRAY(
                SELECT v_groups[j.change] IS NOT NULL FROM unnest(p_job_changes) WITH ORDINALITY j(change, n) ORDER BY j.n),
            p_chances, p_handlers, p_job_objects, p_ordered, p_job_payloads, p_job_metadata, p_ranks, p_job_not_before,
            p_job_keys, p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics);
    END IF;
    IF p_call IS NOT NULL THEN
        INSERT INTO "ensue".settlements
            (call, settled_at, states, reasons, tail, recorded_at, seqs, prevs, ids, conflicts)
        VALUES (p_call, clock_timestamp(), o_states, o_reasons, o_tail, o_recorded_at, o_seqs, o_prevs, o_ids, o_conflicts);
        -- Two for each that comes.
        DELETE FROM "ensue".settlements d WHERE d.call = ANY (ARRAY(
            SELECT t.call FROM "ensue".settlements t WHERE t.settled_at < clock_timestamp() - interval '1 hour'
            ORDER BY t.settled_at LIMIT 2 FOR UPDATE SKIP LOCKED));
    END IF;
END
$body$;

-- Asks something of a lane and tells the owner of its slot, if it has one. Under the lock of the slot: who takes it over
-- at this moment reads the lane afterwards, with what was asked.
CREATE OR REPLACE FUNCTION "ensue".lane_ask(p_group text, p_key text, p_ask text) RETURNS SETOF "ensue".lanes
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_slot int;
    v_owner pg_catalog.uuid;
BEGIN
    SELECT l.group_id, l.slot INTO v_group, v_slot
    FROM "ensue".groups g JOIN "ensue".lanes l ON l.group_id = g.id WHERE g.name = p_group AND l.key = p_key;
    SELECT s.owner INTO v_owner FROM "ensue".slots s WHERE s.group_id = v_group AND s.slot = v_slot FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    UPDATE "ensue".lanes l SET ask = p_ask WHERE l.group_id = v_group AND l.key = p_key RETURNING l.*;
    IF FOUND AND v_owner IS NOT NULL THEN
        PERFORM "ensue".tell_members(ARRAY[v_owner]);
    END IF;
END
$body$;

-- Forgets up to p_limit recorded deliveries, with what they said: those that ended before p_before, and the oldest beyond
-- p_keep. If there are fewer, also lines that were said before p_before by deliveries of which nothing is recorded, the
-- oldest first: of what is older, most went with its delivery, so that few are passed over. Answers how many of both
-- together. What somebody is writing is left to the next time.
CREATE OR REPLACE FUNCTION "ensue".deliveries_purge(p_before timestamptz, p_keep bigint, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $body$
DECLARE
    v_too_many bigint;
    v_count bigint;
    v_lines bigint;
BEGIN
    -- Counted in the index by age, and no further than it matters.
    SELECT count(*) INTO v_too_many FROM (
        SELECT 1 FROM "ensue".deliveries d ORDER BY d.finished_at DESC, d.seq DESC, d.group_id DESC
        OFFSET p_keep LIMIT p_limit) x;
    WITH old AS (
        SELECT o.seq, o.group_id FROM (
            SELECT d.seq, d.group_id, d.finished_at,
                row_number() OVER (ORDER BY d.finished_at, d.seq, d.group_id) AS nth
            FROM (
                SELECT * FROM "ensue".deliveries x ORDER BY x.finished_at, x.seq, x.group_id LIMIT p_limit
            ) d
        ) o
        WHERE o.finished_at < p_before OR o.nth <= v_too_many
    ), locked AS MATERIALIZED (
        SELECT d.seq, d.group_id FROM "ensue".deliveries d JOIN old o ON d.seq = o.seq AND d.group_id = o.group_id
        FOR UPDATE OF d SKIP LOCKED
    ), silenced AS (
        DELETE FROM "ensue".delivery_lines l USING locked k WHERE l.group_id = k.group_id AND l.seq = k.seq
    )
    DELETE FROM "ensue".deliveries d USING locked k WHERE d.seq = k.seq AND d.group_id = k.group_id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    DELETE FROM "ensue".delivery_lines d WHERE d.ctid = ANY (ARRAY(
        SELECT l.ctid FROM "ensue".delivery_lines l
        WHERE l.at < p_before AND NOT EXISTS (
            SELECT 1 FROM "ensue".deliveries x WHERE x.seq = l.seq AND x.group_id = l.group_id)
        ORDER BY l.at, l.nth LIMIT p_limit - v_count));
    GET DIAGNOSTICS v_lines = ROW_COUNT;
    RETURN v_count + v_lines;
END
$body$;

-- Copies events aside for lanes, each by itself; answers for how many. Of the places in p_seqs the first p_counts[1] are
-- of the first lane, and so on. A lane that somebody is writing is left to the next time: so nobody waits here, and who
-- waits for a lane that is locked here never holds up this.
CREATE OR REPLACE FUNCTION "ensue".lanes_park(
    p_groups text[], p_keys text[], p_from bigint[], p_to bigint[], p_counts int[], p_seqs bigint[]
) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $body$
DECLARE
    v_group bigint;
    v_position bigint;
    v_seqs bigint[];
    v_at int := 0;
    v_parked bigint := 0;
BEGIN
    FOR n IN 1 .. cardinality(p_keys) LOOP
        v_seqs := p_seqs[v_at + 1 : v_at + p_counts[n]];
        v_at := v_at + p_counts[n];
        SELECT l.group_id, l.position INTO v_group, v_position
        FROM "ensue".groups g JOIN "ensue".lanes l ON l.group_id = g.id
        WHERE g.name = p_groups[n] AND l.key = p_keys[n] AND l.state IN ('waiting', 'held')
            AND l.parked_to IS NOT DISTINCT FROM p_from[n] AND coalesce(l.parked_to, -1) < p_to[n]
        FOR UPDATE OF l SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        v_seqs := ARRAY(SELECT s FROM unnest(v_seqs) s WHERE s >= v_position);
        CONTINUE WHEN cardinality(v_seqs) <> (
            SELECT count(*) FROM "ensue".stored_events e
            WHERE e.seq = ANY (v_seqs) AND e.seq > (SELECT s.trimmed_to FROM "ensue".log_state s));
        INSERT INTO "ensue".parked (group_id, key, seq, prev, recorded_at, occurred_at, id_part, id, to_subscription,
            topic, object, payload, metadata)
        SELECT v_group, p_keys[n], e.seq, e.prev, e.recorded_at, e.occurred_at, e.id_part,
            "ensue".event_id(e.id_part, e.recorded_at), e.to_subscription, e.topic, e.object, e.payload, e.metadata
        FROM "ensue".stored_events e WHERE e.seq = ANY (v_seqs);
        UPDATE "ensue".lanes l SET parked_to = p_to[n] WHERE l.group_id = v_group AND l.key = p_keys[n];
        v_parked := v_parked + 1;
    END LOOP;
    RETURN v_parked;
END
$body$;

-- Says which groups a process serves, instead of what it said before, and renews its lease for p_lease microseconds: it is
-- known with this. Those who serve a group that it begins or ceases to serve are told. With one that comes, those go of
-- whom nothing was heard for long.
--
-- One such call at a time: two that come at once would otherwise each not see the other, and neither be told of it.
CREATE OR REPLACE FUNCTION "ensue".member_serve(
    p_now timestamptz, p_member uuid, p_name text, p_kind text, p_lease bigint, p_groups text[]
) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
    v_changed pg_catalog.text[];
BEGIN
    LOCK TABLE "ensue".serving_lock IN SHARE UPDATE EXCLUSIVE MODE;
    PERFORM 1 FROM "ensue".members m WHERE m.id = p_member OR m.kind = 'handler' ORDER BY m.id FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    IF NOT EXISTS (SELECT 1 FROM "ensue".members m WHERE m.id = p_member) THEN
        PERFORM "ensue".members_forget(v_now);
    ELSIF EXISTS (SELECT 1 FROM "ensue".members m WHERE m.id = p_member AND m.lease_until < v_now) THEN
        PERFORM "ensue".member_expired_forget(p_member, v_now);
    END IF;
    INSERT INTO "ensue".members AS m (id, name, kind, lease_until)
    VALUES (p_member, p_name, p_kind, v_now + p_lease * interval '1 microsecond')
    ON CONFLICT (id) DO UPDATE SET name = excluded.name, kind = excluded.kind, lease_until = excluded.lease_until;
    v_changed := ARRAY(
        SELECT coalesce(s.group_name, n.group_name)
        FROM (SELECT o.group_name FROM "ensue".serving o WHERE o.member = p_member) s
        FULL JOIN (SELECT DISTINCT unnest(p_groups) COLLATE "C" AS group_name) n ON n.group_name = s.group_name
        WHERE s.group_name IS NULL OR n.group_name IS NULL);
    IF cardinality(v_changed) = 0 THEN
        RETURN;
    END IF;
    UPDATE "ensue".members m SET version = m.version + 1
    WHERE m.id <> p_member AND m.id IN (SELECT s.member FROM "ensue".serving s WHERE s.group_name = ANY (v_changed));
    DELETE FROM "ensue".serving s WHERE s.member = p_member AND s.group_name = ANY (v_changed);
    INSERT INTO "ensue".serving (member, group_name)
    SELECT p_member, c FROM unnest(v_changed) c WHERE c = ANY (p_groups)
    ON CONFLICT DO NOTHING;
END
$body$;

-- What has happened? In one round trip all that an idle process asks: where the log ends and with which event, when the
-- next delayed event and the next schedule are due, whether something waits in the outbox, the versions of the rules and of what is defined, how many numbers were given to jobs and which
-- transactions may have drawn them (all below o_xmin have ended, o_next_xid has not begun), when the next job is due
-- or its lease passes soon (no lease up to p_leases_after is looked at), and, for a member, what it hears when it renews its lease for p_lease microseconds. A row for
-- each process that lives, and one at least; no version if no such member is known. With p_bells also how many listen, and
-- whether one of them sleeps (postgres/bell.rs). Schedules are looked at from where the caller has found none before (fn_schedules_due.sql).
CREATE OR REPLACE FUNCTION "ensue".pulse(
    p_now timestamptz, p_hint bigint, p_member uuid, p_lease bigint, p_bells boolean, p_leases_after timestamptz,
    p_schedules bigint, p_from timestamptz, p_from_name text
) RETURNS TABLE (
    o_now timestamptz, o_last bigint, o_next_due timestamptz, o_id_part uuid, o_recorded_at timestamptz,
    o_version bigint, o_id uuid, o_name text, o_kind text,
    o_rules_version bigint, o_jobs_sent bigint, o_jobs_due timestamptz, o_xmin bigint, o_next_xid bigint,
    o_definitions_version bigint, o_schedules_due timestamptz,
    o_waiting boolean, o_listeners bigint, o_asleep boolean
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_trimmed_to bigint;
    v_now pg_catalog.timestamptz := coalesce(p_now, clock_timestamp());
    v_lapsed pg_catalog.timestamptz := greatest(p_leases_after, v_now - interval '30 seconds');
    -- One that passes later than this is told of by a later pulse: the index may be full of what is over before it passes.
    v_ahead pg_catalog.timestamptz := v_now + interval '3 seconds';
BEGIN
    SELECT t.o_seq, t.o_trimmed_to INTO o_last, v_trimmed_to FROM "ensue".log_tail(p_hint) t;
    SELECT e.id_part, e.recorded_at INTO o_id_part, o_recorded_at
    FROM "ensue".stored_events e WHERE e.seq = o_last AND e.seq > v_trimmed_to;
    SELECT w.not_before INTO o_next_due
    FROM "ensue".delayed w WHERE w.seq IS NULL ORDER BY w.not_before, w.accepted LIMIT 1;
    o_waiting := "ensue".outbox_waits();
    SELECT s.version INTO o_rules_version FROM "ensue".rules_state s;
    SELECT s.version INTO o_definitions_version FROM "ensue".definitions_state s;
    -- A sequence that was never asked shows the number that it will give first.
    SELECT CASE WHEN n.is_called THEN n.last_value ELSE 0 END INTO o_jobs_sent FROM "ensue".job_numbers n;
    -- In a statement of its own, with a snapshot from after that. Its xmax would not do: that is the one after the last that has ended, and
    -- transactions that began later may be under way. An age is counted from the next that will begin.
    SELECT x.oldest::text::bigint, x.oldest::text::bigint + age(x.oldest::xid) INTO o_xmin, o_next_xid
    FROM pg_snapshot_xmin(pg_current_snapshot()) x(oldest);
    o_jobs_due := least(
        (SELECT j.not_before FROM "ensue".jobs j WHERE j.state IN ('scheduled', 'retrying')
         ORDER BY j.not_before, j.number LIMIT 1),
        -- One that passed long ago is found by who looks at all of them now and then; the index may be full of what is over.
        (SELECT j.lease_until FROM "ensue".jobs j
         WHERE j.state = 'running' AND j.lease_until > v_lapsed AND j.lease_until <= v_ahead
         ORDER BY j.lease_until, j.number LIMIT 1));
    o_schedules_due := "ensue".schedules_next(p_schedules, p_from, p_from_name);
    IF p_bells THEN
        SELECT count(*) FILTER (WHERE l.mode = 'ShareLock' AND l.key = -7765208632505794410),
            coalesce(bool_or(l.mode = 'ExclusiveLock' AND l.key = 6921643701205228211), false)
        INTO o_listeners, o_asleep
        FROM (
            SELECT a.mode, (a.classid::bigint << 32) | a.objid::bigint AS key FROM pg_locks a
            WHERE a.locktype = 'advisory' AND a.objsubid = 1 AND a.granted
                AND a.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        ) l;
    END IF;
    IF p_member IS NOT NULL THEN
        FOR o_version, o_id, o_name, o_kind IN
            SELECT r.o_version, r.o_id, r.o_name, r.o_kind FROM "ensue".member_renew(p_now, p_member, p_lease) r
        LOOP
            o_now := coalesce(p_now, clock_timestamp());
            RETURN NEXT;
        END LOOP;
    END IF;
    IF o_now IS NULL THEN
        o_now := coalesce(p_now, clock_timestamp());
        RETURN NEXT;
    END IF;
END
$body$;

-- Which of the 1,024 locks of lanes and keys is this one's? p_what is `o` and an object, or `k` and a unique_key.
CREATE OR REPLACE FUNCTION "ensue".job_bucket(p_handler text, p_what text) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
    SELECT (hashtextextended(p_what, hashtextextended(p_handler, 0)) & 1023)::int
$body$;

-- Locks these lanes and unique keys until the end of the transaction. In order, so that two calls do
-- not wait for each other; one lock for many lanes, so that a large call does not fill the server's
-- table of locks.
--
-- The locks are advisory, so any login can take them. Locks of rows, which need a right, took 0.6 ms
-- more for a call with 400 objects (0.6 to 0.7 ms with these). So a wait is bounded, by the session's
-- lock_timeout or by 30000ms, and its error names the holder.
CREATE OR REPLACE FUNCTION "ensue".jobs_lock(p_buckets int[]) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_is_unbounded boolean := current_setting('lock_timeout') = '0';
BEGIN
    IF v_is_unbounded THEN
        PERFORM set_config('lock_timeout', '30000ms', true);
    END IF;
    PERFORM pg_advisory_xact_lock(378607112, b.bucket)
    FROM (SELECT DISTINCT x.bucket FROM unnest(p_buckets) x(bucket) ORDER BY x.bucket) b;
    IF v_is_unbounded THEN
        PERFORM set_config('lock_timeout', '0', true);
    END IF;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION 'the lock of a lane is held by %', coalesce((
            SELECT string_agg(DISTINCT format('pid %s (user %s)', l.pid, coalesce(a.usename, '?')), ', ')
            FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
            WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted AND l.pid <> pg_backend_pid()
                AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                AND l.classid::bigint = 378607112::bigint & 4294967295
                AND l.objid::bigint = ANY (p_buckets)), 'a session that has ended')
        USING ERRCODE = 'lock_not_available',
            HINT = 'Try again; end that session with pg_terminate_backend if it keeps the lock.';
END
$body$;

-- Are the jobs of this handler the tasks of a collection? As `tasks::Collection::of_handler`: letters are told by what they are not, as a
-- database of the locale C knows few of them.
CREATE OR REPLACE FUNCTION "ensue".is_task(p_handler text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
    SELECT p_handler ~ '^task[.][^.:/@+~=$]+[.][^.:/@+~=$]+$' AND octet_length(split_part(p_handler, '.', 2)) <= 100
        AND octet_length(split_part(p_handler, '.', 3)) <= 100
$body$;

-- The newest errors with one more.
CREATE OR REPLACE FUNCTION "ensue".job_kept(p_all anyarray, p_one anyelement) RETURNS anyarray
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
    SELECT (array_append(p_all, p_one))[greatest(coalesce(cardinality(p_all), 0) + 2 - 20, 1):]
$body$;

-- Does a rule hold this object at this time?
CREATE OR REPLACE FUNCTION "ensue".object_is_held(p_object text, p_now timestamptz) RETURNS boolean
LANGUAGE sql STABLE
AS $body$
    SELECT EXISTS (SELECT 1 FROM "ensue".rules r
        WHERE r.scope = 'object:' || p_object AND (r.expires_at IS NULL OR r.expires_at > p_now))
$body$;

-- Jobs have become available that are not new: other processes hear of it as they hear of new ones, by the numbers that
-- were given out.
CREATE OR REPLACE FUNCTION "ensue".jobs_ring() RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM nextval(format('%I.job_numbers', 'ensue')::regclass);
END
$body$;

-- Where these jobs stand in the order in which they are taken, as far as they may be.
CREATE OR REPLACE FUNCTION "ensue".jobs_ready(
    p_numbers bigint[], OUT o_handlers text[], OUT o_ranks bigint[], OUT o_turns bigint[]
) LANGUAGE sql VOLATILE
AS $body$
    SELECT array_agg(j.handler), array_agg(j.rank), array_agg(j.turn)
    FROM "ensue".jobs j WHERE j.number = ANY (p_numbers) AND coalesce(j.state, '') = 'available'
$body$;

-- Makes sure that the next job of each of these lanes, and only that one, may run: `jobs::lane::turn`, carried out. The
-- caller has the locks of the lanes and of the rules. Answers which jobs became available.
--
-- What is available may be claimed at this moment: it is locked first, and looked at again once that is decided.
CREATE OR REPLACE FUNCTION "ensue".jobs_turn(p_now timestamptz, p_handlers text[], p_objects text[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
DECLARE
    v_freed bigint[];
    v_parked bigint[];
BEGIN
    PERFORM 1 FROM "ensue".jobs j
    JOIN (SELECT DISTINCT x.handler, x.object FROM unnest(p_handlers, p_objects) x(handler, object)) l
        ON j.handler = l.handler AND j.object = l.object
    WHERE j.ordered AND j.object IS NOT NULL AND j.state = 'available'
    ORDER BY j.number FOR UPDATE OF j;
    SELECT array_agg(t.next) FILTER (WHERE t.next IS DISTINCT FROM t.ready),
        array_agg(t.ready) FILTER (WHERE t.ready IS DISTINCT FROM t.next)
    INTO v_freed, v_parked
    FROM (
        SELECT CASE WHEN f.state IN ('parked', 'available') AND a.state IS DISTINCT FROM 'running'
                AND NOT "ensue".object_is_held(l.object, p_now) THEN f.number END AS next,
            CASE WHEN a.state = 'available' THEN a.number END AS ready
        FROM (SELECT DISTINCT x.handler, x.object FROM unnest(p_handlers, p_objects) x(handler, object)) l
        LEFT JOIN LATERAL (
            SELECT j.number, j.state FROM "ensue".jobs j
            WHERE j.handler = l.handler AND j.object = l.object
                AND j.ordered AND j.object IS NOT NULL AND j.turn IS NOT NULL
            ORDER BY j.turn LIMIT 1
        ) f ON true
        LEFT JOIN LATERAL (
            SELECT j.number, j.state FROM "ensue".jobs j
            WHERE j.handler = l.handler AND j.object = l.object
                AND j.ordered AND j.object IS NOT NULL AND j.state IN ('available', 'running')
            LIMIT 1
        ) a ON true
    ) t;
    v_freed := array_remove(v_freed, NULL);
    v_parked := array_remove(v_parked, NULL);
    -- In this order: at most one of a lane is in the index of those that may run.
    IF cardinality(v_parked) > 0 THEN
        UPDATE "ensue".jobs j SET state = 'parked' WHERE j.number = ANY (v_parked);
    END IF;
    IF cardinality(v_freed) > 0 THEN
        UPDATE "ensue".jobs j SET state = 'available' WHERE j.number = ANY (v_freed);
    END IF;
    RETURN v_freed;
END
$body$;

-- Lets jobs go on that were written as parked because they have an object: those of a lane in their turn, the others unless
-- a rule holds their object. Answers which jobs became available.
CREATE OR REPLACE FUNCTION "ensue".jobs_go_on(
    p_now timestamptz, p_loose bigint[], p_handlers text[], p_objects text[]
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_ready bigint[];
BEGIN
    IF p_loose IS NOT NULL THEN
        WITH let_go AS (
            UPDATE "ensue".jobs j SET state = 'available'
            WHERE j.number = ANY (p_loose) AND NOT "ensue".object_is_held(j.object, p_now)
            RETURNING j.number
        )
        SELECT array_agg(l.number) INTO v_ready FROM let_go l;
    END IF;
    IF p_handlers IS NOT NULL THEN
        v_ready := v_ready || "ensue".jobs_turn(p_now, p_handlers, p_objects);
    END IF;
    RETURN v_ready;
END
$body$;

-- A rule on an object has come or gone: what waits of it is held or let go, in every handler. The caller has the lock of the
-- rules alone, and so every lane.
CREATE OR REPLACE FUNCTION "ensue".jobs_turn_object(p_now timestamptz, p_object text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_handlers pg_catalog.text[];
BEGIN
    IF "ensue".object_is_held(p_object, p_now) THEN
        UPDATE "ensue".jobs j SET state = 'parked' WHERE j.object || '' = p_object AND j.object IS NOT NULL AND coalesce(j.state, '') = 'available';
        RETURN;
    END IF;
    UPDATE "ensue".jobs j SET state = 'available' WHERE j.object = p_object AND j.state = 'parked' AND NOT j.ordered;
    v_handlers := ARRAY(
        SELECT DISTINCT j.handler FROM "ensue".jobs j WHERE j.object = p_object AND j.state = 'parked' AND j.ordered);
    PERFORM "ensue".jobs_turn(p_now, v_handlers, array_fill(p_object, ARRAY[cardinality(v_handlers)]));
END
$body$;

-- Makes jobs, in order; one whose handler has a live job with its key is not made again. The caller has the locks of the
-- lanes and keys, and that of the rules if there are objects.
--
-- Arrays are parallel; one is null when all its elements would be, or would be the default. Answers are parallel to them;
-- no o_new means that all are new.
--   p_wanted   null, or which of them are to be made: of the others nothing is said
CREATE OR REPLACE FUNCTION "ensue".jobs_insert(
    p_now timestamptz, p_wanted boolean[],
    p_chances int[], p_handlers text[], p_objects text[], p_ordered boolean[], p_payloads text[], p_metadata text[],
    p_ranks bigint[], p_not_before timestamptz[], p_keys text[], p_attempts_max int[], p_exhausted text[],
    p_event_seqs bigint[], p_event_prevs bigint[], p_event_ids uuid[], p_event_topics text[],
    OUT o_numbers bigint[], OUT o_stamps bigint[], OUT o_new boolean[], OUT o_states text[]
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_sequence pg_catalog.regclass := format('%I.job_numbers', 'ensue')::regclass;
    v_base bigint := floor(extract(epoch FROM p_now) * 1000)::bigint << 12;
    v_there bigint[];
    v_first int[]; -- the first of the call with the same key
    v_numbers bigint[]; -- of those that are made
    v_handlers pg_catalog.text[];
    v_objects pg_catalog.text[];
BEGIN
    -- Before the first number is drawn: who hears of the number knows then which transactions it may have to wait for.
    PERFORM pg_current_xact_id();
    IF p_wanted IS NULL AND p_objects IS NULL AND p_keys IS NULL THEN
        o_numbers := ARRAY(SELECT nextval(v_sequence) FROM generate_series(1, cardinality(p_payloads)));
        INSERT INTO "ensue".jobs (number, stamp, rank, turn, enqueued_at, not_before, event_seq, event_prev, event_id,
            attempts_max, ordered, state, on_exhausted, handler, event_topic, payload, metadata)
        SELECT b.number, v_base + b.chance, b.rank, CASE WHEN b.not_before > p_now THEN NULL ELSE b.number END,
            p_now, b.not_before, b.event_seq, b.event_prev, b.event_id, b.attempts_max, coalesce(b.ordered, true),
            CASE WHEN b.not_before > p_now THEN 'scheduled' ELSE 'available' END, coalesce(b.exhausted, 'hold'),
            b.handler, b.event_topic, b.payload, b.metadata
        FROM unnest(o_numbers, p_chances, p_handlers, p_ordered, p_payloads, p_metadata, p_ranks, p_not_before,
                    p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics)
            b(number, chance, handler, ordered, payload, metadata, rank, not_before, attempts_max, exhausted, event_seq,
              event_prev, event_id, event_topic);
        -- Not by RETURNING, and said a second time: what is returned of each row costs the server a tenth of all that it does for a job.
        o_states := ARRAY(
            SELECT CASE WHEN b.not_before > p_now THEN 'scheduled' ELSE 'available' END
            FROM unnest(o_numbers, p_not_before) b(number, not_before));
        o_stamps := ARRAY(SELECT v_base + b.chance FROM unnest(p_chances) b(chance));
        RETURN;
    END IF;

    IF p_objects IS NOT NULL THEN
        -- What was sent to these lanes in somebody's transaction comes before what is sent now.
        PERFORM "ensue".jobs_place(p_now, p_handlers, p_objects);
    END IF;
    SELECT array_agg(k.there ORDER BY k.n), array_agg(k.first ORDER BY k.n) INTO v_there, v_first
    FROM (
        SELECT b.n, CASE WHEN b.key IS NOT NULL THEN (
                SELECT j.number FROM "ensue".jobs j
                WHERE j.handler = b.handler AND j.unique_key = b.key AND j.unique_key IS NOT NULL AND j.finished_at IS NULL
            ) END AS there,
            CASE WHEN NOT coalesce(b.wanted, true) THEN NULL WHEN b.key IS NULL THEN b.n
                ELSE min(b.n) FILTER (WHERE coalesce(b.wanted, true)) OVER (PARTITION BY b.handler, b.key) END AS first
        FROM unnest(p_handlers, p_keys, p_wanted) WITH ORDINALITY b(handler, key, wanted, n)
    ) k;
    v_numbers := ARRAY(
        SELECT CASE WHEN b.there IS NULL AND b.first = b.n THEN nextval(v_sequence) END
        FROM unnest(v_there, v_first) WITH ORDINALITY b(there, first, n));
    INSERT INTO "ensue".jobs (number, stamp, rank, turn, enqueued_at, not_before, event_seq, event_prev, event_id,
        attempts_max, ordered, state, on_exhausted, handler, object, unique_key, event_topic, payload, metadata)
    SELECT b.number, v_base + b.chance, b.rank, CASE WHEN b.not_before > p_now THEN NULL ELSE b.number END,
        p_now, b.not_before, b.event_seq, b.event_prev, b.event_id, b.attempts_max, coalesce(b.ordered, true),
        CASE WHEN b.not_before > p_now THEN 'scheduled'
            WHEN b.object IS NULL THEN 'available'
            WHEN coalesce(b.ordered, true) OR "ensue".object_is_held(b.object, p_now) THEN 'parked'
            ELSE 'available' END,
        coalesce(b.exhausted, 'hold'), b.handler, b.object, b.key, b.event_topic, b.payload, b.metadata
    FROM unnest(v_numbers, p_chances, p_handlers, p_objects, p_ordered, p_payloads, p_metadata, p_ranks, p_not_before,
                p_keys, p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics)
        b(number, chance, handler, object, ordered, payload, metadata, rank, not_before, key, attempts_max, exhausted,
          event_seq, event_prev, event_id, event_topic)
    WHERE b.number IS NOT NULL;
    IF p_objects IS NOT NULL THEN
        SELECT array_agg(b.handler), array_agg(b.object) INTO v_handlers, v_objects
        FROM unnest(v_numbers, p_handlers, p_objects, p_ordered, p_not_before)
            b(number, handler, object, ordered, not_before)
        WHERE b.number IS NOT NULL AND b.object IS NOT NULL AND coalesce(b.ordered, true)
            AND (b.not_before > p_now) IS NOT TRUE;
        IF v_handlers IS NOT NULL THEN
            PERFORM "ensue".jobs_turn(p_now, v_handlers, v_objects);
        END IF;
    END IF;
    SELECT array_agg(j.number ORDER BY b.n), array_agg(j.stamp ORDER BY b.n), array_agg(b.number IS NOT NULL ORDER BY b.n),
        array_agg(j.state ORDER BY b.n)
    INTO o_numbers, o_stamps, o_new, o_states
    FROM unnest(v_numbers, v_there, v_first) WITH ORDINALITY b(number, there, first, n)
    LEFT JOIN "ensue".jobs j ON j.number = coalesce(b.there, v_numbers[b.first]) AND b.first IS NOT NULL;
END
$body$;

-- Was this call carried out before, and its answer lost? Then how its jobs stand now, in their order; null of one that is forgotten. Whoever asks waits until the first to send it has ended, and knows then.
CREATE OR REPLACE FUNCTION "ensue".jobs_sent_before(
    p_call uuid, p_lock bigint, OUT o_found boolean, OUT o_numbers bigint[], OUT o_stamps bigint[], OUT o_new boolean[], OUT o_states text[]
) LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM pg_advisory_xact_lock(p_lock);
    SELECT CASE WHEN t.run IS NULL THEN t.numbers ELSE ARRAY(SELECT generate_series(t.numbers[1], t.numbers[1] + t.run - 1)) END, t.new
    INTO o_numbers, o_new FROM "ensue".job_calls t WHERE t.call = p_call;
    o_found := FOUND;
    IF o_found THEN
        SELECT array_agg(j.stamp ORDER BY b.n), array_agg(j.state ORDER BY b.n) INTO o_stamps, o_states
        FROM unnest(o_numbers) WITH ORDINALITY b(number, n) LEFT JOIN "ensue".jobs j ON j.number = b.number;
        -- It may be on this server alone: see slots_settle.
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
    END IF;
END
$body$;

-- Sends jobs: all of them or none, in one round trip and one commit. p_call is the identity of the call and p_lock a lock of
-- its own: who sends it again waits for the first to end, and is told what was answered then.
CREATE OR REPLACE FUNCTION "ensue".jobs_enqueue(
    p_now timestamptz, p_call uuid, p_lock bigint,
    p_chances int[], p_handlers text[], p_objects text[], p_ordered boolean[], p_payloads text[], p_metadata text[],
    p_ranks bigint[], p_not_before timestamptz[], p_keys text[], p_attempts_max int[], p_exhausted text[],
    p_event_seqs bigint[], p_event_prevs bigint[], p_event_ids uuid[], p_event_topics text[],
    OUT o_numbers bigint[], OUT o_stamps bigint[], OUT o_new boolean[], OUT o_states text[]
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_sent_before boolean;
BEGIN
    SELECT * INTO v_sent_before, o_numbers, o_stamps, o_new, o_states FROM "ensue".jobs_sent_before(p_call, p_lock);
    IF v_sent_before THEN
        RETURN;
    END IF;
    IF p_objects IS NOT NULL OR p_keys IS NOT NULL THEN
        LOCK TABLE "ensue".rules_lock IN ROW SHARE MODE;
        PERFORM "ensue".jobs_lock(ARRAY(
            SELECT "ensue".job_bucket(b.handler, 'o' || b.object) FROM unnest(p_handlers, p_objects) b(handler, object)
            WHERE b.object IS NOT NULL
            UNION SELECT "ensue".job_bucket(b.handler, 'k' || b.key) FROM unnest(p_handlers, p_keys) b(handler, key)
            WHERE b.key IS NOT NULL));
    END IF;
    SELECT * INTO o_numbers, o_stamps, o_new, o_states FROM "ensue".jobs_insert(
        coalesce(p_now, clock_timestamp()), NULL, p_chances, p_handlers, p_objects, p_ordered, p_payloads, p_metadata,
        p_ranks, p_not_before, p_keys, p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids,
        p_event_topics);
    INSERT INTO "ensue".job_calls (call, at, numbers, new) VALUES (p_call, clock_timestamp(), o_numbers, o_new);
END
$body$;

-- Sends jobs that differ in nothing but their payloads, as most that are sent together do: the same as jobs_enqueue, for less work. Each array that is walked along costs something for
-- every job, and so does each that is answered (docs/decisions/019).
--
--   p_chance     twelve bits, the same for all of them
--   o_stamp      that of all of them, if they were sent now; then either
--   o_first      the number of the first, where those of the others follow it, or
--   o_numbers    all numbers, where they do not
--   o_stamps …   if they were sent before: how they stand now, null of one that is forgotten
CREATE OR REPLACE FUNCTION "ensue".jobs_send_alike(
    p_now timestamptz, p_call uuid, p_lock bigint, p_chance int, p_handler text, p_rank bigint, p_attempts_max int, p_payloads text[],
    OUT o_stamp bigint, OUT o_first bigint, OUT o_numbers bigint[], OUT o_stamps bigint[], OUT o_states text[]
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_sequence pg_catalog.regclass := format('%I.job_numbers', 'ensue')::regclass;
    v_count int := cardinality(p_payloads);
    v_sent_before boolean;
    v_now pg_catalog.timestamptz;
BEGIN
    SELECT b.o_found, b.o_numbers, b.o_stamps, b.o_states INTO v_sent_before, o_numbers, o_stamps, o_states
    FROM "ensue".jobs_sent_before(p_call, p_lock) b;
    IF v_sent_before THEN
        RETURN;
    END IF;
    v_now := coalesce(p_now, clock_timestamp());
    o_stamp := (floor(extract(epoch FROM v_now) * 1000)::bigint << 12) + p_chance;
    -- Before the first number is drawn: see jobs_insert.
    PERFORM pg_current_xact_id();
    o_numbers := ARRAY(SELECT nextval(v_sequence) FROM generate_series(1, v_count));
    INSERT INTO "ensue".jobs (number, stamp, rank, turn, enqueued_at, attempts_max, ordered, state, on_exhausted, handler, payload)
    SELECT b.number, o_stamp, p_rank, b.number, v_now, p_attempts_max, true, 'available', 'hold', p_handler, b.payload
    FROM (SELECT unnest(o_numbers) AS number, unnest(p_payloads) AS payload) b;
    IF o_numbers[v_count] - o_numbers[1] = v_count - 1 THEN
        o_first := o_numbers[1];
        o_numbers := NULL;
    END IF;
    -- An array of hundreds would be compressed, with every commit.
    INSERT INTO "ensue".job_calls (call, at, numbers, run)
    VALUES (p_call, clock_timestamp(), coalesce(o_numbers, ARRAY[o_first]), CASE WHEN o_first IS NOT NULL THEN v_count END);
END
$body$;

-- Takes available jobs, in one round trip and one commit. A row for each, and one without a job if there is none.
--
-- Whoever changes a rule waits until no claim is under way, and a claim that comes later sees the rule: what the rules say
-- is read after their lock. Rows that somebody else is taking are passed over. So a claim waits for nobody but who changes a rule, and not long: a transaction
-- that has set one and is open would have all of a process's connections wait. A claim finds nothing then, and o_seen is null.
--
--   p_call, p_again   the claim, and whether it is sent again because the answer was lost: then its jobs are answered
--   p_lock            of the claim: who sends it again waits for the first to end. Null for who does not
--   p_caps            how many of each handler at most
--   p_scopes          what a rule that holds a handler is called, and which handler that is, from 1
--   p_workers         who claims: one, or several, who get p_shares of a single handler's jobs, in order; they are p_limit in all
--   p_of …            null, or where to look, in order, each for one handler, from 1: behind a position (rank, turn) up to
--                     the end of p_to_rank, or where there is p_at_turn at that place alone. Under a held snapshot, and until the next vacuum, the index
--                     has an entry for each job that was ever claimed since; what is known to be gone is not looked at. A
--                     scan that ends inside a rank would go on to the end of it: an index stops by its first column only
--   o_seen            the newest number that was given out before the look
--   o_micros          how long the look took
--   o_held            handlers that a rule holds, from 1
--   o_place           where the row of a job is now: who settles it soon need not look for it (fn_jobs_succeed.sql)
--
-- Of a job that is claimed now null stands for what its claim says, and for what is so of most (jobs/unsaid.rs): to answer all of it takes the server a fifth of its time for a claim.
CREATE OR REPLACE FUNCTION "ensue".jobs_fetch(
    p_now timestamptz, p_call uuid, p_lock bigint, p_again boolean, p_handlers text[], p_caps bigint[],
    p_scopes text[], p_scope_of int[], p_limit bigint, p_lease bigint, p_workers text[], p_shares bigint[],
    p_of int[], p_after_rank bigint[], p_after_turn bigint[], p_to_rank bigint[], p_at_turn bigint[]
) RETURNS TABLE (o_seen bigint, o_micros bigint, o_held int[], o_place tid, number bigint, stamp bigint, rank bigint, turn bigint, fence bigint, enqueued_at timestamptz, not_before timestamptz, locked_at timestamptz, started_at timestamptz, finished_at timestamptz, lease_until timestamptz, event_seq bigint, event_prev bigint, event_id uuid, attempts int, attempts_max int, ordered boolean, cancel_asked boolean, redriven boolean, state text, on_exhausted text, handler text, object text, unique_key text, worker text, event_topic text, payload text, metadata text, result text, error_attempts int[], error_times timestamptz[], error_texts text[], settled text) LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = on SET plan_cache_mode = force_generic_plan
AS $body$
#variable_conflict use_column
DECLARE
    v_now pg_catalog.timestamptz;
    v_until pg_catalog.timestamptz;
    v_begun pg_catalog.timestamptz;
    v_count int := cardinality(p_handlers);
    v_caps bigint[] := p_caps;
    v_left bigint[];
    v_taken bigint[];
    v_more bigint[];
    v_from bigint[]; -- the handler of each
    v_pass int := 1;
    v_places pg_catalog.tid[] := '{}';
    v_names pg_catalog.text[]; -- whose each is
    v_wanted bigint;
BEGIN
    IF p_lock IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(p_lock);
    END IF;
    IF p_again THEN
        -- What was claimed is to be answered, however long that takes.
        LOCK TABLE "ensue".rules_lock IN ROW SHARE MODE;
    ELSE
        v_begun := clock_timestamp();
        LOOP
            BEGIN
                LOCK TABLE "ensue".rules_lock IN ROW SHARE MODE NOWAIT;
                EXIT;
            EXCEPTION WHEN lock_not_available THEN
                IF clock_timestamp() >= v_begun + interval '250 milliseconds' THEN
                    RETURN NEXT;
                    RETURN;
                END IF;
                PERFORM pg_sleep(0.005);
            END;
        END LOOP;
    END IF;
    v_now := coalesce(p_now, clock_timestamp());
    v_until := v_now + p_lease * interval '1 microsecond';
    IF p_again THEN
        RETURN QUERY SELECT NULL::bigint, NULL::bigint, NULL::int[], j.ctid, j.number, j.stamp, j.rank, j.turn, j.fence, j.enqueued_at, j.not_before, j.locked_at, j.started_at, j.finished_at, j.lease_until, j.event_seq, j.event_prev, j.event_id, j.attempts, j.attempts_max, j.ordered, j.cancel_asked, j.redriven, j.state, j.on_exhausted, j.handler, j.object, j.unique_key, j.worker, j.event_topic, j.payload, j.metadata, j.result, j.error_attempts, j.error_times, j.error_texts, j.settled FROM "ensue".jobs j
        WHERE j.state = 'running' AND j.call = p_call;
        IF FOUND THEN
            PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
            RETURN;
        END IF;
    END IF;
    SELECT s.last_value INTO o_seen FROM "ensue".job_numbers s;
    v_begun := clock_timestamp();
    IF EXISTS (SELECT 1 FROM "ensue".rules) THEN
        SELECT array_agg(DISTINCT s.of) INTO o_held
        FROM unnest(p_scopes, p_scope_of) s(scope, of)
        JOIN "ensue".rules r ON r.scope = s.scope AND (r.expires_at IS NULL OR r.expires_at > v_now);
        v_caps := ARRAY(SELECT CASE WHEN c.n = ANY (o_held) THEN 0 ELSE c.cap END
                        FROM unnest(v_caps) WITH ORDINALITY c(cap, n));
    END IF;
    IF v_count = 1 THEN
        -- The same without joins, and by the places of the rows. They are locked, so that they stay there.
        v_wanted := least(v_caps[1], p_limit);
        FOR i IN 1 .. coalesce(cardinality(p_of), 1) LOOP
            -- At once, if a rule holds it.
            EXIT WHEN cardinality(v_places) >= v_wanted;
            IF p_of IS NULL THEN
                v_places := ARRAY(
                    SELECT j.ctid FROM "ensue".jobs j WHERE j.state = 'available' AND j.handler = p_handlers[1]
                    ORDER BY j.rank, j.turn LIMIT v_wanted FOR UPDATE SKIP LOCKED);
            ELSIF p_at_turn[i] IS NULL THEN
                v_places := v_places || ARRAY(
                    SELECT j.ctid FROM "ensue".jobs j WHERE j.state = 'available' AND j.handler = p_handlers[1]
                        AND (j.rank, j.turn) > (p_after_rank[i], p_after_turn[i]) AND j.rank <= p_to_rank[i]
                    ORDER BY j.rank, j.turn LIMIT v_wanted - cardinality(v_places) FOR UPDATE SKIP LOCKED);
            ELSE
                v_places := v_places || ARRAY(
                    SELECT j.ctid FROM "ensue".jobs j WHERE j.state = 'available' AND j.handler = p_handlers[1]
                        AND j.rank = p_to_rank[i] AND j.turn = p_at_turn[i] FOR UPDATE SKIP LOCKED);
            END IF;
        END LOOP;
        o_micros := (extract(epoch FROM clock_timestamp() - v_begun) * 1000000)::bigint;
        IF v_places = '{}' THEN
            RETURN NEXT;
            RETURN;
        END IF;
        IF p_shares IS NULL THEN
            RETURN QUERY
            UPDATE "ensue".jobs j
            SET state = 'running', attempts = j.attempts + 1, fence = j.fence + 1, locked_at = v_now,
                started_at = coalesce(j.started_at, v_now), lease_until = v_until,
                worker = p_workers[1], call = p_call
            WHERE j.ctid = ANY (v_places)
            RETURNING o_seen, o_micros, o_held, j.ctid, j.number, j.stamp, j.rank, j.turn, j.fence, j.enqueued_at, j.not_before, j.locked_at, nullif(j.started_at, v_now), j.finished_at, NULL::timestamptz, j.event_seq, j.event_prev, j.event_id, j.attempts, j.attempts_max, nullif(j.ordered, true), nullif(j.cancel_asked, false), nullif(j.redriven, false), NULL::text, nullif(j.on_exhausted, 'hold'), CASE WHEN v_count > 1 THEN j.handler END, j.object, j.unique_key, CASE WHEN p_shares IS NOT NULL THEN j.worker END, j.event_topic, j.payload, j.metadata, j.result, j.error_attempts, j.error_times, j.error_texts, NULL::text;
            RETURN;
        END IF;
        -- A join with names takes longer than one array of places.
        v_names := ARRAY(
            SELECT w.name FROM unnest(p_workers, p_shares) WITH ORDINALITY w(name, share, n)
            CROSS JOIN LATERAL generate_series(1, w.share) ORDER BY w.n LIMIT cardinality(v_places));
        RETURN QUERY
        UPDATE "ensue".jobs j
        SET state = 'running', attempts = j.attempts + 1, fence = j.fence + 1, locked_at = v_now,
            started_at = coalesce(j.started_at, v_now), lease_until = v_until,
            worker = c.name, call = p_call
        FROM (SELECT unnest(v_places) AS place, unnest(v_names) AS name) c
        WHERE j.ctid = c.place
        RETURNING o_seen, o_micros, o_held, j.ctid, j.number, j.stamp, j.rank, j.turn, j.fence, j.enqueued_at, j.not_before, j.locked_at, nullif(j.started_at, v_now), j.finished_at, NULL::timestamptz, j.event_seq, j.event_prev, j.event_id, j.attempts, j.attempts_max, nullif(j.ordered, true), nullif(j.cancel_asked, false), nullif(j.redriven, false), NULL::text, nullif(j.on_exhausted, 'hold'), CASE WHEN v_count > 1 THEN j.handler END, j.object, j.unique_key, CASE WHEN p_shares IS NOT NULL THEN j.worker END, j.event_topic, j.payload, j.metadata, j.result, j.error_attempts, j.error_times, j.error_texts, NULL::text;
        RETURN;
    END IF;
    v_left := v_caps;
    WHILE v_pass < 3 LOOP
        -- Of several handlers, first how many of each are among the first: no more than these are locked. If somebody else
        -- is taking some of them, whatever else there is.
        IF v_count > 1 AND v_pass = 1 THEN
            SELECT array_agg(w.count ORDER BY w.n) INTO v_caps FROM (
                SELECT h.n, count(f.n) AS count
                FROM unnest(p_handlers) WITH ORDINALITY h(handler, n)
                LEFT JOIN (
                    SELECT w.n FROM unnest(p_handlers, v_left) WITH ORDINALITY w(handler, cap, n)
                    CROSS JOIN LATERAL (
                        SELECT f.rank, f.turn
                        FROM unnest(coalesce(p_of, ARRAY[w.n::int]), p_after_rank, p_after_turn, p_to_rank, p_at_turn)
                            s(of, after_rank, after_turn, to_rank, at_turn)
                        CROSS JOIN LATERAL (
                            SELECT a.rank, a.turn FROM (
                                SELECT j.rank, j.turn FROM "ensue".jobs j
                                WHERE s.at_turn IS NOT NULL AND j.state = 'available' AND j.handler = w.handler
                                    AND j.rank = s.to_rank AND j.turn = s.at_turn
                            ) a
                            UNION ALL
                            SELECT b.rank, b.turn FROM (
                                SELECT j.rank, j.turn FROM "ensue".jobs j
                                WHERE s.at_turn IS NULL AND j.state = 'available' AND j.handler = w.handler
                                    AND (j.rank, j.turn) > (coalesce(s.after_rank, '-9223372036854775808'::bigint), coalesce(s.after_turn, '-9223372036854775808'::bigint))
                                    AND j.rank <= coalesce(s.to_rank, '9223372036854775807'::bigint)
                                ORDER BY j.rank, j.turn LIMIT least(w.cap, p_limit)
                            ) b
                        ) f
                        WHERE s.of = w.n LIMIT least(w.cap, p_limit)
                    ) c
                    WHERE w.cap > 0 ORDER BY c.rank, c.turn LIMIT p_limit
                ) f ON f.n = h.n
                GROUP BY h.n
            ) w;
        END IF;
        SELECT array_agg(t.number), array_agg(t.n) INTO v_more, v_from FROM (
            SELECT c.number, w.n FROM unnest(p_handlers, v_caps) WITH ORDINALITY w(handler, cap, n)
            CROSS JOIN LATERAL (
                SELECT f.number, f.rank, f.turn
                FROM unnest(coalesce(p_of, ARRAY[w.n::int]), p_after_rank, p_after_turn, p_to_rank, p_at_turn)
                    s(of, after_rank, after_turn, to_rank, at_turn)
                CROSS JOIN LATERAL (
                    SELECT a.number, a.rank, a.turn FROM (
                        SELECT j.number, j.rank, j.turn FROM "ensue".jobs j
                        WHERE s.at_turn IS NOT NULL AND j.state = 'available' AND j.handler = w.handler
                            AND j.rank = s.to_rank AND j.turn = s.at_turn
                        FOR UPDATE SKIP LOCKED
                    ) a
                    UNION ALL
                    SELECT b.number, b.rank, b.turn FROM (
                        SELECT j.number, j.rank, j.turn FROM "ensue".jobs j
                        WHERE s.at_turn IS NULL AND j.state = 'available' AND j.handler = w.handler
                            AND (j.rank, j.turn) > (coalesce(s.after_rank, '-9223372036854775808'::bigint), coalesce(s.after_turn, '-9223372036854775808'::bigint))
                            AND j.rank <= coalesce(s.to_rank, '9223372036854775807'::bigint)
                        ORDER BY j.rank, j.turn FOR UPDATE SKIP LOCKED
                    ) b
                ) f
                WHERE s.of = w.n LIMIT least(w.cap, p_limit - coalesce(cardinality(v_taken), 0))
            ) c
            WHERE w.cap > 0 ORDER BY c.rank, c.turn LIMIT p_limit - coalesce(cardinality(v_taken), 0)
        ) t;
        v_taken := v_taken || v_more;
        EXIT WHEN v_count = 1 OR v_pass = 2 OR coalesce(cardinality(v_taken), 0) >= p_limit;
        v_left := ARRAY(SELECT l.cap - (SELECT count(*) FROM unnest(v_from) t(n) WHERE t.n = l.n)
                        FROM unnest(v_left) WITH ORDINALITY l(cap, n));
        v_caps := v_left;
        v_pass := 2;
    END LOOP;
    o_micros := (extract(epoch FROM clock_timestamp() - v_begun) * 1000000)::bigint;
    IF v_taken IS NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    RETURN QUERY
    UPDATE "ensue".jobs j
    SET state = 'running', attempts = j.attempts + 1, fence = j.fence + 1, locked_at = v_now,
        started_at = coalesce(j.started_at, v_now), lease_until = v_until,
        worker = p_workers[1], call = p_call
    WHERE j.number = ANY (v_taken)
    RETURNING o_seen, o_micros, o_held, j.ctid, j.number, j.stamp, j.rank, j.turn, j.fence, j.enqueued_at, j.not_before, j.locked_at, nullif(j.started_at, v_now), j.finished_at, NULL::timestamptz, j.event_seq, j.event_prev, j.event_id, j.attempts, j.attempts_max, nullif(j.ordered, true), nullif(j.cancel_asked, false), nullif(j.redriven, false), NULL::text, nullif(j.on_exhausted, 'hold'), CASE WHEN v_count > 1 THEN j.handler END, j.object, j.unique_key, CASE WHEN p_shares IS NOT NULL THEN j.worker END, j.event_topic, j.payload, j.metadata, j.result, j.error_attempts, j.error_times, j.error_texts, NULL::text;
END
$body$;

-- The same as jobs_fetch with all that there is to say of a job, for programs that know versions 17 and 18. A row without a job has no number.
CREATE OR REPLACE FUNCTION "ensue".jobs_take(
    p_now timestamptz, p_call uuid, p_again boolean, p_handlers text[], p_caps bigint[],
    p_scopes text[], p_scope_of int[], p_limit bigint, p_lease bigint, p_worker text,
    p_of int[], p_after_rank bigint[], p_after_turn bigint[], p_to_rank bigint[], p_at_turn bigint[]
) RETURNS TABLE (o_seen bigint, o_micros bigint, o_held int[], o_place tid, number bigint, stamp bigint, rank bigint, turn bigint, fence bigint, enqueued_at timestamptz, not_before timestamptz, locked_at timestamptz, started_at timestamptz, finished_at timestamptz, lease_until timestamptz, event_seq bigint, event_prev bigint, event_id uuid, attempts int, attempts_max int, ordered boolean, cancel_asked boolean, redriven boolean, state text, on_exhausted text, handler text, object text, unique_key text, worker text, event_topic text, payload text, metadata text, result text, error_attempts int[], error_times timestamptz[], error_texts text[], settled text) LANGUAGE plpgsql VOLATILE
AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT j.o_seen, j.o_micros, j.o_held, j.o_place, j.number, j.stamp, j.rank, j.turn, j.fence, j.enqueued_at, j.not_before, j.locked_at, coalesce(j.started_at, j.locked_at), j.finished_at, coalesce(j.lease_until, j.locked_at + p_lease * interval '1 microsecond'), j.event_seq, j.event_prev, j.event_id, j.attempts, j.attempts_max, coalesce(j.ordered, true), coalesce(j.cancel_asked, false), coalesce(j.redriven, false), coalesce(j.state, 'running'), coalesce(j.on_exhausted, 'hold'), coalesce(j.handler, p_handlers[1]), j.object, j.unique_key, coalesce(j.worker, p_worker), j.event_topic, j.payload, j.metadata, j.result, j.error_attempts, j.error_times, j.error_texts, coalesce(j.settled, NULL::text)
    FROM "ensue".jobs_fetch(p_now, p_call, NULL, p_again, p_handlers, p_caps, p_scopes, p_scope_of, p_limit, p_lease, ARRAY[p_worker], NULL,
        p_of, p_after_rank, p_after_turn, p_to_rank, p_at_turn) j;
END
$body$;

-- The same without places, for programs that know versions up to 16, and for `claim_jobs`.
CREATE OR REPLACE FUNCTION "ensue".jobs_claim(
    p_now timestamptz, p_call uuid, p_again boolean, p_handlers text[], p_caps bigint[],
    p_scopes text[], p_scope_of int[], p_limit bigint, p_lease bigint, p_worker text,
    p_of int[], p_after_rank bigint[], p_after_turn bigint[], p_to_rank bigint[], p_at_turn bigint[]
) RETURNS TABLE (o_seen bigint, o_micros bigint, o_held int[], number bigint, stamp bigint, rank bigint, turn bigint, fence bigint, enqueued_at timestamptz, not_before timestamptz, locked_at timestamptz, started_at timestamptz, finished_at timestamptz, lease_until timestamptz, event_seq bigint, event_prev bigint, event_id uuid, attempts int, attempts_max int, ordered boolean, cancel_asked boolean, redriven boolean, state text, on_exhausted text, handler text, object text, unique_key text, worker text, event_topic text, payload text, metadata text, result text, error_attempts int[], error_times timestamptz[], error_texts text[], settled text) LANGUAGE plpgsql VOLATILE
AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT j.o_seen, j.o_micros, j.o_held, j.number, j.stamp, j.rank, j.turn, j.fence, j.enqueued_at, j.not_before, j.locked_at, coalesce(j.started_at, j.locked_at), j.finished_at, coalesce(j.lease_until, j.locked_at + p_lease * interval '1 microsecond'), j.event_seq, j.event_prev, j.event_id, j.attempts, j.attempts_max, coalesce(j.ordered, true), coalesce(j.cancel_asked, false), coalesce(j.redriven, false), coalesce(j.state, 'running'), coalesce(j.on_exhausted, 'hold'), coalesce(j.handler, p_handlers[1]), j.object, j.unique_key, coalesce(j.worker, p_worker), j.event_topic, j.payload, j.metadata, j.result, j.error_attempts, j.error_times, j.error_texts, coalesce(j.settled, NULL::text)
    FROM "ensue".jobs_fetch(p_now, p_call, NULL, p_again, p_handlers, p_caps, p_scopes, p_scope_of, p_limit, p_lease, ARRAY[p_worker], NULL,
        p_of, p_after_rank, p_after_turn, p_to_rank, p_at_turn) j;
END
$body$;

-- Renews claims for p_lease microseconds. A row for each that is still held: its place in the arrays, from 1, the end of the
-- lease, and whether its worker is to stop.
CREATE OR REPLACE FUNCTION "ensue".jobs_renew(
    p_now timestamptz, p_lease bigint, p_numbers bigint[], p_stamps bigint[], p_fences bigint[]
) RETURNS TABLE (o_n bigint, o_lease_until timestamptz, o_cancel boolean) LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
BEGIN
    PERFORM 1 FROM "ensue".jobs j WHERE j.number = ANY (p_numbers)
    ORDER BY j.ordered AND j.object IS NOT NULL, j.number FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    UPDATE "ensue".jobs j SET lease_until = v_now + p_lease * interval '1 microsecond'
    FROM unnest(p_numbers, p_stamps, p_fences) c(number, stamp, fence)
    WHERE j.number = c.number AND j.stamp = c.stamp AND j.fence = c.fence AND coalesce(j.state, '') = 'running';
    RETURN QUERY
    SELECT c.n, j.lease_until, j.cancel_asked
    FROM unnest(p_numbers, p_stamps, p_fences) WITH ORDINALITY c(number, stamp, fence, n)
    JOIN "ensue".jobs j ON j.number = c.number AND j.stamp = c.stamp AND j.fence = c.fence AND coalesce(j.state, '') = 'running';
END
$body$;

-- Writes what jobs said, in order: p_numbers tells whose each line is; nobody's is not written. The caller has locked the
-- jobs. Of all that a job says the first are kept. The last line of each job is looked for once, and in the index: a table that was
-- empty when the plan was made is read through otherwise, once for each line.
CREATE OR REPLACE FUNCTION "ensue".jobs_say(
    p_numbers bigint[], p_attempts int[], p_at timestamptz[], p_levels text[], p_messages text[]
) RETURNS void LANGUAGE sql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off
AS $body$
    WITH there AS MATERIALIZED (
        SELECT d.number, coalesce((
            SELECT x.line FROM "ensue".job_lines x WHERE x.number = d.number ORDER BY x.line DESC LIMIT 1), 0) AS last
        FROM (SELECT DISTINCT n.number FROM unnest(p_numbers) n(number) WHERE n.number IS NOT NULL) d
    )
    INSERT INTO "ensue".job_lines (number, line, attempt, at, level, message)
    SELECT * FROM (
        SELECT l.number, row_number() OVER (PARTITION BY l.number ORDER BY l.n) + t.last AS line, l.attempt, l.at, l.level, l.message
        FROM unnest(p_numbers, p_attempts, p_at, p_levels, p_messages) WITH ORDINALITY l(number, attempt, at, level, message, n)
        JOIN there t ON t.number = l.number
    ) l
    WHERE l.line <= 10000
$body$;

-- Writes what a running job says; false if nobody runs it under this fence. What is sent again was said once.
CREATE OR REPLACE FUNCTION "ensue".job_say(
    p_call uuid, p_lock bigint, p_number bigint, p_stamp bigint, p_fence bigint,
    p_attempts int[], p_at timestamptz[], p_levels text[], p_messages text[]
) RETURNS boolean LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM pg_advisory_xact_lock(p_lock);
    IF EXISTS (SELECT 1 FROM "ensue".job_calls t WHERE t.call = p_call) THEN
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
        RETURN true;
    END IF;
    PERFORM 1 FROM "ensue".jobs j
    WHERE j.number = p_number AND j.stamp = p_stamp AND j.fence = p_fence AND coalesce(j.state, '') = 'running' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF cardinality(p_attempts) > 0 THEN
        PERFORM "ensue".jobs_say(
            array_fill(p_number, ARRAY[cardinality(p_attempts)]), p_attempts, p_at, p_levels, p_messages);
        INSERT INTO "ensue".job_calls (call, at) VALUES (p_call, clock_timestamp());
    END IF;
    RETURN true;
END
$body$;

-- Jobs that have only succeeded, by the places that their claims answered: answers how many of them were there. The common end of an attempt, without
-- a search for each. Who finds fewer than were sent calls jobs_settle with the same call, as if an answer had been lost: those that were found have its mark. A place may be
-- another job's by now, so number, stamp, fence and state are compared; jobs in lanes are not ended here, as others wait for them. The change is that of fn_jobs_settle.sql.
--
-- It waits 50 ms for a row or a rule and no longer, as other callers' successes are in the same commit: then nothing is written (55P03), and each of them calls jobs_settle.
CREATE OR REPLACE FUNCTION "ensue".jobs_succeed(
    p_now timestamptz, p_call uuid, p_places tid[], p_numbers bigint[], p_stamps bigint[], p_fences bigint[]
) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET lock_timeout = '50ms' SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
    v_count bigint;
BEGIN
    LOCK TABLE "ensue".rules_lock IN ROW SHARE MODE;
    v_now := coalesce(p_now, clock_timestamp());
    UPDATE "ensue".jobs j
    SET state = 'succeeded', turn = NULL, finished_at = v_now, lease_until = NULL, cancel_asked = false, call = p_call
    -- Arrays that are walked along in a SELECT are not stored first, one by one, as those in a FROM are.
    FROM (SELECT unnest(p_places) AS place, unnest(p_numbers) AS number, unnest(p_stamps) AS stamp, unnest(p_fences) AS fence) c
    -- With `+ 0` and `coalesce` no index can be asked, and the plan stays at the place.
    WHERE j.ctid = c.place AND j.number + 0 = c.number AND j.stamp = c.stamp AND j.fence = c.fence
        AND coalesce(j.state, '') = 'running' AND NOT (j.ordered AND j.object IS NOT NULL);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$body$;

-- Ends attempts, of jobs that run under these fences; a change without a number is left alone. o_at says which changes were
-- carried out, from 1, and o_states where their jobs stand then; o_ready which jobs became available, o_dead which died.
--
-- Arrays are parallel; one is null when all its elements would be.
--   p_states, p_asked   where it leads, and where if its cancellation was asked for: then it is over in any case
--   p_gives_back        is the attempt given back?
--   p_lapsed            does it hold only if the lease has passed? Who has renewed it meanwhile keeps the job
--   p_laned             null, or whether only those of lanes are ended, or only the others

CREATE OR REPLACE FUNCTION "ensue".jobs_end(
    p_now timestamptz, p_call uuid, p_laned boolean,
    p_numbers bigint[], p_stamps bigint[], p_fences bigint[], p_states text[], p_asked text[], p_gives_back boolean[],
    p_lapsed boolean[], p_not_before timestamptz[], p_errors text[], p_results text[],
    OUT o_at int[], OUT o_states text[], OUT o_ready bigint[], OUT o_dead bigint[]
) LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_loose bigint[]; -- given back, with an object and without a lane
    v_handlers pg_catalog.text[];
    v_objects pg_catalog.text[];
    v_dead_handlers pg_catalog.text[]; -- of lanes whose waiting jobs die too
    v_dead_objects pg_catalog.text[];
    v_dead_errors pg_catalog.text[];
BEGIN
    WITH ended AS (
        UPDATE "ensue".jobs j
        SET state = CASE WHEN j.cancel_asked THEN coalesce(c.asked, c.state)
                WHEN c.state = 'available' AND j.object IS NOT NULL THEN 'parked' ELSE c.state END,
            turn = CASE WHEN NOT (j.cancel_asked OR c.state IN ('succeeded', 'dead', 'cancelled'))
                OR c.state = 'dead' AND NOT j.cancel_asked AND j.on_exhausted = 'hold' AND j.ordered AND j.object IS NOT NULL
                THEN j.turn END,
            attempts = j.attempts - coalesce(c.gives_back, false)::int,
            not_before = CASE WHEN j.cancel_asked THEN j.not_before ELSE coalesce(c.not_before, j.not_before) END,
            finished_at = CASE WHEN j.cancel_asked OR c.state IN ('succeeded', 'dead', 'cancelled') THEN p_now END,
            lease_until = NULL, cancel_asked = false, result = c.result, call = p_call,
            settled = CASE WHEN c.lapsed IS TRUE THEN NULL WHEN c.state IN ('retrying', 'dead') THEN 'fail'
                WHEN c.state = 'scheduled' THEN 'snooze' END,
            error_attempts = CASE WHEN c.error IS NULL THEN j.error_attempts
                ELSE "ensue".job_kept(j.error_attempts, j.attempts) END,
            error_times = CASE WHEN c.error IS NULL THEN j.error_times ELSE "ensue".job_kept(j.error_times, p_now) END,
            error_texts = CASE WHEN c.error IS NULL THEN j.error_texts ELSE "ensue".job_kept(j.error_texts, c.error) END
        FROM unnest(p_numbers, p_stamps, p_fences, p_states, p_asked, p_gives_back, p_lapsed, p_not_before, p_errors, p_results)
            WITH ORDINALITY c(number, stamp, fence, state, asked, gives_back, lapsed, not_before, error, result, n)
        WHERE (p_laned IS NULL OR p_laned = (j.ordered AND j.object IS NOT NULL)) AND j.number = c.number AND j.stamp = c.stamp AND j.fence = c.fence AND coalesce(j.state, '') = 'running'
            AND (c.lapsed IS NOT TRUE OR j.lease_until <= p_now)
        RETURNING c.n::int AS n, c.error, j.number, j.handler, j.object, j.ordered AND j.object IS NOT NULL AS laned,
            j.state, j.on_exhausted
    )
    SELECT array_agg(e.n), array_agg(e.state), array_agg(e.number) FILTER (WHERE e.state = 'available'),
        array_agg(e.number) FILTER (WHERE e.state = 'dead'),
        array_agg(e.number) FILTER (WHERE e.state = 'parked' AND NOT e.laned),
        array_agg(e.handler) FILTER (WHERE e.laned), array_agg(e.object) FILTER (WHERE e.laned),
        array_agg(e.handler) FILTER (WHERE e.laned AND e.state = 'dead' AND e.on_exhausted = 'dead_letter_object'),
        array_agg(e.object) FILTER (WHERE e.laned AND e.state = 'dead' AND e.on_exhausted = 'dead_letter_object'),
        array_agg(e.error) FILTER (WHERE e.laned AND e.state = 'dead' AND e.on_exhausted = 'dead_letter_object')
    INTO o_at, o_states, o_ready, o_dead, v_loose, v_handlers, v_objects, v_dead_handlers, v_dead_objects, v_dead_errors
    FROM ended e;
    IF v_dead_handlers IS NOT NULL THEN
        -- A claim may be taking one of them: that one is at work then.
        PERFORM 1 FROM "ensue".jobs j JOIN unnest(v_dead_handlers, v_dead_objects) d(handler, object)
            ON j.handler = d.handler AND j.object = d.object
        WHERE j.ordered AND j.object IS NOT NULL AND j.state = 'available' ORDER BY j.number FOR UPDATE OF j;
        WITH buried AS (
            UPDATE "ensue".jobs j
            SET state = 'dead', turn = NULL, finished_at = p_now, lease_until = NULL,
                error_attempts = "ensue".job_kept(j.error_attempts, j.attempts),
                error_times = "ensue".job_kept(j.error_times, p_now),
                error_texts = "ensue".job_kept(j.error_texts, 'a job before it of its object died: ' || coalesce(d.error, ''))
            FROM unnest(v_dead_handlers, v_dead_objects, v_dead_errors) d(handler, object, error)
            WHERE j.handler = d.handler AND j.object = d.object
                AND j.ordered AND j.object IS NOT NULL AND j.turn IS NOT NULL
                AND j.state IN ('parked', 'scheduled', 'retrying', 'available')
            RETURNING j.number
        )
        SELECT o_dead || array_agg(b.number) INTO o_dead FROM buried b;
    END IF;
    IF v_loose IS NOT NULL OR v_handlers IS NOT NULL THEN
        o_ready := o_ready || "ensue".jobs_go_on(p_now, v_loose, v_handlers, v_objects);
        IF 'parked' = ANY (o_states) THEN
            o_states := ARRAY(
                SELECT j.state FROM unnest(o_at) WITH ORDINALITY a(n, i) JOIN "ensue".jobs j ON j.number = p_numbers[a.n]
                ORDER BY a.i);
        END IF;
    END IF;
END
$body$;

-- Tells of jobs that have died: `jobs::notices::job_ended`, carried out. Answers where the log ends then, if anything was told there: without a hint
-- where it ends it is somebody's own transaction, and goes into the outbox.
CREATE OR REPLACE FUNCTION "ensue".jobs_tell(p_now timestamptz, p_hint bigint, p_dead bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_topics pg_catalog.text[];
    v_payloads pg_catalog.text[];
    v_objects pg_catalog.text[];
    v_all int[];
BEGIN
    SELECT array_agg(d.topic ORDER BY d.number, d.nth), array_agg(d.payload ORDER BY d.number, d.nth),
        array_agg(d.object ORDER BY d.number, d.nth)
    INTO v_topics, v_payloads, v_objects
    FROM (
        SELECT j.number, k.nth, k.topic, j.object, CASE k.nth WHEN 1 THEN json_build_object(
            'job', (lpad(to_hex(j.stamp >> 12), 12, '0') || '7' || lpad(to_hex(j.stamp & 4095), 3, '0')
                || to_hex(j.number | '-9223372036854775808'::bigint))::uuid,
            'handler', j.handler, 'object', j.object, 'attempts', j.attempts,
            'error', coalesce(j.error_texts[cardinality(j.error_texts)], ''), 'event', j.event_seq)
        ELSE json_build_object(
            'handler', j.handler, 'object', j.object, 'event', j.event_seq, 'attempts', j.attempts,
            'error', coalesce(j.error_texts[cardinality(j.error_texts)], '')) END::text AS payload
        FROM "ensue".jobs j CROSS JOIN (VALUES (1, 'ensue.job.dead'), (2, 'ensue.object.held')) k(nth, topic)
        WHERE j.number = ANY (p_dead) AND (k.nth = 1 OR (j.turn IS NOT NULL AND j.event_seq IS NOT NULL))
            AND (j.event_topic = 'ensue' OR starts_with(j.event_topic, 'ensue.')) IS NOT TRUE
    ) d;
    IF v_payloads IS NULL THEN
        RETURN NULL;
    ELSIF p_hint IS NULL THEN
        PERFORM "ensue".outbox_tell(v_topics, v_payloads, v_objects);
        RETURN NULL;
    END IF;
    v_all := ARRAY(SELECT generate_series(1, cardinality(v_payloads)));
    RETURN (SELECT a.o_tail FROM "ensue".settle_append(
        p_now, p_hint, v_all, v_all, 
        -- As ids are stored: their chance without their time.
        ARRAY(SELECT ('0000000000000' || right(replace(gen_random_uuid()::text, '-', ''), 19))::uuid FROM unnest(v_all)),
        v_topics, v_payloads, NULL, NULL, NULL, v_objects, NULL, NULL, NULL) a);
END
$body$;

-- Writes how attempts ended, with what they said, published and sent, in one round trip and one commit. For each change
-- o_states says 'done', 'lost', 'key' or 'invalid'; of all but the first nothing is written. o_job_states says where its job
-- stands, o_ready_… what became available and where. Of who died is told in the log, behind what is published.
--
--   p_hint    where the log ends, about; null in somebody's own transaction, which must not lock the log: then nothing is published with it, and what is told
--             of goes into the outbox
--   p_lock    null if there is nothing but ends: then a call that is sent again finds its mark in the rows. Else a lock of
--             the call's own; what it was answered is kept
--   p_waves   as in slots_settle; null if nothing is published or sent
--   p_steps   is one change to be done after another, because what one sends may be what another frees?
CREATE OR REPLACE FUNCTION "ensue".jobs_settle(
    p_now timestamptz, p_hint bigint, p_call uuid, p_lock bigint, p_again boolean, p_steps boolean,
    p_numbers bigint[], p_stamps bigint[], p_fences bigint[], p_ends text[], p_asked text[], p_gives_back boolean[],
    p_lapsed boolean[], p_not_before timestamptz[], p_errors text[], p_results text[], p_waves int[],
    p_line_changes int[], p_line_attempts int[], p_line_at timestamptz[], p_line_levels text[], p_line_messages text[],
    p_event_changes int[], p_id_parts uuid[], p_topics text[], p_event_payloads text[], p_event_metadata text[],
    p_occurred_at timestamptz[], p_to uuid[], p_event_objects text[], p_event_keys text[], p_fingerprints bytea[],
    p_event_not_before timestamptz[],
    p_job_changes int[],
    p_chances int[], p_handlers text[], p_objects text[], p_ordered boolean[], p_payloads text[], p_metadata text[],
    p_ranks bigint[], p_job_not_before timestamptz[], p_keys text[], p_attempts_max int[], p_exhausted text[],
    p_event_seqs bigint[], p_event_prevs bigint[], p_event_ids uuid[], p_event_topics text[],
    OUT o_states text[], OUT o_reasons text[], OUT o_tail bigint, OUT o_recorded_at timestamptz[], OUT o_seqs bigint[],
    OUT o_prevs bigint[], OUT o_ids uuid[], OUT o_conflicts boolean[],
    OUT o_job_states text[], OUT o_numbers bigint[], OUT o_stamps bigint[], OUT o_new boolean[], OUT o_new_states text[],
    OUT o_ready_handlers text[], OUT o_ready_ranks bigint[], OUT o_ready_turns bigint[]
) LANGUAGE plpgsql VOLATILE
-- Else a plan made for many ends may read the whole table, and answers out of order.
SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
    v_count int := cardinality(p_numbers);
    v_buckets int[];
    v_todo bigint[];
    v_step int := 0;
    v_ended pg_catalog.record;
    v_made pg_catalog.record;
    v_ready bigint[];
    v_dead bigint[];
    v_first int[]; -- what was ended before, and where it led
    v_first_states pg_catalog.text[];
BEGIN
    IF p_lock IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(p_lock);
        SELECT t.states, t.reasons, t.tail, t.recorded_at, t.seqs, t.prevs, t.ids, t.conflicts, t.job_states, t.numbers, t.new
        INTO o_states, o_reasons, o_tail, o_recorded_at, o_seqs, o_prevs, o_ids, o_conflicts, o_job_states, o_numbers, o_new
        FROM "ensue".job_calls t WHERE t.call = p_call;
        IF FOUND THEN
            SELECT array_agg(j.stamp ORDER BY b.n), array_agg(j.state ORDER BY b.n) INTO o_stamps, o_new_states
            FROM unnest(o_numbers) WITH ORDINALITY b(number, n) LEFT JOIN "ensue".jobs j ON j.number = b.number;
            PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
            RETURN;
        END IF;
    END IF;
    LOCK TABLE "ensue".rules_lock IN ROW SHARE MODE;
    IF p_waves IS NULL AND p_line_changes IS NULL THEN
        -- Most are in no lane, and nothing of them can be refused: that is all then.
        v_now := coalesce(p_now, clock_timestamp());
        IF p_asked IS NULL AND p_results IS NULL THEN
            -- And have only succeeded: the same in two thirds of the time. The change is that of fn_jobs_succeed.sql.
            WITH ended AS (
                UPDATE "ensue".jobs j
                SET state = 'succeeded', turn = NULL, finished_at = v_now, lease_until = NULL, cancel_asked = false,
                    call = p_call
                FROM unnest(p_numbers, p_stamps, p_fences) WITH ORDINALITY c(number, stamp, fence, n)
                WHERE j.number = c.number AND j.stamp = c.stamp AND j.fence = c.fence
                    AND coalesce(j.state, '') = 'running' AND NOT (j.ordered AND j.object IS NOT NULL)
                RETURNING c.n
            )
            SELECT array_agg(e.n::int), array_fill('succeeded'::text, ARRAY[count(*)::int]) INTO v_first, v_first_states
            FROM ended e;
        ELSE
            SELECT e.o_at, e.o_states, e.o_ready, e.o_dead INTO v_first, v_first_states, v_ready, v_dead
            FROM "ensue".jobs_end(v_now, p_call, false, p_numbers, p_stamps, p_fences, p_ends, p_asked, p_gives_back,
                p_lapsed, p_not_before, p_errors, p_results) e;
        END IF;
        IF v_first = ARRAY(SELECT generate_series(1, v_count)) THEN
            o_states := array_fill('done'::text, ARRAY[v_count]);
            o_job_states := v_first_states;
            IF v_ready IS NOT NULL THEN
                SELECT * INTO o_ready_handlers, o_ready_ranks, o_ready_turns FROM "ensue".jobs_ready(v_ready);
                PERFORM "ensue".jobs_ring();
            END IF;
            IF v_dead IS NOT NULL THEN
                o_tail := "ensue".jobs_tell(p_now, p_hint, v_dead);
            END IF;
            RETURN;
        END IF;
    ELSE
        PERFORM 1 FROM "ensue".jobs j
        WHERE j.number = ANY (p_numbers) AND NOT (coalesce(j.ordered, false) AND j.object IS NOT NULL)
        ORDER BY j.number FOR UPDATE;
    END IF;
    SELECT array_agg("ensue".job_bucket(j.handler, 'o' || j.object)) INTO v_buckets
    FROM (SELECT x.handler, x.object, x.ordered FROM "ensue".jobs x WHERE x.number = ANY (p_numbers) OFFSET 0) j
    WHERE j.ordered AND j.object IS NOT NULL;
    IF p_objects IS NOT NULL OR p_keys IS NOT NULL THEN
        v_buckets := v_buckets || ARRAY(
            SELECT "ensue".job_bucket(b.handler, 'o' || b.object) FROM unnest(p_handlers, p_objects) b(handler, object)
            WHERE b.object IS NOT NULL
            UNION SELECT "ensue".job_bucket(b.handler, 'k' || b.key) FROM unnest(p_handlers, p_keys) b(handler, key)
            WHERE b.key IS NOT NULL);
    END IF;
    IF v_buckets IS NOT NULL THEN
        PERFORM "ensue".jobs_lock(v_buckets);
    END IF;
    PERFORM 1 FROM "ensue".jobs j WHERE j.number = ANY (p_numbers) ORDER BY j.number FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    o_job_states := array_fill(NULL::text, ARRAY[v_count]);

    IF p_waves IS NULL THEN
        -- Nothing can be refused.
        o_states := array_fill('lost'::text, ARRAY[v_count]);
        FOR i IN 1 .. coalesce(cardinality(v_first), 0) LOOP
            o_states[v_first[i]] := 'done';
            o_job_states[v_first[i]] := v_first_states[i];
        END LOOP;
        v_todo := p_numbers;
    ELSE
        SELECT array_agg(CASE WHEN j.number IS NULL THEN 'lost' ELSE 'done' END ORDER BY c.n) INTO o_states
        FROM unnest(p_numbers, p_stamps, p_fences, p_lapsed) WITH ORDINALITY c(number, stamp, fence, lapsed, n)
        LEFT JOIN "ensue".jobs j
            ON j.number = c.number AND j.stamp = c.stamp AND j.fence = c.fence AND coalesce(j.state, '') = 'running'
            AND (c.lapsed IS NOT TRUE OR j.lease_until <= v_now);
        IF p_event_changes IS NOT NULL THEN
            SELECT * INTO o_states, o_reasons, o_tail, o_recorded_at, o_seqs, o_prevs, o_ids, o_conflicts
            FROM "ensue".settle_events(
                p_now, p_hint, o_states, p_waves, p_event_changes, p_id_parts, p_topics, p_event_payloads,
                p_event_metadata, p_occurred_at, p_to, p_event_objects, p_event_keys, p_fingerprints, p_event_not_before);
        END IF;
        v_todo := ARRAY(
            SELECT CASE WHEN c.state = 'done' AND c.wave <> 0 THEN c.number END
            FROM unnest(p_numbers, o_states, p_waves) WITH ORDINALITY c(number, state, wave, n) ORDER BY c.n);
    END IF;

    LOOP
        v_step := v_step + 1;
        SELECT * INTO v_ended FROM "ensue".jobs_end(
            v_now, p_call, NULL,
            CASE WHEN p_steps THEN ARRAY(
                SELECT CASE WHEN c.n = v_step THEN c.number END FROM unnest(v_todo) WITH ORDINALITY c(number, n) ORDER BY c.n)
            ELSE v_todo END,
            p_stamps, p_fences, p_ends, p_asked, p_gives_back, p_lapsed, p_not_before, p_errors, p_results);
        FOR i IN 1 .. coalesce(cardinality(v_ended.o_at), 0) LOOP
            o_states[v_ended.o_at[i]] := 'done';
            o_job_states[v_ended.o_at[i]] := v_ended.o_states[i];
        END LOOP;
        v_ready := v_ready || v_ended.o_ready;
        v_dead := v_dead || v_ended.o_dead;
        IF p_job_changes IS NOT NULL THEN
            SELECT * INTO v_made FROM "ensue".jobs_insert(
                v_now,
                ARRAY(SELECT v_todo[c.change] IS NOT NULL AND (NOT p_steps OR c.change = v_step)
                      FROM unnest(p_job_changes) WITH ORDINALITY c(change, n) ORDER BY c.n),
                p_chances, p_handlers, p_objects, p_ordered, p_payloads, p_metadata, p_ranks, p_job_not_before, p_keys,
                p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics);
            IF o_numbers IS NULL THEN
                o_numbers := v_made.o_numbers;
                o_stamps := v_made.o_stamps;
                o_new := v_made.o_new;
                o_new_states := v_made.o_states;
            ELSE
                FOR i IN 1 .. cardinality(o_numbers) LOOP
                    CONTINUE WHEN v_made.o_numbers[i] IS NULL;
                    o_numbers[i] := v_made.o_numbers[i];
                    o_stamps[i] := v_made.o_stamps[i];
                    o_new[i] := v_made.o_new[i];
                    o_new_states[i] := v_made.o_states[i];
                END LOOP;
            END IF;
        END IF;
        EXIT WHEN NOT p_steps OR v_step = v_count;
    END LOOP;
    IF p_line_changes IS NOT NULL THEN
        PERFORM "ensue".jobs_say(
            ARRAY(SELECT CASE WHEN o_job_states[c.change] IS NOT NULL THEN p_numbers[c.change] END
                  FROM unnest(p_line_changes) WITH ORDINALITY c(change, n) ORDER BY c.n),
            p_line_attempts, p_line_at, p_line_levels, p_line_messages);
    END IF;
    IF p_again AND p_waves IS NULL AND 'lost' = ANY (o_states) THEN
        -- What the call that was lost has written has its mark.
        SELECT array_agg(CASE WHEN j.number IS NULL THEN c.state ELSE 'done' END ORDER BY c.n),
            array_agg(CASE WHEN c.state = 'lost' THEN j.state ELSE c.job_state END ORDER BY c.n)
        INTO o_states, o_job_states
        FROM unnest(p_numbers, p_stamps, p_fences, o_states, o_job_states)
            WITH ORDINALITY c(number, stamp, fence, state, job_state, n)
        LEFT JOIN "ensue".jobs j
            ON j.number = c.number AND j.stamp = c.stamp AND j.fence = c.fence AND j.call = p_call AND j.state <> 'running';
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
    END IF;
    IF cardinality(v_ready) > 0 THEN
        SELECT * INTO o_ready_handlers, o_ready_ranks, o_ready_turns FROM "ensue".jobs_ready(v_ready);
        PERFORM "ensue".jobs_ring();
    END IF;
    IF v_dead IS NOT NULL THEN
        o_tail := coalesce("ensue".jobs_tell(p_now, greatest(p_hint, o_tail), v_dead), o_tail);
    END IF;
    IF p_lock IS NOT NULL THEN
        INSERT INTO "ensue".job_calls
            (call, at, states, reasons, tail, recorded_at, seqs, prevs, ids, conflicts, job_states, numbers, new)
        VALUES (p_call, clock_timestamp(), o_states, o_reasons, o_tail, o_recorded_at, o_seqs, o_prevs, o_ids, o_conflicts,
            o_job_states, o_numbers, o_new);
    END IF;
END
$body$;

-- Lets up to p_limit jobs go on whose time has come, the earliest first, and finds as many whose lease has passed. A row for
-- each of those, and one without a job if there is none. o_next_due is when to look again: what is told of now not counted.
-- If nothing is due nothing is written and no lock is taken.
--
-- Leases up to p_after are not looked at: under a held snapshot the index has an entry for each job that was ever claimed
-- since. o_now and o_micros say when the look at leases was, and how long it took.
CREATE OR REPLACE FUNCTION "ensue".jobs_wake(p_now timestamptz, p_limit bigint, p_after timestamptz)
RETURNS TABLE (
    o_count bigint, o_next_due timestamptz, o_ready_handlers text[], o_ready_ranks bigint[], o_ready_turns bigint[],
    o_now timestamptz, o_micros bigint, number bigint, stamp bigint, rank bigint, turn bigint, fence bigint, enqueued_at timestamptz, not_before timestamptz, locked_at timestamptz, started_at timestamptz, finished_at timestamptz, lease_until timestamptz, event_seq bigint, event_prev bigint, event_id uuid, attempts int, attempts_max int, ordered boolean, cancel_asked boolean, redriven boolean, state text, on_exhausted text, handler text, object text, unique_key text, worker text, event_topic text, payload text, metadata text, result text, error_attempts int[], error_times timestamptz[], error_texts text[], settled text
) LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
#variable_conflict use_column
DECLARE
    v_sequence pg_catalog.regclass := format('%I.job_numbers', 'ensue')::regclass;
    v_now pg_catalog.timestamptz := coalesce(p_now, clock_timestamp());
    v_due bigint[];
    v_loose bigint[];
    v_handlers pg_catalog.text[];
    v_objects pg_catalog.text[];
    v_ready bigint[];
    v_expired bigint[];
    v_lease_due pg_catalog.timestamptz;
BEGIN
    o_count := 0;
    v_due := ARRAY(
        SELECT j.number FROM "ensue".jobs j WHERE j.state IN ('scheduled', 'retrying') AND j.not_before <= v_now
        ORDER BY j.not_before, j.number LIMIT p_limit);
    IF cardinality(v_due) > 0 THEN
        LOCK TABLE "ensue".rules_lock IN ROW SHARE MODE;
        PERFORM "ensue".jobs_lock(ARRAY(
            SELECT "ensue".job_bucket(j.handler, 'o' || j.object)
            FROM (SELECT x.handler, x.object, x.ordered FROM "ensue".jobs x WHERE x.number = ANY (v_due) OFFSET 0) j
            WHERE j.ordered AND j.object IS NOT NULL));
        -- What somebody is changing is left to the next time.
        v_due := ARRAY(SELECT j.number FROM "ensue".jobs j WHERE j.number = ANY (v_due) FOR UPDATE SKIP LOCKED);
        v_due := ARRAY(
            SELECT j.number FROM "ensue".jobs j
            WHERE j.number = ANY (v_due) AND coalesce(j.state, '') IN ('scheduled', 'retrying') AND j.not_before <= v_now
            ORDER BY j.not_before, j.number);
        o_count := cardinality(v_due);
        -- A number is drawn for each, also where it has a turn: so other processes hear of it.
        WITH woken AS (
            UPDATE "ensue".jobs j
            SET state = CASE WHEN j.object IS NULL THEN 'available' ELSE 'parked' END, turn = coalesce(j.turn, d.turn)
            FROM (SELECT x.number, nextval(v_sequence) AS turn FROM unnest(v_due) x(number)) d
            WHERE j.number = d.number
            RETURNING j.number, j.handler, j.object, j.ordered
        )
        SELECT array_agg(w.number) FILTER (WHERE w.object IS NULL),
            array_agg(w.number) FILTER (WHERE w.object IS NOT NULL AND NOT w.ordered),
            array_agg(w.handler) FILTER (WHERE w.object IS NOT NULL AND w.ordered),
            array_agg(w.object) FILTER (WHERE w.object IS NOT NULL AND w.ordered)
        INTO v_ready, v_loose, v_handlers, v_objects
        FROM woken w;
        v_ready := v_ready || "ensue".jobs_go_on(v_now, v_loose, v_handlers, v_objects);
        SELECT * INTO o_ready_handlers, o_ready_ranks, o_ready_turns FROM "ensue".jobs_ready(v_ready);
    END IF;
    o_now := clock_timestamp();
    v_expired := ARRAY(
        SELECT j.number FROM "ensue".jobs j
        WHERE j.state = 'running' AND j.lease_until <= v_now AND j.lease_until > coalesce(p_after, '-infinity')
        ORDER BY j.lease_until, j.number LIMIT p_limit);
    SELECT j.lease_until INTO v_lease_due FROM "ensue".jobs j
    WHERE j.state = 'running' AND j.lease_until > coalesce(p_after, '-infinity')
        -- Of those that pass later the pulse tells in time.
        AND j.lease_until <= CASE WHEN p_after IS NULL THEN 'infinity' ELSE v_now + interval '10 seconds' END
    ORDER BY j.lease_until, j.number OFFSET cardinality(v_expired) LIMIT 1;
    o_micros := (extract(epoch FROM clock_timestamp() - o_now) * 1000000)::bigint;
    SELECT j.not_before INTO o_next_due FROM "ensue".jobs j WHERE j.state IN ('scheduled', 'retrying')
    ORDER BY j.not_before, j.number LIMIT 1;
    o_now := v_now;
    o_next_due := least(o_next_due, v_lease_due);
    RETURN QUERY
    SELECT o_count, o_next_due, o_ready_handlers, o_ready_ranks, o_ready_turns, o_now, o_micros, j.number, j.stamp, j.rank, j.turn, j.fence, j.enqueued_at, j.not_before, j.locked_at, j.started_at, j.finished_at, j.lease_until, j.event_seq, j.event_prev, j.event_id, j.attempts, j.attempts_max, j.ordered, j.cancel_asked, j.redriven, j.state, j.on_exhausted, j.handler, j.object, j.unique_key, j.worker, j.event_topic, j.payload, j.metadata, j.result, j.error_attempts, j.error_times, j.error_texts, j.settled FROM "ensue".jobs j
    WHERE j.number = ANY (v_expired) ORDER BY j.lease_until, j.number;
    IF NOT FOUND THEN
        RETURN NEXT;
    END IF;
END
$body$;

-- Does to each job what somebody wants, one after another, in one commit: each sees what came of those before it. p_from and
-- p_to are the arrows of `lifecycle::after` for it: a state, or `signal`, `let go` or `refused`. For each job o_what says
-- 'done', 'refused', 'key' (a live job has its key), 'nothing' (it holds nothing back) or 'unknown', with the job as it is
-- then.
CREATE OR REPLACE FUNCTION "ensue".jobs_steer(
    p_now timestamptz, p_call uuid, p_again boolean, p_numbers bigint[], p_stamps bigint[], p_from text[], p_to text[]
) RETURNS TABLE (o_what text, number bigint, stamp bigint, rank bigint, turn bigint, fence bigint, enqueued_at timestamptz, not_before timestamptz, locked_at timestamptz, started_at timestamptz, finished_at timestamptz, lease_until timestamptz, event_seq bigint, event_prev bigint, event_id uuid, attempts int, attempts_max int, ordered boolean, cancel_asked boolean, redriven boolean, state text, on_exhausted text, handler text, object text, unique_key text, worker text, event_topic text, payload text, metadata text, result text, error_attempts int[], error_times timestamptz[], error_texts text[], settled text) LANGUAGE plpgsql VOLATILE
AS $body$
#variable_conflict use_column
DECLARE
    v_sequence pg_catalog.regclass := format('%I.job_numbers', 'ensue')::regclass;
    v_now pg_catalog.timestamptz;
    v_job "ensue".jobs;
    v_to pg_catalog.text;
    v_ready bigint[];
BEGIN
    LOCK TABLE "ensue".rules_lock IN ROW SHARE MODE;
    PERFORM 1 FROM "ensue".jobs j
    WHERE j.number = ANY (p_numbers) AND NOT (coalesce(j.ordered, false) AND j.object IS NOT NULL)
    ORDER BY j.number FOR UPDATE;
    PERFORM "ensue".jobs_lock(ARRAY(
        SELECT b.bucket
        FROM (SELECT * FROM "ensue".jobs x WHERE x.number = ANY (p_numbers) OFFSET 0) j
        CROSS JOIN LATERAL (
            VALUES (CASE WHEN j.ordered THEN "ensue".job_bucket(j.handler, 'o' || j.object) END),
                ("ensue".job_bucket(j.handler, 'k' || j.unique_key))
        ) b(bucket)
        WHERE b.bucket IS NOT NULL));
    PERFORM 1 FROM "ensue".jobs j WHERE j.number = ANY (p_numbers) ORDER BY j.number FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    FOR i IN 1 .. cardinality(p_numbers) LOOP
        SELECT * INTO v_job FROM "ensue".jobs j WHERE j.number = p_numbers[i] AND j.stamp = p_stamps[i];
        IF NOT FOUND THEN
            o_what := 'unknown';
            RETURN NEXT;
            CONTINUE;
        END IF;
        v_to := p_to[array_position(p_from, v_job.state)];
        o_what := 'done';
        CASE
            WHEN p_again AND v_job.call = p_call THEN
                PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
            WHEN v_to = 'refused' THEN
                o_what := 'refused';
            WHEN v_to = 'signal' THEN
                -- Without a mark: the row keeps that of its claim. Asked twice it is asked once.
                UPDATE "ensue".jobs j SET cancel_asked = true WHERE j.number = v_job.number AND NOT j.cancel_asked;
            WHEN v_to = 'let go' AND v_job.turn IS NULL THEN
                o_what := 'nothing';
            WHEN v_to = 'let go' THEN
                UPDATE "ensue".jobs j SET turn = NULL, call = p_call WHERE j.number = v_job.number;
            WHEN v_to = 'available' AND v_job.state = 'dead' AND v_job.unique_key IS NOT NULL AND EXISTS (
                SELECT 1 FROM "ensue".jobs j WHERE j.handler = v_job.handler AND j.unique_key = v_job.unique_key
                    AND j.unique_key IS NOT NULL AND j.finished_at IS NULL) THEN
                o_what := 'key';
            WHEN v_to = 'available' THEN
                UPDATE "ensue".jobs j
                SET state = CASE WHEN j.object IS NULL THEN 'available' ELSE 'parked' END, not_before = NULL, call = p_call,
                    attempts = CASE WHEN j.state = 'dead' THEN 0 ELSE j.attempts END,
                    redriven = j.redriven OR j.state = 'dead', finished_at = NULL,
                    turn = CASE WHEN j.state = 'dead' THEN j.number ELSE coalesce(j.turn, nextval(v_sequence)) END
                WHERE j.number = v_job.number;
            ELSE
                UPDATE "ensue".jobs j
                SET state = v_to, turn = NULL, finished_at = v_now, call = p_call,
                    error_attempts = CASE WHEN v_to = 'dead' THEN "ensue".job_kept(j.error_attempts, j.attempts)
                        ELSE j.error_attempts END,
                    error_times = CASE WHEN v_to = 'dead' THEN "ensue".job_kept(j.error_times, v_now)
                        ELSE j.error_times END,
                    error_texts = CASE WHEN v_to = 'dead' THEN "ensue".job_kept(j.error_texts, 'skipped'::text)
                        ELSE j.error_texts END
                WHERE j.number = v_job.number;
                IF v_to = 'cancelled' AND v_job.started_at IS NOT NULL AND "ensue".is_task(v_job.handler) THEN
                    -- As `tasks::called_off_line`.
                    PERFORM "ensue".jobs_say(ARRAY[v_job.number], ARRAY[v_job.attempts], ARRAY[v_now], ARRAY['info'], ARRAY['it was called off']);
                END IF;
        END CASE;
        IF o_what = 'done' AND v_job.object IS NOT NULL THEN
            v_ready := v_ready || "ensue".jobs_go_on(
                v_now, CASE WHEN NOT v_job.ordered AND v_to = 'available' THEN ARRAY[v_job.number] END,
                CASE WHEN v_job.ordered THEN ARRAY[v_job.handler] END, ARRAY[v_job.object]);
        ELSIF o_what = 'done' AND v_to = 'available' THEN
            v_ready := v_ready || v_job.number;
        END IF;
        RETURN QUERY SELECT o_what, j.number, j.stamp, j.rank, j.turn, j.fence, j.enqueued_at, j.not_before, j.locked_at, j.started_at, j.finished_at, j.lease_until, j.event_seq, j.event_prev, j.event_id, j.attempts, j.attempts_max, j.ordered, j.cancel_asked, j.redriven, j.state, j.on_exhausted, j.handler, j.object, j.unique_key, j.worker, j.event_topic, j.payload, j.metadata, j.result, j.error_attempts, j.error_times, j.error_texts, j.settled FROM "ensue".jobs j WHERE j.number = v_job.number;
    END LOOP;
    IF cardinality(v_ready) > 0 THEN
        PERFORM "ensue".jobs_ring();
    END IF;
END
$body$;

-- Forgets up to p_limit jobs that are over and hold no lane, with what they said: those that ended before p_before, and the
-- oldest beyond p_keep; those that died are counted by themselves. Answers how many. What somebody is changing is left to the
-- next time. Also forgets what was answered to calls of more than an hour ago.
CREATE OR REPLACE FUNCTION "ensue".jobs_purge(p_before timestamptz, p_keep bigint, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
DECLARE
    v_too_many bigint;
    v_dead_too_many bigint;
    v_old bigint[];
BEGIN
    DELETE FROM "ensue".job_calls t WHERE t.at < clock_timestamp() - interval '1 hour';
    -- Counted in the index by age, and no further than it matters.
    SELECT count(*) INTO v_too_many FROM (
        SELECT 1 FROM "ensue".jobs j WHERE j.finished_at IS NOT NULL AND j.turn IS NULL AND j.state <> 'dead'
        ORDER BY j.finished_at DESC, j.number DESC OFFSET p_keep LIMIT p_limit) x;
    SELECT count(*) INTO v_dead_too_many FROM (
        SELECT 1 FROM "ensue".jobs j WHERE j.state = 'dead' AND j.turn IS NULL
        ORDER BY j.finished_at DESC, j.number DESC OFFSET p_keep LIMIT p_limit) x;
    v_old := ARRAY(
        SELECT o.number FROM (
            SELECT x.number, x.finished_at, v_too_many AS too_many, row_number() OVER (ORDER BY x.finished_at, x.number) AS nth
            FROM (
                SELECT j.number, j.finished_at FROM "ensue".jobs j
                WHERE j.finished_at IS NOT NULL AND j.turn IS NULL AND j.state <> 'dead'
                ORDER BY j.finished_at, j.number LIMIT p_limit
            ) x
            UNION ALL
            SELECT x.number, x.finished_at, v_dead_too_many, row_number() OVER (ORDER BY x.finished_at, x.number)
            FROM (
                SELECT j.number, j.finished_at FROM "ensue".jobs j WHERE j.state = 'dead' AND j.turn IS NULL
                ORDER BY j.finished_at, j.number LIMIT p_limit
            ) x
        ) o
        WHERE o.finished_at < p_before OR o.nth <= o.too_many
        ORDER BY o.finished_at, o.number LIMIT p_limit);
    v_old := ARRAY(SELECT j.number FROM "ensue".jobs j WHERE j.number = ANY (v_old) FOR UPDATE SKIP LOCKED);
    -- One that was brought back meanwhile is not over any more.
    v_old := ARRAY(
        SELECT j.number FROM (SELECT * FROM "ensue".jobs x WHERE x.number = ANY (v_old) OFFSET 0) j
        WHERE j.finished_at IS NOT NULL AND j.turn IS NULL);
    DELETE FROM "ensue".job_lines l WHERE l.number = ANY (v_old);
    DELETE FROM "ensue".job_progress p WHERE p.number = ANY (v_old);
    DELETE FROM "ensue".jobs j WHERE j.number = ANY (v_old);
    RETURN cardinality(v_old);
END
$body$;

-- Appends what is said of a change of rules. Without a hint where the log ends it is somebody's own transaction, and goes into the outbox: who has the lock of the
-- rules until the commit is the next to draw a number there, so what is said of one scope stays in order.
CREATE OR REPLACE FUNCTION "ensue".rules_tell(
    p_now timestamptz, p_hint bigint, p_picked int[], p_id_parts uuid[], p_topics text[], p_payloads text[], p_objects text[]
) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF p_hint IS NULL THEN
        PERFORM "ensue".outbox_tell(
            ARRAY(SELECT p_topics[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
            ARRAY(SELECT p_payloads[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
            ARRAY(SELECT p_objects[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i));
        RETURN NULL;
    END IF;
    RETURN (SELECT a.o_tail FROM "ensue".settle_append(
        p_now, p_hint, p_picked, ARRAY(SELECT n::int FROM generate_series(1, cardinality(p_id_parts)) n), p_id_parts, p_topics,
        p_payloads, NULL, NULL, NULL, p_objects, NULL, NULL, NULL) a);
END
$body$;

-- Sets a rule, or sets it anew, and tells of it. o_what is 'done', 'full' (there are too many), or 'again': the rule is not the
-- one that p_there says, so what is told of it would not be true.
--
-- With the lock of the rules alone: what was being claimed is claimed, and whoever claims later sees the rule.
CREATE OR REPLACE FUNCTION "ensue".rule_set(
    p_now timestamptz, p_hint bigint, p_call uuid, p_there uuid, p_id uuid, p_kind text, p_scope text, p_object text,
    p_reason text, p_author text, p_expires_at timestamptz, p_id_parts uuid[], p_topics text[], p_payloads text[],
    p_objects text[],
    OUT o_what text, OUT o_new boolean, OUT o_created_at timestamptz, OUT o_tail bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
    v_rule "ensue".rules;
BEGIN
    LOCK TABLE "ensue".rules_lock IN EXCLUSIVE MODE;
    v_now := coalesce(p_now, clock_timestamp());
    SELECT * INTO v_rule FROM "ensue".rules r WHERE r.scope = p_scope AND r.kind = p_kind;
    IF v_rule.set_by = p_call THEN
        o_what := 'done';
        o_new := v_rule.made_by = p_call;
        o_created_at := v_rule.created_at;
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
        RETURN;
    END IF;
    IF v_rule.id IS DISTINCT FROM p_there THEN
        o_what := 'again';
        RETURN;
    END IF;
    IF v_rule.id IS NULL AND (SELECT count(*) FROM "ensue".rules) >= 10000 THEN
        o_what := 'full';
        RETURN;
    END IF;
    INSERT INTO "ensue".rules AS r (id, made_by, set_by, created_at, expires_at, kind, scope, reason, author)
    VALUES (p_id, p_call, p_call, v_now, p_expires_at, p_kind, p_scope, p_reason, p_author)
    ON CONFLICT (scope, kind) DO UPDATE SET set_by = excluded.set_by, expires_at = excluded.expires_at,
        reason = excluded.reason, author = excluded.author
    RETURNING r.created_at INTO o_created_at;
    UPDATE "ensue".rules_state s SET version = s.version + 1;
    IF p_object IS NOT NULL THEN
        PERFORM "ensue".jobs_turn_object(v_now, p_object);
    END IF;
    o_what := 'done';
    o_new := v_rule.id IS NULL;
    o_tail := "ensue".rules_tell(p_now, p_hint, ARRAY[1], p_id_parts, p_topics, p_payloads, p_objects);
END
$body$;

-- Lifts rules as they were last set by p_set_by, tells of it, and lets go what waited for them, however much that is. p_of are
-- the objects that they are about, if they are. Answers which were lifted.
CREATE OR REPLACE FUNCTION "ensue".rules_lift(
    p_now timestamptz, p_hint bigint, p_kinds text[], p_scopes text[], p_set_by uuid[], p_of text[],
    p_id_parts uuid[], p_topics text[], p_payloads text[], p_objects text[],
    OUT o_lifted int[], OUT o_tail bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
BEGIN
    LOCK TABLE "ensue".rules_lock IN EXCLUSIVE MODE;
    v_now := coalesce(p_now, clock_timestamp());
    WITH gone AS (
        DELETE FROM "ensue".rules r
        USING unnest(p_kinds, p_scopes, p_set_by) WITH ORDINALITY l(kind, scope, set_by, n)
        WHERE r.scope = l.scope AND r.kind = l.kind AND r.set_by = l.set_by
        RETURNING l.n::int AS n
    )
    SELECT array_agg(g.n ORDER BY g.n) INTO o_lifted FROM gone g;
    IF o_lifted IS NULL THEN
        RETURN;
    END IF;
    UPDATE "ensue".rules_state s SET version = s.version + cardinality(o_lifted);
    PERFORM "ensue".jobs_turn_object(v_now, o.object)
    FROM (SELECT DISTINCT p_of[n] AS object FROM unnest(o_lifted) n WHERE p_of[n] IS NOT NULL) o;
    PERFORM "ensue".jobs_ring();
    o_tail := "ensue".rules_tell(p_now, p_hint, o_lifted, p_id_parts, p_topics, p_payloads, p_objects);
END
$body$;

-- A process says which version of the rules it obeys. Who is no member any more has nothing to say.
CREATE OR REPLACE FUNCTION "ensue".rules_report(p_member uuid, p_version bigint) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    INSERT INTO "ensue".rule_reports AS r (member, version) VALUES (p_member, p_version)
    ON CONFLICT (member) DO UPDATE SET version = excluded.version WHERE r.version < excluded.version;
    DELETE FROM "ensue".rule_reports r WHERE r.member <> p_member AND r.member = ANY (ARRAY(
        SELECT x.member FROM "ensue".rule_reports x
        WHERE NOT EXISTS (SELECT 1 FROM "ensue".members m WHERE m.id = x.member)
        ORDER BY x.member FOR UPDATE SKIP LOCKED));
END
$body$;

-- Defines a handler, or defines it anew. o_what is 'done', or why nothing was changed: 'pull' (a group of that name is read),
-- 'bound' (a program has made it), 'full' (there are p_max already), 'start' (it would begin outside of the log, whose bounds are
-- told). Whoever asks again because the answer was lost is told the same: p_call says who made the group.
--
-- Locks come in the order of group_delete: positions_state (where the group is made), the group, its slots and their owners,
-- definitions_state. A group that
-- is deleted while this waits for its row is made anew.
CREATE OR REPLACE FUNCTION "ensue".define(
    p_now timestamptz, p_hint bigint, p_call uuid, p_name text, p_start text, p_after bigint, p_slots int,
    p_topic text, p_condition text, p_params text, p_params_identity text, p_settings text, p_max bigint, p_by uuid,
    OUT o_what text, OUT o_new boolean, OUT o_subscription uuid, OUT o_revision bigint, OUT o_first bigint, OUT o_last bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_kind pg_catalog.text;
    v_there "ensue".definitions;
    v_gone pg_catalog.uuid[];
BEGIN
    LOOP
        SELECT g.id, g.kind INTO v_group, v_kind FROM "ensue".groups g WHERE g.name = p_name;
        IF FOUND THEN
            IF v_kind <> 'handler' THEN
                o_what := 'pull';
                RETURN;
            END IF;
            IF NOT EXISTS (SELECT FROM "ensue".definitions d WHERE d.group_id = v_group) THEN
                o_what := 'bound';
                RETURN;
            END IF;
        ELSE
            -- One that somebody else makes at this moment is looked at again.
            IF (SELECT count(*) FROM "ensue".definitions) >= p_max THEN
                o_what := 'full';
                RETURN;
            END IF;
            SELECT m.o_new, m.o_first, m.o_last, m.o_kind INTO o_new, o_first, o_last, v_kind
            FROM "ensue".group_make(p_now, p_hint, p_call, p_name, 'handler', p_start, p_after, p_slots) m;
            IF v_kind IS NULL THEN
                o_what := 'start';
                RETURN;
            END IF;
            CONTINUE WHEN NOT o_new;
        END IF;
        SELECT g.id, g.made_by = p_call INTO v_group, o_new FROM "ensue".groups g WHERE g.name = p_name FOR UPDATE;
        EXIT WHEN FOUND;
    END LOOP;
    SELECT m.id INTO o_subscription FROM "ensue".subscription_make(
        p_now, p_hint, p_name, p_call, p_topic, p_condition, p_params, p_params_identity, NULL) m;
    WITH gone AS (
        DELETE FROM "ensue".subscriptions u WHERE u.group_id = v_group AND u.id <> o_subscription RETURNING u.id
    )
    SELECT array_agg(g.id) INTO v_gone FROM gone g;
    IF v_gone IS NOT NULL THEN
        PERFORM "ensue".subscriptions_changed(v_group, -cardinality(v_gone), v_gone);
    END IF;
    o_what := 'done';
    SELECT * INTO v_there FROM "ensue".definitions d WHERE d.group_id = v_group;
    IF v_there.subscription = o_subscription AND v_there.settings = p_settings THEN
        o_revision := v_there.revision;
        -- What an earlier try has written is with a standby, if there is one, before this is answered.
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
        RETURN;
    END IF;
    IF v_there.subscription <> o_subscription THEN
        -- Whoever has its slots goes by the former subscription, and would pass over what only the new one wants.
        PERFORM 1 FROM "ensue".slots s WHERE s.group_id = v_group ORDER BY s.slot FOR UPDATE;
        PERFORM "ensue".tell_members(ARRAY(
            SELECT s.owner FROM "ensue".slots s WHERE s.group_id = v_group AND s.owner IS NOT NULL AND s.owner IS DISTINCT FROM p_by));
        UPDATE "ensue".slots s SET owner = NULL, served_at = greatest(s.served_at, coalesce(p_now, clock_timestamp()))
        WHERE s.group_id = v_group AND s.owner IS NOT NULL AND s.owner IS DISTINCT FROM p_by;
    END IF;
    UPDATE "ensue".definitions_state s SET version = s.version + 1 RETURNING s.version INTO o_revision;
    INSERT INTO "ensue".definitions AS d (group_id, subscription, revision, settings)
    VALUES (v_group, o_subscription, o_revision, p_settings)
    ON CONFLICT (group_id) DO UPDATE SET subscription = excluded.subscription, revision = excluded.revision,
        settings = excluded.settings;
END
$body$;

-- Forgets a handler that is defined, with its group; was there one?
CREATE OR REPLACE FUNCTION "ensue".undefine(p_name text) RETURNS boolean LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM 1 FROM "ensue".positions_state FOR UPDATE;
    PERFORM 1 FROM "ensue".groups g JOIN "ensue".definitions d ON d.group_id = g.id WHERE g.name = p_name;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    RETURN "ensue".group_delete(p_name);
END
$body$;

-- Keeps a schedule, or keeps it anew, if what is there is what the caller decided over. o_what is 'done', 'other' or 'full'. Whoever asks
-- again because the answer was lost is told the same.
CREATE OR REPLACE FUNCTION "ensue".schedule_put(
    p_now timestamptz, p_call uuid, p_name text, p_definition text, p_managed_by text, p_version bigint,
    p_over timestamptz, p_watermark timestamptz, p_due timestamptz, p_max bigint,
    OUT o_what text, OUT o_version bigint, OUT o_held boolean, OUT o_created_at timestamptz, OUT o_updated_at timestamptz
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_there "ensue".schedules;
BEGIN
    LOCK TABLE "ensue".rules_lock IN ROW SHARE MODE;
    -- One at a time, so that nobody makes what another has just made.
    PERFORM 1 FROM "ensue".schedules_state FOR UPDATE;
    SELECT * INTO v_there FROM "ensue".schedules s WHERE s.name = p_name FOR UPDATE;
    o_what := 'done';
    IF v_there.put_by = p_call THEN
        SELECT v_there.version, v_there.held, v_there.created_at, v_there.updated_at
        INTO o_version, o_held, o_created_at, o_updated_at;
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
        RETURN;
    END IF;
    IF v_there.version IS DISTINCT FROM p_version OR v_there.watermark IS DISTINCT FROM p_over THEN
        o_what := 'other';
        RETURN;
    END IF;
    IF v_there.version IS NULL AND (SELECT count(*) FROM "ensue".schedules) >= p_max THEN
        o_what := 'full';
        RETURN;
    END IF;
    UPDATE "ensue".schedules_state s SET version = s.version + 1 RETURNING s.version INTO o_version;
    o_updated_at := coalesce(p_now, clock_timestamp());
    INSERT INTO "ensue".schedules AS s
        (name, version, watermark, due, created_at, updated_at, put_by, held, managed_by, definition)
    VALUES (p_name, o_version, p_watermark, p_due, o_updated_at, o_updated_at, p_call,
        EXISTS (SELECT 1 FROM "ensue".rules r WHERE r.scope = 'schedule:' || p_name), p_managed_by, p_definition)
    ON CONFLICT (name) DO UPDATE SET version = excluded.version, watermark = excluded.watermark, due = excluded.due,
        updated_at = excluded.updated_at, put_by = excluded.put_by, managed_by = excluded.managed_by,
        definition = excluded.definition
    RETURNING s.held, s.created_at INTO o_held, o_created_at;
END
$body$;

-- A process says which schedules it declares, for p_lease microseconds. Those that somebody manages and that nobody declares at this time,
-- or did until less than p_lease ago, are forgotten: o_removed. o_missing are those of its names under which nothing is kept.
CREATE OR REPLACE FUNCTION "ensue".schedules_declare(
    p_now timestamptz, p_process uuid, p_names text[], p_lease bigint, OUT o_missing text[], OUT o_removed text[]
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
BEGIN
    -- One at a time: what one is about to declare another does not take for forgotten.
    PERFORM 1 FROM "ensue".schedules_state FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    INSERT INTO "ensue".schedule_declarers AS d (process, until) VALUES (p_process, v_now + p_lease * interval '1 microsecond')
    ON CONFLICT (process) DO UPDATE SET until = excluded.until;
    WITH lapsed AS (
        DELETE FROM "ensue".schedule_declarers d WHERE d.until <= v_now - p_lease * interval '1 microsecond' RETURNING d.process
    )
    DELETE FROM "ensue".schedule_declarations d USING lapsed l WHERE d.process = l.process;
    -- What it said before is there already: only what is new or gone is written. By sets, so that ten thousand names are no more than
    -- that many looks.
    DELETE FROM "ensue".schedule_declarations d USING (
        SELECT x.name FROM "ensue".schedule_declarations x WHERE x.process = p_process
        EXCEPT SELECT n.name COLLATE "C" FROM unnest(p_names) n(name)
    ) g WHERE d.process = p_process AND d.name = g.name;
    INSERT INTO "ensue".schedule_declarations (process, name)
    SELECT p_process, g.name FROM (
        SELECT n.name COLLATE "C" AS name FROM unnest(p_names) n(name)
        EXCEPT SELECT x.name FROM "ensue".schedule_declarations x WHERE x.process = p_process
    ) g;
    WITH gone AS (
        DELETE FROM "ensue".schedules s WHERE s.name = ANY (ARRAY(
            SELECT x.name FROM "ensue".schedules x
            WHERE x.managed_by IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM "ensue".schedule_declarations d WHERE d.name = x.name)
            ORDER BY x.name FOR UPDATE))
        RETURNING s.name
    )
    SELECT array_agg(g.name ORDER BY g.name) INTO o_removed FROM gone g;
    SELECT array_agg(n.name ORDER BY n.name) INTO o_missing
    FROM (SELECT DISTINCT x.name COLLATE "C" AS name FROM unnest(p_names) x(name)) n
    WHERE NOT EXISTS (SELECT 1 FROM "ensue".schedules s WHERE s.name = n.name);
END
$body$;

-- Carries out what was decided about schedules, in one round trip and one commit: moves each watermark if it is where it was, publishes
-- and sends what follows, and writes what became of which occurrence. For each firing o_states says 'done', 'lost' or 'held'; of all but
-- the first nothing is written. What is answered of runs is parallel to p_run_firings.
--
-- Locks come in the order of the others: the rules, schedules by name, lanes and keys, the log.
--   p_from     from where each watermark moves; null if it stays, because somebody fires it by hand
--   p_run_…    the runs: of which firing (from 1), and the place of its event or job among those that are sent, or why it is left out
CREATE OR REPLACE FUNCTION "ensue".schedules_fire(
    p_now timestamptz, p_hint bigint, p_call uuid, p_lock bigint,
    p_names text[], p_versions bigint[], p_from timestamptz[], p_move_to timestamptz[], p_due timestamptz[],
    p_run_firings int[], p_run_occurrences timestamptz[], p_run_manual boolean[], p_run_events int[], p_run_jobs int[],
    p_run_skipped text[],
    p_event_firings int[], p_id_parts uuid[], p_topics text[], p_event_payloads text[], p_event_metadata text[],
    p_occurred_at timestamptz[], p_to uuid[], p_event_objects text[], p_event_keys text[], p_fingerprints bytea[],
    p_event_not_before timestamptz[],
    p_job_firings int[],
    p_chances int[], p_handlers text[], p_objects text[], p_ordered boolean[], p_payloads text[], p_metadata text[],
    p_ranks bigint[], p_not_before timestamptz[], p_keys text[], p_attempts_max int[], p_exhausted text[],
    p_event_seqs bigint[], p_event_prevs bigint[], p_event_ids uuid[], p_event_topics text[],
    OUT o_states text[], OUT o_at timestamptz, OUT o_tail bigint, OUT o_run_numbers bigint[], OUT o_run_seqs bigint[],
    OUT o_run_jobs bigint[], OUT o_run_stamps bigint[], OUT o_run_overlapped boolean[]
) LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_lock_timeout pg_catalog.text := current_setting('lock_timeout');
    v_picked int[];
    v_seqs bigint[];
    v_appended pg_catalog.record;
    v_made pg_catalog.record;
BEGIN
    PERFORM pg_advisory_xact_lock(p_lock);
    LOCK TABLE "ensue".rules_lock IN ROW SHARE MODE;
    PERFORM 1 FROM "ensue".schedules s WHERE s.name = ANY (p_names) ORDER BY s.name FOR UPDATE;
    -- Somebody may have fired one since, and is the last then. Where the watermark has moved that is known by it; what was fired by hand is
    -- known by its run.
    IF EXISTS (SELECT 1 FROM "ensue".schedules s WHERE s.name = ANY (p_names) AND s.fired_by = p_call)
        OR EXISTS (
            SELECT 1 FROM unnest(p_names, p_from) f(name, move_from)
            JOIN "ensue".schedule_runs w ON w.name = f.name AND w.call = p_call
            WHERE f.move_from IS NULL)
    THEN
        -- The answer was lost: what it has done is told again.
        SELECT array_agg(CASE WHEN s.fired_by = p_call
                OR EXISTS (SELECT 1 FROM "ensue".schedule_runs w WHERE w.name = f.name AND w.call = p_call)
                THEN 'done' ELSE 'lost' END ORDER BY f.n) INTO o_states
        FROM unnest(p_names) WITH ORDINALITY f(name, n) LEFT JOIN "ensue".schedules s ON s.name = f.name;
        SELECT array_agg(w.number ORDER BY r.n), array_agg(w.event_seq ORDER BY r.n), array_agg(w.job_number ORDER BY r.n),
            array_agg(w.job_stamp ORDER BY r.n), array_agg(w.overlapped ORDER BY r.n), max(w.at)
        INTO o_run_numbers, o_run_seqs, o_run_jobs, o_run_stamps, o_run_overlapped, o_at
        FROM (
            SELECT x.n, x.firing, count(*) OVER (PARTITION BY x.firing) - row_number() OVER (PARTITION BY x.firing ORDER BY x.n) AS back,
                (SELECT max(l.number) FROM "ensue".schedule_runs l WHERE l.name = p_names[x.firing] AND l.call = p_call) AS back_from
            FROM unnest(p_run_firings) WITH ORDINALITY x(firing, n)
        ) r
        -- Its last run is the last that this call has written.
        LEFT JOIN "ensue".schedule_runs w ON w.name = p_names[r.firing] AND w.call = p_call AND w.number = r.back_from - r.back;
        o_at := coalesce(o_at, p_now, clock_timestamp());
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
        RETURN;
    END IF;
    o_at := coalesce(p_now, clock_timestamp());
    SELECT array_agg(CASE
            WHEN s.version IS NULL OR (f.move_from IS NOT NULL AND s.watermark <> f.move_from) THEN 'lost'
            WHEN s.held THEN 'held' ELSE 'done' END ORDER BY f.n)
    INTO o_states
    FROM unnest(p_names, p_versions, p_from) WITH ORDINALITY f(name, version, move_from, n)
    LEFT JOIN "ensue".schedules s ON s.name = f.name AND s.version = f.version;

    IF p_job_firings IS NOT NULL THEN
        IF p_objects IS NOT NULL OR p_keys IS NOT NULL THEN
            PERFORM "ensue".jobs_lock(ARRAY(
                SELECT "ensue".job_bucket(b.handler, 'o' || b.object) FROM unnest(p_handlers, p_objects) b(handler, object)
                WHERE b.object IS NOT NULL
                UNION SELECT "ensue".job_bucket(b.handler, 'k' || b.key) FROM unnest(p_handlers, p_keys) b(handler, key)
                WHERE b.key IS NOT NULL));
        END IF;
        -- A job whose unique key another transaction has just used waits for its end. One schedule must not
        -- hold up the others for that long.
        PERFORM set_config('lock_timeout', '500ms', true);
        BEGIN
            SELECT * INTO v_made FROM "ensue".jobs_insert(
                o_at,
                ARRAY(SELECT o_states[j.firing] = 'done' FROM unnest(p_job_firings) WITH ORDINALITY j(firing, n) ORDER BY j.n),
                p_chances, p_handlers, p_objects, p_ordered, p_payloads, p_metadata, p_ranks, p_not_before, p_keys,
                p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics);
        EXCEPTION WHEN lock_not_available THEN
            RAISE EXCEPTION 'an open transaction has sent a job with the same unique key' USING ERRCODE = 'EN004';
        END;
        PERFORM set_config('lock_timeout', v_lock_timeout, true);
    ELSE
        SELECT NULL::bigint[] AS o_numbers, NULL::bigint[] AS o_stamps, NULL::boolean[] AS o_new INTO v_made;
    END IF;
    IF p_event_firings IS NOT NULL THEN
        v_picked := ARRAY(
            SELECT e.n::int FROM unnest(p_event_firings) WITH ORDINALITY e(firing, n) WHERE o_states[e.firing] = 'done' ORDER BY e.n);
        IF cardinality(v_picked) > 0 THEN
            SELECT * INTO v_appended FROM "ensue".settle_append(
                p_now, p_hint, v_picked, p_event_firings, p_id_parts, p_topics, p_event_payloads, p_event_metadata, p_occurred_at, p_to,
                p_event_objects, p_event_keys, p_fingerprints, p_event_not_before);
            o_tail := v_appended.o_tail;
            -- By the place of the event among all that were sent.
            SELECT array_agg(a.seq ORDER BY e.n) INTO v_seqs
            FROM generate_series(1, cardinality(p_event_firings)) e(n)
            LEFT JOIN unnest(v_picked, v_appended.o_seqs) a(n, seq) ON a.n = e.n;
        END IF;
    END IF;

    WITH runs AS (
        SELECT r.*, p_names[r.firing] AS name, s.runs + row_number() OVER (PARTITION BY r.firing ORDER BY r.n) AS number,
            o_states[r.firing] = 'done' AS is_done
        FROM unnest(p_run_firings, p_run_occurrences, p_run_manual, p_run_events, p_run_jobs, p_run_skipped)
            WITH ORDINALITY r(firing, occurrence, manual, event, job, skipped, n)
        LEFT JOIN "ensue".schedules s ON s.name = p_names[r.firing]
    ), written AS (
        INSERT INTO "ensue".schedule_runs
            (name, number, occurrence, at, event_seq, job_number, job_stamp, call, manual, overlapped, skipped)
        SELECT r.name, r.number, r.occurrence, o_at, v_seqs[r.event], v_made.o_numbers[r.job], v_made.o_stamps[r.job],
            p_call, r.manual, r.job IS NOT NULL AND NOT v_made.o_new[r.job], r.skipped
        FROM runs r WHERE r.is_done ORDER BY r.n
    )
    SELECT array_agg(CASE WHEN r.is_done THEN r.number END ORDER BY r.n), array_agg(v_seqs[r.event] ORDER BY r.n),
        array_agg(v_made.o_numbers[r.job] ORDER BY r.n), array_agg(v_made.o_stamps[r.job] ORDER BY r.n),
        array_agg(r.job IS NOT NULL AND NOT v_made.o_new[r.job] ORDER BY r.n)
    INTO o_run_numbers, o_run_seqs, o_run_jobs, o_run_stamps, o_run_overlapped
    FROM runs r;

    UPDATE "ensue".schedules s
    SET watermark = coalesce(f.move_to, s.watermark), due = CASE WHEN f.move_from IS NULL THEN s.due ELSE f.due END,
        runs = s.runs + (SELECT count(*) FROM unnest(p_run_firings) r(firing) WHERE r.firing = f.n), fired_by = p_call
    FROM unnest(p_names, p_from, p_move_to, p_due) WITH ORDINALITY f(name, move_from, move_to, due, n)
    WHERE s.name = f.name AND o_states[f.n] = 'done';
    DELETE FROM "ensue".schedule_runs w
    USING "ensue".schedules s
    WHERE s.name = ANY (p_names) AND s.fired_by = p_call AND w.name = s.name AND w.number <= s.runs - 100;
END
$body$;

-- Which schedules are due? Each that fires leaves an entry in the index behind, which stays while somebody holds a snapshot from before:
-- so who has looked says from where on, (p_from, p_from_name), and that holds as long as nobody puts a schedule or lets one go, which
-- changes the state. Measured with a snapshot held over 10,000 firings: docs/benchmarks.md.
--
-- The state that the answer holds for is told in any case; the schedules are in the same snapshot, as this changes nothing.
CREATE OR REPLACE FUNCTION "ensue".schedules_due(
    p_now timestamptz, p_limit bigint, p_bytes bigint, p_state bigint, p_from timestamptz, p_from_name text
) RETURNS TABLE (
    o_state bigint, o_name text, o_version bigint, o_definition text, o_managed_by text, o_watermark timestamptz, o_due timestamptz,
    o_held boolean, o_created_at timestamptz, o_updated_at timestamptz
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_bytes bigint := 0;
    v_from pg_catalog.timestamptz := '-infinity';
    v_from_name pg_catalog.text := '';
BEGIN
    SELECT s.version + s.rules_changed INTO o_state FROM "ensue".schedules_state s;
    IF o_state = p_state THEN
        v_from := p_from;
        v_from_name := p_from_name;
    END IF;
    FOR o_name, o_version, o_managed_by, o_watermark, o_due, o_held, o_created_at, o_updated_at, o_definition IN
        SELECT s.name, s.version, s.managed_by, s.watermark, s.due, s.held, s.created_at, s.updated_at, s.definition
        FROM "ensue".schedules s
        WHERE s.due IS NOT NULL AND NOT s.held AND (s.due, s.name) >= (v_from, v_from_name) AND s.due <= p_now
        ORDER BY s.due, s.name LIMIT p_limit
    LOOP
        v_bytes := v_bytes + octet_length(o_definition);
        EXIT WHEN v_bytes > p_bytes AND v_bytes > octet_length(o_definition);
        RETURN NEXT;
    END LOOP;
    IF v_bytes = 0 THEN
        RETURN NEXT;
    END IF;
END
$body$;

-- When is the next one due that no rule holds? Looks from there on, too.
CREATE OR REPLACE FUNCTION "ensue".schedules_next(p_state bigint, p_from timestamptz, p_from_name text) RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_from pg_catalog.timestamptz := '-infinity';
    v_from_name pg_catalog.text := '';
    v_due pg_catalog.timestamptz;
BEGIN
    IF (SELECT s.version + s.rules_changed FROM "ensue".schedules_state s) = p_state THEN
        v_from := p_from;
        v_from_name := p_from_name;
    END IF;
    SELECT s.due INTO v_due FROM "ensue".schedules s
    WHERE s.due IS NOT NULL AND NOT s.held AND (s.due, s.name) >= (v_from, v_from_name)
    ORDER BY s.due, s.name LIMIT 1;
    RETURN v_due;
END
$body$;

-- Whether a rule holds a schedule is noted in its row, in the commit that changes the rule. The state comes first, as for who puts: one
-- that is let go may have been due for long.
CREATE OR REPLACE FUNCTION "ensue".schedule_rule_changed() RETURNS trigger LANGUAGE plpgsql
AS $body$
DECLARE
    v_scope pg_catalog.text := CASE WHEN TG_OP = 'DELETE' THEN OLD.scope ELSE NEW.scope END;
BEGIN
    IF v_scope LIKE 'schedule:%' THEN
        UPDATE "ensue".schedules_state s SET rules_changed = s.rules_changed + 1;
        UPDATE "ensue".schedules s SET held = EXISTS (SELECT 1 FROM "ensue".rules r WHERE r.scope = v_scope)
        WHERE s.name = substr(v_scope, 10);
    END IF;
    RETURN NULL;
END
$body$;

-- The code that authenticates a claim or a lease: HMAC-SHA-256 of the text under the store's key, its first 128 bits in
-- hexadecimal digits. The same as `StoreKey::code` (ensue-core/src/store_key.rs). Granted to no role that consumes.
CREATE OR REPLACE FUNCTION "ensue".store_code(p_message text) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT encode(substr(sha256(k.outer_pad || sha256(k.inner_pad || convert_to(p_message, 'UTF8'))), 1, 16), 'hex')
    FROM "ensue".store_key k
$body$;

-- What is given to the functions that anybody calls from SQL is checked as over HTTP. Each of these raises an error that names the field, or does nothing.
--
-- Those in SQL are to be inlined: none says more of itself (IMMUTABLE) than what it calls (`format` is STABLE), else it is planned anew in every
-- transaction, which took a publish twice as long.

-- Raises this fault; if there is none it does nothing.
CREATE OR REPLACE FUNCTION "ensue".refuse(p_fault text) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF p_fault IS NOT NULL THEN
        RAISE EXCEPTION '%', p_fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$body$;

-- Whether the text consists of letters and digits of any script and the characters that a segment may have. The test uses the rules of ICU,
-- because those of the database may know only ASCII. A server without ICU accepts every printable character beyond ASCII.
CREATE OR REPLACE FUNCTION "ensue".is_dotted(p_text text) RETURNS boolean LANGUAGE plpgsql STABLE
AS $body$
DECLARE
    v_is boolean;
BEGIN
    EXECUTE 'SELECT $1 COLLATE pg_catalog."und-x-icu" ~ ''^[[:alnum:]_:/@+~=$.-]+$''' INTO v_is USING p_text;
    RETURN v_is;
EXCEPTION WHEN undefined_object OR feature_not_supported OR invalid_parameter_value THEN
    RETURN p_text ~ $re$^[[:alnum:]_:/@+~=$.\u0080-\U0010ffff-]+$$re$ AND p_text !~ $re$[\U00000001-\U0000001f\U0000007f-\U0000009f\U000000ad-\U000000ad\U0000034f-\U0000034f\U00000600-\U00000605\U0000061c-\U0000061c\U000006dd-\U000006dd\U0000070f-\U0000070f\U00000890-\U00000891\U000008e2-\U000008e2\U0000115f-\U00001160\U000017b4-\U000017b5\U0000180b-\U0000180f\U0000200b-\U0000200f\U00002028-\U0000202e\U00002060-\U0000206f\U00002800-\U00002800\U00003164-\U00003164\U0000feff-\U0000feff\U0000ffa0-\U0000ffa0\U0000fff0-\U0000fffb\U000110bd-\U000110bd\U000110cd-\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]$re$;
END
$body$;

-- The first unprintable character of a text, escaped. The character class is that of `ensue_core::text::is_unprintable`.
CREATE OR REPLACE FUNCTION "ensue".unprintable_shown(p_text text) RETURNS text LANGUAGE sql IMMUTABLE
AS $body$
    SELECT $re$\u{$re$ || to_hex(ascii(substring(p_text FROM $re$[\U00000001-\U0000001f\U0000007f-\U0000009f\U000000ad-\U000000ad\U0000034f-\U0000034f\U00000600-\U00000605\U0000061c-\U0000061c\U000006dd-\U000006dd\U0000070f-\U0000070f\U00000890-\U00000891\U000008e2-\U000008e2\U0000115f-\U00001160\U000017b4-\U000017b5\U0000180b-\U0000180f\U0000200b-\U0000200f\U00002028-\U0000202e\U00002060-\U0000206f\U00002800-\U00002800\U00003164-\U00003164\U0000feff-\U0000feff\U0000ffa0-\U0000ffa0\U0000fff0-\U0000fffb\U000110bd-\U000110bd\U000110cd-\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]$re$))) || '}'
$body$;

-- What is wrong with a dotted key; nothing if it is one.
CREATE OR REPLACE FUNCTION "ensue".dotted_fault(p_key text, p_such_as text) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT CASE
        WHEN coalesce(p_key, '') = '' THEN 'is empty; write dotted segments such as ' || p_such_as
        WHEN octet_length(p_key) > 255
            THEN format('has %s bytes; at most 255 are allowed: shorten it', octet_length(p_key))
        WHEN p_key ~ '(^[.]|[.][.]|[.]$)'
            THEN 'has an empty segment; write one dot between segments and none at the ends, as in ' || p_such_as
        WHEN p_key ~ $re$[\U00000001-\U0000001f\U0000007f-\U0000009f\U000000ad-\U000000ad\U0000034f-\U0000034f\U00000600-\U00000605\U0000061c-\U0000061c\U000006dd-\U000006dd\U0000070f-\U0000070f\U00000890-\U00000891\U000008e2-\U000008e2\U0000115f-\U00001160\U000017b4-\U000017b5\U0000180b-\U0000180f\U0000200b-\U0000200f\U00002028-\U0000202e\U00002060-\U0000206f\U00002800-\U00002800\U00003164-\U00003164\U0000feff-\U0000feff\U0000ffa0-\U0000ffa0\U0000fff0-\U0000fffb\U000110bd-\U000110bd\U000110cd-\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]$re$
            THEN 'may not contain ' || "ensue".unprintable_shown(p_key) || '; use letters, digits and _ - : / @ + ~ = $ between dots'
        WHEN p_key !~ '^[[:alnum:]_:/@+~=$.-]+$' AND NOT "ensue".is_dotted(p_key)
            THEN 'may not contain ' || quote_literal(coalesce(
                    substring(p_key FROM $re$[^[:alnum:]_:/@+~=$.\u0080-\U0010ffff-]$re$), substring(p_key FROM '[^[:alnum:]_:/@+~=$.-]')))
                || '; use letters, digits and _ - : / @ + ~ = $ between dots'
    END
$body$;

-- The fault of an identifier that is empty, too long or has an unprintable character; null if it has none or is null.
CREATE OR REPLACE FUNCTION "ensue".plain_fault(p_text text, p_bytes_max int) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT CASE
        WHEN p_text = '' THEN 'is empty; leave it out instead'
        WHEN octet_length(p_text) > p_bytes_max
            THEN format('has %s bytes; at most %s are allowed: shorten it', octet_length(p_text), p_bytes_max)
        WHEN p_text ~ $re$[\U00000001-\U0000001f\U0000007f-\U0000009f\U000000ad-\U000000ad\U0000034f-\U0000034f\U00000600-\U00000605\U0000061c-\U0000061c\U000006dd-\U000006dd\U0000070f-\U0000070f\U00000890-\U00000891\U000008e2-\U000008e2\U0000115f-\U00001160\U000017b4-\U000017b5\U0000180b-\U0000180f\U0000200b-\U0000200f\U00002028-\U0000202e\U00002060-\U0000206f\U00002800-\U00002800\U00003164-\U00003164\U0000feff-\U0000feff\U0000ffa0-\U0000ffa0\U0000fff0-\U0000fffb\U000110bd-\U000110bd\U000110cd-\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]$re$
            THEN 'may not contain the character ' || "ensue".unprintable_shown(p_text) || '; leave it out'
    END
$body$;

-- What is wrong with a time; nothing with null.
CREATE OR REPLACE FUNCTION "ensue".time_fault(p_at timestamptz) RETURNS text LANGUAGE sql IMMUTABLE
AS $body$
    SELECT CASE WHEN NOT (p_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-29 00:00:00+00')
        THEN 'is not in the years 1 to 9999; write a time such as 2026-11-15 12:00:00+00' END
$body$;

-- A dotted key: that of a handler, or the name of a schedule.
CREATE OR REPLACE FUNCTION "ensue".check_dotted(p_field text, p_key text) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM "ensue".refuse(p_field || ' ' || "ensue".dotted_fault(p_key, 'mail.send'));
END
$body$;

CREATE OR REPLACE FUNCTION "ensue".check_plain(p_field text, p_text text, p_bytes_max int) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM "ensue".refuse(p_field || ' ' || "ensue".plain_fault(p_text, p_bytes_max));
END
$body$;

-- The microseconds of a lease.
CREATE OR REPLACE FUNCTION "ensue".lease_micros(p_lease interval) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_seconds numeric := extract(epoch FROM p_lease);
BEGIN
    IF v_seconds IS NULL OR v_seconds NOT BETWEEN 0.1 AND 86400 THEN
        PERFORM "ensue".refuse(format('lease is %s; choose 100 milliseconds to 24 hours', coalesce(p_lease::text, 'null')));
    END IF;
    RETURN (v_seconds * 1000000)::bigint;
END
$body$;

-- A time as it is written in events.
CREATE OR REPLACE FUNCTION "ensue".time_text(p_at timestamptz) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT rtrim(rtrim(to_char(p_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), '0'), '.') || 'Z'
$body$;

-- The id of a job, from what is stored of it.
CREATE OR REPLACE FUNCTION "ensue".job_id(p_stamp bigint, p_number bigint) RETURNS text LANGUAGE sql IMMUTABLE
AS $body$
    SELECT (lpad(to_hex(p_stamp >> 12), 12, '0') || '7' || lpad(to_hex(p_stamp & 4095), 3, '0')
        || to_hex(p_number | '-9223372036854775808'::bigint))::uuid::text
$body$;

-- Back from the id of a job.
CREATE OR REPLACE FUNCTION "ensue".job_of(p_id text, OUT o_number bigint, OUT o_stamp bigint) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_hex pg_catalog.text;
BEGIN
    IF p_id ~* '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN
        v_hex := replace(p_id, '-', '');
        o_number := ('x' || right(v_hex, 16))::bit(64)::bigint & 4611686018427387903;
        o_stamp := (('x' || left(v_hex, 12))::bit(48)::bigint << 12) | ('x' || substr(v_hex, 14, 3))::bit(12)::int;
    ELSE
        PERFORM "ensue".refuse('id is not the id of a job; write the text that came with the job');
    END IF;
END
$body$;

-- The claim of a job under this fence.
CREATE OR REPLACE FUNCTION "ensue".claim_text(p_id text, p_fence bigint) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT c.claim || '-' || "ensue".store_code(c.claim) FROM (SELECT 'claim-' || to_hex(p_fence) || '-' || p_id) c(claim)
$body$;

-- What a worker holds of a job: its place and its fence. A forged claim is a stale one.
CREATE OR REPLACE FUNCTION "ensue".job_held(p_id text, p_claim text, OUT o_number bigint, OUT o_stamp bigint, OUT o_fence bigint)
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_parts pg_catalog.text[] := regexp_match(p_claim, '^claim-([0-9a-f]{1,16})-(.+)-([0-9a-f]{32})$');
BEGIN
    IF v_parts IS NULL THEN
        PERFORM "ensue".refuse('claim is not a claim; send back the text that came with the claimed job');
    END IF;
    SELECT j.o_number, j.o_stamp INTO o_number, o_stamp FROM "ensue".job_of(v_parts[2]) j;
    IF lower(v_parts[2]) IS DISTINCT FROM lower(p_id) THEN
        PERFORM "ensue".refuse(format('claim is of the job %s, not of %s; send back the text that came with this job', v_parts[2],
            coalesce(p_id, 'null')));
    END IF;
    o_fence := ('x' || lpad(v_parts[1], 16, '0'))::bit(64)::bigint;
    IF "ensue".store_code('claim-' || to_hex(o_fence) || '-' || lower(v_parts[2])) IS DISTINCT FROM v_parts[3] THEN
        PERFORM "ensue".job_lost(p_id);
    END IF;
END
$body$;

-- The state of a job whose worker settled this claim in the same way before: 'complete', 'fail' or 'snooze'. Raises an
-- error if it did not. The same rule as `lifecycle::use_claim`.
CREATE OR REPLACE FUNCTION "ensue".job_repeated(
    p_id text, p_number bigint, p_stamp bigint, p_fence bigint, p_settlement text
) RETURNS text LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_state pg_catalog.text;
BEGIN
    SELECT j.state INTO v_state FROM "ensue".jobs j
    WHERE j.number = p_number AND j.stamp = p_stamp AND j.fence = p_fence AND coalesce(j.state, '') <> 'running'
        AND CASE WHEN coalesce(j.state, '') = 'succeeded' THEN 'complete' ELSE j.settled END = p_settlement;
    IF NOT FOUND THEN
        PERFORM "ensue".job_lost(p_id);
    END IF;
    RETURN v_state;
END
$body$;

-- Somebody else has the job, or it is over: nothing was changed.
CREATE OR REPLACE FUNCTION "ensue".job_lost(p_id text) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    RAISE EXCEPTION 'lease lost: job % was taken over or is over, and nothing was changed', p_id
        USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Drop what you have of it.';
END
$body$;

-- How a handler is run that the store keeps, as JSON; null of others: what a program or its config file says is known there alone.
CREATE OR REPLACE FUNCTION "ensue".handler_settings(p_handler text) RETURNS jsonb LANGUAGE plpgsql STABLE
AS $body$
BEGIN
    RETURN (SELECT d.settings::jsonb FROM "ensue".groups g JOIN "ensue".definitions d ON d.group_id = g.id WHERE g.name = p_handler);
END
$body$;

-- How long a job waits that has failed for the p_attempt-th time: as its handler says if the store keeps it, else 1 s doubled with each attempt, up to 5 min,
-- and by chance less.
CREATE OR REPLACE FUNCTION "ensue".job_delay(p_handler text, p_attempt int) RETURNS interval LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_retry pg_catalog.jsonb := "ensue".handler_settings(p_handler) -> 'retry';
    v_delays pg_catalog.jsonb := v_retry -> 'exactly' -> 'delays_us';
    v_first numeric := coalesce((v_retry -> 'doubling' ->> 'first_us')::numeric, 1000000);
    v_max numeric := coalesce((v_retry -> 'doubling' ->> 'max_us')::numeric, 300000000);
    v_micros numeric;
BEGIN
    IF jsonb_array_length(v_delays) > 0 THEN
        v_micros := (v_delays ->> least(p_attempt, jsonb_array_length(v_delays)) - 1)::numeric;
    ELSIF v_delays IS NOT NULL THEN
        v_micros := 0;
    ELSE
        v_micros := trunc(least(v_first * 2::numeric ^ least(p_attempt - 1, 31), v_max) * random()::numeric);
    END IF;
    RETURN least(v_micros, 31622400000000) * interval '1 microsecond';
END
$body$;

-- What is decided after a lock must see what was committed before it: a transaction with a snapshot of its own does not.
CREATE OR REPLACE FUNCTION "ensue".need_read_committed(p_what text) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION '% needs a transaction that is read committed, this one is %', p_what, current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction', HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED';
    END IF;
END
$body$;

-- Publishes in the caller's transaction: a row in the outbox, which is in the log soon after the commit, or gone with the rollback.
--
-- Publish after you have locked what the event is about (the UPDATE of its row is enough): two transactions about one thing are then
-- in the log in the order in which they had it.

-- The first fault in the fields of an event other than its content, or null. The rules are those
-- of HTTP.
CREATE OR REPLACE FUNCTION "ensue".event_fault(
    p_topic text, p_object text, p_key text, p_occurred_at timestamptz, p_not_before timestamptz
) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT coalesce(
        'topic ' || "ensue".dotted_fault(p_topic, 'order.paid'),
        CASE WHEN p_topic = 'ensue' OR starts_with(p_topic, 'ensue.')
            THEN 'topic is under `ensue`, which only Ensue itself publishes under; choose another first segment' END,
        'object ' || "ensue".plain_fault(p_object, 512),
        'key ' || "ensue".plain_fault(p_key, 512),
        'occurred_at ' || "ensue".time_fault(p_occurred_at),
        'not_before ' || "ensue".time_fault(p_not_before))
$body$;

-- The fault of content with this many bytes, or null. Callers measure the text, as readers will get
-- it: jsonb keeps `1e131000` in a few bytes.
CREATE OR REPLACE FUNCTION "ensue".size_fault(p_bytes bigint) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT CASE WHEN p_bytes > 1048576
        THEN format('payload has %s bytes together with metadata; at most 1048576 are allowed: store the content elsewhere and send a reference',
            p_bytes) END
$body$;

-- Raises an error that names the field unless every engine can store this event.
CREATE OR REPLACE FUNCTION "ensue".check_event(
    p_topic text, p_payload jsonb, p_object text, p_metadata jsonb, p_key text, p_occurred_at timestamptz, p_not_before timestamptz
) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_fault pg_catalog.text;
BEGIN
    v_fault := coalesce(
        "ensue".event_fault(p_topic, p_object, p_key, p_occurred_at, p_not_before),
        CASE WHEN p_payload IS NULL THEN 'payload is missing; write a JSON value, such as ''{}''' END,
        CASE WHEN jsonb_typeof(p_metadata) <> 'object' THEN 'metadata must be a JSON object, such as {"trace":"abc"}' END);
    v_fault := coalesce(v_fault,
        "ensue".size_fault(octet_length(p_payload::text) + coalesce(octet_length(p_metadata::text), 0)));
    IF v_fault IS NOT NULL THEN
        PERFORM "ensue".refuse(v_fault);
    END IF;
END
$body$;

-- Lets a drain that sleeps know that there is something, when the caller commits. Who finds it awake pays nothing: to NOTIFY
-- locks the whole database for the length of a commit. A drain that would sleep must have this lock alone, so that it does not fall asleep
-- beside somebody who was counting on it (postgres/bell.rs). `SET ensue.wake_up = off` leaves it out: then a look a second finds it. So does a queue of
-- notifications that is nearly full: any login can fill it, and to NOTIFY would fail then.
CREATE OR REPLACE FUNCTION "ensue".outbox_ring() RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF current_setting('ensue.wake_up', true) IS DISTINCT FROM 'off' AND NOT pg_try_advisory_xact_lock_shared(6921643701205228211)
        AND pg_notification_queue_usage() < 0.5 THEN
        PERFORM pg_notify('ensue_80fbfcc3e909d39c', '');
    END IF;
END
$body$;

-- What Ensue itself tells of in somebody's own transaction, one event for each: into the outbox, as the lock of the log would be held until that transaction ends, and
-- all who publish would wait for it (H23).
CREATE OR REPLACE FUNCTION "ensue".outbox_tell(p_topics text[], p_payloads text[], p_objects text[]) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    INSERT INTO "ensue".outbox (occurred_at, id, topic, object, payload)
    SELECT clock_timestamp(), "ensue".new_id(), e.topic, e.object, e.payload::jsonb
    FROM unnest(p_topics, p_payloads, p_objects) WITH ORDINALITY e(topic, payload, object, n) ORDER BY e.n;
    PERFORM "ensue".outbox_ring();
END
$body$;

-- One event; answers its id. The same `key` with the same content is the same event: the id of the first. With another content it is an error.
CREATE OR REPLACE FUNCTION "ensue".publish(
    topic text, payload jsonb DEFAULT '{}', object text DEFAULT NULL, metadata jsonb DEFAULT NULL,
    not_before timestamptz DEFAULT NULL, key text DEFAULT NULL, subscription_id uuid DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
#variable_conflict use_variable
DECLARE
    v_id pg_catalog.uuid := "ensue".new_id();
BEGIN
    PERFORM "ensue".check_event(topic, payload, object, metadata, key, NULL, not_before);
    IF key IS NULL THEN
        INSERT INTO "ensue".outbox (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
        VALUES (clock_timestamp(), not_before, v_id, subscription_id, topic, object, payload, nullif(metadata, '{}'));
    ELSE
        v_id := "ensue".outbox_keyed(v_id, clock_timestamp(), not_before, subscription_id, topic, object, payload, metadata, key,
            "ensue".event_fingerprint(topic, object, payload, metadata, NULL, not_before, subscription_id));
    END IF;
    PERFORM "ensue".outbox_ring();
    RETURN v_id;
END
$body$;

-- What tells whether two publishes under one key are the same. Not the same digest as over HTTP, which is of the text as it was
-- sent: a key that was used from SQL is to be used from SQL.
CREATE OR REPLACE FUNCTION "ensue".event_fingerprint(
    p_topic text, p_object text, p_payload jsonb, p_metadata jsonb, p_occurred_at timestamptz, p_not_before timestamptz, p_to uuid
) RETURNS bytea LANGUAGE sql STABLE
AS $body$
    SELECT sha256(convert_to(jsonb_build_array('sql', p_topic, p_object, p_payload, coalesce(p_metadata, '{}'), extract(epoch FROM p_occurred_at),
        extract(epoch FROM p_not_before), p_to)::text, 'UTF8'))
$body$;

-- An event with a key: the id of the first under this key, if it is the same. Who is in another transaction with the same key at the same
-- time is waited for. What the log knows is looked at after the row is written, so that it cannot be moved in between unseen.
CREATE OR REPLACE FUNCTION "ensue".outbox_keyed(
    p_id uuid, p_occurred_at timestamptz, p_not_before timestamptz, p_to uuid, p_topic text, p_object text, p_payload jsonb,
    p_metadata jsonb, p_key text, p_fingerprint bytea
) RETURNS uuid LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_id pg_catalog.uuid;
    v_fingerprint pg_catalog.bytea;
    v_written boolean;
BEGIN
    LOOP
        INSERT INTO "ensue".outbox
            (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata, key, fingerprint)
        VALUES (p_occurred_at, p_not_before, p_id, p_to, p_topic, p_object, p_payload, nullif(p_metadata, '{}'), p_key, p_fingerprint)
        ON CONFLICT (key) WHERE key IS NOT NULL DO NOTHING;
        v_written := FOUND;
        SELECT "ensue".event_id(k.id_part, k.recorded_at), k.fingerprint INTO v_id, v_fingerprint FROM "ensue".keys k
        WHERE k.key = p_key AND k.recorded_at > clock_timestamp() - interval '86400 seconds';
        IF v_id IS NOT NULL AND v_written THEN
            DELETE FROM "ensue".outbox o WHERE o.key = p_key;
        ELSIF v_id IS NULL AND v_written THEN
            IF current_setting('transaction_isolation') <> 'read committed' THEN
                -- The log may know it from after our snapshot. To write it there is a serialization failure then; else it is taken back at once.
                BEGIN
                    INSERT INTO "ensue".keys (key, fingerprint, id_part, recorded_at)
                    VALUES (p_key, p_fingerprint, p_id, p_occurred_at) ON CONFLICT (key) DO NOTHING;
                    RAISE EXCEPTION 'taken back' USING ERRCODE = 'EN003';
                EXCEPTION WHEN SQLSTATE 'EN003' THEN
                    NULL;
                END;
            END IF;
            RETURN p_id;
        ELSIF v_id IS NULL THEN
            SELECT o.id, o.fingerprint INTO v_id, v_fingerprint FROM "ensue".outbox o WHERE o.key = p_key;
        END IF;
        IF v_id IS NULL THEN
            -- It was moved between the two looks, or, in a transaction with a snapshot of its own, is not to be seen.
            IF current_setting('transaction_isolation') <> 'read committed' THEN
                RAISE EXCEPTION 'the key % was used by a transaction that this one cannot see', quote_literal(p_key)
                    USING ERRCODE = 'serialization_failure', HINT = 'Begin the transaction again.';
            END IF;
            CONTINUE;
        END IF;
        IF v_fingerprint IS DISTINCT FROM p_fingerprint THEN
            RAISE EXCEPTION 'the key % was used for another event (%)', quote_literal(p_key), v_id
                USING ERRCODE = 'unique_violation', HINT = 'Send the same event again, or choose another key.';
        END IF;
        RETURN v_id;
    END LOOP;
END
$body$;

-- Many events in one statement: an array of objects with the fields of POST /v1/events. Answers their ids, in their order: they differ in a counter at
-- the end.
--
-- If all are plainly right, and none has a key, a delay or a time of its own, they are one row of the outbox (outbox_batches_tables.sql): the publisher computes 5 ms
-- for 1,000 of them, and 10 with a row for each. A time is excepted because what a text means as a time is a matter of the publisher's session.
CREATE OR REPLACE FUNCTION "ensue".publish_many(events jsonb) RETURNS SETOF uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
#variable_conflict use_column
DECLARE
    v_id_start pg_catalog.text := left("ensue".new_id()::text, 31);
    v_count int;
    v_bytes bigint;
    v_part pg_catalog.jsonb;
    v_are_plain boolean;
    v_topics pg_catalog.text[];
BEGIN
    IF jsonb_typeof(publish_many.events) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'events must be a JSON array of objects, such as [{"topic":"order.paid","payload":{}}]'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    v_count := jsonb_array_length(publish_many.events);
    v_bytes := octet_length(publish_many.events::text);
    IF v_count > 1000 THEN
        FOR v_part IN
            SELECT jsonb_agg(e.value ORDER BY e.n) FROM jsonb_array_elements(publish_many.events) WITH ORDINALITY e(value, n)
            GROUP BY (e.n - 1) / 1000 ORDER BY (e.n - 1) / 1000
        LOOP
            RETURN QUERY SELECT * FROM "ensue".publish_many(v_part);
        END LOOP;
        RETURN;
    ELSIF v_count > 0 THEN
        SELECT bool_and(CASE WHEN jsonb_typeof(s.value) = 'object' THEN s.value - '{topic,object,payload,metadata,to}'::text[] = '{}'
                AND jsonb_typeof(s.value -> 'topic') = 'string' AND coalesce(jsonb_typeof(s.value -> 'object') IN ('string', 'null'), true)
                AND "ensue".plain_fault(s.object, 512) IS NULL
                AND coalesce(jsonb_typeof(s.value -> 'metadata') IN ('object', 'null'), true)
                AND (v_bytes <= 262144 OR octet_length(s.value::text) <= 262144)
                -- What is no uuid is refused now, and not when it is moved.
                AND (NOT s.value ? 'to' OR coalesce(s.value ->> 'to' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$', false)) ELSE false END)
                AND v_bytes <= 4194304,
            array_agg(DISTINCT s.topic)
        INTO v_are_plain, v_topics
        FROM (
            SELECT e.value, e.value ->> 'object' AS object, (e.value ->> 'topic') COLLATE "C" AS topic
            FROM jsonb_array_elements(publish_many.events) e(value) OFFSET 0
        ) s;
        v_are_plain := v_are_plain AND NOT EXISTS (
            SELECT 1 FROM unnest(v_topics) t(topic) WHERE "ensue".dotted_fault(t.topic, '') IS NOT NULL OR starts_with(t.topic, 'ensue'));
    END IF;
    IF v_are_plain THEN
        INSERT INTO "ensue".outbox (occurred_at, id, count, events)
        VALUES (clock_timestamp(), (v_id_start || '00000')::uuid, v_count, publish_many.events);
        RETURN QUERY SELECT (v_id_start || lpad(to_hex(s.n), 5, '0'))::uuid FROM generate_series(1, v_count) s(n);
    ELSIF v_count > 0 THEN
        RETURN QUERY SELECT * FROM "ensue".publish_each(publish_many.events, v_id_start);
    END IF;
    IF v_count > 0 THEN
        PERFORM "ensue".outbox_ring();
    END IF;
END
$body$;

-- Names the field of the first event that is no time or no uuid where one is due.
CREATE OR REPLACE FUNCTION "ensue".check_readable(p_events jsonb) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_each pg_catalog.record;
BEGIN
    FOR v_each IN
        SELECT f.name, e.value ->> f.name AS text
        FROM jsonb_array_elements(p_events) WITH ORDINALITY e(value, n) CROSS JOIN unnest('{occurred_at,not_before,to}'::text[]) f(name)
        WHERE e.value ->> f.name IS NOT NULL ORDER BY e.n
    LOOP
        BEGIN
            IF v_each.name = 'to' THEN
                PERFORM v_each.text::uuid;
            ELSE
                PERFORM v_each.text::timestamptz;
            END IF;
        EXCEPTION WHEN data_exception THEN
            PERFORM "ensue".refuse(format('%s is %s; write %s', v_each.name, to_json(left(v_each.text, 100)), CASE WHEN v_each.name = 'to'
                THEN 'the id of a subscription' ELSE 'a time such as 2026-11-15T12:00:00Z' END));
        END;
    END LOOP;
END
$body$;

-- The same with a row for each, which says what is wrong if something is. Without keys all are written at once.
CREATE OR REPLACE FUNCTION "ensue".publish_each(p_events jsonb, p_id_start text) RETURNS SETOF uuid LANGUAGE plpgsql VOLATILE
SET jit = off
AS $body$
DECLARE
    v_now pg_catalog.timestamptz := clock_timestamp();
    v_strange pg_catalog.jsonb;
    v_event pg_catalog.record;
    v_id pg_catalog.uuid;
BEGIN
    -- Reads are cheap here beside the rows that are written; what cannot be read is named.
    SELECT e.value INTO v_strange FROM jsonb_array_elements(p_events) e(value)
    WHERE CASE WHEN jsonb_typeof(e.value) = 'object'
        THEN e.value - '{topic,object,payload,metadata,occurred_at,not_before,key,to}'::text[] <> '{}' ELSE true END
    LIMIT 1;
    IF FOUND AND jsonb_typeof(v_strange) <> 'object' THEN
        RAISE EXCEPTION 'each of the events must be a JSON object, such as {"topic":"order.paid","payload":{}}'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF FOUND THEN
        RAISE EXCEPTION 'an event has no field %; there are topic, object, payload, metadata, occurred_at, not_before, key and to',
            (SELECT quote_literal(f.name) FROM jsonb_object_keys(
                v_strange - '{topic,object,payload,metadata,occurred_at,not_before,key,to}'::text[]) f(name) LIMIT 1)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM "ensue".refuse(format('%s is %s; write a text', f.name, left((e.value -> f.name)::text, 100)))
    FROM jsonb_array_elements(p_events) WITH ORDINALITY e(value, n) CROSS JOIN unnest('{topic,object,occurred_at,not_before,key,to}'::text[]) f(name)
    WHERE jsonb_typeof(e.value -> f.name) NOT IN ('string', 'null');
    BEGIN
        PERFORM count((e.value ->> 'occurred_at')::timestamptz), count((e.value ->> 'not_before')::timestamptz), count((e.value ->> 'to')::uuid)
        FROM jsonb_array_elements(p_events) e(value);
    EXCEPTION WHEN data_exception THEN
        PERFORM "ensue".check_readable(p_events);
    END;
    IF NOT jsonb_path_exists(p_events, '$[*].key ? (@ != null)') THEN
        RETURN QUERY WITH sent AS MATERIALIZED (
            SELECT e.value ->> 'topic' AS topic, e.value ->> 'object' AS object, coalesce(e.value -> 'payload', '{}') AS payload,
                nullif(e.value -> 'metadata', 'null') AS metadata, (e.value ->> 'occurred_at')::timestamptz AS occurred_at,
                (e.value ->> 'not_before')::timestamptz AS not_before, (e.value ->> 'to')::uuid AS to_subscription,
                (p_id_start || lpad(to_hex(e.n), 5, '0'))::uuid AS id
            FROM jsonb_array_elements(p_events) WITH ORDINALITY e(value, n)
        ), stored AS (
            INSERT INTO "ensue".outbox (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
            SELECT coalesce(s.occurred_at, v_now), s.not_before, s.id, s.to_subscription, s.topic, s.object, s.payload, nullif(s.metadata, '{}')
            FROM sent s
            WHERE "ensue".check_event(s.topic, s.payload, s.object, s.metadata, NULL, s.occurred_at, s.not_before) IS NOT NULL
            RETURNING outbox.id
        )
        -- RETURNING keeps the order in which the rows were inserted, which is the order of the array.
        SELECT s.id FROM stored s;
    ELSE
        FOR v_event IN
            SELECT e.value ->> 'topic' AS topic, e.value ->> 'object' AS object, coalesce(e.value -> 'payload', '{}') AS payload,
                nullif(e.value -> 'metadata', 'null') AS metadata, (e.value ->> 'occurred_at')::timestamptz AS occurred_at,
                (e.value ->> 'not_before')::timestamptz AS not_before, (e.value ->> 'to')::uuid AS to_subscription, e.value ->> 'key' AS key
            FROM jsonb_array_elements(p_events) WITH ORDINALITY e(value, n) ORDER BY e.n
        LOOP
            PERFORM "ensue".check_event(v_event.topic, v_event.payload, v_event.object, v_event.metadata, v_event.key, v_event.occurred_at,
                v_event.not_before);
            IF v_event.key IS NULL THEN
                INSERT INTO "ensue".outbox (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
                VALUES (coalesce(v_event.occurred_at, clock_timestamp()), v_event.not_before, "ensue".new_id(), v_event.to_subscription,
                    v_event.topic, v_event.object, v_event.payload, nullif(v_event.metadata, '{}'))
                RETURNING outbox.id INTO v_id;
                RETURN NEXT v_id;
            ELSE
                RETURN NEXT "ensue".outbox_keyed("ensue".new_id(), coalesce(v_event.occurred_at, clock_timestamp()), v_event.not_before,
                    v_event.to_subscription, v_event.topic, v_event.object, v_event.payload, v_event.metadata, v_event.key,
                    "ensue".event_fingerprint(v_event.topic, v_event.object, v_event.payload, v_event.metadata, v_event.occurred_at,
                        v_event.not_before, v_event.to_subscription));
            END IF;
        END LOOP;
    END IF;
END
$body$;

-- Moves what is committed in the outbox, and delayed events that are due, into the log, at most so many of each, and answers how many it has taken: an event that
-- is to wait for its time counts when it is taken from the outbox, and again when it enters the log. 0 says that nothing is left to be moved now. For those
-- who run no node. Call it in a transaction of its own: others who append wait for its end.
CREATE OR REPLACE FUNCTION "ensue".poll_for_events(chunk_size bigint DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '5000ms'
AS $body$
DECLARE
    v_moved bigint;
    v_drained pg_catalog.text := coalesce(current_setting('ensue.drained_884657cb0d78dfec', true), '');
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'poll_for_events needs a transaction that is read committed, this one is %', current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction', HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED';
    END IF;
    chunk_size := coalesce(chunk_size, "ensue".setting('poll_chunk_size', '1000')::bigint);
    IF chunk_size NOT BETWEEN 1 AND 100000 THEN
        RAISE EXCEPTION 'chunk_size is %; choose from 1 to 100000', chunk_size
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    BEGIN
        SELECT r.o_count INTO v_moved FROM "ensue".release_due(NULL, 0, chunk_size, 4194304) r;
    EXCEPTION WHEN check_violation THEN
        -- The only check that a row of the log can fail is that of its place: there is no partition for it. Room for as much as one call may move.
        PERFORM "ensue".ensure_partitions(s.o_rows, greatest(s.o_ahead, 2 * chunk_size + 1000)) FROM "ensue".partitions_set() s;
        SELECT r.o_count INTO v_moved FROM "ensue".release_due(NULL, 0, chunk_size, 4194304) r;
    END;
    -- What the caller's transaction publishes after this call is not drained, though its number is smaller.
    PERFORM set_config('ensue.drained_884657cb0d78dfec', v_drained, false);
    RETURN v_moved;
END
$body$;

-- Writes events to the outbox in the caller's transaction, one row for each. Returns their ids in
-- order; `repeated ` precedes the id of an event whose key was known.
--
-- For the library (own/publish.rs). The checks are those of `publish`, because a login with the
-- role for publishers may call this directly. Ids are made here, from the server's clock, with a
-- counter in the last digits: ids of the caller could be those of other events.
--
-- Arrays are parallel; one is null when all its elements would be.
--   p_payloads      as text: made jsonb where the row is built
--   p_fingerprints  SHA-256 of each event with a key
CREATE OR REPLACE FUNCTION "ensue".outbox_put(
    p_topics text[], p_payloads text[], p_metadata text[], p_occurred_at timestamptz[],
    p_not_before timestamptz[], p_to uuid[], p_objects text[], p_keys text[], p_fingerprints bytea[]
) RETURNS text[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
BEGIN
    RETURN "ensue".outbox_put_at(NULL, p_topics, p_payloads, p_metadata, p_occurred_at, p_not_before,
        p_to, p_objects, p_keys, p_fingerprints);
END
$body$;

-- Bytes of JSON text, or half of those that jsonb writes if they are more: it adds at most one blank
-- for every two bytes, and writes all digits of a number with an exponent.
CREATE OR REPLACE FUNCTION "ensue".written_bytes(p_json text) RETURNS bigint LANGUAGE sql STABLE
AS $body$
    SELECT greatest(octet_length(p_json), CASE WHEN octet_length(p_json) <= 1048576 AND p_json ~ '[0-9][eE]'
        THEN octet_length(p_json::jsonb::text) / 2 END)
$body$;

-- The fault of what outbox_put is given as content, or null.
CREATE OR REPLACE FUNCTION "ensue".put_fault(p_payload text, p_metadata text, p_key text, p_fingerprint bytea)
RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT CASE
        WHEN p_payload IS NULL THEN 'payload is missing; write a JSON value, such as ''{}'''
        WHEN "ensue".written_bytes(p_payload) + coalesce("ensue".written_bytes(p_metadata), 0) > 1048576
            THEN "ensue".size_fault(
                "ensue".written_bytes(p_payload) + coalesce("ensue".written_bytes(p_metadata), 0))
        WHEN jsonb_typeof(p_metadata::jsonb) <> 'object'
            THEN 'metadata must be a JSON object, such as {"trace":"abc"}'
        WHEN p_key IS NOT NULL AND octet_length(p_fingerprint) IS DISTINCT FROM 32
            THEN 'fingerprint must have 32 bytes for an event with a key'
    END
$body$;

-- The same at the time of an injected clock (p_now); the server's clock if it is null. Not granted
-- to publishers: the time becomes that of the ids.
--
-- An event with a key is written by itself: another transaction with the same key is waited for
-- (fn_publish.sql). The order of the call is the order in the log. Two transactions with the same
-- two keys in different order deadlock; the server ends one of them with an error.
CREATE OR REPLACE FUNCTION "ensue".outbox_put_at(
    p_now timestamptz, p_topics text[], p_payloads text[], p_metadata text[],
    p_occurred_at timestamptz[], p_not_before timestamptz[], p_to uuid[], p_objects text[],
    p_keys text[], p_fingerprints bytea[]
) RETURNS text[] LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz := coalesce(p_now, clock_timestamp());
    v_count int := cardinality(p_topics);
    v_id_start pg_catalog.text;
    v_ids pg_catalog.text[];
    v_event pg_catalog.record;
    v_id pg_catalog.uuid;
    v_fault pg_catalog.text;
BEGIN
    IF (v_count BETWEEN 1 AND 1048575 AND cardinality(p_payloads) = v_count
        AND coalesce(cardinality(p_metadata), v_count) = v_count
        AND coalesce(cardinality(p_occurred_at), v_count) = v_count
        AND coalesce(cardinality(p_not_before), v_count) = v_count
        AND coalesce(cardinality(p_to), v_count) = v_count
        AND coalesce(cardinality(p_objects), v_count) = v_count
        AND coalesce(cardinality(p_keys), v_count) = v_count
        AND coalesce(cardinality(p_fingerprints), v_count) = v_count) IS NOT TRUE
    THEN
        PERFORM "ensue".refuse(CASE WHEN v_count BETWEEN 1 AND 1048575
            THEN format('%s has %s elements; write %s, one for each topic', a.name, a.count, v_count)
            ELSE format('topics has %s elements; write 1 to 1048575', coalesce(v_count, 0))
            END)
        FROM (VALUES
            ('payloads', coalesce(cardinality(p_payloads), 0)), ('metadata', cardinality(p_metadata)),
            ('occurred_at', cardinality(p_occurred_at)), ('not_before', cardinality(p_not_before)),
            ('to', cardinality(p_to)), ('objects', cardinality(p_objects)),
            ('keys', cardinality(p_keys)), ('fingerprints', cardinality(p_fingerprints)), ('topics', -1)
        ) a(name, count)
        WHERE a.count <> v_count OR v_count IS NULL LIMIT 1;
    END IF;
    v_id_start := "ensue".id_start(v_now);
    IF v_count = 1 AND p_keys IS NULL THEN
        -- The common case, without a set: a third of the time.
        v_fault := coalesce(
            "ensue".event_fault(p_topics[1], p_objects[1], NULL, p_occurred_at[1], p_not_before[1]),
            "ensue".put_fault(p_payloads[1], p_metadata[1], NULL, NULL));
        IF v_fault IS NOT NULL THEN
            PERFORM "ensue".refuse(v_fault);
        END IF;
        v_ids := ARRAY[v_id_start || '00001'];
        INSERT INTO "ensue".outbox
            (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
        VALUES (coalesce(p_occurred_at[1], v_now), p_not_before[1], v_ids[1]::uuid, p_to[1], p_topics[1],
            p_objects[1], p_payloads[1]::jsonb, p_metadata[1]::jsonb);
        PERFORM "ensue".outbox_ring();
        RETURN v_ids;
    END IF;
    PERFORM "ensue".refuse(e.fault) FROM (
        SELECT coalesce(
            "ensue".event_fault(b.topic, b.object, b.key, b.occurred_at, b.not_before),
            "ensue".put_fault(b.payload, b.metadata, b.key, b.fingerprint)) AS fault
        FROM unnest(p_topics, p_payloads, p_metadata, p_occurred_at, p_not_before, p_objects, p_keys,
                p_fingerprints)
            b(topic, payload, metadata, occurred_at, not_before, object, key, fingerprint)
    ) e WHERE e.fault IS NOT NULL LIMIT 1;
    v_ids := ARRAY(
        SELECT v_id_start || lpad(to_hex(g.n), 5, '0') FROM generate_series(1, v_count) g(n));
    IF p_keys IS NULL THEN
        INSERT INTO "ensue".outbox
            (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
        SELECT coalesce(b.occurred_at, v_now), b.not_before, b.id::uuid, b.to_subscription, b.topic,
            b.object, b.payload::jsonb, b.metadata::jsonb
        FROM (
            SELECT unnest(v_ids) AS id, unnest(p_topics) AS topic, unnest(p_payloads) AS payload,
                unnest(p_metadata) AS metadata, unnest(p_occurred_at) AS occurred_at,
                unnest(p_not_before) AS not_before, unnest(p_to) AS to_subscription,
                unnest(p_objects) AS object
        ) b;
    ELSE
        FOR v_event IN
            SELECT b.*
            FROM unnest(v_ids, p_topics, p_payloads, p_metadata, p_occurred_at, p_not_before, p_to,
                    p_objects, p_keys, p_fingerprints) WITH ORDINALITY
                b(id, topic, payload, metadata, occurred_at, not_before, to_subscription, object, key,
                    fingerprint, n)
            ORDER BY b.n
        LOOP
            IF v_event.key IS NULL THEN
                INSERT INTO "ensue".outbox
                    (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
                VALUES (coalesce(v_event.occurred_at, v_now), v_event.not_before, v_event.id::uuid,
                    v_event.to_subscription, v_event.topic, v_event.object, v_event.payload::jsonb,
                    v_event.metadata::jsonb);
            ELSE
                v_id := "ensue".outbox_keyed(v_event.id::uuid, coalesce(v_event.occurred_at, v_now),
                    v_event.not_before, v_event.to_subscription, v_event.topic, v_event.object,
                    v_event.payload::jsonb, v_event.metadata::jsonb, v_event.key, v_event.fingerprint);
                IF v_id <> v_event.id::uuid THEN
                    v_ids[v_event.n] := 'repeated ' || v_id;
                END IF;
            END IF;
        END LOOP;
    END IF;
    PERFORM "ensue".outbox_ring();
    RETURN v_ids;
END
$body$;

-- Of the events of a handler's own transaction, how many are done already, by what is stored: is the lane, or the slot's cursor, beyond it?
CREATE OR REPLACE FUNCTION "ensue".own_done(p_group text, p_slots int[], p_changes int[], p_keys text[], p_seqs bigint[])
RETURNS bigint LANGUAGE sql STABLE
AS $body$
    SELECT count(*)
    FROM unnest(p_changes, p_keys, p_seqs) c(change, key, seq)
    JOIN "ensue".groups g ON g.name = p_group
    LEFT JOIN "ensue".lanes l ON l.group_id = g.id AND l.key = c.key
    LEFT JOIN "ensue".slots s ON s.group_id = g.id AND s.slot = p_slots[c.change]
    WHERE coalesce(l.position > c.seq, s.cursor >= c.seq)
$body$;

-- Says no to a handler's own transaction, if its events are done already or it does not have its slots any more.
CREATE OR REPLACE FUNCTION "ensue".own_check(
    p_group text, p_member uuid, p_slots int[], p_fences bigint[], p_changes int[], p_keys text[], p_seqs bigint[]
) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_done bigint := "ensue".own_done(p_group, p_slots, p_changes, p_keys, p_seqs);
BEGIN
    IF v_done = cardinality(p_seqs) THEN
        RAISE EXCEPTION 'this event is done already: nothing is to be done again' USING ERRCODE = 'EN102';
    ELSIF v_done > 0 THEN
        RAISE EXCEPTION 'a part of this batch is done already' USING ERRCODE = 'EN101',
            HINT = 'Roll back; the rest of it runs again.';
    END IF;
    IF EXISTS (
        SELECT 1 FROM unnest(p_slots, p_fences) c(slot, fence)
        LEFT JOIN "ensue".groups g ON g.name = p_group
        LEFT JOIN "ensue".slots s ON s.group_id = g.id AND s.slot = c.slot
        WHERE (s.owner = p_member AND s.fence = c.fence) IS NOT TRUE
    ) THEN
        RAISE EXCEPTION 'the group % goes on elsewhere: this slot of it was taken over, moved or deleted', quote_literal(p_group)
            USING ERRCODE = 'EN101', HINT = 'Roll back and drop the work: whoever has the slot now does it.';
    END IF;
END
$body$;

-- Message that a node signs to settle this work, composed as in `proof_of` of own/settle.rs. Each text follows its length in bytes.
CREATE OR REPLACE FUNCTION "ensue".own_message(
    p_call uuid, p_group text, p_member uuid, p_slots int[], p_fences bigint[], p_lane_changes int[], p_lane_keys text[], p_lane_seqs bigint[],
    p_number bigint, p_stamp bigint, p_fence bigint
) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT 'own-' || p_call || CASE WHEN p_number IS NOT NULL THEN format('|job|%s|%s|%s', p_number, p_stamp, p_fence)
        ELSE format('|slots|%s|%s|%s|%s|%s|%s:%s|%s', p_member, array_to_string(p_slots, ','), array_to_string(p_fences, ','),
            array_to_string(p_lane_changes, ','), array_to_string(p_lane_seqs, ','), octet_length(p_group), p_group,
            (SELECT string_agg(octet_length(k.key) || ':' || k.key, '' ORDER BY k.n) FROM unnest(p_lane_keys) WITH ORDINALITY k(key, n))) END
$body$;

-- Refuses lines that no attempt writes.
CREATE OR REPLACE FUNCTION "ensue".own_check_lines(p_attempts int[], p_at timestamptz[], p_levels text[], p_messages text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_count int := coalesce(cardinality(p_at), 0);
BEGIN
    IF v_count > 10000 OR EXISTS (
        SELECT 1 FROM unnest(ARRAY[array_ndims(p_attempts), array_ndims(p_at), array_ndims(p_levels), array_ndims(p_messages)],
            ARRAY[cardinality(p_attempts), cardinality(p_at), cardinality(p_levels), cardinality(p_messages)]) a(dimensions, count)
        WHERE a.dimensions > 1 OR coalesce(a.count, 0) <> v_count
    ) THEN
        PERFORM "ensue".refuse('the lines must be at most 10000, with an attempt, a time, a level and a message each');
    END IF;
    PERFORM "ensue".refuse(format('lines[%s] ', l.n - 1) || CASE
        WHEN l.attempt IS NULL OR l.attempt < 0 THEN 'has no attempt'
        WHEN l.at IS NULL OR "ensue".time_fault(l.at) IS NOT NULL THEN 'has no time in the years 1 to 9999'
        WHEN l.level IS NULL OR l.level NOT IN ('debug', 'info', 'warn', 'error') THEN 'has no level: debug, info, warn or error'
        WHEN l.message IS NULL OR octet_length(l.message) > 8192 + 16 THEN 'has no message of at most 8192 bytes'
    END)
    FROM unnest(p_attempts, p_at, p_levels, p_messages) WITH ORDINALITY l(attempt, at, level, message, n);
END
$body$;

-- Refuses jobs that `enqueue` would refuse. The arrays are those of jobs_insert: one that is null stands for defaults.
CREATE OR REPLACE FUNCTION "ensue".own_check_jobs(
    p_chances int[], p_handlers text[], p_objects text[], p_ordered boolean[], p_payloads text[], p_metadata text[], p_ranks bigint[],
    p_not_before timestamptz[], p_keys text[], p_attempts_max int[], p_exhausted text[], p_event_seqs bigint[],
    p_event_prevs bigint[], p_event_ids uuid[], p_event_topics text[]
) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_count int := coalesce(cardinality(p_handlers), 0);
BEGIN
    IF v_count > 1000 OR EXISTS (
        SELECT 1 FROM unnest(ARRAY[cardinality(p_chances), cardinality(p_handlers), cardinality(p_payloads), cardinality(p_ranks),
            cardinality(p_attempts_max)]) a(count) WHERE coalesce(a.count, 0) <> v_count
    ) OR EXISTS (
        SELECT 1 FROM unnest(ARRAY[cardinality(p_objects), cardinality(p_ordered), cardinality(p_metadata), cardinality(p_not_before),
            cardinality(p_keys), cardinality(p_exhausted), cardinality(p_event_seqs), cardinality(p_event_prevs), cardinality(p_event_ids),
            cardinality(p_event_topics)]) a(count) WHERE a.count <> v_count
    ) OR EXISTS (
        SELECT 1 FROM unnest(ARRAY[array_ndims(p_chances), array_ndims(p_handlers), array_ndims(p_objects), array_ndims(p_ordered),
            array_ndims(p_payloads), array_ndims(p_metadata), array_ndims(p_ranks), array_ndims(p_not_before), array_ndims(p_keys),
            array_ndims(p_attempts_max), array_ndims(p_exhausted), array_ndims(p_event_seqs), array_ndims(p_event_prevs),
            array_ndims(p_event_ids), array_ndims(p_event_topics)]) a(dimensions) WHERE a.dimensions > 1
    ) THEN
        PERFORM "ensue".refuse('the jobs must be at most 1000, with arrays of the same length');
    END IF;
    PERFORM "ensue".refuse(format('jobs[%s] ', j.n - 1) || coalesce(
        "ensue".job_fault(j.handler, j.object, j.key, j.payload::jsonb, coalesce(j.metadata, '{}')::jsonb,
            "ensue".written_bytes(j.payload) + coalesce("ensue".written_bytes(j.metadata), 2), j.attempts_max, coalesce(j.ordered, true),
            coalesce(j.exhausted, 'hold'), j.not_before),
        CASE
            WHEN j.chance IS NULL OR j.chance NOT BETWEEN 0 AND 4095 THEN 'has no chance from 0 to 4095'
            WHEN j.rank IS NULL THEN 'has no rank'
            WHEN "ensue".is_task(j.handler) AND j.key IS DISTINCT FROM 'schedule:' || substr(j.handler, 6)
                THEN 'is a task without the unique_key of its collection'
            WHEN j.event_seq < 1 OR j.event_prev NOT BETWEEN 1 AND j.event_seq - 1
                OR num_nonnulls(j.event_seq, j.event_id, j.event_topic) NOT IN (0, 3) OR j.event_prev IS NOT NULL AND j.event_seq IS NULL
                OR j.event_topic IS NOT NULL AND "ensue".dotted_fault(j.event_topic, 'order.paid') IS NOT NULL
                THEN 'has only some of event_seq, event_id and event_topic; set all of them, or none'
        END))
    FROM unnest(p_chances, p_handlers, p_objects, p_ordered, p_payloads, p_metadata, p_ranks, p_not_before, p_keys, p_attempts_max,
            p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics)
        WITH ORDINALITY j(chance, handler, object, ordered, payload, metadata, rank, not_before, key, attempts_max, exhausted,
            event_seq, event_prev, event_id, event_topic, n);
END
$body$;

-- Settles a handler's work in its own transaction: takes a note, which is carried out when the transaction commits. Work that is already lost is refused at
-- once. The caller has any role, so p_proof must be the code of a node of this store for exactly this work, and everything else is checked. Answers nothing.
CREATE OR REPLACE FUNCTION "ensue".own_put(
    p_call uuid, p_now timestamptz,
    p_group text, p_member uuid, p_slots int[], p_fences bigint[], p_lane_changes int[], p_lane_keys text[], p_lane_seqs bigint[],
    p_number bigint, p_stamp bigint, p_fence bigint,
    p_line_attempts int[], p_line_at timestamptz[], p_line_levels text[], p_line_messages text[],
    p_chances int[], p_handlers text[], p_objects text[], p_ordered boolean[], p_payloads text[], p_metadata text[], p_ranks bigint[],
    p_not_before timestamptz[], p_keys text[], p_attempts_max int[], p_exhausted text[], p_event_seqs bigint[],
    p_event_prevs bigint[], p_event_ids uuid[], p_event_topics text[], p_proof text
) RETURNS text[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- At the commit it must see what others have done since it began.
        RAISE EXCEPTION 'a handler settles in a transaction that is read committed, this one is %', current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction', HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED';
    END IF;
    IF "ensue".store_code("ensue".own_message(p_call, p_group, p_member, p_slots, p_fences, p_lane_changes, p_lane_keys, p_lane_seqs,
            p_number, p_stamp, p_fence)) IS DISTINCT FROM p_proof OR p_proof IS NULL THEN
        RAISE EXCEPTION 'the proof does not match the settled work' USING ERRCODE = 'EN101', HINT = 'Roll back and drop the work.';
    END IF;
    PERFORM "ensue".refuse('p_now ' || "ensue".time_fault(p_now));
    PERFORM "ensue".own_check_lines(p_line_attempts, p_line_at, p_line_levels, p_line_messages);
    PERFORM "ensue".own_check_jobs(p_chances, p_handlers, p_objects, p_ordered, p_payloads, p_metadata, p_ranks, p_not_before, p_keys,
        p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics);
    IF p_number IS NULL THEN
        PERFORM "ensue".own_check(p_group, p_member, p_slots, p_fences, p_lane_changes, p_lane_keys, p_lane_seqs);
    ELSIF NOT EXISTS (
        SELECT 1 FROM "ensue".jobs j
        WHERE j.number = p_number AND j.stamp = p_stamp AND j.fence = p_fence AND coalesce(j.state, '') = 'running'
    ) THEN
        RAISE EXCEPTION 'the job goes on elsewhere, or is over' USING ERRCODE = 'EN101', HINT = 'Roll back and drop the work.';
    END IF;
    INSERT INTO "ensue".own_settlements VALUES (
        p_call, p_now, p_group, p_member, p_slots, p_fences, p_lane_changes, p_lane_keys, p_lane_seqs, p_number, p_stamp, p_fence,
        p_line_attempts, p_line_at, p_line_levels, p_line_messages, p_chances, p_handlers, p_objects, p_ordered, p_payloads,
        p_metadata, p_ranks, p_not_before, p_keys, p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics);
    RETURN '{}';
END
$body$;

-- Carries out what a handler's own transaction settles, while that commits: every lock is taken now and is gone with the commit. With an
-- error nothing of the transaction is stored.
CREATE OR REPLACE FUNCTION "ensue".own_settle(p_call uuid) RETURNS void LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_own "ensue".own_settlements;
    v_states pg_catalog.text[];
    v_sends int;
    v_lines int;
BEGIN
    DELETE FROM "ensue".own_settlements o WHERE o.call = p_call RETURNING o.* INTO v_own;
    IF NOT FOUND THEN
        -- It was carried out earlier in this transaction: SET CONSTRAINTS … IMMEDIATE.
        RETURN;
    END IF;
    v_sends := cardinality(v_own.handlers);
    IF v_own.number IS NULL THEN
        -- As slots_settle does next: nobody takes one over any more.
        PERFORM 1 FROM "ensue".slots s JOIN "ensue".groups g ON g.id = s.group_id
        WHERE g.name = v_own.group_name AND s.slot = ANY (v_own.slots)
        ORDER BY s.group_id, s.slot FOR UPDATE OF s;
        PERFORM "ensue".own_check(v_own.group_name, v_own.member, v_own.slots, v_own.fences, v_own.lane_changes, v_own.lane_keys,
            v_own.lane_seqs);
        SELECT t.o_states INTO v_states FROM "ensue".slots_settle(
            p_now => v_own.now, p_hint => 0, p_call => p_call,
            p_groups => array_fill(v_own.group_name, ARRAY[cardinality(v_own.slots)]), p_slots => v_own.slots,
            p_members => array_fill(v_own.member, ARRAY[cardinality(v_own.slots)]), p_fences => v_own.fences,
            p_cursors => NULL, p_lost_from => NULL, p_lost_to => NULL,
            p_waves => array_fill(1, ARRAY[cardinality(v_own.slots)]),
            p_lane_changes => v_own.lane_changes, p_lane_keys => v_own.lane_keys,
            p_lane_positions => ARRAY(SELECT c.seq + 1 FROM unnest(v_own.lane_seqs) WITH ORDINALITY c(seq, n) ORDER BY c.n),
            p_lane_states => array_fill('done'::text, ARRAY[cardinality(v_own.lane_keys)]),
            p_lane_attempts => array_fill(0::bigint, ARRAY[cardinality(v_own.lane_keys)]),
            p_lane_not_before => NULL, p_lane_errors => NULL,
            p_lane_redriven => array_fill(false, ARRAY[cardinality(v_own.lane_keys)]),
            p_delivery_changes => NULL, p_delivery_seqs => NULL, p_delivery_objects => NULL, p_delivery_states => NULL,
            p_delivery_attempts => NULL, p_delivery_errors => NULL, p_started_at => NULL, p_finished_at => NULL,
            p_line_changes => NULL, p_line_seqs => NULL, p_line_attempts => NULL, p_line_at => NULL, p_line_levels => NULL,
            p_line_messages => NULL,
            p_event_changes => NULL, p_id_parts => NULL, p_topics => NULL, p_payloads => NULL, p_metadata => NULL,
            p_occurred_at => NULL, p_to => NULL, p_objects => NULL, p_keys => NULL, p_fingerprints => NULL, p_not_before => NULL,
            p_job_changes => CASE WHEN v_sends > 0 THEN array_fill(1, ARRAY[v_sends]) END,
            p_chances => v_own.chances, p_handlers => v_own.handlers, p_job_objects => v_own.objects, p_ordered => v_own.ordered,
            p_job_payloads => v_own.payloads, p_job_metadata => v_own.metadata, p_ranks => v_own.ranks,
            p_job_not_before => v_own.not_before, p_job_keys => v_own.keys, p_attempts_max => v_own.attempts_max,
            p_exhausted => v_own.exhausted, p_event_seqs => v_own.event_seqs, p_event_prevs => v_own.event_prevs,
            p_event_ids => v_own.event_ids, p_event_topics => v_own.event_topics) t;
    ELSE
        v_lines := cardinality(v_own.line_at);
        SELECT t.o_states INTO v_states FROM "ensue".jobs_settle(
            p_now => v_own.now, p_hint => 0, p_call => p_call,
            p_lock => CASE WHEN v_sends > 0 OR v_lines > 0 THEN hashtextextended(p_call::text, 0) END,
            p_again => false, p_steps => false,
            p_numbers => ARRAY[v_own.number], p_stamps => ARRAY[v_own.stamp], p_fences => ARRAY[v_own.fence],
            p_ends => ARRAY['succeeded'], p_asked => NULL, p_gives_back => NULL, p_lapsed => NULL, p_not_before => NULL,
            p_errors => NULL, p_results => NULL, p_waves => CASE WHEN v_sends > 0 THEN ARRAY[1] END,
            p_line_changes => CASE WHEN v_lines > 0 THEN array_fill(1, ARRAY[v_lines]) END,
            p_line_attempts => v_own.line_attempts, p_line_at => v_own.line_at, p_line_levels => v_own.line_levels,
            p_line_messages => v_own.line_messages,
            p_event_changes => NULL, p_id_parts => NULL, p_topics => NULL, p_event_payloads => NULL, p_event_metadata => NULL,
            p_occurred_at => NULL, p_to => NULL, p_event_objects => NULL, p_event_keys => NULL, p_fingerprints => NULL,
            p_event_not_before => NULL,
            p_job_changes => CASE WHEN v_sends > 0 THEN array_fill(1, ARRAY[v_sends]) END,
            p_chances => v_own.chances, p_handlers => v_own.handlers, p_objects => v_own.objects, p_ordered => v_own.ordered,
            p_payloads => v_own.payloads, p_metadata => v_own.metadata, p_ranks => v_own.ranks,
            p_job_not_before => v_own.not_before, p_keys => v_own.keys, p_attempts_max => v_own.attempts_max,
            p_exhausted => v_own.exhausted, p_event_seqs => v_own.event_seqs, p_event_prevs => v_own.event_prevs,
            p_event_ids => v_own.event_ids, p_event_topics => v_own.event_topics) t;
    END IF;
    IF EXISTS (SELECT 1 FROM unnest(v_states) s(state) WHERE s.state <> 'done') THEN
        RAISE EXCEPTION 'what this transaction settles goes on elsewhere, or is over' USING ERRCODE = 'EN101',
            HINT = 'Drop the work: whoever has it now does it.';
    END IF;
END
$body$;

-- Is this text a condition, and which SQL may be executed for it?
--
-- Nothing of the text is passed on as it is: it is cut into tokens, each of them must be one that a condition may have at that place,
-- and what is answered is written anew from them, with literals quoted by Postgres itself. So quoting tricks are data (S1). Whether the tokens
-- make sense together, and of which types they are, Postgres says when it is tried (condition_try).
--
-- One pass of a regular expression, which takes the longest token at each place, then one over the tokens: `v_open` are the brackets that
-- are open, by what they are for, `v_chain` the operators since the last AND, OR or comma at this level.

-- Refuses a part of a condition.
CREATE OR REPLACE FUNCTION "ensue".condition_refused(p_part text, p_reason text) RETURNS void LANGUAGE plpgsql IMMUTABLE
AS $body$
BEGIN
    RAISE EXCEPTION 'conditions_sql contains `%`: %',
        regexp_replace(left(p_part, 60), $re$[\U00000001-\U0000001f\U0000007f-\U0000009f\U000000ad-\U000000ad\U0000034f-\U0000034f\U00000600-\U00000605\U0000061c-\U0000061c\U000006dd-\U000006dd\U0000070f-\U0000070f\U00000890-\U00000891\U000008e2-\U000008e2\U0000115f-\U00001160\U000017b4-\U000017b5\U0000180b-\U0000180f\U0000200b-\U0000200f\U00002028-\U0000202e\U00002060-\U0000206f\U00002800-\U00002800\U00003164-\U00003164\U0000feff-\U0000feff\U0000ffa0-\U0000ffa0\U0000fff0-\U0000fffb\U000110bd-\U000110bd\U000110cd-\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]$re$, ' ', 'g') || CASE WHEN length(p_part) > 60 THEN '…' ELSE '' END, p_reason
        USING ERRCODE = 'invalid_parameter_value';
END
$body$;

CREATE OR REPLACE FUNCTION "ensue".condition_sql(p_condition text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT
AS $body$
DECLARE
    c_token CONSTANT pg_catalog.text := $re$(\s+|--[^\n\r]*|/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/|'(?:[^']|'')*'|\$\$(?:[^$]|\$(?!\$))*\$\$|\$[0-9]+$re$
        || $re$|"(?:[^"]|"")*"|[A-Za-z_][A-Za-z0-9_$]*|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[-+*/<>=~!@#%^&|`?]+|::|.)$re$;
    c_columns_e CONSTANT pg_catalog.text[] := '{topic,object,payload,metadata,seq,id,occurred_at,recorded_at}';
    c_columns_s CONSTANT pg_catalog.text[] := '{params,id,group_id}';
    c_columns CONSTANT pg_catalog.text := 'e.topic, e.object, e.payload, e.metadata, e.seq, e.id, e.occurred_at, e.recorded_at, s.params, s.id, s.group_id';
    c_functions CONSTANT pg_catalog.text[] := '{coalesce,lower,upper,length,starts_with,abs,jsonb_build_object,jsonb_typeof,jsonb_array_length,to_jsonb,hashtext}';
    c_types CONSTANT pg_catalog.text[] := '{text,integer,int,int4,bigint,int8,numeric,decimal,dec,float8,float,double,boolean,bool,jsonb,timestamptz,timestamp,uuid}';
    c_types_told CONSTANT pg_catalog.text := 'text, integer, bigint, numeric, float8, boolean, jsonb, timestamptz, uuid and arrays of them';
    c_keywords CONSTANT pg_catalog.text[] := '{and,or,not,is,"null",true,false,unknown,distinct,from,between,in,like,ilike,escape,any,some,all,case,when,then,else,end,array,cast,as}';
    c_operators CONSTANT pg_catalog.text[] := ARRAY['=', '<>', '!=', '<', '<=', '>', '>=', '->', '->>', '#>', '#>>', '@>', '<@', '?', '?|', '?&', '||', '+', '-', '*', '/', '%'];
    c_comparisons CONSTANT pg_catalog.text[] := ARRAY['=', '<>', '!=', '<', '<=', '>', '>='];
    v_raw pg_catalog.text[];
    v_tokens pg_catalog.text[] := '{}'; -- words in lower case, operators cut as Postgres cuts them
    v_kinds pg_catalog.text[] := '{}'; -- word, name (a quoted one), text, number, sign (an operator), mark (everything else)
    v_token pg_catalog.text;
    v_kind pg_catalog.text;
    v_base pg_catalog.text;
    v_count int;
    v_next pg_catalog.text;
    v_prev pg_catalog.text := '';
    v_before pg_catalog.text := ''; -- the one before that
    v_prev_kind pg_catalog.text := '';
    v_is_value boolean := false; -- does the token before end a value?
    v_type boolean := false; -- and does it end the name of a type?
    v_wants_type boolean;
    v_is_type boolean;
    v_open pg_catalog.text[] := '{}';
    v_prefixes int := 0;
    v_chain int := 0;
    v_sql pg_catalog.text[] := '{}';
BEGIN
    IF octet_length(p_condition) > 16384 THEN
        RAISE EXCEPTION 'conditions_sql has % bytes; at most 16384 are allowed: move lists into params', octet_length(p_condition)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    v_raw := ARRAY(SELECT m.t[1] FROM regexp_matches(p_condition, c_token, 'g') WITH ORDINALITY m(t, n) ORDER BY m.n);
    FOREACH v_token IN ARRAY v_raw LOOP
        CONTINUE WHEN v_token ~ $re$^(\s|--|/\*.*\*/$)$re$;
        IF v_token ~ '^[A-Za-z_]' THEN
            v_tokens := v_tokens || lower(v_token COLLATE "C");
            v_kinds := v_kinds || 'word'::text;
        ELSIF v_token ~ '^".' THEN
            v_tokens := v_tokens || v_token;
            v_kinds := v_kinds || 'name'::text;
        ELSIF v_token ~ $re$^('.|\$\$..)$re$ THEN
            -- What it says, after a quote: so it is like no word and no sign.
            v_tokens := v_tokens || ('''' || CASE WHEN v_token ~ '^''' THEN replace(substr(v_token, 2, length(v_token) - 2), '''''', '''')
                ELSE substr(v_token, 3, length(v_token) - 4) END);
            v_kinds := v_kinds || 'text'::text;
        ELSIF v_token ~ '^[.]?[0-9]' THEN
            v_tokens := v_tokens || v_token;
            v_kinds := v_kinds || 'number'::text;
        ELSIF v_token ~ '^[-+*/<>=~!@#%^&|`?]' THEN
            -- An operator that ends in a sign is two, unless it has a character that no operator of SQL itself has.
            v_base := CASE WHEN v_token <> ALL (c_operators) AND v_token !~ '[~!@#%^&|`?]' THEN rtrim(v_token, '+-') ELSE v_token END;
            IF v_base <> '' AND v_base <> ALL (c_operators) THEN
                PERFORM "ensue".condition_refused(v_token, 'there is no operator ' || v_token || ' in conditions'
                    || CASE WHEN v_token ~ '~' THEN '; use LIKE' ELSE '' END);
            END IF;
            v_tokens := v_tokens || array_remove(ARRAY[v_base], '') || array_remove(string_to_array(substr(v_token, length(v_base) + 1), NULL), '');
            v_kinds := v_kinds || array_fill('sign'::text, ARRAY[cardinality(v_tokens) - cardinality(v_kinds)]);
        ELSIF v_token IN ('(', ')', '[', ']', ',', '.', '::') THEN
            v_tokens := v_tokens || v_token;
            v_kinds := v_kinds || 'mark'::text;
        ELSE
            PERFORM "ensue".condition_refused(v_token, CASE
                WHEN v_token = ';' THEN 'a condition is one expression, not statements'
                WHEN v_token ~ '^[$][0-9]' THEN 'there are no placeholders; put values into params and read s.params'
                WHEN v_token IN ('''', '"') THEN 'the quote is not closed; a text stands in single quotes: ''like this'''
                ELSE 'this is not part of the language of conditions' END);
        END IF;
    END LOOP;
    v_count := cardinality(v_tokens);
    IF v_count = 0 THEN
        RAISE EXCEPTION 'conditions_sql is empty; write true to get every event' USING ERRCODE = 'invalid_parameter_value';
    ELSIF v_count > 4000 THEN
        RAISE EXCEPTION 'conditions_sql has % words and signs; at most 4000 are allowed', v_count USING ERRCODE = 'invalid_parameter_value';
    END IF;

    FOR i IN 1..v_count LOOP
        v_token := v_tokens[i];
        v_kind := v_kinds[i];
        v_next := coalesce(v_tokens[i + 1], '');
        v_wants_type := v_prev = '::' OR v_prev_kind = 'word' AND v_prev = 'as';
        v_is_type := false;
        IF v_wants_type AND NOT (v_kind = 'word' AND v_token = ANY (c_types)) THEN
            PERFORM "ensue".condition_refused(v_token, 'there is no such type here; there are ' || c_types_told);
        END IF;
        CASE v_kind
        WHEN 'word', 'name' THEN
            IF v_kind = 'name' THEN
                v_base := replace(substr(v_token, 2, length(v_token) - 2), '""', '"');
                IF NOT (v_prev = '.' OR v_base IN ('e', 's') AND v_next = '.') THEN
                    PERFORM "ensue".condition_refused(v_token,
                        'there is no such column; there are ' || c_columns || '. Text stands in single quotes: ''like this''');
                END IF;
                v_token := v_base;
            END IF;
            IF v_prev = '.' THEN
                IF v_token <> ALL (CASE v_before WHEN 'e' THEN c_columns_e ELSE c_columns_s END) THEN
                    PERFORM "ensue".condition_refused(v_before || '.' || v_token, 'there is no such column; there are ' || c_columns);
                END IF;
            ELSIF v_token IN ('e', 's') AND v_next = '.' THEN
                NULL;
            ELSIF v_token = ANY (c_types) AND (v_wants_type OR coalesce(v_kinds[i + 1], '') = 'text')
                OR v_token = 'precision' AND v_prev = 'double' AND v_type
                OR v_token = 'with' AND v_prev = 'timestamp' AND v_type
                OR v_token = 'time' AND v_prev = 'with' AND v_type OR v_token = 'zone' AND v_prev = 'time' AND v_type
                OR v_token IN ('double', 'timestamp') AND v_next IN ('precision', 'with') THEN
                IF v_token = 'double' AND v_next <> 'precision' OR v_token = 'timestamp' AND v_next <> 'with'
                    OR v_token = 'with' AND v_next <> 'time' OR v_token = 'time' AND v_next <> 'zone'
                    OR v_next = '(' AND v_token NOT IN ('numeric', 'decimal', 'dec') THEN
                    PERFORM "ensue".condition_refused(v_token || ' ' || v_next, 'there is no such type here; there are ' || c_types_told);
                END IF;
                v_is_type := true;
            ELSIF v_token = ANY (c_functions) AND v_next = '(' THEN
                NULL;
            ELSIF v_token = ANY (c_keywords) THEN
                IF v_token = 'distinct' AND NOT (v_prev = 'is' OR v_prev = 'not' AND v_before = 'is') OR v_token = 'distinct' AND v_next <> 'from' THEN
                    PERFORM "ensue".condition_refused(v_prev || ' ' || v_token, 'write IS [NOT] DISTINCT FROM, or a plain call: name(argument, …)');
                ELSIF v_token = 'from' AND v_prev <> 'distinct' THEN
                    PERFORM "ensue".condition_refused(v_prev || ' from', 'FROM stands after IS DISTINCT, and nowhere else');
                ELSIF v_token = 'as' AND coalesce(v_open[cardinality(v_open)], '') <> 'cast' THEN
                    PERFORM "ensue".condition_refused(v_prev || ' as', 'AS stands in CAST(value AS type), and nowhere else');
                ELSIF v_token IN ('like', 'ilike') AND v_next IN ('any', 'some', 'all') THEN
                    PERFORM "ensue".condition_refused(v_token || ' ' || v_next, 'there is no LIKE ANY; join several LIKE with OR');
                ELSIF v_token IN ('any', 'some', 'all') AND NOT (v_prev = ANY (c_comparisons) AND v_next = '(') THEN
                    PERFORM "ensue".condition_refused(v_prev || ' ' || v_token, 'only = <> < <= > >= go with ANY (…) and ALL (…)');
                ELSIF v_token = 'array' AND v_next <> '[' OR v_token IN ('in', 'cast') AND v_next <> '(' THEN
                    PERFORM "ensue".condition_refused(v_token || ' ' || v_next, 'write ARRAY[…], IN (…) and CAST(value AS type)');
                END IF;
            ELSE
                PERFORM "ensue".condition_refused(v_token, CASE
                    WHEN v_token IN ('select', 'exists', 'with', 'values', 'table')
                        THEN 'there are no subqueries; a condition sees one event (e) and one subscription (s)'
                    WHEN v_next = '(' OR v_next = '.' AND v_tokens[i + 3] = '('
                        THEN 'there is no such function here; there are ' || array_to_string(c_functions, ', ')
                    WHEN v_token = ANY (c_columns_e) THEN 'write e.' || v_token
                    WHEN v_token = ANY (c_columns_s) THEN 'write s.' || v_token
                    WHEN v_next = '.' THEN 'there is no such column; there are ' || c_columns
                    WHEN v_token = ANY (c_functions) THEN 'write a plain call: name(argument, …)'
                    ELSE 'this is not part of the language of conditions; columns are ' || c_columns
                        || ', and text stands in single quotes: ''like this''' END);
            END IF;
        WHEN 'mark' THEN
            CASE v_token
            WHEN '.' THEN
                IF NOT (v_prev_kind IN ('word', 'name') AND v_prev IN ('e', 's')) OR coalesce(v_kinds[i + 1], '') NOT IN ('word', 'name') THEN
                    PERFORM "ensue".condition_refused(v_prev || '.' || v_next, 'a dot stands between e or s and a column: ' || c_columns);
                END IF;
            WHEN '(' THEN
                IF v_is_value AND NOT (v_type AND v_prev IN ('numeric', 'decimal', 'dec')) THEN
                    PERFORM "ensue".condition_refused(v_prev || ' (', 'this is no function; there are ' || array_to_string(c_functions, ', '));
                END IF;
                v_open := v_open || CASE
                    WHEN v_type THEN 'type' WHEN v_prev = 'cast' THEN 'cast' WHEN v_prev = 'in' THEN 'list'
                    WHEN v_prev_kind = 'word' AND v_prev = ANY (c_functions) THEN 'list' ELSE 'group' END;
            WHEN '[' THEN
                IF v_prev = 'array' AND v_prev_kind = 'word' THEN
                    v_open := v_open || 'array'::text;
                ELSIF v_type AND v_next = ']' AND v_prev <> ')' THEN
                    v_is_type := true;
                ELSE
                    PERFORM "ensue".condition_refused(v_prev || '[', 'there are no subscripts; use -> and #>');
                END IF;
            WHEN ',' THEN
                IF coalesce(v_open[cardinality(v_open)], '') NOT IN ('list', 'array', 'type') THEN
                    PERFORM "ensue".condition_refused(v_prev || ',', 'a comma stands in a call, IN (…) or ARRAY[…]; there are no rows');
                END IF;
            WHEN ')', ']' THEN
                IF NOT (v_token = ']' AND v_prev = '[' AND v_type) THEN
                    v_base := coalesce(v_open[cardinality(v_open)], '');
                    IF v_base = '' OR (v_base = 'array') <> (v_token = ']') THEN
                        PERFORM "ensue".condition_refused(v_prev || ' ' || v_token, 'nothing is open that it could close');
                    END IF;
                    v_open := trim_array(v_open, 1);
                    v_is_type := v_base = 'type';
                END IF;
            ELSE
                NULL;
            END CASE;
        ELSE
            NULL;
        END CASE;
        IF v_kind = 'word' AND v_token = 'case' AND v_prev <> '.' THEN
            v_open := v_open || 'case'::text;
        ELSIF v_kind = 'word' AND v_token = 'end' AND v_prev <> '.' THEN
            IF coalesce(v_open[cardinality(v_open)], '') <> 'case' THEN
                PERFORM "ensue".condition_refused(v_prev || ' end', 'there is no CASE that it could end');
            END IF;
            v_open := trim_array(v_open, 1);
        END IF;
        IF v_kind = 'mark' AND v_token IN ('(', ')', '[', ']', ',')
            OR v_kind = 'word' AND v_token IN ('and', 'or', 'when', 'then', 'else', 'case', 'end') THEN
            v_chain := 0;
        ELSIF v_kind = 'sign' OR v_token = '::' THEN
            v_chain := v_chain + 1;
        END IF;
        v_prefixes := CASE WHEN v_token = 'not' OR v_kind = 'sign' AND v_token IN ('+', '-') AND NOT v_is_value THEN v_prefixes + 1 ELSE 0 END;
        IF cardinality(v_open) + v_prefixes > 40 OR v_chain > 80 THEN
            RAISE EXCEPTION 'conditions_sql is nested more than 40 levels deep; make it flatter' USING ERRCODE = 'invalid_parameter_value';
        END IF;

        v_sql := v_sql || CASE
            WHEN v_kind = 'text' THEN quote_literal(substr(v_token, 2))
            -- These two have the same precedence in either form; the others would lose theirs.
            WHEN v_kind = 'sign' AND v_token IN ('->>', '#>>') THEN format('OPERATOR(%I.%s)', 'ensue', v_token)
            WHEN v_is_type AND v_token = 'text' THEN format('%I.condition_text', 'ensue')
            WHEN v_kind = 'word' AND v_token IN ('lower', 'upper') AND v_next = '(' THEN format('%I.condition_%s', 'ensue', v_token)
            ELSE v_token END;
        v_is_value := v_kind IN ('text', 'number', 'name') OR v_kind = 'mark' AND v_token IN (')', ']')
            OR v_kind = 'word' AND (v_prev = '.' OR v_is_type OR v_token IN ('null', 'true', 'false', 'unknown', 'end'));
        v_type := v_is_type;
        v_before := v_prev;
        v_prev := v_token;
        v_prev_kind := v_kind;
    END LOOP;
    IF cardinality(v_open) > 0 THEN
        PERFORM "ensue".condition_refused(v_token, 'something that was opened before it is not closed: ' || v_open[cardinality(v_open)]);
    END IF;
    RETURN array_to_string(v_sql, ' ');
END
$body$;

-- Which subscriptions that share a condition want which of these events?
--
-- Runs as a role without rights (fn_grants.sql), in UTC, on its arguments alone. `p_sql` is the output
-- of condition_sql; null is always true. Only functions that run as `ensue_owner` may call it: the
-- role that it runs as owns it, so any other text could alter it.
--
-- One statement for all of them. If that fails, event by event, and where that fails, subscription by subscription: what has no answer is told
-- with its subscription, the others get the event (H24). Topics are looked at again there, before the condition, as an AND has no order.
-- Nothing catches a statement_timeout: it ends the whole call.
CREATE OR REPLACE FUNCTION "ensue".condition_evaluate(
    p_sql text, p_events "ensue".condition_event[], p_subscriptions "ensue".condition_subscription[],
    OUT o_seqs bigint[], OUT o_ids uuid[], OUT o_failed_seqs bigint[], OUT o_failed_ids uuid[], OUT o_failed_with text[]
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO' SET extra_float_digits = 1 SET jit = off
SET standard_conforming_strings = on SET enable_hashjoin = on SET enable_nestloop = on
AS $body$
DECLARE
    v_from pg_catalog.text := 'SELECT array_agg(e.seq), array_agg(s.id) FROM unnest($1) e CROSS JOIN unnest($2) s WHERE ';
    v_topic pg_catalog.text := '(s.topic IS NULL OR e.topic = s.topic OR starts_with(e.topic, s.topic || ''.''))';
    v_sql pg_catalog.text := '(' || coalesce(p_sql, 'true') || ')';
    v_seqs bigint[];
    v_ids pg_catalog.uuid[];
BEGIN
    BEGIN
        EXECUTE v_from || v_topic || ' AND ' || v_sql INTO o_seqs, o_ids USING p_events, p_subscriptions;
        RETURN;
    EXCEPTION WHEN OTHERS THEN
        o_seqs := '{}';
        o_ids := '{}';
    END;
    v_sql := 'CASE WHEN ' || v_topic || ' THEN ' || v_sql || ' END';
    FOR i IN 1..cardinality(p_events) LOOP
        BEGIN
            EXECUTE v_from || v_sql INTO v_seqs, v_ids USING p_events[i:i], p_subscriptions;
            o_seqs := o_seqs || v_seqs;
            o_ids := o_ids || v_ids;
        EXCEPTION WHEN OTHERS THEN
            FOR j IN 1..cardinality(p_subscriptions) LOOP
                BEGIN
                    EXECUTE v_from || v_sql INTO v_seqs, v_ids USING p_events[i:i], p_subscriptions[j:j];
                    o_seqs := o_seqs || v_seqs;
                    o_ids := o_ids || v_ids;
                EXCEPTION WHEN OTHERS THEN
                    o_failed_seqs := o_failed_seqs || p_events[i].seq;
                    o_failed_ids := o_failed_ids || p_subscriptions[j].id;
                    o_failed_with := o_failed_with || left(sqlerrm, 500);
                END;
            END LOOP;
        END;
    END LOOP;
END
$body$;

-- Raises an error if Postgres does not accept the condition, or if it is not a boolean. There is no
-- event to evaluate it on: a condition that fails on some events only is accepted. It is translated
-- here, so that no caller has another text executed.
CREATE OR REPLACE FUNCTION "ensue".condition_try(p_condition text) RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO' SET jit = off SET standard_conforming_strings = on
AS $body$
DECLARE
    v_sql pg_catalog.text := "ensue".condition_sql(p_condition);
    v_events "ensue".condition_event[] := '{}';
    v_subscriptions "ensue".condition_subscription[] := '{}';
BEGIN
    EXECUTE 'SELECT FROM unnest($1) e CROSS JOIN unnest($2) s WHERE (' || v_sql || ')' USING v_events, v_subscriptions;
EXCEPTION
    WHEN OTHERS THEN
        RAISE EXCEPTION 'conditions_sql is refused: %', sqlerrm
            USING ERRCODE = 'invalid_parameter_value', HINT = 'docs/conditions.md has the language, with examples.';
END
$body$;

-- Subscriptions, for consumers over SQL. They are the same as over HTTP, in the same groups.

-- One text for params that mean the same, as ensue-core has it (identity_of_params): what jsonb prints, without the zeros of a number that change nothing.
-- What no engine would keep is refused.
CREATE OR REPLACE FUNCTION "ensue".params_identity(p_params jsonb, p_depth int DEFAULT 0) RETURNS text LANGUAGE plpgsql IMMUTABLE
AS $body$
DECLARE
    v_number numeric;
BEGIN
    IF p_depth > 64 THEN
        RAISE EXCEPTION 'params is nested more than 64 levels deep; make it flatter' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    CASE jsonb_typeof(p_params)
    WHEN 'object' THEN
        RETURN '{' || coalesce((
            SELECT string_agg(to_json(f.key)::text || ': ' || "ensue".params_identity(f.value, p_depth + 1), ', ' ORDER BY f.n)
            FROM jsonb_each(p_params) WITH ORDINALITY f(key, value, n)), '') || '}';
    WHEN 'array' THEN
        RETURN '[' || coalesce((
            SELECT string_agg("ensue".params_identity(f.value, p_depth + 1), ', ' ORDER BY f.n)
            FROM jsonb_array_elements(p_params) WITH ORDINALITY f(value, n)), '') || ']';
    WHEN 'number' THEN
        v_number := p_params::numeric;
        IF length(split_part(abs(v_number)::text, '.', 1)) > 400 OR scale(v_number) > 400 THEN
            RAISE EXCEPTION 'params has a number of more than 400 digits; write it as a text' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        RETURN trim_scale(v_number)::text;
    ELSE
        RETURN p_params::text;
    END CASE;
END
$body$;

-- The group of this name, which must be one that is pulled.
CREATE OR REPLACE FUNCTION "ensue".pulled_group(p_gid text) RETURNS bigint LANGUAGE plpgsql STABLE
AS $body$
DECLARE
    v_group bigint;
    v_kind pg_catalog.text;
BEGIN
    SELECT g.id, g.kind INTO v_group, v_kind FROM "ensue".groups g WHERE g.name = p_gid;
    IF v_kind <> 'pull' THEN
        RAISE EXCEPTION 'the group % belongs to the handler of that name, which alone reads it: choose another group', quote_literal(p_gid)
            USING ERRCODE = 'object_in_use';
    END IF;
    RETURN v_group;
END
$body$;

-- Subscribes a group to the events for which a condition holds (all of them if it is null) and answers the subscription's id. The same condition and params
-- in a group are the same subscription: it is touched, and the longer expiry holds. A group that is not there is made, and begins at the end of the log.
CREATE OR REPLACE FUNCTION "ensue".subscribe(
    gid text, conditions_sql text DEFAULT NULL, params jsonb DEFAULT '{}', expiry interval DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
#variable_conflict use_variable
DECLARE
    v_params pg_catalog.text := coalesce(params, '{}');
    v_expiry numeric := extract(epoch FROM expiry) * 1000000;
    v_fault pg_catalog.text;
    v_id pg_catalog.uuid;
BEGIN
    v_fault := coalesce('gid ' || "ensue".dotted_fault(gid, 'billing.invoices'), CASE
        WHEN octet_length(v_params) > 65536
            THEN format('params has %s bytes; at most 65536 are allowed: make it smaller', octet_length(v_params))
        WHEN v_expiry NOT BETWEEN 100000 AND 316224000000000
            THEN 'expiry must be at least 100 milliseconds and at most 3660 days; leave it out if the subscription is to stay'
    END);
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION '%', v_fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF conditions_sql IS NOT NULL THEN
        PERFORM "ensue".condition_try(conditions_sql);
    END IF;
    PERFORM "ensue".pulled_group(gid);
    v_id := "ensue".event_id(overlay(gen_random_uuid()::text PLACING '0' FROM 15 FOR 1)::uuid, clock_timestamp());
    SELECT u.id INTO STRICT v_id
    FROM "ensue".subscription_make(NULL, 0, gid, v_id, NULL, conditions_sql, v_params, "ensue".params_identity(coalesce(params, '{}')), v_expiry::bigint) u;
    RETURN v_id;
END
$body$;

-- Takes a subscription out of its group; was there one? By the primary key, group by group, as its id alone is in no index.
CREATE OR REPLACE FUNCTION "ensue".unsubscribe(id uuid) RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET jit = off
AS $body$
DECLARE
    v_gid pg_catalog.text;
BEGIN
    SELECT g.name INTO v_gid FROM "ensue".groups g
    JOIN "ensue".subscriptions u ON u.group_id = g.id AND u.id = unsubscribe.id WHERE g.kind = 'pull' LIMIT 1;
    RETURN FOUND AND "ensue".subscription_delete(NULL, v_gid, unsubscribe.id);
END
$body$;

-- The lease of a reader, the same text as over HTTP (ensue/src/groups/lease.rs): a form, who reads, under which fence, where it continues, how far it was led,
-- and what retention had taken. Numbers are 16 hexadecimal digits. The code at the end keeps a reader from changing the rest.
CREATE OR REPLACE FUNCTION "ensue".lease_text(
    p_member uuid, p_fence bigint, p_at bigint, p_given_to bigint, p_lost_from bigint, p_lost_to bigint
) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT l.lease || "ensue".store_code('lease-' || l.lease) FROM (
        SELECT '02' || replace(p_member::text, '-', '') || lpad(to_hex(p_fence), 16, '0') || lpad(to_hex(p_at), 16, '0')
            || lpad(to_hex(p_given_to), 16, '0') || lpad(to_hex(coalesce(p_lost_from, 0)), 16, '0') || lpad(to_hex(coalesce(p_lost_to, 0)), 16, '0')
    ) l(lease)
$body$;

-- The parts of a lease of this group; all null if there is none. A forged lease is a lost one. Whether a genuine one still holds is for the caller to decide.
CREATE OR REPLACE FUNCTION "ensue".lease_parts(
    p_gid text, p_lease text,
    OUT o_member uuid, OUT o_fence bigint, OUT o_at bigint, OUT o_given_to bigint, OUT o_lost_from bigint, OUT o_lost_to bigint
) LANGUAGE plpgsql STABLE
AS $body$
BEGIN
    IF p_lease !~ '^02[0-9a-f]{32}([0-7][0-9a-f]{15}){5}[0-9a-f]{32}$' THEN
        RAISE EXCEPTION 'the lease is not one that read_next_events answered; send it as it was, or read again without it'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF "ensue".store_code('lease-' || left(p_lease, 114)) <> right(p_lease, 32) THEN
        PERFORM "ensue".lease_lost(p_gid);
    END IF;
    o_member := substr(p_lease, 3, 32)::uuid;
    o_fence := ('x' || substr(p_lease, 35, 16))::bit(64)::bigint;
    o_at := ('x' || substr(p_lease, 51, 16))::bit(64)::bigint;
    o_given_to := ('x' || substr(p_lease, 67, 16))::bit(64)::bigint;
    o_lost_from := nullif(('x' || substr(p_lease, 83, 16))::bit(64)::bigint, 0);
    o_lost_to := nullif(('x' || substr(p_lease, 99, 16))::bit(64)::bigint, 0);
END
$body$;

-- Nothing was changed, because the lease does not hold.
CREATE OR REPLACE FUNCTION "ensue".lease_lost(p_gid text) RETURNS void LANGUAGE plpgsql IMMUTABLE
AS $body$
BEGIN
    RAISE EXCEPTION 'the lease on the group % is lost: it has run out, or the group was taken or moved; nothing was changed', quote_literal(p_gid)
        USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Read again without it: what was not committed comes again.';
END
$body$;

-- Which events of the log are for a group, after this place? The same as ensue/src/groups/scan.rs, with conditions evaluated by Postgres.
--
-- Looks at pages until there are p_limit events, the log ends, 10,000 places or a quarter of a second are behind; at one page at least. o_at: everything
-- up to here was looked at. o_seqs and o_ids are pairs: an event and a subscription that wants it. o_failed_*: whose condition failed on which.
--
-- A page is always read before the version of the group: whoever subscribed before an event was published is among those it is matched with.
-- It is cut by ORDER BY before LIMIT, wherever its rows lie (H3), at 4 MiB, and at so many events that a statement evaluates about 100,000
-- pairs at most. The `id` of an event is half of it, as it is stored, unless a condition looks at it: to put it together takes longer than all the rest.
CREATE OR REPLACE FUNCTION "ensue".pull_scan(
    p_group bigint, p_gid text, p_after bigint, p_limit int,
    OUT o_at bigint, OUT o_events "ensue".condition_event[], OUT o_seqs bigint[], OUT o_ids uuid[],
    OUT o_failed_seqs bigint[], OUT o_failed_ids uuid[], OUT o_failed_with text[], OUT o_lost_from bigint, OUT o_lost_to bigint
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_began pg_catalog.timestamptz := clock_timestamp();
    v_trimmed_to bigint;
    v_version bigint;
    v_known bigint; -- the version whose subscriptions are at hand
    v_subscriptions "ensue".condition_subscription[]; -- by condition
    v_conditions pg_catalog.text[]; -- each of them once: it is that of the subscriptions from v_first on, so many as v_count says
    v_first int[];
    v_count int[];
    v_sql pg_catalog.text[];
    v_fault pg_catalog.text[]; -- why there is no SQL for one
    v_page "ensue".condition_event[];
    v_rows int; -- how many events are looked at next: more each time
    v_reads_ids boolean;
    v_room bigint := 4194304;
    v_bytes bigint;
    v_wanted bigint[];
    v_end bigint;
    v_found pg_catalog.record;
    v_seqs bigint[];
    v_ids pg_catalog.uuid[];
    v_failed_seqs bigint[];
    v_failed_ids pg_catalog.uuid[];
    v_failed_with pg_catalog.text[];
BEGIN
    o_at := p_after;
    o_events := '{}';
    o_seqs := '{}';
    o_ids := '{}';
    o_failed_seqs := '{}';
    o_failed_ids := '{}';
    o_failed_with := '{}';
    SELECT least(greatest(20, least(p_limit, 500)), greatest(1, 100000 / greatest(1, g.subscriptions))) INTO v_rows
    FROM "ensue".groups g WHERE g.id = p_group;
    LOOP
        SELECT s.trimmed_to INTO v_trimmed_to FROM "ensue".log_state s;
        SELECT array_agg(ROW(p.seq, p.prev, p.id_part, p.topic, p.object, p.payload, coalesce(p.metadata, '{}'),
                "ensue".stored_time(coalesce(p.occurred_at, p.recorded_at)), "ensue".stored_time(p.recorded_at), p.to_subscription)::"ensue".condition_event ORDER BY p.seq)
        INTO v_page
        FROM (
            SELECT e.*, coalesce(sum(CASE WHEN pg_column_size(e.payload) < 1500 AND pg_column_compression(e.payload) IS NULL THEN pg_column_size(e.payload) ELSE octet_length(e.payload::text) END + coalesce(octet_length(e.metadata::text), 2)) OVER (ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS size_before
            FROM (
                SELECT * FROM "ensue".stored_events log WHERE log.seq > o_at AND log.seq > v_trimmed_to ORDER BY log.seq LIMIT v_rows
            ) e
        ) p WHERE p.size_before <= 4194304;
        -- What was trimmed before it could be read, or while this was reading.
        SELECT greatest(v_trimmed_to, s.trimmed_to) INTO v_trimmed_to FROM "ensue".log_state s;
        IF v_trimmed_to > o_at THEN
            o_lost_from := coalesce(o_lost_from, o_at + 1);
            o_lost_to := v_trimmed_to;
            o_at := v_trimmed_to;
            v_page := ARRAY(SELECT e FROM unnest(v_page) e WHERE e.seq > o_at ORDER BY e.seq);
        END IF;
        EXIT WHEN coalesce(cardinality(v_page), 0) = 0;

        SELECT g.version INTO v_version FROM "ensue".groups g WHERE g.id = p_group;
        IF v_version IS DISTINCT FROM v_known THEN
            SELECT array_agg(ROW(u.id, p_gid, u.params::jsonb, u.topic, u.condition)::"ensue".condition_subscription ORDER BY u.condition, u.id)
            INTO v_subscriptions
            FROM "ensue".subscriptions u,
                (SELECT "ensue".served_at(p_group) AS served_at, clock_timestamp() AS now OFFSET 0) t
            WHERE u.group_id = p_group
                AND (u.expires_in IS NULL OR u.expires_in >= "ensue".elapsed(greatest(u.touched_at, t.served_at), t.now));
            SELECT array_agg(c.condition ORDER BY c.first), array_agg(c.first ORDER BY c.first), array_agg(c.count ORDER BY c.first)
            INTO v_conditions, v_first, v_count
            FROM (
                SELECT u.condition, min(u.n)::int AS first, count(*)::int AS count
                FROM unnest(v_subscriptions) WITH ORDINALITY u(id, group_id, params, topic, condition, n) GROUP BY u.condition
            ) c;
            v_sql := '{}';
            v_fault := '{}';
            -- One that came over HTTP was never seen by condition_sql. What that refuses gets nothing, and its subscriptions are told.
            FOR i IN 1..coalesce(cardinality(v_conditions), 0) LOOP
                BEGIN
                    v_sql[i] := "ensue".condition_sql(v_conditions[i]);
                    v_fault[i] := NULL;
                EXCEPTION WHEN invalid_parameter_value THEN
                    v_sql[i] := NULL;
                    v_fault[i] := sqlerrm;
                END;
            END LOOP;
            v_known := v_version;
            v_reads_ids := coalesce(array_to_string(v_conditions, ' ') ~* $re$\mid\M$re$, false);
        END IF;
        IF v_reads_ids THEN
            v_page := ARRAY(
                SELECT ROW(e.seq, e.prev, "ensue".event_id(e.id, e.recorded_at), e.topic, e.object, e.payload, e.metadata, e.occurred_at,
                    e.recorded_at, e.to_subscription)::"ensue".condition_event
                FROM unnest(v_page) e ORDER BY e.seq);
        END IF;

        -- What is sent to one subscription is for that one alone, whatever its condition.
        SELECT coalesce(array_agg(e.seq), '{}'), coalesce(array_agg(s.id), '{}') INTO v_seqs, v_ids
        FROM unnest(v_page) e JOIN unnest(v_subscriptions) s ON s.id = e.to_subscription;
        v_failed_seqs := '{}';
        v_failed_ids := '{}';
        v_failed_with := '{}';
        FOR i IN 1..coalesce(cardinality(v_conditions), 0) LOOP
            IF v_fault[i] IS NOT NULL THEN
                v_failed_seqs := v_failed_seqs || array_fill(v_page[1].seq, ARRAY[v_count[i]]);
                v_failed_ids := v_failed_ids || ARRAY(SELECT s.id FROM unnest(v_subscriptions[v_first[i]:v_first[i] + v_count[i] - 1]) s);
                v_failed_with := v_failed_with || array_fill(v_fault[i], ARRAY[v_count[i]]);
                CONTINUE;
            END IF;
            SELECT * INTO v_found FROM "ensue".condition_evaluate(v_sql[i],
                ARRAY(SELECT e FROM unnest(v_page) e WHERE e.to_subscription IS NULL ORDER BY e.seq),
                v_subscriptions[v_first[i]:v_first[i] + v_count[i] - 1]);
            v_seqs := v_seqs || v_found.o_seqs;
            v_ids := v_ids || v_found.o_ids;
            v_failed_seqs := v_failed_seqs || v_found.o_failed_seqs;
            v_failed_ids := v_failed_ids || v_found.o_failed_ids;
            v_failed_with := v_failed_with || v_found.o_failed_with;
        END LOOP;

        -- No more than is asked for, or than fits; but one at least.
        v_wanted := ARRAY(SELECT DISTINCT w FROM unnest(v_seqs) w ORDER BY w);
        v_end := v_page[cardinality(v_page)].seq;
        IF cardinality(o_events) + cardinality(v_wanted) >= p_limit THEN
            v_end := v_wanted[p_limit - cardinality(o_events)];
        END IF;
        SELECT least(v_end, min(w.seq) - 1) INTO v_end
        FROM (
            SELECT e.seq, sum(CASE WHEN pg_column_size(e.payload) < 1500 AND pg_column_compression(e.payload) IS NULL THEN pg_column_size(e.payload) ELSE octet_length(e.payload::text) END + coalesce(octet_length(e.metadata::text), 2)) OVER (ORDER BY e.seq) AS bytes, row_number() OVER (ORDER BY e.seq) AS n
            FROM unnest(v_page) e WHERE e.seq = ANY (v_wanted)
        ) w WHERE w.bytes > v_room AND (w.n > 1 OR cardinality(o_events) > 0);
        SELECT coalesce(sum(CASE WHEN pg_column_size(e.payload) < 1500 AND pg_column_compression(e.payload) IS NULL THEN pg_column_size(e.payload) ELSE octet_length(e.payload::text) END + coalesce(octet_length(e.metadata::text), 2)), 0) INTO v_bytes FROM unnest(v_page) e WHERE e.seq = ANY (v_wanted) AND e.seq <= v_end;
        v_room := v_room - v_bytes;
        o_events := o_events || ARRAY(SELECT e FROM unnest(v_page) e WHERE e.seq = ANY (v_wanted) AND e.seq <= v_end ORDER BY e.seq);
        o_seqs := o_seqs || v_seqs;
        o_ids := o_ids || v_ids;
        o_failed_seqs := o_failed_seqs || v_failed_seqs;
        o_failed_ids := o_failed_ids || v_failed_ids;
        o_failed_with := o_failed_with || v_failed_with;
        o_at := v_end;
        EXIT WHEN cardinality(o_events) >= p_limit OR v_end < v_page[cardinality(v_page)].seq
            OR o_at >= p_after + 10000 OR clock_timestamp() >= v_began + interval '250 milliseconds';
        v_rows := greatest(1, least(500, v_rows * 2, 100000 / greatest(1, cardinality(v_subscriptions))));
    END LOOP;
END
$body$;

-- What is next for a group, and who may read it? For consumers over SQL; the same groups, cursors and leases as over HTTP (ensue/src/groups/pull.rs).
--
-- Takes the group's lease, for lease_for from the answer on, and answers events with the subscriptions that want them; each row says what to commit
-- (next_cursor) and under what (lease). Who comes while somebody else has the lease gets an error. Nothing is written to the log, and nothing is drained into it.
--
-- No rows: there is nothing up to the end of the log, or as far as one call looks. Then nobody has a lease, and the group has passed what was looked at,
-- unless the call went on under a lease or from a cursor: what is before that may not be done with.
CREATE OR REPLACE FUNCTION "ensue".read_next_events(
    gid text, cursor bigint DEFAULT NULL, chunk_size int DEFAULT 100, peek boolean DEFAULT false,
    under text DEFAULT NULL, lease_for interval DEFAULT '30 seconds'
) RETURNS TABLE (
    seq bigint, prev bigint, id uuid, topic text, object text, payload jsonb, metadata jsonb, occurred_at timestamptz, recorded_at timestamptz,
    subscription_ids uuid[], next_cursor bigint, lease text
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
#variable_conflict use_column
DECLARE
    p_gid ALIAS FOR $1;
    p_cursor ALIAS FOR $2;
    p_limit ALIAS FOR $3;
    p_peek boolean := coalesce($4, false);
    p_under ALIAS FOR $5;
    v_lease numeric := extract(epoch FROM $6) * 1000000;
    v_fault pg_catalog.text;
    v_group bigint;
    v_under pg_catalog.record;
    v_member pg_catalog.uuid;
    v_slot pg_catalog.record;
    v_committed bigint;
    v_fence bigint;
    v_last bigint;
    v_after bigint;
    v_scan pg_catalog.record;
    v_is_idle boolean;
    v_given_to bigint;
BEGIN
    v_fault := CASE
        WHEN p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN format('chunk_size is %s; choose from 1 to 1000', coalesce(p_limit::text, 'null'))
        WHEN v_lease IS NULL OR v_lease NOT BETWEEN 100000 AND 3600000000 THEN 'lease_for must be from 100 milliseconds to an hour'
    END;
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION '%', v_fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
    v_group := "ensue".pulled_group(p_gid);
    IF v_group IS NULL THEN
        RAISE EXCEPTION 'there is no group %', quote_literal(p_gid)
            USING ERRCODE = 'undefined_object', HINT = 'Subscribe to it, which makes it.';
    END IF;
    SELECT * INTO v_under FROM "ensue".lease_parts(p_gid, p_under);

    SELECT s.cursor, m.lease_until >= clock_timestamp() AS is_held INTO v_slot
    FROM "ensue".slots s LEFT JOIN "ensue".members m ON m.id = s.owner WHERE s.group_id = v_group ORDER BY s.cursor LIMIT 1;
    v_committed := v_slot.cursor;
    SELECT t.o_seq INTO v_last FROM "ensue".log_tail(v_committed) t;
    IF NOT p_peek THEN
        -- Who asks again and again while nothing happens writes nothing, unless there is somebody who would expire without it.
        IF p_under IS NULL AND p_cursor IS NULL AND v_last <= v_committed AND v_slot.is_held IS NOT TRUE AND NOT EXISTS (
                SELECT 1 FROM "ensue".subscriptions u WHERE u.group_id + 0 = v_group AND u.expires_in IS NOT NULL) THEN
            RETURN;
        END IF;
        v_member := coalesce(v_under.o_member, gen_random_uuid());
        -- Somebody may be changing the group's subscriptions at this moment: then all of it is tried again.
        FOR i IN 1..100 LOOP
            BEGIN
                SELECT * INTO v_slot FROM "ensue".slots_acquire(
                    NULL, p_gid, v_member, 'sql: ' || session_user, 'pull', v_lease::bigint, NULL, v_under.o_fence);
                EXIT;
            EXCEPTION WHEN lock_not_available THEN
                IF i = 100 THEN
                    RAISE;
                END IF;
                PERFORM pg_sleep(0.01);
            END;
        END LOOP;
        IF v_slot.o_slots IS NULL AND (p_under IS NOT NULL OR v_slot.o_held_until IS NULL) THEN
            PERFORM "ensue".lease_lost(p_gid);
        ELSIF v_slot.o_slots IS NULL THEN
            RAISE EXCEPTION 'somebody (%) reads the group % under a lease until %', v_slot.o_held_name, quote_literal(p_gid), v_slot.o_held_until
                USING ERRCODE = 'lock_not_available', HINT = 'Come back then, go on under that lease, or look with peek.';
        END IF;
        v_committed := v_slot.o_cursors[1];
        v_fence := v_slot.o_fences[1];
    END IF;
    IF p_cursor > v_last OR p_cursor < (CASE WHEN p_peek THEN 0 ELSE v_committed END) THEN
        RAISE EXCEPTION 'cursor is %; this group can be read after %, its cursor, to %, the newest event', p_cursor, v_committed, v_last
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Choose one of these, or look at what is before with peek.';
    END IF;
    v_after := coalesce(p_cursor, v_under.o_at, v_committed);
    SELECT * INTO v_scan FROM "ensue".pull_scan(v_group, p_gid, v_after, p_limit);

    IF NOT p_peek THEN
        PERFORM "ensue".pull_failed(v_group, p_gid, v_scan.o_at, v_scan.o_failed_seqs, v_scan.o_failed_ids, v_scan.o_failed_with);
        v_is_idle := p_under IS NULL AND p_cursor IS NULL AND cardinality(v_scan.o_events) = 0;
        IF v_is_idle THEN
            PERFORM "ensue".pull_commit(v_group, v_scan.o_at, v_scan.o_lost_from, v_scan.o_lost_to);
            PERFORM "ensue".member_leave(NULL, v_member);
        ELSIF p_under IS NULL AND cardinality(v_scan.o_events) = 0 THEN
            PERFORM "ensue".member_leave(NULL, v_member);
        ELSE
            UPDATE "ensue".members m SET lease_until = clock_timestamp() + v_lease::bigint * interval '1 microsecond' WHERE m.id = v_member;
        END IF;
        v_given_to := greatest(v_scan.o_at, v_under.o_given_to);
    END IF;
    RETURN QUERY
    SELECT e.seq, e.prev, "ensue".event_id(e.id, e.recorded_at), e.topic::text, e.object::text, e.payload, e.metadata, e.occurred_at, e.recorded_at, w.ids, v_scan.o_at,
        CASE WHEN NOT p_peek THEN "ensue".lease_text(v_member, v_fence, v_scan.o_at, v_given_to,
            coalesce(v_scan.o_lost_from, v_under.o_lost_from), coalesce(v_scan.o_lost_to, v_under.o_lost_to)) END
    FROM unnest(v_scan.o_events::"ensue".condition_event[]) e
    JOIN (
        SELECT x.seq, array_agg(x.id ORDER BY x.id) AS ids FROM unnest(v_scan.o_seqs, v_scan.o_ids) x(seq, id) GROUP BY x.seq
    ) w ON w.seq = e.seq
    ORDER BY e.seq;
END
$body$;

-- Counts the events on which conditions failed, with their subscriptions, and tells the caller of the first. What was not passed is looked at again, and counted then.
CREATE OR REPLACE FUNCTION "ensue".pull_failed(
    p_group bigint, p_gid text, p_at bigint, p_seqs bigint[], p_ids uuid[], p_with text[]
) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_failed pg_catalog.record;
BEGIN
    IF cardinality(p_seqs) = 0 THEN
        RETURN;
    END IF;
    UPDATE "ensue".subscriptions u
    SET failures = u.failures + f.count, failed_seq = f.seq, failed_at = clock_timestamp(), failed_with = f.said
    FROM (
        SELECT x.id, count(*) AS count, max(x.seq) AS seq, (array_agg(x.said ORDER BY x.seq DESC))[1] AS said
        FROM unnest(p_seqs, p_ids, p_with) x(seq, id, said) WHERE x.seq <= p_at GROUP BY x.id
    ) f
    WHERE u.group_id = p_group AND u.id = f.id;
    FOR v_failed IN
        SELECT x.* FROM unnest(p_seqs, p_ids, p_with) x(seq, id, said) WHERE x.seq <= p_at ORDER BY x.seq, x.id LIMIT 10
    LOOP
        RAISE WARNING 'the condition of subscription % of the group % failed on event %, which it does not get: %',
            v_failed.id, quote_literal(p_gid), v_failed.seq, v_failed.said
            USING HINT = 'Test before you cast: CASE WHEN jsonb_typeof(…) = ''number'' THEN … END.';
    END LOOP;
END
$body$;

-- Moves a group, whose slots the caller has, to a place that was looked at, and notes what was lost before it.
CREATE OR REPLACE FUNCTION "ensue".pull_commit(p_group bigint, p_at bigint, p_lost_from bigint, p_lost_to bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    UPDATE "ensue".slots s SET lost_from = p_lost_from, lost_to = p_lost_to, lost_nth = (
        SELECT coalesce(max(x.lost_nth), 0) + 1 FROM "ensue".slots x WHERE x.group_id = p_group)
    WHERE s.group_id = p_group AND p_lost_from > s.cursor AND p_lost_from <= p_at;
    UPDATE "ensue".slots s SET cursor = greatest(s.cursor, p_at), vanished = 0, served_at = greatest(s.served_at, clock_timestamp())
    WHERE s.group_id = p_group;
END
$body$;

-- How far is the reader? Notes that everything up to `cursor` is done, under the lease of a read, and answers where the group is then; with no cursor it stays where it is.
-- With release_lock somebody else may read at once. A lease that is lost changes nothing and is an error; so is a place that was not read.
CREATE OR REPLACE FUNCTION "ensue".set_group_cursor(
    gid text, cursor bigint, release_lock boolean DEFAULT true, lease text DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    p_gid ALIAS FOR $1;
    p_cursor ALIAS FOR $2;
    v_group bigint;
    v_lease pg_catalog.record;
    v_slot pg_catalog.record;
    v_given_to bigint;
BEGIN
    IF $4 IS NULL THEN
        RAISE EXCEPTION 'the lease is missing' USING ERRCODE = 'invalid_parameter_value', HINT = 'Send the one that read_next_events answered.';
    END IF;
    v_group := "ensue".pulled_group(p_gid);
    IF v_group IS NULL THEN
        RAISE EXCEPTION 'there is no group %', quote_literal(p_gid)
            USING ERRCODE = 'undefined_object', HINT = 'Subscribe to it, which makes it.';
    END IF;
    SELECT * INTO v_lease FROM "ensue".lease_parts(p_gid, $4);
    -- The lock comes first, the look at the lease after it: who takes the group over waits, or has done so before.
    PERFORM 1 FROM "ensue".slots s WHERE s.group_id = v_group ORDER BY s.slot FOR UPDATE;
    SELECT s.cursor, s.owner = v_lease.o_member AND s.fence = v_lease.o_fence AND m.lease_until >= clock_timestamp() AS holds INTO v_slot
    FROM "ensue".slots s LEFT JOIN "ensue".members m ON m.id = s.owner WHERE s.group_id = v_group ORDER BY s.slot LIMIT 1;
    IF v_slot.holds IS NOT TRUE THEN
        PERFORM "ensue".lease_lost(p_gid);
    END IF;
    SELECT least(v_lease.o_given_to, t.o_seq) INTO v_given_to FROM "ensue".log_tail(v_slot.cursor) t;
    IF p_cursor < v_slot.cursor THEN
        RAISE EXCEPTION 'cursor is %, and the group is at % already', p_cursor, v_slot.cursor
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Commit a later place. Groups are moved back over HTTP, with seek.';
    ELSIF p_cursor > v_given_to THEN
        RAISE EXCEPTION 'cursor is %, but under this lease everything up to % was read and no more', p_cursor, v_given_to
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Commit that or an earlier place.';
    END IF;
    IF p_cursor IS NOT NULL THEN
        PERFORM "ensue".pull_commit(v_group, p_cursor, v_lease.o_lost_from, v_lease.o_lost_to);
    END IF;
    IF coalesce($3, true) THEN
        PERFORM "ensue".member_leave(NULL, v_lease.o_member);
    END IF;
    RETURN coalesce(p_cursor, v_slot.cursor);
END
$body$;

-- The log as it is published, to be read with SQL: `stored_events` has half an id of each, and not what goes without saying. `id_part` is that half, which
-- programs read that were started before the table had this name.
CREATE OR REPLACE VIEW "ensue".events AS
SELECT e.seq, e.prev, "ensue".event_id(e.id_part, e.recorded_at) AS id, e.topic, e.object, e.payload, coalesce(e.metadata, '{}') AS metadata,
    "ensue".stored_time(coalesce(e.occurred_at, e.recorded_at)) AS occurred_at, "ensue".stored_time(e.recorded_at) AS recorded_at, e.to_subscription, e.id_part
FROM "ensue".stored_events e WHERE e.seq > (SELECT s.trimmed_to FROM "ensue".log_state s);

-- What groups want, and whose conditions have failed on events for readers over SQL: how often, and on which last.
CREATE OR REPLACE VIEW "ensue".group_subscriptions AS
SELECT g.name AS group_id, u.id, u.topic, u.condition, u.params::jsonb AS params, u.expires_in * interval '1 microsecond' AS expiry, u.created_at,
    u.failures, u.failed_seq, u.failed_at, u.failed_with
FROM "ensue".groups g JOIN "ensue".subscriptions u ON u.group_id = g.id;

-- Why a job cannot be sent, as `NewJob::check` and the types of its fields say; null if it can.
CREATE OR REPLACE FUNCTION "ensue".job_fault(
    p_handler text, p_object text, p_key text, p_payload jsonb, p_metadata jsonb, p_bytes bigint, p_attempts_max int, p_ordered boolean,
    p_exhausted text, p_not_before timestamptz
) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT coalesce(
        'handler ' || "ensue".dotted_fault(p_handler, 'mail.send'),
        'object ' || "ensue".plain_fault(p_object, 512),
        'unique_key ' || "ensue".plain_fault(p_key, 512),
        CASE
            WHEN p_payload IS NULL THEN 'payload is missing; write a JSON value, such as ''{}'''
            WHEN jsonb_typeof(p_metadata) IS DISTINCT FROM 'object' THEN 'metadata is not a JSON object; write {"name": value}'
            WHEN p_bytes > 1048576
                THEN format('payload has %s bytes with its metadata; at most 1048576 are allowed: store it elsewhere and send a reference', p_bytes)
            WHEN p_attempts_max IS NULL OR p_attempts_max NOT BETWEEN 1 AND 1000000
                THEN format('attempts_max is %s; choose 1 to 1000000', coalesce(p_attempts_max::text, 'null'))
            WHEN p_ordered IS NULL THEN 'ordered is null; write true or false'
            WHEN p_exhausted IS NULL OR p_exhausted NOT IN ('hold', 'skip', 'dead_letter_object')
                THEN 'on_exhausted must be hold, skip or dead_letter_object'
        END,
        'not_before ' || "ensue".time_fault(p_not_before))
$body$;

-- Sends a job in the caller's transaction, and answers its id. While a job of the handler with this key is live, it answers that one's.
--
-- No lock is taken that anybody else waits for, however long the transaction takes, but by who sends the same key. So a job with an object does not take
-- its place in its lane here, for which it would have to lock the lane and the rules: it is written as one whose time comes at once (`not_before` is
-- `enqueued_at`, as of no other), and gets its place when that is found after the commit, by who looks for what is due or sends another of its lane.
CREATE OR REPLACE FUNCTION "ensue".jobs_send(
    p_handler text, p_payload jsonb, p_object text, p_priority numeric, p_not_before timestamptz, p_key text,
    p_attempts_max int, p_metadata jsonb, p_ordered boolean, p_exhausted text
) RETURNS text LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz := clock_timestamp();
    v_settings pg_catalog.jsonb;
    v_retry pg_catalog.jsonb;
    v_number bigint;
    v_stamp bigint := (floor(extract(epoch FROM v_now) * 1000)::bigint << 12) + floor(random() * 4096)::bigint;
    v_is_later boolean := coalesce(p_not_before > v_now, false);
    v_is_loose boolean := p_object IS NULL AND NOT v_is_later;
    v_bytes bigint := octet_length(p_payload::text) + octet_length(p_metadata::text);
BEGIN
    PERFORM "ensue".check_dotted('handler', p_handler);
    PERFORM "ensue".check_plain('unique_key', p_key, 512);
    IF "ensue".is_task(p_handler) THEN
        -- As `tasks::as_task`: of a collection at most one task is live, whoever sends it.
        p_key := 'schedule:' || substr(p_handler, 6);
        p_priority := CASE WHEN p_priority = 0 THEN 100 ELSE p_priority END;
    END IF;
    v_settings := "ensue".handler_settings(p_handler);
    v_retry := v_settings -> 'retry';
    p_attempts_max := coalesce(p_attempts_max, (v_retry -> 'doubling' ->> 'attempts_max')::int,
        jsonb_array_length(v_retry -> 'exactly' -> 'delays_us') + 1, 5);
    p_exhausted := coalesce(p_exhausted, v_settings ->> 'on_exhausted', 'hold');
    PERFORM "ensue".refuse(coalesce(
        "ensue".job_fault(p_handler, p_object, p_key, p_payload, p_metadata, v_bytes, p_attempts_max, p_ordered, p_exhausted, p_not_before),
        CASE WHEN p_priority IS NULL OR p_priority <> trunc(p_priority) OR p_priority NOT BETWEEN 0 AND 18446744073709551615
            THEN format('priority is %s; choose a whole number from 0 to 18446744073709551615', coalesce(p_priority::text, 'null')) END));
    -- Before the number is drawn: who hears of the number knows then which transactions it may have to wait for.
    PERFORM pg_current_xact_id();
    LOOP
        v_number := nextval(format('%I.job_numbers', 'ensue')::regclass);
        INSERT INTO "ensue".jobs (number, stamp, rank, turn, enqueued_at, not_before, attempts_max, ordered, state, on_exhausted,
            handler, object, unique_key, payload, metadata)
        VALUES (v_number, v_stamp, ('9223372036854775807'::bigint::numeric - p_priority)::bigint, CASE WHEN v_is_loose THEN v_number END, v_now,
            CASE WHEN v_is_loose OR v_is_later THEN p_not_before ELSE v_now END, p_attempts_max, p_ordered,
            CASE WHEN v_is_loose THEN 'available' ELSE 'scheduled' END, p_exhausted, p_handler, p_object, p_key, p_payload::text,
            nullif(p_metadata::text, '{}'))
        ON CONFLICT (handler, unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL DO NOTHING;
        EXIT WHEN FOUND;
        SELECT j.number, j.stamp INTO v_number, v_stamp FROM "ensue".jobs j
        WHERE j.handler = p_handler AND j.unique_key = p_key AND j.unique_key IS NOT NULL AND j.finished_at IS NULL;
        EXIT WHEN FOUND;
        -- It has ended between the two looks, or, in a transaction with a snapshot of its own, is not to be seen.
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'the unique_key % is used by a transaction that this one cannot see', quote_literal(p_key)
                USING ERRCODE = 'serialization_failure', HINT = 'Begin the transaction again.';
        END IF;
        v_stamp := (floor(extract(epoch FROM v_now) * 1000)::bigint << 12) + floor(random() * 4096)::bigint;
    END LOOP;
    PERFORM "ensue".outbox_ring();
    RETURN "ensue".job_id(v_stamp, v_number);
END
$body$;

CREATE OR REPLACE FUNCTION "ensue".enqueue(
    handler text, payload jsonb DEFAULT 'null', object text DEFAULT NULL, priority numeric DEFAULT 0,
    not_before timestamptz DEFAULT NULL, unique_key text DEFAULT NULL, attempts_max int DEFAULT NULL, metadata jsonb DEFAULT '{}',
    ordered boolean DEFAULT true, on_exhausted text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN "ensue".jobs_send(handler, payload, object, priority, not_before, unique_key, attempts_max, metadata, ordered, on_exhausted);
END
$body$;

-- Gives jobs that were sent in somebody's transaction their places in these lanes, behind what is there and before what comes. The caller has the
-- locks of the lanes and of the rules.
CREATE OR REPLACE FUNCTION "ensue".jobs_place(p_now timestamptz, p_handlers text[], p_objects text[]) RETURNS void LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET jit = off
AS $body$
DECLARE
    v_sequence pg_catalog.regclass := format('%I.job_numbers', 'ensue')::regclass;
    v_sent bigint[] := ARRAY(
        SELECT j.number FROM (SELECT DISTINCT x.handler, x.object FROM unnest(p_handlers, p_objects) x(handler, object)) l
        JOIN "ensue".jobs j ON j.handler = l.handler AND j.object = l.object
        WHERE j.state = 'scheduled' AND j.not_before = j.enqueued_at AND j.ordered AND j.object IS NOT NULL
        ORDER BY j.not_before, j.number);
    v_handlers pg_catalog.text[];
    v_objects pg_catalog.text[];
BEGIN
    IF cardinality(v_sent) = 0 THEN
        RETURN;
    END IF;
    WITH placed AS (
        UPDATE "ensue".jobs j SET state = 'parked', turn = d.turn
        FROM (SELECT x.number, nextval(v_sequence) AS turn FROM unnest(v_sent) x(number)) d
        WHERE j.number = d.number AND coalesce(j.state, '') = 'scheduled'
        RETURNING j.handler, j.object
    )
    SELECT array_agg(p.handler), array_agg(p.object) INTO v_handlers, v_objects FROM placed p;
    PERFORM "ensue".jobs_turn(p_now, v_handlers, v_objects);
END
$body$;

-- What is said of a change of a rule, as `notices::rule_set` and `notices::rule_lifted` do.
CREATE OR REPLACE FUNCTION "ensue".rule_notice(p_rule "ensue".rules, p_lifted_by text) RETURNS text LANGUAGE plpgsql STABLE
AS $body$
BEGIN
    RETURN (jsonb_build_object('id', p_rule.id, 'kind', p_rule.kind, 'scope', p_rule.scope, 'reason', p_rule.reason,
            'author', p_rule.author, 'expires_at', "ensue".time_text(p_rule.expires_at))
        || CASE WHEN p_lifted_by IS NULL THEN '{}' ELSE jsonb_build_object('lifted_by', p_lifted_by) END)::text;
END
$body$;

-- Is this something that a rule can hold?
CREATE OR REPLACE FUNCTION "ensue".check_scope(p_scope text) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_key pg_catalog.text := substr(p_scope, position(':' IN p_scope) + 1);
BEGIN
    IF p_scope IN ('handler:', 'schedule:', 'object:') THEN
        PERFORM "ensue".refuse(format('scope %s names nothing; write handler:KEY, object:KEY or schedule:NAME, such as object:order:17', p_scope));
    ELSIF starts_with(p_scope, 'handler:') OR starts_with(p_scope, 'schedule:') THEN
        PERFORM "ensue".check_dotted('scope', v_key);
    ELSIF starts_with(p_scope, 'object:') THEN
        PERFORM "ensue".check_plain('scope', v_key, 512);
    ELSE
        PERFORM "ensue".refuse(format('scope %s is not one of handler:KEY, object:KEY and schedule:NAME', quote_nullable(p_scope)));
    END IF;
END
$body$;

-- The object of an event about a rule: rules on one scope are in order.
CREATE OR REPLACE FUNCTION "ensue".rule_object(p_scope text) RETURNS text LANGUAGE sql IMMUTABLE
AS $body$
    SELECT CASE WHEN octet_length('rule:' || p_scope) <= 512 THEN 'rule:' || p_scope END
$body$;

-- Of an id that is made for an event: its chance without its time, as it is stored.
CREATE OR REPLACE FUNCTION "ensue".new_id_part() RETURNS uuid LANGUAGE sql VOLATILE
AS $body$
    SELECT ('0000000000000' || right(replace(gen_random_uuid()::text, '-', ''), 19))::uuid
$body$;

-- Sets a rule, as who is logged in, and answers the version of all rules. With the commit nothing more is claimed that it holds.
CREATE OR REPLACE FUNCTION "ensue".rule_put(p_kind text, p_scope text, p_reason text, p_expires_at timestamptz) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_rule "ensue".rules;
    v_there pg_catalog.uuid;
    v_what pg_catalog.text;
BEGIN
    PERFORM "ensue".need_read_committed(p_kind);
    PERFORM "ensue".check_scope(p_scope);
    PERFORM "ensue".check_plain('reason', p_reason, 4096);
    IF p_expires_at <= clock_timestamp() THEN
        PERFORM "ensue".refuse(format('expires_at is %s, which has passed: choose a later time', "ensue".time_text(p_expires_at)));
    END IF;
    LOCK TABLE "ensue".rules_lock IN EXCLUSIVE MODE;
    SELECT r.id INTO v_there FROM "ensue".rules r WHERE r.scope = p_scope AND r.kind = p_kind;
    v_rule.id := coalesce(v_there, "ensue".event_id("ensue".new_id_part(), clock_timestamp()));
    v_rule.kind := p_kind;
    v_rule.scope := p_scope;
    v_rule.reason := p_reason;
    v_rule.author := session_user;
    v_rule.expires_at := CASE WHEN isfinite(p_expires_at) THEN p_expires_at END;
    SELECT s.o_what INTO v_what FROM "ensue".rule_set(
        NULL, NULL, gen_random_uuid(), v_there, v_rule.id, p_kind, p_scope,
        CASE WHEN starts_with(p_scope, 'object:') THEN substr(p_scope, 8) END, p_reason, v_rule.author, v_rule.expires_at,
        ARRAY["ensue".new_id_part()], ARRAY['ensue.rule.set'], ARRAY["ensue".rule_notice(v_rule, NULL)], ARRAY["ensue".rule_object(p_scope)]) s;
    IF v_what <> 'done' THEN
        PERFORM "ensue".refuse('scope would be one rule more than the 10000 there may be: lift some first');
    END IF;
    RETURN (SELECT s.version FROM "ensue".rules_state s);
END
$body$;

-- Lifts these rules; answers the version of all rules, or null if there is none of them.
CREATE OR REPLACE FUNCTION "ensue".rules_lift_some(p_rules "ensue".rules[], p_by text) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_lifted int[];
BEGIN
    SELECT l.o_lifted INTO v_lifted FROM (
        SELECT array_agg(r.kind ORDER BY r.n) AS kinds, array_agg(r.scope ORDER BY r.n) AS scopes, array_agg(r.set_by ORDER BY r.n) AS set_by,
            array_agg(CASE WHEN starts_with(r.scope, 'object:') THEN substr(r.scope, 8) END ORDER BY r.n) AS objects,
            array_agg("ensue".new_id_part() ORDER BY r.n) AS id_parts, array_agg('ensue.rule.lifted'::text ORDER BY r.n) AS topics,
            array_agg("ensue".rule_notice(p_rules[r.n], p_by) ORDER BY r.n) AS payloads,
            array_agg("ensue".rule_object(r.scope) ORDER BY r.n) AS told_of
        FROM unnest(p_rules) WITH ORDINALITY AS r(id, made_by, set_by, created_at, expires_at, kind, scope, reason, author, n)
    ) a
    CROSS JOIN LATERAL "ensue".rules_lift(NULL, NULL, a.kinds, a.scopes, a.set_by, a.objects, a.id_parts, a.topics, a.payloads, a.told_of) l;
    RETURN (SELECT s.version FROM "ensue".rules_state s WHERE v_lifted IS NOT NULL);
END
$body$;

CREATE OR REPLACE FUNCTION "ensue".rule_remove(p_kind text, p_scope text) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_rules "ensue".rules[];
BEGIN
    PERFORM "ensue".need_read_committed('to lift a ' || p_kind);
    LOCK TABLE "ensue".rules_lock IN EXCLUSIVE MODE;
    v_rules := ARRAY(SELECT r FROM "ensue".rules r WHERE r.scope = p_scope AND r.kind = p_kind);
    IF cardinality(v_rules) > 0 THEN
        RETURN "ensue".rules_lift_some(v_rules, session_user);
    END IF;
    PERFORM "ensue".check_scope(p_scope);
    RETURN NULL;
END
$body$;

-- Lifts rules that have expired; answers how many. Takes no lock if there are none.
CREATE OR REPLACE FUNCTION "ensue".rules_expire() RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_rules "ensue".rules[];
BEGIN
    IF NOT EXISTS (SELECT 1 FROM "ensue".rules r WHERE r.expires_at <= clock_timestamp()) THEN
        RETURN 0;
    END IF;
    LOCK TABLE "ensue".rules_lock IN EXCLUSIVE MODE;
    v_rules := ARRAY(SELECT r FROM "ensue".rules r WHERE r.expires_at <= clock_timestamp() ORDER BY r.scope, r.kind);
    IF cardinality(v_rules) > 0 THEN
        PERFORM "ensue".rules_lift_some(v_rules, 'expiry');
    END IF;
    RETURN cardinality(v_rules);
END
$body$;

-- A user's rule. Call it in a transaction of its own: it holds the lock of the rules, and nothing is claimed until it commits. The log is not locked.
CREATE OR REPLACE FUNCTION "ensue".pause(scope text, reason text DEFAULT NULL, expires_at timestamptz DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN "ensue".rule_put('pause', scope, reason, expires_at);
END
$body$;

CREATE OR REPLACE FUNCTION "ensue".resume(scope text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN "ensue".rule_remove('pause', scope);
END
$body$;

-- An operator's rule.
CREATE OR REPLACE FUNCTION "ensue".block(scope text, reason text DEFAULT NULL, expires_at timestamptz DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN "ensue".rule_put('block', scope, reason, expires_at);
END
$body$;

CREATE OR REPLACE FUNCTION "ensue".unblock(scope text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN "ensue".rule_remove('block', scope);
END
$body$;

-- Do all processes that live go by this version of the rules? Then nothing more starts that it forbids.
CREATE OR REPLACE FUNCTION "ensue".rule_in_force(version bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN NOT EXISTS (
        SELECT 1 FROM "ensue".members m LEFT JOIN "ensue".rule_reports r ON r.member = m.id
        WHERE m.kind = 'handler' AND m.lease_until >= clock_timestamp() AND coalesce(r.version, -1) < rule_in_force.version);
END
$body$;

-- Writes how attempts ended, in somebody's own transaction. Arrays are parallel, as in jobs_settle; answers the states where the jobs stand then, null where the lease was lost.
CREATE OR REPLACE FUNCTION "ensue".jobs_end_plain(
    p_numbers bigint[], p_stamps bigint[], p_fences bigint[], p_ends text[], p_asked text[], p_gives_back boolean[],
    p_lapsed boolean[], p_not_before timestamptz[], p_errors text[], p_results text[]
) RETURNS text[] LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_states pg_catalog.text[];
    v_ready pg_catalog.text[];
BEGIN
    SELECT s.o_job_states, s.o_ready_handlers INTO v_states, v_ready FROM "ensue".jobs_settle(
        p_now => NULL, p_hint => NULL, p_call => gen_random_uuid(), p_lock => NULL, p_again => false, p_steps => false,
        p_numbers => p_numbers, p_stamps => p_stamps, p_fences => p_fences, p_ends => p_ends, p_asked => p_asked,
        p_gives_back => p_gives_back, p_lapsed => p_lapsed, p_not_before => p_not_before, p_errors => p_errors, p_results => p_results,
        p_waves => NULL,
        p_line_changes => NULL, p_line_attempts => NULL, p_line_at => NULL, p_line_levels => NULL, p_line_messages => NULL,
        p_event_changes => NULL, p_id_parts => NULL, p_topics => NULL, p_event_payloads => NULL, p_event_metadata => NULL,
        p_occurred_at => NULL, p_to => NULL, p_event_objects => NULL, p_event_keys => NULL, p_fingerprints => NULL,
        p_event_not_before => NULL,
        p_job_changes => NULL,
        p_chances => NULL, p_handlers => NULL, p_objects => NULL, p_ordered => NULL, p_payloads => NULL, p_metadata => NULL,
        p_ranks => NULL, p_job_not_before => NULL, p_keys => NULL, p_attempts_max => NULL, p_exhausted => NULL,
        p_event_seqs => NULL, p_event_prevs => NULL, p_event_ids => NULL, p_event_topics => NULL) s;
    IF v_ready IS NOT NULL THEN
        PERFORM "ensue".outbox_ring();
    END IF;
    RETURN v_states;
END
$body$;

-- Takes up to p_limit jobs from workers that have vanished; answers how many. Those with attempts left may run at once.
CREATE OR REPLACE FUNCTION "ensue".jobs_take_back(p_limit bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
DECLARE
    v_numbers bigint[];
    v_stamps bigint[];
    v_fences bigint[];
    v_ends pg_catalog.text[];
    v_errors pg_catalog.text[];
BEGIN
    SELECT array_agg(x.number ORDER BY x.number), array_agg(x.stamp ORDER BY x.number), array_agg(x.fence ORDER BY x.number),
        array_agg(CASE WHEN x.attempts < x.attempts_max THEN 'available' ELSE 'dead' END ORDER BY x.number),
        array_agg(format('its worker %s was not heard of before its lease had passed (attempt %s)',
            to_json(coalesce(x.worker, 'unknown')), x.attempts) ORDER BY x.number)
    INTO v_numbers, v_stamps, v_fences, v_ends, v_errors
    FROM (
        SELECT j.* FROM "ensue".jobs j WHERE j.state = 'running' AND j.lease_until <= clock_timestamp()
        ORDER BY j.lease_until, j.number LIMIT p_limit
    ) x;
    IF v_numbers IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM "ensue".jobs_end_plain(v_numbers, v_stamps, v_fences, v_ends, array_fill('cancelled'::text, ARRAY[cardinality(v_numbers)]),
        NULL, array_fill(true, ARRAY[cardinality(v_numbers)]), NULL, v_errors, NULL);
    RETURN cardinality(v_numbers);
END
$body$;

-- What a node's clock does for jobs: takes them from workers that have vanished and lets those go on whose time has come. Only one of the two
-- in a transaction, because each locks lanes in their order. Answers how many it was about.
CREATE OR REPLACE FUNCTION "ensue".jobs_tick(p_limit bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_count bigint := "ensue".jobs_take_back(p_limit);
BEGIN
    IF v_count = 0 THEN
        SELECT w.o_count INTO v_count FROM "ensue".jobs_wake(NULL, p_limit, clock_timestamp()) w LIMIT 1;
    END IF;
    RETURN v_count;
END
$body$;

-- Notes that these handlers are served until then. What another transaction has noted and not
-- committed yet is left out, so that nobody waits for it.
CREATE OR REPLACE FUNCTION "ensue".jobs_served(p_handlers text[], p_until timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    INSERT INTO "ensue".job_servers AS s (handler, until)
    SELECT h.key, p_until FROM (SELECT DISTINCT x.key FROM unnest(p_handlers) x(key)) h
    WHERE pg_try_advisory_xact_lock(-905339084, hashtext(h.key)) ORDER BY h.key
    ON CONFLICT (handler) DO UPDATE SET until = greatest(s.until, excluded.until);
END
$body$;

-- Claims up to so many jobs of these handlers, and gives a claim with each: whoever holds it settles the job. Attempts are counted here.
--
-- Call it in a transaction of its own, as it commits what a worker has got: nobody else can be told before that, and who pauses something waits for its end.
CREATE OR REPLACE FUNCTION "ensue".claim_jobs(
    handlers text[], "limit" int DEFAULT 1, lease interval DEFAULT '30 seconds', worker text DEFAULT NULL
) RETURNS TABLE (
    id text, claim text, handler text, object text, payload jsonb, metadata jsonb, priority numeric, attempts int, attempts_max int,
    lease_expires_at timestamptz, enqueued_at timestamptz, redriven boolean, event jsonb
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
#variable_conflict use_column
DECLARE
    v_handlers pg_catalog.text[] := ARRAY(SELECT h.key FROM unnest(claim_jobs.handlers) WITH ORDINALITY h(key, n) GROUP BY h.key ORDER BY min(h.n));
    v_limit bigint := claim_jobs."limit";
    v_lease bigint := "ensue".lease_micros(claim_jobs.lease);
    v_worker pg_catalog.text := coalesce(claim_jobs.worker, session_user || '/' || pg_backend_pid());
    v_now pg_catalog.timestamptz := clock_timestamp();
    v_scopes pg_catalog.text[];
    v_scope_of int[];
    v_timeout bigint;
    v_job pg_catalog.record;
BEGIN
    PERFORM "ensue".need_read_committed('claim_jobs');
    PERFORM "ensue".check_dotted('handlers', h.key) FROM unnest(v_handlers) h(key);
    PERFORM "ensue".check_plain('worker', v_worker, 255);
    IF cardinality(v_handlers) = 0 OR cardinality(v_handlers) > 200 THEN
        PERFORM "ensue".refuse(format('handlers are %s; ask for 1 to 200 at once', cardinality(v_handlers)));
    END IF;
    IF v_limit IS NULL OR v_limit NOT BETWEEN 1 AND 1000 THEN
        PERFORM "ensue".refuse(format('limit is %s; choose 1 to 1000', coalesce(v_limit::text, 'null')));
    END IF;
    PERFORM "ensue".rules_expire();
    PERFORM "ensue".jobs_tick(1000);
    -- For a minute. Written twice a minute at most: workers may claim often.
    PERFORM "ensue".jobs_served(ARRAY(
            SELECT h.key FROM unnest(v_handlers) h(key) WHERE NOT EXISTS (
                SELECT 1 FROM "ensue".job_servers s WHERE s.handler = h.key AND s.until >= v_now + interval '30 seconds')),
        v_now + interval '1 minute');
    SELECT array_agg('handler:' || s.key), array_agg(s.n::int) INTO v_scopes, v_scope_of
    FROM (
        SELECT h.n, array_to_string((string_to_array(h.key, '.'))[:d.depth], '.') AS key
        FROM unnest(v_handlers) WITH ORDINALITY h(key, n)
        CROSS JOIN LATERAL generate_series(1, cardinality(string_to_array(h.key, '.'))) d(depth)
    ) s;
    FOR v_job IN
        SELECT c.* FROM "ensue".jobs_claim(
            NULL, gen_random_uuid(), false, v_handlers, array_fill(v_limit, ARRAY[cardinality(v_handlers)]), v_scopes, v_scope_of,
            v_limit, v_lease, v_worker, NULL, NULL, NULL, NULL, NULL) c
        WHERE c.number IS NOT NULL ORDER BY c.rank, c.turn
    LOOP
        id := "ensue".job_id(v_job.stamp, v_job.number);
        claim := "ensue".claim_text(id, v_job.fence);
        handler := v_job.handler;
        object := v_job.object;
        payload := v_job.payload::jsonb;
        metadata := coalesce(v_job.metadata, '{}')::jsonb;
        priority := '9223372036854775807'::bigint::numeric - v_job.rank;
        attempts := v_job.attempts;
        attempts_max := v_job.attempts_max;
        lease_expires_at := v_job.lease_until;
        enqueued_at := v_job.enqueued_at;
        redriven := v_job.redriven;
        event := CASE WHEN v_job.event_seq IS NOT NULL THEN jsonb_build_object(
            'seq', v_job.event_seq, 'prev', v_job.event_prev, 'id', v_job.event_id, 'topic', v_job.event_topic) END;
        v_timeout := ("ensue".handler_settings(handler) ->> 'timeout_us')::bigint;
        IF v_timeout < v_lease THEN
            -- No lease goes beyond the timeout of its handler.
            SELECT r.o_lease_until INTO lease_expires_at
            FROM "ensue".jobs_renew(NULL, v_timeout, ARRAY[v_job.number], ARRAY[v_job.stamp], ARRAY[v_job.fence]) r;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$body$;

-- Renews a claim: it holds for so long from now on, never beyond the timeout of a handler that the store keeps. `cancel` says that the worker is to stop.
CREATE OR REPLACE FUNCTION "ensue".renew_job(
    id text, claim text, lease interval DEFAULT '30 seconds', OUT lease_expires_at timestamptz, OUT cancel boolean
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
#variable_conflict use_variable
DECLARE
    v_held pg_catalog.record;
    v_lease bigint := "ensue".lease_micros(lease);
    v_timeout bigint;
BEGIN
    SELECT * INTO v_held FROM "ensue".job_held(id, claim);
    SELECT ("ensue".handler_settings(j.handler) ->> 'timeout_us')::bigint - "ensue".elapsed(j.locked_at, greatest(clock_timestamp(), j.locked_at))
    INTO v_timeout FROM "ensue".jobs j WHERE j.number = v_held.o_number;
    IF v_timeout <= 0 THEN
        PERFORM "ensue".job_lost(id);
    END IF;
    SELECT r.o_lease_until, r.o_cancel INTO lease_expires_at, cancel FROM "ensue".jobs_renew(
        NULL, least(v_lease, v_timeout), ARRAY[v_held.o_number], ARRAY[v_held.o_stamp], ARRAY[v_held.o_fence]) r;
    IF NOT FOUND THEN
        PERFORM "ensue".job_lost(id);
    END IF;
END
$body$;

-- Settlements of claims. Each is part of the caller's transaction: what the worker wrote to the same database commits
-- with it, or not at all. It locks the job and its lane until the transaction ends, so call it last. The answer is the
-- state of the job. A settlement may be repeated under the same claim, also after its transaction has ended: nothing is
-- written again, and the answer is the state at that time. Under a stale claim, or after another settlement, nothing is
-- changed and an error is raised.

CREATE OR REPLACE FUNCTION "ensue".job_end_one(
    p_id text, p_claim text, p_settlement text, p_end text, p_asked text, p_gives_back boolean, p_not_before timestamptz,
    p_error text, p_result jsonb, OUT o_state text, OUT o_repeated boolean
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_held pg_catalog.record;
BEGIN
    SELECT * INTO v_held FROM "ensue".job_held(p_id, p_claim);
    o_state := ("ensue".jobs_end_plain(
        ARRAY[v_held.o_number], ARRAY[v_held.o_stamp], ARRAY[v_held.o_fence], ARRAY[p_end], ARRAY[p_asked], ARRAY[p_gives_back], NULL,
        ARRAY[p_not_before], ARRAY[p_error], ARRAY[p_result::text]))[1];
    o_repeated := o_state IS NULL;
    IF o_repeated THEN
        o_state := "ensue".job_repeated(p_id, v_held.o_number, v_held.o_stamp, v_held.o_fence, p_settlement);
    END IF;
END
$body$;

-- It is done. `events` are published in the same transaction, as by publish_many.
CREATE OR REPLACE FUNCTION "ensue".complete_job(id text, claim text, result jsonb DEFAULT NULL, events jsonb DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_ended pg_catalog.record;
BEGIN
    PERFORM "ensue".refuse(CASE WHEN octet_length(result::text) > 1048576
        THEN format('result has %s bytes; at most 1048576 are allowed: store it elsewhere and return a reference',
            octet_length(result::text)) END);
    SELECT * INTO v_ended
    FROM "ensue".job_end_one(id, claim, 'complete', 'succeeded', 'succeeded', false, NULL, NULL, result);
    IF NOT v_ended.o_repeated AND events IS NOT NULL AND events NOT IN ('null', '[]') THEN
        PERFORM "ensue".publish_many(events);
    END IF;
    RETURN v_ended.o_state;
END
$body$;

-- It failed. It is tried again while it has attempts left, after so long or as its handler says, unless `retry` is false: then it is dead.
-- An error is cut at 16384 characters.
CREATE OR REPLACE FUNCTION "ensue".fail_job(
    id text, claim text, error text, retry boolean DEFAULT true, retry_in interval DEFAULT NULL
) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
#variable_conflict use_variable
DECLARE
    v_held pg_catalog.record;
    v_job "ensue".jobs;
    v_dies boolean;
    v_wait interval;
BEGIN
    IF retry_in < interval '0' THEN
        PERFORM "ensue".refuse(format('retry_in is %s; choose a length of time that is not negative', retry_in));
    END IF;
    SELECT * INTO v_held FROM "ensue".job_held(id, claim);
    SELECT * INTO v_job FROM "ensue".jobs j
    WHERE j.number = v_held.o_number AND j.stamp = v_held.o_stamp AND j.fence = v_held.o_fence AND coalesce(j.state, '') = 'running';
    IF NOT FOUND THEN
        RETURN "ensue".job_repeated(id, v_held.o_number, v_held.o_stamp, v_held.o_fence, 'fail');
    END IF;
    v_dies := NOT coalesce(retry, true) OR v_job.attempts >= v_job.attempts_max;
    v_wait := least(coalesce(retry_in, "ensue".job_delay(v_job.handler, v_job.attempts)), 31622400000000 * interval '1 microsecond');
    RETURN (SELECT e.o_state FROM "ensue".job_end_one(id, claim, 'fail', CASE WHEN v_dies THEN 'dead' ELSE 'retrying' END,
        'cancelled', false, CASE WHEN NOT v_dies THEN clock_timestamp() + v_wait END,
        coalesce(nullif(left(error, 16384), ''), 'the worker gave no reason'), NULL) e);
END
$body$;

-- It is to run again after this time; no attempt is used up.
CREATE OR REPLACE FUNCTION "ensue".snooze_job(id text, claim text, snooze_for interval) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    IF snooze_for IS NULL OR snooze_for < interval '0' THEN
        PERFORM "ensue".refuse(format('snooze_for is %s; choose a length of time that is not negative', coalesce(snooze_for::text, 'null')));
    END IF;
    RETURN (SELECT e.o_state FROM "ensue".job_end_one(id, claim, 'snooze', 'scheduled', 'cancelled', true,
        clock_timestamp() + least(snooze_for, 31622400000000 * interval '1 microsecond'), NULL, NULL) e);
END
$body$;

-- Does to a job what somebody wants. p_from, p_to and p_why are the arrows of `lifecycle::after` for it.
CREATE OR REPLACE FUNCTION "ensue".job_steer_one(p_id text, p_from text[], p_to text[], p_why text[]) RETURNS text
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_job pg_catalog.record;
    v_steered pg_catalog.record;
BEGIN
    SELECT * INTO v_job FROM "ensue".job_of(p_id);
    SELECT s.o_what, s.state INTO v_steered
    FROM "ensue".jobs_steer(NULL, gen_random_uuid(), false, ARRAY[v_job.o_number], ARRAY[v_job.o_stamp], p_from, p_to) s;
    IF v_steered.o_what = 'done' THEN
        PERFORM "ensue".outbox_ring();
        RETURN v_steered.state;
    ELSIF v_steered.o_what = 'unknown' THEN
        RAISE EXCEPTION 'there is no job %: it was never sent, or is forgotten', p_id USING ERRCODE = 'no_data_found';
    END IF;
    RAISE EXCEPTION 'job % is %: %', p_id, v_steered.state, CASE v_steered.o_what
            WHEN 'key' THEN 'a live job has its unique_key: cancel that one, or wait for its end'
            WHEN 'nothing' THEN 'it holds nothing back: nothing is left to skip'
            ELSE p_why[array_position(p_from, v_steered.state)] END
        USING ERRCODE = 'object_not_in_prerequisite_state';
END
$body$;

-- Calls a job off. One that runs stays `running` until its worker is heard of next, which is told to stop.
CREATE OR REPLACE FUNCTION "ensue".cancel_job(id text) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN "ensue".job_steer_one(id, ARRAY['scheduled', 'available', 'running', 'parked', 'retrying', 'succeeded', 'dead', 'cancelled']::text[], ARRAY['cancelled', 'cancelled', 'signal', 'cancelled', 'cancelled', 'refused', 'refused', 'refused']::text[], ARRAY[NULL, NULL, NULL, NULL, NULL, 'it has succeeded already: nothing is left to cancel', 'it is dead already: retry it, or skip it so that its object goes on', 'it was cancelled already']::text[]);
END
$body$;

-- Has a job run now that waits for its time, or brings back a dead one.
CREATE OR REPLACE FUNCTION "ensue".retry_job(id text) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN "ensue".job_steer_one(id, ARRAY['scheduled', 'available', 'running', 'parked', 'retrying', 'succeeded', 'dead', 'cancelled']::text[], ARRAY['available', 'refused', 'refused', 'refused', 'available', 'refused', 'available', 'refused']::text[], ARRAY[NULL, 'it waits to run already; GET /v1/explain says what for', 'it is running: wait for its end, or cancel it', 'it waits to run already; GET /v1/explain says what for', NULL, 'it has succeeded: send a new job to do it again', NULL, 'it was cancelled, which is final: send a new job']::text[]);
END
$body$;

-- Lets the object of a job that failed go on without it.
CREATE OR REPLACE FUNCTION "ensue".skip_job(id text) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN "ensue".job_steer_one(id, ARRAY['scheduled', 'available', 'running', 'parked', 'retrying', 'succeeded', 'dead', 'cancelled']::text[], ARRAY['refused', 'refused', 'refused', 'refused', 'dead', 'refused', 'let go', 'refused']::text[], ARRAY['it has not failed: cancel it instead', 'it has not failed: cancel it instead', 'it is running: cancel it instead', 'it has not failed: cancel it instead', NULL, 'it is over: nothing is left to skip', NULL, 'it is over: nothing is left to skip']::text[]);
END
$body$;

-- Events about what happens to the rows of a table: <schema>.<table>.insert, .update and .delete, in the transaction that writes the rows.
--
-- One trigger for a statement and one INSERT for all its rows, whatever their number. Old and new rows of an UPDATE are paired by their
-- order in the two transition tables, into which Postgres writes both at once: so a row is known again that has no primary key, or a new one.

-- A name as a segment of a topic and the beginning of an object. What cannot stand there, or would be taken for something else, is written as `=` and two
-- digits for each of its bytes: so two names are never one (S8), whatever language the database thinks in.
CREATE OR REPLACE FUNCTION "ensue".mutation_name(p_name text) RETURNS text LANGUAGE sql IMMUTABLE
AS $body$
    SELECT CASE WHEN p_name COLLATE "C" ~ '^[A-Za-z0-9_$@/+~-]+$' THEN p_name ELSE (
        SELECT string_agg(CASE WHEN c.one COLLATE "C" ~ '^[A-Za-z0-9_$@/+~-]$' THEN c.one
            ELSE regexp_replace(upper(encode(convert_to(c.one, 'UTF8'), 'hex')), '(..)', $re$=\1$re$, 'g') END, '' ORDER BY c.n)
        FROM regexp_split_to_table(p_name, '') WITH ORDINALITY c(one, n)) END
$body$;

-- The part of the topics that names a table. Raises an error if no topic can have it. The triggers call
-- this too, because a table and its schema can be renamed.
CREATE OR REPLACE FUNCTION "ensue".mutation_topic(p_schema text, p_table text) RETURNS text
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_topic pg_catalog.text := "ensue".mutation_name(p_schema) || '.' || "ensue".mutation_name(p_table);
BEGIN
    PERFORM "ensue".refuse(CASE
        WHEN starts_with(v_topic, 'ensue.')
            THEN format('%I.%I would have topics under `ensue`, which only Ensue itself publishes under: '
                'move it to another schema', p_schema, p_table)
        WHEN octet_length(v_topic || '.insert') > 255
            THEN format('%I.%I would have topics of %s bytes, as letters that are not ASCII take several; '
                'at most 255 are allowed', p_schema, p_table, octet_length(v_topic || '.insert'))
    END);
    RETURN v_topic;
END
$body$;

-- The columns of the primary key of a table, in their order; null if it has none.
CREATE OR REPLACE FUNCTION "ensue".mutation_key(p_table oid) RETURNS text[] LANGUAGE sql STABLE
AS $body$
    SELECT array_agg(a.attname::text ORDER BY k.n)
    FROM pg_catalog.pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(attnum, n)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = p_table AND i.indisprimary AND k.n <= i.indnkeyatts
$body$;

-- What an event about a row is about: `p_name:KEY`; of a key of several columns their values as a JSON array. A key that no object can have is there by its digest.
CREATE OR REPLACE FUNCTION "ensue".mutation_object(p_name text, p_key text[], p_row jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE
AS $body$
DECLARE
    v_key pg_catalog.text := CASE WHEN cardinality(p_key) = 1 THEN p_row ->> p_key[1]
        WHEN p_key IS NOT NULL THEN (SELECT jsonb_agg(p_row -> k.name ORDER BY k.n)::text FROM unnest(p_key) WITH ORDINALITY k(name, n)) END;
BEGIN
    IF octet_length(p_name) + 1 + octet_length(v_key) > 512 OR v_key ~ $re$[\U00000001-\U0000001f\U0000007f-\U0000009f\U000000ad-\U000000ad\U0000034f-\U0000034f\U00000600-\U00000605\U0000061c-\U0000061c\U000006dd-\U000006dd\U0000070f-\U0000070f\U00000890-\U00000891\U000008e2-\U000008e2\U0000115f-\U00001160\U000017b4-\U000017b5\U0000180b-\U0000180f\U0000200b-\U0000200f\U00002028-\U0000202e\U00002060-\U0000206f\U00002800-\U00002800\U00003164-\U00003164\U0000feff-\U0000feff\U0000ffa0-\U0000ffa0\U0000fff0-\U0000fffb\U000110bd-\U000110bd\U000110cd-\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]$re$ THEN
        v_key := 'sha256=' || encode(sha256(convert_to(v_key, 'UTF8')), 'hex');
    END IF;
    RETURN p_name || ':' || v_key;
END
$body$;

-- Whether the payload fits into an event; an error if not.
CREATE OR REPLACE FUNCTION "ensue".mutation_fits(p_topic text, p_payload jsonb) RETURNS boolean LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF octet_length(p_payload::text) > 1048576 THEN
        RAISE EXCEPTION 'a row has % bytes as the payload of %; at most 1048576 are allowed', octet_length(p_payload::text), p_topic
            USING ERRCODE = 'program_limit_exceeded',
                HINT = 'Leave large columns out in mutation_payload, or stop_table_mutations for this table.';
    END IF;
    RETURN true;
END
$body$;

-- The select list that makes the rows of a table safe for to_jsonb; null if they are safe as is.
--
-- to_jsonb applies a cast to json if a user has defined one for a type, and the function of that
-- cast would run with the rights of the trigger. It looks for one only if the type is not built in
-- (OID 16384 and above), also inside domains, arrays and composite types. A column of such a type
-- is converted by the output function of its type instead, which only a superuser can define; an
-- array becomes an array of texts. No cast and no operator of a user is looked up.
--
-- Nothing changes between this check and the use: the statement that fired the trigger holds a
-- lock on the table, so columns keep their types, and a domain cannot change its base type. The
-- attributes of a composite type can change, so they are not looked at.
--
-- Raises an error for a trigger that is not of the kind that push_table_mutations creates: the names
-- of its transition tables would be looked up among the temporary relations of the session.
CREATE OR REPLACE FUNCTION "ensue".mutation_columns(p_table oid, p_trigger name, p_old name, p_new name) RETURNS text
LANGUAGE plpgsql STABLE
AS $body$
DECLARE
    v_is_safe boolean;
    v_columns pg_catalog.text;
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM pg_trigger t WHERE t.tgrelid = p_table AND t.tgname = p_trigger
            AND t.tgoldtable IS NOT DISTINCT FROM p_old AND t.tgnewtable IS NOT DISTINCT FROM p_new
            -- AFTER one operation, FOR EACH STATEMENT.
            AND t.tgtype = CASE WHEN p_old IS NULL THEN 4 WHEN p_new IS NULL THEN 8 ELSE 16 END) THEN
        RAISE EXCEPTION 'the trigger % of % was not created by push_table_mutations', quote_ident(p_trigger), p_table::regclass
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Drop the trigger and call push_table_mutations.';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = p_table AND a.attnum > 0 AND a.atttypid >= 16384) THEN
        RETURN NULL;
    END IF;
    WITH RECURSIVE steps AS (
        SELECT a.attnum, a.attname, 0 AS depth, a.atttypid AS type, NULL::text AS delimiter
        FROM pg_attribute a WHERE a.attrelid = p_table AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT s.attnum, s.attname, s.depth + 1, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END,
            coalesce(s.delimiter, CASE WHEN t.typtype <> 'd' THEN t.typdelim::text END)
        FROM steps s JOIN pg_type t ON t.oid = s.type
        WHERE s.type >= 16384 AND (t.typtype = 'd' OR t.typsubscript = 'array_subscript_handler'::regproc)
    ), innermost AS (
        SELECT DISTINCT ON (s.attnum) s.attnum, quote_ident(s.attname) AS name, s.type < 16384 AS is_safe,
            coalesce(s.delimiter = ',', false) AS is_array
        FROM steps s ORDER BY s.attnum, s.depth DESC
    )
    SELECT bool_and(i.is_safe), string_agg(CASE WHEN i.is_safe THEN 'r.' || i.name ELSE replace(
            'CASE WHEN num_nonnulls(r.NAME) = 1 THEN format(''%s'', r.NAME)' || CASE WHEN i.is_array THEN '::text[]' ELSE '' END
            || ' END AS NAME', 'NAME', i.name) END, ', ' ORDER BY i.attnum)
    INTO v_is_safe, v_columns FROM innermost i;
    RETURN CASE WHEN NOT v_is_safe THEN v_columns END;
END
$body$;

-- The statement of the triggers below for a table whose columns need a select list. $1 is the
-- table's part of the topic, $2 its primary key, $3 the table.
CREATE OR REPLACE FUNCTION "ensue".mutation_statement(p_operation text, p_columns text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $body$
DECLARE
    v_images pg_catalog.text := '(SELECT row_number() OVER () AS n, to_jsonb(q.*) AS image FROM (SELECT ' || p_columns || ' FROM ';
    v_new pg_catalog.text := v_images || 'new_rows r OFFSET 0) q) n';
    v_old pg_catalog.text := v_images || 'old_rows r OFFSET 0) q) o';
BEGIN
    RETURN format($sql$
        INSERT INTO %1$I.outbox (occurred_at, id, topic, object, payload)
        SELECT clock_timestamp(), %1$I.new_id(), $1 || '.%2$s', %1$I.mutation_object($1, $2, m.image), m.payload
        FROM (SELECT c.n, c.image, %1$I.mutation_payload($3, '%2$s', c.payload) AS payload FROM (%3$s OFFSET 0) c OFFSET 0) m
        WHERE m.payload IS NOT NULL AND %1$I.mutation_fits($1 || '.%2$s', m.payload)
        ORDER BY m.n$sql$,
        'ensue', p_operation, CASE p_operation
        WHEN 'insert' THEN 'SELECT n.n, n.image, n.image AS payload FROM ' || v_new
        WHEN 'delete' THEN 'SELECT o.n, o.image, o.image AS payload FROM ' || v_old
        WHEN 'update' THEN $sql$SELECT n.n, n.image, jsonb_build_object('row', n.image, 'old', o.image,
            'changed', (SELECT jsonb_agg(f.key ORDER BY f.key) FROM jsonb_each(n.image) f
                        WHERE o.image -> f.key IS DISTINCT FROM f.value)) AS payload FROM $sql$
            || v_new || ' JOIN ' || v_old || ' ON o.n = n.n WHERE n.image <> o.image' END);
END
$body$;

CREATE OR REPLACE FUNCTION "ensue".mutations_insert() RETURNS trigger LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET intervalstyle = 'postgres' SET extra_float_digits = 1 SET bytea_output = 'hex' SET jit = off
AS $body$
DECLARE
    v_name pg_catalog.text := "ensue".mutation_topic(TG_TABLE_SCHEMA, TG_TABLE_NAME);
    v_key pg_catalog.text[] := "ensue".mutation_key(TG_RELID);
    v_columns pg_catalog.text := "ensue".mutation_columns(TG_RELID, TG_NAME, NULL, 'new_rows');
    v_count bigint;
BEGIN
    IF v_columns IS NULL THEN
        INSERT INTO "ensue".outbox (occurred_at, id, topic, object, payload)
        SELECT clock_timestamp(), "ensue".new_id(), v_name || '.insert', "ensue".mutation_object(v_name, v_key, m.image), m.payload
        FROM (
            SELECT i.image, "ensue".mutation_payload(TG_RELID::regclass, 'insert', i.image) AS payload
            FROM (SELECT to_jsonb(r.*) AS image FROM new_rows r OFFSET 0) i OFFSET 0
        ) m
        WHERE m.payload IS NOT NULL AND "ensue".mutation_fits(v_name || '.insert', m.payload);
    ELSE
        EXECUTE "ensue".mutation_statement('insert', v_columns) USING v_name, v_key, TG_RELID::regclass;
    END IF;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count > 0 THEN
        PERFORM "ensue".outbox_ring();
    END IF;
    RETURN NULL;
END
$body$;

CREATE OR REPLACE FUNCTION "ensue".mutations_delete() RETURNS trigger LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET intervalstyle = 'postgres' SET extra_float_digits = 1 SET bytea_output = 'hex' SET jit = off
AS $body$
DECLARE
    v_name pg_catalog.text := "ensue".mutation_topic(TG_TABLE_SCHEMA, TG_TABLE_NAME);
    v_key pg_catalog.text[] := "ensue".mutation_key(TG_RELID);
    v_columns pg_catalog.text := "ensue".mutation_columns(TG_RELID, TG_NAME, 'old_rows', NULL);
    v_count bigint;
BEGIN
    IF v_columns IS NULL THEN
        INSERT INTO "ensue".outbox (occurred_at, id, topic, object, payload)
        SELECT clock_timestamp(), "ensue".new_id(), v_name || '.delete', "ensue".mutation_object(v_name, v_key, m.image), m.payload
        FROM (
            SELECT i.image, "ensue".mutation_payload(TG_RELID::regclass, 'delete', i.image) AS payload
            FROM (SELECT to_jsonb(r.*) AS image FROM old_rows r OFFSET 0) i OFFSET 0
        ) m
        WHERE m.payload IS NOT NULL AND "ensue".mutation_fits(v_name || '.delete', m.payload);
    ELSE
        EXECUTE "ensue".mutation_statement('delete', v_columns) USING v_name, v_key, TG_RELID::regclass;
    END IF;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count > 0 THEN
        PERFORM "ensue".outbox_ring();
    END IF;
    RETURN NULL;
END
$body$;

CREATE OR REPLACE FUNCTION "ensue".mutations_update() RETURNS trigger LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET intervalstyle = 'postgres' SET extra_float_digits = 1 SET bytea_output = 'hex' SET jit = off
-- A plan that was made for few rows would compare each with each.
SET enable_nestloop = off
AS $body$
DECLARE
    v_name pg_catalog.text := "ensue".mutation_topic(TG_TABLE_SCHEMA, TG_TABLE_NAME);
    v_key pg_catalog.text[] := "ensue".mutation_key(TG_RELID);
    v_columns pg_catalog.text := "ensue".mutation_columns(TG_RELID, TG_NAME, 'old_rows', 'new_rows');
    v_count bigint;
BEGIN
    IF v_columns IS NULL THEN
        INSERT INTO "ensue".outbox (occurred_at, id, topic, object, payload)
        SELECT clock_timestamp(), "ensue".new_id(), v_name || '.update', "ensue".mutation_object(v_name, v_key, m.image), m.payload
        FROM (
            SELECT c.n, c.image, "ensue".mutation_payload(TG_RELID::regclass, 'update', jsonb_build_object('row', c.image, 'old', c.former,
                'changed', (SELECT jsonb_agg(f.key ORDER BY f.key) FROM jsonb_each(c.image) f
                            WHERE c.former -> f.key IS DISTINCT FROM f.value))) AS payload
            FROM (
                SELECT n.n, n.image, o.image AS former
                FROM (SELECT row_number() OVER () AS n, to_jsonb(r.*) AS image FROM new_rows r) n
                JOIN (SELECT row_number() OVER () AS n, to_jsonb(r.*) AS image FROM old_rows r) o ON o.n = n.n
                WHERE n.image <> o.image OFFSET 0
            ) c OFFSET 0
        ) m
        WHERE m.payload IS NOT NULL AND "ensue".mutation_fits(v_name || '.update', m.payload)
        ORDER BY m.n;
    ELSE
        EXECUTE "ensue".mutation_statement('update', v_columns) USING v_name, v_key, TG_RELID::regclass;
    END IF;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count > 0 THEN
        PERFORM "ensue".outbox_ring();
    END IF;
    RETURN NULL;
END
$body$;

-- Stops events about a table; were there any? Needs no more rights than to drop a trigger of it.
CREATE OR REPLACE FUNCTION "ensue".stop_table_mutations(relation regclass) RETURNS boolean LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $body$
DECLARE
    v_trigger pg_catalog.name;
    v_found boolean := false;
BEGIN
    FOR v_trigger IN
        SELECT t.tgname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE t.tgrelid = relation AND n.nspname = 'ensue' AND p.proname IN ('mutations_insert', 'mutations_update', 'mutations_delete')
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', v_trigger, relation);
        v_found := true;
    END LOOP;
    RETURN v_found;
END
$body$;

-- Has every INSERT, UPDATE and DELETE on a table published, or those that are asked for; said again it holds anew. The caller must be allowed to make
-- triggers on the table; who writes to the table needs no rights here.
CREATE OR REPLACE FUNCTION "ensue".push_table_mutations(
    relation regclass, insert boolean DEFAULT true, update boolean DEFAULT true, delete boolean DEFAULT true
) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $body$
DECLARE
    v_of pg_catalog.record;
    v_mark pg_catalog.text := left(md5('ensue'), 8);
BEGIN
    SELECT c.relkind, c.relname, n.nspname INTO v_of FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation;
    PERFORM "ensue".refuse(CASE
        WHEN v_of.relkind IS NULL THEN 'relation is null or not there; name a table'
        WHEN v_of.relkind NOT IN ('r', 'p') THEN format('%s is not a table: only tables, partitioned ones too, can be watched', relation)
        WHEN v_of.nspname = 'ensue' THEN format('%s is one of Ensue''s own tables, which cannot be watched', relation)
    END);
    PERFORM "ensue".mutation_topic(v_of.nspname, v_of.relname);
    PERFORM "ensue".stop_table_mutations(relation);
    IF insert THEN
        EXECUTE format('CREATE TRIGGER %I AFTER INSERT ON %s REFERENCING NEW TABLE AS new_rows '
            'FOR EACH STATEMENT EXECUTE FUNCTION %I.mutations_insert()', 'ensue_insert_' || v_mark, relation, 'ensue');
    END IF;
    IF update THEN
        EXECUTE format('CREATE TRIGGER %I AFTER UPDATE ON %s REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows '
            'FOR EACH STATEMENT EXECUTE FUNCTION %I.mutations_update()', 'ensue_update_' || v_mark, relation, 'ensue');
    END IF;
    IF delete THEN
        EXECUTE format('CREATE TRIGGER %I AFTER DELETE ON %s REFERENCING OLD TABLE AS old_rows '
            'FOR EACH STATEMENT EXECUTE FUNCTION %I.mutations_delete()', 'ensue_delete_' || v_mark, relation, 'ensue');
    END IF;
END
$body$;

-- A setting as it is now.
CREATE OR REPLACE FUNCTION "ensue".setting(p_key text, p_default text) RETURNS text LANGUAGE plpgsql STABLE
AS $body$
BEGIN
    RETURN coalesce((SELECT c.value FROM "ensue".config c WHERE c.key = p_key), p_default);
END
$body$;

-- How many events a setting means: it is a number, or a length of time; then as many as were recorded in the last such time.
CREATE OR REPLACE FUNCTION "ensue".events_of(p_setting text) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF p_setting ~ '^[0-9]+$' THEN
        RETURN p_setting::bigint;
    END IF;
    RETURN (SELECT t.o_seq FROM "ensue".log_tail(0) t) - "ensue".seq_before(clock_timestamp() - p_setting::interval, 0);
END
$body$;

-- How many events a new partition holds, and how many places are to have one ahead, as it is set now.
CREATE OR REPLACE FUNCTION "ensue".partitions_set(OUT o_rows bigint, OUT o_ahead bigint) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_interval pg_catalog.text := "ensue".setting('partition_interval', '1000000');
    v_ahead pg_catalog.text := "ensue".setting('future_intervals_to_create', '3');
BEGIN
    o_rows := CASE WHEN v_interval ~ '^[0-9]+$' THEN v_interval::bigint ELSE least(greatest("ensue".events_of(v_interval), 10000), 10000000) END;
    o_ahead := CASE WHEN v_ahead ~ '^[0-9]+$' THEN o_rows * v_ahead::bigint
        ELSE least(greatest("ensue".events_of(v_ahead), o_rows), o_rows * 100) END;
END
$body$;

-- The oldest place of the log that a group needs, and whose it is; no row if there are no groups. A lane that stands still needs its event and what comes after it.
CREATE OR REPLACE FUNCTION "ensue".log_needed(OUT o_from bigint, OUT o_group text) LANGUAGE sql STABLE
AS $body$
    SELECT n.needed, n.name FROM (
        SELECT g.name, least(
            (SELECT min(s.cursor) + 1 FROM "ensue".slots s WHERE s.group_id = g.id),
            (SELECT min(greatest(l.position, l.parked_to)) FROM "ensue".lanes l
             WHERE l.group_id = g.id AND l.state IN ('waiting', 'held'))) AS needed
        FROM "ensue".groups g
    ) n
    ORDER BY n.needed, n.name LIMIT 1
$body$;

-- What a node does now and then, for those who run none: makes partitions ahead, forgets what is older than partition_retention_period but never what a
-- group has not passed or a lane needs, removes partitions that are forgotten, lets jobs go on whose time has come. Call it every minute or so, in a transaction of its
-- own, and again at once while it answers `again`.
--
-- What changes the structure of the log waits only briefly for its lock, because everybody else waits behind it; what did not succeed is left to
-- the next call. A partition is taken out of the log by one call and its files are removed by the next: not while the log is locked.
CREATE OR REPLACE FUNCTION "ensue".maintain(
    OUT partitions_made bigint, OUT partitions_dropped bigint, OUT events_trimmed bigint, OUT kept_for text, OUT again boolean
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_retention interval := "ensue".setting('partition_retention_period', NULL)::interval;
    v_attached bigint;
    v_needed pg_catalog.record;
    v_keep_from bigint;
    v_first bigint;
    v_limit bigint := 100000;
BEGIN
    again := false;
    partitions_dropped := 0;
    events_trimmed := 0;
    PERFORM "ensue".need_read_committed('maintain');
    -- First: what follows may have something to say in the log.
    v_attached := (SELECT count(*) FROM pg_inherits i WHERE i.inhparent = to_regclass(quote_ident('ensue') || '.stored_events'));
    BEGIN
        PERFORM "ensue".ensure_partitions(s.o_rows, s.o_ahead) FROM "ensue".partitions_set() s;
    EXCEPTION WHEN lock_not_available THEN
        again := true;
    END;
    partitions_made := (SELECT count(*) FROM pg_inherits i WHERE i.inhparent = to_regclass(quote_ident('ensue') || '.stored_events')) - v_attached;
    again := "ensue".subscriptions_expire(NULL, 1000) >= 1000 OR again;
    again := "ensue".purge_keys(NULL, 0, 1000) >= 1000 OR again;
    PERFORM "ensue".members_forget(clock_timestamp());
    again := "ensue".group_sweep(1000) OR again;
    IF NOT EXISTS (SELECT 1 FROM "ensue".members m WHERE m.kind = 'handler' AND m.lease_until > clock_timestamp()) THEN
        -- Nobody runs a node, who would do it by its own settings.
        again := "ensue".jobs_purge(clock_timestamp() - interval '7 days', 100000, 1000) >= 1000 OR again;
        again := "ensue".deliveries_purge(clock_timestamp() - interval '7 days', 100000, 1000) >= 1000 OR again;
    END IF;
    -- Behind what locks groups and members: so do those who settle.
    PERFORM "ensue".rules_expire();
    again := "ensue".jobs_tick(1000) >= 1000 OR again;
    BEGIN
        WHILE partitions_dropped < 10 AND "ensue".drop_detached() LOOP
            partitions_dropped := partitions_dropped + 1;
        END LOOP;
    EXCEPTION WHEN lock_not_available THEN
        again := true;
        partitions_dropped := 0;
    END;
    IF v_retention IS NOT NULL THEN
        v_first := (SELECT s.trimmed_to + 1 FROM "ensue".log_state s);
        v_keep_from := "ensue".seq_before(clock_timestamp() - v_retention, 0) + 1;
        SELECT * INTO v_needed FROM "ensue".log_needed();
        IF v_needed.o_from < v_keep_from THEN
            v_keep_from := v_needed.o_from;
            kept_for := v_needed.o_group;
        END IF;
        IF v_keep_from > v_first THEN
            SELECT t.o_first - v_first INTO events_trimmed FROM "ensue".trim(v_keep_from, v_limit, 0) t;
            again := events_trimmed >= v_limit OR again;
        END IF;
    END IF;
    BEGIN
        again := "ensue".detach_trimmed() OR again;
    EXCEPTION WHEN lock_not_available THEN
        NULL; -- Somebody reads it; nothing is gained by asking again at once.
    END;
END
$body$;

-- Roles and their rights. The last file of every upgrade; `SELECT * FROM apply_grants()` runs it again.
--
-- Roles belong to the whole cluster, so their names begin with that of the schema: `ensue_publish`,
-- `ensue_consume`, `ensue_operate` are for logins, `ensue_serve` is for the login of a node that
-- owns nothing. `ensue_owner` owns the functions that change tables for others, `ensue_evaluate`
-- those that evaluate conditions. None of them can log in. If the installer may not create roles,
-- these functions run as the installer: apply_grants returns what is missing, and what to do.
--
-- The owner of a function can alter it, and the callers would then run the altered one. So no code
-- of a user may run as `ensue_owner` or as the installer, and conditions reach `ensue_evaluate` only
-- in the form that condition_sql writes.

-- The name of one of them. One that would be too long is told by its hash.
CREATE OR REPLACE FUNCTION "ensue".role_name(p_for text) RETURNS text LANGUAGE sql IMMUTABLE
AS $body$
    SELECT CASE WHEN octet_length('ensue') + 1 + octet_length(p_for) <= 63 THEN 'ensue' ELSE 'ensue_' || md5('ensue') END || '_' || p_for
$body$;

-- The functions that roles may call, and as whom they run: `owner`, `evaluate`, `installer` (those
-- that change partitions, which only the owner of the tables may do) or `caller`. Only the owner and
-- the installer may call a function that is not listed.
--
-- The list for `serve` is what the statements of a node call, and what those functions call in turn
-- (tests/postgres/sql_roles.rs serves with this role alone; conformance.rs adds `operate`, to trim by
-- a clock that is not the server's).
CREATE OR REPLACE FUNCTION "ensue".grants() RETURNS TABLE (function_name text, runs_as text, roles text[]) LANGUAGE sql IMMUTABLE
AS $body$
    VALUES
        ('publish', 'owner', '{publish}'::text[]),
        ('publish_many', 'owner', '{publish}'),
        ('outbox_put', 'owner', '{publish,serve}'),
        ('requeue_rejected', 'owner', '{operate}'),
        ('own_put', 'owner', '{consume,serve}'),
        ('own_committing', 'owner', '{owner}'),
        ('poll_for_events', 'owner', '{publish,consume,operate}'),
        ('subscribe', 'owner', '{consume}'),
        ('unsubscribe', 'owner', '{consume}'),
        ('read_next_events', 'owner', '{consume}'),
        ('set_group_cursor', 'owner', '{consume}'),
        ('event_id', 'caller', '{consume,operate,serve}'),
        ('stored_time', 'caller', '{consume,operate,serve}'),
        ('enqueue', 'owner', '{publish,operate}'),
        ('claim_jobs', 'owner', '{consume}'),
        ('renew_job', 'owner', '{consume}'),
        ('complete_job', 'owner', '{consume}'),
        ('fail_job', 'owner', '{consume}'),
        ('snooze_job', 'owner', '{consume}'),
        ('cancel_job', 'owner', '{operate}'),
        ('retry_job', 'owner', '{operate}'),
        ('skip_job', 'owner', '{operate}'),
        ('pause', 'owner', '{operate}'),
        ('resume', 'owner', '{operate}'),
        ('block', 'owner', '{operate}'),
        ('unblock', 'owner', '{operate}'),
        ('rule_in_force', 'owner', '{operate}'),
        ('push_table_mutations', 'caller', '{operate}'),
        ('stop_table_mutations', 'caller', '{operate}'),
        ('mutation_name', 'caller', '{operate}'),
        ('mutation_topic', 'caller', '{operate}'),
        ('refuse', 'caller', '{operate}'),
        ('mutations_insert', 'owner', '{operate}'),
        ('mutations_update', 'owner', '{operate}'),
        ('mutations_delete', 'owner', '{operate}'),
        ('maintain', 'owner', '{operate}'),
        ('trim', 'owner', '{serve}'),
        ('ensure_partitions', 'installer', '{owner,serve}'),
        ('detach_trimmed', 'installer', '{owner,serve}'),
        ('drop_detached', 'installer', '{owner,serve}'),
        ('condition_evaluate', 'evaluate', '{owner}'),
        ('condition_try', 'evaluate', '{owner}'),
        ('condition_member', 'caller', '{evaluate}'),
        ('condition_lower', 'caller', '{evaluate}'),
        ('condition_upper', 'caller', '{evaluate}'),
        ('condition_sql', 'caller', '{evaluate}'),
        ('condition_refused', 'caller', '{evaluate}')
    UNION ALL
    SELECT f.name, 'caller', '{serve}'::text[] FROM unnest('{
            append,cancel,define,deliveries_purge,dotted_fault,elapsed,event_fault,events_of,
            expired_forget,find_seq,first_id_after,is_dotted,plain_fault,size_fault,time_fault,
            outbox_fault,outbox_move_rows,outbox_reject,
            grants,group_delete,group_make,group_replay,group_seek,group_sweep,is_task,
            job_bucket,job_kept,job_say,jobs_end,jobs_enqueue,jobs_fetch,jobs_go_on,jobs_insert,
            jobs_lock,jobs_place,jobs_purge,jobs_ready,jobs_renew,jobs_ring,jobs_say,jobs_send_alike,
            jobs_sent_before,jobs_served,jobs_settle,jobs_steer,jobs_succeed,jobs_tell,jobs_turn,jobs_turn_object,
            jobs_wake,lane_ask,lanes_park,lock_log,log_bytes,log_tail,member_expired_forget,
            member_leave,member_renew,member_serve,members_forget,new_id,object_is_held,outbox_drain,
            outbox_move,outbox_ring,outbox_tell,outbox_waits,partitions_gone,partitions_set,pulse,
            purge_keys,recording_time,release_due,rights_not_listed,role_name,rule_set,rules_lift,rules_report,rules_tell,
            schedule_put,schedules_declare,schedules_due,schedules_fire,schedules_next,seq_before,
            served_at,setting,settle_append,settle_deliveries,settle_events,settle_lanes,settle_lines,
            slots_acquire,slots_acquire_soon,slots_release,slots_settle,stored,subscription_delete,
            subscription_make,subscriptions_changed,subscriptions_expire,table_grants,tell_members,
            undefine
        }'::text[]) f(name)
$body$;

-- The tables, views and sequences that roles may use. `ensue_owner` may read and change all tables.
CREATE OR REPLACE FUNCTION "ensue".table_grants() RETURNS TABLE (table_name text, rights text, roles text[]) LANGUAGE sql IMMUTABLE
AS $body$
    VALUES
        ('events', 'SELECT', '{consume,operate}'::text[]),
        ('group_subscriptions', 'SELECT', '{consume,operate}'),
        ('outbox_rejected', 'SELECT, DELETE', '{operate}'),
        ('config', 'SELECT, INSERT, UPDATE, DELETE', '{operate}')
    UNION ALL
    SELECT t.name, v.rights, '{serve}'::text[] FROM (VALUES
        ('SELECT', '{config,log_state,partitions,schema_version,store_key}'::text[]),
        ('USAGE, SELECT', '{job_numbers}'),
        ('SELECT, INSERT', '{stored_events,outbox_rejected}'),
        ('SELECT, UPDATE', '{definitions_state,log_lock,positions_state,rules_lock,rules_state,
            schedules_state,serving_lock}'),
        ('SELECT, INSERT, UPDATE', '{definitions,job_servers}'),
        ('SELECT, INSERT, DELETE', '{delivery_lines,job_calls,job_lines,outbox,parked,schedule_declarations,
            schedule_runs,serving,subscription_changes}'),
        ('SELECT, INSERT, UPDATE, DELETE', '{delayed,deliveries,groups,groups_gone,job_progress,jobs,keys,
            lanes,members,rule_reports,rules,schedule_declarers,schedules,settlements,slots,subscriptions}')
    ) v(rights, names) CROSS JOIN LATERAL unnest(v.names) t(name)
$body$;

-- Rights of our roles, other than `ensue_owner`, that are not listed above.
CREATE OR REPLACE FUNCTION "ensue".rights_not_listed() RETURNS TABLE (kind text, name text, "right" text, role text)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $body$
    WITH roles AS (
        SELECT f.name AS used_for, r.oid, r.rolname::text AS name
        FROM unnest('{publish,consume,operate,serve,evaluate}'::text[]) f(name)
        JOIN pg_roles r ON r.rolname = "ensue".role_name(f.name)
    )
    SELECT 'ROUTINE', p.oid::regprocedure::text, a.privilege_type, r.name
    FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a JOIN roles r ON r.oid = a.grantee
    WHERE p.pronamespace = to_regnamespace(quote_ident('ensue')) AND p.proowner <> r.oid AND NOT EXISTS (
        SELECT 1 FROM "ensue".grants() g WHERE g.function_name = p.proname AND r.used_for = ANY (g.roles))
    UNION ALL
    SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text, a.privilege_type, r.name
    FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a JOIN roles r ON r.oid = a.grantee
    WHERE c.relnamespace = to_regnamespace(quote_ident('ensue')) AND NOT EXISTS (
        SELECT 1 FROM "ensue".table_grants() t WHERE t.table_name = c.relname AND r.used_for = ANY (t.roles)
            AND a.privilege_type = ANY (string_to_array(t.rights, ', ')))
    UNION ALL
    SELECT 'SCHEMA', n.oid::regnamespace::text, a.privilege_type, r.name
    FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) a JOIN roles r ON r.oid = a.grantee
    WHERE n.nspname = 'ensue' AND a.privilege_type <> 'USAGE'
$body$;

-- Makes the roles and gives out the rights, as far as that is allowed; answers what is missing, and what to do about it.
CREATE OR REPLACE FUNCTION "ensue".apply_grants() RETURNS SETOF text LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_for pg_catalog.text;
    v_role pg_catalog.text;
    v_found pg_catalog.pg_roles;
    v_there pg_catalog.text[] := '{}'; -- the roles that can be used, by what they are for
    v_who pg_catalog.name; -- who calls this, and whose the schema is: both go on calling what is given away here, and making it anew
    v_each pg_catalog.record;
BEGIN
    BEGIN
        EXECUTE format('REVOKE ALL ON ALL ROUTINES IN SCHEMA %I FROM PUBLIC', 'ensue');
    EXCEPTION WHEN insufficient_privilege THEN
        RETURN NEXT format('not every function of the schema is %s''s: %s; give it away or drop it, and call apply_grants again', current_user, sqlerrm);
    END;
    FOREACH v_for IN ARRAY '{publish,consume,operate,serve,owner,evaluate}'::text[] LOOP
        v_role := "ensue".role_name(v_for);
        IF NOT EXISTS (SELECT 1 FROM pg_roles r WHERE r.rolname = v_role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
            EXCEPTION
                WHEN duplicate_object OR unique_violation THEN
                    NULL;
                WHEN insufficient_privilege THEN
                    RETURN NEXT format('%s may not make the role %I: have it made with CREATE ROLE %I NOLOGIN, and granted to %s if its name ends in owner or evaluate; then call apply_grants again',
                        current_user, v_role, v_role, current_user);
                    CONTINUE;
            END;
        END IF;
        -- A role of this name may have been there before, for something else.
        SELECT * INTO v_found FROM pg_roles r WHERE r.rolname = v_role;
        IF v_found.rolcanlogin OR v_found.rolsuper OR v_found.rolcreaterole OR v_found.rolcreatedb OR v_found.rolreplication OR v_found.rolbypassrls
            OR v_for = 'evaluate' AND EXISTS (SELECT 1 FROM pg_auth_members m WHERE m.member = v_found.oid) THEN
            RETURN NEXT format('the role %I can log in or has rights of its own, so it is not used: rename it, and call apply_grants again', v_role);
            CONTINUE;
        END IF;
        BEGIN
            FOR v_who IN
                SELECT r.rolname FROM pg_roles r WHERE v_for IN ('owner', 'evaluate') AND NOT pg_has_role(r.rolname, v_role, 'USAGE')
                    AND (r.rolname = current_user OR r.oid = (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'ensue'))
            LOOP
                EXECUTE format('GRANT %I TO %I', v_role, v_who);
            END LOOP;
            EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', 'ensue', v_role);
            v_there := v_there || v_for;
        EXCEPTION WHEN insufficient_privilege THEN
            RETURN NEXT format('%s may not use the role %I or not grant on the schema: %s; have it granted, and call apply_grants again', current_user, v_role, sqlerrm);
        END;
    END LOOP;

    IF 'owner' = ANY (v_there) THEN
        -- On the log, not on its partitions: a right on the one is enough for the others.
        FOR v_each IN
            SELECT c.relname, c.relkind FROM pg_class c WHERE c.relnamespace = to_regnamespace(quote_ident('ensue')) AND NOT c.relispartition
                AND c.relkind IN ('r', 'p', 'v', 'S')
        LOOP
            EXECUTE format(CASE v_each.relkind WHEN 'S' THEN 'GRANT USAGE, SELECT ON SEQUENCE %I.%I TO %I'
                ELSE 'GRANT SELECT, INSERT, UPDATE, DELETE ON %I.%I TO %I' END, 'ensue', v_each.relname, "ensue".role_name('owner'));
        END LOOP;
        EXECUTE format('GRANT EXECUTE ON ALL ROUTINES IN SCHEMA %I TO %I', 'ensue', "ensue".role_name('owner'));
    END IF;
    FOREACH v_for IN ARRAY '{owner,evaluate}'::text[] LOOP
        CONTINUE WHEN v_for <> ALL (v_there);
        v_role := "ensue".role_name(v_for);
        BEGIN
            -- Who is to own a function must be allowed to make one there; only for as long as this takes.
            EXECUTE format('GRANT CREATE ON SCHEMA %I TO %I', 'ensue', v_role);
            FOR v_each IN
                SELECT p.oid::regprocedure AS signature FROM pg_proc p JOIN "ensue".grants() g ON g.function_name = p.proname AND g.runs_as = v_for
                WHERE p.pronamespace = to_regnamespace(quote_ident('ensue')) AND p.proowner <> to_regrole(quote_ident(v_role))
            LOOP
                EXECUTE format('ALTER FUNCTION %s OWNER TO %I', v_each.signature, v_role);
            END LOOP;
            EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM %I', 'ensue', v_role);
        EXCEPTION WHEN insufficient_privilege THEN
            RETURN NEXT format('functions cannot be given to the role %I: %s; until then they run as %s', v_role, sqlerrm, current_user);
        END;
    END LOOP;
    FOR v_each IN
        SELECT p.oid::regprocedure AS signature, "ensue".role_name(r.name) AS role
        FROM pg_proc p JOIN "ensue".grants() g ON g.function_name = p.proname CROSS JOIN LATERAL unnest(g.roles) r(name)
        WHERE p.pronamespace = to_regnamespace(quote_ident('ensue')) AND r.name = ANY (v_there)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', v_each.signature, v_each.role);
    END LOOP;
    FOR v_each IN
        SELECT t.table_name, t.rights, "ensue".role_name(r.name) AS role FROM "ensue".table_grants() t CROSS JOIN LATERAL unnest(t.roles) r(name)
        WHERE r.name = ANY (v_there) AND to_regclass(format('%I.%I', 'ensue', t.table_name)) IS NOT NULL
    LOOP
        EXECUTE format('GRANT %s ON %s%I.%I TO %I', v_each.rights, CASE WHEN starts_with(v_each.rights, 'USAGE') THEN 'SEQUENCE ' ELSE '' END,
            'ensue', v_each.table_name, v_each.role);
    END LOOP;
    -- Rights of these roles that were granted by an earlier version or by hand.
    FOR v_each IN
        SELECT x.kind, x.name, x.right, x.role FROM "ensue".rights_not_listed() x
        WHERE x.role IN (SELECT "ensue".role_name(r.name) FROM unnest(v_there) r(name))
    LOOP
        EXECUTE format('REVOKE %s ON %s %s FROM %I', v_each.right, v_each.kind, v_each.name, v_each.role);
    END LOOP;
END
$body$;

DO $body$
BEGIN
    PERFORM "ensue".apply_grants();
END
$body$;

INSERT INTO "ensue".schema_version (version, compatible_from)
SELECT n, 20 FROM generate_series(0 + 1, 20) n;

-- The first partitions of the log.
DO $body$ BEGIN PERFORM "ensue".ensure_partitions(s.o_rows, s.o_ahead) FROM "ensue".partitions_set() s; END $body$;
