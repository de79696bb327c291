-- Delayed events in the order in which they will enter the log, at most $1, cut at about $2 bytes as in read_range.sql.
SELECT p.id, p.topic, p.object, p.payload, p.metadata, p.occurred_at, p.not_before, p.to_subscription
FROM (
    SELECT d.*, coalesce(sum(
            {bytes_of_d}
        ) OVER (ORDER BY d.not_before, d.accepted ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS size_before
    FROM (
        SELECT * FROM {schema}.delayed w WHERE w.seq IS NULL ORDER BY w.not_before, w.accepted LIMIT $1
    ) d
) p
WHERE p.size_before <= $2::bigint
ORDER BY p.not_before, p.accepted
