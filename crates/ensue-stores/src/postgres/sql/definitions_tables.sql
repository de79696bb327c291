-- Handlers that the store itself keeps. One goes with its group, whoever deletes that, and its going counts.
CREATE TABLE {schema}.definitions_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL DEFAULT 0
);
INSERT INTO {schema}.definitions_state DEFAULT VALUES;

CREATE TABLE {schema}.definitions (
    group_id bigint PRIMARY KEY REFERENCES {schema}.groups (id) ON DELETE CASCADE,
    subscription uuid NOT NULL,
    revision bigint NOT NULL,
    settings text NOT NULL
);

CREATE OR REPLACE FUNCTION {schema}.definition_gone() RETURNS trigger LANGUAGE plpgsql
AS $body$
BEGIN
    UPDATE {schema}.definitions_state s SET version = s.version + 1;
    RETURN NULL;
END
$body$;
CREATE TRIGGER definition_gone AFTER DELETE ON {schema}.definitions
    FOR EACH ROW EXECUTE FUNCTION {schema}.definition_gone();

-- The pulse tells their version, too; it is made anew with the schedules.
DROP FUNCTION IF EXISTS {schema}.pulse(timestamptz, bigint, uuid, bigint);
