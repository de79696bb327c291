//! A bus may be used from several runtimes, and outlives each of them.

use ensue::{Ensue, NewEvent, Subscription};
use tokio::runtime::Runtime;

async fn publish(bus: &Ensue, topic: &str) {
    bus.publish(NewEvent::new(topic)).await.unwrap();
}

/// The one task that reads the log for all streams runs in the runtime of whoever listened first.
#[test]
fn streams_go_on_when_the_runtime_that_the_tail_ran_in_has_ended() {
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let (bus, mut old) = first.block_on(async {
        let bus = Ensue::memory().await.unwrap();
        let mut stream = bus.stream(Subscription::all().after(0)).await.unwrap();
        publish(&bus, "one").await;
        assert_eq!(stream.next_event().await.unwrap().event.seq, 1);
        (bus, stream)
    });
    drop(first);
    second.block_on(async {
        publish(&bus, "two").await;
        let mut new = bus.stream(Subscription::all().after(0)).await.unwrap();
        for expected in [1, 2] {
            assert_eq!(new.next_event().await.unwrap().event.seq, expected);
        }
        assert_eq!(old.next_event().await.unwrap().event.seq, 2);
        publish(&bus, "three").await;
        assert_eq!(new.next_event().await.unwrap().event.seq, 3);
        assert_eq!(old.next_event().await.unwrap().event.seq, 3);
    });
}
