-- Events about what happens to the rows of a table: <schema>.<table>.insert, .update and .delete, in the transaction that writes the rows.
--
-- One trigger for a statement and one INSERT for all its rows, whatever their number. Old and new rows of an UPDATE are paired by their
-- order in the two transition tables, into which Postgres writes both at once: so a row is known again that has no primary key, or a new one.
--
-- The payload has the row under `row` for each operation, so that one condition on it selects all three. That of an UPDATE
-- also has `old` and `changed`.

-- A name as a segment of a topic and the beginning of an object. What cannot stand there, or would be taken for something else, is written as `=` and two
-- digits for each of its bytes: so two names are never one (S8), whatever language the database thinks in.
CREATE OR REPLACE FUNCTION {schema}.mutation_name(p_name text) RETURNS text LANGUAGE sql IMMUTABLE
AS $body$
    SELECT CASE WHEN p_name COLLATE "C" ~ '^[A-Za-z0-9_$@/+~-]+$' THEN p_name ELSE (
        SELECT string_agg(CASE WHEN c.one COLLATE "C" ~ '^[A-Za-z0-9_$@/+~-]$' THEN c.one
            ELSE regexp_replace(upper(encode(convert_to(c.one, 'UTF8'), 'hex')), '(..)', $re$=\1$re$, 'g') END, '' ORDER BY c.n)
        FROM regexp_split_to_table(p_name, '') WITH ORDINALITY c(one, n)) END
$body$;

-- The part of the topics that names a table. Raises an error if no topic can have it. The triggers call
-- this too, because a table and its schema can be renamed.
CREATE OR REPLACE FUNCTION {schema}.mutation_topic(p_schema text, p_table text) RETURNS text
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_topic pg_catalog.text := {schema}.mutation_name(p_schema) || '.' || {schema}.mutation_name(p_table);
BEGIN
    PERFORM {schema}.refuse(CASE
        WHEN starts_with(v_topic, '{reserved}.')
            THEN format('%I.%I would have topics under `{reserved}`, which only Ensue itself publishes under: '
                'move it to another schema', p_schema, p_table)
        WHEN octet_length(v_topic || '.insert') > {topic_bytes_max}
            THEN format('%I.%I would have topics of %s bytes, as letters that are not ASCII take several; '
                'at most {topic_bytes_max} are allowed', p_schema, p_table, octet_length(v_topic || '.insert'))
    END);
    RETURN v_topic;
END
$body$;

-- The columns of the primary key of a table, in their order; null if it has none.
CREATE OR REPLACE FUNCTION {schema}.mutation_key(p_table oid) RETURNS text[] LANGUAGE sql STABLE
AS $body$
    SELECT array_agg(a.attname::text ORDER BY k.n)
    FROM pg_catalog.pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(attnum, n)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = p_table AND i.indisprimary AND k.n <= i.indnkeyatts
$body$;

-- What an event about a row is about: `p_name:KEY`; of a key of several columns their values as a JSON array. A key that no object can have is there by its digest.
CREATE OR REPLACE FUNCTION {schema}.mutation_object(p_name text, p_key text[], p_row jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE
AS $body$
DECLARE
    v_key pg_catalog.text := CASE WHEN cardinality(p_key) = 1 THEN p_row ->> p_key[1]
        WHEN p_key IS NOT NULL THEN (SELECT jsonb_agg(p_row -> k.name ORDER BY k.n)::text FROM unnest(p_key) WITH ORDINALITY k(name, n)) END;
BEGIN
    IF octet_length(p_name) + 1 + octet_length(v_key) > {object_bytes_max} OR v_key ~ $re$[{unprintable}]$re$ THEN
        v_key := 'sha256=' || encode(sha256(convert_to(v_key, 'UTF8')), 'hex');
    END IF;
    RETURN p_name || ':' || v_key;
END
$body$;

-- Whether the payload fits into an event; an error if not.
CREATE OR REPLACE FUNCTION {schema}.mutation_fits(p_topic text, p_payload jsonb) RETURNS boolean LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF octet_length(p_payload::text) > {event_bytes_max} THEN
        RAISE EXCEPTION 'a row has % bytes as the payload of %; at most {event_bytes_max} are allowed', octet_length(p_payload::text), p_topic
            USING ERRCODE = 'program_limit_exceeded',
                HINT = 'Leave large columns out in mutation_payload, or stop_table_mutations for this table.';
    END IF;
    RETURN true;
END
$body$;

-- The select list that makes the rows of a table safe for to_jsonb; null if they are safe as is.
--
-- to_jsonb applies a cast to json if a user has defined one for a type, and the function of that
-- cast would run with the rights of the trigger. It looks for one only if the type is not built in
-- (OID 16384 and above), also inside domains, arrays and composite types. A column of such a type
-- is converted by the output function of its type instead, which only a superuser can define; an
-- array becomes an array of texts. No cast and no operator of a user is looked up.
--
-- Nothing changes between this check and the use: the statement that fired the trigger holds a
-- lock on the table, so columns keep their types, and a domain cannot change its base type. The
-- attributes of a composite type can change, so they are not looked at.
--
-- Raises an error for a trigger that is not of the kind that push_table_mutations creates: the names
-- of its transition tables would be looked up among the temporary relations of the session.
CREATE OR REPLACE FUNCTION {schema}.mutation_columns(p_table oid, p_trigger name, p_old name, p_new name) RETURNS text
LANGUAGE plpgsql STABLE
AS $body$
DECLARE
    v_is_safe boolean;
    v_columns pg_catalog.text;
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM pg_trigger t WHERE t.tgrelid = p_table AND t.tgname = p_trigger
            AND t.tgoldtable IS NOT DISTINCT FROM p_old AND t.tgnewtable IS NOT DISTINCT FROM p_new
            -- AFTER one operation, FOR EACH STATEMENT.
            AND t.tgtype = CASE WHEN p_old IS NULL THEN 4 WHEN p_new IS NULL THEN 8 ELSE 16 END) THEN
        RAISE EXCEPTION 'the trigger % of % was not created by push_table_mutations', quote_ident(p_trigger), p_table::regclass
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Drop the trigger and call push_table_mutations.';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = p_table AND a.attnum > 0 AND a.atttypid >= 16384) THEN
        RETURN NULL;
    END IF;
    WITH RECURSIVE steps AS (
        SELECT a.attnum, a.attname, 0 AS depth, a.atttypid AS type, NULL::text AS delimiter
        FROM pg_attribute a WHERE a.attrelid = p_table AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT s.attnum, s.attname, s.depth + 1, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END,
            coalesce(s.delimiter, CASE WHEN t.typtype <> 'd' THEN t.typdelim::text END)
        FROM steps s JOIN pg_type t ON t.oid = s.type
        WHERE s.type >= 16384 AND (t.typtype = 'd' OR t.typsubscript = 'array_subscript_handler'::regproc)
    ), innermost AS (
        SELECT DISTINCT ON (s.attnum) s.attnum, quote_ident(s.attname) AS name, s.type < 16384 AS is_safe,
            coalesce(s.delimiter = ',', false) AS is_array
        FROM steps s ORDER BY s.attnum, s.depth DESC
    )
    SELECT bool_and(i.is_safe), string_agg(CASE WHEN i.is_safe THEN 'r.' || i.name ELSE replace(
            'CASE WHEN num_nonnulls(r.NAME) = 1 THEN format(''%s'', r.NAME)' || CASE WHEN i.is_array THEN '::text[]' ELSE '' END
            || ' END AS NAME', 'NAME', i.name) END, ', ' ORDER BY i.attnum)
    INTO v_is_safe, v_columns FROM innermost i;
    RETURN CASE WHEN NOT v_is_safe THEN v_columns END;
END
$body$;

-- The statement of the triggers below for a table whose columns need a select list. $1 is the
-- table's part of the topic, $2 its primary key, $3 the table.
CREATE OR REPLACE FUNCTION {schema}.mutation_statement(p_operation text, p_columns text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $body$
DECLARE
    v_images pg_catalog.text := '(SELECT row_number() OVER () AS n, to_jsonb(q.*) AS image FROM (SELECT ' || p_columns || ' FROM ';
    v_new pg_catalog.text := v_images || 'new_rows r OFFSET 0) q) n';
    v_old pg_catalog.text := v_images || 'old_rows r OFFSET 0) q) o';
BEGIN
    RETURN format($sql$
        INSERT INTO %1$I.outbox (occurred_at, id, topic, object, payload)
        SELECT clock_timestamp(), %1$I.new_id(), $1 || '.%2$s', %1$I.mutation_object($1, $2, m.image), m.payload
        FROM (SELECT c.n, c.image, %1$I.mutation_payload($3, '%2$s', c.payload) AS payload FROM (%3$s OFFSET 0) c OFFSET 0) m
        WHERE m.payload IS NOT NULL AND %1$I.mutation_fits($1 || '.%2$s', m.payload)
        ORDER BY m.n$sql$,
        {schema_text}, p_operation, CASE p_operation
        WHEN 'insert' THEN $sql$SELECT n.n, n.image, jsonb_build_object('row', n.image) AS payload FROM $sql$ || v_new
        WHEN 'delete' THEN $sql$SELECT o.n, o.image, jsonb_build_object('row', o.image) AS payload FROM $sql$ || v_old
        WHEN 'update' THEN $sql$SELECT n.n, n.image, jsonb_build_object('row', n.image, 'old', o.image,
            'changed', (SELECT jsonb_agg(f.key ORDER BY f.key) FROM jsonb_each(n.image) f
                        WHERE o.image -> f.key IS DISTINCT FROM f.value)) AS payload FROM $sql$
            || v_new || ' JOIN ' || v_old || ' ON o.n = n.n WHERE n.image <> o.image' END);
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.mutations_insert() RETURNS trigger LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET intervalstyle = 'postgres' SET extra_float_digits = 1 SET bytea_output = 'hex' SET jit = off
AS $body$
DECLARE
    v_name pg_catalog.text := {schema}.mutation_topic(TG_TABLE_SCHEMA, TG_TABLE_NAME);
    v_key pg_catalog.text[] := {schema}.mutation_key(TG_RELID);
    v_columns pg_catalog.text := {schema}.mutation_columns(TG_RELID, TG_NAME, NULL, 'new_rows');
    v_count bigint;
BEGIN
    IF v_columns IS NULL THEN
        INSERT INTO {schema}.outbox (occurred_at, id, topic, object, payload)
        SELECT clock_timestamp(), {schema}.new_id(), v_name || '.insert', {schema}.mutation_object(v_name, v_key, m.image), m.payload
        FROM (
            SELECT i.image,
                {schema}.mutation_payload(TG_RELID::regclass, 'insert', jsonb_build_object('row', i.image)) AS payload
            FROM (SELECT to_jsonb(r.*) AS image FROM new_rows r OFFSET 0) i OFFSET 0
        ) m
        WHERE m.payload IS NOT NULL AND {schema}.mutation_fits(v_name || '.insert', m.payload);
    ELSE
        EXECUTE {schema}.mutation_statement('insert', v_columns) USING v_name, v_key, TG_RELID::regclass;
    END IF;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count > 0 THEN
        PERFORM {schema}.outbox_ring();
    END IF;
    RETURN NULL;
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.mutations_delete() RETURNS trigger LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET intervalstyle = 'postgres' SET extra_float_digits = 1 SET bytea_output = 'hex' SET jit = off
AS $body$
DECLARE
    v_name pg_catalog.text := {schema}.mutation_topic(TG_TABLE_SCHEMA, TG_TABLE_NAME);
    v_key pg_catalog.text[] := {schema}.mutation_key(TG_RELID);
    v_columns pg_catalog.text := {schema}.mutation_columns(TG_RELID, TG_NAME, 'old_rows', NULL);
    v_count bigint;
BEGIN
    IF v_columns IS NULL THEN
        INSERT INTO {schema}.outbox (occurred_at, id, topic, object, payload)
        SELECT clock_timestamp(), {schema}.new_id(), v_name || '.delete', {schema}.mutation_object(v_name, v_key, m.image), m.payload
        FROM (
            SELECT i.image,
                {schema}.mutation_payload(TG_RELID::regclass, 'delete', jsonb_build_object('row', i.image)) AS payload
            FROM (SELECT to_jsonb(r.*) AS image FROM old_rows r OFFSET 0) i OFFSET 0
        ) m
        WHERE m.payload IS NOT NULL AND {schema}.mutation_fits(v_name || '.delete', m.payload);
    ELSE
        EXECUTE {schema}.mutation_statement('delete', v_columns) USING v_name, v_key, TG_RELID::regclass;
    END IF;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count > 0 THEN
        PERFORM {schema}.outbox_ring();
    END IF;
    RETURN NULL;
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.mutations_update() RETURNS trigger LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET intervalstyle = 'postgres' SET extra_float_digits = 1 SET bytea_output = 'hex' SET jit = off
-- A plan that was made for few rows would compare each with each.
SET enable_nestloop = off
AS $body$
DECLARE
    v_name pg_catalog.text := {schema}.mutation_topic(TG_TABLE_SCHEMA, TG_TABLE_NAME);
    v_key pg_catalog.text[] := {schema}.mutation_key(TG_RELID);
    v_columns pg_catalog.text := {schema}.mutation_columns(TG_RELID, TG_NAME, 'old_rows', 'new_rows');
    v_count bigint;
BEGIN
    IF v_columns IS NULL THEN
        INSERT INTO {schema}.outbox (occurred_at, id, topic, object, payload)
        SELECT clock_timestamp(), {schema}.new_id(), v_name || '.update', {schema}.mutation_object(v_name, v_key, m.image), m.payload
        FROM (
            SELECT c.n, c.image, {schema}.mutation_payload(TG_RELID::regclass, 'update', jsonb_build_object('row', c.image, 'old', c.former,
                'changed', (SELECT jsonb_agg(f.key ORDER BY f.key) FROM jsonb_each(c.image) f
                            WHERE c.former -> f.key IS DISTINCT FROM f.value))) AS payload
            FROM (
                SELECT n.n, n.image, o.image AS former
                FROM (SELECT row_number() OVER () AS n, to_jsonb(r.*) AS image FROM new_rows r) n
                JOIN (SELECT row_number() OVER () AS n, to_jsonb(r.*) AS image FROM old_rows r) o ON o.n = n.n
                WHERE n.image <> o.image OFFSET 0
            ) c OFFSET 0
        ) m
        WHERE m.payload IS NOT NULL AND {schema}.mutation_fits(v_name || '.update', m.payload)
        ORDER BY m.n;
    ELSE
        EXECUTE {schema}.mutation_statement('update', v_columns) USING v_name, v_key, TG_RELID::regclass;
    END IF;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count > 0 THEN
        PERFORM {schema}.outbox_ring();
    END IF;
    RETURN NULL;
END
$body$;

-- Stops events about a table; were there any? Needs no more rights than to drop a trigger of it.
CREATE OR REPLACE FUNCTION {schema}.stop_table_mutations(relation regclass) RETURNS boolean LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $body$
DECLARE
    v_trigger pg_catalog.name;
    v_found boolean := false;
BEGIN
    FOR v_trigger IN
        SELECT t.tgname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE t.tgrelid = relation AND n.nspname = {schema_text} AND p.proname IN ('mutations_insert', 'mutations_update', 'mutations_delete')
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', v_trigger, relation);
        v_found := true;
    END LOOP;
    RETURN v_found;
END
$body$;

-- Has every INSERT, UPDATE and DELETE on a table published, or those that are asked for; said again it holds anew. The caller must be allowed to make
-- triggers on the table; who writes to the table needs no rights here.
CREATE OR REPLACE FUNCTION {schema}.push_table_mutations(
    relation regclass, insert boolean DEFAULT true, update boolean DEFAULT true, delete boolean DEFAULT true
) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $body$
DECLARE
    v_of pg_catalog.record;
    v_mark pg_catalog.text := left(md5({schema_text}), 8);
BEGIN
    SELECT c.relkind, c.relname, n.nspname INTO v_of FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation;
    PERFORM {schema}.refuse(CASE
        WHEN v_of.relkind IS NULL THEN 'relation is null or not there; name a table'
        WHEN v_of.relkind NOT IN ('r', 'p') THEN format('%s is not a table: only tables, partitioned ones too, can be watched', relation)
        WHEN v_of.nspname = {schema_text} THEN format('%s is one of Ensue''s own tables, which cannot be watched', relation)
    END);
    PERFORM {schema}.mutation_topic(v_of.nspname, v_of.relname);
    PERFORM {schema}.stop_table_mutations(relation);
    IF insert THEN
        EXECUTE format('CREATE TRIGGER %I AFTER INSERT ON %s REFERENCING NEW TABLE AS new_rows '
            'FOR EACH STATEMENT EXECUTE FUNCTION %I.mutations_insert()', 'ensue_insert_' || v_mark, relation, {schema_text});
    END IF;
    IF update THEN
        EXECUTE format('CREATE TRIGGER %I AFTER UPDATE ON %s REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows '
            'FOR EACH STATEMENT EXECUTE FUNCTION %I.mutations_update()', 'ensue_update_' || v_mark, relation, {schema_text});
    END IF;
    IF delete THEN
        EXECUTE format('CREATE TRIGGER %I AFTER DELETE ON %s REFERENCING OLD TABLE AS old_rows '
            'FOR EACH STATEMENT EXECUTE FUNCTION %I.mutations_delete()', 'ensue_delete_' || v_mark, relation, {schema_text});
    END IF;
END
$body$;
