//! How many events do callers store in one slice of time?

use super::rounds::slice;
use super::sample::Sample;
use ensue::Ensue;
use std::sync::Arc;
use std::time::Duration;

/// Callers who each publish batch after batch: how many events they stored, and how long it took.
pub async fn batches(
    bus: &Ensue,
    sample: &Arc<Sample>,
    callers: usize,
    batch_events: usize,
) -> anyhow::Result<(u64, Duration)> {
    let (bus, sample) = (bus.clone(), sample.clone());
    slice(callers, move |_| {
        let (bus, sample) = (bus.clone(), sample.clone());
        async move { Ok(bus.publish_all(sample.events(batch_events)).await?.len() as u64) }
    })
    .await
}

/// Callers who each publish one event after the other: how many they stored, and how long it took.
pub async fn singles(bus: &Ensue, sample: &Arc<Sample>, callers: usize) -> anyhow::Result<(u64, Duration)> {
    let (bus, sample) = (bus.clone(), sample.clone());
    slice(callers, move |_| {
        let (bus, sample) = (bus.clone(), sample.clone());
        async move { bus.publish(sample.event()).await.map(|_| 1).map_err(Into::into) }
    })
    .await
}
