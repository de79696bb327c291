//! How do many callers have something done in one commit?
//!
//! While one is under way what others want gathers, and the next takes it all: the more callers, the larger the commits, without
//! anybody waiting for a timer. For each to have a commit of its own, a thousand a second need all connections, and a commit alone costs the server as much as
//! twenty jobs in it. Where so much gathers that a commit is worth its connection, another goes beside it: the server works at one while
//! the other is made here. What may wait long for a lock goes alone, or gives way soon: nobody waits for what somebody else waits for.

use ensue_core::StoreError;
use ensue_core::jobs::job::JOBS_MAX;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// How much is gathered into one commit, unless a single caller has more.
const BYTES_MAX: usize = 4 << 20;
/// How many commits of one queue are under way at once, and how many jobs must be sent, wanted or ended by those who wait for another to begin.
const TURNS_MAX: usize = 2;
const BESIDE_FROM: usize = 200;

/// What is done for many callers at once.
pub(in super::super) trait Work: Send + Sync + 'static {
    /// What one caller wants done.
    type Part: Send;
    /// What one caller is answered.
    type Answer: Send;
    /// What must be the same for two parts to go together.
    type Key: Clone + Eq + Hash + Send;
    /// For who is told that it may have been carried out.
    const DOING: &'static str;

    fn key(part: &Self::Part) -> Self::Key;
    /// How many jobs these are.
    fn count(part: &Self::Part) -> usize;
    /// How much they take on the way.
    fn bytes(part: &Self::Part) -> usize;
    /// Does it for all of these, and answers each, in their order.
    fn carry_out(&self, parts: Vec<Self::Part>) -> impl Future<Output = Vec<Result<Self::Answer, StoreError>>> + Send;
}

/// One caller's part, waiting for its answer.
struct Waiting<W: Work> {
    part: W::Part,
    reply: oneshot::Sender<Result<W::Answer, StoreError>>,
}

/// What goes together.
struct Queue<W: Work> {
    waiting: VecDeque<Waiting<W>>,
    /// How many jobs those are.
    jobs: usize,
    /// How many tasks are at it.
    turns: usize,
}

impl<W: Work> Default for Queue<W> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), jobs: 0, turns: 0 }
    }
}

impl<W: Work> Queue<W> {
    fn push(&mut self, waiting: Waiting<W>) {
        self.jobs += W::count(&waiting.part);
        self.waiting.push_back(waiting);
    }

    fn pop(&mut self) -> Option<Waiting<W>> {
        let next = self.waiting.pop_front()?;
        self.jobs -= W::count(&next.part);
        Some(next)
    }

    /// Is another task to do what waits?
    fn begins_turn(&mut self) -> bool {
        let begins = self.turns == 0 || (self.turns < TURNS_MAX && self.jobs >= BESIDE_FROM);
        self.turns += usize::from(begins);
        begins
    }
}

/// What is to be done together.
pub(in super::super) struct Together<W: Work> {
    work: W,
    /// One for each key, while a task is at it.
    queues: Mutex<HashMap<W::Key, Queue<W>>>,
}

impl<W: Work> Together<W> {
    pub fn new(work: W) -> Arc<Self> {
        Arc::new(Self { work, queues: Mutex::default() })
    }

    /// What is done, for who goes alone.
    pub fn alone(&self) -> &W {
        &self.work
    }

    /// Has this done with what others want.
    pub async fn join(self: &Arc<Self>, part: W::Part) -> Result<W::Answer, StoreError> {
        let (reply, answer) = oneshot::channel();
        let key = W::key(&part);
        let begins_turn = {
            let mut queues = self.queues();
            let queue = queues.entry(key.clone()).or_default();
            queue.push(Waiting { part, reply });
            queue.begins_turn()
        };
        if begins_turn {
            // In a task of its own: whoever comes first may leave, and the others' jobs are on their way with it.
            tokio::spawn(Turn { together: self.clone(), key, is_over: false }.take());
        }
        answer.await.unwrap_or_else(|_| Err(StoreError::InDoubt(format!("a task was ended while {}", W::DOING))))
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<W::Key, Queue<W>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what goes in one commit, in order; with nothing the turn is over. Whose caller has left is let go: nothing of it was begun.
    fn gather(&self, key: &W::Key) -> Vec<Waiting<W>> {
        let mut queues = self.queues();
        let Some(queue) = queues.get_mut(key) else { return Vec::new() };
        let (mut gathered, mut count, mut bytes) = (Vec::new(), 0, 0);
        while let Some(next) = queue.pop() {
            if next.reply.is_closed() {
                continue;
            }
            let (of_next, bytes_of_next) = (W::count(&next.part), W::bytes(&next.part));
            if !gathered.is_empty() && (count + of_next > JOBS_MAX || bytes + bytes_of_next > BYTES_MAX) {
                queue.jobs += of_next;
                queue.waiting.push_front(next);
                break;
            }
            (count, bytes) = (count + of_next, bytes + bytes_of_next);
            gathered.push(next);
        }
        if gathered.is_empty() {
            end_turn(&mut queues, key);
        }
        gathered
    }

    /// Has these done in one commit and answers them.
    async fn carry_out(&self, gathered: Vec<Waiting<W>>) {
        if gathered.is_empty() {
            return;
        }
        let (parts, callers): (Vec<_>, Vec<_>) =
            gathered.into_iter().map(|waiting| (waiting.part, waiting.reply)).unzip();
        for (caller, answer) in callers.into_iter().zip(self.work.carry_out(parts).await) {
            // Nobody may wait for it any more.
            let _ = caller.send(answer);
        }
    }
}

/// One turn less, and with the last one whatever waits is let go.
fn end_turn<W: Work>(queues: &mut HashMap<W::Key, Queue<W>>, key: &W::Key) {
    let Some(queue) = queues.get_mut(key) else { return };
    queue.turns -= 1;
    if queue.turns == 0 {
        queues.remove(key);
    }
}

/// A task that has things done. However it ends, nobody waits for it after that.
struct Turn<W: Work> {
    together: Arc<Together<W>>,
    key: W::Key,
    /// Did it find nothing more? Then the next one may be under way.
    is_over: bool,
}

impl<W: Work> Turn<W> {
    async fn take(mut self) {
        while !self.is_over {
            let gathered = self.together.gather(&self.key);
            self.is_over = gathered.is_empty();
            let callers = gathered.len();
            self.together.carry_out(gathered).await;
            // Those who were answered can come back first, so that the next commit is not for the first of them alone.
            if callers > 1 {
                tokio::task::yield_now().await;
            }
        }
    }
}

impl<W: Work> Drop for Turn<W> {
    fn drop(&mut self) {
        if !self.is_over {
            // It was ended with its runtime, or has panicked: what waits is for another, or for nobody.
            end_turn(&mut self.together.queues(), &self.key);
        }
    }
}
