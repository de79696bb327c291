-- Which subscriptions that are looked up by keys want which of these events?
--
-- Of the conditions of a group: their numbers, their SQL, the SQL of their keys (null: its
-- subscriptions are not looked up), and their keys. The events are in the order of their places.
--
-- Beyond 100,000 pairs of an event and a subscription only the events before o_cut are looked at, but
-- one at least. Subscriptions are read for 2,000 pairs at a time, whose params fit into memory.
CREATE OR REPLACE FUNCTION {schema}.pull_keyed(
    p_group bigint, p_gid text, p_events {schema}.condition_event[],
    p_conditions bigint[], p_sql text[], p_key_sql text[], p_keys jsonb[],
    OUT o_cut bigint, OUT o_seqs bigint[], OUT o_ids uuid[],
    OUT o_failed_seqs bigint[], OUT o_failed_ids uuid[], OUT o_failed_with text[]
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    c_pairs_max CONSTANT int := 100000;
    c_batch CONSTANT int := 2000;
    v_served_at pg_catalog.timestamptz := {schema}.served_at(p_group);
    v_now pg_catalog.timestamptz := clock_timestamp();
    v_last int := cardinality(p_events); -- the event up to which there are few enough pairs
    v_pairs int := 0;
    v_count int;
    v_keys pg_catalog.record; -- of the events
    v_events int[]; -- pairs: an event by its place, and a subscription
    v_ids pg_catalog.uuid[];
    v_are_exact boolean[];
    v_expired pg_catalog.uuid[];
    v_batch pg_catalog.record;
    v_found pg_catalog.record;
BEGIN
    o_seqs := '{}';
    o_ids := '{}';
    o_failed_seqs := '{}';
    o_failed_ids := '{}';
    o_failed_with := '{}';
    SELECT array_agg(u.id) INTO v_expired FROM {schema}.subscriptions u
    WHERE u.group_id + 0 = p_group AND u.expires_in < {schema}.elapsed(v_served_at, v_now)
        AND u.expires_in < {schema}.elapsed(u.touched_at, v_now);
    FOR i IN 1..coalesce(cardinality(p_conditions), 0) LOOP
        CONTINUE WHEN v_last = 0 OR p_key_sql[i] IS NULL;
        SELECT k.o_keys, k.o_are_exact INTO v_keys
        FROM {schema}.condition_keys_of_events(p_keys[i], {schema}.condition_values(p_key_sql[i], p_events[:v_last])) k;
        LOOP
            -- Event by event, so that what is beyond the limit is not looked for.
            IF array_position(v_keys.o_keys, NULL) IS NULL THEN
                SELECT array_agg(f.event), array_agg(f.id), array_agg(f.is_exact) INTO v_events, v_ids, v_are_exact
                FROM (
                    SELECT l.event::int AS event, k.id, k.is_exact AND l.is_exact AS is_exact
                    FROM unnest(v_keys.o_keys[:v_last], v_keys.o_are_exact) WITH ORDINALITY l(key, is_exact, event)
                    CROSS JOIN LATERAL (
                        SELECT k.id, k.is_exact FROM {schema}.subscription_keys k
                        WHERE k.condition = p_conditions[i] AND k.key = l.key OFFSET 0
                    ) k
                    LIMIT CASE WHEN v_last > 1 THEN greatest(0, c_pairs_max - v_pairs) + 1 END
                ) f;
            ELSE
                -- An event without a key may be for any of them.
                SELECT array_agg(f.event), array_agg(f.id), array_agg(f.is_exact) INTO v_events, v_ids, v_are_exact
                FROM (
                    SELECT l.event::int AS event, k.id, k.is_exact AND l.is_exact AS is_exact
                    FROM unnest(v_keys.o_keys[:v_last], v_keys.o_are_exact) WITH ORDINALITY l(key, is_exact, event)
                    CROSS JOIN LATERAL (
                        SELECT k.id, k.is_exact FROM {schema}.subscription_keys k
                        WHERE k.condition = p_conditions[i] AND k.key = l.key
                        UNION ALL
                        SELECT DISTINCT k.id, false FROM {schema}.subscription_keys k
                        WHERE l.key IS NULL AND k.condition = p_conditions[i] AND k.key IS NOT NULL OFFSET 0
                    ) k
                    LIMIT CASE WHEN v_last > 1 THEN greatest(0, c_pairs_max - v_pairs) + 1 END
                ) f;
            END IF;
            v_count := coalesce(cardinality(v_ids), 0);
            EXIT WHEN v_last = 1 OR v_pairs + v_count <= c_pairs_max;
            v_last := greatest(1, v_events[v_count] - 1);
            IF v_events[v_count] > 1 THEN
                v_count := (SELECT count(*) FROM unnest(v_events) e WHERE e <= v_last);
                EXIT;
            END IF;
        END LOOP;
        v_pairs := v_pairs + v_count;
        IF true = ANY (v_are_exact) THEN
            SELECT o_seqs || coalesce(array_agg(p_events[x.event].seq), '{}'), o_ids || coalesce(array_agg(x.id), '{}')
            INTO o_seqs, o_ids
            FROM unnest(v_events[:v_count], v_ids[:v_count], v_are_exact[:v_count]) x(event, id, is_exact)
            WHERE x.is_exact AND (v_expired IS NULL OR x.id <> ALL (v_expired));
            SELECT array_agg(x.event), array_agg(x.id), count(*) INTO v_events, v_ids, v_count
            FROM unnest(v_events[:v_count], v_ids[:v_count], v_are_exact[:v_count]) x(event, id, is_exact) WHERE NOT x.is_exact;
        END IF;
        FOR j IN 0..(v_count - 1) / c_batch LOOP
            SELECT array_agg(x.event) AS events, array_agg(
                ROW(u.id, p_gid, u.params::jsonb, u.topic, u.condition)::{schema}.condition_subscription) AS subscriptions
            INTO v_batch
            FROM unnest(
                v_events[j * c_batch + 1:least(v_count, (j + 1) * c_batch)],
                v_ids[j * c_batch + 1:least(v_count, (j + 1) * c_batch)]) x(event, id)
            JOIN {schema}.subscriptions u ON u.group_id = p_group AND u.id = x.id
            WHERE u.expires_in IS NULL OR u.expires_in >= {schema}.elapsed(greatest(u.touched_at, v_served_at), v_now);
            CONTINUE WHEN v_batch.events IS NULL;
            SELECT * INTO v_found
            FROM {schema}.condition_evaluate(p_sql[i], p_events, v_batch.subscriptions, v_batch.events);
            o_seqs := o_seqs || v_found.o_seqs;
            o_ids := o_ids || v_found.o_ids;
            o_failed_seqs := o_failed_seqs || v_found.o_failed_seqs;
            o_failed_ids := o_failed_ids || v_found.o_failed_ids;
            o_failed_with := o_failed_with || v_found.o_failed_with;
        END LOOP;
    END LOOP;
    IF v_last < cardinality(p_events) THEN
        o_cut := p_events[v_last].seq + 1;
        SELECT coalesce(array_agg(x.seq), '{}'), coalesce(array_agg(x.id), '{}') INTO o_seqs, o_ids
        FROM unnest(o_seqs, o_ids) x(seq, id) WHERE x.seq < o_cut;
        SELECT coalesce(array_agg(x.seq), '{}'), coalesce(array_agg(x.id), '{}'), coalesce(array_agg(x.said), '{}')
        INTO o_failed_seqs, o_failed_ids, o_failed_with
        FROM unnest(o_failed_seqs, o_failed_ids, o_failed_with) x(seq, id, said) WHERE x.seq < o_cut;
    END IF;
END
$body$;
