-- What has changed of the subscriptions of group $2 after version $3, at most $4 rows; $1 is the injected clock's time or null. A
-- row with nothing but the group's version if nothing has. What has expired counts as gone.
WITH t AS MATERIALIZED (
    SELECT g.id, g.version, {schema}.served_at(g.id) AS served_at, coalesce($1, clock_timestamp()) AS now
    FROM {schema}.groups g WHERE g.name = $2
)
SELECT c.id, u.topic, u.condition, u.params, u.expires_in, u.created_at, u.touched_at, u.created_after,
    t.version, c.version, u.id IS NOT NULL
FROM t LEFT JOIN LATERAL (
    SELECT x.version, x.id FROM {schema}.subscription_changes x
    WHERE x.group_id = t.id AND x.version > $3 ORDER BY x.version LIMIT $4
) c ON true
LEFT JOIN {schema}.subscriptions u ON u.group_id = t.id AND u.id = c.id
    AND (u.expires_in IS NULL OR u.expires_in >= {schema}.elapsed(greatest(u.touched_at, t.served_at), t.now))
ORDER BY c.version
