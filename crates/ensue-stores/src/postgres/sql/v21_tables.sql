-- Version 21 of the schema.

-- Functions whose arguments or results differ from version 20 are dropped by name here and made again
-- by the upgrade. A function that stays beside its successor makes calls ambiguous.
DO $body$
DECLARE
    v_old pg_catalog.regprocedure;
BEGIN
    FOR v_old IN
        SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = to_regnamespace(quote_ident({schema_text}))
            AND p.proname = ANY ('{complete_job}')
    LOOP
        EXECUTE format('DROP FUNCTION %s', v_old);
    END LOOP;
END
$body$;
