-- Does to each job what somebody wants, one after another, in one commit: each sees what came of those before it. p_from and
-- p_to are the arrows of `lifecycle::after` for it: a state, or `signal`, `let go` or `refused`. For each job o_what says
-- 'done', 'refused', 'key' (a live job has its key), 'nothing' (it holds nothing back) or 'unknown', with the job as it is
-- then.
CREATE OR REPLACE FUNCTION {schema}.jobs_steer(
    p_now timestamptz, p_call uuid, p_again boolean, p_numbers bigint[], p_stamps bigint[], p_from text[], p_to text[]
) RETURNS TABLE (o_what text, {job_table}) LANGUAGE plpgsql VOLATILE
AS $body$
#variable_conflict use_column
DECLARE
    v_sequence pg_catalog.regclass := format('%I.job_numbers', {schema_text})::regclass;
    v_now pg_catalog.timestamptz;
    v_job {schema}.jobs;
    v_to pg_catalog.text;
    v_ready bigint[];
BEGIN
    LOCK TABLE {schema}.rules_lock IN ROW SHARE MODE;
    PERFORM 1 FROM {schema}.jobs j
    WHERE j.number = ANY (p_numbers) AND NOT (coalesce(j.ordered, false) AND j.object IS NOT NULL)
    ORDER BY j.number FOR UPDATE;
    PERFORM {schema}.jobs_lock(ARRAY(
        SELECT b.bucket
        FROM (SELECT * FROM {schema}.jobs x WHERE x.number = ANY (p_numbers) OFFSET 0) j
        CROSS JOIN LATERAL (
            VALUES (CASE WHEN j.ordered THEN {schema}.job_bucket(j.handler, 'o' || j.object) END),
                ({schema}.job_bucket(j.handler, 'k' || j.unique_key))
        ) b(bucket)
        WHERE b.bucket IS NOT NULL));
    PERFORM 1 FROM {schema}.jobs j WHERE j.number = ANY (p_numbers) ORDER BY j.number FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    FOR i IN 1 .. cardinality(p_numbers) LOOP
        SELECT * INTO v_job FROM {schema}.jobs j WHERE j.number = p_numbers[i] AND j.stamp = p_stamps[i];
        IF NOT FOUND THEN
            o_what := 'unknown';
            RETURN NEXT;
            CONTINUE;
        END IF;
        v_to := p_to[array_position(p_from, v_job.state)];
        o_what := 'done';
        CASE
            WHEN p_again AND v_job.call = p_call THEN
                PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
            WHEN v_to = 'refused' THEN
                o_what := 'refused';
            WHEN v_to = 'signal' THEN
                -- Without a mark: the row keeps that of its claim. Asked twice it is asked once.
                UPDATE {schema}.jobs j SET cancel_asked = true WHERE j.number = v_job.number AND NOT j.cancel_asked;
            WHEN v_to = 'let go' AND v_job.turn IS NULL THEN
                o_what := 'nothing';
            WHEN v_to = 'let go' THEN
                UPDATE {schema}.jobs j SET turn = NULL, call = p_call WHERE j.number = v_job.number;
            WHEN v_to = 'available' AND v_job.state = 'dead' AND v_job.unique_key IS NOT NULL AND EXISTS (
                SELECT 1 FROM {schema}.jobs j WHERE j.handler = v_job.handler AND j.unique_key = v_job.unique_key
                    AND j.unique_key IS NOT NULL AND j.finished_at IS NULL) THEN
                o_what := 'key';
            WHEN v_to = 'available' THEN
                UPDATE {schema}.jobs j
                SET state = CASE WHEN j.object IS NULL THEN 'available' ELSE 'parked' END, not_before = NULL, call = p_call,
                    attempts = CASE WHEN j.state = 'dead' THEN 0 ELSE j.attempts END,
                    redriven = j.redriven OR j.state = 'dead', finished_at = NULL,
                    turn = CASE WHEN j.state = 'dead' THEN j.number ELSE coalesce(j.turn, nextval(v_sequence)) END
                WHERE j.number = v_job.number;
            ELSE
                UPDATE {schema}.jobs j
                SET state = v_to, turn = NULL, finished_at = v_now, call = p_call,
                    error_attempts = CASE WHEN v_to = 'dead' THEN {schema}.job_kept(j.error_attempts, j.attempts)
                        ELSE j.error_attempts END,
                    error_times = CASE WHEN v_to = 'dead' THEN {schema}.job_kept(j.error_times, v_now)
                        ELSE j.error_times END,
                    error_texts = CASE WHEN v_to = 'dead' THEN {schema}.job_kept(j.error_texts, 'skipped'::text)
                        ELSE j.error_texts END
                WHERE j.number = v_job.number;
                IF v_to = 'cancelled' AND v_job.started_at IS NOT NULL AND {schema}.is_task(v_job.handler) THEN
                    -- As `tasks::called_off_line`.
                    PERFORM {schema}.jobs_say(ARRAY[v_job.number], ARRAY[v_job.attempts], ARRAY[v_now], ARRAY['info'], ARRAY['{called_off}']);
                END IF;
        END CASE;
        IF o_what = 'done' AND v_job.object IS NOT NULL THEN
            v_ready := v_ready || {schema}.jobs_go_on(
                v_now, CASE WHEN NOT v_job.ordered AND v_to = 'available' THEN ARRAY[v_job.number] END,
                CASE WHEN v_job.ordered THEN ARRAY[v_job.handler] END, ARRAY[v_job.object]);
        ELSIF o_what = 'done' AND v_to = 'available' THEN
            v_ready := v_ready || v_job.number;
        END IF;
        RETURN QUERY SELECT o_what, {job_j} FROM {schema}.jobs j WHERE j.number = v_job.number;
    END LOOP;
    IF cardinality(v_ready) > 0 THEN
        PERFORM {schema}.jobs_ring();
    END IF;
END
$body$;
