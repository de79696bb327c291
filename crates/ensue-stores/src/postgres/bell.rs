//! Who wakes a process that waits?
//!
//! A connection of its own that listens. Whoever changes something that others wait for rings in the same transaction, by `NOTIFY`, but only while
//! somebody sleeps, because it locks the whole database for the length of the commit (H22).
//!
//! Whether somebody sleeps is told by a lock. Who publishes takes it shared, until the commit, and rings if it does not get it. One process has it alone
//! while it sleeps: so it does not fall asleep beside a publisher who counted on its being awake. Where rings come fast it gives the lock back
//! and looks by itself, every few milliseconds, and tells the others what it finds, until nothing comes any more.
//!
//! How many listen is told by another lock, which each of them has: a process that is the only one does not ring for itself, nor stay awake for what
//! it has appended itself.
//!
//! Locks and channels of a session are void behind a pooler that gives a connection to another client after each transaction (H30): there nothing is heard,
//! and a look a second finds everything. Such a pooler is found out when the store is opened (`pooling`); and nothing counts on a connection
//! before a ring from another one has arrived over it.

use super::connection::{Connection, within};
use super::error::Failure;
use super::schema::Schema;
use super::server::{Params, Server};
use async_trait::async_trait;
use ensue_core::store::Wake;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::time::Instant;

/// How long the first ring may take to arrive.
const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// How soon a connection that cannot be made, or hears nothing, is tried again.
const CONNECT_EVERY: Duration = Duration::from_secs(30);
/// Rings that are nearer to each other than this come fast.
const FAST: Duration = Duration::from_millis(20);
/// How often is looked while rings come fast, and for how long after the last thing that was found.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const AWAKE_FOR: Duration = Duration::from_millis(50);
/// How often at least while nothing is found, but a publisher whose transaction is open keeps it from falling asleep.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(50);
/// How often a pulse tells of the bells, at most.
const HEAR_EVERY: Duration = Duration::from_millis(900);
/// How often the others are told at most.
const TELL_EVERY: Duration = Duration::from_millis(5);

/// The bell of one process.
pub(super) struct Bell {
    server: Arc<Server>,
    channel: String,
    lock_asleep: i64,
    lock_listening: i64,
    /// What our own rings carry, so that they are known when they come back.
    own: String,
    /// Somebody here wants the others to know.
    tell: Notify,
    heard: Heard,
    /// A look has found something that its caller does not know of: jobs.
    found: AtomicBool,
    /// Something was written by others, or by this process in another way than by appending.
    elsewhere: AtomicBool,
    /// How often an append of this process has begun or ended: odd while one is under way.
    appends: AtomicU64,
    listening: Mutex<Listening>,
    begun: Instant,
}

/// What the last pulse has told of the bells of all processes.
struct Heard {
    /// Do others listen, or do we not?
    others_listen: AtomicBool,
    nobody_sleeps: AtomicBool,
    /// When that was asked last, in milliseconds since the beginning.
    at: AtomicU64,
}

/// What is known between two waits.
#[derive(Default)]
struct Listening {
    session: Option<Session>,
    tried_at: Option<Instant>,
}

/// A connection that hears.
struct Session {
    client: Connection,
    rings: mpsc::UnboundedReceiver<String>,
    sleep: Sleep,
    /// How long it naps between two looks while it is awake.
    nap: Duration,
    rung_at: Option<Instant>,
    told_at: Option<Instant>,
    /// Was nobody asleep before the last look? Then nobody has rung for what it found, and the others are to be told.
    unrung: bool,
}

/// Who has the lock of those who sleep?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    /// We do: publishers ring.
    Ours,
    /// Somebody else: their publishers ring, and we hear it, too.
    Others,
    /// Nobody: publishers count on our looking, until then.
    Awake(Instant),
}

impl Bell {
    pub fn new(server: Arc<Server>, schema: &Schema) -> Self {
        let (lock_asleep, lock_listening) = (schema.lock_key("asleep"), schema.lock_key("listening"));
        let own = format!("{:032x}", rand::random::<u128>());
        let heard = Heard {
            others_listen: AtomicBool::new(true),
            nobody_sleeps: AtomicBool::new(false),
            at: AtomicU64::new(0),
        };
        let (channel, tell, listening) = (schema.bell(), Notify::new(), Mutex::default());
        let (found, elsewhere) = (AtomicBool::new(false), AtomicBool::new(true));
        let (appends, begun) = (AtomicU64::new(0), Instant::now());
        Self {
            server,
            channel,
            lock_asleep,
            lock_listening,
            own,
            tell,
            heard,
            found,
            elsewhere,
            appends,
            listening,
            begun,
        }
    }

    /// Is the next pulse to tell of the bells? It costs a look at all locks, and is not asked for with every one.
    pub fn is_to_hear(&self) -> bool {
        let now = self.begun.elapsed().as_millis() as u64;
        let due = self.heard.at.load(Ordering::Relaxed) + HEAR_EVERY.as_millis() as u64 <= now;
        if due {
            self.heard.at.store(now, Ordering::Relaxed);
        }
        due
    }

    /// Takes note of what a pulse has told: how many listen, and whether one of them sleeps.
    pub fn hear(&self, listeners: i64, somebody_sleeps: bool) {
        // Who is asked while another statement of ours listens is the only one; a process that does not listen itself rings for who does.
        let listens = !self.server.way.is_pooled()
            && self.listening.try_lock().map_or(true, |listening| listening.session.is_some());
        self.heard.others_listen.store(!listens || listeners > 1, Ordering::Relaxed);
        self.heard.nobody_sleeps.store(!somebody_sleeps, Ordering::Relaxed);
    }

    /// A look has found jobs.
    pub fn found(&self) {
        self.found.store(true, Ordering::Relaxed);
    }

    /// An append of this process begins, or ends.
    pub fn append_begins_or_ends(&self) {
        self.appends.fetch_add(1, Ordering::SeqCst);
    }

    pub fn appends_so_far(&self) -> u64 {
        self.appends.load(Ordering::SeqCst)
    }

    /// Something was written that this process has not appended.
    pub fn others_wrote(&self) {
        self.elsewhere.store(true, Ordering::Relaxed);
    }

    /// A look has found that the log has grown, which began after so many appends. By others, unless this process appended meanwhile: then that append finds out.
    pub fn grew_since(&self, appends: u64) {
        if appends.is_multiple_of(2) && self.appends_so_far() == appends {
            self.others_wrote();
        }
    }

    /// Is what this process writes to be rung for?
    pub fn has_others(&self) -> bool {
        self.heard.others_listen.load(Ordering::Relaxed)
    }

    /// Waits for a ring, or until it is time to look anyway.
    async fn wait_on(&self, session: &mut Session, found: bool, limit: Duration) -> Result<(), Failure> {
        // What a process finds that is the only one to listen, and has written it itself, is nobody's to be told, and no reason to stay awake.
        let is_of_others = self.elsewhere.swap(false, Ordering::Relaxed) || self.has_others();
        let found = self.found.swap(false, Ordering::Relaxed) || (found && is_of_others);
        if found {
            session.nap = LOOK_EVERY;
        }
        if std::mem::take(&mut session.unrung) && found && self.has_others() {
            self.tell_others(session).await?;
        }
        if let Sleep::Awake(until) = &mut session.sleep {
            let now = Instant::now();
            if found {
                *until = now + AWAKE_FOR;
            }
            if now < *until {
                if tokio::time::timeout(session.nap, self.tell.notified()).await.is_ok() {
                    self.tell_others(session).await?;
                }
                while session.rings.try_recv().is_ok() {}
                session.unrung = true;
                return Ok(());
            }
        }
        let is_vacant = session.sleep == Sleep::Others && self.heard.nobody_sleeps.swap(false, Ordering::Relaxed);
        if is_vacant || matches!(session.sleep, Sleep::Awake(_)) {
            session.sleep = self.fall_asleep(&session.client, session.nap).await?;
            session.nap = match session.sleep {
                Sleep::Awake(_) => (session.nap * 2).min(LOOK_AT_LEAST_EVERY),
                Sleep::Ours | Sleep::Others => LOOK_EVERY,
            };
            // Those who published just before saw nobody asleep: one more look.
            session.unrung = true;
            return Ok(());
        }
        let deadline = Instant::now() + limit;
        loop {
            tokio::select! {
                ring = session.rings.recv() => match ring {
                    Some(ring) if ring == self.own => {}
                    Some(_) => break,
                    None => return Err(Failure::Silence(Duration::ZERO)),
                },
                () = self.tell.notified() => self.tell_others(session).await?,
                () = tokio::time::sleep_until(deadline) => return Ok(()),
            }
        }
        while session.rings.try_recv().is_ok() {}
        let is_fast = session.rung_at.is_some_and(|at| at.elapsed() < FAST);
        session.rung_at = Some(Instant::now());
        if is_fast && session.sleep == Sleep::Ours {
            self.ask(&session.client, "SELECT pg_advisory_unlock($1)", &[&self.lock_asleep]).await?;
            session.sleep = Sleep::Awake(Instant::now() + AWAKE_FOR);
            session.unrung = true;
        }
        Ok(())
    }

    /// A statement of which nothing but its end is wanted.
    async fn ask(&self, client: &Connection, sql: &str, params: Params<'_>) -> Result<(), Failure> {
        within(self.server.statement_time_max, client.execute(sql, params)).await.map(|_| ())
    }

    /// Takes the lock of those who sleep, or finds out who has it.
    async fn fall_asleep(&self, client: &Connection, nap: Duration) -> Result<Sleep, Failure> {
        let sql = "SELECT pg_try_advisory_lock($1), EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' \
                   AND l.mode = 'ExclusiveLock' AND l.granted AND l.objsubid = 1 \
                   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) \
                   AND (l.classid::bigint << 32) | l.objid::bigint = $1)";
        let row = within(self.server.statement_time_max, client.query_one(sql, &[&self.lock_asleep])).await?;
        Ok(match (row.get(0), row.get(1)) {
            (true, _) => Sleep::Ours,
            (false, true) => Sleep::Others,
            // Publishers have it, each for its own: they do not ring.
            (false, false) => Sleep::Awake(Instant::now() + nap),
        })
    }

    /// Rings for the other processes, not too often.
    async fn tell_others(&self, session: &mut Session) -> Result<(), Failure> {
        if let Some(at) = session.told_at {
            tokio::time::sleep_until(at + TELL_EVERY).await;
        }
        session.told_at = Some(Instant::now());
        self.ask(&session.client, "SELECT pg_notify($1, $2)", &[&self.channel, &self.own]).await
    }

    /// A connection that hears, or none if nothing arrives over it.
    async fn listen(&self) -> Result<Option<Session>, Failure> {
        let (client, mut rings) = self.server.connect_listening(self.server.unavailable_after).await?;
        let listen = format!("LISTEN {}", self.channel);
        within(self.server.statement_time_max, client.batch_execute(&listen)).await?;
        let first = format!("{:032x}", rand::random::<u128>());
        let Ok(other) = self.server.reader().await else { return Ok(None) };
        other.query("SELECT pg_notify($1, $2)", &[&self.channel, &first]).await?;
        let heard = async {
            while let Some(ring) = rings.recv().await {
                if ring == first {
                    return true;
                }
            }
            false
        };
        if !tokio::time::timeout(HEARD_WITHIN, heard).await.unwrap_or(false) {
            return Ok(None);
        }
        // Not before it is known that this is a session of ours alone.
        let lock = "SELECT pg_try_advisory_lock_shared($1)";
        let locked = within(self.server.statement_time_max, client.query_one(lock, &[&self.lock_listening])).await?;
        if !locked.get::<_, bool>(0) {
            return Ok(None);
        }
        let sleep = Sleep::Awake(Instant::now());
        Ok(Some(Session { client, rings, sleep, nap: LOOK_EVERY, rung_at: None, told_at: None, unrung: true }))
    }
}

#[async_trait]
impl Wake for Bell {
    fn ring(&self) {
        if self.has_others() {
            self.tell.notify_one();
        }
    }

    async fn wait(&self, found: bool, limit: Duration) {
        if self.server.way.is_pooled() {
            return tokio::time::sleep(limit).await;
        }
        let mut listening = self.listening.lock().await;
        let Listening { session, tried_at } = &mut *listening;
        if session.is_none() && tried_at.is_none_or(|at| at.elapsed() >= CONNECT_EVERY) {
            *tried_at = Some(Instant::now());
            match self.listen().await {
                Ok(Some(made)) => *session = Some(made),
                Ok(None) => tracing::info!(
                    "no wake-up arrives from Postgres, perhaps because of a pooler in between: looking once a second"
                ),
                Err(failure) => tracing::debug!(%failure, "no connection to listen on"),
            }
            // What happened before it listened is found by a look.
            return;
        }
        match session {
            Some(alive) => {
                if let Err(failure) = self.wait_on(alive, found, limit).await {
                    tracing::debug!(%failure, "the connection that listens is lost");
                    *session = None;
                    *tried_at = None;
                }
            }
            None => tokio::time::sleep(limit).await,
        }
    }
}
