-- Sends jobs in the caller's transaction, in the order of the arrays; the answer is their ids.
SELECT ARRAY(
    SELECT {send}(j.handler, j.payload::jsonb, j.object, j.priority::numeric, j.not_before, j.key, j.attempts_max,
        j.metadata::jsonb, j.ordered, j.exhausted)
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::text[], $7::int[], $8::text[],
        $9::boolean[], $10::text[])
        WITH ORDINALITY AS j(handler, payload, object, priority, not_before, key, attempts_max, metadata, ordered,
            exhausted, place)
    ORDER BY j.place)
