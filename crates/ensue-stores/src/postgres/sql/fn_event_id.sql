-- A time of the log as readers get it: within the years that every client can represent. Rows that were
-- written by hand may have others (H43). The same as `Micros` in types.rs. The argument is not null.
CREATE OR REPLACE FUNCTION {schema}.stored_time(p_at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
    SELECT least(greatest(p_at, '0001-01-01 00:00:00+00'), '9999-12-30 22:00:00.999999+00')
$body$;

-- The id of an event, from what is stored of it: `p_part` with the time put before it, or `p_part` itself where it is
-- whole already, which its version tells. The same as `id_parts::whole`.
--
-- STABLE, because `extract` is: a function that says more of itself than what it calls is not inlined, and is planned anew in every transaction.
-- It runs with the search path of the reader, so all types fit functions and operators of Postgres exactly: no other is preferred.
CREATE OR REPLACE FUNCTION {schema}.event_id(p_part uuid, p_recorded_at timestamptz) RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
AS $body$
    SELECT CASE WHEN substr(p_part::text, 15, 1) <> '0' THEN p_part
        ELSE (right(lpad(to_hex(trunc(extract(epoch FROM {schema}.stored_time(p_recorded_at))
                * 1000::numeric)::bigint), 12, '0'), 12)
            || '7' || right(replace(p_part::text, '-', ''), 19))::uuid END
$body$;
