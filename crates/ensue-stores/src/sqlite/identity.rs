//! The lock on a database's identity: its device and inode, whatever its names are.
//!
//! It is an `flock` on the database file itself, which does not meet the POSIX locks of SQLite. But
//! closing any descriptor of a file drops all POSIX locks that the process has on it, also those of
//! other connections. So the process opens a database here once, and keeps that descriptor for as
//! long as the file has a name (`docs/decisions/022-the-lock-on-a-database.md`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Device and inode.
type Identity = (u64, u64);
type Databases = BTreeMap<Identity, Database>;

/// Every database that this process has opened for its lock.
static DATABASES: Mutex<Databases> = Mutex::new(BTreeMap::new());

struct Database {
    file: File,
    /// By this process. Its descriptor is one, so the system would grant the lock again.
    is_locked: bool,
}

/// The lock, held until it is dropped.
pub(super) struct IdentityLock(Identity);

impl IdentityLock {
    /// Takes the lock; none if it is held.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let mut databases = databases();
        let (identity, database) = open(&mut databases, path)?;
        if database.is_locked {
            return Ok(None);
        }
        match database.file.try_lock() {
            Ok(()) => database.is_locked = true,
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(Some(Self(identity)))
    }

    /// Whether the lock is held, by this process or another one.
    pub fn is_held(path: &Path) -> io::Result<bool> {
        let mut databases = databases();
        let (_, database) = open(&mut databases, path)?;
        if database.is_locked {
            return Ok(true);
        }
        match database.file.try_lock_shared() {
            Ok(()) => database.file.unlock().map(|()| false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for IdentityLock {
    fn drop(&mut self) {
        let mut databases = databases();
        if let Some(database) = databases.get_mut(&self.0) {
            database.is_locked = false;
            if let Err(error) = database.file.unlock() {
                tracing::warn!(%error, "database was not unlocked; it is when the process ends");
            }
        }
        close_deleted(&mut databases);
    }
}

fn databases() -> MutexGuard<'static, Databases> {
    DATABASES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a database, or finds it open.
fn open<'d>(databases: &'d mut Databases, path: &Path) -> io::Result<(Identity, &'d mut Database)> {
    close_deleted(databases);
    let mut identity = identity(&path.metadata()?);
    if !databases.contains_key(&identity) {
        let file = File::open(path)?;
        // The name may have gone to another file since.
        identity = self::identity(&file.metadata()?);
        match databases.entry(identity) {
            Entry::Vacant(vacant) => {
                vacant.insert(Database { file, is_locked: false });
            }
            // Closing it would drop the locks of SQLite.
            Entry::Occupied(_) => std::mem::forget(file),
        }
    }
    let database = databases.get_mut(&identity).ok_or(io::ErrorKind::NotFound)?;
    Ok((identity, database))
}

/// No other process can reach a file without a name, so locks on it protect nothing.
fn close_deleted(databases: &mut Databases) {
    databases.retain(|_, database| {
        database.is_locked || !database.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    });
}

fn identity(metadata: &std::fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}
