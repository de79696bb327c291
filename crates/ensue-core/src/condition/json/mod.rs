//! Values of type `jsonb`.
//!
//! A value is a run of nodes: a scalar is one node, an array or an object a head followed by the nodes of its members. A
//! payload is parsed into a single vector, and any part of it is a slice of that vector. A node takes twelve bytes and refers to
//! its text by position, so parsed nodes borrow nothing and can be shared between threads. Objects are kept as Postgres
//! keeps them: each key once, shorter keys first, then by their bytes.

mod build;
mod compare;
mod decimal;
mod parse;
mod print;

pub(crate) use build::of_value;
pub(super) use build::{concat, object};
pub(super) use compare::{compare, contains, exists};
pub(crate) use decimal::{number_text, plain_number};
pub(super) use parse::{parse, parse_uncharged};
pub(super) use print::{identity, print};

use super::failure::Failure;
use super::meter::Meter;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// How deeply a text cast to jsonb may be nested.
pub const DEPTH_MAX: usize = crate::json::DEPTH_MAX;

/// A scalar, or the head of an array or an object.
#[derive(Debug, Clone, Copy)]
pub enum Node {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as it was written.
    Number(Span),
    /// A string, or the key of the value that follows it.
    Text(Span),
    /// The head of an array.
    Array {
        /// How many elements it has.
        items: u32,
        /// How many nodes they take.
        nodes: u32,
    },
    /// The head of an object: key, value, key, value.
    Object {
        /// How many pairs it has.
        pairs: u32,
        /// How many nodes they take.
        nodes: u32,
    },
}

/// Position of a node's text in the text of its value.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    at: u32,
    bytes: u32,
}

impl Span {
    /// A text at this position; none if it lies beyond 4 GiB.
    fn new(at: usize, bytes: usize) -> Option<Self> {
        Some(Self { at: u32::try_from(at).ok()?, bytes: u32::try_from(bytes).ok()? })
    }
}

impl Node {
    /// How many nodes the value that begins here takes, with its head.
    #[inline]
    pub(super) fn span(&self) -> usize {
        match self {
            Self::Array { nodes, .. } | Self::Object { nodes, .. } => *nodes as usize + 1,
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => 1,
        }
    }

    /// What `jsonb_typeof` says.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::Array { .. } => "array",
            Self::Object { .. } => "object",
        }
    }

    /// Is it neither array nor object?
    #[inline]
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => true,
            Self::Array { .. } | Self::Object { .. } => false,
        }
    }
}

/// The nodes of a text that is kept elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct Parsed {
    nodes: Vec<Node>,
    /// The text with its unescaped strings behind it, if it has strings with escapes.
    unescaped: Option<String>,
}

impl Parsed {
    /// A value that matches nothing.
    pub(super) fn null() -> Self {
        Self { nodes: vec![Node::Null], unescaped: None }
    }

    /// The value, given the text that it was parsed from.
    #[inline]
    pub(super) fn tree<'a>(&'a self, source: &'a str) -> Tree<'a> {
        Tree { nodes: &self.nodes, text: self.unescaped.as_deref().unwrap_or(source) }
    }

    /// The value together with the text that it was parsed from.
    pub(super) fn with_text(self, source: Cow<'_, str>) -> Jsonb<'_> {
        let all = 0..self.nodes.len();
        let text = self.unescaped.map_or(source, Cow::Owned);
        Jsonb::Built(Arc::new(Document { nodes: self.nodes, text }), all)
    }

    /// Memory that the nodes take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.nodes.len() * size_of::<Node>() + self.unescaped.as_ref().map_or(0, String::len)
    }
}

/// A value that does not own its nodes. It has one node at least.
#[derive(Debug, Clone, Copy)]
pub struct Tree<'a> {
    nodes: &'a [Node],
    text: &'a str,
}

impl<'a> Tree<'a> {
    /// The scalar that the value is, or the head of its members.
    #[inline]
    pub(crate) fn head(self) -> Node {
        self.nodes[0]
    }

    /// The text of a number or a string of this value.
    #[inline]
    pub(crate) fn text(self, span: Span) -> &'a str {
        let at = span.at as usize;
        &self.text[at..at + span.bytes as usize]
    }

    /// All nodes of the value.
    pub(crate) fn nodes(self) -> &'a [Node] {
        self.nodes
    }

    /// Memory that the value takes by itself, in bytes.
    pub(super) fn bytes(self) -> usize {
        let text = |node: &Node| match node {
            Node::Number(span) | Node::Text(span) => span.bytes as usize,
            Node::Null | Node::Bool(_) | Node::Array { .. } | Node::Object { .. } => 0,
        };
        size_of_val(self.nodes) + self.nodes.iter().map(text).sum::<usize>()
    }

    #[inline]
    fn slice(self, nodes: &'a [Node]) -> Self {
        Self { nodes, ..self }
    }

    /// How many members a search may have to pass.
    pub(super) fn members(self) -> usize {
        match self.head() {
            Node::Array { items, .. } => items as usize,
            Node::Object { pairs, .. } => pairs as usize,
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) => 1,
        }
    }

    /// The elements of an array; of anything else, none.
    #[inline]
    pub(in crate::condition) fn items(self) -> Values<'a> {
        let is_array = matches!(self.head(), Node::Array { .. });
        Values { rest: self.slice(if is_array { &self.nodes[1..] } else { &[] }) }
    }

    /// The pairs of an object; of anything else, none.
    #[inline]
    pub(crate) fn pairs(self) -> Pairs<'a> {
        let is_object = matches!(self.head(), Node::Object { .. });
        Pairs(Values { rest: self.slice(if is_object { &self.nodes[1..] } else { &[] }) })
    }

    /// The value under a key, if this is an object that has it.
    #[inline]
    pub(crate) fn field(self, key: &str, meter: &Meter) -> Result<Option<Self>, Failure> {
        let (mut passed, mut compared) = (1, 0);
        let mut found = None;
        for (its, value) in self.pairs() {
            passed += 1;
            compared += if its.len() == key.len() { key.len() } else { 0 };
            match key_order(its, key) {
                Ordering::Less => {}
                Ordering::Equal => {
                    found = Some(value);
                    break;
                }
                Ordering::Greater => break,
            }
        }
        meter.steps(2 * passed + compared / 16)?;
        Ok(found)
    }

    /// The element at a place of an array, from the end if negative. A scalar is taken for an array of itself by `->`, as
    /// in Postgres, but not by a path.
    pub(super) fn element(self, at: i32, scalar_is_array: bool, meter: &Meter) -> Result<Option<Self>, Failure> {
        let count = match self.head() {
            Node::Array { items, .. } => i64::from(items),
            head if head.is_scalar() && scalar_is_array => 1,
            _ => return Ok(None),
        };
        let at = if at < 0 { count + i64::from(at) } else { i64::from(at) };
        if at < 0 || at >= count {
            return Ok(None);
        }
        if self.head().is_scalar() {
            return Ok(Some(self));
        }
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        meter.steps(at.saturating_mul(2))?;
        Ok(self.items().nth(at))
    }

    /// One step of a path: a key of an object, or the place in an array written as a number.
    pub(super) fn step(self, part: &str, meter: &Meter) -> Result<Option<Self>, Failure> {
        meter.steps(1)?;
        match self.head() {
            Node::Object { .. } => self.field(part, meter),
            Node::Array { .. } => {
                // Every byte is looked at twice.
                meter.steps(part.len().saturating_mul(2))?;
                // C's strtol: blanks before the number, none behind it.
                let part = part.trim_start_matches(super::text_in::is_blank);
                if part.ends_with(super::text_in::is_blank) {
                    return Ok(None);
                }
                match super::text_in::int4(part) {
                    Ok(at) => self.element(at, false, meter),
                    Err(_) => Ok(None),
                }
            }
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) => Ok(None),
        }
    }
}

/// Nodes together with their text.
#[derive(Debug, Clone)]
pub struct Document<'a> {
    nodes: Vec<Node>,
    text: Cow<'a, str>,
}

/// A `jsonb` value: a part of an event, of the params or of a constant, or a value made by the evaluation.
#[derive(Debug, Clone)]
pub enum Jsonb<'a> {
    /// A part of a value that is kept elsewhere.
    Borrowed(Tree<'a>),
    /// A part of a value that was built.
    Built(Arc<Document<'a>>, Range<usize>),
}

impl<'a> Jsonb<'a> {
    /// The value without its owner.
    #[inline]
    pub(crate) fn tree(&self) -> Tree<'_> {
        match self {
            Self::Borrowed(tree) => *tree,
            Self::Built(document, range) => Tree { nodes: &document.nodes[range.clone()], text: &document.text },
        }
    }

    /// The part that `find` finds. It shares what this value owns.
    pub(super) fn part(
        self,
        find: impl FnOnce(Tree<'_>) -> Result<Option<Found>, Failure>,
    ) -> Result<Option<Self>, Failure> {
        let Some(Found { at, nodes }) = find(self.tree())? else { return Ok(None) };
        Ok(Some(match self {
            Self::Borrowed(tree) => Self::Borrowed(tree.slice(&tree.nodes[at..at + nodes])),
            Self::Built(document, range) => Self::Built(document, range.start + at..range.start + at + nodes),
        }))
    }

    /// The same value, borrowing nothing.
    pub(super) fn into_owned(self) -> Jsonb<'static> {
        let tree = self.tree();
        let mut builder = build::Builder::with_capacity(tree.nodes.len());
        builder.copy_uncharged(tree);
        builder.finish()
    }
}

/// Position of a part among the nodes of its value.
pub(super) struct Found {
    at: usize,
    nodes: usize,
}

impl Found {
    /// Where a part is in the value that it was found in.
    pub(super) fn of(whole: Tree<'_>, part: Tree<'_>) -> Self {
        let bytes = part.nodes.as_ptr() as usize - whole.nodes.as_ptr() as usize;
        Self { at: bytes / size_of::<Node>(), nodes: part.nodes.len() }
    }
}

/// The order of keys in an object: by length, then by bytes.
#[inline]
pub(super) fn key_order(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.as_bytes().cmp(b.as_bytes()))
}

/// Values that stand one after another.
pub(crate) struct Values<'a> {
    rest: Tree<'a>,
}

impl<'a> Iterator for Values<'a> {
    type Item = Tree<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (value, rest) = self.rest.nodes.split_at(self.rest.nodes.first()?.span());
        self.rest = self.rest.slice(rest);
        Some(self.rest.slice(value))
    }
}

/// Keys with their values.
pub(crate) struct Pairs<'a>(Values<'a>);

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, Tree<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let key = self.0.next()?;
        match key.head() {
            Node::Text(span) => Some((key.text(span), self.0.next()?)),
            _ => None,
        }
    }
}
