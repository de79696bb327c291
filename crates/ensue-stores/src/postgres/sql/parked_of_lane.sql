-- What is parked of lane $2 of group $1 after $3, at most $4, cut at about $5 bytes as in read_range.sql.
SELECT p.seq, p.prev, p.id_part, p.topic, p.object, p.payload, p.metadata,
    coalesce(p.occurred_at, p.recorded_at), p.recorded_at, p.to_subscription
FROM (
    SELECT e.*, coalesce(sum(
            {bytes_of_e}
        ) OVER (ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS size_before
    FROM (
        SELECT k.* FROM {schema}.parked k
        WHERE k.group_id = (SELECT g.id FROM {schema}.groups g WHERE g.name = $1) AND k.key = $2 AND k.seq > $3
        ORDER BY k.seq LIMIT $4
    ) e
) p
WHERE p.size_before <= $5::bigint
ORDER BY p.seq
