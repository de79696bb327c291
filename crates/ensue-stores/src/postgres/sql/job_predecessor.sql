-- The job that goes before the one with the number $1 and the stamp $2 in its lane: the one that runs, or else the one with
-- the smallest turn below its own. Nothing goes before one that runs.
SELECT {job_j}
FROM {schema}.jobs x
CROSS JOIN LATERAL (
    SELECT 0 AS nth, a.number FROM {schema}.jobs a
    WHERE a.handler = x.handler AND a.object = x.object AND a.ordered AND a.object IS NOT NULL
        AND a.state IN ('available', 'running') AND coalesce(a.state, '') = 'running'
    UNION ALL (
        SELECT 1, b.number FROM {schema}.jobs b
        WHERE b.handler = x.handler AND b.object = x.object AND b.ordered AND b.object IS NOT NULL
            AND b.turn IS NOT NULL AND b.turn < x.turn
        ORDER BY b.turn LIMIT 1)
    ORDER BY nth LIMIT 1
) p
JOIN {schema}.jobs j ON j.number = p.number
WHERE x.number = $1 AND x.stamp = $2 AND x.ordered AND x.object IS NOT NULL AND x.turn IS NOT NULL AND x.state <> 'running'
