-- Who may write the log now: one transaction at a time, until it has committed.
-- The key is made from the schema's name, so that two logs in one database do not wait for each other. `append` takes
-- the same lock itself, which spares it a call.
CREATE OR REPLACE FUNCTION {schema}.lock_log() RETURNS void LANGUAGE plpgsql VOLATILE AS $body$
BEGIN
    PERFORM pg_advisory_xact_lock({lock_log});
END
$body$;
