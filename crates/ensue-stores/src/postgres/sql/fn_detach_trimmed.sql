-- Takes the oldest partition out of the log if all of it is forgotten; answers whether there was one.
--
-- DETACH needs ACCESS EXCLUSIVE on the log, and everybody who comes after it waits behind it: so it gives up after
-- 100 ms, and the next trim tries again. It is a transaction of its own, because removing the files of a large
-- partition may take long, and must not happen under that lock.
CREATE OR REPLACE FUNCTION {schema}.detach_trimmed() RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $body$
DECLARE
    v_from bigint;
BEGIN
    LOCK TABLE {schema}.partitions IN SHARE UPDATE EXCLUSIVE MODE;
    SELECT p.from_seq INTO v_from FROM {schema}.partitions p
    WHERE NOT p.detached AND p.to_seq <= (SELECT s.trimmed_to + 1 FROM {schema}.log_state s)
    ORDER BY p.from_seq LIMIT 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- Somebody may have done it by hand.
    IF NOT EXISTS (SELECT 1 FROM {schema}.partitions_gone() g WHERE g.from_seq = v_from) THEN
        EXECUTE format('ALTER TABLE %I.stored_events DETACH PARTITION %I.%I',
            {schema_text}, {schema_text}, 'events_p' || v_from);
    END IF;
    UPDATE {schema}.partitions p SET detached = true WHERE p.from_seq = v_from;
    RETURN true;
END
$body$;
