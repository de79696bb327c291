-- Writes what owners have to say about their slots, in one round trip and one commit. For each change o_states says
-- 'done', 'lost', 'back', 'key' or 'invalid'; of all but the first nothing is written.
--
-- Arrays are parallel: those of the first line one element for each change of a slot, the others for each lane, delivery,
-- line, event and job, whose change is told by its number, from 1; null if there is none of the kind.
--   p_call    null, or the identity of a settlement that must not be done twice: who sends it again is told what was
--             answered first
--   p_relied_seqs, p_relied_ids  events that changes rely on; p_relies_on says which of them for each change, from 1. A
--             change whose event the log does not hold is answered with 'back': a failover has lost it (H35)
--   p_waves   in which wave the events of a change are published, see settle_events; 0 if its owner has refused them:
--             then only its fence is looked at
--
-- The slots are locked in order and before the log. Whoever takes one of them over waits, or has done so before: the
-- fences are read after the lock.
CREATE OR REPLACE FUNCTION {schema}.slots_settle(
    p_now timestamptz, p_hint bigint, p_call uuid,
    p_groups text[], p_slots int[], p_members uuid[], p_fences bigint[], p_cursors bigint[],
    p_relied_seqs bigint[], p_relied_ids uuid[], p_relies_on int[],
    p_lost_from bigint[], p_lost_to bigint[], p_waves int[],
    p_lane_changes int[], p_lane_keys text[], p_lane_positions bigint[], p_lane_states text[], p_lane_attempts bigint[],
    p_lane_not_before timestamptz[], p_lane_errors text[], p_lane_redriven boolean[],
    p_delivery_changes int[], p_delivery_seqs bigint[], p_delivery_objects text[], p_delivery_states text[],
    p_delivery_attempts bigint[], p_delivery_errors text[], p_started_at timestamptz[], p_finished_at timestamptz[],
    p_line_changes int[], p_line_seqs bigint[], p_line_attempts bigint[], p_line_at timestamptz[],
    p_line_levels text[], p_line_messages text[],
    p_event_changes int[], p_id_parts uuid[], p_topics text[], p_payloads text[], p_metadata text[],
    p_occurred_at timestamptz[], p_to uuid[], p_objects text[], p_keys text[], p_fingerprints bytea[],
    p_not_before timestamptz[],
    p_job_changes int[], p_chances int[], p_handlers text[], p_job_objects text[], p_ordered boolean[],
    p_job_payloads text[], p_job_metadata text[], p_ranks bigint[], p_job_not_before timestamptz[], p_job_keys text[],
    p_attempts_max int[], p_exhausted text[], p_event_seqs bigint[], p_event_prevs bigint[], p_event_ids uuid[],
    p_event_topics text[],
    OUT o_states text[], OUT o_reasons text[], OUT o_tail bigint, OUT o_recorded_at timestamptz[], OUT o_seqs bigint[],
    OUT o_prevs bigint[], OUT o_ids uuid[], OUT o_conflicts boolean[]
) LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
    v_groups bigint[];
    v_held boolean[]; -- for each event that is relied on
    v_late boolean; -- is a lease among them that has passed, so that its groups may not have been read?
    v_change pg_catalog.record;
BEGIN
    PERFORM 1 FROM {schema}.slots s
    JOIN {schema}.groups g ON g.id = s.group_id
    JOIN (SELECT DISTINCT c.name, c.slot FROM unnest(p_groups, p_slots) c(name, slot)) c
        ON g.name = c.name AND s.slot = c.slot
    ORDER BY s.group_id, s.slot FOR UPDATE OF s;
    IF p_call IS NOT NULL THEN
        SELECT t.states, t.reasons, t.tail, t.recorded_at, t.seqs, t.prevs, t.ids, t.conflicts
        INTO o_states, o_reasons, o_tail, o_recorded_at, o_seqs, o_prevs, o_ids, o_conflicts
        FROM {schema}.settlements t WHERE t.call = p_call;
        IF FOUND THEN
            -- It may be on this server alone, if whoever stored it was ended while it waited for a synchronous standby.
            -- Only a commit that has written something waits for the standby, as this answer must too.
            PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
            RETURN;
        END IF;
    END IF;
    v_now := coalesce(p_now, clock_timestamp());
    SELECT array_agg(CASE WHEN s.owner = c.member AND s.fence = c.fence
                AND (m.kind = 'handler' OR m.lease_until >= v_now) THEN 'done' ELSE 'lost' END ORDER BY c.n),
        array_agg(g.id ORDER BY c.n), bool_or(m.lease_until < v_now)
    INTO o_states, v_groups, v_late
    FROM unnest(p_groups, p_slots, p_members, p_fences) WITH ORDINALITY c(name, slot, member, fence, n)
    LEFT JOIN {schema}.groups g ON g.name = c.name
    LEFT JOIN {schema}.slots s ON s.group_id = g.id AND s.slot = c.slot
    LEFT JOIN {schema}.members m ON m.id = c.member;

    IF p_relied_seqs IS NOT NULL THEN
        v_held := ARRAY(
            SELECT {schema}.log_has(r.seq, r.id) FROM unnest(p_relied_seqs, p_relied_ids) WITH ORDINALITY r(seq, id, n)
            ORDER BY r.n);
        o_states := ARRAY(
            SELECT CASE WHEN c.state = 'done' AND NOT v_held[c.relies_on] THEN 'back' ELSE c.state END
            FROM unnest(o_states, p_relies_on) WITH ORDINALITY c(state, relies_on, n) ORDER BY c.n);
    END IF;

    -- Before the log: everybody takes these locks in this order.
    IF p_job_objects IS NOT NULL OR p_job_keys IS NOT NULL THEN
        LOCK TABLE {schema}.rules_lock IN ROW SHARE MODE;
        PERFORM {schema}.jobs_lock(ARRAY(
            SELECT {schema}.job_bucket(b.handler, 'o' || b.object) FROM unnest(p_handlers, p_job_objects) b(handler, object)
            WHERE b.object IS NOT NULL
            UNION SELECT {schema}.job_bucket(b.handler, 'k' || b.key) FROM unnest(p_handlers, p_job_keys) b(handler, key)
            WHERE b.key IS NOT NULL));
    END IF;
    IF p_event_changes IS NOT NULL THEN
        SELECT * INTO o_states, o_reasons, o_tail, o_recorded_at, o_seqs, o_prevs, o_ids, o_conflicts
        FROM {schema}.settle_events(
            p_now, p_hint, o_states, p_waves, p_event_changes, p_id_parts, p_topics, p_payloads, p_metadata,
            p_occurred_at, p_to, p_objects, p_keys, p_fingerprints, p_not_before);
    END IF;
    v_groups := ARRAY(
        SELECT CASE WHEN c.state = 'done' AND c.wave <> 0 THEN c.group_id END
        FROM unnest(v_groups, o_states, p_waves) WITH ORDINALITY c(group_id, state, wave, n) ORDER BY c.n);

    IF v_late THEN
        PERFORM {schema}.expired_forget(g.id, v_now) FROM {schema}.groups g
        WHERE g.id = ANY (v_groups) AND g.subscriptions > 0;
    END IF;
    UPDATE {schema}.slots s SET cursor = c.cursor, vanished = 0, served_at = greatest(s.served_at, v_now)
    FROM (
        SELECT x.group_id, x.slot, max(x.cursor) AS cursor
        FROM unnest(v_groups, p_slots, p_cursors) x(group_id, slot, cursor)
        WHERE x.group_id IS NOT NULL AND x.cursor IS NOT NULL GROUP BY x.group_id, x.slot
    ) c
    WHERE s.group_id = c.group_id AND s.slot = c.slot AND s.cursor < c.cursor;
    IF p_lost_from IS NOT NULL THEN
        FOR v_change IN
            SELECT x.* FROM unnest(v_groups, p_slots, p_lost_from, p_lost_to)
                WITH ORDINALITY x(group_id, slot, lost_from, lost_to, n)
            WHERE x.group_id IS NOT NULL AND x.lost_from IS NOT NULL ORDER BY x.n
        LOOP
            UPDATE {schema}.slots s
            SET lost_from = v_change.lost_from, lost_to = v_change.lost_to, lost_nth = (
                SELECT coalesce(max(x.lost_nth), 0) + 1 FROM {schema}.slots x WHERE x.group_id = v_change.group_id)
            WHERE s.group_id = v_change.group_id AND s.slot = v_change.slot;
        END LOOP;
    END IF;
    IF p_lane_changes IS NOT NULL THEN
        PERFORM {schema}.settle_lanes(v_now, v_groups, p_slots, p_lane_changes, p_lane_keys, p_lane_positions,
            p_lane_states, p_lane_attempts, p_lane_not_before, p_lane_errors, p_lane_redriven);
    END IF;
    IF p_delivery_changes IS NOT NULL THEN
        PERFORM {schema}.settle_deliveries(v_groups, p_delivery_changes, p_delivery_seqs, p_delivery_objects,
            p_delivery_states, p_delivery_attempts, p_delivery_errors, p_started_at, p_finished_at);
    END IF;
    IF p_line_changes IS NOT NULL THEN
        PERFORM {schema}.settle_lines(v_groups, p_line_changes, p_line_seqs, p_line_attempts, p_line_at,
            p_line_levels, p_line_messages);
    END IF;
    IF p_job_changes IS NOT NULL THEN
        PERFORM {schema}.jobs_insert(v_now, ARRAY(
                SELECT v_groups[j.change] IS NOT NULL FROM unnest(p_job_changes) WITH ORDINALITY j(change, n) ORDER BY j.n),
            p_chances, p_handlers, p_job_objects, p_ordered, p_job_payloads, p_job_metadata, p_ranks, p_job_not_before,
            p_job_keys, p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids, p_event_topics);
    END IF;
    IF p_call IS NOT NULL THEN
        INSERT INTO {schema}.settlements
            (call, settled_at, states, reasons, tail, recorded_at, seqs, prevs, ids, conflicts)
        VALUES (p_call, clock_timestamp(), o_states, o_reasons, o_tail, o_recorded_at, o_seqs, o_prevs, o_ids, o_conflicts);
        -- Two for each that comes.
        DELETE FROM {schema}.settlements d WHERE d.call = ANY (ARRAY(
            SELECT t.call FROM {schema}.settlements t WHERE t.settled_at < clock_timestamp() - interval '1 hour'
            ORDER BY t.settled_at LIMIT 2 FOR UPDATE SKIP LOCKED));
    END IF;
END
$body$;
