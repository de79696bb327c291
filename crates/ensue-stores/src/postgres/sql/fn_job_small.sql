-- Which of the 1,024 locks of lanes and keys is this one's? p_what is `o` and an object, or `k` and a unique_key.
CREATE OR REPLACE FUNCTION {schema}.job_bucket(p_handler text, p_what text) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
    SELECT (hashtextextended(p_what, hashtextextended(p_handler, 0)) & 1023)::int
$body$;

-- Who may change these lanes and use these keys now: one transaction at a time, until it has committed. In order, so that
-- no two wait for each other; one lock for many lanes, so that a large call does not fill the server's table of locks.
CREATE OR REPLACE FUNCTION {schema}.jobs_lock(p_buckets int[]) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM pg_advisory_xact_lock({lock_lanes}, b.bucket)
    FROM (SELECT DISTINCT x.bucket FROM unnest(p_buckets) x(bucket) ORDER BY x.bucket) b;
END
$body$;

-- Are the jobs of this handler the tasks of a collection? As `tasks::Collection::of_handler`: letters are told by what they are not, as a
-- database of the locale C knows few of them.
CREATE OR REPLACE FUNCTION {schema}.is_task(p_handler text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
    SELECT p_handler ~ '^task[.][^.:/@+~=$]+[.][^.:/@+~=$]+$' AND octet_length(split_part(p_handler, '.', 2)) <= {name_bytes_max}
        AND octet_length(split_part(p_handler, '.', 3)) <= {name_bytes_max}
$body$;

-- The newest errors with one more.
CREATE OR REPLACE FUNCTION {schema}.job_kept(p_all anyarray, p_one anyelement) RETURNS anyarray
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
    SELECT (array_append(p_all, p_one))[greatest(coalesce(cardinality(p_all), 0) + 2 - {errors_max}, 1):]
$body$;

-- Does a rule hold this object at this time?
CREATE OR REPLACE FUNCTION {schema}.object_is_held(p_object text, p_now timestamptz) RETURNS boolean
LANGUAGE sql STABLE
AS $body$
    SELECT EXISTS (SELECT 1 FROM {schema}.rules r
        WHERE r.scope = 'object:' || p_object AND (r.expires_at IS NULL OR r.expires_at > p_now))
$body$;

-- Jobs have become available that are not new: other processes hear of it as they hear of new ones, by the numbers that
-- were given out.
CREATE OR REPLACE FUNCTION {schema}.jobs_ring() RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM nextval(format('%I.job_numbers', {schema_text})::regclass);
END
$body$;

-- Where these jobs stand in the order in which they are taken, as far as they may be.
CREATE OR REPLACE FUNCTION {schema}.jobs_ready(
    p_numbers bigint[], OUT o_handlers text[], OUT o_ranks bigint[], OUT o_turns bigint[]
) LANGUAGE sql VOLATILE
AS $body$
    SELECT array_agg(j.handler), array_agg(j.rank), array_agg(j.turn)
    FROM {schema}.jobs j WHERE j.number = ANY (p_numbers) AND coalesce(j.state, '') = 'available'
$body$;
