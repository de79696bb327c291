-- Which of the keys $1 are in use, and for what? $2 is the injected clock's time or null, $3 a hint at the log's end.
SELECT k.key, k.fingerprint FROM {schema}.keys k
WHERE k.key = ANY ($1) AND k.recorded_at > interval '-{key_window}'
    + (SELECT {schema}.recording_time($2, t.o_recorded_at) FROM {schema}.log_tail($3) t)
