-- Many events that were published with one call, without keys and delays, are one row of the outbox: `events` has them as they were sent, `count` says how
-- many they are, and each has the id of the row with its place in the call, from 1, in the last digits. To write and delete a row for each of 1,000 would take the
-- publisher and the move twice as long. It is kept as it is, out of line: to compress it would take longer than to write it.
ALTER TABLE {schema}.outbox ALTER COLUMN topic DROP NOT NULL, ALTER COLUMN payload DROP NOT NULL,
    ADD COLUMN count int, ADD COLUMN events jsonb,
    ADD CHECK ((events IS NULL) = (topic IS NOT NULL) AND (events IS NULL) = (payload IS NOT NULL)),
    SET (toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 10000, toast.autovacuum_vacuum_cost_delay = 0);
ALTER TABLE {schema}.outbox ALTER COLUMN events SET STORAGE EXTERNAL;
