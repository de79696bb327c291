-- Which process serves which group. By name: a process says what it serves whether the group is there or not.
CREATE TABLE {schema}.serving (
    member uuid NOT NULL REFERENCES {schema}.members (id) ON DELETE CASCADE,
    group_name text COLLATE "C" NOT NULL,
    PRIMARY KEY (member, group_name)
);
CREATE INDEX serving_group ON {schema}.serving (group_name);
