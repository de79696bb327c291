-- A page of the log: places ($1, $2], at most $3 events, below topic $4 if it is given.
--
-- No more is sent than fits on a page: a running sum of the sizes before each row cuts it (at $5 bytes, but never before
-- the first row), and `more_follow` on the last row tells of the cut. The reader still counts for itself, as text has
-- blanks here that it drops; without the sum, a log of large events would be sent again for every page: 1,000
-- events of 1 MiB for a page that holds four.
SELECT p.seq, p.prev, p.id_part, p.topic, p.object, p.payload, p.metadata,
    coalesce(p.occurred_at, p.recorded_at), p.recorded_at, p.to_subscription, p.more_follow
FROM (
    SELECT e.*, coalesce(sum(
            {bytes_of_e}
        ) OVER (ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS size_before,
        lead(true, 1, false) OVER (ORDER BY e.seq) AS more_follow
    FROM (
        SELECT * FROM {schema}.stored_events log
        WHERE log.seq > $1 AND log.seq <= $2 AND log.seq > (SELECT s.trimmed_to FROM {schema}.log_state s)
            AND ($4::text IS NULL OR log.topic = $4 OR starts_with(log.topic, $4 || '.'))
        ORDER BY log.seq LIMIT $3
    ) e
) p
WHERE p.size_before <= $5::bigint
ORDER BY p.seq
