//! H35: a promoted replica lacks the last events and gives their numbers out again. Streams that are open notice, say so,
//! and go on such that nothing of the new log is missed.

use ensue::{Ensue, Event, EventId, EventStream, Filter, GapReason, NewEvent, Read, Streamed, Subscription, Topic};
use ensue_conformance::ManualClock;
use ensue_conformance::model::Model;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::time::Duration;

/// Far beyond what any of this takes: a stream that stands still fails the test instead of hanging it.
const PATIENCE: Duration = Duration::from_secs(180);

/// A bus on a store that can fail over.
fn bus() -> (Ensue, Model) {
    let model = Model::new(ManualClock::at_noon().clock());
    (Ensue::with_store(model.clone()), model)
}

/// `count` events, every second of them on topic `even`.
async fn publish(bus: &Ensue, count: usize) {
    let event =
        |n: usize| NewEvent::new(if n.is_multiple_of(2) { "even" } else { "odd" }).object(format!("o{}", n % 3));
    bus.publish_all((0..count).map(event).collect()).await.unwrap();
}

/// Everything in the log that a filter matches.
async fn log_of(bus: &Ensue, filter: &Filter) -> Vec<Event> {
    let (mut events, mut after) = (Vec::new(), 0);
    loop {
        let page = bus.store().read(Read { after, limit: 1_000, filter: filter.clone() }).await.unwrap();
        events.extend(page.events);
        if page.next == after {
            return events;
        }
        after = page.next;
    }
}

/// A reader that believes what its stream says.
struct Client {
    stream: EventStream,
    filter: Filter,
    /// What it believes to be the log: the id and the `prev` of each place.
    log: BTreeMap<u64, (EventId, Option<u64>)>,
    gaps: Vec<(u64, u64)>,
}

impl Client {
    async fn new(bus: &Ensue, topic: Option<&str>) -> Self {
        let filter = Filter { topic: topic.map(Topic::stored), object: None };
        let stream = bus.stream(Subscription::filter(filter.clone()).after(0)).await.unwrap();
        Self { stream, filter, log: BTreeMap::new(), gaps: Vec::new() }
    }

    /// Takes the next thing.
    async fn step(&mut self) {
        let next = tokio::time::timeout(PATIENCE, self.stream.next()).await.expect("the stream goes on");
        match next.unwrap().unwrap() {
            Streamed::Event(delivered) => {
                let event = &delivered.event;
                let newest = self.log.last_key_value().map_or(0, |(seq, _)| *seq);
                assert!(event.seq > newest, "{} comes after {newest}", event.seq);
                self.log.insert(event.seq, (event.id, delivered.prev));
            }
            Streamed::Gap { from, to, reason } => {
                assert_eq!(reason, GapReason::WentBack);
                assert!(from <= to);
                self.log.split_off(&from);
                self.gaps.push((from, to));
            }
            Streamed::Caught(_) | Streamed::ConditionFailed(_) => {}
        }
    }

    /// Takes so many things, or what there is.
    async fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step().await;
        }
    }

    /// Reads on until it has been told of a gap.
    async fn until_told(&mut self) {
        while self.gaps.is_empty() {
            self.step().await;
        }
    }

    /// Reads on until it has seen the end of the log; then it must have what is there, and nothing else.
    async fn catches_up(&mut self, bus: &Ensue) {
        let log = log_of(bus, &self.filter).await;
        let newest = log.last().map(|event| event.id);
        while self.log.last_key_value().map(|(_, (id, _))| *id) != newest {
            self.step().await;
        }
        let mut last_of_object = BTreeMap::new();
        let expected: Vec<_> = log
            .into_iter()
            .map(|event| (event.seq, (event.id, last_of_object.insert(event.object, event.seq))))
            .collect();
        assert_eq!(self.log.clone().into_iter().collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn a_log_that_ends_before_the_stream_is_noticed_and_read_again() {
    let (bus, model) = bus();
    let mut client = Client::new(&bus, None).await;
    publish(&bus, 1_000).await;
    client.catches_up(&bus).await;
    model.fail_over(10);
    // Nobody rings: the log is looked at all the same.
    client.until_told().await;
    assert_eq!(client.gaps, [(991, 1_000)]);
    publish(&bus, 5).await;
    client.catches_up(&bus).await;
    assert_eq!(client.log.len(), 995);
}

#[tokio::test]
async fn a_log_that_has_grown_past_the_stream_with_other_events_is_noticed() {
    let (bus, model) = bus();
    let mut client = Client::new(&bus, None).await;
    publish(&bus, 1_000).await;
    client.catches_up(&bus).await;
    model.fail_over(10);
    // The numbers alone look as if the log had only gone on.
    publish(&bus, 30).await;
    client.catches_up(&bus).await;
    assert_eq!(client.gaps, [(991, 1_000)]);
}

#[tokio::test]
async fn a_log_of_the_same_length_with_other_events_is_noticed() {
    let (bus, model) = bus();
    let mut client = Client::new(&bus, None).await;
    publish(&bus, 10).await;
    client.catches_up(&bus).await;
    model.fail_over(10);
    publish(&bus, 10).await;
    client.catches_up(&bus).await;
    assert_eq!(client.gaps, [(1, 10)]);
}

/// The stream itself remembers nothing of the events that its filter passes over, and its `prev`s of before are void.
#[tokio::test]
async fn a_filtered_stream_goes_back_too_and_its_prevs_are_those_of_the_new_log() {
    let (bus, model) = bus();
    let mut client = Client::new(&bus, Some("even")).await;
    publish(&bus, 100).await;
    client.catches_up(&bus).await;
    model.fail_over(7);
    publish(&bus, 20).await;
    client.catches_up(&bus).await;
    // The last event of its own may be before what was lost: its place was behind it all the same.
    assert_eq!(client.gaps, [(94, 100)]);
}

/// It reads the store by pages, and the store's pages come from another log all at once.
#[tokio::test]
async fn a_slow_stream_notices_as_soon_as_anybody_does() {
    let (bus, model) = bus();
    let mut quick = Client::new(&bus, None).await;
    let mut slow = Client::new(&bus, None).await;
    let mut untouched = Client::new(&bus, None).await;
    for _ in 0..10 {
        publish(&bus, 1_000).await;
        quick.catches_up(&bus).await;
    }
    slow.steps(6_000).await;
    untouched.steps(300).await;
    model.fail_over(5_000);
    for _ in 0..4 {
        publish(&bus, 1_000).await;
    }
    quick.until_told().await;
    slow.catches_up(&bus).await;
    quick.catches_up(&bus).await;
    untouched.catches_up(&bus).await;
    // Slow had come beyond what was lost; it goes back somewhat further than needed, because what is remembered of so
    // long ago is thin.
    let [(from, to)] = slow.gaps[..] else { panic!("{:?}", slow.gaps) };
    assert!((4_900..=5_001).contains(&from), "{from}");
    assert!((5_990..=6_000).contains(&to), "{to}");
    assert_eq!(quick.gaps, [(from, 10_000)]);
    // This one had not come so far: nothing that it has has changed.
    assert_eq!(untouched.gaps, []);
}

/// Nothing that is remembered holds: the log is another one, and is read from its beginning.
#[tokio::test]
async fn another_log_is_read_from_its_beginning() {
    let (bus, model) = bus();
    publish(&bus, 500).await;
    let mut client = Client::new(&bus, None).await;
    client.catches_up(&bus).await;
    model.fail_over(500);
    publish(&bus, 700).await;
    client.catches_up(&bus).await;
    assert_eq!(client.gaps, [(1, 500)]);
}

/// A process that has just begun to listen knows some events of the time before.
#[tokio::test]
async fn what_was_lost_before_the_stream_began_does_not_cost_the_whole_log() {
    let (bus, model) = bus();
    publish(&bus, 1_000).await;
    let mut live = bus.stream(Subscription::all()).await.unwrap();
    assert_eq!(live.next().await, Some(Ok(Streamed::Caught(1_000))));
    model.fail_over(100);
    publish(&bus, 200).await;
    let gap = live.next().await.unwrap().unwrap();
    let Streamed::Gap { from, to: 1_000, reason: GapReason::WentBack } = gap else { panic!("{gap:?}") };
    assert!((500..=901).contains(&from), "{from}");
    assert_eq!(live.next_event().await.unwrap().event.seq, from);
}

/// What retention took cannot be compared, and is no reason to say that the log went back.
#[tokio::test]
async fn retention_is_not_taken_for_a_failover() {
    let (bus, model) = bus();
    let mut client = Client::new(&bus, None).await;
    publish(&bus, 100).await;
    client.catches_up(&bus).await;
    bus.store().trim(101, 1_000).await.unwrap();
    publish(&bus, 10).await;
    client.steps(10).await;
    assert_eq!(client.gaps, []);
    model.fail_over(5);
    publish(&bus, 10).await;
    client.until_told().await;
    assert_eq!(client.gaps, [(106, 110)]);
}

/// Whatever happens in whatever order: who believes its stream has the log in the end.
#[tokio::test]
async fn clients_end_with_the_log_however_often_it_goes_back() {
    for seed in 0..30 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (bus, model) = bus();
        let mut clients = Vec::new();
        for _ in 0..60 {
            match rng.random_range(0..10) {
                0 => clients.push(Client::new(&bus, None).await),
                1 => clients.push(Client::new(&bus, Some("even")).await),
                2..6 => publish(&bus, rng.random_range(1..400)).await,
                6 => model.fail_over(rng.random_range(1..700)),
                _ => {
                    for client in &mut clients {
                        let things = rng.random_range(0..300);
                        let _some_or_all = tokio::time::timeout(Duration::ZERO, client.steps(things)).await;
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
        publish(&bus, 2).await;
        for client in &mut clients {
            client.catches_up(&bus).await;
        }
    }
}
