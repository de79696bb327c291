//! How many clients are served at once, and for how long each?
//!
//! Every connection is a task. At the limit no more are accepted: whoever comes then waits in the system's queue until
//! somebody leaves, and those who are in are served as ever. `patience.rs` says who has to leave.

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
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::Service;

/// The most connections that are open at once, unless told.
pub const CONNECTIONS_MAX: usize = 16_000;
/// How much of a connection is buffered each way: the largest head, and about what a client that does not read its
/// stream holds here.
const BUFFER_BYTES_MAX: usize = 128 << 10;
/// How long to wait when the system cannot give another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long the farewell to a client that is given up may take.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// What clients together and each of them may take.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// The most connections that are open at once.
    pub connections_max: usize,
    /// How long each may take for what.
    pub patience: Patience,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { connections_max: CONNECTIONS_MAX, patience: Patience::default() }
    }
}

/// Serves HTTP/1.1 until `stop` becomes true; then nobody is let in, and it ends when the requests under way have ended.
/// Dropped, it cuts all connections.
pub async fn serve(listener: TcpListener, router: Router, limits: ConnectionLimits, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let mut is_full = false;
    loop {
        let was_full = std::mem::replace(&mut is_full, connections.len() >= limits.connections_max.max(1));
        if is_full && !was_full {
            tracing::warn!("{} connections are open, the most allowed: others wait", connections.len());
        }
        tokio::select! {
            biased;
            () = stopped(&mut stop) => break,
            // What became of it is of no interest: a panic was reported where it happened.
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept(), if !is_full => match accepted {
                Ok((io, _address)) => {
                    connections.spawn(hold(io, router.clone(), limits.patience, stop.clone()));
                }
                Err(error) if is_of_one_client(&error) => {}
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// The client was gone before it was let in.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionRefused | ConnectionAborted | ConnectionReset)
}

/// One connection, from its first byte to its end.
async fn hold(io: TcpStream, router: Router, patience: Patience, mut stop: watch::Receiver<bool>) {
    // An answer is one small write: waiting for more to send with it would only delay it.
    if let Err(error) = io.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY was not set");
    }
    let _open = Counted::new("ensue_connections");
    let watch = Watch::new();
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
        Overdue::Silent | Overdue::Stalled => tracing::trace!(?reason, "a connection was given up"),
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
