-- Subscriptions, for consumers over SQL. They are the same as over HTTP, in the same groups.

-- One text for params that mean the same, as ensue-core has it (identity_of_params): what jsonb prints, without the zeros of a number that change nothing.
-- What no engine would keep is refused.
CREATE OR REPLACE FUNCTION {schema}.params_identity(p_params jsonb, p_depth int DEFAULT 0) RETURNS text LANGUAGE plpgsql IMMUTABLE
AS $body$
DECLARE
    v_number numeric;
BEGIN
    IF p_depth > 64 THEN
        RAISE EXCEPTION 'params is nested more than 64 levels deep; make it flatter' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    CASE jsonb_typeof(p_params)
    WHEN 'object' THEN
        RETURN '{' || coalesce((
            SELECT string_agg(to_json(f.key)::text || ': ' || {schema}.params_identity(f.value, p_depth + 1), ', ' ORDER BY f.n)
            FROM jsonb_each(p_params) WITH ORDINALITY f(key, value, n)), '') || '}';
    WHEN 'array' THEN
        RETURN '[' || coalesce((
            SELECT string_agg({schema}.params_identity(f.value, p_depth + 1), ', ' ORDER BY f.n)
            FROM jsonb_array_elements(p_params) WITH ORDINALITY f(value, n)), '') || ']';
    WHEN 'number' THEN
        v_number := p_params::numeric;
        IF length(split_part(abs(v_number)::text, '.', 1)) > 400 OR scale(v_number) > 400 THEN
            RAISE EXCEPTION 'params has a number of more than 400 digits; write it as a text' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        RETURN trim_scale(v_number)::text;
    ELSE
        RETURN p_params::text;
    END CASE;
END
$body$;

-- The group of this name, which must be one that is pulled.
CREATE OR REPLACE FUNCTION {schema}.pulled_group(p_gid text) RETURNS bigint LANGUAGE plpgsql STABLE
AS $body$
DECLARE
    v_group bigint;
    v_kind pg_catalog.text;
BEGIN
    SELECT g.id, g.kind INTO v_group, v_kind FROM {schema}.groups g WHERE g.name = p_gid;
    IF v_kind <> 'pull' THEN
        RAISE EXCEPTION 'the group % belongs to the handler of that name, which alone reads it: choose another group', quote_literal(p_gid)
            USING ERRCODE = 'object_in_use';
    END IF;
    RETURN v_group;
END
$body$;

-- Subscribes a group to the events for which a condition holds (all of them if it is null) and answers the subscription's id. The same condition and params
-- in a group are the same subscription: it is touched, and the longer expiry holds. A group that is not there is made, and begins at the end of the log.
CREATE OR REPLACE FUNCTION {schema}.subscribe(
    gid text, conditions_sql text DEFAULT NULL, params jsonb DEFAULT '{}', expiry interval DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
#variable_conflict use_variable
DECLARE
    v_params pg_catalog.text := coalesce(params, '{}');
    v_expiry numeric := extract(epoch FROM expiry) * 1000000;
    v_fault pg_catalog.text;
    v_id pg_catalog.uuid;
    v_group bigint;
    v_is_tried boolean;
BEGIN
    v_fault := coalesce('gid ' || {schema}.dotted_fault(gid, 'billing.invoices'), CASE
        WHEN octet_length(v_params) > 65536
            THEN format('params has %s bytes; at most 65536 are allowed: make it smaller', octet_length(v_params))
        WHEN v_expiry NOT BETWEEN 100000 AND 316224000000000
            THEN 'expiry must be at least 100 milliseconds and at most 3660 days; leave it out if the subscription is to stay'
    END);
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION '%', v_fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
    v_group := {schema}.pulled_group(gid);
    -- Once for all that share it.
    v_is_tried := conditions_sql IS NULL OR v_group IS NOT NULL AND {schema}.condition_is_tried(v_group, conditions_sql);
    IF NOT v_is_tried THEN
        PERFORM {schema}.condition_try(conditions_sql);
    END IF;
    v_id := {schema}.event_id(overlay(gen_random_uuid()::text PLACING '0' FROM 15 FOR 1)::uuid, clock_timestamp());
    SELECT u.id INTO STRICT v_id
    FROM {schema}.subscription_make(
        NULL, NULL, gid, v_id, NULL, conditions_sql, v_params, {schema}.params_identity(coalesce(params, '{}')), v_expiry::bigint) u;
    IF NOT v_is_tried THEN
        UPDATE {schema}.subscription_conditions c SET is_tried = true
        WHERE c.group_id = {schema}.pulled_group(gid) AND c.condition = conditions_sql
            AND hashtextextended(coalesce(c.condition, ''), 0) = hashtextextended(coalesce(conditions_sql, ''), 0);
    END IF;
    RETURN v_id;
END
$body$;

-- Takes a subscription out of its group; was there one? By the primary key, group by group, as its id alone is in no index.
CREATE OR REPLACE FUNCTION {schema}.unsubscribe(id uuid) RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET jit = off
AS $body$
DECLARE
    v_gid pg_catalog.text;
BEGIN
    SELECT g.name INTO v_gid FROM {schema}.groups g
    JOIN {schema}.subscriptions u ON u.group_id = g.id AND u.id = unsubscribe.id WHERE g.kind = 'pull' LIMIT 1;
    RETURN FOUND AND {schema}.subscription_delete(NULL, v_gid, unsubscribe.id);
END
$body$;
