-- The id of an event, from what is stored of it: `p_part` with the time put before it, or `p_part` itself where it is
-- whole already, which its version tells. The same as `id_parts::whole`.
--
-- STABLE, because `extract` is: a function that says more of itself than what it calls is not inlined, and is planned anew in every transaction.
CREATE OR REPLACE FUNCTION {schema}.event_id(p_part uuid, p_recorded_at timestamptz) RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
AS $body$
    SELECT CASE WHEN substr(p_part::text, 15, 1) <> '0' THEN p_part
        ELSE (right(lpad(to_hex(trunc(extract(epoch FROM p_recorded_at) * 1000)::bigint), 12, '0'), 12)
            || '7' || right(replace(p_part::text, '-', ''), 19))::uuid END
$body$;
