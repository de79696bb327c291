-- Records what deliveries said, in order. p_groups tells where each change of a slot belongs; no group means that nothing
-- of it is written.
CREATE OR REPLACE FUNCTION {schema}.settle_lines(
    p_groups bigint[], p_changes int[], p_seqs bigint[], p_attempts bigint[], p_at timestamptz[], p_levels text[],
    p_messages text[]
) RETURNS void LANGUAGE sql VOLATILE
AS $body$
    INSERT INTO {schema}.delivery_lines (group_id, seq, attempt, at, level, message)
    SELECT p_groups[c.change], c.seq, c.attempt, c.at, c.level, c.message
    FROM unnest(p_changes, p_seqs, p_attempts, p_at, p_levels, p_messages)
        WITH ORDINALITY c(change, seq, attempt, at, level, message, n)
    WHERE p_groups[c.change] IS NOT NULL
    ORDER BY c.n
$body$;
