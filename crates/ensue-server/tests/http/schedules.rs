//! Schedules over HTTP: made, shown with what they mean and when they fire, fired, held, and refused with what is wrong.

use crate::support::Server;
use serde_json::{Value, json};

#[tokio::test]
async fn a_schedule_is_made_shown_changed_and_deleted() {
    let server = Server::start().await;
    let nightly =
        json!({"cron": "30 2 * * *", "timezone": "Europe/Berlin", "topic": "report.nightly", "payload": {"n": 1.50}});
    let made = server.api_ok("PUT", "schedules/nightly", nightly.clone(), 201).await;
    assert_eq!(
        (&made["description"], &made["timezone"]),
        (&json!("At 02:30 (Europe/Berlin)"), &json!("Europe/Berlin"))
    );
    assert_eq!((&made["misfire"], &made["overlap"], &made["warning"]), (&json!("once"), &Value::Null, &Value::Null));
    assert_eq!(made["next"].as_array().unwrap().len(), 5);
    assert_eq!(made["due"], made["next"][0]);
    let again = server.api_ok("PUT", "schedules/nightly", nightly, 200).await;
    assert_eq!(again["updated_at"], made["updated_at"]);
    assert_eq!(server.api_ok("GET", "schedules/nightly", Value::Null, 200).await["payload"], json!({"n": 1.5}));
    let sweep =
        json!({"every": "5m", "handler": "sweep", "jitter": "10s", "priority": 7, "misfire": "all", "attempts_max": 2});
    let sweep = server.api_ok("PUT", "schedules/sweep", sweep, 201).await;
    assert_eq!((&sweep["overlap"], &sweep["every"], &sweep["jitter"]), (&json!("skip"), &json!("5m"), &json!("10s")));

    let page = server.api_ok("GET", "schedules?limit=1", Value::Null, 200).await;
    assert_eq!((page["schedules"].as_array().unwrap().len(), &page["next"]), (1, &json!("nightly")));
    let rest = server.api_ok("GET", "schedules?after=nightly", Value::Null, 200).await;
    assert_eq!((&rest["schedules"][0]["name"], &rest["next"]), (&json!("sweep"), &Value::Null));

    server.api_ok("DELETE", "schedules/sweep", Value::Null, 200).await;
    for (method, path) in [
        ("GET", "schedules/sweep"),
        ("DELETE", "schedules/sweep"),
        ("POST", "schedules/sweep/run"),
        ("GET", "schedules/sweep/runs"),
    ] {
        server.api(method, path, Value::Null).await.problem(404);
    }
    server.api("GET", "explain?schedule=sweep", Value::Null).await.problem(404);
}

#[tokio::test]
async fn a_schedule_is_fired_by_hand_and_says_what_came_of_it() {
    let server = Server::start().await;
    server.api_ok("PUT", "schedules/a", json!({"cron": "@yearly", "topic": "tick"}), 201).await;
    server.api_ok("PUT", "schedules/b", json!({"cron": "@yearly", "handler": "h"}), 201).await;
    let run = server.api_ok("POST", "schedules/a/run", Value::Null, 200).await;
    assert_eq!((&run["outcome"], &run["event"], &run["manual"]), (&json!("event"), &json!(1), &json!(true)));
    let event = server.api_ok("GET", "events/1", Value::Null, 200).await;
    assert_eq!((&event["object"], &event["metadata"]["schedule"]), (&json!("schedule:a"), &json!("a")));
    let job = server.api_ok("POST", "schedules/b/run", Value::Null, 200).await;
    assert_eq!(job["outcome"], "job");
    let sent = server.job(job["job"].as_str().unwrap()).await;
    assert_eq!((&sent["handler"], &sent["state"]), (&json!("h"), &json!("available")));
    // While it lives the next is left out, and says whose job it is.
    let second = server.api_ok("POST", "schedules/b/run", Value::Null, 200).await;
    assert_eq!((&second["outcome"], &second["job"]), (&json!("overlapped"), &job["job"]));
    let runs = server.api_ok("GET", "schedules/b/runs?limit=1", Value::Null, 200).await;
    assert_eq!((&runs["runs"][0]["number"], &runs["next"]), (&json!(2), &json!(2)));
    let runs = server.api_ok("GET", "schedules/b/runs?before=2", Value::Null, 200).await;
    assert_eq!((&runs["runs"][0]["outcome"], &runs["next"]), (&json!("job"), &Value::Null));

    server.api_ok("PUT", "rules/pause/schedule:a", json!({"reason": "later"}), 201).await;
    server.api("POST", "schedules/a/run", Value::Null).await.problem(409);
    assert_eq!(server.api_ok("GET", "schedules/a", Value::Null, 200).await["held"], true);
    let why = server.api_ok("GET", "explain?schedule=a", Value::Null, 200).await;
    assert_eq!((&why["verdict"], &why["because"][0]["fix"]), (&json!("held"), &json!("ensue resume schedule:a")));
    server.api_ok("DELETE", "rules/pause/schedule:a", Value::Null, 200).await;
    assert_eq!(server.api_ok("GET", "explain?schedule=a", Value::Null, 200).await["verdict"], "waiting");
}

/// Seed 004 writes this for every minute; it says what it means, and when it fires next.
#[tokio::test]
async fn what_is_probably_not_meant_gets_a_warning() {
    let server = Server::start().await;
    let odd = server.api_ok("PUT", "schedules/odd", json!({"cron": "0/1 * 0 ? * * *", "topic": "t"}), 201).await;
    let warning = odd["warning"].as_str().unwrap();
    assert!(warning.contains("3600 times") && warning.contains("it fires next at"), "{warning}");
}

#[tokio::test]
async fn bad_input_is_refused_with_its_field_and_makes_nothing() {
    let server = Server::start().await;
    for (body, told) in [
        (json!({}), "`cron` is missing"),
        (json!({"topic": "t"}), "`cron` is missing"),
        (json!({"cron": "@daily"}), "`topic` is missing"),
        (json!({"cron": "@daily", "every": "5m", "topic": "t"}), "`every` stands beside"),
        (json!({"cron": "@daily", "topic": "t", "handler": "h"}), "`handler` stands beside"),
        (json!({"cron": "61 * * * *", "topic": "t"}), "`61` as its minute (field 1)"),
        (json!({"cron": "* * *", "topic": "t"}), "3 fields"),
        (json!({"cron": "0 0 30 2 *", "topic": "t"}), "no time to come"),
        (json!({"cron": 5, "topic": "t"}), "`cron` must be a string"),
        (json!({"every": "0s", "topic": "t"}), "`every`"),
        (json!({"every": "9999d", "topic": "t"}), "`every`"),
        (json!({"cron": "@daily", "timezone": "Mars/Olympus", "topic": "t"}), "`timezone`"),
        (json!({"cron": "@daily", "topic": "t", "overlap": "skip"}), "`overlap` is for a schedule with `handler`"),
        (json!({"cron": "@daily", "handler": "h", "overlap": "never"}), "`overlap` is not known"),
        (json!({"cron": "@daily", "topic": "t", "misfire": "never"}), "`misfire` is not known"),
        (json!({"cron": "@daily", "topic": "t", "jitter": "25h"}), "`jitter`"),
        (json!({"cron": "@daily", "topic": "ensue.x"}), "`topic`"),
        (json!({"cron": "@daily", "handler": "a..b"}), "`handler`"),
        (json!({"cron": "@daily", "handler": "h", "attempts_max": 0}), "`attempts_max`"),
        (json!({"cron": "@daily", "topic": "t", "payload": "x".repeat(65_536)}), "a schedule has at most 65536"),
    ] {
        let refused = server.api("PUT", "schedules/x", body.clone()).await;
        assert_eq!(refused.status, 422, "{body}: {}", refused.text());
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(told), "{body}: {detail}");
    }
    server.api("PUT", "schedules/x", json!({"corn": "@daily"})).await.problem(422);
    server.api("PUT", "schedules/a..b", json!({"cron": "@daily", "topic": "t"})).await.problem(400);
    server.api("GET", "schedules?limit=0", Value::Null).await.problem(400);
    assert_eq!(server.api_ok("GET", "schedules", Value::Null, 200).await["schedules"], json!([]));
}
