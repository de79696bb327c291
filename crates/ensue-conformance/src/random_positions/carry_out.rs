//! How is a step carried out, and what did it answer?

use super::{
    DeliveryDraft, Draft, Draw, EXPIRIES_MILLIS, LEASES_MILLIS, LaneDraft, MEMBERS, OBJECTS, SLOTS, Step, group_name,
    member_of,
};
use crate::factory::{Factory, Place};
use crate::suite::checked;
use ensue_core::clock::{Clock, ManualClock};
use ensue_core::definitions::NewDefinition;
use ensue_core::positions::{
    Acquire, Acquired, Delivery, DeliveryState, Fence, GroupKind, Lane, LaneChange, LaneKey, LaneQuery, LaneRow, Level,
    LogLine, Lost, Member, NewGroup, NewSubscription, Owner, Park, Settled, SlotChange, SlotNumber, SubscriptionState,
};
use ensue_core::retention::Bounds;
use ensue_core::store::{Read, SharedStore};
use ensue_core::{Appended, Filter, GroupName, Json, NewEvent, ObjectKey, Seq, StoreError, Timestamp, Topic};
use jiff::SignedDuration;
use std::collections::HashMap;
use uuid::Uuid;

/// A slot that was given to somebody.
#[derive(Debug, Clone)]
struct Claim {
    group: GroupName,
    slot: SlotNumber,
    fence: Fence,
    member: Uuid,
}

/// What a step answered. A subscription is told by the order in which it was made, a fence by that in which it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Appended(Vec<(Option<Seq>, Option<Seq>, bool)>),
    Bounds(Bounds),
    Created { cursor: Seq, slots: usize, is_new: bool },
    Moved(Option<Seq>),
    Defined { nth: Option<usize>, revision: u64, is_new: bool },
    Subscribed { nth: Option<usize>, is_new: bool },
    Touched(Option<(usize, Timestamp)>),
    Followed(Followed),
    Acquired { slots: Vec<Given>, held_by: Option<Owner> },
    NoSuchGroup,
    Renewed { renewed: Option<(Option<bool>, Vec<Member>)>, pulse: Option<ToldByPulse> },
    Settled(Vec<Told>),
    Asked(Option<LaneRow>),
    Count(usize),
    Was(bool),
    Nothing,
    Conflict,
    Invalid,
    KeyConflict(String),
}

/// Subscriptions by the order in which they were made; none for one that nobody made.
type Nths = Vec<Option<usize>>;

/// What came of taking over what has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Followed {
    /// What is said to have changed, if that is known: those that are there, and those that are gone.
    told: Option<(Nths, Nths)>,
    /// Those that are there and that who takes over does not know, or knows otherwise.
    missed: Nths,
    /// Those that are not there, that stay until somebody takes them out, and that it still knows.
    kept: Nths,
}

/// The subscriptions of a group at a version, as who takes over what changes knows them.
#[derive(Debug, Clone, Default)]
struct Taken {
    version: u64,
    known: HashMap<Uuid, SubscriptionState>,
}

/// Where the log ends, is the event there, what is due, and what time is it?
type ToldByPulse = (Seq, bool, Option<Timestamp>, Timestamp);

/// A slot that somebody has, and when it was given to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    slot: SlotNumber,
    nth: usize,
    cursor: Seq,
    vanished: u32,
}

/// What came of one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    Done(Vec<(Option<Seq>, Option<Seq>, bool)>),
    FenceLost,
    WentBack,
    Refused(StoreError),
}

/// One of the two stores, and what it gave out.
pub(super) struct Side {
    place: Box<dyn Place>,
    clock: Clock,
    start: Timestamp,
    pub store: SharedStore,
    subscriptions: Vec<Uuid>,
    claims: Vec<Claim>,
    member_versions: HashMap<Uuid, u64>,
    pub group_versions: HashMap<GroupName, u64>,
    taken: HashMap<GroupName, Taken>,
}

fn placed(appended: &[Appended]) -> Vec<(Option<Seq>, Option<Seq>, bool)> {
    appended.iter().map(|one| (one.seq, one.prev, one.repeated)).collect()
}

fn events(drafts: &[Draft]) -> Vec<ensue_core::Entry> {
    let event = |draft: &Draft| {
        let mut event = NewEvent::new(format!("t{}", draft.topic));
        if let Some(object) = draft.object {
            event = event.object(OBJECTS[object]);
        }
        draft.key.map_or(event.clone(), |key| event.key(format!("k{key}")))
    };
    if drafts.is_empty() { Vec::new() } else { checked(drafts.iter().map(event).collect()) }
}

/// The lane of that index.
pub(super) fn lane_key(lane: usize) -> LaneKey {
    match OBJECTS.get(lane) {
        Some(object) => LaneKey::Object(ObjectKey::stored(object)),
        None => LaneKey::Event((lane - OBJECTS.len()) as Seq * 7 + 3),
    }
}

impl Side {
    pub async fn new(factory: &dyn Factory, clock: &ManualClock) -> Self {
        let place = factory.make().await;
        let store = place.open(clock.clock()).await;
        Self {
            place,
            clock: clock.clock(),
            start: clock.now(),
            store,
            subscriptions: Vec::new(),
            claims: Vec::new(),
            member_versions: HashMap::new(),
            group_versions: HashMap::new(),
            taken: HashMap::new(),
        }
    }

    /// Takes over what has changed of a group's subscriptions, or all of them, and compares that with what is there.
    async fn follow(&mut self, group: &GroupName) -> Result<Answer, StoreError> {
        let Some(state) = self.store.group(group).await? else { return Ok(Answer::NoSuchGroup) };
        let there = self.store.subscriptions(group, None, 1_000).await?;
        let before = self.taken.remove(group);
        let changes = match &before {
            Some(before) => self.store.subscription_changes(group, before.version, 1_000).await?,
            None => None,
        };
        let nths = |ids: Vec<Uuid>| {
            let mut nths: Vec<_> = ids.into_iter().map(|id| self.nth_subscription(id)).collect();
            nths.sort_unstable();
            nths
        };
        let told = changes
            .as_ref()
            .map(|changes| (nths(changes.there.iter().map(|one| one.id).collect()), nths(changes.gone.clone())));
        let all = || Taken { version: state.version, known: there.iter().map(|one| (one.id, one.clone())).collect() };
        let taken = match (before, changes) {
            (Some(mut taken), Some(changes)) => {
                assert_eq!(changes.version, state.version, "it leads to the version that is");
                changes.gone.iter().for_each(|id| drop(taken.known.remove(id)));
                taken.known.extend(changes.there.into_iter().map(|one| (one.id, one)));
                Taken { version: changes.version, ..taken }
            }
            _ => all(),
        };
        let is_known = |one: &&SubscriptionState| {
            taken.known.get(&one.id).is_some_and(|known| {
                // A touch is no change.
                SubscriptionState { touched_at: one.touched_at, ..known.clone() } == **one
            })
        };
        let missed = there.iter().filter(|one| !is_known(one)).map(|one| self.nth_subscription(one.id)).collect();
        let is_there = |id: Uuid| there.iter().any(|one| one.id == id);
        // What expires is not there any more before it goes.
        let stays = taken.known.values().filter(|one| one.expires_in.is_none());
        let kept = stays.filter(|one| !is_there(one.id)).map(|one| self.nth_subscription(one.id)).collect();
        self.taken.insert(group.clone(), taken);
        Ok(Answer::Followed(Followed { told, missed, kept }))
    }

    /// From now on nothing is said about whether this member's version has counted up.
    pub fn forget_version(&mut self, member: usize) {
        self.member_versions.remove(&member_of(member).id);
    }

    pub fn nth_subscription(&self, id: Uuid) -> Option<usize> {
        self.subscriptions.iter().position(|known| *known == id)
    }

    /// When was this fence given?
    pub fn nth_claim(&self, group: &GroupName, slot: SlotNumber, fence: Fence) -> Option<usize> {
        let is_it = |claim: &Claim| claim.group == *group && claim.slot == slot && claim.fence == fence;
        self.claims.iter().position(is_it)
    }

    fn claim_before(&self, before: usize) -> Option<&Claim> {
        self.claims.iter().rev().nth(before)
    }

    /// The fence that was given so many before the newest one of a group; one that nobody was given if there is none.
    fn fence_before(&self, group: &GroupName, before: usize) -> Fence {
        let of_group = self.claims.iter().rev().filter(|claim| claim.group == *group);
        of_group.map(|claim| claim.fence).nth(before).unwrap_or(1_000_000)
    }

    fn subscription(&self, nth: usize) -> Uuid {
        self.subscriptions.get(nth).copied().unwrap_or(Uuid::from_u128(0xABCD))
    }

    fn acquired(&mut self, group: &GroupName, member: Uuid, acquired: Acquired) -> Answer {
        for slot in &acquired.slots {
            if self.nth_claim(group, slot.slot, slot.fence).is_none() {
                let former = self.claims.iter().filter(|claim| claim.group == *group && claim.slot == slot.slot);
                assert!(former.map(|claim| claim.fence).max() < Some(slot.fence), "a fence went back: {acquired:?}");
                self.claims.push(Claim { group: group.clone(), slot: slot.slot, fence: slot.fence, member });
            }
        }
        let told = acquired.slots.iter().map(|slot| {
            let nth = self.nth_claim(group, slot.slot, slot.fence).expect("it was noted above");
            Given { slot: slot.slot, nth, cursor: slot.cursor, vanished: slot.vanished }
        });
        Answer::Acquired { slots: told.collect(), held_by: acquired.held_by }
    }

    fn change(&self, draw: &Draw, last: Seq, unique: i64) -> SlotChange {
        let nobody = Claim { group: group_name(0), slot: 0, fence: 1_000_000, member: member_of(0).id };
        let claim = self.claim_before(draw.claim_before).unwrap_or(&nobody);
        let member = draw.as_member.map_or(claim.member, |member| member_of(member).id);
        let delivery = |(n, draft): (usize, &DeliveryDraft)| {
            let at = self.start + SignedDuration::from_secs(draft.finished_secs);
            // No two end at the same time: which of those is the older one is nobody's business.
            let finished_at = at + SignedDuration::from_micros(unique * 10 + n as i64);
            Delivery {
                group: claim.group.clone(),
                seq: draft.seq,
                object: None,
                state: DeliveryState::Dead,
                attempts: u32::from(draft.lines),
                error: None,
                started_at: at,
                finished_at,
            }
        };
        let lines = draw.deliveries.iter().flat_map(|draft| {
            let (level, message) = (Level::Info, format!("line of {}", draft.seq));
            let at = self.start + SignedDuration::from_secs(draft.finished_secs);
            let line = LogLine { seq: draft.seq, attempt: 1, at, level, message };
            vec![line; usize::from(draft.lines)]
        });
        // A lane is always in the same slot.
        let lanes = draw.lanes.iter().filter(|draft| draft.lane as u16 % SLOTS == claim.slot);
        SlotChange {
            cursor: draw.cursor.map(|cursor| cursor.min(last)),
            lanes: lanes.map(|draft| self.lane(draft)).collect(),
            deliveries: draw
                .deliveries
                .iter()
                .enumerate()
                .filter(|(_, draft)| draft.is_recorded)
                .map(delivery)
                .collect(),
            lines: lines.collect(),
            events: events(&draw.events),
            lost: draw.lost.map(|to| Lost { from: 1, to }),
            ..SlotChange::new(claim.group.clone(), claim.slot, member, claim.fence)
        }
    }

    fn lane(&self, draft: &LaneDraft) -> LaneChange {
        let key = lane_key(draft.lane);
        let Some(state) = draft.state else { return LaneChange::Remove(key) };
        let attempts = draft.attempts;
        LaneChange::Put(Lane {
            key,
            position: draft.position,
            state,
            attempts,
            not_before: (attempts > 1).then(|| self.start + SignedDuration::from_secs(attempts.into())),
            error: (attempts > 0).then(|| format!("{attempts} failed")),
            redriven: attempts == 3,
        })
    }

    /// The places of the events of a lane that are in the log.
    async fn events_of(&self, key: &LaneKey) -> Result<Vec<Seq>, StoreError> {
        let filter = match key {
            LaneKey::Object(object) => Filter { topic: None, object: Some(object.clone()) },
            LaneKey::Event(_) => Filter::default(),
        };
        let page = self.store.read(Read { after: 0, limit: 1_000, filter }).await?;
        let is_of_lane = |seq: &Seq| matches!(key, LaneKey::Object(_)) || *key == LaneKey::Event(*seq);
        Ok(page.events.iter().map(|event| event.seq).filter(is_of_lane).collect())
    }

    /// Carries a step out; what a caller may be told is an answer too.
    pub async fn carry_out(&mut self, step: &Step, index: usize) -> Result<Answer, StoreError> {
        match self.try_out(step, index).await {
            Err(StoreError::Conflict(_)) => Ok(Answer::Conflict),
            Err(StoreError::Invalid(_)) => Ok(Answer::Invalid),
            Err(StoreError::KeyConflict { key }) => Ok(Answer::KeyConflict(key)),
            other => other,
        }
    }

    async fn try_out(&mut self, step: &Step, index: usize) -> Result<Answer, StoreError> {
        let lease_of = |lease: usize| SignedDuration::from_millis(LEASES_MILLIS[lease]);
        Ok(match step {
            Step::Append(drafts) => Answer::Appended(placed(&self.store.append(events(drafts)).await?)),
            Step::Trim { keep_from } => Answer::Bounds(self.store.trim(*keep_from, 1_000).await?),
            Step::Create { group, kind, begin } => {
                let start = begin.start();
                let slots = if *kind == GroupKind::Pull { 1 } else { SLOTS };
                let new = NewGroup { name: group_name(*group), kind: *kind, start, slots };
                let (state, is_new) = self.store.create_group(new).await?;
                Answer::Created { cursor: state.cursor(), slots: state.slots.len(), is_new }
            }
            Step::Delete { group } => Answer::Was(self.store.delete_group(&group_name(*group)).await?),
            Step::Define { group, begin, wants, settings } => {
                let NewSubscription { group: key, topic, condition, params, .. } = wanted(*group, *wants, 0);
                let (start, slots, settings) = (begin.start(), SLOTS, Json::stored(format!("[{settings}]")));
                let new = NewDefinition { key, start, slots, topic, condition, params, settings, by: None };
                let (one, is_new) = self.store.define(new).await?;
                if self.nth_subscription(one.subscription).is_none() {
                    self.subscriptions.push(one.subscription);
                }
                Answer::Defined { nth: self.nth_subscription(one.subscription), revision: one.revision, is_new }
            }
            Step::Undefine { group } => Answer::Was(self.store.undefine(&group_name(*group)).await?),
            Step::Seek { group, to } => {
                Answer::Moved(self.store.seek(&group_name(*group), *to).await?.map(|state| state.cursor()))
            }
            Step::Replay { group, after, places } => {
                let moved = self.store.replay(&group_name(*group), *after, after + places).await?;
                Answer::Moved(moved.map(|state| state.cursor()))
            }
            Step::Subscribe { group, wants, expiry } => {
                let (one, is_new) = self.store.subscribe(wanted(*group, *wants, *expiry)).await?;
                if is_new {
                    assert_eq!(self.nth_subscription(one.id), None, "an id was given twice");
                    self.subscriptions.push(one.id);
                }
                Answer::Subscribed { nth: self.nth_subscription(one.id), is_new }
            }
            Step::Unsubscribe { group, nth } => {
                Answer::Was(self.store.unsubscribe(&group_name(*group), self.subscription(*nth)).await?)
            }
            Step::Touch { group, nth } => {
                let touched = self.store.touch(&group_name(*group), self.subscription(*nth)).await?;
                Answer::Touched(touched.map(|one: SubscriptionState| (*nth, one.touched_at)))
            }
            Step::Follow { group } => self.follow(&group_name(*group)).await?,
            Step::Acquire { group, member, lease, slots, go_on_before } => {
                let (group, member) = (group_name(*group), member_of(*member));
                let go_on = go_on_before.map(|before| self.fence_before(&group, before));
                let (id, slots, lease) = (member.id, slots.clone(), lease_of(*lease));
                let acquire = Acquire { group: group.clone(), member, lease, slots, go_on };
                match self.store.acquire(acquire).await? {
                    Some(acquired) => self.acquired(&group, id, acquired),
                    None => Answer::NoSuchGroup,
                }
            }
            Step::Renew { member, lease, with_pulse } => {
                let (member, lease) = (member_of(*member), lease_of(*lease));
                let (renewed, pulse) = match with_pulse {
                    true => {
                        let pulse = self.store.pulse(Some((member.id, lease))).await?;
                        let told = (pulse.last, pulse.newest.is_some(), pulse.next_due, pulse.now);
                        (pulse.renewed, Some(told))
                    }
                    false => (self.store.renew(member.id, lease).await?, None),
                };
                let renewed = renewed.map(|renewed| {
                    let before = self.member_versions.insert(member.id, renewed.version);
                    (before.map(|before| renewed.version > before), renewed.members)
                });
                Answer::Renewed { renewed, pulse }
            }
            Step::Serve { member, lease, groups } => {
                let groups = groups.iter().map(|group| group_name(*group)).collect();
                self.store.serve(member_of(*member), lease_of(*lease), groups).await?;
                Answer::Nothing
            }
            Step::Release { member, group, slots } => {
                self.store.release(member_of(*member).id, &group_name(*group), slots).await?;
                Answer::Nothing
            }
            Step::Leave { member } => {
                self.forget_version(*member);
                self.store.leave(member_of(*member).id).await?;
                Answer::Nothing
            }
            Step::Settle(draws) => {
                let last = self.store.bounds().await?.last;
                let unique = |n: usize| index as i64 * 10 + n as i64;
                let changes = draws.iter().enumerate().map(|(n, draw)| self.change(draw, last, unique(n))).collect();
                let settled = self.store.settle(changes).await?.into_iter().map(|settled| match settled {
                    Settled::Done(appended) => Told::Done(placed(&appended)),
                    Settled::FenceLost => Told::FenceLost,
                    Settled::WentBack => Told::WentBack,
                    Settled::Refused(error) => Told::Refused(error),
                });
                Answer::Settled(settled.collect())
            }
            Step::Ask { group, lane, ask } => {
                Answer::Asked(self.store.ask_lane(&group_name(*group), &lane_key(*lane), *ask).await?)
            }
            Step::Park { group, lane, places, is_late } => {
                let (group, key) = (group_name(*group), lane_key(*lane));
                let row = self.store.lanes(LaneQuery::One(group.clone(), key.clone()), 1).await?.pop();
                let from = row.as_ref().and_then(|row| row.parked_to);
                let begin = row.map_or(0, |row| row.needs_from());
                let to = begin + places;
                let mut events = self.events_of(&key).await?;
                // One that retention has taken is wanted all the same: then nothing is parked.
                if places % 5 == 4 && !events.contains(&begin) {
                    events.insert(0, begin);
                }
                let seqs = events.into_iter().filter(|seq| (begin..to).contains(seq)).collect();
                let from = if *is_late { from.map_or(Some(3), |from| Some(from + 1)) } else { from };
                Answer::Count(self.store.park(vec![Park { group, key, from, to, seqs }]).await?)
            }
            Step::Purge { before_secs, keep, limit } => {
                let before = self.start + SignedDuration::from_secs(*before_secs);
                Answer::Count(self.store.purge_deliveries(before, *keep, *limit).await?)
            }
            Step::Advance { sweeps: true, .. } => Answer::Count(self.store.expire_subscriptions(1_000).await?),
            Step::Advance { sweeps: false, .. } => Answer::Nothing,
            Step::Reopen => {
                for member in 0..MEMBERS / 2 {
                    self.store.leave(member_of(member).id).await?;
                    self.forget_version(member);
                }
                self.store.close().await;
                self.store = self.place.open(self.clock.clone()).await;
                Answer::Nothing
            }
        })
    }
}

/// One of the subscriptions that somebody may want.
fn wanted(group: usize, wants: usize, expiry: usize) -> NewSubscription {
    let params = [r#"{"a":1,"b":2}"#, r#"{"b":2.0,"a":1}"#, r#"{"a":1,"b":3}"#, "null"][wants];
    NewSubscription {
        group: group_name(group),
        topic: (wants < 3).then(|| Topic::stored("t0")),
        condition: (wants < 2).then(|| "true".into()),
        params: Json::parse("params", params).expect("params in JSON"),
        expires_in: EXPIRIES_MILLIS[expiry].map(SignedDuration::from_millis),
    }
}
