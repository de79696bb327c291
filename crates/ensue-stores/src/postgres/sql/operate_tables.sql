-- What the functions for work, tables and upkeep from plain SQL need: settings that are read when they are needed, the index of jobs that were
-- sent in somebody's transaction, and a function that users may replace.

-- Settings of `maintain` and `poll_for_events`. Null where a setting has nothing to say.
CREATE TABLE {schema}.config (
    key text COLLATE "C" PRIMARY KEY,
    value text COLLATE "C"
);

-- A setting that cannot be read is refused when it is written, and not when it is needed.
CREATE OR REPLACE FUNCTION {schema}.config_check() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_count pg_catalog.text := '^[0-9]{1,9}$';
    v_span interval;
    v_is_span boolean := false;
BEGIN
    BEGIN
        IF NEW.value !~ '^[0-9]+$' THEN
            v_span := NEW.value::interval;
            v_is_span := v_span > interval '0' AND v_span <= interval '{span_years_max} years';
        END IF;
    EXCEPTION WHEN data_exception THEN
        v_is_span := false;
    END;
    IF NEW.key = 'partition_retention_period' AND (NEW.value IS NULL OR v_is_span) THEN
        RETURN NEW;
    ELSIF NEW.key = 'partition_retention_period' THEN
        RAISE EXCEPTION 'partition_retention_period is %: write a length of time such as ''7 days'', or null to keep everything',
            quote_nullable(NEW.value) USING ERRCODE = 'invalid_parameter_value', HINT = 'At most {span_years_max} years.';
    ELSIF NEW.key IN ('partition_interval', 'future_intervals_to_create') THEN
        IF v_is_span OR NEW.value ~ v_count AND NEW.value::int > 0
            AND (NEW.key = 'partition_interval' OR NEW.value::int <= 1000) THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION '% is %: write %', NEW.key, quote_nullable(NEW.value),
            CASE WHEN NEW.key = 'partition_interval' THEN 'how many events a partition holds, such as ''1000000'''
                ELSE 'how many partitions are made ahead, 1 to 1000' END || ', or a length of time such as ''1 day'', at most {span_years_max} years'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF NEW.key = 'poll_chunk_size' THEN
        IF NEW.value ~ v_count AND NEW.value::int BETWEEN 1 AND 100000 THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION 'poll_chunk_size is %: write a number from 1 to 100000', quote_nullable(NEW.value)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RAISE EXCEPTION 'there is no setting %: those are partition_retention_period, partition_interval, future_intervals_to_create and poll_chunk_size',
        quote_nullable(NEW.key) USING ERRCODE = 'invalid_parameter_value';
END
$body$;
CREATE TRIGGER config_check BEFORE INSERT OR UPDATE ON {schema}.config
    FOR EACH ROW EXECUTE FUNCTION {schema}.config_check();

INSERT INTO {schema}.config (key, value) VALUES
    ('partition_retention_period', NULL),
    ('partition_interval', '1000000'),
    ('future_intervals_to_create', '3'),
    ('poll_chunk_size', '1000');

-- Jobs that were sent in somebody's transaction and have no place in their lane yet: see jobs_send.
CREATE INDEX jobs_sent ON {schema}.jobs (handler, object)
    WHERE state = 'scheduled' AND not_before = enqueued_at AND ordered AND object IS NOT NULL;

-- What is published of a row that was inserted, updated or deleted: what this answers, or nothing if it answers null. It is yours to replace:
-- it stands here and not with the functions, so that no upgrade makes it anew.
--   p_table       the table
--   p_operation   insert, update or delete
--   p_payload     {"row"}; of an update {"row", "changed", "old"}
CREATE OR REPLACE FUNCTION {schema}.mutation_payload(p_table regclass, p_operation text, p_payload jsonb) RETURNS jsonb
LANGUAGE sql STABLE
AS $body$
    SELECT p_payload
$body$;
