-- The numbers of jobs that were sent together mostly follow each other: then `numbers` has the first of them, and `run` says how many they are.
ALTER TABLE {schema}.job_calls ADD COLUMN run int;
