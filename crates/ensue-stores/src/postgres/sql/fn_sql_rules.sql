-- What is said of a change of a rule, as `notices::rule_set` and `notices::rule_lifted` do.
CREATE OR REPLACE FUNCTION {schema}.rule_notice(p_rule {schema}.rules, p_lifted_by text) RETURNS text LANGUAGE plpgsql STABLE
AS $body$
BEGIN
    RETURN (jsonb_build_object('id', p_rule.id, 'kind', p_rule.kind, 'scope', p_rule.scope, 'reason', p_rule.reason,
            'author', p_rule.author, 'expires_at', {schema}.time_text(p_rule.expires_at))
        || CASE WHEN p_lifted_by IS NULL THEN '{}' ELSE jsonb_build_object('lifted_by', p_lifted_by) END)::text;
END
$body$;

-- Is this something that a rule can hold?
CREATE OR REPLACE FUNCTION {schema}.check_scope(p_scope text) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_key pg_catalog.text := substr(p_scope, position(':' IN p_scope) + 1);
BEGIN
    IF p_scope IN ('handler:', 'schedule:', 'object:') THEN
        PERFORM {schema}.refuse(format('scope %s names nothing; write handler:KEY, object:KEY or schedule:NAME, such as object:order:17', p_scope));
    ELSIF starts_with(p_scope, 'handler:') OR starts_with(p_scope, 'schedule:') THEN
        PERFORM {schema}.check_dotted('scope', v_key);
    ELSIF starts_with(p_scope, 'object:') THEN
        PERFORM {schema}.check_plain('scope', v_key, {object_bytes_max});
    ELSE
        PERFORM {schema}.refuse(format('scope %s is not one of handler:KEY, object:KEY and schedule:NAME', quote_nullable(p_scope)));
    END IF;
END
$body$;

-- The object of an event about a rule: rules on one scope are in order.
CREATE OR REPLACE FUNCTION {schema}.rule_object(p_scope text) RETURNS text LANGUAGE sql IMMUTABLE
AS $body$
    SELECT CASE WHEN octet_length('rule:' || p_scope) <= {object_bytes_max} THEN 'rule:' || p_scope END
$body$;

-- Of an id that is made for an event: its chance without its time, as it is stored.
CREATE OR REPLACE FUNCTION {schema}.new_id_part() RETURNS uuid LANGUAGE sql VOLATILE
AS $body$
    SELECT ('0000000000000' || right(replace(gen_random_uuid()::text, '-', ''), 19))::uuid
$body$;

-- Sets a rule, as who is logged in, and answers the version of all rules. With the commit nothing more is claimed that it holds.
CREATE OR REPLACE FUNCTION {schema}.rule_put(p_kind text, p_scope text, p_reason text, p_expires_at timestamptz) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_rule {schema}.rules;
    v_there pg_catalog.uuid;
    v_what pg_catalog.text;
BEGIN
    PERFORM {schema}.need_read_committed(p_kind);
    PERFORM {schema}.check_scope(p_scope);
    PERFORM {schema}.check_plain('reason', p_reason, {reason_bytes_max});
    IF p_expires_at <= clock_timestamp() THEN
        PERFORM {schema}.refuse(format('expires_at is %s, which has passed: choose a later time', {schema}.time_text(p_expires_at)));
    END IF;
    LOCK TABLE {schema}.rules_lock IN EXCLUSIVE MODE;
    SELECT r.id INTO v_there FROM {schema}.rules r WHERE r.scope = p_scope AND r.kind = p_kind;
    v_rule.id := coalesce(v_there, {schema}.event_id({schema}.new_id_part(), clock_timestamp()));
    v_rule.kind := p_kind;
    v_rule.scope := p_scope;
    v_rule.reason := p_reason;
    v_rule.author := session_user;
    v_rule.expires_at := CASE WHEN isfinite(p_expires_at) THEN p_expires_at END;
    SELECT s.o_what INTO v_what FROM {schema}.rule_set(
        NULL, NULL, gen_random_uuid(), v_there, v_rule.id, p_kind, p_scope,
        CASE WHEN starts_with(p_scope, 'object:') THEN substr(p_scope, 8) END, p_reason, v_rule.author, v_rule.expires_at,
        ARRAY[{schema}.new_id_part()], ARRAY['{rule_set}'], ARRAY[{schema}.rule_notice(v_rule, NULL)], ARRAY[{schema}.rule_object(p_scope)]) s;
    IF v_what <> 'done' THEN
        PERFORM {schema}.refuse('scope would be one rule more than the {rules_max} there may be: lift some first');
    END IF;
    RETURN (SELECT s.version FROM {schema}.rules_state s);
END
$body$;

-- Lifts these rules; answers the version of all rules, or null if there is none of them.
CREATE OR REPLACE FUNCTION {schema}.rules_lift_some(p_rules {schema}.rules[], p_by text) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_lifted int[];
BEGIN
    SELECT l.o_lifted INTO v_lifted FROM (
        SELECT array_agg(r.kind ORDER BY r.n) AS kinds, array_agg(r.scope ORDER BY r.n) AS scopes, array_agg(r.set_by ORDER BY r.n) AS set_by,
            array_agg(CASE WHEN starts_with(r.scope, 'object:') THEN substr(r.scope, 8) END ORDER BY r.n) AS objects,
            array_agg({schema}.new_id_part() ORDER BY r.n) AS id_parts, array_agg('{rule_lifted}'::text ORDER BY r.n) AS topics,
            array_agg({schema}.rule_notice(p_rules[r.n], p_by) ORDER BY r.n) AS payloads,
            array_agg({schema}.rule_object(r.scope) ORDER BY r.n) AS told_of
        FROM unnest(p_rules) WITH ORDINALITY AS r(id, made_by, set_by, created_at, expires_at, kind, scope, reason, author, n)
    ) a
    CROSS JOIN LATERAL {schema}.rules_lift(NULL, NULL, a.kinds, a.scopes, a.set_by, a.objects, a.id_parts, a.topics, a.payloads, a.told_of) l;
    RETURN (SELECT s.version FROM {schema}.rules_state s WHERE v_lifted IS NOT NULL);
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.rule_remove(p_kind text, p_scope text) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_rules {schema}.rules[];
BEGIN
    PERFORM {schema}.need_read_committed('to lift a ' || p_kind);
    LOCK TABLE {schema}.rules_lock IN EXCLUSIVE MODE;
    v_rules := ARRAY(SELECT r FROM {schema}.rules r WHERE r.scope = p_scope AND r.kind = p_kind);
    IF cardinality(v_rules) > 0 THEN
        RETURN {schema}.rules_lift_some(v_rules, session_user);
    END IF;
    PERFORM {schema}.check_scope(p_scope);
    RETURN NULL;
END
$body$;

-- Lifts rules that have expired; answers how many. Takes no lock if there are none.
CREATE OR REPLACE FUNCTION {schema}.rules_expire() RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_rules {schema}.rules[];
BEGIN
    IF NOT EXISTS (SELECT 1 FROM {schema}.rules r WHERE r.expires_at <= clock_timestamp()) THEN
        RETURN 0;
    END IF;
    LOCK TABLE {schema}.rules_lock IN EXCLUSIVE MODE;
    v_rules := ARRAY(SELECT r FROM {schema}.rules r WHERE r.expires_at <= clock_timestamp() ORDER BY r.scope, r.kind);
    IF cardinality(v_rules) > 0 THEN
        PERFORM {schema}.rules_lift_some(v_rules, 'expiry');
    END IF;
    RETURN cardinality(v_rules);
END
$body$;

-- A user's rule. Call it in a transaction of its own: it holds the lock of the rules, and nothing is claimed until it commits. The log is not locked.
CREATE OR REPLACE FUNCTION {schema}.pause(scope text, reason text DEFAULT NULL, expires_at timestamptz DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN {schema}.rule_put('pause', scope, reason, expires_at);
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.resume(scope text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN {schema}.rule_remove('pause', scope);
END
$body$;

-- An operator's rule.
CREATE OR REPLACE FUNCTION {schema}.block(scope text, reason text DEFAULT NULL, expires_at timestamptz DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN {schema}.rule_put('block', scope, reason, expires_at);
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.unblock(scope text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN {schema}.rule_remove('block', scope);
END
$body$;

-- Do all processes that live go by this version of the rules? Then nothing more starts that it forbids.
CREATE OR REPLACE FUNCTION {schema}.rule_in_force(version bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN NOT EXISTS (
        SELECT 1 FROM {schema}.members m LEFT JOIN {schema}.rule_reports r ON r.member = m.id
        WHERE m.kind = 'handler' AND m.lease_until >= clock_timestamp() AND coalesce(r.version, -1) < rule_in_force.version);
END
$body$;
