-- The objects of the schema, as far as they do not change in use: kind, name and properties of each.
-- $1 is the name of the schema. Texts that differ between versions of Postgres (definitions of views
-- and defaults) are left out.
WITH tables AS (
    SELECT c.oid, c.relname::text AS name, c.relkind, c.relrowsecurity, c.relnamespace FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND NOT c.relispartition AND c.relname !~ '^events_p[0-9]+$'
), functions AS (
    SELECT p.*, replace(oidvectortypes(p.proargtypes), quote_ident($1) || '.', '') AS arguments,
        replace(format_type(p.prorettype, NULL), quote_ident($1) || '.', '') AS result,
        CASE WHEN n.nspname = $1 THEN '' ELSE quote_ident(n.nspname) || '.' END || quote_ident(p.proname) AS name
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = $1 OR p.oid IN (SELECT g.tgfoid FROM pg_trigger g UNION ALL SELECT c.castfunc FROM pg_cast c UNION ALL
        SELECT o.oprcode FROM pg_operator o WHERE o.oprnamespace <> 'pg_catalog'::regnamespace)
)
SELECT CASE t.relkind WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' WHEN 'c' THEN 'type' ELSE 'table' END AS kind, t.name,
    CASE t.relkind WHEN 'p' THEN 'partitioned' ELSE 'plain' END || CASE WHEN t.relrowsecurity THEN ', with row security' ELSE '' END AS detail
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
SELECT 'trigger', g.tgname || ' of ' || t.name,
    CASE g.tgenabled WHEN 'D' THEN 'disabled' WHEN 'R' THEN 'disabled but for replicas' ELSE 'enabled' END || ', calls ' || f.name
FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal JOIN functions f ON f.oid = g.tgfoid
UNION ALL
SELECT 'rule', r.rulename || ' of ' || t.name, 'enabled' FROM tables t JOIN pg_rewrite r ON r.ev_class = t.oid
WHERE NOT (t.relkind = 'v' AND r.rulename = '_RETURN')
UNION ALL
SELECT 'policy', y.polname || ' of ' || t.name, 'enabled' FROM tables t JOIN pg_policy y ON y.polrelid = t.oid
UNION ALL
SELECT 'operator', format('%s (%s, %s)', o.oprname, l.typname, r.typname), 'calls ' || f.name
FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace JOIN functions f ON f.oid = o.oprcode
LEFT JOIN pg_type l ON l.oid = o.oprleft LEFT JOIN pg_type r ON r.oid = o.oprright WHERE n.nspname = $1
UNION ALL
SELECT 'cast', format('from %s to %s', s.typname, d.typname), coalesce('calls ' || f.name, 'without a function')
FROM pg_cast c JOIN pg_type s ON s.oid = c.castsource JOIN pg_type d ON d.oid = c.casttarget LEFT JOIN functions f ON f.oid = c.castfunc
WHERE EXISTS (SELECT 1 FROM pg_namespace n WHERE n.nspname = $1 AND n.oid IN (s.typnamespace, d.typnamespace, f.pronamespace))
UNION ALL
SELECT 'domain', y.typname::text, b.typname || CASE WHEN EXISTS (SELECT 1 FROM pg_constraint k WHERE k.contypid = y.oid) THEN ' with a check' ELSE '' END
FROM pg_type y JOIN pg_namespace n ON n.oid = y.typnamespace JOIN pg_type b ON b.oid = y.typbasetype WHERE n.nspname = $1 AND y.typtype = 'd'
UNION ALL
SELECT 'function', f.proname::text, string_agg(
    CASE f.prokind WHEN 'f' THEN '' ELSE 'kind ' || f.prokind::text || ', ' END || l.lanname
        || CASE f.provolatile WHEN 'i' THEN ', immutable' WHEN 's' THEN ', stable' ELSE ', volatile' END
        || CASE WHEN f.proisstrict THEN ', strict' ELSE '' END || CASE WHEN f.proleakproof THEN ', leakproof' ELSE '' END
        || CASE WHEN f.prosecdef THEN ', security definer' ELSE ', security invoker' END
        || coalesce(', ' || array_to_string(f.proconfig, ', '), '')
        || ', from (' || f.arguments || ') to ' || CASE WHEN f.proretset THEN 'a set of ' ELSE '' END || f.result,
    '; ' ORDER BY f.pronargs, f.arguments COLLATE "C")
FROM functions f JOIN pg_namespace n ON n.oid = f.pronamespace JOIN pg_language l ON l.oid = f.prolang
-- Users may replace it.
WHERE n.nspname = $1 AND f.proname <> 'mutation_payload'
GROUP BY f.proname
ORDER BY 1, 2
