//! Where is an event that somebody names?
//!
//! In the log, or waiting for its time; or, where the log has forgotten it, parked for an object that stands still at it or
//! before it.

use crate::Ensue;
use crate::error::Error;
use ensue_core::positions::ParkedQuery;
use ensue_core::{Event, EventId, Found, Seq};

impl Ensue {
    /// The event at a place, also one that lives on only for an object that stands still.
    pub async fn event(&self, seq: Seq) -> Result<Option<Event>, Error> {
        match self.store().event(seq).await? {
            Some(event) => Ok(Some(event)),
            None => Ok(self.store().parked(ParkedQuery::Place(seq), 1).await?.pop()),
        }
    }

    /// The event of an id: in the log, pending, or living on only for an object that stands still.
    pub async fn find(&self, id: EventId) -> Result<Option<Found>, Error> {
        match self.store().find(id).await? {
            Some(found) => Ok(Some(found)),
            None => Ok(self.store().parked(ParkedQuery::Id(id), 1).await?.pop().map(Found::Logged)),
        }
    }
}
