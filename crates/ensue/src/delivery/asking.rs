//! How does one wait for handlers, or bring something back?

use super::attempt::in_handler;
use crate::Ensue;
use crate::error::Error;
use ensue_core::positions::{Ask, LaneKey, LaneRow};
use ensue_core::{Appended, Entry, Event, GroupName, NewEvent, Timestamp};
use std::time::Duration;

/// What a publish that waited for its sync handlers answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waited {
    /// The event, which is on disk either way.
    pub appended: Appended,
    /// The sync handlers that were not done in time. They go on, durably.
    pub pending: Vec<GroupName>,
}

impl Ensue {
    /// Publishes an event and waits until the sync handlers that want it are done, at most this long. From inside a handler,
    /// for an event that is delayed and for one that was published before (by its key) nothing is waited for. Where several
    /// processes share the work, what another one runs is not heard of: the wait takes its whole time and ends as pending.
    pub async fn publish_and_wait(&self, event: NewEvent, wait_max: Duration) -> Result<Waited, Error> {
        let entry = event.check()?;
        let answers = self.append(vec![entry.clone()]).await?;
        let pending = self.wait_for_sync(&[entry], &answers, wait_max).await;
        Ok(Waited { appended: answers[0], pending })
    }

    /// Waits until the sync handlers that want these events are done with them; answers which were not in time.
    pub async fn wait_for_sync(&self, entries: &[Entry], answers: &[Appended], wait_max: Duration) -> Vec<GroupName> {
        let deliveries = self.inner().deliveries().clone();
        let Some(deliveries) = deliveries.filter(|_| !in_handler()) else { return Vec::new() };
        let deadline = tokio::time::Instant::now() + wait_max;
        let mut late: Vec<GroupName> = Vec::new();
        for (spec, subscription, progress) in deliveries.sync_handlers() {
            for (entry, answer) in entries.iter().zip(answers) {
                let Some(event) = logged(entry, answer) else { continue };
                let is_wanted = spec.wants(subscription, &event).unwrap_or(false);
                if !is_wanted || answer.repeated {
                    continue;
                }
                let done = progress.when_done(event.seq);
                let in_time = tokio::time::timeout_at(deadline, done).await.is_ok_and(|done| done.is_ok());
                if !in_time {
                    progress.forget(event.seq);
                    if !late.contains(&spec.key) {
                        late.push(spec.key.clone());
                    }
                }
            }
        }
        late
    }

    /// Waits until every handler of this process has done all there is to do now. Deliveries that wait for their time are
    /// not waited for. For tests, and for work that is started by a timer.
    pub async fn drain(&self) -> Result<(), Error> {
        let deliveries = self.inner().deliveries().clone();
        let Some(deliveries) = deliveries else { return Ok(()) };
        loop {
            let end = self.store().bounds().await?.last;
            self.inner().tail.look_now();
            deliveries.drained(end).await;
            // Handlers may have published.
            if self.store().bounds().await?.last == end {
                return Ok(());
            }
        }
    }

    /// Asks something of a lane that waits or is held: to run its event now, or to give it up and go on.
    pub async fn ask_lane(&self, group: &GroupName, key: &LaneKey, ask: Ask) -> Result<Option<LaneRow>, Error> {
        let asked = self.store().ask_lane(group, key, ask).await?;
        if let Some(deliveries) = self.inner().deliveries().as_ref() {
            deliveries.asked();
        }
        Ok(asked)
    }

    /// Lets the workers of this process look what happened to their slots.
    pub(crate) fn tell_moved(&self) {
        if let Some(deliveries) = self.inner().deliveries().as_ref() {
            deliveries.moved();
        }
    }
}

/// The event as it is in the log, all but its times, which are about now.
fn logged(entry: &Entry, answer: &Appended) -> Option<Event> {
    let now = Timestamp::now();
    Some(Event {
        seq: answer.seq?,
        prev: answer.prev,
        id: answer.id,
        topic: entry.topic.clone(),
        object: entry.object.clone(),
        payload: entry.payload.clone(),
        metadata: entry.metadata.clone(),
        occurred_at: entry.occurred_at.unwrap_or(now),
        recorded_at: now,
        to: entry.to,
    })
}
