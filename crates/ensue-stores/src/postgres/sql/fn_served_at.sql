-- When was a group last read or moved on? While somebody has a slot of it, at least at the end of their lease.
CREATE OR REPLACE FUNCTION {schema}.served_at(p_group bigint) RETURNS timestamptz
LANGUAGE sql STABLE
AS $body$
    SELECT max(greatest(s.served_at, (SELECT m.lease_until FROM {schema}.members m WHERE m.id = s.owner)))
    FROM {schema}.slots s WHERE s.group_id = p_group
$body$;
