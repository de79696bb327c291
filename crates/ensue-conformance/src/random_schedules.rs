//! Does an engine answer as the model does, whatever it is asked about schedules?
//!
//! As [`crate::random`], for the sixth part of the port: three names, decisions about what is there and about what was, events and
//! jobs that overlap, rules that come and go, processes that declare. A job is told by the order in which it was sent, a version by
//! the order in which it was given.

use crate::factory::{Factory, Place};
use crate::model::ModelFactory;
use crate::random::{is_there_a_difference, look_for_a_difference};
use crate::suite::block_on;
use ensue_core::clock::{Clock, ManualClock};
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::{JobId, NewJob, Steer};
use ensue_core::rules::{NewRule, RuleKind, Scope};
use ensue_core::schedules::{Declared, Fired, Firing, Kept, Makes, Moves, NewRun, PutSchedule, Run, RunOutcome, What};
use ensue_core::store::SharedStore;
use ensue_core::{GroupName, Json, NewEvent, ObjectKey, StoreError, Timestamp};
use jiff::SignedDuration;
use proptest::prelude::*;
use uuid::Uuid;

const NAMES: [&str; 3] = ["a", "a.b", "ü"];

/// What an occurrence makes.
#[derive(Debug, Clone, Copy)]
enum Made {
    Event,
    Unique,
    InLane,
    Beside,
    Nothing,
    /// One that no engine should keep.
    Bad,
}

/// What somebody decides about a schedule.
#[derive(Debug, Clone)]
struct Decision {
    name: usize,
    /// From what was there so many changes ago.
    before: usize,
    by_hand: bool,
    step_secs: i64,
    due_secs: Option<i64>,
    runs: Vec<Made>,
}

/// One call, or a change of what is around the store.
#[derive(Debug, Clone)]
enum Step {
    Put {
        name: usize,
        before: usize,
        is_new: bool,
        due_secs: Option<i64>,
        managed: bool,
    },
    Delete {
        name: usize,
    },
    Fire(Vec<Decision>),
    SetRule {
        kind: RuleKind,
        name: usize,
    },
    LiftRule {
        kind: RuleKind,
        name: usize,
    },
    /// The job that was sent so many before the newest one is called off.
    Cancel {
        before: usize,
    },
    Declare {
        process: u8,
        names: Vec<usize>,
        lease_secs: i64,
    },
    Undeclare {
        process: u8,
    },
    Advance {
        seconds: i64,
    },
    Reopen,
}

fn decision() -> impl Strategy<Value = Decision> {
    let made = prop_oneof![
        4 => Just(Made::Event), 4 => Just(Made::Unique), 2 => Just(Made::InLane), 1 => Just(Made::Beside),
        2 => Just(Made::Nothing), 1 => Just(Made::Bad),
    ];
    let fields = (
        0..NAMES.len(),
        prop_oneof![5 => Just(0usize), 1 => 1..3usize],
        prop::bool::weighted(0.2),
        0..90i64,
        prop::option::weighted(0.8, -10..90i64),
        prop::collection::vec(made, 0..3),
    );
    fields.prop_map(|(name, before, by_hand, step_secs, due_secs, runs)| Decision {
        name,
        before,
        by_hand,
        step_secs,
        due_secs,
        runs,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let kind = || prop_oneof![Just(RuleKind::Pause), Just(RuleKind::Block)];
    let name = || 0..NAMES.len();
    prop_oneof![
        6 => (name(), 0..3usize, prop::bool::weighted(0.4), prop::option::weighted(0.8, -10..90i64), any::<bool>())
            .prop_map(|(name, before, is_new, due_secs, managed)| Step::Put { name, before, is_new, due_secs, managed }),
        1 => name().prop_map(|name| Step::Delete { name }),
        8 => prop::collection::vec(decision(), 1..4).prop_map(Step::Fire),
        2 => (kind(), name()).prop_map(|(kind, name)| Step::SetRule { kind, name }),
        2 => (kind(), name()).prop_map(|(kind, name)| Step::LiftRule { kind, name }),
        2 => (0..3usize).prop_map(|before| Step::Cancel { before }),
        2 => (0..2u8, prop::collection::vec(name(), 0..3), prop::sample::select(vec![5, 60]))
            .prop_map(|(process, names, lease_secs)| Step::Declare { process, names, lease_secs }),
        1 => (0..2u8).prop_map(|process| Step::Undeclare { process }),
        4 => (-5..40i64).prop_map(|seconds| Step::Advance { seconds }),
        1 => Just(Step::Reopen),
    ]
}

/// A run with its job told by the order in which it was sent.
type SeenRun = (u64, Timestamp, Timestamp, bool, String);

/// What a step answered.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Kept(Option<Kept>),
    Was(bool),
    Fired(Vec<Option<Result<Vec<SeenRun>, bool>>>),
    Declared(Declared),
    Nothing,
    Invalid,
}

/// What is seen of schedules.
#[derive(Debug, PartialEq, Eq)]
struct Look {
    all: Vec<Kept>,
    due: Vec<String>,
    next: Option<Timestamp>,
    runs: Vec<Vec<SeenRun>>,
    last: u64,
}

/// One of the two stores, and what it gave out.
struct Side {
    place: Box<dyn Place>,
    clock: Clock,
    store: SharedStore,
    /// Each name as it was after each change, the newest last.
    known: [Vec<Kept>; 3],
    jobs: Vec<JobId>,
}

fn name(index: usize) -> GroupName {
    GroupName::stored(NAMES[index])
}

impl Side {
    async fn new(factory: &dyn Factory, clock: &ManualClock) -> Self {
        let place = factory.make().await;
        let store = place.open(clock.clock()).await;
        Self { place, clock: clock.clock(), store, known: Default::default(), jobs: Vec::new() }
    }

    fn seen(&mut self, run: &Run) -> SeenRun {
        let mut nth = |id: &JobId| match self.jobs.iter().position(|known| known == id) {
            Some(nth) => nth,
            None => {
                self.jobs.push(*id);
                self.jobs.len() - 1
            }
        };
        let outcome = match &run.outcome {
            RunOutcome::Event(seq) => format!("event {seq}"),
            RunOutcome::Job(id) => format!("job {}", nth(id)),
            RunOutcome::Overlapped(id) => format!("overlapped {}", nth(id)),
            RunOutcome::Skipped(reason) => reason.clone(),
        };
        (run.number, run.occurrence, run.at, run.manual, outcome)
    }

    fn before(&self, index: usize, before: usize) -> Option<&Kept> {
        self.known[index].len().checked_sub(before + 1).map(|place| &self.known[index][place])
    }

    async fn remember(&mut self) -> Result<(), StoreError> {
        for index in 0..NAMES.len() {
            let kept = self.store.schedule(&name(index)).await?;
            if let Some(kept) = kept.filter(|kept| self.known[index].last() != Some(kept)) {
                self.known[index].push(kept);
            }
        }
        Ok(())
    }

    fn firing(&self, decision: &Decision, now: Timestamp) -> Firing {
        let known = self.before(decision.name, decision.before);
        let (version, from) = known.map_or((77, now), |kept| (kept.version, kept.watermark));
        let due = decision.due_secs.map(|secs| now + SignedDuration::from_secs(secs));
        let moves = Moves { from, to: from + SignedDuration::from_secs(decision.step_secs), due };
        let key = format!("schedule:{}", NAMES[decision.name]);
        let job = || NewJob { on_exhausted: OnExhausted::Skip, ..NewJob::new(GroupName::stored("h")) };
        let run = |made: &Made| {
            let what = match made {
                Made::Event => What::Fires(Makes::Event(NewEvent::new("tick").object(&key).check().expect("an event"))),
                Made::Unique => What::Fires(Makes::Job(NewJob { unique_key: Some(key.clone()), ..job() })),
                Made::InLane => What::Fires(Makes::Job(NewJob { object: Some(ObjectKey::stored(&key)), ..job() })),
                Made::Beside => What::Fires(Makes::Job(job())),
                Made::Bad => What::Fires(Makes::Job(NewJob { attempts_max: 0, ..job() })),
                Made::Nothing => What::Skipped("missed".into()),
            };
            NewRun { occurrence: moves.to, manual: decision.by_hand, what }
        };
        let runs = decision.runs.iter().map(run).collect();
        Firing { name: name(decision.name), version, moves: (!decision.by_hand).then_some(moves), runs }
    }

    async fn carry_out(&mut self, step: &Step) -> Result<Answer, StoreError> {
        let now = (self.clock)();
        let answer = match step {
            Step::Put { name: index, before, is_new, due_secs, managed } => {
                let over = self.before(*index, *before).filter(|_| !is_new).map(|kept| (kept.version, kept.watermark));
                let put = PutSchedule {
                    name: name(*index),
                    definition: Json::stored(format!("{{\"n\":{before}}}")),
                    managed_by: managed.then(|| "config".into()),
                    over,
                    watermark: now,
                    due: due_secs.map(|secs| now + SignedDuration::from_secs(secs)),
                };
                Answer::Kept(self.store.put_schedule(put).await?)
            }
            Step::Delete { name: index } => Answer::Was(self.store.delete_schedule(&name(*index)).await?),
            Step::Fire(decisions) => {
                let firings = decisions.iter().map(|decision| self.firing(decision, now)).collect();
                match self.store.fire(firings).await {
                    Err(StoreError::Invalid(_)) => Answer::Invalid,
                    Err(error) => return Err(error),
                    Ok(fired) => Answer::Fired(
                        fired
                            .iter()
                            .map(|fired| match fired {
                                Fired::Done(runs) => Some(Ok(runs.iter().map(|run| self.seen(run)).collect())),
                                Fired::Held => Some(Err(true)),
                                Fired::Lost => None,
                            })
                            .collect(),
                    ),
                }
            }
            Step::SetRule { kind, name: index } => {
                let scope = Scope::Schedule(name(*index));
                let rule = NewRule { kind: *kind, scope, reason: None, author: "me".into(), expires_at: None };
                Answer::Was(self.store.set_rule(rule).await?.1)
            }
            Step::LiftRule { kind, name: index } => {
                let lifted = self.store.lift_rule(*kind, &Scope::Schedule(name(*index)), "me").await?;
                Answer::Was(lifted.is_some())
            }
            Step::Cancel { before } => {
                if let Some(place) = self.jobs.len().checked_sub(before + 1) {
                    self.store.steer(&[self.jobs[place]], Steer::Cancel).await?;
                }
                Answer::Nothing
            }
            Step::Declare { process, names, lease_secs } => {
                let names: Vec<GroupName> = names.iter().map(|index| name(*index)).collect();
                let (process, lease) = (Uuid::from_u128(u128::from(*process)), SignedDuration::from_secs(*lease_secs));
                Answer::Declared(self.store.declare_schedules(process, &names, lease).await?)
            }
            Step::Undeclare { process } => {
                self.store.undeclare_schedules(Uuid::from_u128(u128::from(*process))).await?;
                Answer::Nothing
            }
            Step::Advance { .. } => Answer::Nothing,
            Step::Reopen => {
                self.store.close().await;
                self.store = self.place.open(self.clock.clone()).await;
                Answer::Nothing
            }
        };
        self.remember().await?;
        Ok(answer)
    }

    async fn look(&mut self) -> Result<Look, StoreError> {
        let now = (self.clock)();
        let mut runs = Vec::new();
        for index in 0..NAMES.len() {
            let of_one = self.store.schedule_runs(&name(index), None, 20).await?;
            runs.push(of_one.iter().map(|run| self.seen(run)).collect());
        }
        let due = self.store.due_schedules(now, 10).await?;
        let next = self.store.next_schedule().await?;
        assert_eq!(self.store.pulse(None).await?.schedules_due, next, "the pulse tells the same");
        Ok(Look {
            all: self.store.schedules(None, 10).await?,
            due: due.iter().map(|kept| kept.name.to_string()).collect(),
            next,
            runs,
            last: self.store.bounds().await?.last,
        })
    }
}

/// Carries the steps out on both sides; the first difference is an error.
async fn run(factory: &dyn Factory, steps: &[Step]) -> Result<(), String> {
    let clock = ManualClock::at_noon();
    let (mut model, mut engine) = (Side::new(&ModelFactory, &clock).await, Side::new(factory, &clock).await);
    let mut verdict = Ok(());
    for (index, step) in steps.iter().enumerate() {
        if let Step::Advance { seconds } = step {
            clock.advance_millis(*seconds * 1_000);
        }
        let expected = model.carry_out(step).await.expect("the model does not fail");
        let answer = engine.carry_out(step).await;
        if answer.as_ref() != Ok(&expected) {
            verdict = Err(format!("step {index}, {step:?}:\n  model:  {expected:?}\n  engine: {answer:?}"));
            break;
        }
        let (expected, seen) = (model.look().await.expect("the model does not fail"), engine.look().await);
        if seen.as_ref() != Ok(&expected) {
            verdict =
                Err(format!("what is seen after step {index}, {step:?}:\n  model:  {expected:?}\n  engine: {seen:?}"));
            break;
        }
    }
    engine.store.close().await;
    verdict
}

/// Compares an engine with the model on so many random sequences of calls about schedules.
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
