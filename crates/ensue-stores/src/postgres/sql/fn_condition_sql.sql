-- Is this text a condition, and which SQL may be executed for it?
--
-- Nothing of the text is passed on as it is: it is cut into tokens, each of them must be one that a condition may have at that place,
-- and what is answered is written anew from them, with literals quoted by Postgres itself. So quoting tricks are data (S1). Whether the tokens
-- make sense together, and of which types they are, Postgres says when it is tried (condition_try).
--
-- One pass of a regular expression, which takes the longest token at each place, then one over the tokens: `v_open` are the brackets that
-- are open, by what they are for, `v_chain` the operators since the last AND, OR or comma at this level.

-- Refuses a part of a condition.
CREATE OR REPLACE FUNCTION {schema}.condition_refused(p_part text, p_reason text) RETURNS void LANGUAGE plpgsql IMMUTABLE
AS $body$
BEGIN
    RAISE EXCEPTION 'conditions_sql contains `%`: %',
        regexp_replace(left(p_part, 60), $re$[{unprintable}]$re$, ' ', 'g') || CASE WHEN length(p_part) > 60 THEN '…' ELSE '' END, p_reason
        USING ERRCODE = 'invalid_parameter_value';
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.condition_tokens(p_condition text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT
AS $body$
DECLARE
    c_token CONSTANT pg_catalog.text := $re$(\s+|--[^\n\r]*|/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/|'(?:[^']|'')*'|\$\$(?:[^$]|\$(?!\$))*\$\$|\$[0-9]+$re$
        || $re$|"(?:[^"]|"")*"|[A-Za-z_][A-Za-z0-9_$]*|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[-+*/<>=~!@#%^&|`?]+|::|.)$re$;
    c_columns_e CONSTANT pg_catalog.text[] := '{topic,object,payload,metadata,seq,id,occurred_at,recorded_at}';
    c_columns_s CONSTANT pg_catalog.text[] := '{params,id,group_id}';
    c_columns CONSTANT pg_catalog.text := 'e.topic, e.object, e.payload, e.metadata, e.seq, e.id, e.occurred_at, e.recorded_at, s.params, s.id, s.group_id';
    c_functions CONSTANT pg_catalog.text[] := '{coalesce,lower,upper,length,starts_with,abs,jsonb_build_array,jsonb_build_object,jsonb_typeof,'
        || 'jsonb_array_length,to_jsonb,hashtext}';
    c_types CONSTANT pg_catalog.text[] := '{text,integer,int,int4,bigint,int8,numeric,decimal,dec,float8,float,double,boolean,bool,jsonb,timestamptz,timestamp,uuid}';
    c_types_told CONSTANT pg_catalog.text := 'text, integer, bigint, numeric, float8, boolean, jsonb, timestamptz, uuid and arrays of them';
    c_keywords CONSTANT pg_catalog.text[] := '{and,or,not,is,"null",true,false,unknown,distinct,from,between,in,like,ilike,escape,any,some,all,case,when,then,else,end,array,cast,as}';
    c_operators CONSTANT pg_catalog.text[] := ARRAY['=', '<>', '!=', '<', '<=', '>', '>=', '->', '->>', '#>', '#>>', '@>', '<@', '?', '?|', '?&', '||', '+', '-', '*', '/', '%'];
    c_comparisons CONSTANT pg_catalog.text[] := ARRAY['=', '<>', '!=', '<', '<=', '>', '>='];
    v_raw pg_catalog.text[];
    v_tokens pg_catalog.text[] := '{}'; -- words in lower case, operators cut as Postgres cuts them
    v_kinds pg_catalog.text[] := '{}'; -- word, name (a quoted one), text, number, sign (an operator), mark (everything else)
    v_token pg_catalog.text;
    v_kind pg_catalog.text;
    v_base pg_catalog.text;
    v_count int;
    v_next pg_catalog.text;
    v_prev pg_catalog.text := '';
    v_before pg_catalog.text := ''; -- the one before that
    v_prev_kind pg_catalog.text := '';
    v_is_value boolean := false; -- does the token before end a value?
    v_type boolean := false; -- and does it end the name of a type?
    v_wants_type boolean;
    v_is_type boolean;
    v_open pg_catalog.text[] := '{}';
    v_prefixes int := 0;
    v_chain int := 0;
    v_sql pg_catalog.text[] := '{}';
BEGIN
    IF octet_length(p_condition) > 16384 THEN
        RAISE EXCEPTION 'conditions_sql has % bytes; at most 16384 are allowed: move lists into params', octet_length(p_condition)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    v_raw := ARRAY(SELECT m.t[1] FROM regexp_matches(p_condition, c_token, 'g') WITH ORDINALITY m(t, n) ORDER BY m.n);
    FOREACH v_token IN ARRAY v_raw LOOP
        CONTINUE WHEN v_token ~ $re$^(\s|--|/\*.*\*/$)$re$;
        IF v_token ~ '^[A-Za-z_]' THEN
            v_tokens := v_tokens || lower(v_token COLLATE "C");
            v_kinds := v_kinds || 'word'::text;
        ELSIF v_token ~ '^".' THEN
            v_tokens := v_tokens || v_token;
            v_kinds := v_kinds || 'name'::text;
        ELSIF v_token ~ $re$^('.|\$\$..)$re$ THEN
            -- What it says, after a quote: so it is like no word and no sign.
            v_tokens := v_tokens || ('''' || CASE WHEN v_token ~ '^''' THEN replace(substr(v_token, 2, length(v_token) - 2), '''''', '''')
                ELSE substr(v_token, 3, length(v_token) - 4) END);
            v_kinds := v_kinds || 'text'::text;
        ELSIF v_token ~ '^[.]?[0-9]' THEN
            v_tokens := v_tokens || v_token;
            v_kinds := v_kinds || 'number'::text;
        ELSIF v_token ~ '^[-+*/<>=~!@#%^&|`?]' THEN
            -- An operator that ends in a sign is two, unless it has a character that no operator of SQL itself has.
            v_base := CASE WHEN v_token <> ALL (c_operators) AND v_token !~ '[~!@#%^&|`?]' THEN rtrim(v_token, '+-') ELSE v_token END;
            IF v_base <> '' AND v_base <> ALL (c_operators) THEN
                PERFORM {schema}.condition_refused(v_token, 'there is no operator ' || v_token || ' in conditions'
                    || CASE WHEN v_token ~ '~' THEN '; use LIKE' ELSE '' END);
            END IF;
            v_tokens := v_tokens || array_remove(ARRAY[v_base], '') || array_remove(string_to_array(substr(v_token, length(v_base) + 1), NULL), '');
            v_kinds := v_kinds || array_fill('sign'::text, ARRAY[cardinality(v_tokens) - cardinality(v_kinds)]);
        ELSIF v_token IN ('(', ')', '[', ']', ',', '.', '::') THEN
            v_tokens := v_tokens || v_token;
            v_kinds := v_kinds || 'mark'::text;
        ELSE
            PERFORM {schema}.condition_refused(v_token, CASE
                WHEN v_token = ';' THEN 'a condition is one expression, not statements'
                WHEN v_token ~ '^[$][0-9]' THEN 'there are no placeholders; put values into params and read s.params'
                WHEN v_token IN ('''', '"') THEN 'the quote is not closed; a text stands in single quotes: ''like this'''
                ELSE 'this is not part of the language of conditions' END);
        END IF;
    END LOOP;
    v_count := cardinality(v_tokens);
    IF v_count = 0 THEN
        RAISE EXCEPTION 'conditions_sql is empty; write true to get every event' USING ERRCODE = 'invalid_parameter_value';
    ELSIF v_count > 4000 THEN
        RAISE EXCEPTION 'conditions_sql has % words and signs; at most 4000 are allowed', v_count USING ERRCODE = 'invalid_parameter_value';
    END IF;

    FOR i IN 1..v_count LOOP
        v_token := v_tokens[i];
        v_kind := v_kinds[i];
        v_next := coalesce(v_tokens[i + 1], '');
        v_wants_type := v_prev = '::' OR v_prev_kind = 'word' AND v_prev = 'as';
        v_is_type := false;
        IF v_wants_type AND NOT (v_kind = 'word' AND v_token = ANY (c_types)) THEN
            PERFORM {schema}.condition_refused(v_token, 'there is no such type here; there are ' || c_types_told);
        END IF;
        CASE v_kind
        WHEN 'word', 'name' THEN
            IF v_kind = 'name' THEN
                v_base := replace(substr(v_token, 2, length(v_token) - 2), '""', '"');
                IF NOT (v_prev = '.' OR v_base IN ('e', 's') AND v_next = '.') THEN
                    PERFORM {schema}.condition_refused(v_token,
                        'there is no such column; there are ' || c_columns || '. Text stands in single quotes: ''like this''');
                END IF;
                v_token := v_base;
            END IF;
            IF v_prev = '.' THEN
                IF v_token <> ALL (CASE v_before WHEN 'e' THEN c_columns_e ELSE c_columns_s END) THEN
                    PERFORM {schema}.condition_refused(v_before || '.' || v_token, 'there is no such column; there are ' || c_columns);
                END IF;
            ELSIF v_token IN ('e', 's') AND v_next = '.' THEN
                NULL;
            ELSIF v_token = ANY (c_types) AND (v_wants_type OR coalesce(v_kinds[i + 1], '') = 'text')
                OR v_token = 'precision' AND v_prev = 'double' AND v_type
                OR v_token = 'with' AND v_prev = 'timestamp' AND v_type
                OR v_token = 'time' AND v_prev = 'with' AND v_type OR v_token = 'zone' AND v_prev = 'time' AND v_type
                OR v_token IN ('double', 'timestamp') AND v_next IN ('precision', 'with') THEN
                IF v_token = 'double' AND v_next <> 'precision' OR v_token = 'timestamp' AND v_next <> 'with'
                    OR v_token = 'with' AND v_next <> 'time' OR v_token = 'time' AND v_next <> 'zone'
                    OR v_next = '(' AND v_token NOT IN ('numeric', 'decimal', 'dec') THEN
                    PERFORM {schema}.condition_refused(v_token || ' ' || v_next, 'there is no such type here; there are ' || c_types_told);
                END IF;
                v_is_type := true;
            ELSIF v_token = ANY (c_functions) AND v_next = '(' THEN
                NULL;
            ELSIF v_token = ANY (c_keywords) THEN
                IF v_token = 'distinct' AND NOT (v_prev = 'is' OR v_prev = 'not' AND v_before = 'is') OR v_token = 'distinct' AND v_next <> 'from' THEN
                    PERFORM {schema}.condition_refused(v_prev || ' ' || v_token, 'write IS [NOT] DISTINCT FROM, or a plain call: name(argument, …)');
                ELSIF v_token = 'from' AND v_prev <> 'distinct' THEN
                    PERFORM {schema}.condition_refused(v_prev || ' from', 'FROM stands after IS DISTINCT, and nowhere else');
                ELSIF v_token = 'as' AND coalesce(v_open[cardinality(v_open)], '') <> 'cast' THEN
                    PERFORM {schema}.condition_refused(v_prev || ' as', 'AS stands in CAST(value AS type), and nowhere else');
                ELSIF v_token IN ('like', 'ilike') AND v_next IN ('any', 'some', 'all') THEN
                    PERFORM {schema}.condition_refused(v_token || ' ' || v_next, 'there is no LIKE ANY; join several LIKE with OR');
                ELSIF v_token IN ('any', 'some', 'all') AND NOT (v_prev = ANY (c_comparisons) AND v_next = '(') THEN
                    PERFORM {schema}.condition_refused(v_prev || ' ' || v_token, 'only = <> < <= > >= go with ANY (…) and ALL (…)');
                ELSIF v_token = 'array' AND v_next <> '[' OR v_token IN ('in', 'cast') AND v_next <> '(' THEN
                    PERFORM {schema}.condition_refused(v_token || ' ' || v_next, 'write ARRAY[…], IN (…) and CAST(value AS type)');
                END IF;
            ELSE
                PERFORM {schema}.condition_refused(v_token, CASE
                    WHEN v_token IN ('select', 'exists', 'with', 'values', 'table')
                        THEN 'there are no subqueries; a condition sees one event (e) and one subscription (s)'
                    WHEN v_next = '(' OR v_next = '.' AND v_tokens[i + 3] = '('
                        THEN 'there is no such function here; there are ' || array_to_string(c_functions, ', ')
                    WHEN v_token = ANY (c_columns_e) THEN 'write e.' || v_token
                    WHEN v_token = ANY (c_columns_s) THEN 'write s.' || v_token
                    WHEN v_next = '.' THEN 'there is no such column; there are ' || c_columns
                    WHEN v_token = ANY (c_functions) THEN 'write a plain call: name(argument, …)'
                    ELSE 'this is not part of the language of conditions; columns are ' || c_columns
                        || ', and text stands in single quotes: ''like this''' END);
            END IF;
        WHEN 'mark' THEN
            CASE v_token
            WHEN '.' THEN
                IF NOT (v_prev_kind IN ('word', 'name') AND v_prev IN ('e', 's')) OR coalesce(v_kinds[i + 1], '') NOT IN ('word', 'name') THEN
                    PERFORM {schema}.condition_refused(v_prev || '.' || v_next, 'a dot stands between e or s and a column: ' || c_columns);
                END IF;
            WHEN '(' THEN
                IF v_is_value AND NOT (v_type AND v_prev IN ('numeric', 'decimal', 'dec')) THEN
                    PERFORM {schema}.condition_refused(v_prev || ' (', 'this is no function; there are ' || array_to_string(c_functions, ', '));
                END IF;
                v_open := v_open || CASE
                    WHEN v_type THEN 'type' WHEN v_prev = 'cast' THEN 'cast' WHEN v_prev = 'in' THEN 'list'
                    WHEN v_prev_kind = 'word' AND v_prev = ANY (c_functions) THEN 'list' ELSE 'group' END;
            WHEN '[' THEN
                IF v_prev = 'array' AND v_prev_kind = 'word' THEN
                    v_open := v_open || 'array'::text;
                ELSIF v_type AND v_next = ']' AND v_prev <> ')' THEN
                    v_is_type := true;
                ELSE
                    PERFORM {schema}.condition_refused(v_prev || '[', 'there are no subscripts; use -> and #>');
                END IF;
            WHEN ',' THEN
                IF coalesce(v_open[cardinality(v_open)], '') NOT IN ('list', 'array', 'type') THEN
                    PERFORM {schema}.condition_refused(v_prev || ',', 'a comma stands in a call, IN (…) or ARRAY[…]; there are no rows');
                END IF;
            WHEN ')', ']' THEN
                IF NOT (v_token = ']' AND v_prev = '[' AND v_type) THEN
                    v_base := coalesce(v_open[cardinality(v_open)], '');
                    IF v_base = '' OR (v_base = 'array') <> (v_token = ']') THEN
                        PERFORM {schema}.condition_refused(v_prev || ' ' || v_token, 'nothing is open that it could close');
                    END IF;
                    v_open := trim_array(v_open, 1);
                    v_is_type := v_base = 'type';
                END IF;
            ELSE
                NULL;
            END CASE;
        ELSE
            NULL;
        END CASE;
        IF v_kind = 'word' AND v_token = 'case' AND v_prev <> '.' THEN
            v_open := v_open || 'case'::text;
        ELSIF v_kind = 'word' AND v_token = 'end' AND v_prev <> '.' THEN
            IF coalesce(v_open[cardinality(v_open)], '') <> 'case' THEN
                PERFORM {schema}.condition_refused(v_prev || ' end', 'there is no CASE that it could end');
            END IF;
            v_open := trim_array(v_open, 1);
        END IF;
        IF v_kind = 'mark' AND v_token IN ('(', ')', '[', ']', ',')
            OR v_kind = 'word' AND v_token IN ('and', 'or', 'when', 'then', 'else', 'case', 'end') THEN
            v_chain := 0;
        ELSIF v_kind = 'sign' OR v_token = '::' THEN
            v_chain := v_chain + 1;
        END IF;
        v_prefixes := CASE WHEN v_token = 'not' OR v_kind = 'sign' AND v_token IN ('+', '-') AND NOT v_is_value THEN v_prefixes + 1 ELSE 0 END;
        IF cardinality(v_open) + v_prefixes > 40 OR v_chain > 80 THEN
            RAISE EXCEPTION 'conditions_sql is nested more than 40 levels deep; make it flatter' USING ERRCODE = 'invalid_parameter_value';
        END IF;

        v_sql := v_sql || CASE
            WHEN v_kind = 'text' THEN quote_literal(substr(v_token, 2))
            -- These two have the same precedence in either form; the others would lose theirs.
            WHEN v_kind = 'sign' AND v_token IN ('->>', '#>>') THEN format('OPERATOR(%I.%s)', {schema_text}, v_token)
            WHEN v_is_type AND v_token = 'text' THEN format('%I.condition_text', {schema_text})
            WHEN v_kind = 'word' AND v_token IN ('lower', 'upper') AND v_next = '(' THEN format('%I.condition_%s', {schema_text}, v_token)
            ELSE v_token END;
        v_is_value := v_kind IN ('text', 'number', 'name') OR v_kind = 'mark' AND v_token IN (')', ']')
            OR v_kind = 'word' AND (v_prev = '.' OR v_is_type OR v_token IN ('null', 'true', 'false', 'unknown', 'end'));
        v_type := v_is_type;
        v_before := v_prev;
        v_prev := v_token;
        v_prev_kind := v_kind;
    END LOOP;
    IF cardinality(v_open) > 0 THEN
        PERFORM {schema}.condition_refused(v_token, 'something that was opened before it is not closed: ' || v_open[cardinality(v_open)]);
    END IF;
    RETURN v_sql;
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.condition_sql(p_condition text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT
AS $body$
BEGIN
    RETURN array_to_string({schema}.condition_tokens(p_condition), ' ');
END
$body$;
