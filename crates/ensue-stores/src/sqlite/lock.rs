//! Who else has this file open?
//!
//! One process writes to a store. It holds an `flock` on a file *beside* the database, `PATH.lock`: closing any
//! descriptor of the database file itself would drop the locks that SQLite keeps on it. The kernel frees the lock when
//! the process ends, however it ends. The file's content names the holder.

use super::connect::private;
use ensue_core::StoreError;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a lock may outlive its holder: a process that is being started inherits it, until it runs its own program.
const INHERITED_MAX: Duration = Duration::from_millis(200);

/// The right to write to a store, held until it is dropped.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, or names the process that has it.
    pub fn take(database: &Path) -> Result<Self, StoreError> {
        let path = sidecar(database);
        let mut options = OpenOptions::new();
        let options = private(options.read(true).write(true).create(true).truncate(false));
        let mut file = options
            .open(&path)
            .map_err(|error| StoreError::Engine(format!("cannot open the lock file {}: {error}", path.display())))?;
        match lock_soon(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Locked(format!(
                    "the store {} is in use by {}: talk to that process over HTTP (--url), or stop it first",
                    database.display(),
                    read_holder(&mut file)
                )));
            }
            Err(TryLockError::Error(error)) => {
                return Err(StoreError::Engine(format!("cannot lock {}: {error}", path.display())));
            }
        }
        let program = std::env::current_exe().ok().and_then(|path| path.file_name().map(|name| name.to_owned()));
        let program = program.map_or_else(|| "unknown".to_string(), |name| name.to_string_lossy().into_owned());
        let note = format!("process {} ({program})\n", std::process::id());
        // Only a courtesy for the error above: the lock holds whether or not the note could be written.
        let _written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(note.as_bytes()));
        Ok(Self { _file: file })
    }
}

/// Takes the lock, if it is free within [`INHERITED_MAX`].
fn lock_soon(file: &File) -> Result<(), TryLockError> {
    let end = Instant::now() + INHERITED_MAX;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::sleep(INHERITED_MAX / 20),
            result => return result,
        }
    }
}

/// Who has the lock, without taking it for longer than a look.
pub(super) fn holder(database: &Path) -> Result<Option<String>, StoreError> {
    let Ok(mut file) = File::open(sidecar(database)) else { return Ok(None) };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(read_holder(&mut file))),
        Err(TryLockError::Error(error)) => Err(StoreError::Engine(format!("cannot look at the lock: {error}"))),
    }
}

fn read_holder(file: &mut File) -> String {
    let mut note = String::new();
    match file.read_to_string(&mut note) {
        Ok(_) if !note.trim().is_empty() => note.trim().to_string(),
        _ => "another process".to_string(),
    }
}

fn sidecar(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// One name for one file, however it is reached: two names would be two locks.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, StoreError> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = path
        .file_name()
        .ok_or_else(|| StoreError::Engine(format!("`{}` does not name a file; write sqlite:PATH", path.display())))?;
    match parent.canonicalize() {
        Ok(parent) => Ok(parent.join(name)),
        Err(error) => Err(StoreError::Engine(format!(
            "the folder {} of the store cannot be opened ({error}); make it, or choose another path",
            parent.display()
        ))),
    }
}
