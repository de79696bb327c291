//! What does a worker write, and when is it written?

use super::Subject;
use super::jobs::{about, dies, held, ids, job, json, retry_at, says};
use super::positions::{LEASE, PAST_THE_LEASE_MILLIS, entries};
use crate::factory::Factory;
use ensue_core::jobs::job::{ERRORS_MAX, JOB_LINES_MAX};
use ensue_core::jobs::lifecycle::expired;
use ensue_core::jobs::{
    Enqueued, Held, Job, JobChange, JobEnd, JobError, JobSettled, JobState, NewJob, Settlement, Steer, Steered,
};
use ensue_core::{Appended, NewEvent, Seq, StoreError};

fn written(settled: &JobSettled) -> (JobState, &[Appended], &[Enqueued]) {
    match settled {
        JobSettled::Done { state, events, jobs } => (*state, events, jobs),
        JobSettled::LeaseLost | JobSettled::Refused(_) => panic!("{settled:?}"),
    }
}

fn places(appended: &[Appended]) -> Vec<(Option<Seq>, Option<Seq>)> {
    appended.iter().map(|one| (one.seq, one.prev)).collect()
}

/// A change with something of everything.
fn everything(subject: &Subject, job: &Job, end: JobEnd) -> JobChange {
    let key = format!("{}:{}", job.id, job.fence);
    JobChange {
        result: Some(json(r#"{"made": 1}"#)),
        lines: vec![says(job.attempts, subject.clock.now(), "said")],
        events: entries(vec![NewEvent::new("made").object("o").key(key)]),
        jobs: vec![about("next", "o")],
        ..JobChange::new(held(job), end)
    }
}

/// What is over tells when, and what came of it; who had it is told still.
pub async fn a_job_that_is_done_is_over(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let id = subject.send_one(about("a", "o")).await;
    let taken = subject.take_this("a", id).await;
    subject.clock.advance_millis(1_500);
    let change = JobChange { result: Some(json("[1,2]")), ..JobChange::new(held(&taken), JobEnd::Succeeded) };
    assert_eq!(written(&subject.settle_job(change).await), (JobState::Succeeded, &[][..], &[][..]));
    subject.reopen().await;
    let there = subject.job_now(id).await;
    let result = there.result.as_ref().map(|result| result.as_str().replace(' ', ""));
    assert_eq!(result.as_deref(), Some("[1,2]"));
    let expected = Job {
        state: JobState::Succeeded,
        turn: None,
        finished_at: Some(subject.clock.now()),
        lease_until: None,
        result: there.result.clone(),
        settled: Some(Settlement::Complete),
        ..taken
    };
    assert_eq!(there, expected);
}

/// The settlement of the last claim is kept with its job, whatever becomes of the job, until it is claimed again.
pub async fn a_job_tells_how_its_last_claim_was_settled(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let later = subject.in_secs(60);
    for object in [None, Some("o")] {
        let new = || object.map_or_else(|| job("a"), |object| about("a", object));
        let id = subject.send_one(new()).await;
        assert_eq!(subject.job_now(id).await.settled, None);
        // Each is written over by the next.
        for (end, settled) in [
            (JobEnd::Snoozed { at: later }, Some(Settlement::Snooze)),
            (retry_at(later), Some(Settlement::Fail)),
            (JobEnd::Snoozed { at: later }, Some(Settlement::Snooze)),
        ] {
            let taken = subject.take_this("a", id).await;
            assert_eq!((taken.settled, subject.job_now(id).await.settled), (None, None), "while it runs");
            subject.end(&taken, end).await;
            assert_eq!(subject.job_now(id).await.settled, settled);
            assert_eq!(subject.steer_done(id, Steer::Retry).await.settled, settled, "also when it may run again");
        }
        // Nobody settles what is given back, or taken from a worker that has vanished.
        for lapsed in [false, true] {
            let taken = subject.take_this("a", id).await;
            let end = if lapsed {
                subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
                expired(taken.attempts, taken.attempts_max, "w", subject.clock.now())
            } else {
                JobEnd::GivenBack
            };
            subject.end(&taken, end).await;
            assert_eq!(subject.job_now(id).await.settled, None, "lapsed: {lapsed}");
        }
        subject.steer_done(id, Steer::Retry).await;
        assert_eq!(subject.run(id, retry_at(later)).await, JobState::Retrying);
        subject.steer_done(id, Steer::Retry).await;
        assert_eq!(subject.run(id, JobEnd::Succeeded).await, JobState::Succeeded);
        subject.reopen().await;
        assert_eq!(subject.job_now(id).await.settled, Some(Settlement::Complete));
        let id = subject.send_one(new()).await;
        let taken = subject.take_this("a", id).await;
        assert!(matches!(subject.store.steer(&[id], Steer::Cancel).await.expect("asked")[0], Steered::Done(_)));
        assert_eq!(subject.end(&taken, dies()).await, JobState::Cancelled);
        assert_eq!(subject.job_now(id).await.settled, Some(Settlement::Fail), "what its worker said");
    }
}

/// The key that signs claims and leases survives reopening the store.
pub async fn a_store_keeps_its_key(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let code = subject.store.store_key().await.expect("a key").code("claim");
    subject.reopen().await;
    assert!(subject.store.store_key().await.expect("a key").verifies("claim", &code));
}

/// It waits for its time, keeps its place, and tells what went wrong.
pub async fn a_failed_job_waits_for_its_time(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let id = subject.send_one(job("a")).await;
    let taken = subject.take_this("a", id).await;
    subject.clock.advance_millis(10);
    let (now, at) = (subject.clock.now(), subject.in_secs(60));
    let change = JobChange { result: Some(json("1")), ..JobChange::new(held(&taken), retry_at(at)) };
    assert_eq!(written(&subject.settle_job(change).await).0, JobState::Retrying);
    let error = JobError { attempt: 1, at: now, error: "no route".into() };
    let expected = Job {
        state: JobState::Retrying,
        not_before: Some(at),
        lease_until: None,
        errors: vec![error],
        settled: Some(Settlement::Fail),
        ..taken.clone()
    };
    assert_eq!(subject.job_now(id).await, expected, "no result, and not finished");
    assert_eq!(subject.take_jobs(&["a"], 10).await, []);
}

/// H12: dead is visible, with the newest of its errors.
pub async fn a_dead_job_keeps_its_newest_errors(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let id = subject.send_one(NewJob { attempts_max: 100, ..job("a") }).await;
    let failures = ERRORS_MAX as u32 + 5;
    for attempt in 1..=failures {
        let taken = subject.take_this("a", id).await;
        assert_eq!(taken.attempts, attempt);
        let error = format!("error {attempt}");
        let at = subject.clock.now();
        let end = if attempt < failures { JobEnd::Retry { at, error } } else { JobEnd::Dead { error } };
        subject.end(&taken, end).await;
        subject.wake().await;
    }
    subject.reopen().await;
    let there = subject.job_now(id).await;
    assert_eq!((there.state, there.attempts, there.turn), (JobState::Dead, failures, None));
    assert_eq!(there.finished_at, Some(subject.clock.now()));
    let expected = (failures - ERRORS_MAX as u32 + 1..=failures).map(|attempt| (attempt, format!("error {attempt}")));
    assert!(there.errors.iter().map(|one| (one.attempt, one.error.clone())).eq(expected), "{:?}", there.errors);
    assert_eq!(subject.take_jobs(&["a"], 10).await, []);
}

/// H19: who comes too early, or starts nothing, uses up nothing.
pub async fn a_snooze_and_a_give_back_use_no_attempt(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let id = subject.send_one(NewJob { attempts_max: 1, ..job("a") }).await;
    for fence in 1..=4 {
        let taken = subject.take_this("a", id).await;
        assert_eq!((taken.attempts, taken.fence), (1, fence));
        if fence % 2 == 0 {
            let at = subject.in_secs(5);
            assert_eq!(subject.end(&taken, JobEnd::Snoozed { at }).await, JobState::Scheduled);
            let there = subject.job_now(id).await;
            let expected = Job {
                state: JobState::Scheduled,
                attempts: 0,
                not_before: Some(at),
                lease_until: None,
                settled: Some(Settlement::Snooze),
                ..taken
            };
            assert_eq!(there, expected, "it keeps its turn");
            assert_eq!(subject.take_jobs(&["a"], 10).await, []);
            subject.clock.advance_millis(5_000);
            assert_eq!(subject.wake().await.count, 1);
        } else {
            assert_eq!(subject.end(&taken, JobEnd::GivenBack).await, JobState::Available);
            let expected = Job { state: JobState::Available, attempts: 0, lease_until: None, ..taken };
            assert_eq!(subject.job_now(id).await, expected);
        }
    }
    assert_eq!(subject.run(id, JobEnd::Succeeded).await, JobState::Succeeded);
}

/// A handler says that there is nothing to do.
pub async fn a_job_that_is_called_off_tells_why(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let id = subject.send_one(job("a")).await;
    assert_eq!(subject.run(id, JobEnd::CalledOff { why: "sold out".into() }).await, JobState::Cancelled);
    let there = subject.job_now(id).await;
    assert_eq!((there.attempts, there.turn, there.finished_at), (1, None, Some(subject.clock.now())));
    assert_eq!(there.errors, [JobError { attempt: 1, at: subject.clock.now(), error: "sold out".into() }]);
}

/// H16: A stood still past its lease, B took over, A goes on: its end, its renewal and its lines change nothing, its
/// events and jobs are not sent, their keys are not used up. What others write in the same commit is written.
pub async fn a_stale_fence_changes_nothing_while_others_are_written(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let sent = subject.send(vec![job("a"), job("b")]).await;
    let stale = subject.take_this("a", sent[0]).await;
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    let late = subject.wake().await.expired.remove(0);
    assert_eq!(subject.end(&late, expired(1, 5, "worker 1", subject.clock.now())).await, JobState::Retrying);
    for is_taken_over in [false, true] {
        if is_taken_over {
            subject.wake().await;
            assert_eq!(subject.take_this("a", sent[0]).await.fence, stale.fence + 1);
            subject.reopen().await;
        }
        let other = if is_taken_over { subject.send_one(job("b")).await } else { sent[1] };
        let healthy = subject.take_this("b", other).await;
        let before = subject.job_now(sent[0]).await;
        let future = Held { fence: stale.fence + 2, ..held(&stale) };
        let changes = vec![
            everything(&subject, &stale, JobEnd::Succeeded),
            everything(&subject, &stale, dies()),
            everything(&subject, &healthy, JobEnd::Succeeded),
            JobChange { held: future, ..everything(&subject, &stale, JobEnd::GivenBack) },
        ];
        let answers = subject.store.settle_jobs(changes).await.expect("settled");
        for lost in [0, 1, 3] {
            assert_eq!(answers[lost], JobSettled::LeaseLost, "answer {lost}");
        }
        assert_eq!(written(&answers[2]).0, JobState::Succeeded);
        assert_eq!(subject.store.renew_jobs(&[held(&stale)], LEASE).await, Ok(vec![None]));
        let line = says(1, subject.clock.now(), "late");
        assert_eq!(subject.store.say(held(&stale), vec![line]).await, Ok(false));
        assert_eq!(subject.job_now(sent[0]).await, before);
        assert_eq!(subject.said(sent[0]).await, [""; 0]);
        assert_eq!(subject.bounds().await.last, 1 + u64::from(is_taken_over));
    }
    let key = format!("{}:{}", stale.id, stale.fence);
    assert!(!subject.one(NewEvent::new("other").key(key)).await.repeated);
    assert_eq!(subject.all_jobs().await.len(), 5);
}

/// H21: a late finish does not overwrite what is final; settling twice changes nothing.
pub async fn what_is_over_stays_over(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let ends = [JobEnd::Succeeded, dies(), JobEnd::CalledOff { why: "no".into() }];
    for end in &ends {
        let id = subject.send_one(about("a", "o")).await;
        let taken = subject.take_jobs(&["a"], 1).await.remove(0);
        assert_eq!(taken.id, id);
        subject.end(&taken, end.clone()).await;
        let before = subject.job_now(id).await;
        for again in ends.iter().cloned().chain([JobEnd::GivenBack, retry_at(subject.clock.now())]) {
            let settled = subject.settle_job(everything(&subject, &taken, again)).await;
            assert_eq!(settled, JobSettled::LeaseLost);
        }
        assert_eq!(subject.job_now(id).await, before);
        assert_eq!(subject.said(id).await, [""; 0]);
        // With nothing to publish or send it is no different.
        let line = vec![says(1, subject.clock.now(), "late")];
        let bare = JobChange { lines: line, ..JobChange::new(held(&taken), JobEnd::Succeeded) };
        assert_eq!(subject.settle_job(bare).await, JobSettled::LeaseLost);
        assert_eq!((subject.job_now(id).await, subject.said(id).await), (before.clone(), vec![]));
        if before.turn.is_some() {
            subject.steer_done(id, ensue_core::jobs::Steer::Skip).await;
        }
    }
    // Also within one call: the first counts.
    let id = subject.send_one(job("a")).await;
    let taken = subject.take_this("a", id).await;
    let twice = vec![JobChange::new(held(&taken), JobEnd::Succeeded), JobChange::new(held(&taken), dies())];
    let answers = subject.store.settle_jobs(twice).await.expect("settled");
    assert_eq!((written(&answers[0]).0, &answers[1]), (JobState::Succeeded, &JobSettled::LeaseLost));
    assert_eq!(subject.job_now(id).await.state, JobState::Succeeded);
    // One that is stale takes nothing from the one after it.
    let id = subject.send_one(job("a")).await;
    let taken = subject.take_this("a", id).await;
    let stale = Held { fence: taken.fence + 1, ..held(&taken) };
    let both = [stale, held(&taken)].map(|held| JobChange::new(held, JobEnd::Succeeded));
    let answers = subject.store.settle_jobs(both.to_vec()).await.expect("settled");
    assert_eq!((&answers[0], written(&answers[1]).0), (&JobSettled::LeaseLost, JobState::Succeeded));
    // The death of one was told, and nothing else.
    assert_eq!((subject.bounds().await.last, subject.store.settle_jobs(vec![]).await), (1, Ok(vec![])));
}

/// What a handler publishes and sends is there exactly if its end is: in order, chained, in its lanes.
pub async fn events_and_jobs_are_written_with_the_end(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 2).await;
    let sent = subject.send(vec![job("a"), job("a"), job("a")]).await;
    let taken = subject.take_jobs(&["a"], 3).await;
    let later = subject.in_secs(60);
    let changes = vec![
        JobChange {
            events: entries(vec![NewEvent::new("x").object("o"), NewEvent::new("y").object("p")]),
            jobs: vec![about("b", "o"), job("b"), about("b", "o")],
            ..JobChange::new(held(&taken[0]), JobEnd::Succeeded)
        },
        JobChange::new(held(&taken[1]), dies()),
        JobChange {
            events: entries(vec![NewEvent::new("z").object("o"), NewEvent::new("d").not_before(later)]),
            jobs: vec![NewJob { not_before: Some(later), ..job("b") }, about("b", "o")],
            ..JobChange::new(held(&taken[2]), retry_at(later))
        },
    ];
    let answers = subject.store.settle_jobs(changes).await.expect("settled");
    let (first, third) = (written(&answers[0]), written(&answers[2]));
    assert_eq!((first.0, third.0), (JobState::Succeeded, JobState::Retrying));
    assert_eq!(places(first.1), [(Some(3), Some(2)), (Some(4), None)]);
    assert_eq!(places(third.1), [(Some(5), Some(3)), (None, None)]);
    let states = |jobs: &[Enqueued]| jobs.iter().map(|one| one.state).collect::<Vec<_>>();
    assert_eq!(states(first.2), [JobState::Available, JobState::Available, JobState::Parked]);
    assert_eq!(states(third.2), [JobState::Scheduled, JobState::Parked]);
    let made: Vec<_> = first.2.iter().chain(third.2).map(|one| one.id).collect();
    assert!(made.is_sorted_by_key(|id| id.number()) && made[0].number() > sent[2].number());
    subject.reopen().await;
    assert_eq!(subject.log().await.len(), 6, "with the notice of the one that died");
    assert_eq!(subject.store.pending_count().await, Ok(1));
    assert_eq!(ids(&subject.all_jobs().await)[3..], made);
    assert_eq!(subject.run_all("b").await, [made[0], made[1], made[2], made[4]]);
    subject.audit().await;
}

/// One handler publishes under a key that was used for another event, another sends a job that cannot be kept: nothing of
/// theirs is written, they still have their jobs, and those before and after them are written.
pub async fn what_is_refused_leaves_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.one(NewEvent::new("t").key("k")).await;
    let sent = subject.send(vec![job("a"), job("a"), job("a"), job("a")]).await;
    let taken = subject.take_jobs(&["a"], 4).await;
    let mut changes: Vec<JobChange> = taken.iter().map(|job| everything(&subject, job, JobEnd::Succeeded)).collect();
    changes[1].events.extend(entries(vec![NewEvent::new("other").key("k")]));
    changes[2].jobs.push(NewJob { attempts_max: 0, ..job("next") });
    let answers = subject.store.settle_jobs(changes.clone()).await.expect("settled");
    assert_eq!(places(written(&answers[0]).1), [(Some(2), None)]);
    assert_eq!(answers[1], JobSettled::Refused(StoreError::KeyConflict { key: "k".into() }));
    assert!(matches!(answers[2], JobSettled::Refused(StoreError::Invalid(_))), "{:?}", answers[2]);
    assert_eq!(places(written(&answers[3]).1), [(Some(3), Some(2))]);
    for index in [1, 2] {
        assert_eq!(subject.job_now(sent[index]).await, taken[index]);
        assert_eq!(subject.said(sent[index]).await, [""; 0]);
    }
    assert_eq!((subject.all_jobs().await.len(), subject.bounds().await.last), (6, 3));
    subject.audit().await;
    // Under the same fences they may end otherwise.
    changes[1].events.pop();
    changes[2].jobs.pop();
    for change in changes.drain(1..3) {
        assert_eq!(written(&subject.settle_job(change).await).0, JobState::Succeeded);
    }
    assert_eq!((subject.all_jobs().await.len(), subject.bounds().await.last), (8, 5));
    subject.audit().await;
}

/// A job is over before the jobs that it sends are made: one with its own key, and in its own lane, is a new one.
pub async fn a_job_may_send_its_own_successor(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let keyed = NewJob { unique_key: Some("k".into()), ..about("a", "o") };
    let mut id = subject.send_one(keyed.clone()).await;
    for _ in 0..3 {
        let taken = subject.take_this("a", id).await;
        let change = JobChange { jobs: vec![keyed.clone()], ..JobChange::new(held(&taken), JobEnd::Succeeded) };
        let settled = subject.settle_job(change).await;
        let next = written(&settled).2[0];
        assert_eq!((next.is_new, next.state), (true, JobState::Available));
        id = next.id;
    }
    // One that is to run again has its key still.
    let taken = subject.take_this("a", id).await;
    let again = retry_at(subject.in_secs(5));
    let change = JobChange { jobs: vec![keyed], ..JobChange::new(held(&taken), again) };
    let settled = subject.settle_job(change).await;
    let same = written(&settled).2[0];
    assert_eq!(same, Enqueued { id, is_new: false, state: JobState::Retrying });
}

/// H29: two lines that are the same are two; they are numbered over all attempts, by the store.
pub async fn lines_are_kept_in_order_also_when_they_are_the_same(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let sent = subject.send(vec![job("a"), job("b")]).await;
    let other = subject.take_this("b", sent[1]).await;
    let now = subject.clock.now();
    for attempt in [1, 2] {
        let taken = subject.take_this("a", sent[0]).await;
        let lines = vec![says(attempt, now, "same"), says(attempt, now, "same")];
        assert_eq!(subject.store.say(held(&taken), lines).await, Ok(true));
        assert_eq!(subject.store.say(held(&other), vec![says(1, now, "other")]).await, Ok(true));
        let end = JobChange { lines: vec![says(attempt, now, "last")], ..JobChange::new(held(&taken), retry_at(now)) };
        assert_eq!(written(&subject.settle_job(end).await).0, JobState::Retrying);
        assert_eq!(subject.store.say(held(&taken), vec![says(attempt, now, "late")]).await, Ok(false));
        subject.wake().await;
        subject.reopen().await;
    }
    assert_eq!(subject.said(sent[0]).await, ["same", "same", "last", "same", "same", "last"]);
    assert_eq!(subject.said(sent[1]).await, ["other", "other"]);
    let page = subject.store.job_lines(sent[0], 2, 2).await.expect("lines");
    let expected = [(3, 1, "last"), (4, 2, "same")];
    assert!(page.iter().map(|line| (line.line, line.attempt, line.message.as_str())).eq(expected), "{page:?}");
    assert!(page.iter().all(|line| line.at == now && line.level == ensue_core::positions::Level::Info));
    assert_eq!(subject.store.job_lines(sent[0], 6, 10).await, Ok(vec![]));
}

/// A job that says more than is kept: the first lines stay, and saying more is no failure.
pub async fn a_job_that_says_too_much_keeps_its_first_lines(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let id = subject.send_one(job("a")).await;
    let taken = subject.take_this("a", id).await;
    let now = subject.clock.now();
    for part in 0..(JOB_LINES_MAX / 2_500 + 1) {
        let lines = (0..2_501).map(|n| says(1, now, &format!("{part}:{n}"))).collect();
        assert_eq!(subject.store.say(held(&taken), lines).await, Ok(true));
    }
    let change = JobChange { lines: vec![says(1, now, "last")], ..JobChange::new(held(&taken), JobEnd::Succeeded) };
    assert_eq!(written(&subject.settle_job(change).await).0, JobState::Succeeded);
    let said = subject.said(id).await;
    assert_eq!(said.len() as u64, JOB_LINES_MAX);
    assert_eq!((said[0].as_str(), said[2_501].as_str()), ("0:0", "1:0"));
}
