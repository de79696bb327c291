-- Room for a job's next version on the page where it is, and no table that refers to jobs.
--
-- A job is written three times in a short life. On the same page only what has changed of it goes into the server's log: 268 MB instead of 357 for 200,000 jobs of 200 bytes that
-- were sent and run, and 6 % less processor time (ten runs each, in turns). What waits takes twice the room on the disk.
ALTER TABLE {schema}.jobs SET (fillfactor = 50);
-- A version that does not find room there has an entry of its own beside the first one's, in pages that new numbers have filled before.
ALTER INDEX {schema}.jobs_pkey SET (fillfactor = 40);
-- While a table refers to jobs, each change of a job asks whether that matters. Progress is forgotten by who forgets its job (fn_jobs_purge.sql).
ALTER TABLE {schema}.job_progress DROP CONSTRAINT job_progress_number_fkey;
