-- Those of the subscriptions $2 that have not expired, with their groups; $1 is the injected
-- clock's time or null.
SELECT u.id, u.topic, u.condition, u.params, u.expires_in, u.created_at, u.touched_at, u.created_after, g.name
FROM unnest($2::uuid[]) i(id) CROSS JOIN {schema}.groups g CROSS JOIN LATERAL (
    SELECT * FROM {schema}.subscriptions x WHERE x.group_id = g.id AND x.id = i.id LIMIT 1
) u
WHERE u.expires_in IS NULL OR u.expires_in >= {schema}.elapsed(
    greatest(u.touched_at, {schema}.served_at(g.id)), coalesce($1, clock_timestamp()))
