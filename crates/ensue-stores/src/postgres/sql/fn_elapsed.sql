-- The microseconds between two times.
CREATE OR REPLACE FUNCTION {schema}.elapsed(p_since timestamptz, p_now timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
    SELECT (extract(epoch FROM p_now - p_since) * 1000000)::bigint
$body$;
