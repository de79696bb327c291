-- Makes a group unless there is one of that name. Answers its kind, whether this call made it, and the bounds of the log;
-- no kind if it would begin outside of them.
--
-- Groups are made and forgotten one at a time: a new one must see the floors that the last one of its name left. From
-- there on it counts, so that whoever still writes under a fence of that one, or remembers its version, does not take
-- this one for it.
CREATE OR REPLACE FUNCTION {schema}.group_make(
    p_now timestamptz, p_hint bigint, p_call uuid,
    p_name text, p_kind text, p_start text, p_after bigint, p_slots int,
    OUT o_kind text, OUT o_new boolean, OUT o_first bigint, OUT o_last bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
    v_cursor bigint;
    v_group bigint;
    v_fence_floor bigint;
    v_version_floor bigint;
BEGIN
    SELECT g.kind, g.made_by = p_call INTO o_kind, o_new FROM {schema}.groups g WHERE g.name = p_name;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT s.fence_floor, s.version_floor INTO v_fence_floor, v_version_floor
    FROM {schema}.positions_state s FOR UPDATE;
    SELECT g.kind, g.made_by = p_call INTO o_kind, o_new FROM {schema}.groups g WHERE g.name = p_name;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT t.o_trimmed_to + 1, t.o_seq INTO o_first, o_last FROM {schema}.log_tail(p_hint) t;
    v_cursor := CASE p_start WHEN 'now' THEN o_last WHEN 'beginning' THEN o_first - 1 ELSE p_after END;
    IF v_cursor > o_last OR v_cursor < o_first - 1 THEN
        RETURN;
    END IF;
    v_now := coalesce(p_now, clock_timestamp());
    INSERT INTO {schema}.groups (name, kind, created_at, version, made_by)
    VALUES (p_name, p_kind, v_now, v_version_floor, p_call)
    RETURNING id INTO v_group;
    INSERT INTO {schema}.slots (group_id, slot, cursor, fence, served_at)
    SELECT v_group, n, v_cursor, v_fence_floor, v_now FROM generate_series(0, p_slots - 1) n;
    o_kind := p_kind;
    o_new := true;
END
$body$;
