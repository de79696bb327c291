-- The lease of a reader, the same text as over HTTP (ensue/src/groups/lease.rs): a form, who reads, under which fence, where it continues, how far it was led,
-- what retention had taken, and the id of the event where it was led to. Numbers are 16 hexadecimal digits. The code at the end keeps a reader from changing the rest.
CREATE OR REPLACE FUNCTION {schema}.lease_text(
    p_member uuid, p_fence bigint, p_at bigint, p_given_to bigint, p_lost_from bigint, p_lost_to bigint,
    p_given_id uuid
) RETURNS text LANGUAGE sql STABLE
AS $body$
    SELECT l.lease || {schema}.store_code('lease-' || l.lease) FROM (
        SELECT '03' || replace(p_member::text, '-', '') || lpad(to_hex(p_fence), 16, '0') || lpad(to_hex(p_at), 16, '0')
            || lpad(to_hex(p_given_to), 16, '0') || lpad(to_hex(coalesce(p_lost_from, 0)), 16, '0') || lpad(to_hex(coalesce(p_lost_to, 0)), 16, '0')
            || coalesce(replace(p_given_id::text, '-', ''), repeat('0', 32))
    ) l(lease)
$body$;

-- The parts of a lease of this group; all null if there is none. A forged lease is a lost one. Whether a genuine one still holds is for the caller to decide.
CREATE OR REPLACE FUNCTION {schema}.lease_parts(
    p_gid text, p_lease text,
    OUT o_member uuid, OUT o_fence bigint, OUT o_at bigint, OUT o_given_to bigint, OUT o_lost_from bigint, OUT o_lost_to bigint,
    OUT o_given_id uuid
) LANGUAGE plpgsql STABLE
AS $body$
BEGIN
    IF p_lease !~ '^03[0-9a-f]{32}([0-7][0-9a-f]{15}){5}[0-9a-f]{64}$' THEN
        RAISE EXCEPTION 'the lease is not one that read_next_events answered; send it as it was, or read again without it'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF {schema}.store_code('lease-' || left(p_lease, 146)) <> right(p_lease, 32) THEN
        PERFORM {schema}.lease_lost(p_gid);
    END IF;
    o_member := substr(p_lease, 3, 32)::uuid;
    o_fence := ('x' || substr(p_lease, 35, 16))::bit(64)::bigint;
    o_at := ('x' || substr(p_lease, 51, 16))::bit(64)::bigint;
    o_given_to := ('x' || substr(p_lease, 67, 16))::bit(64)::bigint;
    o_lost_from := nullif(('x' || substr(p_lease, 83, 16))::bit(64)::bigint, 0);
    o_lost_to := nullif(('x' || substr(p_lease, 99, 16))::bit(64)::bigint, 0);
    o_given_id := nullif(substr(p_lease, 115, 32)::uuid, '00000000-0000-0000-0000-000000000000');
END
$body$;

-- Nothing was changed, because the lease does not hold.
CREATE OR REPLACE FUNCTION {schema}.lease_lost(p_gid text) RETURNS void LANGUAGE plpgsql IMMUTABLE
AS $body$
BEGIN
    RAISE EXCEPTION 'the lease on the group % is lost: it has run out, or the group was taken or moved; nothing was changed', quote_literal(p_gid)
        USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Read again without it: what was not committed comes again.';
END
$body$;

-- Nothing was changed, because the log does not hold what was read under the lease.
CREATE OR REPLACE FUNCTION {schema}.lease_went_back(p_gid text, p_committed bigint, p_given_to bigint) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $body$
BEGIN
    RAISE EXCEPTION 'went_back: a failover has lost events that the group % was given from % to %; nothing was changed',
        quote_literal(p_gid), p_committed + 1, p_given_to
        USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Read again without the lease: what the log holds from there on comes, also under the same numbers.';
END
$body$;
