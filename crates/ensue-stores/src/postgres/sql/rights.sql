-- Rights that differ from those of apply_grants(), owners that a function or a table should not have,
-- and roles that are missing. A missing role is reported once, and not for each of its rights.
WITH roles AS (
    SELECT f.name AS used_for, r.oid, {schema}.role_name(f.name) AS name
    FROM unnest('{publish,consume,operate,serve,owner,evaluate}'::text[]) f(name) LEFT JOIN pg_roles r ON r.rolname = {schema}.role_name(f.name)
), schema AS (
    SELECT n.oid, n.nspowner FROM pg_namespace n WHERE n.nspname = {schema_text}
), functions AS (
    SELECT p.oid, p.proname::text AS name, p.proowner, p.proacl FROM pg_proc p JOIN schema s ON s.oid = p.pronamespace
), relations AS (
    SELECT c.oid, c.relname::text AS name, c.relkind, c.relowner, c.relacl FROM pg_class c JOIN schema s ON s.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'S')
), trusted AS (
    SELECT r.oid FROM pg_roles r WHERE r.rolsuper
    UNION ALL SELECT s.nspowner FROM schema s
)
SELECT false AS is_role, format('anybody may call the function %s', f.name) AS found FROM functions f
WHERE EXISTS (SELECT 1 FROM aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) a WHERE a.grantee = 0)
UNION ALL
SELECT false, format('anybody may %s %s', a.privilege_type, c.name) FROM relations c CROSS JOIN LATERAL aclexplode(c.relacl) a
WHERE a.grantee = 0
UNION ALL
SELECT false, format('anybody may create objects in the schema') FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) a
WHERE n.nspname = {schema_text} AND a.grantee = 0 AND a.privilege_type = 'CREATE'
UNION ALL
SELECT false, format('the role %s may not call the function %s', r.name, f.name)
FROM {schema}.grants() g CROSS JOIN LATERAL unnest(g.roles) w(used_for) JOIN roles r ON r.used_for = w.used_for AND r.oid IS NOT NULL
JOIN functions f ON f.name = g.function_name WHERE NOT has_function_privilege(r.oid, f.oid, 'EXECUTE')
UNION ALL
SELECT false, CASE b.kind WHEN 'ROUTINE' THEN format('the role %s may call the function %s', b.role, b.name)
    ELSE format('the role %s may %s %s', b.role, b.right, b.name) END
FROM {schema}.rights_not_listed() b
UNION ALL
SELECT false, format('the role %s may create objects in the schema', r.name)
FROM schema s JOIN roles r ON r.used_for = 'owner' AND r.oid IS NOT NULL AND r.oid <> s.nspowner
WHERE EXISTS (SELECT 1 FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) a
    WHERE n.oid = s.oid AND a.grantee = r.oid AND a.privilege_type = 'CREATE')
UNION ALL
SELECT false, format('the function %s does not run as the role %s', f.name, r.name)
FROM {schema}.grants() g JOIN roles r ON r.used_for = g.runs_as AND r.oid IS NOT NULL
JOIN functions f ON f.name = g.function_name WHERE f.proowner <> r.oid
UNION ALL
SELECT false, format('the function %s belongs to the role %s', f.name, pg_get_userbyid(f.proowner)) FROM functions f
WHERE f.proowner NOT IN (SELECT t.oid FROM trusted t) AND NOT EXISTS (
    SELECT 1 FROM {schema}.grants() g JOIN roles r ON r.used_for = g.runs_as WHERE g.function_name = f.name AND r.oid IS NOT NULL)
UNION ALL
SELECT false, format('%s belongs to the role %s', c.name, pg_get_userbyid(c.relowner)) FROM relations c
WHERE c.relowner NOT IN (SELECT t.oid FROM trusted t)
UNION ALL
SELECT false, format('the role %s may not %s %s', r.name, v.verb, t.table_name)
FROM {schema}.table_grants() t CROSS JOIN LATERAL unnest(t.roles) w(used_for) CROSS JOIN LATERAL unnest(string_to_array(t.rights, ', ')) v(verb)
JOIN roles r ON r.used_for = w.used_for AND r.oid IS NOT NULL
JOIN relations c ON c.name = t.table_name
WHERE NOT CASE c.relkind WHEN 'S' THEN has_sequence_privilege(r.oid, c.oid, v.verb) ELSE has_table_privilege(r.oid, c.oid, v.verb) END
UNION ALL
SELECT false, format('the role %s is a member of the role %s', m.name, pg_get_userbyid(a.roleid))
FROM pg_auth_members a JOIN roles m ON m.oid = a.member AND m.used_for IN ('owner', 'evaluate')
UNION ALL
SELECT true, format('there is no role %s', r.name) FROM roles r WHERE r.oid IS NULL
ORDER BY 1, 2
