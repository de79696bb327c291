-- Renews claims for p_lease microseconds. A row for each that is still held: its place in the arrays, from 1, the end of the
-- lease, and whether its worker is to stop.
CREATE OR REPLACE FUNCTION {schema}.jobs_renew(
    p_now timestamptz, p_lease bigint, p_numbers bigint[], p_stamps bigint[], p_fences bigint[]
) RETURNS TABLE (o_n bigint, o_lease_until timestamptz, o_cancel boolean) LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
DECLARE
    v_now pg_catalog.timestamptz;
BEGIN
    PERFORM 1 FROM {schema}.jobs j WHERE j.number = ANY (p_numbers)
    ORDER BY j.ordered AND j.object IS NOT NULL, j.number FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    UPDATE {schema}.jobs j SET lease_until = v_now + p_lease * interval '1 microsecond'
    FROM unnest(p_numbers, p_stamps, p_fences) c(number, stamp, fence)
    WHERE j.number = c.number AND j.stamp = c.stamp AND j.fence = c.fence AND coalesce(j.state, '') = 'running';
    RETURN QUERY
    SELECT c.n, j.lease_until, j.cancel_asked
    FROM unnest(p_numbers, p_stamps, p_fences) WITH ORDINALITY c(number, stamp, fence, n)
    JOIN {schema}.jobs j ON j.number = c.number AND j.stamp = c.stamp AND j.fence = c.fence AND coalesce(j.state, '') = 'running';
END
$body$;
