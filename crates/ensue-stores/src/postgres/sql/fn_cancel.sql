-- Cancels a delayed event. Under the lock of the log: a release that has read the row would log it all the same.
-- Answers 0 if it was pending and is gone, its seq if it is in the log, null if there is no such event.
CREATE OR REPLACE FUNCTION {schema}.cancel(p_id uuid, p_part uuid, p_from timestamptz, p_to timestamptz, p_hint bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_key pg_catalog.text;
BEGIN
    PERFORM {schema}.lock_log();
    DELETE FROM {schema}.delayed d WHERE d.id = p_id AND d.seq IS NULL RETURNING d.key INTO v_key;
    IF FOUND THEN
        -- Who sends it again under the same key means it.
        DELETE FROM {schema}.keys k WHERE k.key = v_key AND k.id_part = p_part;
        RETURN 0;
    END IF;
    RETURN {schema}.find_seq(p_id, p_part, p_from, p_to, p_hint);
END
$body$;
