-- Writes events to the outbox in the caller's transaction, one row for each. Returns their ids in
-- order; `repeated ` precedes the id of an event whose key was known.
--
-- For the library (own/publish.rs). The checks are those of `publish`, because a login with the
-- role for publishers may call this directly. Ids are made here, from the server's clock, with a
-- counter in the last digits: ids of the caller could be those of other events.
--
-- Arrays are parallel; one is null when all its elements would be.
--   p_payloads      as text: made jsonb where the row is built
--   p_fingerprints  SHA-256 of each event with a key
CREATE OR REPLACE FUNCTION {schema}.outbox_put(
    p_topics text[], p_payloads text[], p_metadata text[], p_occurred_at timestamptz[],
    p_not_before timestamptz[], p_to uuid[], p_objects text[], p_keys text[], p_fingerprints bytea[]
) RETURNS text[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
BEGIN
    RETURN {schema}.outbox_put_at(NULL, p_topics, p_payloads, p_metadata, p_occurred_at, p_not_before,
        p_to, p_objects, p_keys, p_fingerprints);
END
$body$;

-- Bytes of JSON text, or half of those that jsonb writes if they are more: it adds at most one blank
-- for every two bytes, and writes all digits of a number with an exponent.
CREATE OR REPLACE FUNCTION {schema}.written_bytes(p_json text) RETURNS bigint LANGUAGE sql STABLE
AS $body$
    SELECT greatest(octet_length(p_json), CASE WHEN octet_length(p_json) <= {event_bytes_max} AND p_json ~ '[0-9][eE]'
        THEN octet_length(p_json::jsonb::text) / 2 END)
$body$;

-- The fault of what outbox_put is given as content, or null.
CREATE OR REPLACE FUNCTION {schema}.put_fault(p_payload text, p_metadata text, p_key text, p_fingerprint bytea)
RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT CASE
        WHEN p_payload IS NULL THEN 'payload is missing; write a JSON value, such as ''{}'''
        WHEN {schema}.written_bytes(p_payload) + coalesce({schema}.written_bytes(p_metadata), 0) > {event_bytes_max}
            THEN {schema}.size_fault(
                {schema}.written_bytes(p_payload) + coalesce({schema}.written_bytes(p_metadata), 0))
        WHEN jsonb_typeof(p_metadata::jsonb) <> 'object'
            THEN 'metadata must be a JSON object, such as {"trace":"abc"}'
        WHEN p_key IS NOT NULL AND octet_length(p_fingerprint) IS DISTINCT FROM 32
            THEN 'fingerprint must have 32 bytes for an event with a key'
    END
$body$;

-- The same at the time of an injected clock (p_now); the server's clock if it is null. Not granted
-- to publishers: the time becomes that of the ids.
--
-- An event with a key is written by itself: another transaction with the same key is waited for
-- (fn_publish.sql). The order of the call is the order in the log. Two transactions with the same
-- two keys in different order deadlock; the server ends one of them with an error.
CREATE OR REPLACE FUNCTION {schema}.outbox_put_at(
    p_now timestamptz, p_topics text[], p_payloads text[], p_metadata text[],
    p_occurred_at timestamptz[], p_not_before timestamptz[], p_to uuid[], p_objects text[],
    p_keys text[], p_fingerprints bytea[]
) RETURNS text[] LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz := coalesce(p_now, clock_timestamp());
    v_count int := cardinality(p_topics);
    v_id_start pg_catalog.text;
    v_ids pg_catalog.text[];
    v_event pg_catalog.record;
    v_id pg_catalog.uuid;
    v_fault pg_catalog.text;
BEGIN
    IF (v_count BETWEEN 1 AND {outbox_put_events_max} AND cardinality(p_payloads) = v_count
        AND coalesce(cardinality(p_metadata), v_count) = v_count
        AND coalesce(cardinality(p_occurred_at), v_count) = v_count
        AND coalesce(cardinality(p_not_before), v_count) = v_count
        AND coalesce(cardinality(p_to), v_count) = v_count
        AND coalesce(cardinality(p_objects), v_count) = v_count
        AND coalesce(cardinality(p_keys), v_count) = v_count
        AND coalesce(cardinality(p_fingerprints), v_count) = v_count) IS NOT TRUE
    THEN
        PERFORM {schema}.refuse(CASE WHEN v_count BETWEEN 1 AND {outbox_put_events_max}
            THEN format('%s has %s elements; write %s, one for each topic', a.name, a.count, v_count)
            ELSE format('topics has %s elements; write 1 to {outbox_put_events_max}', coalesce(v_count, 0))
            END)
        FROM (VALUES
            ('payloads', coalesce(cardinality(p_payloads), 0)), ('metadata', cardinality(p_metadata)),
            ('occurred_at', cardinality(p_occurred_at)), ('not_before', cardinality(p_not_before)),
            ('to', cardinality(p_to)), ('objects', cardinality(p_objects)),
            ('keys', cardinality(p_keys)), ('fingerprints', cardinality(p_fingerprints)), ('topics', -1)
        ) a(name, count)
        WHERE a.count <> v_count OR v_count IS NULL LIMIT 1;
    END IF;
    IF p_to IS NOT NULL THEN
        PERFORM {schema}.check_recipients(p_to);
    END IF;
    v_id_start := {schema}.id_start(v_now);
    IF v_count = 1 AND p_keys IS NULL THEN
        -- The common case, without a set: a third of the time.
        v_fault := coalesce(
            {schema}.event_fault(p_topics[1], p_objects[1], NULL, p_occurred_at[1], p_not_before[1]),
            {schema}.put_fault(p_payloads[1], p_metadata[1], NULL, NULL));
        IF v_fault IS NOT NULL THEN
            PERFORM {schema}.refuse(v_fault);
        END IF;
        v_ids := ARRAY[v_id_start || '00001'];
        INSERT INTO {schema}.outbox
            (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
        VALUES (coalesce(p_occurred_at[1], v_now), p_not_before[1], v_ids[1]::uuid, p_to[1], p_topics[1],
            p_objects[1], p_payloads[1]::jsonb, p_metadata[1]::jsonb);
        PERFORM {schema}.outbox_ring();
        RETURN v_ids;
    END IF;
    PERFORM {schema}.refuse(e.fault) FROM (
        SELECT coalesce(
            {schema}.event_fault(b.topic, b.object, b.key, b.occurred_at, b.not_before),
            {schema}.put_fault(b.payload, b.metadata, b.key, b.fingerprint)) AS fault
        FROM unnest(p_topics, p_payloads, p_metadata, p_occurred_at, p_not_before, p_objects, p_keys,
                p_fingerprints)
            b(topic, payload, metadata, occurred_at, not_before, object, key, fingerprint)
    ) e WHERE e.fault IS NOT NULL LIMIT 1;
    v_ids := ARRAY(
        SELECT v_id_start || lpad(to_hex(g.n), 5, '0') FROM generate_series(1, v_count) g(n));
    IF p_keys IS NULL THEN
        INSERT INTO {schema}.outbox
            (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
        SELECT coalesce(b.occurred_at, v_now), b.not_before, b.id::uuid, b.to_subscription, b.topic,
            b.object, b.payload::jsonb, b.metadata::jsonb
        FROM (
            SELECT unnest(v_ids) AS id, unnest(p_topics) AS topic, unnest(p_payloads) AS payload,
                unnest(p_metadata) AS metadata, unnest(p_occurred_at) AS occurred_at,
                unnest(p_not_before) AS not_before, unnest(p_to) AS to_subscription,
                unnest(p_objects) AS object
        ) b;
    ELSE
        FOR v_event IN
            SELECT b.*
            FROM unnest(v_ids, p_topics, p_payloads, p_metadata, p_occurred_at, p_not_before, p_to,
                    p_objects, p_keys, p_fingerprints) WITH ORDINALITY
                b(id, topic, payload, metadata, occurred_at, not_before, to_subscription, object, key,
                    fingerprint, n)
            ORDER BY b.n
        LOOP
            IF v_event.key IS NULL THEN
                INSERT INTO {schema}.outbox
                    (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
                VALUES (coalesce(v_event.occurred_at, v_now), v_event.not_before, v_event.id::uuid,
                    v_event.to_subscription, v_event.topic, v_event.object, v_event.payload::jsonb,
                    v_event.metadata::jsonb);
            ELSE
                v_id := {schema}.outbox_keyed(v_event.id::uuid, coalesce(v_event.occurred_at, v_now),
                    v_event.not_before, v_event.to_subscription, v_event.topic, v_event.object,
                    v_event.payload::jsonb, v_event.metadata::jsonb, v_event.key, v_event.fingerprint);
                IF v_id <> v_event.id::uuid THEN
                    v_ids[v_event.n] := 'repeated ' || v_id;
                END IF;
            END IF;
        END LOOP;
    END IF;
    PERFORM {schema}.outbox_ring();
    RETURN v_ids;
END
$body$;
