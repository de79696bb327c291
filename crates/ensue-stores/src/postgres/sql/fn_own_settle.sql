-- Of the events of a handler's own transaction, how many are done already, by what is stored: is the lane, or the slot's cursor, beyond it?
CREATE OR REPLACE FUNCTION {schema}.own_done(p_group text, p_slots int[], p_changes int[], p_keys text[], p_seqs bigint[])
RETURNS bigint LANGUAGE sql STABLE
AS $body$
    SELECT count(*)
    FROM unnest(p_changes, p_keys, p_seqs) c(change, key, seq)
    JOIN {schema}.groups g ON g.name = p_group
    LEFT JOIN {schema}.lanes l ON l.group_id = g.id AND l.key = c.key
    LEFT JOIN {schema}.slots s ON s.group_id = g.id AND s.slot = p_slots[c.change]
    WHERE coalesce(l.position > c.seq, s.cursor >= c.seq)
$body$;

-- Says no to a handler's own transaction, if its events are done already or it does not have its slots any more.
CREATE OR REPLACE FUNCTION {schema}.own_check(
    p_group text, p_member uuid, p_slots int[], p_fences bigint[], p_changes int[], p_keys text[], p_seqs bigint[]
) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_done bigint := {schema}.own_done(p_group, p_slots, p_changes, p_keys, p_seqs);
BEGIN
    IF v_done = cardinality(p_seqs) THEN
        RAISE EXCEPTION 'this event is done already: nothing is to be done again' USING ERRCODE = '{own_done}';
    ELSIF v_done > 0 THEN
        RAISE EXCEPTION 'a part of this batch is done already' USING ERRCODE = '{own_lost}',
            HINT = 'Roll back; the rest of it runs again.';
    END IF;
    IF EXISTS (
        SELECT 1 FROM unnest(p_slots, p_fences) c(slot, fence)
        LEFT JOIN {schema}.groups g ON g.name = p_group
        LEFT JOIN {schema}.slots s ON s.group_id = g.id AND s.slot = c.slot
        WHERE (s.owner = p_member AND s.fence = c.fence) IS NOT TRUE
    ) THEN
        RAISE EXCEPTION 'the group % goes on elsewhere: this slot of it was taken over, moved or deleted', quote_literal(p_group)
            USING ERRCODE = '{own_lost}', HINT = 'Roll back and drop the work: whoever has the slot now does it.';
    END IF;
END
$body$;

-- Message that a node signs to settle this work, composed as in `proof_of` of own/settle.rs. Each text follows its length in bytes.
CREATE OR REPLACE FUNCTION {schema}.own_message(
    p_call uuid, p_group text, p_member uuid, p_slots int[], p_fences bigint[], p_lane_changes int[], p_lane_keys text[], p_lane_seqs bigint[],
    p_relied_seq bigint, p_relied_id uuid, p_number bigint, p_stamp bigint, p_fence bigint
) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT 'own-' || p_call || CASE WHEN p_number IS NOT NULL THEN format('|job|%s|%s|%s', p_number, p_stamp, p_fence)
        ELSE format('|slots|%s|%s|%s|%s|%s|%s|%s|%s:%s|%s', p_member, array_to_string(p_slots, ','),
            array_to_string(p_fences, ','), array_to_string(p_lane_changes, ','), array_to_string(p_lane_seqs, ','),
            p_relied_seq, p_relied_id, octet_length(p_group), p_group,
            (SELECT string_agg(octet_length(k.key) || ':' || k.key, '' ORDER BY k.n) FROM unnest(p_lane_keys) WITH ORDINALITY k(key, n))) END
$body$;

-- Refuses lines that no attempt writes.
CREATE OR REPLACE FUNCTION {schema}.own_check_lines(p_attempts int[], p_at timestamptz[], p_levels text[], p_messages text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_count int := coalesce(cardinality(p_at), 0);
BEGIN
    IF v_count > {lines_max} OR EXISTS (
        SELECT 1 FROM unnest(ARRAY[array_ndims(p_attempts), array_ndims(p_at), array_ndims(p_levels), array_ndims(p_messages)],
            ARRAY[cardinality(p_attempts), cardinality(p_at), cardinality(p_levels), cardinality(p_messages)]) a(dimensions, count)
        WHERE a.dimensions > 1 OR coalesce(a.count, 0) <> v_count
    ) THEN
        PERFORM {schema}.refuse('the lines must be at most {lines_max}, with an attempt, a time, a level and a message each');
    END IF;
    PERFORM {schema}.refuse(format('lines[%s] ', l.n - 1) || CASE
        WHEN l.attempt IS NULL OR l.attempt < 0 THEN 'has no attempt'
        WHEN l.at IS NULL OR {schema}.time_fault(l.at) IS NOT NULL THEN 'has no time in the years 1 to 9999'
        WHEN l.level IS NULL OR l.level NOT IN ('debug', 'info', 'warn', 'error') THEN 'has no level: debug, info, warn or error'
        WHEN l.message IS NULL OR octet_length(l.message) > {line_bytes_max} + 16 THEN 'has no message of at most {line_bytes_max} bytes'
    END)
    FROM unnest(p_attempts, p_at, p_levels, p_messages) WITH ORDINALITY l(attempt, at, level, message, n);
END
$body$;

-- Refuses jobs that `enqueue` would refuse. The arrays are those of jobs_insert: one that is null stands for defaults.
CREATE OR REPLACE FUNCTION {schema}.own_check_jobs(
    p_chances int[], p_handlers text[], p_objects text[], p_ordered boolean[], p_payloads text[], p_metadata text[], p_ranks bigint[],
    p_not_before timestamptz[], p_keys text[], p_attempts_max int[], p_exhausted text[], p_event_seqs bigint[],
    p_event_prevs bigint[], p_event_ids uuid[], p_event_topics text[]
) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_count int := coalesce(cardinality(p_handlers), 0);
BEGIN
    IF v_count > {jobs_max} OR EXISTS (
        SELECT 1 FROM unnest(ARRAY[cardinality(p_chances), cardinality(p_handlers), cardinality(p_payloads), cardinality(p_ranks),
            cardinality(p_attempts_max)]) a(count) WHERE coalesce(a.count, 0) <> v_count
    ) OR EXISTS (
        SELECT 1 FROM unnest(ARRAY[cardinality(p_objects), cardinality(p_ordered), cardinality(p_metadata), cardinality(p_not_before),
            cardinality(p_keys), cardinality(p_exhausted), cardinality(p_event_seqs), cardinality(p_event_prevs), cardinality(p_event_ids),
            cardinality(p_event_topics)]) a(count) WHERE a.count <> v_count
    ) OR EXISTS (
        SELECT 1 FROM unnest(ARRAY[array_ndims(p_chances), array_ndims(p_handlers), array_ndims(p_objects), array_ndims(p_ordered),
            array_ndims(p_payloads), array_ndims(p_metadata), array_ndims(p_ranks), array_ndims(p_not_before), array_ndims(p_keys),
            array_ndims(p_attempts_max), array_ndims(p_exhausted), array_ndims(p_event_seqs), array_ndims(p_event_prevs),
            array_ndims(p_event_ids), array_ndims(p_event_topics)]) a(dimensions) WHERE a.dimensions > 1
    ) THEN
        PERFORM {schema}.refuse('the jobs must be at most {jobs_max}, with arrays of the same length');
    END IF;
    PERFORM {schema}.refuse(format('jobs[%s] ', j.n - 1) || coalesce(
        {schema}.job_fault(j.handler, j.object, j.key, j.payload::jsonb, coalesce(j.metadata, '{}')::jsonb,
            {schema}.written_bytes(j.payload) + coalesce({schema}.written_bytes(j.metadata), 2), j.attempts_max, coalesce(j.ordered, true),
            coalesce(j.exhausted, 'hold'), j.not_before),
        CASE
            WHEN j.chance IS NULL OR j.chance NOT BETWEEN 0 AND 4095 THEN 'has no chance from 0 to 4095'
            WHEN j.rank IS NULL THEN 'has no rank'
            WHEN {schema}.is_task(j.handler) AND j.key IS DISTINCT FROM 'schedule:' || substr(j.handler, 6)
                THEN 'is a task without the unique_key of its collection'
            WHEN j.event_seq < 1 OR j.event_prev NOT BETWEEN 1 AND j.event_seq - 1
                OR num_nonnulls(j.event_seq, j.event_id, j.event_topic) NOT IN (0, 3) OR j.event_prev IS NOT NULL AND j.event_seq IS NULL
                OR j.event_topic IS NOT NULL AND {schema}.dotted_fault(j.event_topic, 'order.paid') IS NOT NULL
                THEN 'has only some of event_seq, event_id and event_topic; set all of them, or none'
        END))
    FROM unnest(p_chances, p_handlers, p_objects, p_ordered, p_payloads, p_metadata, p_ranks, p_not_before, p_keys, p_attempts_max,
            p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics)
        WITH ORDINALITY j(chance, handler, object, ordered, payload, metadata, rank, not_before, key, attempts_max, exhausted,
            event_seq, event_prev, event_id, event_topic, n);
END
$body$;

-- Settles a handler's work in its own transaction: takes a note, which is carried out when the transaction commits. Work that is already lost is refused at
-- once. The caller has any role, so p_proof must be the code of a node of this store for exactly this work, and everything else is checked. Answers nothing.
CREATE OR REPLACE FUNCTION {schema}.own_put(
    p_call uuid, p_now timestamptz,
    p_group text, p_member uuid, p_slots int[], p_fences bigint[], p_lane_changes int[], p_lane_keys text[], p_lane_seqs bigint[],
    p_number bigint, p_stamp bigint, p_fence bigint,
    p_line_attempts int[], p_line_at timestamptz[], p_line_levels text[], p_line_messages text[],
    p_chances int[], p_handlers text[], p_objects text[], p_ordered boolean[], p_payloads text[], p_metadata text[], p_ranks bigint[],
    p_not_before timestamptz[], p_keys text[], p_attempts_max int[], p_exhausted text[], p_event_seqs bigint[],
    p_event_prevs bigint[], p_event_ids uuid[], p_event_topics text[],
    p_relied_seq bigint, p_relied_id uuid, p_proof text
) RETURNS text[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- At the commit it must see what others have done since it began.
        RAISE EXCEPTION 'a handler settles in a transaction that is read committed, this one is %', current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction', HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED';
    END IF;
    IF {schema}.store_code({schema}.own_message(p_call, p_group, p_member, p_slots, p_fences, p_lane_changes, p_lane_keys, p_lane_seqs,
            p_relied_seq, p_relied_id, p_number, p_stamp, p_fence)) IS DISTINCT FROM p_proof OR p_proof IS NULL THEN
        RAISE EXCEPTION 'the proof does not match the settled work' USING ERRCODE = '{own_lost}', HINT = 'Roll back and drop the work.';
    END IF;
    PERFORM {schema}.refuse('p_now ' || {schema}.time_fault(p_now));
    PERFORM {schema}.own_check_lines(p_line_attempts, p_line_at, p_line_levels, p_line_messages);
    PERFORM {schema}.own_check_jobs(p_chances, p_handlers, p_objects, p_ordered, p_payloads, p_metadata, p_ranks, p_not_before, p_keys,
        p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics);
    IF p_number IS NULL THEN
        PERFORM {schema}.own_check(p_group, p_member, p_slots, p_fences, p_lane_changes, p_lane_keys, p_lane_seqs);
    ELSIF NOT EXISTS (
        SELECT 1 FROM {schema}.jobs j
        WHERE j.number = p_number AND j.stamp = p_stamp AND j.fence = p_fence AND coalesce(j.state, '') = 'running'
    ) THEN
        RAISE EXCEPTION 'the job goes on elsewhere, or is over' USING ERRCODE = '{own_lost}', HINT = 'Roll back and drop the work.';
    END IF;
    INSERT INTO {schema}.own_settlements VALUES (
        p_call, p_now, p_group, p_member, p_slots, p_fences, p_lane_changes, p_lane_keys, p_lane_seqs, p_number, p_stamp, p_fence,
        p_line_attempts, p_line_at, p_line_levels, p_line_messages, p_chances, p_handlers, p_objects, p_ordered, p_payloads,
        p_metadata, p_ranks, p_not_before, p_keys, p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics,
        p_relied_seq, p_relied_id);
    RETURN '{}';
END
$body$;

-- Carries out what a handler's own transaction settles, while that commits: every lock is taken now and is gone with the commit. With an
-- error nothing of the transaction is stored.
CREATE OR REPLACE FUNCTION {schema}.own_settle(p_call uuid) RETURNS void LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_own {schema}.own_settlements;
    v_states pg_catalog.text[];
    v_sends int;
    v_lines int;
BEGIN
    DELETE FROM {schema}.own_settlements o WHERE o.call = p_call RETURNING o.* INTO v_own;
    IF NOT FOUND THEN
        -- It was carried out earlier in this transaction: SET CONSTRAINTS … IMMEDIATE.
        RETURN;
    END IF;
    v_sends := cardinality(v_own.handlers);
    IF v_own.number IS NULL THEN
        -- As slots_settle does next: nobody takes one over any more.
        PERFORM 1 FROM {schema}.slots s JOIN {schema}.groups g ON g.id = s.group_id
        WHERE g.name = v_own.group_name AND s.slot = ANY (v_own.slots)
        ORDER BY s.group_id, s.slot FOR UPDATE OF s;
        PERFORM {schema}.own_check(v_own.group_name, v_own.member, v_own.slots, v_own.fences, v_own.lane_changes, v_own.lane_keys,
            v_own.lane_seqs);
        SELECT t.o_states INTO v_states FROM {schema}.slots_settle(
            p_now => v_own.now, p_hint => 0, p_call => p_call,
            p_groups => array_fill(v_own.group_name, ARRAY[cardinality(v_own.slots)]), p_slots => v_own.slots,
            p_members => array_fill(v_own.member, ARRAY[cardinality(v_own.slots)]), p_fences => v_own.fences,
            p_cursors => NULL,
            p_relied_seqs => ARRAY[v_own.relied_seq], p_relied_ids => ARRAY[v_own.relied_id],
            p_relies_on => array_fill(1, ARRAY[cardinality(v_own.slots)]), p_lost_from => NULL, p_lost_to => NULL,
            p_waves => array_fill(1, ARRAY[cardinality(v_own.slots)]),
            p_lane_changes => v_own.lane_changes, p_lane_keys => v_own.lane_keys,
            p_lane_positions => ARRAY(SELECT c.seq + 1 FROM unnest(v_own.lane_seqs) WITH ORDINALITY c(seq, n) ORDER BY c.n),
            p_lane_states => array_fill('done'::text, ARRAY[cardinality(v_own.lane_keys)]),
            p_lane_attempts => array_fill(0::bigint, ARRAY[cardinality(v_own.lane_keys)]),
            p_lane_not_before => NULL, p_lane_errors => NULL,
            p_lane_redriven => array_fill(false, ARRAY[cardinality(v_own.lane_keys)]),
            p_delivery_changes => NULL, p_delivery_seqs => NULL, p_delivery_objects => NULL, p_delivery_states => NULL,
            p_delivery_attempts => NULL, p_delivery_errors => NULL, p_started_at => NULL, p_finished_at => NULL,
            p_line_changes => NULL, p_line_seqs => NULL, p_line_attempts => NULL, p_line_at => NULL, p_line_levels => NULL,
            p_line_messages => NULL,
            p_event_changes => NULL, p_id_parts => NULL, p_topics => NULL, p_payloads => NULL, p_metadata => NULL,
            p_occurred_at => NULL, p_to => NULL, p_objects => NULL, p_keys => NULL, p_fingerprints => NULL, p_not_before => NULL,
            p_job_changes => CASE WHEN v_sends > 0 THEN array_fill(1, ARRAY[v_sends]) END,
            p_chances => v_own.chances, p_handlers => v_own.handlers, p_job_objects => v_own.objects, p_ordered => v_own.ordered,
            p_job_payloads => v_own.payloads, p_job_metadata => v_own.metadata, p_ranks => v_own.ranks,
            p_job_not_before => v_own.not_before, p_job_keys => v_own.keys, p_attempts_max => v_own.attempts_max,
            p_exhausted => v_own.exhausted, p_event_seqs => v_own.event_seqs, p_event_prevs => v_own.event_prevs,
            p_event_ids => v_own.event_ids, p_event_topics => v_own.event_topics) t;
    ELSE
        v_lines := cardinality(v_own.line_at);
        SELECT t.o_states INTO v_states FROM {schema}.jobs_settle(
            p_now => v_own.now, p_hint => 0, p_call => p_call,
            p_lock => CASE WHEN v_sends > 0 OR v_lines > 0 THEN hashtextextended(p_call::text, 0) END,
            p_again => false, p_steps => false,
            p_numbers => ARRAY[v_own.number], p_stamps => ARRAY[v_own.stamp], p_fences => ARRAY[v_own.fence],
            p_ends => ARRAY['succeeded'], p_asked => NULL, p_gives_back => NULL, p_lapsed => NULL, p_not_before => NULL,
            p_errors => NULL, p_results => NULL, p_waves => CASE WHEN v_sends > 0 THEN ARRAY[1] END,
            p_line_changes => CASE WHEN v_lines > 0 THEN array_fill(1, ARRAY[v_lines]) END,
            p_line_attempts => v_own.line_attempts, p_line_at => v_own.line_at, p_line_levels => v_own.line_levels,
            p_line_messages => v_own.line_messages,
            p_event_changes => NULL, p_id_parts => NULL, p_topics => NULL, p_event_payloads => NULL, p_event_metadata => NULL,
            p_occurred_at => NULL, p_to => NULL, p_event_objects => NULL, p_event_keys => NULL, p_fingerprints => NULL,
            p_event_not_before => NULL,
            p_job_changes => CASE WHEN v_sends > 0 THEN array_fill(1, ARRAY[v_sends]) END,
            p_chances => v_own.chances, p_handlers => v_own.handlers, p_objects => v_own.objects, p_ordered => v_own.ordered,
            p_payloads => v_own.payloads, p_metadata => v_own.metadata, p_ranks => v_own.ranks,
            p_job_not_before => v_own.not_before, p_keys => v_own.keys, p_attempts_max => v_own.attempts_max,
            p_exhausted => v_own.exhausted, p_event_seqs => v_own.event_seqs, p_event_prevs => v_own.event_prevs,
            p_event_ids => v_own.event_ids, p_event_topics => v_own.event_topics) t;
    END IF;
    IF 'back' = ANY (v_states) THEN
        RAISE EXCEPTION 'the log does not hold the event % that this transaction settles: a failover has lost it', v_own.relied_seq
            USING ERRCODE = '{own_lost}', HINT = 'Drop the work: the handler begins again with what the log holds.';
    ELSIF EXISTS (SELECT 1 FROM unnest(v_states) s(state) WHERE s.state <> 'done') THEN
        RAISE EXCEPTION 'what this transaction settles goes on elsewhere, or is over' USING ERRCODE = '{own_lost}',
            HINT = 'Drop the work: whoever has it now does it.';
    END IF;
END
$body$;
