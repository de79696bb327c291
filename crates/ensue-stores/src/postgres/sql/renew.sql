-- Renews the lease of member $2 for $3 microseconds, and tells it of all processes; $1 is the injected clock's time or
-- null. One statement: an idle process asks this and little else.
WITH renewed AS (
    UPDATE {schema}.members m
    SET lease_until = coalesce($1, clock_timestamp()) + $3::bigint * interval '1 microsecond'
    WHERE m.id = $2 RETURNING m.id, m.name, m.kind, m.version
), processes AS (
    SELECT r.id, r.name, r.kind FROM renewed r WHERE r.kind = 'handler'
    UNION ALL
    SELECT m.id, m.name, m.kind FROM {schema}.members m
    WHERE m.kind = 'handler' AND m.lease_until >= (SELECT coalesce($1, clock_timestamp())) AND m.id <> $2
)
SELECT r.version, p.id, p.name, p.kind FROM renewed r LEFT JOIN processes p ON true ORDER BY p.id
