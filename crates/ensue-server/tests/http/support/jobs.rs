//! What must jobs and rules do over HTTP, on any engine?

use super::{Answer, PATIENCE, Server};
use serde_json::{Value, json};
use std::time::Duration;

impl Server {
    /// Sends JSON to a path below `/v1/`.
    pub async fn api(&self, method: &str, path: &str, body: Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.request(method, &format!("/v1/{path}"), &["Content-Type: application/json"], body.as_bytes()).await
    }

    /// The same, which must be answered with this status.
    #[track_caller]
    pub fn api_ok<'a>(
        &'a self,
        method: &'a str,
        path: &'a str,
        body: Value,
        status: u16,
    ) -> impl Future<Output = Value> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let answer = self.api(method, path, body).await;
            assert_eq!(answer.status, status, "{method} {path} at {caller}: {}", answer.text());
            answer.json()
        }
    }

    /// Sends a job; answers its id.
    pub async fn send_job(&self, job: Value) -> String {
        let sent = self.api_ok("POST", "jobs", job, 201).await;
        sent["id"].as_str().unwrap().to_owned()
    }

    pub async fn job(&self, id: &str) -> Value {
        self.api_ok("GET", &format!("jobs/{id}"), Value::Null, 200).await
    }

    /// Claims at once, of one handler, with a long lease.
    pub async fn claim(&self, handler: &str, limit: u64) -> Vec<Value> {
        let body = json!({"handlers": [handler], "limit": limit, "lease_ms": 3_600_000, "worker": "w"});
        self.api_ok("POST", "jobs/claim", body, 200).await["jobs"].as_array().unwrap().clone()
    }

    /// Claims one, and waits for it.
    pub async fn claim_one(&self, handler: &str) -> Value {
        let body = json!({"handlers": [handler], "lease_ms": 3_600_000, "wait_ms": 30_000, "worker": "w"});
        let claimed = self.api_ok("POST", "jobs/claim", body, 200).await;
        assert_eq!(claimed["jobs"].as_array().unwrap().len(), 1, "nothing came in time");
        claimed["jobs"][0].clone()
    }

    /// Does something under a claim, with what else the body has.
    pub async fn under(&self, claimed: &Value, verb: &str, more: Value) -> Answer {
        let mut body = more;
        body["claim"] = claimed["claim"].clone();
        self.api("POST", &format!("jobs/{}/{verb}", claimed["id"].as_str().unwrap()), body).await
    }

    /// The same, which must be answered with 200.
    #[track_caller]
    pub fn under_ok<'a>(&'a self, claimed: &'a Value, verb: &'a str, more: Value) -> impl Future<Output = Value> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let answer = self.under(claimed, verb, more).await;
            assert_eq!(answer.status, 200, "{verb} at {caller}: {}", answer.text());
            answer.json()
        }
    }

    /// Waits until a job is in a state.
    pub async fn until_job(&self, id: &str, state: &str) -> Value {
        let looked = async {
            loop {
                let job = self.job(id).await;
                if job["state"] == state {
                    return job;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, looked).await.unwrap_or_else(|_| panic!("it never is {state}"))
    }
}

fn ids(jobs: &[Value]) -> Vec<&str> {
    jobs.iter().map(|job| job["id"].as_str().unwrap()).collect()
}

pub async fn a_job_is_sent_claimed_said_of_and_completed_with_its_events(server: &Server) {
    let before = server.bounds().await.last;
    let job = json!({"handler": "mail.send", "payload": {"to": 1.50}, "object": "u:1", "metadata": {"a": 1}});
    let id = server.send_job(job).await;
    let waits = server.job(&id).await;
    assert_eq!(
        (&waits["state"], &waits["attempts"], &waits["attempts_max"]),
        (&json!("available"), &json!(0), &json!(5))
    );
    assert!(waits["held_by"].as_str().unwrap().contains("nobody has registered the handler `mail.send`"), "{waits}");
    let claimed = server.claim_one("mail.send").await;
    assert_eq!((claimed["id"].as_str(), claimed["state"].as_str()), (Some(&*id), Some("running")));
    assert_eq!((&claimed["attempts"], &claimed["worker"], &claimed["held_by"]), (&json!(1), &json!("w"), &Value::Null));
    assert!(server.claim("mail.send", 5).await.is_empty(), "it is taken");
    let renewed = server.under_ok(&claimed, "renew", json!({"lease_ms": 3_600_000})).await;
    assert_eq!(renewed["cancel"], false);
    assert!(renewed["lease_expires_at"].is_string());
    let lines = json!({"lines": [{"message": "same"}, {"message": "same"}, {"message": "ill", "level": "error", "time": "2026-01-01T00:00:00Z"}]});
    server.under_ok(&claimed, "log", lines).await;
    let events = json!({"result": {"sent": true}, "events": [{"topic": "mail.sent", "object": "u:1"}, {"topic": "b"}]});
    let done = server.under_ok(&claimed, "complete", events).await;
    assert_eq!((&done["state"], &done["result"]), (&json!("succeeded"), &json!({"sent": true})));
    assert!(done["finished_at"].is_string() && done["started_at"] == done["locked_at"], "{done}");
    assert_eq!(server.bounds().await.last, before + 2, "its events are in the log");
    let logs = server.api_ok("GET", &format!("jobs/{id}/logs?limit=2"), Value::Null, 200).await;
    assert_eq!((&logs["next"], logs["logs"].as_array().unwrap().len()), (&json!(2), 2));
    assert_eq!((&logs["logs"][1]["message"], &logs["logs"][1]["level"]), (&json!("same"), &json!("info")));
    let logs = server.api_ok("GET", &format!("jobs/{id}/logs?after=2"), Value::Null, 200).await;
    assert_eq!(
        (&logs["next"], &logs["logs"][0]["line"], &logs["logs"][0]["attempt"]),
        (&Value::Null, &json!(3), &json!(1))
    );
    assert_eq!(logs["logs"][0]["time"], "2026-01-01T00:00:00Z");
    // Settled in another way.
    for (verb, body) in [("fail", json!({"error": "x"})), ("snooze", json!({"for_ms": 1}))] {
        assert!(server.under(&claimed, verb, body).await.problem(409).contains("lease lost"));
    }
    assert_eq!(server.job(&id).await, done);
    assert_eq!(server.bounds().await.last, before + 2);
}

pub async fn jobs_run_by_priority_and_one_at_a_time_of_each_object(server: &Server) {
    let job = |priority: u64, object: Value| json!({"handler": "h", "priority": priority, "object": object});
    let batch = json!([
        job(1, json!("o")),
        job(u64::MAX, json!("o")),
        job(5, Value::Null),
        job(u64::MAX - 1, Value::Null),
        job(5, Value::Null)
    ]);
    let sent = server.api_ok("POST", "jobs", batch, 201).await;
    let sent = ids(sent["jobs"].as_array().unwrap()).into_iter().map(str::to_owned).collect::<Vec<_>>();
    let claimed = server.claim("h", 10).await;
    let order: Vec<usize> = claimed.iter().map(|job| sent.iter().position(|id| job["id"] == **id).unwrap()).collect();
    assert_eq!(order, [3, 2, 4, 0], "the second of the object waits for the first, whatever its priority");
    let second = server.job(&sent[1]).await;
    assert_eq!((second["state"].as_str(), second["priority"].as_u64()), (Some("parked"), Some(u64::MAX)));
    assert!(second["held_by"].as_str().unwrap().contains(&sent[0]), "{second}");
    server.under_ok(&claimed[3], "complete", json!({})).await;
    assert_eq!(ids(&server.claim("h", 10).await), [&sent[1]]);
}

pub async fn a_unique_key_is_taken_while_its_job_is_live(server: &Server) {
    let job = json!({"handler": "h", "unique_key": "k"});
    let id = server.send_job(job.clone()).await;
    let again = server.api_ok("POST", "jobs", job.clone(), 200).await;
    assert_eq!((again["id"].as_str(), &again["existing"]), (Some(&*id), &json!(true)));
    server.send_job(json!({"handler": "other", "unique_key": "k"})).await;
    let both = server.api_ok("POST", "jobs", json!([job.clone(), {"handler": "h"}]), 201).await;
    assert_eq!((both["jobs"][0]["id"].as_str(), &both["jobs"][1]["existing"]), (Some(&*id), &json!(false)));
    server.api_ok("POST", &format!("jobs/{id}/cancel"), Value::Null, 200).await;
    assert_ne!(server.send_job(job).await, id);
}

pub async fn a_worker_that_lost_its_lease_changes_nothing(server: &Server) {
    let running = server.bus.start().await.unwrap();
    let id = server.send_job(json!({"handler": "h"})).await;
    let short = json!({"handlers": ["h"], "lease_ms": 100, "wait_ms": 30_000, "worker": "slow"});
    let slow = server.api_ok("POST", "jobs/claim", short, 200).await["jobs"][0].clone();
    let next = server.claim_one("h").await;
    assert_eq!((next["id"].as_str(), &next["attempts"]), (Some(&*id), &json!(2)));
    assert!(next["errors"][0]["error"].as_str().unwrap().contains("slow"), "{next}");
    let before = server.job(&id).await;
    for (verb, body) in [
        ("renew", json!({})),
        ("log", json!({"lines": [{"message": "still here"}]})),
        ("complete", json!({"events": [{"topic": "t"}]})),
        ("fail", json!({"error": "x"})),
        ("snooze", json!({"for_ms": 1})),
    ] {
        let detail = server.under(&slow, verb, body).await.problem(409);
        assert!(detail.contains("lease lost"), "{verb}: {detail}");
    }
    assert_eq!(server.job(&id).await, before);
    let logs = server.api_ok("GET", &format!("jobs/{id}/logs"), Value::Null, 200).await;
    assert_eq!(logs["logs"], json!([]));
    server.under_ok(&next, "complete", json!({})).await;
    running.shutdown(PATIENCE).await.unwrap();
}

pub async fn a_job_fails_dies_holds_its_object_and_is_brought_back_or_skipped(server: &Server) {
    let running = server.bus.start().await.unwrap();
    let job = json!({"handler": "h", "object": "o", "attempts_max": 2});
    let (first, second) = (server.send_job(job.clone()).await, server.send_job(job).await);
    let claimed = server.claim_one("h").await;
    let failed = server.under_ok(&claimed, "fail", json!({"error": "one", "retry_in_ms": 60_000})).await;
    assert_eq!((&failed["state"], &failed["errors"][0]["error"]), (&json!("retrying"), &json!("one")));
    // It need not wait.
    server.api_ok("POST", &format!("jobs/{first}/retry"), Value::Null, 200).await;
    let claimed = server.claim_one("h").await;
    let dead = server.under_ok(&claimed, "fail", json!({"error": "two", "retry_in_ms": 0})).await;
    assert_eq!(
        (&dead["state"], &dead["attempts"], dead["errors"].as_array().unwrap().len()),
        (&json!("dead"), &json!(2), 2)
    );
    let held = server.job(&second).await;
    assert!(held["state"] == "parked" && held["held_by"].as_str().unwrap().contains("and is dead"), "{held}");
    let notices = server.get("/v1/events?topic=ensue.job").await.json();
    assert_eq!(notices["events"][0]["topic"], "ensue.job.dead");
    let explained = server.api_ok("GET", &format!("explain?job={second}"), Value::Null, 200).await;
    assert_eq!(
        (&explained["because"][0]["kind"], &explained["because"][0]["ref"]),
        (&json!("predecessor"), &json!(first))
    );
    // Brought back, it runs next, marked, with all its attempts.
    let back = server.api_ok("POST", &format!("jobs/{first}/retry"), Value::Null, 200).await;
    assert_eq!((&back["state"], &back["redriven"], &back["attempts"]), (&json!("available"), &json!(true), &json!(0)));
    let claimed = server.claim_one("h").await;
    assert_eq!(claimed["id"].as_str(), Some(&*first));
    server.under_ok(&claimed, "fail", json!({"error": "no use", "retry": false})).await;
    server.api_ok("POST", &format!("jobs/{first}/skip"), Value::Null, 200).await;
    assert_eq!(server.claim_one("h").await["id"].as_str(), Some(&*second));
    running.shutdown(PATIENCE).await.unwrap();
}

pub async fn a_job_is_called_off_at_once_or_when_its_worker_hears_of_it(server: &Server) {
    let waits = server.send_job(json!({"handler": "h", "not_before": "2999-01-01T00:00:00Z"})).await;
    assert_eq!(server.job(&waits).await["state"], "scheduled");
    let cancelled = server.api_ok("POST", &format!("jobs/{waits}/cancel"), Value::Null, 200).await;
    assert_eq!(cancelled["state"], "cancelled");
    let runs = server.send_job(json!({"handler": "h"})).await;
    let claimed = server.claim_one("h").await;
    let told = server.api_ok("POST", &format!("jobs/{runs}/cancel"), Value::Null, 200).await;
    assert_eq!((&told["state"], &told["cancel_requested"]), (&json!("running"), &json!(true)));
    assert_eq!(server.under_ok(&claimed, "renew", json!({})).await["cancel"], true);
    assert_eq!(server.under_ok(&claimed, "fail", json!({"error": "stopped"})).await["state"], "cancelled");
}

pub async fn a_snoozed_job_comes_back_and_no_attempt_is_used_up(server: &Server) {
    let running = server.bus.start().await.unwrap();
    let id = server.send_job(json!({"handler": "h", "attempts_max": 1})).await;
    for _ in 0..3 {
        let claimed = server.claim_one("h").await;
        assert_eq!((claimed["id"].as_str(), &claimed["attempts"]), (Some(&*id), &json!(1)));
        let snoozed = server.under_ok(&claimed, "snooze", json!({"for_ms": 20})).await;
        // On a busy machine its time may have come before the answer.
        assert!(["scheduled", "available"].contains(&snoozed["state"].as_str().unwrap()), "{snoozed}");
        assert_eq!(snoozed["attempts"], 0);
    }
    running.shutdown(PATIENCE).await.unwrap();
}

pub async fn a_claim_that_waits_is_woken_by_a_job(server: &Server) {
    let waits = server.claim_one("h");
    let come = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.send_job(json!({"handler": "h"})).await
    };
    let began = std::time::Instant::now();
    let (claimed, id) = tokio::join!(waits, come);
    assert_eq!(claimed["id"].as_str(), Some(&*id));
    assert!(began.elapsed() < Duration::from_secs(20), "it has waited to the end");
    let none = json!({"handlers": ["h"], "wait_ms": 50});
    assert_eq!(server.api_ok("POST", "jobs/claim", none, 200).await, json!({"jobs": []}));
}

pub async fn jobs_are_listed_by_state_handler_and_object_in_pages(server: &Server) {
    let mut all = Vec::new();
    for n in 0..5 {
        all.push(server.send_job(json!({"handler": format!("a.h{}", n % 2), "object": "o"})).await);
    }
    server.send_job(json!({"handler": "ab"})).await;
    let found = async |query: &str| {
        let page = server.api_ok("GET", &format!("jobs?{query}"), Value::Null, 200).await;
        ids(page["jobs"].as_array().unwrap()).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(found("handler=a").await, all);
    assert_eq!(found("handler=a.h1&object=o").await, [&*all[1], &all[3]]);
    assert_eq!(found("object=none").await, [""; 0]);
    assert_eq!(found("state=available&handler=a").await, [&*all[0], &all[1]]);
    assert_eq!(found("state=parked,available&handler=a").await, all);
    let (mut pages, mut after) = (Vec::new(), String::new());
    loop {
        let page = server.api_ok("GET", &format!("jobs?handler=a&limit=2{after}"), Value::Null, 200).await;
        pages.extend(ids(page["jobs"].as_array().unwrap()).into_iter().map(str::to_owned));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(pages, all);
}

pub async fn many_are_steered_by_a_filter_after_a_dry_run(server: &Server) {
    for _ in 0..4 {
        server.send_job(json!({"handler": "a.b", "attempts_max": 1})).await;
    }
    let spared = server.send_job(json!({"handler": "c"})).await;
    for job in server.claim("a.b", 3).await {
        server.under_ok(&job, "fail", json!({"error": "x"})).await;
    }
    let bulk = async |action: &str, filter: Value, dry_run: bool| {
        let body = json!({"action": action, "filter": filter, "dry_run": dry_run});
        let answer = server.api_ok("POST", "jobs/bulk", body, 200).await;
        (answer["matched"].as_u64().unwrap(), answer["refused"].as_u64().unwrap())
    };
    assert_eq!(bulk("retry", json!({"state": "dead", "handler": "a"}), true).await, (3, 0));
    assert_eq!(bulk("retry", json!({"state": "dead,available", "handler": "a"}), true).await, (3, 1));
    assert_eq!(bulk("skip", json!({"state": "dead"}), true).await, (0, 3), "they hold nothing");
    assert_eq!(bulk("retry", json!({"handler": "a"}), false).await, (3, 0));
    assert_eq!(bulk("cancel", json!({"handler": "a"}), false).await, (4, 0));
    assert_eq!(bulk("cancel", json!({"handler": "a"}), false).await, (0, 0));
    assert_eq!(server.job(&spared).await["state"], "available");
}

pub async fn a_paused_handler_gives_out_nothing_and_its_jobs_are_parked(server: &Server) {
    let id = server.send_job(json!({"handler": "mail.send"})).await;
    let free = server.send_job(json!({"handler": "mails"})).await;
    let rule = server.api_ok("PUT", "rules/pause/handler:mail", json!({"reason": "the relay is down"}), 201).await;
    assert_eq!(
        (&rule["kind"], &rule["scope"], &rule["author"]),
        (&json!("pause"), &json!("handler:mail"), &json!("local"))
    );
    assert!(server.claim("mail.send", 5).await.is_empty());
    let held = server.job(&id).await;
    assert_eq!((&held["state"], &held["attempts"]), (&json!("parked"), &json!(0)));
    assert!(held["held_by"].as_str().unwrap().contains("the relay is down"), "{held}");
    let found = async |state: &str| {
        let page = server.api_ok("GET", &format!("jobs?state={state}"), Value::Null, 200).await;
        ids(page["jobs"].as_array().unwrap()).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!((found("parked").await, found("available").await), (vec![id.clone()], vec![free]));
    let explained = server.api_ok("GET", &format!("explain?job={id}"), Value::Null, 200).await;
    assert_eq!((&explained["verdict"], &explained["because"][0]["ref"]), (&json!("parked"), &rule["id"]));
    assert_eq!(explained["because"][0]["fix"], "ensue resume handler:mail");
    // Set anew, it keeps its identity; the other kind stands beside it.
    let again = server.api_ok("PUT", "rules/pause/handler:mail", json!({"expires_in": "10m"}), 200).await;
    assert_eq!((&again["id"], &again["reason"]), (&rule["id"], &Value::Null));
    assert!(again["expires_at"].is_string());
    server.api_ok("PUT", "rules/block/handler:mail.send", Value::Null, 201).await;
    let rules = server.api_ok("GET", "rules", Value::Null, 200).await;
    assert_eq!(rules["rules"].as_array().unwrap().len(), 2);
    server.api_ok("DELETE", "rules/pause/handler:mail", Value::Null, 200).await;
    assert!(server.claim("mail.send", 5).await.is_empty(), "the block still holds it");
    server.api_ok("DELETE", "rules/block/handler:mail.send", Value::Null, 200).await;
    assert_eq!(ids(&server.claim("mail.send", 5).await), [&id]);
    let audit = server.get("/v1/events?topic=ensue.rule").await.json();
    let topics: Vec<&str> =
        audit["events"].as_array().unwrap().iter().map(|event| event["topic"].as_str().unwrap()).collect();
    let (set, lifted) = ("ensue.rule.set", "ensue.rule.lifted");
    assert_eq!(topics, [set, set, set, lifted, lifted]);
    assert_eq!(audit["events"][4]["payload"]["lifted_by"], "local");
}

pub async fn a_held_object_waits_and_its_scope_may_have_slashes(server: &Server) {
    let (object, path) = ("a/b c:d", "rules/block/object:a/b%20c:d");
    let id = server.send_job(json!({"handler": "h", "object": object})).await;
    let rule = server.api_ok("PUT", path, json!({"expires_at": "2999-01-01T00:00:00Z"}), 201).await;
    assert_eq!(rule["scope"], "object:a/b c:d");
    assert_eq!(server.job(&id).await["state"], "parked");
    assert!(server.claim("h", 5).await.is_empty());
    let explained = server.api_ok("GET", "explain?object=a/b%20c:d", Value::Null, 200).await;
    assert_eq!((&explained["verdict"], &explained["because"][0]["kind"]), (&json!("held"), &json!("rule")));
    assert_eq!((&explained["jobs"][0]["id"], &explained["jobs"][0]["verdict"]), (&json!(id), &json!("parked")));
    // The same with its slash encoded.
    server.api_ok("DELETE", "rules/block/object:a%2Fb%20c:d", Value::Null, 200).await;
    assert_eq!(ids(&server.claim("h", 5).await), [&id]);
    let free = server.api_ok("GET", "explain?object=other", Value::Null, 200).await;
    assert_eq!(free["verdict"], "free");
}

pub async fn a_rule_lifts_itself_when_its_time_has_come(server: &Server) {
    let running = server.bus.start().await.unwrap();
    let id = server.send_job(json!({"handler": "h"})).await;
    server.api_ok("PUT", "rules/pause/handler:h", json!({"expires_in": "1h"}), 201).await;
    assert_eq!(server.job(&id).await["state"], "parked");
    server.api_ok("PUT", "rules/pause/handler:h", json!({"expires_in": "1s"}), 200).await;
    let began = std::time::Instant::now();
    assert_eq!(server.claim_one("h").await["id"].as_str(), Some(&*id));
    assert!(began.elapsed() < Duration::from_secs(20), "who waits is told when the rule is gone");
    assert_eq!(server.api_ok("GET", "rules", Value::Null, 200).await, json!({"rules": []}));
    running.shutdown(PATIENCE).await.unwrap();
}
