-- What is in the schema, as far as it does not change while it is used: the kind and the name of each thing, and what it is like. $1 is the name of the schema.
-- Texts that differ from one version of Postgres to another (definitions of views, of defaults) are not told.
WITH tables AS (
    SELECT c.oid, c.relname::text AS name, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND NOT c.relispartition AND c.relname !~ '^events_p[0-9]+$'
)
SELECT CASE t.relkind WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' WHEN 'c' THEN 'type' ELSE 'table' END AS kind, t.name,
    CASE t.relkind WHEN 'p' THEN 'partitioned' ELSE 'plain' END AS detail
FROM tables t WHERE t.relkind IN ('r', 'p', 'v', 'S', 'c')
UNION ALL
SELECT 'column', a.attname || ' of ' || t.name,
    y.typname || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END || CASE WHEN a.atthasdef OR a.attidentity <> '' THEN ' with a default' ELSE '' END
FROM tables t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped JOIN pg_type y ON y.oid = a.atttypid
WHERE t.relkind IN ('r', 'p', 'v', 'c')
UNION ALL
SELECT 'index', i.relname || ' of ' || t.name, CASE WHEN x.indisunique THEN 'unique, ' ELSE '' END || CASE WHEN x.indisvalid THEN 'valid' ELSE 'not valid' END
FROM tables t JOIN pg_index x ON x.indrelid = t.oid JOIN pg_class i ON i.oid = x.indexrelid
UNION ALL
SELECT 'constraint', k.conname || ' of ' || t.name, CASE k.contype WHEN 'p' THEN 'a primary key' WHEN 'u' THEN 'unique' WHEN 'f' THEN 'a foreign key' ELSE 'a check' END
FROM tables t JOIN pg_constraint k ON k.conrelid = t.oid AND k.contype IN ('p', 'u', 'f', 'c')
UNION ALL
SELECT 'trigger', g.tgname || ' of ' || t.name, CASE g.tgenabled WHEN 'D' THEN 'disabled' WHEN 'R' THEN 'disabled but for replicas' ELSE 'enabled' END
FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal
UNION ALL
SELECT 'function', p.proname::text, string_agg(
        CASE WHEN p.prosecdef THEN 'security definer' ELSE 'security invoker' END || coalesce(', ' || array_to_string(p.proconfig, ', '), ''), '; ' ORDER BY p.pronargs)
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
-- Yours to replace.
WHERE n.nspname = $1 AND p.proname <> 'mutation_payload'
GROUP BY p.proname
ORDER BY 1, 2
