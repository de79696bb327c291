-- Where in the log is the event with this id? Its id tells the millisecond in which it was recorded (null otherwise),
-- a delayed one left its seq in `delayed`. `p_part` is the id without its time, as the
-- log has it. One that came through the outbox is there with its whole id, within {id_lag} after the time that it tells, or left its seq, too.
CREATE OR REPLACE FUNCTION {schema}.find_seq(p_id uuid, p_part uuid, p_from timestamptz, p_to timestamptz, p_hint bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $body$
DECLARE
    v_seq bigint;
    v_after bigint;
    v_until bigint;
BEGIN
    SELECT d.seq INTO v_seq FROM {schema}.delayed d WHERE d.id = p_id;
    IF FOUND OR p_from IS NULL THEN
        RETURN CASE WHEN v_seq > (SELECT s.trimmed_to FROM {schema}.log_state s) THEN v_seq END;
    END IF;
    v_after := {schema}.seq_before(p_from, p_hint);
    v_until := {schema}.seq_before(p_to, p_hint);
    SELECT e.seq INTO v_seq FROM {schema}.stored_events e
    WHERE e.seq > v_after AND e.seq <= v_until AND e.id_part = p_part ORDER BY e.seq LIMIT 1;
    IF NOT FOUND THEN
        SELECT e.seq INTO v_seq FROM {schema}.stored_events e
        WHERE e.seq > v_after AND e.seq <= {schema}.seq_before(p_to + interval '{id_lag}', p_hint) AND e.id_part = p_id
        ORDER BY e.seq LIMIT 1;
    END IF;
    RETURN v_seq;
END
$body$;
