-- Sends jobs: all of them or none, in one round trip and one commit. p_call is the identity of the call and p_lock a lock of
-- its own: who sends it again waits for the first to end, and is told what was answered then.
CREATE OR REPLACE FUNCTION {schema}.jobs_enqueue(
    p_now timestamptz, p_call uuid, p_lock bigint,
    p_chances int[], p_handlers text[], p_objects text[], p_ordered boolean[], p_payloads text[], p_metadata text[],
    p_ranks bigint[], p_not_before timestamptz[], p_keys text[], p_attempts_max int[], p_exhausted text[],
    p_event_seqs bigint[], p_event_prevs bigint[], p_event_ids uuid[], p_event_topics text[],
    OUT o_numbers bigint[], OUT o_stamps bigint[], OUT o_new boolean[], OUT o_states text[]
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_sent_before boolean;
BEGIN
    SELECT * INTO v_sent_before, o_numbers, o_stamps, o_new, o_states FROM {schema}.jobs_sent_before(p_call, p_lock);
    IF v_sent_before THEN
        RETURN;
    END IF;
    IF p_objects IS NOT NULL OR p_keys IS NOT NULL THEN
        LOCK TABLE {schema}.rules_lock IN ROW SHARE MODE;
        PERFORM {schema}.jobs_lock(ARRAY(
            SELECT {schema}.job_bucket(b.handler, 'o' || b.object) FROM unnest(p_handlers, p_objects) b(handler, object)
            WHERE b.object IS NOT NULL
            UNION SELECT {schema}.job_bucket(b.handler, 'k' || b.key) FROM unnest(p_handlers, p_keys) b(handler, key)
            WHERE b.key IS NOT NULL));
    END IF;
    SELECT * INTO o_numbers, o_stamps, o_new, o_states FROM {schema}.jobs_insert(
        coalesce(p_now, clock_timestamp()), NULL, p_chances, p_handlers, p_objects, p_ordered, p_payloads, p_metadata,
        p_ranks, p_not_before, p_keys, p_attempts_max, p_exhausted, p_event_seqs, p_event_prevs, p_event_ids,
        p_event_topics);
    INSERT INTO {schema}.job_calls (call, at, numbers, new) VALUES (p_call, clock_timestamp(), o_numbers, o_new);
END
$body$;
