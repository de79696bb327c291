-- Is there anything in the outbox that is committed and not moved yet? If not, the session remembers up to where it has looked; not every time, as that is half of what
-- this costs, but when something was under way before, or some transactions have passed.
CREATE OR REPLACE FUNCTION {schema}.outbox_waits() RETURNS boolean LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $body$
DECLARE
    v_drained pg_catalog.pg_snapshot := {drained_note};
    v_from pg_catalog.xid8 := coalesce(pg_snapshot_xmax(v_drained), '0'::xid8);
    -- From before the looks: what they see more than this is seen again the next time.
    v_seen pg_catalog.pg_snapshot := pg_current_snapshot();
BEGIN
    IF EXISTS (SELECT 1 FROM {schema}.outbox o WHERE o.xid >= v_from) THEN
        RETURN true;
    END IF;
    IF pg_snapshot_xmin(v_drained) < v_from THEN
        IF EXISTS (SELECT 1 FROM {schema}.outbox o WHERE o.xid = ANY (ARRAY(SELECT pg_snapshot_xip(v_drained)))) THEN
            RETURN true;
        END IF;
        PERFORM {note_drained};
    ELSIF pg_snapshot_xmax(v_seen)::text::bigint > v_from::text::bigint + {look_noted_transactions_max} THEN
        PERFORM {note_drained};
    END IF;
    RETURN false;
END
$body$;

-- Moves what is committed in the outbox into the log, one transaction after another. Fails if one of
-- the rows cannot be moved; outbox_move, below, finds that row.
--
-- The rows of a transaction stay together, in the order in which they were written. Transactions follow
-- each other by their last rows: one that committed before another wrote its last row comes before it,
-- so events of one object keep the order of commits (H34).
--
-- A transaction that is larger than what may be moved at once takes several commits. `outbox_state`
-- keeps which one that is: the next commit takes its rows and no others, and nothing else enters the
-- log in between.
--
-- Only the first rows by number are looked at, p_limit and one more. A transaction with all its rows
-- among them comes before one that has others, as those are later. If all of them have others, a look
-- at the whole outbox finds the transaction that is next.
--
-- What was there to see the last time need not be looked at again: the session remembers the snapshot of then, and only
-- transactions that had not ended by it can have brought something since: those that were under way, and those that began later. To look at all
-- rows instead takes longer with every row that was ever moved, for as long as somebody holds a snapshot (25 ms beside
-- 0.2). The memory is a setting of the session: it goes back with the transaction if this one fails, and a session without it looks at everything.
-- Whoever sets it to something else fools this session alone: others move what it leaves.
--
-- No more than p_limit events and p_bytes_max bytes at once, but always one row; o_more says that some are left. o_count is how many were taken from the outbox,
-- also those that wait for their time now and those whose key is known: 0 if nothing was there. o_tail is where the log ends then, and what comes next is recorded
-- no earlier than o_recorded_at.
--
-- First which rows are taken. If none of them has a key or a delay, which is the common case, one short statement moves them; else it is looked up what is known of
-- each. A row of many events (outbox_batches_tables.sql) has neither key nor delay, and is opened by both.
-- Of 1,000 events with one row for all, half of them with an object, the server computes for about 7 ms, of which the insert is half, and
-- the search for the event before each a fifth.
--
-- Under a key that the log knows by now, published meanwhile by somebody who was not in a transaction: the same event is not
-- appended again, another one is, without its key, because who sent it was told that it is published.
--
-- An id tells when it was made, and `find_seq` looks near that time: where the log recorded it much later, the way from id to seq is kept,
-- as for delayed events.
CREATE OR REPLACE FUNCTION {schema}.outbox_move_rows(
    p_now timestamptz, p_hint bigint, p_limit bigint, p_bytes_max bigint, OUT o_count bigint, OUT o_more boolean,
    OUT o_tail bigint, OUT o_recorded_at timestamptz, OUT o_trimmed_to bigint
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $body$
DECLARE
    v_drained pg_catalog.pg_snapshot := {drained_note};
    v_from pg_catalog.xid8 := coalesce(pg_snapshot_xmax(v_drained), '0'::xid8);
    v_under_way pg_catalog.xid8[] := ARRAY(SELECT pg_snapshot_xip(v_drained));
    -- From before the looks: what they see more than this is seen again the next time.
    v_seen pg_catalog.pg_snapshot := pg_current_snapshot();
    v_logged bigint;
    v_places pg_catalog.tid[];
    v_are_plain boolean;
    v_are_found boolean;
    v_are_sound boolean;
    v_events bigint;
    v_ids_from pg_catalog.uuid;
    v_ids_to pg_catalog.uuid;
    v_are_straight boolean;
    v_numbers bigint[];
    v_turns bigint[];
    v_moving pg_catalog.xid8;
    v_to pg_catalog.xid8 := '18446744073709551615';
BEGIN
    SELECT t.o_seq, {schema}.recording_time(p_now, t.o_recorded_at), t.o_trimmed_to, nullif(s.moving, '0')
    INTO o_tail, o_recorded_at, o_trimmed_to, v_moving
    FROM {schema}.log_tail(p_hint) t CROSS JOIN {schema}.outbox_state s;
    IF v_moving IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {schema}.outbox o WHERE o.xid = v_moving) THEN
        v_moving := NULL;
        UPDATE {schema}.outbox_state SET moving = '0';
    END IF;
    -- Ids from these times are found without help.
    v_ids_from := {schema}.first_id_after(o_recorded_at - interval '{id_lag}');
    v_ids_to := {schema}.first_id_after(o_recorded_at);

    LOOP
        IF v_moving IS NOT NULL THEN
            v_from := v_moving;
            v_to := v_moving;
            v_under_way := '{}';
        END IF;
        -- The rows come out of the window in their turns, and so do the arrays.
        SELECT array_agg(f.place) FILTER (WHERE f.is_taken), array_agg(f.number) FILTER (WHERE f.is_taken),
            bool_and(f.is_straight) FILTER (WHERE f.is_taken), bool_and(f.is_plain) FILTER (WHERE f.is_taken),
            bool_and(f.id >= v_ids_from AND f.id < v_ids_to) FILTER (WHERE f.is_taken),
            coalesce(NOT bool_and(f.is_taken), false),
            bool_and(f.is_sound) FILTER (WHERE f.is_taken), sum(f.count) FILTER (WHERE f.is_taken)
        INTO v_places, v_numbers, v_are_straight, v_are_plain, v_are_found, o_more, v_are_sound, v_events
        FROM (
            SELECT c.place, c.number, c.id, c.is_plain, c.count, {outbox_is_sound} AS is_sound,
                coalesce(c.number > lag(c.number) OVER so_far, true) AS is_straight,
                c.last IS NOT NULL AND (row_number() OVER so_far = 1
                    OR (sum(c.count) OVER so_far <= p_limit AND sum(c.bytes) OVER so_far <= p_bytes_max)) AS is_taken
            FROM (
                SELECT t.*, CASE WHEN v_moving IS NOT NULL OR t.rows <= p_limit OR NOT EXISTS (
                    SELECT 1 FROM {schema}.outbox r WHERE r.xid = t.xid AND r.number > t.last_here
                ) THEN t.last_here END AS last
                FROM (
                    SELECT n.*, count(*) OVER () AS rows, max(n.number) OVER (PARTITION BY n.xid) AS last_here FROM (
                        SELECT o.ctid AS place, o.xid, o.number, o.id, coalesce(o.count, 1) AS count,
                            o.key IS NULL AND o.not_before IS NULL AS is_plain,
                            coalesce(pg_column_size(o.events),
                                pg_column_size(o.payload) + coalesce(pg_column_size(o.metadata), 0)) AS bytes,
                            o.occurred_at, o.not_before, o.events IS NOT NULL AS is_batch
                        FROM {schema}.outbox o WHERE o.xid >= v_from AND o.xid <= v_to
                        UNION ALL
                        SELECT o.ctid, o.xid, o.number, o.id, coalesce(o.count, 1),
                            o.key IS NULL AND o.not_before IS NULL,
                            coalesce(pg_column_size(o.events),
                                pg_column_size(o.payload) + coalesce(pg_column_size(o.metadata), 0)),
                            o.occurred_at, o.not_before, o.events IS NOT NULL
                        FROM {schema}.outbox o WHERE o.xid = ANY (v_under_way) AND o.xid < v_from
                        ORDER BY 3 LIMIT p_limit + 1
                    ) n
                ) t
            ) c
            WINDOW so_far AS (ORDER BY c.last, c.number ROWS UNBOUNDED PRECEDING)
        ) f;
        EXIT WHEN v_places IS NOT NULL OR NOT o_more;
        SELECT w.xid INTO v_moving FROM (
            SELECT o.xid, max(o.number) AS last FROM {schema}.outbox o
            WHERE o.xid >= v_from OR o.xid = ANY (v_under_way) GROUP BY o.xid
        ) w ORDER BY w.last LIMIT 1;
    END LOOP;
    IF NOT v_are_sound THEN
        RAISE EXCEPTION 'a row of the outbox is not valid' USING ERRCODE = 'data_exception';
    END IF;
    IF NOT v_are_straight THEN
        -- Transactions wrote at the same time: the turn of each row, to be found by its number. Else the
        -- number is the turn.
        SELECT array_agg(u.number ORDER BY u.number), array_agg(u.turn ORDER BY u.number)
        INTO v_numbers, v_turns FROM unnest(v_numbers) WITH ORDINALITY u(number, turn);
    END IF;
    IF o_more THEN
        UPDATE {schema}.outbox_state s SET moving = o.xid FROM {schema}.outbox o
        WHERE o.ctid = v_places[cardinality(v_places)] AND s.moving <> o.xid
            AND EXISTS (SELECT 1 FROM {schema}.outbox r WHERE r.xid = o.xid AND r.number > o.number);
    END IF;
    -- The rows of others, if there are any, are for the next commit.
    o_more := o_more OR v_moving IS NOT NULL;

    IF v_are_plain THEN
        WITH taken AS (
            DELETE FROM {schema}.outbox o WHERE o.ctid = ANY (v_places) RETURNING o.*
        ), placed AS (
            SELECT t.*, o_tail - coalesce(t.count, 1) + sum(coalesce(t.count, 1)) OVER (
                    ORDER BY coalesce(v_turns[width_bucket(t.number, v_numbers)], t.number) ROWS UNBOUNDED PRECEDING) AS place,
                CASE WHEN t.events IS NOT NULL THEN left(t.id::text, 31) END AS id_start
            FROM taken t
        ), opened AS (
            SELECT p.place + 1 AS seq, p.occurred_at, p.id, p.to_subscription, p.topic, p.object, p.payload, p.metadata
            FROM placed p WHERE p.events IS NULL
            UNION ALL
            SELECT p.place + e.nth, p.occurred_at, (p.id_start || lpad(to_hex(e.nth), 5, '0'))::uuid, (e.value ->> 'to')::uuid,
                e.value ->> 'topic', e.value ->> 'object', coalesce(e.value -> 'payload', '{}'), nullif(nullif(e.value -> 'metadata', 'null'), '{}')
            FROM placed p CROSS JOIN LATERAL jsonb_array_elements(p.events) WITH ORDINALITY e(value, nth) WHERE p.events IS NOT NULL
        )
        INSERT INTO {schema}.stored_events
            (seq, prev, recorded_at, occurred_at, id_part, to_subscription, topic, object, payload, metadata)
        SELECT o.seq, CASE WHEN o.object IS NOT NULL THEN coalesce(
                max(o.seq) FILTER (WHERE o.to_subscription IS NULL) OVER (
                    PARTITION BY o.object ORDER BY o.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
                (SELECT e.seq FROM {schema}.stored_events e
                 WHERE hashtextextended(e.object, 0) = hashtextextended(o.object, 0) AND e.object = o.object
                    AND e.to_subscription IS NULL AND e.seq > o_trimmed_to AND e.seq <= o_tail ORDER BY e.seq DESC LIMIT 1)) END,
            o_recorded_at, o.occurred_at, o.id, o.to_subscription, o.topic, o.object, o.payload, o.metadata
        FROM opened o ORDER BY o.seq;
        GET DIAGNOSTICS o_count = ROW_COUNT;
        v_logged := o_count;
        -- The id of a row of many tells for all its events: they differ in the last digits, and not in their time.
        IF NOT v_are_found THEN
            INSERT INTO {schema}.delayed (seq, not_before, occurred_at, id)
            SELECT e.seq, o_recorded_at, e.occurred_at, e.id_part FROM {schema}.stored_events e
            WHERE e.seq > o_tail AND e.seq <= o_tail + v_logged AND (e.id_part < v_ids_from OR e.id_part >= v_ids_to);
        END IF;
    ELSE
        WITH taken AS (
            DELETE FROM {schema}.outbox o WHERE o.ctid = ANY (v_places) RETURNING o.*
        ), opened AS (
            SELECT coalesce(v_turns[width_bucket(t.number, v_numbers)], t.number) AS turn, 0::bigint AS nth, t.occurred_at, t.not_before, t.id, t.to_subscription, t.topic, t.object, t.payload, t.metadata,
                t.key, t.fingerprint
            FROM taken t WHERE t.events IS NULL
            UNION ALL
            SELECT coalesce(v_turns[width_bucket(t.number, v_numbers)], t.number), e.nth, t.occurred_at, NULL, (left(t.id::text, 31) || lpad(to_hex(e.nth), 5, '0'))::uuid, (e.value ->> 'to')::uuid,
                e.value ->> 'topic', e.value ->> 'object', coalesce(e.value -> 'payload', '{}'), nullif(nullif(e.value -> 'metadata', 'null'), '{}'),
                NULL, NULL
            FROM taken t CROSS JOIN LATERAL jsonb_array_elements(t.events) WITH ORDINALITY e(value, nth) WHERE t.events IS NOT NULL
        ), looked_up AS (
            SELECT o.*, k.seq AS known_at, k.key IS NOT NULL AS is_known, k.fingerprint = o.fingerprint AS is_same
            FROM opened o LEFT JOIN LATERAL (
                SELECT known.* FROM {schema}.keys known
                WHERE known.key = o.key AND known.recorded_at > o_recorded_at - interval '{key_window}' LIMIT 1
            ) k ON true
        ), sorted AS (
            SELECT l.*, NOT coalesce(l.is_same, false) AS is_new,
                NOT coalesce(l.is_same, false) AND (l.not_before IS NULL OR l.not_before <= o_recorded_at) AS is_logged
            FROM looked_up l
        ), numbered AS (
            SELECT s.*, CASE WHEN s.is_logged THEN
                o_tail + count(*) FILTER (WHERE s.is_logged) OVER (ORDER BY s.turn, s.nth ROWS UNBOUNDED PRECEDING) END AS seq
            FROM sorted s
        ), chained AS MATERIALIZED (
            SELECT n.*, CASE WHEN n.is_logged AND n.object IS NOT NULL THEN coalesce(
                max(n.seq) FILTER (WHERE n.to_subscription IS NULL) OVER (
                    PARTITION BY n.object, n.is_logged ORDER BY n.seq
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
                (SELECT e.seq FROM {schema}.stored_events e
                 WHERE hashtextextended(e.object, 0) = hashtextextended(n.object, 0) AND e.object = n.object
                    AND e.to_subscription IS NULL AND e.seq > o_trimmed_to AND e.seq <= o_tail ORDER BY e.seq DESC LIMIT 1)) END AS prev
            FROM numbered n
        ), logged AS (
            INSERT INTO {schema}.stored_events
                (seq, prev, recorded_at, occurred_at, id_part, to_subscription, topic, object, payload, metadata)
            SELECT c.seq, c.prev, o_recorded_at, c.occurred_at, c.id, c.to_subscription, c.topic, c.object, c.payload, c.metadata
            FROM chained c WHERE c.is_logged ORDER BY c.seq
        ), delayed AS (
            INSERT INTO {schema}.delayed
                (not_before, occurred_at, id, to_subscription, topic, object, payload, metadata, key)
            SELECT c.not_before, c.occurred_at, c.id, c.to_subscription, c.topic, c.object, c.payload, c.metadata,
                CASE WHEN NOT c.is_known THEN c.key END
            FROM chained c WHERE c.is_new AND NOT c.is_logged ORDER BY c.turn
        ), found_by_id AS (
            INSERT INTO {schema}.delayed (seq, not_before, occurred_at, id)
            SELECT coalesce(c.seq, c.known_at), o_recorded_at, c.occurred_at, c.id
            FROM chained c
            WHERE coalesce(c.seq, c.known_at) IS NOT NULL AND (NOT c.is_new OR
                c.id < v_ids_from OR c.id >= v_ids_to)
        ), keyed AS (
            INSERT INTO {schema}.keys AS known (key, fingerprint, id_part, seq, prev, recorded_at)
            SELECT c.key, c.fingerprint, c.id, c.seq, c.prev, o_recorded_at
            FROM chained c WHERE c.key IS NOT NULL AND NOT c.is_known
            ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, id_part = excluded.id_part,
                seq = excluded.seq, prev = excluded.prev, recorded_at = excluded.recorded_at
        )
        SELECT count(*), count(c.seq) INTO o_count, v_logged FROM chained c;
    END IF;
    IF o_count <> v_events THEN
        RAISE EXCEPTION 'a row of the outbox does not have as many events as its count'
            USING ERRCODE = 'data_exception';
    END IF;
    o_tail := o_tail + v_logged;
    PERFORM set_config('ensue.logged', ({logged} + v_logged)::text, true);
    IF NOT o_more THEN
        PERFORM {note_drained};
    END IF;
END
$body$;

-- The fault of a row of the outbox that its columns show, or null.
CREATE OR REPLACE FUNCTION {schema}.outbox_fault(o {schema}.outbox) RETURNS text LANGUAGE plpgsql STABLE
AS $body$
BEGIN
    RETURN coalesce(
        'occurred_at ' || {schema}.time_fault(o.occurred_at),
        'not_before ' || {schema}.time_fault(o.not_before),
        CASE WHEN o.key IS NOT NULL AND o.fingerprint IS NULL THEN 'key has no fingerprint' END,
        -- Half, as jsonb writes blanks that the text of the caller may not have had.
        {schema}.size_fault((octet_length(o.payload::text) + coalesce(octet_length(o.metadata::text), 0)) / 2),
        CASE
            WHEN jsonb_typeof(o.events) <> 'array' THEN 'events is not an array'
            WHEN o.events IS NOT NULL AND jsonb_array_length(o.events) IS DISTINCT FROM o.count
                THEN format('count is %s, but there are %s events', coalesce(o.count::text, 'null'),
                    jsonb_array_length(o.events))
        END);
END
$body$;

-- Moves the first row of the outbox to outbox_rejected with this reason, or with a better one.
-- Returns the number of rows, 1 or 0. It looks where outbox_move_rows looks.
CREATE OR REPLACE FUNCTION {schema}.outbox_reject(p_reason text) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off
AS $body$
DECLARE
    v_drained pg_catalog.pg_snapshot := {drained_note};
    v_row {schema}.outbox;
    v_reason pg_catalog.text;
BEGIN
    DELETE FROM {schema}.outbox d WHERE d.ctid = (
        SELECT w.place FROM (
            SELECT o.ctid AS place, {outbox_turn} AS turn, o.number FROM {schema}.outbox o
            WHERE o.xid >= coalesce(pg_snapshot_xmax(v_drained), '0'::xid8)
                OR o.xid = ANY (ARRAY(SELECT pg_snapshot_xip(v_drained)))
        ) w ORDER BY w.turn, w.number LIMIT 1
    ) RETURNING d.* INTO v_row;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    v_reason := coalesce({schema}.outbox_fault(v_row), p_reason);
    INSERT INTO {schema}.outbox_rejected
        (number, reason, occurred_at, not_before, id, to_subscription, topic, object, payload, metadata,
        key, fingerprint, count, events)
    VALUES (v_row.number, v_reason, v_row.occurred_at, v_row.not_before, v_row.id, v_row.to_subscription,
        v_row.topic, v_row.object, v_row.payload, v_row.metadata, v_row.key, v_row.fingerprint,
        v_row.count, v_row.events);
    RAISE WARNING 'row % of the outbox is rejected: %', v_row.number, v_reason
        USING HINT = 'See the table outbox_rejected and the function requeue_rejected.';
    RETURN 1;
END
$body$;

-- Moves what is committed in the outbox into the log. The caller has locked the log, and has found
-- that something waits.
--
-- A row that cannot be moved is rejected, and the others are moved (H43). To find it the limit is
-- halved until the rows before it fit, or it is alone. Only faults of a row's content count: a missing
-- partition, a full disk or a `seq` that exists already are errors. o_count includes rejected rows.
-- The subtransaction costs about 2 µs for each move.
CREATE OR REPLACE FUNCTION {schema}.outbox_move(
    p_now timestamptz, p_hint bigint, p_limit bigint, p_bytes_max bigint, OUT o_count bigint, OUT o_more boolean,
    OUT o_tail bigint, OUT o_recorded_at timestamptz, OUT o_trimmed_to bigint
) LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
    v_limit bigint := p_limit;
    v_rejected bigint := 0;
    v_reason pg_catalog.text;
    v_table pg_catalog.text;
BEGIN
    LOOP
        BEGIN
            SELECT m.o_count, m.o_more, m.o_tail, m.o_recorded_at, m.o_trimmed_to
            INTO o_count, o_more, o_tail, o_recorded_at, o_trimmed_to
            FROM {schema}.outbox_move_rows(p_now, p_hint, v_limit, p_bytes_max) m;
            EXIT;
        EXCEPTION WHEN data_exception OR not_null_violation OR unique_violation OR program_limit_exceeded THEN
            GET STACKED DIAGNOSTICS v_reason = MESSAGE_TEXT, v_table = TABLE_NAME;
            -- The stack of the caller is not a fault of a row (54001).
            IF SQLSTATE = '54001' OR SQLSTATE = '23505' AND v_table <> 'delayed' THEN
                RAISE;
            END IF;
        END;
        IF v_limit > 1 THEN
            v_limit := v_limit / 2;
        ELSIF v_rejected < {outbox_rejected_at_once_max} AND {schema}.outbox_reject(v_reason) = 1 THEN
            v_rejected := v_rejected + 1;
            v_limit := p_limit;
        ELSE
            -- The next call continues: the log is not to be locked for long.
            o_count := 0;
            o_more := true;
            SELECT t.o_seq, {schema}.recording_time(p_now, t.o_recorded_at), t.o_trimmed_to
            INTO o_tail, o_recorded_at, o_trimmed_to
            FROM {schema}.log_tail(p_hint) t;
            EXIT;
        END IF;
    END LOOP;
    o_count := o_count + v_rejected;
END
$body$;

-- Publishes a rejected row again, with other times if they are given. Returns the number of events. A
-- row that is still not valid stays where it is, with an error.
CREATE OR REPLACE FUNCTION {schema}.requeue_rejected(
    number bigint, occurred_at timestamptz DEFAULT NULL, not_before timestamptz DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
#variable_conflict use_column
DECLARE
    v_row {schema}.outbox_rejected;
    v_id pg_catalog.uuid;
BEGIN
    DELETE FROM {schema}.outbox_rejected r WHERE r.number = requeue_rejected.number RETURNING r.* INTO v_row;
    IF NOT FOUND THEN
        PERFORM {schema}.refuse(format('number is %s; outbox_rejected has no such row',
            coalesce(requeue_rejected.number::text, 'null')));
    ELSIF v_row.events IS NOT NULL THEN
        RETURN (SELECT count(*) FROM {schema}.publish_many(v_row.events));
    END IF;
    v_row.occurred_at := coalesce(requeue_rejected.occurred_at, v_row.occurred_at);
    v_row.not_before := coalesce(requeue_rejected.not_before, v_row.not_before);
    -- What Ensue itself has published keeps its reserved topic.
    PERFORM {schema}.refuse(coalesce(
        {schema}.event_fault(CASE WHEN starts_with(v_row.topic, '{reserved}.')
            THEN substr(v_row.topic, length('{reserved}.') + 1) ELSE v_row.topic END,
            v_row.object, v_row.key, v_row.occurred_at, v_row.not_before),
        CASE WHEN v_row.payload IS NULL THEN 'payload is missing' END,
        {schema}.size_fault((octet_length(v_row.payload::text) + coalesce(octet_length(v_row.metadata::text), 0)) / 2)));
    v_id := CASE WHEN EXISTS (SELECT 1 FROM {schema}.delayed d WHERE d.id = v_row.id)
        THEN {schema}.new_id() ELSE v_row.id END;
    IF v_row.key IS NULL THEN
        INSERT INTO {schema}.outbox
            (occurred_at, not_before, id, to_subscription, topic, object, payload, metadata)
        VALUES (v_row.occurred_at, v_row.not_before, v_id, v_row.to_subscription, v_row.topic,
            v_row.object, v_row.payload, v_row.metadata);
    ELSE
        PERFORM {schema}.outbox_keyed(v_id, v_row.occurred_at, v_row.not_before, v_row.to_subscription,
            v_row.topic, v_row.object, v_row.payload, v_row.metadata, v_row.key,
            coalesce(v_row.fingerprint, {schema}.event_fingerprint(v_row.topic, v_row.object,
                v_row.payload, v_row.metadata, v_row.occurred_at, v_row.not_before,
                v_row.to_subscription)));
    END IF;
    PERFORM {schema}.outbox_ring();
    RETURN 1;
END
$body$;

-- Moves what waits in the outbox, if something does, and nothing else; answers as a release does (fn_release_due.sql).
CREATE OR REPLACE FUNCTION {schema}.outbox_drain(
    p_now timestamptz, p_hint bigint, p_limit bigint, p_bytes_max bigint,
    OUT o_count bigint, OUT o_last bigint, OUT o_next_due timestamptz, OUT o_more boolean
) LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
    o_count := 0;
    o_more := false;
    IF {schema}.outbox_waits() THEN
        PERFORM {schema}.lock_log();
        SELECT m.o_count, m.o_more, m.o_tail INTO o_count, o_more, o_last FROM {schema}.outbox_move(p_now, p_hint, p_limit, p_bytes_max) m;
    ELSE
        SELECT t.o_seq INTO o_last FROM {schema}.log_tail(p_hint) t;
    END IF;
END
$body$;
