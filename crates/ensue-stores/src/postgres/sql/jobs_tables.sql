-- Jobs and rules.
--
-- One table of jobs, those that are over included (`finished_at` is set then); indexes have only what is live, except the
-- primary key and the one by object. A change of state is a new row version in each index that has it, so there are as few
-- of them as can be for a job without an object: three at any time.
--
-- `number` comes from job_numbers and leads from an id to its row. `stamp` is the rest of the id, its milliseconds and its
-- twelve bits of chance: who asks for a job by its id has all of it right. `rank` is the priority turned round and made
-- signed, so that the smallest is the first: a position (rank, turn) is one comparison, and exact for every u64.
-- `call` is the claim, settlement or steering that wrote the row last, for who asks again because the answer was lost.
--
-- Who looks for jobs by their numbers says nothing that is the condition of an index: with `state = 'running'` a plan that
-- was made while nothing ran reads all that runs. So it says `coalesce(state, '')`, and `object || ''` is what the index by
-- object has: a lane is not looked for among all that was ever about its object.
--
-- Locks are taken in one order by everybody: that of a call, that of the rules (shared; whoever changes a rule has it
-- alone), rows of jobs that are in no lane (by number), the locks of lanes and keys (1,024 for all, in their order), rows of
-- jobs in lanes (by number), the log. A claim takes the rules' lock and rows that nobody has, and waits for nothing else.
CREATE SEQUENCE {schema}.job_numbers;

CREATE TABLE {schema}.jobs (
    number bigint PRIMARY KEY,
    stamp bigint NOT NULL,
    rank bigint NOT NULL,
    turn bigint,
    fence bigint NOT NULL DEFAULT 0,
    enqueued_at timestamptz NOT NULL,
    not_before timestamptz,
    locked_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    lease_until timestamptz,
    event_seq bigint,
    event_prev bigint,
    event_id uuid,
    call uuid,
    attempts int NOT NULL DEFAULT 0,
    attempts_max int NOT NULL,
    ordered boolean NOT NULL,
    cancel_asked boolean NOT NULL DEFAULT false,
    redriven boolean NOT NULL DEFAULT false,
    state text COLLATE "C" NOT NULL,
    on_exhausted text COLLATE "C" NOT NULL,
    handler text COLLATE "C" NOT NULL,
    object text COLLATE "C",
    unique_key text COLLATE "C",
    worker text COLLATE "C",
    event_topic text COLLATE "C",
    payload text COLLATE "C" NOT NULL,
    metadata text COLLATE "C", -- null is {}
    result text COLLATE "C",
    error_attempts int[], -- the newest errors, one element each
    error_times timestamptz[],
    error_texts text[]
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);

-- What a claim looks at.
CREATE INDEX jobs_available ON {schema}.jobs (handler, rank, turn) WHERE state = 'available';
CREATE INDEX jobs_running ON {schema}.jobs (lease_until, number) WHERE state = 'running';
CREATE INDEX jobs_due ON {schema}.jobs (not_before, number) WHERE state IN ('scheduled', 'retrying');
CREATE INDEX jobs_parked ON {schema}.jobs (object) WHERE state = 'parked';
-- A lane, in its order.
CREATE INDEX jobs_lane ON {schema}.jobs (handler, object, turn)
    WHERE ordered AND object IS NOT NULL AND turn IS NOT NULL;
-- At most one of a lane may run or runs, whatever else goes wrong.
CREATE UNIQUE INDEX jobs_active ON {schema}.jobs (handler, object)
    WHERE ordered AND object IS NOT NULL AND state IN ('available', 'running');
CREATE UNIQUE INDEX jobs_key ON {schema}.jobs (handler, unique_key)
    WHERE unique_key IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_object ON {schema}.jobs ((object || ''), number) WHERE object IS NOT NULL;
CREATE INDEX jobs_over ON {schema}.jobs (finished_at, number) WHERE finished_at IS NOT NULL AND turn IS NULL;

-- Two lines that are equal are two.
CREATE TABLE {schema}.job_lines (
    number bigint NOT NULL,
    line bigint NOT NULL,
    at timestamptz NOT NULL,
    attempt int NOT NULL,
    level text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    PRIMARY KEY (number, line)
);

-- Who was said to run the jobs of which handler, until when.
CREATE TABLE {schema}.job_servers (
    handler text COLLATE "C" PRIMARY KEY,
    until timestamptz NOT NULL
);

-- What was answered to a call that must not be done twice, for who sends it again because the answer was lost. Forgotten
-- after an hour, all together: one by one, each search for the oldest would pass over those that went before it for as long
-- as somebody holds a snapshot.
CREATE TABLE {schema}.job_calls (
    call uuid PRIMARY KEY,
    at timestamptz NOT NULL,
    tail bigint,
    states text[],
    reasons text[],
    recorded_at timestamptz[],
    seqs bigint[],
    prevs bigint[],
    ids uuid[],
    conflicts boolean[],
    job_states text[],
    numbers bigint[], -- of the jobs that were sent; how they stand is looked up
    new boolean[] -- null if all are
);
CREATE INDEX job_calls_age ON {schema}.job_calls (at);

CREATE TABLE {schema}.rules_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL DEFAULT 0
);
INSERT INTO {schema}.rules_state DEFAULT VALUES;

-- `scope` is `handler:KEY`, `object:KEY` or `schedule:NAME`.
CREATE TABLE {schema}.rules (
    id uuid NOT NULL,
    made_by uuid NOT NULL, -- the call that made it
    set_by uuid NOT NULL, -- the call that set it last
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    kind text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    reason text COLLATE "C",
    author text COLLATE "C" NOT NULL,
    PRIMARY KEY (scope, kind)
);

-- Which version of the rules a process obeys.
CREATE TABLE {schema}.rule_reports (
    member uuid PRIMARY KEY,
    version bigint NOT NULL
);
