//! Up to where is the log still what it was?
//!
//! A promoted replica may lack the last events and give their numbers out again (H35), so a number alone does not tell
//! that an event is still there: its id does. The tail remembers the ids of what it read, densely for the newest
//! events and ever more thinly for older ones, in bounded memory. Two logs that parted are equal up to one place and
//! differ after it, so a few lookups find the newest remembered event that both have.

use ensue_core::positions::EventAt;
use ensue_core::store::SharedStore;
use ensue_core::{Event, EventId, Seq, StoreError};

/// So many of the newest events are all remembered; of those that lie twice as far back half as many, and so on. Who
/// has to go back goes at most 1/64 (1.6 %) further than what was lost.
const DENSE_EVENTS: u64 = 256;
/// How far back from the end it looks for events of the time before it began: rarely needed, so there are few.
const BACK_AT_START: [u64; 5] = [1 << 20, 1 << 16, 1 << 12, 1 << 8, 1 << 4];

/// Events by place and id, in the order of the log.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    marks: Vec<(Seq, EventId)>,
    /// How many there may be before they are thinned out again.
    thin_at: usize,
}

impl Marks {
    /// Remembers the event at the end of the log, and some before it.
    pub async fn at_end(store: &SharedStore, end: Seq) -> Result<Self, StoreError> {
        let mut marks = Self::default();
        // The oldest first: if the log goes back meanwhile, what was read before is found not to hold.
        let before = BACK_AT_START.iter().map(|back| (end.saturating_sub(*back) / back) * back);
        for seq in before.chain([end]).filter(|seq| *seq > 0) {
            if let Some(event) = store.event(seq).await? {
                marks.push(&event);
            }
        }
        Ok(marks)
    }

    /// Remembers an event; it comes after all others.
    pub fn push(&mut self, event: &Event) {
        if self.marks.last().is_some_and(|(newest, _)| *newest >= event.seq) {
            return;
        }
        self.marks.push((event.seq, event.id));
        if self.marks.len() >= self.thin_at {
            self.marks.retain(|(seq, _)| is_kept(*seq, event.seq));
            self.thin_at = self.marks.len() + DENSE_EVENTS as usize;
        }
    }

    /// Is there nothing known that says otherwise than this event?
    pub fn agree_with(&self, event: &Event) -> bool {
        self.agree(event.seq, event.id)
    }

    /// Is there nothing known that says otherwise than that this event is there?
    pub fn agree(&self, seq: Seq, id: EventId) -> bool {
        match self.marks.binary_search_by_key(&seq, |(seq, _)| *seq) {
            Ok(index) => self.marks[index].1 == id,
            Err(_) => true,
        }
    }

    /// The event at a place, if it is remembered.
    pub fn at(&self, seq: Seq) -> Option<EventAt> {
        let index = self.marks.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        let (seq, id) = self.marks[index];
        Some(EventAt { seq, id })
    }

    /// Forgets what comes after a place.
    pub fn forget_after(&mut self, seq: Seq) {
        let kept = self.marks.partition_point(|(mark, _)| *mark <= seq);
        self.marks.truncate(kept);
    }

    /// The newest remembered place that is still what it was; the beginning of the log if none is. What retention took
    /// cannot be compared and needs not be: nobody can read it any more.
    pub async fn last_common(&self, store: &SharedStore) -> Result<Seq, StoreError> {
        let first = store.bounds().await?.first;
        let (mut same, mut beyond) = (0, self.marks.len());
        while same < beyond {
            let middle = same + (beyond - same) / 2;
            let (seq, id) = self.marks[middle];
            let holds = seq < first || store.event(seq).await?.is_some_and(|event| event.id == id);
            if holds { same = middle + 1 } else { beyond = middle }
        }
        let newest = self.marks[..same].last().map_or(0, |(seq, _)| *seq);
        Ok(newest.max(first - 1))
    }
}

/// By its number alone, so that thinning out again keeps what belongs together: the further from the end, the rounder.
fn is_kept(seq: Seq, end: Seq) -> bool {
    match (end - seq) / DENSE_EVENTS {
        0 => true,
        times => seq.trailing_zeros() > times.ilog2(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue_core::{Json, Timestamp, Topic};

    fn event(seq: Seq) -> Event {
        let id = EventId::new(Timestamp::UNIX_EPOCH, [7; 10]);
        let (topic, at) = (Topic::stored("t"), Timestamp::UNIX_EPOCH);
        let (payload, metadata) = (Json::null(), Json::empty_object());
        Event {
            seq,
            prev: None,
            id,
            topic,
            object: None,
            payload,
            metadata,
            occurred_at: at,
            recorded_at: at,
            to: None,
        }
    }

    #[test]
    fn a_long_log_is_remembered_in_little_memory_and_nowhere_too_thinly() {
        const EVENTS: u64 = 300_000;
        let mut marks = Marks::default();
        (1..=EVENTS).for_each(|seq| marks.push(&event(seq)));
        assert!(marks.marks.len() < 3_000, "{}", marks.marks.len());
        for lost in 1..EVENTS {
            let end = EVENTS - lost;
            let kept = marks.marks.partition_point(|(seq, _)| *seq <= end);
            let newest = marks.marks[..kept].last().map_or(0, |(seq, _)| *seq);
            assert!(end - newest <= lost / 64, "{lost} lost, and {} more read again", end - newest);
        }
    }
}
