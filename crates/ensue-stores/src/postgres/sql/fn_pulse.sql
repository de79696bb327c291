-- What has happened? In one round trip all that an idle process asks: where the log ends and with which event, when the
-- next delayed event and the next schedule are due, whether something waits in the outbox, the versions of the rules and of what is defined, how many numbers were given to jobs and which
-- transactions may have drawn them (all below o_xmin have ended, o_next_xid has not begun), when the next job is due
-- or its lease passes soon (no lease up to p_leases_after is looked at), and, for a member, what it hears when it renews its lease for p_lease microseconds. A row for
-- each process that lives, and one at least; no version if no such member is known. With p_bells also how many listen, and
-- whether one of them sleeps (postgres/bell.rs). Schedules are looked at from where the caller has found none before (fn_schedules_due.sql).
CREATE OR REPLACE FUNCTION {schema}.pulse(
    p_now timestamptz, p_hint bigint, p_member uuid, p_lease bigint, p_bells boolean, p_leases_after timestamptz,
    p_schedules bigint, p_from timestamptz, p_from_name text
) RETURNS TABLE (
    o_now timestamptz, o_last bigint, o_next_due timestamptz, o_id_part uuid, o_recorded_at timestamptz,
    o_version bigint, o_id uuid, o_name text, o_kind text,
    o_rules_version bigint, o_jobs_sent bigint, o_jobs_due timestamptz, o_xmin bigint, o_next_xid bigint,
    o_definitions_version bigint, o_schedules_due timestamptz,
    o_waiting boolean, o_listeners bigint, o_asleep boolean
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_trimmed_to bigint;
    v_now pg_catalog.timestamptz := coalesce(p_now, clock_timestamp());
    v_lapsed pg_catalog.timestamptz := greatest(p_leases_after, v_now - interval '30 seconds');
    -- One that passes later than this is told of by a later pulse: the index may be full of what is over before it passes.
    v_ahead pg_catalog.timestamptz := v_now + interval '3 seconds';
BEGIN
    SELECT t.o_seq, t.o_trimmed_to INTO o_last, v_trimmed_to FROM {schema}.log_tail(p_hint) t;
    SELECT e.id_part, e.recorded_at INTO o_id_part, o_recorded_at
    FROM {schema}.stored_events e WHERE e.seq = o_last AND e.seq > v_trimmed_to;
    SELECT w.not_before INTO o_next_due
    FROM {schema}.delayed w WHERE w.seq IS NULL ORDER BY w.not_before, w.accepted LIMIT 1;
    o_waiting := {schema}.outbox_waits();
    SELECT s.version INTO o_rules_version FROM {schema}.rules_state s;
    SELECT s.version INTO o_definitions_version FROM {schema}.definitions_state s;
    -- A sequence that was never asked shows the number that it will give first.
    SELECT CASE WHEN n.is_called THEN n.last_value ELSE 0 END INTO o_jobs_sent FROM {schema}.job_numbers n;
    -- In a statement of its own, with a snapshot from after that. Its xmax would not do: that is the one after the last that has ended, and
    -- transactions that began later may be under way. An age is counted from the next that will begin.
    SELECT x.oldest::text::bigint, x.oldest::text::bigint + age(x.oldest::xid) INTO o_xmin, o_next_xid
    FROM pg_snapshot_xmin(pg_current_snapshot()) x(oldest);
    o_jobs_due := least(
        (SELECT j.not_before FROM {schema}.jobs j WHERE j.state IN ('scheduled', 'retrying')
         ORDER BY j.not_before, j.number LIMIT 1),
        -- One that passed long ago is found by who looks at all of them now and then; the index may be full of what is over.
        (SELECT j.lease_until FROM {schema}.jobs j
         WHERE j.state = 'running' AND j.lease_until > v_lapsed AND j.lease_until <= v_ahead
         ORDER BY j.lease_until, j.number LIMIT 1));
    o_schedules_due := {schema}.schedules_next(p_schedules, p_from, p_from_name);
    IF p_bells THEN
        SELECT count(*) FILTER (WHERE l.mode = 'ShareLock' AND l.key = {lock_listening}),
            coalesce(bool_or(l.mode = 'ExclusiveLock' AND l.key = {lock_asleep}), false)
        INTO o_listeners, o_asleep
        FROM (
            SELECT a.mode, (a.classid::bigint << 32) | a.objid::bigint AS key FROM pg_locks a
            WHERE a.locktype = 'advisory' AND a.objsubid = 1 AND a.granted
                AND a.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        ) l;
    END IF;
    IF p_member IS NOT NULL THEN
        FOR o_version, o_id, o_name, o_kind IN
            SELECT r.o_version, r.o_id, r.o_name, r.o_kind FROM {schema}.member_renew(p_now, p_member, p_lease) r
        LOOP
            o_now := coalesce(p_now, clock_timestamp());
            RETURN NEXT;
        END LOOP;
    END IF;
    IF o_now IS NULL THEN
        o_now := coalesce(p_now, clock_timestamp());
        RETURN NEXT;
    END IF;
END
$body$;
