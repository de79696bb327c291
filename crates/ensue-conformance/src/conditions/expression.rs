//! Which expressions are tried?

use super::row::{KEYS, TEXTS};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// May the expression leave open in which order, and whether, its parts are evaluated?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// AND, OR, IN and constants anywhere: where one side fails, the other may have stopped before.
    Open,
    /// Only CASE decides what is evaluated, and what can fail reads a column: both sides fail, or none.
    Forced,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Int4,
    Int8,
    Numeric,
    Float8,
    Text,
    Jsonb,
    Time,
    Uuid,
}

const KINDS: [Kind; 9] =
    [Kind::Bool, Kind::Int4, Kind::Int8, Kind::Numeric, Kind::Float8, Kind::Text, Kind::Jsonb, Kind::Time, Kind::Uuid];
const NUMBERS: [Kind; 4] = [Kind::Int4, Kind::Int8, Kind::Numeric, Kind::Float8];

/// A source of expressions from one seed.
pub struct Expressions {
    rng: StdRng,
    order: Order,
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "boolean",
        Kind::Int4 => "int",
        Kind::Int8 => "bigint",
        Kind::Numeric => "numeric",
        Kind::Float8 => "float8",
        Kind::Text => "text",
        Kind::Jsonb => "jsonb",
        Kind::Time => "timestamptz",
        Kind::Uuid => "uuid",
    }
}

impl Expressions {
    /// A source of expressions.
    pub fn new(seed: u64, order: Order) -> Self {
        Self { rng: StdRng::seed_from_u64(seed), order }
    }

    /// The next expression, of any type.
    pub fn next_expression(&mut self) -> String {
        let kind = if self.rng.random_bool(0.6) { Kind::Bool } else { *KINDS.choose(&mut self.rng).expect("kinds") };
        let depth = self.rng.random_range(1..5);
        self.make(kind, depth)
    }

    fn pick<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all.choose(&mut self.rng).expect("something to pick from")
    }

    fn open(&self) -> bool {
        self.order == Order::Open
    }

    /// Parentheses around most operands; without them, precedence decides on both sides.
    fn operand(&mut self, kind: Kind, depth: usize) -> String {
        let text = self.make(kind, depth);
        let bare = text.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '\''));
        if bare || (self.open() && self.rng.random_bool(0.08)) { text } else { format!("({text})") }
    }

    fn make(&mut self, kind: Kind, depth: usize) -> String {
        if depth == 0 {
            return self.leaf(kind);
        }
        match self.rng.random_range(0..14) {
            0 => return self.case(kind, depth - 1),
            1 if self.open() => {
                let (a, b) = (self.operand(kind, depth - 1), self.operand(kind, depth - 1));
                return format!("COALESCE({a}, {b})");
            }
            2 => return self.leaf(kind),
            _ => {}
        }
        match kind {
            Kind::Bool => self.boolean(depth - 1),
            Kind::Int4 | Kind::Int8 | Kind::Numeric | Kind::Float8 => self.number(kind, depth - 1),
            Kind::Text => self.text(depth - 1),
            Kind::Jsonb => self.jsonb(depth - 1),
            Kind::Time | Kind::Uuid => self.cast(kind, depth - 1),
        }
    }

    fn case(&mut self, kind: Kind, depth: usize) -> String {
        let (then, otherwise) = (self.operand(kind, depth), self.operand(kind, depth));
        if self.rng.random_bool(0.3) {
            let by = *KINDS.choose(&mut self.rng).expect("kinds");
            let (operand, when) = (self.operand(by, depth), self.operand(by, depth));
            return format!("CASE {operand} WHEN {when} THEN {then} ELSE {otherwise} END");
        }
        let when = self.operand(Kind::Bool, depth);
        if self.rng.random_bool(0.3) {
            return format!("CASE WHEN {when} THEN {then} END");
        }
        format!("CASE WHEN {when} THEN {then} ELSE {otherwise} END")
    }

    fn column(&mut self, kind: Kind) -> Option<&'static str> {
        match kind {
            Kind::Text => Some(self.pick(&["e.topic", "e.object", "s.group_id"])),
            Kind::Jsonb => Some(self.pick(&["e.payload", "e.payload", "e.metadata", "s.params"])),
            Kind::Int8 => Some("e.seq"),
            Kind::Uuid => Some(self.pick(&["e.id", "s.id"])),
            Kind::Time => Some(self.pick(&["e.occurred_at", "e.recorded_at"])),
            Kind::Bool | Kind::Int4 | Kind::Numeric | Kind::Float8 => None,
        }
    }

    fn leaf(&mut self, kind: Kind) -> String {
        if let Some(column) = self.column(kind)
            && (!self.open() || self.rng.random_bool(0.6))
        {
            return column.into();
        }
        if !self.open() {
            return match kind {
                Kind::Bool => format!("{} = {}", "e.topic", quoted(self.pick(&TEXTS))),
                Kind::Int4 => "length(e.topic)".into(),
                Kind::Numeric => "e.seq::numeric".into(),
                Kind::Float8 => "e.seq::float8".into(),
                Kind::Int8 | Kind::Text | Kind::Jsonb | Kind::Time | Kind::Uuid => "e.seq".into(),
            };
        }
        if self.rng.random_bool(0.05) {
            return "NULL".into();
        }
        match kind {
            Kind::Bool => self.pick(&["true", "false", "'yes'", "e.seq > 4", "e.object IS NULL"]).into(),
            Kind::Int4 => self.pick(&["0", "1", "-1", "2", "7", "2147483647", "-2147483648", "'3'::int"]).into(),
            Kind::Int8 => self.pick(&["0::bigint", "5::int8", "2147483648", "-9223372036854775808"]).into(),
            Kind::Numeric => self
                .pick(&["0.0", "1.50", "-2.5", "1e3", ".5", "'NaN'::numeric", "12345678901234567890", "0.001"])
                .into(),
            Kind::Float8 => {
                self.pick(&["1.5::float8", "'-0'::float8", "1e20::float8", "'inf'::float8", "0.1::float8"]).into()
            }
            Kind::Text => quoted(self.pick(&TEXTS)),
            Kind::Jsonb => {
                let json = self.pick(&[
                    "{}",
                    "[]",
                    "1",
                    "null",
                    "\"a\"",
                    "{\"a\": 1}",
                    "[1, \"a\"]",
                    "1.0",
                    "{\"kind\": \"a\"}",
                ]);
                format!("'{json}'::jsonb")
            }
            Kind::Time => self.pick(&["'2026-01-31'::timestamptz", "'1999-12-31 23:59:59.5+02'::timestamptz"]).into(),
            Kind::Uuid => "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid".into(),
        }
    }

    /// A constant that may stand beside a column without making anything fail ahead of time.
    fn literal(&mut self, kind: Kind) -> String {
        match kind {
            Kind::Int4 => self.pick(&["0", "1", "-1", "2", "3", "7"]).into(),
            Kind::Int8 => self.pick(&["0", "1", "-1", "2147483648"]).into(),
            Kind::Numeric => self.pick(&["0.0", "1.50", "-2.5", "1e3", "3"]).into(),
            Kind::Float8 => self.pick(&["1.5", "2", "-3", "0"]).into(),
            Kind::Bool | Kind::Text | Kind::Jsonb | Kind::Time | Kind::Uuid => self.leaf(kind),
        }
    }

    fn boolean(&mut self, depth: usize) -> String {
        let open = self.open();
        match self.rng.random_range(0..18) {
            0..=3 => self.comparison(depth),
            4 | 5 if open => {
                let (a, b) = (self.operand(Kind::Bool, depth), self.operand(Kind::Bool, depth));
                let op = self.pick(&["AND", "OR"]);
                format!("{a} {op} {b}")
            }
            6 => format!("NOT {}", self.operand(Kind::Bool, depth)),
            7 => {
                let kind = *KINDS.choose(&mut self.rng).expect("kinds");
                let not = self.pick(&["IS NULL", "IS NOT NULL"]);
                format!("{} {not}", self.operand(kind, depth))
            }
            8 => {
                let is =
                    self.pick(&["IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN", "IS NOT UNKNOWN"]);
                format!("{} {is}", self.operand(Kind::Bool, depth))
            }
            9 => {
                let kind = *KINDS.choose(&mut self.rng).expect("kinds");
                let (a, b) = (self.operand(kind, depth), self.operand(kind, depth));
                let not = self.pick(&["", "NOT "]);
                format!("{a} IS {not}DISTINCT FROM {b}")
            }
            10 if open => self.membership(depth),
            11 => self.like(depth),
            12 => {
                let (a, b) = (self.operand(Kind::Jsonb, depth), self.operand(Kind::Jsonb, depth));
                let op = self.pick(&["@>", "<@"]);
                format!("{a} {op} {b}")
            }
            13 => {
                let value = self.operand(Kind::Jsonb, depth);
                let key = self.pick(&KEYS);
                match self.rng.random_range(0..3) {
                    0 => format!("{value} ? {}", quoted(key)),
                    1 => format!("{value} ?| ARRAY[{}, 'a']", quoted(key)),
                    _ => format!("{value} ?& {}", self.pick(&["'{a,n}'", "ARRAY['a', NULL]", "ARRAY['kind']"])),
                }
            }
            14 => {
                let (a, b) = (self.operand(Kind::Text, depth), self.operand(Kind::Text, depth));
                format!("starts_with({a}, {b})")
            }
            15 => self.cast(Kind::Bool, depth),
            _ => self.comparison(depth),
        }
    }

    fn comparison(&mut self, depth: usize) -> String {
        let op = self.pick(&["=", "<>", "!=", "<", "<=", ">", ">="]);
        let kind = *KINDS.choose(&mut self.rng).expect("kinds");
        let other = if NUMBERS.contains(&kind) { *NUMBERS.choose(&mut self.rng).expect("numbers") } else { kind };
        let a = self.operand(kind, depth);
        let b = if self.rng.random_bool(0.3) { self.literal(other) } else { self.operand(other, depth) };
        format!("{a} {op} {b}")
    }

    fn membership(&mut self, depth: usize) -> String {
        let kind = *KINDS.choose(&mut self.rng).expect("kinds");
        let operand = self.operand(kind, depth);
        let not = self.pick(&["", "", "NOT "]);
        let kind_of = |this: &mut Self| {
            if NUMBERS.contains(&kind) { *NUMBERS.choose(&mut this.rng).expect("numbers") } else { kind }
        };
        match self.rng.random_range(0..3) {
            0 => {
                let items: Vec<String> = (0..self.rng.random_range(1..4))
                    .map(|_| {
                        let kind = kind_of(self);
                        if self.rng.random() { self.leaf(kind) } else { self.operand(kind, depth) }
                    })
                    .collect();
                format!("{operand} {not}IN ({})", items.join(", "))
            }
            1 => {
                let (low, high) = (kind_of(self), kind_of(self));
                let (low, high) = (self.operand(low, depth), self.operand(high, depth));
                // The parser takes no comparison without parentheses here, where Postgres would.
                format!("{operand} {not}BETWEEN ({low}) AND {high}")
            }
            _ => {
                let (op, all) = (self.pick(&["=", "<>", "<", ">="]), self.pick(&["ANY", "ALL", "SOME"]));
                let items: Vec<String> = (0..self.rng.random_range(1..4)).map(|_| self.leaf(kind)).collect();
                format!("{operand} {op} {all} (ARRAY[{}]::{}[])", items.join(", "), name(kind))
            }
        }
    }

    fn like(&mut self, depth: usize) -> String {
        let operand = self.operand(Kind::Text, depth);
        let op = self.pick(&["LIKE", "ILIKE", "NOT LIKE", "NOT ILIKE"]);
        let pattern =
            self.pick(&["%", "a%", "%a", "%r%", "_", "a_", "ORDER%", "%\\_%", "a\\", "%\\", "x\\%y", "", "%%_", "!%%"]);
        let escape = self.pick(&["", "", "", " ESCAPE '!'", " ESCAPE ''"]);
        format!("{operand} {op} {}{escape}", quoted(pattern))
    }

    fn number(&mut self, kind: Kind, depth: usize) -> String {
        match self.rng.random_range(0..8) {
            0..=2 => {
                let ops: &[&str] =
                    if kind == Kind::Float8 { &["+", "-", "*", "/"] } else { &["+", "-", "*", "/", "%"] };
                let op = self.pick(ops);
                let (a, b) = (self.operand(kind, depth), self.operand(kind, depth));
                let b = if self.rng.random_bool(0.4) { self.literal(kind) } else { b };
                let text = if self.rng.random() { format!("{a} {op} {b}") } else { format!("{b} {op} {a}") };
                format!("({text})::{}", name(kind))
            }
            3 => format!("- {}", self.operand(kind, depth)),
            4 => format!("abs({})", self.operand(kind, depth)),
            5 if kind == Kind::Int4 => {
                let text = self.operand(Kind::Text, depth);
                match self.rng.random_range(0..3) {
                    0 => format!("length({text})"),
                    1 => format!("hashtext({text})"),
                    _ => format!("jsonb_array_length({})", self.operand(Kind::Jsonb, depth)),
                }
            }
            5 if kind == Kind::Numeric => {
                let fit = self.pick(&["numeric(5,2)", "numeric(3)", "numeric(30,10)"]);
                format!("{}::{fit}", self.operand(Kind::Numeric, depth))
            }
            _ => self.cast(kind, depth),
        }
    }

    /// A cast from some type that has one to this type.
    fn cast(&mut self, to: Kind, depth: usize) -> String {
        let from: &[Kind] = match to {
            Kind::Bool => &[Kind::Text, Kind::Jsonb, Kind::Int4],
            Kind::Int4 => &[Kind::Text, Kind::Jsonb, Kind::Bool, Kind::Int8, Kind::Numeric, Kind::Float8],
            Kind::Int8 => &[Kind::Text, Kind::Jsonb, Kind::Int4, Kind::Numeric, Kind::Float8],
            Kind::Numeric => &[Kind::Text, Kind::Jsonb, Kind::Int4, Kind::Int8, Kind::Float8],
            Kind::Float8 => &[Kind::Text, Kind::Jsonb, Kind::Int4, Kind::Int8, Kind::Numeric],
            Kind::Text => &KINDS,
            Kind::Jsonb | Kind::Time | Kind::Uuid => &[Kind::Text],
        };
        let from = *from.choose(&mut self.rng).expect("kinds");
        let operand = self.operand(from, depth);
        if self.rng.random_bool(0.2) {
            return format!("CAST({operand} AS {})", name(to));
        }
        let operand = if operand.starts_with('\'') || operand.contains('.') { format!("({operand})") } else { operand };
        format!("{operand}::{}", name(to))
    }

    fn text(&mut self, depth: usize) -> String {
        match self.rng.random_range(0..9) {
            0..=2 => {
                let value = self.operand(Kind::Jsonb, depth);
                let key = self.pick(&KEYS);
                match self.rng.random_range(0..4) {
                    0 => format!("{value} ->> {}", self.pick(&["0", "-1", "1"])),
                    1 => format!(
                        "{value} #>> {}",
                        self.pick(&["'{a,b}'", "'{}'", "'{list,0}'", "ARRAY['a', 'n']", "'{0,-1}'"])
                    ),
                    _ => format!("{value} ->> {}", quoted(key)),
                }
            }
            3 => {
                let kind = *KINDS.choose(&mut self.rng).expect("kinds");
                let (a, b) = (self.operand(Kind::Text, depth), self.operand(kind, depth));
                if self.rng.random() { format!("{a} || {b}") } else { format!("{b} || {a}") }
            }
            4 => {
                let function = self.pick(&["lower", "upper"]);
                format!("{function}({})", self.operand(Kind::Text, depth))
            }
            5 => format!("jsonb_typeof({})", self.operand(Kind::Jsonb, depth)),
            _ => self.cast(Kind::Text, depth),
        }
    }

    fn jsonb(&mut self, depth: usize) -> String {
        match self.rng.random_range(0..9) {
            0..=2 => {
                let value = self.operand(Kind::Jsonb, depth);
                let key = self.pick(&KEYS);
                match self.rng.random_range(0..4) {
                    0 => format!("{value} -> {}", self.pick(&["0", "-1", "1"])),
                    1 => {
                        format!("{value} #> {}", self.pick(&["'{a}'", "'{}'", "'{list,-1}'", "'{a,NULL}'", "'{1,a}'"]))
                    }
                    _ => format!("{value} -> {}", quoted(key)),
                }
            }
            3 => {
                let (a, b) = (self.operand(Kind::Jsonb, depth), self.operand(Kind::Jsonb, depth));
                format!("{a} || {b}")
            }
            4 | 5 => {
                let (first, second) = (self.pick(&KEYS), self.pick(&KEYS));
                let (a, b) =
                    (*KINDS.choose(&mut self.rng).expect("kinds"), *KINDS.choose(&mut self.rng).expect("kinds"));
                let (a, b) = (self.operand(a, depth), self.operand(b, depth));
                format!("jsonb_build_object({}, {a}, {}, {b})", quoted(first), quoted(second))
            }
            6 => {
                let kind = *KINDS.choose(&mut self.rng).expect("kinds");
                let function = self.pick(&["to_jsonb", "jsonb_build_array"]);
                format!("{function}({})", self.operand(kind, depth))
            }
            7 => self.leaf(Kind::Jsonb),
            _ => self.cast(Kind::Jsonb, depth),
        }
    }
}
