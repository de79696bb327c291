-- Removes a partition that is no longer part of the log; answers whether there was one.
CREATE OR REPLACE FUNCTION {schema}.drop_detached() RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $body$
DECLARE
    v_from bigint;
BEGIN
    LOCK TABLE {schema}.partitions IN SHARE UPDATE EXCLUSIVE MODE;
    SELECT p.from_seq INTO v_from FROM {schema}.partitions p WHERE p.detached ORDER BY p.from_seq LIMIT 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS %I.%I', {schema_text}, 'events_p' || v_from);
    DELETE FROM {schema}.partitions p WHERE p.from_seq = v_from;
    RETURN true;
END
$body$;
