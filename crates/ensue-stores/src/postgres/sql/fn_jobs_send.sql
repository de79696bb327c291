-- Sends jobs that differ in nothing but their payloads, as many are: the same as jobs_enqueue, for half of the work. Each array that is walked along costs something for
-- every job, and so does each that is answered: 400 jobs of 200 bytes took the server 3.1 ms, and take it 2.2 ms.
--
--   p_chance     twelve bits, the same for all: a number is in one id only
--   o_first      the number of the first, where those of the others follow it; else null
--   o_numbers    all numbers where they do not
--   o_stamp      that of all of them
--   o_stamps …   in the place of o_stamp if it was sent before: how they stand now, null of one that is forgotten
CREATE OR REPLACE FUNCTION {schema}.jobs_send(
    p_now timestamptz, p_call uuid, p_lock bigint, p_chance int, p_handler text, p_rank bigint, p_attempts_max int, p_payloads text[],
    OUT o_first bigint, OUT o_numbers bigint[], OUT o_stamp bigint, OUT o_stamps bigint[], OUT o_states text[]
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_sequence regclass := format('%I.job_numbers', {schema_text})::regclass;
    v_count int := cardinality(p_payloads);
    v_now timestamptz;
BEGIN
    SELECT e.o_numbers, e.o_stamps, e.o_states INTO o_numbers, o_stamps, o_states FROM {schema}.jobs_sent_before(p_call, p_lock) e;
    IF o_numbers IS NOT NULL THEN
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
    -- Numbers that follow each other are kept as the first and how many they are: an array of hundreds would be compressed.
    INSERT INTO {schema}.job_calls (call, at, numbers, run)
    VALUES (p_call, clock_timestamp(), coalesce(o_numbers, ARRAY[o_first]), CASE WHEN o_first IS NOT NULL THEN v_count END);
END
$body$;
