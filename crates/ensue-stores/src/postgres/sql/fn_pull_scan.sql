-- Which events of the log are for a group, after this place? The same as ensue/src/groups/scan.rs, with conditions evaluated by Postgres.
--
-- Looks at pages until there are p_limit events, the log ends, 10,000 places or a quarter of a second are behind; at one page at least. o_at: everything
-- up to here was looked at. o_seqs and o_ids are pairs: an event and a subscription that wants it. o_failed_*: whose condition failed on which.
--
-- A page is always read before the version of the group: whoever subscribed before an event was published is among those it is matched with.
-- It is cut by ORDER BY before LIMIT, wherever its rows lie (H3), at 4 MiB, and at so many events that
-- about 100,000 pairs of an event and a subscription are evaluated at most.
-- The `id` of an event is half of it, as it is stored, unless a condition looks at it: to put it
-- together takes longer than all the rest.
--
-- Subscriptions whose condition has keys are looked up by them (fn_condition_keys.sql), and those that
-- are found are evaluated (pull_keyed). All others are read once, and evaluated for every event.
CREATE OR REPLACE FUNCTION {schema}.pull_scan(
    p_group bigint, p_gid text, p_after bigint, p_limit int,
    OUT o_at bigint, OUT o_events {schema}.condition_event[], OUT o_seqs bigint[], OUT o_ids uuid[],
    OUT o_failed_seqs bigint[], OUT o_failed_ids uuid[], OUT o_failed_with text[], OUT o_lost_from bigint, OUT o_lost_to bigint
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_began pg_catalog.timestamptz := clock_timestamp();
    v_served_at pg_catalog.timestamptz;
    v_now pg_catalog.timestamptz;
    v_trimmed_to bigint;
    v_version bigint;
    v_known bigint; -- the version whose subscriptions are at hand
    v_conditions bigint[]; -- their numbers
    v_texts pg_catalog.text[];
    v_keys pg_catalog.jsonb[];
    v_sql pg_catalog.text[];
    v_key_sql pg_catalog.text[];
    v_fault pg_catalog.text[]; -- why there is no SQL for one
    v_part pg_catalog.record;
    v_unkeyed {schema}.condition_subscription[]; -- by condition: those of each from v_first on, so many as v_count says
    v_first int[];
    v_count int[];
    v_page {schema}.condition_event[];
    v_to_all {schema}.condition_event[];
    v_rows int; -- how many events are looked at next: more each time
    v_reads_ids boolean;
    v_room bigint := 4194304;
    v_bytes bigint;
    v_wanted bigint[];
    v_end bigint;
    v_found pg_catalog.record;
    v_seqs bigint[];
    v_ids pg_catalog.uuid[];
    v_failed_seqs bigint[];
    v_failed_ids pg_catalog.uuid[];
    v_failed_with pg_catalog.text[];
BEGIN
    o_at := p_after;
    o_events := '{}';
    o_seqs := '{}';
    o_ids := '{}';
    o_failed_seqs := '{}';
    o_failed_ids := '{}';
    o_failed_with := '{}';
    SELECT least(greatest(20, least(p_limit, 500)), greatest(1, 100000 / greatest(1, count(*)))) INTO v_rows
    FROM {schema}.subscription_conditions c JOIN {schema}.subscription_keys k ON k.condition = c.number AND k.key IS NULL
    WHERE c.group_id = p_group;
    LOOP
        SELECT s.trimmed_to INTO v_trimmed_to FROM {schema}.log_state s;
        SELECT array_agg(ROW(p.seq, p.prev, p.id_part, p.topic, p.object, p.payload, coalesce(p.metadata, '{}'),
                {schema}.stored_time(coalesce(p.occurred_at, p.recorded_at)), {schema}.stored_time(p.recorded_at), p.to_subscription)::{schema}.condition_event ORDER BY p.seq)
        INTO v_page
        FROM (
            SELECT e.*, coalesce(sum({bytes_of_e}) OVER (ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS size_before
            FROM (
                SELECT * FROM {schema}.stored_events log WHERE log.seq > o_at AND log.seq > v_trimmed_to ORDER BY log.seq LIMIT v_rows
            ) e
        ) p WHERE p.size_before <= 4194304;
        -- What was trimmed before it could be read, or while this was reading.
        SELECT greatest(v_trimmed_to, s.trimmed_to) INTO v_trimmed_to FROM {schema}.log_state s;
        IF v_trimmed_to > o_at THEN
            o_lost_from := coalesce(o_lost_from, o_at + 1);
            o_lost_to := v_trimmed_to;
            o_at := v_trimmed_to;
            v_page := ARRAY(SELECT e FROM unnest(v_page) e WHERE e.seq > o_at ORDER BY e.seq);
        END IF;
        EXIT WHEN coalesce(cardinality(v_page), 0) = 0;

        v_served_at := {schema}.served_at(p_group);
        v_now := clock_timestamp();
        SELECT g.version INTO v_version FROM {schema}.groups g WHERE g.id = p_group;
        IF v_version IS DISTINCT FROM v_known THEN
            SELECT array_agg(c.number ORDER BY c.number), array_agg(c.condition ORDER BY c.number), array_agg(c.keys ORDER BY c.number)
            INTO v_conditions, v_texts, v_keys
            FROM {schema}.subscription_conditions c WHERE c.group_id = p_group;
            v_sql := '{}';
            v_key_sql := '{}';
            v_fault := '{}';
            -- One that came over HTTP may be none for condition_tokens. It gets nothing, and its subscriptions are told.
            FOR i IN 1..coalesce(cardinality(v_conditions), 0) LOOP
                v_sql[i] := NULL;
                v_key_sql[i] := NULL;
                v_fault[i] := NULL;
                BEGIN
                    IF v_keys[i] IS NULL THEN
                        v_sql[i] := {schema}.condition_sql(v_texts[i]);
                    ELSE
                        SELECT array_to_string(t, ' ') AS sql, k.o_sql, k.o_keys INTO v_part
                        FROM {schema}.condition_tokens(v_texts[i]) t CROSS JOIN LATERAL {schema}.condition_keys(t) k;
                        v_sql[i] := v_part.sql;
                        -- Another version may have worked out other keys: then all are evaluated.
                        IF v_part.o_keys = v_keys[i] THEN
                            v_key_sql[i] := v_part.o_sql;
                        END IF;
                    END IF;
                EXCEPTION WHEN invalid_parameter_value THEN
                    v_fault[i] := sqlerrm;
                END;
            END LOOP;
            SELECT array_agg(ROW(u.id, p_gid, u.params::jsonb, u.topic, u.condition)::{schema}.condition_subscription ORDER BY k.n, u.id)
            INTO v_unkeyed
            FROM (
                SELECT DISTINCT c.n, k.id FROM unnest(v_conditions, v_key_sql) WITH ORDINALITY c(number, sql, n)
                JOIN {schema}.subscription_keys k ON k.condition = c.number AND (c.sql IS NULL OR k.key IS NULL)
            ) k
            JOIN {schema}.subscriptions u ON u.group_id = p_group AND u.id = k.id
            WHERE u.expires_in IS NULL OR u.expires_in >= {schema}.elapsed(greatest(u.touched_at, v_served_at), v_now);
            SELECT array_agg(coalesce(x.first, 0) ORDER BY c.n), array_agg(coalesce(x.count, 0) ORDER BY c.n)
            INTO v_first, v_count
            FROM unnest(v_texts) WITH ORDINALITY c(condition, n)
            LEFT JOIN (
                SELECT coalesce(u.condition, '') AS condition, min(u.n)::int AS first, count(*)::int AS count
                FROM unnest(v_unkeyed) WITH ORDINALITY u(id, group_id, params, topic, condition, n) GROUP BY 1
            ) x ON x.condition = coalesce(c.condition, '');
            v_known := v_version;
            v_reads_ids := coalesce(array_to_string(v_texts, ' ') ~* $re$\mid\M$re$, false);
        END IF;
        IF v_reads_ids THEN
            v_page := ARRAY(
                SELECT ROW(e.seq, e.prev, {schema}.event_id(e.id, e.recorded_at), e.topic, e.object, e.payload, e.metadata, e.occurred_at,
                    e.recorded_at, e.to_subscription)::{schema}.condition_event
                FROM unnest(v_page) e ORDER BY e.seq);
        END IF;

        v_to_all := ARRAY(SELECT e FROM unnest(v_page) e WHERE e.to_subscription IS NULL ORDER BY e.seq);
        SELECT * INTO v_found
        FROM {schema}.pull_keyed(p_group, p_gid, v_to_all, v_conditions, v_sql, v_key_sql, v_keys);
        v_seqs := v_found.o_seqs;
        v_ids := v_found.o_ids;
        v_failed_seqs := v_found.o_failed_seqs;
        v_failed_ids := v_found.o_failed_ids;
        v_failed_with := v_found.o_failed_with;
        IF v_found.o_cut IS NOT NULL THEN
            v_page := ARRAY(SELECT e FROM unnest(v_page) e WHERE e.seq < v_found.o_cut ORDER BY e.seq);
            v_to_all := ARRAY(SELECT e FROM unnest(v_to_all) e WHERE e.seq < v_found.o_cut ORDER BY e.seq);
            v_rows := greatest(1, cardinality(v_page) / 2);
        END IF;
        FOR i IN 1..coalesce(cardinality(v_conditions), 0) LOOP
            CONTINUE WHEN v_count[i] = 0;
            IF v_fault[i] IS NOT NULL THEN
                v_failed_seqs := v_failed_seqs || array_fill(v_page[1].seq, ARRAY[v_count[i]]);
                v_failed_ids := v_failed_ids || ARRAY(SELECT s.id FROM unnest(v_unkeyed[v_first[i]:v_first[i] + v_count[i] - 1]) s);
                v_failed_with := v_failed_with || array_fill(v_fault[i], ARRAY[v_count[i]]);
                CONTINUE;
            END IF;
            SELECT * INTO v_found FROM {schema}.condition_evaluate(
                v_sql[i], v_to_all, v_unkeyed[v_first[i]:v_first[i] + v_count[i] - 1]);
            v_seqs := v_seqs || v_found.o_seqs;
            v_ids := v_ids || v_found.o_ids;
            v_failed_seqs := v_failed_seqs || v_found.o_failed_seqs;
            v_failed_ids := v_failed_ids || v_found.o_failed_ids;
            v_failed_with := v_failed_with || v_found.o_failed_with;
        END LOOP;
        -- What is sent to one subscription is for that one alone, whatever its condition.
        IF cardinality(v_to_all) < cardinality(v_page) THEN
            SELECT v_seqs || coalesce(array_agg(e.seq), '{}'), v_ids || coalesce(array_agg(u.id), '{}') INTO v_seqs, v_ids
            FROM unnest(v_page) e JOIN {schema}.subscriptions u ON u.group_id = p_group AND u.id = e.to_subscription
            WHERE u.expires_in IS NULL OR u.expires_in >= {schema}.elapsed(greatest(u.touched_at, v_served_at), v_now);
        END IF;

        -- No more than is asked for, or than fits; but one at least.
        v_wanted := ARRAY(SELECT DISTINCT w FROM unnest(v_seqs) w ORDER BY w);
        v_end := v_page[cardinality(v_page)].seq;
        IF cardinality(o_events) + cardinality(v_wanted) >= p_limit THEN
            v_end := v_wanted[p_limit - cardinality(o_events)];
        END IF;
        SELECT least(v_end, min(w.seq) - 1) INTO v_end
        FROM (
            SELECT e.seq, sum({bytes_of_e}) OVER (ORDER BY e.seq) AS bytes, row_number() OVER (ORDER BY e.seq) AS n
            FROM unnest(v_page) e WHERE e.seq = ANY (v_wanted)
        ) w WHERE w.bytes > v_room AND (w.n > 1 OR cardinality(o_events) > 0);
        SELECT coalesce(sum({bytes_of_e}), 0) INTO v_bytes FROM unnest(v_page) e WHERE e.seq = ANY (v_wanted) AND e.seq <= v_end;
        v_room := v_room - v_bytes;
        o_events := o_events || ARRAY(SELECT e FROM unnest(v_page) e WHERE e.seq = ANY (v_wanted) AND e.seq <= v_end ORDER BY e.seq);
        o_seqs := o_seqs || v_seqs;
        o_ids := o_ids || v_ids;
        o_failed_seqs := o_failed_seqs || v_failed_seqs;
        o_failed_ids := o_failed_ids || v_failed_ids;
        o_failed_with := o_failed_with || v_failed_with;
        o_at := v_end;
        EXIT WHEN cardinality(o_events) >= p_limit OR v_end < v_page[cardinality(v_page)].seq
            OR o_at >= p_after + 10000 OR clock_timestamp() >= v_began + interval '250 milliseconds';
        v_rows := greatest(1, least(500, v_rows * 2, 100000 / greatest(1, cardinality(v_unkeyed))));
    END LOOP;
END
$body$;
