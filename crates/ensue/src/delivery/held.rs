//! How is something brought back that stands still?

use crate::Ensue;
use crate::error::Error;
use ensue_core::positions::{Ask, GroupKind, LaneKey, LaneQuery, LaneRow, LaneState, StuckPlace};
use ensue_core::{GroupName, ObjectKey, Seq, StoreError};
use std::fmt;

/// How many lanes of one object are looked at: more handlers than anybody has.
const LANES_MAX: usize = 10_000;

/// What stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stuck {
    /// An object: the event that its lane stands at is meant.
    Object(ObjectKey),
    /// One event.
    Event(Seq),
}

impl From<&LaneKey> for Stuck {
    fn from(lane: &LaneKey) -> Self {
        match lane {
            LaneKey::Object(object) => Self::Object(object.clone()),
            LaneKey::Event(seq) => Self::Event(*seq),
        }
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object) => write!(f, "the object `{object}`"),
            Self::Event(seq) => write!(f, "event {seq}"),
        }
    }
}

impl Ensue {
    /// Lanes that wait for somebody, held or dead, the oldest first.
    pub async fn stuck(&self, limit: usize) -> Result<Vec<LaneRow>, Error> {
        Ok(self.store().lanes(LaneQuery::Stuck { group: None }, limit).await?)
    }

    /// The same page by page: those that come after this place.
    pub async fn stuck_after(&self, place: StuckPlace, limit: usize) -> Result<Vec<LaneRow>, Error> {
        Ok(self.store().lanes(LaneQuery::StuckAfter(place), limit).await?)
    }

    /// Asks a handler to run something again, or to skip it; answers with the lane as it was. Without a handler, the one
    /// that holds it is meant, if it is the only one. What only waits for its time can be asked, too, of a handler by name.
    pub async fn ask_stuck(&self, stuck: &Stuck, handler: Option<&GroupName>, ask: Ask) -> Result<LaneRow, Error> {
        let all = self.open_lanes(stuck).await?;
        let row = match handler {
            Some(handler) => {
                let found = all.into_iter().find(|row| row.group == *handler);
                found
                    .ok_or_else(|| not_found(format!("nothing of {stuck} stands still for the handler `{handler}`")))?
            }
            None => {
                let mut held: Vec<LaneRow> =
                    all.into_iter().filter(|row| row.lane.state != LaneState::Waiting).collect();
                match held.len() {
                    0 => return Err(not_found(format!("nothing of {stuck} is held"))),
                    1 => held.remove(0),
                    _ => {
                        let names: Vec<&str> = held.iter().map(|row| row.group.as_str()).collect();
                        let which = format!("{stuck} is held for several handlers: name one of {}", names.join(", "));
                        return Err(StoreError::Conflict(which).into());
                    }
                }
            }
        };
        let asked = self.ask_lane(&row.group, &row.lane.key, ask).await?;
        // Whoever runs it has brought it on in the meantime.
        asked.ok_or_else(|| not_found(format!("{stuck} went on meanwhile")))
    }

    /// Asks it of a lane, and lets whoever runs it here hear of it.
    async fn ask_lane(&self, group: &GroupName, key: &LaneKey, ask: Ask) -> Result<Option<LaneRow>, Error> {
        let asked = self.store().ask_lane(group, key, ask).await?;
        if let Some(deliveries) = self.inner().deliveries().as_ref() {
            deliveries.asked();
        }
        Ok(asked)
    }

    /// The lanes of something that are not only marks of what is done.
    async fn open_lanes(&self, stuck: &Stuck) -> Result<Vec<LaneRow>, Error> {
        let store = self.store();
        let mut rows = Vec::new();
        match stuck {
            Stuck::Object(object) => rows = store.lanes(LaneQuery::Object(object.clone()), LANES_MAX).await?,
            Stuck::Event(seq) => {
                for group in store.groups().await?.into_iter().filter(|group| group.kind == GroupKind::Handler) {
                    rows.extend(store.lanes(LaneQuery::One(group.name, LaneKey::Event(*seq)), 1).await?);
                }
                let object = self.event(*seq).await?.and_then(|event| event.object);
                if let Some(object) = object {
                    let of_object = store.lanes(LaneQuery::Object(object), LANES_MAX).await?;
                    rows.extend(of_object.into_iter().filter(|row| row.lane.position == *seq));
                }
            }
        }
        rows.retain(|row| row.lane.state != LaneState::Done);
        Ok(rows)
    }
}

fn not_found(what: String) -> Error {
    Error::NotFound(format!("{what}: look at the list of what is held"))
}
