-- The row of a condition of a group, whose row the caller has locked; made if it is not there. Its
-- keys are worked out once, however many subscriptions share it. Compared in full; the hash only
-- finds what is to be compared.
CREATE OR REPLACE FUNCTION {schema}.condition_noted(p_group bigint, p_condition text, OUT o_number bigint, OUT o_keys jsonb, OUT o_is_exact boolean)
LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    SELECT c.number, c.keys, c.is_exact INTO o_number, o_keys, o_is_exact FROM {schema}.subscription_conditions c
    WHERE c.group_id = p_group AND hashtextextended(coalesce(c.condition, ''), 0) = hashtextextended(coalesce(p_condition, ''), 0)
        AND c.condition IS NOT DISTINCT FROM p_condition LIMIT 1;
    IF NOT FOUND THEN
        BEGIN
            -- To look for the keys of a long one would take longer than to evaluate it.
            SELECT k.o_keys, k.o_is_exact INTO o_keys, o_is_exact FROM {schema}.condition_keys({schema}.condition_tokens(p_condition)) k
            WHERE octet_length(p_condition) <= 4096;
        EXCEPTION WHEN invalid_parameter_value THEN
            -- One that came over HTTP, and that readers over SQL do not understand.
            o_keys := NULL;
        END;
        o_is_exact := o_keys IS NOT NULL AND o_is_exact;
        INSERT INTO {schema}.subscription_conditions (group_id, condition, keys, is_exact)
        VALUES (p_group, p_condition, o_keys, o_is_exact) RETURNING number INTO o_number;
    END IF;
END
$body$;

-- Has Postgres accepted this condition for a subscription of this group?
CREATE OR REPLACE FUNCTION {schema}.condition_is_tried(p_group bigint, p_condition text) RETURNS boolean
LANGUAGE sql STABLE
AS $body$
    SELECT EXISTS (
        SELECT 1 FROM {schema}.subscription_conditions c
        WHERE c.group_id = p_group AND hashtextextended(coalesce(c.condition, ''), 0) = hashtextextended(coalesce(p_condition, ''), 0)
            AND c.condition = p_condition AND c.is_tried)
$body$;
