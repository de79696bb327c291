//! What is known of deliveries, and for how long?

use super::Subject;
use super::positions::{delivery, line, name, process};
use crate::factory::Factory;
use ensue_core::positions::{Delivery, DeliveryState, Level, LogLine, SlotChange};
use ensue_core::{ObjectKey, Seq, Timestamp};
use jiff::SignedDuration;

impl Subject {
    /// Records deliveries to a new group that finished one second after another, each with a line; answers when the
    /// first did.
    async fn record(&self, group: &str, seqs: impl IntoIterator<Item = Seq>) -> Timestamp {
        self.make_handler(group, 1).await;
        let change = self.take_one(group, &process(1)).await;
        let start = self.clock.now();
        let finished = |seq: Seq| start + SignedDuration::from_secs(seq as i64);
        for seq in seqs {
            let deliveries = vec![delivery(group, seq, finished(seq))];
            let lines = vec![line(seq, finished(seq), "said"), line(seq, finished(seq), "more")];
            self.settle_done(SlotChange { deliveries, lines, ..change.clone() }).await;
        }
        start
    }

    async fn recorded(&self, group: &str, seqs: impl IntoIterator<Item = Seq>) -> Vec<Seq> {
        let mut there = Vec::new();
        for seq in seqs {
            let of_group = self.deliveries(seq).await.iter().filter(|one| one.group.as_str() == group).count();
            let lines = self.messages(group, seq).await.len();
            assert_eq!(lines, 2 * of_group, "what a delivery said is there as long as it is: {seq}");
            there.extend((of_group == 1).then_some(seq));
        }
        there
    }

    async fn purge(&self, before: Timestamp, keep: u64, limit: usize) -> usize {
        self.store.purge_deliveries(before, keep, limit).await.expect("purged")
    }
}

/// Every field, in every state; what is known of it is written over.
pub async fn a_delivery_comes_back_as_it_was_written_last(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.make_handler("h", 1).await;
    let change = subject.take_one("h", &process(1)).await;
    let at = subject.clock.now() + SignedDuration::from_micros(123_456);
    let states = [
        DeliveryState::Failed,
        DeliveryState::Done,
        DeliveryState::Redriven,
        DeliveryState::Held,
        DeliveryState::Dead,
        DeliveryState::Cancelled,
        DeliveryState::Skipped,
    ];
    for (n, state) in states.into_iter().enumerate() {
        let written = Delivery {
            state,
            attempts: n as u32,
            object: (n % 2 == 0).then(|| ObjectKey::stored("o' ü\\")),
            error: (n % 3 == 0).then(|| format!("it's \"{n}\"\nno route")),
            finished_at: at + SignedDuration::from_secs(n as i64),
            ..delivery("h", 7, at)
        };
        let other = Delivery { seq: 8 + n as Seq, ..written.clone() };
        let deliveries = vec![written.clone(), other.clone()];
        subject.settle_done(SlotChange { deliveries, ..change.clone() }).await;
        assert_eq!(subject.deliveries(7).await, [written]);
        assert_eq!(subject.deliveries(8 + n as Seq).await, [other]);
    }
    let before = subject.deliveries(7).await;
    subject.reopen().await;
    assert_eq!(subject.deliveries(7).await, before);
    assert_eq!(subject.deliveries(6).await, []);
}

/// One event goes to many groups, and each has its own story of it.
pub async fn deliveries_of_an_event_come_by_group(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let mut changes = Vec::new();
    for (n, group) in ["b", "a.b", "B", "ä", "a"].into_iter().enumerate() {
        subject.make_handler(group, 1).await;
        let deliveries = vec![Delivery { attempts: n as u32, ..delivery(group, 1, subject.clock.now()) }];
        let lines = vec![line(1, subject.clock.now(), group)];
        changes.push(SlotChange { deliveries, lines, ..subject.take_one(group, &process(1)).await });
    }
    subject.store.settle(changes).await.expect("settled");
    let told = subject.deliveries(1).await;
    let told: Vec<(&str, u32)> = told.iter().map(|one| (one.group.as_str(), one.attempts)).collect();
    assert_eq!(told, [("B", 2), ("a", 4), ("a.b", 1), ("b", 0), ("ä", 3)]);
    for (group, _) in told {
        assert_eq!(subject.messages(group, 1).await, [group]);
    }
}

/// H29: a handler says the same twice in one microsecond: two lines, in the order they were said, whatever their times.
pub async fn lines_that_are_the_same_are_two_and_stay_in_order(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.make_handler("h", 1).await;
    let change = subject.take_one("h", &process(1)).await;
    let at = subject.clock.now();
    let levels = [Level::Debug, Level::Info, Level::Warn, Level::Error];
    let said = |n: usize| LogLine {
        seq: 5,
        attempt: n as u32 / 8,
        at: at - SignedDuration::from_micros(n as i64 / 2),
        level: levels[n / 2 % 4],
        message: format!("it's \"{}\"\nü\\", n / 2),
    };
    let lines: Vec<LogLine> = (0..20).map(said).collect();
    assert_eq!(lines[0], lines[1]);
    let deliveries = vec![delivery("h", 5, at)];
    subject
        .settle_done(SlotChange { deliveries: deliveries.clone(), lines: lines[..12].to_vec(), ..change.clone() })
        .await;
    // A further attempt, and what another event's delivery says in between.
    let mixed = lines[12..].iter().flat_map(|said| [said.clone(), LogLine { seq: 6, ..said.clone() }]).collect();
    subject.settle_done(SlotChange { deliveries, lines: mixed, ..change }).await;
    subject.reopen().await;
    let read = async |skip, limit| subject.store.lines(&name("h"), 5, skip, limit).await.expect("lines");
    assert_eq!(read(0, 100).await, lines);
    assert_eq!(read(0, 7).await, lines[..7]);
    assert_eq!(read(7, 7).await, lines[7..14]);
    assert_eq!(read(18, 7).await, lines[18..]);
    assert_eq!(read(20, 7).await, []);
    assert_eq!(subject.messages("h", 6).await.len(), 8);
    assert_eq!(subject.messages("other", 5).await, Vec::<String>::new());
}

/// Old ones go, the oldest first, a few with each call; what they said goes with them.
pub async fn purging_by_age_forgets_what_ended_before(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let start = subject.record("h", [4, 2, 6, 1, 3, 5]).await;
    let before = start + SignedDuration::from_secs(5);
    assert_eq!(subject.purge(start, u64::MAX, 100).await, 0);
    assert_eq!(subject.purge(before, u64::MAX >> 1, 3).await, 3);
    assert_eq!(subject.recorded("h", 1..=6).await, [4, 5, 6]);
    assert_eq!(subject.purge(before, 1_000, 3).await, 1);
    assert_eq!(subject.purge(before, 1_000, 3).await, 0);
    assert_eq!(subject.recorded("h", 1..=6).await, [5, 6], "what ended just then stays");
}

/// So many are kept, of all groups together: the youngest.
pub async fn purging_by_count_keeps_the_youngest(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let start = subject.record("g", [1, 3, 5, 7]).await;
    subject.record("h", [8, 6, 4, 2]).await;
    assert_eq!(subject.purge(start, 8, 100).await, 0);
    assert_eq!(subject.purge(start, 4, 3).await, 3);
    assert_eq!((subject.recorded("g", 1..=8).await, subject.recorded("h", 1..=8).await), (vec![5, 7], vec![4, 6, 8]));
    assert_eq!(subject.purge(start, 4, 3).await, 1);
    assert_eq!((subject.recorded("g", 1..=8).await, subject.recorded("h", 1..=8).await), (vec![5, 7], vec![6, 8]));
    // Either reason is enough.
    assert_eq!(subject.purge(start + SignedDuration::from_secs(7), 3, 100).await, 2);
    assert_eq!(subject.purge(start + SignedDuration::from_secs(100), 0, 100).await, 2);
    assert_eq!((subject.recorded("g", 1..=8).await, subject.recorded("h", 1..=8).await), (vec![], vec![]));
}

/// What a delivery said that left nothing else goes too, once it is old: a few with each call, the oldest first.
pub async fn lines_of_what_is_not_recorded_go_by_their_age(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let start = subject.record("h", [9]).await;
    let change = subject.take_one("h", &process(1)).await;
    let at = |seconds: i64| start + SignedDuration::from_secs(seconds);
    let said = [(2, 3, "young"), (3, 2, "old"), (9, 0, "of a delivery that stays"), (2, 1, "older"), (4, 1, "as old")];
    let lines = said.map(|(seq, seconds, text)| line(seq, at(seconds), text)).to_vec();
    subject.settle_done(SlotChange { lines, ..change }).await;
    let messages = async |seq| subject.messages("h", seq).await;
    assert_eq!(subject.purge(at(1), 1_000, 100).await, 0, "what was said just then stays");
    assert_eq!(subject.purge(at(3), 1_000, 1).await, 1);
    assert_eq!((messages(2).await, messages(4).await), (vec!["young".into()], vec!["as old".to_string()]));
    assert_eq!(subject.purge(Timestamp::MIN, 1_000, 100).await, 0);
    // A delivery goes before any line.
    assert_eq!(subject.purge(at(3), 0, 2).await, 2);
    assert_eq!((messages(9).await, messages(3).await, messages(4).await), (vec![], vec!["old".to_string()], vec![]));
    assert_eq!(subject.purge(at(3), 1_000, 100).await, 1);
    assert_eq!(subject.purge(at(3), 1_000, 100).await, 0);
    assert_eq!((messages(2).await, messages(3).await), (vec!["young".to_string()], vec![]));
}
