//! Was anything lost, doubled, reordered or forked?
//!
//! Clients write down what was acknowledged to them and when, readers what they read. The checker puts both side by
//! side and names what cannot be. One cause gives one verdict: a lost event leaves a hole and its successor's `prev`
//! points into it, but all that is said is that it was lost.
//!
//! A client makes every event recognisable by a token of its own in the payload. A call whose outcome the client does
//! not know (killed in between) is an attempt without acknowledgement: its events may be in the log, all or none.

use ensue_core::{EventId, ObjectKey, Seq};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// One append as its client saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// When it began, on a clock that all clients share.
    pub began: Duration,
    /// When it was answered.
    pub ended: Duration,
    /// The tokens of the events that were sent, in their order.
    pub tokens: Vec<String>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged: one answer for each event.
    Acknowledged(Vec<Answer>),
    /// Refused: nothing of it may be in the log.
    Refused,
    /// Nobody knows: all of it may be in the log, or nothing.
    Unknown,
}

/// What was acknowledged of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The event's identity.
    pub id: EventId,
    /// Its place.
    pub seq: Seq,
    /// Its predecessor's place.
    pub prev: Option<Seq>,
}

/// One event as somebody read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The event's identity.
    pub id: EventId,
    /// Its place.
    pub seq: Seq,
    /// Its predecessor's place.
    pub prev: Option<Seq>,
    /// What it is about.
    pub object: Option<ObjectKey>,
    /// What its client called it.
    pub token: String,
}

/// Something that cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Acknowledged, and not in the log.
    Lost {
        /// Where it was.
        seq: Seq,
        /// Which it was.
        token: String,
    },
    /// In the log (or in a reader's stream) more than once.
    Doubled {
        /// Which event.
        token: String,
        /// All its places, in the order read.
        seqs: Vec<Seq>,
    },
    /// Read after one with a larger number.
    Reordered {
        /// Which place.
        seq: Seq,
        /// The place that was read before it.
        after: Seq,
    },
    /// Numbers that nobody was told, and that are missing.
    Gapped {
        /// The first that is missing.
        from: Seq,
        /// The last that is missing.
        to: Seq,
    },
    /// `prev` is not the preceding event of the same object.
    Forked {
        /// Which place.
        seq: Seq,
        /// What it says.
        prev: Option<Seq>,
        /// What it should say.
        expected: Option<Seq>,
    },
    /// The log says something else about the event (id, place or `prev`) than the acknowledgement did.
    Changed {
        /// Which event.
        token: String,
        /// As it was acknowledged.
        acknowledged: Answer,
        /// As it was read.
        read: Answer,
    },
    /// Acknowledged before the other one was sent, and yet behind it.
    AgainstRealTime {
        /// The one that was acknowledged first.
        earlier: Seq,
        /// The one that was sent after that.
        later: Seq,
    },
    /// The events of one call are not next to each other in their order, or only some of them are there.
    Torn {
        /// The tokens of the call.
        tokens: Vec<String>,
    },
    /// In the log although nobody sent it, or although it was refused.
    Invented {
        /// Which place.
        seq: Seq,
        /// What it calls itself.
        token: String,
    },
    /// A reader did not get what is in the log.
    Skipped {
        /// Which place.
        seq: Seq,
    },
}

/// Checks the log against what its clients know. `log` is everything read from the place `first` on, in the order read.
pub fn check(calls: &[Call], log: &[Seen], first: Seq) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let acknowledged = acknowledged_from(calls, first);
    let places = places_by_token(log);

    for (token, seqs) in &places {
        if seqs.len() > 1 {
            verdicts.push(Verdict::Doubled { token: token.to_string(), seqs: seqs.clone() });
        }
    }
    for (seq, (token, _)) in &acknowledged {
        if !places.contains_key(token) {
            verdicts.push(Verdict::Lost { seq: *seq, token: token.to_string() });
        }
    }
    invented(calls, log, &mut verdicts);
    changed(&acknowledged, log, &places, &mut verdicts);
    order_and_gaps(&acknowledged, log, first, &mut verdicts);
    forks(calls, log, first, &mut verdicts);
    torn(calls, &places, &mut verdicts);
    against_real_time(calls, &mut verdicts);
    verdicts
}

/// Checks what one reader got against the log: everything after `after`, up to the last that it got, once and in order.
pub fn check_stream(log: &[Seen], stream: &[Seen], after: Seq) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let in_log: HashMap<Seq, &Seen> = log.iter().map(|seen| (seen.seq, seen)).collect();
    let mut got: HashSet<Seq> = HashSet::new();
    let mut newest = after;
    for seen in stream {
        if in_log.get(&seen.seq) != Some(&seen) {
            verdicts.push(Verdict::Invented { seq: seen.seq, token: seen.token.clone() });
        } else if !got.insert(seen.seq) {
            verdicts.push(Verdict::Doubled { token: seen.token.clone(), seqs: vec![seen.seq, seen.seq] });
        } else if seen.seq < newest {
            verdicts.push(Verdict::Reordered { seq: seen.seq, after: newest });
        }
        newest = newest.max(seen.seq);
    }
    for seen in log.iter().filter(|seen| seen.seq > after && seen.seq <= newest) {
        if !got.contains(&seen.seq) {
            verdicts.push(Verdict::Skipped { seq: seen.seq });
        }
    }
    verdicts
}

type Acknowledged<'a> = BTreeMap<Seq, (&'a str, &'a Answer)>;

/// What was acknowledged and should still be there, by place.
fn acknowledged_from(calls: &[Call], first: Seq) -> Acknowledged<'_> {
    let answers = calls.iter().filter_map(|call| match &call.outcome {
        Outcome::Acknowledged(answers) => Some(call.tokens.iter().zip(answers)),
        Outcome::Refused | Outcome::Unknown => None,
    });
    let by_place = answers.flatten().map(|(token, answer)| (answer.seq, (token.as_str(), answer)));
    by_place.filter(|(seq, _)| *seq >= first).collect()
}

/// The places of each token in the order read, told once however often a place was read.
fn places_by_token(log: &[Seen]) -> BTreeMap<&str, Vec<Seq>> {
    let mut places: BTreeMap<&str, Vec<Seq>> = BTreeMap::new();
    for seen in log {
        places.entry(&seen.token).or_default().push(seen.seq);
    }
    places
}

fn invented(calls: &[Call], log: &[Seen], verdicts: &mut Vec<Verdict>) {
    let possible: HashSet<&str> = calls
        .iter()
        .filter(|call| match &call.outcome {
            Outcome::Acknowledged(_) | Outcome::Unknown => true,
            Outcome::Refused => false,
        })
        .flat_map(|call| call.tokens.iter().map(String::as_str))
        .collect();
    let unsent = log.iter().filter(|seen| !possible.contains(seen.token.as_str()));
    verdicts.extend(unsent.map(|seen| Verdict::Invented { seq: seen.seq, token: seen.token.clone() }));
}

/// An event that is there once must be what was acknowledged. Its `prev` is left to [`forks`] where that says more.
fn changed(
    acknowledged: &Acknowledged<'_>,
    log: &[Seen],
    places: &BTreeMap<&str, Vec<Seq>>,
    verdicts: &mut Vec<Verdict>,
) {
    let told: HashMap<&str, &Answer> = acknowledged.values().map(|(token, answer)| (*token, *answer)).collect();
    for seen in log.iter().filter(|seen| places[seen.token.as_str()].len() == 1) {
        let read = Answer { id: seen.id, seq: seen.seq, prev: seen.prev };
        if let Some(answer) = told.get(seen.token.as_str())
            && (answer.id, answer.seq) != (read.id, read.seq)
        {
            verdicts.push(Verdict::Changed { token: seen.token.clone(), acknowledged: (*answer).clone(), read });
        }
    }
}

fn order_and_gaps(acknowledged: &Acknowledged<'_>, log: &[Seen], first: Seq, verdicts: &mut Vec<Verdict>) {
    let mut read: HashSet<Seq> = HashSet::new();
    let mut newest = first - 1;
    for seen in log {
        // A place read twice is told as doubled, not as out of order.
        if read.insert(seen.seq) && seen.seq < newest {
            verdicts.push(Verdict::Reordered { seq: seen.seq, after: newest });
        }
        newest = newest.max(seen.seq);
    }
    // A number whose event is known to be lost is no gap besides.
    let missing = (first..=newest).filter(|seq| !read.contains(seq) && !acknowledged.contains_key(seq));
    let mut open: Option<(Seq, Seq)> = None;
    for seq in missing {
        open = match open {
            Some((from, to)) if to + 1 == seq => Some((from, seq)),
            Some((from, to)) => {
                verdicts.push(Verdict::Gapped { from, to });
                Some((seq, seq))
            }
            None => Some((seq, seq)),
        };
    }
    verdicts.extend(open.map(|(from, to)| Verdict::Gapped { from, to }));
}

/// Follows each object through the log. A place that is missing may have been its head, so whoever points to a
/// missing place (or to one before `first`) is believed.
fn forks(calls: &[Call], log: &[Seen], first: Seq, verdicts: &mut Vec<Verdict>) {
    let told: HashMap<Seq, Option<Seq>> =
        acknowledged_from(calls, first).into_iter().map(|(seq, (_, answer))| (seq, answer.prev)).collect();
    let by_place: BTreeMap<Seq, &Seen> = log.iter().map(|seen| (seen.seq, seen)).collect();
    let mut heads: HashMap<&ObjectKey, Seq> = HashMap::new();
    for (seq, seen) in &by_place {
        let expected = seen.object.as_ref().and_then(|object| heads.insert(object, *seq));
        let into_the_unknown = seen.object.is_some()
            && seen.prev.is_some_and(|prev| {
                let unknown = prev < first || !by_place.contains_key(&prev);
                unknown && prev < *seq && expected.is_none_or(|head| head < prev)
            });
        let as_told = told.get(seq).is_none_or(|prev| *prev == seen.prev);
        if !as_told || (seen.prev != expected && !into_the_unknown) {
            verdicts.push(Verdict::Forked { seq: *seq, prev: seen.prev, expected });
        }
    }
}

/// The events of one call stand next to each other. Those that are lost or doubled are told as such.
fn torn(calls: &[Call], places: &BTreeMap<&str, Vec<Seq>>, verdicts: &mut Vec<Verdict>) {
    let place = |token: &String| places.get(token.as_str()).and_then(|seqs| seqs.first().copied());
    for call in calls {
        let consecutive = |seqs: &[Seq]| seqs.windows(2).all(|two| two[0] + 1 == two[1]);
        let whole = match &call.outcome {
            Outcome::Acknowledged(answers) => consecutive(&answers.iter().map(|answer| answer.seq).collect::<Vec<_>>()),
            Outcome::Unknown => {
                let seqs: Vec<Seq> = call.tokens.iter().filter_map(place).collect();
                seqs.is_empty() || (seqs.len() == call.tokens.len() && consecutive(&seqs))
            }
            Outcome::Refused => true,
        };
        if !whole {
            verdicts.push(Verdict::Torn { tokens: call.tokens.clone() });
        }
    }
}

/// An append that was acknowledged before another began has the smaller numbers.
fn against_real_time(calls: &[Call], verdicts: &mut Vec<Verdict>) {
    struct Span {
        began: Duration,
        ended: Duration,
        first: Seq,
        last: Seq,
    }
    let mut spans: Vec<Span> = Vec::new();
    for call in calls {
        match &call.outcome {
            Outcome::Acknowledged(answers) => {
                let seqs = || answers.iter().map(|answer| answer.seq);
                if let (Some(first), Some(last)) = (seqs().min(), seqs().max()) {
                    spans.push(Span { began: call.began, ended: call.ended, first, last });
                }
            }
            Outcome::Refused | Outcome::Unknown => {}
        }
    }
    let mut by_end: Vec<&Span> = spans.iter().collect();
    by_end.sort_by_key(|span| span.ended);
    let mut by_begin: Vec<&Span> = spans.iter().collect();
    by_begin.sort_by_key(|span| span.began);
    let mut ended = by_end.into_iter().peekable();
    let mut newest_before: Seq = 0;
    for span in by_begin {
        while let Some(earlier) = ended.next_if(|earlier| earlier.ended < span.began) {
            newest_before = newest_before.max(earlier.last);
        }
        if newest_before > span.first {
            verdicts.push(Verdict::AgainstRealTime { earlier: newest_before, later: span.first });
        }
    }
}
