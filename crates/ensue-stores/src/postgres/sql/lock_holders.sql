-- Who holds a lock that calls of ours wait for: pid, transaction, description, and how many wait for that
-- lock. Application name and user are visible to every login.
WITH ours AS (
    SELECT l.pid, l.virtualtransaction, l.granted, l.mode,
        CASE WHEN l.locktype = 'relation' THEN l.relation::bigint ELSE (l.classid::bigint << 32) | l.objid::bigint END AS key
    FROM pg_locks l
    WHERE l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND (l.locktype = 'relation' AND l.mode NOT IN ('AccessShareLock', 'RowExclusiveLock')
                AND l.relation IN (SELECT to_regclass(format('%I.%I', {schema_text}, t.name))
                    FROM (VALUES ('log_lock'), ('serving_lock'), ('rules_lock'), ('partitions')) t(name))
            OR l.locktype = 'advisory' AND l.objsubid = 1
                AND (l.classid::bigint << 32) | l.objid::bigint = {lock_migrations}
            OR l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid::bigint = {lock_lanes}::bigint & 4294967295)
)
SELECT h.pid, h.virtualtransaction,
    format('pid %s (user %s, application %s)', h.pid, coalesce(a.usename, '?'), to_json(coalesce(a.application_name, ''))),
    (SELECT count(*) FROM ours w WHERE w.key = h.key AND NOT w.granted)
FROM ours h LEFT JOIN pg_stat_activity a ON a.pid = h.pid
WHERE h.granted AND h.pid <> pg_backend_pid() ORDER BY 4 DESC, h.pid LIMIT 10
