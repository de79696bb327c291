-- Schedules. An engine does not read what fires when: it keeps a text, a watermark and a time.
CREATE TABLE {schema}.schedules_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL DEFAULT 0
);
INSERT INTO {schema}.schedules_state DEFAULT VALUES;

CREATE TABLE {schema}.schedules (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    watermark timestamptz NOT NULL,
    due timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    runs bigint NOT NULL DEFAULT 0, -- the number of the last run
    put_by uuid NOT NULL,           -- the call that put it last
    fired_by uuid,                  -- the call that fired it last
    held boolean NOT NULL,          -- is there a rule?
    managed_by text,
    definition text NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX schedules_due ON {schema}.schedules (due, name) WHERE due IS NOT NULL AND NOT held;
CREATE INDEX schedules_managed ON {schema}.schedules (name) WHERE managed_by IS NOT NULL;

CREATE TABLE {schema}.schedule_runs (
    name text COLLATE "C" NOT NULL REFERENCES {schema}.schedules (name) ON DELETE CASCADE,
    number bigint NOT NULL,
    occurrence timestamptz NOT NULL,
    at timestamptz NOT NULL,
    event_seq bigint,
    job_number bigint,
    job_stamp bigint,
    call uuid NOT NULL,
    manual boolean NOT NULL,
    overlapped boolean NOT NULL, -- is it the job of an earlier one?
    skipped text,
    PRIMARY KEY (name, number)
);

CREATE TABLE {schema}.schedule_declarations (
    process uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (process, name)
);
CREATE INDEX schedule_declarations_name ON {schema}.schedule_declarations (name, until);

-- Whether a rule holds a schedule is noted in its row, in the commit that changes the rule: so what is held is in no index that is
-- looked at for what is due. Who puts or fires has the lock of the rules.
CREATE OR REPLACE FUNCTION {schema}.schedule_rule_changed() RETURNS trigger LANGUAGE plpgsql
AS $body$
DECLARE
    v_scope pg_catalog.text := CASE WHEN TG_OP = 'DELETE' THEN OLD.scope ELSE NEW.scope END;
BEGIN
    IF v_scope LIKE 'schedule:%' THEN
        UPDATE {schema}.schedules s SET held = EXISTS (SELECT 1 FROM {schema}.rules r WHERE r.scope = v_scope)
        WHERE s.name = substr(v_scope, 10);
    END IF;
    RETURN NULL;
END
$body$;
CREATE TRIGGER schedule_rule_changed AFTER INSERT OR DELETE ON {schema}.rules
    FOR EACH ROW EXECUTE FUNCTION {schema}.schedule_rule_changed();

-- The pulse tells when the next one is due, too.
DROP FUNCTION IF EXISTS {schema}.pulse(timestamptz, bigint, uuid, bigint);
