-- Sends jobs that differ in nothing but their payloads, as most that are sent together do: the same as jobs_enqueue, for less work. Each array that is walked along costs something for
-- every job, and so does each that is answered (docs/decisions/019).
--
--   p_chance     twelve bits, the same for all of them
--   o_stamp      that of all of them, if they were sent now; then either
--   o_first      the number of the first, where those of the others follow it, or
--   o_numbers    all numbers, where they do not
--   o_stamps …   if they were sent before: how they stand now, null of one that is forgotten
CREATE OR REPLACE FUNCTION {schema}.jobs_send_alike(
    p_now timestamptz, p_call uuid, p_lock bigint, p_chance int, p_handler text, p_rank bigint, p_attempts_max int, p_payloads text[],
    OUT o_stamp bigint, OUT o_first bigint, OUT o_numbers bigint[], OUT o_stamps bigint[], OUT o_states text[]
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_sequence pg_catalog.regclass := format('%I.job_numbers', {schema_text})::regclass;
    v_count int := cardinality(p_payloads);
    v_sent_before boolean;
    v_now pg_catalog.timestamptz;
BEGIN
    SELECT b.o_found, b.o_numbers, b.o_stamps, b.o_states INTO v_sent_before, o_numbers, o_stamps, o_states
    FROM {schema}.jobs_sent_before(p_call, p_lock) b;
    IF v_sent_before THEN
        RETURN;
    END IF;
    v_now := coalesce(p_now, clock_timestamp());
    o_stamp := (floor(extract(epoch FROM v_now) * 1000)::bigint << 12) + p_chance;
    -- Before the first number is drawn: see jobs_insert.
    PERFORM pg_current_xact_id();
    o_numbers := ARRAY(SELECT nextval(v_sequence) FROM generate_series(1, v_count));
    INSERT INTO {schema}.jobs (number, stamp, rank, turn, enqueued_at, attempts_max, ordered, state, on_exhausted, handler, payload)
    SELECT b.number, o_stamp, p_rank, b.number, v_now, p_attempts_max, true, 'available', 'hold', p_handler, b.payload
    FROM (SELECT unnest(o_numbers) AS number, unnest(p_payloads) AS payload) b;
    IF o_numbers[v_count] - o_numbers[1] = v_count - 1 THEN
        o_first := o_numbers[1];
        o_numbers := NULL;
    END IF;
    -- An array of hundreds would be compressed, with every commit.
    INSERT INTO {schema}.job_calls (call, at, numbers, run)
    VALUES (p_call, clock_timestamp(), coalesce(o_numbers, ARRAY[o_first]), CASE WHEN o_first IS NOT NULL THEN v_count END);
END
$body$;
