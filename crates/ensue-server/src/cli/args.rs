//! How does an argument become a value?

use crate::config::units::Span;
use anyhow::{Context, bail};
use ensue::{EventId, Seq, Timestamp};
use std::io::Read;

/// An event, named by its place or by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventRef {
    /// Its place in the log.
    Seq(Seq),
    /// Its public identity.
    Id(EventId),
}

impl EventRef {
    /// As a path names it.
    pub fn to_text(self) -> String {
        match self {
            Self::Seq(seq) => seq.to_string(),
            Self::Id(id) => id.to_string(),
        }
    }
}

/// For `clap`: a `seq` or an id.
pub fn event_ref(text: &str) -> Result<EventRef, String> {
    if let Ok(seq) = text.parse() {
        return Ok(EventRef::Seq(seq));
    }
    event_id(text).map(EventRef::Id).map_err(|_| {
        "write a seq such as 12, or an id such as 01890a5d-ac96-774b-bcce-b302099a8057, as publish and tail show them".into()
    })
}

/// For `clap`: a place in the log.
pub fn seq(text: &str) -> Result<Seq, String> {
    text.parse().map_err(|_| "write a seq such as 12, as publish and tail show them".into())
}

/// For `clap`: an id.
pub fn event_id(text: &str) -> Result<EventId, String> {
    let id =
        text.parse().map_err(|_| "write an id such as 01890a5d-ac96-774b-bcce-b302099a8057, as publish answered it")?;
    Ok(EventId(id))
}

/// When something is to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At this time.
    At(Timestamp),
    /// So long after now.
    In(Span),
}

/// For `clap`: a point in time, or a length of time from now on.
pub fn when(text: &str) -> Result<When, String> {
    if let Ok(span) = text.strip_prefix('+').unwrap_or(text).parse() {
        return Ok(When::In(span));
    }
    text.parse()
        .map(When::At)
        .map_err(|_| "write a time such as 2026-11-15T12:00:00Z, or a length of time from now such as 10m".into())
}

/// For `clap`: a point in time.
pub fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "write a time such as 2026-11-15T12:00:00Z".into())
}

/// JSON as it stands, from a file (`@FILE`) or from stdin (`-`).
pub fn json_text(field: &str, argument: &str) -> anyhow::Result<String> {
    if argument == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).with_context(|| format!("cannot read `{field}` from stdin"))?;
        return Ok(text);
    }
    match argument.strip_prefix('@') {
        Some("") => bail!("`{field}` names no file: write @FILE, - for stdin, or the JSON itself"),
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read `{field}` from {path}: check the path and its permissions")),
        None => Ok(argument.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_named_by_seq_or_id() {
        assert_eq!(event_ref("12"), Ok(EventRef::Seq(12)));
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        assert_eq!(event_ref(id), Ok(EventRef::Id(EventId(id.parse().unwrap()))));
        for bad in ["", "-1", "order.paid", "01890a5d"] {
            assert!(event_ref(bad).unwrap_err().contains("such as 12"), "{bad:?}");
        }
    }

    #[test]
    fn a_time_is_absolute_or_from_now() {
        let noon = Timestamp::from_second(1_794_744_000).unwrap();
        assert_eq!((time("2026-11-15T12:00:00Z"), when("2026-11-15T12:00:00Z")), (Ok(noon), Ok(When::At(noon))));
        assert_eq!((when("10m"), when("+10m")), (Ok(When::In("10m".parse().unwrap())), when("10m")));
        assert!(when("tomorrow").unwrap_err().contains("2026-11-15T12:00:00Z"));
        assert!(time("10m").is_err());
    }
}
