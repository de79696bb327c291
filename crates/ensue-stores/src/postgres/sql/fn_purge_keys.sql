-- Forgets idempotency keys whose window has passed, the oldest first; answers how many. Time is what an append would
-- record at, so that a key is never forgotten while it still counts. A key that an append writes over meanwhile is
-- locked by it and is left alone.
CREATE OR REPLACE FUNCTION {schema}.purge_keys(p_now timestamptz, p_hint bigint, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
DECLARE
    v_time pg_catalog.timestamptz;
    v_count bigint;
BEGIN
    SELECT {schema}.recording_time(p_now, t.o_recorded_at) INTO v_time FROM {schema}.log_tail(p_hint) t;
    DELETE FROM {schema}.keys k WHERE k.key = ANY (ARRAY(
        SELECT old.key FROM {schema}.keys old WHERE old.recorded_at <= v_time - interval '{key_window}'
        ORDER BY old.recorded_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$body$;
