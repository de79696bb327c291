//! Whom does the log wait for, and whom no longer?

use super::Checks;
use crate::cli::output;
use crate::config::units::Span;
use ensue::groups::Group;
use ensue::positions::GroupKind;
use ensue::{Ensue, Retention, Timestamp};
use jiff::SignedDuration;

/// How many groups are told of by name.
const NAMED_MAX: usize = 20;
/// How long a handler may be behind without being served before that is told: a restart takes less.
const UNSERVED_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// Looks at the groups: what pins the log, who is served by nobody, and who has lost something.
pub(super) async fn look(bus: &Ensue, retention: &Retention, checks: &mut Checks) {
    let asked = async { Ok::<_, ensue::Error>((bus.groups().list().await?, bus.store().now().await?)) };
    let (groups, now) = match asked.await {
        Ok(answers) => answers,
        Err(error) => return checks.problem("groups", error.to_string(), "check that the store can be read"),
    };
    tell(&groups, retention, now, checks);
}

fn tell(groups: &[Group], retention: &Retention, now: Timestamp, checks: &mut Checks) {
    let Some(bounds) = groups.first().map(|group| group.bounds) else {
        return checks.ok("groups", "there are none");
    };
    let held = retention.held_back_by(groups.iter().map(|group| &group.state), now);
    let waits = match held {
        Some((group, from)) if retention.forgets() && from <= bounds.last => format!(
            "retention keeps what is from seq {from} on, for `{}`: {} behind",
            group.name,
            output::events(bounds.last + 1 - from)
        ),
        _ if !retention.forgets() => "nothing is ever forgotten, so nobody is waited for".into(),
        Some(_) | None => "retention waits for nobody".into(),
    };
    checks.ok("groups", format!("{}; {waits}", output::counted(groups.len() as u64, "group")));
    for group in groups.iter().filter(|group| retention.is_orphan(&group.state, now)).take(NAMED_MAX) {
        let (name, hold_max) =
            (&group.state.name, retention.hold_max.map_or(String::new(), |span| Span(span).to_string()));
        let found = format!(
            "`{name}` is an orphan: last served {}, longer ago than {hold_max}; the log does not wait for it any more",
            group.state.served_at
        );
        checks.note("groups", found, format!("serve it, or delete it: ensue group delete {name}"));
    }
    let unserved = |group: &&Group| {
        group.state.kind == GroupKind::Handler
            && !retention.is_orphan(&group.state, now)
            && group.state.lag(group.bounds) > 0
            && now.duration_since(group.state.served_at) > UNSERVED_AFTER
    };
    for group in groups.iter().filter(unserved).take(NAMED_MAX) {
        let (name, lag) = (&group.state.name, output::events(group.state.lag(group.bounds)));
        let found = format!("nobody serves the handler `{name}` since {}: {lag} behind", group.state.served_at);
        checks.note("groups", found, format!("start what runs it, or delete it: ensue group delete {name}"));
    }
    for (group, lost) in groups.iter().filter_map(|group| Some((group, group.lost()?))).take(NAMED_MAX) {
        let found = format!("`{}` has lost seq {} to {} to retention", group.state.name, lost.from, lost.to);
        checks.note("groups", found, "serve it more often, or set a longer retention.age or retention.hold_max");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue::groups::Wants;
    use ensue::{NewEvent, Seq};

    async fn told(hold_max: SignedDuration, hours_later: i64, trim: Seq) -> Vec<String> {
        let bus = Ensue::memory().await.unwrap();
        bus.groups().subscribe("billing", Wants::default()).await.unwrap();
        bus.publish_all(vec![NewEvent::new("t"); 10]).await.unwrap();
        bus.store().trim(trim, 100).await.unwrap();
        let retention = Retention { age: Some(hold_max), hold_max: Some(hold_max), ..Retention::default() };
        let now = bus.store().now().await.unwrap() + SignedDuration::from_hours(hours_later);
        let mut checks = Checks::default();
        tell(&bus.groups().list().await.unwrap(), &retention, now, &mut checks);
        checks.checks.into_iter().map(|check| check.found).collect()
    }

    /// A handler that was taken out of the config file, or whose process is gone.
    #[tokio::test]
    async fn a_handler_that_nobody_serves_is_named_once_it_is_behind() {
        let bus = Ensue::memory().await.unwrap();
        bus.on("t").named("index").handle(|_: ensue::Event, _: ensue::Context| async { Ok(()) }).unwrap();
        let running = bus.start().await.unwrap();
        running.shutdown(std::time::Duration::from_secs(30)).await.unwrap();
        let told = async |minutes: i64| {
            let now = bus.store().now().await.unwrap() + SignedDuration::from_mins(minutes);
            let mut checks = Checks::default();
            tell(&bus.groups().list().await.unwrap(), &Retention::default(), now, &mut checks);
            checks.checks.into_iter().skip(1).map(|check| check.found).collect::<Vec<_>>()
        };
        assert_eq!(told(5).await, [] as [String; 0], "nothing waits for it");
        bus.publish(NewEvent::new("t")).await.unwrap();
        assert_eq!(told(0).await, [] as [String; 0], "it may come back");
        let found = told(5).await;
        assert!(found.len() == 1 && found[0].starts_with("nobody serves the handler `t.index` since"), "{found:?}");
        assert!(found[0].ends_with(": 1 event behind"), "{found:?}");
    }

    #[tokio::test]
    async fn whoever_pins_the_log_is_named_and_so_is_an_orphan_and_a_loss() {
        let day = SignedDuration::from_hours(24);
        let told_of = told(day, 1, 1).await;
        assert_eq!(told_of, ["1 group; retention keeps what is from seq 1 on, for `billing`: 10 events behind"]);
        let told_of = told(day, 25, 5).await;
        assert_eq!(told_of[0], "1 group; retention waits for nobody");
        assert!(told_of[1].starts_with("`billing` is an orphan") && told_of[1].contains("1d"), "{told_of:?}");
        assert_eq!(told_of[2], "`billing` has lost seq 1 to 4 to retention");
    }
}
