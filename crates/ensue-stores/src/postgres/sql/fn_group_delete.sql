-- Takes a group and its slots out of the store; was there one? What belonged to it is left to group_sweep.
CREATE OR REPLACE FUNCTION {schema}.group_delete(p_name text) RETURNS boolean LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_version bigint;
BEGIN
    PERFORM 1 FROM {schema}.positions_state FOR UPDATE;
    SELECT g.id, g.version INTO v_group, v_version FROM {schema}.groups g WHERE g.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM 1 FROM {schema}.slots s WHERE s.group_id = v_group ORDER BY s.slot FOR UPDATE;
    PERFORM {schema}.tell_members(ARRAY(
        SELECT s.owner FROM {schema}.slots s WHERE s.group_id = v_group AND s.owner IS NOT NULL));
    UPDATE {schema}.positions_state p SET
        fence_floor = greatest(p.fence_floor, (SELECT max(s.fence) FROM {schema}.slots s WHERE s.group_id = v_group)),
        version_floor = greatest(p.version_floor, v_version + 1);
    DELETE FROM {schema}.slots s WHERE s.group_id = v_group;
    DELETE FROM {schema}.groups g WHERE g.id = v_group;
    INSERT INTO {schema}.groups_gone (group_id) VALUES (v_group);
    RETURN true;
END
$body$;
