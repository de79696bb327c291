//! What lives on of an object that stands still when the log forgets?

use super::positions::{keys, lane_in, name, object_lane, process, waiting};
use super::{Subject, seqs};
use crate::factory::Factory;
use ensue_core::positions::{
    Lane, LaneChange, LaneKey, LaneQuery, LaneState, Park, ParkedQuery, ParkedSize, SlotChange,
};
use ensue_core::store::PAGE_BYTES_MAX;
use ensue_core::{Event, NewEvent, Seq};

fn park(group: &str, key: &LaneKey, from: Option<Seq>, to: Seq, seqs: &[Seq]) -> Park {
    Park { group: name(group), key: key.clone(), from, to, seqs: seqs.to_vec() }
}

impl Subject {
    async fn park(&self, parks: impl IntoIterator<Item = Park>) -> usize {
        self.store.park(parks.into_iter().collect()).await.expect("an answer")
    }

    async fn parked_after(&self, group: &str, key: &LaneKey, after: Seq, limit: usize) -> Vec<Event> {
        let query = ParkedQuery::Lane { group: name(group), key: key.clone(), after };
        self.store.parked(query, limit).await.expect("parked events")
    }

    async fn parked(&self, group: &str, key: &LaneKey) -> Vec<Seq> {
        let parked = seqs(&self.parked_after(group, key, 0, 1_000).await);
        let size = self.store.parked_size(&name(group), key).await.expect("a size");
        assert_eq!(size.events, parked.len() as u64, "{size:?}");
        assert_eq!(size.bytes == 0, parked.is_empty(), "{size:?}");
        parked
    }

    async fn needs_from(&self, group: &str) -> Seq {
        self.group(group).await.needs_from()
    }

    /// Events of `o` at odd places, of `p` at even ones; a group whose cursor has passed them all, with a lane of `o` at 3.
    async fn with_a_lane_at_three(&self) -> (SlotChange, LaneKey) {
        self.append((1..=10).map(|n| NewEvent::new("t").object(if n % 2 == 1 { "o" } else { "p" })).collect()).await;
        self.make_handler("h", 1).await;
        let change = self.take_one("h", &process(1)).await;
        let key = object_lane("o");
        let lanes = vec![LaneChange::Put(lane_in(LaneState::Held, key.clone(), 3))];
        self.settle_done(SlotChange { cursor: Some(10), lanes, ..change.clone() }).await;
        (change, key)
    }
}

/// H9: what a lane needs outlives the log, whole and in order, also when the process ends in between.
pub async fn what_is_parked_outlives_the_log(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let (_, key) = subject.with_a_lane_at_three().await;
    let before = subject.log().await;
    assert_eq!(subject.needs_from("h").await, 3);
    assert_eq!(subject.park([park("h", &key, None, 7, &[3, 5])]).await, 1);
    let row = subject.lane("h", &key).await.expect("a lane");
    assert_eq!((row.parked_to, row.lane.position, row.needs_from()), (Some(7), 3, 7));
    assert_eq!(subject.needs_from("h").await, 7, "the log may go up to there");
    subject.reopen().await;
    subject.store.trim(7, 1_000).await.expect("trimmed");
    subject.reopen().await;
    let parked = subject.parked_after("h", &key, 0, 1_000).await;
    assert_eq!(parked, [before[2].clone(), before[4].clone()]);
    assert_eq!(subject.store.event(3).await.expect("a look"), None, "the log has forgotten it");
    // And further, as the log goes on.
    assert_eq!(subject.park([park("h", &key, Some(7), 11, &[7, 9])]).await, 1);
    subject.store.trim(11, 1_000).await.expect("trimmed");
    assert_eq!(subject.parked("h", &key).await, [3, 5, 7, 9]);
    assert_eq!(subject.needs_from("h").await, 11);
    subject.audit().await;
}

/// Page by page, and one by its place or its id: an event that lives on only there is found.
pub async fn what_is_parked_is_found(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let (_, key) = subject.with_a_lane_at_three().await;
    let events = subject.log().await;
    subject.park([park("h", &key, None, 11, &[3, 5, 7, 9])]).await;
    subject.store.trim(11, 1_000).await.expect("trimmed");
    assert_eq!(seqs(&subject.parked_after("h", &key, 0, 2).await), [3, 5]);
    assert_eq!(seqs(&subject.parked_after("h", &key, 5, 2).await), [7, 9]);
    assert_eq!(seqs(&subject.parked_after("h", &key, 9, 2).await), [0; 0]);
    assert_eq!(subject.parked("h", &object_lane("p")).await, [0; 0]);
    assert_eq!(subject.parked("other", &key).await, [0; 0]);
    for event in &events {
        let is_parked = event.seq > 1 && event.seq % 2 == 1;
        for query in [ParkedQuery::Place(event.seq), ParkedQuery::Id(event.id)] {
            let found = subject.store.parked(query, 10).await.expect("a look");
            assert_eq!(found, if is_parked { vec![event.clone()] } else { Vec::new() });
        }
    }
    let size = subject.store.parked_size(&name("h"), &key).await.expect("a size");
    let exact: u64 =
        events.iter().filter(|event| event.seq > 1 && event.seq % 2 == 1).map(|one| one.bytes() as u64).sum();
    assert!((exact / 2..=exact * 2).contains(&size.bytes), "{size:?} of {exact} bytes");
}

/// A page of what is parked is bounded in bytes, as any other.
pub async fn a_page_of_what_is_parked_is_bounded(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let large = NewEvent::new("t").object("o").payload(&"x".repeat(900_000));
    for _ in 0..6 {
        subject.append(vec![large.clone()]).await;
    }
    subject.make_handler("h", 1).await;
    let (change, key) = (subject.take_one("h", &process(1)).await, object_lane("o"));
    subject.put_lanes(&change, [waiting(key.clone(), 1)]).await;
    subject.park([park("h", &key, None, 7, &[1, 2, 3, 4, 5, 6])]).await;
    let page = subject.parked_after("h", &key, 0, 100).await;
    assert!(page.iter().map(Event::bytes).sum::<usize>() <= PAGE_BYTES_MAX && !page.is_empty(), "{}", page.len());
    let rest = subject.parked_after("h", &key, page.len() as Seq, 100).await;
    assert_eq!(seqs(&[page, rest].concat()), [1, 2, 3, 4, 5, 6]);
}

/// What a lane has passed goes, whatever moves it on; what it has not passed stays.
pub async fn what_a_lane_has_passed_is_no_longer_parked(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let (change, key) = subject.with_a_lane_at_three().await;
    subject.park([park("h", &key, None, 11, &[3, 5, 7, 9])]).await;
    // Another attempt, and one that comes too late: nothing is passed.
    for position in [3, 2] {
        subject.put_lanes(&change, [waiting(key.clone(), position)]).await;
        assert_eq!(subject.parked("h", &key).await, [3, 5, 7, 9]);
    }
    subject.put_lanes(&change, [waiting(key.clone(), 4)]).await;
    assert_eq!(subject.parked("h", &key).await, [5, 7, 9]);
    subject.put_lanes(&change, [lane_in(LaneState::Dead, key.clone(), 8)]).await;
    assert_eq!(subject.parked("h", &key).await, [9]);
    assert_eq!(subject.lane("h", &key).await.and_then(|row| row.parked_to), Some(11), "it is still parked so far");
    // Caught up, and in trouble again: that begins anew.
    let (remove, put) = (LaneChange::Remove(key.clone()), LaneChange::Put(waiting(key.clone(), 9)));
    subject.settle_done(SlotChange { lanes: vec![remove, put], ..change }).await;
    assert_eq!(subject.parked("h", &key).await, [0; 0]);
    assert_eq!(subject.lane("h", &key).await.and_then(|row| row.parked_to), None);
    assert_eq!(subject.store.parked_size(&name("h"), &key).await.expect("a size"), ParkedSize::default());
}

/// What was decided before the lane went on: it needs less. Before it was parked by another, or is gone: nothing is done.
pub async fn a_parking_that_comes_late_does_no_harm(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let (change, key) = subject.with_a_lane_at_three().await;
    subject.put_lanes(&change, [waiting(key.clone(), 6)]).await;
    assert_eq!(subject.park([park("h", &key, None, 9, &[3, 5, 7])]).await, 1);
    assert_eq!(subject.parked("h", &key).await, [7]);
    for late in [
        park("h", &key, None, 11, &[7, 9]),
        park("h", &key, Some(8), 11, &[9]),
        park("h", &key, Some(9), 9, &[]),
        park("h", &object_lane("p"), None, 11, &[4]),
        park("other", &key, None, 11, &[9]),
    ] {
        assert_eq!(subject.park([late.clone()]).await, 0, "{late:?}");
    }
    assert_eq!(subject.parked("h", &key).await, [7]);
    // Nobody needs what is dead or done to be kept.
    for state in [LaneState::Dead, LaneState::Done] {
        subject.put_lanes(&change, [lane_in(state, key.clone(), 6)]).await;
        assert_eq!(subject.park([park("h", &key, Some(9), 11, &[9])]).await, 0, "{state:?}");
    }
    // What is forgotten already cannot be copied: the lane stays as it is, the others are parked.
    subject.put_lanes(&change, [waiting(key.clone(), 6), waiting(object_lane("p"), 4)]).await;
    subject.store.trim(5, 1_000).await.expect("trimmed");
    let parks = [park("h", &object_lane("p"), None, 9, &[4, 6, 8]), park("h", &key, Some(9), 11, &[9])];
    assert_eq!(subject.park(parks).await, 1);
    assert_eq!((subject.parked("h", &object_lane("p")).await, subject.parked("h", &key).await), (vec![], vec![7, 9]));
    assert_eq!(subject.lane("h", &object_lane("p")).await.and_then(|row| row.parked_to), None);
}

/// Of each group its own: what one has passed, another may still need. A group that is moved or deleted needs nothing.
pub async fn groups_park_for_themselves(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let (change, key) = subject.with_a_lane_at_three().await;
    for group in ["i", "j"] {
        subject.make_handler(group, 1).await;
        let change = subject.take_one(group, &process(1)).await;
        subject.put_lanes(&change, [waiting(key.clone(), 5)]).await;
    }
    let parks = ["h", "i", "j"].map(|group| park(group, &key, None, 11, &[3, 5, 7, 9]));
    assert_eq!(subject.park(parks).await, 3);
    assert_eq!((subject.parked("h", &key).await.len(), subject.parked("i", &key).await.len()), (4, 3));
    subject.settle_done(SlotChange { lanes: vec![LaneChange::Remove(key.clone())], ..change }).await;
    assert_eq!(subject.parked("h", &key).await, [0; 0]);
    subject.store.seek(&name("i"), 10).await.expect("moved");
    assert_eq!((subject.parked("i", &key).await, subject.parked("j", &key).await), (vec![], vec![5, 7, 9]));
    subject.store.delete_group(&name("j")).await.expect("deleted");
    assert_eq!(subject.parked("j", &key).await, [0; 0]);
    assert_eq!(subject.store.parked(ParkedQuery::Place(5), 1).await.expect("a look"), []);
    // One of the same name is another.
    subject.make_handler("j", 1).await;
    let change = subject.take_one("j", &process(1)).await;
    subject.put_lanes(&change, [waiting(key.clone(), 5)]).await;
    assert_eq!(subject.parked("j", &key).await, [0; 0]);
    assert_eq!(subject.park([park("j", &key, None, 7, &[5])]).await, 1);
}

/// The lanes that are in the way of a trim, page by page.
pub async fn lanes_that_need_the_log_are_found(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 30).await;
    for group in ["B", "a", "a.b"] {
        subject.make_handler(group, 1).await;
        let change = subject.take_one(group, &process(1)).await;
        let lanes: Vec<Lane> = vec![
            waiting(object_lane("o"), 4),
            lane_in(LaneState::Held, object_lane("p"), 9),
            lane_in(LaneState::Dead, object_lane("dead"), 1),
            lane_in(LaneState::Done, object_lane("done"), 1),
            waiting(LaneKey::Event(7), 7),
        ];
        subject.put_lanes(&change, lanes).await;
    }
    let needing = async |before: Seq, after: Option<(&str, LaneKey)>, limit: usize| {
        let after = after.map(|(group, key)| (name(group), key));
        let rows = subject.store.lanes(LaneQuery::Needing { before, after }, limit).await.expect("lanes");
        let groups = rows.iter().map(|row| row.group.to_string());
        groups.zip(keys(&rows)).map(|(group, key)| format!("{group} {key}")).collect::<Vec<_>>()
    };
    assert_eq!(needing(4, None, 100).await, [""; 0]);
    assert_eq!(needing(5, None, 100).await, ["B o:o", "a o:o", "a.b o:o"]);
    let all = ["B e:7", "B o:o", "B o:p", "a e:7", "a o:o", "a o:p", "a.b e:7", "a.b o:o", "a.b o:p"];
    assert_eq!(needing(10, None, 100).await, all);
    assert_eq!(needing(10, None, 4).await, all[..4]);
    assert_eq!(needing(10, Some(("a", LaneKey::Event(7))), 4).await, all[4..8]);
    // What is parked is not in the way, up to where.
    subject.park([park("a", &object_lane("o"), None, 9, &[4, 5, 6, 7, 8])]).await;
    assert_eq!(needing(9, None, 100).await, ["B e:7", "B o:o", "a e:7", "a.b e:7", "a.b o:o"]);
    assert_eq!(needing(10, None, 100).await, all);
}
