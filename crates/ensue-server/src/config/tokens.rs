//! The tokens that open the server.
//!
//! A token file has one token per line, with or without a name before it: `deploy 6f1c…`. Empty lines and those that
//! begin with `#` are passed over, as is a byte order mark. A token is longer than its name: a line in the wrong order is
//! refused, as names are shown in logs. Errors name the line, never what is on it.

use super::redact;
use anyhow::{Context, bail};
use std::collections::HashMap;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A token with fewer characters than this can be guessed.
pub const TOKEN_BYTES_MIN: usize = 32;
/// What makes a token that nobody guesses.
pub const GOOD_TOKEN: &str = "openssl rand -hex 32";

/// The variable with a token, which has its name.
pub const VARIABLE: &str = "ENSUE_TOKEN";

/// A token and what to call it.
#[derive(Clone, PartialEq, Eq)]
pub struct NamedToken {
    /// What to call it: never secret.
    pub name: String,
    /// The token itself: never shown.
    pub secret: String,
}

impl fmt::Debug for NamedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedToken({:?})", self.name)
    }
}

impl NamedToken {
    /// A token that can stand in an HTTP header.
    pub fn new(name: &str, secret: &str) -> anyhow::Result<Self> {
        if secret.is_empty() {
            bail!("the token `{name}` is empty: set it to a long random text, such as the output of `{GOOD_TOKEN}`");
        }
        if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!(
                "the token `{name}` has characters that cannot be sent in an HTTP header: use letters, digits and - _ . only"
            );
        }
        Ok(Self { name: name.into(), secret: secret.into() })
    }

    /// Can it be guessed?
    pub fn is_weak(&self) -> bool {
        self.secret.len() < TOKEN_BYTES_MIN
    }
}

/// Reads a token file. One without a token is refused: it would open the server to everybody.
pub fn read(path: &Path) -> anyhow::Result<Vec<NamedToken>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the token file {}: check the path and its permissions", shown(path)))?;
    parse(&shown(path), &text)
}

/// The path, unless it may be a token that was given in the place of its file.
fn shown(path: &Path) -> String {
    redact::shown(&path.display().to_string()).to_owned()
}

/// Warns about a file that others than its owner can read.
pub fn mode_warning(path: &Path) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o044 != 0).then(|| {
        let path = shown(path);
        format!("the token file {path} can be read by others than its owner (mode {mode:o}): chmod 600 {path}")
    })
}

fn parse(file: &str, text: &str) -> anyhow::Result<Vec<NamedToken>> {
    let mut tokens: Vec<NamedToken> = Vec::new();
    // The lines of those that have a name of their own.
    let mut lines: HashMap<&str, usize> = HashMap::new();
    for (index, line) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{file}:{}", index + 1);
        let words: Vec<&str> = line.split_whitespace().collect();
        let token = match words[..] {
            [secret] => NamedToken::new(&format!("line {}", index + 1), secret),
            [VARIABLE, _] => bail!("{place}: `{VARIABLE}` is what the variable's token is called: choose another name"),
            [name, secret] => {
                if secret.len() <= name.len() || !name.bytes().all(is_of_a_name) {
                    bail!(
                        "{place}: is not a name and a token: write the name first, shorter than its token, with \
                         letters, digits and - _ . @ only"
                    );
                }
                if let Some(line) = lines.insert(name, index + 1) {
                    bail!("{place}: line {line} has a token named `{name}` too: give each a name of its own");
                }
                NamedToken::new(name, secret)
            }
            _ => bail!("{place}: more than two words: write one token per line, or a name and a token"),
        };
        tokens.push(token.with_context(|| place)?);
    }
    if tokens.is_empty() {
        bail!("{file} has no token: write one per line, such as the output of `{GOOD_TOKEN}`");
    }
    Ok(tokens)
}

fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_token_or_a_name_and_a_token() {
        let tokens = parse("t", "\u{feff}# team\n\nabc\n deploy  defghij \n").unwrap();
        let pairs: Vec<_> = tokens.iter().map(|token| (token.name.as_str(), token.secret.as_str())).collect();
        assert_eq!(pairs, [("line 3", "abc"), ("deploy", "defghij")]);
    }

    /// S7: a token never shows up in an error or a debug print.
    #[test]
    fn a_mistake_names_the_line_and_never_the_token() {
        let error = format!("{:#}", parse("t", "abc\nname canary-secret extra\n").unwrap_err());
        assert!(error.contains("t:2") && !error.contains("canary"), "{error}");
        let error = format!("{:#}", parse("t", "canäry-secret\n").unwrap_err());
        assert!(error.contains("t:1") && !error.contains("secret"), "{error}");
        for line in ["canary-secret name", "canary canary", "n\u{200b} canary-secret", "n: canary-secret"] {
            let error = format!("{:#}", parse("t", line).unwrap_err());
            assert!(error.contains("t:1") && !error.contains("canary"), "{line}: {error}");
        }
        assert!(!format!("{:?}", parse("t", "n canary").unwrap()).contains("canary"));
    }

    /// Who takes a token away by its name must know which one that is.
    #[test]
    fn a_name_stands_for_one_token() {
        let error = parse("t", "deploy canary-1\n\n# other\ndeploy canary-2\n").unwrap_err().to_string();
        assert!(error.starts_with("t:4: line 1 has a token named `deploy` too"), "{error}");
        assert!(!error.contains("canary"), "{error}");
        let error = parse("t", "ENSUE_TOKEN canary-that-is-longer\n").unwrap_err().to_string();
        assert!(error.starts_with("t:1: `ENSUE_TOKEN`") && !error.contains("canary"), "{error}");
        assert!(parse("t", "abc\ndef\n").is_ok());
    }

    #[test]
    fn a_file_without_a_token_is_refused() {
        assert!(parse("t", "# none\n").unwrap_err().to_string().contains("no token"));
    }
}
