//! Who has a slot, for how long, and how does it pass to another?

use super::Subject;
use super::positions::{LEASE, PAST_THE_LEASE_MILLIS, name, object_lane, process, reader, waiting};
use crate::factory::Factory;
use ensue_core::positions::{
    Acquire, Acquired, AcquiredSlot, Ask, Fence, Member, Owner, Settled, SlotChange, SlotNumber, SlotState,
};
use jiff::SignedDuration;

impl Subject {
    async fn go_on(&self, group: &str, member: &Member, fence: Fence) -> Acquired {
        let (member, slots, go_on) = (member.clone(), vec![], Some(fence));
        let acquire = Acquire { group: name(group), member, lease: LEASE, slots, go_on };
        self.store.acquire(acquire).await.expect("an answer").expect("the group is there")
    }

    /// The members that a process sees when it renews its lease.
    async fn members_seen_by(&self, member: &Member) -> Vec<Member> {
        self.store.renew(member.id, LEASE).await.expect("an answer").expect("it is known").members
    }

    fn lease_from_now(&self, member: &Member) -> Owner {
        Owner { member: member.clone(), lease_until: self.clock.now() + LEASE }
    }

    async fn owners(&self, group: &str) -> Vec<Option<Owner>> {
        self.group(group).await.slots.into_iter().map(|slot| slot.owner).collect()
    }
}

fn numbers(slots: &[AcquiredSlot]) -> Vec<SlotNumber> {
    slots.iter().map(|slot| slot.slot).collect()
}

fn fences(slots: &[AcquiredSlot]) -> Vec<Fence> {
    slots.iter().map(|slot| slot.fence).collect()
}

/// Free slots are taken, by number; who asks again has them as before, and its lease is renewed with that.
pub async fn free_slots_are_taken_and_own_ones_stay_under_their_fence(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 5).await;
    let made = subject.make_handler("h", 3).await;
    let me = process(1);
    let first = subject.want("h", &me, &[]).await;
    assert_eq!(numbers(&first.slots), [0, 1, 2]);
    assert_eq!((first.held_by.clone(), first.version), (None, made.version));
    assert!(first.slots.iter().all(|slot| (slot.cursor, slot.vanished) == (0, 0)));
    let before: Vec<Fence> = made.slots.iter().map(|slot| slot.fence).collect();
    assert!(fences(&first.slots).iter().zip(&before).all(|(after, before)| after > before), "taking raises the fence");
    let group = subject.group("h").await;
    let expected = first.slots.iter().map(|slot| SlotState {
        slot: slot.slot,
        cursor: 0,
        fence: slot.fence,
        vanished: 0,
        owner: Some(subject.lease_from_now(&me)),
        replay: None,
    });
    assert_eq!(group.slots, expected.collect::<Vec<_>>());

    subject.clock.advance_millis(10_000);
    let change = SlotChange::new(name("h"), 1, me.id, first.slots[1].fence);
    subject.settle_done(SlotChange { cursor: Some(4), ..change }).await;
    let again = subject.want("h", &me, &[]).await;
    assert_eq!(fences(&again.slots), fences(&first.slots));
    assert_eq!(again.slots.iter().map(|slot| slot.cursor).collect::<Vec<_>>(), [0, 4, 0]);
    assert_eq!(subject.owners("h").await, vec![Some(subject.lease_from_now(&me)); 3]);
}

/// Somebody else is at work: who wants its slots hears who that is and until when, and changes nothing.
pub async fn a_slot_of_a_live_owner_is_not_taken(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_pull("g").await;
    let (me, other) = (reader(1), reader(2));
    subject.take("g", &me).await;
    let lease = subject.lease_from_now(&me);
    let before = subject.group("g").await;
    subject.clock.advance_millis(LEASE.as_millis() as i64);
    let refused = subject.want("g", &other, &[]).await;
    assert_eq!(refused, Acquired { slots: vec![], held_by: Some(lease), version: before.version });
    assert_eq!(subject.group("g").await, before);
}

/// Two processes share a group: each takes what it should have, and gets what of it is free.
pub async fn only_slots_that_are_wanted_are_taken(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_handler("h", 5).await;
    let (me, other) = (process(1), process(2));
    let first = subject.want("h", &me, &[3, 1]).await;
    assert_eq!((numbers(&first.slots), &first.held_by), (vec![1, 3], &None));
    let lease = subject.lease_from_now(&me);
    subject.clock.advance_millis(1_000);
    let second = subject.want("h", &other, &[0, 1, 2]).await;
    assert_eq!((numbers(&second.slots), second.held_by), (vec![0, 2], Some(lease.clone())));
    let rest = subject.want("h", &other, &[]).await;
    assert_eq!((numbers(&rest.slots), rest.held_by), (vec![0, 2, 4], Some(lease.clone())));
    let theirs = Some(subject.lease_from_now(&other));
    assert_eq!(subject.owners("h").await, [theirs.clone(), Some(lease.clone()), theirs.clone(), Some(lease), theirs]);
}

/// H6, H16: an owner is gone without a word. Past its lease anybody takes its slot, at its cursor, under a higher fence.
pub async fn a_slot_whose_lease_has_passed_is_anybodys(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 5).await;
    subject.make_handler("h", 2).await;
    let (me, other) = (process(1), process(2));
    let mine = subject.take("h", &me).await;
    let change = SlotChange { cursor: Some(3), ..SlotChange::new(name("h"), 0, me.id, mine[0].fence) };
    subject.settle_done(change.clone()).await;
    subject.clock.advance_millis(LEASE.as_millis() as i64);
    assert_eq!(subject.want("h", &other, &[]).await.slots, [], "a lease counts to its last moment");
    subject.clock.advance_micros(1);
    let stands = subject.group("h").await;
    assert_eq!(stands.slots[0].owner.as_ref().map(|owner| owner.member.id), Some(me.id), "it says whose it was");
    let theirs = subject.take("h", &other).await;
    assert_eq!(theirs.iter().map(|slot| (slot.cursor, slot.vanished)).collect::<Vec<_>>(), [(3, 1), (0, 1)]);
    assert!(theirs.iter().zip(&mine).all(|(theirs, mine)| theirs.fence > mine.fence));
    assert_eq!(subject.owners("h").await, vec![Some(subject.lease_from_now(&other)); 2]);

    // It comes back: nothing that it still has to say is heard, and it gets nothing as long as the other lives.
    assert_eq!(subject.try_settle(SlotChange { cursor: Some(5), ..change }).await, Settled::FenceLost);
    subject.renewed_version(&me).await;
    subject.store.release(me.id, &name("h"), &[0, 1]).await.expect("released");
    assert_eq!(subject.want("h", &me, &[]).await.slots, []);
    subject.store.leave(me.id).await.expect("left");
    let after = subject.group("h").await;
    assert_eq!(after.slots.iter().map(|slot| (slot.cursor, slot.vanished)).collect::<Vec<_>>(), [(3, 1), (0, 1)]);
    assert_eq!(subject.owners("h").await, vec![Some(subject.lease_from_now(&other)); 2]);
}

/// An event that ends its process ends the next one too: who takes the slot sees how many were before it. An owner that
/// moves the cursor has come past whatever it was.
pub async fn vanished_owners_are_counted_until_the_cursor_moves(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 5).await;
    subject.make_handler("h", 1).await;
    for n in 0..4 {
        let slot = subject.take("h", &process(u128::from(n) + 1)).await[0];
        assert_eq!(slot.vanished, n);
        let change = SlotChange::new(name("h"), 0, process(u128::from(n) + 1).id, slot.fence);
        // It writes down that it begins, but comes no further; nor does the same place again.
        subject.put_lanes(&change, [waiting(object_lane("o"), 1)]).await;
        subject.settle_done(SlotChange { cursor: Some(0), ..change }).await;
        assert_eq!(subject.group("h").await.slots[0].vanished, n);
        subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    }
    let slot = subject.take("h", &process(9)).await[0];
    assert_eq!(slot.vanished, 4);
    let change = SlotChange::new(name("h"), 0, process(9).id, slot.fence);
    subject.settle_done(SlotChange { cursor: Some(1), ..change }).await;
    assert_eq!(subject.group("h").await.slots[0].vanished, 0);
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    assert_eq!(subject.take("h", &process(10)).await[0].vanished, 1);
}

/// A reader comes with the fence it was given: it goes on if nobody came in between and its lease has not passed. If
/// not, the slot is not taken for it, and the lease that has passed is not brought back to life.
pub async fn a_reader_goes_on_only_under_its_fence_and_a_live_lease(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 5).await;
    subject.make_pull("g").await;
    let (me, other) = (reader(1), reader(2));
    assert_eq!(subject.go_on("g", &me, 1).await.slots, [], "nobody has it");
    assert_eq!(subject.owners("g").await, [None]);
    let mine = subject.take("g", &me).await;
    subject.clock.advance_millis(20_000);
    let on = subject.go_on("g", &me, mine[0].fence).await;
    assert_eq!((on.slots, on.held_by), (mine.clone(), None));
    assert_eq!(subject.owners("g").await, [Some(subject.lease_from_now(&me))], "its lease is renewed");

    let before = subject.group("g").await;
    subject.clock.advance_millis(1_000);
    assert_eq!(subject.go_on("g", &me, mine[0].fence + 1).await.slots, [], "another fence");
    let refused = subject.go_on("g", &other, mine[0].fence).await;
    assert_eq!((refused.slots, refused.held_by), (vec![], before.slots[0].owner.clone()), "somebody else");
    assert_eq!(subject.group("g").await, before);

    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    assert_eq!(subject.go_on("g", &me, mine[0].fence).await.slots, [], "its lease has passed");
    assert_eq!(subject.group("g").await, before, "and stays so");
    let late = SlotChange { cursor: Some(3), ..SlotChange::new(name("g"), 0, me.id, mine[0].fence) };
    assert_eq!(subject.try_settle(late).await, Settled::FenceLost);
    let theirs = subject.take("g", &other).await;
    assert!(theirs[0].fence > mine[0].fence);
    for fence in [mine[0].fence, theirs[0].fence] {
        assert_eq!(subject.go_on("g", &me, fence).await.slots, []);
    }
    assert_eq!(subject.go_on("g", &other, theirs[0].fence).await.slots, theirs);
}

/// One lease for all that a member has, in all groups: from now on, also if that is shorter than before.
pub async fn a_renewal_extends_the_lease_of_every_slot(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let me = process(1);
    for group in ["g", "h"] {
        subject.make_handler(group, 2).await;
        subject.take(group, &me).await;
    }
    for _ in 0..3 {
        subject.clock.advance_millis(25_000);
        subject.renewed_version(&me).await;
        for group in ["g", "h"] {
            assert_eq!(subject.owners(group).await, vec![Some(subject.lease_from_now(&me)); 2]);
            assert_eq!(subject.want(group, &process(2), &[]).await.slots, []);
        }
    }
    let short = SignedDuration::from_secs(1);
    subject.store.renew(me.id, short).await.expect("renewed").expect("it is known");
    subject.clock.advance_millis(1_001);
    assert_eq!(subject.take("g", &process(2)).await.len(), 2);
}

/// A process that was away for long renews a lease that has passed: what nobody took is still its own.
pub async fn a_late_renewal_keeps_what_nobody_took(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 5).await;
    subject.make_handler("h", 2).await;
    let (me, other) = (process(1), process(2));
    let mine = subject.take("h", &me).await;
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    assert_eq!(numbers(&subject.want("h", &other, &[1]).await.slots), [1]);
    subject.renewed_version(&me).await;
    let again = subject.want("h", &me, &[]).await;
    assert_eq!(again.slots, [mine[0]]);
    assert_eq!(subject.want("h", &other, &[0]).await.slots, []);
    let change = |slot: usize| SlotChange::new(name("h"), slot as SlotNumber, me.id, mine[slot].fence);
    let answers = subject.store.settle(vec![change(0), change(1)]).await.expect("settled");
    assert_eq!(answers, [Settled::Done(vec![]), Settled::FenceLost]);
}

/// Who never came, and who left.
pub async fn who_is_not_known_cannot_renew(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_handler("h", 1).await;
    let me = process(1);
    assert_eq!(subject.store.renew(me.id, LEASE).await, Ok(None));
    subject.take("h", &me).await;
    assert!(subject.store.renew(me.id, LEASE).await.expect("renewed").is_some());
    subject.store.leave(me.id).await.expect("left");
    assert_eq!(subject.store.renew(me.id, LEASE).await, Ok(None));
    assert_eq!(subject.owners("h").await, [None]);
    subject.store.leave(me.id).await.expect("who has left may leave");
}

/// Each process learns who else lives, to share the slots with: also those that got none. Readers share nothing.
pub async fn the_members_are_the_processes_that_live(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_handler("h", 1).await;
    subject.make_pull("g").await;
    let [one, two, three] = [1, 2, 3].map(process);
    for member in [&two, &one] {
        subject.want("h", member, &[]).await;
    }
    subject.want("g", &reader(4), &[]).await;
    assert_eq!(subject.members_seen_by(&one).await, [one.clone(), two.clone()]);
    subject.clock.advance_millis(20_000);
    subject.want("h", &three, &[]).await;
    assert_eq!(subject.members_seen_by(&one).await, [one.clone(), two.clone(), three.clone()]);
    subject.clock.advance_millis(10_001);
    assert_eq!(subject.members_seen_by(&one).await, [one.clone(), three.clone()], "the second one's lease has passed");
    assert_eq!(subject.members_seen_by(&three).await, [one.clone(), three.clone()]);
    subject.store.leave(one.id).await.expect("left");
    assert_eq!(subject.members_seen_by(&three).await, std::slice::from_ref(&three));
    assert_eq!(numbers(&subject.take("h", &three).await), [0]);
}

/// A member hears with its next renewal that something is not as it was: a slot was taken from it, by another, by a seek
/// or with its group; or somebody asked something of a lane of its. Otherwise it hears nothing.
pub async fn a_member_hears_when_a_slot_is_taken_or_a_lane_is_asked(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 5).await;
    let (me, other) = (process(1), process(2));
    for group in ["g", "h", "i"] {
        subject.make_handler(group, 1).await;
    }
    let change = subject.take_one("g", &me).await;
    subject.take("h", &me).await;
    subject.put_lanes(&change, [waiting(object_lane("o"), 1)]).await;
    let mut version = subject.renewed_version(&me).await;
    subject.take("i", &other).await;
    subject.want("g", &other, &[]).await;
    let others = subject.renewed_version(&other).await;
    subject.settle_done(SlotChange { cursor: Some(1), ..change.clone() }).await;
    assert_eq!(subject.renewed_version(&me).await, version, "nothing happened to it");
    let mut hears = async |what: &str| {
        let now = subject.renewed_version(&me).await;
        assert!(now > version, "{what}");
        assert_eq!(subject.renewed_version(&me).await, now, "once, after {what}");
        version = now;
    };
    let asked = subject.store.ask_lane(&name("g"), &object_lane("o"), Ask::Retry).await.expect("an answer");
    assert_eq!(asked.map(|row| row.ask), Some(Some(Ask::Retry)));
    hears("a lane was asked").await;
    subject.store.seek(&name("h"), 2).await.expect("moved");
    hears("a seek").await;
    subject.take("h", &me).await;
    subject.store.delete_group(&name("h")).await.expect("deleted");
    hears("a group was deleted").await;
    assert_eq!(subject.renewed_version(&other).await, others, "the other hears nothing of it");
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    subject.take("g", &other).await;
    hears("a slot was taken").await;
    subject.store.ask_lane(&name("g"), &object_lane("o"), Ask::Skip).await.expect("an answer");
    assert!(subject.renewed_version(&other).await > others, "the new owner hears what is asked");
    assert_eq!(subject.renewed_version(&me).await, version, "and the former owner does not");
}

/// Who gives a slot back has finished: the next one takes it at once, and nobody has vanished.
pub async fn a_release_is_clean(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 5).await;
    subject.make_handler("h", 1).await;
    subject.take("h", &process(1)).await;
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    let me = process(2);
    let change = subject.take_one("h", &me).await;
    assert_eq!(subject.group("h").await.slots[0].vanished, 1);
    subject.store.release(me.id, &name("h"), &[0]).await.expect("released");
    let slot = subject.group("h").await.slots.remove(0);
    assert_eq!((slot.cursor, slot.vanished, slot.owner), (0, 0, None));
    assert_eq!(subject.try_settle(SlotChange { cursor: Some(3), ..change.clone() }).await, Settled::FenceLost);
    let next = subject.take("h", &process(3)).await[0];
    assert_eq!((next.cursor, next.vanished), (0, 0));
    assert!(next.fence > change.fence);
}

/// Only what was named, and only what was the member's own; it stays known.
pub async fn a_release_gives_back_no_more_than_was_named(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let (me, other) = (process(1), process(2));
    for group in ["g", "h"] {
        subject.make_handler(group, 4).await;
        subject.want(group, &me, &[0, 1, 2]).await;
        subject.want(group, &other, &[3]).await;
    }
    subject.store.release(me.id, &name("h"), &[1, 3]).await.expect("released");
    subject.store.release(me.id, &name("none"), &[0]).await.expect("there is nothing to release");
    let (mine, theirs) = (Some(subject.lease_from_now(&me)), Some(subject.lease_from_now(&other)));
    assert_eq!(subject.owners("h").await, [mine.clone(), None, mine.clone(), theirs.clone()]);
    assert_eq!(subject.owners("g").await, [mine.clone(), mine.clone(), mine, theirs]);
    subject.renewed_version(&me).await;
}

/// Every slot in every group, cleanly.
pub async fn who_leaves_gives_everything_back(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let (me, other) = (process(1), process(2));
    let mut old = Vec::new();
    for group in ["g", "h"] {
        subject.make_handler(group, 3).await;
        old.push(subject.want(group, &me, &[0, 1]).await.slots);
        subject.want(group, &other, &[2]).await;
    }
    subject.store.leave(me.id).await.expect("left");
    let theirs = Some(subject.lease_from_now(&other));
    for (group, old) in ["g", "h"].into_iter().zip(&old) {
        assert_eq!(subject.owners(group).await, [None, None, theirs.clone()]);
        let late = SlotChange::new(name(group), 0, me.id, old[0].fence);
        assert_eq!(subject.try_settle(late).await, Settled::FenceLost);
        let next = subject.take(group, &other).await;
        assert_eq!(numbers(&next), [0, 1, 2]);
        assert!(next.iter().all(|slot| slot.vanished == 0));
        assert!(next[0].fence > old[0].fence && next[1].fence > old[1].fence);
    }
    assert_eq!(subject.members_seen_by(&other).await, [other]);
}

/// There is no such group: nothing is made, and nothing is had.
pub async fn slots_of_a_group_that_is_not_there_are_none(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let (member, slots) = (reader(1), vec![]);
    for go_on in [None, Some(1)] {
        let (group, member, slots) = (name("none"), member.clone(), slots.clone());
        let acquire = Acquire { group, member, lease: LEASE, slots, go_on };
        assert_eq!(subject.store.acquire(acquire).await, Ok(None));
    }
    assert_eq!(subject.store.groups().await.expect("groups"), []);
    let change = SlotChange::new(name("none"), 0, member.id, 1);
    assert_eq!(subject.try_settle(change).await, Settled::FenceLost);
}

/// H2: the store's clock steps back by 5 s, and then far ahead. A lease is what that clock says, no more; what was
/// recorded in the log meanwhile does not hold it up.
pub async fn leases_follow_the_stores_clock_when_it_steps(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_handler("h", 1).await;
    let (me, other) = (process(1), process(2));
    let mine = subject.take("h", &me).await;
    subject.clock.advance_millis(60_000);
    // The log has seen a later time than the clock will show.
    subject.fill("t", None, 1).await;
    subject.clock.advance_millis(-5_000 - 60_000);
    let until = subject.group("h").await.slots[0].owner.clone().expect("it has it").lease_until;
    assert_eq!(until, subject.clock.now() + LEASE + SignedDuration::from_secs(5));
    assert_eq!(subject.want("h", &other, &[]).await.slots, [], "by the clock it has 35 s left");
    subject.renewed_version(&me).await;
    assert_eq!(subject.owners("h").await, [Some(subject.lease_from_now(&me))], "from the clock as it is");
    subject.settle_done(SlotChange { cursor: Some(1), ..SlotChange::new(name("h"), 0, me.id, mine[0].fence) }).await;
    subject.clock.advance_millis(29_999);
    assert_eq!(subject.want("h", &other, &[]).await.slots, []);
    subject.clock.advance_millis(2);
    let theirs = subject.take("h", &other).await[0];
    assert!(theirs.fence > mine[0].fence);
    // Back again: whose lease had passed has nothing back.
    subject.clock.advance_millis(-40_000);
    assert_eq!(subject.want("h", &me, &[]).await.slots, []);
    let late = SlotChange::new(name("h"), 0, me.id, mine[0].fence);
    assert_eq!(subject.try_settle(late).await, Settled::FenceLost);
    subject.settle_done(SlotChange::new(name("h"), 0, other.id, theirs.fence)).await;
}
