-- Moves into the log what others have committed in the outbox, and then delayed events whose time has come, in order of
-- (not_before, acceptance). o_count is how many were taken from both, o_more says that the outbox has more, o_next_due when the next delayed event is due.
--
-- Whether there is anything is looked at before the lock is taken, so that an idle system does not take it every second.
--
-- The same lock, numbering and chaining as in append. The row in `delayed` stays, emptied, as the way from id to seq:
-- the id of a delayed event tells when it was accepted, not where it is in the log.
--
-- No more than p_bytes_max bytes enter at once, but always one event: appends wait for the lock meanwhile. A running sum
-- cuts as in read_range.sql, here over what the rows take on the disk: that is what the commit copies, and it is told
-- without reading the values, so that what waits for the next commit costs this one nothing.
CREATE OR REPLACE FUNCTION {schema}.release_due(
    p_now timestamptz, p_hint bigint, p_limit bigint, p_bytes_max bigint,
    OUT o_count bigint, OUT o_last bigint, OUT o_next_due timestamptz, OUT o_more boolean
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $body$
DECLARE
    v_tail bigint;
    v_recorded_at pg_catalog.timestamptz;
    v_trimmed_to bigint;
    v_moved bigint;
    -- Whether a transaction of the outbox was moved in part: nothing may come between its events.
    v_is_between boolean;
BEGIN
    o_count := 0;
    o_more := false;
    SELECT t.o_seq, {schema}.recording_time(p_now, t.o_recorded_at) INTO o_last, v_recorded_at FROM {schema}.log_tail(p_hint) t;
    SELECT d.not_before INTO o_next_due
    FROM {schema}.delayed d WHERE d.seq IS NULL ORDER BY d.not_before, d.accepted LIMIT 1;
    IF NOT (coalesce(o_next_due <= v_recorded_at, false) OR {schema}.outbox_waits()) THEN
        RETURN;
    END IF;
    PERFORM {schema}.lock_log();
    SELECT m.o_count, m.o_more, m.o_tail, m.o_recorded_at, m.o_trimmed_to INTO v_moved, o_more, v_tail, v_recorded_at, v_trimmed_to
    FROM {schema}.outbox_move(p_now, p_hint, p_limit, p_bytes_max) m;
    v_is_between := o_more AND EXISTS (
        SELECT 1 FROM {schema}.outbox_state s JOIN {schema}.outbox o ON o.xid = s.moving);

    WITH due AS (
        SELECT s.*, v_tail + s.nth AS place
        FROM (
            SELECT d.*, row_number() OVER so_far AS nth,
                sum(pg_column_size(d.payload) + coalesce(pg_column_size(d.metadata), 0)) OVER so_far AS bytes
            FROM (
                SELECT * FROM {schema}.delayed w
                WHERE w.seq IS NULL AND w.not_before <= v_recorded_at AND NOT v_is_between
                ORDER BY w.not_before, w.accepted LIMIT p_limit
            ) d
            WINDOW so_far AS (ORDER BY d.not_before, d.accepted ROWS UNBOUNDED PRECEDING)
        ) s
        WHERE s.nth = 1 OR s.bytes <= p_bytes_max
    ), chained AS MATERIALIZED (
        SELECT d.*, CASE WHEN d.object IS NOT NULL THEN coalesce(
            max(d.place) FILTER (WHERE d.to_subscription IS NULL) OVER (
                PARTITION BY d.object ORDER BY d.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            (SELECT e.seq FROM {schema}.stored_events e
             WHERE hashtextextended(e.object, 0) = hashtextextended(d.object, 0) AND e.object = d.object
                AND e.to_subscription IS NULL AND e.seq > v_trimmed_to ORDER BY e.seq DESC LIMIT 1)) END AS prev
        FROM due d
    ), logged AS (
        INSERT INTO {schema}.stored_events
            (seq, prev, recorded_at, occurred_at, id_part, to_subscription, topic, object, payload, metadata)
        SELECT c.place, c.prev, v_recorded_at, c.occurred_at, c.id, c.to_subscription,
            c.topic, c.object, c.payload, c.metadata
        FROM chained c
    ), emptied AS (
        UPDATE {schema}.delayed d
        SET seq = c.place, to_subscription = NULL, topic = NULL, object = NULL, payload = NULL, metadata = NULL, key = NULL
        FROM chained c WHERE d.id = c.id
    )
    SELECT count(*) INTO o_count FROM chained c;
    o_last := v_tail + o_count;
    PERFORM set_config('ensue.logged', ({logged} + o_count)::text, true);
    o_count := o_count + v_moved;
    SELECT d.not_before INTO o_next_due
    FROM {schema}.delayed d WHERE d.seq IS NULL ORDER BY d.not_before, d.accepted LIMIT 1;
END
$body$;
