-- Forgets up to p_limit recorded deliveries, with what they said: those that ended before p_before, and the oldest beyond
-- p_keep. If there are fewer, also lines that were said before p_before by deliveries of which nothing is recorded, the
-- oldest first: of what is older, most went with its delivery, so that few are passed over. Answers how many of both
-- together. What somebody is writing is left to the next time.
CREATE OR REPLACE FUNCTION {schema}.deliveries_purge(p_before timestamptz, p_keep bigint, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $body$
DECLARE
    v_too_many bigint;
    v_count bigint;
    v_lines bigint;
BEGIN
    -- Counted in the index by age, and no further than it matters.
    SELECT count(*) INTO v_too_many FROM (
        SELECT 1 FROM {schema}.deliveries d ORDER BY d.finished_at DESC, d.seq DESC, d.group_id DESC
        OFFSET p_keep LIMIT p_limit) x;
    WITH old AS (
        SELECT o.seq, o.group_id FROM (
            SELECT d.seq, d.group_id, d.finished_at,
                row_number() OVER (ORDER BY d.finished_at, d.seq, d.group_id) AS nth
            FROM (
                SELECT * FROM {schema}.deliveries x ORDER BY x.finished_at, x.seq, x.group_id LIMIT p_limit
            ) d
        ) o
        WHERE o.finished_at < p_before OR o.nth <= v_too_many
    ), locked AS MATERIALIZED (
        SELECT d.seq, d.group_id FROM {schema}.deliveries d JOIN old o ON d.seq = o.seq AND d.group_id = o.group_id
        FOR UPDATE OF d SKIP LOCKED
    ), silenced AS (
        DELETE FROM {schema}.delivery_lines l USING locked k WHERE l.group_id = k.group_id AND l.seq = k.seq
    )
    DELETE FROM {schema}.deliveries d USING locked k WHERE d.seq = k.seq AND d.group_id = k.group_id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    DELETE FROM {schema}.delivery_lines d WHERE d.ctid = ANY (ARRAY(
        SELECT l.ctid FROM {schema}.delivery_lines l
        WHERE l.at < p_before AND NOT EXISTS (
            SELECT 1 FROM {schema}.deliveries x WHERE x.seq = l.seq AND x.group_id = l.group_id)
        ORDER BY l.at, l.nth LIMIT p_limit - v_count));
    GET DIAGNOSTICS v_lines = ROW_COUNT;
    RETURN v_count + v_lines;
END
$body$;
