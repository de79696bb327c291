-- What has happened? In one round trip all that an idle process asks: where the log ends and with which event, when the
-- next delayed event and the next schedule are due, the versions of the rules and of what is defined, how many numbers were given to jobs and which
-- transactions may have drawn them (all below o_xmin have ended, all below o_xmax have begun), when the next job is due
-- or its lease passes, and, for a member, what it hears when it renews its lease for p_lease microseconds. A row for
-- each process that lives, and one at least; no version if no such member is known.
CREATE FUNCTION {schema}.pulse(p_now timestamptz, p_hint bigint, p_member uuid, p_lease bigint)
RETURNS TABLE (
    o_now timestamptz, o_last bigint, o_next_due timestamptz, o_id_part uuid, o_recorded_at timestamptz,
    o_version bigint, o_id uuid, o_name text, o_kind text,
    o_rules_version bigint, o_jobs_sent bigint, o_jobs_due timestamptz, o_xmin bigint, o_xmax bigint,
    o_definitions_version bigint, o_schedules_due timestamptz
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
    v_trimmed_to bigint;
    v_lapsed timestamptz := coalesce(p_now, clock_timestamp()) - interval '30 seconds';
BEGIN
    SELECT t.o_seq, t.o_trimmed_to INTO o_last, v_trimmed_to FROM {schema}.log_tail(p_hint) t;
    SELECT e.id_part, e.recorded_at INTO o_id_part, o_recorded_at
    FROM {schema}.events e WHERE e.seq = o_last AND e.seq > v_trimmed_to;
    SELECT w.not_before INTO o_next_due
    FROM {schema}.delayed w WHERE w.seq IS NULL ORDER BY w.not_before, w.accepted LIMIT 1;
    SELECT s.version INTO o_rules_version FROM {schema}.rules_state s;
    SELECT s.version INTO o_definitions_version FROM {schema}.definitions_state s;
    -- A sequence that was never asked shows the number that it will give first.
    SELECT CASE WHEN n.is_called THEN n.last_value ELSE 0 END INTO o_jobs_sent FROM {schema}.job_numbers n;
    -- In a statement of its own, with a snapshot from after that.
    SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint INTO o_xmin, o_xmax
    FROM pg_current_snapshot() s;
    o_jobs_due := least(
        (SELECT j.not_before FROM {schema}.jobs j WHERE j.state IN ('scheduled', 'retrying')
         ORDER BY j.not_before, j.number LIMIT 1),
        -- One that passed long ago is found by who looks at all of them now and then; the index may be full of what is over.
        (SELECT j.lease_until FROM {schema}.jobs j
         WHERE j.state = 'running' AND j.lease_until > v_lapsed
         ORDER BY j.lease_until, j.number LIMIT 1));
    SELECT s.due INTO o_schedules_due FROM {schema}.schedules s WHERE s.due IS NOT NULL AND NOT s.held
    ORDER BY s.due, s.name LIMIT 1;
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
