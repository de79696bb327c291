-- Forgets what has expired of a group, for who is about to read it: otherwise it would live again, and whoever read the
-- group's subscriptions meanwhile would not know. Called for groups that have subscriptions, under the locks of slots or
-- members, which come after that of the group: so its lock is had at once, or the whole call is tried again.
CREATE OR REPLACE FUNCTION {schema}.expired_forget(p_group bigint, p_now timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_unserved bigint := {schema}.elapsed({schema}.served_at(p_group), p_now);
    v_gone pg_catalog.uuid[];
BEGIN
    IF NOT EXISTS (
            SELECT 1 FROM {schema}.subscriptions u WHERE u.group_id + 0 = p_group AND u.expires_in < v_unserved
                AND u.expires_in < {schema}.elapsed(u.touched_at, p_now)) THEN
        RETURN;
    END IF;
    PERFORM 1 FROM {schema}.groups g WHERE g.id = p_group FOR UPDATE NOWAIT;
    -- One that is touched at this moment is waited for, and looked at again: it stays.
    v_gone := ARRAY(
        SELECT u.id FROM {schema}.subscriptions u WHERE u.group_id + 0 = p_group AND u.expires_in < v_unserved
            AND u.expires_in < {schema}.elapsed(u.touched_at, p_now)
        FOR UPDATE);
    IF v_gone <> '{}' THEN
        DELETE FROM {schema}.subscriptions d WHERE d.group_id = p_group AND d.id = ANY (v_gone);
        PERFORM {schema}.subscriptions_changed(p_group, -cardinality(v_gone), v_gone);
    END IF;
END
$body$;
