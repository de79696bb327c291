-- The place of the last event recorded before a time: a binary search, because seq has no gaps and recorded_at never
-- decreases along it. About 24 lookups by primary key in a log of ten million.
CREATE OR REPLACE FUNCTION {schema}.seq_before(p_time timestamptz, p_hint bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $body$
DECLARE
    v_low bigint; -- everything up to here is before the time
    v_high bigint; -- everything after here is not
    v_middle bigint;
    v_recorded_at pg_catalog.timestamptz;
BEGIN
    SELECT t.o_trimmed_to, t.o_seq INTO v_low, v_high FROM {schema}.log_tail(p_hint) t;
    WHILE v_low < v_high LOOP
        v_middle := v_low + (v_high - v_low + 1) / 2;
        SELECT e.recorded_at INTO v_recorded_at FROM {schema}.stored_events e WHERE e.seq = v_middle;
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
