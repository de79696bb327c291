//! How do many calls share one commit?
//!
//! What stands in the queue is made in its order in one transaction, and answered when that is on disk. Each part of it,
//! a change or some appends, is stored as a whole or not at all, whatever becomes of the others (H37): what fails is undone to
//! its savepoint. The first part needs none, because before it there is nothing to keep; so a call on an idle
//! store costs no more than it would alone.

use super::append;
use super::queue::{Batch, Caller, Gathering, Queue};
use super::read;
use super::replier::{Answer, Replier};
use super::writer::{Changing, Writing};
use ensue_core::{Appended, StoreError};
use std::time::Instant;
use tokio::sync::oneshot;

/// A change that waits for its commit, whatever it answers.
pub(super) trait Change: Send {
    /// Makes it, inside an open transaction. Called once.
    fn make(&mut self, changing: &mut Changing<'_>) -> Result<(), StoreError>;
    /// Tells its caller what came of it: what was made is on disk, or nothing is.
    fn answer(self: Box<Self>, ended: Result<(), StoreError>);
}

/// A change that somebody asked for.
struct Asked<T, F> {
    work: Option<F>,
    made: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

/// A change, and where its answer will be.
pub(super) fn asked<T, F>(work: F) -> (Box<dyn Change>, oneshot::Receiver<Result<T, StoreError>>)
where
    T: Send + 'static,
    F: FnOnce(&mut Changing<'_>) -> Result<T, StoreError> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    (Box::new(Asked { work: Some(work), made: None, reply }), answer)
}

impl<T, F> Change for Asked<T, F>
where
    T: Send,
    F: FnOnce(&mut Changing<'_>) -> Result<T, StoreError> + Send,
{
    fn make(&mut self, changing: &mut Changing<'_>) -> Result<(), StoreError> {
        if let Some(work) = self.work.take() {
            self.made = Some(work(changing)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, ended: Result<(), StoreError>) {
        let answer = match (ended, self.made) {
            (Ok(()), Some(made)) => Ok(made),
            (Ok(()), None) => return,
            (Err(error), _) => Err(error),
        };
        // Nobody may wait for it any more; it is done all the same.
        let _waiting = self.reply.send(answer);
    }
}

/// A part of a commit.
pub(super) enum Part {
    /// Appends that stood one behind the other, and their answers once they are made.
    Appends {
        callers: Vec<Caller>,
        answers: Vec<Answer>,
    },
    Change(Box<dyn Change>),
}

impl Part {
    pub fn appends(callers: Vec<Caller>) -> Self {
        Self::Appends { callers, answers: Vec::new() }
    }

    fn make(&mut self, changing: &mut Changing<'_>) -> Result<(), StoreError> {
        match self {
            Self::Appends { callers, answers } => {
                *answers = append_all(changing, callers)?;
                Ok(())
            }
            Self::Change(change) => change.make(changing),
        }
    }

    fn answer(self, ended: Result<(), StoreError>, replier: &Replier, began: Instant) {
        match self {
            Self::Change(change) => change.answer(ended),
            Self::Appends { callers, answers } => {
                let answers = match ended {
                    Ok(()) => answers,
                    Err(error) => vec![Err(error); callers.len()],
                };
                count(&answers, began);
                replier.reply(callers.into_iter().map(|caller| caller.reply).zip(answers).collect());
            }
        }
    }
}

/// Appends the callers' batches. An error of one plan is that caller's; any other is everybody's.
fn append_all(changing: &mut Changing<'_>, callers: &[Caller]) -> Result<Vec<Answer>, StoreError> {
    let (first, mut tail) = changing.sql(read::ends)?;
    let clock = changing.clock();
    let mut answers = Vec::with_capacity(callers.len());
    for Caller { batch: Batch { entries, .. }, .. } in callers {
        match changing.append_at(clock, first, tail, entries) {
            Ok((appended, moved)) => {
                tail = moved;
                answers.push(Ok(appended));
            }
            Err(error) if append::is_refusal(&error) => answers.push(Err(error)),
            Err(error) => return Err(error),
        }
    }
    Ok(answers)
}

fn count(answers: &[Answer], began: Instant) {
    let is_logged = |answer: &&Appended| answer.seq.is_some() && !answer.repeated;
    let events = answers.iter().flatten().flatten().filter(is_logged).count();
    metrics::histogram!("ensue_append_batch_events", "engine" => "sqlite").record(events as f64);
    metrics::histogram!("ensue_append_seconds", "engine" => "sqlite").record(began.elapsed().as_secs_f64());
}

impl Writing {
    /// One commit for what stands first in the queue.
    pub fn share(&mut self, queue: &mut Queue) {
        let began = Instant::now();
        let mut gathering = queue.gather();
        let (mut next, mut made) = (gathering.next(), Made::default());
        if next.is_none() {
            return;
        }
        let committed = self.change_with(gathering.sync, |changing| {
            while let Some(part) = next.take().or_else(|| gathering.next()) {
                made.add(part, changing)?;
            }
            Ok(())
        });
        // If it could not even begin: nobody else has to wait as long to hear that.
        while let Some(part) = next {
            made.parts.push((part, Ok(())));
            next = gathering.next();
        }
        made.answer(&committed, &mut gathering, self.replier(), began);
    }
}

/// The parts of a commit, and what has become of each.
#[derive(Default)]
struct Made {
    parts: Vec<(Part, Result<(), StoreError>)>,
}

impl Made {
    /// Makes a part beside those that are made already. An error is that of the whole commit.
    fn add(&mut self, mut part: Part, changing: &mut Changing<'_>) -> Result<(), StoreError> {
        let made = if self.parts.is_empty() {
            part.make(changing).map(Ok)
        } else {
            changing.apart(fails_alone, |changing| part.make(changing))
        };
        let (made, of_all) = match made {
            Ok(made) => (made, Ok(())),
            Err(error) => (Ok(()), Err(error)),
        };
        self.parts.push((part, made));
        of_all
    }

    /// Tells everybody what came of it. Appends that failed together are tried again, each alone: one may be the cause.
    fn answer(
        self,
        committed: &Result<(), StoreError>,
        gathering: &mut Gathering<'_>,
        replier: &Replier,
        began: Instant,
    ) {
        let (is_shared, mut again) = (self.parts.len() > 1, Vec::new());
        for (part, made) in self.parts {
            let with_others = is_shared && committed.is_err();
            match (part, committed.clone().and(made)) {
                (Part::Appends { callers, .. }, Err(StoreError::Engine(_))) if with_others || callers.len() > 1 => {
                    again.extend(callers);
                }
                (part, ended) => part.answer(ended, replier, began),
            }
        }
        gathering.put_back_alone(again);
    }
}

/// Need the others not suffer from it? After a failed write nobody knows what is on the disk.
fn fails_alone(error: &StoreError) -> bool {
    !matches!(error, StoreError::Stopped(_))
}
