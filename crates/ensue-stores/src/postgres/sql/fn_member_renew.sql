-- Renews the lease of a member for p_lease microseconds, and tells it of all processes; nothing if it is not known. One
-- round trip: an idle process asks this and little else.
CREATE OR REPLACE FUNCTION {schema}.member_renew(p_now timestamptz, p_member uuid, p_lease bigint)
RETURNS TABLE (o_version bigint, o_id uuid, o_name text, o_kind text) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
    v_lease_until pg_catalog.timestamptz;
    v_version bigint;
BEGIN
    SELECT m.lease_until INTO v_lease_until FROM {schema}.members m WHERE m.id = p_member FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_now := coalesce(p_now, clock_timestamp());
    IF v_lease_until < v_now THEN
        PERFORM {schema}.member_expired_forget(p_member, v_now);
    END IF;
    UPDATE {schema}.members m SET lease_until = v_now + p_lease * interval '1 microsecond'
    WHERE m.id = p_member RETURNING m.version INTO v_version;
    RETURN QUERY
    SELECT v_version, m.id, m.name, m.kind
    FROM (SELECT 1) one LEFT JOIN {schema}.members m ON m.kind = 'handler' AND m.lease_until >= v_now
    ORDER BY m.id;
END
$body$;
