//! Does a command talk to a server or to a store?

use super::args::EventRef;
use super::remote::Remote;
use crate::config::without_password;
use anyhow::{Context, bail};
use clap::Args;
use ensue::{Appended, Cancelled, Ensue, Event, EventId, Filter, Found, NewEvent, ObjectKey, Options, Page, Read, Seq};

/// Where the log is.
#[derive(Debug, Clone, Args)]
pub struct TargetArgs {
    /// The server to talk to
    #[arg(long, env = "ENSUE_URL", value_name = "URL", default_value = "http://127.0.0.1:4747")]
    pub url: String,
    /// Open this store directly instead: sqlite:PATH or postgres://…
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// The token for the server
    #[arg(long, env = "ENSUE_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}

/// What a command wants to do with a store that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Look, also beside the process that writes.
    Read,
    /// Change it.
    Write,
}

/// A server or a store: both answer the same questions.
pub enum Target {
    /// A running server.
    Server(Remote),
    /// A store that this process opened.
    Store(Ensue),
}

/// Opens a store to look at it. One that is not there is not made.
pub async fn open_to_read(url: &str) -> anyhow::Result<Ensue> {
    let options = Options { read_only: true, ..Options::default() };
    Ensue::open_with(url, options).await.with_context(|| format!("cannot open {}", without_password(url)))
}

impl TargetArgs {
    /// Opens the store, or makes ready to talk to the server.
    pub async fn open(self, access: Access) -> anyhow::Result<Target> {
        let Some(url) = self.store else {
            return Ok(Target::Server(Remote::new(&self.url, self.token)?));
        };
        let bus = match access {
            Access::Read => open_to_read(&url).await?,
            Access::Write => {
                Ensue::open(&url).await.with_context(|| format!("cannot open {}", without_password(&url)))?
            }
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

    /// Reads a page of the whole log.
    pub async fn read(&self, after: Seq, limit: usize) -> anyhow::Result<Page> {
        match self {
            Target::Server(remote) => remote.read(after, limit).await,
            Target::Store(bus) => Ok(bus.store().read(Read { after, limit, filter: Filter::default() }).await?),
        }
    }

    /// The event of a place or an id, or an error that says that there is none.
    pub async fn event(&self, event: EventRef) -> anyhow::Result<Found> {
        let found = match (self, event) {
            (Target::Server(remote), event) => remote.event(event).await?,
            (Target::Store(bus), EventRef::Seq(seq)) => bus.store().event(seq).await?.map(Found::Logged),
            (Target::Store(bus), EventRef::Id(id)) => bus.store().find(id).await?,
        };
        match (found, event) {
            (Some(found), _) => Ok(found),
            (None, EventRef::Seq(seq)) => {
                bail!("there is no event with seq {seq}: it was never given out, or retention has forgotten it")
            }
            (None, EventRef::Id(id)) => {
                bail!(
                    "there is no event with id {id}: it was never published, was cancelled, or retention has forgotten it"
                )
            }
        }
    }

    /// Cancels a delayed event.
    pub async fn cancel(&self, id: EventId) -> anyhow::Result<Cancelled> {
        match self {
            Target::Server(remote) => remote.cancel(id).await,
            Target::Store(bus) => Ok(bus.store().cancel(id).await?),
        }
    }

    /// The events of one object, newest first.
    pub async fn chain(&self, object: &ObjectKey, before: Option<Seq>, limit: usize) -> anyhow::Result<Vec<Event>> {
        match self {
            Target::Server(remote) => remote.chain(object, before, limit).await,
            Target::Store(bus) => Ok(bus.store().chain(object, before, limit).await?),
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
