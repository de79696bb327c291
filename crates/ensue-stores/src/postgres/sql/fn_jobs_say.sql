-- Writes what jobs said, in order: p_numbers tells whose each line is; nobody's is not written. The caller has locked the
-- jobs. Of all that a job says the first are kept. The last line of each job is looked for once, and in the index: a table that was
-- empty when the plan was made is read through otherwise, once for each line.
CREATE OR REPLACE FUNCTION {schema}.jobs_say(
    p_numbers bigint[], p_attempts int[], p_at timestamptz[], p_levels text[], p_messages text[]
) RETURNS void LANGUAGE sql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off
AS $body$
    WITH there AS MATERIALIZED (
        SELECT d.number, coalesce((
            SELECT x.line FROM {schema}.job_lines x WHERE x.number = d.number ORDER BY x.line DESC LIMIT 1), 0) AS last
        FROM (SELECT DISTINCT n.number FROM unnest(p_numbers) n(number) WHERE n.number IS NOT NULL) d
    )
    INSERT INTO {schema}.job_lines (number, line, attempt, at, level, message)
    SELECT * FROM (
        SELECT l.number, row_number() OVER (PARTITION BY l.number ORDER BY l.n) + t.last AS line, l.attempt, l.at, l.level, l.message
        FROM unnest(p_numbers, p_attempts, p_at, p_levels, p_messages) WITH ORDINALITY l(number, attempt, at, level, message, n)
        JOIN there t ON t.number = l.number
    ) l
    WHERE l.line <= {lines_max}
$body$;

-- Writes what a running job says; false if nobody runs it under this fence. What is sent again was said once.
CREATE OR REPLACE FUNCTION {schema}.job_say(
    p_call uuid, p_lock bigint, p_number bigint, p_stamp bigint, p_fence bigint,
    p_attempts int[], p_at timestamptz[], p_levels text[], p_messages text[]
) RETURNS boolean LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM pg_advisory_xact_lock(p_lock);
    IF EXISTS (SELECT 1 FROM {schema}.job_calls t WHERE t.call = p_call) THEN
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
        RETURN true;
    END IF;
    PERFORM 1 FROM {schema}.jobs j
    WHERE j.number = p_number AND j.stamp = p_stamp AND j.fence = p_fence AND coalesce(j.state, '') = 'running' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF cardinality(p_attempts) > 0 THEN
        PERFORM {schema}.jobs_say(
            array_fill(p_number, ARRAY[cardinality(p_attempts)]), p_attempts, p_at, p_levels, p_messages);
        INSERT INTO {schema}.job_calls (call, at) VALUES (p_call, clock_timestamp());
    END IF;
    RETURN true;
END
$body$;
