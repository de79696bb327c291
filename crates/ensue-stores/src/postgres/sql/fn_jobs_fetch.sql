-- Takes available jobs, in one round trip and one commit. A row for each, and one without a job if there is none.
--
-- Whoever changes a rule waits until no claim is under way, and a claim that comes later sees the rule: what the rules say
-- is read after their lock. Rows that somebody else is taking are passed over. So a claim waits for nobody but who changes a rule, and not long: a transaction
-- that has set one and is open would have all of a process's connections wait. A claim finds nothing then, and o_seen is null.
--
--   p_call, p_again   the claim, and whether it is sent again because the answer was lost: then its jobs are answered
--   p_lock            of the claim: who sends it again waits for the first to end. Null for who does not
--   p_caps            how many of each handler at most
--   p_scopes          what a rule that holds a handler is called, and which handler that is, from 1
--   p_workers         who claims: one, or several, who get p_shares of a single handler's jobs, in order; they are p_limit in all
--   p_of …            null, or where to look, in order, each for one handler, from 1: behind a position (rank, turn) up to
--                     the end of p_to_rank, or where there is p_at_turn at that place alone. Under a held snapshot, and until the next vacuum, the index
--                     has an entry for each job that was ever claimed since; what is known to be gone is not looked at. A
--                     scan that ends inside a rank would go on to the end of it: an index stops by its first column only
--   o_seen            the newest number that was given out before the look
--   o_micros          how long the look took
--   o_held            handlers that a rule holds, from 1
--   o_place           where the row of a job is now: who settles it soon need not look for it (fn_jobs_succeed.sql)
--
-- Of a job that is claimed now null stands for what its claim says, and for what is so of most (jobs/unsaid.rs): to answer all of it takes the server a fifth of its time for a claim.
CREATE OR REPLACE FUNCTION {schema}.jobs_fetch(
    p_now timestamptz, p_call uuid, p_lock bigint, p_again boolean, p_handlers text[], p_caps bigint[],
    p_scopes text[], p_scope_of int[], p_limit bigint, p_lease bigint, p_workers text[], p_shares bigint[],
    p_of int[], p_after_rank bigint[], p_after_turn bigint[], p_to_rank bigint[], p_at_turn bigint[]
) RETURNS TABLE (o_seen bigint, o_micros bigint, o_held int[], o_place tid, {job_table}) LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = on SET plan_cache_mode = force_generic_plan
AS $body$
#variable_conflict use_column
DECLARE
    v_now pg_catalog.timestamptz;
    v_until pg_catalog.timestamptz;
    v_begun pg_catalog.timestamptz;
    v_count int := cardinality(p_handlers);
    v_caps bigint[] := p_caps;
    v_left bigint[];
    v_taken bigint[];
    v_more bigint[];
    v_from bigint[]; -- the handler of each
    v_pass int := 1;
    v_places pg_catalog.tid[] := '{}';
    v_names pg_catalog.text[]; -- whose each is
    v_wanted bigint;
BEGIN
    IF p_lock IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(p_lock);
    END IF;
    IF p_again THEN
        -- What was claimed is to be answered, however long that takes.
        LOCK TABLE {schema}.rules_lock IN ROW SHARE MODE;
    ELSE
        v_begun := clock_timestamp();
        LOOP
            BEGIN
                LOCK TABLE {schema}.rules_lock IN ROW SHARE MODE NOWAIT;
                EXIT;
            EXCEPTION WHEN lock_not_available THEN
                IF clock_timestamp() >= v_begun + interval '250 milliseconds' THEN
                    RETURN NEXT;
                    RETURN;
                END IF;
                PERFORM pg_sleep(0.005);
            END;
        END LOOP;
    END IF;
    v_now := coalesce(p_now, clock_timestamp());
    v_until := v_now + p_lease * interval '1 microsecond';
    IF p_again THEN
        RETURN QUERY SELECT NULL::bigint, NULL::bigint, NULL::int[], j.ctid, {job_j} FROM {schema}.jobs j
        WHERE j.state = 'running' AND j.call = p_call;
        IF FOUND THEN
            PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
            RETURN;
        END IF;
    END IF;
    SELECT s.last_value INTO o_seen FROM {schema}.job_numbers s;
    v_begun := clock_timestamp();
    IF EXISTS (SELECT 1 FROM {schema}.rules) THEN
        SELECT array_agg(DISTINCT s.of) INTO o_held
        FROM unnest(p_scopes, p_scope_of) s(scope, of)
        JOIN {schema}.rules r ON r.scope = s.scope AND (r.expires_at IS NULL OR r.expires_at > v_now);
        v_caps := ARRAY(SELECT CASE WHEN c.n = ANY (o_held) THEN 0 ELSE c.cap END
                        FROM unnest(v_caps) WITH ORDINALITY c(cap, n));
    END IF;
    IF v_count = 1 THEN
        -- The same without joins, and by the places of the rows. They are locked, so that they stay there.
        v_wanted := least(v_caps[1], p_limit);
        FOR i IN 1 .. coalesce(cardinality(p_of), 1) LOOP
            -- At once, if a rule holds it.
            EXIT WHEN cardinality(v_places) >= v_wanted;
            IF p_of IS NULL THEN
                v_places := ARRAY(
                    SELECT j.ctid FROM {schema}.jobs j WHERE j.state = 'available' AND j.handler = p_handlers[1]
                    ORDER BY j.rank, j.turn LIMIT v_wanted FOR UPDATE SKIP LOCKED);
            ELSIF p_at_turn[i] IS NULL THEN
                v_places := v_places || ARRAY(
                    SELECT j.ctid FROM {schema}.jobs j WHERE j.state = 'available' AND j.handler = p_handlers[1]
                        AND (j.rank, j.turn) > (p_after_rank[i], p_after_turn[i]) AND j.rank <= p_to_rank[i]
                    ORDER BY j.rank, j.turn LIMIT v_wanted - cardinality(v_places) FOR UPDATE SKIP LOCKED);
            ELSE
                v_places := v_places || ARRAY(
                    SELECT j.ctid FROM {schema}.jobs j WHERE j.state = 'available' AND j.handler = p_handlers[1]
                        AND j.rank = p_to_rank[i] AND j.turn = p_at_turn[i] FOR UPDATE SKIP LOCKED);
            END IF;
        END LOOP;
        o_micros := (extract(epoch FROM clock_timestamp() - v_begun) * 1000000)::bigint;
        IF v_places = '{}' THEN
            RETURN NEXT;
            RETURN;
        END IF;
        IF p_shares IS NULL THEN
            RETURN QUERY
            UPDATE {schema}.jobs j
            SET state = 'running', attempts = j.attempts + 1, fence = j.fence + 1, locked_at = v_now,
                started_at = coalesce(j.started_at, v_now), lease_until = v_until,
                worker = p_workers[1], call = p_call
            WHERE j.ctid = ANY (v_places)
            RETURNING o_seen, o_micros, o_held, j.ctid, {job_claimed};
            RETURN;
        END IF;
        -- A join with names takes longer than one array of places.
        v_names := ARRAY(
            SELECT w.name FROM unnest(p_workers, p_shares) WITH ORDINALITY w(name, share, n)
            CROSS JOIN LATERAL generate_series(1, w.share) ORDER BY w.n LIMIT cardinality(v_places));
        RETURN QUERY
        UPDATE {schema}.jobs j
        SET state = 'running', attempts = j.attempts + 1, fence = j.fence + 1, locked_at = v_now,
            started_at = coalesce(j.started_at, v_now), lease_until = v_until,
            worker = c.name, call = p_call
        FROM (SELECT unnest(v_places) AS place, unnest(v_names) AS name) c
        WHERE j.ctid = c.place
        RETURNING o_seen, o_micros, o_held, j.ctid, {job_claimed};
        RETURN;
    END IF;
    v_left := v_caps;
    WHILE v_pass < 3 LOOP
        -- Of several handlers, first how many of each are among the first: no more than these are locked. If somebody else
        -- is taking some of them, whatever else there is.
        IF v_count > 1 AND v_pass = 1 THEN
            SELECT array_agg(w.count ORDER BY w.n) INTO v_caps FROM (
                SELECT h.n, count(f.n) AS count
                FROM unnest(p_handlers) WITH ORDINALITY h(handler, n)
                LEFT JOIN (
                    SELECT w.n FROM unnest(p_handlers, v_left) WITH ORDINALITY w(handler, cap, n)
                    CROSS JOIN LATERAL (
                        SELECT f.rank, f.turn
                        FROM unnest(coalesce(p_of, ARRAY[w.n::int]), p_after_rank, p_after_turn, p_to_rank, p_at_turn)
                            s(of, after_rank, after_turn, to_rank, at_turn)
                        CROSS JOIN LATERAL (
                            SELECT a.rank, a.turn FROM (
                                SELECT j.rank, j.turn FROM {schema}.jobs j
                                WHERE s.at_turn IS NOT NULL AND j.state = 'available' AND j.handler = w.handler
                                    AND j.rank = s.to_rank AND j.turn = s.at_turn
                            ) a
                            UNION ALL
                            SELECT b.rank, b.turn FROM (
                                SELECT j.rank, j.turn FROM {schema}.jobs j
                                WHERE s.at_turn IS NULL AND j.state = 'available' AND j.handler = w.handler
                                    AND (j.rank, j.turn) > (coalesce(s.after_rank, {rank_min}), coalesce(s.after_turn, {rank_min}))
                                    AND j.rank <= coalesce(s.to_rank, {rank_max})
                                ORDER BY j.rank, j.turn LIMIT least(w.cap, p_limit)
                            ) b
                        ) f
                        WHERE s.of = w.n LIMIT least(w.cap, p_limit)
                    ) c
                    WHERE w.cap > 0 ORDER BY c.rank, c.turn LIMIT p_limit
                ) f ON f.n = h.n
                GROUP BY h.n
            ) w;
        END IF;
        SELECT array_agg(t.number), array_agg(t.n) INTO v_more, v_from FROM (
            SELECT c.number, w.n FROM unnest(p_handlers, v_caps) WITH ORDINALITY w(handler, cap, n)
            CROSS JOIN LATERAL (
                SELECT f.number, f.rank, f.turn
                FROM unnest(coalesce(p_of, ARRAY[w.n::int]), p_after_rank, p_after_turn, p_to_rank, p_at_turn)
                    s(of, after_rank, after_turn, to_rank, at_turn)
                CROSS JOIN LATERAL (
                    SELECT a.number, a.rank, a.turn FROM (
                        SELECT j.number, j.rank, j.turn FROM {schema}.jobs j
                        WHERE s.at_turn IS NOT NULL AND j.state = 'available' AND j.handler = w.handler
                            AND j.rank = s.to_rank AND j.turn = s.at_turn
                        FOR UPDATE SKIP LOCKED
                    ) a
                    UNION ALL
                    SELECT b.number, b.rank, b.turn FROM (
                        SELECT j.number, j.rank, j.turn FROM {schema}.jobs j
                        WHERE s.at_turn IS NULL AND j.state = 'available' AND j.handler = w.handler
                            AND (j.rank, j.turn) > (coalesce(s.after_rank, {rank_min}), coalesce(s.after_turn, {rank_min}))
                            AND j.rank <= coalesce(s.to_rank, {rank_max})
                        ORDER BY j.rank, j.turn FOR UPDATE SKIP LOCKED
                    ) b
                ) f
                WHERE s.of = w.n LIMIT least(w.cap, p_limit - coalesce(cardinality(v_taken), 0))
            ) c
            WHERE w.cap > 0 ORDER BY c.rank, c.turn LIMIT p_limit - coalesce(cardinality(v_taken), 0)
        ) t;
        v_taken := v_taken || v_more;
        EXIT WHEN v_count = 1 OR v_pass = 2 OR coalesce(cardinality(v_taken), 0) >= p_limit;
        v_left := ARRAY(SELECT l.cap - (SELECT count(*) FROM unnest(v_from) t(n) WHERE t.n = l.n)
                        FROM unnest(v_left) WITH ORDINALITY l(cap, n));
        v_caps := v_left;
        v_pass := 2;
    END LOOP;
    o_micros := (extract(epoch FROM clock_timestamp() - v_begun) * 1000000)::bigint;
    IF v_taken IS NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    RETURN QUERY
    UPDATE {schema}.jobs j
    SET state = 'running', attempts = j.attempts + 1, fence = j.fence + 1, locked_at = v_now,
        started_at = coalesce(j.started_at, v_now), lease_until = v_until,
        worker = p_workers[1], call = p_call
    WHERE j.number = ANY (v_taken)
    RETURNING o_seen, o_micros, o_held, j.ctid, {job_claimed};
END
$body$;
