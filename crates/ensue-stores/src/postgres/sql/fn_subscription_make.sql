-- Makes a subscription, or touches the one that is the same. Answers it, and whether it is new: also to who asks again
-- because the answer was lost, as p_id tells.
--
-- The lock of the group's row lets one subscribe at a time: two at once give one row. Compared in full; the hash only
-- finds what is to be compared. Without p_hint it is one of many that a transaction makes.
CREATE OR REPLACE FUNCTION {schema}.subscription_make(
    p_now timestamptz, p_hint bigint, p_group text, p_id uuid,
    p_topic text, p_condition text, p_params text, p_params_identity text, p_expires_in bigint
) RETURNS SETOF {schema}.subscriptions LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_group bigint;
    v_now pg_catalog.timestamptz;
    v_same {schema}.subscriptions;
    v_expires_in bigint;
    v_condition pg_catalog.record;
    v_keys pg_catalog.bytea[];
BEGIN
    LOOP
        SELECT g.id INTO v_group FROM {schema}.groups g WHERE g.name = p_group FOR UPDATE;
        EXIT WHEN FOUND;
        PERFORM {schema}.group_make(p_now, p_hint, p_id, p_group, 'pull', 'now', NULL, 1);
    END LOOP;
    v_now := coalesce(p_now, clock_timestamp());
    SELECT * INTO v_same FROM {schema}.subscriptions u
    WHERE hashtextextended(u.params_identity,
                hashtextextended(coalesce(u.condition, ''), hashtextextended(coalesce(u.topic, ''), u.group_id)))
            = hashtextextended(p_params_identity,
                hashtextextended(coalesce(p_condition, ''), hashtextextended(coalesce(p_topic, ''), v_group)))
        -- By the hash and not by the primary key, however few rows there were when this was planned.
        AND u.group_id + 0 = v_group
        AND u.params_identity = p_params_identity
        AND u.condition IS NOT DISTINCT FROM p_condition AND u.topic IS NOT DISTINCT FROM p_topic
    LIMIT 1;
    IF FOUND AND (v_same.expires_in IS NULL OR v_same.expires_in
            >= {schema}.elapsed(greatest(v_same.touched_at, {schema}.served_at(v_group)), v_now)) THEN
        -- The longer expiry; null is the longest.
        v_expires_in := CASE WHEN v_same.expires_in IS NOT NULL AND p_expires_in IS NOT NULL
            THEN greatest(v_same.expires_in, p_expires_in) END;
        IF v_expires_in IS DISTINCT FROM v_same.expires_in THEN
            PERFORM {schema}.subscriptions_changed(v_group, 0, ARRAY[v_same.id], p_hint IS NULL);
        END IF;
        RETURN QUERY
        UPDATE {schema}.subscriptions u SET touched_at = v_now, expires_in = v_expires_in
        WHERE u.group_id = v_group AND u.id = v_same.id RETURNING u.*;
        RETURN;
    END IF;
    IF FOUND THEN
        DELETE FROM {schema}.subscriptions u WHERE u.group_id = v_group AND u.id = v_same.id;
        PERFORM {schema}.subscriptions_changed(v_group, -1, ARRAY[v_same.id], p_hint IS NULL);
    END IF;
    PERFORM {schema}.subscriptions_changed(v_group, 1, ARRAY[p_id], p_hint IS NULL);
    SELECT * INTO v_condition FROM {schema}.condition_noted(v_group, p_condition);
    v_keys := {schema}.condition_keys_of(v_condition.o_keys, p_params::jsonb);
    INSERT INTO {schema}.subscription_keys (group_id, condition, key, is_exact, id)
    SELECT v_group, v_condition.o_number, k, v_condition.o_is_exact AND p_topic IS NULL AND k IS NOT NULL, p_id
    -- One that can never match has a key that no event has.
    FROM unnest(CASE WHEN v_keys = '{}' THEN '{""}' ELSE coalesce(v_keys, '{NULL}') END) k;
    RETURN QUERY
    INSERT INTO {schema}.subscriptions
        (group_id, id, topic, condition, params, params_identity, expires_in, created_at, touched_at, created_after)
    VALUES (v_group, p_id, p_topic, p_condition, p_params, p_params_identity, p_expires_in, v_now, v_now,
        (SELECT t.o_seq FROM {schema}.log_tail(p_hint) t))
    RETURNING *;
END
$body$;
