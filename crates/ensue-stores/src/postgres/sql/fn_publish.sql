-- Publishes in the caller's transaction: a row in the outbox, which is in the log soon after the commit, or gone with the rollback.
--
-- Publish after you have locked what the event is about (the UPDATE of its row is enough): two transactions about one thing are then
-- in the log in the order in which they had it.

-- The first fault in the fields of an event other than its content, or null. The rules are those
-- of HTTP.
CREATE OR REPLACE FUNCTION {schema}.event_fault(
    p_topic text, p_object text, p_key text, p_occurred_at timestamptz, p_not_before timestamptz
) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT coalesce(
        'topic ' || {schema}.dotted_fault(p_topic, 'order.paid'),
        CASE WHEN p_topic = '{reserved}' OR starts_with(p_topic, '{reserved}.')
            THEN 'topic is under `{reserved}`, which only Ensue itself publishes under; choose another first segment' END,
        'object ' || {schema}.plain_fault(p_object, {object_bytes_max}),
        'key ' || {schema}.plain_fault(p_key, {key_bytes_max}),
        'occurred_at ' || {schema}.time_fault(p_occurred_at),
        'not_before ' || {schema}.time_fault(p_not_before))
$body$;

-- The fault of content with this many bytes, or null. Callers measure the text, as readers will get
-- it: jsonb keeps `1e131000` in a few bytes.
CREATE OR REPLACE FUNCTION {schema}.size_fault(p_bytes bigint) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT CASE WHEN p_bytes > {event_bytes_max}
        THEN format('payload has %s bytes together with metadata; at most {event_bytes_max} are allowed: store the content elsewhere and send a reference',
            p_bytes) END
$body$;

-- Raises an error that names the field unless every engine can store this event.
CREATE OR REPLACE FUNCTION {schema}.check_event(
    p_topic text, p_payload jsonb, p_object text, p_metadata jsonb, p_key text, p_occurred_at timestamptz, p_not_before timestamptz
) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_fault pg_catalog.text;
BEGIN
    v_fault := coalesce(
        {schema}.event_fault(p_topic, p_object, p_key, p_occurred_at, p_not_before),
        CASE WHEN p_payload IS NULL THEN 'payload is missing; write a JSON value, such as ''{}''' END,
        CASE WHEN jsonb_typeof(p_metadata) <> 'object' THEN 'metadata must be a JSON object, such as {"trace":"abc"}' END);
    v_fault := coalesce(v_fault,
        {schema}.size_fault(octet_length(p_payload::text) + coalesce(octet_length(p_metadata::text), 0)));
    IF v_fault IS NOT NULL THEN
        PERFORM {schema}.refuse(v_fault);
    END IF;
END
$body$;

-- Lets a drain that sleeps know that there is something, when the caller commits. Who finds it awake pays nothing: to NOTIFY
-- locks the whole database for the length of a commit. A drain that would sleep must have this lock alone, so that it does not fall asleep
-- beside somebody who was counting on it (postgres/bell.rs). `SET ensue.wake_up = off` leaves it out: then a look a second finds it. So does a queue of
-- notifications that is nearly full: any login can fill it, and to NOTIFY would fail then.
CREATE OR REPLACE FUNCTION {schema}.outbox_ring() RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF current_setting('ensue.wake_up', true) IS DISTINCT FROM 'off' AND NOT pg_try_advisory_xact_lock_shared({lock_asleep})
        AND pg_notification_queue_usage() < {notify_queue_max} THEN
        PERFORM pg_notify('{bell}', '');
    END IF;
END
$body$;

-- What Ensue itself tells of in somebody's own transaction, one event for each: into the outbox, as the lock of the log would be held until that transaction ends, and
-- all who publish would wait for it (H23).
CREATE OR REPLACE FUNCTION {schema}.outbox_tell(p_topics text[], p_payloads text[], p_objects text[]) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    INSERT INTO {schema}.outbox (occurred_at, id, topic, object, payload)
    SELECT clock_timestamp(), {schema}.new_id(), e.topic, e.object, e.payload::jsonb
    FROM unnest(p_topics, p_payloads, p_objects) WITH ORDINALITY e(topic, payload, object, n) ORDER BY e.n;
    PERFORM {schema}.outbox_ring();
END
$body$;

-- Refuses direct messages to subscriptions that are not there.
CREATE OR REPLACE FUNCTION {schema}.check_recipients(p_to uuid[]) RETURNS void LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
BEGIN
    PERFORM {schema}.refuse(format('to is %s, and no subscription has this id; use the id that subscribe() '
        'returned, or leave it out', t.id))
    FROM (SELECT DISTINCT r.id FROM unnest(p_to) r(id) WHERE r.id IS NOT NULL) t
    WHERE NOT EXISTS (
        SELECT 1 FROM {schema}.groups g CROSS JOIN LATERAL (
            SELECT 1 FROM {schema}.subscriptions u WHERE u.group_id = g.id AND u.id = t.id LIMIT 1) s)
    LIMIT 1;
END
$body$;

-- One event; answers its id. The same `key` with the same content is the same event: the id of the first. With another content it is an error.
CREATE OR REPLACE FUNCTION {schema}.publish(
    topic text, payload jsonb DEFAULT '{}', object text DEFAULT NULL, metadata jsonb DEFAULT NULL,
    not_before timestamptz DEFAULT NULL, key text DEFAULT NULL, subscription_id uuid DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
#variable_conflict use_variable
DECLARE
    v_id pg_catalog.uuid := {schema}.new_id();
BEGIN
    PERFORM {schema}.check_event(topic, payload, object, metadata, key, NULL, not_before);
    IF subscription_id IS NOT NULL THEN
        PERFORM {schema}.check_recipients(ARRAY[subscription_id]);
    END IF;
    IF key IS NULL THEN
        INSERT INTO {schema}.outbox (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
        VALUES (clock_timestamp(), not_before, v_id, subscription_id, topic, object, payload, nullif(metadata, '{}'));
    ELSE
        v_id := {schema}.outbox_keyed(v_id, clock_timestamp(), not_before, subscription_id, topic, object, payload, metadata, key,
            {schema}.event_fingerprint(topic, object, payload, metadata, NULL, not_before, subscription_id));
    END IF;
    PERFORM {schema}.outbox_ring();
    RETURN v_id;
END
$body$;

-- What tells whether two publishes under one key are the same. Not the same digest as over HTTP, which is of the text as it was
-- sent: a key that was used from SQL is to be used from SQL.
CREATE OR REPLACE FUNCTION {schema}.event_fingerprint(
    p_topic text, p_object text, p_payload jsonb, p_metadata jsonb, p_occurred_at timestamptz, p_not_before timestamptz, p_to uuid
) RETURNS bytea LANGUAGE sql STABLE
AS $body$
    SELECT sha256(convert_to(jsonb_build_array('sql', p_topic, p_object, p_payload, coalesce(p_metadata, '{}'), extract(epoch FROM p_occurred_at),
        extract(epoch FROM p_not_before), p_to)::text, 'UTF8'))
$body$;

-- An event with a key: the id of the first under this key, if it is the same. Who is in another transaction with the same key at the same
-- time is waited for. What the log knows is looked at after the row is written, so that it cannot be moved in between unseen.
CREATE OR REPLACE FUNCTION {schema}.outbox_keyed(
    p_id uuid, p_occurred_at timestamptz, p_not_before timestamptz, p_to uuid, p_topic text, p_object text, p_payload jsonb,
    p_metadata jsonb, p_key text, p_fingerprint bytea
) RETURNS uuid LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_id pg_catalog.uuid;
    v_fingerprint pg_catalog.bytea;
    v_written boolean;
BEGIN
    LOOP
        INSERT INTO {schema}.outbox
            (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata, key, fingerprint)
        VALUES (p_occurred_at, p_not_before, p_id, p_to, p_topic, p_object, p_payload, nullif(p_metadata, '{}'), p_key, p_fingerprint)
        ON CONFLICT (key) WHERE key IS NOT NULL DO NOTHING;
        v_written := FOUND;
        SELECT {schema}.event_id(k.id_part, k.recorded_at), k.fingerprint INTO v_id, v_fingerprint FROM {schema}.keys k
        WHERE k.key = p_key AND k.recorded_at > clock_timestamp() - interval '{key_window}';
        IF v_id IS NOT NULL AND v_written THEN
            DELETE FROM {schema}.outbox o WHERE o.key = p_key;
        ELSIF v_id IS NULL AND v_written THEN
            IF current_setting('transaction_isolation') <> 'read committed' THEN
                -- The log may know it from after our snapshot. To write it there is a serialization failure then; else it is taken back at once.
                BEGIN
                    INSERT INTO {schema}.keys (key, fingerprint, id_part, recorded_at)
                    VALUES (p_key, p_fingerprint, p_id, p_occurred_at) ON CONFLICT (key) DO NOTHING;
                    RAISE EXCEPTION 'taken back' USING ERRCODE = '{taken_back}';
                EXCEPTION WHEN SQLSTATE '{taken_back}' THEN
                    NULL;
                END;
            END IF;
            RETURN p_id;
        ELSIF v_id IS NULL THEN
            SELECT o.id, o.fingerprint INTO v_id, v_fingerprint FROM {schema}.outbox o WHERE o.key = p_key;
        END IF;
        IF v_id IS NULL THEN
            -- It was moved between the two looks, or, in a transaction with a snapshot of its own, is not to be seen.
            IF current_setting('transaction_isolation') <> 'read committed' THEN
                RAISE EXCEPTION 'the key % was used by a transaction that this one cannot see', quote_literal(p_key)
                    USING ERRCODE = 'serialization_failure', HINT = 'Begin the transaction again.';
            END IF;
            CONTINUE;
        END IF;
        IF v_fingerprint IS DISTINCT FROM p_fingerprint THEN
            RAISE EXCEPTION 'the key % was used for another event (%)', quote_literal(p_key), v_id
                USING ERRCODE = 'unique_violation', HINT = 'Send the same event again, or choose another key.';
        END IF;
        RETURN v_id;
    END LOOP;
END
$body$;

-- Many events in one statement: an array of objects with the fields of POST /v1/events. Answers their ids, in their order: they differ in a counter at
-- the end.
--
-- If all are plainly right, and none has a key, a delay or a time of its own, they are one row of the outbox (outbox_batches_tables.sql): the publisher computes 5 ms
-- for 1,000 of them, and 10 with a row for each. A time is excepted because what a text means as a time is a matter of the publisher's session.
CREATE OR REPLACE FUNCTION {schema}.publish_many(events jsonb) RETURNS SETOF uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_generic_plan
AS $body$
#variable_conflict use_column
DECLARE
    v_id_start pg_catalog.text := left({schema}.new_id()::text, 31);
    v_count int;
    v_bytes bigint;
    v_part pg_catalog.jsonb;
    v_are_plain boolean;
    v_topics pg_catalog.text[];
    v_recipients pg_catalog.text[];
BEGIN
    IF jsonb_typeof(publish_many.events) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'events must be a JSON array of objects, such as [{"topic":"order.paid","payload":{}}]'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    v_count := jsonb_array_length(publish_many.events);
    v_bytes := octet_length(publish_many.events::text);
    IF v_count > {outbox_row_events_max} THEN
        FOR v_part IN
            SELECT jsonb_agg(e.value ORDER BY e.n) FROM jsonb_array_elements(publish_many.events) WITH ORDINALITY e(value, n)
            GROUP BY (e.n - 1) / {outbox_row_events_max} ORDER BY (e.n - 1) / {outbox_row_events_max}
        LOOP
            RETURN QUERY SELECT * FROM {schema}.publish_many(v_part);
        END LOOP;
        RETURN;
    ELSIF v_count > 0 THEN
        SELECT bool_and(CASE WHEN jsonb_typeof(s.value) = 'object' THEN
                s.value - '{topic,object,payload,metadata,to}'::text[] = '{}'
                AND jsonb_typeof(s.value -> 'topic') = 'string'
                AND (s.object IS NULL OR jsonb_typeof(s.value -> 'object') = 'string')
                -- No event is too large if all together are not: most calls measure the text once.
                AND (v_bytes <= {event_bytes_max} OR octet_length(s.value::text) <= {event_bytes_max})
                AND (NOT s.value ?| '{metadata,to}'::text[] OR
                    coalesce(jsonb_typeof(s.value -> 'metadata') IN ('object', 'null'), true)
                    -- What is no uuid is refused now, and not when it is moved.
                    AND (NOT s.value ? 'to' OR coalesce(s.value ->> 'to' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$', false)))
                ELSE false END)
                AND v_bytes <= {page_bytes_max}
                AND coalesce(min(octet_length(s.object)) > 0 AND max(octet_length(s.object)) <= {object_bytes_max}, true)
                -- The objects are searched for such characters together: one search takes a third of the time.
                AND {schema}.plain_fault(string_agg(s.object, ''), {page_bytes_max}) IS NULL,
            array_agg(DISTINCT s.topic),
            array_agg(s.value ->> 'to') FILTER (WHERE s.value ? 'to')
        INTO v_are_plain, v_topics, v_recipients
        FROM (
            SELECT e.value, e.value ->> 'object' AS object, (e.value ->> 'topic') COLLATE "C" AS topic
            FROM jsonb_array_elements(publish_many.events) e(value) OFFSET 0
        ) s;
        v_are_plain := v_are_plain AND NOT EXISTS (
            SELECT 1 FROM unnest(v_topics) t(topic) WHERE {schema}.dotted_fault(t.topic, '') IS NOT NULL OR starts_with(t.topic, '{reserved}'));
    END IF;
    IF v_are_plain THEN
        IF v_recipients IS NOT NULL THEN
            PERFORM {schema}.check_recipients(v_recipients::uuid[]);
        END IF;
        INSERT INTO {schema}.outbox (occurred_at, id, count, events)
        VALUES (clock_timestamp(), (v_id_start || '00000')::uuid, v_count, publish_many.events);
        RETURN QUERY SELECT (v_id_start || lpad(to_hex(s.n), 5, '0'))::uuid FROM generate_series(1, v_count) s(n);
    ELSIF v_count > 0 THEN
        RETURN QUERY SELECT * FROM {schema}.publish_each(publish_many.events, v_id_start);
    END IF;
    IF v_count > 0 THEN
        PERFORM {schema}.outbox_ring();
    END IF;
END
$body$;

-- Names the field of the first event that is no time or no uuid where one is due.
CREATE OR REPLACE FUNCTION {schema}.check_readable(p_events jsonb) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_each pg_catalog.record;
BEGIN
    FOR v_each IN
        SELECT f.name, e.value ->> f.name AS text
        FROM jsonb_array_elements(p_events) WITH ORDINALITY e(value, n) CROSS JOIN unnest('{occurred_at,not_before,to}'::text[]) f(name)
        WHERE e.value ->> f.name IS NOT NULL ORDER BY e.n
    LOOP
        BEGIN
            IF v_each.name = 'to' THEN
                PERFORM v_each.text::uuid;
            ELSE
                PERFORM v_each.text::timestamptz;
            END IF;
        EXCEPTION WHEN data_exception THEN
            PERFORM {schema}.refuse(format('%s is %s; write %s', v_each.name, to_json(left(v_each.text, 100)), CASE WHEN v_each.name = 'to'
                THEN 'the id of a subscription' ELSE 'a time such as 2026-11-15T12:00:00Z' END));
        END;
    END LOOP;
END
$body$;

-- The same with a row for each, which says what is wrong if something is. Without keys all are written at once.
CREATE OR REPLACE FUNCTION {schema}.publish_each(p_events jsonb, p_id_start text) RETURNS SETOF uuid LANGUAGE plpgsql VOLATILE
SET jit = off
AS $body$
DECLARE
    v_now pg_catalog.timestamptz := clock_timestamp();
    v_strange pg_catalog.jsonb;
    v_event pg_catalog.record;
    v_id pg_catalog.uuid;
BEGIN
    -- Reads are cheap here beside the rows that are written; what cannot be read is named.
    SELECT e.value INTO v_strange FROM jsonb_array_elements(p_events) e(value)
    WHERE CASE WHEN jsonb_typeof(e.value) = 'object'
        THEN e.value - '{topic,object,payload,metadata,occurred_at,not_before,key,to}'::text[] <> '{}' ELSE true END
    LIMIT 1;
    IF FOUND AND jsonb_typeof(v_strange) <> 'object' THEN
        RAISE EXCEPTION 'each of the events must be a JSON object, such as {"topic":"order.paid","payload":{}}'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF FOUND THEN
        RAISE EXCEPTION 'an event has no field %; there are topic, object, payload, metadata, occurred_at, not_before, key and to',
            (SELECT quote_literal(f.name) FROM jsonb_object_keys(
                v_strange - '{topic,object,payload,metadata,occurred_at,not_before,key,to}'::text[]) f(name) LIMIT 1)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM {schema}.refuse(format('%s is %s; write a text', f.name, left((e.value -> f.name)::text, 100)))
    FROM jsonb_array_elements(p_events) WITH ORDINALITY e(value, n) CROSS JOIN unnest('{topic,object,occurred_at,not_before,key,to}'::text[]) f(name)
    WHERE jsonb_typeof(e.value -> f.name) NOT IN ('string', 'null');
    BEGIN
        PERFORM count((e.value ->> 'occurred_at')::timestamptz), count((e.value ->> 'not_before')::timestamptz), count((e.value ->> 'to')::uuid)
        FROM jsonb_array_elements(p_events) e(value);
    EXCEPTION WHEN data_exception THEN
        PERFORM {schema}.check_readable(p_events);
    END;
    PERFORM {schema}.check_recipients(ARRAY(
        SELECT (e.value ->> 'to')::uuid FROM jsonb_array_elements(p_events) e(value) WHERE e.value ->> 'to' IS NOT NULL));
    IF NOT jsonb_path_exists(p_events, '$[*].key ? (@ != null)') THEN
        RETURN QUERY WITH sent AS MATERIALIZED (
            SELECT e.value ->> 'topic' AS topic, e.value ->> 'object' AS object, coalesce(e.value -> 'payload', '{}') AS payload,
                nullif(e.value -> 'metadata', 'null') AS metadata, (e.value ->> 'occurred_at')::timestamptz AS occurred_at,
                (e.value ->> 'not_before')::timestamptz AS not_before, (e.value ->> 'to')::uuid AS to_subscription,
                (p_id_start || lpad(to_hex(e.n), 5, '0'))::uuid AS id
            FROM jsonb_array_elements(p_events) WITH ORDINALITY e(value, n)
        ), stored AS (
            INSERT INTO {schema}.outbox (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
            SELECT coalesce(s.occurred_at, v_now), s.not_before, s.id, s.to_subscription, s.topic, s.object, s.payload, nullif(s.metadata, '{}')
            FROM sent s
            WHERE {schema}.check_event(s.topic, s.payload, s.object, s.metadata, NULL, s.occurred_at, s.not_before) IS NOT NULL
            RETURNING outbox.id
        )
        -- RETURNING keeps the order in which the rows were inserted, which is the order of the array.
        SELECT s.id FROM stored s;
    ELSE
        FOR v_event IN
            SELECT e.value ->> 'topic' AS topic, e.value ->> 'object' AS object, coalesce(e.value -> 'payload', '{}') AS payload,
                nullif(e.value -> 'metadata', 'null') AS metadata, (e.value ->> 'occurred_at')::timestamptz AS occurred_at,
                (e.value ->> 'not_before')::timestamptz AS not_before, (e.value ->> 'to')::uuid AS to_subscription, e.value ->> 'key' AS key
            FROM jsonb_array_elements(p_events) WITH ORDINALITY e(value, n) ORDER BY e.n
        LOOP
            PERFORM {schema}.check_event(v_event.topic, v_event.payload, v_event.object, v_event.metadata, v_event.key, v_event.occurred_at,
                v_event.not_before);
            IF v_event.key IS NULL THEN
                INSERT INTO {schema}.outbox (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
                VALUES (coalesce(v_event.occurred_at, clock_timestamp()), v_event.not_before, {schema}.new_id(), v_event.to_subscription,
                    v_event.topic, v_event.object, v_event.payload, nullif(v_event.metadata, '{}'))
                RETURNING outbox.id INTO v_id;
                RETURN NEXT v_id;
            ELSE
                RETURN NEXT {schema}.outbox_keyed({schema}.new_id(), coalesce(v_event.occurred_at, clock_timestamp()), v_event.not_before,
                    v_event.to_subscription, v_event.topic, v_event.object, v_event.payload, v_event.metadata, v_event.key,
                    {schema}.event_fingerprint(v_event.topic, v_event.object, v_event.payload, v_event.metadata, v_event.occurred_at,
                        v_event.not_before, v_event.to_subscription));
            END IF;
        END LOOP;
    END IF;
END
$body$;

-- Moves what is committed in the outbox, and delayed events that are due, into the log, at most so many of each, and answers how many it has taken: an event that
-- is to wait for its time counts when it is taken from the outbox, and again when it enters the log. 0 says that nothing is left to be moved now. For those
-- who run no node. Call it in a transaction of its own: others who append wait for its end.
CREATE OR REPLACE FUNCTION {schema}.poll_for_events(chunk_size bigint DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '{log_lock_time_max}'
AS $body$
DECLARE
    v_moved bigint;
    v_drained pg_catalog.text := coalesce(current_setting('{drained}', true), '');
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'poll_for_events needs a transaction that is read committed, this one is %', current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction', HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED';
    END IF;
    chunk_size := coalesce(chunk_size, {schema}.setting('poll_chunk_size', '1000')::bigint);
    IF chunk_size NOT BETWEEN 1 AND {poll_chunk_max} THEN
        RAISE EXCEPTION 'chunk_size is %; choose from 1 to {poll_chunk_max}', chunk_size
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    BEGIN
        SELECT r.o_count INTO v_moved FROM {schema}.release_due(NULL, 0, chunk_size, {page_bytes_max}) r;
    EXCEPTION WHEN check_violation THEN
        -- The only check that a row of the log can fail is that of its place: there is no partition for it. Room for as much as one call may move.
        PERFORM {schema}.ensure_partitions(s.o_rows, greatest(s.o_ahead, 2 * chunk_size + {outbox_row_events_max})) FROM {schema}.partitions_set() s;
        SELECT r.o_count INTO v_moved FROM {schema}.release_due(NULL, 0, chunk_size, {page_bytes_max}) r;
    END;
    -- What the caller's transaction publishes after this call is not drained, though its number is smaller.
    PERFORM set_config('{drained}', v_drained, false);
    RETURN v_moved;
END
$body$;
