//! How is a program written in the config file?

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// A program and its arguments, each a word of its own: no shell divides them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandLine(pub Vec<String>);

impl<'de> Deserialize<'de> for CommandLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Words)
    }
}

struct Words;

impl<'de> Visitor<'de> for Words {
    type Value = CommandLine;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a program and its arguments as a list, such as [python3, index.py]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<CommandLine, A::Error> {
        let mut all = Vec::new();
        while let Some(word) = words.next_element()? {
            all.push(word);
        }
        Ok(CommandLine(all))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<CommandLine, E> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let list = words.join(", ");
        Err(E::custom(format!("a program and its arguments are a list: write [{list}], or [sh, -c, '…'] for a shell")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_taken_and_a_text_is_refused_with_the_list_to_write() {
        let read = serde_saphyr::from_str::<CommandLine>;
        assert_eq!(read("[./sync.sh, issues, 5]").unwrap().0, ["./sync.sh", "issues", "5"]);
        let error = read("./sync.sh issues").unwrap_err().to_string();
        assert!(error.contains("write [./sync.sh, issues]"), "{error}");
        assert!(read("{ a: b }").unwrap_err().to_string().contains("as a list, such as"));
    }
}
