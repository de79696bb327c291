-- Subscriptions of group $2 that have not expired, by id, after $3, at most $4; $1 is the injected clock's time or null.
WITH t AS MATERIALIZED (
    SELECT g.id, {schema}.served_at(g.id) AS served_at, coalesce($1, clock_timestamp()) AS now
    FROM {schema}.groups g WHERE g.name = $2
)
SELECT u.id, u.topic, u.condition, u.params, u.expires_in, u.created_at, u.touched_at, u.created_after
FROM t CROSS JOIN LATERAL (
    SELECT * FROM {schema}.subscriptions x
    WHERE x.group_id = t.id AND x.id > coalesce($3::uuid, '00000000-0000-0000-0000-000000000000')
        AND (x.expires_in IS NULL OR x.expires_in >= {schema}.elapsed(greatest(x.touched_at, t.served_at), t.now))
    ORDER BY x.id LIMIT $4
) u
ORDER BY u.id
