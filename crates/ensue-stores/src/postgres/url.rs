//! What does a Postgres URL ask for?
//!
//! Some parameters are ours (`schema`, `pooler`, `connections`) or are not known to the driver (`sslmode=verify-full`, `sslrootcert`): they are
//! taken out before the driver sees the rest. No message here repeats any part of a URL, which may hold a password.

use super::options::{CONNECTIONS_MIN, readers_within};
use super::pooling::Pooler;
use ensue_core::{Invalid, StoreError};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// The schema when none is named.
const SCHEMA_DEFAULT: &str = "ensue";
/// The longest identifier that Postgres does not cut off.
const SCHEMA_BYTES_MAX: usize = 63;

/// The sizes that a URL may ask for. Smaller partitions would be made more often than they are filled.
const PARTITION_ROWS: RangeInclusive<u64> = 1_000..=1_000_000_000;

/// How a connection is encrypted, in libpq's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encryption {
    /// Never.
    Disable,
    /// If the server can; nothing is verified.
    Prefer,
    /// Always; nothing is verified unless roots are given.
    Require,
    /// Always, with a certificate of a trusted authority.
    VerifyCa,
    /// The same, and the certificate is for this host.
    VerifyFull,
}

/// A URL, taken apart.
#[derive(Debug)]
pub(super) struct Target {
    pub config: Config,
    pub schema: String,
    pub encryption: Encryption,
    pub roots: Option<PathBuf>,
    pub pooler: Pooler,
    /// The most connections in all, if it says so.
    pub connections: Option<usize>,
    /// How many events a new partition of the log holds.
    pub partition_rows: Option<u64>,
    /// Does it say itself which of several servers will do?
    pub chooses_server: bool,
}

fn invalid(reason: impl Into<String>) -> StoreError {
    StoreError::Invalid(Invalid::new("store", reason))
}

/// Takes a URL apart, or says how to write one.
pub(super) fn parse(url: &str, connect_timeout: Duration) -> Result<Target, StoreError> {
    let (address, query) = match query_mark(url) {
        Some(mark) => (&url[..mark], &url[mark + 1..]),
        None => (url, ""),
    };
    let mut schema = SCHEMA_DEFAULT.to_string();
    let mut encryption = None;
    let mut roots = None;
    let mut pooler = Pooler::Unknown;
    let mut connections = None;
    let mut partition_rows = None;
    let mut left_over = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "schema" => schema = percent_decoded(value)?,
            "sslmode" => encryption = Some(parse_encryption(value)?),
            "pooler" => pooler = parse_pooler(value)?,
            "connections" => connections = Some(parse_connections(value)?),
            "partition_rows" => partition_rows = Some(parse_partition_rows(value)?),
            "sslrootcert" => roots = Some(percent_decoded(value)?),
            // The driver would take what stands before an `@` for user and password.
            _ => left_over.push(pair.replace('@', "%40")),
        }
    }
    check_schema(&schema)?;
    let chooses_server = left_over.iter().any(|pair| pair.starts_with("target_session_attrs="));
    let bare = match left_over.is_empty() {
        true => address.to_string(),
        false => format!("{address}?{}", left_over.join("&")),
    };
    let mut config: Config = bare.parse().map_err(|_| {
        invalid(
            "is not a Postgres URL: write postgres://USER:PASSWORD@HOST:PORT/DATABASE?schema=ensue, with special \
             characters of the password as %XX; known parameters are schema, connections, pooler, partition_rows, \
             sslmode, sslrootcert and those of the driver, such as application_name and connect_timeout",
        )
    })?;
    // As in libpq: roots given without a mode mean that they are to be used.
    let roots = roots.filter(|path| path != "system").map(PathBuf::from);
    let encryption = match encryption.unwrap_or(Encryption::Prefer) {
        Encryption::Require if roots.is_some() => Encryption::VerifyCa,
        asked => asked,
    };
    config.ssl_mode(match encryption {
        Encryption::Disable => SslMode::Disable,
        Encryption::Prefer => SslMode::Prefer,
        Encryption::Require | Encryption::VerifyCa | Encryption::VerifyFull => SslMode::Require,
    });
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        config.host("localhost");
    }
    if config.get_application_name().is_none() {
        config.application_name("ensue");
    }
    if config.get_connect_timeout().is_none() {
        // Each of several hosts has its turn within the limit.
        let hosts = config.get_hosts().len().max(config.get_hostaddrs().len()).max(1);
        config.connect_timeout(connect_timeout / hosts as u32);
    }
    if config.get_tcp_user_timeout().is_none() {
        // A peer that is gone without a word is noticed while something is under way, not hours later.
        config.tcp_user_timeout(connect_timeout);
    }
    // The same for one that rests in a pool.
    config.keepalives_idle(Duration::from_secs(30)).keepalives_interval(Duration::from_secs(10));
    Ok(Target { config, schema, encryption, roots, pooler, connections, partition_rows, chooses_server })
}

/// Where do the parameters begin? At the first question mark, unless it is one of a password that was not written as
/// `%3F`: then `USER:` stands before it and an `@` after it.
fn query_mark(url: &str) -> Option<usize> {
    let begin = url.find("://").map_or(0, |at| at + 3);
    let mark = begin + url[begin..].find('?')?;
    let before = &url[begin..mark];
    let in_password = before.contains(':') && !before.contains(['/', '@']);
    match url[mark..].find('@') {
        Some(at) if in_password => Some(mark + at + url[mark + at..].find('?')?),
        Some(_) | None => Some(mark),
    }
}

fn parse_encryption(value: &str) -> Result<Encryption, StoreError> {
    match value {
        "disable" => Ok(Encryption::Disable),
        "allow" | "prefer" => Ok(Encryption::Prefer),
        "require" => Ok(Encryption::Require),
        "verify-ca" => Ok(Encryption::VerifyCa),
        "verify-full" => Ok(Encryption::VerifyFull),
        _ => Err(invalid("has an unknown sslmode; use disable, prefer, require, verify-ca or verify-full")),
    }
}

fn parse_pooler(value: &str) -> Result<Pooler, StoreError> {
    match value {
        "transaction" => Ok(Pooler::Transaction),
        "none" => Ok(Pooler::None),
        _ => Err(invalid(
            "has an unknown pooler; use transaction for one in transaction mode, none for a connection of our own, or leave it \
             out to have it found out",
        )),
    }
}

fn parse_connections(value: &str) -> Result<usize, StoreError> {
    let connections = value.parse();
    let connections = connections.map_err(|_| {
        invalid(format!(
            "has a number of connections that is none; write {CONNECTIONS_MIN} or more, as in ?connections=16"
        ))
    })?;
    readers_within(connections)?;
    Ok(connections)
}

fn parse_partition_rows(value: &str) -> Result<u64, StoreError> {
    match value.parse() {
        Ok(rows) if PARTITION_ROWS.contains(&rows) => Ok(rows),
        Ok(_) | Err(_) => Err(invalid(format!(
            "has a partition_rows that is not a number of events from {} to {}",
            PARTITION_ROWS.start(),
            PARTITION_ROWS.end()
        ))),
    }
}

fn check_schema(schema: &str) -> Result<(), StoreError> {
    if schema.is_empty() || schema.len() > SCHEMA_BYTES_MAX || schema.contains('\0') {
        return Err(invalid(format!(
            "has a schema that is empty, has a NUL or is longer than {SCHEMA_BYTES_MAX} bytes; choose another, as in ?schema=ensue"
        )));
    }
    if schema.starts_with("pg_") {
        return Err(invalid("has a schema that begins with `pg_`, which Postgres keeps for itself; choose another"));
    }
    Ok(())
}

fn percent_decoded(text: &str) -> Result<String, StoreError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let decoded = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(decoded.ok_or_else(|| invalid("has a parameter with a `%` that two hex digits do not follow"))?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| invalid("has a parameter that is not UTF-8"))
}

/// Where a server is, for messages: without user and password.
pub(super) fn place(config: &Config) -> String {
    let port = |index: usize| {
        let ports = config.get_ports();
        ports.get(index).or(ports.last()).copied().unwrap_or(5432)
    };
    let host = |(index, host): (usize, &Host)| match host {
        Host::Tcp(name) => format!("{name}:{}", port(index)),
        Host::Unix(path) => path.display().to_string(),
    };
    let hosts: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
    format!("{}/{}", hosts.join(","), config.get_dbname().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        parse(url, Duration::from_secs(1)).unwrap()
    }

    #[test]
    fn our_own_parameters_are_taken_out_and_the_others_stay() {
        let url =
            "postgres://u:secret@h:5433/db?schema=my%20log&sslmode=verify-full&sslrootcert=/ca.pem&application_name=x";
        let target = target(url);
        assert_eq!((target.schema.as_str(), target.encryption), ("my log", Encryption::VerifyFull));
        assert_eq!(target.roots, Some(PathBuf::from("/ca.pem")));
        assert_eq!(target.config.get_application_name(), Some("x"));
        assert_eq!(place(&target.config), "h:5433/db");
    }

    #[test]
    fn a_url_without_parameters_means_the_schema_ensue_and_encryption_if_possible() {
        let target = target("postgres://u@h/db");
        assert_eq!((target.schema.as_str(), target.encryption), ("ensue", Encryption::Prefer));
    }

    #[test]
    fn url_sets_the_size_of_partitions() {
        assert_eq!(target("postgres://u@h/db").partition_rows, None);
        assert_eq!(target("postgres://u@h/db?partition_rows=50000").partition_rows, Some(50_000));
        for wrong in ["0", "999", "many", "-5", "1000000001"] {
            let error = parse(&format!("postgres://u@h/db?partition_rows={wrong}"), Duration::ZERO).unwrap_err();
            assert!(error.to_string().contains("partition_rows"), "{error}");
        }
    }

    #[test]
    fn a_url_may_say_whether_there_is_a_pooler() {
        assert_eq!(target("postgres://u@h/db").pooler, Pooler::Unknown);
        assert_eq!(target("postgres://u@h/db?pooler=transaction").pooler, Pooler::Transaction);
        assert_eq!(target("postgres://u@h/db?pooler=none").pooler, Pooler::None);
    }

    #[test]
    fn a_url_may_bound_the_connections() {
        assert_eq!(target("postgres://u@h/db").connections, None);
        assert_eq!(target("postgres://u@h/db?connections=6&schema=a").connections, Some(6));
    }

    #[test]
    fn a_password_with_a_question_mark_is_left_whole() {
        let target = target("postgres://u:a?schema=b@h/db?schema=c");
        assert_eq!((target.schema.as_str(), target.config.get_password()), ("c", Some(&b"a?schema=b"[..])));
    }

    #[test]
    fn an_at_sign_in_a_parameter_is_no_end_of_a_password() {
        for url in [
            "postgres://h/db?application_name=a@b&schema=c",
            "postgres://h:5432/db?application_name=a@b&schema=c",
            "postgres://h?application_name=a@b&schema=c",
            "postgres://u:p@h/db?application_name=a@b&schema=c",
            "postgres://u:p?q@h/db?application_name=a@b&schema=c",
        ] {
            let target = target(url);
            assert_eq!((target.schema.as_str(), target.config.get_application_name()), ("c", Some("a@b")), "{url}");
            assert_eq!(target.config.get_hosts(), [Host::Tcp("h".into())], "{url}");
        }
    }

    #[test]
    fn several_hosts_share_the_time_to_connect() {
        let target = target("postgres://u@one,two/db");
        assert_eq!(target.config.get_connect_timeout(), Some(&Duration::from_millis(500)));
    }

    #[test]
    fn requiring_encryption_with_roots_verifies_them_as_libpq_does() {
        assert_eq!(target("postgres://h/d?sslmode=require").encryption, Encryption::Require);
        assert_eq!(target("postgres://h/d?sslmode=require&sslrootcert=/ca").encryption, Encryption::VerifyCa);
    }

    /// S7: a canary password is in none of the messages.
    #[test]
    fn a_refused_url_says_what_to_write_and_never_repeats_a_password() {
        for url in [
            "postgres://u:canary@h:port/db",
            "postgres://u:canary@h/db?canary=x",
            "postgres://u:canary@h/db?sslmode=canary",
            "postgres://u:canary@h/db?pooler=canary",
            "postgres://u:canary@h/db?connections=canary",
            "postgres://u:canary@h/db?connections=3",
            "postgres://u:canary@h/db?schema=",
            "postgres://u:canary@h/db?schema=pg_canary",
            "postgres://u:canary@h/db?schema=%zzcanary",
        ] {
            let error = parse(url, Duration::from_secs(1)).unwrap_err().to_string();
            assert!(!error.contains("canary"), "{error}");
            assert!(error.starts_with("`store` "), "{error}");
        }
    }
}
