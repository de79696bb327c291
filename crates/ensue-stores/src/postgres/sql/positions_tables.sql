-- Groups and all that is known of them.
--
-- Whatever may be large refers to its group by a number that is never used again: so a group is forgotten at once, and
-- what belonged to it afterwards, in short turns.
--
-- Locks are taken in one order by everybody: positions_state, groups, slots (by group and number), members (by id),
-- lanes and deliveries, and the lock of the log after the slots. Who has the log's lock waits for no slot.
CREATE TABLE {schema}.positions_state (
    one boolean PRIMARY KEY DEFAULT true,
    fence_floor bigint NOT NULL DEFAULT 0, -- no forgotten group had a larger fence
    version_floor bigint NOT NULL DEFAULT 0 -- every forgotten group had a smaller version
);
INSERT INTO {schema}.positions_state DEFAULT VALUES;

CREATE TABLE {schema}.groups (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version bigint NOT NULL,
    subscriptions bigint NOT NULL DEFAULT 0, -- rows of that table, so that nobody need count them
    created_at timestamptz NOT NULL,
    made_by uuid NOT NULL, -- the call that made it: one whose answer was lost finds out that it did
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL UNIQUE
) WITH (fillfactor = 50);

-- Forgotten groups of which something may still be there.
CREATE TABLE {schema}.groups_gone (group_id bigint PRIMARY KEY);

-- What changes with every checkpoint is in no index: such an update stays on its page.
CREATE TABLE {schema}.slots (
    group_id bigint NOT NULL,
    cursor bigint NOT NULL,
    fence bigint NOT NULL,
    vanished bigint NOT NULL DEFAULT 0,
    served_at timestamptz NOT NULL,
    lost_from bigint,
    lost_to bigint,
    lost_nth bigint, -- the slot of a group with the largest tells what the group lost last
    replay_to bigint, -- one that runs a part of the log again passes over what is after this
    resume_at bigint, -- and up to this: that is done
    owner uuid, -- one that is no member (any more) has vanished
    slot int NOT NULL,
    PRIMARY KEY (group_id, slot)
) WITH (fillfactor = 30);
CREATE INDEX slots_owner ON {schema}.slots (owner) WHERE owner IS NOT NULL;

CREATE TABLE {schema}.members (
    id uuid PRIMARY KEY,
    lease_until timestamptz NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX members_lease ON {schema}.members (kind, lease_until);

-- Two are the same if group, topic, condition and params are, in full. A condition may be longer than a row of an index,
-- so the index on their hash finds those that are to be compared; the lock of the group's row keeps two from being made
-- at once.
--
-- `group_id + 0` in the index of expiries: on `group_id` a plan that was made for few rows may take the primary key
-- instead, and walk through all subscriptions of a group.
CREATE TABLE {schema}.subscriptions (
    group_id bigint NOT NULL,
    id uuid NOT NULL,
    expires_in bigint, -- microseconds; null stays
    created_at timestamptz NOT NULL,
    touched_at timestamptz NOT NULL,
    created_after bigint NOT NULL,
    topic text COLLATE "C",
    condition text COLLATE "C",
    params text COLLATE "C" NOT NULL,
    params_identity text COLLATE "C" NOT NULL,
    PRIMARY KEY (group_id, id)
);
CREATE INDEX subscriptions_same ON {schema}.subscriptions ((hashtextextended(
    params_identity, hashtextextended(coalesce(condition, ''), hashtextextended(coalesce(topic, ''), group_id)))));
CREATE INDEX subscriptions_expiry ON {schema}.subscriptions ((group_id + 0), expires_in) WHERE expires_in IS NOT NULL;

-- Which subscriptions the last versions of a group were about.
CREATE TABLE {schema}.subscription_changes (
    group_id bigint NOT NULL,
    version bigint NOT NULL,
    id uuid NOT NULL,
    PRIMARY KEY (group_id, version, id)
);

CREATE TABLE {schema}.lanes (
    group_id bigint NOT NULL,
    position bigint NOT NULL,
    attempts bigint NOT NULL,
    not_before timestamptz,
    since timestamptz NOT NULL,
    slot int NOT NULL,
    redriven boolean NOT NULL,
    state text COLLATE "C" NOT NULL,
    ask text COLLATE "C",
    key text COLLATE "C" NOT NULL,
    error text COLLATE "C",
    PRIMARY KEY (group_id, key)
) WITH (fillfactor = 70);
CREATE INDEX lanes_key ON {schema}.lanes (key);
CREATE INDEX lanes_needed ON {schema}.lanes (group_id, position) WHERE state IN ('waiting', 'held');
CREATE INDEX lanes_stuck ON {schema}.lanes (since, key) WHERE state IN ('held', 'dead');
CREATE INDEX lanes_stuck_of_group ON {schema}.lanes (group_id, since, key) WHERE state IN ('held', 'dead');
CREATE INDEX lanes_asked ON {schema}.lanes (group_id, slot) WHERE ask IS NOT NULL;

CREATE TABLE {schema}.deliveries (
    seq bigint NOT NULL,
    group_id bigint NOT NULL,
    attempts bigint NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    state text COLLATE "C" NOT NULL,
    object text COLLATE "C",
    error text COLLATE "C",
    PRIMARY KEY (seq, group_id)
);
CREATE INDEX deliveries_age ON {schema}.deliveries (finished_at, seq, group_id);
CREATE INDEX deliveries_group ON {schema}.deliveries (group_id);

-- Two lines that are equal are two.
CREATE TABLE {schema}.delivery_lines (
    group_id bigint NOT NULL,
    seq bigint NOT NULL,
    nth bigint GENERATED ALWAYS AS IDENTITY, -- in the order of writing
    attempt bigint NOT NULL,
    at timestamptz NOT NULL,
    level text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    PRIMARY KEY (group_id, seq, nth)
);
CREATE INDEX delivery_lines_age ON {schema}.delivery_lines (at, nth);

-- What was answered to a settlement that is more than a checkpoint, for who sends it again because the answer was lost:
-- it is not done twice. Kept for an hour.
CREATE TABLE {schema}.settlements (
    call uuid PRIMARY KEY,
    settled_at timestamptz NOT NULL,
    states text[] NOT NULL,
    reasons text[],
    tail bigint,
    recorded_at timestamptz[],
    seqs bigint[],
    prevs bigint[],
    ids uuid[],
    conflicts boolean[]
);
CREATE INDEX settlements_age ON {schema}.settlements (settled_at);
