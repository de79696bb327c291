//! Does the checker find what is wrong with a history, and nothing else?
//!
//! Each test takes a clean history, damages it in one way, and expects exactly that verdict.

use ensue_conformance::history::{Answer, Call, Outcome, Seen, Verdict, check, check_stream};
use ensue_core::{EventId, ObjectKey, Seq};
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;
use uuid::Uuid;

#[derive(Debug, Clone)]
struct History {
    calls: Vec<Call>,
    log: Vec<Seen>,
    first: Seq,
}

impl History {
    fn verdicts(&self) -> Vec<Verdict> {
        check(&self.calls, &self.log, self.first)
    }

    /// The place in `log` of an event that was acknowledged (or was not), at or after a wish, round the end.
    fn index(&self, wish: usize, acknowledged: bool) -> Option<usize> {
        let is = |seen: &Seen| {
            self.calls.iter().any(|call| {
                call.tokens.contains(&seen.token) && matches!(call.outcome, Outcome::Acknowledged(_)) == acknowledged
            })
        };
        (0..self.log.len()).map(|step| (wish + step) % self.log.len()).find(|index| is(&self.log[*index]))
    }

    fn answer_mut(&mut self, token: &str) -> &mut Answer {
        self.calls
            .iter_mut()
            .find_map(|call| {
                let index = call.tokens.iter().position(|other| other == token)?;
                match &mut call.outcome {
                    Outcome::Acknowledged(answers) => Some(&mut answers[index]),
                    Outcome::Refused | Outcome::Unknown => None,
                }
            })
            .expect("it was acknowledged")
    }
}

/// What the outcome of each call is to be, and the object of each of its events.
type Shape = (u8, Vec<Option<u8>>);

/// Calls one after another, each a little overlapping with the next; some refused, some with unknown outcome.
fn history(shapes: &[Shape], first: Seq) -> History {
    let mut history = History { calls: Vec::new(), log: Vec::new(), first };
    let mut heads: HashMap<u8, Seq> = HashMap::new();
    let mut seq = first - 1;
    for (number, (outcome, objects)) in shapes.iter().enumerate() {
        let began = Duration::from_millis(10 * number as u64);
        let ended = began + Duration::from_millis(15);
        let tokens: Vec<String> = (0..objects.len()).map(|index| format!("{number}/{index}")).collect();
        // 0 and 1: an outcome nobody knows, that happened or did not; 2: refused; else acknowledged.
        let happened = *outcome != 1 && *outcome != 2;
        let mut answers = Vec::new();
        for (token, object) in tokens.iter().zip(objects).filter(|_| happened) {
            seq += 1;
            let prev = object.and_then(|object| heads.insert(object, seq));
            let id = EventId(Uuid::from_u128(u128::from(seq) << 64));
            answers.push(Answer { id, seq, prev });
            let object = object.map(|object| ObjectKey::stored(&format!("o{object}")));
            history.log.push(Seen { id, seq, prev, object, token: token.clone() });
        }
        let outcome = match outcome {
            0 | 1 => Outcome::Unknown,
            2 => Outcome::Refused,
            _ => Outcome::Acknowledged(answers),
        };
        history.calls.push(Call { began, ended, tokens, outcome });
    }
    history
}

fn any_history() -> impl Strategy<Value = History> {
    let shape = (0..12u8, prop::collection::vec(prop::option::weighted(0.8, 0..4u8), 1..4));
    (prop::collection::vec(shape, 3..30), 1..100u64).prop_map(|(shapes, first)| history(&shapes, first))
}

/// One acknowledged event a call, all on one object.
fn simple() -> History {
    history(&vec![(9, vec![Some(0)]); 6], 1)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn a_clean_history_has_no_verdict(history in any_history()) {
        prop_assert_eq!(history.verdicts(), []);
        prop_assert_eq!(check_stream(&history.log, &history.log, 0), []);
    }

    #[test]
    fn an_acknowledged_event_that_is_not_there_is_lost(mut history in any_history(), wish in any::<prop::sample::Index>()) {
        prop_assume!(!history.log.is_empty());
        let Some(index) = history.index(wish.index(history.log.len()), true) else { return Ok(()) };
        let gone = history.log.remove(index);
        prop_assert_eq!(history.verdicts(), [Verdict::Lost { seq: gone.seq, token: gone.token }]);
    }

    #[test]
    fn a_number_that_nobody_was_told_and_that_is_missing_is_a_gap(
        mut history in any_history(), wish in any::<prop::sample::Index>()
    ) {
        prop_assume!(!history.log.is_empty());
        let Some(index) = history.index(wish.index(history.log.len()), false) else { return Ok(()) };
        let gone = history.log[index].clone();
        let call = history.calls.iter().position(|call| call.tokens.contains(&gone.token)).unwrap();
        // The end of the log is not known to anybody: what is missing there may never have been.
        prop_assume!(history.log.last().unwrap().seq > gone.seq && history.calls[call].tokens.len() == 1);
        history.log.remove(index);
        prop_assert_eq!(history.verdicts(), [Verdict::Gapped { from: gone.seq, to: gone.seq }]);
    }

    #[test]
    fn an_event_that_was_stored_twice_is_doubled(mut history in any_history(), wish in any::<prop::sample::Index>()) {
        prop_assume!(!history.log.is_empty());
        let Some(index) = history.index(wish.index(history.log.len()), true) else { return Ok(()) };
        let mut twin = history.log[index].clone();
        let last = history.log.last().unwrap().seq;
        twin.seq = last + 1;
        twin.id = EventId(Uuid::max());
        let head = history.log.iter().rev().find(|seen| seen.object == twin.object).map(|seen| seen.seq);
        twin.prev = twin.object.as_ref().and(head);
        let (token, seqs) = (twin.token.clone(), vec![history.log[index].seq, twin.seq]);
        history.log.push(twin);
        prop_assert_eq!(history.verdicts(), [Verdict::Doubled { token, seqs }]);
    }

    #[test]
    fn two_events_read_in_the_wrong_order_are_reordered(mut history in any_history(), wish in any::<prop::sample::Index>()) {
        prop_assume!(history.log.len() >= 2);
        let index = wish.index(history.log.len() - 1);
        history.log.swap(index, index + 1);
        let (after, seq) = (history.log[index].seq, history.log[index + 1].seq);
        prop_assert_eq!(history.verdicts(), [Verdict::Reordered { seq, after }]);
    }

    #[test]
    fn a_prev_that_skips_an_event_of_its_object_is_a_fork(mut history in any_history(), wish in any::<prop::sample::Index>()) {
        let chained: Vec<usize> = (0..history.log.len())
            .filter(|index| history.log[*index].prev.is_some())
            .collect();
        prop_assume!(!chained.is_empty());
        let index = chained[wish.index(chained.len())];
        // What the engine would have answered too, had it looked at the head before the other's commit.
        let Seen { seq, prev: expected, token, .. } = history.log[index].clone();
        let grandparent = history.log.iter().find(|seen| Some(seen.seq) == expected).and_then(|parent| parent.prev);
        history.log[index].prev = grandparent;
        if history.index(index, true) == Some(index) {
            history.answer_mut(&token).prev = grandparent;
        }
        prop_assert_eq!(history.verdicts(), [Verdict::Forked { seq, prev: grandparent, expected }]);
    }

    #[test]
    fn an_event_that_nobody_sent_is_invented(mut history in any_history()) {
        let seq = history.log.last().map_or(history.first, |seen| seen.seq + 1);
        history.log.push(Seen { id: EventId(Uuid::max()), seq, prev: None, object: None, token: "?".into() });
        prop_assert_eq!(history.verdicts(), [Verdict::Invented { seq, token: "?".into() }]);
    }

    #[test]
    fn a_call_that_began_after_anothers_answer_and_stands_before_it_is_against_real_time(
        mut history in any_history(), wish in any::<prop::sample::Index>()
    ) {
        // The call at `later` is made to begin after everything was answered; only the one behind it contradicts.
        let acknowledged: Vec<usize> = (0..history.calls.len())
            .filter(|index| matches!(history.calls[*index].outcome, Outcome::Acknowledged(_)))
            .collect();
        prop_assume!(acknowledged.len() >= 2);
        let chosen = acknowledged[wish.index(acknowledged.len() - 1)];
        history.calls[chosen].began = Duration::from_secs(1_000);
        history.calls[chosen].ended = Duration::from_secs(1_001);
        let place = |call: &Call, last: bool| match &call.outcome {
            Outcome::Acknowledged(answers) if last => answers[answers.len() - 1].seq,
            Outcome::Acknowledged(answers) => answers[0].seq,
            Outcome::Refused | Outcome::Unknown => 0,
        };
        let later = place(&history.calls[chosen], false);
        let earlier = place(&history.calls[acknowledged[acknowledged.len() - 1]], true);
        prop_assert_eq!(history.verdicts(), [Verdict::AgainstRealTime { earlier, later }]);
    }

    #[test]
    fn a_reader_that_missed_or_repeated_one_is_told_so(history in any_history(), wish in any::<prop::sample::Index>()) {
        prop_assume!(history.log.len() >= 2);
        let index = wish.index(history.log.len() - 1);
        let seen = history.log[index].clone();
        let mut missed = history.log.clone();
        missed.remove(index);
        prop_assert_eq!(check_stream(&history.log, &missed, 0), [Verdict::Skipped { seq: seen.seq }]);
        let mut repeated = history.log.clone();
        repeated.insert(index + 1, seen.clone());
        let seqs = vec![seen.seq, seen.seq];
        prop_assert_eq!(check_stream(&history.log, &repeated, 0), [Verdict::Doubled { token: seen.token, seqs }]);
        let mut swapped = history.log.clone();
        swapped.swap(index, index + 1);
        let (seq, after) = (seen.seq, history.log[index + 1].seq);
        prop_assert_eq!(check_stream(&history.log, &swapped, 0), [Verdict::Reordered { seq, after }]);
    }
}

/// The log tells of the event at another place than its client was told.
#[test]
fn an_event_that_moved_after_it_was_acknowledged_is_changed() {
    let mut history = simple();
    history.log[3].id = EventId(Uuid::max());
    let token = history.log[3].token.clone();
    let acknowledged = history.answer_mut(&token).clone();
    let read = Answer { id: EventId(Uuid::max()), ..acknowledged.clone() };
    assert_eq!(history.verdicts(), [Verdict::Changed { token, acknowledged, read }]);
}

/// The client was told another predecessor than the log has.
#[test]
fn a_prev_that_differs_from_the_acknowledged_one_is_a_fork() {
    let mut history = simple();
    history.answer_mut("3/0").prev = Some(2);
    assert_eq!(history.verdicts(), [Verdict::Forked { seq: 4, prev: Some(3), expected: Some(3) }]);
}

/// Half a batch of a client that was killed while it waited for the answer.
#[test]
fn a_batch_of_which_only_a_part_is_there_is_torn() {
    let mut history = history(&[(9, vec![Some(0)]), (0, vec![None, None, None])], 1);
    history.log.pop();
    let tokens = history.calls[1].tokens.clone();
    assert_eq!(history.verdicts(), [Verdict::Torn { tokens }]);
}

/// A batch whose events were acknowledged with another's event between them.
#[test]
fn a_batch_with_a_stranger_in_it_is_torn() {
    let mut history = history(&[(9, vec![None]), (9, vec![None, None])], 1);
    // The events at 1 and 2 change places, in the log and in the answers.
    history.log.swap(0, 1);
    for (index, seen) in history.log.iter_mut().enumerate() {
        seen.seq = 1 + index as Seq;
    }
    history.answer_mut("0/0").seq = 2;
    history.answer_mut("1/0").seq = 1;
    let tokens = history.calls[1].tokens.clone();
    assert_eq!(history.verdicts(), [Verdict::Torn { tokens }]);
}

/// A refused call of which something is in the log after all.
#[test]
fn a_refused_event_that_is_there_is_invented() {
    let mut history = simple();
    let last = history.calls.last_mut().unwrap();
    last.outcome = Outcome::Refused;
    assert_eq!(history.verdicts(), [Verdict::Invented { seq: 6, token: "5/0".into() }]);
}

/// The end of the log is gone: no gap shows, only what was acknowledged tells.
#[test]
fn a_lost_end_is_seen() {
    let mut history = simple();
    history.log.truncate(4);
    let lost = |seq: Seq, token: &str| Verdict::Lost { seq, token: token.into() };
    assert_eq!(history.verdicts(), [lost(5, "4/0"), lost(6, "5/0")]);
}

/// What retention forgot is not lost.
#[test]
fn what_was_trimmed_is_not_lost() {
    let mut history = simple();
    history.log.drain(..3);
    history.first = 4;
    assert_eq!(history.verdicts(), []);
}
