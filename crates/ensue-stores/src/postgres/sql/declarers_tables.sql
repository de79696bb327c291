-- Who declares schedules has one row that says until when, so that to say it again writes that row and not every name.
CREATE TABLE {schema}.schedule_declarers (
    process uuid PRIMARY KEY,
    until timestamptz NOT NULL
) WITH (fillfactor = 50);
INSERT INTO {schema}.schedule_declarers (process, until)
SELECT d.process, max(d.until) FROM {schema}.schedule_declarations d GROUP BY d.process;
DROP INDEX {schema}.schedule_declarations_name;
ALTER TABLE {schema}.schedule_declarations DROP COLUMN until;
CREATE INDEX schedule_declarations_name ON {schema}.schedule_declarations (name);

-- Counts what rules hold and let go: with the version it says whether a look may begin where the one before did (fn_schedules_due.sql).
ALTER TABLE {schema}.schedules_state ADD COLUMN rules_changed bigint NOT NULL DEFAULT 0;
