-- Groups with their slots, a row for each slot; $1 is the injected clock's time or null. An expired subscription counts
-- as gone: only those are looked at that expire within the time since the group was served, none in a group that is read.
WITH g AS MATERIALIZED (
    SELECT k.*, k.subscriptions + (SELECT coalesce(sum(c.more), 0) FROM {schema}.subscription_counts c
            WHERE c.group_id = k.id)::bigint AS counted,
        (SELECT count(*) FROM {schema}.subscriptions u
            WHERE u.group_id + 0 = k.id AND u.expires_in < {schema}.elapsed(k.served_at, k.now)
                AND u.expires_in < {schema}.elapsed(u.touched_at, k.now)) AS expired,
        (SELECT count(*) FROM {schema}.lanes l WHERE l.group_id = k.id AND l.state IN ('waiting', 'held')) AS lanes,
        (SELECT min(greatest(l.position, l.parked_to)) FROM {schema}.lanes l
         WHERE l.group_id = k.id AND l.state IN ('waiting', 'held')) AS oldest_lane
    FROM (
        SELECT g.*, {schema}.served_at(g.id) AS served_at, coalesce($1, clock_timestamp()) AS now
        FROM {schema}.groups g {which_groups}
        OFFSET 0
    ) k
)
SELECT g.name, g.kind, g.created_at, g.served_at, g.version, g.counted - g.expired, g.lanes, g.oldest_lane,
    s.slot, s.cursor, s.fence, s.vanished, m.id, m.name, m.kind, m.lease_until, s.lost_nth, s.lost_from, s.lost_to,
    s.replay_to, s.resume_at
FROM g JOIN {schema}.slots s ON s.group_id = g.id LEFT JOIN {schema}.members m ON m.id = s.owner
ORDER BY g.name, s.slot
