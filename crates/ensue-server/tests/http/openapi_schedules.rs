//! Every status that is described of schedules happens: see `openapi.rs`.

use crate::openapi::{JSON, TOKEN};
use crate::support::Server;
use ensue::schedules::{Schedule, Target, Timing};
use ensue::{GroupName, Topic};
use std::collections::BTreeSet;

/// What each operation on schedules answers by itself.
pub async fn answer(server: &Server, seen: &mut BTreeSet<(String, String, u16)>) {
    let target = Target::Topic(Topic::parse("t").unwrap());
    let declared = Schedule::new(GroupName::stored("declared"), Timing::cron("@daily", None).unwrap(), target);
    let declared = Schedule { managed_by: Some("config".into()), ..declared };
    assert!(server.bus.declare_schedules(vec![declared]).await.unwrap().is_empty());
    let mut ask = async |method: &str, path: &str, target: &str, body: &str| {
        let answer = server.request(method, &format!("/v1{target}"), &[TOKEN, JSON], body.as_bytes()).await;
        seen.insert((method.to_string(), format!("/v1{path}"), answer.status));
    };
    let (one, good) = ("/schedules/{name}", r#"{"cron":"@daily","topic":"t"}"#);
    for (target, body) in [
        ("/schedules/s", good),
        ("/schedules/s", good),
        ("/schedules/declared", good),
        ("/schedules/s", "{}"),
        ("/schedules/s", "{"),
        ("/schedules/a..b", good),
    ] {
        ask("PUT", one, target, body).await;
    }
    for target in ["/schedules", "/schedules?limit=0"] {
        ask("GET", "/schedules", target, "").await;
    }
    for target in ["/schedules/s", "/schedules/none", "/schedules/a..b"] {
        ask("GET", one, target, "").await;
        ask("GET", "/schedules/{name}/runs", &format!("{target}/runs"), "").await;
        ask("POST", "/schedules/{name}/run", &format!("{target}/run"), "").await;
        ask("GET", "/explain", &format!("/explain?schedule={}", target.trim_start_matches("/schedules/")), "").await;
    }
    ask("PUT", "/rules/{kind}/{scope}", "/rules/pause/schedule:s", "").await;
    ask("POST", "/schedules/{name}/run", "/schedules/s/run", "").await;
    for target in ["/schedules/s", "/schedules/s", "/schedules/declared", "/schedules/a..b"] {
        ask("DELETE", one, target, "").await;
    }
}
