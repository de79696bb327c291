//! Parser of JSON text.
//!
//! One pass, strict; only strings with escapes are copied. Everything that Postgres' `jsonb` refuses is refused: `\u0000`, lone
//! surrogates, numbers with too many digits. Objects whose keys are not in order are sorted: small ones in place, the others in one
//! pass over the whole value at the end, so that a node is moved once however deeply it is nested.

use super::decimal;
use super::{DEPTH_MAX, Node, Parsed, Span, key_order};
use crate::condition::failure::Failure;
use crate::condition::meter::Meter;
use crate::condition::types::Scalar;
use std::cmp::Ordering;

/// Objects of up to so many nodes are sorted in place.
const SMALL_NODES_MAX: usize = 48;
/// Numbers without an exponent and up to this length need no look at how many digits they have.
const NUMBER_BYTES_PLAIN: usize = 400;
/// Texts of fewer bytes begin with a vector for so many nodes.
const SMALL_BYTES_MAX: usize = 4 << 10;
const SMALL_NODES: usize = 24;
/// Steps for each byte of text.
const STEPS_PER_BYTE: usize = 3;

/// The nodes of a text.
pub(in crate::condition) fn parse(text: &str, meter: &Meter) -> Result<Parsed, Failure> {
    meter.steps(text.len().saturating_mul(STEPS_PER_BYTE))?;
    meter.nodes(nodes_max(text))?;
    parse_uncharged(text).ok_or_else(|| Failure::bad_text(Scalar::Jsonb.into(), text))
}

/// How many nodes a text has at most: every node but the first follows one of these characters.
fn nodes_max(text: &str) -> usize {
    1 + text.bytes().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count()
}

/// The nodes of a text whose size is bounded elsewhere; none if it is not JSON.
pub(in crate::condition) fn parse_uncharged(text: &str) -> Option<Parsed> {
    // The vector of a long text never grows; pages that stay unused take no memory.
    let capacity = if text.len() < SMALL_BYTES_MAX { SMALL_NODES } else { nodes_max(text) };
    let (bytes, nodes) = (text.as_bytes(), Vec::with_capacity(capacity));
    let mut parser = Parser { text, bytes, at: 0, nodes, unescaped: None, is_ordered: true };
    parser.blanks();
    parser.value(0)?;
    parser.blanks();
    if parser.at != text.len() {
        return None;
    }
    if !parser.is_ordered {
        parser.sort();
    }
    Some(Parsed { nodes: parser.nodes, unescaped: parser.unescaped })
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    /// The text, followed by the strings that had escapes.
    unescaped: Option<String>,
    /// Are the pairs of all objects in order?
    is_ordered: bool,
}

/// The text of a key.
fn key<'t>(text: &'t str, node: &Node) -> &'t str {
    match node {
        Node::Text(span) => &text[span.at as usize..(span.at + span.bytes) as usize],
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::Array { .. } | Node::Object { .. } => "",
    }
}

impl Parser<'_> {
    fn blanks(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.bytes.get(self.at) == Some(&byte)).then(|| self.at += 1)
    }

    fn word(&mut self, word: &str, node: Node) -> Option<()> {
        self.bytes[self.at..].starts_with(word.as_bytes()).then(|| {
            self.at += word.len();
            self.nodes.push(node);
        })
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        match self.bytes.get(self.at)? {
            b'{' => self.object(depth + 1),
            b'[' => self.array(depth + 1),
            b'"' => {
                let span = self.string()?;
                self.nodes.push(Node::Text(span));
                Some(())
            }
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word("true", Node::Bool(true)),
            b'f' => self.word("false", Node::Bool(false)),
            b'n' => self.word("null", Node::Null),
            _ => None,
        }
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        let head = self.nodes.len();
        self.nodes.push(Node::Null);
        self.at += 1;
        let mut items = 0;
        self.blanks();
        if self.take(b']').is_none() {
            loop {
                self.blanks();
                self.value(depth)?;
                items += 1;
                self.blanks();
                if self.take(b',').is_none() {
                    break self.take(b']')?;
                }
            }
        }
        let nodes = u32::try_from(self.nodes.len() - head - 1).ok()?;
        self.nodes[head] = Node::Array { items, nodes };
        Some(())
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        let head = self.nodes.len();
        self.nodes.push(Node::Null);
        self.at += 1;
        let (mut pairs, mut in_order, mut last_key): (u32, bool, Option<Node>) = (0, true, None);
        self.blanks();
        if self.take(b'}').is_none() {
            loop {
                self.blanks();
                let key = Node::Text(self.string()?);
                if let Some(last) = last_key {
                    in_order &= self.key_order(&last, &key) == Ordering::Less;
                }
                last_key = Some(key);
                self.nodes.push(key);
                self.blanks();
                self.take(b':')?;
                self.blanks();
                self.value(depth)?;
                pairs += 1;
                self.blanks();
                if self.take(b',').is_none() {
                    break self.take(b'}')?;
                }
            }
        }
        if !in_order && self.nodes.len() - head <= SMALL_NODES_MAX {
            pairs = self.insert_in_order(head + 1);
        } else {
            self.is_ordered &= in_order;
        }
        let nodes = u32::try_from(self.nodes.len() - head - 1).ok()?;
        self.nodes[head] = Node::Object { pairs, nodes };
        Some(())
    }

    fn key_order(&self, a: &Node, b: &Node) -> Ordering {
        let text = self.unescaped.as_deref().unwrap_or(self.text);
        key_order(key(text, a), key(text, b))
    }

    /// Sorts the pairs that begin at `first` by moving each one to its place. Of those with one key the last is kept. Says how
    /// many are left.
    fn insert_in_order(&mut self, first: usize) -> u32 {
        let (mut pairs, mut at) = (0, first);
        while at < self.nodes.len() {
            let span = 1 + self.nodes[at + 1].span();
            let (mut place, mut replaced) = (first, 0);
            while place < at {
                let before = 1 + self.nodes[place + 1].span();
                match self.key_order(&self.nodes[place], &self.nodes[at]) {
                    Ordering::Less => place += before,
                    Ordering::Equal => {
                        replaced = before;
                        break;
                    }
                    Ordering::Greater => break,
                }
            }
            self.nodes[place..at + span].rotate_right(span);
            self.nodes.drain(place + span..place + span + replaced);
            at = at + span - replaced;
            pairs += u32::from(replaced == 0);
        }
        pairs
    }

    /// Sorts the pairs of all objects.
    fn sort(&mut self) {
        let unsorted = std::mem::take(&mut self.nodes);
        let mut sorted = Vec::with_capacity(unsorted.len());
        put_sorted(&unsorted, self.unescaped.as_deref().unwrap_or(self.text), &mut sorted);
        self.nodes = sorted;
    }

    fn number(&mut self) -> Option<()> {
        let start = self.at;
        let _ = self.take(b'-');
        match self.bytes.get(self.at)? {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits()?,
            _ => return None,
        }
        if self.take(b'.').is_some() {
            self.digits()?;
        }
        let mut exponent = false;
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            exponent = true;
            self.at += 1;
            if self.take(b'+').is_none() {
                let _ = self.take(b'-');
            }
            self.digits()?;
        }
        let number = &self.text[start..self.at];
        if (exponent || number.len() > NUMBER_BYTES_PLAIN) && !decimal::is_within_digit_limit(number) {
            return None;
        }
        self.nodes.push(Node::Number(Span::new(start, number.len())?));
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn string(&mut self) -> Option<Span> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            match self.bytes.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Span::new(start, self.at - 1 - start);
                }
                b'\\' => return self.escaped(start),
                0x00..0x20 => return None,
                _ => self.at += 1,
            }
        }
    }

    /// The rest of a string from its first escape on.
    fn escaped(&mut self, start: usize) -> Option<Span> {
        let mut text = self.unescaped.take().unwrap_or_else(|| {
            let mut text = String::with_capacity(2 * self.text.len());
            text.push_str(self.text);
            text
        });
        let unescaped_at = text.len();
        text.push_str(&self.text[start..self.at]);
        let mut plain_from = self.at;
        loop {
            match self.bytes.get(self.at)? {
                b'"' => {
                    text.push_str(&self.text[plain_from..self.at]);
                    self.at += 1;
                    let span = Span::new(unescaped_at, text.len() - unescaped_at);
                    self.unescaped = Some(text);
                    return span;
                }
                b'\\' => {
                    text.push_str(&self.text[plain_from..self.at]);
                    let escape = *self.bytes.get(self.at + 1)?;
                    self.at += 2;
                    text.push(match escape {
                        b'"' | b'\\' | b'/' => char::from(escape),
                        b'b' => '\u{8}',
                        b'f' => '\u{c}',
                        b'n' => '\n',
                        b'r' => '\r',
                        b't' => '\t',
                        b'u' => self.unicode()?,
                        _ => return None,
                    });
                    plain_from = self.at;
                }
                0x00..0x20 => return None,
                _ => self.at += 1,
            }
        }
    }

    /// The character of one or two `\u` escapes.
    fn unicode(&mut self) -> Option<char> {
        let first = self.unit()?;
        if !(0xD800..0xE000).contains(&first) {
            return char::from_u32(first).filter(|character| *character != '\0');
        }
        self.take(b'\\')?;
        self.take(b'u')?;
        let second = self.unit()?;
        if first >= 0xDC00 || !(0xDC00..0xE000).contains(&second) {
            return None;
        }
        char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
    }

    fn unit(&mut self) -> Option<u32> {
        let digits = self.bytes.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |unit, digit| Some(unit * 16 + char::from(*digit).to_digit(16)?))
    }
}

/// Appends a value with the pairs of all its objects in order. Of pairs with one key the last is kept.
fn put_sorted(value: &[Node], text: &str, to: &mut Vec<Node>) {
    let head = to.len();
    to.push(value[0]);
    match value[0] {
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) => {}
        Node::Array { items, .. } => {
            let mut rest = &value[1..];
            while let Some(first) = rest.first() {
                let (item, after) = rest.split_at(first.span());
                if item.len() == 1 {
                    to.push(item[0])
                } else {
                    put_sorted(item, text, to)
                }
                rest = after;
            }
            to[head] = Node::Array { items, nodes: (to.len() - head - 1) as u32 };
        }
        Node::Object { .. } => {
            let mut pairs = Vec::new();
            let mut at = 1;
            while at < value.len() {
                pairs.push(at);
                at += 1 + value[at + 1].span();
            }
            // Stable, so that of two equal keys the later one comes second.
            pairs.sort_by(|a, b| key_order(key(text, &value[*a]), key(text, &value[*b])));
            let mut kept = 0;
            for (index, at) in pairs.iter().enumerate() {
                let its = key(text, &value[*at]);
                if pairs.get(index + 1).is_some_and(|next| key(text, &value[*next]) == its) {
                    continue;
                }
                kept += 1;
                to.push(value[*at]);
                put_sorted(&value[at + 1..at + 1 + value[at + 1].span()], text, to);
            }
            to[head] = Node::Object { pairs: kept, nodes: (to.len() - head - 1) as u32 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::print;
    use super::*;

    fn shown(text: &str) -> Option<String> {
        let meter = Meter::new();
        let parsed = parse(text, &meter).ok()?;
        Some(print(parsed.tree(text), &meter).unwrap())
    }

    #[test]
    fn a_text_is_written_back_as_jsonb_writes_it() {
        for (text, expected) in [
            (r#"{"bb":1,"a":2,"bb":3,"c":{}}"#, r#"{"a": 2, "c": {}, "bb": 3}"#),
            (r#"{"z":{"y":1,"x":[{"b":1,"a":2}]},"a":0}"#, r#"{"a": 0, "z": {"x": [{"a": 2, "b": 1}], "y": 1}}"#),
            (
                r#"{"m":1,"l":1,"k":1,"j":1,"i":1,"h":1,"g":1,"f":1,"e":1,"d":1,"c":1,"b":{"b":1,"a":2},"a":1,"m":[2,3]}"#,
                r#"{"a": 1, "b": {"a": 2, "b": 1}, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1, "j": 1, "k": 1, "l": 1, "m": [2, 3]}"#,
            ),
            (" [ 1 , 2.50 , -0 , 1e3 , -0.0 ] ", "[1, 2.50, 0, 1000, 0.0]"),
            (r#""\u00e4\ud83d\ude00\n\"\/\u0001""#, "\"ä😀\\n\\\"/\\u0001\""),
            ("null", "null"),
            (r#"{"b":0,"a":[1,2,3,4],"a":1,"b":{"c":[]}}"#, r#"{"a": 1, "b": {"c": []}}"#),
            ("{\"a\":1,\"a\":1,\"a\":2}", "{\"a\": 2}"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_jsonb_is_refused() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\":}",
            "{a:1}",
            "01",
            "1.",
            ".5",
            "1e",
            "+1",
            "nul",
            "truex",
            "\"\t\"",
            "\"\\x\"",
            "\"\\u00\"",
            "\"\\u0000\"",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\ud800\\u0041\"",
            "1 2",
            "[1 2]",
            "NaN",
            "1e2000",
            "'a'",
            "\"a",
            "{\"a\":1,}",
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
        assert_eq!(shown(&"[".repeat(500_000)), None);
        assert!(shown(&format!("{}{}", "[".repeat(64), "]".repeat(64))).is_some());
    }
}
