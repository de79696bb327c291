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
                '{jobs_purge,complete_job,slots_settle,own_put,own_message,lease_text,lease_parts,jobs_send}')
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
