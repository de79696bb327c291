//! From where on does a claim look for jobs?
//!
//! While somebody holds a snapshot anywhere in the database, nothing can be removed from the index of what is available: a
//! look from its beginning passes over every job that was claimed since, and gets slower with each. Without one it is the same until the
//! next vacuum, only less slow. So a process remembers, for each handler and priority, up to which turn everything was gone, and looks behind that.
//!
//! What it remembers can be wrong: a job may be given back, retried or freed behind its back, and one that was sent may
//! commit late. So nothing depends on it. While looks at everything are fast, all are. When they are slow, they are done now
//! and then, so that they take a fiftieth of the time; between them what this process itself made available is looked at by
//! its place, and what is remembered is what two looks have found gone, with every transaction ended between them that may have drawn
//! a number before the first. Who keeps one open for long is not waited for: everything is looked at when it has ended.

use super::row::rank_of;
use ensue_core::Timestamp;
use ensue_core::jobs::Job;
use jiff::SignedDuration;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A look is slow that takes longer than this, and so much more for each job and handler. Where it counted as slow only with four times as much, what is gone and not vacuumed
/// yet was a sixth of the server's time while a queue of 400,000 was worked off.
const SLOW_MICROS: i64 = 500;
const SLOW_MICROS_EACH: i64 = 5;
/// A look at leases is slow that takes longer than this.
const SLOW_LEASES_MICROS: i64 = 5_000;
/// How often a pulse looks at leases, and how often at all that it may look at.
const PULSE_LEASES_EVERY: Duration = Duration::from_millis(500);
const PULSE_LEASES_WHOLE_EVERY: Duration = Duration::from_secs(10);
/// How late a claim may commit for a pulse to find its lease before it looks at all of them.
const COMMITS_WITHIN: SignedDuration = SignedDuration::from_secs(2);
/// How many times as long as it took until the next slow look at everything.
const FULL_LOOK_PAUSE: u32 = 50;
/// How long is waited for the end of all transactions that may have drawn a number.
const AGREE_AFTER: Duration = Duration::from_secs(2);
/// The time between looks that are remembered until another agrees.
const FOUND_EVERY: Duration = Duration::from_millis(50);
/// For how long a number is news to other processes: whoever drew it may keep its transaction open for hours.
const FRESH: Duration = Duration::from_secs(1);
/// How many priorities are remembered of a handler, and how many handlers.
const MARKS_MAX: usize = 16;
const HANDLERS_MAX: usize = 1_000;
/// How many jobs that became available are remembered of a handler.
const BACK_MAX: usize = 1_000;
/// How many of them are looked at by their places: each is a search of its own. When more come back at once, as what was claimed ahead does when a
/// rule is set, a look at everything is cheaper.
const PLACES_MAX: usize = 64;

/// A place in the order in which jobs are taken: rank and turn.
type Position = (i64, i64);

const FIRST: Position = (i64::MIN, i64::MIN);

/// Where there may be something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stretch {
    /// Behind this place, up to the end of a rank. Never inside one: an index scan would go on to the end of it.
    Behind(Position, i64),
    /// At this place.
    At(Position),
}

/// What was found of one handler and priority.
#[derive(Debug, Default)]
struct Mark {
    /// Up to this turn nothing is available.
    gone: i64,
    /// Looks that found everything gone up to a turn, and that another must agree with.
    found: VecDeque<Found>,
}

/// What a look has found gone.
#[derive(Debug, Clone, Copy)]
struct Found {
    began: Instant,
    up_to: i64,
    /// Transactions below this one may have drawn a number up to there.
    drawn_below: i64,
}

/// Which transactions there were: all below `ended_below` had ended before the look, and `next` had not begun after the newest number was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transactions {
    pub ended_below: i64,
    pub next: i64,
}

impl Mark {
    /// A look found everything gone up to this turn. Answers which transactions may still bring something there, if they were not waited
    /// for.
    fn found_gone(&mut self, began: Instant, seen: Option<Transactions>, up_to: i64) -> Option<i64> {
        let have_ended = |found: &&Found| seen.is_some_and(|seen| found.drawn_below <= seen.ended_below);
        let is_old = |found: &&Found| found.began + AGREE_AFTER <= began;
        let certain = self.found.iter().filter(have_ended).map(|found| found.up_to).max();
        let agreed =
            self.found.iter().filter(|found| have_ended(found) || is_old(found)).max_by_key(|found| found.up_to);
        let (turn, drawn_below) = agreed.map_or((self.gone, 0), |found| (found.up_to.min(up_to), found.drawn_below));
        let is_guessed = turn > self.gone.max(certain.unwrap_or(i64::MIN));
        self.gone = self.gone.max(turn);
        let gone = self.gone;
        self.found.retain(|found| found.up_to > gone);
        let is_due = up_to > gone && self.found.back().is_none_or(|last| last.began + FOUND_EVERY <= began);
        if let Some(seen) = seen.filter(|_| is_due) {
            self.found.push_back(Found { began, up_to, drawn_below: seen.next });
        }
        is_guessed.then_some(drawn_below)
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
    fn stretches(&self) -> Vec<Stretch> {
        let mut stretches = Vec::with_capacity(self.marks.len() + self.back.len() + 1);
        let mut after = FIRST;
        for (rank, mark) in self.marks.iter().filter(|(_, mark)| mark.gone > 0) {
            // Before the first rank of all there is nothing.
            stretches.extend(rank.checked_sub(1).map(|before| Stretch::Behind(after, before)));
            let back = self.back.range((*rank, i64::MIN)..=(*rank, mark.gone));
            stretches.extend(back.map(|(position, _)| Stretch::At(*position)));
            after = (*rank, mark.gone);
        }
        stretches.push(Stretch::Behind(after, i64::MAX));
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
    /// Once all transactions below this one have ended, everything is looked at: they were not waited for.
    not_waited_for: Option<i64>,
    leases: Leases,
    news: News,
}

/// What was heard of jobs that became available anywhere: a number is drawn for each of them, and seen before it commits.
#[derive(Debug, Default)]
struct News {
    /// The newest number.
    given: i64,
    /// Transactions below this one may have drawn it.
    until: Option<i64>,
    /// When it was first heard of.
    since: Option<Instant>,
    /// How often there was something to look for.
    count: u64,
    /// Has a claim not looked?
    is_put_off: bool,
}

/// What a pulse tells of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Heard {
    /// Grows when somebody is to look for jobs.
    pub count: u64,
    /// May something have become available just now, of which others have to hear?
    pub is_fresh: bool,
}

/// What was found of leases. One that is given ends later than the look before it.
#[derive(Debug, Default)]
struct Leases {
    /// When the last look at all of them was slow: when the next is due.
    next_full: Option<Instant>,
    /// No lease that ends by then was found.
    none_until: Option<Timestamp>,
    pulse: PulseLeases,
}

/// What pulses have found of leases. Under load there are a hundred pulses a second, and under a held snapshot the index has an entry for
/// each job that was claimed since: only now and then does one look at them, and behind where none had passed.
#[derive(Debug, Default)]
struct PulseLeases {
    /// When one looked last, and when one looked at all that a pulse looks at.
    looked_at: Option<Instant>,
    whole_at: Option<Instant>,
    /// No lease that ends by then was found.
    none_until: Option<Timestamp>,
    /// When the next one passes, or something else is due.
    due: Option<Timestamp>,
}

/// What a process remembers of its looks.
#[derive(Debug)]
pub(in super::super) struct Looks {
    state: Mutex<State>,
}

/// Where to look: parallel arrays as `jobs_fetch` takes them; none for everything.
#[derive(Debug, Default)]
pub(super) struct Stretches {
    pub of: Option<Vec<i32>>,
    pub after_rank: Option<Vec<i64>>,
    pub after_turn: Option<Vec<i64>>,
    pub to_rank: Option<Vec<i64>>,
    pub at_turn: Option<Vec<Option<i64>>>,
}

/// What there was just before a look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// The newest number that was given out.
    pub number: i64,
    /// None if they are not known: when jobs were sent with the same commit.
    pub transactions: Option<Transactions>,
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
        Self {
            state: Mutex::new(State {
                handlers: HashMap::new(),
                slow: None,
                must_be_full: false,
                not_waited_for: None,
                leases: Leases::default(),
                news: News::default(),
            }),
        }
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
        let has_many_places =
            |handler: &&str| state.handlers.get(*handler).is_some_and(|known| known.back.len() > PLACES_MAX);
        let is_full =
            was_demanded || handlers.iter().any(has_many_places) || state.slow.is_none_or(|(_, next)| next <= now);
        if is_full {
            // While this one is under way the others are not; nor if it fails.
            state.slow = state.slow.map(|(took, _)| (took, now + took * 2 + FOUND_EVERY));
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

    /// After which time leases are looked at; none for all of them.
    pub fn leases_after(&self, now: Instant) -> Option<Timestamp> {
        let state = self.state();
        state.leases.next_full.filter(|next| now < *next).and(state.leases.none_until)
    }

    /// After which time a pulse looks at leases: at the end of all times, if one has just done so.
    pub fn pulse_leases_after(&self, now: Instant) -> Option<Timestamp> {
        let after = self.leases_after(now);
        let pulse = &self.state().leases.pulse;
        let is_within = |at: Option<Instant>, time| at.is_some_and(|at| now < at + time);
        if is_within(pulse.looked_at, PULSE_LEASES_EVERY) {
            return Some(Timestamp::MAX);
        }
        let found = pulse.none_until.filter(|_| is_within(pulse.whole_at, PULSE_LEASES_WHOLE_EVERY));
        after.max(found.and_then(|none_until| none_until.checked_sub(COMMITS_WITHIN).ok()))
    }

    /// A pulse that looked at leases after this time found this to be due. Answers what is, as far as is known.
    pub fn pulsed(
        &self,
        began: Instant,
        after: Option<Timestamp>,
        at: Timestamp,
        due: Option<Timestamp>,
    ) -> Option<Timestamp> {
        let pulse = &mut self.state().leases.pulse;
        if after == Some(Timestamp::MAX) {
            return pulse.due.into_iter().chain(due).min();
        }
        (pulse.looked_at, pulse.due) = (Some(began), due);
        if after.is_none() {
            pulse.whole_at = Some(began);
        }
        // What has passed is told of until somebody settles it.
        pulse.none_until = due.is_none_or(|due| due > at).then_some(at);
        due
    }

    /// Leases were looked at: all of them or not, and none or some had passed at this time of the server's.
    pub(super) fn leases_looked_at(
        &self,
        began: Instant,
        at: Timestamp,
        micros: i64,
        is_full: bool,
        none_passed: bool,
    ) {
        let leases = &mut self.state().leases;
        if is_full {
            let took = Duration::from_micros(micros.max(0) as u64);
            leases.next_full = (micros > SLOW_LEASES_MICROS).then(|| began + took * FULL_LOOK_PAUSE);
        }
        // Who has passed is told of again until somebody settles it.
        leases.none_until = none_passed.then_some(at);
    }

    /// What a pulse says: the newest number, that all transactions below `xmin` have ended, and `next` has not begun. Answers a
    /// count that grows when somebody is to look for jobs: because a number is new, because what it was drawn for may have
    /// committed only now, or because looks are slow, so that the last one was not at everything.
    pub fn heard(&self, given: i64, xmin: i64, next: i64, now: Instant) -> Heard {
        let mut state = self.state();
        state.have_ended(xmin);
        let is_slow = state.slow.is_some();
        let news = &mut state.news;
        if news.given != given {
            (news.given, news.until, news.since) = (given, Some(next), Some(now));
        }
        let is_put_off = std::mem::take(&mut news.is_put_off);
        news.count += u64::from(news.until.is_some() || is_slow || is_put_off);
        let is_fresh =
            news.until.is_some_and(|until| until <= xmin || news.since.is_some_and(|since| now < since + FRESH));
        news.until = news.until.filter(|until| xmin < *until);
        Heard { count: news.count, is_fresh }
    }

    /// A claim has not looked at all, as somebody is changing the rules: the next pulse has somebody look again.
    pub fn put_off(&self) {
        self.state().news.is_put_off = true;
    }

    /// Jobs became available, and nobody knows which.
    pub fn demand_full(&self) {
        self.state().must_be_full = true;
    }
}

impl State {
    /// All transactions below this one have ended.
    fn have_ended(&mut self, below: i64) {
        if self.not_waited_for.is_some_and(|until| until <= below) {
            (self.not_waited_for, self.must_be_full) = (None, true);
        }
    }
}

fn stretches(state: &State, handlers: &[&str]) -> Stretches {
    let mut all = Stretches::default();
    for (handler, number) in handlers.iter().zip(1..) {
        let stretches = match state.handlers.get(*handler) {
            Some(known) => known.stretches(),
            None => vec![Stretch::Behind(FIRST, i64::MAX)],
        };
        for stretch in stretches {
            let (after, to_rank, at_turn) = match stretch {
                Stretch::Behind(after, to_rank) => (after, to_rank, None),
                Stretch::At(place) => (place, place.0, Some(place.1)),
            };
            all.of.get_or_insert_default().push(number);
            all.after_rank.get_or_insert_default().push(after.0);
            all.after_turn.get_or_insert_default().push(after.1);
            all.to_rank.get_or_insert_default().push(to_rank);
            all.at_turn.get_or_insert_default().push(at_turn);
        }
    }
    all
}

impl Look<'_> {
    pub fn stretches(&self) -> &Stretches {
        &self.stretches
    }

    /// Remembers what was found: `held` are the handlers that a rule holds, from 1, which were not looked at, `caps` how many of each were
    /// wanted, and `jobs` what was taken.
    pub fn end(self, seen: Seen, micros: i64, held: &[i32], caps: &[i64], limit: i64, jobs: &[Job]) {
        let mut state = self.looks.state();
        seen.transactions.iter().for_each(|seen| state.have_ended(seen.ended_below));
        let mut not_waited_for = None;
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
            not_waited_for = not_waited_for.max(known.found(&self, &taken, stop, seen));
        }
        state.not_waited_for = state.not_waited_for.max(not_waited_for);
    }
}

impl Handler {
    /// Answers which transactions may still bring something before the marks.
    fn found(&mut self, look: &Look<'_>, taken: &[Position], stop: Option<Position>, seen: Seen) -> Option<i64> {
        if self.blind_until.is_some_and(|until| look.began <= until) {
            return None;
        }
        let up_to = |rank: i64| match stop {
            Some((at, turn)) if at == rank => turn,
            Some((at, _)) if at < rank => 0,
            Some(_) | None => seen.number,
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
        let mut not_waited_for = None;
        for (rank, mark) in &mut self.marks {
            if surprised {
                mark.gone = mark.gone.min(up_to(*rank));
            }
            not_waited_for = not_waited_for.max(mark.found_gone(look.began, seen.transactions, up_to(*rank)));
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
        not_waited_for
    }
}

#[cfg(test)]
mod tests;
