-- Carries out changes of lanes, in their order: what was removed and written again is a new row. p_groups and p_slots
-- tell where each change of a slot belongs; no group means that nothing of it is written. No position is a removal.
CREATE OR REPLACE FUNCTION {schema}.settle_lanes(
    p_now timestamptz, p_groups bigint[], p_slots int[], p_changes int[], p_keys text[], p_positions bigint[],
    p_states text[], p_attempts bigint[], p_not_before timestamptz[], p_errors text[], p_redriven boolean[]
) RETURNS void LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $body$
BEGIN
    DELETE FROM {schema}.lanes l USING (
        SELECT DISTINCT p_groups[c.change] AS group_id, c.key
        FROM unnest(p_changes, p_keys, p_positions) c(change, key, position)
        WHERE c.position IS NULL AND p_groups[c.change] IS NOT NULL
    ) gone
    WHERE l.group_id = gone.group_id AND l.key = gone.key;
    INSERT INTO {schema}.lanes AS l
        (group_id, key, slot, position, state, attempts, not_before, error, redriven, since)
    SELECT p.group_id, p.key, p.slot, p.position, p.state, p.attempts, p.not_before, p.error, p.redriven, p_now
    FROM (
        SELECT DISTINCT ON (c.group_id, c.key) c.*
        FROM (
            SELECT p_groups[c.change] AS group_id, p_slots[c.change] AS slot, c.*,
                max(c.n) FILTER (WHERE c.position IS NULL) OVER (PARTITION BY p_groups[c.change], c.key) AS removed
            FROM unnest(p_changes, p_keys, p_positions, p_states, p_attempts, p_not_before, p_errors, p_redriven)
                WITH ORDINALITY c(change, key, position, state, attempts, not_before, error, redriven, n)
            WHERE p_groups[c.change] IS NOT NULL
        ) c
        -- What was put after the last removal: the furthest, and of those the last.
        WHERE c.position IS NOT NULL AND c.n > coalesce(c.removed, 0)
        ORDER BY c.group_id, c.key, c.position DESC, c.n DESC
    ) p
    ON CONFLICT (group_id, key) DO UPDATE SET slot = excluded.slot, position = excluded.position,
        state = excluded.state, attempts = excluded.attempts, not_before = excluded.not_before, error = excluded.error,
        redriven = excluded.redriven, ask = NULL
    WHERE excluded.position >= l.position;
END
$body$;
