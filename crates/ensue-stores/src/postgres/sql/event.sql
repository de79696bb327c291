-- The event at place $1.
SELECT e.seq, e.prev, e.id_part, e.topic, e.object, e.payload, e.metadata,
    coalesce(e.occurred_at, e.recorded_at), e.recorded_at, e.to_subscription
FROM {schema}.stored_events e
WHERE e.seq = $1 AND e.seq > (SELECT s.trimmed_to FROM {schema}.log_state s)
