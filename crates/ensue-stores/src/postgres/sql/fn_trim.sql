-- Trims the oldest events: readers stop seeing them at once, because the mark moves. Their rows go
-- with their partition, later. The lock of the log is held, so that no event that is appended after
-- it points to a trimmed one.
--
-- A login that has only the role of a node trims no event that is younger than the setting
-- partition_retention_period. The schema's owner and `ensue_operate` trim any event.
CREATE OR REPLACE FUNCTION {schema}.trim(
    p_keep_from bigint, p_limit bigint, p_hint bigint, OUT o_first bigint, OUT o_last bigint
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $body$
DECLARE
    v_is_bound boolean := NOT EXISTS (
        SELECT 1 FROM pg_roles r WHERE pg_has_role(session_user, r.oid, 'MEMBER')
            AND (r.rolname = {schema}.role_name('operate')
                OR r.oid = (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = {schema_text})));
    v_period interval;
    v_trimmed_to bigint;
BEGIN
    IF v_is_bound THEN
        v_period := {schema}.setting('partition_retention_period', NULL)::interval;
        IF v_period IS NULL THEN
            RAISE EXCEPTION 'permission denied to trim the log' USING ERRCODE = 'insufficient_privilege',
                HINT = format('Set partition_retention_period in %I.config, or GRANT %I TO %I.',
                    {schema_text}, {schema}.role_name('operate'), session_user);
        END IF;
    END IF;
    PERFORM {schema}.lock_log();
    SELECT t.o_trimmed_to + 1, t.o_seq INTO o_first, o_last FROM {schema}.log_tail(p_hint) t;
    v_trimmed_to := least(p_keep_from - 1, o_first - 1 + p_limit, o_last);
    IF v_is_bound THEN
        -- Each event is looked at: a login that may append may have written any time.
        v_trimmed_to := coalesce((
            SELECT min(e.seq) - 1 FROM {schema}.stored_events e
            WHERE e.seq BETWEEN o_first AND v_trimmed_to AND e.recorded_at >= clock_timestamp() - v_period), v_trimmed_to);
    END IF;
    IF v_trimmed_to >= o_first THEN
        UPDATE {schema}.log_state s SET trimmed_to = v_trimmed_to, trimmed_recorded_at = e.recorded_at
        FROM {schema}.stored_events e WHERE e.seq = v_trimmed_to;
        DELETE FROM {schema}.delayed d WHERE d.seq <= v_trimmed_to;
        o_first := v_trimmed_to + 1;
    END IF;
END
$body$;
