//! What does a rule hold, and what does lifting it let go?

use super::Subject;
use super::jobs::{about, apart, ids, job, retry_at, rule};
use super::positions::{LEASE, PAST_THE_LEASE_MILLIS, process, reader};
use crate::factory::Factory;
use JobState::{Available, Cancelled, Parked, Retrying, Running, Scheduled, Succeeded};
use RuleKind::{Block, Pause};
use ensue_core::jobs::{JobEnd, JobState, NewJob, Steer};
use ensue_core::positions::Member;
use ensue_core::rules::{NewRule, Rule, RuleKind, Scope};
use ensue_core::{Event, StoreError};
use serde_json::Value;

fn scope(text: &str) -> Scope {
    Scope::parse(text).expect("a scope")
}

/// With its reason and author; set anew it keeps its id and its time.
pub async fn a_rule_comes_back_as_it_was_set(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let new = NewRule {
        reason: Some("zu heiß: 'x'".into()),
        expires_at: Some(subject.in_secs(600)),
        ..rule(Block, "handler:acme.mail")
    };
    let (first, is_new) = subject.store.set_rule(new.clone()).await.expect("set");
    assert!(is_new);
    assert_eq!((first.kind, &first.scope, first.author.as_str()), (Block, &new.scope, "ada"));
    assert_eq!((&first.reason, first.created_at), (&new.reason, subject.clock.now()));
    assert_eq!(first.expires_at, new.expires_at);
    let others = [(Pause, "handler:acme.mail"), (Pause, "object:o:1"), (Block, "schedule:nightly")];
    let mut all = vec![first.clone()];
    for (kind, text) in others {
        all.push(subject.hold(kind, text).await);
    }
    subject.clock.advance_millis(1_000);
    subject.reopen().await;
    let anew = NewRule { reason: None, author: "bob".into(), expires_at: None, ..new };
    let (again, is_new) = subject.store.set_rule(anew).await.expect("set anew");
    assert!(!is_new);
    let expected = Rule { reason: None, author: "bob".into(), expires_at: None, ..first };
    assert_eq!(again, expected);
    all[0] = again;
    subject.reopen().await;
    let there = subject.store.rules().await.expect("rules");
    all.sort_by(|one, other| (&one.scope, one.kind).cmp(&(&other.scope, other.kind)));
    assert_eq!(there.rules(), all.iter().collect::<Vec<_>>());
    assert_eq!(subject.lift(Pause, "object:o:1").await.author, "ada");
    assert_eq!(subject.store.rules().await.expect("rules").rules().len(), 3);
}

/// By whole segments, whoever is below it; other handlers go on. Nothing waits longer than the rule.
pub async fn a_rule_on_a_prefix_holds_all_below_it(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let handlers = ["acme", "acme.mail", "acme.mail.send", "acmes", "acme.mailer", "Acme.mail"];
    let sent = subject.send(handlers.iter().map(|handler| job(handler)).collect()).await;
    subject.hold(Pause, "handler:acme.mail").await;
    let late = subject.send_one(about("acme.mail", "o")).await;
    assert_eq!(subject.job_now(late).await.state, Available, "it waits for nothing of its own");
    subject.reopen().await;
    let free = subject.take_jobs(&handlers, 100).await;
    assert_eq!(ids(&free), [sent[0], sent[3], sent[4], sent[5]]);
    subject.hold(Pause, "handler:Acme").await;
    subject.lift(Pause, "handler:acme.mail").await;
    assert_eq!(ids(&subject.take_jobs(&handlers, 100).await), [sent[1], sent[2], late]);
}

/// What runs goes on; what would be next waits: one that is sent, due, given back, retried or freed by the one before it.
pub async fn a_rule_on_an_object_parks_its_jobs_of_all_handlers(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let delayed = NewJob { not_before: Some(subject.in_secs(5)), ..about("c", "o") };
    let sent = subject
        .send(vec![
            about("a", "o"),
            about("a", "o"),
            about("b", "o"),
            apart("a", "o"),
            delayed,
            about("a", "O"),
            about("d", "o"),
            apart("d", "o"),
            about("e", "o"),
        ])
        .await;
    let at_work = subject.take_jobs(&["a"], 1).await.remove(0);
    let given_back = subject.take_jobs(&["d"], 2).await;
    subject.run(sent[8], retry_at(subject.in_secs(5))).await;
    subject.hold(Pause, "object:o").await;
    let held = [Running, Parked, Parked, Parked, Scheduled, Available, Running, Running, Retrying];
    assert_eq!(subject.states(&sent).await, held);
    assert_eq!(subject.end(&given_back[0], JobEnd::GivenBack).await, Parked);
    assert_eq!(subject.end(&given_back[1], JobEnd::GivenBack).await, Parked);
    assert_eq!(subject.end(&at_work, JobEnd::Succeeded).await, Succeeded);
    subject.clock.advance_millis(5_000);
    subject.wake().await;
    let states = [Succeeded, Parked, Parked, Parked, Parked, Available, Parked, Parked, Parked];
    assert_eq!(subject.states(&sent).await, states);
    let late = subject.store.enqueue(vec![about("a", "o"), apart("a", "o"), about("new", "o")]).await.expect("sent");
    assert!(late.iter().all(|one| one.state == Parked), "{late:?}");
    subject.reopen().await;
    let all = ["a", "b", "c", "d", "e", "new"];
    assert_eq!(ids(&subject.take_jobs(&all, 100).await), [sent[5]]);
    // One that is cancelled meanwhile lets nothing go.
    assert_eq!(subject.steer_done(sent[1], Steer::Cancel).await.state, Cancelled);
    assert_eq!(subject.take_jobs(&all, 100).await, []);
    subject.lift(Pause, "object:o").await;
    let mut free = ids(&subject.take_jobs(&all, 100).await);
    free.sort_by_key(|id| id.number());
    assert_eq!(free, [sent[2], sent[3], sent[4], sent[6], sent[7], sent[8], late[0].id, late[1].id, late[2].id]);
}

/// A dead job that is brought back under a rule, and one whose delay is cut short, wait for it too.
pub async fn what_is_retried_under_a_rule_waits_for_it(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let dead = subject.a_dead_one(about("a", "o"), ensue_core::handling::OnExhausted::Hold).await;
    let delayed = subject.send_one(NewJob { not_before: Some(subject.in_secs(60)), ..apart("a", "o") }).await;
    subject.hold(Block, "object:o").await;
    for id in [dead, delayed] {
        assert_eq!(subject.steer_done(id, Steer::Retry).await.state, Parked);
    }
    assert_eq!(subject.take_jobs(&["a"], 10).await, []);
    subject.lift(Block, "object:o").await;
    assert_eq!(subject.run_all("a").await, [dead, delayed]);
}

/// A pause and a block on one scope are two; while one of them is there, nothing goes.
pub async fn both_kinds_hold_and_lift_separately(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent = subject.send(vec![about("a", "o"), job("b")]).await;
    for text in ["object:o", "handler:b"] {
        let (pause, block) = (subject.hold(Pause, text).await, subject.hold(Block, text).await);
        assert_ne!(pause.id, block.id);
    }
    for (kind, is_free) in [(Pause, false), (Block, true)] {
        subject.lift(kind, "object:o").await;
        subject.lift(kind, "handler:b").await;
        let taken = subject.take_jobs(&["a", "b"], 10).await;
        assert_eq!(ids(&taken), if is_free { sent.clone() } else { vec![] });
    }
    // A rule on a parent and one on the handler itself, too.
    subject.send_one(job("b.c")).await;
    subject.hold(Pause, "handler:b").await;
    subject.hold(Pause, "handler:b.c").await;
    subject.lift(Pause, "handler:b.c").await;
    assert_eq!(subject.take_jobs(&["b.c"], 10).await, []);
}

/// H15: however much waited. One object of many lanes and of many jobs without an order, and one handler.
pub async fn lifting_lets_everything_go_that_waited(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.hold(Pause, "object:o").await;
    let mut jobs: Vec<NewJob> = vec![apart("a", "o"); 3_000];
    jobs.extend((0..2_000).map(|n| about(&format!("lane.h{n}"), "o")));
    jobs.extend((0..1_000).map(|n| about(&format!("lane.h{n}"), "o")));
    let sent = subject.send_many(jobs).await;
    let counts = subject.store.job_counts().await.expect("counts");
    assert_eq!(counts.iter().map(|one| one.count).sum::<u64>(), 6_000);
    assert!(counts.iter().all(|one| one.state == Parked));
    subject.lift(Pause, "object:o").await;
    let counts = subject.store.job_counts().await.expect("counts");
    let free: u64 = counts.iter().filter(|one| one.state == Available).map(|one| one.count).sum();
    let behind: u64 = counts.iter().filter(|one| one.state == Parked).map(|one| one.count).sum();
    assert_eq!((free, behind), (5_000, 1_000));
    assert_eq!(subject.job_now(sent[4_999]).await.state, Available);
    // A handler's, also where each has an object of its own.
    subject.hold(Block, "handler:mail").await;
    let jobs = (0..5_000).map(|n| about("mail.send", &format!("user:{n}"))).collect();
    let sent = subject.send_many(jobs).await;
    assert_eq!(subject.take_jobs(&["mail.send"], 10_000).await, []);
    subject.lift(Block, "handler:mail").await;
    assert_eq!(ids(&subject.take_jobs(&["mail.send"], 10_000).await), sent);
}

/// A rule that has expired holds no handler, swept or not; sweeping lifts it and lets an object's jobs go.
pub async fn a_rule_lifts_itself_when_it_expires(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let expires_at = Some(subject.in_secs(60));
    let sent = subject.send(vec![job("a"), about("b", "o"), apart("b", "o"), about("b", "p")]).await;
    for text in ["handler:a", "object:o"] {
        subject.store.set_rule(NewRule { expires_at, ..rule(Pause, text) }).await.expect("set");
    }
    subject.store.set_rule(NewRule { expires_at, ..rule(Pause, "object:p") }).await.expect("set");
    subject.hold(Block, "object:p").await;
    subject.clock.advance_micros(59_999_999);
    assert_eq!(subject.store.expire_rules().await, Ok(vec![]));
    assert_eq!(subject.take_jobs(&["a", "b"], 10).await, []);
    subject.reopen().await;
    subject.clock.advance_micros(1);
    assert_eq!(ids(&subject.take_jobs(&["a"], 10).await), [sent[0]]);
    assert_eq!(subject.store.rules().await.expect("rules").rules().len(), 4, "until they are swept");
    let mut expired = subject.store.expire_rules().await.expect("swept");
    expired.sort_by_key(|rule| rule.scope.to_string());
    let scopes: Vec<String> = expired.iter().map(|rule| rule.scope.to_string()).collect();
    assert_eq!(scopes, ["handler:a", "object:o", "object:p"]);
    assert!(expired.iter().all(|rule| rule.kind == Pause));
    assert_eq!(subject.states(&sent[1..]).await, [Available, Available, Parked]);
    assert_eq!(subject.store.rules().await.expect("rules").rules().len(), 1);
    assert_eq!(subject.store.expire_rules().await, Ok(vec![]));
    let lifted: Vec<Value> = notices(&subject, "ensue.rule.lifted").await.iter().map(payload).collect();
    assert_eq!(lifted.len(), 3);
    assert!(lifted.iter().all(|one| one["lifted_by"] == "expiry"), "{lifted:?}");
}

/// An expiry that has passed, no author: nothing changes, nobody is told.
pub async fn a_rule_that_cannot_be_meant_changes_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let id = subject.send_one(about("a", "o")).await;
    subject.hold(Pause, "object:p").await;
    let version = subject.store.rules_version().await.expect("a version");
    let bad = [
        NewRule { expires_at: Some(subject.clock.now()), ..rule(Pause, "object:o") },
        NewRule { expires_at: Some(subject.in_secs(-60)), ..rule(Pause, "object:p") },
        NewRule { author: String::new(), ..rule(Pause, "object:o") },
        NewRule { reason: Some("x".repeat(100_000)), ..rule(Pause, "object:o") },
    ];
    for bad in bad {
        let answer = subject.store.set_rule(bad).await;
        assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    }
    for (kind, text) in [(Block, "object:p"), (Pause, "object:o"), (Pause, "handler:p")] {
        assert_eq!(subject.store.lift_rule(kind, &scope(text), "bob").await, Ok(None));
    }
    assert_eq!(subject.store.rules_version().await, Ok(version));
    assert_eq!(subject.store.rules().await.expect("rules").rules().len(), 1);
    assert_eq!((subject.job_now(id).await.state, subject.bounds().await.last), (Available, 1));
}

async fn notices(subject: &Subject, topic: &str) -> Vec<Event> {
    subject.read_all(super::topic(topic), 0, 1_000).await
}

fn payload(event: &Event) -> Value {
    serde_json::from_str(event.payload.as_str()).expect("JSON")
}

/// The trail of a scope is a chain in the log, written with the change itself.
pub async fn what_is_done_about_rules_is_in_the_log_with_its_chain(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 1).await;
    let pause = subject.hold(Pause, "handler:a").await;
    let other = subject.hold(Pause, "object:o").await;
    subject.hold(Block, "handler:a").await;
    subject.store.set_rule(NewRule { reason: None, ..rule(Pause, "handler:a") }).await.expect("anew");
    subject.lift(Pause, "handler:a").await;
    subject.clock.advance_millis(1_000);
    subject.lift(Pause, "object:o").await;
    subject.reopen().await;
    let log = subject.log().await;
    let rows: Vec<_> = log[1..]
        .iter()
        .map(|event| {
            let said = payload(event);
            let text = |field: &str| said[field].as_str().unwrap_or("-").to_string();
            let object = event.object.as_ref().map(|object| object.as_str().to_string()).unwrap_or_default();
            (event.topic.to_string(), object, event.prev, text("kind"), text("reason"), text("lifted_by"))
        })
        .collect();
    let row = |topic: &str, object: &str, prev, kind: &str, reason: &str, by: &str| {
        (topic.to_string(), object.to_string(), prev, kind.to_string(), reason.to_string(), by.to_string())
    };
    let (set, lifted) = ("ensue.rule.set", "ensue.rule.lifted");
    let (handler, object) = ("rule:handler:a", "rule:object:o");
    let expected = [
        row(set, handler, None, "pause", "too hot", "-"),
        row(set, object, None, "pause", "too hot", "-"),
        row(set, handler, Some(2), "block", "too hot", "-"),
        row(set, handler, Some(4), "pause", "-", "-"),
        row(lifted, handler, Some(5), "pause", "-", "bob"),
        row(lifted, object, Some(3), "pause", "too hot", "bob"),
    ];
    assert_eq!(rows, expected);
    assert_eq!(payload(&log[1])["id"], pause.id.to_string());
    assert_eq!(payload(&log[6])["id"], other.id.to_string());
    assert_eq!(log[6].recorded_at, subject.clock.now());
    assert!(log[1..].iter().all(|event| event.metadata.as_str().trim() == "{}"));
    subject.audit().await;
}

/// Who has seen a version knows every rule that is older.
pub async fn every_change_of_a_rule_raises_the_version(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let mut seen = subject.store.rules_version().await.expect("a version");
    let expires_at = Some(subject.in_secs(60));
    for step in 0..5 {
        match step {
            0 | 1 => drop(subject.hold(Pause, "object:o").await),
            2 => drop(subject.lift(Pause, "object:o").await),
            3 => {
                let new = NewRule { expires_at, ..rule(Block, "handler:a") };
                subject.store.set_rule(new).await.expect("set");
            }
            _ => {
                subject.clock.advance_millis(60_000);
                assert_eq!(subject.store.expire_rules().await.expect("swept").len(), 1);
            }
        }
        let version = subject.store.rules_version().await.expect("a version");
        assert!(version > seen, "step {step}: {version} after {seen}");
        assert_eq!(subject.store.rules().await.expect("rules").version(), version);
        subject.store.expire_rules().await.expect("nothing to sweep");
        subject.reopen().await;
        assert_eq!(subject.store.rules_version().await, Ok(version), "what changes nothing raises nothing");
        seen = version;
    }
}

/// A change may be answered when every process that lives has seen it; who is dead is not waited for, nor is a reader.
pub async fn processes_that_have_not_seen_a_version_are_awaited(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let awaited = async |version| {
        let mut members: Vec<Member> = subject.store.rules_awaited(version).await.expect("members");
        members.sort_by_key(|member| member.id);
        members
    };
    assert_eq!(awaited(1).await, []);
    let (one, two, three) = (process(1), process(2), process(3));
    for member in [&one, &two, &three] {
        subject.store.serve(member.clone(), LEASE, vec![]).await.expect("served");
    }
    subject.make_pull("g").await;
    subject.take_one("g", &reader(9)).await;
    subject.hold(Pause, "handler:a").await;
    let first = subject.store.rules_version().await.expect("a version");
    subject.hold(Block, "handler:a").await;
    let second = subject.store.rules_version().await.expect("a version");
    assert_eq!(awaited(first).await, [one.clone(), two.clone(), three.clone()]);
    subject.store.report_rules(one.id, first).await.expect("reported");
    subject.store.report_rules(two.id, second).await.expect("reported");
    assert_eq!(awaited(first).await, std::slice::from_ref(&three));
    assert_eq!(awaited(second).await, [one.clone(), three.clone()]);
    // A report that comes late takes nothing back.
    subject.store.report_rules(two.id, first).await.expect("reported");
    assert_eq!(awaited(second).await, [one.clone(), three.clone()]);
    subject.store.leave(three.id).await.expect("left");
    assert_eq!(awaited(second).await, std::slice::from_ref(&one));
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    assert_eq!(awaited(second).await, []);
    subject.store.renew(one.id, LEASE).await.expect("renewed");
    assert_eq!(awaited(second).await, [one]);
}

/// A rule on a schedule, or on an object of the same name as a handler, holds no job.
pub async fn a_rule_holds_nothing_but_its_scope(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent = subject.send(vec![about("a", "o"), about("o", "a")]).await;
    for text in ["schedule:a", "object:a", "handler:o"] {
        subject.hold(Pause, text).await;
    }
    assert_eq!(ids(&subject.take_jobs(&["a", "o"], 10).await), [sent[0]]);
    assert_eq!(subject.job_now(sent[1]).await.state, Parked);
}
