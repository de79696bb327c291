-- The tables of the log.
--
-- `events` is insert-only and its own counter: the newest row says which number comes next. A counter row or a table of
-- heads would be updated with every append, and each version of such a row slows the next append down for as long as
-- somebody holds a snapshot; insert-only stays flat. It has one index beside its primary key, on a hash of the object
-- and seq, which finds the predecessor of an event and reads the chain of an object; who uses it compares the object
-- too. On the object itself it would cost a fifth more for keys of 10 bytes, half more for 36, and be up to twice as large.
-- No two of its entries are equal, so that Postgres is told not to look for those when a page is full. There is no index
-- on ids: an id tells its time, and `recorded_at` never decreases along `seq`, so that a binary search finds it.
--
-- `id_part` is an id without what `recorded_at` tells already: the bits of the time and the version are 0. An event whose
-- id has a time of its own (it was delayed) has the whole id there. `event_id(id_part, recorded_at)` is the id in both
-- cases. So nothing is computed for an id while the log is locked (docs/decisions/007).
--
-- Two columns are null in the common case to save room: `occurred_at` when it equals `recorded_at`, `metadata` when
-- it is `{}`. The columns of fixed length come first, so that none is padded.
CREATE TABLE {schema}.events (
    seq bigint NOT NULL,
    prev bigint,
    recorded_at timestamptz NOT NULL,
    occurred_at timestamptz,
    id_part uuid NOT NULL,
    to_subscription uuid,
    topic text COLLATE "C" NOT NULL,
    object text COLLATE "C",
    payload jsonb NOT NULL,
    metadata jsonb,
    PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);

CREATE INDEX events_object ON {schema}.events (hashtextextended(object, 0), seq)
    WITH (deduplicate_items = off) WHERE object IS NOT NULL;

-- Which places each partition holds: [from_seq, to_seq). A detached one waits to be dropped.
CREATE TABLE {schema}.partitions (
    from_seq bigint PRIMARY KEY,
    to_seq bigint NOT NULL,
    detached boolean NOT NULL DEFAULT false
);

-- What is forgotten, whether or not its rows are gone yet: the newest forgotten number and its time. They carry the
-- end of the log over the day on which it is emptied.
CREATE TABLE {schema}.log_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    trimmed_to bigint NOT NULL DEFAULT 0,
    trimmed_recorded_at timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO {schema}.log_state DEFAULT VALUES;

-- Delayed events. Once in the log (`seq` is set) only the way from id to seq is kept, until retention passes it.
CREATE TABLE {schema}.delayed (
    accepted bigint GENERATED ALWAYS AS IDENTITY,
    seq bigint,
    not_before timestamptz NOT NULL,
    occurred_at timestamptz NOT NULL,
    id uuid PRIMARY KEY,
    to_subscription uuid,
    topic text COLLATE "C",
    object text COLLATE "C",
    payload jsonb,
    metadata jsonb,
    key text COLLATE "C" -- freed when the event is cancelled
);
CREATE INDEX delayed_due ON {schema}.delayed (not_before, accepted) WHERE seq IS NULL;
CREATE INDEX delayed_seq ON {schema}.delayed (seq) WHERE seq IS NOT NULL;

-- Idempotency keys with what was answered under them. Outlive their event, until their window has passed.
CREATE TABLE {schema}.keys (
    key text COLLATE "C" PRIMARY KEY,
    fingerprint bytea NOT NULL,
    id_part uuid NOT NULL, -- of the id whose time is `recorded_at`
    seq bigint,
    prev bigint,
    recorded_at timestamptz NOT NULL
);
CREATE INDEX keys_recorded_at ON {schema}.keys (recorded_at);
