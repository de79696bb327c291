-- What must event and subscription have in common, or the condition does not hold?
--
-- The same idea as in process (ensue-core/src/condition/terms.rs): equalities that are parts of an
-- AND become keys. Subscriptions are looked up by them (subscription_keys), and only those that are
-- found are evaluated, unless the keys say all that the condition says. A key is a part of a SHA-256,
-- so that nobody can choose params that have the key of others.
--
-- Parts that give keys, where X reads nothing but the event:
--     s.params -> 'a' @> jsonb_build_object('b', X, …)    and  jsonb_build_object(…) <@ s.params
--     s.params -> 'a' @> jsonb_build_array(X, …)          and  to_jsonb(X)
--     s.params -> 'a' ? X
--     s.params -> 'a' ->> 'b' = X,  s.params -> 'a' = X   and  the sides the other way round

-- A scalar as text, the same for all that are equal; arrays are the same, and objects.
CREATE OR REPLACE FUNCTION {schema}.condition_scalar(p_value jsonb) RETURNS text LANGUAGE sql IMMUTABLE
AS $body$
    SELECT CASE jsonb_typeof(p_value) WHEN 'number' THEN trim_scale(p_value::numeric)::text
        WHEN 'array' THEN '[' WHEN 'object' THEN '{' ELSE p_value::text END
$body$;

-- Where does the way `-> 'a' -> 'b'` of the params end that begins at this token, and where does it
-- lead? As text: its last step is `->>`.
CREATE OR REPLACE FUNCTION {schema}.condition_way(
    p_tokens text[], p_from int, p_to int, OUT o_end int, OUT o_path text[], OUT o_is_text boolean
) LANGUAGE plpgsql IMMUTABLE
AS $body$
BEGIN
    IF p_tokens[p_from:p_from + 2] IS DISTINCT FROM '{s,.,params}'::text[] OR p_from + 2 > p_to THEN
        RETURN;
    END IF;
    o_end := p_from + 2;
    o_path := '{}';
    o_is_text := false;
    WHILE o_end + 2 <= p_to AND NOT o_is_text AND starts_with(p_tokens[o_end + 2], '''')
        AND (p_tokens[o_end + 1] = '->' OR p_tokens[o_end + 1] LIKE 'OPERATOR(%.->>)')
    LOOP
        o_is_text := p_tokens[o_end + 1] <> '->';
        o_path := o_path || replace(substr(p_tokens[o_end + 2], 2, length(p_tokens[o_end + 2]) - 2), '''''', '''');
        o_end := o_end + 2;
    END LOOP;
END
$body$;

-- The keys of a part `s.params … X`, as condition_keys answers them; null if it gives none. p_at is
-- the number of the value that the event's side has. o_is_exact: they say all that the part says.
CREATE OR REPLACE FUNCTION {schema}.condition_part_keys(
    p_tokens text[], p_depths int[], p_from int, p_to int, p_at int,
    OUT o_sql text, OUT o_keys jsonb, OUT o_is_exact boolean
) LANGUAGE plpgsql IMMUTABLE
AS $body$
DECLARE
    c_no_operand CONSTANT pg_catalog.text[] := '{and,or,not,is,"null",true,false,unknown,distinct,from,between,in,like,'
        || 'ilike,escape,any,some,all,case,when,then,else,end,array,cast,as,=,<>,!=,<,<=,>,>=,@>,<@,?,?|,?&,||,+,-,*,/,%}';
    v_depth int := p_depths[p_from];
    v_way pg_catalog.record;
    v_operator pg_catalog.text;
    v_from int := p_from; -- of the event's side
    v_to int := p_to;
    v_close int;
    v_at int;
    v_name pg_catalog.text;
    v_list boolean;
BEGIN
    SELECT * INTO v_way FROM {schema}.condition_way(p_tokens, p_from, p_to);
    IF v_way.o_end IS NOT NULL THEN
        v_operator := p_tokens[v_way.o_end + 1];
        v_from := v_way.o_end + 2;
    ELSE
        FOR i IN p_from..p_to LOOP
            IF p_depths[i] = v_depth AND p_tokens[i] IN ('=', '<@') THEN
                v_operator := CASE p_tokens[i] WHEN '=' THEN '=' ELSE '@>' END;
                SELECT * INTO v_way FROM {schema}.condition_way(p_tokens, i + 1, p_to);
                -- `a <@ b -> c` is `(a <@ b) -> c`.
                IF v_way.o_end IS DISTINCT FROM p_to OR v_operator = '@>' AND v_way.o_path <> '{}' THEN
                    RETURN;
                END IF;
                v_to := i - 1;
                EXIT;
            END IF;
        END LOOP;
    END IF;
    IF v_operator IS NULL OR v_from > v_to OR 's' = ANY (p_tokens[v_from:v_to]) OR 'e' <> ALL (p_tokens[v_from:v_to]) THEN
        RETURN;
    END IF;
    o_sql := array_to_string(p_tokens[v_from:v_to], ' ');
    o_is_exact := true;
    IF v_operator = '@>' AND NOT v_way.o_is_text THEN
        -- One call, and nothing after it.
        v_close := v_from + 1;
        LOOP
            v_close := v_close + 1;
            EXIT WHEN v_close >= v_to OR p_depths[v_close] = v_depth;
        END LOOP;
        IF v_close <> v_to OR p_tokens[v_from + 1] <> '(' THEN
            o_sql := NULL;
        ELSIF p_tokens[v_from] = 'jsonb_build_array' THEN
            o_keys := jsonb_build_array(jsonb_build_object(
                'at', ARRAY[p_at::text, '0'], 'path', v_way.o_path, 'kind', 'elements'));
            o_is_exact := NOT EXISTS (SELECT 1 FROM generate_series(v_from + 2, v_to - 1) n
                WHERE p_depths[n] = v_depth + 1 AND p_tokens[n] = ',');
        ELSIF p_tokens[v_from] = 'to_jsonb' THEN
            o_keys := jsonb_build_array(jsonb_build_object('at', ARRAY[p_at::text], 'path', v_way.o_path, 'kind', 'parts'));
            -- Of NULL it is NULL, and not that of the null of JSON.
            o_is_exact := false;
        ELSIF p_tokens[v_from] = 'jsonb_build_object' THEN
            v_at := v_from + 2;
            WHILE v_at < v_close AND o_sql IS NOT NULL LOOP
                -- A name, a comma, and its value up to the next comma.
                IF NOT starts_with(p_tokens[v_at], '''') OR p_tokens[v_at + 1] <> ',' THEN
                    o_sql := NULL;
                    EXIT;
                END IF;
                v_name := replace(substr(p_tokens[v_at], 2, length(p_tokens[v_at]) - 2), '''''', '''');
                v_from := v_at + 2;
                v_at := v_from;
                WHILE v_at < v_close AND NOT (p_tokens[v_at] = ',' AND p_depths[v_at] = v_depth + 1) LOOP
                    v_at := v_at + 1;
                END LOOP;
                v_list := p_tokens[v_from] IN ('array', 'jsonb_build_array') AND p_tokens[v_from + 1] IN ('[', '(')
                    AND p_depths[v_at - 1] = v_depth + 1 AND p_tokens[v_at - 1] IN (']', ')') AND NOT EXISTS (
                        SELECT 1 FROM generate_series(v_from + 2, v_at - 2) n WHERE p_depths[n] = v_depth + 1);
                o_is_exact := o_is_exact AND NOT (v_list AND EXISTS (
                    SELECT 1 FROM generate_series(v_from + 2, v_at - 2) n WHERE p_depths[n] = v_depth + 2 AND p_tokens[n] = ','));
                IF EXISTS (SELECT 1 FROM jsonb_array_elements(o_keys) k WHERE k->'at'->>1 = v_name) THEN
                    o_sql := NULL;
                END IF;
                o_keys := coalesce(o_keys, '[]') || jsonb_build_object(
                    'at', ARRAY[p_at::text, v_name] || CASE WHEN v_list THEN ARRAY['0'] ELSE '{}' END,
                    'path', v_way.o_path || v_name, 'kind', CASE WHEN v_list THEN 'elements' ELSE 'member' END);
                v_at := v_at + 1;
            END LOOP;
        ELSE
            o_sql := NULL;
        END IF;
    ELSIF v_operator IN ('=', '?') AND NOT (v_operator = '?' AND v_way.o_is_text) THEN
        FOR i IN v_from..v_to LOOP
            IF p_depths[i] = v_depth AND (p_tokens[i] = ANY (c_no_operand)
                OR v_operator = '?' AND (p_tokens[i] IN ('->', '#>') OR p_tokens[i] LIKE 'OPERATOR(%')) THEN
                o_sql := NULL;
                RETURN;
            END IF;
        END LOOP;
        o_sql := 'to_jsonb( ' || o_sql || ' )';
        o_keys := jsonb_build_array(jsonb_build_object('at', ARRAY[p_at::text], 'path', v_way.o_path,
            'kind', CASE WHEN v_operator = '?' THEN 'names' WHEN v_way.o_is_text THEN 'text' ELSE 'member' END));
        o_is_exact := v_operator = '?' OR v_way.o_is_text;
    ELSE
        o_sql := NULL;
    END IF;
    IF o_sql IS NULL OR o_keys IS NULL THEN
        o_sql := NULL;
        o_keys := NULL;
    END IF;
END
$body$;

-- The keys of a condition, of which there are the tokens of condition_tokens. o_sql: a jsonb array of
-- what the event has, of the tokens alone, to be executed as they are (condition_values). o_keys: an
-- array of {at: where in it, path: where in the params, kind: what of it}; both null without keys.
-- o_is_exact: where they are the same, the condition holds.
CREATE OR REPLACE FUNCTION {schema}.condition_keys(
    p_tokens text[], OUT o_sql text, OUT o_keys jsonb, OUT o_is_exact boolean
) LANGUAGE plpgsql IMMUTABLE
AS $body$
DECLARE
    v_depths int[] := '{}';
    v_depth int := 0;
    v_from int[] := '{1}'; -- parts that are to be looked at
    v_to int[] := ARRAY[cardinality(p_tokens)];
    v_first int;
    v_last int;
    v_start int;
    v_is_and boolean;
    v_part pg_catalog.record;
    v_sql pg_catalog.text[] := '{}';
BEGIN
    IF p_tokens IS NULL OR cardinality(p_tokens) > 1000 THEN
        RETURN;
    END IF;
    -- Of what is open, both ends have the depth of what is around it.
    FOR i IN 1..cardinality(p_tokens) LOOP
        IF p_tokens[i] IN (')', ']', 'end') THEN
            v_depth := v_depth - 1;
        END IF;
        v_depths := v_depths || v_depth;
        IF p_tokens[i] IN ('(', '[', 'case') THEN
            v_depth := v_depth + 1;
        END IF;
    END LOOP;
    o_keys := '[]';
    o_is_exact := true;
    WHILE cardinality(v_from) > 0 LOOP
        v_first := v_from[1];
        v_last := v_to[1];
        v_from := v_from[2:];
        v_to := v_to[2:];
        v_depth := v_depths[v_first];
        IF v_first > v_last OR jsonb_array_length(o_keys) >= 8 OR EXISTS (
                SELECT 1 FROM generate_series(v_first, v_last) n
                WHERE v_depths[n] = v_depth AND p_tokens[n] IN ('or', 'between')) THEN
            o_is_exact := false;
            CONTINUE;
        END IF;
        v_is_and := false;
        v_start := v_first;
        FOR i IN v_first..v_last LOOP
            IF v_depths[i] = v_depth AND p_tokens[i] = 'and' THEN
                v_is_and := true;
                v_from := v_from || v_start;
                v_to := v_to || (i - 1);
                v_start := i + 1;
            END IF;
        END LOOP;
        IF v_is_and THEN
            v_from := v_from || v_start;
            v_to := v_to || v_last;
        ELSIF p_tokens[v_first] = '(' AND p_tokens[v_last] = ')' AND NOT EXISTS (
                SELECT 1 FROM generate_series(v_first + 1, v_last - 1) n WHERE v_depths[n] = v_depth) THEN
            v_from := v_from || (v_first + 1);
            v_to := v_to || (v_last - 1);
        ELSE
            SELECT * INTO v_part
            FROM {schema}.condition_part_keys(p_tokens, v_depths, v_first, v_last, cardinality(v_sql));
            IF v_part.o_sql IS NOT NULL THEN
                v_sql := v_sql || v_part.o_sql;
                o_keys := o_keys || v_part.o_keys;
            END IF;
            o_is_exact := o_is_exact AND v_part.o_sql IS NOT NULL AND v_part.o_is_exact;
        END IF;
    END LOOP;
    IF cardinality(v_sql) = 0 THEN
        o_keys := NULL;
        o_is_exact := false;
    ELSE
        o_sql := 'jsonb_build_array( ' || array_to_string(v_sql, ' , ') || ' )';
    END IF;
END
$body$;

-- The key of a value that comes after others, whose key is p_before.
CREATE OR REPLACE FUNCTION {schema}.condition_key(p_before bytea, p_text text) RETURNS bytea LANGUAGE sql STABLE
AS $body$
    SELECT substr(sha256(p_before || convert_to(p_text, 'UTF8')), 1, 16)
$body$;

-- Under which keys does a subscription with these params stand? Under none if it can never match;
-- null if there are more than 256, then it is evaluated for every event.
CREATE OR REPLACE FUNCTION {schema}.condition_keys_of(p_keys jsonb, p_params jsonb) RETURNS bytea[]
LANGUAGE plpgsql STABLE
AS $body$
DECLARE
    v_key pg_catalog.record;
    v_step pg_catalog.text;
    v_value pg_catalog.jsonb;
    v_texts pg_catalog.text[];
    v_found pg_catalog.bytea[] := '{""}';
BEGIN
    FOR v_key IN SELECT k.path, k.kind FROM jsonb_to_recordset(p_keys) k(path text[], kind text) LOOP
        v_value := p_params;
        FOREACH v_step IN ARRAY v_key.path LOOP
            v_value := v_value -> v_step;
        END LOOP;
        IF v_value IS NULL THEN
            RETURN '{}';
        END IF;
        CASE v_key.kind
        WHEN 'member' THEN
            v_texts := ARRAY[{schema}.condition_scalar(v_value)];
        WHEN 'text' THEN
            v_texts := CASE WHEN v_value <> 'null' THEN ARRAY[to_jsonb(jsonb_build_array(v_value) ->> 0)::text] END;
        WHEN 'names' THEN
            v_texts := CASE jsonb_typeof(v_value)
                WHEN 'object' THEN ARRAY(SELECT to_jsonb(f)::text FROM jsonb_object_keys(v_value) f LIMIT 257)
                WHEN 'array' THEN ARRAY(
                    SELECT DISTINCT f::text FROM jsonb_array_elements(v_value) f WHERE jsonb_typeof(f) = 'string' LIMIT 257)
                WHEN 'string' THEN ARRAY[v_value::text] END;
        ELSE
            v_texts := CASE
                WHEN jsonb_typeof(v_value) = 'array' THEN ARRAY(
                    SELECT DISTINCT {schema}.condition_scalar(f) FROM jsonb_array_elements(v_value) f
                    WHERE jsonb_typeof(f) NOT IN ('array', 'object') LIMIT 257)
                WHEN v_key.kind = 'parts' THEN ARRAY[{schema}.condition_scalar(v_value)] END;
        END CASE;
        v_texts := coalesce(v_texts, '{}');
        IF cardinality(v_found) * cardinality(v_texts) > 256 THEN
            RETURN NULL;
        ELSIF cardinality(v_found) = 1 AND cardinality(v_texts) = 1 THEN
            v_found := ARRAY[{schema}.condition_key(v_found[1], v_texts[1])];
        ELSE
            v_found := ARRAY(SELECT {schema}.condition_key(f, t) FROM unnest(v_found) f, unnest(v_texts) t);
        END IF;
    END LOOP;
    RETURN v_found;
END
$body$;

-- The key of each of some events, of which there is what condition_values answers, in order. Null: it
-- has none, and anybody may want it. Not exact: an array or an object is like every other.
CREATE OR REPLACE FUNCTION {schema}.condition_keys_of_events(
    p_keys jsonb, p_values jsonb[], OUT o_keys bytea[], OUT o_are_exact boolean[]
) LANGUAGE plpgsql STABLE
AS $body$
DECLARE
    v_key pg_catalog.record;
BEGIN
    o_keys := array_fill(''::bytea, ARRAY[cardinality(p_values)]);
    o_are_exact := array_fill(true, ARRAY[cardinality(p_values)]);
    FOR v_key IN SELECT k.at, k.kind FROM jsonb_to_recordset(p_keys) k(at text[], kind text) LOOP
        SELECT array_agg(CASE WHEN f.is_scalar OR v_key.kind = 'member'
                THEN {schema}.condition_key(f.key, {schema}.condition_scalar(f.value)) END ORDER BY f.n),
            array_agg(f.is_exact AND f.is_scalar ORDER BY f.n)
        INTO o_keys, o_are_exact
        FROM (
            SELECT x.key, x.is_exact, v.value, jsonb_typeof(v.value) NOT IN ('array', 'object') AS is_scalar, x.n
            FROM unnest(p_values, o_keys, o_are_exact) WITH ORDINALITY x(value, key, is_exact, n)
            CROSS JOIN LATERAL (SELECT x.value #> v_key.at AS value OFFSET 0) v
        ) f;
    END LOOP;
END
$body$;
