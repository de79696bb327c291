//! Tasks over HTTP: sources, collections, statuses, logs, on both engines.

use crate::support::tasks::{self, EVER, Tasks};
use crate::support::{PATIENCE, Server};
use ensue::{Context, Emit, Ensue, Event, HandlerError, NewEvent};
use ensue_server::{HttpOptions, Tokens};
use serde_json::{Value, json};

macro_rules! on_both_engines {
    ($($name:ident;)+) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $name() {
                    super::tasks::$name(super::Ensue::memory().await.unwrap()).await;
                }
            )+
        }

        mod postgres {
            $(
                #[tokio::test]
                async fn $name() {
                    let (url, _schema) = ensue_conformance::postgres::fresh_schema("tasks");
                    super::tasks::$name(super::Ensue::open(&url).await.unwrap()).await;
                }
            )+
        }
    };
}

on_both_engines! {
    a_task_is_made_runs_and_ends;
    a_task_that_fails_says_why;
    a_task_that_is_called_off_is_canceled_however_it_ends;
    of_many_requests_one_makes_the_task;
    tasks_run_by_priority_and_in_their_order;
    a_task_whose_worker_vanishes_is_found;
    a_task_that_is_called_off_between_two_attempts_says_so;
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_and_says_what_to_do() {
    let bus = Ensue::memory().await.unwrap();
    let tasks = Tasks::start(bus, HttpOptions::default(), &[("c", "exit 0", "")]).await;
    for (target, status, told) in [
        ("/tasks", 400, "`source` is missing"),
        ("/tasks?source=s", 400, "`collection` is missing"),
        ("/tasks?source=s&collection=", 400, "`collection` is missing"),
        ("/tasks/?source=x&collection=c", 404, "no source \"x\""),
        ("/tasks/?source=s&collection=x", 404, "it has: c"),
        ("/tasks?source=s&collection=c&x=1", 400, "`x` is not a parameter"),
        ("/tasks/nonsense/cancel", 404, "no task"),
        ("/tasks/s_c_0190a5a0-0000-7000-8000-000000000001/cancel", 404, "no task"),
    ] {
        let refused = tasks.post(target).await.problem(status);
        assert!(refused.contains(told), "{target}: {refused}");
    }
    let body =
        tasks.server.request("POST", "/tasks?source=s&collection=c", &["Content-Type: application/json"], b"{\"x\":1}");
    let refused = body.await.problem(422);
    assert!(refused.contains("it has none"), "{refused}");
    for (query, status, told) in [
        (EVER.to_owned(), 400, "`source` is missing"),
        ("source=s&start=2026-01-01T00:00:00Z".into(), 400, "`end` is missing"),
        ("source=s&end=2026-01-01T00:00:00Z".into(), 400, "`start` is missing"),
        ("source=s&start=yesterday&end=2026-01-01T00:00:00Z".into(), 400, "`start`"),
        ("source=s&start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z".into(), 422, "after `end`"),
        (format!("source=s&{EVER}&status=DONE"), 400, "SCHEDULED, RUNNING, FAILED, SUCCESS, CANCELED"),
        (format!("source=s&{EVER}&limit=0"), 400, "`limit`"),
        (format!("source=s&{EVER}&after=x"), 404, "no task"),
        (format!("source=x&{EVER}"), 404, "no source \"x\""),
        (format!("source=s&{EVER}&collection=x"), 404, "no collection \"x\""),
        (format!("source=s&{EVER}&colection=c"), 400, "`colection`"),
        (format!("source=%00&{EVER}"), 400, "`source` may not contain"),
        (format!("source=s&{EVER}&collection="), 400, "`collection` is empty"),
        (format!("source=s&{EVER}&collection=a.b"), 400, "`collection` may not contain '.'"),
    ] {
        let refused = tasks.server.get(&format!("/tasks?{query}")).await.problem(status);
        assert!(refused.contains(told), "{query}: {refused}");
    }
    assert_eq!(tasks.list(EVER).await, [] as [&str; 0], "nothing was made, and the source is known");
    let (id, _) = tasks.run("c").await;
    tasks.until(&id, "SUCCESS").await;
    let other = id.replacen("s_c_", "s_x_", 1);
    for (target, status) in [
        (format!("/tasks/{other}"), 404),
        (format!("/tasks/{}", id.to_uppercase()), 404),
        (format!("/tasks/{}", &id[4..]), 404),
        (format!("/tasks/{id}?x=1"), 400),
        (format!("/tasks/{id}/logs?start=x"), 400),
        (format!("/tasks/{id}/logs?start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z"), 422),
        (format!("/tasks/{other}/logs"), 404),
    ] {
        tasks.server.get(&target).await.problem(status);
    }
    // What has been forgotten since is a place all the same, by its time; what is there under another name is none.
    let gone = "s_c_0190a5a0-0000-7000-8000-000000000001";
    assert_eq!(tasks.list(&format!("{EVER}&after={gone}")).await, [&*id]);
    tasks.server.get(&format!("/tasks?source=s&{EVER}&after={other}")).await.problem(404);
    // Keys that are longer are no tasks, and take no task's place.
    for _ in 0..3 {
        let body = br#"{"handler":"task.s.a.b"}"#;
        tasks.server.request("POST", "/v1/jobs", &["Content-Type: application/json"], body).await;
    }
    let (last, _) = tasks.run("c").await;
    tasks.until(&last, "SUCCESS").await;
    let page = tasks.server.get(&format!("/tasks?source=s&{EVER}&limit=2")).await.json();
    assert_eq!((page["tasks"].as_array().unwrap().len(), &page["next"]), (2, &json!(last)), "{page}");
    assert_eq!(tasks.list(&format!("{EVER}&after={id}&limit=1")).await, [&*last]);
    // A job that is no task is none.
    let sent =
        tasks.server.request("POST", "/v1/jobs", &["Content-Type: application/json"], b"{\"handler\":\"j\"}").await;
    tasks.server.get(&format!("/tasks/s_c_{}", sent.json()["id"].as_str().unwrap())).await.problem(404);
    tasks.stop().await;
}

/// A worker elsewhere says how far it is, under its claim; whoever looks at the job sees it, also when it is over.
#[tokio::test]
async fn a_worker_elsewhere_says_how_far_it_is() {
    let server = Server::start().await;
    let post = async |target: &str, body: &str| {
        server.request("POST", target, &["Content-Type: application/json"], body.as_bytes()).await
    };
    let id = post("/v1/jobs", r#"{"handler":"j"}"#).await.json()["id"].as_str().unwrap().to_owned();
    let claimed = post("/v1/jobs/claim", r#"{"handlers":["j"],"lease_ms":600000}"#).await.json();
    let claim = claimed["jobs"][0]["claim"].as_str().unwrap().to_owned();
    assert_eq!(claimed["jobs"][0]["progress"], Value::Null);
    let progress = format!("/v1/jobs/{id}/progress");
    for (more, status, told) in [
        (r#","done":40,"total":100,"unit":"rows""#, 200, ""),
        (r#","total":100"#, 422, "`done` is missing"),
        (r#","done":9223372036854775808"#, 422, "`done`"),
        (r#","done":-1"#, 422, "`done`"),
        (r#","done":1,"unit":"a\u0007b""#, 422, "`unit`"),
        (r#","done":1,"units":"rows""#, 422, "`units`"),
    ] {
        let answer = post(&progress, &format!(r#"{{"claim":"{claim}"{more}}}"#)).await;
        assert_eq!(answer.status, status, "{more}: {}", answer.text());
        assert!(status == 200 || answer.problem(422).contains(told), "{more}: {}", answer.text());
    }
    let stale = claim.replacen("claim-1-", "claim-2-", 1);
    post(&progress, &format!(r#"{{"claim":"{stale}","done":99}}"#)).await.problem(409);
    post(&format!("/v1/jobs/{id}/complete"), &format!(r#"{{"claim":"{claim}"}}"#)).await;
    post(&progress, &format!(r#"{{"claim":"{claim}","done":99}}"#)).await.problem(409);
    let listed = server.get("/v1/jobs").await.json();
    for job in [&server.get(&format!("/v1/jobs/{id}")).await.json(), &listed["jobs"][0]] {
        let progress = &job["progress"];
        assert_eq!(
            (&progress["done"], &progress["total"], &progress["unit"]),
            (&json!(40), &json!(100), &json!("rows"))
        );
    }
}

/// A program is told which task it is, and what it needs to say over HTTP how far it is.
#[tokio::test]
async fn a_program_has_its_task_and_its_claim() {
    let script = format!("cat > input\necho >> input\necho \"$ENSUE_CLAIM\" > claim\n{}", tasks::waits_for("go"));
    let more = [("c", &*script, "priority: 7")];
    let tasks = Tasks::start(Ensue::memory().await.unwrap(), HttpOptions::default(), &more).await;
    let (id, _) = tasks.run("c").await;
    let claim = tasks.until_file("claim").await;
    let input: Value = serde_json::from_str(&tasks.until_file("input").await).unwrap();
    let task = &input["task"];
    assert_eq!((&task["id"], &task["source"]), (&json!(id), &json!("s")), "{input}");
    assert_eq!((&task["collection"], &task["priority"]), (&json!("c"), &json!(1_007)), "{input}");
    assert_eq!((&input["topic"], &task["status"]), (&json!("task.s.c"), &json!("RUNNING")), "{input}");
    tasks.says_how_far(&id, &claim, 2).await;
    tasks.write("go");
    assert_eq!(tasks.until(&id, "SUCCESS").await["progress"]["done"], 2);
    tasks.stop().await;
}

#[tokio::test]
async fn both_headers_open_the_tasks() {
    let options = HttpOptions { tokens: Tokens::of(["t"]), ..HttpOptions::default() };
    let tasks = Tasks::start(Ensue::memory().await.unwrap(), options, &[("c", "exit 0", "")]).await;
    let target = format!("/tasks?source=s&{EVER}");
    for (header, status) in [
        ("Authorization: Bearer t", 200),
        ("X-Admin-Token: t", 200),
        ("Authorization: Bearer x", 401),
        ("X-Admin-Token: x", 401),
        ("X-Other: t", 401),
    ] {
        if header.starts_with("X-Other") {
            let refused = tasks.server.request("GET", &target, &[header], b"").await.problem(401);
            assert!(refused.contains("X-Admin-Token"), "{refused}");
        }
        assert_eq!(tasks.server.request("GET", &target, &[header], b"").await.status, status, "{header}");
        let made = tasks.server.request("POST", "/tasks/?source=s&collection=c", &[header], b"").await.status;
        assert_eq!(made == 401, status == 401, "{header}: {made}");
    }
    assert_eq!(tasks.server.request("GET", "/v1/jobs", &["X-Admin-Token: t"], b"").await.status, 401, "only there");
    tasks.stop().await;
}

/// A task that is sent as a job is one of the collection's all the same.
#[tokio::test]
async fn there_is_one_task_at_a_time_through_every_door() {
    let script = tasks::waits_for("go");
    let tasks = Tasks::start(Ensue::memory().await.unwrap(), HttpOptions::default(), &[("c", &script, "")]).await;
    let bus = &tasks.server.bus;
    let (id, _) = tasks.run("c").await;
    tasks.until(&id, "RUNNING").await;
    let body = br#"{"handler":"task.s.c","unique_key":"mine"}"#;
    let sent = tasks.server.request("POST", "/v1/jobs", &["Content-Type: application/json"], body).await.json();
    assert!(id.ends_with(sent["id"].as_str().unwrap()), "{sent}");
    let change = bus.rebind();
    let sends = async |_: Event, cx: Context| {
        cx.emit(Emit::to("task.s.c"))?;
        cx.publish(NewEvent::new("sent"))?;
        Ok::<_, HandlerError>(())
    };
    change.on("send").named("it").handle(sends).unwrap();
    change.apply().await.unwrap();
    bus.publish(NewEvent::new("send")).await.unwrap();
    let sent = async {
        while bus.store().bounds().await.unwrap().last < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, sent).await.expect("it did not send");
    assert_eq!(tasks.list(EVER).await, [&*id]);
    tasks.write("go");
    tasks.until(&id, "SUCCESS").await;
    tasks.stop().await;
}

/// A task that a person asks for runs before those of schedules, unless the request says how urgent it is.
#[tokio::test]
async fn manual_task_has_a_higher_priority_than_scheduled_ones() {
    let bus = Ensue::memory().await.unwrap();
    let collections = [("a", "true", ""), ("b", "true", "priority: 5"), ("c", "true", "")];
    let tasks = Tasks::start(bus, HttpOptions::default(), &collections).await;
    for (query, priority) in [("a", json!(1_100)), ("b", json!(1_005)), ("c&priority=3", json!(3))] {
        let (id, _) = tasks.run(query).await;
        assert_eq!(tasks.show(&id).await["priority"], priority, "{query}");
    }
    for bad in ["0", "-1", "high", "1.5", "99999999999999999999"] {
        let refused = tasks.post(&format!("/tasks?source=s&collection=a&priority={bad}")).await;
        assert!(matches!(refused.status, 400 | 422), "{bad}: {}", refused.text());
        assert!(refused.text().contains("`priority`"), "{bad}: {}", refused.text());
    }
    tasks.stop().await;
}

/// Seed 004's YAML has no command: workers elsewhere claim the tasks of the collection.
#[tokio::test]
async fn tasks_of_a_pulled_collection_are_claimed_by_workers_elsewhere() {
    let bus = Ensue::memory().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text = "sources:\n  s:\n    default: { pull: true }\n    collections:\n    - { name: c, timeout: 1h }\n";
    let tasks = Tasks::of_config(bus, HttpOptions::default(), folder, text).await;
    let (id, is_new) = tasks.run("c").await;
    assert!(is_new && !tasks.run("c").await.1, "one at a time");
    assert_eq!(tasks.show(&id).await["status"], "SCHEDULED");
    let job = tasks.server.claim_one("task.s.c").await;
    assert_eq!(tasks.show(&id).await["status"], "RUNNING");
    tasks.server.under_ok(&job, "log", json!({"lines": [{"message": "all is new"}]})).await;
    tasks.server.under_ok(&job, "complete", json!({})).await;
    assert_eq!(tasks.show(&id).await["status"], "SUCCESS");
    let logs = tasks.server.get(&format!("/tasks/{id}/logs")).await.json();
    assert_eq!(logs["logs"][0]["message"], "all is new");
    tasks.stop().await;
}

/// Seed 004's YAML without a command is valid where code of the application runs the collection.
#[tokio::test]
async fn code_of_the_application_runs_a_collection_of_the_file() {
    use ensue::tasks::{CollectionHandler, CollectionOptions};
    let text = "sources:\n  source_id:\n    collections:\n      - name: \"sample_collection\"\n        schedule: \"0/1 * 0 ? * * *\"\n";
    let section = ensue_server::config::file::ConfigFile::parse("test.yaml", text).unwrap().sources.unwrap();
    let guard = ensue_server::executors::Guard::default();
    let configs = ensue_server::config::sources::check(section, std::path::Path::new("test.yaml"), &guard).unwrap();
    let executors = ensue_server::executors::Executors::new(guard, std::time::Duration::from_secs(30));
    let refused = executors.collections(&configs, Vec::new()).err().unwrap().to_string();
    assert!(refused.starts_with("test.yaml:4:9: `sources.source_id.collections[0]` says nothing to run"), "{refused}");
    let code = async |_: ensue::Event, _: ensue::Context| Ok::<(), ensue::HandlerError>(());
    let own = |name: &str| CollectionHandler::new("source_id", name, CollectionOptions::default(), code).unwrap();
    let both = executors.collections(&configs, vec![own("other"), own("sample_collection")]).unwrap();
    let shown: Vec<_> = both.iter().map(|one| (one.collection().name(), one.options().schedule.as_deref())).collect();
    assert_eq!(shown, [("other", None), ("sample_collection", Some("0/1 * 0 ? * * *"))]);
}
