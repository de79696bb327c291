-- Does the log hold this event at this place? If it does, the log is also the same up to there. A promoted replica may
-- lack the last events and give their places to others (H35). What is forgotten cannot be compared, and counts as held.
CREATE OR REPLACE FUNCTION {schema}.log_has(p_seq bigint, p_id uuid) RETURNS boolean LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $body$
DECLARE
    v_id pg_catalog.uuid;
BEGIN
    SELECT {schema}.event_id(e.id_part, e.recorded_at) INTO v_id FROM {schema}.stored_events e WHERE e.seq = p_seq;
    IF FOUND THEN
        RETURN v_id = p_id;
    END IF;
    RETURN p_seq <= (SELECT s.trimmed_to FROM {schema}.log_state s);
END
$body$;
