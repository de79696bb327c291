//! Where do the logs come from that reading is measured on?
//!
//! A short and a long one of the same events, in files or schemas of their own that are gone afterwards.

use super::args::Engine;
use super::database;
use super::sample::{Objects, Sample};
use anyhow::Context;
use ensue::Ensue;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use tempfile::TempDir;

/// How many events are written in one batch while filling.
const FILL_BATCH: usize = 1_000;
/// How many batches are under way at once while filling.
const FILL_CALLERS: usize = 4;

/// The addresses of the two logs, and what has to be cleared away.
pub struct Logs {
    /// The short one.
    pub short: String,
    /// The long one.
    pub long: String,
    /// A folder for files, and for a server to run in.
    folder: TempDir,
    /// The database and the schemas in it.
    database: Option<(String, [String; 2])>,
}

impl Logs {
    /// Two empty logs: files in this folder, or schemas of a Postgres database.
    pub fn new(engine: Engine, folder: TempDir) -> anyhow::Result<Self> {
        match engine {
            Engine::Sqlite => {
                // Absolute, because a server runs in another folder.
                let place = folder.path().canonicalize().context("cannot tell where the new folder is")?;
                let place = place.to_str().context("the folder's name is not text: choose another with --dir")?;
                let [short, long] = ["short", "long"].map(|name| format!("{place}/{name}.db"));
                Ok(Self { short, long, folder, database: None })
            }
            Engine::Postgres(address) => {
                let schema = database::new_schema();
                let schemas = ["short", "long"].map(|name| format!("{schema}_{name}"));
                let [short, long] = schemas.each_ref().map(|schema| address.with_schema(schema));
                Ok(Self { short, long, folder, database: Some((address.without_schema(), schemas)) })
            }
        }
    }

    /// The folder that goes with the logs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The engine, in words.
    pub fn engine(&self) -> &'static str {
        if self.database.is_some() { "Postgres" } else { "SQLite" }
    }

    /// Clears everything away.
    pub async fn clear(self) -> anyhow::Result<()> {
        let Some((url, schemas)) = &self.database else { return Ok(()) };
        database::drop_schemas(&database::connect(url).await?, schemas).await
    }
}

/// Fills a log with so many events.
pub async fn fill(store: &str, events: u64) -> anyhow::Result<()> {
    let bus = Ensue::open(store).await?;
    let style = ProgressStyle::with_template("filling {wide_bar} {human_pos}/{human_len}, {per_sec}, {eta} left")?;
    let bar = ProgressBar::new(events).with_style(style);
    let sample = Sample::new(Objects::Half);
    let mut left = events;
    while left > 0 {
        let mut batches = Vec::new();
        for _ in 0..FILL_CALLERS {
            let count = left.min(FILL_BATCH as u64);
            if count > 0 {
                batches.push(bus.publish_all(sample.events(count as usize)));
                left -= count;
            }
        }
        for stored in futures_util::future::join_all(batches).await {
            bar.inc(stored?.len() as u64);
        }
    }
    bar.finish_and_clear();
    bus.close().await;
    Ok(())
}
