-- Programs made these tables before the last versions of a group were kept, and before a part of the log could be run again.
CREATE TABLE IF NOT EXISTS {schema}.subscription_changes (
    group_id bigint NOT NULL,
    version bigint NOT NULL,
    id uuid NOT NULL,
    PRIMARY KEY (group_id, version, id)
);
ALTER TABLE {schema}.slots ADD COLUMN IF NOT EXISTS replay_to bigint;
ALTER TABLE {schema}.slots ADD COLUMN IF NOT EXISTS resume_at bigint;
-- What called itself version 6 then is version 5 (`migrate.rs`).
DELETE FROM {schema}.schema_version WHERE version > {from};
