//! Does a command talk to a server or to a store?

use super::args::EventRef;
use super::failure::Unreachable;
use super::remote::Remote;
use super::server::{ServerArgs, WHERE};
use crate::http::beyond_end;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use ensue::{
    Address, Appended, Cancelled, ChainPage, Ensue, Error, EventId, Found, Invalid, NewEvent, NewestPage, ObjectKey,
    Options, Pending, Place, Selection, Seq, StoreError, Wanted,
};
use std::path::{Path, PathBuf};

/// Where the log is.
#[derive(Debug, Clone, Args)]
pub struct TargetArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Open this store directly instead: sqlite:PATH or postgres://…
    #[arg(long, help_heading = WHERE, value_name = "URL")]
    store: Option<String>,
}

/// What a command wants to do with a store that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Look, also beside the process that writes.
    Read,
    /// Change it. One that is not there is not made: its name may be mistyped.
    Write,
    /// Change it, or make it.
    Create,
}

/// A server or a store: both answer the same questions.
pub enum Target {
    /// A running server.
    Server(Remote),
    /// A store that this process opened.
    Store(Ensue),
}

/// A value as a shell takes it for one word.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@,+=".contains(c);
    match !value.is_empty() && value.chars().all(plain) {
        true => value.to_string(),
        false => format!("'{}'", value.replace('\'', "'\\''")),
    }
}

/// Opens a store to look at it. One that is not there is not made.
pub async fn open_to_read(address: &Address) -> anyhow::Result<Ensue> {
    let options = Options { read_only: true, ..Options::default() };
    Ensue::open_with(address.as_str(), options).await.with_context(|| format!("cannot open {address}"))
}

/// Opens a store to change it, and makes it if it is not there.
async fn open_or_make(address: &Address) -> anyhow::Result<Ensue> {
    Ensue::open(address.as_str()).await.with_context(|| format!("cannot open {address}"))
}

/// Refuses a file that does not exist.
fn check_file(address: &Address) -> anyhow::Result<()> {
    match address.place() {
        Place::File(path) if !Path::new(path).exists() => {
            bail!(Unreachable(format!(
                "there is no store at {path}: check the path, or make one with `ensue serve --store {path}` or `ensue publish --create`"
            )))
        }
        Place::Memory | Place::File(_) | Place::Postgres => Ok(()),
    }
}

/// Is there a log to write to?
async fn check_is_there(address: &Address) -> anyhow::Result<()> {
    check_file(address)?;
    match open_to_read(address).await {
        Ok(bus) => {
            bus.close().await;
            Ok(())
        }
        Err(error) => match error.downcast_ref() {
            Some(Error::Store(StoreError::Schema(_))) => {
                Err(anyhow!("{error:#} (`ensue publish --create` makes a log where there is none)"))
            }
            Some(Error::Store(_) | Error::Invalid(_) | Error::NotFound(_) | Error::Address(_)) | None => Err(error),
        },
    }
}

impl TargetArgs {
    /// Is a store opened, with no server in between?
    pub fn opens_store(&self) -> bool {
        self.store.is_some()
    }

    /// The config file that is named, if one is.
    pub fn config(&self) -> Option<PathBuf> {
        self.server.config.clone()
    }

    /// The flags that lead another command to the same log, to be put behind it; without a secret.
    pub fn flags(&self) -> String {
        if let Some(address) = self.store.as_deref().and_then(|store| store.parse::<Address>().ok()) {
            return format!(" --store {}", quoted(&address.to_string()));
        }
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let flags = [
            ("--url", self.server.url.clone(), "ENSUE_URL"),
            ("--config", path(&self.server.config), "ENSUE_CONFIG"),
            ("--token-file", path(&self.server.token_file), "ENSUE_TOKEN_FILE"),
        ];
        let given = flags.into_iter().filter_map(|(flag, value, variable)| {
            // What a variable says is said to the other command too.
            let value = value.filter(|value| std::env::var(variable).ok().as_ref() != Some(value))?;
            Some(format!(" {flag} {}", quoted(&value)))
        });
        given.collect()
    }

    /// Opens it, asks something of it, and closes it.
    pub async fn ask<T>(
        self,
        access: Access,
        ask: impl AsyncFnOnce(&Target) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let target = self.open(access).await?;
        let answer = ask(&target).await?;
        target.close().await;
        Ok(answer)
    }

    /// Opens the store, or makes ready to talk to the server.
    pub async fn open(self, access: Access) -> anyhow::Result<Target> {
        let Some(store) = self.store else { return Ok(Target::Server(self.server.remote()?)) };
        // The variable may be there for other commands; the flag is meant.
        if self.server.url.is_some() && self.server.url != std::env::var("ENSUE_URL").ok() {
            bail!("--store and --url name two logs: give the one that you mean");
        }
        let address: Address = store.parse().context("--store")?;
        if address.place() == Place::Memory {
            bail!("a store in memory is gone when this command ends: start `ensue serve --dev` and talk to that");
        }
        let bus = match access {
            Access::Read => {
                check_file(&address)?;
                open_to_read(&address).await?
            }
            Access::Write => {
                check_is_there(&address).await?;
                open_or_make(&address).await?
            }
            Access::Create => open_or_make(&address).await?,
        };
        Ok(Target::Store(bus))
    }
}

impl Target {
    /// Publishes one event.
    pub async fn publish(&self, event: NewEvent) -> anyhow::Result<Appended> {
        match self {
            // Checked here too: what is no JSON could not even be sent.
            Target::Server(remote) => remote.publish(&event.check()?).await,
            Target::Store(bus) => Ok(bus.publish(event).await?),
        }
    }

    /// Reads a page of the log. To begin beyond its end is a mistake.
    pub async fn read(&self, after: Seq, limit: usize, wanted: &Wanted) -> anyhow::Result<Selection> {
        let bus = match self {
            Target::Server(remote) => return remote.read(after, limit, wanted).await,
            Target::Store(bus) => bus,
        };
        let selection = bus.read(after, limit, wanted).await?;
        match selection.page.next == after {
            true => match beyond_end(after, bus.store().bounds().await?) {
                Some(reason) => bail!(Invalid::new("after", reason)),
                None => Ok(selection),
            },
            false => Ok(selection),
        }
    }

    /// Reads a page of the log, newest first.
    pub async fn read_newest(
        &self,
        before: Option<Seq>,
        after: Seq,
        limit: usize,
        wanted: &Wanted,
    ) -> anyhow::Result<NewestPage> {
        match self {
            Target::Server(remote) => remote.read_newest(before, after, limit, wanted).await,
            Target::Store(bus) => Ok(bus.read_newest(before, after, limit, wanted).await?),
        }
    }

    /// Delayed events in the order in which they will enter the log.
    pub async fn pending(&self, limit: usize) -> anyhow::Result<Vec<Pending>> {
        match self {
            Target::Server(remote) => remote.pending(limit).await,
            Target::Store(bus) => Ok(bus.store().pending(limit).await?),
        }
    }

    /// The event of a place or an id, or an error that says that there is none.
    pub async fn event(&self, event: EventRef) -> anyhow::Result<Found> {
        let found = match (self, event) {
            (Target::Server(remote), event) => return remote.event(event).await,
            (Target::Store(bus), EventRef::Seq(seq)) => bus.event(seq).await?.map(Found::Logged),
            (Target::Store(bus), EventRef::Id(id)) => bus.find(id).await?,
        };
        match (found, event) {
            (Some(found), _) => Ok(found),
            (None, EventRef::Seq(seq)) => {
                bail!(Error::NotFound(format!(
                    "there is no event with seq {seq}: it was never given out, or retention has forgotten it"
                )))
            }
            (None, EventRef::Id(id)) => {
                bail!(Error::NotFound(format!(
                    "there is no event with id {id}: it was never published, was cancelled, or retention has forgotten it"
                )))
            }
        }
    }

    /// Cancels a delayed event, or says why it cannot be.
    pub async fn cancel(&self, id: EventId) -> anyhow::Result<()> {
        let bus = match self {
            Target::Server(remote) => return remote.cancel(id).await,
            Target::Store(bus) => bus,
        };
        match bus.store().cancel(id).await? {
            Cancelled::Gone => Ok(()),
            Cancelled::AlreadyLogged(seq) => {
                bail!(StoreError::Conflict(format!("event {seq} is in the log already, and stays there")))
            }
            Cancelled::Unknown => {
                bail!(Error::NotFound(format!(
                    "there is no event with id {id}: it was never published, or was cancelled before"
                )))
            }
        }
    }

    /// The events of one object, newest first.
    pub async fn chain(
        &self,
        object: &ObjectKey,
        before: Option<Seq>,
        limit: usize,
        with_direct: bool,
    ) -> anyhow::Result<ChainPage> {
        match self {
            Target::Server(remote) => remote.chain(object, before, limit, with_direct).await,
            Target::Store(bus) => Ok(bus.chain(object, before, limit, with_direct).await?),
        }
    }

    /// Lets go of the store, if one was opened.
    pub async fn close(self) {
        match self {
            Target::Server(_) => {}
            Target::Store(bus) => bus.close().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Asked {
        #[command(flatten)]
        target: TargetArgs,
    }

    fn flags(arguments: &[&str]) -> String {
        Asked::parse_from([&["ensue"], arguments].concat()).target.flags()
    }

    /// S7: a hint can be pasted into a shell, and is no place for a password or a token.
    #[test]
    fn the_flags_of_a_hint_are_quoted_and_show_no_secret() {
        assert_eq!(flags(&[]), "");
        assert_eq!(flags(&["--store", "my.db"]), " --store my.db");
        assert_eq!(flags(&["--store", "my log's.db"]), " --store 'my log'\\''s.db'");
        let store = flags(&["--store", "postgres://u:canary@h/db?schema=a&sslmode=require"]);
        assert!(
            store.starts_with(" --store 'postgres://u:") && store.ends_with('\'') && !store.contains("canary"),
            "{store}"
        );
        let server = flags(&["--url", "http://h:1", "--token", "canary", "--token-file", "t"]);
        assert_eq!(server, " --url http://h:1 --token-file t");
    }
}
