-- Takes a subscription out of its group; was there one that had not expired?
CREATE OR REPLACE FUNCTION {schema}.subscription_delete(p_now timestamptz, p_group text, p_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_group bigint;
    v_gone {schema}.subscriptions;
BEGIN
    SELECT g.id INTO v_group FROM {schema}.groups g WHERE g.name = p_group FOR UPDATE;
    DELETE FROM {schema}.subscriptions u WHERE u.group_id = v_group AND u.id = p_id RETURNING u.* INTO v_gone;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM {schema}.subscriptions_changed(v_group, -1, ARRAY[p_id]);
    RETURN v_gone.expires_in IS NULL OR v_gone.expires_in >= {schema}.elapsed(
        greatest(v_gone.touched_at, {schema}.served_at(v_group)), coalesce(p_now, clock_timestamp()));
END
$body$;
