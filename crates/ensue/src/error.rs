//! What can go wrong at the library's door?

use ensue_core::{Invalid, StoreError};

/// Why a call to the bus did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The input was refused, and nothing was stored.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The store could not do it.
    #[error(transparent)]
    Store(StoreError),
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// The store's address cannot be understood, or its engine is not compiled in.
    #[error("{0}")]
    Address(String),
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Invalid(invalid) => Error::Invalid(invalid),
            error @ (StoreError::KeyConflict { .. }
            | StoreError::Conflict(_)
            | StoreError::Full(_)
            | StoreError::Overloaded(_)
            | StoreError::Unavailable(_)
            | StoreError::InDoubt(_)
            | StoreError::Closed
            | StoreError::Locked(_)
            | StoreError::Unsupported(_)
            | StoreError::Schema(_)
            | StoreError::Stopped(_)
            | StoreError::Engine(_)) => Error::Store(error),
        }
    }
}
