//! Which job of an object is next?

use super::Subject;
use super::jobs::{about, apart, dies, done, held, ids, job, retry_at};
use crate::factory::Factory;
use JobState::{Available, Dead, Parked, Retrying, Running, Scheduled, Succeeded};
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::{Job, JobChange, JobEnd, JobId, JobState, NewJob, Steer};

/// The first of each lane may run, and no other: a lane is the jobs of one handler about one object.
pub async fn jobs_of_an_object_run_one_after_another(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let sent = subject
        .send(vec![about("a", "o"), about("a", "o"), about("a", "O"), about("b", "o"), about("a", "o"), job("a")])
        .await;
    assert_eq!(subject.states(&sent).await, [Available, Parked, Available, Available, Parked, Available]);
    let taken = subject.take_jobs(&["a"], 10).await;
    assert_eq!(ids(&taken), [sent[0], sent[2], sent[5]]);
    assert_eq!(subject.take_jobs(&["a"], 10).await, []);
    subject.reopen().await;
    subject.end(&taken[1], JobEnd::Succeeded).await;
    assert_eq!(subject.take_jobs(&["a"], 10).await, [], "that was another object's");
    subject.end(&taken[0], JobEnd::Succeeded).await;
    assert_eq!(subject.states(&sent).await, [Succeeded, Available, Succeeded, Available, Parked, Running]);
    assert_eq!(subject.run_all("a").await, [sent[1], sent[4]]);
    assert_eq!(subject.run_all("b").await, [sent[3]]);
}

/// However it ends, if it is over and holds nothing.
pub async fn a_lane_goes_on_when_its_job_is_over(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let new = NewJob { on_exhausted: OnExhausted::Skip, ..about("a", "o") };
    let sent = subject.send(vec![new; 6]).await;
    let ends = [JobEnd::Succeeded, dies(), JobEnd::CalledOff { why: "no".into() }];
    for (index, end) in ends.into_iter().enumerate() {
        assert_eq!(subject.states(&sent[index..]).await[..2], [Available, Parked]);
        assert!(subject.run(sent[index], end).await.is_final());
        assert_eq!(subject.job_now(sent[index]).await.turn, None);
    }
    // One that is cancelled while it is next, or further behind.
    subject.steer_done(sent[4], Steer::Cancel).await;
    subject.steer_done(sent[3], Steer::Cancel).await;
    assert_eq!(subject.run_all("a").await, [sent[5]]);
}

/// H5: while a job of an object is retried, the next of that object does not start; those of others do.
pub async fn a_lane_waits_while_its_first_is_retried(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let sent = subject.send(vec![about("a", "o"), about("a", "o"), about("a", "p")]).await;
    for round in 1..=3 {
        let taken = subject.take_this("a", sent[0]).await;
        assert_eq!(subject.end(&taken, retry_at(subject.in_secs(60))).await, Retrying);
        assert_eq!(subject.states(&sent[..2]).await, [Retrying, Parked], "round {round}");
        subject.reopen().await;
        if round == 1 {
            assert_eq!(subject.run_all("a").await, [sent[2]]);
        }
        assert_eq!(subject.take_jobs(&["a"], 10).await, []);
        // Others may come meanwhile: they wait behind.
        subject.send_one(about("a", "o")).await;
        assert_eq!(subject.take_jobs(&["a"], 10).await, []);
        subject.clock.advance_millis(60_000);
        assert_eq!(subject.wake().await.count, 1);
        assert_eq!(subject.states(&sent[..2]).await, [Available, Parked]);
    }
    assert_eq!(subject.run_all("a").await[..2], sent[..2]);
}

/// As one that is retried: it keeps its place. So does one that was given back.
pub async fn a_snoozed_job_keeps_its_place(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent = subject.send(vec![about("a", "o"), about("a", "o")]).await;
    let taken = subject.take_this("a", sent[0]).await;
    assert_eq!(subject.end(&taken, JobEnd::GivenBack).await, Available);
    assert_eq!(subject.states(&sent).await, [Available, Parked]);
    let taken = subject.take_this("a", sent[0]).await;
    assert_eq!(subject.end(&taken, JobEnd::Snoozed { at: subject.in_secs(5) }).await, Scheduled);
    assert_eq!(subject.take_jobs(&["a"], 10).await, []);
    subject.clock.advance_millis(5_000);
    subject.wake().await;
    assert_eq!(subject.run_all("a").await, sent);
}

/// A priority orders lanes, not what is inside one.
pub async fn a_priority_does_not_change_the_order_of_a_lane(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let with = |object: &str, priority| NewJob { priority, ..about("a", object) };
    let sent = subject.send(vec![with("o", 0), with("o", u64::MAX), with("p", 5), with("p", 1), with("o", 7)]).await;
    assert_eq!(subject.run_all("a").await, [sent[2], sent[3], sent[0], sent[1], sent[4]]);
}

/// By default nothing of the object runs until somebody decides.
pub async fn a_dead_job_holds_its_lane(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let first = subject.a_dead_one(about("a", "o"), OnExhausted::Hold).await;
    let rest = subject.send(vec![about("a", "o"), about("a", "o"), about("a", "p"), about("b", "o")]).await;
    assert_eq!(subject.states(&rest).await, [Parked, Parked, Available, Available]);
    subject.reopen().await;
    assert_eq!(subject.run_all("a").await, [rest[2]]);
    assert_eq!(subject.run_all("b").await, [rest[3]]);
    let there = subject.job_now(first).await;
    assert_eq!((there.state, there.turn), (Dead, Some(first.number())));
    assert_eq!(there.finished_at, Some(subject.clock.now()));
    // It does not hold those that are in no lane.
    assert_eq!(subject.try_send(apart("a", "o")).await.state, Available);
}

/// `skip`: the dead one is left behind.
pub async fn a_dead_job_that_is_to_be_skipped_holds_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let new = NewJob { on_exhausted: OnExhausted::Skip, ..about("a", "o") };
    let sent = subject.send(vec![new, about("a", "o")]).await;
    assert_eq!(subject.run(sent[0], dies()).await, Dead);
    assert_eq!(subject.job_now(sent[0]).await.turn, None);
    assert_eq!(subject.run_all("a").await, [sent[1]]);
}

/// `dead_letter_object`: all that wait in its lane at that moment die with it. What has no place in the lane yet does
/// not, nor other lanes, nor what comes later.
pub async fn a_death_may_be_that_of_all_that_wait_in_its_lane(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let new = NewJob { on_exhausted: OnExhausted::DeadLetterObject, ..about("a", "o") };
    let delayed = NewJob { not_before: Some(subject.in_secs(60)), ..about("a", "o") };
    let snoozed = subject.send_one(new.clone()).await;
    let sent = subject.send(vec![new, about("a", "o"), delayed, about("a", "O"), about("b", "o"), apart("a", "o")]);
    let sent = sent.await;
    // One waits for its time with its place kept, behind another that was brought back before it.
    subject.run(snoozed, dies()).await;
    assert_eq!(subject.states(&sent).await, [Dead, Dead, Scheduled, Available, Available, Available]);
    let errors = subject.job_now(sent[1]).await.errors;
    assert_eq!(errors.len(), 1);
    assert!(errors[0].error.starts_with("a job before it of its object died"), "{errors:?}");
    for id in [snoozed, sent[0], sent[1]] {
        let there = subject.job_now(id).await;
        assert_eq!((there.state, there.turn), (Dead, None));
        assert_eq!(there.finished_at, Some(subject.clock.now()));
    }
    subject.reopen().await;
    let later = subject.send_one(about("a", "o")).await;
    subject.clock.advance_millis(60_000);
    subject.wake().await;
    assert_eq!(subject.run_all("a").await, [sent[3], sent[5], later, sent[2]]);
    // What waits for a time with its place kept dies too.
    let second = NewJob { on_exhausted: OnExhausted::DeadLetterObject, ..about("a", "o") };
    let pair = subject.send(vec![second.clone(), second]).await;
    subject.run(pair[0], dies()).await;
    let next = subject.steer_done(pair[1], Steer::Retry).await;
    subject.run(next.id, retry_at(subject.in_secs(60))).await;
    subject.steer_done(pair[0], Steer::Retry).await;
    subject.run(pair[0], dies()).await;
    assert_eq!(subject.states(&pair).await, [Dead, Dead]);
    // What the dying one sends in the same breath comes later.
    let dying = subject.send_one(NewJob { on_exhausted: OnExhausted::DeadLetterObject, ..about("a", "o") }).await;
    let taken = subject.take_this("a", dying).await;
    let change = JobChange { jobs: vec![about("a", "o")], ..JobChange::new(held(&taken), dies()) };
    subject.settle_job(change).await;
    let last = subject.all_jobs().await.pop().expect("jobs");
    assert_eq!(last.state, Available);
}

/// A redriven job begins anew, is marked, and goes before all that waited, also before one that was next already.
pub async fn a_job_that_is_brought_back_runs_next_in_its_lane(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    for on_exhausted in [OnExhausted::Hold, OnExhausted::Skip] {
        let first = subject.a_dead_one(NewJob { attempts_max: 1, ..about("a", "o") }, on_exhausted).await;
        let rest = subject.send(vec![about("a", "o"), about("a", "o")]).await;
        let before = subject.job_now(first).await;
        let back = subject.steer_done(first, Steer::Retry).await;
        let expected = Job {
            state: Available,
            attempts: 0,
            redriven: true,
            finished_at: None,
            turn: Some(first.number()),
            ..before
        };
        assert_eq!(back, expected);
        subject.reopen().await;
        assert_eq!(subject.states(&rest).await, [Parked, Parked]);
        let taken = subject.take_this("a", first).await;
        assert_eq!((taken.attempts, taken.redriven, taken.errors.len()), (1, true, 1));
        assert_eq!(taken.fence, 2, "a fence is never given twice");
        subject.end(&taken, JobEnd::Succeeded).await;
        assert!(subject.job_now(first).await.redriven);
        assert_eq!(subject.run_all("a").await, rest);
    }
    // Also one that had drawn its place late.
    let delayed = NewJob { not_before: Some(subject.in_secs(5)), on_exhausted: OnExhausted::Skip, ..about("a", "p") };
    let late = subject.send_one(delayed).await;
    let sent = subject.send(vec![about("a", "p"), about("a", "p")]).await;
    subject.clock.advance_millis(5_000);
    subject.wake().await;
    subject.run(sent[0], JobEnd::Succeeded).await;
    subject.run(sent[1], JobEnd::Succeeded).await;
    subject.run(late, dies()).await;
    let rest = subject.send(vec![about("a", "p")]).await;
    subject.steer_done(late, Steer::Retry).await;
    assert_eq!(subject.run_all("a").await, [late, rest[0]]);
}

/// While one runs none other does: also not one that is brought back before it.
pub async fn a_job_that_is_brought_back_waits_for_who_is_at_work(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let first = subject.a_dead_one(about("a", "o"), OnExhausted::Skip).await;
    let second = subject.send_one(about("a", "o")).await;
    let taken = subject.take_this("a", second).await;
    assert_eq!(subject.steer_done(first, Steer::Retry).await.state, Parked);
    assert_eq!(subject.take_jobs(&["a"], 10).await, []);
    assert_eq!(subject.end(&taken, retry_at(subject.in_secs(5))).await, Retrying);
    assert_eq!(subject.states(&[first, second]).await, [Available, Retrying]);
    // The one that is retried comes due behind it.
    let again = subject.take_this("a", first).await;
    subject.clock.advance_millis(5_000);
    assert_eq!(subject.wake().await.count, 1);
    assert_eq!(subject.states(&[first, second]).await, [Running, Parked]);
    assert_eq!(subject.end(&again, JobEnd::GivenBack).await, Available);
    assert_eq!(subject.run_all("a").await, [first, second]);
    // One that is given back, while another was brought back before it, is not next.
    let dead = subject.a_dead_one(about("a", "p"), OnExhausted::Skip).await;
    let next = subject.send_one(about("a", "p")).await;
    let taken = subject.take_this("a", next).await;
    subject.steer_done(dead, Steer::Retry).await;
    assert_eq!(subject.end(&taken, JobEnd::GivenBack).await, Parked);
    assert_eq!(subject.run_all("a").await, [dead, next]);
}

/// Two that are brought back run in the order in which they were sent, whichever came back first.
pub async fn jobs_that_are_brought_back_run_in_their_old_order(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let mut dead: Vec<JobId> = Vec::new();
    for _ in 0..3 {
        dead.push(subject.a_dead_one(about("a", "o"), OnExhausted::Skip).await);
    }
    let next = subject.send_one(about("a", "o")).await;
    let back = subject.store.steer(&[dead[2], dead[0], dead[1]], Steer::Retry).await.expect("steered");
    assert!(back.iter().all(|one| done(one).redriven));
    assert_eq!(subject.states(&dead).await, [Available, Parked, Parked]);
    assert_eq!(subject.run_all("a").await, [dead[0], dead[1], dead[2], next]);
}

/// `ordered: false`: an object without an order.
pub async fn jobs_of_an_object_without_an_order_are_independent(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent = subject.send(vec![apart("a", "o"), about("a", "o"), apart("a", "o"), about("a", "o")]).await;
    assert_eq!(subject.states(&sent).await, [Available, Available, Available, Parked]);
    let taken = subject.take_jobs(&["a"], 10).await;
    assert_eq!(ids(&taken), sent[..3]);
    assert_eq!(subject.end(&taken[0], dies()).await, Dead);
    assert_eq!(subject.job_now(sent[0]).await.turn, None, "there is no lane to hold");
    subject.end(&taken[2], retry_at(subject.in_secs(1))).await;
    assert_eq!(subject.take_jobs(&["a"], 10).await, []);
    subject.end(&taken[1], JobEnd::Succeeded).await;
    assert_eq!(subject.run_all("a").await, [sent[3]]);
    assert_eq!(subject.store.predecessor(sent[2]).await, Ok(None));
}

/// A delay gives up the order of its object until it is over: the job joins its lane at the end, as if it were sent then.
pub async fn a_delayed_job_joins_its_lane_when_it_is_due(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let delayed = |seconds| NewJob { not_before: Some(subject.in_secs(seconds)), ..about("a", "o") };
    let late = subject.send(vec![delayed(60), delayed(30)]).await;
    let sent = subject.send(vec![about("a", "o"), about("a", "o"), job("a")]).await;
    assert_eq!(subject.states(&sent).await, [Available, Parked, Available]);
    subject.run(sent[0], JobEnd::Succeeded).await;
    subject.reopen().await;
    subject.clock.advance_millis(60_000);
    assert_eq!(subject.wake().await.count, 2);
    assert_eq!(subject.states(&late).await, [Parked, Parked]);
    let turns = [subject.job_now(late[0]).await.turn, subject.job_now(late[1]).await.turn];
    assert!(turns[0] > turns[1] && turns[1] > Some(sent[2].number()), "{turns:?}");
    let after = subject.send_one(about("a", "o")).await;
    assert!(Some(after.number()) > turns[0]);
    assert_eq!(subject.run_all("a").await, [sent[1], sent[2], late[1], late[0], after]);
    // Without an object too: first come is first due.
    let late = subject.send_one(NewJob { not_before: Some(subject.in_secs(1)), ..job("a") }).await;
    let early = subject.send_one(job("a")).await;
    subject.clock.advance_millis(1_000);
    subject.wake().await;
    assert_eq!(subject.run_all("a").await, [early, late]);
}

/// The one that runs, or the first of the lane; nobody for who is next, runs, is over or has no place.
pub async fn the_predecessor_is_who_goes_before(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let delayed = NewJob { not_before: Some(subject.in_secs(60)), ..about("a", "o") };
    let sent =
        subject.send(vec![about("a", "o"), about("a", "o"), about("a", "o"), delayed, about("a", "p"), job("a")]);
    let sent = sent.await;
    let before = async |id| subject.store.predecessor(id).await.expect("a look").map(|job| (job.id, job.state));
    let all = async || {
        let mut found = Vec::new();
        for id in &sent {
            found.push(before(*id).await);
        }
        found
    };
    let first = |state| Some((sent[0], state));
    assert_eq!(all().await, [None, first(Available), first(Available), None, None, None]);
    let taken = subject.take_this("a", sent[0]).await;
    assert_eq!(all().await, [None, first(Running), first(Running), None, None, None]);
    subject.end(&taken, retry_at(subject.in_secs(5))).await;
    assert_eq!(all().await, [None, first(Retrying), first(Retrying), None, None, None]);
    subject.steer_done(sent[0], Steer::Retry).await;
    subject.run(sent[0], dies()).await;
    assert_eq!(all().await, [None, first(Dead), first(Dead), None, None, None]);
    subject.steer_done(sent[0], Steer::Skip).await;
    assert_eq!(all().await, [None, None, Some((sent[1], Available)), None, None, None]);
    let second = subject.take_this("a", sent[1]).await;
    subject.steer_done(sent[0], Steer::Retry).await;
    // The one that runs goes before the one that was brought back.
    let second_runs = Some((sent[1], Running));
    assert_eq!(all().await, [second_runs, None, second_runs, None, None, None]);
    subject.end(&second, JobEnd::Succeeded).await;
    assert_eq!(all().await, [None, None, first(Available), None, None, None]);
}

/// In a lane of many, at every moment at most one may run or runs.
pub async fn a_long_lane_lets_one_go_at_a_time(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent = subject.send(vec![about("a", "o"); 30]).await;
    for id in &sent {
        let states = subject.states(&sent).await;
        assert_eq!(states.iter().filter(|state| matches!(state, Available | Running)).count(), 1);
        let taken = subject.take_jobs(&["a"], 10).await;
        assert_eq!(ids(&taken), [*id]);
        subject.end(&taken[0], JobEnd::Succeeded).await;
    }
}
