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
    /// What is asked for does not go with what is there: nothing was changed.
    #[error("{0}")]
    Conflict(String),
    /// The input cannot be stored.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// No room on the disk: nothing of this call was stored. Works again when there is room.
    #[error("the disk is full and nothing of this call was stored: free some space, then send it again ({0})")]
    Full(String),
    /// The store cannot be reached right now; the call may be sent again: nothing of it was done, or doing it twice is
    /// doing it once.
    #[error(
        "the store cannot be reached right now ({0}): check its address and that it runs, and send the call again later"
    )]
    Unavailable(String),
    /// This process is busy with the calls of others; nothing of this call was done.
    #[error("{0}")]
    Overloaded(String),
    /// The call may have been carried out or not, and the store cannot say which. Never repeated blindly: only what has
    /// a key is not stored twice.
    #[error(
        "whether this call was carried out is not known: look before you send it again; events with a key can be sent \
         again without being stored twice ({0})"
    )]
    InDoubt(String),
    /// This store was closed, for good: nothing of this call was stored.
    #[error("the store is closed, and nothing of this call was stored: open it again, then send the call again")]
    Closed,
    /// Somebody else writes to this store.
    #[error("{0}")]
    Locked(String),
    /// The call needs something that this engine or this way of opening it does not have.
    #[error("{0}")]
    Unsupported(String),
    /// The store's schema is from a newer program, or is not ours.
    #[error("{0}")]
    Schema(String),
    /// The disk failed in a way after which nothing can be promised: the store has stopped. The call that met it is
    /// [in doubt](Self::InDoubt); the calls after it leave nothing.
    #[error("the store has stopped because the disk failed: check the disk, then restart ({0})")]
    Stopped(String),
    /// Anything else the engine's driver said.
    #[error("{0}")]
    Engine(String),
}

impl StoreError {
    /// The same trouble, met after something happened that leaves open whether the call was carried out. What the error
    /// itself would have advised is not said then.
    pub fn in_doubt(self, since: &str) -> Self {
        let reason = match self {
            Self::Full(reason)
            | Self::Unavailable(reason)
            | Self::Overloaded(reason)
            | Self::InDoubt(reason)
            | Self::Locked(reason)
            | Self::Unsupported(reason)
            | Self::Schema(reason)
            | Self::Stopped(reason)
            | Self::Engine(reason) => reason,
            Self::Closed => "the store was closed meanwhile".into(),
            error @ (Self::KeyConflict { .. } | Self::Conflict(_) | Self::Invalid(_)) => error.to_string(),
        };
        Self::InDoubt(format!("{since}: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_doubt_is_told_to_look_and_never_to_just_send_it_again() {
        for error in
            [StoreError::Unavailable("no route".into()), StoreError::Full("no room".into()), StoreError::Closed]
        {
            let doubt = error.in_doubt("the connection was lost");
            assert!(matches!(doubt, StoreError::InDoubt(_)));
            let text = doubt.to_string();
            assert!(text.contains("look before") && text.contains("the connection was lost: "), "{text}");
            assert!(!text.contains("send the call again") && !text.contains("nothing of this call"), "{text}");
        }
    }
}
