//! Does an engine answer as the model does, whatever it is asked about jobs and rules?
//!
//! As [`crate::random`], for the third part of the port: three handlers, two objects, few keys and priorities, workers that
//! are slow or frozen, rules that come and go, and a clock that steps forward and back. After each step every answer and
//! all that can be seen of jobs and rules is compared. What engines are free in is taken out of it: a job is told by the
//! order in which it was sent, a turn by its rank among all turns, a version by whether it has counted up.

mod carry_out;
mod draws;
mod look;

use crate::factory::Factory;
use crate::model::ModelFactory;
use crate::random::{is_there_a_difference, look_for_a_difference};
use crate::suite::block_on;
use carry_out::Side;
use ensue_core::clock::ManualClock;
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::Steer;
use ensue_core::rules::RuleKind;

const HANDLERS: [&str; 4] = ["a", "a.b", "B", "task.s.c"];
const OBJECTS: [&str; 2] = ["o", "ü"];
const PRIORITIES: [u64; 4] = [0, 1 << 63, u64::MAX - 1, u64::MAX];
const SCOPES: [&str; 5] = ["handler:a", "handler:a.b", "object:o", "object:ü", "schedule:a"];
/// Some end at a time that the clock shows.
const LEASES_SECS: [i64; 3] = [5, 31, 300];

/// A job to send.
#[derive(Debug, Clone)]
struct JobDraft {
    handler: usize,
    object: Option<usize>,
    ordered: bool,
    priority: usize,
    delay_secs: Option<i64>,
    key: Option<u8>,
    on_exhausted: OnExhausted,
    /// One that no engine should keep.
    is_bad: bool,
}

/// An event to publish.
#[derive(Debug, Clone)]
struct EventDraft {
    topic: u8,
    object: Option<usize>,
    key: Option<u8>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy)]
enum EndDraft {
    Succeeded,
    Retry {
        secs: i64,
    },
    Dead,
    Snoozed {
        secs: i64,
    },
    CalledOff,
    GivenBack,
    /// Somebody takes its worker for vanished.
    Lapsed {
        again: bool,
    },
}

/// A change to settle.
#[derive(Debug, Clone)]
struct Draw {
    /// Under the claim that was given so many before the newest one.
    claim_before: usize,
    /// Under a fence that is not that claim's.
    is_forged: bool,
    end: EndDraft,
    lines: u8,
    events: Vec<EventDraft>,
    jobs: Vec<JobDraft>,
}

/// One call, or a change of what is around the store.
#[derive(Debug, Clone)]
enum Step {
    Send(Vec<JobDraft>),
    Claim {
        handlers: Vec<(usize, usize)>,
        limit: usize,
        lease: usize,
    },
    Renew {
        claims_before: Vec<usize>,
        lease: usize,
    },
    Settle(Vec<Draw>),
    Say {
        claim_before: usize,
        lines: u8,
    },
    Progress {
        claim_before: usize,
        done: u64,
    },
    /// What is found to have expired is settled, or left for later.
    Wake {
        limit: usize,
        settles: bool,
    },
    /// By the order in which jobs were sent; beyond them: one that nobody was given.
    Steer {
        nths: Vec<usize>,
        steer: Steer,
    },
    SetRule {
        kind: RuleKind,
        scope: usize,
        expires_secs: Option<i64>,
    },
    LiftRule {
        kind: RuleKind,
        scope: usize,
    },
    /// A process comes.
    Join {
        lease: usize,
    },
    /// It has seen the version that was there so many changes ago.
    Report {
        nth: usize,
        before: usize,
    },
    Serve {
        handlers: Vec<usize>,
        lease: usize,
    },
    Purge {
        before_secs: i64,
        keep: u64,
        limit: usize,
    },
    /// What expires with that is swept away.
    Advance {
        seconds: i64,
    },
    Reopen,
}

/// Carries the steps out on both sides; the first difference is an error.
async fn run(factory: &dyn Factory, steps: &[Step]) -> Result<(), String> {
    let clock = ManualClock::at_noon();
    let mut model = Side::new(&ModelFactory, &clock).await;
    let mut engine = Side::new(factory, &clock).await;
    let mut verdict = Ok(());
    for (index, step) in steps.iter().enumerate() {
        if let Step::Advance { seconds } = step {
            clock.advance_millis(*seconds * 1_000);
        }
        let expected = model.carry_out(step, index).await.expect("the model does not fail");
        let answer = engine.carry_out(step, index).await;
        if answer.as_ref() != Ok(&expected) {
            verdict = Err(format!("step {index}, {step:?}:\n  model:  {expected:?}\n  engine: {answer:?}"));
            break;
        }
        let closely = index % 8 == 7 || index + 1 == steps.len();
        let expected = model.look(closely).await.expect("the model does not fail");
        let seen = engine.look(closely).await;
        if seen.as_ref() != Ok(&expected) {
            verdict =
                Err(format!("what is seen after step {index}, {step:?}:\n  model:  {expected:?}\n  engine: {seen:?}"));
            break;
        }
    }
    engine.store.close().await;
    verdict
}

/// Compares an engine with the model on so many random sequences of calls about jobs and rules.
///
/// # Panics
/// Where they differ, with the shortest sequence found and the seed that repeats the run.
pub fn compare(factory: &dyn Factory, cases: u32) {
    look_for_a_difference(draws::step(), cases, |steps| block_on(run(factory, steps)));
}

/// Does the engine differ from the model on any of so many sequences of calls, the same ones every time?
pub fn differs(factory: &dyn Factory, cases: u32) -> bool {
    is_there_a_difference(draws::step(), cases, |steps| block_on(run(factory, steps)))
}
