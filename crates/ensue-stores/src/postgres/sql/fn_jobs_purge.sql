-- Forgets up to p_limit jobs that are over and hold no lane, with what they said: those that ended before p_before, and the
-- oldest beyond p_keep; those that died are counted by themselves. With p_tasks they are tasks, which are counted however
-- they ended; else the other jobs. Answers how many. What somebody is changing is left to the
-- next time. Also forgets what was answered to calls of more than an hour ago.
CREATE OR REPLACE FUNCTION {schema}.jobs_purge(p_tasks boolean, p_before timestamptz, p_keep bigint, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
DECLARE
    v_too_many bigint;
    v_dead_too_many bigint;
    v_old bigint[];
BEGIN
    DELETE FROM {schema}.job_calls t WHERE t.at < clock_timestamp() - interval '1 hour';
    -- Counted in the index by age, and no further than it matters.
    IF p_tasks THEN
        SELECT count(*) INTO v_too_many FROM (
            SELECT 1 FROM {schema}.jobs j
            WHERE j.finished_at IS NOT NULL AND j.turn IS NULL AND starts_with(j.handler, 'task.')
            ORDER BY j.finished_at DESC, j.number DESC OFFSET p_keep LIMIT p_limit) x;
        v_old := ARRAY(
            SELECT o.number FROM (
                SELECT x.number, x.finished_at, row_number() OVER (ORDER BY x.finished_at, x.number) AS nth
                FROM (
                    SELECT j.number, j.finished_at FROM {schema}.jobs j
                    WHERE j.finished_at IS NOT NULL AND j.turn IS NULL AND starts_with(j.handler, 'task.')
                    ORDER BY j.finished_at, j.number LIMIT p_limit
                ) x
            ) o
            WHERE o.finished_at < p_before OR o.nth <= v_too_many
            ORDER BY o.finished_at, o.number LIMIT p_limit);
        RETURN {schema}.jobs_forget(v_old);
    END IF;
    SELECT count(*) INTO v_too_many FROM (
        SELECT 1 FROM {schema}.jobs j WHERE j.finished_at IS NOT NULL AND j.turn IS NULL AND j.state <> 'dead'
            AND NOT starts_with(j.handler, 'task.')
        ORDER BY j.finished_at DESC, j.number DESC OFFSET p_keep LIMIT p_limit) x;
    SELECT count(*) INTO v_dead_too_many FROM (
        SELECT 1 FROM {schema}.jobs j WHERE j.state = 'dead' AND j.turn IS NULL
            AND NOT starts_with(j.handler, 'task.')
        ORDER BY j.finished_at DESC, j.number DESC OFFSET p_keep LIMIT p_limit) x;
    v_old := ARRAY(
        SELECT o.number FROM (
            SELECT x.number, x.finished_at, v_too_many AS too_many, row_number() OVER (ORDER BY x.finished_at, x.number) AS nth
            FROM (
                SELECT j.number, j.finished_at FROM {schema}.jobs j
                WHERE j.finished_at IS NOT NULL AND j.turn IS NULL AND j.state <> 'dead'
                    AND NOT starts_with(j.handler, 'task.')
                ORDER BY j.finished_at, j.number LIMIT p_limit
            ) x
            UNION ALL
            SELECT x.number, x.finished_at, v_dead_too_many, row_number() OVER (ORDER BY x.finished_at, x.number)
            FROM (
                SELECT j.number, j.finished_at FROM {schema}.jobs j WHERE j.state = 'dead' AND j.turn IS NULL
                    AND NOT starts_with(j.handler, 'task.')
                ORDER BY j.finished_at, j.number LIMIT p_limit
            ) x
        ) o
        WHERE o.finished_at < p_before OR o.nth <= o.too_many
        ORDER BY o.finished_at, o.number LIMIT p_limit);
    RETURN {schema}.jobs_forget(v_old);
END
$body$;

-- Forgets these jobs if they are over, with what they said; answers how many. What somebody is changing stays.
CREATE OR REPLACE FUNCTION {schema}.jobs_forget(p_numbers bigint[]) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
DECLARE
    v_old bigint[];
BEGIN
    v_old := ARRAY(SELECT j.number FROM {schema}.jobs j WHERE j.number = ANY (p_numbers) FOR UPDATE SKIP LOCKED);
    -- One that was brought back meanwhile is not over any more.
    v_old := ARRAY(
        SELECT j.number FROM (SELECT * FROM {schema}.jobs x WHERE x.number = ANY (v_old) OFFSET 0) j
        WHERE j.finished_at IS NOT NULL AND j.turn IS NULL);
    DELETE FROM {schema}.job_lines l WHERE l.number = ANY (v_old);
    DELETE FROM {schema}.job_progress p WHERE p.number = ANY (v_old);
    DELETE FROM {schema}.jobs j WHERE j.number = ANY (v_old);
    RETURN cardinality(v_old);
END
$body$;
