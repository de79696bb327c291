-- What time is it for the log? The server's clock, or the injected one, but never before the newest event (H2), unless
-- that was written by hand and is at infinity.
-- `append` has the same expression in itself, which spares it a call.
CREATE OR REPLACE FUNCTION {schema}.recording_time(p_now timestamptz, p_newest timestamptz) RETURNS timestamptz
LANGUAGE sql VOLATILE
AS $body$
    SELECT greatest(coalesce(p_now, clock_timestamp()), nullif(p_newest, 'infinity'))
$body$;
