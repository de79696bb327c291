-- Asks something of a lane and tells the owner of its slot, if it has one. Under the lock of the slot: who takes it over
-- at this moment reads the lane afterwards, with what was asked.
CREATE OR REPLACE FUNCTION {schema}.lane_ask(p_group text, p_key text, p_ask text) RETURNS SETOF {schema}.lanes
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_slot int;
    v_owner pg_catalog.uuid;
BEGIN
    SELECT l.group_id, l.slot INTO v_group, v_slot
    FROM {schema}.groups g JOIN {schema}.lanes l ON l.group_id = g.id WHERE g.name = p_group AND l.key = p_key;
    SELECT s.owner INTO v_owner FROM {schema}.slots s WHERE s.group_id = v_group AND s.slot = v_slot FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    UPDATE {schema}.lanes l SET ask = p_ask WHERE l.group_id = v_group AND l.key = p_key RETURNING l.*;
    IF FOUND AND v_owner IS NOT NULL THEN
        PERFORM {schema}.tell_members(ARRAY[v_owner]);
    END IF;
END
$body$;
