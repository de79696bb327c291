-- Events that lanes need and that retention takes from the log; as in `events`, with their whole id.
--
-- Whatever moves a lane on or takes it away also takes what was parked of it: a trigger, so that no way around it is
-- forgotten. It costs only lanes of which something was parked.
ALTER TABLE {schema}.lanes ADD COLUMN parked_to bigint; -- what a lane needs before this is in parked

CREATE TABLE {schema}.parked (
    group_id bigint NOT NULL,
    seq bigint NOT NULL,
    prev bigint,
    recorded_at timestamptz NOT NULL,
    occurred_at timestamptz,
    id_part uuid NOT NULL,
    id uuid NOT NULL,
    to_subscription uuid,
    key text COLLATE "C" NOT NULL,
    topic text COLLATE "C" NOT NULL,
    object text COLLATE "C",
    payload jsonb NOT NULL,
    metadata jsonb,
    PRIMARY KEY (group_id, key, seq)
);
CREATE INDEX parked_seq ON {schema}.parked (seq);
CREATE INDEX parked_id ON {schema}.parked (id);

CREATE OR REPLACE FUNCTION {schema}.parked_passed() RETURNS trigger LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM {schema}.parked p WHERE p.group_id = OLD.group_id AND p.key = OLD.key;
    ELSE
        DELETE FROM {schema}.parked p
        WHERE p.group_id = NEW.group_id AND p.key = NEW.key AND p.seq < NEW.position;
    END IF;
    RETURN NULL;
END
$body$;
CREATE TRIGGER lanes_passed AFTER UPDATE OF position ON {schema}.lanes FOR EACH ROW
    WHEN (NEW.parked_to IS NOT NULL AND NEW.position > OLD.position) EXECUTE FUNCTION {schema}.parked_passed();
CREATE TRIGGER lanes_gone AFTER DELETE ON {schema}.lanes FOR EACH ROW
    WHEN (OLD.parked_to IS NOT NULL) EXECUTE FUNCTION {schema}.parked_passed();
