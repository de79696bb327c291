//! How is the log read without holding up the writer?
//!
//! In WAL mode a reader sees the last commit and blocks nobody. Each look is one short read transaction on a
//! connection of a small pool, on a blocking thread; none is held beyond a page, so readers do not grow the WAL.

use super::{connect, error};
use ensue_core::StoreError;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// How many looks run at the same time.
const READERS_MAX: usize = 4;

pub(super) struct Readers {
    path: PathBuf,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub fn new(path: PathBuf) -> Self {
        Self { path, permits: Arc::new(Semaphore::new(READERS_MAX)), idle: Arc::default() }
    }

    /// Looks at one snapshot of the store.
    pub async fn look<T, F>(&self, look: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (path, idle) = (self.path.clone(), self.idle.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let kept = idle.lock().expect("no look panics while it holds the pool").pop();
            let connection = match kept {
                Some(connection) => connection,
                None => connect::connect_reader(&path)?,
            };
            let snapshot = connection.unchecked_transaction()?;
            let value = look(&snapshot)?;
            snapshot.finish()?;
            idle.lock().expect("no look panics while it holds the pool").push(connection);
            Ok(value)
        });
        match looked.await {
            Ok(result) => result.map_err(error::of_read),
            Err(error) => Err(StoreError::Engine(format!("a read was interrupted: {error}"))),
        }
    }

    pub fn close(&self) {
        self.permits.close();
        self.idle.lock().expect("no look panics while it holds the pool").clear();
    }
}
