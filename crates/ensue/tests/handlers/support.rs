//! What the tests of handlers share.

use ensue::positions::LaneKey;
use ensue::{Event, GroupName, NewEvent, ObjectKey, Seq, Stuck};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// No test takes so long, unless what it waits for never comes.
pub const LONG: Duration = Duration::from_secs(180);

/// An event of an object.
pub fn event(topic: &str, object: &str) -> NewEvent {
    NewEvent::new(topic).object(object)
}

/// The key of a handler.
pub fn name(text: &str) -> GroupName {
    GroupName::parse("name", text).unwrap()
}

/// The lane of an object.
pub fn lane(object: &str) -> LaneKey {
    LaneKey::Object(ObjectKey::parse(object).unwrap())
}

/// An object that stands still.
pub fn stuck(object: &str) -> Stuck {
    Stuck::Object(ObjectKey::parse(object).unwrap())
}

/// The handlers that are pending in the answer of a publish.
pub fn pending(reports: &[ensue::SyncReport]) -> Vec<ensue::GroupName> {
    let pending = reports.iter().filter(|report| report.outcome == ensue::SyncOutcome::Pending);
    pending.map(|report| report.handler.clone()).collect()
}

/// Comes back when the condition holds; if it never does, the test fails with what is wrong then.
pub async fn until(otherwise: &str, mut condition: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{otherwise}"));
}

/// Tests of both engines, from what each must do with the address of an empty store. Schemas begin with the first word.
#[cfg(feature = "sqlite")]
macro_rules! on_both {
    ($schema:literal; $($name:ident;)+) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    super::$name("sqlite::memory:").await;
                }
            )+
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    let (url, _schema) = ensue_conformance::postgres::fresh_schema($schema);
                    super::$name(&url).await;
                }
            )+
        }
    };
}

#[cfg(feature = "sqlite")]
pub(crate) use on_both;

/// What handlers were given, in the order in which they were.
#[derive(Clone, Default)]
pub struct Seen(Arc<Mutex<Vec<(String, Seq)>>>);

impl Seen {
    pub fn push(&self, event: &Event) {
        let object = event.object.as_ref().map_or(String::new(), |object| object.to_string());
        self.0.lock().unwrap().push((object, event.seq));
    }

    pub fn all(&self) -> Vec<(String, Seq)> {
        self.0.lock().unwrap().clone()
    }

    pub fn of(&self, object: &str) -> Vec<Seq> {
        self.all().into_iter().filter(|(seen, _)| seen == object).map(|(_, seq)| seq).collect()
    }

    pub fn seqs(&self) -> Vec<Seq> {
        self.all().into_iter().map(|(_, seq)| seq).collect()
    }
}
