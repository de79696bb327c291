-- Ends attempts, of jobs that run under these fences; a change without a number is left alone. o_at says which changes were
-- carried out, from 1, and o_states where their jobs stand then; o_ready which jobs became available, o_dead which died.
--
-- Arrays are parallel; one is null when all its elements would be.
--   p_states, p_asked   where it leads, and where if its cancellation was asked for: then it is over in any case
--   p_gives_back        is the attempt given back?
--   p_lapsed            does it hold only if the lease has passed? Who has renewed it meanwhile keeps the job
--   p_laned             null, or whether only those of lanes are ended, or only the others

CREATE OR REPLACE FUNCTION {schema}.jobs_end(
    p_now timestamptz, p_call uuid, p_laned boolean,
    p_numbers bigint[], p_stamps bigint[], p_fences bigint[], p_states text[], p_asked text[], p_gives_back boolean[],
    p_lapsed boolean[], p_not_before timestamptz[], p_errors text[], p_results text[],
    OUT o_at int[], OUT o_states text[], OUT o_ready bigint[], OUT o_dead bigint[]
) LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_loose bigint[]; -- given back, with an object and without a lane
    v_handlers pg_catalog.text[];
    v_objects pg_catalog.text[];
    v_dead_handlers pg_catalog.text[]; -- of lanes whose waiting jobs die too
    v_dead_objects pg_catalog.text[];
    v_dead_errors pg_catalog.text[];
BEGIN
    WITH ended AS (
        UPDATE {schema}.jobs j
        SET state = CASE WHEN j.cancel_asked THEN coalesce(c.asked, c.state)
                WHEN c.state = 'available' AND j.object IS NOT NULL THEN 'parked' ELSE c.state END,
            turn = CASE WHEN NOT (j.cancel_asked OR c.state IN ('succeeded', 'dead', 'cancelled'))
                OR c.state = 'dead' AND NOT j.cancel_asked AND j.on_exhausted = 'hold' AND j.ordered AND j.object IS NOT NULL
                THEN j.turn END,
            attempts = j.attempts - coalesce(c.gives_back, false)::int,
            not_before = CASE WHEN j.cancel_asked THEN j.not_before ELSE coalesce(c.not_before, j.not_before) END,
            finished_at = CASE WHEN j.cancel_asked OR c.state IN ('succeeded', 'dead', 'cancelled') THEN p_now END,
            lease_until = NULL, cancel_asked = false, result = c.result, call = p_call,
            settled = CASE WHEN c.lapsed IS TRUE THEN NULL WHEN c.state IN ('retrying', 'dead') THEN 'fail'
                WHEN c.state = 'scheduled' THEN 'snooze' END,
            error_attempts = CASE WHEN c.error IS NULL THEN j.error_attempts
                ELSE {schema}.job_kept(j.error_attempts, j.attempts) END,
            error_times = CASE WHEN c.error IS NULL THEN j.error_times ELSE {schema}.job_kept(j.error_times, p_now) END,
            error_texts = CASE WHEN c.error IS NULL THEN j.error_texts ELSE {schema}.job_kept(j.error_texts, c.error) END
        FROM unnest(p_numbers, p_stamps, p_fences, p_states, p_asked, p_gives_back, p_lapsed, p_not_before, p_errors, p_results)
            WITH ORDINALITY c(number, stamp, fence, state, asked, gives_back, lapsed, not_before, error, result, n)
        WHERE (p_laned IS NULL OR p_laned = (j.ordered AND j.object IS NOT NULL)) AND j.number = c.number AND j.stamp = c.stamp AND j.fence = c.fence AND coalesce(j.state, '') = 'running'
            AND (c.lapsed IS NOT TRUE OR j.lease_until <= p_now)
        RETURNING c.n::int AS n, c.error, j.number, j.handler, j.object, j.ordered AND j.object IS NOT NULL AS laned,
            j.state, j.on_exhausted
    )
    SELECT array_agg(e.n), array_agg(e.state), array_agg(e.number) FILTER (WHERE e.state = 'available'),
        array_agg(e.number) FILTER (WHERE e.state = 'dead'),
        array_agg(e.number) FILTER (WHERE e.state = 'parked' AND NOT e.laned),
        array_agg(e.handler) FILTER (WHERE e.laned), array_agg(e.object) FILTER (WHERE e.laned),
        array_agg(e.handler) FILTER (WHERE e.laned AND e.state = 'dead' AND e.on_exhausted = 'dead_letter_object'),
        array_agg(e.object) FILTER (WHERE e.laned AND e.state = 'dead' AND e.on_exhausted = 'dead_letter_object'),
        array_agg(e.error) FILTER (WHERE e.laned AND e.state = 'dead' AND e.on_exhausted = 'dead_letter_object')
    INTO o_at, o_states, o_ready, o_dead, v_loose, v_handlers, v_objects, v_dead_handlers, v_dead_objects, v_dead_errors
    FROM ended e;
    IF v_dead_handlers IS NOT NULL THEN
        -- A claim may be taking one of them: that one is at work then.
        PERFORM 1 FROM {schema}.jobs j JOIN unnest(v_dead_handlers, v_dead_objects) d(handler, object)
            ON j.handler = d.handler AND j.object = d.object
        WHERE j.ordered AND j.object IS NOT NULL AND j.state = 'available' ORDER BY j.number FOR UPDATE OF j;
        WITH buried AS (
            UPDATE {schema}.jobs j
            SET state = 'dead', turn = NULL, finished_at = p_now, lease_until = NULL,
                error_attempts = {schema}.job_kept(j.error_attempts, j.attempts),
                error_times = {schema}.job_kept(j.error_times, p_now),
                error_texts = {schema}.job_kept(j.error_texts, '{died_with}' || coalesce(d.error, ''))
            FROM unnest(v_dead_handlers, v_dead_objects, v_dead_errors) d(handler, object, error)
            WHERE j.handler = d.handler AND j.object = d.object
                AND j.ordered AND j.object IS NOT NULL AND j.turn IS NOT NULL
                AND j.state IN ('parked', 'scheduled', 'retrying', 'available')
            RETURNING j.number
        )
        SELECT o_dead || array_agg(b.number) INTO o_dead FROM buried b;
    END IF;
    IF v_loose IS NOT NULL OR v_handlers IS NOT NULL THEN
        o_ready := o_ready || {schema}.jobs_go_on(p_now, v_loose, v_handlers, v_objects);
        IF 'parked' = ANY (o_states) THEN
            o_states := ARRAY(
                SELECT j.state FROM unnest(o_at) WITH ORDINALITY a(n, i) JOIN {schema}.jobs j ON j.number = p_numbers[a.n]
                ORDER BY a.i);
        END IF;
    END IF;
END
$body$;

-- Tells of jobs that have died: `jobs::notices::job_ended`, carried out. Answers where the log ends then, if anything was told there: without a hint
-- where it ends it is somebody's own transaction, and goes into the outbox.
CREATE OR REPLACE FUNCTION {schema}.jobs_tell(p_now timestamptz, p_hint bigint, p_dead bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_topics pg_catalog.text[];
    v_payloads pg_catalog.text[];
    v_objects pg_catalog.text[];
    v_all int[];
BEGIN
    SELECT array_agg(d.topic ORDER BY d.number, d.nth), array_agg(d.payload ORDER BY d.number, d.nth),
        -- An object of their own, as `notices::about_object` has it.
        array_agg(CASE WHEN octet_length('{own_objects}' || d.object) <= {object_bytes_max}
            THEN '{own_objects}' || d.object END ORDER BY d.number, d.nth)
    INTO v_topics, v_payloads, v_objects
    FROM (
        SELECT j.number, k.nth, k.topic, j.object, CASE k.nth WHEN 1 THEN json_build_object(
            'job', (lpad(to_hex(j.stamp >> 12), 12, '0') || '7' || lpad(to_hex(j.stamp & 4095), 3, '0')
                || to_hex(j.number | {rank_min}))::uuid,
            'handler', j.handler, 'object', j.object, 'attempts', j.attempts,
            'error', coalesce(j.error_texts[cardinality(j.error_texts)], ''), 'event', j.event_seq)
        ELSE json_build_object(
            'handler', j.handler, 'object', j.object, 'event', j.event_seq, 'attempts', j.attempts,
            'error', coalesce(j.error_texts[cardinality(j.error_texts)], '')) END::text AS payload
        FROM {schema}.jobs j CROSS JOIN (VALUES (1, '{job_dead}'), (2, '{object_held}')) k(nth, topic)
        WHERE j.number = ANY (p_dead) AND (k.nth = 1 OR (j.turn IS NOT NULL AND j.event_seq IS NOT NULL))
            AND (j.event_topic = '{reserved}' OR starts_with(j.event_topic, '{reserved}.')) IS NOT TRUE
    ) d;
    IF v_payloads IS NULL THEN
        RETURN NULL;
    ELSIF p_hint IS NULL THEN
        PERFORM {schema}.outbox_tell(v_topics, v_payloads, v_objects);
        RETURN NULL;
    END IF;
    v_all := ARRAY(SELECT generate_series(1, cardinality(v_payloads)));
    RETURN (SELECT a.o_tail FROM {schema}.settle_append(
        p_now, p_hint, v_all, v_all, 
        -- As ids are stored: their chance without their time.
        ARRAY(SELECT ('0000000000000' || right(replace(gen_random_uuid()::text, '-', ''), 19))::uuid FROM unnest(v_all)),
        v_topics, v_payloads, NULL, NULL, NULL, v_objects, NULL, NULL, NULL) a);
END
$body$;
