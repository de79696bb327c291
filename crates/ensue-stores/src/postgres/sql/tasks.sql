-- Tasks by the time at which they were made: of handlers from $1 to $2, made from $3 to $4, after ($5, $6), in one of the
-- states $7 if there are some, at most $8. A source has few collections: each is found behind the one before it, and read
-- from its place in the index.
WITH RECURSIVE found(handler) AS (
    (SELECT j.handler FROM {schema}.jobs j
     WHERE starts_with(j.handler, 'task.') AND j.handler >= $1 AND j.handler <= $2 ORDER BY j.handler LIMIT 1)
    UNION ALL
    SELECT (SELECT j.handler FROM {schema}.jobs j
            WHERE starts_with(j.handler, 'task.') AND j.handler > f.handler AND j.handler <= $2 ORDER BY j.handler LIMIT 1)
    FROM found f WHERE f.handler IS NOT NULL
)
SELECT {job_j} FROM found f CROSS JOIN LATERAL (
    SELECT x.* FROM {schema}.jobs x
    WHERE starts_with(x.handler, 'task.') AND x.handler = f.handler AND x.enqueued_at >= $3 AND x.enqueued_at <= $4
        AND (x.enqueued_at, x.number) > ($5, $6) AND ($7::text[] IS NULL OR x.state = ANY ($7))
    ORDER BY x.enqueued_at, x.number LIMIT $8
) j
ORDER BY j.enqueued_at, j.number LIMIT $8
