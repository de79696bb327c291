-- When was this id made? To the millisecond.
CREATE OR REPLACE FUNCTION {schema}.id_time(p_id uuid) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
    SELECT to_timestamp(('x' || left(replace(p_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
$body$;

-- A new id: a UUIDv7 of now.
CREATE OR REPLACE FUNCTION {schema}.new_id() RETURNS uuid
LANGUAGE sql VOLATILE
AS $body$
    SELECT (lpad(to_hex(trunc(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
        || right(replace(gen_random_uuid()::text, '-', ''), 19))::uuid
$body$;

-- The first digits of new ids of this time, which differ in five digits at the end.
CREATE OR REPLACE FUNCTION {schema}.id_start(p_at timestamptz) RETURNS text
LANGUAGE sql VOLATILE
AS $body$
    SELECT left((right(lpad(to_hex(trunc(extract(epoch FROM p_at) * 1000)::bigint), 12, '0'), 12)
        || '7' || right(replace(gen_random_uuid()::text, '-', ''), 19))::uuid::text, 31)
$body$;

-- The smallest id of the first millisecond after this time: ids are compared with it, which is cheaper than to read the time of each.
CREATE OR REPLACE FUNCTION {schema}.first_id_after(p_at timestamptz) RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
AS $body$
    SELECT (lpad(to_hex(trunc(extract(epoch FROM p_at) * 1000)::bigint + 1), 12, '0') || repeat('0', 20))::uuid
$body$;
