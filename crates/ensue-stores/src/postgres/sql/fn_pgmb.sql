-- Functions of PGMB that have no counterpart under their names: the error says what to use instead.

CREATE OR REPLACE FUNCTION {schema}.create_event_id(
    ts timestamptz DEFAULT NULL, rand bigint DEFAULT NULL
) RETURNS text LANGUAGE plpgsql STABLE
AS $body$
BEGIN
    RAISE EXCEPTION 'Ensue has no create_event_id: publish returns the id of an event, seq is its order'
        USING ERRCODE = 'feature_not_supported',
            HINT = 'Publish later events with not_before. See "From PGMB" in docs/sql.md.';
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.maintain_events_table(current_ts timestamptz DEFAULT NULL)
RETURNS void LANGUAGE plpgsql STABLE
AS $body$
BEGIN
    RAISE EXCEPTION 'Ensue has no maintain_events_table: call maintain, or run a node'
        USING ERRCODE = 'feature_not_supported', HINT = 'See "From PGMB" in docs/sql.md.';
END
$body$;
