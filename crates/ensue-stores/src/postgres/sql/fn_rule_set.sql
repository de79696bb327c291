-- Appends what is said of a change of rules. Without a hint where the log ends it is somebody's own transaction, and goes into the outbox: who has the lock of the
-- rules until the commit is the next to draw a number there, so what is said of one scope stays in order.
CREATE OR REPLACE FUNCTION {schema}.rules_tell(
    p_now timestamptz, p_hint bigint, p_picked int[], p_id_parts uuid[], p_topics text[], p_payloads text[], p_objects text[]
) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF p_hint IS NULL THEN
        PERFORM {schema}.outbox_tell(
            ARRAY(SELECT p_topics[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
            ARRAY(SELECT p_payloads[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i),
            ARRAY(SELECT p_objects[p.n] FROM unnest(p_picked) WITH ORDINALITY p(n, i) ORDER BY p.i));
        RETURN NULL;
    END IF;
    RETURN (SELECT a.o_tail FROM {schema}.settle_append(
        p_now, p_hint, p_picked, ARRAY(SELECT n::int FROM generate_series(1, cardinality(p_id_parts)) n), p_id_parts, p_topics,
        p_payloads, NULL, NULL, NULL, p_objects, NULL, NULL, NULL) a);
END
$body$;

-- Sets a rule, or sets it anew, and tells of it. o_what is 'done', 'full' (there are too many), or 'again': the rule is not the
-- one that p_there says, so what is told of it would not be true.
--
-- With the lock of the rules alone: what was being claimed is claimed, and whoever claims later sees the rule.
CREATE OR REPLACE FUNCTION {schema}.rule_set(
    p_now timestamptz, p_hint bigint, p_call uuid, p_there uuid, p_id uuid, p_kind text, p_scope text, p_object text,
    p_reason text, p_author text, p_expires_at timestamptz, p_id_parts uuid[], p_topics text[], p_payloads text[],
    p_objects text[],
    OUT o_what text, OUT o_new boolean, OUT o_created_at timestamptz, OUT o_tail bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
    v_rule {schema}.rules;
BEGIN
    LOCK TABLE {schema}.rules_lock IN EXCLUSIVE MODE;
    v_now := coalesce(p_now, clock_timestamp());
    SELECT * INTO v_rule FROM {schema}.rules r WHERE r.scope = p_scope AND r.kind = p_kind;
    IF v_rule.set_by = p_call THEN
        o_what := 'done';
        o_new := v_rule.made_by = p_call;
        o_created_at := v_rule.created_at;
        PERFORM pg_logical_emit_message(true, 'ensue', ''::text);
        RETURN;
    END IF;
    IF v_rule.id IS DISTINCT FROM p_there THEN
        o_what := 'again';
        RETURN;
    END IF;
    IF v_rule.id IS NULL AND (SELECT count(*) FROM {schema}.rules) >= {rules_max} THEN
        o_what := 'full';
        RETURN;
    END IF;
    INSERT INTO {schema}.rules AS r (id, made_by, set_by, created_at, expires_at, kind, scope, reason, author)
    VALUES (p_id, p_call, p_call, v_now, p_expires_at, p_kind, p_scope, p_reason, p_author)
    ON CONFLICT (scope, kind) DO UPDATE SET set_by = excluded.set_by, expires_at = excluded.expires_at,
        reason = excluded.reason, author = excluded.author
    RETURNING r.created_at INTO o_created_at;
    UPDATE {schema}.rules_state s SET version = s.version + 1;
    IF p_object IS NOT NULL THEN
        PERFORM {schema}.jobs_turn_object(v_now, p_object);
    END IF;
    o_what := 'done';
    o_new := v_rule.id IS NULL;
    o_tail := {schema}.rules_tell(p_now, p_hint, ARRAY[1], p_id_parts, p_topics, p_payloads, p_objects);
END
$body$;

-- Lifts rules as they were last set by p_set_by, tells of it, and lets go what waited for them, however much that is. p_of are
-- the objects that they are about, if they are. Answers which were lifted.
CREATE OR REPLACE FUNCTION {schema}.rules_lift(
    p_now timestamptz, p_hint bigint, p_kinds text[], p_scopes text[], p_set_by uuid[], p_of text[],
    p_id_parts uuid[], p_topics text[], p_payloads text[], p_objects text[],
    OUT o_lifted int[], OUT o_tail bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
BEGIN
    LOCK TABLE {schema}.rules_lock IN EXCLUSIVE MODE;
    v_now := coalesce(p_now, clock_timestamp());
    WITH gone AS (
        DELETE FROM {schema}.rules r
        USING unnest(p_kinds, p_scopes, p_set_by) WITH ORDINALITY l(kind, scope, set_by, n)
        WHERE r.scope = l.scope AND r.kind = l.kind AND r.set_by = l.set_by
        RETURNING l.n::int AS n
    )
    SELECT array_agg(g.n ORDER BY g.n) INTO o_lifted FROM gone g;
    IF o_lifted IS NULL THEN
        RETURN;
    END IF;
    UPDATE {schema}.rules_state s SET version = s.version + cardinality(o_lifted);
    PERFORM {schema}.jobs_turn_object(v_now, o.object)
    FROM (SELECT DISTINCT p_of[n] AS object FROM unnest(o_lifted) n WHERE p_of[n] IS NOT NULL) o;
    PERFORM {schema}.jobs_ring();
    o_tail := {schema}.rules_tell(p_now, p_hint, o_lifted, p_id_parts, p_topics, p_payloads, p_objects);
END
$body$;

-- A process says which version of the rules it obeys. Who is no member any more has nothing to say.
CREATE OR REPLACE FUNCTION {schema}.rules_report(p_member uuid, p_version bigint) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    INSERT INTO {schema}.rule_reports AS r (member, version) VALUES (p_member, p_version)
    ON CONFLICT (member) DO UPDATE SET version = excluded.version WHERE r.version < excluded.version;
    DELETE FROM {schema}.rule_reports r WHERE r.member <> p_member AND r.member = ANY (ARRAY(
        SELECT x.member FROM {schema}.rule_reports x
        WHERE NOT EXISTS (SELECT 1 FROM {schema}.members m WHERE m.id = x.member)
        ORDER BY x.member FOR UPDATE SKIP LOCKED));
END
$body$;
