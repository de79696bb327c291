-- Settlements of claims. Each is part of the caller's transaction: what the worker wrote to the same database commits
-- with it, or not at all. It locks the job and its lane until the transaction ends, so call it last. The answer is the
-- state of the job. A settlement may be repeated under the same claim, also after its transaction has ended: nothing is
-- written again, and the answer is the state at that time. Under a stale claim, or after another settlement, nothing is
-- changed and an error is raised.

CREATE OR REPLACE FUNCTION {schema}.job_end_one(
    p_id text, p_claim text, p_settlement text, p_end text, p_asked text, p_gives_back boolean, p_not_before timestamptz,
    p_error text, p_result jsonb, OUT o_state text, OUT o_repeated boolean
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_held pg_catalog.record;
BEGIN
    SELECT * INTO v_held FROM {schema}.job_held(p_id, p_claim);
    o_state := ({schema}.jobs_end_plain(
        ARRAY[v_held.o_number], ARRAY[v_held.o_stamp], ARRAY[v_held.o_fence], ARRAY[p_end], ARRAY[p_asked], ARRAY[p_gives_back], NULL,
        ARRAY[p_not_before], ARRAY[p_error], ARRAY[p_result::text]))[1];
    o_repeated := o_state IS NULL;
    IF o_repeated THEN
        o_state := {schema}.job_repeated(p_id, v_held.o_number, v_held.o_stamp, v_held.o_fence, p_settlement);
    END IF;
END
$body$;

-- It is done. `events` are published in the same transaction, as by publish_many, and `jobs` are sent, as by enqueue:
-- an array of objects with the fields of POST /v1/jobs.
CREATE OR REPLACE FUNCTION {schema}.complete_job(
    id text, claim text, result jsonb DEFAULT NULL, events jsonb DEFAULT NULL, jobs jsonb DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_ended pg_catalog.record;
BEGIN
    PERFORM {schema}.refuse(CASE WHEN octet_length(result::text) > {event_bytes_max}
        THEN format('result has %s bytes; at most {event_bytes_max} are allowed: store it elsewhere and return a reference',
            octet_length(result::text)) END);
    SELECT * INTO v_ended
    FROM {schema}.job_end_one(id, claim, 'complete', 'succeeded', 'succeeded', false, NULL, NULL, result);
    IF NOT v_ended.o_repeated AND events IS NOT NULL AND events NOT IN ('null', '[]') THEN
        PERFORM {schema}.publish_many(events);
    END IF;
    IF NOT v_ended.o_repeated AND jobs IS NOT NULL AND jobs NOT IN ('null', '[]') THEN
        PERFORM {schema}.jobs_send_many(jobs);
    END IF;
    RETURN v_ended.o_state;
END
$body$;

-- It failed. It is tried again while it has attempts left, after so long or as its handler says, unless `retry` is false: then it is dead.
-- An error is cut at {error_chars_max} characters.
CREATE OR REPLACE FUNCTION {schema}.fail_job(
    id text, claim text, error text, retry boolean DEFAULT true, retry_in interval DEFAULT NULL
) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
#variable_conflict use_variable
DECLARE
    v_held pg_catalog.record;
    v_job {schema}.jobs;
    v_dies boolean;
    v_wait interval;
BEGIN
    IF retry_in < interval '0' THEN
        PERFORM {schema}.refuse(format('retry_in is %s; choose a length of time that is not negative', retry_in));
    END IF;
    SELECT * INTO v_held FROM {schema}.job_held(id, claim);
    SELECT * INTO v_job FROM {schema}.jobs j
    WHERE j.number = v_held.o_number AND j.stamp = v_held.o_stamp AND j.fence = v_held.o_fence AND coalesce(j.state, '') = 'running';
    IF NOT FOUND THEN
        RETURN {schema}.job_repeated(id, v_held.o_number, v_held.o_stamp, v_held.o_fence, 'fail');
    END IF;
    v_dies := NOT coalesce(retry, true) OR v_job.attempts >= v_job.attempts_max;
    v_wait := least(coalesce(retry_in, {schema}.job_delay(v_job.handler, v_job.attempts)), {delay_max_us} * interval '1 microsecond');
    RETURN (SELECT e.o_state FROM {schema}.job_end_one(id, claim, 'fail', CASE WHEN v_dies THEN 'dead' ELSE 'retrying' END,
        'cancelled', false, CASE WHEN NOT v_dies THEN clock_timestamp() + v_wait END,
        coalesce(nullif(left(error, {error_chars_max}), ''), 'the worker gave no reason'), NULL) e);
END
$body$;

-- It is to run again after this time; no attempt is used up.
CREATE OR REPLACE FUNCTION {schema}.snooze_job(id text, claim text, snooze_for interval) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    IF snooze_for IS NULL OR snooze_for < interval '0' THEN
        PERFORM {schema}.refuse(format('snooze_for is %s; choose a length of time that is not negative', coalesce(snooze_for::text, 'null')));
    END IF;
    RETURN (SELECT e.o_state FROM {schema}.job_end_one(id, claim, 'snooze', 'scheduled', 'cancelled', true,
        clock_timestamp() + least(snooze_for, {delay_max_us} * interval '1 microsecond'), NULL, NULL) e);
END
$body$;

-- Does to a job what somebody wants. p_from, p_to and p_why are the arrows of `lifecycle::after` for it.
CREATE OR REPLACE FUNCTION {schema}.job_steer_one(p_id text, p_from text[], p_to text[], p_why text[]) RETURNS text
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_job pg_catalog.record;
    v_steered pg_catalog.record;
BEGIN
    SELECT * INTO v_job FROM {schema}.job_of(p_id);
    SELECT s.o_what, s.state INTO v_steered
    FROM {schema}.jobs_steer(NULL, gen_random_uuid(), false, ARRAY[v_job.o_number], ARRAY[v_job.o_stamp], p_from, p_to) s;
    IF v_steered.o_what = 'done' THEN
        PERFORM {schema}.outbox_ring();
        RETURN v_steered.state;
    ELSIF v_steered.o_what = 'unknown' THEN
        RAISE EXCEPTION 'there is no job %: it was never sent, or is forgotten', p_id USING ERRCODE = 'no_data_found';
    END IF;
    RAISE EXCEPTION 'job % is %: %', p_id, v_steered.state, CASE v_steered.o_what
            WHEN 'key' THEN 'a live job has its unique_key: cancel that one, or wait for its end'
            WHEN 'nothing' THEN 'it holds nothing back: nothing is left to skip'
            ELSE p_why[array_position(p_from, v_steered.state)] END
        USING ERRCODE = 'object_not_in_prerequisite_state';
END
$body$;

-- Calls a job off. One that runs stays `running` until its worker is heard of next, which is told to stop.
CREATE OR REPLACE FUNCTION {schema}.cancel_job(id text) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN {schema}.job_steer_one(id, {states}, {cancel_to}, {cancel_why});
END
$body$;

-- Has a job run now that waits for its time, or brings back a dead one.
CREATE OR REPLACE FUNCTION {schema}.retry_job(id text) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN {schema}.job_steer_one(id, {states}, {retry_to}, {retry_why});
END
$body$;

-- Lets the object of a job that failed go on without it.
CREATE OR REPLACE FUNCTION {schema}.skip_job(id text) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN {schema}.job_steer_one(id, {states}, {skip_to}, {skip_why});
END
$body$;
