//! What may somebody want of a job, and what comes of it?

use super::Subject;
use super::jobs::{about, dies, done, held, ids, job, retry_at, says};
use super::positions::LEASE;
use crate::factory::Factory;
use JobState::{Available, Cancelled, Dead, Parked, Retrying, Running, Scheduled, Succeeded};
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::lifecycle::{Arrow, after};
use ensue_core::jobs::{Job, JobChange, JobEnd, JobId, JobSettled, JobState, NewJob, Steer, Steered};

/// One job in each state, each of a handler of its own; those that are parked wait behind one that is not among them.
async fn one_of_each(subject: &Subject) -> Vec<(JobState, JobId)> {
    let later = subject.in_secs(600);
    let scheduled = subject.send_one(NewJob { not_before: Some(later), ..job("scheduled") }).await;
    let sent = subject.send(vec![job("available"), job("running"), about("parked", "o"), about("parked", "o")]).await;
    subject.take_this("running", sent[1]).await;
    let rest = subject.send(vec![job("retrying"), job("succeeded"), job("dead"), job("cancelled")]).await;
    subject.run(rest[0], retry_at(later)).await;
    subject.run(rest[1], JobEnd::Succeeded).await;
    subject.run(rest[2], dies()).await;
    subject.steer_done(rest[3], Steer::Cancel).await;
    vec![
        (Scheduled, scheduled),
        (Available, sent[0]),
        (Running, sent[1]),
        (Parked, sent[3]),
        (Retrying, rest[0]),
        (Succeeded, rest[1]),
        (Dead, rest[2]),
        (Cancelled, rest[3]),
    ]
}

/// Every state with everything that may be wanted: what the lifecycle refuses changes nothing, and says why.
pub async fn what_a_state_does_not_allow_changes_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let jobs = one_of_each(&subject).await;
    for (state, id) in jobs {
        for steer in [Steer::Cancel, Steer::Retry, Steer::Skip] {
            let Arrow::Refused(why) = after(state, steer.input()) else { continue };
            let before = subject.job_now(id).await;
            assert_eq!(before.state, state);
            assert_eq!(subject.steer(id, steer).await, Steered::Refused(Box::new(before.clone()), why));
            assert_eq!(subject.job_now(id).await, before);
        }
    }
}

/// At once: it never runs, and is over.
pub async fn a_job_that_waits_is_cancelled_at_once(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    for (state, id) in one_of_each(&subject).await {
        if !matches!(state, Scheduled | Available | Parked | Retrying) {
            continue;
        }
        subject.clock.advance_millis(5);
        let before = subject.job_now(id).await;
        let cancelled = subject.steer_done(id, Steer::Cancel).await;
        let expected = Job { state: Cancelled, turn: None, finished_at: Some(subject.clock.now()), ..before.clone() };
        assert_eq!(cancelled, expected);
        subject.reopen().await;
        assert_eq!(subject.job_now(id).await, expected);
        subject.clock.advance_millis(600_000);
        subject.wake().await;
        let taken = subject.take_jobs(&[before.handler.as_str()], 10).await;
        assert!(!ids(&taken).contains(&id));
    }
}

/// Its worker is told when it renews; it is final when the worker is heard of next, however that ends.
pub async fn a_running_job_is_told_to_stop_and_is_cancelled_when_it_ends(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let later = subject.in_secs(600);
    let ends = [
        (JobEnd::GivenBack, 0, vec![]),
        (JobEnd::Snoozed { at: later }, 0, vec![]),
        (retry_at(later), 1, vec!["no route"]),
        (dies(), 1, vec!["no route"]),
        (JobEnd::CalledOff { why: "as told".into() }, 1, vec!["as told"]),
    ];
    for (end, attempts, errors) in ends {
        let sent = subject.send(vec![about("a", "o"), about("a", "o")]).await;
        let taken = subject.take_this("a", sent[0]).await;
        for _ in 0..2 {
            let told = subject.steer_done(sent[0], Steer::Cancel).await;
            assert_eq!(told, Job { cancel_asked: true, ..taken.clone() }, "once or twice");
        }
        assert_eq!(subject.job_now(sent[1]).await.state, Parked, "it is at work still");
        subject.reopen().await;
        let renewed = subject.store.renew_jobs(&[held(&taken)], LEASE).await.expect("renewed").remove(0);
        assert!(renewed.expect("it has it still").cancel);
        assert_eq!(subject.end(&taken, end.clone()).await, Cancelled, "{end:?}");
        let there = subject.job_now(sent[0]).await;
        assert_eq!((there.attempts, there.turn, there.cancel_asked), (attempts, None, false), "{end:?}");
        assert_eq!((there.finished_at, there.lease_until), (Some(subject.clock.now()), None));
        assert!(there.errors.iter().map(|one| one.error.as_str()).eq(errors), "{:?}", there.errors);
        assert_eq!(subject.run_all("a").await, [sent[1]], "its lane goes on");
    }
}

/// H21: a finish that came first is not overwritten by a cancel, nor a cancel by a late finish.
pub async fn a_cancellation_and_an_end_do_not_overwrite_each_other(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    // Told to stop, but done: it is done.
    let id = subject.send_one(job("a")).await;
    let taken = subject.take_this("a", id).await;
    subject.steer_done(id, Steer::Cancel).await;
    assert_eq!(subject.end(&taken, JobEnd::Succeeded).await, Succeeded);
    let there = subject.job_now(id).await;
    assert!(!there.cancel_asked);
    assert!(matches!(subject.steer(id, Steer::Cancel).await, Steered::Refused(..)));
    assert_eq!(subject.job_now(id).await, there);
    // Given back, then cancelled, then finished late.
    let id = subject.send_one(job("a")).await;
    let taken = subject.take_this("a", id).await;
    subject.end(&taken, JobEnd::GivenBack).await;
    let cancelled = subject.steer_done(id, Steer::Cancel).await;
    assert_eq!(cancelled.state, Cancelled);
    let late = subject.settle_job(JobChange::new(held(&taken), JobEnd::Succeeded)).await;
    assert_eq!(late, JobSettled::LeaseLost);
    assert_eq!(subject.store.say(held(&taken), vec![says(1, subject.clock.now(), "late")]).await, Ok(false));
    assert_eq!(subject.job_now(id).await, cancelled);
}

/// `dead_letter_object` and `hold` are for jobs that died; one that was told to stop did not.
pub async fn a_job_that_was_told_to_stop_takes_no_other_with_it(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for on_exhausted in [OnExhausted::Hold, OnExhausted::DeadLetterObject] {
        let new = NewJob { on_exhausted, ..about("a", "o") };
        let sent = subject.send(vec![new.clone(), new]).await;
        let taken = subject.take_this("a", sent[0]).await;
        subject.steer_done(sent[0], Steer::Cancel).await;
        assert_eq!(subject.end(&taken, dies()).await, Cancelled);
        assert_eq!(subject.run_all("a").await, [sent[1]]);
    }
}

/// Now instead of later; one that was never due draws its place as if it were sent now.
pub async fn a_job_that_waits_for_its_time_runs_now_when_it_is_retried(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let delayed = NewJob { not_before: Some(subject.in_secs(600)), ..about("a", "o") };
    let late = subject.send_one(delayed).await;
    let sent = subject.send(vec![about("a", "o"), about("a", "o")]).await;
    let back = subject.steer_done(late, Steer::Retry).await;
    assert_eq!((back.state, back.not_before, back.redriven), (Parked, None, false));
    assert!(back.turn > Some(sent[1].number()));
    subject.run(sent[0], retry_at(subject.in_secs(600))).await;
    let back = subject.steer_done(sent[0], Steer::Retry).await;
    assert_eq!((back.state, back.not_before, back.attempts), (Available, None, 1));
    assert_eq!((back.turn, back.redriven), (Some(sent[0].number()), false));
    assert_eq!(subject.wake().await.next_due, None);
    assert_eq!(subject.run_all("a").await, [sent[0], sent[1], late]);
}

/// While another with its key lives, a dead job stays dead.
pub async fn a_dead_job_is_not_brought_back_beside_a_live_one_with_its_key(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let keyed = NewJob { unique_key: Some("k".into()), ..about("a", "o") };
    let dead = subject.a_dead_one(keyed.clone(), OnExhausted::Hold).await;
    let second = subject.send_one(keyed.clone()).await;
    let before = subject.all_jobs().await;
    match subject.steer(dead, Steer::Retry).await {
        Steered::Refused(job, why) => {
            assert_eq!(*job, before[0]);
            assert!(why.starts_with("a live job has its unique_key"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(subject.all_jobs().await, before);
    subject.steer_done(second, Steer::Cancel).await;
    assert_eq!(subject.steer_done(dead, Steer::Retry).await.state, Available);
    // Now it has the key again.
    assert_eq!(subject.try_send(keyed.clone()).await.id, dead);
    // Two dead ones with one key in one call: the first is brought back.
    subject.run(dead, dies()).await;
    subject.steer_done(dead, Steer::Skip).await;
    let other = subject.a_dead_one(keyed, OnExhausted::Skip).await;
    let answers = subject.store.steer(&[other, dead], Steer::Retry).await.expect("steered");
    assert_eq!(done(&answers[0]).state, Available);
    assert!(matches!(answers[1], Steered::Refused(..)), "{:?}", answers[1]);
}

/// Its lane goes on without it: one that is retried dies, one that is dead lets go.
pub async fn a_skipped_job_leaves_its_lane(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent = subject.send(vec![about("a", "o"), about("a", "o"), about("a", "o")]).await;
    subject.run(sent[0], retry_at(subject.in_secs(600))).await;
    subject.clock.advance_millis(5);
    let skipped = subject.steer_done(sent[0], Steer::Skip).await;
    assert_eq!((skipped.state, skipped.turn), (Dead, None));
    assert_eq!((skipped.finished_at, skipped.attempts), (Some(subject.clock.now()), 1));
    let errors: Vec<&str> = skipped.errors.iter().map(|one| one.error.as_str()).collect();
    assert_eq!(errors, ["no route", "skipped"]);
    assert_eq!(subject.states(&sent).await, [Dead, Available, Parked]);
    subject.run(sent[1], dies()).await;
    let before = subject.job_now(sent[1]).await;
    assert_eq!(subject.states(&sent).await, [Dead, Dead, Parked]);
    let skipped = subject.steer_done(sent[1], Steer::Skip).await;
    assert_eq!(skipped, Job { turn: None, ..before });
    assert_eq!(subject.run_all("a").await, [sent[2]]);
    // A second time there is nothing to let go.
    for id in [sent[0], sent[1]] {
        match subject.steer(id, Steer::Skip).await {
            Steered::Refused(job, why) => {
                assert_eq!((job.id, why), (id, "it holds nothing back: nothing is left to skip"));
            }
            other => panic!("{other:?}"),
        }
    }
    // One whose time would come late runs at once if it is brought back.
    let back = subject.steer_done(sent[0], Steer::Retry).await;
    assert_eq!((back.state, back.not_before), (Available, None));
}

/// A call does one after another: who comes later sees what was done before.
pub async fn a_call_sees_what_it_has_done_before(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent = subject.send(vec![about("a", "o"), about("a", "o"), about("a", "o")]).await;
    let unknown = super::jobs::forged(sent[0]);
    let answers = subject.store.steer(&[sent[0], unknown, sent[1], sent[0]], Steer::Cancel).await.expect("steered");
    assert_eq!((done(&answers[0]).state, &answers[1]), (Cancelled, &Steered::Unknown));
    assert_eq!(done(&answers[2]).state, Cancelled);
    assert!(matches!(&answers[3], Steered::Refused(job, _) if job.state == Cancelled));
    assert_eq!(subject.states(&sent).await, [Cancelled, Cancelled, Available]);
    assert_eq!(subject.store.steer(&[], Steer::Cancel).await, Ok(vec![]));
    // Many at once.
    let many = subject.send(vec![job("b"); 1_000]).await;
    let answers = subject.store.steer(&many, Steer::Cancel).await.expect("steered");
    assert!(answers.iter().map(|one| done(one).id).eq(many.iter().copied()));
    assert_eq!(subject.take_jobs(&["b"], 10).await, []);
}
