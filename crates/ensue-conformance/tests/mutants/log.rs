//! What is wrong with how a mutant keeps the log?

use super::{Fault, Mutant};
use async_trait::async_trait;
use ensue_core::retention::Bounds;
use ensue_core::store::{Cancelled, Page, Read, Released};
use ensue_core::{
    Appended, Entry, Event, EventId, Found, ObjectKey, Pending, Seq, Store, StoreError, StoreKey, Timestamp,
};

#[async_trait]
impl Store for Mutant {
    fn engine(&self) -> &'static str {
        "mutant"
    }

    async fn store_key(&self) -> Result<StoreKey, StoreError> {
        self.inner.store_key().await
    }

    async fn append(&self, batch: Vec<Entry>) -> Result<Vec<Appended>, StoreError> {
        let mut answers = self.inner.append(batch).await?;
        if self.fault == Fault::ForgetsPrev && answers.len() > 2 {
            answers[2].prev = None;
        }
        Ok(answers)
    }

    async fn release_due(&self, limit: usize) -> Result<Released, StoreError> {
        self.inner.release_due(limit).await
    }

    async fn read(&self, read: Read) -> Result<Page, StoreError> {
        let mut wider = read.clone();
        if self.fault == Fault::ReadsTopicsByText {
            wider.filter.topic = None;
        }
        let mut page = self.inner.read(wider).await?;
        if let (Fault::ReadsTopicsByText, Some(topic)) = (self.fault, &read.filter.topic) {
            page.events.retain(|event| event.topic.as_str().starts_with(topic.as_str()));
        }
        if self.fault == Fault::LosesTheEndOfAPage && page.events.len() == 7 {
            page.events.pop();
        }
        Ok(page)
    }

    async fn chain(&self, object: &ObjectKey, before: Option<Seq>, limit: usize) -> Result<Vec<Event>, StoreError> {
        self.inner.chain(object, before, limit).await
    }

    async fn event(&self, seq: Seq) -> Result<Option<Event>, StoreError> {
        self.inner.event(seq).await
    }

    async fn find(&self, id: EventId) -> Result<Option<Found>, StoreError> {
        let found = self.inner.find(id).await?;
        Ok(match found {
            Some(Found::Logged(event)) if self.fault == Fault::FindsNothingDelayed => {
                let millis = event.recorded_at.as_millisecond();
                (id.time().map(|time| time.as_millisecond()) == Some(millis)).then_some(Found::Logged(event))
            }
            other => other,
        })
    }

    async fn pending(&self, limit: usize) -> Result<Vec<Pending>, StoreError> {
        let mut pending = self.inner.pending(limit).await?;
        if self.fault == Fault::ReleasesInOrderOfIds {
            pending.sort_by_key(|pending| pending.id);
        }
        Ok(pending)
    }

    async fn pending_count(&self) -> Result<u64, StoreError> {
        self.inner.pending_count().await
    }

    async fn cancel(&self, id: EventId) -> Result<Cancelled, StoreError> {
        Ok(match self.inner.cancel(id).await? {
            Cancelled::Unknown if self.fault == Fault::CancelsTwice => Cancelled::Gone,
            other => other,
        })
    }

    async fn bounds(&self) -> Result<Bounds, StoreError> {
        self.inner.bounds().await
    }

    async fn seq_before(&self, time: Timestamp) -> Result<Seq, StoreError> {
        let microsecond = jiff::SignedDuration::from_micros(1);
        let later = self.fault == Fault::TimeBeforeIncludesTheTime;
        self.inner.seq_before(if later { time + microsecond } else { time }).await
    }

    async fn bytes(&self) -> Result<u64, StoreError> {
        self.inner.bytes().await
    }

    async fn trim(&self, keep_from: Seq, limit: usize) -> Result<Bounds, StoreError> {
        self.inner.trim(keep_from, if self.fault == Fault::TrimsOneTooMany { limit + 1 } else { limit }).await
    }

    async fn purge_keys(&self, limit: usize) -> Result<usize, StoreError> {
        self.inner.purge_keys(limit).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner.now().await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.inner.ready().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
