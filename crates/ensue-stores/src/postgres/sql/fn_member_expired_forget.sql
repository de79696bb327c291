-- Forgets what has expired of the groups of which a member has slots, before a lease that had passed has them all read
-- again. While a lease lasts its groups are read, and nothing of them has expired.
CREATE OR REPLACE FUNCTION {schema}.member_expired_forget(p_member uuid, p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    PERFORM {schema}.expired_forget(g.id, p_now) FROM (
        SELECT DISTINCT s.group_id FROM {schema}.slots s WHERE s.owner = p_member
    ) s JOIN {schema}.groups g ON g.id = s.group_id WHERE g.subscriptions > 0;
END
$body$;
