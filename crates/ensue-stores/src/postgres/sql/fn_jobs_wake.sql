-- Lets up to p_limit jobs go on whose time has come, the earliest first, and finds as many whose lease has passed. A row for
-- each of those, and one without a job if there is none. o_next_due is when to look again: what is told of now not counted.
-- If nothing is due nothing is written and no lock is taken.
--
-- Leases up to p_after are not looked at: under a held snapshot the index has an entry for each job that was ever claimed
-- since. o_now and o_micros say when the look at leases was, and how long it took.
CREATE OR REPLACE FUNCTION {schema}.jobs_wake(p_now timestamptz, p_limit bigint, p_after timestamptz)
RETURNS TABLE (
    o_count bigint, o_next_due timestamptz, o_ready_handlers text[], o_ready_ranks bigint[], o_ready_turns bigint[],
    o_now timestamptz, o_micros bigint, {job_table}
) LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
#variable_conflict use_column
DECLARE
    v_sequence pg_catalog.regclass := format('%I.job_numbers', {schema_text})::regclass;
    v_now pg_catalog.timestamptz := coalesce(p_now, clock_timestamp());
    v_due bigint[];
    v_loose bigint[];
    v_handlers pg_catalog.text[];
    v_objects pg_catalog.text[];
    v_ready bigint[];
    v_expired bigint[];
    v_lease_due pg_catalog.timestamptz;
BEGIN
    o_count := 0;
    v_due := ARRAY(
        SELECT j.number FROM {schema}.jobs j WHERE j.state IN ('scheduled', 'retrying') AND j.not_before <= v_now
        ORDER BY j.not_before, j.number LIMIT p_limit);
    IF cardinality(v_due) > 0 THEN
        LOCK TABLE {schema}.rules_lock IN ROW SHARE MODE;
        PERFORM {schema}.jobs_lock(ARRAY(
            SELECT {schema}.job_bucket(j.handler, 'o' || j.object)
            FROM (SELECT x.handler, x.object, x.ordered FROM {schema}.jobs x WHERE x.number = ANY (v_due) OFFSET 0) j
            WHERE j.ordered AND j.object IS NOT NULL));
        -- What somebody is changing is left to the next time.
        v_due := ARRAY(SELECT j.number FROM {schema}.jobs j WHERE j.number = ANY (v_due) FOR UPDATE SKIP LOCKED);
        v_due := ARRAY(
            SELECT j.number FROM {schema}.jobs j
            WHERE j.number = ANY (v_due) AND coalesce(j.state, '') IN ('scheduled', 'retrying') AND j.not_before <= v_now
            ORDER BY j.not_before, j.number);
        o_count := cardinality(v_due);
        -- A number is drawn for each, also where it has a turn: so other processes hear of it.
        WITH woken AS (
            UPDATE {schema}.jobs j
            SET state = CASE WHEN j.object IS NULL THEN 'available' ELSE 'parked' END, turn = coalesce(j.turn, d.turn)
            FROM (SELECT x.number, nextval(v_sequence) AS turn FROM unnest(v_due) x(number)) d
            WHERE j.number = d.number
            RETURNING j.number, j.handler, j.object, j.ordered
        )
        SELECT array_agg(w.number) FILTER (WHERE w.object IS NULL),
            array_agg(w.number) FILTER (WHERE w.object IS NOT NULL AND NOT w.ordered),
            array_agg(w.handler) FILTER (WHERE w.object IS NOT NULL AND w.ordered),
            array_agg(w.object) FILTER (WHERE w.object IS NOT NULL AND w.ordered)
        INTO v_ready, v_loose, v_handlers, v_objects
        FROM woken w;
        v_ready := v_ready || {schema}.jobs_go_on(v_now, v_loose, v_handlers, v_objects);
        SELECT * INTO o_ready_handlers, o_ready_ranks, o_ready_turns FROM {schema}.jobs_ready(v_ready);
    END IF;
    o_now := clock_timestamp();
    v_expired := ARRAY(
        SELECT j.number FROM {schema}.jobs j
        WHERE j.state = 'running' AND j.lease_until <= v_now AND j.lease_until > coalesce(p_after, '-infinity')
        ORDER BY j.lease_until, j.number LIMIT p_limit);
    SELECT j.lease_until INTO v_lease_due FROM {schema}.jobs j
    WHERE j.state = 'running' AND j.lease_until > coalesce(p_after, '-infinity')
        -- Of those that pass later the pulse tells in time.
        AND j.lease_until <= CASE WHEN p_after IS NULL THEN 'infinity' ELSE v_now + interval '10 seconds' END
    ORDER BY j.lease_until, j.number OFFSET cardinality(v_expired) LIMIT 1;
    o_micros := (extract(epoch FROM clock_timestamp() - o_now) * 1000000)::bigint;
    SELECT j.not_before INTO o_next_due FROM {schema}.jobs j WHERE j.state IN ('scheduled', 'retrying')
    ORDER BY j.not_before, j.number LIMIT 1;
    o_now := v_now;
    o_next_due := least(o_next_due, v_lease_due);
    RETURN QUERY
    SELECT o_count, o_next_due, o_ready_handlers, o_ready_ranks, o_ready_turns, o_now, o_micros, {job_j} FROM {schema}.jobs j
    WHERE j.number = ANY (v_expired) ORDER BY j.lease_until, j.number;
    IF NOT FOUND THEN
        RETURN NEXT;
    END IF;
END
$body$;
