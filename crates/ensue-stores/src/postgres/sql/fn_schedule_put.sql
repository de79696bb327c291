-- Keeps a schedule, or keeps it anew, if what is there is what the caller decided over. o_what is 'done', 'other' or 'full'. Whoever asks
-- again because the answer was lost is told the same.
CREATE OR REPLACE FUNCTION {schema}.schedule_put(
    p_now timestamptz, p_call uuid, p_name text, p_definition text, p_managed_by text, p_version bigint,
    p_over timestamptz, p_watermark timestamptz, p_due timestamptz, p_max bigint,
    OUT o_what text, OUT o_version bigint, OUT o_held boolean, OUT o_created_at timestamptz, OUT o_updated_at timestamptz
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_there {schema}.schedules;
BEGIN
    LOCK TABLE {schema}.rules_lock IN ROW SHARE MODE;
    -- One at a time, so that nobody makes what another has just made.
    PERFORM 1 FROM {schema}.schedules_state FOR UPDATE;
    SELECT * INTO v_there FROM {schema}.schedules s WHERE s.name = p_name FOR UPDATE;
    o_what := 'done';
    IF v_there.put_by = p_call THEN
        SELECT v_there.version, v_there.held, v_there.created_at, v_there.updated_at
        INTO o_version, o_held, o_created_at, o_updated_at;
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
        RETURN;
    END IF;
    IF v_there.version IS DISTINCT FROM p_version OR v_there.watermark IS DISTINCT FROM p_over THEN
        o_what := 'other';
        RETURN;
    END IF;
    IF v_there.version IS NULL AND (SELECT count(*) FROM {schema}.schedules) >= p_max THEN
        o_what := 'full';
        RETURN;
    END IF;
    UPDATE {schema}.schedules_state s SET version = s.version + 1 RETURNING s.version INTO o_version;
    o_updated_at := coalesce(p_now, clock_timestamp());
    INSERT INTO {schema}.schedules AS s
        (name, version, watermark, due, created_at, updated_at, put_by, held, managed_by, definition)
    VALUES (p_name, o_version, p_watermark, p_due, o_updated_at, o_updated_at, p_call,
        EXISTS (SELECT 1 FROM {schema}.rules r WHERE r.scope = 'schedule:' || p_name), p_managed_by, p_definition)
    ON CONFLICT (name) DO UPDATE SET version = excluded.version, watermark = excluded.watermark, due = excluded.due,
        updated_at = excluded.updated_at, put_by = excluded.put_by, managed_by = excluded.managed_by,
        definition = excluded.definition
    RETURNING s.held, s.created_at INTO o_held, o_created_at;
END
$body$;

-- A process says which schedules it declares, for p_lease microseconds. Those that somebody manages and that nobody declares at this time,
-- or did until less than p_lease ago, are forgotten: o_removed. o_missing are those of its names under which nothing is kept.
CREATE OR REPLACE FUNCTION {schema}.schedules_declare(
    p_now timestamptz, p_process uuid, p_names text[], p_lease bigint, OUT o_missing text[], OUT o_removed text[]
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
BEGIN
    -- One at a time: what one is about to declare another does not take for forgotten.
    PERFORM 1 FROM {schema}.schedules_state FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    INSERT INTO {schema}.schedule_declarers AS d (process, until) VALUES (p_process, v_now + p_lease * interval '1 microsecond')
    ON CONFLICT (process) DO UPDATE SET until = excluded.until;
    WITH lapsed AS (
        DELETE FROM {schema}.schedule_declarers d WHERE d.until <= v_now - p_lease * interval '1 microsecond' RETURNING d.process
    )
    DELETE FROM {schema}.schedule_declarations d USING lapsed l WHERE d.process = l.process;
    -- What it said before is there already: only what is new or gone is written. By sets, so that ten thousand names are no more than
    -- that many looks.
    DELETE FROM {schema}.schedule_declarations d USING (
        SELECT x.name FROM {schema}.schedule_declarations x WHERE x.process = p_process
        EXCEPT SELECT n.name COLLATE "C" FROM unnest(p_names) n(name)
    ) g WHERE d.process = p_process AND d.name = g.name;
    INSERT INTO {schema}.schedule_declarations (process, name)
    SELECT p_process, g.name FROM (
        SELECT n.name COLLATE "C" AS name FROM unnest(p_names) n(name)
        EXCEPT SELECT x.name FROM {schema}.schedule_declarations x WHERE x.process = p_process
    ) g;
    WITH gone AS (
        DELETE FROM {schema}.schedules s WHERE s.name = ANY (ARRAY(
            SELECT x.name FROM {schema}.schedules x
            WHERE x.managed_by IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM {schema}.schedule_declarations d WHERE d.name = x.name)
            ORDER BY x.name FOR UPDATE))
        RETURNING s.name
    )
    SELECT array_agg(g.name ORDER BY g.name) INTO o_removed FROM gone g;
    SELECT array_agg(n.name ORDER BY n.name) INTO o_missing
    FROM (SELECT DISTINCT x.name COLLATE "C" AS name FROM unnest(p_names) x(name)) n
    WHERE NOT EXISTS (SELECT 1 FROM {schema}.schedules s WHERE s.name = n.name);
END
$body$;
