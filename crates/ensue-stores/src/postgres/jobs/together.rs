//! How do many callers have something done in one commit?
//!
//! While one is under way what others want gathers, and the next takes it all: the more callers, the larger the commits, without
//! anybody waiting for a timer. For each to have a commit of its own, a thousand a second need all connections, and a commit alone costs the server as much as
//! twenty jobs in it. Where what gathers is worth a connection, another commit goes beside it: the server works at one while
//! the other is made here. What may wait long for a lock goes alone, or gives way soon, and nobody stands behind a commit that is slow: nobody waits for what somebody else waits for.

use ensue_core::StoreError;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How much is gathered into one commit, unless a single caller has more.
const BYTES_MAX: usize = 4 << 20;
/// How many commits of one queue are under way at once.
const TURNS_MAX: usize = 2;
/// A commit that takes longer than this is not waited for: others go beside it, up to so many in all.
const SLOW_AFTER: Duration = Duration::from_millis(20);
const TURNS_WITH_SLOW_MAX: usize = 4;

/// What is done for many callers at once.
pub(in super::super) trait Work: Send + Sync + 'static {
    /// What one caller wants done.
    type Part: Send + Sync;
    /// What one caller is answered.
    type Answer: Send;
    /// What must be the same for two parts to go together.
    type Key: Clone + Eq + Hash + Send;
    /// For who is told that it may have been carried out.
    const DOING: &'static str;
    /// How many jobs go in one commit, unless a single caller has more.
    const COUNT_MAX: usize;
    /// Of how many jobs those are who wait when another commit goes beside the first.
    const BESIDE_FROM: usize;

    fn key(part: &Self::Part) -> Self::Key;
    /// How many jobs these are.
    fn count(part: &Self::Part) -> usize;
    /// How much they take on the way.
    fn bytes(part: &Self::Part) -> usize;
    /// Does it for all of these, in one commit, and answers each, in their order.
    fn carry_out(&self, parts: &[Self::Part]) -> impl Future<Output = Result<Vec<Self::Answer>, StoreError>> + Send;
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
    /// How many tasks are at it, and at how many of them slow commits.
    turns: usize,
    slow: usize,
}

impl<W: Work> Default for Queue<W> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), jobs: 0, turns: 0, slow: 0 }
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
        let quick = self.turns - self.slow;
        let is_worth_it = quick == 0 || (quick < TURNS_MAX && self.jobs >= W::BESIDE_FROM);
        let begins = !self.waiting.is_empty() && self.turns < TURNS_WITH_SLOW_MAX && is_worth_it;
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
            self.begin_turn(key);
        }
        answer.await.unwrap_or_else(|_| Err(StoreError::InDoubt(format!("a task was ended while {}", W::DOING))))
    }

    /// In a task of its own: whoever comes first may leave, and the others' jobs are on their way with it.
    fn begin_turn(self: &Arc<Self>, key: W::Key) {
        tokio::spawn(Turn { together: self.clone(), key, is_over: false, is_slow: false }.take());
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
            if !gathered.is_empty() && (count + of_next > W::COUNT_MAX || bytes + bytes_of_next > BYTES_MAX) {
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

    /// Has these done in one commit and answers them. If the server refuses that, each is tried alone, so that one caller's fault does not
    /// become the others' (H37).
    async fn carry_out(&self, gathered: Vec<Waiting<W>>) {
        let (parts, callers): (Vec<_>, Vec<_>) =
            gathered.into_iter().map(|waiting| (waiting.part, waiting.reply)).unzip();
        let mut answers = self.work.carry_out(&parts).await.map(Vec::into_iter);
        let is_shared = parts.len() > 1;
        for (part, caller) in parts.iter().zip(callers) {
            let answer = match &mut answers {
                Ok(answers) => answers.next().ok_or_else(|| unanswered::<W>()),
                Err(StoreError::Invalid(_) | StoreError::Engine(_)) if is_shared => self.carry_out_one(part).await,
                Err(error) => Err(error.clone()),
            };
            // Nobody may wait for it any more.
            let _ = caller.send(answer);
        }
    }

    async fn carry_out_one(&self, part: &W::Part) -> Result<W::Answer, StoreError> {
        self.work.carry_out(std::slice::from_ref(part)).await?.pop().ok_or_else(|| unanswered::<W>())
    }
}

fn unanswered<W: Work>() -> StoreError {
    StoreError::InDoubt(format!("nothing was answered while {}", W::DOING))
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
    /// Does its commit count as slow?
    is_slow: bool,
}

impl<W: Work> Turn<W> {
    async fn take(mut self) {
        loop {
            let gathered = self.together.gather(&self.key);
            self.is_over = gathered.is_empty();
            if self.is_over {
                return;
            }
            let callers = gathered.len();
            self.carry_out(gathered).await;
            // Those who were answered can come back first, so that the next commit is not for the first of them alone.
            if callers > 1 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// While this is slow others go beside it.
    async fn carry_out(&mut self, gathered: Vec<Waiting<W>>) {
        let together = self.together.clone();
        let mut done = pin!(together.carry_out(gathered));
        if tokio::time::timeout(SLOW_AFTER, &mut done).await.is_err() {
            self.count_as_slow(true);
            done.await;
            self.count_as_slow(false);
        }
    }

    fn count_as_slow(&mut self, is_slow: bool) {
        self.is_slow = is_slow;
        let begins_turn = self.together.queues().get_mut(&self.key).is_some_and(|queue| {
            match is_slow {
                true => queue.slow += 1,
                false => queue.slow -= 1,
            }
            queue.begins_turn()
        });
        // Without the lock: a runtime that ends drops what it is given, and who is dropped takes it.
        if begins_turn {
            self.together.begin_turn(self.key.clone());
        }
    }
}

impl<W: Work> Drop for Turn<W> {
    fn drop(&mut self) {
        if !self.is_over {
            // It was ended with its runtime, or has panicked: what waits is for another, or for nobody.
            let mut queues = self.together.queues();
            if let Some(queue) = queues.get_mut(&self.key).filter(|_| self.is_slow) {
                queue.slow -= 1;
            }
            end_turn(&mut queues, &self.key);
        }
    }
}
