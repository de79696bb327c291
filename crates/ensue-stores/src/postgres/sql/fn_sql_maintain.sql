-- A setting as it is now.
CREATE OR REPLACE FUNCTION {schema}.setting(p_key text, p_default text) RETURNS text LANGUAGE plpgsql STABLE
AS $body$
BEGIN
    RETURN coalesce((SELECT c.value FROM {schema}.config c WHERE c.key = p_key), p_default);
END
$body$;

-- How many events a setting means: it is a number, or a length of time; then as many as were recorded in the last such time.
CREATE OR REPLACE FUNCTION {schema}.events_of(p_setting text) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF p_setting ~ '^[0-9]+$' THEN
        RETURN p_setting::bigint;
    END IF;
    RETURN (SELECT t.o_seq FROM {schema}.log_tail(0) t) - {schema}.seq_before(clock_timestamp() - p_setting::interval, 0);
END
$body$;

-- How many events a new partition holds, and how many places are to have one ahead, as it is set now.
CREATE OR REPLACE FUNCTION {schema}.partitions_set(OUT o_rows bigint, OUT o_ahead bigint) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_interval pg_catalog.text := {schema}.setting('partition_interval', '1000000');
    v_ahead pg_catalog.text := {schema}.setting('future_intervals_to_create', '3');
BEGIN
    o_rows := CASE WHEN v_interval ~ '^[0-9]+$' THEN v_interval::bigint ELSE least(greatest({schema}.events_of(v_interval), 10000), 10000000) END;
    o_ahead := CASE WHEN v_ahead ~ '^[0-9]+$' THEN o_rows * v_ahead::bigint
        ELSE least(greatest({schema}.events_of(v_ahead), o_rows), o_rows * 100) END;
END
$body$;

-- The oldest place of the log that a group needs, and whose it is; no row if there are no groups. A lane that stands still needs its event and what comes after it.
CREATE OR REPLACE FUNCTION {schema}.log_needed(OUT o_from bigint, OUT o_group text) LANGUAGE sql STABLE
AS $body$
    SELECT n.needed, n.name FROM (
        SELECT g.name, least(
            (SELECT min(s.cursor) + 1 FROM {schema}.slots s WHERE s.group_id = g.id),
            (SELECT min(greatest(l.position, l.parked_to)) FROM {schema}.lanes l
             WHERE l.group_id = g.id AND l.state IN ('waiting', 'held'))) AS needed
        FROM {schema}.groups g
    ) n
    ORDER BY n.needed, n.name LIMIT 1
$body$;

-- What a node does now and then, for those who run none: makes partitions ahead, forgets what is older than partition_retention_period but never what a
-- group has not passed or a lane needs, removes partitions that are forgotten, lets jobs go on whose time has come. Call it every minute or so, in a transaction of its
-- own, and again at once while it answers `again`.
--
-- What changes the structure of the log waits only briefly for its lock, because everybody else waits behind it; what did not succeed is left to
-- the next call. A partition is taken out of the log by one call and its files are removed by the next: not while the log is locked.
CREATE OR REPLACE FUNCTION {schema}.maintain(
    OUT partitions_made bigint, OUT partitions_dropped bigint, OUT events_trimmed bigint, OUT kept_for text, OUT again boolean
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_retention interval := {schema}.setting('partition_retention_period', NULL)::interval;
    v_attached bigint;
    v_needed pg_catalog.record;
    v_keep_from bigint;
    v_first bigint;
    v_limit bigint := 100000;
BEGIN
    again := false;
    partitions_dropped := 0;
    events_trimmed := 0;
    PERFORM {schema}.need_read_committed('maintain');
    -- First: what follows may have something to say in the log.
    v_attached := (SELECT count(*) FROM pg_inherits i WHERE i.inhparent = to_regclass(quote_ident({schema_text}) || '.stored_events'));
    BEGIN
        PERFORM {schema}.ensure_partitions(w.o_rows, w.o_ahead)
        FROM {schema}.partitions_wanted(NULL, NULL, false) w;
    EXCEPTION WHEN lock_not_available THEN
        again := true;
    END;
    partitions_made := (SELECT count(*) FROM pg_inherits i WHERE i.inhparent = to_regclass(quote_ident({schema_text}) || '.stored_events')) - v_attached;
    again := {schema}.subscriptions_expire(NULL, 1000) >= 1000 OR again;
    again := {schema}.purge_keys(NULL, 0, 1000) >= 1000 OR again;
    PERFORM {schema}.members_forget(clock_timestamp());
    again := {schema}.group_sweep(1000) OR again;
    IF NOT EXISTS (SELECT 1 FROM {schema}.members m WHERE m.kind = 'handler' AND m.lease_until > clock_timestamp()) THEN
        -- Nobody runs a node, who would do it by its own settings.
        again := {schema}.jobs_purge(false, clock_timestamp() - interval '7 days', 100000, 1000) >= 1000 OR again;
        -- How long tasks are kept only nodes know.
        again := {schema}.jobs_purge(true, '-infinity', 100000, 1000) >= 1000 OR again;
        again := {schema}.deliveries_purge(clock_timestamp() - interval '7 days', 100000, 1000) >= 1000 OR again;
    END IF;
    -- Behind what locks groups and members: so do those who settle.
    PERFORM {schema}.rules_expire();
    again := {schema}.jobs_tick(1000) >= 1000 OR again;
    BEGIN
        WHILE partitions_dropped < 10 AND {schema}.drop_detached() LOOP
            partitions_dropped := partitions_dropped + 1;
        END LOOP;
    EXCEPTION WHEN lock_not_available THEN
        again := true;
        partitions_dropped := 0;
    END;
    IF v_retention IS NOT NULL THEN
        v_first := (SELECT s.trimmed_to + 1 FROM {schema}.log_state s);
        v_keep_from := {schema}.seq_before(clock_timestamp() - v_retention, 0) + 1;
        SELECT * INTO v_needed FROM {schema}.log_needed();
        IF v_needed.o_from < v_keep_from THEN
            v_keep_from := v_needed.o_from;
            kept_for := v_needed.o_group;
        END IF;
        IF v_keep_from > v_first THEN
            SELECT t.o_first - v_first INTO events_trimmed FROM {schema}.trim(v_keep_from, v_limit, 0) t;
            again := events_trimmed >= v_limit OR again;
        END IF;
    END IF;
    again := {schema}.delete_trimmed(v_limit) > 0 OR again;
    -- Last: these lock the log for everybody.
    BEGIN
        again := {schema}.detach_trimmed() OR again;
        PERFORM {schema}.partitions_resize(w.o_rows, w.o_ahead, w.o_slack)
        FROM {schema}.partitions_wanted(NULL, NULL, false) w;
    EXCEPTION WHEN lock_not_available THEN
        NULL; -- Somebody reads it; nothing is gained by asking again at once.
    END;
END
$body$;
