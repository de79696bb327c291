-- Deletes trimmed events of a partition that is too large to be waited for, at most p_limit; returns how
-- many places it passed. 0 if nothing is left to do, or if another session does it.
--
-- A partition is dropped when all its events are trimmed. Where it holds more trimmed events than a
-- quarter of those that the log has, as in a small log, they are deleted one by one: so the rows on the
-- disk are at most one and a quarter times those of the log. Their room is used again after a vacuum.
--
-- `retention_state` is locked and not `log_state`: a trim changes that while it has the log locked.
CREATE OR REPLACE FUNCTION {schema}.delete_trimmed(p_limit bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' SET enable_seqscan = off
AS $body$
DECLARE
    v_deleted_to bigint;
    v_trimmed_to bigint;
    v_last bigint;
    v_to bigint;
    v_first bigint;
BEGIN
    SELECT s.deleted_to INTO v_deleted_to FROM {schema}.retention_state s FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    SELECT t.o_trimmed_to, t.o_seq INTO v_trimmed_to, v_last FROM {schema}.log_tail(0) t;
    SELECT min(p.from_seq) INTO v_first FROM {schema}.partitions p WHERE NOT p.detached;
    v_deleted_to := greatest(v_deleted_to, v_first - 1);
    IF (v_trimmed_to - v_deleted_to) * {kept_trimmed_share} <= v_last - v_trimmed_to THEN
        RETURN 0;
    END IF;
    v_to := least(v_trimmed_to, v_deleted_to + least(p_limit, {delete_trimmed_max}));
    DELETE FROM {schema}.stored_events e WHERE e.seq > v_deleted_to AND e.seq <= v_to;
    UPDATE {schema}.retention_state SET deleted_to = v_to;
    RETURN v_to - v_deleted_to;
END
$body$;
