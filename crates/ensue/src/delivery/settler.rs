//! How do many handlers share one commit?
//!
//! What workers have to write while the store is busy is gathered and written together.

use crate::bus::Inner;
use crate::health::Work;
use crate::supervision::has_panicked;
use ensue_core::StoreError;
use ensue_core::positions::{Settled, SlotChange};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// How many changes go into one commit at most.
const CHANGES_MAX: usize = 4_096;

pub(crate) type SettledAll = Result<Vec<Settled>, StoreError>;

struct Request {
    changes: Vec<SlotChange>,
    reply: oneshot::Sender<SettledAll>,
}

/// The way to the one who writes.
#[derive(Clone)]
pub(crate) struct Settler(mpsc::UnboundedSender<Request>);

impl Settler {
    /// Starts it; it ends with the last of its handles.
    pub fn start(bus: Arc<Inner>) -> Self {
        let (queue, mut requests) = mpsc::unbounded_channel();
        tokio::spawn(async move { while has_panicked("checkpoints", run(&bus, &mut requests)).await {} });
        Self(queue)
    }

    /// Writes changes; an answer for each.
    pub async fn settle(&self, changes: Vec<SlotChange>) -> SettledAll {
        let (reply, answer) = oneshot::channel();
        self.0.send(Request { changes, reply }).map_err(|_| StoreError::Closed)?;
        // The worker begins again with what the store has.
        answer.await.map_err(|_| StoreError::Engine("writing a checkpoint panicked".into()))?
    }
}

async fn run(bus: &Inner, requests: &mut mpsc::UnboundedReceiver<Request>) {
    while let Some(first) = requests.recv().await {
        let mut gathered = vec![first];
        let mut count = gathered[0].changes.len();
        while count < CHANGES_MAX
            && let Ok(request) = requests.try_recv()
        {
            count += request.changes.len();
            gathered.push(request);
        }
        let lengths: Vec<usize> = gathered.iter().map(|request| request.changes.len()).collect();
        let (changes, replies): (Vec<_>, Vec<_>) = gathered.into_iter().map(|r| (r.changes, r.reply)).unzip();
        let sends_jobs = changes.iter().flatten().any(|change| !change.jobs.is_empty());
        let call = bus.opened.store.settle(changes.into_iter().flatten().collect());
        let mut answers = bus.health.watch(Work::Checkpoint, call).await;
        if let Ok(answers) = &answers {
            let published = answers.iter().filter_map(|settled| match settled {
                Settled::Done(appended) => Some(appended),
                Settled::FenceLost | Settled::WentBack | Settled::Refused(_) => None,
            });
            bus.announce(&published.flatten().copied().collect::<Vec<_>>());
            if sends_jobs {
                bus.jobs.sooner.ring();
                bus.jobs.ring();
            }
        }
        for (reply, length) in replies.into_iter().zip(lengths) {
            let answer = match &mut answers {
                Ok(answers) => Ok(answers.drain(..length).collect()),
                Err(error) => Err(error.clone()),
            };
            // A worker that has stopped does not wait for it.
            let _waiting = reply.send(answer);
        }
    }
}
