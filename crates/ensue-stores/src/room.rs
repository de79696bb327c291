//! How much may wait to be written?
//!
//! A call stands in the queue until the writer comes to it, even if its caller has left: a server that bounds its
//! connections does not bound what clients leave behind who send and hang up. So the queue has room for so many bytes;
//! a call takes its part of the room before it enters and keeps it until it is answered. Who finds no room waits in
//! front of the queue, with nothing kept of the call once its caller leaves.

use ensue_core::Entry;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many bytes of events may wait, unless a single call has more.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// The room in front of a writer.
pub(crate) struct Room {
    bytes_free: Arc<Semaphore>,
    bytes_max: usize,
}

/// What a call takes of the room, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    _permit: OwnedSemaphorePermit,
}

impl Default for Room {
    fn default() -> Self {
        Self::of(WAITING_BYTES_MAX)
    }
}

impl Room {
    fn of(bytes_max: usize) -> Self {
        Self { bytes_free: Arc::new(Semaphore::new(bytes_max)), bytes_max }
    }

    /// Waits until there is room for this batch, in the order of asking. A batch that is larger than the whole room has
    /// it for itself.
    pub async fn take(&self, batch: &[Entry]) -> Taken {
        // Thousands of small events take more memory than their text.
        let bytes: usize = batch.iter().map(|entry| entry.bytes() + size_of::<Entry>()).sum();
        let asked = u32::try_from(bytes.min(self.bytes_max)).expect("the room's size fits");
        let permit = self.bytes_free.clone().acquire_many_owned(asked).await;
        Taken { _permit: permit.expect("the room is never closed") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue_core::{Json, NewEvent};

    fn entry_of(bytes: usize) -> Vec<Entry> {
        let mut entry = NewEvent::new("t").check().unwrap();
        entry.payload =
            Json::stored("1".repeat(bytes - entry.bytes() - size_of::<Entry>() + entry.payload.as_str().len()));
        vec![entry]
    }

    /// Does it find room now?
    async fn take_now(room: &Room, bytes: usize) -> Option<Taken> {
        let batch = entry_of(bytes);
        tokio::select! {
            biased;
            taken = room.take(&batch) => Some(taken),
            () = std::future::ready(()) => None,
        }
    }

    #[tokio::test]
    async fn there_is_room_for_so_many_bytes_and_again_for_what_was_given_back() {
        let room = Room::of(10_000);
        let _first = take_now(&room, 6_000).await.unwrap();
        let second = take_now(&room, 4_000).await.unwrap();
        assert!(take_now(&room, 4_000).await.is_none(), "who stops waiting has taken nothing");
        drop(second);
        assert!(take_now(&room, 5_000).await.is_none());
        assert!(take_now(&room, 4_000).await.is_some());
    }

    #[tokio::test]
    async fn a_call_larger_than_the_room_has_it_for_itself() {
        let room = Room::of(10_000);
        let small = take_now(&room, 1_000).await.unwrap();
        assert!(take_now(&room, 20_000).await.is_none());
        drop(small);
        let large = take_now(&room, 20_000).await.unwrap();
        assert!(take_now(&room, 1_000).await.is_none());
        drop(large);
        assert!(take_now(&room, 1_000).await.is_some());
    }
}
