-- How many delayed events wait? Counted in the partial index of those alone.
SELECT count(*) FROM {schema}.delayed d WHERE d.seq IS NULL
