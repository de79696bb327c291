-- Events that were published in somebody's own transaction, until they are moved into the log.
--
-- Who publishes writes a row here, without a lock; nobody else sees it before the transaction commits, and it is gone with it.
-- Whoever appends, and a loop in every process, moves what is committed (fn_outbox_move.sql): to delete it here and to append it there
-- is one commit. `xid` is the transaction that wrote it, by which the move knows what it has not looked at yet; `number`
-- is the order of writing, in which rows are moved: of two transactions that lock the same thing before they publish, the one that had it first is first.
--
-- No more than a key is unique here: two transactions with the same key wait for each other, and the second finds the first.
CREATE TABLE {schema}.outbox (
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
CREATE INDEX outbox_xid ON {schema}.outbox (xid, number);
CREATE UNIQUE INDEX outbox_key ON {schema}.outbox (key) WHERE key IS NOT NULL;

-- The oldest program, by the version of the schema that it knows, that may go on beside this version.
ALTER TABLE {schema}.schema_version ADD COLUMN compatible_from int NOT NULL DEFAULT 1;

-- They answer more than they did.
DROP FUNCTION IF EXISTS {schema}.pulse(timestamptz, bigint, uuid, bigint);
DROP FUNCTION IF EXISTS {schema}.release_due(timestamptz, bigint, bigint, bigint);
