-- What the versions that were knew, of every kind, as their programs wrote it: what `ensue_conformance::upgraded` looks for. It begins at
-- 2026-11-15 12:00. An event's id is made of its time and its number. `old.rs` says what the words with an @ stand for.

-- in: 1 2 6 7 9 10 11
UPDATE ensue_log_state SET trimmed_to = 2, trimmed_recorded_at = @at(2), indexed_to = 6;
INSERT INTO ensue_events (seq, prev, id, topic, object, payload, metadata, occurred_at, recorded_at, to_subscription) VALUES
    (3, 2, @id(3, 3), 'orders.paid', 'order/1', '{"n":3}', '{"by":"ann"}', @at(-60), @at(3), NULL),
    (4, NULL, @id(4, 4), 'a.b', NULL, 'null', NULL, NULL, @at(4), NULL),
    (5, NULL, @id(5, 5), 'news', NULL, '{"n":5}', NULL, NULL, @at(5), @v(5)),
    (6, NULL, @id(6, 6), 'orders.made', 'order/2', '{"n":6}', NULL, NULL, @at(6), NULL),
    (7, 6, @id(1, 7), 'later', 'order/2', '{"n":7}', NULL, @at(1), @at(7), NULL),
    (8, 3, @id(8, 8), 'orders.paid', 'order/1', '{"n":8}', NULL, NULL, @at(8), NULL);
-- The last two are not in the index yet.
INSERT INTO ensue_objects (object, seq) VALUES ('order/1', 3), ('order/2', 6);
INSERT INTO ensue_delayed (id, not_before, topic, object, payload, metadata, occurred_at, key, seq) VALUES
    (@id(1, 7), @at(7), 'later', NULL, NULL, NULL, @at(1), NULL, 7),
    (@id(4, 20), @at(3600), 'soon', 'order/2', '{"n":20}', NULL, @at(4), 'k20', NULL),
    (@id(5, 21), @at(7200), 'late', NULL, 'null', '{"x":1}', @at(5), NULL, NULL);
INSERT INTO ensue_keys (key, fingerprint, id, seq, prev, recorded_at) VALUES
    ('k6', X'fab20edb1d169c6b05cae5126b61827d2649d086895030a43a083eef85841faa', @id(6, 6), 6, NULL, @at(6)),
    ('k20', X'b2697c48cc496e5a21bfeb4524e91d12fd7d07a8eff61bef5dac46ccf87f6b51', @id(4, 20), NULL, NULL, @at(4));

-- in: 2 6 7 9 10 11
INSERT INTO ensue_groups (number, name, kind, created_at, version, subscriptions) VALUES
    (1, 'mail', 'handler', @at(1), 4, 1), (2, 'reader', 'pull', @at(2), 3, 2);
UPDATE ensue_positions_state SET fence_floor = 2, version_floor = 1, deliveries = 2;
INSERT INTO ensue_slots (group_number, slot, cursor, fence, vanished, owner, served_at) VALUES
    (1, 0, 8, 3, 0, @u(1), @at(9)), (2, 0, 5, 2, 0, NULL, @at(9));
INSERT INTO ensue_members (id, name, kind, lease_until, version) VALUES (@u(1), 'gone', 'handler', @at(30), 1);
INSERT INTO ensue_subscriptions (group_number, id, topic, condition, params, params_identity, identity_hash, expires_in, created_at, touched_at,
    created_after) VALUES
    (1, @v(1), 'orders', NULL, '{}', '{}', 8943271815454272122, NULL, @at(1), @at(1), 0),
    (2, @v(2), 'orders', NULL, '{}', '{}', 8943271815454272122, 3600000000, @at(2), @at(2), 2),
    (2, @v(3), NULL, 'e.seq > 1', '{}', '{}', -6819288086624569401, NULL, @at(2), @at(2), 2);
INSERT INTO ensue_lanes (group_number, lane_key, slot, position, state, attempts, not_before, error, redriven, since, ask) VALUES
    (1, 'o:order/1', 0, 3, 'held', 5, NULL, 'no', 0, @at(5), NULL),
    (1, 'o:order/2', 0, 6, 'waiting', 1, @at(20), 'not yet', 0, @at(6), NULL),
    (1, 'e:4', 0, 4, 'dead', 5, NULL, 'boom', 1, @at(7), 'retry');
INSERT INTO ensue_deliveries (group_number, seq, object, state, attempts, error, started_at, finished_at) VALUES
    (1, 4, NULL, 'dead', 5, 'boom', @at(6), @at(7)), (2, 8, 'order/1', 'done', 1, NULL, @at(8), @at(9));
INSERT INTO ensue_delivery_lines (group_number, seq, attempt, at, level, message) VALUES
    (1, 4, 5, @at(6), 'info', 'trying'), (1, 4, 5, @at(7), 'error', 'boom');

-- in: 6 7 9 10 11
UPDATE ensue_lanes SET position = 2, parked_to = 3 WHERE lane_key = 'o:order/1';
INSERT INTO ensue_parked (group_number, lane_key, seq, prev, id, topic, object, payload, recorded_at) VALUES
    (1, 'o:order/1', 2, NULL, @id(2, 2), 'orders.made', 'order/1', '{"n":2}', @at(2));
INSERT INTO ensue_serving (member, group_name) VALUES (@u(1), 'mail');
UPDATE ensue_slots SET replay_to = 3, resume_at = 5 WHERE group_number = 1;
UPDATE ensue_jobs_state SET last_number = 9, rules_version = 2;
INSERT INTO ensue_jobs (number, id, priority, turn, fence, not_before, started_at, finished_at, lease_until, attempts, state, handler, object,
    unique_key, worker, result, event_seq, event_id, event_topic, errors, ordered, payload, attempts_max, on_exhausted, enqueued_at, cancel_asked, redriven)
SELECT j.column1, unhex(printf('%012x7%03x8%015x', 1794744000000, j.column1, j.column1)), j.column2 - 9223372036854775807 - 1, j.column3, j.column4,
    j.column5, j.column6, j.column7, j.column8, j.column9, j.column10, j.column11, j.column12, j.column13, j.column14, j.column15,
    j.column16, iif(j.column16 = 6, @id(6, 6), NULL), iif(j.column16 = 6, 'orders.made', NULL),
    iif(j.column17 IS NULL, NULL, '[{"attempt":1,"at":"2026-11-15T12:00:09Z","error":"' || j.column17 || '"}]'),
    1, '{"n":' || j.column1 || '}', 5, 'hold', @at(8), 0, 0
FROM (VALUES
    (1, 7, 1, 0, NULL, NULL, NULL, NULL, 0, 'available', 'send', NULL, NULL, NULL, NULL, 6, NULL),
    (2, 0, 2, 4, NULL, @at(9), NULL, @at(600), 1, 'running', 'send', NULL, NULL, 'w', NULL, NULL, NULL),
    (3, 0, NULL, 0, @at(3000), NULL, NULL, NULL, 0, 'scheduled', 'send', NULL, 'u3', NULL, NULL, NULL, NULL),
    (4, 0, 4, 2, @at(30), NULL, NULL, NULL, 1, 'retrying', 'send', 'order/1', NULL, NULL, NULL, NULL, 'once'),
    (5, 0, 5, 0, NULL, NULL, NULL, NULL, 0, 'parked', 'send', 'order/1', NULL, NULL, NULL, NULL, NULL),
    (6, 0, NULL, 1, NULL, @at(8), @at(9), NULL, 1, 'succeeded', 'send', NULL, 'u6', 'w', '{"ok":true}', NULL, NULL),
    (7, 0, 7, 5, NULL, @at(8), @at(9), NULL, 5, 'dead', 'send', 'order/2', NULL, 'w', NULL, NULL, 'for good'),
    (8, 0, NULL, 0, NULL, NULL, @at(9), NULL, 0, 'cancelled', 'send', NULL, NULL, NULL, NULL, NULL, NULL),
    (9, 0, 9, 0, NULL, NULL, NULL, NULL, 0, 'available', 'task.shop.orders', NULL, NULL, NULL, NULL, NULL, NULL)) j;
INSERT INTO ensue_job_lines (number, line, attempt, at, level, message) VALUES (2, 1, 1, @at(9), 'info', 'one'), (2, 2, 1, @at(9), 'warn', 'two');
INSERT INTO ensue_job_servers (handler, until) VALUES ('send', @at(30));
INSERT INTO ensue_rules (kind, scope, id, reason, author, created_at, expires_at) VALUES
    ('pause', 'handler:task.shop', @v(17), 'stock', 'ann', @at(1), NULL), ('block', 'object:order/7', @v(18), NULL, 'bob', @at(1), @at(100));
INSERT INTO ensue_rule_reports (member, version) VALUES (@u(1), 1);

-- in: 7 9 10 11
INSERT INTO ensue_groups (number, name, kind, created_at, version, subscriptions) VALUES (3, 'work', 'handler', @at(3), 2, 1);
INSERT INTO ensue_slots (group_number, slot, cursor, fence, vanished, served_at) VALUES (3, 0, 8, 0, 0, @at(9));
INSERT INTO ensue_subscriptions (group_number, id, topic, params, params_identity, identity_hash, created_at, touched_at, created_after) VALUES
    (3, @v(4), 'news', '{}', '{}', -8210848748628747540, @at(3), @at(3), 3);
INSERT INTO ensue_subscription_changes (group_number, version, id) VALUES (3, 2, @v(4));
INSERT INTO ensue_definitions (group_number, subscription, settings, revision) VALUES (3, @v(4), '{"a":1}', 1);
UPDATE ensue_definitions_state SET version = 1;

-- in: 9 10 11
INSERT INTO ensue_job_progress (number, done, total, unit, at) VALUES (2, 3, 10, 'rows', @at(9));
INSERT INTO ensue_schedules (name, version, definition, managed_by, watermark, due, held, runs, created_at, updated_at) VALUES
    ('daily', 1, '{"every":"day"}', 'app', @at(0), @at(50), 0, 1, @at(0), @at(0)),
    ('held', 2, '{"every":"hour"}', NULL, @at(0), @at(50), 1, 0, @at(0), @at(0));
UPDATE ensue_schedules_state SET version = 2, count = 2;
INSERT INTO ensue_schedule_runs (name, number, occurrence, at, manual, event_seq, overlapped) VALUES ('daily', 1, @at(0), @at(3), 0, 3, 0);
INSERT INTO ensue_rules (kind, scope, id, author, created_at) VALUES ('pause', 'schedule:held', @v(19), 'ann', @at(1));

-- in: 9
INSERT INTO ensue_schedule_declarations (process, name, until) VALUES (@u(1), 'daily', @at(90));

-- in: 10 11
INSERT INTO ensue_schedule_declarations (process, name) VALUES (@u(1), 'daily');
INSERT INTO ensue_schedule_declarers (process, until) VALUES (@u(1), @at(90));
