//! Handlers that the store keeps are served by whoever runs on it.

#[cfg(feature = "postgres")]
use crate::support::until;
use crate::support::{LONG, event, name};
use ensue::{Context, Ensue, Event, HandlerLimits, Json, PullHandler, Retry};
use std::time::Duration;

async fn claimed(bus: &Ensue, count: usize) -> Vec<u64> {
    let jobs = bus.claim_jobs(vec![name("a.remote")], count, LONG, LONG, "w").await.unwrap();
    jobs.iter().map(|job| job.job.cause.as_ref().unwrap().seq).collect()
}

/// Made again with other settings it goes on where it was; deleted, its jobs stay.
#[tokio::test]
async fn a_handler_is_defined_changed_and_deleted() {
    let bus = Ensue::memory().await.unwrap();
    let running = bus.start().await.unwrap();
    let key = name("a.remote");
    assert!(bus.define_pull(&key, &PullHandler::on("a")).await.unwrap());
    bus.publish(event("a", "o")).await.unwrap();
    bus.drain().await.unwrap();
    let only = PullHandler {
        condition: Some(("e.object = s.params->>'object'".into(), Json::parse("params", r#"{"object":"p"}"#).unwrap())),
        start: ensue::Start::Beginning,
        limits: HandlerLimits { retry: Retry::attempts(2), ..HandlerLimits::default() },
        ..PullHandler::on("a")
    };
    assert!(!bus.define_pull(&key, &only).await.unwrap());
    bus.publish_all(vec![event("a", "o"), event("a", "p")]).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(claimed(&bus, 9).await, [1, 3]);
    let report = bus.handler_report(&key).await.unwrap().unwrap();
    let here = report.here.unwrap();
    assert_eq!((here.attempts_max, here.pull, here.defined, report.lag), (2, true, true, 0));

    bus.publish(event("a", "q")).await.unwrap();
    bus.drain().await.unwrap();
    bus.define_pull(&key, &PullHandler::on("a")).await.unwrap();
    bus.publish(event("a", "q")).await.unwrap();
    bus.drain().await.unwrap();
    bus.undefine_pull(&key).await.unwrap();
    assert_eq!(claimed(&bus, 9).await, [5], "what was made stays");
    bus.publish(event("a", "q")).await.unwrap();
    bus.drain().await.unwrap();
    assert!(bus.handler_report(&key).await.unwrap().is_none());
    assert!(bus.undefine_pull(&key).await.unwrap_err().to_string().contains("there is no handler"));
    running.shutdown(LONG).await.unwrap();
}

/// Neither takes over what is the other's: a program's key is not defined, and a key that is defined is not bound.
#[tokio::test]
async fn a_key_is_a_programs_or_the_stores() {
    let bus = Ensue::memory().await.unwrap();
    let handler = |_event: Event, _cx: Context| async { Ok(()) };
    bus.on("a").named("bound").handle(handler).unwrap();
    let refused = bus.define_pull(&name("a.bound"), &PullHandler::on("a")).await.unwrap_err().to_string();
    assert!(refused.contains("a config file or an application binds"), "{refused}");
    assert!(bus.define_pull(&name("a.remote"), &PullHandler::on("a")).await.unwrap());
    let refused = bus.on("a").named("remote").handle(handler).unwrap_err().to_string();
    assert!(refused.contains("ensue handler delete a.remote"), "{refused}");
    let running = bus.start().await.unwrap();
    assert!(bus.undefine_pull(&name("a.bound")).await.is_err());
    running.shutdown(LONG).await.unwrap();
    let without = PullHandler { on: None, ..PullHandler::on("a") };
    assert!(bus.define_pull(&name("x"), &without).await.unwrap_err().to_string().contains("`on`"));
}

/// A worker that renews again and again holds a job no longer than its handler lets it.
#[tokio::test]
async fn a_claim_is_held_no_longer_than_the_timeout() {
    let bus = Ensue::memory().await.unwrap();
    let running = bus.start().await.unwrap();
    let timeout = Duration::from_secs(600);
    let limits = HandlerLimits { timeout: Some(timeout), ..HandlerLimits::default() };
    let handler = PullHandler { limits, ..PullHandler::on("a") };
    bus.define_pull(&name("a.remote"), &handler).await.unwrap();
    bus.publish(event("a", "o")).await.unwrap();
    let hour = Duration::from_secs(3_600);
    let job = bus.claim_jobs(vec![name("a.remote")], 1, hour, LONG, "w").await.unwrap().remove(0);
    let end = job.job.locked_at.unwrap() + timeout;
    let margin = Duration::from_secs(60);
    assert!(job.job.lease_until.unwrap() <= end + margin, "{:?}", job.job);
    let renewed = bus.renew_claim(&job.claim, hour).await.unwrap();
    assert!(renewed.lease_until <= end + margin, "{renewed:?} {end}");
    let short = bus.renew_claim(&job.claim, Duration::from_secs(30)).await.unwrap();
    assert!(short.lease_until < renewed.lease_until);
    running.shutdown(LONG).await.unwrap();
}

/// Defined in one process, it is served by another, also when the first is gone; and when it is deleted, by nobody.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn what_one_process_defines_others_serve() {
    let (url, _) = ensue_conformance::postgres::fresh_schema("defined");
    let (one, other) = (Ensue::open(&url).await.unwrap(), Ensue::open(&url).await.unwrap());
    let (first, second) = (one.start().await.unwrap(), other.start().await.unwrap());
    let key = name("a.remote");
    one.define_pull(&key, &PullHandler::on("a")).await.unwrap();
    until("both serve it", async || other.handlers().len() == 1 && one.handlers().len() == 1).await;
    let owners = async || {
        let group = one.store().group(&key).await.unwrap().unwrap();
        let mut all: Vec<_> = group.slots.iter().filter_map(|slot| Some(slot.owner.as_ref()?.member.id)).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    };
    until("both have slots", async || owners().await == 2).await;
    one.publish_all((0..40).map(|n| event("a", &format!("o{}", n % 5))).collect()).await.unwrap();
    let jobs = async |bus: &Ensue| bus.store().job_counts().await.unwrap().iter().map(|count| count.count).sum::<u64>();
    until("all became jobs", async || jobs(&one).await == 40).await;
    first.shutdown(LONG).await.unwrap();
    other.publish(event("a", "o0")).await.unwrap();
    until("the other serves it alone", async || jobs(&other).await == 41).await;
    // Defined by who does not run it, as from a command line.
    one.define_pull(&key, &PullHandler::on("b")).await.unwrap();
    until("the other has heard of it", async || other.handlers()[0].on.as_ref().unwrap().as_str() == "b").await;
    one.undefine_pull(&key).await.unwrap();
    until("nobody serves it", async || other.handlers().is_empty()).await;
    other.publish(event("b", "o0")).await.unwrap();
    other.drain().await.unwrap();
    assert_eq!(jobs(&other).await, 41);
    assert!(other.store().group(&key).await.unwrap().is_none(), "nobody has made its group anew");
    second.shutdown(LONG).await.unwrap();
}

/// Another process hears of a change later than who asked for it: meanwhile it passes over nothing that only the new one wants.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_right_after_a_change_is_passed_over_by_nobody() {
    let (url, _) = ensue_conformance::postgres::fresh_schema("redefined");
    let (one, other) = (Ensue::open(&url).await.unwrap(), Ensue::open(&url).await.unwrap());
    let (first, second) = (one.start().await.unwrap(), other.start().await.unwrap());
    let key = name("a.remote");
    one.define_pull(&key, &PullHandler::on("b")).await.unwrap();
    until("both serve it", async || other.handlers().len() == 1 && one.handlers().len() == 1).await;
    let mut wanted = 0;
    for topic in ["a", "b", "a"] {
        one.define_pull(&key, &PullHandler::on(topic)).await.unwrap();
        one.publish_all((0..64).map(|n| event(topic, &format!("o{n}"))).collect()).await.unwrap();
        wanted += 64;
        let jobs =
            async || one.store().job_counts().await.unwrap().iter().map(|count| count.count).sum::<u64>() == wanted;
        until("all became jobs", jobs).await;
    }
    first.shutdown(LONG).await.unwrap();
    second.shutdown(LONG).await.unwrap();
}
