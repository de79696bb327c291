-- Forgets the oldest events: at once for everybody, by moving the mark. Their rows go with their partition, later.
-- Under the lock of the log, so that no event appended after it points to what is forgotten.
CREATE OR REPLACE FUNCTION {schema}.trim(
    p_keep_from bigint, p_limit bigint, p_hint bigint, OUT o_first bigint, OUT o_last bigint
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off
AS $body$
DECLARE
    v_trimmed_to bigint;
BEGIN
    PERFORM {schema}.lock_log();
    SELECT t.o_trimmed_to + 1, t.o_seq INTO o_first, o_last FROM {schema}.log_tail(p_hint) t;
    v_trimmed_to := least(p_keep_from - 1, o_first - 1 + p_limit, o_last);
    IF v_trimmed_to >= o_first THEN
        UPDATE {schema}.log_state s SET trimmed_to = v_trimmed_to, trimmed_recorded_at = e.recorded_at
        FROM {schema}.stored_events e WHERE e.seq = v_trimmed_to;
        DELETE FROM {schema}.delayed d WHERE d.seq <= v_trimmed_to;
        o_first := v_trimmed_to + 1;
    END IF;
END
$body$;
