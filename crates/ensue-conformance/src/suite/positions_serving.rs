//! Who serves which group, and what does an idle process hear?

use super::Subject;
use super::positions::{LEASE, PAST_THE_LEASE_MILLIS, name, process, reader};
use crate::factory::Factory;
use ensue_core::NewEvent;
use ensue_core::positions::{Member, Serving};
use ensue_core::store::Pulse;
use jiff::SignedDuration;
use uuid::Uuid;

impl Subject {
    async fn serve(&self, member: &Member, groups: &[&str]) {
        let groups = groups.iter().map(|group| name(group)).collect();
        self.store.serve(member.clone(), LEASE, groups).await.expect("it is known now");
    }

    async fn members(&self) -> Vec<Serving> {
        self.store.members().await.expect("the members")
    }

    async fn pulse(&self, lease: Option<(Uuid, SignedDuration)>) -> Pulse {
        self.store.pulse(lease).await.expect("a pulse")
    }
}

fn serving(member: &Member, groups: &[&str]) -> Serving {
    Serving { member: member.clone(), groups: groups.iter().map(|group| name(group)).collect() }
}

/// A process says what it serves: it is known with that, for as long as its lease lasts. What it says next stands instead.
pub async fn a_process_is_known_with_what_it_serves(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let [one, two] = [1, 2].map(process);
    assert_eq!(subject.members().await, []);
    // Whether the groups are there does not matter; which come first and how often does neither.
    subject.serve(&two, &["b", "a", "B", "a"]).await;
    subject.serve(&one, &[]).await;
    assert_eq!(subject.members().await, [serving(&one, &[]), serving(&two, &["B", "a", "b"])]);
    let seen = subject.store.renew(one.id, LEASE).await.expect("an answer").expect("it is known").members;
    assert_eq!(seen, [one.clone(), two.clone()]);
    subject.clock.advance_millis(20_000);
    subject.serve(&two, &["c", "a"]).await;
    assert_eq!(subject.members().await, [serving(&one, &[]), serving(&two, &["a", "c"])]);
    subject.clock.advance_millis(10_001);
    assert_eq!(subject.members().await, [serving(&two, &["a", "c"])], "the lease of the first has passed");
    subject.renewed_version(&one).await;
    assert_eq!(subject.members().await.len(), 2, "who comes back serves what it served");
    subject.store.leave(two.id).await.expect("left");
    assert_eq!(subject.members().await, [serving(&one, &[])]);
    subject.serve(&two, &["d"]).await;
    assert_eq!(subject.members().await, [serving(&one, &[]), serving(&two, &["d"])], "what it left is forgotten");
}

/// Who only takes slots has not said that it serves anything; who reads a group is no process.
pub async fn who_takes_slots_has_not_said_what_it_serves(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_handler("h", 1).await;
    subject.make_pull("g").await;
    let one = process(1);
    subject.take("h", &one).await;
    subject.take("g", &reader(2)).await;
    assert_eq!(subject.members().await, [serving(&one, &[])]);
    subject.serve(&one, &["h"]).await;
    subject.want("h", &one, &[]).await;
    assert_eq!(subject.members().await, [serving(&one, &["h"])], "taking slots leaves that as it is");
    subject.store.delete_group(&name("h")).await.expect("deleted");
    assert_eq!(subject.members().await, [serving(&one, &["h"])], "and so does a group that is gone");
}

/// Another process begins or ceases to serve a group: those that serve it hear of it, also those that were away; others do
/// not, and nobody hears of what stays as it was.
pub async fn those_who_serve_a_group_hear_who_else_does(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let [one, two, other] = [1, 2, 3].map(process);
    subject.serve(&one, &["a", "shared"]).await;
    subject.serve(&other, &["b"]).await;
    let mut heard = subject.renewed_version(&one).await;
    let others = subject.renewed_version(&other).await;
    let mut hears = async |what: &str, is_told: bool| {
        let now = subject.renewed_version(&one).await;
        assert_eq!(now > heard, is_told, "{what}");
        heard = now;
    };
    subject.serve(&two, &["shared", "c"]).await;
    hears("one that serves the same has come", true).await;
    subject.serve(&two, &["c", "shared"]).await;
    hears("it says the same again", false).await;
    subject.serve(&two, &["shared", "d"]).await;
    hears("it serves something else instead of something else", false).await;
    subject.serve(&two, &["d"]).await;
    hears("it no longer serves the same", true).await;
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    subject.serve(&two, &["a"]).await;
    hears("it begins to while the first is away", true).await;
    assert_eq!(subject.renewed_version(&other).await, others, "who serves none of it hears nothing");
    let twos = subject.renewed_version(&two).await;
    subject.serve(&two, &["a", "b"]).await;
    assert_eq!(subject.renewed_version(&two).await, twos, "nor does who says it");
}

/// A process that said what it serves has a lease like any other, and slots of the time before stay its own.
pub async fn saying_what_one_serves_renews_the_lease(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_handler("h", 2).await;
    let (me, other) = (process(1), process(2));
    subject.serve(&me, &["h"]).await;
    let mine = subject.take("h", &me).await;
    subject.clock.advance_millis(20_000);
    subject.serve(&me, &["h", "i"]).await;
    subject.clock.advance_millis(20_000);
    assert_eq!(subject.want("h", &other, &[]).await.slots, []);
    assert_eq!(subject.want("h", &me, &[]).await.slots, mine, "under the same fences");
}

/// One question tells where the log ends, with which event, and what is due; and it renews a lease, if there is one.
pub async fn a_pulse_tells_what_has_happened(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let nothing = subject.pulse(None).await;
    let now = subject.clock.now();
    let (rules_version, jobs_sent, jobs_due) = (0, nothing.jobs_sent, None);
    assert_eq!(
        nothing,
        Pulse {
            last: 0,
            newest: None,
            next_due: None,
            now,
            renewed: None,
            rules_version,
            definitions_version: 0,
            jobs_sent,
            jobs_due,
            schedules_due: None,
            waiting: false,
        }
    );
    subject.fill("t", None, 3).await;
    let newest = subject.store.event(3).await.expect("read").expect("it is there").id;
    let due = [300, 200].map(|seconds| now + SignedDuration::from_secs(seconds));
    for not_before in due {
        subject.append(vec![NewEvent::new("later").not_before(not_before)]).await;
    }
    let told = subject.pulse(None).await;
    assert_eq!((told.last, told.newest, told.next_due), (3, Some(newest), Some(due[1])));
    subject.store.trim(4, 10).await.expect("trimmed");
    let trimmed = subject.pulse(None).await;
    assert_eq!((trimmed.last, trimmed.newest), (3, None), "what retention took cannot be told");

    let me = process(1);
    assert_eq!(subject.pulse(Some((me.id, LEASE))).await.renewed, None, "it is not known");
    subject.serve(&me, &["h"]).await;
    subject.clock.advance_millis(20_000);
    let told = subject.pulse(Some((me.id, LEASE))).await;
    assert_eq!(told.now, subject.clock.now());
    let renewed = told.renewed.expect("it is known");
    assert_eq!(renewed.members, std::slice::from_ref(&me));
    assert_eq!(Some(renewed), subject.store.renew(me.id, LEASE).await.expect("an answer"));
    subject.clock.advance_millis(20_000);
    assert_eq!(subject.members().await.len(), 1, "its lease was renewed");
    assert_eq!(subject.pulse(None).await.renewed, None, "nobody is renewed who was not named");
    subject.clock.advance_millis(10_001);
    assert_eq!(subject.members().await, []);
}
