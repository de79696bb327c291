-- Slots that run a part of the log again pass over what is after replay_to and up to resume_at: that is done.
ALTER TABLE {schema}.slots ADD COLUMN replay_to bigint, ADD COLUMN resume_at bigint;
