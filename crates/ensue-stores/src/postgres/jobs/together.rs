//! How do many callers send jobs in one commit?
//!
//! While one is under way what others send gathers, and the next takes it all: the more callers, the larger the commits, without
//! anybody waiting for a timer. For each to have a commit of its own, a thousand a second need all connections that claims and
//! settlements need, too. Where so much gathers that a commit is worth its connection, another goes beside it: the server works at one while
//! the other is made here. What may have to wait for a lock, because it has an object or a key, goes alone.

use super::send::Sending;
use ensue_core::StoreError;
use ensue_core::jobs::job::JOBS_MAX;
use ensue_core::jobs::{Enqueued, NewJob};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// How much is gathered into one commit, unless a single caller sends more.
const BYTES_MAX: usize = 4 << 20;
/// How many commits are under way at once, and how many jobs must wait for another to begin.
const TURNS_MAX: usize = 2;
const BESIDE_FROM: usize = 200;

/// One caller's jobs, waiting for their answer.
struct Waiting {
    jobs: Vec<NewJob>,
    reply: oneshot::Sender<Result<Vec<Enqueued>, StoreError>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// How many jobs those are.
    jobs: usize,
    /// How many tasks send.
    turns: usize,
}

impl State {
    fn push(&mut self, waiting: Waiting) {
        self.jobs += waiting.jobs.len();
        self.waiting.push_back(waiting);
    }

    fn pop(&mut self) -> Option<Waiting> {
        let next = self.waiting.pop_front()?;
        self.jobs -= next.jobs.len();
        Some(next)
    }

    /// Is another task to send what waits?
    fn begins_turn(&mut self) -> bool {
        let begins = self.turns == 0 || (self.turns < TURNS_MAX && self.jobs >= BESIDE_FROM);
        self.turns += usize::from(begins);
        begins
    }
}

/// What is to be sent together.
pub(in super::super) struct Together {
    sending: Sending,
    state: Mutex<State>,
}

impl Together {
    pub fn new(sending: Sending) -> Arc<Self> {
        Arc::new(Self { sending, state: Mutex::default() })
    }

    /// Sends jobs with those of others, or alone.
    pub async fn send(self: &Arc<Self>, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, StoreError> {
        if jobs.iter().any(|job| job.object.is_some() || job.unique_key.is_some()) {
            return self.sending.send(&jobs).await;
        }
        let (reply, answer) = oneshot::channel();
        let begins_turn = {
            let mut state = self.state();
            state.push(Waiting { jobs, reply });
            state.begins_turn()
        };
        if begins_turn {
            // In a task of its own: whoever comes first may leave, and the others' jobs are on their way with it.
            tokio::spawn(Turn { together: self.clone(), is_over: false }.take());
        }
        answer.await.unwrap_or_else(|_| Err(StoreError::InDoubt("the task that sent jobs was ended".into())))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what goes in one commit, in order; with nothing the turn is over. Whose caller has left is let go: nothing of it was sent.
    fn gather(&self) -> Vec<Waiting> {
        let mut state = self.state();
        let (mut gathered, mut count, mut bytes) = (Vec::new(), 0, 0);
        while let Some(next) = state.pop() {
            if next.reply.is_closed() {
                continue;
            }
            let of_next = next.jobs.iter().map(bytes_of).sum::<usize>();
            if !gathered.is_empty() && (count + next.jobs.len() > JOBS_MAX || bytes + of_next > BYTES_MAX) {
                state.jobs += next.jobs.len();
                state.waiting.push_front(next);
                break;
            }
            (count, bytes) = (count + next.jobs.len(), bytes + of_next);
            gathered.push(next);
        }
        state.turns -= usize::from(gathered.is_empty());
        gathered
    }

    /// Sends these in one commit and answers them. If the server refuses that, each is tried alone, so that one caller's fault does not
    /// become the others' (H37).
    async fn send_all(&self, gathered: Vec<Waiting>) {
        if gathered.is_empty() {
            return;
        }
        let (jobs, callers): (Vec<Vec<NewJob>>, Vec<_>) =
            gathered.into_iter().map(|waiting| (waiting.jobs, waiting.reply)).unzip();
        let counts: Vec<usize> = jobs.iter().map(Vec::len).collect();
        let all: Vec<NewJob> = jobs.into_iter().flatten().collect();
        let mut answer = self.sending.send(&all).await;
        let mut rest = all.as_slice();
        for (caller, count) in callers.into_iter().zip(counts.iter().copied()) {
            let (own, behind) = rest.split_at(count);
            rest = behind;
            let answered = match &mut answer {
                Ok(sent) => Ok(sent.drain(..count).collect()),
                Err(StoreError::Invalid(_) | StoreError::Engine(_)) if counts.len() > 1 => self.sending.send(own).await,
                Err(error) => Err(error.clone()),
            };
            // Nobody may wait for it any more.
            let _ = caller.send(answered);
        }
    }
}

fn bytes_of(job: &NewJob) -> usize {
    job.payload.as_str().len() + job.metadata.as_str().len()
}

/// A task that sends. However it ends, nobody waits for it after that.
struct Turn {
    together: Arc<Together>,
    /// Did it find nothing more? Then the next one may be under way.
    is_over: bool,
}

impl Turn {
    async fn take(mut self) {
        while !self.is_over {
            let gathered = self.together.gather();
            self.is_over = gathered.is_empty();
            let callers = gathered.len();
            self.together.send_all(gathered).await;
            // Those who were answered can come back first, so that the next commit is not for the first of them alone.
            if callers > 1 {
                tokio::task::yield_now().await;
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_over {
            // It was ended with its runtime, or has panicked: what waits is for another, or for nobody.
            let mut state = self.together.state();
            state.turns -= 1;
            if state.turns == 0 {
                *state = State::default();
            }
        }
    }
}
