-- Copies events aside for lanes, each by itself; answers for how many. Of the places in p_seqs the first p_counts[1] are
-- of the first lane, and so on. A lane that somebody is writing is left to the next time: so nobody waits here, and who
-- waits for a lane that is locked here never holds up this.
CREATE OR REPLACE FUNCTION {schema}.lanes_park(
    p_groups text[], p_keys text[], p_from bigint[], p_to bigint[], p_counts int[], p_seqs bigint[]
) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $body$
DECLARE
    v_group bigint;
    v_position bigint;
    v_seqs bigint[];
    v_at int := 0;
    v_parked bigint := 0;
BEGIN
    FOR n IN 1 .. cardinality(p_keys) LOOP
        v_seqs := p_seqs[v_at + 1 : v_at + p_counts[n]];
        v_at := v_at + p_counts[n];
        SELECT l.group_id, l.position INTO v_group, v_position
        FROM {schema}.groups g JOIN {schema}.lanes l ON l.group_id = g.id
        WHERE g.name = p_groups[n] AND l.key = p_keys[n] AND l.state IN ('waiting', 'held')
            AND l.parked_to IS NOT DISTINCT FROM p_from[n] AND coalesce(l.parked_to, -1) < p_to[n]
        FOR UPDATE OF l SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        v_seqs := ARRAY(SELECT s FROM unnest(v_seqs) s WHERE s >= v_position);
        CONTINUE WHEN cardinality(v_seqs) <> (
            SELECT count(*) FROM {schema}.stored_events e
            WHERE e.seq = ANY (v_seqs) AND e.seq > (SELECT s.trimmed_to FROM {schema}.log_state s));
        INSERT INTO {schema}.parked (group_id, key, seq, prev, recorded_at, occurred_at, id_part, id, to_subscription,
            topic, object, payload, metadata)
        SELECT v_group, p_keys[n], e.seq, e.prev, e.recorded_at, e.occurred_at, e.id_part,
            {schema}.event_id(e.id_part, e.recorded_at), e.to_subscription, e.topic, e.object, e.payload, e.metadata
        FROM {schema}.stored_events e WHERE e.seq = ANY (v_seqs);
        UPDATE {schema}.lanes l SET parked_to = p_to[n] WHERE l.group_id = v_group AND l.key = p_keys[n];
        v_parked := v_parked + 1;
    END LOOP;
    RETURN v_parked;
END
$body$;
