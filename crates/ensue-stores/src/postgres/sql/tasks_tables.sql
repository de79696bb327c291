-- Tasks, which are jobs of certain handlers, by the time at which they were made: no other job is in this index. None of its
-- columns ever changes, so that a change of state writes nothing to it that it would not write anyway.
CREATE INDEX jobs_tasks ON {schema}.jobs (handler, enqueued_at, number) WHERE starts_with(handler, 'task.');

-- How far a job is: the newest that it said. It goes with its job.
CREATE TABLE {schema}.job_progress (
    number bigint PRIMARY KEY REFERENCES {schema}.jobs ON DELETE CASCADE,
    done bigint NOT NULL,
    total bigint,
    at timestamptz NOT NULL,
    unit text COLLATE "C"
);
