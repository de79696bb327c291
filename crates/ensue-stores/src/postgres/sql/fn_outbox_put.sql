-- Publishes what the library has checked, in the caller's transaction: one row of the outbox for each event. Answers their ids, in their order.
--
-- Arrays are parallel; one is null when all its elements would be.
--   p_now        the injected clock's time, or null
--   p_id_parts   the ids without their time, as in append: it is put in here, by the server's clock, because what makes an id findable is
--                that it is not younger than its event's place in the log
--   p_payloads   as text: made jsonb where the row is built
--
-- An event with a key takes the way of its own: whoever is in another transaction with the same key is waited for (fn_publish.sql). In the
-- order of the call, which is the order in the log; two transactions with the same two keys in different order may so wait for each other, which the
-- server notices and ends with an error for one of them.
CREATE OR REPLACE FUNCTION {schema}.outbox_put(
    p_now timestamptz, p_id_parts uuid[], p_topics text[], p_payloads text[], p_metadata text[], p_occurred_at timestamptz[],
    p_not_before timestamptz[], p_to uuid[], p_objects text[], p_keys text[], p_fingerprints bytea[]
) RETURNS text[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_time text := right(lpad(to_hex(trunc(extract(epoch FROM v_now) * 1000)::bigint), 12, '0'), 12) || '7';
    v_ids uuid[] := ARRAY(
        SELECT (v_time || right(replace(p.part::text, '-', ''), 19))::uuid FROM unnest(p_id_parts) WITH ORDINALITY p(part, n) ORDER BY p.n);
    v_event record;
BEGIN
    IF p_keys IS NULL THEN
        INSERT INTO {schema}.outbox (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
        SELECT coalesce(b.occurred_at, v_now), b.not_before, b.id, b.to_subscription, b.topic, b.object, b.payload::jsonb, b.metadata::jsonb
        FROM (
            SELECT unnest(v_ids) AS id, unnest(p_topics) AS topic, unnest(p_payloads) AS payload, unnest(p_metadata) AS metadata,
                unnest(p_occurred_at) AS occurred_at, unnest(p_not_before) AS not_before, unnest(p_to) AS to_subscription,
                unnest(p_objects) AS object
        ) b;
    ELSE
        FOR v_event IN
            SELECT b.* FROM unnest(v_ids, p_topics, p_payloads, p_metadata, p_occurred_at, p_not_before, p_to, p_objects, p_keys, p_fingerprints)
                WITH ORDINALITY b(id, topic, payload, metadata, occurred_at, not_before, to_subscription, object, key, fingerprint, n)
            ORDER BY b.n
        LOOP
            IF v_event.key IS NULL THEN
                INSERT INTO {schema}.outbox (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
                VALUES (coalesce(v_event.occurred_at, v_now), v_event.not_before, v_event.id, v_event.to_subscription, v_event.topic,
                    v_event.object, v_event.payload::jsonb, v_event.metadata::jsonb);
            ELSE
                v_ids[v_event.n] := {schema}.outbox_keyed(v_event.id, coalesce(v_event.occurred_at, v_now), v_event.not_before,
                    v_event.to_subscription, v_event.topic, v_event.object, v_event.payload::jsonb, v_event.metadata::jsonb, v_event.key,
                    v_event.fingerprint);
            END IF;
        END LOOP;
    END IF;
    PERFORM {schema}.outbox_ring();
    RETURN v_ids::text[];
END
$body$;
