-- Where does the log end, and what of it is forgotten?
--
-- The newest row, or what was forgotten last if there is none (H38). `p_hint` is a number that the caller saw as the
-- end: partitions below it need not be opened. It is only a hint: when nothing is found from there on (a failover lost
-- the end, or it was trimmed), the whole log is asked.
--
-- The order of the two reads matters to callers without the lock: the other way round, a trim between them would make
-- the end of the log go back.
CREATE OR REPLACE FUNCTION {schema}.log_tail(
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
        FROM {schema}.stored_events e WHERE e.seq >= p_hint ORDER BY e.seq DESC LIMIT 1;
    END IF;
    IF o_seq IS NULL THEN
        SELECT e.seq, e.recorded_at INTO o_seq, o_recorded_at FROM {schema}.stored_events e ORDER BY e.seq DESC LIMIT 1;
    END IF;
    SELECT s.trimmed_to, s.trimmed_recorded_at INTO STRICT o_trimmed_to, v_trimmed_at FROM {schema}.log_state s;
    IF o_seq IS NULL OR o_seq < o_trimmed_to THEN
        o_seq := o_trimmed_to;
        o_recorded_at := v_trimmed_at;
    END IF;
END
$body$;
