-- Notes a change of these subscriptions of a group, whose row the caller has locked, and how many more it has now: readers of the
-- group need not read them all again. What is noted of the version that is {changes_kept} back goes: looked for as itself, so
-- that rows which a held snapshot keeps from being cleaned up cost nothing.
--
-- p_together: all changes of a transaction are one version. The group's row is written for the first
-- of them; what later ones add is in subscription_counts until the next transaction changes the row.
CREATE OR REPLACE FUNCTION {schema}.subscriptions_changed(
    p_group bigint, p_more bigint, p_ids uuid[], p_together boolean DEFAULT false
) RETURNS void LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_version bigint;
    v_left bigint;
BEGIN
    IF p_more < 0 THEN
        DELETE FROM {schema}.subscription_keys k WHERE k.group_id = p_group AND k.id = ANY (p_ids);
    END IF;
    IF p_together THEN
        SELECT g.version INTO v_version FROM {schema}.groups g WHERE g.id = p_group AND g.xmin = pg_current_xact_id()::xid;
    END IF;
    IF v_version IS NULL THEN
        WITH noted AS (
            DELETE FROM {schema}.subscription_counts c WHERE c.group_id = p_group RETURNING c.more
        )
        UPDATE {schema}.groups g SET version = g.version + 1,
            subscriptions = g.subscriptions + p_more + (SELECT coalesce(sum(n.more), 0) FROM noted n)
        WHERE g.id = p_group RETURNING g.version, g.subscriptions INTO v_version, v_left;
        DELETE FROM {schema}.subscription_changes c WHERE c.group_id = p_group AND c.version = v_version - {changes_kept};
    ELSIF p_more <> 0 THEN
        INSERT INTO {schema}.subscription_counts (group_id, more) VALUES (p_group, p_more);
    END IF;
    -- Conditions that nobody has any more: not each time, as a look passes the keys that have just gone.
    IF p_more < 0 AND (v_left = 0 OR p_more <= -64 OR v_version % 64 = 0) THEN
        DELETE FROM {schema}.subscription_conditions c WHERE c.group_id = p_group
            AND NOT EXISTS (SELECT 1 FROM {schema}.subscription_keys k WHERE k.condition = c.number);
    END IF;
    INSERT INTO {schema}.subscription_changes (group_id, version, id) SELECT p_group, v_version, unnest(p_ids)
    ON CONFLICT DO NOTHING;
END
$body$;
