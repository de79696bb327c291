//! How do the callers of one commit get their answers?
//!
//! Waking a task of the runtime from outside of it costs a lock and often a system call. So the answers of a gathered
//! commit go to one task inside the runtime, which wakes the others from there. (64 connections of HTTP: a fifth more
//! publishes a second.)
//!
//! What is committed must be answered, even if that runtime ends or is never driven again while callers of another
//! one wait: whatever the task has not handed out, its end hands out.

use ensue_core::{Appended, StoreError};
use std::sync::{Arc, Mutex};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Notify, oneshot};

pub(super) type Answer = Result<Vec<Appended>, StoreError>;
pub(super) type Replies = Vec<(oneshot::Sender<Answer>, Answer)>;

pub(super) struct Replier {
    /// None where no runtime is sure to be driven all the time.
    inside: Option<Arc<Inside>>,
}

/// What the writer and the task share.
struct Inside {
    /// Answers to be handed out; none when the task is gone.
    waiting: Mutex<Option<Replies>>,
    bell: Notify,
}

impl Replier {
    /// To be called inside the runtime. A runtime of one thread stands still whenever nobody blocks on it; only one with
    /// threads of its own is trusted with other people's answers.
    pub fn start() -> Self {
        let runtime = Handle::try_current().ok();
        let driven = runtime.filter(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        let inside = driven.map(|runtime| {
            let inside = Arc::new(Inside { waiting: Mutex::new(Some(Vec::new())), bell: Notify::new() });
            runtime.spawn(hand_out(Task(inside.clone())));
            inside
        });
        Self { inside }
    }

    pub fn reply(&self, replies: Replies) {
        match &self.inside {
            Some(inside) if replies.len() > 1 => inside.leave(replies),
            Some(_) | None => send_all(replies),
        }
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        if let Some(inside) = &self.inside {
            inside.end();
        }
    }
}

impl Inside {
    fn leave(&self, mut replies: Replies) {
        if let Some(waiting) = self.waiting.lock().expect("nobody panics while holding it").as_mut() {
            waiting.append(&mut replies);
        }
        self.bell.notify_one();
        // Nothing is left of them unless the task is gone.
        send_all(replies);
    }

    /// What is to be handed out now; none when there will be no more.
    fn take(&self) -> Option<Replies> {
        self.waiting.lock().expect("nobody panics while holding it").as_mut().map(std::mem::take)
    }

    /// From now on nothing is left here.
    fn end(&self) {
        let left = self.waiting.lock().expect("nobody panics while holding it").take();
        self.bell.notify_one();
        send_all(left.unwrap_or_default());
    }
}

/// The task's hold on what is to be handed out, given up with the task.
struct Task(Arc<Inside>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.end();
    }
}

async fn hand_out(task: Task) {
    while let Some(replies) = task.0.take() {
        send_all(replies);
        task.0.bell.notified().await;
    }
}

fn send_all(replies: Replies) {
    for (reply, answer) in replies {
        // A caller that no longer waits has its events stored all the same.
        let _waiting = reply.send(answer);
    }
}
