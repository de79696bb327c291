-- How far is the reader? Notes that everything up to `cursor` is done, under the lease of a read, and answers where the group is then; with no cursor it stays where it is.
-- With release_lock somebody else may read at once. A lease that is lost changes nothing and is an error; so is a place that was not read.
CREATE OR REPLACE FUNCTION {schema}.set_group_cursor(
    gid text, cursor bigint, release_lock boolean DEFAULT true, lease text DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    p_gid ALIAS FOR $1;
    p_cursor ALIAS FOR $2;
    v_group bigint;
    v_lease pg_catalog.record;
    v_slot pg_catalog.record;
    v_given_to bigint;
BEGIN
    IF $4 IS NULL THEN
        RAISE EXCEPTION 'the lease is missing' USING ERRCODE = 'invalid_parameter_value', HINT = 'Send the one that read_next_events answered.';
    END IF;
    v_group := {schema}.pulled_group(p_gid);
    IF v_group IS NULL THEN
        RAISE EXCEPTION 'there is no group %', quote_literal(p_gid)
            USING ERRCODE = 'undefined_object', HINT = 'Subscribe to it, which makes it.';
    END IF;
    SELECT * INTO v_lease FROM {schema}.lease_parts(p_gid, $4);
    -- The lock comes first, the look at the lease after it: who takes the group over waits, or has done so before.
    PERFORM 1 FROM {schema}.slots s WHERE s.group_id = v_group ORDER BY s.slot FOR UPDATE;
    SELECT s.cursor, s.owner = v_lease.o_member AND s.fence = v_lease.o_fence AND m.lease_until >= clock_timestamp() AS holds INTO v_slot
    FROM {schema}.slots s LEFT JOIN {schema}.members m ON m.id = s.owner WHERE s.group_id = v_group ORDER BY s.slot LIMIT 1;
    IF v_slot.holds IS NOT TRUE THEN
        PERFORM {schema}.lease_lost(p_gid);
    END IF;
    IF p_cursor IS NOT NULL AND v_lease.o_given_id IS NOT NULL
        AND NOT {schema}.log_has(v_lease.o_given_to, v_lease.o_given_id) THEN
        PERFORM {schema}.lease_went_back(p_gid, v_slot.cursor, v_lease.o_given_to);
    END IF;
    SELECT least(v_lease.o_given_to, t.o_seq) INTO v_given_to FROM {schema}.log_tail(v_slot.cursor) t;
    IF p_cursor < v_slot.cursor THEN
        RAISE EXCEPTION 'cursor is %, and the group is at % already', p_cursor, v_slot.cursor
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Commit a later place. Groups are moved back over HTTP, with seek.';
    ELSIF p_cursor > v_given_to THEN
        RAISE EXCEPTION 'cursor is %, but under this lease everything up to % was read and no more', p_cursor, v_given_to
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Commit that or an earlier place.';
    END IF;
    IF p_cursor IS NOT NULL THEN
        PERFORM {schema}.pull_commit(v_group, p_cursor, v_lease.o_lost_from, v_lease.o_lost_to);
    END IF;
    IF coalesce($3, true) THEN
        PERFORM {schema}.member_leave(NULL, v_lease.o_member);
    END IF;
    RETURN coalesce(p_cursor, v_slot.cursor);
END
$body$;
