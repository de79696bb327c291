-- Keeps subscription $3 of group $2 from expiring, unless it has; $1 is the injected clock's time or null.
UPDATE {schema}.subscriptions u SET touched_at = t.now
FROM (
    SELECT g.id, {schema}.served_at(g.id) AS served_at, coalesce($1, clock_timestamp()) AS now
    FROM {schema}.groups g WHERE g.name = $2 OFFSET 0
) t
WHERE u.group_id = t.id AND u.id = $3
    AND (u.expires_in IS NULL OR u.expires_in >= {schema}.elapsed(greatest(u.touched_at, t.served_at), t.now))
RETURNING u.id, u.topic, u.condition, u.params, u.expires_in, u.created_at, u.touched_at, u.created_after
