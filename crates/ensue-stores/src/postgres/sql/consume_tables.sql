-- What consumers over SQL need (docs/sql.md).

-- Texts and paths of a condition compare by bytes, whatever the collation of the database is: in process they do so, too. A text
-- that comes out of jsonb has the collation of the database unless its operator says otherwise, so conditions have operators of their own.
CREATE DOMAIN {schema}.condition_text AS text COLLATE "C";
CREATE DOMAIN {schema}.condition_path AS text[] COLLATE "C";

CREATE FUNCTION {schema}.condition_member(jsonb, {schema}.condition_text) RETURNS {schema}.condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT $1 OPERATOR(pg_catalog.->>) $2 $body$;
CREATE FUNCTION {schema}.condition_member(jsonb, int) RETURNS {schema}.condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT $1 OPERATOR(pg_catalog.->>) $2 $body$;
CREATE FUNCTION {schema}.condition_member(jsonb, {schema}.condition_path) RETURNS {schema}.condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT $1 OPERATOR(pg_catalog.#>>) $2 $body$;
CREATE FUNCTION {schema}.condition_lower({schema}.condition_text) RETURNS {schema}.condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT pg_catalog.lower($1) $body$;
CREATE FUNCTION {schema}.condition_upper({schema}.condition_text) RETURNS {schema}.condition_text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$ SELECT pg_catalog.upper($1) $body$;
CREATE OPERATOR {schema}.->> (LEFTARG = jsonb, RIGHTARG = {schema}.condition_text, FUNCTION = {schema}.condition_member);
CREATE OPERATOR {schema}.->> (LEFTARG = jsonb, RIGHTARG = int, FUNCTION = {schema}.condition_member);
CREATE OPERATOR {schema}.#>> (LEFTARG = jsonb, RIGHTARG = {schema}.condition_path, FUNCTION = {schema}.condition_member);

-- An event, and a subscription, as a condition sees them; what it must not name is refused when it is read.
CREATE TYPE {schema}.condition_event AS (
    seq bigint,
    prev bigint,
    id uuid,
    topic text COLLATE "C",
    object text COLLATE "C",
    payload jsonb,
    metadata jsonb,
    occurred_at timestamptz,
    recorded_at timestamptz,
    to_subscription uuid
);
CREATE TYPE {schema}.condition_subscription AS (
    id uuid,
    group_id text COLLATE "C",
    params jsonb,
    topic text COLLATE "C",
    condition text COLLATE "C"
);

-- On how many events its condition has failed for readers over SQL, and on which last.
ALTER TABLE {schema}.subscriptions ADD COLUMN failures bigint NOT NULL DEFAULT 0;
ALTER TABLE {schema}.subscriptions ADD COLUMN failed_seq bigint;
ALTER TABLE {schema}.subscriptions ADD COLUMN failed_at timestamptz;
ALTER TABLE {schema}.subscriptions ADD COLUMN failed_with text COLLATE "C";
