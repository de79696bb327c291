-- Which rights are not as apply_grants() gives them, and which roles are not there? A role that is not there is told of once, and not for each of its rights.
WITH roles AS (
    SELECT f.name AS used_for, r.oid, {schema}.role_name(f.name) AS name
    FROM unnest('{publish,consume,operate,serve,owner,evaluate}'::text[]) f(name) LEFT JOIN pg_roles r ON r.rolname = {schema}.role_name(f.name)
), functions AS (
    SELECT p.oid, p.proname::text AS name, p.proowner, p.proacl FROM pg_proc p WHERE p.pronamespace = to_regnamespace(quote_ident({schema_text}))
)
SELECT false AS is_role, format('anybody may call the function %s', f.name) AS found FROM functions f
WHERE EXISTS (SELECT 1 FROM aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) a WHERE a.grantee = 0)
UNION ALL
SELECT false, format('the role %s may not call the function %s', r.name, f.name)
FROM {schema}.grants() g CROSS JOIN LATERAL unnest(g.roles) w(used_for) JOIN roles r ON r.used_for = w.used_for AND r.oid IS NOT NULL
JOIN functions f ON f.name = g.function_name WHERE NOT has_function_privilege(r.oid, f.oid, 'EXECUTE')
UNION ALL
SELECT false, format('the role %s may call the function %s', r.name, f.name)
FROM functions f CROSS JOIN LATERAL aclexplode(f.proacl) a JOIN roles r ON r.oid = a.grantee AND r.used_for NOT IN ('owner', 'serve')
WHERE f.proowner <> r.oid
    AND NOT EXISTS (SELECT 1 FROM {schema}.grants() g WHERE g.function_name = f.name AND r.used_for = ANY (g.roles))
UNION ALL
SELECT false, format('the function %s does not run as the role %s', f.name, r.name)
FROM {schema}.grants() g JOIN roles r ON r.used_for = g.runs_as AND r.oid IS NOT NULL
JOIN functions f ON f.name = g.function_name WHERE f.proowner <> r.oid
UNION ALL
SELECT false, format('the role %s may not %s %s', r.name, v.verb, t.table_name)
FROM {schema}.table_grants() t CROSS JOIN LATERAL unnest(t.roles) w(used_for) CROSS JOIN LATERAL unnest(string_to_array(t.rights, ', ')) v(verb)
JOIN roles r ON r.used_for = w.used_for AND r.oid IS NOT NULL
JOIN pg_class c ON c.relnamespace = to_regnamespace(quote_ident({schema_text})) AND c.relname = t.table_name
WHERE NOT has_table_privilege(r.oid, c.oid, v.verb)
UNION ALL
SELECT true, format('there is no role %s', r.name) FROM roles r WHERE r.oid IS NULL
ORDER BY 1, 2
