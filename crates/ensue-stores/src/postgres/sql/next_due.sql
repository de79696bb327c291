-- When is the next delayed event due, or something of the outbox ($1: the time, if it is injected; $2: a place that was the end of the log)? And is it
-- now? One row always. Asked before a release, so that an idle system does not take the lock of the log every second.
SELECT t.o_seq, d.not_before, d.not_before <= {schema}.recording_time($1, t.o_recorded_at) OR {schema}.outbox_waits()
FROM {schema}.log_tail($2) t
LEFT JOIN LATERAL (
    SELECT w.not_before FROM {schema}.delayed w WHERE w.seq IS NULL ORDER BY w.not_before, w.accepted LIMIT 1
) d ON true
