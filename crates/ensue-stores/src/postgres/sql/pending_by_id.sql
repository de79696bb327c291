-- The delayed event with id $1, if it still waits.
SELECT d.id, d.topic, d.object, d.payload, d.metadata, d.occurred_at, d.not_before, d.to_subscription
FROM {schema}.delayed d WHERE d.id = $1 AND d.seq IS NULL
