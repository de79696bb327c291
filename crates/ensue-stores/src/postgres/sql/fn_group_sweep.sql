-- Deletes up to p_limit rows of each kind of what belonged to a forgotten group; false if there is none that nobody else
-- is sweeping.
CREATE OR REPLACE FUNCTION {schema}.group_sweep(p_limit bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_count bigint;
    v_more boolean := false;
BEGIN
    SELECT g.group_id INTO v_group FROM {schema}.groups_gone g ORDER BY g.group_id LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM {schema}.subscriptions u WHERE u.ctid = ANY (ARRAY(
        SELECT x.ctid FROM {schema}.subscriptions x WHERE x.group_id = v_group LIMIT p_limit));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_more := v_more OR v_count >= p_limit;
    DELETE FROM {schema}.subscription_keys k WHERE k.ctid = ANY (ARRAY(
        SELECT x.ctid FROM {schema}.subscription_keys x WHERE x.group_id = v_group LIMIT p_limit));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_more := v_more OR v_count >= p_limit;
    DELETE FROM {schema}.subscription_conditions c WHERE c.ctid = ANY (ARRAY(
        SELECT x.ctid FROM {schema}.subscription_conditions x WHERE x.group_id = v_group LIMIT p_limit));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_more := v_more OR v_count >= p_limit;
    DELETE FROM {schema}.subscription_counts c WHERE c.ctid = ANY (ARRAY(
        SELECT x.ctid FROM {schema}.subscription_counts x WHERE x.group_id = v_group LIMIT p_limit));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_more := v_more OR v_count >= p_limit;
    DELETE FROM {schema}.subscription_changes c WHERE c.ctid = ANY (ARRAY(
        SELECT x.ctid FROM {schema}.subscription_changes x WHERE x.group_id = v_group LIMIT p_limit));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_more := v_more OR v_count >= p_limit;
    DELETE FROM {schema}.lanes l WHERE l.ctid = ANY (ARRAY(
        SELECT x.ctid FROM {schema}.lanes x WHERE x.group_id = v_group LIMIT p_limit));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_more := v_more OR v_count >= p_limit;
    DELETE FROM {schema}.delivery_lines l WHERE l.ctid = ANY (ARRAY(
        SELECT x.ctid FROM {schema}.delivery_lines x WHERE x.group_id = v_group LIMIT p_limit));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_more := v_more OR v_count >= p_limit;
    DELETE FROM {schema}.deliveries d WHERE d.ctid = ANY (ARRAY(
        SELECT x.ctid FROM {schema}.deliveries x WHERE x.group_id = v_group LIMIT p_limit));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_more := v_more OR v_count >= p_limit;
    IF NOT v_more THEN
        DELETE FROM {schema}.groups_gone g WHERE g.group_id = v_group;
    END IF;
    RETURN true;
END
$body$;
