//! Is this text an SQL expression of a reasonable size?
//!
//! The text is cut into tokens first, so that its bounds are checked before anything recurses over it. What comes out is
//! the parser's tree, in which nothing is known about names and types yet.

use super::tokens::tokens;
use crate::error::Invalid;
use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use std::fmt::Display;

/// The longest condition, in bytes.
pub const SOURCE_BYTES_MAX: usize = 16 << 10;
/// The most words, signs and literals of a condition.
pub const TOKENS_MAX: usize = 4_000;
/// How deeply parentheses, operators and functions may be nested.
pub const DEPTH_MAX: usize = 40;
/// The parser's own limit, which counts a level of ours up to twice.
const PARSER_DEPTH_MAX: usize = 2 * DEPTH_MAX + 20;
/// How much of a part is shown in a message.
const SHOWN_CHARS_MAX: usize = 60;

/// A refusal of a condition; reads on from the name of its field.
pub(super) fn refused(reason: impl Into<String>) -> Invalid {
    Invalid::new("where", reason)
}

/// A refusal that names the part.
pub(super) fn refused_part(part: impl Display, reason: impl Display) -> Invalid {
    refused(format!("contains `{}`: {reason}", shown(part)))
}

/// The beginning of a part, on one line.
fn shown(part: impl Display) -> String {
    let text = part.to_string();
    let mut shown: String =
        text.chars().take(SHOWN_CHARS_MAX).map(|c| if crate::text::is_unprintable(c) { ' ' } else { c }).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

pub(super) fn too_deep() -> Invalid {
    refused(format!("is nested more than {DEPTH_MAX} levels deep; make it flatter"))
}

/// The parser's tree of a text.
pub(super) fn parse(source: &str) -> Result<ast::Expr, Invalid> {
    if source.len() > SOURCE_BYTES_MAX {
        let reason =
            format!("has {} bytes; at most {SOURCE_BYTES_MAX} are allowed: move lists into `params`", source.len());
        return Err(refused(reason));
    }
    if source.contains('\0') {
        return Err(refused("contains a zero byte; remove it"));
    }
    let tokens = tokens(source)?;
    let mut parser =
        Parser::new(&PostgreSqlDialect {}).with_recursion_limit(PARSER_DEPTH_MAX).with_tokens_with_locations(tokens);
    let expr = parser.parse_expr().map_err(|error| match error {
        ParserError::RecursionLimitExceeded => too_deep(),
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => {
            refused(format!("is not an SQL expression: {}", shown(message)))
        }
    })?;
    match parser.peek_token().token {
        Token::EOF => Ok(expr),
        other => Err(refused_part(other, "the expression has ended before it; join parts with AND or OR")),
    }
}
