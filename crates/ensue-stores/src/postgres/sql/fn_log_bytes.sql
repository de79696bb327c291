-- About how many bytes the events in the log take: the average of up to 1,000 rows spread evenly over it, times their
-- number. Counts what `Event::bytes` counts; jsonb writes blanks between its tokens, so it is a little more.
CREATE OR REPLACE FUNCTION {schema}.log_bytes(p_hint bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
DECLARE
    v_trimmed_to bigint;
    v_last bigint;
    v_average numeric;
BEGIN
    SELECT t.o_trimmed_to, t.o_seq INTO v_trimmed_to, v_last FROM {schema}.log_tail(p_hint) t;
    SELECT avg(octet_length(e.topic) + coalesce(octet_length(e.object), 0)
            + octet_length(e.payload::text) + coalesce(octet_length(e.metadata::text), 2))
    INTO v_average
    FROM generate_series(v_trimmed_to + 1, v_last, (v_last - v_trimmed_to + 999) / 1000 + (v_last = v_trimmed_to)::int) s(seq)
    CROSS JOIN LATERAL (SELECT * FROM {schema}.stored_events found WHERE found.seq = s.seq LIMIT 1) e;
    RETURN round(coalesce(v_average, 0) * (v_last - v_trimmed_to));
END
$body$;
