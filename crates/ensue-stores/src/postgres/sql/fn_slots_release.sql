-- Gives slots of a group back, cleanly.
CREATE FUNCTION {schema}.slots_release(p_now timestamptz, p_member uuid, p_group text, p_slots int[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
BEGIN
    SELECT g.id INTO v_group FROM {schema}.groups g WHERE g.name = p_group;
    PERFORM 1 FROM {schema}.slots s
    WHERE s.group_id = v_group AND s.slot = ANY (p_slots) AND s.owner = p_member ORDER BY s.slot FOR UPDATE;
    UPDATE {schema}.slots s
    SET owner = NULL, vanished = 0, served_at = greatest(s.served_at, coalesce(p_now, clock_timestamp()))
    WHERE s.group_id = v_group AND s.slot = ANY (p_slots) AND s.owner = p_member;
END
$body$;
