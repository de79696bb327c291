-- Only from the version for which this was made.
DO $body$
BEGIN
    IF ({version}) <> {from} THEN
        RAISE EXCEPTION 'the schema % has version %, not {from}', quote_ident({schema_text}), ({version})
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Ask for the SQL again: ensue migrate --dry-run';
    END IF;
END
$body$;
