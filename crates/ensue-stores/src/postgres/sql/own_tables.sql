-- What handlers settle in transactions of their own: written by `own_put`, carried out and removed when that transaction
-- commits (docs/decisions/013). Never seen by anybody else, and read only by its call.
--
-- A row is about a delivery, or several of one batch (`group_name` and the arrays of slots and lanes), or about a job (`number`).
-- What is sent to handlers with it has the arrays of jobs_insert.
CREATE TABLE {schema}.own_settlements (
    call uuid PRIMARY KEY,
    now timestamptz, -- of the injected clock
    group_name text COLLATE "C",
    member uuid,
    slots int[],
    fences bigint[],
    lane_changes int[], -- whose slot it is, from 1
    lane_keys text[],
    lane_seqs bigint[],
    number bigint,
    stamp bigint,
    fence bigint,
    line_attempts int[],
    line_at timestamptz[],
    line_levels text[],
    line_messages text[],
    chances int[],
    handlers text[],
    objects text[],
    ordered boolean[],
    payloads text[],
    metadata text[],
    ranks bigint[],
    not_before timestamptz[],
    keys text[],
    attempts_max int[],
    exhausted text[],
    event_seqs bigint[],
    event_prevs bigint[],
    event_ids uuid[],
    event_topics text[]
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- No more than a step to what every upgrade makes anew.
CREATE OR REPLACE FUNCTION {schema}.own_committing() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    PERFORM {schema}.own_settle(NEW.call);
    RETURN NULL;
END
$body$;
CREATE CONSTRAINT TRIGGER own_committing AFTER INSERT ON {schema}.own_settlements
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.own_committing();
