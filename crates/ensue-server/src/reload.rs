//! What of a config file is taken over while the server runs?
//!
//! How many jobs run at once, the collections, the schedules, and the handlers: those that are new begin, those that are gone come to their end, and limits
//! are changed in place. What runs goes on as it was begun. The rest is said, with what to do. A file that cannot be read, or
//! says something that cannot be, changes nothing.

use crate::config::file::DEFAULT_FILE;
use crate::config::handlers_check::HandlerConfig;
use crate::config::sources::CollectionConfig;
use crate::config::{Settings, handlers_on_store};
use crate::executors::Executors;
use anyhow::Context;
use ensue::{Ensue, GroupName};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often a server for trying things out looks at its config file.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// A server that can be told to read its config file again.
pub(crate) struct Reloading {
    bus: Ensue,
    executors: Executors,
    /// As the server goes by them.
    settings: Settings,
    hang_up: Signal,
    /// The file's text when it was last looked at.
    read: Option<String>,
    /// How often handlers and collections were taken over.
    changes: u64,
}

/// SIGHUP. Listened for before anything else: who is told too early is not ended by it.
pub(crate) fn hang_up() -> anyhow::Result<Signal> {
    signal(SignalKind::hangup()).context("cannot listen for signals")
}

/// What is to be done about handlers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    new: Vec<GroupName>,
    gone: Vec<GroupName>,
    /// Something else runs, or for other events.
    replaced: Vec<GroupName>,
    /// Only the limits may be others.
    same: Vec<GroupName>,
}

impl Plan {
    fn of(before: &[HandlerConfig], after: &[HandlerConfig]) -> Self {
        let mut plan = Self::default();
        for handler in after {
            let list = match before.iter().find(|known| known.key == handler.key) {
                None => &mut plan.new,
                Some(known) if known.is_same_handler(handler) => &mut plan.same,
                Some(_) => &mut plan.replaced,
            };
            list.push(handler.key.clone());
        }
        let is_there = |key: &GroupName| after.iter().any(|handler| handler.key == *key);
        plan.gone = before.iter().map(|handler| handler.key.clone()).filter(|key| !is_there(key)).collect();
        plan
    }
}

impl Reloading {
    pub fn new(bus: Ensue, executors: Executors, settings: Settings, hang_up: Signal) -> Self {
        let read = text(&file_of(&settings));
        Self { bus, executors, settings, hang_up, read, changes: 0 }
    }

    /// Reads the file again whenever it is told to, or when it has changed if the server is for trying things out.
    pub async fn run(mut self) {
        loop {
            let (file, watches) = (file_of(&self.settings), self.settings.dev);
            tokio::select! {
                _ = self.hang_up.recv() => {}
                () = changed(&file, &self.read), if watches => {}
            }
            self.read = text(&file_of(&self.settings));
            self.reload().await;
        }
    }

    async fn reload(&mut self) {
        let before = self.changes;
        let taken_over = match self.settings.again() {
            Ok(new) => self.take_over(new).await,
            Err(error) => Err(error),
        };
        match taken_over {
            Ok(told) => tracing::info!("the config file was read again: {told}"),
            Err(error) if self.changes != before => {
                tracing::error!("the config file was read again, and taken over but for its schedules: {error:#}");
            }
            Err(error) => tracing::error!("the config file was read again, and nothing was changed: {error:#}"),
        }
    }

    /// Goes by new settings, as far as that can be; answers what was done.
    async fn take_over(&mut self, new: Settings) -> anyhow::Result<String> {
        let plan = Plan::of(&self.settings.handlers, &new.handlers);
        handlers_on_store::check(&self.bus, &new.handlers).await?;
        let mut change = self.bus.rebind();
        for key in plan.gone.iter().chain(&plan.replaced) {
            change.unbind(key);
        }
        for handler in &new.handlers {
            match plan.same.contains(&handler.key) {
                true => change
                    .limits(&handler.key, handler.limits())
                    .map_err(|invalid| handler.refusal(&invalid.field, &invalid.reason))?,
                false => self.executors.bind_one(change.on(handler.on.as_str()), handler)?,
            }
        }
        let mut collections = self.bus.collections();
        // Those of the application stay.
        collections.retain(|one| {
            let is_of_file =
                |known: &CollectionConfig| known.collection == *one.collection() && !known.is_compiled_in();
            !self.settings.collections.iter().any(is_of_file)
        });
        change.collections(self.executors.collections(&new.collections, collections)?);
        change.apply().await?;
        self.bus.set_workers(new.workers);
        self.bus.set_read_ahead(new.read_ahead)?;
        self.settings.read_ahead = new.read_ahead;
        // From here on it goes by these, whatever becomes of the rest: the next reload begins with what is there.
        (self.settings.handlers, self.settings.workers) = (new.handlers.clone(), new.workers);
        self.settings.collections = new.collections.clone();
        self.changes += 1;
        crate::serve::declare(&self.bus, &new.schedules).await?;
        for setting in needs_restart(&self.settings, &new) {
            tracing::warn!("`{setting}` of the config file has changed: restart the server to take it over");
        }
        let mut told = told(&plan, new.workers);
        if !new.collections.is_empty() {
            let count = crate::cli::output::counted(new.collections.len() as u64, "collection");
            told.push_str(&format!(", tasks of {count}"));
        }
        self.settings.schedules = new.schedules;
        self.settings.file = new.file.or_else(|| self.settings.file.take());
        Ok(told)
    }
}

/// The file that is read, or would be if it were there.
fn file_of(settings: &Settings) -> PathBuf {
    settings.file.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE))
}

fn text(file: &Path) -> Option<String> {
    std::fs::read_to_string(file).ok()
}

/// Settings that differ, and that a server goes by from its start to its end.
fn needs_restart(before: &Settings, after: &Settings) -> Vec<&'static str> {
    let differs = [
        ("store", before.store != after.store),
        ("listen", before.listen != after.listen),
        ("token_file", before.tokens != after.tokens),
        ("retention", before.retention != after.retention),
        ("history", before.history != after.history),
        ("webhooks", before.guard != after.guard || before.authorities != after.authorities),
        ("drain_max", before.drain_max != after.drain_max),
    ];
    differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

/// What was done, for people.
fn told(plan: &Plan, workers: usize) -> String {
    let keys = |keys: &[GroupName]| keys.iter().map(GroupName::as_str).collect::<Vec<_>>().join(", ");
    let parts = [("new", &plan.new), ("replaced", &plan.replaced), ("no longer run here", &plan.gone)];
    let mut told: Vec<String> = parts
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(what, list)| format!("{what}: {}", keys(list)))
        .collect();
    told.push(format!(
        "limits of {} as they are there now, {workers} workers",
        crate::cli::output::counted(plan.same.len() as u64, "handler")
    ));
    told.join("; ")
}

/// Comes back when the file has another text than this one.
async fn changed(file: &Path, read: &Option<String>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if text(file) != *read {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Given;

    fn settings(folder: &Path, text: &str) -> Settings {
        let config = folder.join("my.yaml");
        std::fs::write(&config, text).unwrap();
        Settings::resolve(Given { config: Some(config), ..Given::default() }).unwrap()
    }

    #[test]
    fn what_differs_is_new_gone_replaced_or_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let before = "handlers:\n  a:\n  - { name: x, command: [x] }\n  - { name: y, command: [y], timeout: 1s }\n  - { name: z, pull: true }\n";
        let after = "handlers:\n  a:\n  - { name: x, command: [other] }\n  - { name: y, command: [y], timeout: 2s }\n  - { name: w, pull: true }\n";
        let (before, after) = (settings(folder.path(), before), settings(folder.path(), after));
        let plan = Plan::of(&before.handlers, &after.handlers);
        let keys = |keys: &[GroupName]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!((keys(&plan.new), keys(&plan.gone)), (vec!["a.w".into()], vec!["a.z".into()]));
        assert_eq!((keys(&plan.replaced), keys(&plan.same)), (vec!["a.x".into()], vec!["a.y".into()]));
    }

    #[test]
    fn what_cannot_be_taken_over_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let before = settings(folder.path(), "listen: 127.0.0.1:1\nworkers: 3\n");
        let after = settings(folder.path(), "listen: 127.0.0.1:2\nretention: { age: 7d }\nworkers: 4\n");
        assert_eq!(needs_restart(&before, &after), ["listen", "retention"]);
        assert_eq!(needs_restart(&before, &before), [] as [&str; 0]);
    }

    #[test]
    fn a_file_that_is_gone_is_not_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let before = settings(folder.path(), "workers: 3\n");
        std::fs::remove_file(folder.path().join("my.yaml")).unwrap();
        assert!(before.again().is_err());
    }
}
