-- Says which groups a process serves, instead of what it said before, and renews its lease for p_lease microseconds: it is
-- known with this. Those who serve a group that it begins or ceases to serve are told. With one that comes, those go of
-- whom nothing was heard for long.
--
-- One such call at a time: two that come at once would otherwise each not see the other, and neither be told of it.
CREATE OR REPLACE FUNCTION {schema}.member_serve(
    p_now timestamptz, p_member uuid, p_name text, p_kind text, p_lease bigint, p_groups text[]
) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
    v_changed pg_catalog.text[];
BEGIN
    LOCK TABLE {schema}.serving_lock IN SHARE UPDATE EXCLUSIVE MODE;
    PERFORM 1 FROM {schema}.members m WHERE m.id = p_member OR m.kind = 'handler' ORDER BY m.id FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    IF NOT EXISTS (SELECT 1 FROM {schema}.members m WHERE m.id = p_member) THEN
        PERFORM {schema}.members_forget(v_now);
    ELSIF EXISTS (SELECT 1 FROM {schema}.members m WHERE m.id = p_member AND m.lease_until < v_now) THEN
        PERFORM {schema}.member_expired_forget(p_member, v_now);
    END IF;
    INSERT INTO {schema}.members AS m (id, name, kind, lease_until)
    VALUES (p_member, p_name, p_kind, v_now + p_lease * interval '1 microsecond')
    ON CONFLICT (id) DO UPDATE SET name = excluded.name, kind = excluded.kind, lease_until = excluded.lease_until;
    v_changed := ARRAY(
        SELECT coalesce(s.group_name, n.group_name)
        FROM (SELECT o.group_name FROM {schema}.serving o WHERE o.member = p_member) s
        FULL JOIN (SELECT DISTINCT unnest(p_groups) COLLATE "C" AS group_name) n ON n.group_name = s.group_name
        WHERE s.group_name IS NULL OR n.group_name IS NULL);
    IF cardinality(v_changed) = 0 THEN
        RETURN;
    END IF;
    UPDATE {schema}.members m SET version = m.version + 1
    WHERE m.id <> p_member AND m.id IN (SELECT s.member FROM {schema}.serving s WHERE s.group_name = ANY (v_changed));
    DELETE FROM {schema}.serving s WHERE s.member = p_member AND s.group_name = ANY (v_changed);
    INSERT INTO {schema}.serving (member, group_name)
    SELECT p_member, c FROM unnest(v_changed) c WHERE c = ANY (p_groups)
    ON CONFLICT DO NOTHING;
END
$body$;
