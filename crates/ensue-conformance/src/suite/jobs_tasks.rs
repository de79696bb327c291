//! Which tasks were made when, and how far are jobs?

use super::Subject;
use super::jobs::{dies, held, ids, job, json};
use crate::factory::Factory;
use ensue_core::StoreError;
use ensue_core::Timestamp;
use ensue_core::jobs::{Held, Job, JobEnd, JobId, JobState, NewJob, Progress};
use ensue_core::store::PAGE_BYTES_MAX;
use ensue_core::tasks::{Collection, TaskQuery};
use jiff::SignedDuration;

fn query(source: &str) -> TaskQuery {
    let (from, to) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
    TaskQuery { source: source.into(), collection: None, states: vec![], from, to, after: None }
}

fn so_far(done: u64, at: Timestamp) -> Progress {
    Progress { done, total: Some(100), unit: Some("rows".into()), at }
}

/// All of them, page by page.
async fn tasks_of(subject: &Subject, mut query: TaskQuery, limit: usize) -> Vec<Job> {
    let mut all: Vec<Job> = Vec::new();
    loop {
        let page = subject.store.tasks(query.clone(), limit).await.expect("a page of tasks");
        assert!(page.len() <= limit, "{} on a page of {limit}", page.len());
        let Some(last) = page.last() else { return all };
        query.after = Some((last.enqueued_at, last.id.number()));
        all.extend(page);
    }
}

/// By the time at which they were made, of a source or one collection of it, and no job that only looks like one.
pub async fn tasks_come_by_time_of_their_source(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let kinds = ["task.s.b", "task.s.a", "task.s2.a", "task.S.a", "tasks.s.a", "task.s", "job"];
    let mut sent: Vec<(usize, JobId, Timestamp)> = Vec::new();
    for n in 0..70 {
        // The store's clock steps back, too: order is that of the times.
        subject.clock.advance_millis(if n % 10 == 9 { -5_000 } else { 1_000 });
        let kind = n % kinds.len();
        sent.push((kind, subject.send_one(job(kinds[kind])).await, subject.clock.now()));
    }
    let expected = |wanted: &[usize], from: Timestamp, to: Timestamp| {
        let mut found: Vec<_> =
            sent.iter().filter(|(kind, _, at)| wanted.contains(kind) && (from..=to).contains(at)).collect();
        found.sort_by_key(|(_, id, at)| (*at, id.number()));
        found.iter().map(|(_, id, _)| *id).collect::<Vec<_>>()
    };
    let (first, last) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
    for limit in [1, 3, 1_000] {
        assert_eq!(ids(&tasks_of(&subject, query("s"), limit).await), expected(&[0, 1], first, last), "by {limit}");
        assert_eq!(ids(&tasks_of(&subject, query("s2"), limit).await), expected(&[2], first, last));
        let one = TaskQuery { collection: Some("b".into()), ..query("s") };
        assert_eq!(ids(&tasks_of(&subject, one, limit).await), expected(&[0], first, last));
        // Both ends are meant.
        let (from, to) = (sent[14].2, sent[35].2);
        let some = TaskQuery { from, to, ..query("s") };
        assert_eq!(ids(&tasks_of(&subject, some, limit).await), expected(&[0, 1], from, to));
    }
    assert_eq!(subject.store.tasks(query("none"), 9).await, Ok(vec![]));
    let one = TaskQuery { collection: Some("none".into()), ..query("s") };
    assert_eq!(subject.store.tasks(one, 9).await, Ok(vec![]));
}

/// Those that are over are among them, and states can be asked for.
pub async fn tasks_are_found_by_their_states(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let key = Collection::new("s", "c").expect("names").unique_key();
    let task = || NewJob { unique_key: Some(key.clone()), ..job("task.s.c") };
    let done = subject.send_one(task()).await;
    assert!(!subject.try_send(task()).await.is_new, "one at a time");
    subject.run(done, JobEnd::Succeeded).await;
    let failed = subject.send_one(task()).await;
    subject.run(failed, dies()).await;
    let waits = subject.send_one(task()).await;
    let of = async |states: &[JobState]| {
        ids(&subject.store.tasks(TaskQuery { states: states.to_vec(), ..query("s") }, 9).await.expect("tasks"))
    };
    assert_eq!(of(&[]).await, [done, failed, waits]);
    assert_eq!(of(&[JobState::Dead]).await, [failed]);
    assert_eq!(of(&[JobState::Available, JobState::Succeeded]).await, [done, waits]);
    assert_eq!(of(&[JobState::Running]).await, []);
}

/// A page has so many bytes of payload and no more, but always one task.
pub async fn a_page_of_tasks_is_bounded_in_bytes(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let large = format!("\"{}\"", "x".repeat(900_000));
    let count = PAGE_BYTES_MAX / 900_000 + 2;
    let task = NewJob { payload: json(&large), ..job("task.s.c") };
    let mut sent = Vec::new();
    for _ in 0..count {
        sent.push(subject.send_one(task.clone()).await);
    }
    let page = subject.store.tasks(query("s"), 1_000).await.expect("a page of tasks");
    assert!((1..count).contains(&page.len()), "{}", page.len());
    assert_eq!(ids(&tasks_of(&subject, query("s"), 1_000).await), sent);
}

/// The newest stays, also when the job is over; who has lost the job says nothing.
pub async fn progress_is_kept_under_the_fence(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let at = subject.clock.now();
    let sent = subject.send(vec![job("a"), job("a")]).await;
    let one = Held { id: sent[0], fence: 1 };
    assert_eq!(subject.store.report(one, so_far(1, at)).await, Ok(false), "nobody runs it");
    let taken = subject.take_this("a", sent[0]).await;
    assert_eq!(subject.store.progress(&sent).await, Ok(vec![None, None]));
    assert_eq!(subject.store.report(held(&taken), so_far(1, at)).await, Ok(true));
    let bare = Progress { done: i64::MAX as u64, total: None, unit: None, at };
    for said in [bare, so_far(40, at)] {
        assert_eq!(subject.store.report(held(&taken), said.clone()).await, Ok(true));
        assert_eq!(subject.store.progress(&sent).await, Ok(vec![Some(said), None]));
    }
    let before = so_far(1, at - SignedDuration::from_secs(1));
    assert_eq!(subject.store.report(held(&taken), before).await, Ok(true));
    assert_eq!(subject.store.progress(&sent).await, Ok(vec![Some(so_far(40, at)), None]), "what was said later stays");
    let stale = Held { fence: taken.fence + 1, ..held(&taken) };
    assert_eq!(subject.store.report(stale, so_far(99, at)).await, Ok(false));
    let too_much = Progress { done: u64::MAX, ..so_far(1, at) };
    assert!(matches!(subject.store.report(held(&taken), too_much).await, Err(StoreError::Invalid(_))));
    subject.end(&taken, JobEnd::Succeeded).await;
    assert_eq!(subject.store.report(held(&taken), so_far(99, at)).await, Ok(false), "it is over");
    subject.reopen().await;
    assert_eq!(subject.store.progress(&[sent[1], sent[0]]).await, Ok(vec![None, Some(so_far(40, at))]));
    // It goes with its job.
    assert_eq!(subject.store.purge_jobs(Timestamp::MAX, 0, 9).await, Ok(1));
    assert_eq!(subject.store.progress(&sent).await, Ok(vec![None, None]));
}
