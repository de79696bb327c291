-- Tables and columns that keep one caller from harming another (docs/security.md).

-- Claims and leases.

-- How the worker of the last claim settled a job: 'fail' or 'snooze'. Null if it succeeded, which its state tells, or if
-- no worker settled it.
ALTER TABLE {schema}.jobs ADD COLUMN settled text COLLATE "C";

-- Functions that take or answer something else from this version on. One that stays beside its successor makes calls
-- ambiguous.
DO $body$
DECLARE
    v_old pg_catalog.regprocedure;
BEGIN
    FOR v_old IN
        SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = to_regnamespace(quote_ident({schema_text}))
            AND p.proname = ANY ('{jobs_fetch,jobs_take,jobs_claim,jobs_steer,jobs_wake,job_end_one,lease_parts,own_put}')
    LOOP
        EXECUTE format('DROP FUNCTION %s', v_old);
    END LOOP;
END
$body$;

-- The secret key with which nodes and functions sign claims and leases (fn_store_code.sql). The pads are those of HMAC.
CREATE TABLE {schema}.store_key (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    key bytea NOT NULL CHECK (octet_length(key) = 32),
    inner_pad bytea NOT NULL,
    outer_pad bytea NOT NULL
);
-- A UUID has 122 random bits, from the server's strong source.
WITH drawn AS MATERIALIZED (
    SELECT sha256(string_agg(uuid_send(gen_random_uuid()), '')) AS key FROM generate_series(1, 4)
)
INSERT INTO {schema}.store_key (key, inner_pad, outer_pad)
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
CREATE TABLE {schema}.outbox_rejected (
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
DROP FUNCTION IF EXISTS {schema}.outbox_put(timestamptz, uuid[], text[], text[], text[], timestamptz[],
    timestamptz[], uuid[], text[], text[], bytea[]);

-- Lock tables, which are empty. Locking one needs a right on it and writes nothing. Any login of the
-- database could take an advisory lock (S14).
CREATE TABLE {schema}.log_lock ();
CREATE TABLE {schema}.serving_lock ();
CREATE TABLE {schema}.rules_lock ();

-- Rights.
-- Its parameter has another name.
DROP FUNCTION IF EXISTS {schema}.condition_try(text);
