-- Why a job cannot be sent, as `NewJob::check` and the types of its fields say; null if it can.
CREATE OR REPLACE FUNCTION {schema}.job_fault(
    p_handler text, p_object text, p_key text, p_payload jsonb, p_metadata jsonb, p_bytes bigint, p_attempts_max int, p_ordered boolean,
    p_exhausted text, p_not_before timestamptz
) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT coalesce(
        'handler ' || {schema}.dotted_fault(p_handler, 'mail.send'),
        'object ' || {schema}.plain_fault(p_object, {object_bytes_max}),
        'unique_key ' || {schema}.plain_fault(p_key, {unique_key_bytes_max}),
        CASE
            WHEN p_payload IS NULL THEN 'payload is missing; write a JSON value, such as ''{}'''
            WHEN jsonb_typeof(p_metadata) IS DISTINCT FROM 'object' THEN 'metadata is not a JSON object; write {"name": value}'
            WHEN p_bytes > {event_bytes_max}
                THEN format('payload has %s bytes with its metadata; at most {event_bytes_max} are allowed: store it elsewhere and send a reference', p_bytes)
            WHEN p_attempts_max IS NULL OR p_attempts_max NOT BETWEEN 1 AND {attempts_limit}
                THEN format('attempts_max is %s; choose 1 to {attempts_limit}', coalesce(p_attempts_max::text, 'null'))
            WHEN p_ordered IS NULL THEN 'ordered is null; write true or false'
            WHEN p_exhausted IS NULL OR p_exhausted NOT IN ('hold', 'skip', 'dead_letter_object')
                THEN 'on_exhausted must be hold, skip or dead_letter_object'
        END,
        'not_before ' || {schema}.time_fault(p_not_before))
$body$;

-- Sends a job in the caller's transaction, and answers its id: at the time of an injected clock (p_now), or by the server's
-- clock if it is null. While a job of the handler with this key is live, it answers that one's.
--
-- No lock is taken that anybody else waits for, however long the transaction takes, but by who sends the same key. So a job with an object does not take
-- its place in its lane here, for which it would have to lock the lane and the rules: it is written as one whose time comes at once (`not_before` is
-- `enqueued_at`, as of no other), and gets its place when that is found after the commit, by who looks for what is due or sends another of its lane.
CREATE OR REPLACE FUNCTION {schema}.jobs_send(
    p_now timestamptz, p_handler text, p_payload jsonb, p_object text, p_priority numeric, p_not_before timestamptz, p_key text,
    p_attempts_max int, p_metadata jsonb, p_ordered boolean, p_exhausted text
) RETURNS text LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz := coalesce(p_now, clock_timestamp());
    v_settings pg_catalog.jsonb;
    v_retry pg_catalog.jsonb;
    v_number bigint;
    v_stamp bigint := (floor(extract(epoch FROM v_now) * 1000)::bigint << 12) + floor(random() * 4096)::bigint;
    v_is_later boolean := coalesce(p_not_before > v_now, false);
    v_is_loose boolean := p_object IS NULL AND NOT v_is_later;
    v_bytes bigint := octet_length(p_payload::text) + octet_length(p_metadata::text);
BEGIN
    PERFORM {schema}.check_dotted('handler', p_handler);
    PERFORM {schema}.check_plain('unique_key', p_key, {unique_key_bytes_max});
    IF {schema}.is_task(p_handler) THEN
        -- As `tasks::as_task`: of a collection at most one task is live, whoever sends it.
        p_key := 'schedule:' || substr(p_handler, 6);
        p_priority := CASE WHEN p_priority = 0 THEN {task_priority} ELSE p_priority END;
    END IF;
    v_settings := {schema}.handler_settings(p_handler);
    v_retry := v_settings -> 'retry';
    p_attempts_max := coalesce(p_attempts_max, (v_retry -> 'doubling' ->> 'attempts_max')::int,
        jsonb_array_length(v_retry -> 'exactly' -> 'delays_us') + 1, {job_attempts_max});
    p_exhausted := coalesce(p_exhausted, v_settings ->> 'on_exhausted', 'hold');
    PERFORM {schema}.refuse(coalesce(
        {schema}.job_fault(p_handler, p_object, p_key, p_payload, p_metadata, v_bytes, p_attempts_max, p_ordered, p_exhausted, p_not_before),
        CASE WHEN p_priority IS NULL OR p_priority <> trunc(p_priority) OR p_priority NOT BETWEEN 0 AND 18446744073709551615
            THEN format('priority is %s; choose a whole number from 0 to 18446744073709551615', coalesce(p_priority::text, 'null')) END));
    -- Before the number is drawn: who hears of the number knows then which transactions it may have to wait for.
    PERFORM pg_current_xact_id();
    LOOP
        v_number := nextval(format('%I.job_numbers', {schema_text})::regclass);
        INSERT INTO {schema}.jobs (number, stamp, rank, turn, enqueued_at, not_before, attempts_max, ordered, state, on_exhausted,
            handler, object, unique_key, payload, metadata)
        VALUES (v_number, v_stamp, ({rank_max}::numeric - p_priority)::bigint, CASE WHEN v_is_loose THEN v_number END, v_now,
            CASE WHEN v_is_loose OR v_is_later THEN p_not_before ELSE v_now END, p_attempts_max, p_ordered,
            CASE WHEN v_is_loose THEN 'available' ELSE 'scheduled' END, p_exhausted, p_handler, p_object, p_key, p_payload::text,
            nullif(p_metadata::text, '{}'))
        ON CONFLICT (handler, unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL DO NOTHING;
        EXIT WHEN FOUND;
        SELECT j.number, j.stamp INTO v_number, v_stamp FROM {schema}.jobs j
        WHERE j.handler = p_handler AND j.unique_key = p_key AND j.unique_key IS NOT NULL AND j.finished_at IS NULL;
        EXIT WHEN FOUND;
        -- It has ended between the two looks, or, in a transaction with a snapshot of its own, is not to be seen.
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'the unique_key % is used by a transaction that this one cannot see', quote_literal(p_key)
                USING ERRCODE = 'serialization_failure', HINT = 'Begin the transaction again.';
        END IF;
        v_stamp := (floor(extract(epoch FROM v_now) * 1000)::bigint << 12) + floor(random() * 4096)::bigint;
    END LOOP;
    PERFORM {schema}.outbox_ring();
    RETURN {schema}.job_id(v_stamp, v_number);
END
$body$;

-- Sends the jobs of an array, in its order. Each may wait for the transaction that sends the same unique_key, so they are
-- sent one by one.
CREATE OR REPLACE FUNCTION {schema}.jobs_send_many(p_jobs jsonb) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_job pg_catalog.jsonb;
    v_fault pg_catalog.text;
    v_index int := 0;
BEGIN
    IF jsonb_typeof(p_jobs) IS DISTINCT FROM 'array' THEN
        PERFORM {schema}.refuse('jobs must be a JSON array of objects, such as [{"handler":"mail.send","payload":{}}]');
    END IF;
    IF jsonb_array_length(p_jobs) > {jobs_max} THEN
        PERFORM {schema}.refuse(format('jobs are %s; at most {jobs_max} may be sent with one end', jsonb_array_length(p_jobs)));
    END IF;
    FOR v_job IN SELECT e.value FROM jsonb_array_elements(p_jobs) WITH ORDINALITY e(value, n) ORDER BY e.n LOOP
        IF jsonb_typeof(v_job) <> 'object' THEN
            PERFORM {schema}.refuse(format('jobs[%s] must be a JSON object with at least a handler', v_index));
        END IF;
        SELECT coalesce(jsonb_object_agg(f.key, f.value), '{}') INTO v_job
        FROM jsonb_each(v_job) f WHERE f.key = 'payload' OR jsonb_typeof(f.value) <> 'null';
        SELECT format('jobs[%s].%s %s', v_index, left(f.key, 80), CASE
                WHEN w.kind IS NULL THEN 'is not a field of a job' ELSE 'must be a ' || w.kind END)
        INTO v_fault
        FROM jsonb_each(v_job) f LEFT JOIN (VALUES
            ('handler', 'string'), ('object', 'string'), ('unique_key', 'string'), ('on_exhausted', 'string'),
            ('not_before', 'string'), ('priority', 'number'), ('attempts_max', 'number'), ('ordered', 'boolean'),
            ('metadata', 'object'), ('payload', 'value')) w(key, kind) ON w.key = f.key
        WHERE w.kind IS NULL OR (w.kind <> 'value' AND jsonb_typeof(f.value) <> w.kind)
        ORDER BY f.key LIMIT 1;
        PERFORM {schema}.refuse(coalesce(v_fault, CASE
            WHEN (v_job ->> 'attempts_max')::numeric NOT BETWEEN 1 AND {attempts_limit}
                OR (v_job ->> 'attempts_max')::numeric <> trunc((v_job ->> 'attempts_max')::numeric)
                THEN format('jobs[%s].attempts_max is %s; choose 1 to {attempts_limit}', v_index, left(v_job ->> 'attempts_max', 40))
            END));
        PERFORM {schema}.check_readable(jsonb_build_array(v_job));
        PERFORM {schema}.jobs_send(
            NULL, v_job ->> 'handler', coalesce(v_job -> 'payload', 'null'), v_job ->> 'object', coalesce((v_job ->> 'priority')::numeric, 0),
            (v_job ->> 'not_before')::timestamptz, v_job ->> 'unique_key', (v_job ->> 'attempts_max')::int,
            coalesce(v_job -> 'metadata', '{}'), coalesce((v_job ->> 'ordered')::boolean, true), v_job ->> 'on_exhausted');
        v_index := v_index + 1;
    END LOOP;
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.enqueue(
    handler text, payload jsonb DEFAULT 'null', object text DEFAULT NULL, priority numeric DEFAULT 0,
    not_before timestamptz DEFAULT NULL, unique_key text DEFAULT NULL, attempts_max int DEFAULT NULL, metadata jsonb DEFAULT '{}',
    ordered boolean DEFAULT true, on_exhausted text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN {schema}.jobs_send(NULL, handler, payload, object, priority, not_before, unique_key, attempts_max, metadata,
        ordered, on_exhausted);
END
$body$;

-- Gives jobs that were sent in somebody's transaction their places in these lanes, behind what is there and before what comes. The caller has the
-- locks of the lanes and of the rules.
CREATE OR REPLACE FUNCTION {schema}.jobs_place(p_now timestamptz, p_handlers text[], p_objects text[]) RETURNS void LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET jit = off
AS $body$
DECLARE
    v_sequence pg_catalog.regclass := format('%I.job_numbers', {schema_text})::regclass;
    v_sent bigint[] := ARRAY(
        SELECT j.number FROM (SELECT DISTINCT x.handler, x.object FROM unnest(p_handlers, p_objects) x(handler, object)) l
        JOIN {schema}.jobs j ON j.handler = l.handler AND j.object = l.object
        WHERE j.state = 'scheduled' AND j.not_before = j.enqueued_at AND j.ordered AND j.object IS NOT NULL
        ORDER BY j.not_before, j.number);
    v_handlers pg_catalog.text[];
    v_objects pg_catalog.text[];
BEGIN
    IF cardinality(v_sent) = 0 THEN
        RETURN;
    END IF;
    WITH placed AS (
        UPDATE {schema}.jobs j SET state = 'parked', turn = d.turn
        FROM (SELECT x.number, nextval(v_sequence) AS turn FROM unnest(v_sent) x(number)) d
        WHERE j.number = d.number AND coalesce(j.state, '') = 'scheduled'
        RETURNING j.handler, j.object
    )
    SELECT array_agg(p.handler), array_agg(p.object) INTO v_handlers, v_objects FROM placed p;
    PERFORM {schema}.jobs_turn(p_now, v_handlers, v_objects);
END
$body$;
