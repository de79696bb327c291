-- Forgets members whose leases passed long ago and who have no slot: readers after a minute, as each of them may have
-- been another, processes after a day.
CREATE OR REPLACE FUNCTION {schema}.members_forget(p_now timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    DELETE FROM {schema}.members d WHERE d.id = ANY (ARRAY(
        SELECT m.id FROM {schema}.members m
        WHERE (m.kind = 'pull' AND m.lease_until < p_now - interval '1 minute'
               OR m.kind = 'handler' AND m.lease_until < p_now - interval '1 day')
            AND NOT EXISTS (SELECT 1 FROM {schema}.slots s WHERE s.owner = m.id)
        LIMIT 1000 FOR UPDATE SKIP LOCKED));
END
$body$;
