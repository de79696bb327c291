-- The log as it is published, to be read with SQL: `stored_events` has half an id of each, and not what goes without saying. `id_part` is that half, which
-- programs read that were started before the table had this name.
CREATE OR REPLACE VIEW {schema}.events AS
SELECT e.seq, e.prev, {schema}.event_id(e.id_part, e.recorded_at) AS id, e.topic, e.object, e.payload, coalesce(e.metadata, '{}') AS metadata,
    {schema}.stored_time(coalesce(e.occurred_at, e.recorded_at)) AS occurred_at, {schema}.stored_time(e.recorded_at) AS recorded_at, e.to_subscription, e.id_part
FROM {schema}.stored_events e WHERE e.seq > (SELECT s.trimmed_to FROM {schema}.log_state s);

-- What groups want, and whose conditions have failed on events for readers over SQL: how often, and on which last.
CREATE OR REPLACE VIEW {schema}.group_subscriptions AS
SELECT g.name AS group_id, u.id, u.topic, u.condition, u.params::jsonb AS params, u.expires_in * interval '1 microsecond' AS expiry, u.created_at,
    u.failures, u.failed_seq, u.failed_at, u.failed_with
FROM {schema}.groups g JOIN {schema}.subscriptions u ON u.group_id = g.id;
