//! Tokens of a condition.
//!
//! The parser reads all of SQL, and some of that takes exponential time or an unbounded stack. So it is given only tokens of the
//! language of conditions: a word, a sign or a literal that is not in these lists is refused before anything is parsed.
//! `fn_condition_sql.sql` has the same lists for conditions that Postgres evaluates.

use super::expr::{Column, Function};
use super::source::{DEPTH_MAX, TOKENS_MAX, refused, refused_part, too_deep};
use crate::error::Invalid;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Word};

/// Words that are neither functions nor types.
const KEYWORDS: &[&str] = &[
    "all", "and", "any", "array", "as", "between", "case", "cast", "distinct", "else", "end", "escape", "false",
    "from", "ilike", "in", "is", "like", "not", "null", "or", "some", "then", "true", "unknown", "when",
];
/// Types, by the first word of their names.
const TYPES: &[&str] = &[
    "bigint",
    "bool",
    "boolean",
    "dec",
    "decimal",
    "double",
    "float",
    "float8",
    "int",
    "int4",
    "int8",
    "integer",
    "jsonb",
    "numeric",
    "text",
    "timestamp",
    "timestamptz",
    "uuid",
];
/// Further words of the names of types, each with the word before it.
const TYPE_WORDS: &[(&str, &str)] =
    &[("double", "precision"), ("timestamp", "with"), ("with", "time"), ("time", "zone")];
/// Types that may have a precision and a scale.
const TYPES_WITH_PRECISION: &[&str] = &["dec", "decimal", "numeric"];

/// The tokens of a text, if all of them are of the language and at a place where they may be.
pub(super) fn tokens(source: &str) -> Result<Vec<TokenWithSpan>, Invalid> {
    let mut tokens = Tokenizer::new(&PostgreSqlDialect {}, source)
        .tokenize_with_location()
        .map_err(|error| refused(format!("cannot be read: {error}")))?;
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let tokens: Vec<TokenWithSpan> = tokens.into_iter().flat_map(without_sign).collect();
    if tokens.is_empty() {
        return Err(refused("is empty; write `true` to get every event"));
    }
    if tokens.len() > TOKENS_MAX {
        let reason = format!("has {} words and signs; at most {TOKENS_MAX} are allowed", tokens.len());
        return Err(refused(reason));
    }
    check_depth(&tokens)?;
    let text = Text { source, tokens: &tokens };
    (0..tokens.len()).try_for_each(|at| text.check(at))?;
    Ok(tokens)
}

/// An operator that ends in a sign is two tokens, `->-1` as in Postgres, unless it has a character that no operator of
/// SQL itself has.
fn without_sign(token: TokenWithSpan) -> Vec<TokenWithSpan> {
    let Token::CustomBinaryOperator(operator) = &token.token else { return vec![token] };
    let base = operator.trim_end_matches(['+', '-']);
    if base.is_empty() || operator.contains(['~', '!', '@', '#', '%', '^', '&', '|', '`', '?']) {
        return vec![token];
    }
    let spanned = |found: Token| TokenWithSpan { token: found, span: token.span };
    match Tokenizer::new(&PostgreSqlDialect {}, base).tokenize() {
        Ok(tokens) => {
            let signs = operator[base.len()..].chars().map(|sign| if sign == '-' { Token::Minus } else { Token::Plus });
            tokens.into_iter().chain(signs).map(spanned).collect()
        }
        Err(_) => vec![token],
    }
}

/// May it stand before a value any number of times?
fn is_prefix(token: &Token) -> bool {
    match token {
        Token::Minus | Token::Plus => true,
        Token::Word(word) => word.keyword == Keyword::NOT,
        _ => false,
    }
}

/// Bounds the levels of brackets, CASE and prefixes.
fn check_depth(tokens: &[TokenWithSpan]) -> Result<(), Invalid> {
    let (mut depth, mut prefixes) = (0_usize, 0_usize);
    for token in tokens {
        prefixes = if is_prefix(&token.token) { prefixes + 1 } else { 0 };
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace => depth = depth.saturating_sub(1),
            Token::Word(word) if word.keyword == Keyword::CASE => depth += 1,
            Token::Word(word) if word.keyword == Keyword::END => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth + prefixes > DEPTH_MAX {
            return Err(too_deep());
        }
    }
    Ok(())
}

/// A name as Postgres reads it: without quotes in lower case.
fn folded(word: &Word) -> String {
    if word.quote_style.is_some() { word.value.clone() } else { word.value.to_ascii_lowercase() }
}

/// Why a column is not there, and what to write instead. The names are those that are separated by points.
pub(super) fn no_such_column(names: &[String]) -> String {
    let near = match names {
        [name] => Column::ALL.into_iter().find(|column| column.name().1 == name),
        _ => None,
    };
    match near {
        Some(column) => format!("write {}.{}", column.name().0, column.name().1),
        None => {
            let all = Column::ALL.map(|column| format!("{}.{}", column.name().0, column.name().1)).join(", ");
            format!("there is no such column; there are {all}. Text stands in single quotes: 'like this'")
        }
    }
}

/// Why a function is not there.
pub(super) fn no_such_function() -> String {
    let all = Function::ALL.map(Function::name).join(", ");
    format!("there is no such function here; write a plain call, name(argument, …), of coalesce, {all}")
}

/// Why a type is not there.
pub(super) const NO_SUCH_TYPE: &str = "there is no such type here; there are text, integer, bigint, numeric, float8, boolean, \
                                       jsonb, timestamptz, uuid and arrays of them";

fn is_comparison(token: Option<&Token>) -> bool {
    matches!(token, Some(Token::Eq | Token::Neq | Token::Lt | Token::LtEq | Token::Gt | Token::GtEq))
}

struct Text<'t> {
    source: &'t str,
    tokens: &'t [TokenWithSpan],
}

impl Text<'_> {
    fn token(&self, at: usize) -> Option<&Token> {
        self.tokens.get(at).map(|token| &token.token)
    }

    fn before(&self, at: usize) -> Option<&Token> {
        self.token(at.checked_sub(1)?)
    }

    /// A word without quotes, in lower case; empty for everything else.
    fn word(&self, at: Option<usize>) -> String {
        match at.and_then(|at| self.token(at)) {
            Some(Token::Word(word)) if word.quote_style.is_none() => folded(word),
            _ => String::new(),
        }
    }

    /// The text from one token to another.
    fn part(&self, first: usize, last: usize) -> &str {
        let offset = |wanted: Location| {
            let (mut line, mut column) = (1, 1);
            for (offset, character) in self.source.char_indices() {
                if (line, column) == (wanted.line, wanted.column) {
                    return offset;
                }
                (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
            }
            self.source.len()
        };
        let last = last.min(self.tokens.len() - 1);
        self.source.get(offset(self.tokens[first].span.start)..offset(self.tokens[last].span.end)).unwrap_or_default()
    }

    /// The place of the parenthesis that closes one.
    fn closing(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for (at, token) in self.tokens.iter().enumerate().skip(open) {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen if depth <= 1 => return at,
                Token::RParen => depth -= 1,
                _ => {}
            }
        }
        self.tokens.len() - 1
    }

    fn check(&self, at: usize) -> Result<(), Invalid> {
        match &self.tokens[at].token {
            Token::Word(word) => self.check_word(at, word),
            Token::Eq | Token::Neq | Token::Lt | Token::LtEq | Token::Gt | Token::GtEq => Ok(()),
            Token::Arrow | Token::LongArrow | Token::HashArrow | Token::HashLongArrow => Ok(()),
            Token::AtArrow | Token::ArrowAt | Token::Question | Token::QuestionPipe | Token::QuestionAnd => Ok(()),
            Token::StringConcat | Token::Plus | Token::Minus | Token::Mul | Token::Div | Token::Mod => Ok(()),
            Token::DoubleColon => match self.word(Some(at + 1)) {
                word if TYPES.contains(&word.as_str()) => Ok(()),
                _ => Err(refused_part(self.part(at, at + 1), NO_SUCH_TYPE)),
            },
            Token::Number(_, false) | Token::SingleQuotedString(_) | Token::DollarQuotedString(_) => Ok(()),
            Token::LParen | Token::RParen | Token::RBracket | Token::Comma | Token::Period => Ok(()),
            Token::LBracket => {
                let before = self.word(at.checked_sub(1));
                let is_type = self.token(at + 1) == Some(&Token::RBracket)
                    && (TYPES.contains(&before.as_str()) || TYPE_WORDS.iter().any(|(_, word)| *word == before));
                if before == "array" || is_type {
                    return Ok(());
                }
                Err(refused_part(self.part(at.saturating_sub(1), at), "there are no subscripts; use -> and #>"))
            }
            _ => Err(self.refused_sign(at)),
        }
    }

    /// The refusal of a sign or a literal that conditions do not have.
    fn refused_sign(&self, at: usize) -> Invalid {
        let part = self.part(at, at);
        let reason = match &self.tokens[at].token {
            Token::SemiColon => "a condition is one expression, not statements".into(),
            Token::Placeholder(_) => "there are no placeholders; put values into `params` and read s.params".into(),
            Token::Tilde | Token::TildeAsterisk | Token::ExclamationMarkTilde | Token::ExclamationMarkTildeAsterisk => {
                format!("there is no operator {part} in conditions; use LIKE")
            }
            // E'…', U&'…', X'…', B'…', N'…', 10L
            _ if part.ends_with(|end: char| end == '\'' || end == '"' || end.is_ascii_alphanumeric()) => {
                "write a plain number, or a text in single quotes: 'like this'".into()
            }
            _ => format!("there is no operator {part} in conditions"),
        };
        refused_part(part, reason)
    }

    fn check_word(&self, at: usize, word: &Word) -> Result<(), Invalid> {
        let name = folded(word);
        let (before, after) = (self.before(at), self.token(at + 1));
        let before_word = self.word(at.checked_sub(1));
        let is_plain = word.quote_style.is_none();
        let is_type = is_plain
            && (before == Some(&Token::DoubleColon)
                || before_word == "as"
                || TYPE_WORDS.contains(&(before_word.as_str(), name.as_str()))
                || matches!(after, Some(Token::SingleQuotedString(_) | Token::DollarQuotedString(_)))
                || TYPE_WORDS.iter().any(|(first, next)| *first == name && self.word(Some(at + 1)) == *next));
        let is_type_name = TYPES.contains(&name.as_str()) || TYPE_WORDS.iter().any(|(_, next)| *next == name);
        if before == Some(&Token::Period) {
            let table = at.saturating_sub(2);
            if after == Some(&Token::LParen) {
                return Err(refused_part(self.part(table, self.closing(at + 1)), no_such_function()));
            }
            return match Column::ALL.into_iter().any(|column| column.name().1 == name) {
                true => Ok(()),
                false => Err(refused_part(self.part(table, at), no_such_column(&[String::new(), name]))),
            };
        }
        if is_type && is_type_name {
            if after == Some(&Token::LParen) && !TYPES_WITH_PRECISION.contains(&name.as_str()) {
                return Err(refused_part(self.part(at, self.closing(at + 1)), NO_SUCH_TYPE));
            }
            return Ok(());
        }
        if before_word == "as" {
            return Err(refused_part(self.part(at, at), NO_SUCH_TYPE));
        }
        if is_plain && KEYWORDS.contains(&name.as_str()) {
            return self.check_keyword(at, &name);
        }
        if ["select", "exists", "with", "values", "table"].contains(&name.as_str()) && is_plain {
            let reason = "there are no subqueries; a condition sees one event (e) and one subscription (s)";
            return Err(refused_part(self.part(at, at), reason));
        }
        if ["similar", "regexp", "rlike"].contains(&name.as_str()) && is_plain {
            return Err(refused_part(self.part(at, at), "there are no regular expressions; use LIKE"));
        }
        if after == Some(&Token::LParen) {
            let is_function = name == "coalesce" || Function::ALL.into_iter().any(|function| function.name() == name);
            return match is_function && is_plain {
                true => Ok(()),
                false => Err(refused_part(self.part(at, self.closing(at + 1)), no_such_function())),
            };
        }
        // The checker names a column that is not there. A word that SQL knows does not get as far.
        if word.keyword == Keyword::NoKeyword || after == Some(&Token::Period) {
            return Ok(());
        }
        if Column::ALL.into_iter().any(|column| column.name().1 == name) {
            return Err(refused_part(self.part(at, at), no_such_column(&[name])));
        }
        let reason = format!("{} is not part of the language of conditions", name.to_ascii_uppercase());
        // A typed literal is shown with its text.
        let last = if matches!(after, Some(Token::SingleQuotedString(_))) { at + 1 } else { at };
        Err(refused_part(self.part(at, last), reason))
    }

    /// Some keywords have one place, or one token that follows.
    fn check_keyword(&self, at: usize, name: &str) -> Result<(), Invalid> {
        let after = self.token(at + 1);
        let (before_word, after_word) = (self.word(at.checked_sub(1)), self.word(Some(at + 1)));
        let reason = match name {
            "distinct" if !matches!(before_word.as_str(), "is" | "not") || after_word != "from" => {
                "write IS [NOT] DISTINCT FROM, or a plain call: name(argument, …)"
            }
            "from" if before_word != "distinct" => "FROM is only in IS [NOT] DISTINCT FROM",
            "like" | "ilike" if matches!(after_word.as_str(), "any" | "some" | "all") => {
                "there is no LIKE ANY; join several LIKE with OR"
            }
            "any" | "some" | "all" if !is_comparison(self.before(at)) || after != Some(&Token::LParen) => {
                "only = <> < <= > >= go with ANY (…) and ALL (…)"
            }
            "array" if after != Some(&Token::LBracket) => "write ARRAY[…]",
            "in" if after != Some(&Token::LParen) => "write IN (…)",
            "cast" if after != Some(&Token::LParen) => "write CAST(value AS type)",
            _ => return Ok(()),
        };
        let last = if name == "from" { at } else { at + 1 };
        Err(refused_part(self.part(at, last), reason))
    }
}
