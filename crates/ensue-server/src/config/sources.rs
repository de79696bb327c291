//! What does the config file say about sources and their collections, and can that be?

use super::command_line::CommandLine;
use super::file::place;
use super::handlers::{RetryFields, Wait, WebhookAnswer, WebhookFormat};
use super::handlers_check::{self, Runs};
use crate::executors::Guard;
use anyhow::anyhow;
use ensue::schedules::{Schedule, Target, Timing};
use ensue::tasks::{Collection, CollectionOptions, TASK_PRIORITY};
use ensue::{GroupName, Invalid, Retry};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;
use std::collections::HashMap;
use std::fmt::{self, Display};
use std::path::Path;
use std::time::Duration;

/// The key `sources` of the config file: names, each with its collections, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourcesSection(pub Vec<(Spanned<String>, SourceFields)>);

/// What can be said about a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourceFields {
    /// What runs for a collection that does not say it itself.
    pub default: Option<DefaultFields>,
    /// What it has.
    pub collections: Option<Vec<Spanned<CollectionFields>>>,
}

/// What runs for the collections of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DefaultFields {
    /// A program and its arguments.
    pub command: Option<Spanned<CommandLine>>,
    /// A URL that every task is posted to.
    pub webhook: Option<Spanned<String>>,
    /// What is done with the receiver's answer.
    pub answer: Option<Spanned<WebhookAnswer>>,
    /// Workers elsewhere claim the tasks.
    pub pull: Option<Spanned<bool>>,
}

/// What can be said about a collection.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectionFields {
    /// Its name.
    pub name: Option<Spanned<String>>,
    /// When its tasks are made by themselves.
    pub schedule: Option<Spanned<String>>,
    /// In which time zone.
    pub timezone: Option<Spanned<String>>,
    /// Higher runs first.
    pub priority: Option<Spanned<u64>>,
    /// How long a task may take.
    pub timeout: Option<Spanned<Wait>>,
    /// How often, and after how long.
    pub retry: Option<Spanned<RetryFields>>,
    /// A program and its arguments.
    pub command: Option<Spanned<CommandLine>>,
    /// A URL that every task is posted to.
    pub webhook: Option<Spanned<String>>,
    /// What is done with the receiver's answer.
    pub answer: Option<Spanned<WebhookAnswer>>,
    /// Workers elsewhere claim its tasks.
    pub pull: Option<Spanned<bool>>,
}

/// A collection of the config file, checked.
#[derive(Debug, Clone)]
pub struct CollectionConfig {
    /// Where it stands: `ensue.yaml:4:5`.
    pub place: String,
    /// What it is called there: `sources.github.collections[0]`.
    pub field: String,
    /// Which it is.
    pub collection: Collection,
    /// What runs: a program, a webhook, workers elsewhere, or code of the application.
    pub runs: Runs,
    /// How its tasks are run.
    pub options: CollectionOptions,
    /// How often a task is attempted; once unless told.
    pub retry: Retry,
    /// When its tasks are made by themselves.
    pub schedule: Option<Schedule>,
}

impl CollectionConfig {
    /// Is it code of the application that runs?
    pub fn is_compiled_in(&self) -> bool {
        matches!(self.runs, Runs::CompiledIn(_))
    }

    /// A refusal of a part of it.
    pub fn refusal(&self, part: &str, reason: &str) -> anyhow::Error {
        anyhow!("{}: `{}.{part}` {reason}", self.place, self.field)
    }
}

impl<'de> Deserialize<'de> for SourcesSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SectionVisitor;

        impl<'de> Visitor<'de> for SectionVisitor {
            type Value = SourcesSection;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names of sources, each with `collections`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SourcesSection, A::Error> {
                let mut all = Vec::new();
                while let Some((name, fields)) = map.next_entry::<Spanned<String>, Option<SourceFields>>()? {
                    all.push((name, fields.unwrap_or_default()));
                }
                Ok(SourcesSection(all))
            }
        }

        deserializer.deserialize_map(SectionVisitor)
    }
}

/// Checks all collections of a file.
pub fn check(section: SourcesSection, file: &Path, guard: &Guard) -> anyhow::Result<Vec<CollectionConfig>> {
    let mut all: Vec<CollectionConfig> = Vec::new();
    let mut places: HashMap<Collection, String> = HashMap::new();
    for (source, fields) in section.0 {
        let wrong = |reason: &str| anyhow!("{}: `sources.{}` {reason}", place(file, &source), source.value);
        ensue::tasks::check_name("source", &source.value).map_err(|invalid| wrong(&invalid.reason))?;
        let default = match &fields.default {
            Some(default) => {
                let at = At { file, field: format!("sources.{}.default", source.value) };
                at.runs(&RunFields::from(default), guard)?
            }
            None => None,
        };
        for (index, entry) in fields.collections.unwrap_or_default().into_iter().enumerate() {
            let at = At { file, field: format!("sources.{}.collections[{index}]", source.value) };
            let one = at.check(&source.value, &entry, default.as_ref(), guard)?;
            if let Some(other) = places.insert(one.collection.clone(), one.place.clone()) {
                return Err(one.refusal("name", &format!("is that of the one at {other}: choose another name")));
            }
            all.push(one);
        }
    }
    Ok(all)
}

/// The fields that say what runs.
struct RunFields<'a> {
    command: Option<&'a Spanned<CommandLine>>,
    webhook: Option<&'a Spanned<String>>,
    answer: Option<&'a Spanned<WebhookAnswer>>,
    pull: Option<&'a Spanned<bool>>,
}

impl<'a> From<&'a DefaultFields> for RunFields<'a> {
    fn from(DefaultFields { command, webhook, answer, pull }: &'a DefaultFields) -> Self {
        Self { command: command.as_ref(), webhook: webhook.as_ref(), answer: answer.as_ref(), pull: pull.as_ref() }
    }
}

impl<'a> From<&'a CollectionFields> for RunFields<'a> {
    fn from(fields: &'a CollectionFields) -> Self {
        let CollectionFields { command, webhook, answer, pull, .. } = fields;
        Self { command: command.as_ref(), webhook: webhook.as_ref(), answer: answer.as_ref(), pull: pull.as_ref() }
    }
}

/// Where one collection stands.
struct At<'a> {
    file: &'a Path,
    field: String,
}

impl At<'_> {
    fn refuse<T>(&self, at: &Spanned<T>, part: &str, reason: impl Display) -> anyhow::Error {
        anyhow!("{}: `{}{part}` {reason}", place(self.file, at), self.field)
    }

    fn check(
        &self,
        source: &str,
        entry: &Spanned<CollectionFields>,
        default: Option<&Runs>,
        guard: &Guard,
    ) -> anyhow::Result<CollectionConfig> {
        let fields = &entry.value;
        let Some(name) = &fields.name else {
            return Err(self.refuse(entry, ".name", "is missing: write one such as `issues`"));
        };
        let collection =
            Collection::new(source, &name.value).map_err(|invalid| self.refuse(name, ".name", invalid.reason))?;
        for (part, text) in [(".schedule", &fields.schedule), (".timezone", &fields.timezone)] {
            if let Some(text) = text.as_ref().filter(|text| text.value.trim().is_empty()) {
                return Err(self.refuse(text, part, "is empty: leave it out instead"));
            }
        }
        if let (Some(timezone), None) = (&fields.timezone, &fields.schedule) {
            return Err(self.refuse(timezone, ".timezone", "is for a `schedule`: add one, or leave it out"));
        }
        if let Some(priority) = &fields.priority {
            ensue::tasks::check_priority(priority.value)
                .map_err(|invalid| self.refuse(priority, ".priority", invalid.reason))?;
        }
        if let Some(timeout) = fields.timeout.as_ref().filter(|timeout| timeout.value.0 == Duration::ZERO) {
            let reason = "is zero, so that nothing could ever succeed: leave it out for no limit";
            return Err(self.refuse(timeout, ".timeout", reason));
        }
        // Without any it is the application's code that runs (`Ensue::set_collections`).
        let runs = self
            .runs(&RunFields::from(fields), guard)?
            .or_else(|| default.cloned())
            .unwrap_or_else(|| Runs::CompiledIn(collection.dotted()));
        let retry = match &fields.retry {
            Some(retry) => {
                handlers_check::retry_of(&retry.value).map_err(|reason| self.refuse(retry, ".retry", reason))?
            }
            None => Retry::never(),
        };
        let schedule = match &fields.schedule {
            Some(cron) => Some(self.schedule_of(&collection, cron, fields)?),
            None => None,
        };
        let schedule = schedule.map(|schedule| Schedule { attempts_max: Some(retry.attempts_max()), ..schedule });
        let text = |text: &Option<Spanned<String>>| text.as_ref().map(|text| text.value.clone());
        let options = CollectionOptions {
            priority: fields.priority.as_ref().map_or(TASK_PRIORITY, |priority| priority.value),
            timeout: fields.timeout.as_ref().map(|timeout| timeout.value.0),
            schedule: text(&fields.schedule),
            timezone: text(&fields.timezone),
            // Executors see to their timeouts themselves: a program has ended before its task has.
            ends_itself: true,
        };
        let (place, field) = (place(self.file, entry), self.field.clone());
        Ok(CollectionConfig { place, field, collection, runs, options, retry, schedule })
    }

    /// What runs; none if nothing is said.
    fn runs(&self, fields: &RunFields<'_>, guard: &Guard) -> anyhow::Result<Option<Runs>> {
        if let Some(answer) = fields.answer.filter(|_| fields.webhook.is_none()) {
            return Err(self.refuse(answer, ".answer", "is for a `webhook`: add one, or leave it out"));
        }
        match (fields.command, fields.webhook, fields.pull.filter(|pull| pull.value)) {
            (None, None, None) => Ok(None),
            (None, None, Some(_)) => Ok(Some(Runs::Pull)),
            (Some(command), None, None) => handlers_check::command_of(&command.value.0)
                .map(Some)
                .map_err(|reason| self.refuse(command, ".command", reason)),
            (None, Some(webhook), None) => {
                let answer = fields.answer.map(|answer| answer.value).unwrap_or_default();
                handlers_check::webhook_of(&webhook.value, WebhookFormat::Json, answer, guard)
                    .map(Some)
                    .map_err(|reason| self.refuse(webhook, ".webhook", reason))
            }
            (Some(_), Some(webhook), _) => {
                Err(self.refuse(webhook, ".webhook", "stands beside a `command`: write one of them"))
            }
            (Some(_), None, Some(pull)) | (None, Some(_), Some(pull)) => {
                Err(self.refuse(pull, ".pull", "stands beside a `command` or `webhook`: write one of them"))
            }
        }
    }

    /// The schedule that makes its tasks: a job like any other task, and none while one waits or runs.
    fn schedule_of(
        &self,
        collection: &Collection,
        cron: &Spanned<String>,
        fields: &CollectionFields,
    ) -> anyhow::Result<Schedule> {
        let zone = fields.timezone.as_ref();
        let refused = |invalid: Invalid| match zone.filter(|_| invalid.field == "timezone") {
            Some(zone) => self.refuse(zone, ".timezone", invalid.reason),
            None => self.refuse(cron, ".schedule", invalid.reason),
        };
        let timing = Timing::cron(&cron.value, zone.map(|zone| zone.value.as_str())).map_err(refused)?;
        let name = GroupName::parse("schedule", &collection.dotted()).map_err(refused)?;
        Ok(Schedule {
            priority: fields.priority.as_ref().map_or(TASK_PRIORITY, |priority| priority.value),
            managed_by: Some(super::schedules::MANAGER.into()),
            ..Schedule::new(name, timing, Target::Handler(collection.handler()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::ConfigFile;

    fn checked(text: &str) -> anyhow::Result<Vec<CollectionConfig>> {
        let config = ConfigFile::parse("my.yaml", text)?;
        let file = Path::new("my.yaml");
        check(config.sources.unwrap_or_default(), file, &Guard::default())
    }

    #[test]
    fn a_collection_has_what_the_file_says_and_defaults() {
        let text = "sources:\n  github:\n    collections:\n    - name: issues\n      schedule: '0 0/5 * ? * * *'\n      timezone: UTC\n      priority: 7\n      timeout: 1h\n      retry: { attempts_max: 3 }\n      command: [./sync.sh, issues]\n    - { name: pulls, webhook: 'https://example.com/pulls' }\n  empty:\n  none: { collections: [] }\n";
        let all = checked(text).unwrap();
        let (issues, pulls) = (&all[0], &all[1]);
        assert_eq!(issues.collection.handler().as_str(), "task.github.issues");
        assert_eq!(issues.runs, Runs::Command(vec!["./sync.sh".into(), "issues".into()]));
        let options = &issues.options;
        assert_eq!((options.priority, options.timeout), (7, Some(Duration::from_secs(3_600))));
        assert_eq!(options.schedule.as_deref(), Some("0 0/5 * ? * * *"));
        let schedule = issues.schedule.as_ref().unwrap();
        assert_eq!((schedule.name.as_str(), schedule.priority), ("github.issues", 7));
        assert_eq!(schedule.target, Target::Handler(issues.collection.handler()));
        assert_eq!((schedule.attempts_max, pulls.schedule.is_none()), (Some(3), true));
        assert_eq!((options.timezone.as_deref(), issues.retry.attempts_max()), (Some("UTC"), 3));
        assert_eq!((pulls.options.priority, pulls.options.timeout, pulls.retry.attempts_max()), (100, None, 1));
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn default_of_a_source_runs_collections_that_say_nothing_themselves() {
        let text = "sources:\n  s:\n    default: { command: [./sync.sh] }\n    collections:\n    - name: a\n    - { name: b, pull: true }\n    - { name: c, command: [x] }\n  t:\n    default: { pull: true }\n    collections: [{ name: d }]\n  u:\n    collections: [{ name: e, schedule: '@daily' }]\n";
        let all = checked(text).unwrap();
        let runs: Vec<&Runs> = all.iter().map(|one| &one.runs).collect();
        let command = |program: &str| Runs::Command(vec![program.into()]);
        let own = Runs::CompiledIn("u.e".into());
        assert_eq!(runs, [&command("./sync.sh"), &Runs::Pull, &command("x"), &Runs::Pull, &own]);
        let refusal = checked("sources:\n  s:\n    default: { command: [] }\n").unwrap_err().to_string();
        assert!(refusal.starts_with("my.yaml:3:25: `sources.s.default.command` names no program"), "{refusal}");
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place_and_what_to_do() {
        for (entry, told) in [
            ("{ command: [x] }", "my.yaml:4:7: `sources.s.collections[0].name` is missing"),
            ("{ name: a.b, command: [x] }", "my.yaml:4:15: `sources.s.collections[0].name` may not contain '.'"),
            ("{ name: a, command: [x], pull: true }", "my.yaml:4:38: `sources.s.collections[0].pull` stands beside"),
            ("{ name: a, answer: send }", "my.yaml:4:26: `sources.s.collections[0].answer` is for a `webhook`"),
            ("{ name: a, command: [] }", "my.yaml:4:27: `sources.s.collections[0].command` names no program"),
            ("{ name: a, webhook: nonsense }", "my.yaml:4:27: `sources.s.collections[0].webhook` is no URL"),
            ("{ name: a, webhook: 'http://127.0.0.1/' }", "my.yaml:4:27: `sources.s.collections[0].webhook`"),
            (
                "{ name: a, command: [x], webhook: 'https://h' }",
                "my.yaml:4:41: `sources.s.collections[0].webhook` stands",
            ),
            ("{ name: a, command: [x], timeout: 0s }", "my.yaml:4:41: `sources.s.collections[0].timeout` is zero"),
            ("{ name: a, command: [x], timezone: UTC }", "my.yaml:4:42: `sources.s.collections[0].timezone` is for"),
            ("{ name: a, command: [x], schedule: ' ' }", "my.yaml:4:42: `sources.s.collections[0].schedule` is empty"),
            ("{ name: a, command: [x], schedule: '99 * * * *' }", "my.yaml:4:42: `sources.s.collections[0].schedule` "),
            (
                "{ name: a, command: [x], schedule: '@daily', timezone: Mars/X }",
                "my.yaml:4:62: `sources.s.collections[0].timezone` ",
            ),
            (
                "{ name: a, command: [x], retry: { attempts_max: 0 } }",
                "my.yaml:4:39: `sources.s.collections[0].retry` has",
            ),
            ("{ name: a, comand: [x] }", "my.yaml:4:18: unknown field `comand`"),
            ("{ name: a, command: [x], priority: -1 }", "my.yaml:4:42: "),
            ("{ name: a, command: [x], priority: 0 }", "my.yaml:4:42: `sources.s.collections[0].priority` is 0"),
        ] {
            let refusal = checked(&format!("sources:\n  s:\n    collections:\n    - {entry}\n")).unwrap_err();
            assert!(refusal.to_string().starts_with(told), "{entry}: {refusal}");
        }
        let twice =
            "sources:\n  s:\n    collections:\n    - { name: a, command: [x] }\n    - { name: a, command: [y] }\n";
        let refusal = checked(twice).unwrap_err().to_string();
        assert!(
            refusal.starts_with("my.yaml:5:7: `sources.s.collections[1].name` is that of the one at my.yaml:4:7"),
            "{refusal}"
        );
        let refusal = checked("sources:\n  s s: {}\n").unwrap_err().to_string();
        assert!(refusal.starts_with("my.yaml:2:3: `sources.s s` may not contain ' '"), "{refusal}");
    }
}
