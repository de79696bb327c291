-- Which of the 1,024 locks of lanes and keys is this one's? p_what is `o` and an object, or `k` and a unique_key.
CREATE OR REPLACE FUNCTION {schema}.job_bucket(p_handler text, p_what text) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
    SELECT (hashtextextended(p_what, hashtextextended(p_handler, 0)) & 1023)::int
$body$;

-- Locks these lanes and unique keys until the end of the transaction. In order, so that two calls do
-- not wait for each other; one lock for many lanes, so that a large call does not fill the server's
-- table of locks.
--
-- The locks are advisory, so any login can take them. Locks of rows, which need a right, took 0.6 ms
-- more for a call with 400 objects (0.6 to 0.7 ms with these). So a wait is bounded, by the session's
-- lock_timeout or by {lane_lock_time_max}, and its error names the holder.
CREATE OR REPLACE FUNCTION {schema}.jobs_lock(p_buckets int[]) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_is_unbounded boolean := current_setting('lock_timeout') = '0';
BEGIN
    IF v_is_unbounded THEN
        PERFORM set_config('lock_timeout', '{lane_lock_time_max}', true);
    END IF;
    PERFORM pg_advisory_xact_lock({lock_lanes}, b.bucket)
    FROM (SELECT DISTINCT x.bucket FROM unnest(p_buckets) x(bucket) ORDER BY x.bucket) b;
    IF v_is_unbounded THEN
        PERFORM set_config('lock_timeout', '0', true);
    END IF;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION 'the lock of a lane is held by %', coalesce((
            SELECT string_agg(DISTINCT format('pid %s (user %s)', l.pid, coalesce(a.usename, '?')), ', ')
            FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
            WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted AND l.pid <> pg_backend_pid()
                AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                AND l.classid::bigint = {lock_lanes}::bigint & 4294967295
                AND l.objid::bigint = ANY (p_buckets)), 'a session that has ended')
        USING ERRCODE = 'lock_not_available',
            HINT = 'Try again; end that session with pg_terminate_backend if it keeps the lock.';
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
