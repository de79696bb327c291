-- What is given to the functions that anybody calls from SQL is checked as over HTTP. Each of these raises an error that names the field, or does nothing.
--
-- Those in SQL are to be inlined: none says more of itself (IMMUTABLE) than what it calls (`format` is STABLE), else it is planned anew in every
-- transaction, which took a publish twice as long.

-- Raises this fault; if there is none it does nothing.
CREATE OR REPLACE FUNCTION {schema}.refuse(p_fault text) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF p_fault IS NOT NULL THEN
        RAISE EXCEPTION '%', p_fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$body$;

-- Whether the text consists of letters and digits of any script and the characters that a segment may have. The test uses the rules of ICU,
-- because those of the database may know only ASCII. A server without ICU accepts every printable character beyond ASCII.
CREATE OR REPLACE FUNCTION {schema}.is_dotted(p_text text) RETURNS boolean LANGUAGE plpgsql STABLE
AS $body$
DECLARE
    v_is boolean;
BEGIN
    EXECUTE 'SELECT $1 COLLATE pg_catalog."und-x-icu" ~ ''^[[:alnum:]_:/@+~=$.-]+$''' INTO v_is USING p_text;
    RETURN v_is;
EXCEPTION WHEN undefined_object OR feature_not_supported OR invalid_parameter_value THEN
    RETURN p_text ~ $re$^[[:alnum:]_:/@+~=$.\u0080-\U0010ffff-]+$$re$ AND p_text !~ $re$[{unprintable}]$re$;
END
$body$;

-- The first unprintable character of a text, escaped. The character class is that of `ensue_core::text::is_unprintable`.
CREATE OR REPLACE FUNCTION {schema}.unprintable_shown(p_text text) RETURNS text LANGUAGE sql IMMUTABLE
AS $body$
    SELECT $re$\u{$re$ || to_hex(ascii(substring(p_text FROM $re$[{unprintable}]$re$))) || '}'
$body$;

-- What is wrong with a dotted key; nothing if it is one.
CREATE OR REPLACE FUNCTION {schema}.dotted_fault(p_key text, p_such_as text) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT CASE
        WHEN coalesce(p_key, '') = '' THEN 'is empty; write dotted segments such as ' || p_such_as
        WHEN octet_length(p_key) > {topic_bytes_max}
            THEN format('has %s bytes; at most {topic_bytes_max} are allowed: shorten it', octet_length(p_key))
        WHEN p_key ~ '(^[.]|[.][.]|[.]$)'
            THEN 'has an empty segment; write one dot between segments and none at the ends, as in ' || p_such_as
        WHEN p_key ~ $re$[{unprintable}]$re$
            THEN 'may not contain ' || {schema}.unprintable_shown(p_key) || '; use letters, digits and _ - : / @ + ~ = $ between dots'
        WHEN p_key !~ '^[[:alnum:]_:/@+~=$.-]+$' AND NOT {schema}.is_dotted(p_key)
            THEN 'may not contain ' || quote_literal(coalesce(
                    substring(p_key FROM $re$[^[:alnum:]_:/@+~=$.\u0080-\U0010ffff-]$re$), substring(p_key FROM '[^[:alnum:]_:/@+~=$.-]')))
                || '; use letters, digits and _ - : / @ + ~ = $ between dots'
    END
$body$;

-- The fault of an identifier that is empty, too long or has an unprintable character; null if it has none or is null.
CREATE OR REPLACE FUNCTION {schema}.plain_fault(p_text text, p_bytes_max int) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT CASE
        WHEN p_text = '' THEN 'is empty; leave it out instead'
        WHEN octet_length(p_text) > p_bytes_max
            THEN format('has %s bytes; at most %s are allowed: shorten it', octet_length(p_text), p_bytes_max)
        WHEN p_text ~ $re$[{unprintable}]$re$
            THEN 'may not contain the character ' || {schema}.unprintable_shown(p_text) || '; leave it out'
    END
$body$;

-- What is wrong with a time; nothing with null.
CREATE OR REPLACE FUNCTION {schema}.time_fault(p_at timestamptz) RETURNS text LANGUAGE sql IMMUTABLE
AS $body$
    SELECT CASE WHEN NOT (p_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-29 00:00:00+00')
        THEN 'is not in the years 1 to 9999; write a time such as 2026-11-15 12:00:00+00' END
$body$;

-- A dotted key: that of a handler, or the name of a schedule.
CREATE OR REPLACE FUNCTION {schema}.check_dotted(p_field text, p_key text) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM {schema}.refuse(p_field || ' ' || {schema}.dotted_fault(p_key, 'mail.send'));
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.check_plain(p_field text, p_text text, p_bytes_max int) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM {schema}.refuse(p_field || ' ' || {schema}.plain_fault(p_text, p_bytes_max));
END
$body$;

-- The microseconds of a lease.
CREATE OR REPLACE FUNCTION {schema}.lease_micros(p_lease interval) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_seconds numeric := extract(epoch FROM p_lease);
BEGIN
    IF v_seconds IS NULL OR v_seconds NOT BETWEEN 0.1 AND 86400 THEN
        PERFORM {schema}.refuse(format('lease is %s; choose 100 milliseconds to 24 hours', coalesce(p_lease::text, 'null')));
    END IF;
    RETURN (v_seconds * 1000000)::bigint;
END
$body$;

-- A time as it is written in events.
CREATE OR REPLACE FUNCTION {schema}.time_text(p_at timestamptz) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT rtrim(rtrim(to_char(p_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), '0'), '.') || 'Z'
$body$;

-- The id of a job, from what is stored of it.
CREATE OR REPLACE FUNCTION {schema}.job_id(p_stamp bigint, p_number bigint) RETURNS text LANGUAGE sql IMMUTABLE
AS $body$
    SELECT (lpad(to_hex(p_stamp >> 12), 12, '0') || '7' || lpad(to_hex(p_stamp & 4095), 3, '0')
        || to_hex(p_number | {rank_min}))::uuid::text
$body$;

-- Back from the id of a job.
CREATE OR REPLACE FUNCTION {schema}.job_of(p_id text, OUT o_number bigint, OUT o_stamp bigint) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_hex pg_catalog.text;
BEGIN
    IF p_id ~* '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN
        v_hex := replace(p_id, '-', '');
        o_number := ('x' || right(v_hex, 16))::bit(64)::bigint & 4611686018427387903;
        o_stamp := (('x' || left(v_hex, 12))::bit(48)::bigint << 12) | ('x' || substr(v_hex, 14, 3))::bit(12)::int;
    ELSE
        PERFORM {schema}.refuse('id is not the id of a job; write the text that came with the job');
    END IF;
END
$body$;

-- The claim of a job under this fence.
CREATE OR REPLACE FUNCTION {schema}.claim_text(p_id text, p_fence bigint) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT c.claim || '-' || {schema}.store_code(c.claim) FROM (SELECT 'claim-' || to_hex(p_fence) || '-' || p_id) c(claim)
$body$;

-- What a worker holds of a job: its place and its fence. A forged claim is a stale one.
CREATE OR REPLACE FUNCTION {schema}.job_held(p_id text, p_claim text, OUT o_number bigint, OUT o_stamp bigint, OUT o_fence bigint)
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_parts pg_catalog.text[] := regexp_match(p_claim, '^claim-([0-9a-f]{1,16})-(.+)-([0-9a-f]{32})$');
BEGIN
    IF v_parts IS NULL THEN
        PERFORM {schema}.refuse('claim is not a claim; send back the text that came with the claimed job');
    END IF;
    SELECT j.o_number, j.o_stamp INTO o_number, o_stamp FROM {schema}.job_of(v_parts[2]) j;
    IF lower(v_parts[2]) IS DISTINCT FROM lower(p_id) THEN
        PERFORM {schema}.refuse(format('claim is of the job %s, not of %s; send back the text that came with this job', v_parts[2],
            coalesce(p_id, 'null')));
    END IF;
    o_fence := ('x' || lpad(v_parts[1], 16, '0'))::bit(64)::bigint;
    IF {schema}.store_code('claim-' || to_hex(o_fence) || '-' || lower(v_parts[2])) IS DISTINCT FROM v_parts[3] THEN
        PERFORM {schema}.job_lost(p_id);
    END IF;
END
$body$;

-- The state of a job whose worker settled this claim in the same way before: 'complete', 'fail' or 'snooze'. Raises an
-- error if it did not. The same rule as `lifecycle::use_claim`.
CREATE OR REPLACE FUNCTION {schema}.job_repeated(
    p_id text, p_number bigint, p_stamp bigint, p_fence bigint, p_settlement text
) RETURNS text LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_state pg_catalog.text;
BEGIN
    SELECT j.state INTO v_state FROM {schema}.jobs j
    WHERE j.number = p_number AND j.stamp = p_stamp AND j.fence = p_fence AND coalesce(j.state, '') <> 'running'
        AND CASE WHEN coalesce(j.state, '') = 'succeeded' THEN 'complete' ELSE j.settled END = p_settlement;
    IF NOT FOUND THEN
        PERFORM {schema}.job_lost(p_id);
    END IF;
    RETURN v_state;
END
$body$;

-- Somebody else has the job, or it is over: nothing was changed.
CREATE OR REPLACE FUNCTION {schema}.job_lost(p_id text) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    RAISE EXCEPTION 'lease lost: job % was taken over or is over, and nothing was changed', p_id
        USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Drop what you have of it.';
END
$body$;

-- How a handler is run that the store keeps, as JSON; null of others: what a program or its config file says is known there alone.
CREATE OR REPLACE FUNCTION {schema}.handler_settings(p_handler text) RETURNS jsonb LANGUAGE plpgsql STABLE
AS $body$
BEGIN
    RETURN (SELECT d.settings::jsonb FROM {schema}.groups g JOIN {schema}.definitions d ON d.group_id = g.id WHERE g.name = p_handler);
END
$body$;

-- How long a job waits that has failed for the p_attempt-th time: as its handler says if the store keeps it, else 1 s doubled with each attempt, up to 5 min,
-- and by chance less.
CREATE OR REPLACE FUNCTION {schema}.job_delay(p_handler text, p_attempt int) RETURNS interval LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_retry pg_catalog.jsonb := {schema}.handler_settings(p_handler) -> 'retry';
    v_delays pg_catalog.jsonb := v_retry -> 'exactly' -> 'delays_us';
    v_first numeric := coalesce((v_retry -> 'doubling' ->> 'first_us')::numeric, 1000000);
    v_max numeric := coalesce((v_retry -> 'doubling' ->> 'max_us')::numeric, 300000000);
    v_micros numeric;
BEGIN
    IF jsonb_array_length(v_delays) > 0 THEN
        v_micros := (v_delays ->> least(p_attempt, jsonb_array_length(v_delays)) - 1)::numeric;
    ELSIF v_delays IS NOT NULL THEN
        v_micros := 0;
    ELSE
        v_micros := trunc(least(v_first * 2::numeric ^ least(p_attempt - 1, 31), v_max) * random()::numeric);
    END IF;
    RETURN least(v_micros, {delay_max_us}) * interval '1 microsecond';
END
$body$;

-- What is decided after a lock must see what was committed before it: a transaction with a snapshot of its own does not.
CREATE OR REPLACE FUNCTION {schema}.need_read_committed(p_what text) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION '% needs a transaction that is read committed, this one is %', p_what, current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction', HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED';
    END IF;
END
$body$;
