-- Defines a handler, or defines it anew. o_what is 'done', or why nothing was changed: 'pull' (a group of that name is read),
-- 'bound' (a program has made it), 'full' (there are p_max already), 'start' (it would begin outside of the log, whose bounds are
-- told). Whoever asks again because the answer was lost is told the same: p_call says who made the group.
--
-- Locks come in the order of group_delete: positions_state (where the group is made), the group, its slots and their owners,
-- definitions_state. A group that
-- is deleted while this waits for its row is made anew.
CREATE OR REPLACE FUNCTION {schema}.define(
    p_now timestamptz, p_hint bigint, p_call uuid, p_name text, p_start text, p_after bigint, p_slots int,
    p_topic text, p_condition text, p_params text, p_params_identity text, p_settings text, p_max bigint, p_by uuid,
    OUT o_what text, OUT o_new boolean, OUT o_subscription uuid, OUT o_revision bigint, OUT o_first bigint, OUT o_last bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_kind pg_catalog.text;
    v_there {schema}.definitions;
    v_gone pg_catalog.uuid[];
BEGIN
    LOOP
        SELECT g.id, g.kind INTO v_group, v_kind FROM {schema}.groups g WHERE g.name = p_name;
        IF FOUND THEN
            IF v_kind <> 'handler' THEN
                o_what := 'pull';
                RETURN;
            END IF;
            IF NOT EXISTS (SELECT FROM {schema}.definitions d WHERE d.group_id = v_group) THEN
                o_what := 'bound';
                RETURN;
            END IF;
        ELSE
            -- One that somebody else makes at this moment is looked at again.
            IF (SELECT count(*) FROM {schema}.definitions) >= p_max THEN
                o_what := 'full';
                RETURN;
            END IF;
            SELECT m.o_new, m.o_first, m.o_last, m.o_kind INTO o_new, o_first, o_last, v_kind
            FROM {schema}.group_make(p_now, p_hint, p_call, p_name, 'handler', p_start, p_after, p_slots) m;
            IF v_kind IS NULL THEN
                o_what := 'start';
                RETURN;
            END IF;
            CONTINUE WHEN NOT o_new;
        END IF;
        SELECT g.id, g.made_by = p_call INTO v_group, o_new FROM {schema}.groups g WHERE g.name = p_name FOR UPDATE;
        EXIT WHEN FOUND;
    END LOOP;
    SELECT m.id INTO o_subscription FROM {schema}.subscription_make(
        p_now, p_hint, p_name, p_call, p_topic, p_condition, p_params, p_params_identity, NULL) m;
    WITH gone AS (
        DELETE FROM {schema}.subscriptions u WHERE u.group_id = v_group AND u.id <> o_subscription RETURNING u.id
    )
    SELECT array_agg(g.id) INTO v_gone FROM gone g;
    IF v_gone IS NOT NULL THEN
        PERFORM {schema}.subscriptions_changed(v_group, -cardinality(v_gone), v_gone);
    END IF;
    o_what := 'done';
    SELECT * INTO v_there FROM {schema}.definitions d WHERE d.group_id = v_group;
    IF v_there.subscription = o_subscription AND v_there.settings = p_settings THEN
        o_revision := v_there.revision;
        -- What an earlier try has written is with a standby, if there is one, before this is answered.
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
        RETURN;
    END IF;
    IF v_there.subscription <> o_subscription THEN
        -- Whoever has its slots goes by the former subscription, and would pass over what only the new one wants.
        PERFORM 1 FROM {schema}.slots s WHERE s.group_id = v_group ORDER BY s.slot FOR UPDATE;
        PERFORM {schema}.tell_members(ARRAY(
            SELECT s.owner FROM {schema}.slots s WHERE s.group_id = v_group AND s.owner IS NOT NULL AND s.owner IS DISTINCT FROM p_by));
        UPDATE {schema}.slots s SET owner = NULL, served_at = greatest(s.served_at, coalesce(p_now, clock_timestamp()))
        WHERE s.group_id = v_group AND s.owner IS NOT NULL AND s.owner IS DISTINCT FROM p_by;
    END IF;
    UPDATE {schema}.definitions_state s SET version = s.version + 1 RETURNING s.version INTO o_revision;
    INSERT INTO {schema}.definitions AS d (group_id, subscription, revision, settings)
    VALUES (v_group, o_subscription, o_revision, p_settings)
    ON CONFLICT (group_id) DO UPDATE SET subscription = excluded.subscription, revision = excluded.revision,
        settings = excluded.settings;
END
$body$;

-- Forgets a handler that is defined, with its group; was there one?
CREATE OR REPLACE FUNCTION {schema}.undefine(p_name text) RETURNS boolean LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM 1 FROM {schema}.positions_state FOR UPDATE;
    PERFORM 1 FROM {schema}.groups g JOIN {schema}.definitions d ON d.group_id = g.id WHERE g.name = p_name;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    RETURN {schema}.group_delete(p_name);
END
$body$;
