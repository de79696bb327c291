-- Has the transaction committed in which a handler settled with one of the calls $1: deliveries, or the job with the number $2 and the stamp $3?
SELECT CASE WHEN $2::bigint IS NULL THEN EXISTS (SELECT 1 FROM {schema}.settlements t WHERE t.call = ANY ($1::uuid[]))
    ELSE EXISTS (SELECT 1 FROM {schema}.jobs j WHERE j.number = $2 AND j.stamp = $3 AND j.call = ANY ($1::uuid[])) END
