//! Follow a part of the log: by topic and by a condition on what events say, history first and then live.
//!
//! `cargo run -p ensue --example stream_and_conditions`

use ensue::{Ensue, Json, NewEvent, Streamed, Subscription};

fn order(topic: &str, object: &str, total: u32) -> NewEvent {
    NewEvent::new(topic).object(object).payload_json(format!(r#"{{"total": {total}}}"#))
}

/// What this example prints.
pub async fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let bus = Ensue::memory().await?;
    for (topic, object, total) in [
        ("order.placed", "order:1", 50),
        ("order.placed", "order:2", 500),
        ("order.changed", "order:2", 90),
        ("order.changed", "order:2", 700),
        ("invoice.sent", "invoice:1", 900),
    ] {
        bus.publish(order(topic, object, total)).await?;
    }

    // A condition is an SQL expression over `e`, the event, and `s.params`. A mistake in it is told here, with its place,
    // and not while events come in.
    let params = Json::parse("params", r#"{"min": 100}"#)?;
    let large = Subscription::topic("order").and_when("e.payload->'total' >= s.params->'min'", params).after(0);
    let mut stream = bus.stream(large).await?;

    let mut printed = Vec::new();
    while let Some(streamed) = stream.next().await {
        match streamed? {
            // `prev` is the preceding event of the object as this reader sees it: event 3 is none of its own.
            Streamed::Event(delivered) => {
                let event = &delivered.event;
                let (topic, payload) = (&event.topic, event.payload.as_str());
                printed.push(format!("{}: {topic} {payload}, prev {:?}", event.seq, delivered.prev));
                if event.topic.as_str() == "order.paid" {
                    break;
                }
            }
            // The history is over; what follows comes as it is published.
            Streamed::Caught(seq) => {
                printed.push(format!("caught up with {seq}"));
                bus.publish(order("order.paid", "order:2", 700)).await?;
            }
            // A stream never passes over something in silence.
            Streamed::Gap { from, to, reason } => printed.push(format!("lost {from} to {to}: {reason:?}")),
            Streamed::ConditionFailed(failed) => printed.push(format!("{failed:?}")),
        }
    }
    Ok(printed)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    run().await?.iter().for_each(|line| println!("{line}"));
    Ok(())
}
