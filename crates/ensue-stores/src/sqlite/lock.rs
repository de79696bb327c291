//! The right to write to a database, which one process has at a time.
//!
//! The process holds two locks. The one on `PATH.lock` protects the names of the database and of
//! its write-ahead log; the content of that file names the holder. The one on the database itself
//! (`identity.rs`) holds under every name, and after the lock file was deleted. The kernel frees
//! both when the process ends, however it ends.

use super::connect::{self, private};
#[cfg(unix)]
use super::identity::IdentityLock;
use ensue_core::StoreError;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a lock may outlive its holder: a process that is being started inherits it, until it
/// runs its own program.
const INHERITED_MAX: Duration = Duration::from_millis(200);
/// The holder of a database that is not the holder of the lock file.
#[cfg(unix)]
const ELSEWHERE: &str = "another process";
#[cfg(unix)]
const ELSEWHERE_ADVICE: &str = " that opened it under another name, or whose lock file was deleted (`fuser` names it)";

/// The right to write to a store, held until it is dropped.
pub(super) struct Lock {
    #[cfg(unix)]
    _database: IdentityLock,
    _file: File,
}

impl Lock {
    /// Takes the lock, or names the process that has it. Makes the database if it is not there.
    pub fn take(database: &Path) -> Result<Self, StoreError> {
        let path = sidecar(database);
        let mut options = OpenOptions::new();
        let options = private(options.read(true).write(true).create(true).truncate(false));
        let mut file = options
            .open(&path)
            .map_err(|error| StoreError::Engine(format!("cannot open the lock file {}: {error}", path.display())))?;
        let is_free = soon(|| match file.try_lock() {
            Ok(()) => Ok(Some(())),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(cannot_lock(&path, &error)),
        })?;
        if is_free.is_none() {
            return Err(locked_by(database, &read_holder(&mut file), ""));
        }
        connect::create(database)?;
        #[cfg(unix)]
        let _database = lock_identity(database)?;
        let program = std::env::current_exe().ok().and_then(|path| path.file_name().map(|name| name.to_owned()));
        let program = program.map_or_else(|| "unknown".to_string(), |name| name.to_string_lossy().into_owned());
        let note = format!("process {} ({program})\n", std::process::id());
        // Only a courtesy for the error above: the lock holds whether or not the note could be
        // written.
        let _written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(note.as_bytes()));
        Ok(Self {
            #[cfg(unix)]
            _database,
            _file: file,
        })
    }
}

#[cfg(unix)]
fn lock_identity(database: &Path) -> Result<IdentityLock, StoreError> {
    use std::os::unix::fs::MetadataExt;

    let taken = soon(|| IdentityLock::try_take(database).map_err(|error| cannot_lock(database, &error)))?;
    let lock = taken.ok_or_else(|| locked_by(database, ELSEWHERE, ELSEWHERE_ADVICE))?;
    let names = database.metadata().map_or(1, |metadata| metadata.nlink());
    if names > 1 {
        tracing::warn!(
            database = %database.display(),
            names,
            "database has several hard links; open it by the same one always: its write-ahead log has that name"
        );
    }
    Ok(lock)
}

fn cannot_lock(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Engine(format!("cannot lock {}: {error}", path.display()))
}

fn locked_by(database: &Path, holder: &str, advice: &str) -> StoreError {
    StoreError::Locked(format!(
        "the store {} is in use by {holder}{advice}: talk to that process over HTTP (--url), or stop it",
        database.display(),
    ))
}

/// Tries to take a lock for [`INHERITED_MAX`]; none if it is held.
fn soon<T>(mut take: impl FnMut() -> Result<Option<T>, StoreError>) -> Result<Option<T>, StoreError> {
    let end = Instant::now() + INHERITED_MAX;
    loop {
        match take()? {
            None if Instant::now() < end => std::thread::sleep(INHERITED_MAX / 20),
            taken => return Ok(taken),
        }
    }
}

/// Who has the lock, without taking it for longer than a look.
pub(super) fn holder(database: &Path) -> Result<Option<String>, StoreError> {
    if let Ok(mut file) = File::open(sidecar(database)) {
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Some(read_holder(&mut file))),
            Err(TryLockError::Error(error)) => return Err(cannot_lock(&sidecar(database), &error)),
        }
    }
    #[cfg(unix)]
    match IdentityLock::is_held(database) {
        Ok(true) => return Ok(Some(ELSEWHERE.into())),
        Ok(false) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(cannot_lock(database, &error)),
    }
    Ok(None)
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

/// One name for one file, whichever symbolic links lead to it.
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
