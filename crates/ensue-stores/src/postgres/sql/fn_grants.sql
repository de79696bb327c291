-- Who may do what? Run last, by every upgrade; again with `SELECT * FROM apply_grants()` when roles were made meanwhile.
--
-- Roles belong to the whole cluster, so their names begin with that of the schema: `ensue_publish`, `ensue_consume`, `ensue_operate` to be granted to logins,
-- `ensue_serve` to that of a node which owns nothing, `ensue_owner`, as which functions run that have to change tables, and `ensue_evaluate`, as which conditions
-- are evaluated. None of them can log in. Where the installer may not make roles, the functions run as the installer: apply_grants tells what is missing, and what to do.
--
-- A node needs all tables and functions, so `ensue_serve` has them, but it owns none: who may change a function that others call acts as they.

-- The name of one of them. One that would be too long is told by its hash.
CREATE OR REPLACE FUNCTION {schema}.role_name(p_for text) RETURNS text LANGUAGE sql IMMUTABLE
AS $body$
    SELECT CASE WHEN octet_length({schema_text}) + 1 + octet_length(p_for) <= 63 THEN {schema_text} ELSE 'ensue_' || md5({schema_text}) END || '_' || p_for
$body$;

-- The functions that roles may call, and as whom they run: `owner`, `evaluate`, `installer` (those that need the tables to be their own, to change partitions) or
-- `caller`. A function of the interface has a line here (one that is not there yet is
-- passed over), and no other may be called by anybody but owner and installer.
CREATE OR REPLACE FUNCTION {schema}.grants() RETURNS TABLE (function_name text, runs_as text, roles text[]) LANGUAGE sql IMMUTABLE
AS $body$
    VALUES
        ('publish', 'owner', '{publish}'::text[]),
        ('publish_many', 'owner', '{publish}'),
        ('outbox_put', 'owner', '{publish}'),
        ('own_put', 'owner', '{consume}'),
        ('own_committing', 'owner', '{owner}'),
        ('poll_for_events', 'owner', '{publish,consume,operate}'),
        ('subscribe', 'owner', '{consume}'),
        ('unsubscribe', 'owner', '{consume}'),
        ('read_next_events', 'owner', '{consume}'),
        ('set_group_cursor', 'owner', '{consume}'),
        ('event_id', 'caller', '{consume,operate}'),
        ('enqueue', 'owner', '{publish,operate}'),
        ('claim_jobs', 'owner', '{consume}'),
        ('renew_job', 'owner', '{consume}'),
        ('complete_job', 'owner', '{consume}'),
        ('fail_job', 'owner', '{consume}'),
        ('snooze_job', 'owner', '{consume}'),
        ('cancel_job', 'owner', '{operate}'),
        ('retry_job', 'owner', '{operate}'),
        ('skip_job', 'owner', '{operate}'),
        ('pause', 'owner', '{operate}'),
        ('resume', 'owner', '{operate}'),
        ('block', 'owner', '{operate}'),
        ('unblock', 'owner', '{operate}'),
        ('rule_in_force', 'owner', '{operate}'),
        ('push_table_mutations', 'caller', '{operate}'),
        ('stop_table_mutations', 'caller', '{operate}'),
        ('mutation_name', 'caller', '{operate}'),
        ('refuse', 'caller', '{operate}'),
        ('mutations_insert', 'owner', '{operate}'),
        ('mutations_update', 'owner', '{operate}'),
        ('mutations_delete', 'owner', '{operate}'),
        ('maintain', 'installer', '{operate}'),
        ('ensure_partitions', 'installer', '{owner,serve}'),
        ('detach_trimmed', 'installer', '{owner,serve}'),
        ('drop_detached', 'installer', '{owner,serve}'),
        ('condition_evaluate', 'evaluate', '{owner}'),
        ('condition_try', 'evaluate', '{owner}'),
        ('condition_member', 'caller', '{evaluate}'),
        ('condition_lower', 'caller', '{evaluate}'),
        ('condition_upper', 'caller', '{evaluate}')
$body$;

-- The views and tables that roles may read, or change.
CREATE OR REPLACE FUNCTION {schema}.table_grants() RETURNS TABLE (table_name text, rights text, roles text[]) LANGUAGE sql IMMUTABLE
AS $body$
    VALUES
        ('events', 'SELECT', '{consume,operate}'::text[]),
        ('group_subscriptions', 'SELECT', '{consume,operate}'),
        ('config', 'SELECT, INSERT, UPDATE, DELETE', '{operate}')
$body$;

-- Makes the roles and gives out the rights, as far as that is allowed; answers what is missing, and what to do about it.
CREATE OR REPLACE FUNCTION {schema}.apply_grants() RETURNS SETOF text LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_for text;
    v_role text;
    v_found pg_roles;
    v_there text[] := '{}'; -- the roles that can be used, by what they are for
    v_who name; -- who calls this, and whose the schema is: both go on calling what is given away here, and making it anew
    v_each record;
BEGIN
    BEGIN
        EXECUTE format('REVOKE ALL ON ALL ROUTINES IN SCHEMA %I FROM PUBLIC', {schema_text});
    EXCEPTION WHEN insufficient_privilege THEN
        RETURN NEXT format('not every function of the schema is %s''s: %s; give it away or drop it, and call apply_grants again', current_user, sqlerrm);
    END;
    FOREACH v_for IN ARRAY '{publish,consume,operate,serve,owner,evaluate}'::text[] LOOP
        v_role := {schema}.role_name(v_for);
        IF NOT EXISTS (SELECT 1 FROM pg_roles r WHERE r.rolname = v_role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
            EXCEPTION
                WHEN duplicate_object OR unique_violation THEN
                    NULL;
                WHEN insufficient_privilege THEN
                    RETURN NEXT format('%s may not make the role %I: have it made with CREATE ROLE %I NOLOGIN, and granted to %s if its name ends in owner or evaluate; then call apply_grants again',
                        current_user, v_role, v_role, current_user);
                    CONTINUE;
            END;
        END IF;
        -- A role of this name may have been there before, for something else.
        SELECT * INTO v_found FROM pg_roles r WHERE r.rolname = v_role;
        IF v_found.rolcanlogin OR v_found.rolsuper OR v_found.rolcreaterole OR v_found.rolcreatedb OR v_found.rolreplication OR v_found.rolbypassrls
            OR v_for = 'evaluate' AND EXISTS (SELECT 1 FROM pg_auth_members m WHERE m.member = v_found.oid) THEN
            RETURN NEXT format('the role %I can log in or has rights of its own, so it is not used: rename it, and call apply_grants again', v_role);
            CONTINUE;
        END IF;
        BEGIN
            FOR v_who IN
                SELECT r.rolname FROM pg_roles r WHERE v_for IN ('owner', 'evaluate') AND NOT pg_has_role(r.rolname, v_role, 'USAGE')
                    AND (r.rolname = current_user OR r.oid = (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = {schema_text}))
            LOOP
                EXECUTE format('GRANT %I TO %I', v_role, v_who);
            END LOOP;
            EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', {schema_text}, v_role);
            v_there := v_there || v_for;
        EXCEPTION WHEN insufficient_privilege THEN
            RETURN NEXT format('%s may not use the role %I or not grant on the schema: %s; have it granted, and call apply_grants again', current_user, v_role, sqlerrm);
        END;
    END LOOP;

    FOREACH v_for IN ARRAY '{owner,serve}'::text[] LOOP
        CONTINUE WHEN v_for <> ALL (v_there);
        -- On what the log is, not on its partitions: who has the one needs no right on the others.
        FOR v_each IN
            SELECT c.relname, c.relkind FROM pg_class c WHERE c.relnamespace = to_regnamespace(quote_ident({schema_text})) AND NOT c.relispartition
                AND c.relkind IN ('r', 'p', 'v', 'S')
        LOOP
            EXECUTE format(CASE v_each.relkind WHEN 'S' THEN 'GRANT USAGE, SELECT ON SEQUENCE %I.%I TO %I'
                ELSE 'GRANT SELECT, INSERT, UPDATE, DELETE ON %I.%I TO %I' END, {schema_text}, v_each.relname, {schema}.role_name(v_for));
        END LOOP;
        EXECUTE format('GRANT EXECUTE ON ALL ROUTINES IN SCHEMA %I TO %I', {schema_text}, {schema}.role_name(v_for));
    END LOOP;
    FOREACH v_for IN ARRAY '{owner,evaluate}'::text[] LOOP
        CONTINUE WHEN v_for <> ALL (v_there);
        v_role := {schema}.role_name(v_for);
        BEGIN
            -- Who is to own a function must be allowed to make one there; only for as long as this takes.
            EXECUTE format('GRANT CREATE ON SCHEMA %I TO %I', {schema_text}, v_role);
            FOR v_each IN
                SELECT p.oid::regprocedure AS signature FROM pg_proc p JOIN {schema}.grants() g ON g.function_name = p.proname AND g.runs_as = v_for
                WHERE p.pronamespace = to_regnamespace(quote_ident({schema_text})) AND p.proowner <> to_regrole(quote_ident(v_role))
            LOOP
                EXECUTE format('ALTER FUNCTION %s OWNER TO %I', v_each.signature, v_role);
            END LOOP;
            EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM %I', {schema_text}, v_role);
        EXCEPTION WHEN insufficient_privilege THEN
            RETURN NEXT format('functions cannot be given to the role %I: %s; until then they run as %s', v_role, sqlerrm, current_user);
        END;
    END LOOP;
    FOR v_each IN
        SELECT p.oid::regprocedure AS signature, {schema}.role_name(r.name) AS role
        FROM pg_proc p JOIN {schema}.grants() g ON g.function_name = p.proname CROSS JOIN LATERAL unnest(g.roles) r(name)
        WHERE p.pronamespace = to_regnamespace(quote_ident({schema_text})) AND r.name = ANY (v_there)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', v_each.signature, v_each.role);
    END LOOP;
    FOR v_each IN
        SELECT t.table_name, t.rights, {schema}.role_name(r.name) AS role FROM {schema}.table_grants() t CROSS JOIN LATERAL unnest(t.roles) r(name)
        WHERE r.name = ANY (v_there) AND to_regclass(format('%I.%I', {schema_text}, t.table_name)) IS NOT NULL
    LOOP
        EXECUTE format('GRANT %s ON %I.%I TO %I', v_each.rights, {schema_text}, v_each.table_name, v_each.role);
    END LOOP;
END
$body$;

DO $body$
BEGIN
    PERFORM {schema}.apply_grants();
END
$body$;
