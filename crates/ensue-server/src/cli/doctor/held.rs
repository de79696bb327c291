//! What has been given up for the moment, and waits for somebody?

use super::Checks;
use crate::cli::output;
use ensue::positions::LaneKey;
use ensue::{Ensue, HeldLane};

/// How many are told of by name.
const NAMED_MAX: usize = 20;

/// Looks at objects, events and jobs that have exhausted their attempts.
pub(super) async fn look(bus: &Ensue, checks: &mut Checks) {
    let held = match bus.held(None, NAMED_MAX + 1).await {
        Ok(held) => held,
        Err(error) => return checks.problem("objects", error.to_string(), "check that the store can be read"),
    };
    if held.is_empty() {
        return checks.ok("objects", "none is held");
    }
    for lane in held.iter().take(NAMED_MAX) {
        let (found, fix) = told(lane);
        checks.note("objects", found, fix);
    }
    if held.len() > NAMED_MAX {
        checks.note("objects", "and more", "ensue object list --held");
    }
}

/// What stands still where, and how it is brought back.
fn told(lane: &HeldLane) -> (String, String) {
    let (handler, since) = (lane.handler(), lane.since());
    let (what, again) = match lane {
        HeldLane::Events(row) => match &row.lane.key {
            LaneKey::Object(object) => {
                (format!("`{object}` at event {}", row.lane.position), format!("object retry {object}"))
            }
            LaneKey::Event(seq) => (format!("event {seq}"), format!("event retry {seq}")),
        },
        HeldLane::Jobs { job, .. } => match &job.object {
            Some(object) => (format!("`{object}` at job {}", job.id), format!("object retry {object}")),
            None => (format!("job {}", job.id), format!("job retry {}", job.id)),
        },
    };
    let error = match lane {
        HeldLane::Events(row) => row.lane.error.as_deref(),
        HeldLane::Jobs { job, .. } => job.errors.last().map(|last| last.error.as_str()),
    };
    let why = error.map_or(String::new(), |error| format!(": {}", output::shown(&error.into())));
    // A job is its handler's alone.
    let of = if again.starts_with("job ") { String::new() } else { format!(" --handler {handler}") };
    (
        format!("{what} is held for the handler `{handler}` since {since}{why}"),
        format!("ensue {again}{of}, or skip instead of retry"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue::{Context, Emit, Event, HandlerError, NewEvent, Retry};
    use std::time::Duration;

    #[tokio::test]
    async fn what_waits_for_somebody_is_named_with_its_error_and_what_to_do() {
        let bus = Ensue::memory().await.unwrap();
        let fails = |_: Event, _: Context| async { Err::<(), _>(HandlerError::failed("no paper")) };
        bus.on("order").named("print").retry(Retry::attempts(1)).handle(fails).unwrap();
        bus.register("mail", fails).unwrap();
        let told = async || {
            let mut checks = Checks::default();
            look(&bus, &mut checks).await;
            checks.checks.into_iter().map(|check| (check.found, check.fix.unwrap_or_default())).collect::<Vec<_>>()
        };
        let running = bus.start().await.unwrap();
        assert_eq!(told().await, [("none is held".to_owned(), String::new())]);
        bus.publish_all(vec![NewEvent::new("order").object("order:1"), NewEvent::new("order")]).await.unwrap();
        bus.emit(Emit::to("mail").object("user:1").attempts_max(1)).await.unwrap();
        bus.drain().await.unwrap();
        let mut told = told().await;
        told.sort();
        let [(order, order_fix), (user, user_fix), (alone, alone_fix)] = &told[..] else { panic!("{told:?}") };
        assert!(alone.starts_with("event 2 is held for the handler `order.print` since "), "{alone}");
        assert!(order.starts_with("`order:1` at event 1 is held for the handler `order.print`"), "{order}");
        assert!(user.starts_with("`user:1` at job ") && user.contains(" is held for the handler `mail`"), "{user}");
        for found in [alone, order, user] {
            assert!(found.ends_with(": no paper"), "{found}");
        }
        assert_eq!(alone_fix, "ensue event retry 2 --handler order.print, or skip instead of retry");
        assert_eq!(order_fix, "ensue object retry order:1 --handler order.print, or skip instead of retry");
        assert_eq!(user_fix, "ensue object retry user:1 --handler mail, or skip instead of retry");
        running.shutdown(Duration::from_secs(60)).await.unwrap();
    }
}
