INSERT INTO {schema}.schema_version (version, compatible_from)
SELECT n, {compatible_from} FROM generate_series({from} + 1, {newest}) n;
