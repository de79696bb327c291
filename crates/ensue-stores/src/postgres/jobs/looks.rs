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
use ensue_core::Timestamp;
use ensue_core::jobs::Job;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A look is slow that takes longer than this, and so much more for each job and handler.
const SLOW_MICROS: i64 = 1_000;
const SLOW_MICROS_EACH: i64 = 20;
/// A look at leases is slow that takes longer than this.
const SLOW_LEASES_MICROS: i64 = 5_000;
/// How many times as long as it took until the next slow look at everything.
const FULL_LOOK_PAUSE: u32 = 50;
/// The time between two looks that must agree: what was sent before the first one has committed by the second.
const AGREE_AFTER: Duration = Duration::from_millis(250);
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
    pub to_rank: Option<Vec<i64>>,
    pub at_turn: Option<Vec<Option<i64>>>,
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

    /// After which time leases are looked at; none for all of them.
    pub fn leases_after(&self, now: Instant) -> Option<Timestamp> {
        let state = self.state();
        state.leases.next_full.filter(|next| now < *next).and(state.leases.none_until)
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

#[cfg(test)]
mod tests {
    use super::*;
    use ensue_core::handling::OnExhausted;
    use ensue_core::jobs::{JobId, JobState};
    use ensue_core::{GroupName, Json};

    const SLOW: i64 = 40_000;
    const RANK: i64 = i64::MAX; // of priority 0

    fn job(turn: u64) -> Job {
        let at = Timestamp::UNIX_EPOCH;
        Job {
            id: JobId::new(at, 0, turn),
            handler: GroupName::stored("a"),
            object: None,
            ordered: true,
            payload: Json::null(),
            metadata: Json::empty_object(),
            priority: 0,
            state: JobState::Running,
            turn: Some(turn),
            attempts: 1,
            attempts_max: 5,
            on_exhausted: OnExhausted::Hold,
            not_before: None,
            enqueued_at: at,
            locked_at: None,
            started_at: None,
            finished_at: None,
            worker: None,
            fence: 1,
            lease_until: None,
            errors: Vec::new(),
            unique_key: None,
            cause: None,
            cancel_asked: false,
            redriven: false,
            result: None,
        }
    }

    /// A look at a time that takes these turns of up to ten; where it looked, if not everywhere.
    fn look(looks: &Looks, at: Instant, seen: i64, micros: i64, turns: &[u64]) -> Option<Vec<Stretch>> {
        let look = looks.begin(&["a"], at);
        let stretches = look.stretches();
        let looked_at = stretches.of.as_ref().map(|of| {
            let column = |column: &Option<Vec<i64>>, index: usize| column.as_ref().unwrap()[index];
            let stretch = |index: usize| match stretches.at_turn.as_ref().unwrap()[index] {
                Some(turn) => Stretch::At((column(&stretches.to_rank, index), turn)),
                None => {
                    let after = (column(&stretches.after_rank, index), column(&stretches.after_turn, index));
                    Stretch::Behind(after, column(&stretches.to_rank, index))
                }
            };
            (0..of.len()).map(stretch).collect()
        });
        let jobs: Vec<Job> = turns.iter().map(|turn| job(*turn)).collect();
        look.end(seen, micros, &[], &[10], 10, &jobs);
        looked_at
    }

    fn later(begun: Instant, millis: u64) -> Instant {
        begun + Duration::from_millis(millis)
    }

    /// A store that has found everything gone up to turn 100.
    fn with_a_mark(begun: Instant) -> Looks {
        let looks = Looks::default();
        assert_eq!(look(&looks, begun, 100, SLOW, &[99, 100]), None, "the first look is at everything");
        assert_eq!(look(&looks, later(begun, 100), 100, SLOW, &[]), Some(EVERYWHERE.to_vec()), "one is not enough");
        look(&looks, later(begun, 300), 100, SLOW, &[]);
        looks
    }

    const EVERYWHERE: [Stretch; 1] = [Stretch::Behind(FIRST, i64::MAX)];
    const BEHIND: [Stretch; 2] = [Stretch::Behind(FIRST, RANK - 1), Stretch::Behind((RANK, 100), i64::MAX)];

    #[test]
    fn while_looks_are_fast_all_are_at_everything() {
        let (looks, begun) = (Looks::default(), Instant::now());
        for n in 0..20 {
            assert_eq!(look(&looks, later(begun, n * 100), 100, 500, &[n]), None);
        }
    }

    #[test]
    fn a_slow_look_is_followed_by_looks_behind_what_two_found_gone() {
        let begun = Instant::now();
        let looks = with_a_mark(begun);
        assert_eq!(look(&looks, later(begun, 400), 100, SLOW, &[]), Some(BEHIND.to_vec()));
        assert_eq!(look(&looks, later(begun, 1_900), 100, SLOW, &[]), Some(BEHIND.to_vec()));
        assert_eq!(look(&looks, later(begun, 2_001), 100, SLOW, &[]), None, "now and then everything is looked at");
        assert!(look(&looks, later(begun, 2_002), 100, SLOW, &[]).is_some());
    }

    #[test]
    fn what_became_available_behind_a_mark_is_looked_at_until_it_is_gone() {
        let begun = Instant::now();
        let looks = with_a_mark(begun);
        looks.appeared(&["a"], &[RANK], &[7]);
        let with_seven = vec![BEHIND[0], Stretch::At((RANK, 7)), BEHIND[1]];
        // The test's looks are in the store's future, so that this one begins after it became available.
        assert_eq!(look(&looks, later(begun, 400), 100, SLOW, &[7]), Some(with_seven));
        assert_eq!(look(&looks, later(begun, 500), 100, SLOW, &[]), Some(BEHIND.to_vec()));
    }

    /// What was claimed ahead comes back when a rule is set: to search for each would take longer than to look at everything.
    #[test]
    fn when_many_come_back_at_once_everything_is_looked_at() {
        let begun = Instant::now();
        let looks = with_a_mark(begun);
        let turns: Vec<i64> = (1..=PLACES_MAX as i64 + 1).collect();
        looks.appeared(&vec!["a"; turns.len()], &vec![RANK; turns.len()], &turns);
        assert_eq!(look(&looks, later(begun, 400), 100, SLOW, &[]), None);
        assert_eq!(look(&looks, later(begun, 500), 100, SLOW, &[]), Some(BEHIND.to_vec()), "and they are gone then");
    }

    /// A job is freed while a look is under way that has not seen it.
    #[test]
    fn a_look_does_not_pass_over_what_became_available_meanwhile() {
        let (looks, begun) = (Looks::default(), Instant::now());
        look(&looks, begun, 100, SLOW, &[99, 100]);
        let under_way = looks.begin(&["a"], later(begun, 300));
        // As if it became available after that.
        looks.state().handlers.get_mut("a").unwrap().appeared((RANK, 50), later(begun, 301));
        under_way.end(100, SLOW, &[], &[10], 10, &[]);
        let with_fifty = vec![BEHIND[0], Stretch::At((RANK, 50)), BEHIND[1]];
        assert_eq!(look(&looks, later(begun, 400), 100, SLOW, &[50]), Some(with_fifty));
    }

    #[test]
    fn a_look_that_took_all_it_wanted_knows_nothing_of_what_is_behind_it() {
        let (looks, begun) = (Looks::default(), Instant::now());
        let full: Vec<u64> = (1..=10).collect();
        look(&looks, begun, 100, SLOW, &full);
        look(&looks, later(begun, 300), 100, SLOW, &[11, 12]);
        let stretches = look(&looks, later(begun, 400), 100, SLOW, &[]).unwrap();
        assert_eq!(stretches[1], Stretch::Behind((RANK, 10), i64::MAX));
    }

    /// Another process brings something back behind the mark.
    #[test]
    fn what_nobody_told_of_is_found_by_a_look_at_everything_which_forgets_the_mark() {
        let begun = Instant::now();
        let looks = with_a_mark(begun);
        let found: Vec<u64> = (11..=20).collect();
        assert_eq!(look(&looks, later(begun, 2_001), 100, SLOW, &found), None);
        let stretches = look(&looks, later(begun, 2_002), 100, SLOW, &[]).unwrap();
        assert_eq!(stretches[1], Stretch::Behind((RANK, 20), i64::MAX), "there may be more of it");
        looks.demand_full();
        assert_eq!(look(&looks, later(begun, 2_003), 100, SLOW, &[]), None);
    }

    #[test]
    fn a_handler_that_a_rule_holds_was_not_looked_at() {
        let (looks, begun) = (Looks::default(), Instant::now());
        look(&looks, begun, 100, SLOW, &[99, 100]);
        looks.begin(&["a"], later(begun, 300)).end(100, SLOW, &[1], &[10], 10, &[]);
        assert_eq!(look(&looks, later(begun, 301), 100, SLOW, &[]), Some(EVERYWHERE.to_vec()));
    }

    /// A number is seen before what it was drawn for has committed: that is looked for until it must have.
    #[test]
    fn there_is_news_until_all_have_ended_that_may_have_drawn_a_number() {
        let (looks, now) = (Looks::default(), Instant::now());
        let mut last = 0;
        let mut is_news = |given, xmin, next| {
            let heard = looks.heard(given, xmin, next, now);
            let is_news = std::mem::replace(&mut last, heard.count) != heard.count;
            assert_eq!(heard.is_fresh, is_news, "others hear of it, too");
            is_news
        };
        assert!(is_news(1, 50, 51), "the first is");
        assert!(is_news(1, 50, 51), "50 is under way");
        assert!(is_news(1, 51, 51), "it has ended by now, and may have committed after the last look");
        assert!(!is_news(1, 51, 60), "those that began later have drawn nothing");
        assert!(is_news(2, 55, 60) && is_news(2, 59, 70) && is_news(2, 60, 70));
        assert!(!is_news(2, 60, 80));
        assert!(is_news(3, 80, 80), "who drew it has ended");
        assert!(!is_news(3, 80, 80));
        looks.heard(4, 80, 81, now);
        let late = [999, 1_000].map(|millis| looks.heard(4, 80, 90, later(now, millis)).is_fresh);
        assert_eq!(late, [true, false], "others are not told for as long as somebody keeps a transaction open");
        assert!(looks.heard(4, 81, 90, later(now, 9_000)).is_fresh, "but when it has ended");
    }

    /// While looks are slow the last one may have been behind what somebody brought back.
    #[test]
    fn while_looks_are_slow_there_is_always_news() {
        let (looks, begun) = (Looks::default(), Instant::now());
        let hear = || looks.heard(1, 51, 51, begun);
        hear();
        assert_eq!(hear(), hear());
        look(&looks, begun, 100, SLOW, &[99, 100]);
        assert!(hear().count < hear().count);
        assert!(!hear().is_fresh, "but none that others have to hear of");
    }

    #[test]
    fn leases_that_were_not_there_are_not_looked_for_while_that_is_slow() {
        let (looks, begun, at) = (Looks::default(), Instant::now(), Timestamp::UNIX_EPOCH);
        looks.leases_looked_at(begun, at, 100, true, true);
        assert_eq!(looks.leases_after(begun), None, "it was fast");
        looks.leases_looked_at(begun, at, SLOW, true, true);
        assert_eq!(looks.leases_after(later(begun, 10)), Some(at));
        assert_eq!(looks.leases_after(later(begun, 2_001)), None, "now and then all are");
        looks.leases_looked_at(later(begun, 20), at, 100, false, false);
        assert_eq!(looks.leases_after(later(begun, 30)), None, "until what has passed is settled");
    }
}
