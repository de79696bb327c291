-- Claims, and says which transactions there were: all below the first number had ended before it looked, and the second had not begun after it knew the newest
-- number. An age is counted from the transaction's own number, or from the next one if it has none: in both cases it is asked for here after the
-- function has run, with the first row, and once for all of them.
SELECT (SELECT x.oldest::text::bigint FROM pg_snapshot_xmin(pg_current_snapshot()) x(oldest)),
    (SELECT x.oldest::text::bigint + age(x.oldest::xid) FROM pg_snapshot_xmin(pg_current_snapshot()) x(oldest)), c.*
FROM {schema}.jobs_fetch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) c
