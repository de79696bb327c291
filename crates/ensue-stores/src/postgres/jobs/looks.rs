//! From where on does a claim look for jobs?
//!
//! While somebody holds a snapshot anywhere in the database, nothing can be removed from the index of what is available: a
//! look from its beginning passes over every job that was claimed since, and gets slower with each. So a process remembers,
//! for each handler and priority, up to which turn everything was gone, and looks behind that.
//!
//! What it remembers can be wrong: a job may be given back, retried or freed behind its back, and one that was sent may
//! commit late. So nothing depends on it. While looks at everything are fast, all are. When they are slow, they are done now
//! and then, so that they take a fiftieth of the time; between them what this process itself made available is looked at by
//! its place, and what is remembered is what two looks, a moment apart, have found gone.

use super::row::rank_of;
use ensue_core::jobs::Job;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A look is slow that takes longer than this, and so much more for each job and handler.
const SLOW_MICROS: i64 = 1_000;
const SLOW_MICROS_EACH: i64 = 20;
/// How many times as long as it took until the next slow look at everything.
const FULL_LOOK_PAUSE: u32 = 50;
/// The time between two looks that must agree: what was sent before the first one has committed by the second.
const AGREE_AFTER: Duration = Duration::from_millis(250);
/// How many priorities are remembered of a handler, and how many handlers.
const MARKS_MAX: usize = 16;
const HANDLERS_MAX: usize = 1_000;
/// How many jobs that became available are remembered of a handler.
const BACK_MAX: usize = 1_000;

/// A place in the order in which jobs are taken: rank and turn.
type Position = (i64, i64);

const FIRST: Position = (i64::MIN, i64::MIN);
const LAST: Position = (i64::MAX, i64::MAX);

/// What was found of one handler and priority.
#[derive(Debug, Default)]
struct Mark {
    /// Up to this turn nothing is available.
    gone: i64,
    /// Looks that found everything gone up to a turn, and that another must agree with.
    found: VecDeque<(Instant, i64)>,
}

impl Mark {
    /// A look that began then found everything gone up to this turn.
    fn found_gone(&mut self, began: Instant, up_to: i64) {
        let agreed =
            self.found.iter().filter(|(before, _)| *before + AGREE_AFTER <= began).map(|(_, turn)| *turn).max();
        self.gone = agreed.map_or(self.gone, |turn| self.gone.max(turn.min(up_to)));
        let gone = self.gone;
        self.found.retain(|(_, turn)| *turn > gone);
        let last = self.found.back().map(|(at, _)| *at);
        if up_to > gone && last.is_none_or(|at| at + AGREE_AFTER / 4 <= began) {
            self.found.push_back((began, up_to));
        }
    }
}

/// What was found of one handler.
#[derive(Debug, Default)]
struct Handler {
    marks: BTreeMap<i64, Mark>,
    /// What became available behind the marks, since when.
    back: BTreeMap<Position, Instant>,
    /// What became available before them: a look that is under way may move a mark past it.
    recent: VecDeque<(Instant, Position)>,
    /// Looks that began before this may have missed something.
    blind_until: Option<Instant>,
}

impl Handler {
    fn appeared(&mut self, position: Position, now: Instant) {
        let Some(mark) = self.marks.get(&position.0) else { return };
        if position.1 <= mark.gone {
            self.back.insert(position, now);
        } else {
            self.recent.push_back((now, position));
        }
        if self.recent.len() > BACK_MAX {
            self.recent.clear();
            self.blind_until = Some(now);
        }
    }

    /// Where there may be something, in order.
    fn stretches(&self) -> Vec<(Position, Position)> {
        let mut stretches = Vec::with_capacity(self.marks.len() + self.back.len() + 1);
        let mut after = FIRST;
        for (rank, mark) in self.marks.iter().filter(|(_, mark)| mark.gone > 0) {
            stretches.push((after, (*rank, i64::MIN)));
            let back = self.back.range((*rank, i64::MIN)..=(*rank, mark.gone));
            stretches.extend(back.map(|((rank, turn), _)| ((*rank, turn - 1), (*rank, turn + 1))));
            after = (*rank, mark.gone);
        }
        stretches.push((after, LAST));
        stretches
    }
}

#[derive(Debug)]
struct State {
    handlers: HashMap<String, Handler>,
    /// When the last look at everything was slow: how long it took, and when the next is due.
    slow: Option<(Duration, Instant)>,
    /// Somebody did what this process does not know the places of.
    must_be_full: bool,
}

/// What a process remembers of its looks.
#[derive(Debug)]
pub(in super::super) struct Looks {
    state: Mutex<State>,
}

/// Where to look: parallel arrays as `jobs_claim` takes them; none for everything.
#[derive(Debug, Default)]
pub(super) struct Stretches {
    pub of: Option<Vec<i32>>,
    pub after_rank: Option<Vec<i64>>,
    pub after_turn: Option<Vec<i64>>,
    pub before_rank: Option<Vec<i64>>,
    pub before_turn: Option<Vec<i64>>,
}

/// A look that is under way.
#[derive(Debug)]
pub(super) struct Look<'a> {
    looks: &'a Looks,
    handlers: &'a [&'a str],
    began: Instant,
    is_full: bool,
    /// It was asked for: what it does not reach is not known any more.
    was_demanded: bool,
    stretches: Stretches,
}

impl Default for Looks {
    fn default() -> Self {
        Self { state: Mutex::new(State { handlers: HashMap::new(), slow: None, must_be_full: false }) }
    }
}

impl Looks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a look for jobs of these handlers.
    pub(super) fn begin<'a>(&'a self, handlers: &'a [&'a str], now: Instant) -> Look<'a> {
        let mut state = self.state();
        let was_demanded = std::mem::take(&mut state.must_be_full);
        let is_full = was_demanded || state.slow.is_none_or(|(_, next)| next <= now);
        if is_full {
            // While this one is under way the others are not; nor if it fails.
            state.slow = state.slow.map(|(took, _)| (took, now + took * 2 + AGREE_AFTER));
        }
        let stretches = if is_full { Stretches::default() } else { stretches(&state, handlers) };
        Look { looks: self, handlers, began: now, is_full, was_demanded, stretches }
    }

    /// Jobs became available: their handlers, ranks and turns.
    pub fn appeared(&self, handlers: &[&str], ranks: &[i64], turns: &[i64]) {
        let (mut state, now) = (self.state(), Instant::now());
        for ((handler, rank), turn) in handlers.iter().zip(ranks).zip(turns) {
            if let Some(known) = state.handlers.get_mut(*handler) {
                known.appeared((*rank, *turn), now);
                if known.back.len() > BACK_MAX {
                    known.back.clear();
                    state.must_be_full = true;
                }
            }
        }
    }

    /// Jobs became available, and nobody knows which.
    pub fn demand_full(&self) {
        self.state().must_be_full = true;
    }
}

fn stretches(state: &State, handlers: &[&str]) -> Stretches {
    let mut all = Stretches::default();
    for (handler, number) in handlers.iter().zip(1..) {
        let stretches = match state.handlers.get(*handler) {
            Some(known) => known.stretches(),
            None => vec![(FIRST, LAST)],
        };
        for (after, before) in stretches {
            all.of.get_or_insert_default().push(number);
            all.after_rank.get_or_insert_default().push(after.0);
            all.after_turn.get_or_insert_default().push(after.1);
            all.before_rank.get_or_insert_default().push(before.0);
            all.before_turn.get_or_insert_default().push(before.1);
        }
    }
    all
}

impl Look<'_> {
    pub fn stretches(&self) -> &Stretches {
        &self.stretches
    }

    /// Remembers what was found: `seen` is the newest number that was given out before the look, `held` are the handlers that
    /// a rule holds, from 1, which were not looked at, `caps` how many of each were wanted, and `jobs` what was taken.
    pub fn end(self, seen: i64, micros: i64, held: &[i32], caps: &[i64], limit: i64, jobs: &[Job]) {
        let mut state = self.looks.state();
        if self.is_full {
            let fast = SLOW_MICROS + SLOW_MICROS_EACH * (jobs.len() + self.handlers.len()) as i64;
            let took = Duration::from_micros(micros.max(0) as u64);
            state.slow = (micros > fast).then(|| (took, self.began + took * FULL_LOOK_PAUSE));
        }
        if state.handlers.len() > HANDLERS_MAX {
            state.handlers.clear();
        }
        let position = |job: &Job| (rank_of(job.priority), job.turn.unwrap_or(0) as i64);
        let last_of_all = jobs.last().filter(|_| jobs.len() as i64 >= limit).map(position);
        for (index, handler) in self.handlers.iter().enumerate() {
            if held.contains(&(index as i32 + 1)) {
                continue;
            }
            let taken: Vec<Position> =
                jobs.iter().filter(|job| job.handler.as_str() == *handler).map(position).collect();
            let last = taken.last().copied().filter(|_| taken.len() as i64 >= caps[index]);
            // Before this everything is taken; if there is no such place, everything is.
            let stop = last.into_iter().chain(last_of_all).min();
            let known = match state.handlers.get_mut(*handler) {
                Some(known) => known,
                None if taken.is_empty() => continue,
                None => state.handlers.entry((*handler).to_owned()).or_default(),
            };
            known.found(&self, &taken, stop, seen);
        }
    }
}

impl Handler {
    fn found(&mut self, look: &Look<'_>, taken: &[Position], stop: Option<Position>, seen: i64) {
        if self.blind_until.is_some_and(|until| look.began <= until) {
            return;
        }
        let up_to = |rank: i64| match stop {
            Some((at, turn)) if at == rank => turn,
            Some((at, _)) if at < rank => 0,
            Some(_) | None => seen,
        };
        let is_behind = |(rank, turn): &Position| {
            self.marks.get(rank).is_some_and(|mark| *turn <= mark.gone) && !self.back.contains_key(&(*rank, *turn))
        };
        // Somebody else made something available that we did not know of: there may be more of it.
        let surprised = look.is_full && (look.was_demanded || taken.iter().any(is_behind));
        for (rank, _) in taken {
            if !self.marks.contains_key(rank) && self.marks.len() >= MARKS_MAX {
                let least = self.marks.iter().min_by_key(|(_, mark)| mark.gone).map(|(rank, _)| *rank);
                least.map(|rank| self.marks.remove(&rank));
            }
            self.marks.entry(*rank).or_default();
        }
        for (rank, mark) in &mut self.marks {
            if surprised {
                mark.gone = mark.gone.min(up_to(*rank));
            }
            mark.found_gone(look.began, up_to(*rank));
        }
        self.back.retain(|position, since| *since >= look.began || stop.is_some_and(|stop| *position > stop));
        let recent = std::mem::take(&mut self.recent);
        for (since, position) in recent {
            let is_behind = self.marks.get(&position.0).is_some_and(|mark| position.1 <= mark.gone);
            match (since >= look.began, is_behind) {
                (true, true) => drop(self.back.insert(position, since)),
                // Another look may have begun before it.
                (true, false) => self.recent.push_back((since, position)),
                (false, _) if since + Duration::from_secs(60) > look.began => self.recent.push_back((since, position)),
                (false, _) => {}
            }
        }
    }
}
