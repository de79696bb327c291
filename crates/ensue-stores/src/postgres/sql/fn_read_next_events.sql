-- What is next for a group, and who may read it? For consumers over SQL; the same groups, cursors and leases as over HTTP (ensue/src/groups/pull.rs).
--
-- Takes the group's lease, for lease_for from the answer on, and answers events with the subscriptions that want them; each row says what to commit
-- (next_cursor) and under what (lease). Who comes while somebody else has the lease gets an error. Nothing is written to the log, and nothing is drained into it.
--
-- No rows: there is nothing up to the end of the log, or as far as one call looks. Then nobody has a lease, and the group has passed what was looked at,
-- unless the call went on under a lease or from a cursor: what is before that may not be done with.
CREATE OR REPLACE FUNCTION {schema}.read_next_events(
    gid text, cursor bigint DEFAULT NULL, chunk_size int DEFAULT 100, peek boolean DEFAULT false,
    under text DEFAULT NULL, lease_for interval DEFAULT '30 seconds'
) RETURNS TABLE (
    seq bigint, prev bigint, id uuid, topic text, object text, payload jsonb, metadata jsonb, occurred_at timestamptz, recorded_at timestamptz,
    subscription_ids uuid[], next_cursor bigint, lease text
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $body$
#variable_conflict use_column
DECLARE
    p_gid ALIAS FOR $1;
    p_cursor ALIAS FOR $2;
    p_limit ALIAS FOR $3;
    p_peek boolean := coalesce($4, false);
    p_under ALIAS FOR $5;
    v_lease numeric := extract(epoch FROM $6) * 1000000;
    v_fault pg_catalog.text;
    v_group bigint;
    v_under pg_catalog.record;
    v_member pg_catalog.uuid;
    v_slot pg_catalog.record;
    v_committed bigint;
    v_fence bigint;
    v_last bigint;
    v_after bigint;
    v_scan pg_catalog.record;
    v_is_idle boolean;
    v_given_to bigint;
    v_given_id pg_catalog.uuid;
    v_lease_text pg_catalog.text;
BEGIN
    v_fault := CASE
        WHEN p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN format('chunk_size is %s; choose from 1 to 1000', coalesce(p_limit::text, 'null'))
        WHEN v_lease IS NULL OR v_lease NOT BETWEEN 100000 AND 3600000000 THEN 'lease_for must be from 100 milliseconds to an hour'
    END;
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION '%', v_fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
    v_group := {schema}.pulled_group(p_gid);
    IF v_group IS NULL THEN
        RAISE EXCEPTION 'there is no group %', quote_literal(p_gid)
            USING ERRCODE = 'undefined_object', HINT = 'Subscribe to it, which makes it.';
    END IF;
    SELECT * INTO v_under FROM {schema}.lease_parts(p_gid, p_under);

    SELECT s.cursor, m.lease_until >= clock_timestamp() AS is_held INTO v_slot
    FROM {schema}.slots s LEFT JOIN {schema}.members m ON m.id = s.owner WHERE s.group_id = v_group ORDER BY s.cursor LIMIT 1;
    v_committed := v_slot.cursor;
    SELECT t.o_seq INTO v_last FROM {schema}.log_tail(v_committed) t;
    IF NOT p_peek THEN
        -- Who asks again and again while nothing happens writes nothing, unless there is somebody who would expire without it.
        IF p_under IS NULL AND p_cursor IS NULL AND v_last <= v_committed AND v_slot.is_held IS NOT TRUE AND NOT EXISTS (
                SELECT 1 FROM {schema}.subscriptions u WHERE u.group_id + 0 = v_group AND u.expires_in IS NOT NULL) THEN
            RETURN;
        END IF;
        v_member := coalesce(v_under.o_member, gen_random_uuid());
        -- Somebody may be changing the group's subscriptions at this moment: then all of it is tried again.
        FOR i IN 1..100 LOOP
            BEGIN
                SELECT * INTO v_slot FROM {schema}.slots_acquire(
                    NULL, p_gid, v_member, 'sql: ' || session_user, 'pull', v_lease::bigint, NULL, v_under.o_fence);
                EXIT;
            EXCEPTION WHEN lock_not_available THEN
                IF i = 100 THEN
                    RAISE;
                END IF;
                PERFORM pg_sleep(0.01);
            END;
        END LOOP;
        IF v_slot.o_slots IS NULL AND (p_under IS NOT NULL OR v_slot.o_held_until IS NULL) THEN
            PERFORM {schema}.lease_lost(p_gid);
        ELSIF v_slot.o_slots IS NULL THEN
            RAISE EXCEPTION 'somebody (%) reads the group % under a lease until %', v_slot.o_held_name, quote_literal(p_gid), v_slot.o_held_until
                USING ERRCODE = 'lock_not_available', HINT = 'Come back then, go on under that lease, or look with peek.';
        END IF;
        v_committed := v_slot.o_cursors[1];
        v_fence := v_slot.o_fences[1];
    END IF;
    IF v_under.o_given_id IS NOT NULL AND NOT {schema}.log_has(v_under.o_given_to, v_under.o_given_id) THEN
        PERFORM {schema}.lease_went_back(p_gid, v_committed, v_under.o_given_to);
    END IF;
    IF p_cursor > v_last OR p_cursor < (CASE WHEN p_peek THEN 0 ELSE v_committed END) THEN
        RAISE EXCEPTION 'cursor is %; this group can be read after %, its cursor, to %, the newest event', p_cursor, v_committed, v_last
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Choose one of these, or look at what is before with peek.';
    END IF;
    v_after := coalesce(p_cursor, v_under.o_at, v_committed);
    SELECT * INTO v_scan FROM {schema}.pull_scan(v_group, p_gid, v_after, p_limit);

    IF NOT p_peek THEN
        PERFORM {schema}.pull_failed(v_group, p_gid, v_scan.o_at, v_scan.o_failed_seqs, v_scan.o_failed_ids, v_scan.o_failed_with);
        v_is_idle := p_under IS NULL AND p_cursor IS NULL AND cardinality(v_scan.o_events) = 0;
        IF v_is_idle THEN
            PERFORM {schema}.pull_commit(v_group, v_scan.o_at, v_scan.o_lost_from, v_scan.o_lost_to);
            PERFORM {schema}.member_leave(NULL, v_member);
        ELSIF p_under IS NULL AND cardinality(v_scan.o_events) = 0 THEN
            PERFORM {schema}.member_leave(NULL, v_member);
        ELSE
            UPDATE {schema}.members m SET lease_until = clock_timestamp() + v_lease::bigint * interval '1 microsecond' WHERE m.id = v_member;
        END IF;
        v_given_to := greatest(v_scan.o_at, v_under.o_given_to);
        SELECT {schema}.event_id(e.id_part, e.recorded_at) INTO v_given_id
        FROM {schema}.stored_events e WHERE e.seq = v_given_to;
        v_lease_text := {schema}.lease_text(v_member, v_fence, v_scan.o_at, v_given_to,
            coalesce(v_scan.o_lost_from, v_under.o_lost_from), coalesce(v_scan.o_lost_to, v_under.o_lost_to), v_given_id);
    END IF;
    RETURN QUERY
    -- `prev` is the previous event of the object among these: the log's own may be one that the group
    -- does not get (H4).
    SELECT e.seq, CASE WHEN e.object IS NOT NULL THEN lag(e.seq) OVER (PARTITION BY e.object ORDER BY e.seq) END,
        {schema}.event_id(e.id, e.recorded_at), e.topic::text, e.object::text, e.payload,
        e.metadata, e.occurred_at, e.recorded_at, w.ids, v_scan.o_at, v_lease_text
    FROM unnest(v_scan.o_events::{schema}.condition_event[]) e
    JOIN (
        SELECT x.seq, array_agg(x.id ORDER BY x.id) AS ids FROM unnest(v_scan.o_seqs, v_scan.o_ids) x(seq, id) GROUP BY x.seq
    ) w ON w.seq = e.seq
    ORDER BY e.seq;
END
$body$;

-- Counts the events on which conditions failed, with their subscriptions, and tells the caller of the first. What was not passed is looked at again, and counted then.
CREATE OR REPLACE FUNCTION {schema}.pull_failed(
    p_group bigint, p_gid text, p_at bigint, p_seqs bigint[], p_ids uuid[], p_with text[]
) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_failed pg_catalog.record;
BEGIN
    IF cardinality(p_seqs) = 0 THEN
        RETURN;
    END IF;
    UPDATE {schema}.subscriptions u
    SET failures = u.failures + f.count, failed_seq = f.seq, failed_at = clock_timestamp(), failed_with = f.said
    FROM (
        SELECT x.id, count(*) AS count, max(x.seq) AS seq, (array_agg(x.said ORDER BY x.seq DESC))[1] AS said
        FROM unnest(p_seqs, p_ids, p_with) x(seq, id, said) WHERE x.seq <= p_at GROUP BY x.id
    ) f
    WHERE u.group_id = p_group AND u.id = f.id;
    FOR v_failed IN
        SELECT x.* FROM unnest(p_seqs, p_ids, p_with) x(seq, id, said) WHERE x.seq <= p_at ORDER BY x.seq, x.id LIMIT 10
    LOOP
        RAISE WARNING 'the condition of subscription % of the group % failed on event %, which it does not get: %',
            v_failed.id, quote_literal(p_gid), v_failed.seq, v_failed.said
            USING HINT = 'Test before you cast: CASE WHEN jsonb_typeof(…) = ''number'' THEN … END.';
    END LOOP;
END
$body$;

-- Moves a group, whose slots the caller has, to a place that was looked at, and notes what was lost before it.
CREATE OR REPLACE FUNCTION {schema}.pull_commit(p_group bigint, p_at bigint, p_lost_from bigint, p_lost_to bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    UPDATE {schema}.slots s SET lost_from = p_lost_from, lost_to = p_lost_to, lost_nth = (
        SELECT coalesce(max(x.lost_nth), 0) + 1 FROM {schema}.slots x WHERE x.group_id = p_group)
    WHERE s.group_id = p_group AND p_lost_from > s.cursor AND p_lost_from <= p_at;
    UPDATE {schema}.slots s SET cursor = greatest(s.cursor, p_at), vanished = 0, served_at = greatest(s.served_at, clock_timestamp())
    WHERE s.group_id = p_group;
END
$body$;
