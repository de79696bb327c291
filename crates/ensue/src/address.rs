//! Which store does a text mean, and how is it shown without its secrets?
//!
//! The one place that knows how stores are written. What it shows never holds a password: where it cannot tell for sure
//! which part is one, it shows less.

use crate::Error;
use std::fmt;
use std::str::FromStr;

/// How a store is written, for errors.
const FORMS: &str = "write sqlite:PATH, sqlite::memory: or postgres://USER@HOST/DATABASE?schema=ensue";

/// The parameters of a Postgres URL whose values may be seen by everybody; of others only the name is shown.
const SHOWN_PARAMETERS: [&str; 11] = [
    "application_name",
    "connect_timeout",
    "connections",
    "dbname",
    "host",
    "port",
    "schema",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "user",
];

/// Where a store is: a text that was understood. It is shown, by `Display` and `Debug`, without its secrets.
///
/// ```
/// use ensue::{Address, Place};
/// let address: Address = "postgres://me:secret@db/app?schema=log".parse().unwrap();
/// assert_eq!(address.to_string(), "postgres://me:…@db/app?schema=log");
/// assert_eq!(address.place(), Place::Postgres);
/// let address: Address = "ensue.db".parse().unwrap();
/// assert_eq!(address.place(), Place::File("ensue.db"));
/// assert!("mysql://db/app".parse::<Address>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    text: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Memory,
    /// The path begins at this byte of the text.
    File(usize),
    Postgres,
}

/// The kinds of place where a log can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// SQLite in memory: gone with the process.
    Memory,
    /// SQLite in a file.
    File(&'a str),
    /// A schema of a Postgres database.
    Postgres,
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let kind = match text.split_once(':') {
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => Kind::Postgres,
            Some(("", "memory:") | ("sqlite", ":memory:" | "//:memory:")) => Kind::Memory,
            Some(("sqlite", path)) => Kind::File(text.len() - path.strip_prefix("//").unwrap_or(path).len()),
            // What stands before the colon is a scheme, unless it is a part of a path.
            Some((scheme, _)) if !scheme.contains(['/', '.']) => {
                return Err(Error::Address(format!(
                    "{} is not a store that this program knows; {FORMS} (a file with a colon in its name: sqlite:NAME)",
                    if is_scheme(scheme) { format!("`{scheme}:`") } else { "this".to_owned() }
                )));
            }
            Some(_) | None => Kind::File(0),
        };
        // A file by the name of a database's address would show its password wherever the store is named.
        if matches!(kind, Kind::File(_)) && is_of_a_database(text) {
            return Err(Error::Address(format!("this looks like the address of a database, not of a file; {FORMS}")));
        }
        if kind == Kind::File(text.len()) {
            return Err(Error::Address(format!("the store's path is empty; {FORMS}")));
        }
        #[cfg(feature = "postgres")]
        if kind == Kind::Postgres {
            ensue_stores::postgres::check_url(text)?;
        }
        Ok(Self { text: text.to_string(), kind })
    }
}

/// Could it be the scheme of a URL, and nothing else?
fn is_scheme(text: &str) -> bool {
    text.len() <= 20 && !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '+' || c == '-')
}

/// Is it written as other programs write the address of a database: `host=… password=…`, a URL, `user:password@host`?
fn is_of_a_database(text: &str) -> bool {
    let path = text.strip_prefix("sqlite:").unwrap_or(text);
    let path = path.strip_prefix("//").unwrap_or(path);
    let has_user = path.split_once('@').is_some_and(|(user, _)| user.contains(':'));
    let parameters = ["host", "hostaddr", "server", "port", "dbname", "database", "user", "uid", "sslmode"];
    let secrets = ["password", "passwd", "passfile", "pwd"];
    let names = path.split('=').filter_map(|part| part.trim_end().rsplit(|c: char| !c.is_ascii_alphanumeric()).next());
    // What follows the last `=` is a value.
    let mut names = names.take(path.matches('=').count()).map(str::to_ascii_lowercase);
    let first = names.next();
    let begins_with_one = first.as_ref().is_some_and(|name| parameters.contains(&name.as_str()));
    let has_secret = first.into_iter().chain(names).any(|name| secrets.contains(&name.as_str()));
    path.contains("://") || has_user || begins_with_one || has_secret
}

impl Address {
    /// The text as it was written: what opens the store, and what may hold a password.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The kind of place.
    pub fn place(&self) -> Place<'_> {
        match self.kind {
            Kind::Memory => Place::Memory,
            Kind::File(path) => Place::File(&self.text[path..]),
            Kind::Postgres => Place::Postgres,
        }
    }

    /// A Postgres address as other programs take it, without `schema`, `connections` and `pooler`.
    pub fn without_schema(&self) -> String {
        self.without(&["schema", "connections", "pooler"])
    }

    fn without(&self, left_out: &[&str]) -> String {
        let (base, query) = parts(&self.text);
        let is_left = |pair: &&str| !pair.is_empty() && !left_out.contains(&name(pair));
        let rest: Vec<&str> = query.split('&').filter(is_left).collect();
        if rest.is_empty() { base.to_string() } else { format!("{base}?{}", rest.join("&")) }
    }

    /// The same Postgres database with another schema.
    pub fn with_schema(&self, schema: &str) -> String {
        let base = self.without(&["schema"]);
        let joint = if parts(&base).1.is_empty() { '?' } else { '&' };
        format!("{base}{joint}schema={schema}")
    }
}

/// A Postgres URL before and after the question mark. One in a password belongs to the password.
fn parts(url: &str) -> (&str, &str) {
    let start = url.find("//").map_or(0, |slashes| slashes + 2);
    let mark = match (url.find('?'), url.find('@')) {
        // A password has a colon before it, and the path of the URL behind it.
        (Some(mark), Some(at)) if mark < at && url[start..mark].contains(':') && !url[start..mark].contains('/') => {
            url[at..].find('?').map(|mark| at + mark)
        }
        (mark, _) => mark,
    };
    mark.map_or((url, ""), |mark| (&url[..mark], &url[mark + 1..]))
}

fn name(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(name, _)| name)
}

/// Without a password, wherever one may be.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Memory | Kind::File(_) => f.write_str(&self.text),
            Kind::Postgres => f.write_str(&shown(&self.text)),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "…".into() };
    let rest = match rest.split_once('@') {
        // A password may hold anything, an `@` too: what follows the last one is not a part of it.
        Some((user, _)) if user.contains(':') => {
            let (hidden, host) = rest.rsplit_once('@').unwrap_or((rest, ""));
            let user = user.split(':').next().unwrap_or_default();
            if hidden.contains(['/', '?']) {
                // It could as well be a parameter that holds an `@`.
                return format!("{scheme}://{user}:…");
            }
            format!("{user}:…@{host}")
        }
        Some(_) | None => rest.to_string(),
    };
    let Some((base, query)) = rest.split_once('?') else { return format!("{scheme}://{rest}") };
    let pairs: Vec<String> = query
        .split('&')
        .map(|pair| if SHOWN_PARAMETERS.contains(&name(pair)) { pair.into() } else { format!("{}=…", name(pair)) })
        .collect();
    format!("{scheme}://{base}?{}", pairs.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    #[test]
    fn a_text_means_a_file_memory_or_a_database() {
        for (text, path) in [
            ("a.db", "a.db"),
            ("sqlite:a.db", "a.db"),
            ("sqlite://a.db", "a.db"),
            ("sqlite:///var/a.db", "/var/a.db"),
            ("./a:b.db", "./a:b.db"),
            ("sqlite:a:b", "a:b"),
            ("logs@home.db", "logs@home.db"),
            ("/var/lib/a=b.db", "/var/lib/a=b.db"),
        ] {
            assert_eq!(address(text).place(), Place::File(path), "{text}");
        }
        assert_eq!(address("sqlite::memory:").place(), Place::Memory);
        for text in ["postgres://h/db", "postgresql://u@h/db?schema=a"] {
            assert_eq!(address(text).place(), Place::Postgres, "{text}");
        }
    }

    #[test]
    fn what_is_no_store_is_refused_with_what_is_one() {
        for text in [
            "mysql://u:canary@h/db",
            "redis://canary",
            "mysql:canary",
            "postgres:canary",
            "",
            "sqlite:",
            "host=h password=canary",
            "host=h user=canary",
            "host=h password=canary:x",
            "password = 'canary",
            "Server=h;Pwd=canary",
            "u:canary@h/db",
            "u.x:canary@h/db",
            "canary@h:1/db",
            "sqlite:postgres://u:canary@h/db",
            " postgres://u:canary@h/db",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("sqlite:PATH") && !error.contains("canary"), "{text:?}: {error}");
        }
    }

    /// S7: a password in an address is a secret.
    #[test]
    fn a_password_is_not_shown_wherever_it_is() {
        for (text, expected) in [
            ("postgres://u:pass@h:1/db?schema=b", "postgres://u:…@h:1/db?schema=b"),
            ("postgres://u:p@ss@h/db", "postgres://u:…@h/db"),
            ("postgres://u@h/db?password=x&schema=c", "postgres://u@h/db?password=…&schema=c"),
            ("postgres://u@h/db?PASSWORD=x&p%61ssword=y", "postgres://u@h/db?PASSWORD=…&p%61ssword=…"),
            ("postgres://u:a?schema=b@h/db?schema=c", "postgres://u:…"),
            ("postgres://h:1/db?password=x@y", "postgres://h:…"),
            ("postgres://u@h/db", "postgres://u@h/db"),
        ] {
            assert_eq!(shown(text), expected);
        }
        assert_eq!(format!("{:?}", address("postgres://u:pass@h/db")), "Address(postgres://u:…@h/db)");
    }

    #[test]
    fn the_schema_is_taken_out_and_put_in() {
        for (text, without, with) in [
            ("postgres://h/db", "postgres://h/db", "postgres://h/db?schema=x"),
            ("postgres://h/db?schema=a", "postgres://h/db", "postgres://h/db?schema=x"),
            (
                "postgres://h/db?user=b&schema=a&sslmode=disable",
                "postgres://h/db?user=b&sslmode=disable",
                "postgres://h/db?user=b&sslmode=disable&schema=x",
            ),
            ("postgres://u:a?b@h/db?schema=a", "postgres://u:a?b@h/db", "postgres://u:a?b@h/db?schema=x"),
            ("postgres://h/db?user=a@b", "postgres://h/db?user=a@b", "postgres://h/db?user=a@b&schema=x"),
        ] {
            assert_eq!((address(text).without_schema(), address(text).with_schema("x")), (without.into(), with.into()));
        }
    }
}
