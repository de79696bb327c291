-- Tells members that something of theirs has changed: they hear of it when they renew their leases.
CREATE OR REPLACE FUNCTION {schema}.tell_members(p_members uuid[]) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM 1 FROM {schema}.members m WHERE m.id = ANY (p_members) ORDER BY m.id FOR UPDATE;
    UPDATE {schema}.members m SET version = m.version + 1 WHERE m.id = ANY (p_members);
END
$body$;
