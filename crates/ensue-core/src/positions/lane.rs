//! What is kept of an object that stands still while its group goes on?
//!
//! A lane is a cursor for one object of one group: the events before `position` are done, the one at `position` is
//! next, and its successors stay in the log until retention comes there (`parked.rs`). A delivery that concerns no object,
//! or whose handler asks for no order, has a lane of its own.

use crate::event::Seq;
use crate::key::{GroupName, ObjectKey};
use crate::positions::group::SlotNumber;
use jiff::Timestamp;

/// Whose lane it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LaneKey {
    /// All events of an object.
    Object(ObjectKey),
    /// One event alone.
    Event(Seq),
}

impl LaneKey {
    /// One text for both, as engines keep it: `o:work:1`, `e:42`.
    pub fn to_text(&self) -> String {
        match self {
            Self::Object(object) => format!("o:{object}"),
            Self::Event(seq) => format!("e:{seq}"),
        }
    }

    /// Back from the text that an engine kept.
    pub fn stored(text: &str) -> Option<Self> {
        match text.split_at_checked(2)? {
            ("o:", object) => Some(Self::Object(ObjectKey::stored(object))),
            ("e:", seq) => seq.parse().ok().map(Self::Event),
            _ => None,
        }
    }
}

/// What a lane waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaneState {
    /// For its time: the event at `position` is run at `not_before`. Also while it runs.
    Waiting,
    /// For somebody to retry or skip the event at `position`, whose attempts are exhausted.
    Held,
    /// The event at `position` is given up, and with it every later one of the object, until somebody retries.
    Dead,
    /// For nothing: everything before `position` is done although the group's cursor has not come so far.
    Done,
}

impl LaneState {
    /// Its word in stores and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Dead => "dead",
            Self::Done => "done",
        }
    }

    /// Back from the word that an engine kept.
    pub fn stored(word: &str) -> Option<Self> {
        [Self::Waiting, Self::Held, Self::Dead, Self::Done].into_iter().find(|state| state.as_str() == word)
    }
}

/// What somebody asks of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Run the event at `position` now, with all its attempts, marked as redriven.
    Retry,
    /// Give the event at `position` up and go on with its successor.
    Skip,
}

impl Ask {
    /// Its word in stores and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Skip => "skip",
        }
    }

    /// Back from the word that an engine kept.
    pub fn stored(word: &str) -> Option<Self> {
        [Self::Retry, Self::Skip].into_iter().find(|ask| ask.as_str() == word)
    }
}

/// A lane as its owner writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Whose.
    pub key: LaneKey,
    /// The event that is next; those before it are done.
    pub position: Seq,
    /// What it waits for.
    pub state: LaneState,
    /// How often the event at `position` was started. Counted before it starts, so that one that ends the process
    /// counts too.
    pub attempts: u32,
    /// Not before this, by the store's clock.
    pub not_before: Option<Timestamp>,
    /// What went wrong last.
    pub error: Option<String>,
    /// Was the event at `position` brought back by somebody?
    pub redriven: bool,
}

/// A lane as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneRow {
    /// Of which group.
    pub group: GroupName,
    /// In which slot.
    pub slot: SlotNumber,
    /// What its owner wrote last.
    pub lane: Lane,
    /// Since when there is such a row.
    pub since: Timestamp,
    /// What somebody asked since its owner wrote it.
    pub ask: Option<Ask>,
    /// What it needs before this place is in parked rows, if that was ever so. See [`parked`](super::parked).
    pub parked_to: Option<Seq>,
}

impl LaneRow {
    /// The oldest place of the log that it may still need.
    pub fn needs_from(&self) -> Seq {
        self.lane.position.max(self.parked_to.unwrap_or(0))
    }
}

/// A place in the list of what is held or dead: pages of it go on there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckPlace {
    /// Since when the lane there has a row.
    pub since: Timestamp,
    /// Whose lane.
    pub key: LaneKey,
    /// Of which group.
    pub group: GroupName,
}

impl StuckPlace {
    /// The place of a lane.
    pub fn of(row: &LaneRow) -> Self {
        Self { since: row.since, key: row.lane.key.clone(), group: row.group.clone() }
    }

    /// As a text for who goes on later; what is in it is nobody's business.
    pub fn to_text(&self) -> String {
        let group = self.group.as_str();
        format!("{}:{}:{group}{}", self.since.as_microsecond(), group.len(), self.key.to_text())
    }

    /// Back from that text.
    pub fn parse(text: &str) -> Option<Self> {
        let (since, rest) = text.split_once(':')?;
        let (length, rest) = rest.split_once(':')?;
        let (group, key) = rest.split_at_checked(length.parse().ok()?)?;
        Some(Self {
            since: Timestamp::from_microsecond(since.parse().ok()?).ok()?,
            key: LaneKey::stored(key)?,
            group: GroupName::parse("group", group).ok()?,
        })
    }
}

/// A change of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneChange {
    /// Writes the lane, new or over what was there; what was asked of it is answered with that. A position never goes back:
    /// a lane that is stored further on stays as it is.
    Put(Lane),
    /// The lane has caught up: its row goes.
    Remove(LaneKey),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_and_an_object_that_looks_like_an_event_is_none() {
        for key in
            [LaneKey::Object(ObjectKey::stored("e:42")), LaneKey::Object(ObjectKey::stored("ü")), LaneKey::Event(42)]
        {
            assert_eq!(LaneKey::stored(&key.to_text()), Some(key));
        }
        assert_eq!(LaneKey::stored("é"), None);
        for key in [LaneKey::Object(ObjectKey::stored("a:7:b")), LaneKey::Event(42)] {
            let place = StuckPlace { since: Timestamp::UNIX_EPOCH, key, group: GroupName::stored("order.paid") };
            assert_eq!(StuckPlace::parse(&place.to_text()), Some(place));
        }
        for text in ["", "1", "1:2", "x:1:ao:b", "1:99:ao:b", "1:1:ab", "1:0:o:b"] {
            assert_eq!(StuckPlace::parse(text), None, "{text}");
        }
        for state in [LaneState::Waiting, LaneState::Held, LaneState::Dead, LaneState::Done] {
            assert_eq!(LaneState::stored(state.as_str()), Some(state));
        }
        for ask in [Ask::Retry, Ask::Skip] {
            assert_eq!(Ask::stored(ask.as_str()), Some(ask));
        }
    }
}
