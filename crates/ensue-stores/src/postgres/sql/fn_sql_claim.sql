-- Writes how attempts ended, in somebody's own transaction. Arrays are parallel, as in jobs_settle; answers the states where the jobs stand then, null where the lease was lost.
CREATE OR REPLACE FUNCTION {schema}.jobs_end_plain(
    p_numbers bigint[], p_stamps bigint[], p_fences bigint[], p_ends text[], p_asked text[], p_gives_back boolean[],
    p_lapsed boolean[], p_not_before timestamptz[], p_errors text[], p_results text[]
) RETURNS text[] LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_states pg_catalog.text[];
    v_ready pg_catalog.text[];
BEGIN
    SELECT s.o_job_states, s.o_ready_handlers INTO v_states, v_ready FROM {schema}.jobs_settle(
        p_now => NULL, p_hint => NULL, p_call => gen_random_uuid(), p_lock => NULL, p_again => false, p_steps => false,
        p_numbers => p_numbers, p_stamps => p_stamps, p_fences => p_fences, p_ends => p_ends, p_asked => p_asked,
        p_gives_back => p_gives_back, p_lapsed => p_lapsed, p_not_before => p_not_before, p_errors => p_errors, p_results => p_results,
        p_waves => NULL,
        p_line_changes => NULL, p_line_attempts => NULL, p_line_at => NULL, p_line_levels => NULL, p_line_messages => NULL,
        p_event_changes => NULL, p_id_parts => NULL, p_topics => NULL, p_event_payloads => NULL, p_event_metadata => NULL,
        p_occurred_at => NULL, p_to => NULL, p_event_objects => NULL, p_event_keys => NULL, p_fingerprints => NULL,
        p_event_not_before => NULL,
        p_job_changes => NULL,
        p_chances => NULL, p_handlers => NULL, p_objects => NULL, p_ordered => NULL, p_payloads => NULL, p_metadata => NULL,
        p_ranks => NULL, p_job_not_before => NULL, p_keys => NULL, p_attempts_max => NULL, p_exhausted => NULL,
        p_event_seqs => NULL, p_event_prevs => NULL, p_event_ids => NULL, p_event_topics => NULL) s;
    IF v_ready IS NOT NULL THEN
        PERFORM {schema}.outbox_ring();
    END IF;
    RETURN v_states;
END
$body$;

-- Takes up to p_limit jobs from workers that have vanished; answers how many. Those with attempts left may run at once.
CREATE OR REPLACE FUNCTION {schema}.jobs_take_back(p_limit bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
DECLARE
    v_numbers bigint[];
    v_stamps bigint[];
    v_fences bigint[];
    v_ends pg_catalog.text[];
    v_errors pg_catalog.text[];
BEGIN
    SELECT array_agg(x.number ORDER BY x.number), array_agg(x.stamp ORDER BY x.number), array_agg(x.fence ORDER BY x.number),
        array_agg(CASE WHEN x.attempts < x.attempts_max THEN 'available' ELSE 'dead' END ORDER BY x.number),
        array_agg(format('its worker %s was not heard of before its lease had passed (attempt %s)',
            to_json(coalesce(x.worker, 'unknown')), x.attempts) ORDER BY x.number)
    INTO v_numbers, v_stamps, v_fences, v_ends, v_errors
    FROM (
        SELECT j.* FROM {schema}.jobs j WHERE j.state = 'running' AND j.lease_until <= clock_timestamp()
        ORDER BY j.lease_until, j.number LIMIT p_limit
    ) x;
    IF v_numbers IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM {schema}.jobs_end_plain(v_numbers, v_stamps, v_fences, v_ends, array_fill('cancelled'::text, ARRAY[cardinality(v_numbers)]),
        NULL, array_fill(true, ARRAY[cardinality(v_numbers)]), NULL, v_errors, NULL);
    RETURN cardinality(v_numbers);
END
$body$;

-- What a node's clock does for jobs: takes them from workers that have vanished and lets those go on whose time has come. Only one of the two
-- in a transaction, because each locks lanes in their order. Answers how many it was about.
CREATE OR REPLACE FUNCTION {schema}.jobs_tick(p_limit bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_count bigint := {schema}.jobs_take_back(p_limit);
BEGIN
    IF v_count = 0 THEN
        SELECT w.o_count INTO v_count FROM {schema}.jobs_wake(NULL, p_limit, clock_timestamp()) w LIMIT 1;
    END IF;
    RETURN v_count;
END
$body$;

-- Notes that these handlers are served until then. What another transaction has noted and not
-- committed yet is left out, so that nobody waits for it.
CREATE OR REPLACE FUNCTION {schema}.jobs_served(p_handlers text[], p_until timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    INSERT INTO {schema}.job_servers AS s (handler, until)
    SELECT h.key, p_until FROM (SELECT DISTINCT x.key FROM unnest(p_handlers) x(key)) h
    WHERE pg_try_advisory_xact_lock({lock_served}, hashtext(h.key)) ORDER BY h.key
    ON CONFLICT (handler) DO UPDATE SET until = greatest(s.until, excluded.until);
END
$body$;

-- Claims up to so many jobs of these handlers, and gives a claim with each: whoever holds it settles the job. Attempts are counted here.
--
-- Call it in a transaction of its own, as it commits what a worker has got: nobody else can be told before that, and who pauses something waits for its end.
CREATE OR REPLACE FUNCTION {schema}.claim_jobs(
    handlers text[], "limit" int DEFAULT 1, lease interval DEFAULT '30 seconds', worker text DEFAULT NULL
) RETURNS TABLE (
    id text, claim text, handler text, object text, payload jsonb, metadata jsonb, priority numeric, attempts int, attempts_max int,
    lease_expires_at timestamptz, enqueued_at timestamptz, redriven boolean, event jsonb
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
#variable_conflict use_column
DECLARE
    v_handlers pg_catalog.text[] := ARRAY(SELECT h.key FROM unnest(claim_jobs.handlers) WITH ORDINALITY h(key, n) GROUP BY h.key ORDER BY min(h.n));
    v_limit bigint := claim_jobs."limit";
    v_lease bigint := {schema}.lease_micros(claim_jobs.lease);
    v_worker pg_catalog.text := coalesce(claim_jobs.worker, session_user || '/' || pg_backend_pid());
    v_now pg_catalog.timestamptz := clock_timestamp();
    v_scopes pg_catalog.text[];
    v_scope_of int[];
    v_timeout bigint;
    v_job pg_catalog.record;
BEGIN
    PERFORM {schema}.need_read_committed('claim_jobs');
    PERFORM {schema}.check_dotted('handlers', h.key) FROM unnest(v_handlers) h(key);
    PERFORM {schema}.check_plain('worker', v_worker, {worker_bytes_max});
    IF cardinality(v_handlers) = 0 OR cardinality(v_handlers) > {claim_handlers_max} THEN
        PERFORM {schema}.refuse(format('handlers are %s; ask for 1 to {claim_handlers_max} at once', cardinality(v_handlers)));
    END IF;
    IF v_limit IS NULL OR v_limit NOT BETWEEN 1 AND {jobs_max} THEN
        PERFORM {schema}.refuse(format('limit is %s; choose 1 to {jobs_max}', coalesce(v_limit::text, 'null')));
    END IF;
    PERFORM {schema}.rules_expire();
    PERFORM {schema}.jobs_tick({jobs_max});
    -- For a minute. Written twice a minute at most: workers may claim often.
    PERFORM {schema}.jobs_served(ARRAY(
            SELECT h.key FROM unnest(v_handlers) h(key) WHERE NOT EXISTS (
                SELECT 1 FROM {schema}.job_servers s WHERE s.handler = h.key AND s.until >= v_now + interval '30 seconds')),
        v_now + interval '1 minute');
    SELECT array_agg('handler:' || s.key), array_agg(s.n::int) INTO v_scopes, v_scope_of
    FROM (
        SELECT h.n, array_to_string((string_to_array(h.key, '.'))[:d.depth], '.') AS key
        FROM unnest(v_handlers) WITH ORDINALITY h(key, n)
        CROSS JOIN LATERAL generate_series(1, cardinality(string_to_array(h.key, '.'))) d(depth)
    ) s;
    FOR v_job IN
        SELECT c.* FROM {schema}.jobs_claim(
            NULL, gen_random_uuid(), false, v_handlers, array_fill(v_limit, ARRAY[cardinality(v_handlers)]), v_scopes, v_scope_of,
            v_limit, v_lease, v_worker, NULL, NULL, NULL, NULL, NULL) c
        WHERE c.number IS NOT NULL ORDER BY c.rank, c.turn
    LOOP
        id := {schema}.job_id(v_job.stamp, v_job.number);
        claim := {schema}.claim_text(id, v_job.fence);
        handler := v_job.handler;
        object := v_job.object;
        payload := v_job.payload::jsonb;
        metadata := coalesce(v_job.metadata, '{}')::jsonb;
        priority := {rank_max}::numeric - v_job.rank;
        attempts := v_job.attempts;
        attempts_max := v_job.attempts_max;
        lease_expires_at := v_job.lease_until;
        enqueued_at := v_job.enqueued_at;
        redriven := v_job.redriven;
        event := CASE WHEN v_job.event_seq IS NOT NULL THEN jsonb_build_object(
            'seq', v_job.event_seq, 'prev', v_job.event_prev, 'id', v_job.event_id, 'topic', v_job.event_topic) END;
        v_timeout := ({schema}.handler_settings(handler) ->> 'timeout_us')::bigint;
        IF v_timeout < v_lease THEN
            -- No lease goes beyond the timeout of its handler.
            SELECT r.o_lease_until INTO lease_expires_at
            FROM {schema}.jobs_renew(NULL, v_timeout, ARRAY[v_job.number], ARRAY[v_job.stamp], ARRAY[v_job.fence]) r;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$body$;

-- Renews a claim: it holds for so long from now on, never beyond the timeout of a handler that the store keeps. `cancel` says that the worker is to stop.
CREATE OR REPLACE FUNCTION {schema}.renew_job(
    id text, claim text, lease interval DEFAULT '30 seconds', OUT lease_expires_at timestamptz, OUT cancel boolean
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
#variable_conflict use_variable
DECLARE
    v_held pg_catalog.record;
    v_lease bigint := {schema}.lease_micros(lease);
    v_timeout bigint;
BEGIN
    SELECT * INTO v_held FROM {schema}.job_held(id, claim);
    SELECT ({schema}.handler_settings(j.handler) ->> 'timeout_us')::bigint - {schema}.elapsed(j.locked_at, greatest(clock_timestamp(), j.locked_at))
    INTO v_timeout FROM {schema}.jobs j WHERE j.number = v_held.o_number;
    IF v_timeout <= 0 THEN
        PERFORM {schema}.job_lost(id);
    END IF;
    SELECT r.o_lease_until, r.o_cancel INTO lease_expires_at, cancel FROM {schema}.jobs_renew(
        NULL, least(v_lease, v_timeout), ARRAY[v_held.o_number], ARRAY[v_held.o_stamp], ARRAY[v_held.o_fence]) r;
    IF NOT FOUND THEN
        PERFORM {schema}.job_lost(id);
    END IF;
END
$body$;
