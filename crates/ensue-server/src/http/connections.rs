//! Accepts connections, up to a limit, and serves each in a task of its own.
//!
//! At the limit a newcomer displaces the connections that have been without a complete request for longest: silent ones,
//! kept-alive ones, and those with half a head. Requests under way are never cut off: where they fill the limit, the
//! newcomer waits until one ends. The same happens below the limit when the system has no descriptor left for a
//! newcomer. `patience.rs` has the other reasons to close a connection.

use super::byte_budget::ByteBudget;
use super::measure::Counted;
use super::patience::{Overdue, Patience, Serving, Watch, Watched};
use super::polite::{self, PoliteIo};
use super::problem::{Kind, Problem};
use super::stop::stopped;
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{self, JoinSet};
use tower::Service;

/// The most connections that are open at once, unless told.
pub const CONNECTIONS_MAX: usize = 16_000;
/// How much of a connection is buffered each way: the largest head, and about what a client that does not read its
/// stream holds here.
const BUFFER_BYTES_MAX: usize = 128 << 10;
/// How long to wait for a displaced connection to end when the system cannot give another one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long to wait for displaced connections to end before others are displaced.
const DISPLACE_INTERVAL: Duration = Duration::from_millis(100);
/// One in so many connections is displaced at a time.
const DISPLACED_SHARE: usize = 64;
/// How often to warn that the limit is reached.
const WARN_INTERVAL: Duration = Duration::from_secs(60);
/// How long the farewell to a client that is given up may take.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// What clients together and each of them may take.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// The most connections that are open at once.
    pub connections_max: usize,
    /// How long each may take for what.
    pub patience: Patience,
    /// The bytes that the heads of all requests hold together, until they are answered.
    pub heads_budget: ByteBudget,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { connections_max: CONNECTIONS_MAX, patience: Patience::default(), heads_budget: ByteBudget::default() }
    }
}

/// Serves HTTP/1.1 until `stop` becomes true; then nobody is let in, and it ends when the requests under way have ended.
/// Dropped, it cuts all connections.
pub async fn serve(listener: TcpListener, router: Router, limits: ConnectionLimits, mut stop: watch::Receiver<bool>) {
    let mut connections = Connections::new(limits.connections_max);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopped(&mut stop) => break,
            () = connections.one_ends() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((io, _address)) => {
                tokio::select! {
                    biased;
                    () = stopped(&mut stop) => break,
                    () = connections.make_room() => {}
                }
                let watch = Watch::new(&limits.heads_budget);
                let held = hold(io, router.clone(), limits.clone(), watch.clone(), stop.clone());
                connections.spawn(watch, held);
            }
            Err(error) if is_of_one_client(&error) => {}
            Err(error) => connections.relieve(&error).await,
        }
    }
    drop(listener);
    while !connections.tasks.is_empty() {
        connections.one_ends().await;
    }
}

/// The connections that are open.
struct Connections {
    tasks: JoinSet<()>,
    watches: HashMap<task::Id, Arc<Watch>>,
    count_max: usize,
    warned_at: Option<Instant>,
}

impl Connections {
    fn new(count_max: usize) -> Self {
        Self { tasks: JoinSet::new(), watches: HashMap::new(), count_max: count_max.max(1), warned_at: None }
    }

    fn spawn(&mut self, watch: Arc<Watch>, connection: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(connection);
        self.watches.insert(task.id(), watch);
    }

    /// Returns when a connection has ended; never while there is none. Cancel-safe.
    async fn one_ends(&mut self) {
        // A panic was reported where it happened.
        let id = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => error.id(),
            None => std::future::pending().await,
        };
        self.watches.remove(&id);
    }

    /// Returns when there is room for another connection.
    async fn make_room(&mut self) {
        while self.tasks.len() >= self.count_max {
            let displaced = self.displace();
            self.warn(displaced);
            // One that gets a request at the last moment stays: then others are displaced.
            let _ended_or_late = tokio::time::timeout(DISPLACE_INTERVAL, self.one_ends()).await;
        }
    }

    /// Closes idle connections when the system has no descriptor or memory left for another one.
    async fn relieve(&mut self, error: &io::Error) {
        let displaced = self.displace();
        if self.is_warning_due() {
            tracing::warn!(
                %error,
                connections = self.tasks.len(),
                displaced,
                "cannot accept a connection; idle ones are closed. Raise the limit of open files (ulimit -n)"
            );
        }
        if self.tasks.is_empty() {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        } else {
            let _ended_or_late = tokio::time::timeout(ACCEPT_PAUSE, self.one_ends()).await;
        }
    }

    /// Displaces the longest idle connections, and returns their number. They are several, as finding them means looking
    /// at all.
    fn displace(&self) -> usize {
        let mut idle: Vec<(Instant, &Watch)> =
            self.watches.values().filter_map(|watch| Some((watch.idle_since()?, &**watch))).collect();
        idle.sort_unstable_by_key(|(since, _)| *since);
        let count = self.tasks.len().div_ceil(DISPLACED_SHARE);
        idle.iter().take(count).map(|(_, watch)| watch.displace()).count()
    }

    fn is_warning_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.warned_at.is_none_or(|warned_at| now - warned_at >= WARN_INTERVAL);
        if is_due {
            self.warned_at = Some(now);
        }
        is_due
    }

    fn warn(&mut self, displaced: usize) {
        if !self.is_warning_due() {
            return;
        }
        let count = self.tasks.len();
        match displaced {
            0 => tracing::warn!(
                connections = count,
                "connection limit reached by requests under way; new connections wait"
            ),
            _ => tracing::warn!(
                connections = count,
                "connection limit reached; idle connections are closed for new ones"
            ),
        }
    }
}

/// The client was gone before it was let in.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionRefused | ConnectionAborted | ConnectionReset)
}

/// One connection, from its first byte to its end.
async fn hold(
    io: TcpStream,
    router: Router,
    limits: ConnectionLimits,
    watch: Arc<Watch>,
    mut stop: watch::Receiver<bool>,
) {
    let patience = limits.patience;
    // An answer is one small write: waiting for more to send with it would only delay it.
    if let Err(error) = io.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY was not set");
    }
    let _open = Counted::new("ensue_connections");
    let io = TokioIo::new(PoliteIo::new(Watched { io, watch: watch.clone() }));
    let door = Door { router, watch: watch.clone() };
    let mut connection = http1::Builder::new().max_buf_size(BUFFER_BYTES_MAX).serve_connection(io, door);
    let mut overdue = std::pin::pin!(watch.overdue(&patience));
    let mut is_stopping = false;
    let reason = loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::trace!("a connection ended: {error}");
                }
                return;
            }
            reason = &mut overdue => break reason,
            () = stopped(&mut stop), if !is_stopping => {
                is_stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    match reason {
        // The last answer was sent whole, so this does not end up inside it.
        Overdue::Head => {
            let mut io = connection.into_parts().io.into_inner();
            let answer = polite::raw(too_slow_head(&patience));
            let farewell = async { io.write_all(&answer).await.and(io.shutdown().await) };
            // Whether it took the answer or not: it is given up.
            let _ = tokio::time::timeout(FAREWELL_MAX, farewell).await;
        }
        Overdue::Silent | Overdue::Stalled | Overdue::Displaced | Overdue::HeadRefused => {
            tracing::trace!(?reason, "a connection was given up")
        }
    }
}

fn too_slow_head(patience: &Patience) -> Problem {
    let seconds = patience.head_max.as_secs_f64();
    let reason = format!("did not come whole within {seconds} s; send the request line and all headers at once");
    Problem::field(Kind::TooSlow, "headers", reason)
}

/// The router, with its requests watched.
struct Door {
    router: Router,
    watch: Arc<Watch>,
}

impl hyper::service::Service<Request<Incoming>> for Door {
    type Response = Response;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        Answering { serving: Some(self.watch.serve()), answer: self.router.clone().call(request) }
    }
}

/// A request under way.
struct Answering {
    answer: RouteFuture<Infallible>,
    serving: Option<Serving>,
}

impl Future for Answering {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Ok(response) = ready!(Pin::new(&mut self.answer).poll(cx));
        let serving = self.serving.take();
        Poll::Ready(Ok(match response.body().size_hint().exact() {
            Some(_) => response,
            // A stream is under way until its end.
            None => response.map(|body| Body::new(Streaming { body, _serving: serving })),
        }))
    }
}

/// The body of a stream.
struct Streaming {
    body: Body,
    _serving: Option<Serving>,
}

impl HttpBody for Streaming {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
