-- Roles and their rights. The last file of every upgrade; `SELECT * FROM apply_grants()` runs it again.
--
-- Roles belong to the whole cluster, so their names begin with that of the schema: `ensue_publish`,
-- `ensue_consume`, `ensue_operate` are for logins, `ensue_serve` is for the login of a node that
-- owns nothing. `ensue_owner` owns the functions that change tables for others, `ensue_evaluate`
-- those that evaluate conditions. None of them can log in. If the installer may not create roles,
-- these functions run as the installer: apply_grants returns what is missing, and what to do.
--
-- The owner of a function can alter it, and the callers would then run the altered one. So no code
-- of a user may run as `ensue_owner` or as the installer, and conditions reach `ensue_evaluate` only
-- in the form that condition_sql writes.

-- The name of one of them. One that would be too long is told by its hash.
CREATE OR REPLACE FUNCTION {schema}.role_name(p_for text) RETURNS text LANGUAGE sql IMMUTABLE
AS $body$
    SELECT CASE WHEN octet_length({schema_text}) + 1 + octet_length(p_for) <= 63 THEN {schema_text} ELSE 'ensue_' || md5({schema_text}) END || '_' || p_for
$body$;

-- The functions that roles may call, and as whom they run: `owner`, `evaluate`, `installer` (those
-- that change partitions, which only the owner of the tables may do) or `caller`. Only the owner and
-- the installer may call a function that is not listed.
--
-- The list for `serve` is what the statements of a node call, and what those functions call in turn
-- (tests/postgres/sql_roles.rs serves with this role alone; conformance.rs adds `operate`, to trim by
-- a clock that is not the server's).
CREATE OR REPLACE FUNCTION {schema}.grants() RETURNS TABLE (function_name text, runs_as text, roles text[]) LANGUAGE sql IMMUTABLE
AS $body$
    VALUES
        ('publish', 'owner', '{publish}'::text[]),
        ('publish_many', 'owner', '{publish}'),
        ('outbox_put', 'owner', '{publish,serve}'),
        ('requeue_rejected', 'owner', '{operate}'),
        ('own_put', 'owner', '{consume,serve}'),
        ('own_committing', 'owner', '{owner}'),
        ('poll_for_events', 'owner', '{publish,consume,operate}'),
        ('subscribe', 'owner', '{consume}'),
        ('unsubscribe', 'owner', '{consume}'),
        ('read_next_events', 'owner', '{consume}'),
        ('set_group_cursor', 'owner', '{consume}'),
        ('event_id', 'caller', '{consume,operate,serve}'),
        ('stored_time', 'caller', '{consume,operate,serve}'),
        ('enqueue', 'owner', '{publish,operate,serve}'),
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
        ('mutation_topic', 'caller', '{operate}'),
        ('refuse', 'caller', '{operate}'),
        ('mutations_insert', 'owner', '{operate}'),
        ('mutations_update', 'owner', '{operate}'),
        ('mutations_delete', 'owner', '{operate}'),
        ('maintain', 'owner', '{operate}'),
        ('create_event_id', 'caller', '{publish,consume,operate}'),
        ('maintain_events_table', 'caller', '{publish,consume,operate}'),
        ('trim', 'owner', '{serve}'),
        ('ensure_partitions', 'installer', '{owner,serve}'),
        ('detach_trimmed', 'installer', '{owner,serve}'),
        ('drop_detached', 'installer', '{owner,serve}'),
        ('partitions_resize', 'installer', '{owner,serve}'),
        ('delete_trimmed', 'owner', '{serve}'),
        ('condition_evaluate', 'evaluate', '{owner}'),
        ('condition_values', 'evaluate', '{owner}'),
        ('condition_try', 'evaluate', '{owner}'),
        ('condition_member', 'caller', '{evaluate}'),
        ('condition_lower', 'caller', '{evaluate}'),
        ('condition_upper', 'caller', '{evaluate}'),
        ('condition_sql', 'caller', '{evaluate}'),
        ('condition_tokens', 'caller', '{evaluate,serve}'),
        ('condition_refused', 'caller', '{evaluate,serve}')
    UNION ALL
    SELECT f.name, 'caller', '{serve}'::text[] FROM unnest('{
            append,cancel,condition_key,condition_keys,condition_keys_of,condition_noted,condition_part_keys,condition_scalar,
            condition_way,define,deliveries_purge,dotted_fault,elapsed,event_fault,events_of,
            expired_forget,find_seq,first_id_after,is_dotted,plain_fault,size_fault,time_fault,
            outbox_fault,outbox_move_rows,outbox_reject,
            grants,group_delete,group_make,group_replay,group_seek,group_sweep,is_task,
            job_bucket,job_kept,job_say,jobs_end,jobs_enqueue,jobs_fetch,jobs_go_on,jobs_insert,
            jobs_forget,jobs_lock,jobs_place,jobs_purge,jobs_ready,jobs_renew,jobs_ring,jobs_say,jobs_send_alike,
            jobs_sent_before,jobs_served,jobs_settle,jobs_steer,jobs_succeed,jobs_tell,jobs_turn,jobs_turn_object,
            jobs_wake,lane_ask,lanes_park,lock_log,log_bytes,log_has,log_tail,
            member_expired_forget,
            member_leave,member_renew,member_serve,members_forget,new_id,object_is_held,outbox_drain,
            outbox_move,outbox_ring,outbox_tell,outbox_waits,partition_to_resize,partitions_gone,partitions_set,partitions_wanted,pulse,
            purge_keys,recording_time,release_due,rights_not_listed,role_name,rule_set,rules_lift,rules_report,rules_tell,
            schedule_put,schedules_declare,schedules_due,schedules_fire,schedules_next,seq_before,
            served_at,setting,settle_append,settle_deliveries,settle_events,settle_lanes,settle_lines,
            slots_acquire,slots_acquire_soon,slots_release,slots_settle,stored,subscription_delete,
            subscription_make,subscriptions_changed,subscriptions_expire,table_grants,tell_members,
            undefine
        }'::text[]) f(name)
$body$;

-- The tables, views and sequences that roles may use. `ensue_owner` may read and change all tables.
CREATE OR REPLACE FUNCTION {schema}.table_grants() RETURNS TABLE (table_name text, rights text, roles text[]) LANGUAGE sql IMMUTABLE
AS $body$
    VALUES
        ('events', 'SELECT', '{consume,operate}'::text[]),
        ('group_subscriptions', 'SELECT', '{consume,operate}'),
        ('outbox_rejected', 'SELECT, DELETE', '{operate}'),
        ('config', 'SELECT, INSERT, UPDATE, DELETE', '{operate}')
    UNION ALL
    SELECT t.name, v.rights, '{serve}'::text[] FROM (VALUES
        ('SELECT', '{config,log_state,partitions,retention_state,schema_version,store_key}'::text[]),
        ('USAGE, SELECT', '{job_numbers}'),
        ('SELECT, INSERT', '{stored_events,outbox_rejected}'),
        ('SELECT, UPDATE', '{definitions_state,log_lock,outbox_state,positions_state,rules_lock,rules_state,
            schedules_state,serving_lock}'),
        ('SELECT, INSERT, UPDATE', '{definitions,job_servers}'),
        ('SELECT, INSERT, DELETE', '{delivery_lines,job_calls,job_lines,outbox,parked,schedule_declarations,
            schedule_runs,serving,subscription_changes,subscription_conditions,subscription_counts,
            subscription_keys}'),
        ('SELECT, INSERT, UPDATE, DELETE', '{delayed,deliveries,groups,groups_gone,job_progress,jobs,keys,
            lanes,members,rule_reports,rules,schedule_declarers,schedules,settlements,slots,subscriptions}')
    ) v(rights, names) CROSS JOIN LATERAL unnest(v.names) t(name)
$body$;

-- Rights of our roles, other than `ensue_owner`, that are not listed above.
CREATE OR REPLACE FUNCTION {schema}.rights_not_listed() RETURNS TABLE (kind text, name text, "right" text, role text)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $body$
    WITH roles AS (
        SELECT f.name AS used_for, r.oid, r.rolname::text AS name
        FROM unnest('{publish,consume,operate,serve,evaluate}'::text[]) f(name)
        JOIN pg_roles r ON r.rolname = {schema}.role_name(f.name)
    )
    SELECT 'ROUTINE', p.oid::regprocedure::text, a.privilege_type, r.name
    FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a JOIN roles r ON r.oid = a.grantee
    WHERE p.pronamespace = to_regnamespace(quote_ident({schema_text})) AND p.proowner <> r.oid AND NOT EXISTS (
        SELECT 1 FROM {schema}.grants() g WHERE g.function_name = p.proname AND r.used_for = ANY (g.roles))
    UNION ALL
    SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text, a.privilege_type, r.name
    FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a JOIN roles r ON r.oid = a.grantee
    WHERE c.relnamespace = to_regnamespace(quote_ident({schema_text})) AND NOT EXISTS (
        SELECT 1 FROM {schema}.table_grants() t WHERE t.table_name = c.relname AND r.used_for = ANY (t.roles)
            AND a.privilege_type = ANY (string_to_array(t.rights, ', ')))
    UNION ALL
    SELECT 'SCHEMA', n.oid::regnamespace::text, a.privilege_type, r.name
    FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) a JOIN roles r ON r.oid = a.grantee
    WHERE n.nspname = {schema_text} AND a.privilege_type <> 'USAGE'
$body$;

-- Makes the roles and gives out the rights, as far as that is allowed; answers what is missing, and what to do about it.
CREATE OR REPLACE FUNCTION {schema}.apply_grants() RETURNS SETOF text LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_for pg_catalog.text;
    v_role pg_catalog.text;
    v_found pg_catalog.pg_roles;
    v_there pg_catalog.text[] := '{}'; -- the roles that can be used, by what they are for
    v_who pg_catalog.name; -- who calls this, and whose the schema is: both go on calling what is given away here, and making it anew
    v_each pg_catalog.record;
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

    IF 'owner' = ANY (v_there) THEN
        -- On the log, not on its partitions: a right on the one is enough for the others.
        FOR v_each IN
            SELECT c.relname, c.relkind FROM pg_class c WHERE c.relnamespace = to_regnamespace(quote_ident({schema_text})) AND NOT c.relispartition
                AND c.relkind IN ('r', 'p', 'v', 'S')
        LOOP
            EXECUTE format(CASE v_each.relkind WHEN 'S' THEN 'GRANT USAGE, SELECT ON SEQUENCE %I.%I TO %I'
                ELSE 'GRANT SELECT, INSERT, UPDATE, DELETE ON %I.%I TO %I' END, {schema_text}, v_each.relname, {schema}.role_name('owner'));
        END LOOP;
        EXECUTE format('GRANT EXECUTE ON ALL ROUTINES IN SCHEMA %I TO %I', {schema_text}, {schema}.role_name('owner'));
    END IF;
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
        EXECUTE format('GRANT %s ON %s%I.%I TO %I', v_each.rights, CASE WHEN starts_with(v_each.rights, 'USAGE') THEN 'SEQUENCE ' ELSE '' END,
            {schema_text}, v_each.table_name, v_each.role);
    END LOOP;
    -- Rights of these roles that were granted by an earlier version or by hand.
    FOR v_each IN
        SELECT x.kind, x.name, x.right, x.role FROM {schema}.rights_not_listed() x
        WHERE x.role IN (SELECT {schema}.role_name(r.name) FROM unnest(v_there) r(name))
    LOOP
        EXECUTE format('REVOKE %s ON %s %s FROM %I', v_each.right, v_each.kind, v_each.name, v_each.role);
    END LOOP;
END
$body$;

DO $body$
BEGIN
    PERFORM {schema}.apply_grants();
END
$body$;
