-- Jobs that died are counted, found and forgotten apart from those that ended otherwise: they are few, and somebody may want them
-- back.
DROP INDEX {schema}.jobs_over;
CREATE INDEX jobs_over ON {schema}.jobs (finished_at, number)
    WHERE finished_at IS NOT NULL AND turn IS NULL AND state <> 'dead';
CREATE INDEX jobs_dead ON {schema}.jobs (finished_at, number, turn) WHERE state = 'dead';
