//! What can be said to more than one benchmark?

use anyhow::{Context, bail};
use clap::Args;
use ensue::{Address, Place};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// On which engine to measure.
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// sqlite, or postgres://… [default: sqlite]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

/// What is measured.
#[derive(Debug)]
pub enum Engine {
    /// SQLite, in files of the benchmark's own.
    Sqlite,
    /// This Postgres database, in schemas of the benchmark's own.
    Postgres(Address),
}

impl EngineArgs {
    /// The engine, or why the benchmark will not write there.
    pub fn engine(&self) -> anyhow::Result<Engine> {
        let address: Address = match self.store.as_deref() {
            None | Some("sqlite") => return Ok(Engine::Sqlite),
            Some(url) => url.parse().context("--store")?,
        };
        match address.place() {
            Place::Postgres => Ok(Engine::Postgres(address)),
            Place::Memory | Place::File(_) => bail!(
                "the benchmark makes SQLite files of its own (choose the folder with --dir) or takes a \
                 postgres://USER@HOST/DATABASE; it will not write into `{address}`"
            ),
        }
    }
}

/// On which file system to measure.
#[derive(Debug, Args)]
pub struct DirArgs {
    /// The folder whose file system is measured (SQLite)
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
}

impl DirArgs {
    /// The folder.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// A new folder inside it, which is removed when it is dropped.
    pub fn new_folder(&self) -> anyhow::Result<TempDir> {
        tempfile::Builder::new()
            .prefix("ensue-bench-")
            .tempdir_in(&self.dir)
            .with_context(|| format!("cannot make a folder in {}: choose another with --dir", self.dir.display()))
    }
}

/// How long to measure.
#[derive(Debug, Args)]
pub struct SecondsArgs {
    /// About how long to measure
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub seconds: u64,
}
