-- The same as jobs_fetch with all that there is to say of a job, for programs that know versions 17 and 18. A row without a job has no number.
CREATE OR REPLACE FUNCTION {schema}.jobs_take(
    p_now timestamptz, p_call uuid, p_again boolean, p_handlers text[], p_caps bigint[],
    p_scopes text[], p_scope_of int[], p_limit bigint, p_lease bigint, p_worker text,
    p_of int[], p_after_rank bigint[], p_after_turn bigint[], p_to_rank bigint[], p_at_turn bigint[]
) RETURNS TABLE (o_seen bigint, o_micros bigint, o_held int[], o_place tid, {job_table}) LANGUAGE plpgsql VOLATILE
AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT j.o_seen, j.o_micros, j.o_held, j.o_place, {job_whole}
    FROM {schema}.jobs_fetch(p_now, p_call, NULL, p_again, p_handlers, p_caps, p_scopes, p_scope_of, p_limit, p_lease, ARRAY[p_worker], NULL,
        p_of, p_after_rank, p_after_turn, p_to_rank, p_at_turn) j;
END
$body$;

-- The same without places, for programs that know versions up to 16, and for `claim_jobs`.
CREATE OR REPLACE FUNCTION {schema}.jobs_claim(
    p_now timestamptz, p_call uuid, p_again boolean, p_handlers text[], p_caps bigint[],
    p_scopes text[], p_scope_of int[], p_limit bigint, p_lease bigint, p_worker text,
    p_of int[], p_after_rank bigint[], p_after_turn bigint[], p_to_rank bigint[], p_at_turn bigint[]
) RETURNS TABLE (o_seen bigint, o_micros bigint, o_held int[], {job_table}) LANGUAGE plpgsql VOLATILE
AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT j.o_seen, j.o_micros, j.o_held, {job_whole}
    FROM {schema}.jobs_fetch(p_now, p_call, NULL, p_again, p_handlers, p_caps, p_scopes, p_scope_of, p_limit, p_lease, ARRAY[p_worker], NULL,
        p_of, p_after_rank, p_after_turn, p_to_rank, p_at_turn) j;
END
$body$;
