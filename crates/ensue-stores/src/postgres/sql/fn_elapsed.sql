-- The microseconds between two times. `infinity` counts as the last representable time.
CREATE OR REPLACE FUNCTION {schema}.elapsed(p_since timestamptz, p_now timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
    SELECT CASE WHEN num_nulls(p_since, p_now) = 0
        THEN (extract(epoch FROM {schema}.stored_time(p_now) - {schema}.stored_time(p_since)) * 1000000)::bigint END
$body$;
