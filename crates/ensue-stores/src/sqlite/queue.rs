//! What waits for the writer, and how much of it goes into one commit?

use super::replier::Answer;
use super::writer::Writing;
use crate::room::Taken;
use ensue_core::Entry;
use std::collections::VecDeque;
use std::sync::mpsc;
use tokio::sync::oneshot;

/// How much one commit takes at most, unless a single caller has more.
const GATHER_EVENTS_MAX: usize = 1_000;
const GATHER_BYTES_MAX: usize = 4 << 20;

pub(super) type Work = Box<dyn FnOnce(&mut Writing) + Send>;

/// What one caller appends, and the room that it takes until it is answered.
pub(super) struct Batch {
    pub entries: Vec<Entry>,
    bytes: usize,
    _taken: Taken,
}

impl Batch {
    pub fn new(entries: Vec<Entry>, taken: Taken) -> Self {
        let bytes = entries.iter().map(Entry::bytes).sum();
        Self { entries, bytes, _taken: taken }
    }
}

/// One caller's append, waiting for its commit.
pub(super) struct Caller {
    pub batch: Batch,
    pub reply: oneshot::Sender<Answer>,
}

pub(super) enum Command {
    Append(Caller),
    /// Anything else that needs the writer's connection, alone.
    Run(Work),
    /// Stands aside while somebody else has the write lock.
    Turn {
        granted: oneshot::Sender<()>,
        over: mpsc::Receiver<()>,
    },
    Close(oneshot::Sender<()>),
}

/// Takes the appends that stand next in the queue, up to the bound. Whose caller has left is let go: nothing of it was
/// begun, and nobody was promised anything.
pub(super) fn gather(first: Caller, waiting: &mut VecDeque<Command>) -> Vec<Caller> {
    let (mut events, mut bytes) = (0, 0);
    let mut callers = Vec::new();
    let mut next = Some(first);
    while let Some(caller) = next.take().or_else(|| next_append(waiting)) {
        if caller.reply.is_closed() {
            continue;
        }
        events += caller.batch.entries.len();
        bytes += caller.batch.bytes;
        if !callers.is_empty() && (events > GATHER_EVENTS_MAX || bytes > GATHER_BYTES_MAX) {
            waiting.push_front(Command::Append(caller));
            break;
        }
        callers.push(caller);
    }
    callers
}

fn next_append(waiting: &mut VecDeque<Command>) -> Option<Caller> {
    match waiting.pop_front()? {
        Command::Append(caller) => Some(caller),
        other @ (Command::Run(_) | Command::Turn { .. } | Command::Close(_)) => {
            waiting.push_front(other);
            None
        }
    }
}
