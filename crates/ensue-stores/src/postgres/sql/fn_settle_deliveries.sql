-- Records what became of deliveries; the last word on one is kept. p_groups tells where each change of a slot belongs; no
-- group means that nothing of it is written.
CREATE OR REPLACE FUNCTION {schema}.settle_deliveries(
    p_groups bigint[], p_changes int[], p_seqs bigint[], p_objects text[], p_states text[], p_attempts bigint[],
    p_errors text[], p_started_at timestamptz[], p_finished_at timestamptz[]
) RETURNS void LANGUAGE sql VOLATILE
AS $body$
    INSERT INTO {schema}.deliveries AS d
        (group_id, seq, object, state, attempts, error, started_at, finished_at)
    SELECT DISTINCT ON (p_groups[c.change], c.seq)
        p_groups[c.change], c.seq, c.object, c.state, c.attempts, c.error, c.started_at, c.finished_at
    FROM unnest(p_changes, p_seqs, p_objects, p_states, p_attempts, p_errors, p_started_at, p_finished_at)
        WITH ORDINALITY c(change, seq, object, state, attempts, error, started_at, finished_at, n)
    WHERE p_groups[c.change] IS NOT NULL
    ORDER BY p_groups[c.change], c.seq, c.n DESC
    ON CONFLICT (seq, group_id) DO UPDATE SET object = excluded.object, state = excluded.state,
        attempts = excluded.attempts, error = excluded.error, started_at = excluded.started_at,
        finished_at = excluded.finished_at
$body$;
