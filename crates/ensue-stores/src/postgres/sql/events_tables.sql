-- `events` is what an event is to who reads the log with SQL (fn_log_view.sql); the table has half an id, and not what goes without saying.
ALTER TABLE {schema}.events RENAME TO stored_events;
DROP VIEW IF EXISTS {schema}.log;
-- It is made anew, and answers more.
DROP FUNCTION IF EXISTS {schema}.outbox_move(timestamptz, bigint, bigint, bigint);
