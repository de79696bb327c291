//! Does an engine answer as the model does, whatever it is asked about groups?
//!
//! As [`crate::random`], for the second half of the port: three groups, four members, five objects, and a clock that
//! steps forward and back. After each step every answer and all that can be seen of groups is compared. What engines are
//! free in is taken out of it: ids of subscriptions and fences are told by the order in which they were given, versions
//! by whether they have counted up.

mod carry_out;
mod look;

use crate::factory::Factory;
use crate::model::ModelFactory;
use crate::random::{is_there_a_difference, look_for_a_difference};
use crate::suite::block_on;
use carry_out::Side;
use ensue_core::clock::ManualClock;
use ensue_core::positions::subscription::expires_at;
use ensue_core::positions::{Ask, GroupKind, LaneState, Member, Start};
use ensue_core::store::SharedStore;
use ensue_core::{GroupName, Seq, StoreError};
use jiff::SignedDuration;
use proptest::prelude::*;
use uuid::Uuid;

const GROUPS: [&str; 3] = ["a", "B", "a.b"];
const OBJECTS: [&str; 5] = ["o", "p", "O", "o.p", "ü"];
/// How many lanes may be of one group: those of the objects, then those of single events.
const LANES: usize = OBJECTS.len() + 4;
/// How many slots a handler's group has.
const SLOTS: u16 = 3;
/// The members: two processes, then two readers.
const MEMBERS: usize = 4;
/// Deliveries are of the first so many events.
const DELIVERED: Seq = 5;
/// Neither a lease nor an expiry, nor their sum, ends at a time that the clock shows: that moment is for the suite.
const LEASES_MILLIS: [i64; 3] = [10_500, 30_500, 300_500];
const EXPIRIES_MILLIS: [Option<i64>; 3] = [None, Some(900_250), Some(2_000_250)];
/// When the clock steps back, engines may take one or the other time for that at which a group was last read. No expiry
/// is decided within this time of it.
const DOUBTFUL: SignedDuration = SignedDuration::from_mins(5);

/// An event to publish.
#[derive(Debug, Clone)]
struct Draft {
    topic: u8,
    object: Option<usize>,
    key: Option<u8>,
}

/// A lane to write, or to remove.
#[derive(Debug, Clone)]
struct LaneDraft {
    lane: usize,
    state: Option<LaneState>,
    position: Seq,
    attempts: u32,
}

/// A delivery to write, with what it said.
#[derive(Debug, Clone)]
struct DeliveryDraft {
    seq: Seq,
    finished_secs: i64,
    lines: u8,
    /// Else only its lines are written.
    is_recorded: bool,
}

/// A change to settle.
#[derive(Debug, Clone)]
struct Draw {
    /// Under the fence that was given so many before the newest one.
    claim_before: usize,
    /// As somebody else than who was given it.
    as_member: Option<usize>,
    cursor: Option<Seq>,
    lanes: Vec<LaneDraft>,
    deliveries: Vec<DeliveryDraft>,
    events: Vec<Draft>,
    lost: Option<Seq>,
}

/// Where a group begins.
#[derive(Debug, Clone, Copy)]
enum Begin {
    Now,
    Beginning,
    After(Seq),
}

impl Begin {
    fn start(self) -> Start {
        match self {
            Self::Now => Start::Now,
            Self::Beginning => Start::Beginning,
            Self::After(seq) => Start::After(seq),
        }
    }
}

/// One call, or a change of what is around the store.
#[derive(Debug, Clone)]
enum Step {
    Append(Vec<Draft>),
    Trim {
        keep_from: Seq,
    },
    Create {
        group: usize,
        kind: GroupKind,
        begin: Begin,
    },
    Delete {
        group: usize,
    },
    /// With one of a few settings, and what it wants.
    Define {
        group: usize,
        begin: Begin,
        wants: usize,
        settings: u8,
    },
    Undefine {
        group: usize,
    },
    Seek {
        group: usize,
        to: Seq,
    },
    Replay {
        group: usize,
        after: Seq,
        places: Seq,
    },
    Subscribe {
        group: usize,
        wants: usize,
        expiry: usize,
    },
    /// By the order in which ids were given; beyond them: one that nobody was given.
    Unsubscribe {
        group: usize,
        nth: usize,
    },
    Touch {
        group: usize,
        nth: usize,
    },
    /// Takes over what has changed of a group's subscriptions since this was done last.
    Follow {
        group: usize,
    },
    Acquire {
        group: usize,
        member: usize,
        lease: usize,
        slots: Vec<u16>,
        go_on_before: Option<usize>,
    },
    /// With a pulse, or by itself.
    Renew {
        member: usize,
        lease: usize,
        with_pulse: bool,
    },
    Serve {
        member: usize,
        lease: usize,
        groups: Vec<usize>,
    },
    Release {
        member: usize,
        group: usize,
        slots: Vec<u16>,
    },
    Leave {
        member: usize,
    },
    Settle(Vec<Draw>),
    Ask {
        group: usize,
        lane: usize,
        ask: Ask,
    },
    /// From where the lane is parked or stands, those of its events that are there, up to so many places further on.
    Park {
        group: usize,
        lane: usize,
        places: Seq,
        /// As if it had been parked otherwise when that was decided.
        is_late: bool,
    },
    Purge {
        before_secs: i64,
        keep: u64,
        limit: usize,
    },
    /// What expires with that is swept away, or left for later.
    Advance {
        seconds: i64,
        sweeps: bool,
    },
    /// The processes leave before: an engine that only one process can open forgets them.
    Reopen,
}

fn draft() -> impl Strategy<Value = Draft> {
    let fields = (0..2u8, prop::option::of(0..OBJECTS.len()), prop::option::weighted(0.4, 0..4u8));
    fields.prop_map(|(topic, object, key)| Draft { topic, object, key })
}

fn lane_draft() -> impl Strategy<Value = LaneDraft> {
    let states = [LaneState::Waiting, LaneState::Held, LaneState::Dead, LaneState::Done];
    let state = prop::option::weighted(0.8, prop::sample::select(states.to_vec()));
    let fields = (0..LANES, state, 1..20u64, 0..4u32);
    fields.prop_map(|(lane, state, position, attempts)| LaneDraft { lane, state, position, attempts })
}

fn draw() -> impl Strategy<Value = Draw> {
    let delivery = (1..=DELIVERED, 0..600i64, 0..3u8, prop::bool::weighted(0.8));
    let delivery = delivery.prop_map(|(seq, finished_secs, lines, is_recorded)| DeliveryDraft {
        seq,
        finished_secs,
        lines,
        is_recorded,
    });
    let fields = (
        prop_oneof![4 => 0..4usize, 1 => 0..30usize],
        prop::option::weighted(0.1, 0..MEMBERS),
        prop::option::weighted(0.6, 0..30u64),
        prop::collection::vec(lane_draft(), 0..4),
        prop::collection::vec(delivery, 0..3),
        prop::collection::vec(draft(), 0..3),
        prop::option::weighted(0.1, 1..9u64),
    );
    fields.prop_map(|(claim_before, as_member, cursor, lanes, deliveries, events, lost)| Draw {
        claim_before,
        as_member,
        cursor,
        lanes,
        deliveries,
        events,
        lost,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let group = || 0..GROUPS.len();
    let member = || 0..MEMBERS;
    let lease = || 0..LEASES_MILLIS.len();
    let slots = || prop::collection::vec(0..SLOTS + 1, 1..3);
    let kind = prop::sample::select(vec![GroupKind::Pull, GroupKind::Handler]);
    let begin = || {
        prop_oneof![
            2 => Just(Begin::Now),
            2 => Just(Begin::Beginning),
            1 => (0..20u64).prop_map(Begin::After)
        ]
    };
    prop_oneof![
        4 => prop::collection::vec(draft(), 1..4).prop_map(Step::Append),
        1 => (0..12u64).prop_map(|keep_from| Step::Trim { keep_from }),
        5 => (group(), kind, begin()).prop_map(|(group, kind, begin)| Step::Create { group, kind, begin }),
        1 => group().prop_map(|group| Step::Delete { group }),
        4 => (group(), begin(), 0..4usize, 0..2u8)
            .prop_map(|(group, begin, wants, settings)| Step::Define { group, begin, wants, settings }),
        1 => group().prop_map(|group| Step::Undefine { group }),
        1 => (group(), 0..20u64).prop_map(|(group, to)| Step::Seek { group, to }),
        2 => (group(), 0..12u64, 0..8u64).prop_map(|(group, after, places)| Step::Replay { group, after, places }),
        4 => (group(), 0..4usize, 0..EXPIRIES_MILLIS.len())
            .prop_map(|(group, wants, expiry)| Step::Subscribe { group, wants, expiry }),
        3 => (group(), 0..8usize).prop_map(|(group, nth)| Step::Unsubscribe { group, nth }),
        1 => (group(), 0..8usize).prop_map(|(group, nth)| Step::Touch { group, nth }),
        4 => group().prop_map(|group| Step::Follow { group }),
        10 => (group(), member(), lease(), prop_oneof![Just(vec![]), slots()], prop::option::weighted(0.2, 0..4usize))
            .prop_map(|(group, member, lease, slots, go_on_before)| {
                Step::Acquire { group, member, lease, slots, go_on_before }
            }),
        4 => (member(), lease(), any::<bool>())
            .prop_map(|(member, lease, with_pulse)| Step::Renew { member, lease, with_pulse }),
        3 => (0..MEMBERS / 2, lease(), prop::collection::vec(group(), 0..4))
            .prop_map(|(member, lease, groups)| Step::Serve { member, lease, groups }),
        2 => (member(), group(), slots()).prop_map(|(member, group, slots)| Step::Release { member, group, slots }),
        1 => member().prop_map(|member| Step::Leave { member }),
        12 => prop::collection::vec(draw(), 1..4).prop_map(Step::Settle),
        3 => (group(), 0..LANES, prop::sample::select(vec![Ask::Retry, Ask::Skip]))
            .prop_map(|(group, lane, ask)| Step::Ask { group, lane, ask }),
        5 => (group(), 0..LANES, 0..9u64, prop::bool::weighted(0.1))
            .prop_map(|(group, lane, places, is_late)| Step::Park { group, lane, places, is_late }),
        1 => (0..700i64, prop_oneof![0..6u64, Just(1_000)], 1..5usize)
            .prop_map(|(before_secs, keep, limit)| Step::Purge { before_secs, keep, limit }),
        7 => (prop_oneof![Just(-5), 1..12i64, Just(31), Just(301), Just(700), Just(1_200)], any::<bool>())
            .prop_map(|(seconds, sweeps)| Step::Advance { seconds, sweeps }),
        1 => Just(Step::Reopen),
    ]
}

fn group_name(index: usize) -> GroupName {
    GroupName::stored(GROUPS[index])
}

fn member_of(index: usize) -> Member {
    let kind = if index < MEMBERS / 2 { GroupKind::Handler } else { GroupKind::Pull };
    Member { id: Uuid::from_u128(7 << (index * 20)), name: format!("member {index}"), kind }
}

/// Does the engine have no reason to remember this member? It has no slot, and its lease has passed.
async fn may_be_forgotten(model: &SharedStore, member: usize, leases: &[Option<jiff::Timestamp>]) -> bool {
    let (groups, now) = (model.groups().await, model.now().await);
    let (groups, now) = (groups.expect("the model does not fail"), now.expect("the model does not fail"));
    let owners = groups.iter().flat_map(|group| &group.slots).filter_map(|slot| slot.owner.as_ref());
    let has_a_slot = owners.into_iter().any(|owner| owner.member.id == member_of(member).id);
    !has_a_slot && leases[member].is_some_and(|until| until < now)
}

/// Is there a subscription of which it may be doubtful whether it has expired?
async fn expiry_is_near(model: &SharedStore) -> Result<bool, StoreError> {
    let now = model.now().await?;
    for group in model.groups().await? {
        for one in model.subscriptions(&group.name, None, 1_000).await? {
            let at = expires_at(one.expires_in, one.touched_at, group.served_at);
            if at.is_some_and(|at| at.duration_since(now) < DOUBTFUL) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Carries the steps out on both sides; the first difference is an error.
async fn run(factory: &dyn Factory, steps: &[Step]) -> Result<(), String> {
    let clock = ManualClock::at_noon();
    let mut model = Side::new(&ModelFactory, &clock).await;
    let mut engine = Side::new(factory, &clock).await;
    let mut leases = vec![None; MEMBERS];
    let mut has_stepped_back = false;
    let mut verdict = Ok(());
    for (index, step) in steps.iter().enumerate() {
        let mut step = step.clone();
        match &mut step {
            Step::Advance { seconds, sweeps } => {
                clock.advance_millis(*seconds * 1_000);
                has_stepped_back |= *seconds < 0;
                // What has expired could live again when the clock steps back, and differently.
                *sweeps |= has_stepped_back;
                while has_stepped_back && expiry_is_near(&model.store).await.expect("the model does not fail") {
                    clock.advance_millis(DOUBTFUL.as_millis() as i64);
                }
            }
            Step::Renew { member, lease, .. }
            | Step::Serve { member, lease, .. }
            | Step::Acquire { member, lease, .. } => {
                if may_be_forgotten(&model.store, *member, &leases).await {
                    let is_renewal = matches!(steps[index], Step::Renew { .. });
                    if is_renewal {
                        continue;
                    }
                    [&mut model, &mut engine].into_iter().for_each(|side| side.forget_version(*member));
                }
                let until = clock.now() + SignedDuration::from_millis(LEASES_MILLIS[*lease]);
                // If it was not renewed, that is no harm: it is only thought to be remembered.
                leases[*member] = leases[*member].max(Some(until));
            }
            _ => {}
        }
        let expected = model.carry_out(&step, index).await.expect("the model does not fail");
        let answer = engine.carry_out(&step, index).await;
        if answer.as_ref() != Ok(&expected) {
            verdict = Err(format!("step {index}, {step:?}:\n  model:  {expected:?}\n  engine: {answer:?}"));
            break;
        }
        let all = step.may_change_deliveries() || index + 1 == steps.len();
        let expected = model.look(all, !has_stepped_back).await.expect("the model does not fail");
        let seen = engine.look(all, !has_stepped_back).await;
        if seen.as_ref() != Ok(&expected) {
            verdict =
                Err(format!("what is seen after step {index}, {step:?}:\n  model:  {expected:?}\n  engine: {seen:?}"));
            break;
        }
    }
    engine.store.close().await;
    verdict
}

impl Step {
    fn may_change_deliveries(&self) -> bool {
        let forgets = matches!(self, Step::Delete { .. } | Step::Undefine { .. } | Step::Purge { .. });
        forgets || matches!(self, Step::Settle(_) | Step::Park { .. } | Step::Reopen)
    }
}

/// Compares an engine with the model on so many random sequences of calls about groups.
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
