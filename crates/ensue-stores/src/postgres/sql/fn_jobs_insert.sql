-- Makes jobs, in order; one whose handler has a live job with its key is not made again. The caller has the locks of the
-- lanes and keys, and that of the rules if there are objects.
--
-- Arrays are parallel; one is null when all its elements would be, or would be the default. Answers are parallel to them;
-- no o_new means that all are new.
--   p_wanted   null, or which of them are to be made: of the others nothing is said
CREATE OR REPLACE FUNCTION {schema}.jobs_insert(
    p_now timestamptz, p_wanted boolean[],
    p_chances int[], p_handlers text[], p_objects text[], p_ordered boolean[], p_payloads text[], p_metadata text[],
    p_ranks bigint[], p_not_before timestamptz[], p_keys text[], p_attempts_max int[], p_exhausted text[],
    p_event_seqs bigint[], p_event_prevs bigint[], p_event_ids uuid[], p_event_topics text[],
    OUT o_numbers bigint[], OUT o_stamps bigint[], OUT o_new boolean[], OUT o_states text[]
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_sequence pg_catalog.regclass := format('%I.job_numbers', {schema_text})::regclass;
    v_base bigint := floor(extract(epoch FROM p_now) * 1000)::bigint << 12;
    v_there bigint[];
    v_first int[]; -- the first of the call with the same key
    v_numbers bigint[]; -- of those that are made
    v_handlers pg_catalog.text[];
    v_objects pg_catalog.text[];
BEGIN
    -- Before the first number is drawn: who hears of the number knows then which transactions it may have to wait for.
    PERFORM pg_current_xact_id();
    IF p_wanted IS NULL AND p_objects IS NULL AND p_keys IS NULL THEN
        o_numbers := ARRAY(SELECT nextval(v_sequence) FROM generate_series(1, cardinality(p_payloads)));
        INSERT INTO {schema}.jobs (number, stamp, rank, turn, enqueued_at, not_before, event_seq, event_prev, event_id,
            attempts_max, ordered, state, on_exhausted, handler, event_topic, payload, metadata)
        SELECT b.number, v_base + b.chance, b.rank, CASE WHEN b.not_before > p_now THEN NULL ELSE b.number END,
            p_now, b.not_before, b.event_seq, b.event_prev, b.event_id, b.attempts_max, coalesce(b.ordered, true),
            CASE WHEN b.not_before > p_now THEN 'scheduled' ELSE 'available' END, coalesce(b.exhausted, 'hold'),
            b.handler, b.event_topic, b.payload, b.metadata
        FROM unnest(o_numbers, p_chances, p_handlers, p_ordered, p_payloads, p_metadata, p_ranks, p_not_before,
                    p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics)
            b(number, chance, handler, ordered, payload, metadata, rank, not_before, attempts_max, exhausted, event_seq,
              event_prev, event_id, event_topic);
        -- Not by RETURNING, and said a second time: what is returned of each row costs the server a tenth of all that it does for a job.
        o_states := ARRAY(
            SELECT CASE WHEN b.not_before > p_now THEN 'scheduled' ELSE 'available' END
            FROM unnest(o_numbers, p_not_before) b(number, not_before));
        o_stamps := ARRAY(SELECT v_base + b.chance FROM unnest(p_chances) b(chance));
        RETURN;
    END IF;

    IF p_objects IS NOT NULL THEN
        -- What was sent to these lanes in somebody's transaction comes before what is sent now.
        PERFORM {schema}.jobs_place(p_now, p_handlers, p_objects);
    END IF;
    SELECT array_agg(k.there ORDER BY k.n), array_agg(k.first ORDER BY k.n) INTO v_there, v_first
    FROM (
        SELECT b.n, CASE WHEN b.key IS NOT NULL THEN (
                SELECT j.number FROM {schema}.jobs j
                WHERE j.handler = b.handler AND j.unique_key = b.key AND j.unique_key IS NOT NULL AND j.finished_at IS NULL
            ) END AS there,
            CASE WHEN NOT coalesce(b.wanted, true) THEN NULL WHEN b.key IS NULL THEN b.n
                ELSE min(b.n) FILTER (WHERE coalesce(b.wanted, true)) OVER (PARTITION BY b.handler, b.key) END AS first
        FROM unnest(p_handlers, p_keys, p_wanted) WITH ORDINALITY b(handler, key, wanted, n)
    ) k;
    v_numbers := ARRAY(
        SELECT CASE WHEN b.there IS NULL AND b.first = b.n THEN nextval(v_sequence) END
        FROM unnest(v_there, v_first) WITH ORDINALITY b(there, first, n));
    INSERT INTO {schema}.jobs (number, stamp, rank, turn, enqueued_at, not_before, event_seq, event_prev, event_id,
        attempts_max, ordered, state, on_exhausted, handler, object, unique_key, event_topic, payload, metadata)
    SELECT b.number, v_base + b.chance, b.rank, CASE WHEN b.not_before > p_now THEN NULL ELSE b.number END,
        p_now, b.not_before, b.event_seq, b.event_prev, b.event_id, b.attempts_max, coalesce(b.ordered, true),
        CASE WHEN b.not_before > p_now THEN 'scheduled'
            WHEN b.object IS NULL THEN 'available'
            WHEN coalesce(b.ordered, true) OR {schema}.object_is_held(b.object, p_now) THEN 'parked'
            ELSE 'available' END,
        coalesce(b.exhausted, 'hold'), b.handler, b.object, b.key, b.event_topic, b.payload, b.metadata
    FROM unnest(v_numbers, p_chances, p_handlers, p_objects, p_ordered, p_payloads, p_metadata, p_ranks, p_not_before,
                p_keys, p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics)
        b(number, chance, handler, object, ordered, payload, metadata, rank, not_before, key, attempts_max, exhausted,
          event_seq, event_prev, event_id, event_topic)
    WHERE b.number IS NOT NULL;
    IF p_objects IS NOT NULL THEN
        SELECT array_agg(b.handler), array_agg(b.object) INTO v_handlers, v_objects
        FROM unnest(v_numbers, p_handlers, p_objects, p_ordered, p_not_before)
            b(number, handler, object, ordered, not_before)
        WHERE b.number IS NOT NULL AND b.object IS NOT NULL AND coalesce(b.ordered, true)
            AND (b.not_before > p_now) IS NOT TRUE;
        IF v_handlers IS NOT NULL THEN
            PERFORM {schema}.jobs_turn(p_now, v_handlers, v_objects);
        END IF;
    END IF;
    SELECT array_agg(j.number ORDER BY b.n), array_agg(j.stamp ORDER BY b.n), array_agg(b.number IS NOT NULL ORDER BY b.n),
        array_agg(j.state ORDER BY b.n)
    INTO o_numbers, o_stamps, o_new, o_states
    FROM unnest(v_numbers, v_there, v_first) WITH ORDINALITY b(number, there, first, n)
    LEFT JOIN {schema}.jobs j ON j.number = coalesce(b.there, v_numbers[b.first]) AND b.first IS NOT NULL;
END
$body$;
