-- How old an event may become where no node says so itself, in microseconds; null keeps everything. A month is as long as the last one was.
SELECT (extract(epoch FROM t.now - (t.now - {schema}.setting('partition_retention_period', NULL)::interval)) * 1000000)::bigint
FROM (SELECT clock_timestamp() AS now OFFSET 0) t
