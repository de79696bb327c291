-- Gives every slot of a member back, cleanly, and forgets the member.
CREATE OR REPLACE FUNCTION {schema}.member_leave(p_now timestamptz, p_member uuid) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
BEGIN
    PERFORM 1 FROM {schema}.slots s WHERE s.owner = p_member ORDER BY s.group_id, s.slot FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    PERFORM {schema}.member_expired_forget(p_member, v_now);
    UPDATE {schema}.slots s
    SET owner = NULL, vanished = 0, served_at = greatest(s.served_at, v_now)
    WHERE s.owner = p_member;
    DELETE FROM {schema}.members m WHERE m.id = p_member;
END
$body$;
