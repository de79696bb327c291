-- Carries out what was decided about schedules, in one round trip and one commit: moves each watermark if it is where it was, publishes
-- and sends what follows, and writes what became of which occurrence. For each firing o_states says 'done', 'lost' or 'held'; of all but
-- the first nothing is written. What is answered of runs is parallel to p_run_firings.
--
-- Locks come in the order of the others: the rules, schedules by name, lanes and keys, the log.
--   p_from     from where each watermark moves; null if it stays, because somebody fires it by hand
--   p_run_…    the runs: of which firing (from 1), and the place of its event or job among those that are sent, or why it is left out
CREATE OR REPLACE FUNCTION {schema}.schedules_fire(
    p_now timestamptz, p_hint bigint, p_call uuid, p_lock bigint,
    p_names text[], p_versions bigint[], p_from timestamptz[], p_move_to timestamptz[], p_due timestamptz[],
    p_run_firings int[], p_run_occurrences timestamptz[], p_run_manual boolean[], p_run_events int[], p_run_jobs int[],
    p_run_skipped text[],
    p_event_firings int[], p_id_parts uuid[], p_topics text[], p_event_payloads text[], p_event_metadata text[],
    p_occurred_at timestamptz[], p_to uuid[], p_event_objects text[], p_event_keys text[], p_fingerprints bytea[],
    p_event_not_before timestamptz[],
    p_job_firings int[],
    p_chances int[], p_handlers text[], p_objects text[], p_ordered boolean[], p_payloads text[], p_metadata text[],
    p_ranks bigint[], p_not_before timestamptz[], p_keys text[], p_attempts_max int[], p_exhausted text[],
    p_event_seqs bigint[], p_event_prevs bigint[], p_event_ids uuid[], p_event_topics text[],
    OUT o_states text[], OUT o_at timestamptz, OUT o_tail bigint, OUT o_run_numbers bigint[], OUT o_run_seqs bigint[],
    OUT o_run_jobs bigint[], OUT o_run_stamps bigint[], OUT o_run_overlapped boolean[]
) LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_lock_timeout pg_catalog.text := current_setting('lock_timeout');
    v_picked int[];
    v_seqs bigint[];
    v_appended pg_catalog.record;
    v_made pg_catalog.record;
BEGIN
    PERFORM pg_advisory_xact_lock(p_lock);
    LOCK TABLE {schema}.rules_lock IN ROW SHARE MODE;
    PERFORM 1 FROM {schema}.schedules s WHERE s.name = ANY (p_names) ORDER BY s.name FOR UPDATE;
    -- Somebody may have fired one since, and is the last then. Where the watermark has moved that is known by it; what was fired by hand is
    -- known by its run.
    IF EXISTS (SELECT 1 FROM {schema}.schedules s WHERE s.name = ANY (p_names) AND s.fired_by = p_call)
        OR EXISTS (
            SELECT 1 FROM unnest(p_names, p_from) f(name, move_from)
            JOIN {schema}.schedule_runs w ON w.name = f.name AND w.call = p_call
            WHERE f.move_from IS NULL)
    THEN
        -- The answer was lost: what it has done is told again.
        SELECT array_agg(CASE WHEN s.fired_by = p_call
                OR EXISTS (SELECT 1 FROM {schema}.schedule_runs w WHERE w.name = f.name AND w.call = p_call)
                THEN 'done' ELSE 'lost' END ORDER BY f.n) INTO o_states
        FROM unnest(p_names) WITH ORDINALITY f(name, n) LEFT JOIN {schema}.schedules s ON s.name = f.name;
        SELECT array_agg(w.number ORDER BY r.n), array_agg(w.event_seq ORDER BY r.n), array_agg(w.job_number ORDER BY r.n),
            array_agg(w.job_stamp ORDER BY r.n), array_agg(w.overlapped ORDER BY r.n), max(w.at)
        INTO o_run_numbers, o_run_seqs, o_run_jobs, o_run_stamps, o_run_overlapped, o_at
        FROM (
            SELECT x.n, x.firing, count(*) OVER (PARTITION BY x.firing) - row_number() OVER (PARTITION BY x.firing ORDER BY x.n) AS back,
                (SELECT max(l.number) FROM {schema}.schedule_runs l WHERE l.name = p_names[x.firing] AND l.call = p_call) AS back_from
            FROM unnest(p_run_firings) WITH ORDINALITY x(firing, n)
        ) r
        -- Its last run is the last that this call has written.
        LEFT JOIN {schema}.schedule_runs w ON w.name = p_names[r.firing] AND w.call = p_call AND w.number = r.back_from - r.back;
        o_at := coalesce(o_at, p_now, clock_timestamp());
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
        RETURN;
    END IF;
    o_at := coalesce(p_now, clock_timestamp());
    SELECT array_agg(CASE
            WHEN s.version IS NULL OR (f.move_from IS NOT NULL AND s.watermark <> f.move_from) THEN 'lost'
            WHEN s.held THEN 'held' ELSE 'done' END ORDER BY f.n)
    INTO o_states
    FROM unnest(p_names, p_versions, p_from) WITH ORDINALITY f(name, version, move_from, n)
    LEFT JOIN {schema}.schedules s ON s.name = f.name AND s.version = f.version;

    IF p_job_firings IS NOT NULL THEN
        IF p_objects IS NOT NULL OR p_keys IS NOT NULL THEN
            PERFORM {schema}.jobs_lock(ARRAY(
                SELECT {schema}.job_bucket(b.handler, 'o' || b.object) FROM unnest(p_handlers, p_objects) b(handler, object)
                WHERE b.object IS NOT NULL
                UNION SELECT {schema}.job_bucket(b.handler, 'k' || b.key) FROM unnest(p_handlers, p_keys) b(handler, key)
                WHERE b.key IS NOT NULL));
        END IF;
        -- A job whose unique key another transaction has just used waits for its end. One schedule must not
        -- hold up the others for that long.
        PERFORM set_config('lock_timeout', '500ms', true);
        BEGIN
            SELECT * INTO v_made FROM {schema}.jobs_insert(
                o_at,
                ARRAY(SELECT o_states[j.firing] = 'done' FROM unnest(p_job_firings) WITH ORDINALITY j(firing, n) ORDER BY j.n),
                p_chances, p_handlers, p_objects, p_ordered, p_payloads, p_metadata, p_ranks, p_not_before, p_keys,
                p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics);
        EXCEPTION WHEN lock_not_available THEN
            RAISE EXCEPTION 'an open transaction has sent a job with the same unique key' USING ERRCODE = '{key_held}';
        END;
        PERFORM set_config('lock_timeout', v_lock_timeout, true);
    ELSE
        SELECT NULL::bigint[] AS o_numbers, NULL::bigint[] AS o_stamps, NULL::boolean[] AS o_new INTO v_made;
    END IF;
    IF p_event_firings IS NOT NULL THEN
        v_picked := ARRAY(
            SELECT e.n::int FROM unnest(p_event_firings) WITH ORDINALITY e(firing, n) WHERE o_states[e.firing] = 'done' ORDER BY e.n);
        IF cardinality(v_picked) > 0 THEN
            SELECT * INTO v_appended FROM {schema}.settle_append(
                p_now, p_hint, v_picked, p_event_firings, p_id_parts, p_topics, p_event_payloads, p_event_metadata, p_occurred_at, p_to,
                p_event_objects, p_event_keys, p_fingerprints, p_event_not_before);
            o_tail := v_appended.o_tail;
            -- By the place of the event among all that were sent.
            SELECT array_agg(a.seq ORDER BY e.n) INTO v_seqs
            FROM generate_series(1, cardinality(p_event_firings)) e(n)
            LEFT JOIN unnest(v_picked, v_appended.o_seqs) a(n, seq) ON a.n = e.n;
        END IF;
    END IF;

    WITH runs AS (
        SELECT r.*, p_names[r.firing] AS name, s.runs + row_number() OVER (PARTITION BY r.firing ORDER BY r.n) AS number,
            o_states[r.firing] = 'done' AS is_done
        FROM unnest(p_run_firings, p_run_occurrences, p_run_manual, p_run_events, p_run_jobs, p_run_skipped)
            WITH ORDINALITY r(firing, occurrence, manual, event, job, skipped, n)
        LEFT JOIN {schema}.schedules s ON s.name = p_names[r.firing]
    ), written AS (
        INSERT INTO {schema}.schedule_runs
            (name, number, occurrence, at, event_seq, job_number, job_stamp, call, manual, overlapped, skipped)
        SELECT r.name, r.number, r.occurrence, o_at, v_seqs[r.event], v_made.o_numbers[r.job], v_made.o_stamps[r.job],
            p_call, r.manual, r.job IS NOT NULL AND NOT v_made.o_new[r.job], r.skipped
        FROM runs r WHERE r.is_done ORDER BY r.n
    )
    SELECT array_agg(CASE WHEN r.is_done THEN r.number END ORDER BY r.n), array_agg(v_seqs[r.event] ORDER BY r.n),
        array_agg(v_made.o_numbers[r.job] ORDER BY r.n), array_agg(v_made.o_stamps[r.job] ORDER BY r.n),
        array_agg(r.job IS NOT NULL AND NOT v_made.o_new[r.job] ORDER BY r.n)
    INTO o_run_numbers, o_run_seqs, o_run_jobs, o_run_stamps, o_run_overlapped
    FROM runs r;

    UPDATE {schema}.schedules s
    SET watermark = coalesce(f.move_to, s.watermark), due = CASE WHEN f.move_from IS NULL THEN s.due ELSE f.due END,
        runs = s.runs + (SELECT count(*) FROM unnest(p_run_firings) r(firing) WHERE r.firing = f.n), fired_by = p_call
    FROM unnest(p_names, p_from, p_move_to, p_due) WITH ORDINALITY f(name, move_from, move_to, due, n)
    WHERE s.name = f.name AND o_states[f.n] = 'done';
    DELETE FROM {schema}.schedule_runs w
    USING {schema}.schedules s
    WHERE s.name = ANY (p_names) AND s.fired_by = p_call AND w.name = s.name AND w.number <= s.runs - {runs_max};
END
$body$;
