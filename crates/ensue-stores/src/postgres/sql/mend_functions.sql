-- Functions that took or answered something else than they do now. One that stays beside its successor makes calls ambiguous.
DO $body$
DECLARE
    v_old pg_catalog.regprocedure;
BEGIN
    FOR v_old IN
        SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = to_regnamespace(quote_ident({schema_text})) AND p.proname = ANY (
            '{append,cancel,find_seq,stored,release_due,slots_settle,jobs_claim,jobs_end,jobs_settle,pulse}')
    LOOP
        EXECUTE format('DROP FUNCTION %s', v_old);
    END LOOP;
END
$body$;
