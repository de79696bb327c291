-- Version 21 of the schema.

-- Functions whose arguments or results differ from version 20 are dropped by name here and made again
-- by the upgrade. A function that stays beside its successor makes calls ambiguous.
DO $body$
DECLARE
    v_old pg_catalog.regprocedure;
BEGIN
    FOR v_old IN
        SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = to_regnamespace(quote_ident({schema_text}))
            AND p.proname = ANY (
                '{jobs_purge,complete_job,slots_settle,own_put,own_message,lease_text,lease_parts,
                    jobs_send,condition_evaluate,subscriptions_changed}')
    LOOP
        EXECUTE format('DROP FUNCTION %s', v_old);
    END LOOP;
END
$body$;

-- The transaction of the outbox that was moved in part last, because it has more events than one move
-- takes; 0 if there was none. Its other rows are moved before those of all others (fn_outbox_move.sql).
CREATE TABLE {schema}.outbox_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    moving xid8 NOT NULL DEFAULT '0'
);
INSERT INTO {schema}.outbox_state DEFAULT VALUES;

-- Tasks are kept as long as other settings say, so that they are found apart from other jobs.
DROP INDEX IF EXISTS {schema}.jobs_over, {schema}.jobs_tasks_over;
CREATE INDEX jobs_over ON {schema}.jobs (finished_at, number)
    WHERE finished_at IS NOT NULL AND turn IS NULL AND state <> 'dead' AND NOT starts_with(handler, 'task.');
CREATE INDEX jobs_tasks_over ON {schema}.jobs (finished_at, number)
    WHERE finished_at IS NOT NULL AND turn IS NULL AND starts_with(handler, 'task.');

-- The newest event that a handler's own transaction settles: its log must hold it at the commit.
ALTER TABLE {schema}.own_settlements ADD COLUMN IF NOT EXISTS relied_seq bigint,
    ADD COLUMN IF NOT EXISTS relied_id uuid;

-- The conditions of a group, each once, for readers over SQL (fn_condition_keys.sql).
CREATE TABLE {schema}.subscription_conditions (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id bigint NOT NULL,
    is_tried boolean NOT NULL DEFAULT false, -- Postgres has accepted it
    condition text COLLATE "C",
    keys jsonb, -- what its subscriptions are looked up by; null: they are evaluated for every event
    is_exact boolean NOT NULL DEFAULT false -- it holds where the keys are the same
);
CREATE INDEX subscription_conditions_same
    ON {schema}.subscription_conditions (group_id, hashtextextended(coalesce(condition, ''), 0));

-- Under which keys a subscription is looked up; with a null key it is evaluated for every event.
CREATE TABLE {schema}.subscription_keys (
    group_id bigint NOT NULL,
    condition bigint NOT NULL,
    key bytea,
    is_exact boolean NOT NULL DEFAULT false, -- it wants the events that have the key, and is not evaluated
    id uuid NOT NULL
);
CREATE INDEX subscription_keys_key ON {schema}.subscription_keys (condition, key) INCLUDE (id, is_exact);
CREATE INDEX subscription_keys_id ON {schema}.subscription_keys (group_id, id);
INSERT INTO {schema}.subscription_conditions (group_id, condition)
SELECT DISTINCT u.group_id, u.condition FROM {schema}.subscriptions u;
INSERT INTO {schema}.subscription_keys (group_id, condition, id)
SELECT u.group_id, c.number, u.id
FROM {schema}.subscriptions u JOIN {schema}.subscription_conditions c
    ON c.group_id = u.group_id AND c.condition IS NOT DISTINCT FROM u.condition;

-- How many subscriptions more a group has than its row says: the row is written once in a transaction
-- that makes many, since each look at it would pass all versions that the transaction has made.
CREATE TABLE {schema}.subscription_counts (group_id bigint NOT NULL, more bigint NOT NULL);
CREATE INDEX subscription_counts_group ON {schema}.subscription_counts (group_id);

-- The events up to here were deleted one by one after a trim (fn_delete_trimmed.sql); those before the
-- first partition are gone, too.
CREATE TABLE {schema}.retention_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    deleted_to bigint NOT NULL DEFAULT 0
);
INSERT INTO {schema}.retention_state DEFAULT VALUES;
