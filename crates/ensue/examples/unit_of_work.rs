//! Operations that take part in one piece of work, and events that are there if and only if the work is.
//!
//! `cargo run -p ensue --example unit_of_work`

use ensue::unit::{Hooked, OperationError, Unit, done};
use ensue::{Ensue, Filter, NewEvent, Operation, Read};
use std::sync::{Arc, Mutex};

type Printed = Arc<Mutex<Vec<String>>>;

/// Publishes a record: its row, and the event, with the commit.
struct Publish {
    id: i64,
    title: &'static str,
    printed: Printed,
}

impl Publish {
    fn say(&self, what: &str) {
        self.printed.lock().expect("nobody panics").push(format!("record {}: {what}", self.id));
    }
}

impl Operation for Publish {
    fn on_register<'a>(&'a mut self, _unit: Unit<'a>) -> Hooked<'a> {
        self.say("registered");
        done()
    }

    /// In the transaction; on Postgres these statements would be `unit.postgres()?.execute(…).await?`.
    fn on_commit<'a>(&'a mut self, mut unit: Unit<'a>) -> Hooked<'a> {
        Box::pin(async move {
            if self.title.is_empty() {
                return Err(OperationError::new(format!("record {} has no title", self.id)));
            }
            self.say("about to commit");
            unit.sqlite()?.execute("INSERT INTO records VALUES (?1)", [self.id])?;
            Ok(unit.publish(NewEvent::new("record.published").object(format!("record:{}", self.id)))?)
        })
    }

    fn on_post_commit(&mut self) -> Hooked<'_> {
        self.say("committed");
        done()
    }

    fn on_exception<'a>(&'a mut self, reason: &'a str) -> Hooked<'a> {
        self.say(&format!("failed: {}", reason.rsplit("failed: ").next().unwrap_or(reason)));
        done()
    }

    fn on_post_rollback(&mut self) -> Hooked<'_> {
        self.say("taken back");
        done()
    }
}

/// What this example prints.
pub async fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let (bus, printed) = (Ensue::memory().await?, Printed::default());
    bus.transaction(|tx| Ok(tx.execute_batch("CREATE TABLE records (id INTEGER PRIMARY KEY)")?)).await?;
    for (id, title) in [(1, "On order"), (2, "")] {
        let operation = Publish { id, title, printed: printed.clone() };
        let unit = bus.unit_of_work(move |unit| {
            // Said in the metadata of every event of this unit.
            unit.context(&serde_json::json!({ "request": format!("r-{id}") }))?;
            unit.register(operation)
        });
        // The second one is taken back as a whole.
        assert_eq!(unit.await.is_ok(), id == 1);
    }
    let mut lines = std::mem::take(&mut *printed.lock().expect("nobody panics"));
    let log = bus.store().read(Read { after: 0, limit: 10, filter: Filter::default() }).await?;
    for event in log.events {
        let object = event.object.map_or(String::new(), |object| object.to_string());
        lines.push(format!("{} {object} {}", event.topic, event.metadata.as_str()));
    }
    let count = "SELECT count(*) FROM records";
    let records: i64 = bus.transaction(|tx| Ok(tx.query_row(count, [], |row| row.get(0))?)).await?;
    lines.push(format!("records: {records}"));
    Ok(lines)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    run().await?.iter().for_each(|line| println!("{line}"));
    Ok(())
}
