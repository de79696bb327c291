-- Which of these entries are stored? Asked after the connection was lost while a batch was under way.
--
-- Under the lock, so that nothing is half done; the lost session itself was ended before. A batch can only be after the
-- end of the log that its sender knew, and no earlier than that end's time: little is looked at. A delayed event that
-- was released meanwhile stands in both tables, in the log with its whole id: it was answered as delayed, and is
-- found there alone.
--
-- What is found may be on this server alone: to end the lost session ends its wait for a synchronous standby too. So
-- something is written, after it in the WAL: where commits wait for a standby, this one waits until the standby has both.
-- It keeps the lock until then, and nobody else is told of the batch either.
CREATE OR REPLACE FUNCTION {schema}.stored(p_after bigint, p_since timestamptz, p_id_parts uuid[])
RETURNS TABLE (o_id uuid, o_seq bigint, o_prev bigint) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off
AS $body$
BEGIN
    PERFORM {schema}.lock_log();
    RETURN QUERY
    SELECT {schema}.event_id(e.id_part, e.recorded_at), e.seq, e.prev FROM {schema}.stored_events e
    WHERE e.seq > p_after AND e.id_part = ANY (p_id_parts)
    UNION ALL
    SELECT d.id, NULL::bigint, NULL::bigint FROM {schema}.delayed d
    WHERE d.id >= rpad(right(lpad(to_hex(CASE WHEN isfinite(p_since)
                  THEN trunc(extract(epoch FROM p_since) * 1000)::bigint ELSE 0 END), 12, '0'), 12), 32, '0')::uuid
        AND right(replace(d.id::text, '-', ''), 19) IN (
            SELECT right(replace(part::text, '-', ''), 19) FROM unnest(p_id_parts) part);
    IF FOUND THEN
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
    ELSIF EXISTS (SELECT 1 FROM {schema}.retention_state s WHERE s.deleted_to > p_after) THEN
        RAISE EXCEPTION 'retention has deleted events behind %, and a batch may have been among them', p_after
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
$body$;
