//! What is said about a schedule, in the config file, over HTTP or on the command line?

use super::file;
use super::units::Span;
use anyhow::anyhow;
use ensue::schedules::{Misfire, Overlap, Schedule, Target, Timing};
use ensue::{GroupName, Invalid, Json, Topic};
use jiff::SignedDuration;
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::path::Path;

/// Who manages the schedules of a config file.
pub const MANAGER: &str = "config";

/// What can be said about a schedule.
pub const FIELDS: &[&str] = &[
    "cron",
    "every",
    "timezone",
    "misfire",
    "overlap",
    "jitter",
    "topic",
    "handler",
    "payload",
    "priority",
    "attempts_max",
];

/// The key `schedules` of the config file: each by its name.
pub type SchedulesSection = BTreeMap<String, Spanned<Fields>>;

/// What is said about a schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fields {
    /// A cron expression.
    pub cron: Option<String>,
    /// Every so often.
    pub every: Option<Span>,
    /// Whose clock is meant.
    pub timezone: Option<String>,
    /// What becomes of what was missed.
    pub misfire: Option<String>,
    /// What becomes of an occurrence while the one before runs.
    pub overlap: Option<String>,
    /// Up to how much later it fires.
    pub jitter: Option<Span>,
    /// An event on this topic follows.
    pub topic: Option<String>,
    /// A job for this handler follows.
    pub handler: Option<String>,
    /// The content of that.
    pub payload: Option<serde_json::Value>,
    /// Of its jobs.
    pub priority: Option<u64>,
    /// How often a job of it is attempted.
    pub attempts_max: Option<u32>,
}

/// The schedule that is meant, with a content that may have been read elsewhere.
pub fn schedule_of(name: GroupName, fields: &Fields, payload: Option<Json>) -> Result<Schedule, Invalid> {
    let zone = fields.timezone.as_deref();
    let timing = match (&fields.cron, fields.every) {
        (Some(cron), None) => Timing::cron(cron, zone)?,
        (None, Some(Span(every))) => Timing::every(every, zone)?,
        (Some(_), Some(_)) => return Err(Invalid::new("every", "stands beside `cron`: leave one of them out")),
        (None, None) => return Err(Invalid::new("cron", "is missing: say when, with `cron` or `every`")),
    };
    let target = match (&fields.topic, &fields.handler) {
        (Some(topic), None) => Target::Topic(Topic::parse(topic)?),
        (None, Some(handler)) => Target::Handler(GroupName::parse("handler", handler)?),
        (Some(_), Some(_)) => return Err(Invalid::new("handler", "stands beside `topic`: leave one of them out")),
        (None, None) => return Err(Invalid::new("topic", "is missing: say what follows, with `topic` or `handler`")),
    };
    let unknown = |field: &str, words: &str| Invalid::new(field, format!("is not known here: write {words}"));
    let misfire = fields
        .misfire
        .as_deref()
        .map(|word| Misfire::parse(word).ok_or_else(|| unknown("misfire", "skip, once or all")));
    let overlap = fields
        .overlap
        .as_deref()
        .map(|word| Overlap::parse(word).ok_or_else(|| unknown("overlap", "skip, queue or allow")));
    let written = fields.payload.as_ref().map(|payload| Json::of("payload", payload)).transpose()?;
    Ok(Schedule {
        misfire: misfire.transpose()?.unwrap_or_default(),
        overlap: overlap.transpose()?,
        jitter: fields.jitter.map_or(SignedDuration::ZERO, |span| span.0),
        payload: payload.or(written).unwrap_or_else(Json::null),
        priority: fields.priority.unwrap_or(0),
        attempts_max: fields.attempts_max,
        ..Schedule::new(name, timing, target)
    })
}

/// The schedules of a config file, or where it says something that cannot be.
pub fn check(section: &SchedulesSection, file: &Path) -> anyhow::Result<Vec<Schedule>> {
    let one = |(name, fields): (&String, &Spanned<Fields>)| {
        let schedule = GroupName::parse("name", name).and_then(|name| {
            let schedule = Schedule { managed_by: Some(MANAGER.into()), ..schedule_of(name, &fields.value, None)? };
            schedule.check_settings().map(|()| schedule)
        });
        schedule.map_err(|invalid| anyhow!("{}: schedule `{name}`: {invalid}", file::place(file, fields)))
    };
    section.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::ConfigFile;

    fn checked(text: &str) -> anyhow::Result<Vec<Schedule>> {
        let config = ConfigFile::parse("my.yaml", text)?;
        check(&config.schedules.unwrap_or_default(), Path::new("my.yaml"))
    }

    #[test]
    fn schedules_are_read_from_the_file() {
        let text = "schedules:\n  nightly: { cron: '30 2 * * *', timezone: Europe/Berlin, topic: report.nightly }\n  \
                    sweep: { every: 5m, handler: sweep, overlap: queue, misfire: all, jitter: 10s, payload: { a: [1] }, priority: 3 }\n";
        let schedules = checked(text).unwrap();
        assert_eq!(schedules[0].timing.in_words(), "At 02:30 (Europe/Berlin)");
        assert_eq!(schedules[0].managed_by.as_deref(), Some(MANAGER));
        let past = checked("schedules:\n  x: { cron: '0 0 0 1 1 ? 2020', topic: t }\n");
        assert!(past.is_ok(), "a server starts after the last time that its file names has passed: {past:?}");
        let sweep = &schedules[1];
        assert_eq!((sweep.overlap, sweep.misfire, sweep.priority), (Some(Overlap::Queue), Misfire::All, 3));
        assert_eq!((sweep.payload.as_str(), sweep.jitter), (r#"{"a":[1]}"#, SignedDuration::from_secs(10)));
    }

    #[test]
    fn a_mistake_is_told_with_its_place_and_its_field() {
        for (fields, told) in [
            ("{ topic: t }", "`cron` is missing"),
            ("{ cron: '@daily', every: 5m, topic: t }", "`every` stands beside"),
            ("{ cron: '@daily' }", "`topic` is missing"),
            ("{ cron: '@daily', topic: t, handler: h }", "`handler` stands beside"),
            ("{ cron: '99 * * * *', topic: t }", "`99` as its minute"),
            ("{ cron: '@daily', timezone: Mars/Olympus, topic: t }", "`timezone`"),
            ("{ cron: '@daily', topic: t, overlap: skip }", "`overlap` is for a schedule with `handler`"),
            ("{ cron: '@daily', topic: t, misfire: never }", "`misfire` is not known here"),
            ("{ cron: '@daily', topic: ensue.own }", "`topic`"),
            (
                "{ cron: '@daily', handler: task.s.a, overlap: allow }",
                "`overlap` is `skip` for the tasks of a collection",
            ),
        ] {
            let error = checked(&format!("schedules:\n  x: {fields}\n")).unwrap_err().to_string();
            assert!(error.starts_with("my.yaml:2:6: schedule `x`: ") && error.contains(told), "{error}");
        }
        let unknown = checked("schedules:\n  x: { corn: '@daily' }\n").unwrap_err().to_string();
        assert!(unknown.contains("unknown field `corn`"), "{unknown}");
    }
}
