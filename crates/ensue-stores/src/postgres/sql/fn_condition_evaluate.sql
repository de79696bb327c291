-- Which subscriptions that share a condition want which of these events?
--
-- Runs as a role without rights (fn_grants.sql), in UTC, on its arguments alone. `p_sql` is the output
-- of condition_sql; null is always true. Only functions that run as `ensue_owner` may call it: the
-- role that it runs as owns it, so any other text could alter it.
--
-- Every event is evaluated with every subscription; or each subscription with one event, whose place
-- p_event has. One statement for all of them. If that fails, event by event, and where that fails,
-- subscription by subscription: what has no answer is told with its subscription, the others get the
-- event (H24). Topics are looked at again there, before the condition, as an AND has no order.
-- Nothing catches a statement_timeout: it ends the whole call.
CREATE OR REPLACE FUNCTION {schema}.condition_evaluate(
    p_sql text, p_events {schema}.condition_event[], p_subscriptions {schema}.condition_subscription[],
    p_event int[] DEFAULT NULL,
    OUT o_seqs bigint[], OUT o_ids uuid[], OUT o_failed_seqs bigint[], OUT o_failed_ids uuid[], OUT o_failed_with text[]
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO' SET extra_float_digits = 1 SET jit = off
SET standard_conforming_strings = on SET enable_hashjoin = on SET enable_nestloop = on
AS $body$
DECLARE
    v_select CONSTANT pg_catalog.text := 'SELECT array_agg(e.seq), array_agg(s.id) FROM ';
    v_from CONSTANT pg_catalog.text := v_select || 'unnest($1) e CROSS JOIN unnest($2) s WHERE ';
    v_pairs CONSTANT pg_catalog.text := v_select || 'unnest($3, $2) s(event, id, group_id, params, topic, condition) '
        || 'JOIN unnest($1) WITH ORDINALITY '
        || 'e(seq, prev, id, topic, object, payload, metadata, occurred_at, recorded_at, to_subscription, n) '
        || 'ON e.n = s.event WHERE ';
    v_topic pg_catalog.text := '(s.topic IS NULL OR e.topic = s.topic OR starts_with(e.topic, s.topic || ''.''))';
    v_sql pg_catalog.text := '(' || coalesce(p_sql, 'true') || ')';
    v_subscriptions {schema}.condition_subscription[];
    v_seqs bigint[];
    v_ids pg_catalog.uuid[];
BEGIN
    BEGIN
        IF p_event IS NULL THEN
            EXECUTE v_from || v_topic || ' AND ' || v_sql INTO o_seqs, o_ids USING p_events, p_subscriptions;
        ELSE
            EXECUTE v_pairs || 'CASE WHEN ' || v_topic || ' THEN ' || v_sql || ' END' INTO o_seqs, o_ids
            USING p_events, p_subscriptions, p_event;
        END IF;
        RETURN;
    EXCEPTION WHEN OTHERS THEN
        o_seqs := '{}';
        o_ids := '{}';
    END;
    v_sql := 'CASE WHEN ' || v_topic || ' THEN ' || v_sql || ' END';
    v_subscriptions := p_subscriptions;
    FOR i IN 1..cardinality(p_events) LOOP
        IF p_event IS NOT NULL THEN
            v_subscriptions := ARRAY(
                SELECT p_subscriptions[p.n] FROM unnest(p_event) WITH ORDINALITY p(event, n) WHERE p.event = i);
            CONTINUE WHEN v_subscriptions = '{}';
        END IF;
        BEGIN
            EXECUTE v_from || v_sql INTO v_seqs, v_ids USING p_events[i:i], v_subscriptions;
            o_seqs := o_seqs || v_seqs;
            o_ids := o_ids || v_ids;
        EXCEPTION WHEN OTHERS THEN
            FOR j IN 1..cardinality(v_subscriptions) LOOP
                BEGIN
                    EXECUTE v_from || v_sql INTO v_seqs, v_ids USING p_events[i:i], v_subscriptions[j:j];
                    o_seqs := o_seqs || v_seqs;
                    o_ids := o_ids || v_ids;
                EXCEPTION WHEN OTHERS THEN
                    o_failed_seqs := o_failed_seqs || p_events[i].seq;
                    o_failed_ids := o_failed_ids || v_subscriptions[j].id;
                    o_failed_with := o_failed_with || left(sqlerrm, 500);
                END;
            END LOOP;
        END;
    END LOOP;
END
$body$;

-- What some events have where a condition compares them with subscriptions (condition_keys), in the
-- order of the events; null for an event on which that fails. `p_sql` is its o_sql and no other text.
CREATE OR REPLACE FUNCTION {schema}.condition_values(
    p_sql text, p_events {schema}.condition_event[]
) RETURNS jsonb[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO' SET extra_float_digits = 1 SET jit = off
SET standard_conforming_strings = on
AS $body$
DECLARE
    v_select CONSTANT pg_catalog.text := 'SELECT array_agg(' || p_sql || ' ORDER BY e.seq) FROM unnest($1) e';
    v_values pg_catalog.jsonb[];
    v_one pg_catalog.jsonb[];
BEGIN
    BEGIN
        EXECUTE v_select INTO v_values USING p_events;
        RETURN v_values;
    EXCEPTION WHEN OTHERS THEN
        v_values := '{}';
    END;
    FOR i IN 1..cardinality(p_events) LOOP
        BEGIN
            EXECUTE v_select INTO v_one USING p_events[i:i];
            v_values := v_values || v_one;
        EXCEPTION WHEN OTHERS THEN
            v_values := v_values || NULL::jsonb;
        END;
    END LOOP;
    RETURN v_values;
END
$body$;

-- Raises an error if Postgres does not accept the condition, or if it is not a boolean. There is no
-- event to evaluate it on: a condition that fails on some events only is accepted. It is translated
-- here, so that no caller has another text executed.
CREATE OR REPLACE FUNCTION {schema}.condition_try(p_condition text) RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO' SET jit = off SET standard_conforming_strings = on
AS $body$
DECLARE
    v_sql pg_catalog.text := {schema}.condition_sql(p_condition);
    v_events {schema}.condition_event[] := '{}';
    v_subscriptions {schema}.condition_subscription[] := '{}';
BEGIN
    EXECUTE 'SELECT FROM unnest($1) e CROSS JOIN unnest($2) s WHERE (' || v_sql || ')' USING v_events, v_subscriptions;
EXCEPTION
    WHEN OTHERS THEN
        RAISE EXCEPTION 'conditions_sql is refused: %', sqlerrm
            USING ERRCODE = 'invalid_parameter_value', HINT = 'docs/conditions.md has the language, with examples.';
END
$body$;
