//! Can what the config file says about handlers be?

use super::handlers::{Entry, Fields, HandlersSection, Logs, RetryFields, WebhookAnswer, WebhookFormat};
use crate::executors::{Guard, check_url};
use anyhow::anyhow;
use ensue::{GroupName, HandlerLimits, Invalid, Json, Mode, OnExhausted, Retry, Start, Topic, Where};
use reqwest::Url;
use serde_saphyr::Spanned;
use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

/// A handler of the config file, checked.
#[derive(Debug, Clone)]
pub struct HandlerConfig {
    /// Where it stands: `ensue.yaml:4:5`.
    pub place: String,
    /// What it is called there: `handlers.record.published[0]`.
    pub field: String,
    /// What it is bound to.
    pub on: String,
    /// Its name; that of compiled-in code if there is none.
    pub name: Option<String>,
    /// Its key.
    pub key: GroupName,
    /// What runs.
    pub runs: Runs,
    /// How long an attempt may take.
    pub timeout: Option<Duration>,
    /// How it is run.
    pub options: HandlerOptions,
}

/// What runs for an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runs {
    /// Code of the application, by its name.
    CompiledIn(String),
    /// A program and its arguments.
    Command(Vec<String>),
    /// A URL that the event is posted to.
    Webhook(WebhookTarget),
    /// Nothing here: workers elsewhere claim its deliveries.
    Pull,
}

/// A URL that events are posted to, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookTarget {
    /// The URL.
    pub url: Url,
    /// The form of the body.
    pub format: WebhookFormat,
    /// What is done with the answer.
    pub answer: WebhookAnswer,
}

/// How a handler is run.
#[derive(Debug, Clone)]
pub struct HandlerOptions {
    /// Only events for which this holds.
    pub condition: Option<(String, Json)>,
    /// Where it begins when it is new.
    pub start: Start,
    /// One after another for each object?
    pub ordered: bool,
    /// How many at once.
    pub concurrency: Option<usize>,
    /// How often, and after how long.
    pub retry: Option<Retry>,
    /// What then.
    pub on_exhausted: OnExhausted,
    /// Does a publish wait for it?
    pub mode: Mode,
    /// Are the lines of attempts that succeed kept, too?
    pub logs_always: bool,
    /// Is every delivery recorded?
    pub audit: bool,
}

impl Default for HandlerOptions {
    fn default() -> Self {
        Self {
            condition: None,
            start: Start::Now,
            ordered: true,
            concurrency: None,
            retry: None,
            on_exhausted: OnExhausted::default(),
            mode: Mode::Async,
            logs_always: false,
            audit: false,
        }
    }
}

impl HandlerConfig {
    /// How it is run, as far as that can change while it is.
    pub fn limits(&self) -> HandlerLimits {
        let options = &self.options;
        let unless_told = HandlerLimits::default();
        HandlerLimits {
            concurrency: options.concurrency.unwrap_or(unless_told.concurrency),
            timeout: self.timeout,
            retry: options.retry.clone().unwrap_or_default(),
            on_exhausted: options.on_exhausted,
            logs_always: options.logs_always,
            audit: options.audit,
        }
    }

    /// Is it the same but for its limits, and where it would begin if it were new?
    pub fn is_same_handler(&self, other: &Self) -> bool {
        let part = |one: &Self| (one.on.clone(), one.runs.clone(), one.options.ordered, one.options.mode);
        let wants = |one: &Self| one.options.condition.clone();
        self.key == other.key && part(self) == part(other) && wants(self) == wants(other)
    }

    /// A refusal of a part of it.
    pub fn refusal(&self, part: &str, reason: &str) -> anyhow::Error {
        anyhow!("{}: `{}.{part}` {reason}", self.place, self.field)
    }
}

impl Runs {
    /// For people; nothing secret is in it.
    pub fn shown(&self) -> String {
        match self {
            Self::CompiledIn(name) => format!("code `{name}`"),
            Self::Command(command) => format!("command {}", command.first().map_or("", String::as_str)),
            Self::Webhook(target) => format!("webhook to {}", target.url.host_str().unwrap_or_default()),
            Self::Pull => "workers elsewhere".to_owned(),
        }
    }
}

/// Checks all handlers of a file.
pub fn check(section: HandlersSection, file: &Path, guard: &Guard) -> anyhow::Result<Vec<HandlerConfig>> {
    let mut all = Vec::new();
    let mut places: HashMap<String, String> = HashMap::new();
    for (on, entries) in section.0 {
        let key_place = Place { file, field: format!("handlers.{}", on.value) };
        Topic::parse_filter(&on.value).map_err(|invalid| key_place.refuse(&on, None, invalid.reason))?;
        for (index, entry) in entries.into_iter().enumerate() {
            let place = Place { file, field: format!("handlers.{}[{index}]", on.value) };
            let handler = place.check(&on.value, entry, guard)?;
            if let Some(other) = places.insert(handler.key.to_string(), handler.place.clone()) {
                let reason =
                    format!("makes the key `{}`, which the one at {other} has: choose another name", handler.key);
                return Err(handler.refusal("name", &reason));
            }
            all.push(handler);
        }
    }
    Ok(all)
}

/// The key of a handler, which is no collection's.
fn key_of(on: &str, name: &str) -> Result<GroupName, Invalid> {
    let key = GroupName::of_handler(on, name)?;
    ensue::tasks::check_no_task("name", &key).map(|()| key)
}

/// Where one handler stands.
struct Place<'a> {
    file: &'a Path,
    field: String,
}

impl Place<'_> {
    fn refuse<T>(&self, at: &Spanned<T>, part: Option<&str>, reason: impl Display) -> anyhow::Error {
        let (place, part) = (super::file::place(self.file, at), part.map_or(String::new(), |part| format!(".{part}")));
        anyhow!("{place}: `{}{part}` {reason}", self.field)
    }

    fn check(&self, on: &str, entry: Spanned<Entry>, guard: &Guard) -> anyhow::Result<HandlerConfig> {
        let place = super::file::place(self.file, &entry);
        let handler = |name: Option<String>, key, runs, timeout, options| HandlerConfig {
            place,
            field: self.field.clone(),
            on: on.to_owned(),
            name,
            key,
            runs,
            timeout,
            options,
        };
        let fields = match &entry.value {
            Entry::Described(fields) => fields,
            Entry::CompiledIn(code) => {
                let name = code.rsplit('.').next().unwrap_or(code);
                let key = GroupName::parse("name", code).and_then(|_| key_of(on, name));
                let key = key.map_err(|invalid| self.refuse(&entry, None, invalid.reason))?;
                return Ok(handler(None, key, Runs::CompiledIn(code.clone()), None, HandlerOptions::default()));
            }
        };
        let name = fields.name.as_ref().ok_or_else(|| {
            self.refuse(
                &entry,
                Some("name"),
                "is missing: under its name the store remembers what the handler has done",
            )
        })?;
        let key = key_of(on, &name.value).map_err(|invalid| self.refuse(name, Some("name"), invalid.reason))?;
        let runs = self.runs(&entry, fields, guard)?;
        if let Some(timeout) = fields.timeout.as_ref().filter(|timeout| timeout.value.0.is_zero()) {
            return Err(self.refuse(timeout, Some("timeout"), "is nothing at all: write more, or leave it out"));
        }
        if let Some(concurrency) = fields.concurrency.as_ref().filter(|given| !(1..=10_000).contains(&given.value)) {
            let reason = format!("is {}; choose between 1 and 10000", concurrency.value);
            return Err(self.refuse(concurrency, Some("concurrency"), reason));
        }
        let options = HandlerOptions {
            condition: self.condition(fields)?,
            start: fields.start.map_or(Start::Now, |start| start.0),
            ordered: fields.ordered.unwrap_or(true),
            concurrency: fields.concurrency.as_ref().map(|given| given.value),
            retry: fields.retry.as_ref().map(|retry| self.retry(retry)).transpose()?,
            on_exhausted: fields.on_exhausted.map(|policy| policy.0).unwrap_or_default(),
            mode: fields.mode.map_or(Mode::Async, |mode| mode.0),
            logs_always: fields.logs == Some(Logs::Always),
            audit: fields.audit.unwrap_or(false),
        };
        let timeout = fields.timeout.as_ref().map(|timeout| timeout.value.0);
        Ok(handler(Some(name.value.clone()), key, runs, timeout, options))
    }

    fn runs(&self, entry: &Spanned<Entry>, fields: &Fields, guard: &Guard) -> anyhow::Result<Runs> {
        if let Some(format) = fields.format.as_ref().filter(|_| fields.webhook.is_none()) {
            return Err(self.refuse(format, Some("format"), "is for a `webhook`: add one, or leave it out"));
        }
        if let Some(answer) = fields.answer.as_ref().filter(|_| fields.webhook.is_none()) {
            return Err(self.refuse(answer, Some("answer"), "is for a `webhook`: add one, or leave it out"));
        }
        if let Some(pull) = fields.pull.as_ref().filter(|pull| pull.value) {
            return self.pull(pull, fields);
        }
        match (&fields.command, &fields.webhook) {
            (Some(command), None) => {
                command_of(&command.value.0).map_err(|reason| self.refuse(command, Some("command"), reason))
            }
            (None, Some(webhook)) => {
                let format = fields.format.as_ref().map(|format| format.value).unwrap_or_default();
                let answer = fields.answer.as_ref().map(|answer| answer.value).unwrap_or_default();
                webhook_of(&webhook.value, format, answer, guard)
                    .map_err(|reason| self.refuse(webhook, Some("webhook"), reason))
            }
            (None, None) => {
                let reason =
                    "says nothing to run: add a `command: [program, …]`, a `webhook: https://…` or `pull: true`";
                Err(self.refuse(entry, None, reason))
            }
            (Some(_), Some(webhook)) => {
                Err(self.refuse(webhook, Some("webhook"), "stands beside a `command`: write two handlers"))
            }
        }
    }

    /// What runs elsewhere has nothing to run here, and nothing that could be waited for.
    fn pull(&self, pull: &Spanned<bool>, fields: &Fields) -> anyhow::Result<Runs> {
        let beside = [("command", fields.command.is_some()), ("webhook", fields.webhook.is_some())];
        if let Some((other, _)) = beside.into_iter().find(|(_, is_there)| *is_there) {
            let reason = format!("stands beside a `{other}`: write two handlers");
            return Err(self.refuse(pull, Some("pull"), reason));
        }
        if fields.mode.is_some_and(|mode| mode.0 == Mode::Sync) {
            let reason = "does not go with `mode: sync`: a publish cannot wait for workers elsewhere";
            return Err(self.refuse(pull, Some("pull"), reason));
        }
        Ok(Runs::Pull)
    }

    fn condition(&self, fields: &Fields) -> anyhow::Result<Option<(String, Json)>> {
        let wrong = |invalid: Invalid| match (&fields.condition, &fields.params) {
            (_, Some(params)) if invalid.field == "params" => self.refuse(params, Some("params"), invalid.reason),
            (Some(condition), _) => self.refuse(condition, Some(&invalid.field), invalid.reason),
            (None, _) => anyhow!("`{}.{}` {}", self.field, invalid.field, invalid.reason),
        };
        let params = fields.params.as_ref().map(|params| Json::parse("params", params.value.to_string()));
        let params = params.transpose().map_err(wrong)?;
        condition_of(fields.condition.as_ref().map(|condition| condition.value.as_str()), params).map_err(wrong)
    }

    fn retry(&self, given: &Spanned<RetryFields>) -> anyhow::Result<Retry> {
        retry_of(&given.value).map_err(|reason| self.refuse(given, Some("retry"), reason))
    }
}

/// A program and its arguments, or why that cannot be.
pub fn command_of(command: &[String]) -> Result<Runs, String> {
    if command.first().is_none_or(String::is_empty) {
        return Err("names no program: write a list such as [python3, index.py]".into());
    }
    match command.iter().any(|word| word.contains('\0')) {
        true => Err("has a character that no program can be given: \\0".into()),
        false => Ok(Runs::Command(command.to_vec())),
    }
}

/// A URL to post to, or why that cannot be.
pub fn webhook_of(url: &str, format: WebhookFormat, answer: WebhookAnswer, guard: &Guard) -> Result<Runs, String> {
    let url =
        Url::parse(url).map_err(|error| format!("is no URL ({error}): write one such as https://example.com/hook"))?;
    check_url(&url, guard)?;
    Ok(Runs::Webhook(WebhookTarget { url, format, answer }))
}

/// A condition and its params; a refusal names the one that cannot be.
pub fn condition_of(condition: Option<&str>, params: Option<Json>) -> Result<Option<(String, Json)>, Invalid> {
    let Some(condition) = condition else {
        return match params {
            None => Ok(None),
            Some(_) => Err(Invalid::new("params", "is for a `where` that reads s.params: add one")),
        };
    };
    let params = params.unwrap_or_else(Json::empty_object);
    Where::parse(condition, params.clone())?;
    Ok(Some((condition.to_owned(), params)))
}

/// What is said about attempts and delays, or why that cannot be.
pub fn retry_of(given: &RetryFields) -> Result<Retry, String> {
    let RetryFields { attempts_max, first, max, delays } = given;
    if let Some(delays) = delays {
        if attempts_max.is_some() || first.is_some() || max.is_some() {
            return Err("has `delays`, which says it all: leave attempts_max, first and max out".into());
        }
        return Ok(Retry::delays(delays.iter().map(|delay| delay.0)));
    }
    if *attempts_max == Some(0) {
        return Err("has `attempts_max: 0`: write 1 for a single attempt".into());
    }
    let mut retry = attempts_max.map_or_else(Retry::default, Retry::attempts);
    if let Some(first) = first {
        retry = retry.first(first.0);
    }
    if let Some(max) = max {
        retry = retry.max(max.0);
    }
    retry.check().map_err(|invalid| format!("cannot be: its `first` {}", invalid.reason))?;
    Ok(retry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::ConfigFile;

    fn checked(text: &str) -> anyhow::Result<Vec<HandlerConfig>> {
        let section = ConfigFile::parse("my.yaml", text).unwrap().handlers.unwrap();
        check(section, Path::new("my.yaml"), &Guard::default())
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place_and_what_to_do() {
        for (entry, told) in [
            ("{ command: [x] }", "my.yaml:3:5: `handlers.a.b[0].name` is missing"),
            ("{ name: a b, command: [x] }", "my.yaml:3:13: `handlers.a.b[0].name` may not contain"),
            ("{ name: a }", "my.yaml:3:5: `handlers.a.b[0]` says nothing to run"),
            ("{ name: a, command: [] }", "my.yaml:3:25: `handlers.a.b[0].command` names no program"),
            (
                "{ name: a, command: [x], webhook: 'https://h' }",
                "my.yaml:3:39: `handlers.a.b[0].webhook` stands beside",
            ),
            ("{ name: a, command: [x], format: json }", "my.yaml:3:38: `handlers.a.b[0].format` is for a `webhook`"),
            ("{ name: a, command: [x], answer: send }", "my.yaml:3:38: `handlers.a.b[0].answer` is for a `webhook`"),
            ("{ name: a, webhook: nowhere }", "my.yaml:3:25: `handlers.a.b[0].webhook` is no URL"),
            ("{ name: a, webhook: 'http://10.0.0.1/' }", "my.yaml:3:25: `handlers.a.b[0].webhook` is not allowed"),
            ("{ name: a, pull: true, command: [x] }", "my.yaml:3:22: `handlers.a.b[0].pull` stands beside a `command`"),
            (
                "{ name: a, webhook: 'https://h', pull: true }",
                "my.yaml:3:44: `handlers.a.b[0].pull` stands beside a `webhook`",
            ),
            ("{ name: a, pull: true, mode: sync }", "my.yaml:3:22: `handlers.a.b[0].pull` does not go with"),
            ("{ name: a, pull: false }", "my.yaml:3:5: `handlers.a.b[0]` says nothing to run"),
            ("{ name: a, command: [x], where: e.tpoic }", "my.yaml:3:37: `handlers.a.b[0].where` "),
            ("{ name: a, command: [x], params: {} }", "my.yaml:3:38: `handlers.a.b[0].params` is for a `where`"),
            ("{ name: a, command: [x], timeout: 0s }", "my.yaml:3:39: `handlers.a.b[0].timeout` is nothing"),
            ("{ name: a, command: [x], concurrency: 0 }", "my.yaml:3:43: `handlers.a.b[0].concurrency` is 0"),
            (
                "{ name: a, command: [x], retry: { first: 9s, max: 1s } }",
                "my.yaml:3:37: `handlers.a.b[0].retry` cannot be",
            ),
            (
                "{ name: a, command: [x], retry: { delays: [1s], max: 1s } }",
                "my.yaml:3:37: `handlers.a.b[0].retry` has `delays`",
            ),
            ("a..b", "my.yaml:3:5: `handlers.a.b[0]` has an empty segment"),
        ] {
            let text = format!("handlers:\n  a.b:\n  - {entry}\n");
            let refusal = checked(&text).expect_err(entry).to_string();
            assert!(refusal.starts_with(told), "{entry}: {refusal}");
        }
        let refusal = checked("handlers:\n  a..b: []\n").unwrap_err().to_string();
        assert!(refusal.starts_with("my.yaml:2:3: `handlers.a..b` has an empty segment"), "{refusal}");
    }

    #[test]
    fn two_handlers_with_one_key_are_told_of_each_other() {
        let text = "handlers:\n  a:\n  - { name: b.c, command: [x] }\n  a.b:\n  - app.c\n";
        let refusal = checked(text).unwrap_err().to_string();
        assert!(refusal.starts_with("my.yaml:5:5: ") && refusal.contains("`a.b.c`"), "{refusal}");
        assert!(refusal.contains("my.yaml:3:5"), "{refusal}");
        let taken = "handlers:\n  task.s:\n  - { name: a, command: [x] }\n";
        let refusal = checked(taken).unwrap_err().to_string();
        let told = "my.yaml:3:13: `handlers.task.s[0].name` makes the key `task.s.a`, which the tasks of a collection";
        assert!(refusal.starts_with(told), "{refusal}");
    }

    #[test]
    fn everything_that_can_be_said_is_taken() {
        let text = r#"
handlers:
  record.published:
    - name: index
      command: [python3, index.py]
      where: "e.payload->>'kind' = s.params->>'kind'"
      params: { kind: thesis }
      start: beginning
      ordered: false
      concurrency: 3
      timeout: 30s
      retry: { attempts_max: 7, first: 1s, max: 5m }
      on_exhausted: skip
      mode: sync
      logs: always
      audit: true
    - { name: tell, webhook: "https://example.com/hook" }
    - { name: remote, pull: true, ordered: false, timeout: 1h, retry: { attempts_max: 3 } }
"#;
        let handlers = checked(text).unwrap();
        let index = &handlers[0];
        assert_eq!((index.key.as_str(), index.timeout), ("record.published.index", Some(Duration::from_secs(30))));
        let options = &index.options;
        assert_eq!(options.condition.as_ref().unwrap().1.as_str(), r#"{"kind":"thesis"}"#);
        assert_eq!((options.start, options.ordered, options.concurrency), (Start::Beginning, false, Some(3)));
        assert_eq!(options.retry.as_ref().unwrap().attempts_max(), 7);
        assert_eq!((options.on_exhausted, options.mode), (OnExhausted::Skip, Mode::Sync));
        assert!(options.logs_always && options.audit);
        assert_eq!(handlers[1].runs.shown(), "webhook to example.com");
        assert!(matches!(handlers[2].runs, Runs::Pull) && !handlers[2].options.ordered);
        assert_eq!(handlers[2].timeout, Some(Duration::from_secs(3_600)));
        let other = |change: fn(String) -> String| checked(&change(text.to_owned())).unwrap().remove(0);
        let slower =
            other(|text| text.replace("timeout: 30s", "timeout: 60s").replace("start: beginning", "start: now"));
        assert!(index.is_same_handler(&slower));
        assert_eq!(slower.limits().timeout, Some(Duration::from_secs(60)));
        assert!(!index.is_same_handler(&other(|text| text.replace("kind: thesis", "kind: book"))));
        assert!(!index.is_same_handler(&other(|text| text.replace("index.py", "other.py"))));
    }
}
