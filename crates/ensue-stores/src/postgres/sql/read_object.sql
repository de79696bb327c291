-- A page of one object: of its events in ($1, $2] the first $6 are looked at. The same parameters before that, and the same columns, as read_range.sql.
SELECT p.seq, p.prev, p.id_part, p.topic, p.object, p.payload, p.metadata,
    coalesce(p.occurred_at, p.recorded_at), p.recorded_at, p.to_subscription, p.more_follow
FROM (
    SELECT e.*, coalesce(sum(
            {bytes_of_e}
        ) OVER (ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS size_before,
        lead(true, 1, false) OVER (ORDER BY e.seq) AS more_follow
    FROM (
        SELECT * FROM (
            SELECT * FROM {schema}.stored_events log
            WHERE hashtextextended(log.object, 0) = hashtextextended($7, 0) AND log.object = $7
                AND log.seq > $1 AND log.seq <= $2 AND log.seq > (SELECT s.trimmed_to FROM {schema}.log_state s)
            ORDER BY log.seq LIMIT $6
        ) walked
        WHERE $4::text IS NULL OR walked.topic = $4 OR starts_with(walked.topic, $4 || '.')
        ORDER BY walked.seq LIMIT $3
    ) e
) p
WHERE p.size_before <= $5::bigint
ORDER BY p.seq
