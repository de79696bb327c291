//! Which nodes does a JSON text stand for?
//!
//! One pass, strict, nothing copied but strings with escapes. What Postgres' `jsonb` refuses is refused: `\u0000`, lone
//! surrogates, numbers beyond every use.

use super::{DEPTH_MAX, Node, key_order};
use crate::condition::failure::Failure;
use crate::condition::numeric::Numeric;
use crate::condition::types::Scalar;
use std::borrow::Cow;
use std::cmp::Ordering;

/// Objects of up to so many pairs are put in order where they are.
const SMALL_PAIRS_MAX: u32 = 12;
/// Numbers without an exponent and up to this length need no look at how many digits they have.
const NUMBER_BYTES_PLAIN: usize = 400;

/// Appends the nodes of a text to `nodes`.
pub(in crate::condition) fn parse<'a>(text: &'a str, nodes: &mut Vec<Node<'a>>) -> Result<(), Failure> {
    let mut parser = Parser { text, bytes: text.as_bytes(), at: 0, nodes, moved: Vec::new(), order: Vec::new() };
    parser.blanks();
    let whole = parser.value(0).and_then(|()| {
        parser.blanks();
        (parser.at == text.len()).then_some(())
    });
    whole.ok_or_else(|| Failure::bad_text(Scalar::Jsonb.into(), text))
}

struct Parser<'a, 'n> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    nodes: &'n mut Vec<Node<'a>>,
    /// Room for the pairs of an object that are not in order, and for their places.
    moved: Vec<Node<'a>>,
    order: Vec<(usize, usize)>,
}

impl<'a> Parser<'a, '_> {
    fn blanks(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.bytes.get(self.at) == Some(&byte)).then(|| self.at += 1)
    }

    fn word(&mut self, word: &str, node: Node<'a>) -> Option<()> {
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
                let text = self.string()?;
                self.nodes.push(Node::Text(text));
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
        let (mut pairs, mut in_order, mut last_key) = (0, true, None);
        self.blanks();
        if self.take(b'}').is_none() {
            loop {
                self.blanks();
                let key = self.string()?;
                let key_at = self.nodes.len();
                if let Some(last) = last_key
                    && let Node::Text(last) = &self.nodes[last]
                {
                    in_order &= key_order(last, &key) == Ordering::Less;
                }
                last_key = Some(key_at);
                self.nodes.push(Node::Text(key));
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
        if !in_order {
            pairs = if pairs <= SMALL_PAIRS_MAX { self.insert_in_order(head + 1) } else { self.put_in_order(head + 1) };
        }
        let nodes = u32::try_from(self.nodes.len() - head - 1).ok()?;
        self.nodes[head] = Node::Object { pairs, nodes };
        Some(())
    }

    /// The same as [`Self::put_in_order`] for few pairs, by moving each one to its place.
    fn insert_in_order(&mut self, first: usize) -> u32 {
        let (mut pairs, mut at) = (0, first);
        while at < self.nodes.len() {
            let span = 1 + self.nodes[at + 1].span();
            let (mut place, mut replaced) = (first, 0);
            while place < at {
                let before = 1 + self.nodes[place + 1].span();
                match (&self.nodes[place], &self.nodes[at]) {
                    (Node::Text(its), Node::Text(key)) => match key_order(its, key) {
                        Ordering::Less => place += before,
                        Ordering::Equal => {
                            replaced = before;
                            break;
                        }
                        Ordering::Greater => break,
                    },
                    _ => break,
                }
            }
            self.nodes[place..at + span].rotate_right(span);
            self.nodes.drain(place + span..place + span + replaced);
            at = at + span - replaced;
            pairs += u32::from(replaced == 0);
        }
        pairs
    }

    /// Sorts the pairs that begin at `first` and keeps the last of those with one key. Says how many are left.
    fn put_in_order(&mut self, first: usize) -> u32 {
        self.order.clear();
        let mut at = first;
        while at < self.nodes.len() {
            let end = at + 1 + self.nodes[at + 1].span();
            self.order.push((at - first, end - first));
            at = end;
        }
        self.moved.clear();
        self.moved.extend(self.nodes.drain(first..));
        let moved = &mut self.moved;
        let key_at = |moved: &[Node<'a>], at: usize| match &moved[at] {
            Node::Text(key) => key.clone(),
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::Array { .. } | Node::Object { .. } => {
                Cow::Borrowed("")
            }
        };
        // Stable, so that of two equal keys the later one comes second.
        self.order.sort_by(|a, b| match (&moved[a.0], &moved[b.0]) {
            (Node::Text(a), Node::Text(b)) => key_order(a, b),
            _ => Ordering::Equal,
        });
        let mut pairs = 0;
        for (index, (start, end)) in self.order.iter().enumerate() {
            let next = self.order.get(index + 1);
            if next.is_some_and(|next| key_at(moved, *start) == key_at(moved, next.0)) {
                continue;
            }
            pairs += 1;
            self.nodes.extend(moved[*start..*end].iter_mut().map(|node| std::mem::replace(node, Node::Null)));
        }
        pairs
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
        if exponent || number.len() > NUMBER_BYTES_PLAIN {
            Numeric::parse(number).ok()?;
        }
        self.nodes.push(Node::Number(Cow::Borrowed(number)));
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            match self.bytes.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(Cow::Borrowed(&self.text[start..self.at - 1]));
                }
                b'\\' => return self.escaped(start).map(Cow::Owned),
                0x00..0x20 => return None,
                _ => self.at += 1,
            }
        }
    }

    /// The rest of a string from its first escape on.
    fn escaped(&mut self, start: usize) -> Option<String> {
        let mut text = self.text[start..self.at].to_owned();
        let mut plain_from = self.at;
        loop {
            match self.bytes.get(self.at)? {
                b'"' => {
                    text.push_str(&self.text[plain_from..self.at]);
                    self.at += 1;
                    return Some(text);
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

#[cfg(test)]
mod tests {
    use super::super::print;
    use super::*;

    fn shown(text: &str) -> Option<String> {
        let mut nodes = Vec::new();
        parse(text, &mut nodes).ok()?;
        Some(print(&nodes))
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
