-- Takes slots that nobody has, that the member has already, or whose owner's lease has passed. No version if there is no
-- such group.
--
-- The rows of the slots are locked in order, so of two who want one, one gets it. Then those of the members who may lose
-- something: who renews its lease at this moment either comes first, and keeps what it has, or afterwards, and hears of
-- the loss with the same call. Otherwise it would believe in a lease on what is no longer its own.
CREATE OR REPLACE FUNCTION {schema}.slots_acquire(
    p_now timestamptz, p_group text, p_member uuid, p_name text, p_kind text, p_lease bigint,
    p_slots int[], p_go_on bigint,
    OUT o_version bigint, OUT o_slots int[], OUT o_fences bigint[], OUT o_cursors bigint[], OUT o_vanished bigint[],
    OUT o_held_by uuid, OUT o_held_name text, OUT o_held_kind text, OUT o_held_until timestamptz
) LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $body$
DECLARE
    v_group bigint;
    v_subscriptions bigint;
    v_now pg_catalog.timestamptz;
    v_owners pg_catalog.uuid[];
    v_lease_until pg_catalog.timestamptz;
    v_known boolean;
    v_got int[];
BEGIN
    SELECT g.id, g.subscriptions INTO v_group, v_subscriptions FROM {schema}.groups g WHERE g.name = p_group;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM 1 FROM {schema}.slots s
    WHERE s.group_id = v_group AND (p_slots IS NULL OR s.slot = ANY (p_slots)) ORDER BY s.slot FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    v_owners := ARRAY(
        SELECT s.owner FROM {schema}.slots s WHERE s.group_id = v_group AND (p_slots IS NULL OR s.slot = ANY (p_slots))
        AND s.owner <> p_member);
    PERFORM 1 FROM {schema}.members m
    WHERE m.id = ANY (v_owners || p_member) AND (m.id = p_member OR m.lease_until < v_now) ORDER BY m.id FOR UPDATE;
    SELECT m.lease_until INTO v_lease_until FROM {schema}.members m WHERE m.id = p_member;
    v_known := FOUND;

    v_got := ARRAY(
        SELECT s.slot FROM {schema}.slots s LEFT JOIN {schema}.members m ON m.id = s.owner
        WHERE s.group_id = v_group AND (p_slots IS NULL OR s.slot = ANY (p_slots))
            AND CASE WHEN p_go_on IS NULL THEN s.owner = p_member OR m.id IS NULL OR m.lease_until < v_now
                ELSE s.owner = p_member AND s.fence = p_go_on AND m.lease_until >= v_now END
        ORDER BY s.slot);
    -- Who may not go on has its lease not renewed by that: what it once had stays lost.
    IF p_go_on IS NULL OR cardinality(v_got) > 0 THEN
        IF v_subscriptions > 0 AND cardinality(v_got) > 0 THEN
            PERFORM {schema}.expired_forget(v_group, v_now);
        END IF;
        IF v_lease_until < v_now OR NOT v_known THEN
            PERFORM {schema}.member_expired_forget(p_member, v_now);
        END IF;
        INSERT INTO {schema}.members AS m (id, name, kind, lease_until)
        VALUES (p_member, p_name, p_kind, v_now + p_lease * interval '1 microsecond')
        ON CONFLICT (id) DO UPDATE SET name = excluded.name, kind = excluded.kind, lease_until = excluded.lease_until;
    END IF;
    PERFORM {schema}.tell_members(ARRAY(
        SELECT s.owner FROM {schema}.slots s WHERE s.group_id = v_group AND s.slot = ANY (v_got) AND s.owner <> p_member));
    UPDATE {schema}.slots s
    SET owner = p_member, fence = s.fence + 1, vanished = s.vanished + (s.owner IS NOT NULL)::int,
        served_at = greatest(s.served_at, v_now)
    WHERE s.group_id = v_group AND s.slot = ANY (v_got) AND (s.owner IS DISTINCT FROM p_member OR NOT v_known);

    SELECT g.version INTO o_version FROM {schema}.groups g WHERE g.id = v_group;
    SELECT array_agg(s.slot ORDER BY s.slot), array_agg(s.fence ORDER BY s.slot), array_agg(s.cursor ORDER BY s.slot),
        array_agg(s.vanished ORDER BY s.slot)
    INTO o_slots, o_fences, o_cursors, o_vanished
    FROM {schema}.slots s WHERE s.group_id = v_group AND s.slot = ANY (v_got);
    SELECT m.id, m.name, m.kind, m.lease_until INTO o_held_by, o_held_name, o_held_kind, o_held_until
    FROM {schema}.slots s LEFT JOIN {schema}.members m ON m.id = s.owner
    WHERE s.group_id = v_group AND (p_slots IS NULL OR s.slot = ANY (p_slots)) AND s.slot <> ALL (v_got)
    ORDER BY s.slot LIMIT 1;

    IF NOT v_known AND random() < 0.02 THEN
        PERFORM {schema}.members_forget(v_now);
    END IF;
END
$body$;

-- The same for readers over HTTP, which are answered soon: somebody who reads over SQL has the slot locked until their transaction ends, and whoever waits for
-- them keeps a connection of the process. If the locks are not to be had within about a quarter of a second, the open transaction is told of as who has the slot.
-- Who goes on under a lease is not told that it is lost: that is tried again.
CREATE OR REPLACE FUNCTION {schema}.slots_acquire_soon(
    p_now timestamptz, p_group text, p_member uuid, p_name text, p_kind text, p_lease bigint,
    p_slots int[], p_go_on bigint,
    OUT o_version bigint, OUT o_slots int[], OUT o_fences bigint[], OUT o_cursors bigint[], OUT o_vanished bigint[],
    OUT o_held_by uuid, OUT o_held_name text, OUT o_held_kind text, OUT o_held_until timestamptz
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = '250ms'
AS $body$
DECLARE
    v_until pg_catalog.timestamptz := clock_timestamp() + interval '250 milliseconds';
BEGIN
    LOOP
        BEGIN
            SELECT a.* INTO o_version, o_slots, o_fences, o_cursors, o_vanished, o_held_by, o_held_name, o_held_kind, o_held_until
            FROM {schema}.slots_acquire(p_now, p_group, p_member, p_name, p_kind, p_lease, p_slots, p_go_on) a;
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            -- Somebody may be changing the group's subscriptions at this moment, too.
            IF clock_timestamp() >= v_until THEN
                IF p_go_on IS NOT NULL THEN
                    RAISE;
                END IF;
                EXIT;
            END IF;
            PERFORM pg_sleep(0.01);
        END;
    END LOOP;
    SELECT g.version INTO o_version FROM {schema}.groups g WHERE g.name = p_group;
    o_held_by := gen_random_uuid();
    o_held_name := 'a transaction that is open';
    o_held_kind := p_kind;
    o_held_until := coalesce(p_now, clock_timestamp()) + interval '1 second';
END
$body$;
