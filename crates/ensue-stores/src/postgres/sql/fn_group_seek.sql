-- Moves every cursor of a group to a place in the log, forgets its lanes and what it replays, and takes its slots from
-- whoever has them. Answers whether there is such a group, and the bounds of the log; outside of them nothing is changed.
CREATE OR REPLACE FUNCTION {schema}.group_seek(
    p_now timestamptz, p_hint bigint, p_name text, p_to bigint,
    OUT o_found boolean, OUT o_first bigint, OUT o_last bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_now pg_catalog.timestamptz;
BEGIN
    SELECT g.id INTO v_group FROM {schema}.groups g WHERE g.name = p_name FOR UPDATE;
    o_found := FOUND;
    SELECT t.o_trimmed_to + 1, t.o_seq INTO o_first, o_last FROM {schema}.log_tail(p_hint) t;
    IF NOT o_found OR p_to > o_last OR p_to < o_first - 1 THEN
        RETURN;
    END IF;
    PERFORM 1 FROM {schema}.slots s WHERE s.group_id = v_group ORDER BY s.slot FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    PERFORM {schema}.expired_forget(v_group, v_now);
    PERFORM {schema}.tell_members(ARRAY(
        SELECT s.owner FROM {schema}.slots s WHERE s.group_id = v_group AND s.owner IS NOT NULL));
    UPDATE {schema}.slots s
    SET cursor = p_to, replay_to = NULL, resume_at = NULL, owner = NULL, vanished = 0, served_at = greatest(s.served_at, v_now)
    WHERE s.group_id = v_group;
    DELETE FROM {schema}.lanes l WHERE l.group_id = v_group;
END
$body$;
