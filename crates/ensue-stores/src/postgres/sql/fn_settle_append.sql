-- Appends some of the events of a settlement: those at the places p_picked of the arrays. The one place where
-- settlements meet `append`: as callers with keys, so that each event is answered and a conflict leaves out its change
-- alone.
CREATE OR REPLACE FUNCTION {schema}.settle_append(
    p_now timestamptz, p_hint bigint, p_picked int[], p_changes int[],
    p_id_parts uuid[], p_topics text[], p_payloads text[], p_metadata text[], p_occurred_at timestamptz[], p_to uuid[],
    p_objects text[], p_keys text[], p_fingerprints bytea[], p_not_before timestamptz[],
    OUT o_tail bigint, OUT o_recorded_at timestamptz, OUT o_seqs bigint[], OUT o_prevs bigint[], OUT o_ids uuid[],
    OUT o_conflicts boolean[]
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_logged bigint;
BEGIN
    SELECT a.o_tail, a.o_recorded_at, a.o_seqs, a.o_prevs, a.o_ids, a.o_conflicts
    INTO o_tail, o_recorded_at, o_seqs, o_prevs, o_ids, o_conflicts
    FROM {schema}.append(
        p_now => p_now,
        p_hint => p_hint,
        p_id_parts => ARRAY(SELECT p_id_parts[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_topic => NULL,
        p_topics => ARRAY(SELECT p_topics[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_payloads => ARRAY(SELECT p_payloads[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_metadata => ARRAY(SELECT p_metadata[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_occurred_at => ARRAY(SELECT p_occurred_at[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_to => ARRAY(SELECT p_to[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_objects => ARRAY(SELECT p_objects[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_back => NULL,
        p_heads => NULL,
        p_heads_at => NULL,
        p_known_to => 0,
        p_callers => ARRAY(SELECT p_changes[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_keys => ARRAY(SELECT p_keys[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_fingerprints => ARRAY(SELECT p_fingerprints[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
        p_not_before => ARRAY(SELECT p_not_before[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i)
    ) a;
    v_logged := (SELECT count(*) FROM unnest(o_seqs, o_ids) x(seq, id) WHERE x.seq IS NOT NULL AND x.id IS NULL);
    o_tail := o_tail + v_logged;
    PERFORM set_config('ensue.logged', ({logged} + v_logged)::text, true);
END
$body$;
