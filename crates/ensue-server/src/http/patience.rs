//! How long does the server wait for a client?
//!
//! What a connection is doing is kept in its [`Watch`]: the socket reports bytes, the service reports requests, and the
//! connection's task asks now and then whether the client is overdue. That costs a request a few stores and no timer.
//! A body that does not come is the handler's to refuse (`publish.rs`).
//!
//! An answer is made long before a slow client has taken it. As long as the socket does not take all of it, the only
//! question is whether the client takes some: its other times begin when nothing is left to send. So a slow client gets
//! its answer whole, and no refusal is written into the middle of it.

use super::byte_budget::{ByteBudget, Reservation};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// How long a connection may take for what.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// To send the head of a request, from its first byte on, but not before the last answer is taken; of a new
    /// connection, also to send that byte.
    pub head_max: Duration,
    /// To stay silent between two requests, from when the last answer is taken. Longer than most clients keep a
    /// connection, so that they let go first.
    pub idle_max: Duration,
    /// To take nothing of an answer, a stream included, although there is something to take.
    pub stalled_max: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            head_max: Duration::from_secs(30),
            idle_max: Duration::from_secs(300),
            stalled_max: Duration::from_secs(60),
        }
    }
}

impl Patience {
    /// How often to look: an overdue client is found at most a quarter of the shortest limit too late.
    fn interval(&self) -> Duration {
        self.head_max.min(self.idle_max).min(self.stalled_max) / 4
    }
}

/// Why a connection is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overdue {
    /// It has begun to send a request, and does not finish its head. Nothing is left to send to it.
    Head,
    /// It has sent nothing at all for too long.
    Silent,
    /// It does not take what is sent to it.
    Stalled,
    /// It has no request under way, and others need its place.
    Displaced,
    /// The heads of other requests leave no room for its head.
    HeadRefused,
}

/// What a client is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Connected, and has sent nothing.
    Fresh(Instant),
    /// Is sending the head of a request.
    Asking(Instant),
    /// Its request is handled or its answer streamed: the handler sees to the limits.
    Served,
    /// Its last answer is made.
    Idle(Instant),
}

impl Doing {
    /// The same, begun at `now`.
    fn again(self, now: Instant) -> Self {
        match self {
            Self::Fresh(_) => Self::Fresh(now),
            Self::Asking(_) => Self::Asking(now),
            Self::Served => Self::Served,
            Self::Idle(_) => Self::Idle(now),
        }
    }
}

#[derive(Debug)]
struct State {
    doing: Doing,
    /// Since when there is something to write that it does not take; none if nothing is left to send.
    stalled: Option<Instant>,
    head: Head,
}

/// The head of the current request.
#[derive(Debug)]
struct Head {
    bytes: usize,
    reservation: Reservation,
    is_refused: bool,
}

impl Head {
    fn new(budget: &ByteBudget) -> Self {
        Self { bytes: 0, reservation: budget.start(), is_refused: false }
    }
}

/// What one connection is doing, and since when.
#[derive(Debug)]
pub(super) struct Watch {
    state: Mutex<State>,
    /// Others need its place, or its head has no room.
    displace: Notify,
    heads_budget: ByteBudget,
}

impl Watch {
    pub fn new(heads_budget: &ByteBudget) -> Arc<Self> {
        let head = Head::new(heads_budget);
        let state = State { doing: Doing::Fresh(Instant::now()), stalled: None, head };
        Arc::new(Self { state: Mutex::new(state), displace: Notify::new(), heads_budget: heads_budget.clone() })
    }

    /// Since when the client has no request under way: nothing to be answered, and nothing left to take.
    pub fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        match state.doing {
            Doing::Fresh(since) | Doing::Asking(since) | Doing::Idle(since) => Some(since),
            Doing::Served => None,
        }
        .filter(|_| state.stalled.is_none())
    }

    /// A request whose head has come whole is served, whatever room its first bytes of a body would need.
    fn is_head_refused(&self) -> bool {
        let state = self.state();
        state.head.is_refused && matches!(state.doing, Doing::Asking(_))
    }

    /// Closes the connection, unless a request has come meanwhile.
    pub fn displace(&self) {
        self.displace.notify_one();
    }

    /// A request has come whole, or at least its head; it is handled until the answer is dropped.
    pub fn serve(self: &Arc<Self>) -> Serving {
        self.state().doing = Doing::Served;
        Serving(self.clone())
    }

    /// Comes back when the client is overdue.
    pub async fn overdue(&self, patience: &Patience) -> Overdue {
        loop {
            tokio::select! {
                () = tokio::time::sleep(patience.interval()) => {}
                () = self.displace.notified() => {
                    if self.is_head_refused() {
                        return Overdue::HeadRefused;
                    }
                    if self.idle_since().is_some() {
                        return Overdue::Displaced;
                    }
                }
            }
            if let Some(overdue) = self.judge(patience, Instant::now()) {
                return overdue;
            }
        }
    }

    fn judge(&self, patience: &Patience, now: Instant) -> Option<Overdue> {
        let state = self.state();
        let is_past = |since: Instant, limit: Duration| now.saturating_duration_since(since) > limit;
        if let Some(since) = state.stalled {
            return is_past(since, patience.stalled_max).then_some(Overdue::Stalled);
        }
        match state.doing {
            Doing::Fresh(since) if is_past(since, patience.head_max) => Some(Overdue::Silent),
            Doing::Asking(since) if is_past(since, patience.head_max) => Some(Overdue::Head),
            Doing::Idle(since) if is_past(since, patience.idle_max) => Some(Overdue::Silent),
            Doing::Fresh(_) | Doing::Asking(_) | Doing::Idle(_) | Doing::Served => None,
        }
    }

    /// Bytes have come. The first bytes of a body may come with its head, and count as part of it.
    fn came(&self, bytes: usize) {
        let mut state = self.state();
        match state.doing {
            Doing::Fresh(_) | Doing::Idle(_) => state.doing = Doing::Asking(Instant::now()),
            Doing::Asking(_) => {}
            Doing::Served => return,
        }
        state.head.bytes += bytes;
        let bytes = state.head.bytes;
        if !state.head.reservation.grow(bytes) {
            state.head.is_refused = true;
            self.displace.notify_one();
        }
    }

    /// Bytes were offered; did the client take some?
    fn offered(&self, taken: bool) {
        let mut state = self.state();
        if !taken {
            state.stalled.get_or_insert_with(Instant::now);
        } else if state.stalled.take().is_some() {
            state.doing = state.doing.again(Instant::now());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request is handled while this lives.
#[derive(Debug)]
pub(super) struct Serving(Arc<Watch>);

impl Drop for Serving {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.doing = Doing::Idle(Instant::now());
        state.head = Head::new(&self.0.heads_budget);
    }
}

/// A socket that tells its watch what passes.
#[derive(Debug)]
pub(super) struct Watched<T> {
    pub io: T,
    pub watch: Arc<Watch>,
}

impl<T> Watched<T> {
    fn offered(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.watch.offered(written.is_ready());
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            self.watch.came(bytes);
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.offered(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, parts);
        self.offered(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        head_max: Duration::from_secs(30),
        idle_max: Duration::from_secs(300),
        stalled_max: Duration::from_secs(60),
    };

    fn after(watch: &Watch, seconds: u64) -> Option<Overdue> {
        watch.judge(&PATIENCE, Instant::now() + Duration::from_secs(seconds))
    }

    #[test]
    fn each_thing_a_client_does_has_its_own_limit() {
        let watch = Watch::new(&ByteBudget::default());
        assert_eq!((after(&watch, 29), after(&watch, 31)), (None, Some(Overdue::Silent)));
        watch.came(1);
        assert_eq!((after(&watch, 29), after(&watch, 31)), (None, Some(Overdue::Head)));
        let serving = watch.serve();
        watch.came(1);
        assert_eq!(after(&watch, 100_000), None, "a stream may last for ever");
        drop(serving);
        assert_eq!((after(&watch, 299), after(&watch, 301)), (None, Some(Overdue::Silent)));
    }

    #[test]
    fn head_without_room_is_refused_until_its_request_is_served() {
        let watch = Watch::new(&ByteBudget::new(10));
        watch.came(100_000);
        assert!(watch.is_head_refused());
        let serving = watch.serve();
        assert!(!watch.is_head_refused(), "a request that has begun is not cut off");
        drop(serving);
        watch.came(1);
        assert!(!watch.is_head_refused(), "the next head has a count of its own");
    }

    #[test]
    fn connection_is_idle_without_a_request_under_way() {
        let watch = Watch::new(&ByteBudget::default());
        assert!(watch.idle_since().is_some(), "silent");
        watch.came(1);
        let asking = watch.idle_since();
        watch.came(1);
        assert!(asking.is_some() && watch.idle_since() == asking, "more of a head does not make it younger");
        let serving = watch.serve();
        assert_eq!(watch.idle_since(), None);
        drop(serving);
        assert!(watch.idle_since().is_some(), "kept alive");
        watch.offered(false);
        assert_eq!(watch.idle_since(), None, "its answer is still under way");
    }

    #[test]
    fn more_bytes_of_a_head_do_not_begin_its_time_again() {
        let watch = Watch::new(&ByteBudget::default());
        watch.came(1);
        let first = watch.state().doing;
        watch.came(1);
        assert_eq!(watch.state().doing, first);
    }

    #[test]
    fn nothing_else_counts_until_the_last_answer_is_taken() {
        for is_asking in [false, true] {
            let watch = Watch::new(&ByteBudget::default());
            drop(watch.serve());
            watch.offered(false);
            if is_asking {
                watch.came(1);
            }
            assert_eq!(after(&watch, 59), None, "the answer before is still under way");
            assert_eq!(after(&watch, 301), Some(Overdue::Stalled), "no other answer may be written into it");
        }
    }

    #[test]
    fn the_time_begins_when_the_last_answer_is_taken() {
        let watch = Watch::new(&ByteBudget::default());
        let before = Instant::now() - Duration::from_secs(60);
        for (doing, limit_seconds, overdue) in
            [(Doing::Asking(before), 30, Overdue::Head), (Doing::Idle(before), 300, Overdue::Silent)]
        {
            let head = Head::new(&watch.heads_budget);
            *watch.state() = State { doing, stalled: Some(Instant::now()), head };
            watch.offered(true);
            assert_eq!((after(&watch, limit_seconds - 1), after(&watch, limit_seconds + 1)), (None, Some(overdue)));
        }
    }

    #[test]
    fn who_takes_a_little_is_not_stalled() {
        let watch = Watch::new(&ByteBudget::default());
        let _serving = watch.serve();
        watch.offered(false);
        watch.offered(false);
        assert_eq!((after(&watch, 59), after(&watch, 61)), (None, Some(Overdue::Stalled)));
        watch.offered(true);
        assert_eq!(after(&watch, 61), None);
    }
}
