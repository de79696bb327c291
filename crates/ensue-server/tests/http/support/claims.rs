//! Claims, leases and settlements over HTTP, on any engine.

use super::Server;
use serde_json::{Value, json};

/// The verbs of a claim, each with a valid body.
fn verbs() -> [(&'static str, Value); 6] {
    [
        ("renew", json!({"lease_ms": 3_600_000})),
        ("progress", json!({"done": 1})),
        ("log", json!({"lines": [{"message": "x"}]})),
        ("snooze", json!({"for_ms": 1})),
        ("fail", json!({"error": "e"})),
        ("complete", json!({"events": [{"topic": "forged"}]})),
    ]
}

/// The text with another hexadecimal digit at this byte.
fn with_other_digit(text: &str, at: usize) -> String {
    let other = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
    format!("{}{other}{}", &text[..at], &text[at + 1..])
}

/// Job ids and fences are public. A worker that knows them, and holds claims of its own, changes nothing of another's.
pub async fn claims_cannot_be_forged(server: &Server) {
    let id = server.send_job(json!({"handler": "h"})).await;
    let held = server.claim_one("h").await;
    let own_id = server.send_job(json!({"handler": "own"})).await;
    let own = server.claim_one("own").await;
    let (claim, own) = (held["claim"].as_str().unwrap(), own["claim"].as_str().unwrap());
    let before = server.job(&id).await;
    // Their own claim under the name of the other job, and the claim with each digit of its secret changed.
    let mut forged = vec![own.replace(&own_id, &id)];
    let secret = claim.rsplit_once('-').unwrap().1;
    forged.extend((claim.len() - secret.len()..claim.len()).map(|at| with_other_digit(claim, at)));
    for text in &forged {
        for (verb, mut body) in verbs() {
            body["claim"] = json!(text);
            let detail = server.api("POST", &format!("jobs/{id}/{verb}"), body).await.problem(409);
            assert!(detail.contains("lease lost"), "{verb} with {text}: {detail}");
        }
    }
    // The text without a secret is not a claim.
    for (verb, mut body) in verbs() {
        body["claim"] = json!(format!("claim-1-{id}"));
        server.api("POST", &format!("jobs/{id}/{verb}"), body).await.problem(422);
    }
    assert_eq!((server.job(&id).await, server.bounds().await.last), (before, 0));
    server.under_ok(&held, "complete", json!({})).await;
}

/// A worker that lost the answer sends its settlement again, also when the job has moved on.
pub async fn repeated_settlement_answers_like_the_first(server: &Server) {
    let done = server.send_job(json!({"handler": "done", "object": "o"})).await;
    let claimed = server.claim_one("done").await;
    let body = json!({"result": {"n": 1}, "events": [{"topic": "mail.sent"}]});
    let first = server.under_ok(&claimed, "complete", body.clone()).await;
    for _ in 0..2 {
        assert_eq!(server.under_ok(&claimed, "complete", body.clone()).await, first);
    }
    assert_eq!((server.bounds().await.last, first["result"].clone()), (1, json!({"n": 1})), "published once");
    assert_eq!(server.job(&done).await["state"], "succeeded");

    server.send_job(json!({"handler": "fails"})).await;
    let claimed = server.claim_one("fails").await;
    let body = json!({"error": "no route", "retry_in_ms": 3_600_000});
    let first = server.under_ok(&claimed, "fail", body.clone()).await;
    assert_eq!(first["state"], "retrying");
    assert_eq!(server.under_ok(&claimed, "fail", body.clone()).await, first);
    assert_eq!(first["errors"].as_array().unwrap().len(), 1);
    server.api_ok("POST", &format!("jobs/{}/retry", first["id"].as_str().unwrap()), Value::Null, 200).await;
    assert_eq!(server.under_ok(&claimed, "fail", body.clone()).await["state"], "available");

    server.send_job(json!({"handler": "dies"})).await;
    let claimed = server.claim_one("dies").await;
    let body = json!({"error": "no route", "retry": false});
    let first = server.under_ok(&claimed, "fail", body.clone()).await;
    assert_eq!((server.under_ok(&claimed, "fail", body).await, &first["state"]), (first.clone(), &json!("dead")));

    server.send_job(json!({"handler": "waits"})).await;
    let claimed = server.claim_one("waits").await;
    let body = json!({"for_ms": 3_600_000});
    let first = server.under_ok(&claimed, "snooze", body.clone()).await;
    assert_eq!(
        (server.under_ok(&claimed, "snooze", body).await, &first["state"]),
        (first.clone(), &json!("scheduled"))
    );
    assert_eq!(first["attempts"], 0, "given back once");
}

pub async fn different_outcome_after_settlement_is_refused(server: &Server) {
    let settlements = || {
        [
            ("complete", json!({})),
            ("fail", json!({"error": "e", "retry_in_ms": 3_600_000})),
            ("snooze", json!({"for_ms": 3_600_000})),
        ]
    };
    for (verb, body) in settlements() {
        let id = server.send_job(json!({"handler": "h"})).await;
        let claimed = server.claim_one("h").await;
        let settled = server.under_ok(&claimed, verb, body).await;
        for (other, body) in settlements().into_iter().filter(|(other, _)| *other != verb) {
            let detail = server.under(&claimed, other, body).await.problem(409);
            assert!(detail.contains("lease lost"), "{other} after {verb}: {detail}");
        }
        assert_eq!(server.job(&id).await, settled);
    }
    // The claim before the one that settled is stale, whatever it repeats.
    server.send_job(json!({"handler": "twice"})).await;
    let first = server.claim_one("twice").await;
    let failed = server.under_ok(&first, "fail", json!({"error": "e", "retry_in_ms": 3_600_000})).await;
    server.api_ok("POST", &format!("jobs/{}/retry", failed["id"].as_str().unwrap()), Value::Null, 200).await;
    let second = server.claim_one("twice").await;
    server.under(&first, "fail", json!({"error": "e"})).await.problem(409);
    server.under_ok(&second, "complete", json!({})).await;
    server.under(&first, "complete", json!({})).await.problem(409);
    server.under(&second, "fail", json!({"error": "e"})).await.problem(409);
}

/// A lease that expired ended the attempt: what its worker sends afterwards repeats nothing.
pub async fn settlement_after_rescue_is_refused(server: &Server) {
    let id = server.send_job(json!({"handler": "h", "attempts_max": 1})).await;
    let body = json!({"handlers": ["h"], "lease_ms": 100});
    let claimed = server.api_ok("POST", "jobs/claim", body, 200).await["jobs"][0].clone();
    let running = server.bus.start().await.unwrap();
    server.until_job(&id, "dead").await;
    for (verb, body) in verbs() {
        server.under(&claimed, verb, body).await.problem(409);
    }
    running.shutdown(super::PATIENCE).await.unwrap();
}

/// How far a reader was led is part of its lease: nobody commits events that were not read.
pub async fn leases_cannot_be_forged(server: &Server) {
    server.group_ok("POST", "g/subscriptions", json!({"where": "true"}), 201).await;
    for _ in 0..5 {
        server.publish_event(json!({"topic": "a"})).await;
    }
    let read = server.group_ok("POST", "g/read", json!({"limit": 2, "lease_ms": 3_600_000}), 200).await;
    let lease = read["lease"].as_str().unwrap();
    assert_eq!(read["cursor"], 2);
    let before = server.group_ok("GET", "g", Value::Null, 200).await;
    for at in 2..lease.len() {
        let forged = with_other_digit(lease, at);
        for (path, body) in [
            ("g/commit", json!({"cursor": 2, "lease": forged, "release": true})),
            ("g/commit", json!({"cursor": 5, "lease": forged})),
            ("g/read", json!({"lease": forged})),
        ] {
            let detail = server.group("POST", path, body).await.problem(409);
            assert!(detail.contains("lease"), "{at}: {detail}");
        }
    }
    server.group("POST", "g/commit", json!({"cursor": 2, "lease": &lease[..lease.len() - 32]})).await.problem(422);
    let after = server.group_ok("GET", "g", Value::Null, 200).await;
    assert_eq!((&after["cursor"], &after["slots"]), (&before["cursor"], &before["slots"]));
    server.group_ok("POST", "g/commit", json!({"cursor": 2, "lease": lease, "release": true}), 200).await;
}

/// A claimed job has the fields that it is sent with, and those of `GET /v1/jobs/{id}`, however many are claimed at once.
pub async fn claim_answers_the_same_for_one_job_and_for_many(server: &Server) {
    let full = json!({"payload": {"n": 1}, "metadata": {"m": 1}, "object": "o:1", "ordered": false, "priority": 7,
        "attempts_max": 3, "on_exhausted": "skip"});
    let plain = json!({});
    let of_object = json!({"object": "o:2"});
    let shown = |job: &Value| {
        let mut job = job.clone();
        for differs in
            ["id", "handler", "claim", "object", "enqueued_at", "locked_at", "started_at", "lease_expires_at"]
        {
            job.as_object_mut().unwrap().remove(differs);
        }
        job
    };
    for template in [full, plain, of_object] {
        let with = |handler: &str, object: &str| {
            let mut job = template.clone();
            job["handler"] = json!(handler);
            if !job["object"].is_null() {
                job["object"] = json!(object);
            }
            job
        };
        for handler in ["one", "many"] {
            let alike = ["a", "b", "c"].map(|object| with(handler, object));
            server.api_ok("POST", "jobs", json!(alike), 201).await;
        }
        let mut one = Vec::new();
        for _ in 0..3 {
            one.push(server.claim_one("one").await);
        }
        let many = server.claim("many", 9).await;
        assert_eq!(many.iter().map(shown).collect::<Vec<_>>(), one.iter().map(shown).collect::<Vec<_>>());
        for job in one.iter().chain(&many) {
            let mut claimed = job.clone();
            claimed.as_object_mut().unwrap().remove("claim");
            assert_eq!(claimed, server.job(job["id"].as_str().unwrap()).await);
            server.under_ok(job, "complete", json!({})).await;
        }
    }
}

/// Jobs are sent in the commit of the completion: once, or not at all.
pub async fn job_sends_jobs_with_its_completion(server: &Server) {
    let id = server.send_job(json!({"handler": "first", "object": "o"})).await;
    let claimed = server.claim_one("first").await;
    let jobs = json!([{"handler": "next", "object": "o", "payload": {"n": 1}, "priority": 7}, {"handler": "next", "object": "o"}]);
    let refused = json!({"events": [{"topic": "a"}], "jobs": [{"handler": "next"}, {"handler": "a..b"}]});
    let detail = server.under(&claimed, "complete", refused).await.problem(422);
    assert!(detail.starts_with("`jobs[1].handler` "), "{detail}");
    let many = json!({"jobs": vec![json!({"handler": "next"}); 1_001]});
    assert!(server.under(&claimed, "complete", many).await.problem(422).starts_with("`jobs` has 1001"));
    assert_eq!((server.bounds().await.last, server.claim("next", 9).await.len()), (0, 0), "nothing was done");
    let body = json!({"result": 1, "events": [{"topic": "a"}], "jobs": jobs});
    let done = server.under_ok(&claimed, "complete", body.clone()).await;
    assert_eq!(done["state"], "succeeded");
    assert_eq!(server.under_ok(&claimed, "complete", body).await, done);
    assert_eq!(server.job(&id).await["state"], "succeeded");
    let page = server.api_ok("GET", "jobs?handler=next", Value::Null, 200).await;
    let sent = page["jobs"].as_array().unwrap();
    assert_eq!((sent.len(), &sent[0]["payload"], &sent[0]["priority"]), (2, &json!({"n": 1}), &json!(7)));
    assert_eq!((&sent[0]["state"], &sent[1]["state"]), (&json!("available"), &json!("parked")), "one at a time");
    assert_eq!(server.bounds().await.last, 1);
}

pub async fn many_jobs_complete_with_one_outcome_each(server: &Server) {
    for n in 0..4 {
        server.send_job(json!({"handler": "h", "payload": n})).await;
    }
    let jobs = server.claim("h", 4).await;
    let element = |job: &Value, more: Value| {
        let mut element = more;
        element["id"] = job["id"].clone();
        element["claim"] = job["claim"].clone();
        element
    };
    let gone = "0190a1b2-0000-7000-8000-0000000003e7";
    let body = json!({"jobs": [
        element(&jobs[0], json!({"result": 7, "events": [{"topic": "done"}], "jobs": [{"handler": "next"}]})),
        element(&jobs[2], json!({"events": [{"topic": "ensue.reserved"}]})),
        element(&json!({"id": gone, "claim": with_id(&jobs[3], gone)}), json!({})),
        element(&jobs[3], json!({})),
    ]});
    let answer = server.api_ok("POST", "jobs/complete", body, 200).await;
    let outcomes = answer["jobs"].as_array().unwrap();
    let seen: Vec<(&Value, &Value)> = outcomes.iter().map(|job| (&job["id"], &job["status"])).collect();
    let (gone, statuses) = (json!(gone), [200, 422, 404, 200].map(|status| json!(status)));
    let ids = [&jobs[0]["id"], &jobs[2]["id"], &gone, &jobs[3]["id"]];
    assert_eq!(seen, ids.into_iter().zip(&statuses).collect::<Vec<_>>());
    assert_eq!(outcomes[0], json!({"id": jobs[0]["id"], "status": 200, "state": "succeeded"}));
    assert_eq!(server.job(jobs[0]["id"].as_str().unwrap()).await["result"], json!(7));
    assert!(outcomes[1]["problem"]["detail"].as_str().unwrap().contains("events[0].topic"), "{answer}");
    assert_eq!(server.bounds().await.last, 1);
    // A repeat answers the same; a stale claim answers 409 without harm to the others.
    let again = json!({"jobs": [element(&jobs[0], json!({"result": 7, "events": [{"topic": "done"}]})), element(&jobs[1], json!({}))]});
    let answer = server.api_ok("POST", "jobs/complete", again, 200).await;
    assert_eq!((&answer["jobs"][0]["status"], &answer["jobs"][1]["status"]), (&json!(200), &json!(200)));
    assert_eq!(answer["jobs"][0], outcomes[0]);
    assert_eq!(server.bounds().await.last, 1, "published once");
    assert_eq!(server.claim("next", 9).await.len(), 1, "sent once");
    let forged = with_other_digit(jobs[2]["claim"].as_str().unwrap(), jobs[2]["claim"].as_str().unwrap().len() - 1);
    let stale = json!({"jobs": [{"id": jobs[2]["id"], "claim": forged}]});
    let answer = server.api_ok("POST", "jobs/complete", stale, 200).await;
    assert_eq!((&answer["jobs"][0]["status"], &answer["jobs"][0]["problem"]["status"]), (&json!(409), &json!(409)));
    for (body, named) in [
        (json!({}), "`jobs`"),
        (json!({"jobs": []}), "`jobs`"),
        (json!({"jobs": [1]}), "`jobs[0]`"),
        (json!({"jobs": [{"claim": jobs[2]["claim"]}]}), "`jobs[0].id`"),
        (json!({"jobs": [{"id": jobs[2]["id"]}]}), "`jobs[0].claim`"),
        (json!({"jobs": [{"id": jobs[2]["id"], "claim": jobs[1]["claim"]}]}), "`jobs[0].claim`"),
        (json!({"jobs": [element(&jobs[2], json!({"jobs": [{}]}))]}), "`jobs[0].jobs[0].handler`"),
        (json!({"jobs": [element(&jobs[2], json!({})), element(&jobs[2], json!({}))]}), "`jobs[1].id`"),
        (json!({"jobs": vec![element(&jobs[2], json!({})); 1_001]}), "`jobs`"),
    ] {
        let detail = server.api("POST", "jobs/complete", body).await.problem(422);
        assert!(detail.starts_with(named), "{named}: {detail}");
    }
}

/// The claim of a job with another id in it.
fn with_id(job: &Value, id: &str) -> String {
    job["claim"].as_str().unwrap().replace(job["id"].as_str().unwrap(), id)
}
