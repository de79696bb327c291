-- What the versions that were knew, of every kind, as their programs wrote it: what `ensue_conformance::upgraded` looks for. It begins at
-- 2026-11-15 12:00, which is 1794744000. An event's id is made of its time and its number.

-- in: 1 2 6_jobs 6 8 13 14 17 18
CREATE FUNCTION pg_temp.at(float8) RETURNS timestamptz LANGUAGE sql AS 'SELECT to_timestamp(1794744000 + $1)';
CREATE FUNCTION pg_temp.id(int, int) RETURNS uuid LANGUAGE sql AS
    $$SELECT (lpad(to_hex((1794744000 + $1) * 1000::bigint), 12, '0') || '7' || lpad(to_hex($2), 3, '0') || '8' || lpad(to_hex($2), 15, '0'))::uuid$$;
CREATE FUNCTION pg_temp.part(int) RETURNS uuid LANGUAGE sql AS
    $$SELECT (repeat('0', 13) || lpad(to_hex($1), 3, '0') || '8' || lpad(to_hex($1), 15, '0'))::uuid$$;

-- in: 1 2 6_jobs 6 8 13 14
CREATE TABLE LOG.events_p1 PARTITION OF LOG.events FOR VALUES FROM (1) TO (1000001);

-- in: 17 18
CREATE TABLE LOG.events_p1 PARTITION OF LOG.stored_events FOR VALUES FROM (1) TO (1000001);

-- in: 1 2 6_jobs 6 8 13 14 17 18
INSERT INTO LOG.partitions (from_seq, to_seq) VALUES (1, 1000001);
UPDATE LOG.log_state SET trimmed_to = 2, trimmed_recorded_at = pg_temp.at(2);

-- in: 1
INSERT INTO LOG.events (seq, prev, recorded_at, occurred_at, id, to_subscription, topic, object, payload, metadata) VALUES
    (3, 2, pg_temp.at(3), pg_temp.at(-60), pg_temp.id(3, 3), NULL, 'orders.paid', 'order/1', '{"n": 3}', '{"by": "ann"}'),
    (4, NULL, pg_temp.at(4), NULL, pg_temp.id(4, 4), NULL, 'a.b', NULL, 'null', NULL),
    (5, NULL, pg_temp.at(5), NULL, pg_temp.id(5, 5), '00000000-0000-7000-8000-000000000005', 'news', NULL, '{"n": 5}', NULL),
    (6, NULL, pg_temp.at(6), NULL, pg_temp.id(6, 6), NULL, 'orders.made', 'order/2', '{"n": 6}', NULL),
    (7, 6, pg_temp.at(7), pg_temp.at(1), pg_temp.id(1, 7), NULL, 'later', 'order/2', '{"n": 7}', NULL),
    (8, 3, pg_temp.at(8), NULL, pg_temp.id(8, 8), NULL, 'orders.paid', 'order/1', '{"n": 8}', NULL);
INSERT INTO LOG.keys (key, fingerprint, id, seq, prev, recorded_at) VALUES
    ('k6', '\xfab20edb1d169c6b05cae5126b61827d2649d086895030a43a083eef85841faa', pg_temp.id(6, 6), 6, NULL, pg_temp.at(6)),
    ('k20', '\xb2697c48cc496e5a21bfeb4524e91d12fd7d07a8eff61bef5dac46ccf87f6b51', pg_temp.id(4, 20), NULL, NULL, pg_temp.at(4));

-- in: 2 6_jobs 6 8 13 14
INSERT INTO LOG.events (seq, prev, recorded_at, occurred_at, id_part, to_subscription, topic, object, payload, metadata) VALUES
    (3, 2, pg_temp.at(3), pg_temp.at(-60), pg_temp.part(3), NULL, 'orders.paid', 'order/1', '{"n": 3}', '{"by": "ann"}'),
    (4, NULL, pg_temp.at(4), NULL, pg_temp.part(4), NULL, 'a.b', NULL, 'null', NULL),
    (5, NULL, pg_temp.at(5), NULL, pg_temp.part(5), '00000000-0000-7000-8000-000000000005', 'news', NULL, '{"n": 5}', NULL),
    (6, NULL, pg_temp.at(6), NULL, pg_temp.part(6), NULL, 'orders.made', 'order/2', '{"n": 6}', NULL),
    (7, 6, pg_temp.at(7), pg_temp.at(1), pg_temp.id(1, 7), NULL, 'later', 'order/2', '{"n": 7}', NULL),
    (8, 3, pg_temp.at(8), NULL, pg_temp.part(8), NULL, 'orders.paid', 'order/1', '{"n": 8}', NULL);

-- in: 17 18
INSERT INTO LOG.stored_events (seq, prev, recorded_at, occurred_at, id_part, to_subscription, topic, object, payload, metadata) VALUES
    (3, 2, pg_temp.at(3), pg_temp.at(-60), pg_temp.part(3), NULL, 'orders.paid', 'order/1', '{"n": 3}', '{"by": "ann"}'),
    (4, NULL, pg_temp.at(4), NULL, pg_temp.part(4), NULL, 'a.b', NULL, 'null', NULL),
    (5, NULL, pg_temp.at(5), NULL, pg_temp.part(5), '00000000-0000-7000-8000-000000000005', 'news', NULL, '{"n": 5}', NULL),
    (6, NULL, pg_temp.at(6), NULL, pg_temp.part(6), NULL, 'orders.made', 'order/2', '{"n": 6}', NULL),
    (7, 6, pg_temp.at(7), pg_temp.at(1), pg_temp.id(1, 7), NULL, 'later', 'order/2', '{"n": 7}', NULL),
    (8, 3, pg_temp.at(8), NULL, pg_temp.part(8), NULL, 'orders.paid', 'order/1', '{"n": 8}', NULL);

-- in: 2 6_jobs 6 8 13 14 17 18
INSERT INTO LOG.keys (key, fingerprint, id_part, seq, prev, recorded_at) VALUES
    ('k6', '\xfab20edb1d169c6b05cae5126b61827d2649d086895030a43a083eef85841faa', pg_temp.part(6), 6, NULL, pg_temp.at(6)),
    ('k20', '\xb2697c48cc496e5a21bfeb4524e91d12fd7d07a8eff61bef5dac46ccf87f6b51', pg_temp.part(20), NULL, NULL, pg_temp.at(4));

-- in: 1 2 6_jobs 6 8 13 14 17 18
INSERT INTO LOG.delayed (seq, not_before, occurred_at, id, topic, object, payload, metadata, key) VALUES
    (7, pg_temp.at(7), pg_temp.at(1), pg_temp.id(1, 7), NULL, NULL, NULL, NULL, NULL),
    (NULL, pg_temp.at(3600), pg_temp.at(4), pg_temp.id(4, 20), 'soon', 'order/2', '{"n": 20}', NULL, 'k20'),
    (NULL, pg_temp.at(7200), pg_temp.at(5), pg_temp.id(5, 21), 'late', NULL, 'null', '{"x": 1}', NULL);

-- in: 2 6_jobs 6 8 13 14 17 18
INSERT INTO LOG.groups (version, subscriptions, created_at, made_by, kind, name) VALUES
    (4, 1, pg_temp.at(1), gen_random_uuid(), 'handler', 'mail'), (3, 2, pg_temp.at(2), gen_random_uuid(), 'pull', 'reader');
UPDATE LOG.positions_state SET fence_floor = 2, version_floor = 1;
INSERT INTO LOG.slots (group_id, slot, cursor, fence, vanished, served_at, owner) VALUES
    (1, 0, 8, 3, 0, pg_temp.at(9), '00000000-0000-0000-0000-000000000001'), (1, 1, 6, 5, 1, pg_temp.at(9), NULL),
    (2, 0, 5, 2, 0, pg_temp.at(9), NULL);
INSERT INTO LOG.members (id, lease_until, version, kind, name) VALUES
    ('00000000-0000-0000-0000-000000000001', pg_temp.at(30), 1, 'handler', 'gone');
INSERT INTO LOG.subscriptions (group_id, id, expires_in, created_at, touched_at, created_after, topic, condition, params, params_identity) VALUES
    (1, '00000000-0000-7000-8000-000000000001', NULL, pg_temp.at(1), pg_temp.at(1), 0, 'orders', NULL, '{}', '{}'),
    (2, '00000000-0000-7000-8000-000000000002', 3600000000, pg_temp.at(2), pg_temp.at(2), 2, 'orders', NULL, '{}', '{}'),
    (2, '00000000-0000-7000-8000-000000000003', NULL, pg_temp.at(2), pg_temp.at(2), 2, NULL, 'e.seq > 1', '{}', '{}');
INSERT INTO LOG.lanes (group_id, position, attempts, not_before, since, slot, redriven, state, ask, key, error) VALUES
    (1, 3, 5, NULL, pg_temp.at(5), 0, false, 'held', NULL, 'o:order/1', 'no'),
    (1, 6, 1, pg_temp.at(20), pg_temp.at(6), 0, false, 'waiting', NULL, 'o:order/2', 'not yet'),
    (1, 4, 5, NULL, pg_temp.at(7), 0, true, 'dead', 'retry', 'e:4', 'boom');
INSERT INTO LOG.deliveries (seq, group_id, attempts, started_at, finished_at, state, object, error) VALUES
    (4, 1, 5, pg_temp.at(6), pg_temp.at(7), 'dead', NULL, 'boom'), (8, 2, 1, pg_temp.at(8), pg_temp.at(9), 'done', 'order/1', NULL);
INSERT INTO LOG.delivery_lines (group_id, seq, attempt, at, level, message) VALUES
    (1, 4, 5, pg_temp.at(6), 'info', 'trying'), (1, 4, 5, pg_temp.at(7), 'error', 'boom');

-- in: 6_jobs 6 8 13 14 17 18
UPDATE LOG.lanes SET position = 2, parked_to = 3 WHERE key = 'o:order/1';
INSERT INTO LOG.parked (group_id, seq, prev, recorded_at, id_part, id, key, topic, object, payload) VALUES
    (1, 2, NULL, pg_temp.at(2), pg_temp.part(2), pg_temp.id(2, 2), 'o:order/1', 'orders.made', 'order/1', '{"n": 2}');
INSERT INTO LOG.serving (member, group_name) VALUES ('00000000-0000-0000-0000-000000000001', 'mail');
UPDATE LOG.slots SET replay_to = 3, resume_at = 5 WHERE group_id = 1 AND slot = 0;
SELECT setval('LOG.job_numbers', 9);
INSERT INTO LOG.jobs (number, stamp, rank, turn, fence, enqueued_at, not_before, started_at, finished_at, lease_until, attempts, attempts_max,
    ordered, state, on_exhausted, handler, object, unique_key, worker, payload, result, event_seq, event_id, event_topic,
    error_attempts, error_times, error_texts)
SELECT n, (1794744000000 << 12) + n, 9223372036854775807 - rank, turn, fence, pg_temp.at(8), not_before, started, finished, lease, attempts, 5,
    true, state, 'hold', handler, object, unique_key, worker, '{"n":' || n || '}', result, event, CASE WHEN event = 6 THEN pg_temp.id(6, 6) END,
    CASE WHEN event = 6 THEN 'orders.made' END, CASE WHEN error IS NOT NULL THEN ARRAY[1] END,
    CASE WHEN error IS NOT NULL THEN ARRAY[pg_temp.at(9)] END, CASE WHEN error IS NOT NULL THEN ARRAY[error] END
FROM (VALUES
    (1, 7, 1, 0, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, 0, 'available', 'send', NULL, NULL, NULL, NULL, 6, NULL),
    (2, 0, 2, 4, NULL, pg_temp.at(9), NULL, pg_temp.at(600), 1, 'running', 'send', NULL, NULL, 'w', NULL, NULL, NULL),
    (3, 0, NULL, 0, pg_temp.at(3000), NULL, NULL, NULL, 0, 'scheduled', 'send', NULL, 'u3', NULL, NULL, NULL, NULL),
    (4, 0, 4, 2, pg_temp.at(30), NULL, NULL, NULL, 1, 'retrying', 'send', 'order/1', NULL, NULL, NULL, NULL, 'once'),
    (5, 0, 5, 0, NULL, NULL, NULL, NULL, 0, 'parked', 'send', 'order/1', NULL, NULL, NULL, NULL, NULL),
    (6, 0, NULL, 1, NULL, pg_temp.at(8), pg_temp.at(9), NULL, 1, 'succeeded', 'send', NULL, 'u6', 'w', '{"ok":true}', NULL, NULL),
    (7, 0, 7, 5, NULL, pg_temp.at(8), pg_temp.at(9), NULL, 5, 'dead', 'send', 'order/2', NULL, 'w', NULL, NULL, 'for good'),
    (8, 0, NULL, 0, NULL, NULL, pg_temp.at(9), NULL, 0, 'cancelled', 'send', NULL, NULL, NULL, NULL, NULL, NULL),
    (9, 0, 9, 0, NULL, NULL, NULL, NULL, 0, 'available', 'task.shop.orders', NULL, NULL, NULL, NULL, NULL, NULL)
) j(n, rank, turn, fence, not_before, started, finished, lease, attempts, state, handler, object, unique_key, worker, result, event, error);
INSERT INTO LOG.job_lines (number, line, at, attempt, level, message) VALUES
    (2, 1, pg_temp.at(9), 1, 'info', 'one'), (2, 2, pg_temp.at(9), 1, 'warn', 'two');
INSERT INTO LOG.job_servers (handler, until) VALUES ('send', pg_temp.at(30));
INSERT INTO LOG.rules (id, made_by, set_by, created_at, expires_at, kind, scope, reason, author) VALUES
    ('00000000-0000-7000-8000-000000000011', gen_random_uuid(), gen_random_uuid(), pg_temp.at(1), NULL, 'pause', 'handler:task.shop', 'stock', 'ann'),
    ('00000000-0000-7000-8000-000000000012', gen_random_uuid(), gen_random_uuid(), pg_temp.at(1), pg_temp.at(100), 'block', 'object:order/7', NULL, 'bob');
UPDATE LOG.rules_state SET version = 2;
INSERT INTO LOG.rule_reports (member, version) VALUES ('00000000-0000-0000-0000-000000000001', 1);

-- in: 6 8 13 14 17 18
INSERT INTO LOG.groups (version, subscriptions, created_at, made_by, kind, name) VALUES (2, 1, pg_temp.at(3), gen_random_uuid(), 'handler', 'work');
INSERT INTO LOG.slots (group_id, slot, cursor, fence, served_at) VALUES (3, 0, 8, 0, pg_temp.at(9));
INSERT INTO LOG.subscriptions (group_id, id, created_at, touched_at, created_after, topic, params, params_identity) VALUES
    (3, '00000000-0000-7000-8000-000000000004', pg_temp.at(3), pg_temp.at(3), 3, 'news', '{}', '{}');
INSERT INTO LOG.subscription_changes (group_id, version, id) VALUES (3, 2, '00000000-0000-7000-8000-000000000004');
INSERT INTO LOG.definitions (group_id, subscription, revision, settings) VALUES (3, '00000000-0000-7000-8000-000000000004', 1, '{"a":1}');
UPDATE LOG.definitions_state SET version = 1;

-- in: 8 13 14 17 18
INSERT INTO LOG.job_progress (number, done, total, at, unit) VALUES (2, 3, 10, pg_temp.at(9), 'rows');
INSERT INTO LOG.schedules (name, version, watermark, due, created_at, updated_at, runs, put_by, held, managed_by, definition) VALUES
    ('daily', 1, pg_temp.at(0), pg_temp.at(50), pg_temp.at(0), pg_temp.at(0), 1, gen_random_uuid(), false, 'app', '{"every":"day"}'),
    ('held', 2, pg_temp.at(0), pg_temp.at(50), pg_temp.at(0), pg_temp.at(0), 0, gen_random_uuid(), true, NULL, '{"every":"hour"}');
UPDATE LOG.schedules_state SET version = 2;
INSERT INTO LOG.schedule_runs (name, number, occurrence, at, event_seq, call, manual, overlapped) VALUES
    ('daily', 1, pg_temp.at(0), pg_temp.at(3), 3, gen_random_uuid(), false, false);
INSERT INTO LOG.rules (id, made_by, set_by, created_at, kind, scope, author) VALUES
    ('00000000-0000-7000-8000-000000000013', gen_random_uuid(), gen_random_uuid(), pg_temp.at(1), 'pause', 'schedule:held', 'ann');

-- in: 8
INSERT INTO LOG.schedule_declarations (process, name, until) VALUES ('00000000-0000-0000-0000-000000000001', 'daily', pg_temp.at(90));

-- in: 13 14 17 18
INSERT INTO LOG.schedule_declarations (process, name) VALUES ('00000000-0000-0000-0000-000000000001', 'daily');
INSERT INTO LOG.schedule_declarers (process, until) VALUES ('00000000-0000-0000-0000-000000000001', pg_temp.at(90));
INSERT INTO LOG.outbox (occurred_at, not_before, id, topic, object, payload, metadata, key, fingerprint) VALUES
    (pg_temp.at(9), NULL, pg_temp.id(9, 30), 'sent', 'order/1', '{"n": 30}', '{"by": "sql"}', NULL, NULL),
    (pg_temp.at(9), NULL, pg_temp.id(9, 31), 'sent', 'order/1', '{"n": 31}', NULL, 'k31', '\xebedff634656290f31713ddff7c43fc2b95f910f4403c4a850e8020879233458'),
    (pg_temp.at(9), pg_temp.at(7300), pg_temp.id(9, 32), 'sent', NULL, 'null', NULL, NULL, NULL);
UPDATE LOG.subscriptions SET failures = 2, failed_seq = 8, failed_at = pg_temp.at(9), failed_with = 'no such thing' WHERE condition IS NOT NULL;
UPDATE LOG.config SET value = '7 days' WHERE key = 'partition_retention_period';
CREATE OR REPLACE FUNCTION LOG.mutation_payload(p_table regclass, p_operation text, p_payload jsonb) RETURNS jsonb LANGUAGE sql STABLE
    AS 'SELECT ''{"mine": true}''::jsonb';
