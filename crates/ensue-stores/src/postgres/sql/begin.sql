-- The schema, unless somebody with more rights has made it for us, and the table of its version.
DO $body$
BEGIN
    IF current_setting('server_version_num')::int < 140000 THEN
        RAISE EXCEPTION 'Ensue needs Postgres 14 or newer, and this is %', current_setting('server_version')
            USING ERRCODE = 'feature_not_supported', HINT = 'Upgrade the server.';
    END IF;
    IF to_regclass(quote_ident({schema_text}) || '.schema_version') IS NOT NULL THEN
        RAISE EXCEPTION 'Ensue is installed in the schema % already', quote_ident({schema_text}) USING ERRCODE = 'duplicate_schema',
            HINT = 'To bring it up to date run `ensue migrate`; to begin anew drop the schema, with all that is in it.';
    END IF;
    IF to_regnamespace(quote_ident({schema_text})) IS NULL THEN
        IF NOT has_database_privilege(current_database(), 'CREATE') THEN
            RAISE EXCEPTION 'permission denied to make a schema in database %', current_database() USING ERRCODE = 'insufficient_privilege',
                HINT = format('GRANT CREATE ON DATABASE %I TO %I, or have somebody with that right make the schema: CREATE SCHEMA %I AUTHORIZATION %2$I',
                    current_database(), current_user, {schema_text});
        END IF;
        CREATE SCHEMA {schema};
    END IF;
END
$body$;

CREATE TABLE {schema}.schema_version (
    version int PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
