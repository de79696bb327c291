//! What can go wrong, and what should one do then?

/// Input that was refused before anything was stored. Names the field and says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {reason}")]
pub struct Invalid {
    /// The field as its author wrote it: `topic`, `payload`, `events[3].object`.
    pub field: String,
    /// What is wrong and what to do about it; reads on from the field's name.
    pub reason: String,
}

impl Invalid {
    /// A refusal of one field.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }

    /// The same refusal, seen from the batch the event came in.
    pub fn in_batch(self, index: usize) -> Self {
        Self { field: format!("events[{index}].{}", self.field), reason: self.reason }
    }
}

/// Why an engine did not do what it was asked. Every variant says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The idempotency key was used for another event within its window: nothing of the batch was stored.
    #[error(
        "the key `{}` was already used for another event; send the same event again, or choose another key",
        key.replace(crate::key::PART_MARK, " ").trim_start()
    )]
    KeyConflict {
        /// The key in question.
        key: String,
    },
    /// The input cannot be stored.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// No room on the disk: nothing of this call was stored. Works again when there is room.
    #[error("the disk is full and nothing of this call was stored: free some space, then send it again ({0})")]
    Full(String),
    /// The store cannot be reached right now; the call may be sent again.
    #[error("the store cannot be reached right now; send the call again ({0})")]
    Unavailable(String),
    /// Somebody else writes to this store.
    #[error("{0}")]
    Locked(String),
    /// The call needs something that this engine or this way of opening it does not have.
    #[error("{0}")]
    Unsupported(String),
    /// The store's schema is from a newer program, or is not ours.
    #[error("{0}")]
    Schema(String),
    /// The disk failed in a way after which nothing can be promised: the store has stopped.
    #[error("the store has stopped because the disk failed: check the disk, then restart ({0})")]
    Stopped(String),
    /// Anything else the engine's driver said.
    #[error("{0}")]
    Engine(String),
}
