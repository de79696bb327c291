-- Jobs that have only succeeded, by the places that their claims answered: answers how many of them were there. The common end of an attempt, without
-- a search for each. Who finds fewer than were sent calls jobs_settle with the same call, as if an answer had been lost: those that were found have its mark. A place may be
-- another job's by now, so number, stamp, fence and state are compared; jobs in lanes are not ended here, as others wait for them. The change is that of fn_jobs_settle.sql.
--
-- It waits 50 ms for a row or a rule and no longer, as other callers' successes are in the same commit: then nothing is written (55P03), and each of them calls jobs_settle.
CREATE OR REPLACE FUNCTION {schema}.jobs_succeed(
    p_now timestamptz, p_call uuid, p_places tid[], p_numbers bigint[], p_stamps bigint[], p_fences bigint[]
) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET lock_timeout = '50ms' SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
    v_count bigint;
BEGIN
    LOCK TABLE {schema}.rules_lock IN ROW SHARE MODE;
    v_now := coalesce(p_now, clock_timestamp());
    UPDATE {schema}.jobs j
    SET state = 'succeeded', turn = NULL, finished_at = v_now, lease_until = NULL, cancel_asked = false, call = p_call
    -- Arrays that are walked along in a SELECT are not stored first, one by one, as those in a FROM are.
    FROM (SELECT unnest(p_places) AS place, unnest(p_numbers) AS number, unnest(p_stamps) AS stamp, unnest(p_fences) AS fence) c
    -- With `+ 0` and `coalesce` no index can be asked, and the plan stays at the place.
    WHERE j.ctid = c.place AND j.number + 0 = c.number AND j.stamp = c.stamp AND j.fence = c.fence
        AND coalesce(j.state, '') = 'running' AND NOT (j.ordered AND j.object IS NOT NULL);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$body$;
