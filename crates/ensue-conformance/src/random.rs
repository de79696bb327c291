//! Does an engine answer as the model does, whatever it is asked?
//!
//! Random sequences of calls, the clock moving forward and back between them and the store reopened, are carried out on
//! the engine and on the model side by side. The first answer that differs ends the case, and proptest shrinks the
//! sequence to a short one that still differs. Ids differ by nature: they are compared by the order they were given in.

use crate::factory::{Factory, Place};
use crate::meaning::Meaning;
use crate::model::ModelFactory;
use crate::suite::{block_on, checked};
use ensue_core::clock::{Clock, ManualClock};
use ensue_core::retention::Bounds;
use ensue_core::store::{Cancelled, Read, Released, SharedStore};
use ensue_core::{
    Appended, Event, EventId, Filter, Found, NewEvent, ObjectKey, Pending, Seq, StoreError, Timestamp, Topic,
};
use jiff::SignedDuration;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::collections::HashMap;
use uuid::Uuid;

/// The variable that repeats a run: the seed that a failure tells, or `random` for sequences that nobody has tried. Without it
/// they are the same every time, so that a failure is about what was changed.
pub const SEED: &str = "ENSUE_TEST_SEED";
const SAME_EVERY_TIME: u64 = 1;

/// The variable that asks for another number of cases: more of them before a release, say.
pub const CASES: &str = "ENSUE_TEST_CASES";

const TOPICS: [&str; 6] = ["a", "a.b", "a.b.c", "a.bb", "ab", "c"];
const OBJECTS: [&str; 3] = ["o", "p", "o.p"];
const PAYLOADS: [&str; 5] = ["null", "1", r#"{"b":1,"a":[2.50,"x"]}"#, r#""\u00e9""#, "[]"];

/// An event to append.
#[derive(Debug, Clone)]
struct Draft {
    topic: usize,
    object: Option<usize>,
    payload: usize,
    key: Option<u8>,
    /// `not_before`, from the time of the call.
    delay_millis: Option<i64>,
    /// `occurred_at`, from the beginning of the case.
    occurred_millis: Option<i64>,
    to: bool,
}

/// One call, or a change of what is around the store.
#[derive(Debug, Clone)]
enum Step {
    Append(Vec<Draft>),
    Release {
        limit: usize,
    },
    Read {
        after: Seq,
        limit: usize,
        topic: Option<usize>,
        object: Option<usize>,
    },
    Chain {
        object: usize,
        before: Option<Seq>,
        limit: usize,
    },
    EventAt(Seq),
    /// By the order in which ids were given; beyond them: one that nobody was given.
    Find(usize),
    Cancel(usize),
    Pending {
        limit: usize,
    },
    Bounds,
    SeqBefore {
        millis: i64,
    },
    Trim {
        keep_from: Seq,
        limit: usize,
    },
    Purge,
    Advance {
        millis: i64,
    },
    Reopen,
}

fn draft() -> impl Strategy<Value = Draft> {
    let fields = (
        0..TOPICS.len(),
        prop::option::weighted(0.7, 0..OBJECTS.len()),
        0..PAYLOADS.len(),
        prop::option::weighted(0.3, 0..6u8),
        prop::option::weighted(0.3, prop_oneof![Just(0), -5..20i64, -100_000..400_000i64]),
        prop::option::weighted(0.2, -100_000..100_000i64),
        prop::bool::weighted(0.1),
    );
    fields.prop_map(|(topic, object, payload, key, delay_millis, occurred_millis, to)| Draft {
        topic,
        object,
        payload,
        key,
        delay_millis,
        occurred_millis,
        to,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let object = || 0..OBJECTS.len();
    let filter = || (prop::option::of(0..TOPICS.len()), prop::option::of(object()));
    prop_oneof![
        10 => prop::collection::vec(draft(), 1..5).prop_map(Step::Append),
        3 => (1..6usize).prop_map(|limit| Step::Release { limit }),
        5 => (0..40u64, 1..12usize, filter())
            .prop_map(|(after, limit, (topic, object))| Step::Read { after, limit, topic, object }),
        2 => (object(), prop::option::of(0..40u64), 1..8usize)
            .prop_map(|(object, before, limit)| Step::Chain { object, before, limit }),
        1 => (0..40u64).prop_map(Step::EventAt),
        3 => (0..40usize).prop_map(Step::Find),
        2 => (0..40usize).prop_map(Step::Cancel),
        1 => (1..6usize).prop_map(|limit| Step::Pending { limit }),
        1 => Just(Step::Bounds),
        2 => prop_oneof![-10..100i64, -500_000..500_000i64].prop_map(|millis| Step::SeqBefore { millis }),
        2 => (0..40u64, 1..10usize).prop_map(|(keep_from, limit)| Step::Trim { keep_from, limit }),
        1 => Just(Step::Purge),
        // Two milliseconds, some minutes back or forth, or past the window of keys.
        5 => prop_oneof![1..3i64, -60_000..300_000i64, 86_000_003..87_000_000i64]
            .prop_map(|millis| Step::Advance { millis }),
        1 => Just(Step::Reopen),
    ]
}

/// An id by the order in which it was given, and the millisecond it tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NthId {
    nth: Option<usize>,
    millis: Option<i64>,
}

/// An event with what may differ between two stores taken out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    place: Option<(Seq, Option<Seq>, Timestamp)>,
    not_before: Option<Timestamp>,
    id: NthId,
    topic: Topic,
    object: Option<ObjectKey>,
    payload: Meaning,
    metadata: Meaning,
    occurred_at: Timestamp,
    to: Option<Uuid>,
}

/// What a step answered.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Appended(Vec<(NthId, Option<Seq>, Option<Seq>, bool)>),
    Conflict(String),
    Released(Released),
    Page(Vec<Told>, Seq),
    Events(Vec<Told>),
    Cancelled(Cancelled),
    Bounds(Bounds),
    Place(Seq),
    Nothing,
}

/// One of the two stores, and the ids it gave out.
struct Side {
    place: Box<dyn Place>,
    clock: Clock,
    store: SharedStore,
    ids: Vec<EventId>,
    nth: HashMap<EventId, usize>,
}

impl Side {
    async fn new(factory: &dyn Factory, clock: &ManualClock) -> Self {
        let place = factory.make().await;
        let store = place.open(clock.clock()).await;
        Self { place, clock: clock.clock(), store, ids: Vec::new(), nth: HashMap::new() }
    }

    fn nth_id(&self, id: EventId) -> NthId {
        NthId { nth: self.nth.get(&id).copied(), millis: id.time().map(|time| time.as_millisecond()) }
    }

    fn id(&self, nth: usize) -> EventId {
        let unknown = EventId::new((self.clock)(), [0xAB; 10]);
        self.ids.get(nth).copied().unwrap_or(unknown)
    }

    fn event(&self, event: &Event) -> Told {
        Told {
            place: Some((event.seq, event.prev, event.recorded_at)),
            not_before: None,
            id: self.nth_id(event.id),
            topic: event.topic.clone(),
            object: event.object.clone(),
            payload: Meaning::of(&event.payload),
            metadata: Meaning::of(&event.metadata),
            occurred_at: event.occurred_at,
            to: event.to,
        }
    }

    fn pending(&self, pending: &Pending) -> Told {
        Told {
            place: None,
            not_before: Some(pending.not_before),
            id: self.nth_id(pending.id),
            topic: pending.topic.clone(),
            object: pending.object.clone(),
            payload: Meaning::of(&pending.payload),
            metadata: Meaning::of(&pending.metadata),
            occurred_at: pending.occurred_at,
            to: pending.to,
        }
    }

    fn events<'a>(&self, events: impl IntoIterator<Item = &'a Event>) -> Vec<Told> {
        events.into_iter().map(|event| self.event(event)).collect()
    }

    fn appended(&mut self, answers: Vec<Appended>) -> Answer {
        let told = answers.into_iter().map(|answer| {
            if !answer.repeated {
                self.nth.insert(answer.id, self.ids.len());
                self.ids.push(answer.id);
            }
            (self.nth_id(answer.id), answer.seq, answer.prev, answer.repeated)
        });
        Answer::Appended(told.collect())
    }

    async fn carry_out(&mut self, step: &Step, start: Timestamp) -> Result<Answer, StoreError> {
        let from_start = |millis: i64| start + SignedDuration::from_millis(millis);
        Ok(match step {
            Step::Append(drafts) => {
                let now = (self.clock)();
                let batch = drafts.iter().map(|draft| draft.event(now, start)).collect();
                match self.store.append(checked(batch)).await {
                    Ok(answers) => self.appended(answers),
                    Err(StoreError::KeyConflict { key }) => Answer::Conflict(key),
                    Err(other) => return Err(other),
                }
            }
            Step::Release { limit } => Answer::Released(self.store.release_due(*limit).await?),
            Step::Read { after, limit, topic, object } => {
                let filter = filter(topic, object);
                let page = self.store.read(Read { after: *after, limit: *limit, filter }).await?;
                Answer::Page(self.events(&page.events), page.next)
            }
            Step::Chain { object, before, limit } => {
                let object = ObjectKey::stored(OBJECTS[*object]);
                Answer::Events(self.events(&self.store.chain(&object, *before, *limit).await?))
            }
            Step::EventAt(seq) => Answer::Events(self.events(self.store.event(*seq).await?.as_ref())),
            Step::Find(nth) => Answer::Events(match self.store.find(self.id(*nth)).await? {
                Some(Found::Logged(event)) => vec![self.event(&event)],
                Some(Found::Pending(pending)) => vec![self.pending(&pending)],
                None => vec![],
            }),
            Step::Cancel(nth) => Answer::Cancelled(self.store.cancel(self.id(*nth)).await?),
            Step::Pending { limit } => {
                Answer::Events(self.store.pending(*limit).await?.iter().map(|pending| self.pending(pending)).collect())
            }
            Step::Bounds => Answer::Bounds(self.store.bounds().await?),
            Step::SeqBefore { millis } => Answer::Place(self.store.seq_before(from_start(*millis)).await?),
            Step::Trim { keep_from, limit } => Answer::Bounds(self.store.trim(*keep_from, *limit).await?),
            Step::Purge => Answer::Place(self.store.purge_keys(1_000).await? as Seq),
            Step::Advance { .. } => Answer::Nothing,
            Step::Reopen => {
                self.store.close().await;
                self.store = self.place.open(self.clock.clone()).await;
                Answer::Nothing
            }
        })
    }
}

impl Draft {
    fn event(&self, now: Timestamp, start: Timestamp) -> NewEvent {
        let millis = SignedDuration::from_millis;
        let mut event = NewEvent::new(TOPICS[self.topic]).payload_json(PAYLOADS[self.payload]);
        if let Some(object) = self.object {
            event = event.object(OBJECTS[object]);
        }
        if let Some(key) = self.key {
            event = event.key(format!("k{key}"));
        }
        if let Some(delay) = self.delay_millis {
            event = event.not_before(now + millis(delay));
        }
        if let Some(occurred) = self.occurred_millis {
            event = event.occurred_at(start + millis(occurred)).metadata_json(r#"{"z":0,"a":{}}"#);
        }
        if self.to { event.to(Uuid::from_u128(1)) } else { event }
    }
}

/// Is the engine's answer the model's, or another that is as right?
///
/// One thing is free: a page of one object that is full may say that it came to the end, or to any place before the
/// next event that is wanted.
async fn agree(model: &SharedStore, step: &Step, expected: &Answer, answer: &Result<Answer, StoreError>) -> bool {
    if answer.as_ref() == Ok(expected) {
        return true;
    }
    let Step::Read { limit, topic, object: Some(object), .. } = step else { return false };
    let (Answer::Page(expected, from), Ok(Answer::Page(events, next))) = (expected, answer) else { return false };
    let filter = filter(topic, &Some(*object));
    let rest = model.read(Read { after: *from, limit: 1, filter }).await.expect("the model does not fail");
    let next_wanted = rest.events.first().map_or(rest.next + 1, |event| event.seq);
    events == expected && events.len() == *limit && (*from..next_wanted).contains(next)
}

fn filter(topic: &Option<usize>, object: &Option<usize>) -> Filter {
    Filter {
        topic: topic.map(|index| Topic::stored(TOPICS[index])),
        object: object.map(|index| ObjectKey::stored(OBJECTS[index])),
    }
}

/// Carries the steps out on both sides; the first difference is an error.
async fn run(factory: &dyn Factory, steps: &[Step]) -> Result<(), String> {
    let clock = ManualClock::at_noon();
    let start = clock.now();
    let mut model = Side::new(&ModelFactory, &clock).await;
    let mut engine = Side::new(factory, &clock).await;
    // At the end everything that can be seen is looked at, whatever the steps asked for.
    let mut last_looks = vec![Step::Bounds, Step::Pending { limit: 1_000 }];
    last_looks.push(Step::Read { after: 0, limit: 1_000, topic: None, object: None });
    last_looks.extend((0..OBJECTS.len()).map(|object| Step::Chain { object, before: None, limit: 1_000 }));
    let mut verdict = Ok(());
    for (index, step) in steps.iter().chain(&last_looks).enumerate() {
        if let Step::Advance { millis } = step {
            clock.advance_millis(*millis);
        }
        let expected = model.carry_out(step, start).await.expect("the model does not fail");
        let answer = engine.carry_out(step, start).await;
        if !agree(&model.store, step, &expected, &answer).await {
            verdict = Err(format!("step {index}, {step:?}:\n  model:  {expected:?}\n  engine: {answer:?}"));
            break;
        }
    }
    engine.store.close().await;
    verdict
}

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, and is {text:?}")))
}

/// Compares an engine with the model on so many random sequences of calls.
///
/// # Panics
/// Where they differ, with the shortest sequence found and the seed that repeats the run.
pub fn compare(factory: &dyn Factory, cases: u32) {
    look_for_a_difference(step(), cases, |steps| block_on(run(factory, steps)));
}

/// Does the engine differ from the model on any of so many sequences of calls, the same ones every time?
pub fn differs(factory: &dyn Factory, cases: u32) -> bool {
    is_there_a_difference(step(), cases, |steps| block_on(run(factory, steps)))
}

/// Tries so many random sequences of steps, and panics with the shortest found on which the two sides differ.
pub(crate) fn look_for_a_difference<S: Strategy>(
    step: S,
    cases: u32,
    carry_out: impl Fn(&[S::Value]) -> Result<(), String>,
) {
    let seed = match std::env::var(SEED).as_deref() {
        Ok("random") => rand::random(),
        _ => number_from(SEED).unwrap_or(SAME_EVERY_TIME),
    };
    let cases = number_from(CASES).map_or(cases, |cases| u32::try_from(cases).unwrap_or(u32::MAX));
    let config = Config { cases, max_shrink_iters: 1_000, ..Config::default() };
    match try_sequences(config, seed, step, carry_out) {
        Ok(()) => {}
        Err(TestError::Fail(reason, steps)) => {
            let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
            panic!("the engine differs from the model ({SEED}={seed}) at {reason}\nafter\n{}", steps.join("\n"));
        }
        Err(TestError::Abort(reason)) => panic!("no comparison was made ({SEED}={seed}): {reason}"),
    }
}

/// Tries the same sequences every time, and looks for no shorter one when it has found one.
pub(crate) fn is_there_a_difference<S: Strategy>(
    step: S,
    cases: u32,
    carry_out: impl Fn(&[S::Value]) -> Result<(), String>,
) -> bool {
    let config = Config { cases, max_shrink_iters: 0, ..Config::default() };
    matches!(try_sequences(config, SAME_EVERY_TIME, step, carry_out), Err(TestError::Fail(..)))
}

fn try_sequences<S: Strategy>(
    config: Config,
    seed: u64,
    step: S,
    carry_out: impl Fn(&[S::Value]) -> Result<(), String>,
) -> Result<(), TestError<Vec<S::Value>>> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let config = Config { failure_persistence: None, ..config };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let sequences = prop::collection::vec(step, 1..50);
    runner.run(&sequences, |steps| carry_out(&steps).map_err(TestCaseError::fail))
}
