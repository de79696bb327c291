//! What happens elsewhere?
//!
//! Other processes may publish, delay events, come and go; whoever hears a ring asks at once, and as a ring may be lost, an idle
//! process asks once a second. It asks one question for all who would ask their own: the lease is renewed with it, the tail hears where the log
//! ends, and the timer when the next delayed event is due.

use super::member::{Membership, RENEWED_EVERY};
use crate::Ensue;
use crate::error::Error;
use ensue_core::{StoreError, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often is asked: a process that is gone is missed within this, after its lease has passed.
const PULSE_EVERY: Duration = Duration::from_secs(1);

/// Asks until it is dropped, for this process as a member once it is one.
pub(super) async fn run(bus: Ensue, membership: Arc<Membership>) {
    let wake = bus.store().wake();
    loop {
        let member = membership.has_joined().then_some(&membership);
        let found = match beat(&bus, member).await {
            Ok(found) => Some(found),
            Err(StoreError::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "the store does not tell what happens elsewhere; trying again");
                None
            }
        };
        match (&wake, found) {
            (Some(wake), Some(found)) => wake.wait(found.is_rung_for, found.again_after).await,
            (_, None) | (None, _) => tokio::time::sleep(PULSE_EVERY).await,
        }
    }
}

/// What a pulse found.
struct Found {
    /// Was there something that is rung for?
    is_rung_for: bool,
    /// When to ask again, without a ring.
    again_after: Duration,
}

/// Asks once.
async fn beat(bus: &Ensue, member: Option<&Arc<Membership>>) -> Result<Found, StoreError> {
    let inner = bus.inner();
    let sent = Instant::now();
    let lease = member.and_then(|member| member.to_renew(sent));
    let pulse = inner.opened.store.pulse(lease).await?;
    let grew = inner.tail.hear(pulse.last, pulse.newest);
    if pulse.waiting {
        inner.delayed.notify_one();
    }
    inner.due.send_replace(pulse.next_due.map(|due| Instant::now() + until(due, pulse.now)));
    inner.jobs.hear(pulse.jobs_sent, pulse.jobs_due.map(|due| Instant::now() + until(due, pulse.now)));
    inner.schedules.due.send_replace(pulse.schedules_due.map(|due| Instant::now() + until(due, pulse.now)));
    let heard = match member {
        Some(member) if lease.is_some() => member.hear(sent, pulse.renewed, pulse.now).await,
        Some(_) | None => Ok(()),
    };
    // After the lease was renewed: from then on a change of rules waits for this process.
    let is_behind = inner.gate.reported() != Some(pulse.rules_version);
    if is_behind || member.is_some_and(|member| member.lease.is_behind()) {
        catch_up(bus, member.cloned());
    }
    let has_lost_a_group = inner.deliveries().as_ref().is_some_and(|deliveries| deliveries.has_lost_a_group());
    if inner.handlers.is_news(pulse.definitions_version) || has_lost_a_group {
        take_over_handlers(bus);
    }
    // What is told of other processes is told with a renewal.
    let is_put_off = lease.is_none() && member.is_some_and(|member| member.has_lease());
    let again_after = if is_put_off { RENEWED_EVERY } else { PULSE_EVERY };
    heard.map(|()| Found { is_rung_for: grew || pulse.waiting, again_after })
}

/// Serves the handlers that the store keeps, as they are now, and makes anew the groups that are gone, unless somebody is at it. The pulse does not wait for it.
fn take_over_handlers(bus: &Ensue) {
    if bus.inner().rebinding.try_lock().is_err() {
        return;
    }
    let bus = bus.clone();
    tokio::spawn(async move {
        match bus.take_over_defined().await {
            Ok(()) | Err(Error::Store(StoreError::Closed)) => {}
            Err(error) => tracing::warn!(%error, "handlers cannot be taken over; trying again"),
        }
    });
}

/// Goes by the rules as they are now. The pulse does not wait for it: handlers may take long to begin.
fn catch_up(bus: &Ensue, member: Option<Arc<Membership>>) {
    let bus = bus.clone();
    let begun = member.as_ref().map_or(0, |member| member.lease.begun());
    tokio::spawn(async move {
        match bus.take_over_rules().await {
            Ok(_) => member.iter().for_each(|member| member.lease.caught_up(begun)),
            Err(StoreError::Closed) => {}
            Err(error) => tracing::warn!(%error, "the rules cannot be looked at; trying again"),
        }
    });
}

/// How long it is from one time to the other, both by the store's clock.
pub(crate) fn until(due: Timestamp, now: Timestamp) -> Duration {
    // One more millisecond, so that a timer that rounds down does not come too early.
    Duration::try_from(due.duration_since(now)).unwrap_or(Duration::ZERO) + Duration::from_millis(1)
}
