-- The partitions that the log should have and has not: somebody has dropped them, or has only taken them out.
CREATE OR REPLACE FUNCTION {schema}.partitions_gone() RETURNS TABLE (from_seq bigint, to_seq bigint, is_there boolean) LANGUAGE plpgsql STABLE
AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT p.from_seq, p.to_seq, c.oid IS NOT NULL
    FROM {schema}.partitions p
    LEFT JOIN pg_class c ON c.relnamespace = to_regnamespace(quote_ident({schema_text})) AND c.relname = 'events_p' || p.from_seq
    WHERE NOT p.detached AND NOT coalesce(c.relispartition, false)
    ORDER BY p.from_seq;
END
$body$;

-- Makes sure that at least `p_rows_ahead` places after the end of the log have a partition; answers the first place
-- that has none. `p_rows` is the size of new ones: it may change from one start to the next, as each begins where the
-- one before it ends.
--
-- Created first, then attached: ATTACH takes SHARE UPDATE EXCLUSIVE on the log, which stops neither readers nor
-- appends. The CHECK lets ATTACH skip looking at the rows; afterwards it would only cost time with every insert, so it
-- goes. A waiting DDL stops everybody behind it, so it waits briefly and is tried again later.
--
-- One that somebody has dropped or taken out by hand is made or taken in again first: else the log would stop there, however many are ahead.
--
-- It runs as the owner of the tables, also for a node that does not own them. So it makes no more than
-- 1,000 partitions ahead, whatever the arguments are.
CREATE OR REPLACE FUNCTION {schema}.ensure_partitions(p_rows bigint, p_rows_ahead bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
DECLARE
    v_tail bigint;
    v_from bigint;
    v_name pg_catalog.text;
    v_gone pg_catalog.record;
BEGIN
    IF p_rows < 1 OR p_rows_ahead / p_rows > 1000 THEN
        RAISE EXCEPTION 'partitions of % events cannot cover % events ahead; at most 1000 are made', p_rows, p_rows_ahead
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOCK TABLE {schema}.partitions IN SHARE UPDATE EXCLUSIVE MODE;
    FOR v_gone IN SELECT g.* FROM {schema}.partitions_gone() g LOOP
        v_name := 'events_p' || v_gone.from_seq;
        IF NOT v_gone.is_there THEN
            EXECUTE format('CREATE TABLE %I.%I (LIKE %I.stored_events INCLUDING DEFAULTS INCLUDING INDEXES INCLUDING STORAGE)',
                {schema_text}, v_name, {schema_text});
        END IF;
        EXECUTE format('ALTER TABLE %I.stored_events ATTACH PARTITION %I.%I FOR VALUES FROM (%s) TO (%s)',
            {schema_text}, {schema_text}, v_name, v_gone.from_seq, v_gone.to_seq);
    END LOOP;
    SELECT t.o_seq INTO v_tail FROM {schema}.log_tail(0) t;
    SELECT max(p.to_seq) INTO v_from FROM {schema}.partitions p;
    v_from := greatest(v_from, v_tail + 1);
    WHILE v_from - 1 - v_tail < p_rows_ahead LOOP
        v_name := 'events_p' || v_from;
        EXECUTE format(
            'CREATE TABLE %I.%I (LIKE %I.stored_events INCLUDING DEFAULTS INCLUDING INDEXES INCLUDING STORAGE, '
            'CONSTRAINT places CHECK (seq >= %s AND seq < %s))',
            {schema_text}, v_name, {schema_text}, v_from, v_from + p_rows);
        EXECUTE format(
            'ALTER TABLE %I.stored_events ATTACH PARTITION %I.%I FOR VALUES FROM (%s) TO (%s)',
            {schema_text}, {schema_text}, v_name, v_from, v_from + p_rows);
        EXECUTE format('ALTER TABLE %I.%I DROP CONSTRAINT places', {schema_text}, v_name);
        INSERT INTO {schema}.partitions (from_seq, to_seq) VALUES (v_from, v_from + p_rows);
        v_from := v_from + p_rows;
    END LOOP;
    RETURN v_from;
END
$body$;
