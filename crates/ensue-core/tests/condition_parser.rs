//! Bounds of what reading a condition costs: hostile texts neither exhaust the stack nor take exponential time.

use ensue_core::condition::{Condition, DEPTH_MAX, SOURCE_BYTES_MAX, TOKENS_MAX};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The stack of a worker thread of tokio.
const STACK_BYTES: usize = 2 << 20;
/// Far more than any condition within the limits takes, even in a debug build on a busy machine.
const DEADLINE: Duration = Duration::from_secs(10);

/// Parses each text on a small stack; panics with the first text that takes too long.
#[track_caller]
fn are_read_in_time(sources: impl IntoIterator<Item = String>) {
    let sources: Vec<String> = sources.into_iter().collect();
    assert!(!sources.is_empty());
    let (sender, receiver) = mpsc::channel();
    let parsed = sources.clone();
    let parse = move || {
        for source in parsed {
            let is_read = Condition::parse(&source).is_ok();
            if sender.send(is_read).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().stack_size(STACK_BYTES).spawn(parse).unwrap();
    for source in sources {
        receiver.recv_timeout(DEADLINE).unwrap_or_else(|error| panic!("{error}: {source:.200}"));
    }
}

fn nested(open: &str, atom: &str, close: &str, levels: usize) -> String {
    format!("{}{atom}{}", open.repeat(levels), close.repeat(levels))
}

/// The words, signs and literals of the language.
const PARTS: &[&str] = &[
    "and",
    "or",
    "not",
    "is",
    "null",
    "true",
    "false",
    "unknown",
    "distinct",
    "from",
    "between",
    "in",
    "like",
    "ilike",
    "escape",
    "any",
    "some",
    "all",
    "case",
    "when",
    "then",
    "else",
    "end",
    "array",
    "cast",
    "as",
    "coalesce",
    "lower",
    "upper",
    "length",
    "starts_with",
    "abs",
    "jsonb_build_array",
    "jsonb_build_object",
    "jsonb_typeof",
    "jsonb_array_length",
    "to_jsonb",
    "hashtext",
    "text",
    "integer",
    "int",
    "int4",
    "bigint",
    "int8",
    "numeric",
    "decimal",
    "dec",
    "float8",
    "float",
    "double precision",
    "boolean",
    "bool",
    "jsonb",
    "timestamptz",
    "timestamp with time zone",
    "uuid",
    "=",
    "<>",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "->",
    "->>",
    "#>",
    "#>>",
    "@>",
    "<@",
    "?",
    "?|",
    "?&",
    "||",
    "+",
    "-",
    "*",
    "/",
    "%",
    "::",
    "(",
    ")",
    "[",
    "]",
    ",",
    ".",
    "e.topic",
    "e",
    "s",
    "'a'",
    "1",
    "$$a$$",
];

/// Words of SQL that conditions do not have.
const OTHER_WORDS: &[&str] = &[
    "select",
    "with",
    "exists",
    "values",
    "table",
    "join",
    "position",
    "extract",
    "substring",
    "trim",
    "overlay",
    "interval",
    "ceil",
    "floor",
    "convert",
    "try_cast",
    "struct",
    "map",
    "lambda",
    "row",
    "exists",
    "xmlelement",
    "if",
    "current_time",
    "over",
    "filter",
    "within group",
    "collate",
    "at time zone",
    "similar to",
    "regexp",
    "operator",
    "date",
    "current_date",
    "match",
    "prior",
    "box",
    "overlaps",
    "union",
    "lateral",
    "unnest",
    "json_object",
    "group by",
    "grouping sets",
    "cube",
    "rollup",
    "listagg",
];

#[test]
fn joins_do_not_exhaust_the_stack() {
    are_read_in_time([format!("(SELECT 1 FROM a{})", " JOIN a".repeat(350))]);
}

#[test]
fn nested_positions_do_not_take_exponential_time() {
    // The parser's own limit ends the deepest of them early.
    let closings = [" IN 'b')", ")"];
    are_read_in_time(closings.into_iter().flat_map(|close| {
        (1..DEPTH_MAX).rev().map(move |levels| format!("{} = 1", nested("POSITION(", "'a' IN 'b'", close, levels)))
    }));
}

#[test]
fn every_word_is_read_in_time_however_it_is_nested_or_chained() {
    let mut sources = Vec::new();
    for word in PARTS.iter().chain(OTHER_WORDS) {
        for levels in [DEPTH_MAX * 3 / 5, DEPTH_MAX - 1] {
            for open in [format!("{word} ("), format!("{word} [("), format!("{word} "), format!("({word} ")] {
                for (atom, close) in [("1", ")"), ("1", " in 'b')"), ("1", ""), ("e.topic", " as text)"), ("", "]")] {
                    sources.push(nested(&open, atom, close, levels));
                }
            }
        }
        for chained in [format!("{word} "), format!("1 {word} "), format!(" {word} e.topic,"), format!("({word}) ")] {
            let times = (TOKENS_MAX / 2).min((SOURCE_BYTES_MAX - 10) / chained.len());
            sources.push(format!("{}1", chained.repeat(times)));
            sources.push(format!("1 {}", chained.repeat(times)));
        }
    }
    are_read_in_time(sources);
}

/// Random parts, nested to the limits: what no list of known attacks has.
#[test]
fn random_texts_are_read_in_time() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |count: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % count as u64).unwrap()
    };
    let mut text = |parts_max: usize, also: usize| {
        let count = below(parts_max + 1);
        let mut pick = || {
            let at = below(PARTS.len() + also);
            PARTS.get(at).copied().unwrap_or_else(|| OTHER_WORDS[at - PARTS.len()])
        };
        (0..count).map(|_| pick()).collect::<Vec<_>>().join(" ")
    };
    let sources = (0..6_000).map(|round| {
        let also = if round % 4 == 0 { OTHER_WORDS.len() } else { 0 };
        let (before, after, atom) = (text(4, also), text(4, also), text(2, also));
        let bracket = if round % 7 == 0 { "" } else { "(" };
        let close = if bracket.is_empty() { "" } else { ")" };
        let levels = [DEPTH_MAX - 1, DEPTH_MAX * 3 / 5, 200][round % 3];
        nested(&format!("{before} {bracket} "), &atom, &format!(" {after} {close} "), levels)
    });
    are_read_in_time(sources.collect::<Vec<_>>());
}

#[test]
fn words_that_conditions_do_not_have_are_named() {
    for (source, words) in [
        ("(SELECT 1 FROM a JOIN a) = 1", "`SELECT`: there are no subqueries"),
        ("POSITION('a' IN 'b') = 1", "`POSITION('a' IN 'b')`: there is no such function"),
        ("upcase(e.topic) = 'A'", "`upcase(e.topic)`: there is no such function here"),
        ("\"lower\"(e.topic) = 'a'", "there is no such function here"),
        ("e.lower(e.topic) = 'a'", "there is no such function here"),
        ("object = 'a'", "`object`: write e.object"),
        ("e.case = 'a'", "`e.case`: there is no such column"),
        ("e.topic FROM 'a'", "`FROM`: FROM is only in IS [NOT] DISTINCT FROM"),
        ("e.topic DISTINCT FROM 'a'", "write IS [NOT] DISTINCT FROM"),
        ("ARRAY(1) IS NULL", "write ARRAY[…]"),
        ("e.occurred_at AT TIME ZONE 'UTC' IS NULL", "`AT`: AT is not part of the language of conditions"),
        ("e.seq & 1 = 1", "no operator &"),
        ("e.seq == 1", "no operator =="),
        ("e.topic = X'41'", "text in single quotes"),
        ("(e.payload->>'n')::float(3) > 1", "no such type"),
        ("{d '2026-01-01'} IS NULL", "`{`"),
    ] {
        let refusal = Condition::parse(source).map(|_| ()).expect_err(source);
        assert!(refusal.reason.contains(words), "{source}: {}", refusal.reason);
    }
    for source in [
        "timestamptz '2026-01-31' < e.occurred_at",
        "timestamp with time zone '2026-01-31' < e.occurred_at",
        "e.occurred_at::timestamp with time zone IS NOT NULL",
        "CAST(e.payload->'n' AS double precision) > 1",
        "ARRAY[]::double precision[] IS NULL",
        "e.\"object\" IS NOT NULL AND \"e\".topic = SOME (ARRAY['a'])",
        "CASE (e.seq) WHEN (1) THEN (true) ELSE (false) END",
        "(1.5)::numeric(3,1) > (1)::dec(1)",
        "NOT (true) AND (true) OR (false)",
        "e.seq BETWEEN (1) AND (2) AND e.topic LIKE ('a') ESCAPE ('!')",
    ] {
        Condition::parse(source).unwrap_or_else(|refusal| panic!("{source}: {refusal}"));
    }
}
