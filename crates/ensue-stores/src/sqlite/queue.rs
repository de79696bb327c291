//! What waits for the writer, and how much of it goes into one commit?

use super::change::{Change, Part};
use super::replier::Answer;
use super::writer::{Sync, Writing};
use crate::room::Taken;
use ensue_core::Entry;
use std::collections::VecDeque;
use std::sync::mpsc;
use tokio::sync::oneshot;

/// How much one commit takes at most, in events that are appended, unless a single caller has more: whoever stands first
/// waits for all of it.
const GATHER_WEIGHT_MAX: usize = 1_000;
const GATHER_BYTES_MAX: usize = 4 << 20;
/// What the smallest change weighs: a few statements, and a savepoint.
const CHANGE_WEIGHT_MIN: usize = 10;

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
    /// A commit that it shared with others has failed: it gets one for itself.
    pub alone: bool,
}

pub(super) enum Command {
    Append(Caller),
    /// A change that may share its commit with others, and about how many rows it writes.
    Change {
        change: Box<dyn Change>,
        rows: usize,
        sync: Sync,
    },
    /// Anything else that needs the writer's connection, alone.
    Run(Work),
    /// Stands aside while somebody else has the write lock.
    Turn {
        granted: oneshot::Sender<()>,
        over: mpsc::Receiver<()>,
    },
    Close(oneshot::Sender<()>),
}

impl Command {
    /// When it is to be on disk, if it may share its commit.
    fn shared_sync(&self) -> Option<Sync> {
        match self {
            Self::Append(_) => Some(Sync::Now),
            Self::Change { sync, .. } => Some(*sync),
            Self::Run(_) | Self::Turn { .. } | Self::Close(_) => None,
        }
    }
}

/// The commands, in the order in which they were sent.
pub(super) struct Queue {
    commands: mpsc::Receiver<Command>,
    waiting: VecDeque<Command>,
}

impl Queue {
    pub fn new(commands: mpsc::Receiver<Command>) -> Self {
        Self { commands, waiting: VecDeque::new() }
    }

    /// Waits for the next command; none when nobody can send one any more.
    pub fn next(&mut self) -> Option<Command> {
        self.waiting.pop_front().or_else(|| self.commands.recv().ok())
    }

    /// Puts a command back to where it stood.
    pub fn put_back(&mut self, command: Command) {
        self.waiting.push_front(command);
    }

    /// Begins a commit with what stands first.
    pub fn gather(&mut self) -> Gathering<'_> {
        self.waiting.extend(self.commands.try_iter());
        let mut shared = self.waiting.iter().map_while(Command::shared_sync);
        let sync = if shared.any(|sync| sync == Sync::Now) { Sync::Now } else { Sync::Later };
        Gathering { queue: self, sync, weight: 0, bytes: 0, is_closed: false }
    }
}

/// What goes into one commit: one part after the other, also those that come in while it is made.
pub(super) struct Gathering<'q> {
    queue: &'q mut Queue,
    /// When it is to be on disk. Said before it begins: what is to be there sooner waits for the next one.
    pub sync: Sync,
    weight: usize,
    bytes: usize,
    /// Nothing more goes in.
    is_closed: bool,
}

impl Gathering<'_> {
    /// The next part: a change, or all appends that stand one behind the other. Whose caller has left is let go of an append:
    /// nothing of it was begun, and nobody was promised anything.
    pub fn next(&mut self) -> Option<Part> {
        let mut callers = Vec::new();
        loop {
            self.queue.waiting.extend(self.queue.commands.try_iter());
            if !self.queue.waiting.front().is_some_and(|front| self.fits(front, !callers.is_empty())) {
                break;
            }
            match self.queue.waiting.pop_front() {
                Some(Command::Append(caller)) if caller.reply.is_closed() => {}
                Some(Command::Append(caller)) => {
                    self.weight += caller.batch.entries.len();
                    self.bytes += caller.batch.bytes;
                    self.is_closed |= caller.alone;
                    callers.push(caller);
                }
                Some(Command::Change { change, rows, .. }) => {
                    self.weight = self.weight.saturating_add(rows.max(CHANGE_WEIGHT_MIN));
                    return Some(Part::Change(change));
                }
                Some(Command::Run(_) | Command::Turn { .. } | Command::Close(_)) | None => break,
            }
        }
        (!callers.is_empty()).then(|| Part::appends(callers))
    }

    /// May it go into the commit, and, after appends, into their part?
    fn fits(&self, command: &Command, after_appends: bool) -> bool {
        let is_first = self.weight == 0;
        let (weight, bytes) = match command {
            Command::Append(caller) if caller.alone && !is_first => return false,
            Command::Append(caller) => (caller.batch.entries.len(), caller.batch.bytes),
            Command::Change { .. } if after_appends => return false,
            Command::Change { rows, .. } => (*rows.max(&CHANGE_WEIGHT_MIN), 0),
            Command::Run(_) | Command::Turn { .. } | Command::Close(_) => return false,
        };
        let in_time = self.sync == Sync::Now || command.shared_sync() == Some(Sync::Later);
        let has_room =
            self.weight.saturating_add(weight) <= GATHER_WEIGHT_MAX && self.bytes + bytes <= GATHER_BYTES_MAX;
        in_time && !self.is_closed && (is_first || has_room)
    }

    /// Appends that failed together: each is tried in a commit of its own, before anything else.
    pub fn put_back_alone(&mut self, callers: Vec<Caller>) {
        for caller in callers.into_iter().rev() {
            self.queue.put_back(Command::Append(Caller { alone: true, ..caller }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::change::asked;
    use super::*;

    fn change(rows: usize, sync: Sync) -> Command {
        let (change, _answer) = asked(|_| Ok(()));
        Command::Change { change, rows, sync }
    }

    fn queue(commands: Vec<Command>) -> Queue {
        let (_sender, receiver) = mpsc::channel();
        Queue { commands: receiver, waiting: commands.into() }
    }

    fn parts(queue: &mut Queue) -> (Sync, usize) {
        let mut gathering = queue.gather();
        let sync = gathering.sync;
        (sync, std::iter::from_fn(|| gathering.next()).count())
    }

    #[test]
    fn a_commit_takes_a_bounded_part_of_the_queue_and_the_first_in_any_case() {
        let mut waiting = queue(vec![change(5_000, Sync::Now), change(990, Sync::Now), change(1, Sync::Now)]);
        waiting.waiting.extend((0..150).map(|_| change(1, Sync::Now)));
        let taken: Vec<_> = std::iter::from_fn(|| Some(parts(&mut waiting).1).filter(|count| *count > 0)).collect();
        assert_eq!(taken, [1, 2, 100, 50]);
    }

    #[test]
    fn a_commit_waits_for_the_disk_if_anything_in_it_does() {
        let mut waiting = queue(vec![change(1, Sync::Later), change(1, Sync::Later), change(1, Sync::Now)]);
        assert_eq!(parts(&mut waiting), (Sync::Now, 3));
        let mut waiting = queue(vec![change(1, Sync::Later), Command::Run(Box::new(|_| ())), change(1, Sync::Now)]);
        assert_eq!(parts(&mut waiting), (Sync::Later, 1));
    }

    #[test]
    fn what_is_to_be_on_disk_does_not_enter_a_commit_that_does_not_wait_for_it() {
        let mut waiting = queue(vec![change(1, Sync::Later)]);
        let mut gathering = waiting.gather();
        assert!(gathering.next().is_some());
        gathering.queue.waiting.push_back(change(1, Sync::Now));
        assert!(gathering.next().is_none());
        assert_eq!(parts(&mut waiting), (Sync::Now, 1));
    }
}
