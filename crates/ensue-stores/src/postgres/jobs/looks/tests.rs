//! What a process remembers of its looks, and when it looks at everything again.

use super::*;
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::{JobId, JobState};
use ensue_core::{GroupName, Json};
use std::sync::atomic::{AtomicI64, Ordering};

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
        settled: None,
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
    look.end(seen_up_to(seen), micros, &[], &[10], 10, &jobs);
    looked_at
}

/// All others have ended whenever somebody looks.
fn seen_up_to(number: i64) -> Seen {
    static LOOKS: AtomicI64 = AtomicI64::new(1_000);
    let next = LOOKS.fetch_add(1, Ordering::Relaxed);
    seen_beside(number, next, next)
}

fn seen_beside(number: i64, ended_below: i64, next: i64) -> Seen {
    Seen { number, transactions: Some(Transactions { ended_below, next }) }
}

fn later(begun: Instant, millis: u64) -> Instant {
    begun + Duration::from_millis(millis)
}

/// A store that has found everything gone up to turn 100.
fn with_a_mark(begun: Instant) -> Looks {
    let looks = Looks::default();
    assert_eq!(look(&looks, begun, 100, SLOW, &[99, 100]), None, "the first look is at everything");
    assert_eq!(look(&looks, later(begun, 100), 100, SLOW, &[]), Some(EVERYWHERE.to_vec()), "one is not enough");
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
    under_way.end(seen_up_to(100), SLOW, &[], &[10], 10, &[]);
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

/// What was sent before a look may commit long after it.
#[test]
fn nothing_is_passed_over_while_somebody_may_commit_there() {
    let (looks, begun) = (Looks::default(), Instant::now());
    let beside = |millis: u64, ended_below: i64| {
        let look = looks.begin(&["a"], later(begun, millis));
        let is_behind = look.stretches().of.as_ref().is_some_and(|of| of.len() == 2);
        let is_full = look.is_full;
        look.end(seen_beside(100, ended_below, 60), SLOW, &[], &[10], 10, &[job(99), job(100)]);
        (is_behind, is_full)
    };
    beside(0, 50);
    assert_eq!(beside(300, 50), (false, false));
    assert_eq!(beside(1_900, 50), (false, false), "50 is under way, and may have drawn a number before the first look");
    assert_eq!(beside(1_950, 60), (false, false));
    assert_eq!(beside(1_990, 60), (true, false), "it has ended, and brought nothing");
}

/// One transaction that is open for hours has nobody look at everything that was ever there.
#[test]
fn who_keeps_a_transaction_open_is_not_waited_for_until_it_ends() {
    let (looks, begun) = (Looks::default(), Instant::now());
    let beside = |millis: u64, ended_below: i64, next: i64| {
        let look = looks.begin(&["a"], later(begun, millis));
        let (is_behind, is_full) = (look.stretches().of.as_ref().is_some_and(|of| of.len() == 2), look.is_full);
        look.end(seen_beside(100, ended_below, next), 2 * SLOW, &[], &[10], 10, &[job(99), job(100)]);
        (is_behind, is_full)
    };
    beside(0, 50, 60);
    assert_eq!(beside(2_000, 50, 70), (false, false));
    assert_eq!(beside(2_100, 50, 80), (true, false), "it is passed over");
    assert_eq!(beside(2_200, 80, 80), (true, false));
    assert_eq!(beside(2_300, 80, 80), (false, true), "and looked for when it has ended");
    looks.heard(1, 80, 80, begun);
    assert!(!beside(2_400, 80, 80).1, "once");
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
    looks.begin(&["a"], later(begun, 300)).end(seen_up_to(100), SLOW, &[1], &[10], 10, &[]);
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

#[test]
fn of_many_pulses_one_looks_at_leases_now_and_then() {
    let (looks, begun, at) = (Looks::default(), Instant::now(), Timestamp::UNIX_EPOCH);
    let seconds = |count: i64| at + SignedDuration::from_secs(count);
    assert_eq!(looks.pulse_leases_after(begun), None, "the first looks at all of them");
    assert_eq!(looks.pulsed(begun, None, at, Some(seconds(2))), Some(seconds(2)));
    let soon = later(begun, 400);
    assert_eq!(looks.pulse_leases_after(soon), Some(Timestamp::MAX));
    let due = looks.pulsed(soon, Some(Timestamp::MAX), at, None);
    assert_eq!(due, Some(seconds(2)), "what the last one found is not forgotten");
    assert_eq!(looks.pulsed(soon, Some(Timestamp::MAX), at, Some(seconds(1))), Some(seconds(1)));
    let next = later(begun, 600);
    assert_eq!(looks.pulse_leases_after(next), Some(seconds(-2)), "behind where none had passed");
    looks.pulsed(next, Some(seconds(-2)), seconds(3), Some(seconds(2)));
    assert_eq!(
        looks.pulse_leases_after(later(begun, 1_200)),
        None,
        "one has passed, and is told of until it is settled"
    );
    looks.pulsed(later(begun, 1_200), None, seconds(4), None);
    assert_eq!(looks.pulse_leases_after(later(begun, 11_000)), Some(seconds(2)));
    assert_eq!(looks.pulse_leases_after(later(begun, 11_300)), None, "now and then at all of them");
}
