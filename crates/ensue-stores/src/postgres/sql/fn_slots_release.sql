-- Gives slots of a group back, cleanly.
CREATE OR REPLACE FUNCTION {schema}.slots_release(p_now timestamptz, p_member uuid, p_group text, p_slots int[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_subscriptions bigint;
    v_now pg_catalog.timestamptz;
BEGIN
    SELECT g.id, g.subscriptions INTO v_group, v_subscriptions FROM {schema}.groups g WHERE g.name = p_group;
    PERFORM 1 FROM {schema}.slots s
    WHERE s.group_id = v_group AND s.slot = ANY (p_slots) AND s.owner = p_member ORDER BY s.slot FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_now := coalesce(p_now, clock_timestamp());
    IF v_subscriptions > 0 THEN
        PERFORM {schema}.expired_forget(v_group, v_now);
    END IF;
    UPDATE {schema}.slots s
    SET owner = NULL, vanished = 0, served_at = greatest(s.served_at, v_now)
    WHERE s.group_id = v_group AND s.slot = ANY (p_slots) AND s.owner = p_member;
END
$body$;
