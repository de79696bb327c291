-- Notes a change of these subscriptions of a group, whose row the caller has locked, and how many more it has now: readers of the
-- group need not read them all again. What is noted of the version that is {changes_kept} back goes: looked for as itself, so
-- that rows which a held snapshot keeps from being cleaned up cost nothing.
CREATE OR REPLACE FUNCTION {schema}.subscriptions_changed(p_group bigint, p_more bigint, p_ids uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
DECLARE
    v_version bigint;
BEGIN
    UPDATE {schema}.groups g SET version = g.version + 1, subscriptions = g.subscriptions + p_more
    WHERE g.id = p_group RETURNING g.version INTO v_version;
    INSERT INTO {schema}.subscription_changes (group_id, version, id) SELECT p_group, v_version, unnest(p_ids);
    DELETE FROM {schema}.subscription_changes c WHERE c.group_id = p_group AND c.version = v_version - {changes_kept};
END
$body$;
