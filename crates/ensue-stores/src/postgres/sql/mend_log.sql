-- The first programs kept whole ids, under another name, and had the index of objects look for entries that are equal. A whole id is one of the
-- two things that `id_part` may be (fn_event_id.sql).
DO $body$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = to_regclass(quote_ident({schema_text}) || '.events') AND a.attname = 'id' AND NOT a.attisdropped) THEN
        ALTER TABLE {schema}.events RENAME COLUMN id TO id_part;
        ALTER TABLE {schema}.keys RENAME COLUMN id TO id_part;
        DROP INDEX {schema}.events_object;
        CREATE INDEX events_object ON {schema}.events (hashtextextended(object, 0), seq)
            WITH (deduplicate_items = off) WHERE object IS NOT NULL;
    END IF;
END
$body$;
