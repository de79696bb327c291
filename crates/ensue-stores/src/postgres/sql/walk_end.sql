-- Where did a walk over $4 events of an object in ($1, $2] end? One row or none: it came to the end of the object;
-- two: the first is the last one looked at, and more follow.
SELECT e.seq FROM {schema}.stored_events e
WHERE hashtextextended(e.object, 0) = hashtextextended($3, 0) AND e.object = $3
    AND e.seq > $1 AND e.seq <= $2 AND e.seq > (SELECT s.trimmed_to FROM {schema}.log_state s)
ORDER BY e.seq OFFSET $4::bigint - 1 LIMIT 2
