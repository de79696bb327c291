-- How many events a new partition is to hold, how many places are to have one ahead, and how many
-- times larger than that one that is ahead may be before it is replaced.
--
--   p_rows, p_ahead  the size that the node was given, or null: as `config` says
--   p_forgets        whether the node has a retention of its own
--
-- Retention frees the disk partition by partition. So where there is a retention, a partition holds at
-- most an eighth of the events that the log has now, and no more than the setting; 10,000 at least.
-- The size doubles in steps, so that a log that varies a little keeps it.
CREATE OR REPLACE FUNCTION {schema}.partitions_wanted(
    p_rows bigint, p_ahead bigint, p_forgets boolean,
    OUT o_rows bigint, OUT o_ahead bigint, OUT o_slack bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_set pg_catalog.record;
    v_live bigint;
    v_rows bigint := {partition_rows_small};
BEGIN
    o_slack := 1;
    IF p_rows IS NOT NULL THEN
        o_rows := p_rows;
        o_ahead := p_ahead;
        RETURN;
    END IF;
    SELECT s.o_rows, s.o_ahead INTO v_set FROM {schema}.partitions_set() s;
    o_rows := v_set.o_rows;
    o_ahead := v_set.o_ahead;
    IF {schema}.setting('partition_interval', '') !~ '^[0-9]+$' THEN
        o_slack := 2; -- A length of time comes to another number each time.
    END IF;
    IF p_forgets OR {schema}.setting('partition_retention_period', NULL) IS NOT NULL THEN
        SELECT t.o_seq - t.o_trimmed_to INTO v_live FROM {schema}.log_tail(0) t;
        WHILE v_rows * 16 <= v_live LOOP
            v_rows := v_rows * 2;
        END LOOP;
        IF v_rows < o_rows THEN
            o_ahead := greatest(o_ahead / o_rows, 1) * v_rows;
            o_rows := v_rows;
            o_slack := 2;
        END IF;
    END IF;
END
$body$;

-- The first partition that is ahead of the end of the log and has another size than it should have;
-- null if there is none. The partition of the next event is not one of them.
CREATE OR REPLACE FUNCTION {schema}.partition_to_resize(p_rows bigint, p_slack bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_next bigint := (SELECT t.o_seq + 1 FROM {schema}.log_tail(0) t);
BEGIN
    RETURN (
        SELECT min(p.from_seq) FROM {schema}.partitions p
        WHERE NOT p.detached AND p.from_seq > v_next
            AND (p.to_seq - p.from_seq > p_rows * p_slack
                OR p_slack = 1 AND p.to_seq - p.from_seq < p_rows));
END
$body$;

-- Replaces partitions ahead that have another size than they should have, with all that follow them;
-- returns whether there were any.
--
-- They are empty. The log is locked for the milliseconds that it takes, and for 100 ms at most while
-- others use it: then nothing is changed, and the next call tries again.
CREATE OR REPLACE FUNCTION {schema}.partitions_resize(p_rows bigint, p_rows_ahead bigint, p_slack bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $body$
DECLARE
    v_from bigint;
    v_old pg_catalog.record;
BEGIN
    IF {schema}.partition_to_resize(p_rows, p_slack) IS NULL THEN
        RETURN false;
    END IF;
    LOCK TABLE {schema}.partitions IN SHARE UPDATE EXCLUSIVE MODE;
    LOCK TABLE {schema}.stored_events IN ACCESS EXCLUSIVE MODE;
    -- Now nobody appends.
    v_from := {schema}.partition_to_resize(p_rows, p_slack);
    FOR v_old IN
        SELECT p.from_seq FROM {schema}.partitions p WHERE p.from_seq >= v_from ORDER BY p.from_seq DESC
    LOOP
        EXECUTE format('DROP TABLE IF EXISTS %I.%I', {schema_text}, 'events_p' || v_old.from_seq);
        DELETE FROM {schema}.partitions p WHERE p.from_seq = v_old.from_seq;
    END LOOP;
    PERFORM {schema}.ensure_partitions(p_rows, p_rows_ahead);
    RETURN v_from IS NOT NULL;
END
$body$;
