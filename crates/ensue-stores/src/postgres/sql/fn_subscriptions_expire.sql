-- Forgets up to p_limit expired subscriptions; answers how many. A group that somebody is changing is left to the next
-- time. Of each group only those are looked at that expire within the time since it was served.
CREATE OR REPLACE FUNCTION {schema}.subscriptions_expire(p_now timestamptz, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_now pg_catalog.timestamptz := coalesce(p_now, clock_timestamp());
    v_group bigint;
    v_unserved bigint;
    v_gone pg_catalog.uuid[];
    v_left bigint := p_limit;
BEGIN
    FOR v_group IN SELECT g.id FROM {schema}.groups g WHERE g.subscriptions > 0 ORDER BY g.id LOOP
        EXIT WHEN v_left <= 0;
        v_unserved := {schema}.elapsed({schema}.served_at(v_group), v_now);
        CONTINUE WHEN NOT EXISTS (
            SELECT 1 FROM {schema}.subscriptions u WHERE u.group_id + 0 = v_group AND u.expires_in < v_unserved
                AND u.expires_in < {schema}.elapsed(u.touched_at, v_now));
        PERFORM 1 FROM {schema}.groups g WHERE g.id = v_group FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        v_gone := ARRAY(
            SELECT u.id FROM {schema}.subscriptions u
            WHERE u.group_id + 0 = v_group AND u.expires_in < {schema}.elapsed({schema}.served_at(v_group), v_now)
                AND u.expires_in < {schema}.elapsed(u.touched_at, v_now)
            LIMIT v_left FOR UPDATE SKIP LOCKED);
        CONTINUE WHEN v_gone = '{}';
        DELETE FROM {schema}.subscriptions d WHERE d.group_id = v_group AND d.id = ANY (v_gone);
        PERFORM {schema}.subscriptions_changed(v_group, -cardinality(v_gone), v_gone);
        v_left := v_left - cardinality(v_gone);
    END LOOP;
    RETURN p_limit - v_left;
END
$body$;
