-- Makes sure that the next job of each of these lanes, and only that one, may run: `jobs::lane::turn`, carried out. The
-- caller has the locks of the lanes and of the rules. Answers which jobs became available.
--
-- What is available may be claimed at this moment: it is locked first, and looked at again once that is decided.
CREATE OR REPLACE FUNCTION {schema}.jobs_turn(p_now timestamptz, p_handlers text[], p_objects text[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
DECLARE
    v_freed bigint[];
    v_parked bigint[];
BEGIN
    PERFORM 1 FROM {schema}.jobs j
    JOIN (SELECT DISTINCT x.handler, x.object FROM unnest(p_handlers, p_objects) x(handler, object)) l
        ON j.handler = l.handler AND j.object = l.object
    WHERE j.ordered AND j.object IS NOT NULL AND j.state = 'available'
    ORDER BY j.number FOR UPDATE OF j;
    SELECT array_agg(t.next) FILTER (WHERE t.next IS DISTINCT FROM t.ready),
        array_agg(t.ready) FILTER (WHERE t.ready IS DISTINCT FROM t.next)
    INTO v_freed, v_parked
    FROM (
        SELECT CASE WHEN f.state IN ('parked', 'available') AND a.state IS DISTINCT FROM 'running'
                AND NOT {schema}.object_is_held(l.object, p_now) THEN f.number END AS next,
            CASE WHEN a.state = 'available' THEN a.number END AS ready
        FROM (SELECT DISTINCT x.handler, x.object FROM unnest(p_handlers, p_objects) x(handler, object)) l
        LEFT JOIN LATERAL (
            SELECT j.number, j.state FROM {schema}.jobs j
            WHERE j.handler = l.handler AND j.object = l.object
                AND j.ordered AND j.object IS NOT NULL AND j.turn IS NOT NULL
            ORDER BY j.turn LIMIT 1
        ) f ON true
        LEFT JOIN LATERAL (
            SELECT j.number, j.state FROM {schema}.jobs j
            WHERE j.handler = l.handler AND j.object = l.object
                AND j.ordered AND j.object IS NOT NULL AND j.state IN ('available', 'running')
            LIMIT 1
        ) a ON true
    ) t;
    v_freed := array_remove(v_freed, NULL);
    v_parked := array_remove(v_parked, NULL);
    -- In this order: at most one of a lane is in the index of those that may run.
    IF cardinality(v_parked) > 0 THEN
        UPDATE {schema}.jobs j SET state = 'parked' WHERE j.number = ANY (v_parked);
    END IF;
    IF cardinality(v_freed) > 0 THEN
        UPDATE {schema}.jobs j SET state = 'available' WHERE j.number = ANY (v_freed);
    END IF;
    RETURN v_freed;
END
$body$;

-- Lets jobs go on that were written as parked because they have an object: those of a lane in their turn, the others unless
-- a rule holds their object. Answers which jobs became available.
CREATE OR REPLACE FUNCTION {schema}.jobs_go_on(
    p_now timestamptz, p_loose bigint[], p_handlers text[], p_objects text[]
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_ready bigint[];
BEGIN
    IF p_loose IS NOT NULL THEN
        WITH let_go AS (
            UPDATE {schema}.jobs j SET state = 'available'
            WHERE j.number = ANY (p_loose) AND NOT {schema}.object_is_held(j.object, p_now)
            RETURNING j.number
        )
        SELECT array_agg(l.number) INTO v_ready FROM let_go l;
    END IF;
    IF p_handlers IS NOT NULL THEN
        v_ready := v_ready || {schema}.jobs_turn(p_now, p_handlers, p_objects);
    END IF;
    RETURN v_ready;
END
$body$;

-- A rule on an object has come or gone: what waits of it is held or let go, in every handler. The caller has the lock of the
-- rules alone, and so every lane.
CREATE OR REPLACE FUNCTION {schema}.jobs_turn_object(p_now timestamptz, p_object text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_handlers pg_catalog.text[];
BEGIN
    IF {schema}.object_is_held(p_object, p_now) THEN
        UPDATE {schema}.jobs j SET state = 'parked' WHERE j.object || '' = p_object AND j.object IS NOT NULL AND coalesce(j.state, '') = 'available';
        RETURN;
    END IF;
    UPDATE {schema}.jobs j SET state = 'available' WHERE j.object = p_object AND j.state = 'parked' AND NOT j.ordered;
    v_handlers := ARRAY(
        SELECT DISTINCT j.handler FROM {schema}.jobs j WHERE j.object = p_object AND j.state = 'parked' AND j.ordered);
    PERFORM {schema}.jobs_turn(p_now, v_handlers, array_fill(p_object, ARRAY[cardinality(v_handlers)]));
END
$body$;
