-- The processes that live ($1: the time, if it is injected), each with the groups that it serves.
SELECT m.id, m.name, m.kind,
    ARRAY(SELECT s.group_name FROM {schema}.serving s WHERE s.member = m.id ORDER BY s.group_name)
FROM {schema}.members m
WHERE m.kind = 'handler' AND m.lease_until >= coalesce($1::timestamptz, clock_timestamp())
ORDER BY m.id
