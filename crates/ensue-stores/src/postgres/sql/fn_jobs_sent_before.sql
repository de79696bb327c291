-- Was this call carried out before, and its answer lost? Then how its jobs stand now, in their order; null of one that is forgotten. Whoever asks waits until the first to send it has ended, and knows then.
CREATE OR REPLACE FUNCTION {schema}.jobs_sent_before(
    p_call uuid, p_lock bigint, OUT o_found boolean, OUT o_numbers bigint[], OUT o_stamps bigint[], OUT o_new boolean[], OUT o_states text[]
) LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM pg_advisory_xact_lock(p_lock);
    SELECT CASE WHEN t.run IS NULL THEN t.numbers ELSE ARRAY(SELECT generate_series(t.numbers[1], t.numbers[1] + t.run - 1)) END, t.new
    INTO o_numbers, o_new FROM {schema}.job_calls t WHERE t.call = p_call;
    o_found := FOUND;
    IF o_found THEN
        SELECT array_agg(j.stamp ORDER BY b.n), array_agg(j.state ORDER BY b.n) INTO o_stamps, o_states
        FROM unnest(o_numbers) WITH ORDINALITY b(number, n) LEFT JOIN {schema}.jobs j ON j.number = b.number;
        -- It may be on this server alone: see slots_settle.
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
    END IF;
END
$body$;
