-- Writes how attempts ended, with what they said, published and sent, in one round trip and one commit. For each change
-- o_states says 'done', 'lost', 'key' or 'invalid'; of all but the first nothing is written. o_job_states says where its job
-- stands, o_ready_… what became available and where. Of who died is told in the log, behind what is published.
--
--   p_hint    where the log ends, about; null in somebody's own transaction, which must not lock the log: then nothing is published with it, and what is told
--             of goes into the outbox
--   p_lock    null if there is nothing but ends: then a call that is sent again finds its mark in the rows. Else a lock of
--             the call's own; what it was answered is kept
--   p_waves   as in slots_settle; null if nothing is published or sent
--   p_steps   is one change to be done after another, because what one sends may be what another frees?
CREATE OR REPLACE FUNCTION {schema}.jobs_settle(
    p_now timestamptz, p_hint bigint, p_call uuid, p_lock bigint, p_again boolean, p_steps boolean,
    p_numbers bigint[], p_stamps bigint[], p_fences bigint[], p_ends text[], p_asked text[], p_gives_back boolean[],
    p_lapsed boolean[], p_not_before timestamptz[], p_errors text[], p_results text[], p_waves int[],
    p_line_changes int[], p_line_attempts int[], p_line_at timestamptz[], p_line_levels text[], p_line_messages text[],
    p_event_changes int[], p_id_parts uuid[], p_topics text[], p_event_payloads text[], p_event_metadata text[],
    p_occurred_at timestamptz[], p_to uuid[], p_event_objects text[], p_event_keys text[], p_fingerprints bytea[],
    p_event_not_before timestamptz[],
    p_job_changes int[],
    p_chances int[], p_handlers text[], p_objects text[], p_ordered boolean[], p_payloads text[], p_metadata text[],
    p_ranks bigint[], p_job_not_before timestamptz[], p_keys text[], p_attempts_max int[], p_exhausted text[],
    p_event_seqs bigint[], p_event_prevs bigint[], p_event_ids uuid[], p_event_topics text[],
    OUT o_states text[], OUT o_reasons text[], OUT o_tail bigint, OUT o_recorded_at timestamptz[], OUT o_seqs bigint[],
    OUT o_prevs bigint[], OUT o_ids uuid[], OUT o_conflicts boolean[],
    OUT o_job_states text[], OUT o_numbers bigint[], OUT o_stamps bigint[], OUT o_new boolean[], OUT o_new_states text[],
    OUT o_ready_handlers text[], OUT o_ready_ranks bigint[], OUT o_ready_turns bigint[]
) LANGUAGE plpgsql VOLATILE
-- Else a plan made for many ends may read the whole table, and answers out of order.
SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
    v_count int := cardinality(p_numbers);
    v_buckets int[];
    v_todo bigint[];
    v_step int := 0;
    v_ended pg_catalog.record;
    v_made pg_catalog.record;
    v_ready bigint[];
    v_dead bigint[];
    v_first int[]; -- what was ended before, and where it led
    v_first_states pg_catalog.text[];
BEGIN
    IF p_lock IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(p_lock);
        SELECT t.states, t.reasons, t.tail, t.recorded_at, t.seqs, t.prevs, t.ids, t.conflicts, t.job_states, t.numbers, t.new
        INTO o_states, o_reasons, o_tail, o_recorded_at, o_seqs, o_prevs, o_ids, o_conflicts, o_job_states, o_numbers, o_new
        FROM {schema}.job_calls t WHERE t.call = p_call;
        IF FOUND THEN
            SELECT array_agg(j.stamp ORDER BY b.n), array_agg(j.state ORDER BY b.n) INTO o_stamps, o_new_states
            FROM unnest(o_numbers) WITH ORDINALITY b(number, n) LEFT JOIN {schema}.jobs j ON j.number = b.number;
            PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
            RETURN;
        END IF;
    END IF;
    LOCK TABLE {schema}.rules_lock IN ROW SHARE MODE;
    IF p_waves IS NULL AND p_line_changes IS NULL THEN
        -- Most are in no lane, and nothing of them can be refused: that is all then.
        v_now := coalesce(p_now, clock_timestamp());
        IF p_asked IS NULL AND p_results IS NULL THEN
            -- And have only succeeded: the same in two thirds of the time. The change is that of fn_jobs_succeed.sql.
            WITH ended AS (
                UPDATE {schema}.jobs j
                SET state = 'succeeded', turn = NULL, finished_at = v_now, lease_until = NULL, cancel_asked = false,
                    call = p_call
                FROM unnest(p_numbers, p_stamps, p_fences) WITH ORDINALITY c(number, stamp, fence, n)
                WHERE j.number = c.number AND j.stamp = c.stamp AND j.fence = c.fence
                    AND coalesce(j.state, '') = 'running' AND NOT (j.ordered AND j.object IS NOT NULL)
                RETURNING c.n
            )
            SELECT array_agg(e.n::int), array_fill('succeeded'::text, ARRAY[count(*)::int]) INTO v_first, v_first_states
            FROM ended e;
        ELSE
            SELECT e.o_at, e.o_states, e.o_ready, e.o_dead INTO v_first, v_first_states, v_ready, v_dead
            FROM {schema}.jobs_end(v_now, p_call, false, p_numbers, p_stamps, p_fences, p_ends, p_asked, p_gives_back,
                p_lapsed, p_not_before, p_errors, p_results) e;
        END IF;
        IF v_first = ARRAY(SELECT generate_series(1, v_count)) THEN
            o_states := array_fill('done'::text, ARRAY[v_count]);
            o_job_states := v_first_states;
            IF v_ready IS NOT NULL THEN
                SELECT * INTO o_ready_handlers, o_ready_ranks, o_ready_turns FROM {schema}.jobs_ready(v_ready);
                PERFORM {schema}.jobs_ring();
            END IF;
            IF v_dead IS NOT NULL THEN
                o_tail := {schema}.jobs_tell(p_now, p_hint, v_dead);
            END IF;
            RETURN;
        END IF;
    ELSE
        PERFORM 1 FROM {schema}.jobs j
        WHERE j.number = ANY (p_numbers) AND NOT (coalesce(j.ordered, false) AND j.object IS NOT NULL)
        ORDER BY j.number FOR UPDATE;
    END IF;
    SELECT array_agg({schema}.job_bucket(j.handler, 'o' || j.object)) INTO v_buckets
    FROM (SELECT x.handler, x.object, x.ordered FROM {schema}.jobs x WHERE x.number = ANY (p_numbers) OFFSET 0) j
    WHERE j.ordered AND j.object IS NOT NULL;
    IF p_objects IS NOT NULL OR p_keys IS NOT NULL THEN
        v_buckets := v_buckets || ARRAY(
            SELECT {schema}.job_bucket(b.handler, 'o' || b.object) FROM unnest(p_handlers, p_objects) b(handler, object)
            WHERE b.object IS NOT NULL
            UNION SELECT {schema}.job_bucket(b.handler, 'k' || b.key) FROM unnest(p_handlers, p_keys) b(handler, key)
            WHERE b.key IS NOT NULL);
    END IF;
    IF v_buckets IS NOT NULL THEN
        PERFORM {schema}.jobs_lock(v_buckets);
    END IF;
    PERFORM 1 FROM {schema}.jobs j WHERE j.number = ANY (p_numbers) ORDER BY j.number FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    o_job_states := array_fill(NULL::text, ARRAY[v_count]);

    IF p_waves IS NULL THEN
        -- Nothing can be refused.
        o_states := array_fill('lost'::text, ARRAY[v_count]);
        FOR i IN 1 .. coalesce(cardinality(v_first), 0) LOOP
            o_states[v_first[i]] := 'done';
            o_job_states[v_first[i]] := v_first_states[i];
        END LOOP;
        v_todo := p_numbers;
    ELSE
        SELECT array_agg(CASE WHEN j.number IS NULL THEN 'lost' ELSE 'done' END ORDER BY c.n) INTO o_states
        FROM unnest(p_numbers, p_stamps, p_fences, p_lapsed) WITH ORDINALITY c(number, stamp, fence, lapsed, n)
        LEFT JOIN {schema}.jobs j
            ON j.number = c.number AND j.stamp = c.stamp AND j.fence = c.fence AND coalesce(j.state, '') = 'running'
            AND (c.lapsed IS NOT TRUE OR j.lease_until <= v_now);
        IF p_event_changes IS NOT NULL THEN
            SELECT * INTO o_states, o_reasons, o_tail, o_recorded_at, o_seqs, o_prevs, o_ids, o_conflicts
            FROM {schema}.settle_events(
                p_now, p_hint, o_states, p_waves, p_event_changes, p_id_parts, p_topics, p_event_payloads,
                p_event_metadata, p_occurred_at, p_to, p_event_objects, p_event_keys, p_fingerprints, p_event_not_before);
        END IF;
        v_todo := ARRAY(
            SELECT CASE WHEN c.state = 'done' AND c.wave <> 0 THEN c.number END
            FROM unnest(p_numbers, o_states, p_waves) WITH ORDINALITY c(number, state, wave, n) ORDER BY c.n);
    END IF;

    LOOP
        v_step := v_step + 1;
        SELECT * INTO v_ended FROM {schema}.jobs_end(
            v_now, p_call, NULL,
            CASE WHEN p_steps THEN ARRAY(
                SELECT CASE WHEN c.n = v_step THEN c.number END FROM unnest(v_todo) WITH ORDINALITY c(number, n) ORDER BY c.n)
            ELSE v_todo END,
            p_stamps, p_fences, p_ends, p_asked, p_gives_back, p_lapsed, p_not_before, p_errors, p_results);
        FOR i IN 1 .. coalesce(cardinality(v_ended.o_at), 0) LOOP
            o_states[v_ended.o_at[i]] := 'done';
            o_job_states[v_ended.o_at[i]] := v_ended.o_states[i];
        END LOOP;
        v_ready := v_ready || v_ended.o_ready;
        v_dead := v_dead || v_ended.o_dead;
        IF p_job_changes IS NOT NULL THEN
            SELECT * INTO v_made FROM {schema}.jobs_insert(
                v_now,
                ARRAY(SELECT v_todo[c.change] IS NOT NULL AND (NOT p_steps OR c.change = v_step)
                      FROM unnest(p_job_changes) WITH ORDINALITY c(change, n) ORDER BY c.n),
                p_chances, p_handlers, p_objects, p_ordered, p_payloads, p_metadata, p_ranks, p_job_not_before, p_keys,
                p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics);
            IF o_numbers IS NULL THEN
                o_numbers := v_made.o_numbers;
                o_stamps := v_made.o_stamps;
                o_new := v_made.o_new;
                o_new_states := v_made.o_states;
            ELSE
                FOR i IN 1 .. cardinality(o_numbers) LOOP
                    CONTINUE WHEN v_made.o_numbers[i] IS NULL;
                    o_numbers[i] := v_made.o_numbers[i];
                    o_stamps[i] := v_made.o_stamps[i];
                    o_new[i] := v_made.o_new[i];
                    o_new_states[i] := v_made.o_states[i];
                END LOOP;
            END IF;
        END IF;
        EXIT WHEN NOT p_steps OR v_step = v_count;
    END LOOP;
    IF p_line_changes IS NOT NULL THEN
        PERFORM {schema}.jobs_say(
            ARRAY(SELECT CASE WHEN o_job_states[c.change] IS NOT NULL THEN p_numbers[c.change] END
                  FROM unnest(p_line_changes) WITH ORDINALITY c(change, n) ORDER BY c.n),
            p_line_attempts, p_line_at, p_line_levels, p_line_messages);
    END IF;
    IF p_again AND p_waves IS NULL AND 'lost' = ANY (o_states) THEN
        -- What the call that was lost has written has its mark.
        SELECT array_agg(CASE WHEN j.number IS NULL THEN c.state ELSE 'done' END ORDER BY c.n),
            array_agg(CASE WHEN c.state = 'lost' THEN j.state ELSE c.job_state END ORDER BY c.n)
        INTO o_states, o_job_states
        FROM unnest(p_numbers, p_stamps, p_fences, o_states, o_job_states)
            WITH ORDINALITY c(number, stamp, fence, state, job_state, n)
        LEFT JOIN {schema}.jobs j
            ON j.number = c.number AND j.stamp = c.stamp AND j.fence = c.fence AND j.call = p_call AND j.state <> 'running';
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
    END IF;
    IF cardinality(v_ready) > 0 THEN
        SELECT * INTO o_ready_handlers, o_ready_ranks, o_ready_turns FROM {schema}.jobs_ready(v_ready);
        PERFORM {schema}.jobs_ring();
    END IF;
    IF v_dead IS NOT NULL THEN
        o_tail := coalesce({schema}.jobs_tell(p_now, greatest(p_hint, o_tail), v_dead), o_tail);
    END IF;
    IF p_lock IS NOT NULL THEN
        INSERT INTO {schema}.job_calls
            (call, at, states, reasons, tail, recorded_at, seqs, prevs, ids, conflicts, job_states, numbers, new)
        VALUES (p_call, clock_timestamp(), o_states, o_reasons, o_tail, o_recorded_at, o_seqs, o_prevs, o_ids, o_conflicts,
            o_job_states, o_numbers, o_new);
    END IF;
END
$body$;
