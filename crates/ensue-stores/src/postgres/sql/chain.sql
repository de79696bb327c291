-- The events of object $1 before $2, newest first, at most $3, cut at about $4 bytes as in read_range.sql.
SELECT p.seq, p.prev, p.id_part, p.topic, p.object, p.payload, p.metadata,
    coalesce(p.occurred_at, p.recorded_at), p.recorded_at, p.to_subscription
FROM (
    SELECT e.*, coalesce(sum(
            {bytes_of_e}
        ) OVER (ORDER BY e.seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS size_before
    FROM (
        SELECT * FROM {schema}.stored_events log
        WHERE hashtextextended(log.object, 0) = hashtextextended($1, 0) AND log.object = $1
            AND log.seq < $2 AND log.seq > (SELECT s.trimmed_to FROM {schema}.log_state s)
        ORDER BY log.seq DESC LIMIT $3
    ) e
) p
WHERE p.size_before <= $4::bigint
ORDER BY p.seq DESC
