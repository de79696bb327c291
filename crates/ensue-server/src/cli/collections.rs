//! Which collection is a job for that is sent straight to a store?
//!
//! At most one task of each is live, whoever sends it. How often it is attempted and with which priority a server knows; a command that
//! opens the store itself knows that from the config file of the server.

use super::output;
use crate::config::file::ConfigFile;
use crate::config::sources;
use crate::executors::Guard;
use ensue::tasks::{Collection, CollectionHandler};
use ensue::{Context, Ensue, Event, GroupName, HandlerError, Json};
use std::path::Path;

/// Lets a bus know the collection that this handler is for, as the config file has it: then a job for it is sent as a server would. Where
/// no file has it, that is told on stderr.
pub async fn know(bus: &Ensue, config: Option<&Path>, handler: &GroupName) -> anyhow::Result<()> {
    let Some(wanted) = Collection::of_handler(handler) else { return Ok(()) };
    let (config, file) = ConfigFile::find(config)?;
    let guard = Guard::new(config.webhooks.unwrap_or_default().allow_private, false);
    let known = match (config.sources, &file) {
        (Some(section), Some(file)) => sources::check(section, file, &guard)?,
        (Some(_) | None, _) => Vec::new(),
    };
    match known.into_iter().find(|one| one.collection == wanted) {
        Some(one) => {
            let (source, name) = (wanted.source(), wanted.name());
            let known = CollectionHandler::new(source, name, one.options, not_here)?.retry(one.retry);
            Ok(bus.set_collections(vec![known]).await?)
        }
        None => {
            let why = match file {
                Some(file) => format!("{} does not have it", file.display()),
                None => "there is no config file here".into(),
            };
            output::note(format_args!(
                "warning: `{handler}` is how the tasks of a collection `{}` are called, and {why}: the task has the priority and the \
                 attempts of others. Name the server's file with --config, or send the job through the server",
                wanted.dotted()
            ));
            Ok(())
        }
    }
}

/// Nothing is run by a command that sends.
async fn not_here(_task: Event<Json>, _cx: Context) -> Result<(), HandlerError> {
    Err(HandlerError::failed("this process runs no tasks"))
}
