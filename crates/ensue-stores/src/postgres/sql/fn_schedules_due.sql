-- Which schedules are due? Each that fires leaves an entry in the index behind, which stays while somebody holds a snapshot from before:
-- so who has looked says from where on, (p_from, p_from_name), and that holds as long as nobody puts a schedule or lets one go, which
-- changes the state. Measured with a snapshot held over 10,000 firings: docs/benchmarks.md.
--
-- The state that the answer holds for is told in any case; the schedules are in the same snapshot, as this changes nothing.
CREATE OR REPLACE FUNCTION {schema}.schedules_due(
    p_now timestamptz, p_limit bigint, p_bytes bigint, p_state bigint, p_from timestamptz, p_from_name text
) RETURNS TABLE (
    o_state bigint, o_name text, o_version bigint, o_definition text, o_managed_by text, o_watermark timestamptz, o_due timestamptz,
    o_held boolean, o_created_at timestamptz, o_updated_at timestamptz
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_bytes bigint := 0;
    v_from pg_catalog.timestamptz := '-infinity';
    v_from_name pg_catalog.text := '';
BEGIN
    SELECT s.version + s.rules_changed INTO o_state FROM {schema}.schedules_state s;
    IF o_state = p_state THEN
        v_from := p_from;
        v_from_name := p_from_name;
    END IF;
    FOR o_name, o_version, o_managed_by, o_watermark, o_due, o_held, o_created_at, o_updated_at, o_definition IN
        SELECT s.name, s.version, s.managed_by, s.watermark, s.due, s.held, s.created_at, s.updated_at, s.definition
        FROM {schema}.schedules s
        WHERE s.due IS NOT NULL AND NOT s.held AND (s.due, s.name) >= (v_from, v_from_name) AND s.due <= p_now
        ORDER BY s.due, s.name LIMIT p_limit
    LOOP
        v_bytes := v_bytes + octet_length(o_definition);
        EXIT WHEN v_bytes > p_bytes AND v_bytes > octet_length(o_definition);
        RETURN NEXT;
    END LOOP;
    IF v_bytes = 0 THEN
        RETURN NEXT;
    END IF;
END
$body$;

-- When is the next one due that no rule holds? Looks from there on, too.
CREATE OR REPLACE FUNCTION {schema}.schedules_next(p_state bigint, p_from timestamptz, p_from_name text) RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_from pg_catalog.timestamptz := '-infinity';
    v_from_name pg_catalog.text := '';
    v_due pg_catalog.timestamptz;
BEGIN
    IF (SELECT s.version + s.rules_changed FROM {schema}.schedules_state s) = p_state THEN
        v_from := p_from;
        v_from_name := p_from_name;
    END IF;
    SELECT s.due INTO v_due FROM {schema}.schedules s
    WHERE s.due IS NOT NULL AND NOT s.held AND (s.due, s.name) >= (v_from, v_from_name)
    ORDER BY s.due, s.name LIMIT 1;
    RETURN v_due;
END
$body$;

-- Whether a rule holds a schedule is noted in its row, in the commit that changes the rule. The state comes first, as for who puts: one
-- that is let go may have been due for long.
CREATE OR REPLACE FUNCTION {schema}.schedule_rule_changed() RETURNS trigger LANGUAGE plpgsql
AS $body$
DECLARE
    v_scope pg_catalog.text := CASE WHEN TG_OP = 'DELETE' THEN OLD.scope ELSE NEW.scope END;
BEGIN
    IF v_scope LIKE 'schedule:%' THEN
        UPDATE {schema}.schedules_state s SET rules_changed = s.rules_changed + 1;
        UPDATE {schema}.schedules s SET held = EXISTS (SELECT 1 FROM {schema}.rules r WHERE r.scope = v_scope)
        WHERE s.name = substr(v_scope, 10);
    END IF;
    RETURN NULL;
END
$body$;
