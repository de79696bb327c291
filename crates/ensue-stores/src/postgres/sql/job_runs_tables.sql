-- Jobs that are sent together mostly have numbers that follow each other. Where `run` is not null `numbers` has the first of so many; else all of them.
ALTER TABLE {schema}.job_calls ADD COLUMN run int;
