-- Publishes the events of the changes that are good so far, and says which of those cannot be published: 'key' or
-- 'invalid' in o_states, with the reason.
--
-- All of a wave are appended at once. Two changes with the same key are in different waves: the second must see what
-- the first stored. If the server refuses an event of a wave, its changes are tried one by one, so that one's fault
-- does not become the others' (H37). v_queue holds what is left to do: a wave by its number, a change alone by its
-- number below zero.
CREATE OR REPLACE FUNCTION {schema}.settle_events(
    p_now timestamptz, p_hint bigint, p_states text[], p_waves int[], p_changes int[],
    p_id_parts uuid[], p_topics text[], p_payloads text[], p_metadata text[], p_occurred_at timestamptz[], p_to uuid[],
    p_objects text[], p_keys text[], p_fingerprints bytea[], p_not_before timestamptz[],
    OUT o_states text[], OUT o_reasons text[], OUT o_tail bigint, OUT o_recorded_at timestamptz[], OUT o_seqs bigint[],
    OUT o_prevs bigint[], OUT o_ids uuid[], OUT o_conflicts boolean[]
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_queue int[] := ARRAY(SELECT DISTINCT w FROM unnest(p_waves) w WHERE w > 0 ORDER BY w);
    v_next int;
    v_picked int[];
    v_count int := cardinality(p_changes);
    v_done pg_catalog.record;
BEGIN
    o_states := p_states;
    o_reasons := array_fill(NULL::text, ARRAY[cardinality(p_states)]);
    o_recorded_at := array_fill(NULL::timestamptz, ARRAY[v_count]);
    o_seqs := array_fill(NULL::bigint, ARRAY[v_count]);
    o_prevs := o_seqs;
    o_ids := array_fill(NULL::uuid, ARRAY[v_count]);
    o_conflicts := array_fill(false, ARRAY[v_count]);
    WHILE cardinality(v_queue) > 0 LOOP
        v_next := v_queue[1];
        v_queue := v_queue[2:];
        v_picked := ARRAY(
            SELECT e.n FROM unnest(p_changes) WITH ORDINALITY e(change, n)
            WHERE o_states[e.change] = 'done'
                AND CASE WHEN v_next > 0 THEN p_waves[e.change] = v_next ELSE e.change = -v_next END
            ORDER BY e.n);
        CONTINUE WHEN cardinality(v_picked) = 0;
        BEGIN
            SELECT * INTO v_done FROM {schema}.settle_append(
                p_now, p_hint, v_picked, p_changes, p_id_parts, p_topics, p_payloads, p_metadata, p_occurred_at, p_to,
                p_objects, p_keys, p_fingerprints, p_not_before);
        EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
            IF v_next < 0 THEN
                o_states[-v_next] := 'invalid';
                o_reasons[-v_next] := SQLERRM;
            ELSE
                v_queue := ARRAY(SELECT -c.change FROM (SELECT DISTINCT p_changes[n] AS change FROM unnest(v_picked) n) c
                                 ORDER BY c.change) || v_queue;
            END IF;
            CONTINUE;
        END;
        o_tail := v_done.o_tail;
        p_hint := greatest(p_hint, o_tail);
        FOR i IN 1 .. cardinality(v_picked) LOOP
            o_recorded_at[v_picked[i]] := v_done.o_recorded_at;
            o_seqs[v_picked[i]] := v_done.o_seqs[i];
            o_prevs[v_picked[i]] := v_done.o_prevs[i];
            o_ids[v_picked[i]] := v_done.o_ids[i];
            IF v_done.o_conflicts[i] THEN
                o_conflicts[v_picked[i]] := true;
                o_states[p_changes[v_picked[i]]] := 'key';
            END IF;
        END LOOP;
    END LOOP;
END
$body$;
