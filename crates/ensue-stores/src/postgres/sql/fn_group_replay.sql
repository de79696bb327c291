-- Has a handler's group run what is after p_after and up to p_to again, and then go on where it was. Answers the bounds of
-- the log and what became of it: `done`, or why nothing was changed: `missing`, `pull`, `range`, `lanes`, `under_way`. One that
-- is asked for again before it has begun, because the answer was lost, is done.
CREATE OR REPLACE FUNCTION {schema}.group_replay(
    p_now timestamptz, p_hint bigint, p_name text, p_after bigint, p_to bigint,
    OUT o_state text, OUT o_first bigint, OUT o_last bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_kind pg_catalog.text;
    v_now pg_catalog.timestamptz;
BEGIN
    SELECT g.id, g.kind INTO v_group, v_kind FROM {schema}.groups g WHERE g.name = p_name FOR UPDATE;
    o_state := CASE WHEN NOT FOUND THEN 'missing' WHEN v_kind <> 'handler' THEN 'pull' END;
    SELECT t.o_trimmed_to + 1, t.o_seq INTO o_first, o_last FROM {schema}.log_tail(p_hint) t;
    IF o_state IS NULL AND (p_after < o_first - 1 OR p_to > o_last OR p_to <= p_after) THEN
        o_state := 'range';
    END IF;
    IF o_state IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM 1 FROM {schema}.slots s WHERE s.group_id = v_group ORDER BY s.slot FOR UPDATE;
    IF EXISTS (SELECT FROM {schema}.lanes l WHERE l.group_id = v_group) THEN
        o_state := 'lanes';
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM {schema}.slots s WHERE s.group_id = v_group AND s.cursor < s.resume_at) THEN
        o_state := CASE WHEN NOT EXISTS (
            SELECT FROM {schema}.slots s WHERE s.group_id = v_group AND s.cursor < s.resume_at
                AND (s.cursor <> p_after OR s.replay_to <> p_to OR s.owner IS NOT NULL)
        ) THEN 'done' ELSE 'under_way' END;
        RETURN;
    END IF;
    v_now := coalesce(p_now, clock_timestamp());
    PERFORM {schema}.expired_forget(v_group, v_now);
    PERFORM {schema}.tell_members(ARRAY(
        SELECT s.owner FROM {schema}.slots s WHERE s.group_id = v_group AND s.owner IS NOT NULL));
    UPDATE {schema}.slots s SET
        replay_to = CASE WHEN s.cursor > p_to THEN p_to END,
        resume_at = CASE WHEN s.cursor > p_to THEN s.cursor END,
        cursor = least(s.cursor, p_after),
        owner = NULL, vanished = 0, served_at = greatest(s.served_at, v_now)
    WHERE s.group_id = v_group;
    o_state := 'done';
END
$body$;
