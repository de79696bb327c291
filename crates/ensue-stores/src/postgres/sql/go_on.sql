-- Only from the version for which this was made.
DO $body$
BEGIN
    IF ({version}) <> {from} THEN
        RAISE EXCEPTION 'the schema % has version %, not {from}', quote_ident({schema_text}), ({version})
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Ask for the SQL again: ensue migrate --dry-run';
    END IF;
    -- Version 14 makes an index of jobs and drops another. Who takes the weaker lock first has others wait for it that have looked at jobs already, and
    -- then waits for them: so it is the stronger one from the beginning, before anything else is locked. Versions 17 and 18 change jobs and job_calls, which whoever sends
    -- jobs looks at in the other order.
    IF {from} BETWEEN 5 AND 16 THEN
        LOCK TABLE {schema}.job_calls, {schema}.jobs IN ACCESS EXCLUSIVE MODE;
    END IF;
END
$body$;
