//! Text of a `jsonb` value.

use super::decimal::{number_text, plain_number, written_bytes};
use super::{Node, Tree, parse};
use crate::condition::failure::Failure;
use crate::condition::meter::Meter;

/// Steps for each node, beside those for the bytes that are written.
const STEPS_PER_NODE: usize = 8;

/// Steps for each character that is escaped, beside those for the bytes that are written.
const STEPS_PER_ESCAPE: usize = 8;
/// Digits of an escape.
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Steps for each digit of a number that is written otherwise than it was read.
const STEPS_PER_DIGIT: usize = 8;

/// The text as Postgres writes it: a blank after each colon and comma, numbers without exponent.
pub(in crate::condition) fn print(value: Tree<'_>, meter: &Meter) -> Result<String, Failure> {
    let mut printer = Printer { text: String::new(), meter, number: |number| number_text(number).into_owned() };
    printer.write(value)?;
    Ok(printer.text)
}

/// One text for every way to write a value: fields in order, numbers without the zeros that change nothing.
pub(in crate::condition) fn identity(text: &str) -> Result<String, Failure> {
    let meter = Meter::new();
    let parsed = parse(text, &meter)?;
    let plain = |number: &str| plain_number(&number_text(number)).to_owned();
    let mut printer = Printer { text: String::new(), meter: &meter, number: plain };
    printer.write(parsed.tree(text))?;
    Ok(printer.text)
}

struct Printer<'m> {
    text: String,
    meter: &'m Meter,
    number: fn(&str) -> String,
}

impl Printer<'_> {
    /// Pays for so many bytes before they are written, if the text may become so long.
    fn charge(&self, bytes: usize) -> Result<(), Failure> {
        self.meter.steps(STEPS_PER_NODE)?;
        self.meter.append(self.text.len(), bytes)
    }

    fn write(&mut self, value: Tree<'_>) -> Result<(), Failure> {
        match value.head() {
            Node::Null => self.push("null"),
            Node::Bool(true) => self.push("true"),
            Node::Bool(false) => self.push("false"),
            Node::Number(span) => {
                let number = value.text(span);
                self.charge(written_bytes(number))?;
                if number.contains(['e', 'E', '-', '.']) {
                    self.meter.steps(STEPS_PER_DIGIT * written_bytes(number))?;
                    self.text.push_str(&(self.number)(number));
                } else {
                    self.text.push_str(number);
                }
                Ok(())
            }
            Node::Text(span) => self.string(value.text(span)),
            Node::Array { .. } => {
                self.push("[")?;
                for (index, item) in value.items().enumerate() {
                    if index > 0 {
                        self.text.push_str(", ");
                    }
                    self.write(item)?;
                }
                self.push("]")
            }
            Node::Object { .. } => {
                self.push("{")?;
                for (index, (key, item)) in value.pairs().enumerate() {
                    if index > 0 {
                        self.text.push_str(", ");
                    }
                    self.string(key)?;
                    self.text.push_str(": ");
                    self.write(item)?;
                }
                self.push("}")
            }
        }
    }

    fn push(&mut self, word: &str) -> Result<(), Failure> {
        self.charge(word.len())?;
        self.text.push_str(word);
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), Failure> {
        self.charge(text.len() + 2)?;
        self.meter.steps(text.len())?;
        self.text.push('"');
        let mut rest = text;
        while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)) {
            self.text.push_str(&rest[..at]);
            // The longest escape has six bytes.
            self.charge(6)?;
            self.meter.steps(STEPS_PER_ESCAPE)?;
            match rest.as_bytes()[at] {
                b'"' => self.text.push_str("\\\""),
                b'\\' => self.text.push_str("\\\\"),
                0x8 => self.text.push_str("\\b"),
                0xc => self.text.push_str("\\f"),
                b'\n' => self.text.push_str("\\n"),
                b'\r' => self.text.push_str("\\r"),
                b'\t' => self.text.push_str("\\t"),
                control => {
                    self.text.push_str("\\u00");
                    self.text.push(char::from(HEX[usize::from(control >> 4)]));
                    self.text.push(char::from(HEX[usize::from(control & 0xf)]));
                }
            }
            rest = &rest[at + 1..];
        }
        self.text.push_str(rest);
        self.text.push('"');
        Ok(())
    }
}
