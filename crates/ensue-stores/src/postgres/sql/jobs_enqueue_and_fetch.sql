-- Sends jobs and claims, in one commit; what the two functions take, their time and call once. A row for each job that was
-- taken, and at least one. The claim needs what the sending answered: so it comes after it, and sees what was sent.
SELECT e.o_numbers, e.o_stamps, e.o_new, e.o_states, NULL::bigint, NULL::bigint, c.*
FROM {schema}.jobs_enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) e
CROSS JOIN LATERAL {schema}.jobs_fetch($1, $2, $3, $19, CASE WHEN e.o_numbers IS NOT NULL THEN $20::text[] END,
    $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32) c
