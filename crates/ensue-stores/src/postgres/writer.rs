//! Who writes the log?
//!
//! One task with one connection, which it carries itself while it waits (`carrier`). Callers put their batches in its queue; while a commit is under way more gather, and
//! the next commit takes them all: the more callers, the larger the commits, without anybody waiting for a timer.

use super::asking::Ready;
use super::batch::{Call, Columns, Outcome};
use super::bell::Bell;
use super::carrier::Carrier;
use super::connection::within;
use super::doubt::{Doubt, Tracing};
use super::error::{Failure, Trouble};
use super::following::Following;
use super::heads::Heads;
use super::moving::{Moving, TRIES_MAX, count_appended, logged};
use super::patience::Patience;
use super::schema::LOG_LOCK_TIME_MAX;
use super::silence::within_or_silent;
use super::types::Micros;
use ensue_core::{Seq, StoreError, Timestamp};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// How many calls may wait in the queue before callers wait to enter it.
pub(super) const QUEUE_MAX: usize = 4_096;
/// How much is gathered into one commit, unless a single caller sends more.
const GATHERED_EVENTS_MAX: usize = 1_000;
const GATHERED_BYTES_MAX: usize = 4 << 20;
/// From how many events on it pays to remember them in a task of its own.
const REMEMBERED_ASIDE_MIN: u64 = 200;
/// How soon after a failure to connect another is taken for certain, and how long a call that has waited for long
/// enough still tries when it is not.
const CONNECT_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long a batch of which it is not known whether it is stored is looked for at least, however long it was waited for.
const LOOKED_FOR_MIN: Duration = Duration::from_secs(3);
/// The slowest way to the server that is not taken for a hanging one: a large batch has more time, a second a MiB.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;

/// The connection that writes, and what is known of the log on it.
struct Session {
    client: Client,
    carrier: Carrier,
    append: Ready,
    tracing: Tracing,
}

/// The task's state.
pub(super) struct Writer {
    moving: Arc<Moving>,
    following: Arc<Following>,
    bell: Arc<Bell>,
    session: Option<Session>,
    /// When the server could not be reached, the last time that was tried.
    unreachable_at: Option<Instant>,
    /// The end of the log after our last commit, or when we connected: whatever we send comes after it.
    tail: Seq,
    tail_at: Timestamp,
    heads: Heads,
    /// Has `heads` and adds what was appended last.
    remembering: Option<JoinHandle<Heads>>,
}

impl Writer {
    pub fn new(moving: Arc<Moving>, following: Arc<Following>, bell: Arc<Bell>) -> Self {
        Self {
            moving,
            following,
            bell,
            session: None,
            unreachable_at: None,
            tail: 0,
            tail_at: Timestamp::MIN,
            heads: Heads::default(),
            remembering: None,
        }
    }

    /// Works until nobody can send any more and the queue is empty.
    pub async fn run(mut self, mut queue: mpsc::Receiver<Call>) {
        let mut held_over = None;
        loop {
            let first = match held_over.take() {
                Some(call) => call,
                None => match self.carried(queue.recv()).await {
                    Some(call) => call,
                    None => return,
                },
            };
            let gathered = gather(first, &mut queue);
            held_over = gathered.next;
            if !gathered.calls.is_empty() {
                self.bell.append_begins_or_ends();
                self.append(gathered.calls).await;
                self.bell.append_begins_or_ends();
            }
        }
    }

    /// Waits, and carries what the connection has to say: that it has ended, above all.
    async fn carried<T>(&mut self, waited_for: impl Future<Output = T>) -> T {
        match &mut self.session {
            Some(session) => session.carrier.until(waited_for).await,
            None => waited_for.await,
        }
    }

    /// Stores the calls in one commit and answers them. If the server refuses the commit, each call is tried alone, so
    /// that one caller's fault does not become the others' (H37).
    async fn append(&mut self, calls: Vec<Call>) {
        let Err((calls, error)) = self.commit(calls).await else { return };
        if calls.len() == 1 || !matches!(error, StoreError::Invalid(_) | StoreError::Engine(_)) {
            calls.into_iter().for_each(|call| call.answer(Err(error.clone())));
            return;
        }
        tracing::warn!(%error, calls = calls.len(), "a gathered commit was refused; each call is tried alone");
        for call in calls {
            if let Err((alone, error)) = self.commit(vec![call]).await {
                alone.into_iter().for_each(|call| call.answer(Err(error.clone())));
            }
        }
    }

    /// Stores the calls in one commit and answers them, however often the server goes away; or hands them back.
    async fn commit(&mut self, mut calls: Vec<Call>) -> Result<(), (Vec<Call>, StoreError)> {
        let begun = Instant::now();
        // While the server is away, time counts from when a call came: those in the queue do not wait one after another.
        // Otherwise it counts from when they were sent, and they are looked for in any case.
        let mut patience = self.session.is_none().then(|| {
            let waiting_since = calls.iter().map(|call| call.queued_at).min().unwrap_or(begun);
            Patience::until(waiting_since + self.moving.server.unavailable_after)
        });
        let mut doubt: Option<Doubt> = None;
        let mut tries = 0;
        loop {
            let time_left = patience.as_ref().map_or(self.moving.server.unavailable_after, Patience::left);
            let failure = match self.try_commit(&mut calls, &mut doubt, time_left).await {
                Ok(logged) => {
                    metrics::histogram!("ensue_append_seconds", "engine" => "postgres").record(begun.elapsed());
                    count_appended(logged);
                    return Ok(());
                }
                Err(failure) => failure,
            };
            // While it is open whether the batch is stored, whatever goes wrong is one more lost connection: to call it
            // refused would have it sent again.
            let trouble = if doubt.is_some() { Trouble::Lost } else { Trouble::of(&failure) };
            let patience = patience.get_or_insert_with(|| {
                let until = begun + self.moving.server.unavailable_after;
                Patience::until(until.max(Instant::now() + LOOKED_FOR_MIN.min(self.moving.server.unavailable_after)))
            });
            let go_on = match trouble {
                Trouble::Lost => {
                    self.moving.server.lost(&failure);
                    self.session = None;
                    patience.pause().await
                }
                // It has waited for long enough.
                Trouble::Busy if failure.is_lock_timeout() => false,
                Trouble::Busy => {
                    tries += 1;
                    tries < TRIES_MAX && patience.pause().await
                }
                Trouble::NoPartition => {
                    tries += 1;
                    match self.moving.partitions.ensure().await {
                        Ok(()) => tries < TRIES_MAX,
                        Err(error) => return Err((calls, error)),
                    }
                }
                Trouble::Backlog => match self.moving.move_outbox().await {
                    Ok(()) => !patience.left().is_zero(),
                    Err(error) => return Err((calls, error)),
                },
                Trouble::Refused => false,
            };
            if !go_on {
                let error = self.moving.server.explain(&failure).await;
                return Err(match &doubt {
                    None => (calls, error),
                    Some(_) => (calls, error.in_doubt("the connection was lost while the events were sent")),
                });
            }
        }
    }

    /// One try: connects if need be, in the time that is left, finds out what became of the last try, sends what is left, answers. Says how
    /// many events entered the log. After an error `doubt` says whether they may have.
    async fn try_commit(
        &mut self,
        calls: &mut Vec<Call>,
        doubt: &mut Option<Doubt>,
        time_left: Duration,
    ) -> Result<u64, Failure> {
        if let Some(session) = &mut self.session {
            session.carrier.once().await;
        }
        if self.session.as_ref().is_none_or(|session| session.client.is_closed()) {
            self.connect(time_left).await?;
        }
        if let Some(remembering) = self.remembering.take() {
            // Whatever became of it: to remember nothing is always right.
            self.heads = remembering.await.unwrap_or_else(|_| Heads::begin_at(self.tail));
        }
        let session = self.session.as_mut().expect("connected just above");
        let mut found = 0;
        if let Some(open) = doubt {
            found = within(
                self.moving.server.statement_time_max.min(time_left.max(LOOKED_FOR_MIN)),
                session.carrier.until(open.settle(&session.client, &self.moving.server.way, &self.moving.sql, calls)),
            )
            .await?;
            *doubt = None;
        }
        if calls.is_empty() {
            return Ok(found);
        }
        let columns = Columns::of(calls, &self.heads);
        let now = self.moving.clock_time();
        let hint = self.tail as i64;
        let limit = self.moving.server.statement_time_max + sending_time(calls);
        let (trace, first) = session.tracing.next();
        // Behind a pooler nothing is pinned.
        let first = format!("SET LOCAL lock_timeout = {}; {first}", LOG_LOCK_TIME_MAX.as_millis());
        let sent = columns.send(&session.client, &session.append, now, hint, self.bell.has_others());
        let sent = self.moving.server.way.together(&session.client, &first, sent);
        let sent = session.carrier.until(sent);
        let row = match within_or_silent(&self.moving.server, trace.session(), limit, sent).await {
            Ok(row) => row,
            Err(failure) => {
                if Trouble::of(&failure) == Trouble::Lost {
                    *doubt = Some(Doubt { trace, after: self.tail, since: self.tail_at });
                }
                return Err(failure);
            }
        };
        let moved = logged(&row);
        let outcome = match Outcome::read(&row, &columns, calls) {
            Ok(outcome) => outcome,
            // It is stored: sending it again would double it.
            Err(error) => {
                let message = format!("the events are stored, but the answer to them cannot be read: {error}");
                calls.drain(..).for_each(|call| call.answer(Err(StoreError::Engine(message.clone()))));
                return Ok(found + moved);
            }
        };
        let known_tail = self.tail;
        if outcome.before != known_tail {
            self.bell.others_wrote();
        }
        self.tail = outcome.before + outcome.logged;
        self.tail_at = outcome.recorded_at;
        self.moving.last.store(self.tail, Ordering::Relaxed);
        metrics::histogram!("ensue_append_batch_events", "engine" => "postgres").record(outcome.logged as f64);
        let events = outcome.events(calls);
        self.following.tell(&events);
        let callers = calls.len();
        calls.drain(..).zip(outcome.answers).for_each(|(call, answer)| call.answer(answer));
        if outcome.before < known_tail {
            self.heads = Heads::begin_at(outcome.before);
        }
        self.heads.appended(outcome.before, self.tail);
        let mut heads = std::mem::take(&mut self.heads);
        let remember = move || {
            for event in events {
                if let Some(object) = event.object.as_ref().filter(|_| event.to.is_none()) {
                    heads.set(object, event.seq);
                }
            }
            heads
        };
        // Nobody waits for what we remember and let go: about 0.5 ms for 1,000 objects, in which the caller can make its next
        // batch on another thread. A little of it is done here. Of several callers all can come back first, so that the next commit is not for the first of
        // them alone; a single one would wait behind whatever else there is to do.
        if outcome.logged >= REMEMBERED_ASIDE_MIN {
            self.remembering = Some(tokio::spawn(async move { remember() }));
        } else {
            if callers > 1 {
                tokio::task::yield_now().await;
            }
            self.heads = remember();
        }
        self.moving.partitions.look_ahead(self.tail);
        Ok(found + outcome.logged + moved)
    }

    async fn connect(&mut self, time_left: Duration) -> Result<(), Failure> {
        self.session = None;
        let unreachable_for = self.unreachable_at.map(|at| at.elapsed());
        let limit = connecting_time(time_left, unreachable_for).min(self.moving.server.unavailable_after);
        if limit.is_zero() {
            return Err(Failure::Silence(self.moving.server.unavailable_after));
        }
        let made = within(limit, self.make_session(limit)).await;
        self.unreachable_at = made.is_err().then(Instant::now);
        made
    }

    async fn make_session(&mut self, limit: Duration) -> Result<(), Failure> {
        let (client, mut carrier) = self.moving.server.connect_carried(limit).await?;
        let asking = async {
            let way = &self.moving.server.way;
            let append = way.ready(&client, &self.moving.sql.append).await?;
            let tracing = Tracing::of(&client, way).await?;
            let tail = way.query(&client, &self.moving.sql.tail, &[&0_i64]).await?;
            let tail = tail.first().ok_or(Failure::Nothing)?;
            Ok::<_, Failure>((append, tracing, tail.try_get::<_, i64>(0)? as Seq, tail.try_get::<_, Micros>(1)?.0))
        };
        let (append, tracing, tail, tail_at) =
            within(self.moving.server.statement_time_max, carrier.until(asking)).await?;
        self.tail = tail;
        self.tail_at = tail_at;
        self.heads = Heads::begin_at(self.tail);
        self.remembering = None;
        self.moving.last.store(self.tail, Ordering::Relaxed);
        self.following.begin();
        self.session = Some(Session { client, carrier, append, tracing });
        Ok(())
    }
}

/// How long may connecting take? A call that was in the queue while the server was found to be away does not find that
/// out once more.
fn connecting_time(time_left: Duration, unreachable_for: Option<Duration>) -> Duration {
    match unreachable_for {
        Some(ago) if ago < CONNECT_AGAIN_AFTER => time_left,
        Some(_) | None => time_left.max(CONNECT_AGAIN_AFTER),
    }
}

/// How long the bytes of these calls may take on a slow way.
fn sending_time(calls: &[Call]) -> Duration {
    Duration::from_secs(calls.iter().map(|call| call.bytes as u64).sum::<u64>() / BYTES_PER_SECOND_MIN)
}

/// The calls of one commit, and the one that must wait for the next.
struct Gathered {
    calls: Vec<Call>,
    next: Option<Call>,
}

/// Takes what waits, in order. Two callers with the same key are not put together: the second needs to see the first.
/// Whose caller has left is let go: nothing of it was sent, and nobody was promised anything.
fn gather(first: Call, queue: &mut mpsc::Receiver<Call>) -> Gathered {
    let mut keys = HashSet::new();
    let (mut events, mut bytes) = (0, 0);
    let mut calls = Vec::new();
    let mut next = Some(first);
    while let Some(call) = next.take().or_else(|| queue.try_recv().ok()) {
        if call.is_left() {
            continue;
        }
        let fits = events + call.outgoing.len() <= GATHERED_EVENTS_MAX && bytes + call.bytes <= GATHERED_BYTES_MAX;
        let key_taken = call.outgoing.iter().any(|o| o.entry.key.as_ref().is_some_and(|key| keys.contains(key)));
        if !calls.is_empty() && (!fits || key_taken) {
            next = Some(call);
            break;
        }
        events += call.outgoing.len();
        bytes += call.bytes;
        keys.extend(call.outgoing.iter().filter_map(|outgoing| outgoing.entry.key.clone()));
        calls.push(call);
    }
    Gathered { calls, next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_time_left_connects_unless_that_has_just_failed() {
        let (none, moment, long) = (Duration::ZERO, Duration::from_millis(10), Duration::from_secs(5));
        assert_eq!(connecting_time(none, Some(moment)), none);
        assert_eq!(connecting_time(none, Some(long)), CONNECT_AGAIN_AFTER);
        assert_eq!(connecting_time(none, None), CONNECT_AGAIN_AFTER);
        for unreachable_for in [None, Some(moment), Some(long)] {
            assert_eq!(connecting_time(long, unreachable_for), long, "who has time left takes it");
        }
    }
}
