//! A way between a store and its server that fails on command.
//!
//! Everything is passed on until it is told otherwise: to swallow an answer and hang up, to refuse a connection in the
//! server's name, to stand still as a server does that hangs, or to stop after so many statements. It reads the messages
//! of the protocol, so the store must not encrypt them.

use ensue_conformance::postgres::shared_url;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// What stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Still {
    Nothing,
    Answers,
    BothWays,
}

pub struct Wire {
    pub url: String,
    pub cut_next_answer: Arc<AtomicBool>,
    pub refuse_next_connection: Arc<AtomicBool>,
    orders: Arc<Orders>,
}

/// What every connection knows, and tells.
#[derive(Default)]
struct Orders {
    cut: Arc<AtomicBool>,
    /// What stands still, on connections with a smaller number than that.
    still: watch::Sender<(Option<Still>, usize)>,
    /// How many more statements pass; none: all.
    allowed: watch::Sender<Option<usize>>,
    /// Is a statement held back?
    held: watch::Sender<bool>,
    /// How many statements passed that the server has not answered.
    owed: watch::Sender<i64>,
    opened: AtomicUsize,
    /// How many connections the store has closed.
    closed: AtomicUsize,
}

/// How a server says that something is wrong with its system (58000), as the protocol has it.
fn refusal() -> Vec<u8> {
    let fields = b"SFATAL\0C58000\0Mrefused by the test\0\0";
    [&b"E"[..], &(fields.len() as u32 + 4).to_be_bytes(), fields].concat()
}

impl Wire {
    /// To the server of the run. Its address has no parameters yet.
    pub async fn new() -> Self {
        Self::to(&shared_url()).await
    }

    /// To this database.
    pub async fn to(database: &str) -> Self {
        let (scheme, rest) = database.split_once("://").unwrap();
        let (authority, path) = rest.split_once('/').unwrap();
        let (user, server) = authority.rsplit_once('@').map_or(("", authority), |(user, server)| (user, server));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let refuse_next_connection = Arc::new(AtomicBool::new(false));
        let orders = Arc::new(Orders::default());
        let (server, refuse, told) = (server.to_string(), refuse_next_connection.clone(), orders.clone());
        tokio::spawn(async move {
            while let Ok((mut inner, _)) = listener.accept().await {
                if refuse.swap(false, Ordering::SeqCst) {
                    let _start = inner.read(&mut [0; 1_024]).await;
                    inner.write_all(&refusal()).await.unwrap();
                    continue;
                }
                let outer = TcpStream::connect(&server).await.unwrap();
                // A message is not to wait for the acknowledgement of the one before it.
                inner.set_nodelay(true).unwrap();
                outer.set_nodelay(true).unwrap();
                let number = told.opened.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(pass_on(inner, outer, number, told.clone()));
            }
        });
        let url = format!("{scheme}://{user}@{address}/{path}");
        Self { url, cut_next_answer: orders.cut.clone(), refuse_next_connection, orders }
    }

    /// Stands still, or goes on.
    pub fn stand(&self, still: Still) {
        self.orders.still.send_replace((Some(still), usize::MAX));
    }

    /// Stands still on the connections that there are; new ones pass.
    pub fn stand_where_open(&self, still: Still) {
        self.orders.still.send_replace((Some(still), self.orders.opened.load(Ordering::SeqCst)));
    }

    /// Lets so many statements pass and holds back what comes after them.
    pub fn hold_after(&self, statements: usize) {
        self.orders.allowed.send_replace(Some(statements));
    }

    /// Waits until a statement is held back, and all before it are answered.
    pub async fn until_held(&self) {
        self.orders.held.subscribe().wait_for(|held| *held).await.unwrap();
        self.orders.owed.subscribe().wait_for(|owed| *owed == 0).await.unwrap();
    }

    /// Lets everything pass again.
    pub fn let_go(&self) {
        self.orders.allowed.send_replace(None);
    }

    /// How many connections the store has opened so far.
    pub fn opened(&self) -> usize {
        self.orders.opened.load(Ordering::SeqCst)
    }

    /// How many connections the store has closed so far.
    pub fn closed(&self) -> usize {
        self.orders.closed.load(Ordering::SeqCst)
    }

    /// Waits until the store has closed more connections than that.
    pub async fn until_closed_more_than(&self, before: usize) {
        while self.closed() <= before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Orders {
    /// Waits while one of these stands still on this connection.
    async fn pass(&self, number: usize, waits_for: &[Still]) {
        let passes = |(still, below): &(Option<Still>, usize)| {
            number >= *below || still.is_none_or(|still| !waits_for.contains(&still))
        };
        self.still.subscribe().wait_for(passes).await.expect("the sender is ours");
    }
}

async fn pass_on(inner: TcpStream, outer: TcpStream, number: usize, orders: Arc<Orders>) {
    let (from_store, mut to_store) = inner.into_split();
    let (mut from_server, to_server) = outer.into_split();
    // What the store sent is taken off its hands at once: so its hanging up is seen although nothing moves.
    let (messages, passing) = mpsc::unbounded_channel();
    let taking = tokio::spawn(take(from_store, messages, orders.clone()));
    let asking = tokio::spawn(ask(passing, to_server, number, orders.clone()));
    while let Ok(message) = message(&mut from_server, true).await {
        orders.pass(number, &[Still::Answers, Still::BothWays]).await;
        if orders.cut.swap(false, Ordering::SeqCst) || to_store.write_all(&message).await.is_err() {
            break;
        }
        // ReadyForQuery.
        if message[0] == b'Z' {
            orders.owed.send_modify(|owed| *owed -= 1);
        }
    }
    taking.abort();
    asking.abort();
}

/// One message: a letter (but not at the start), its length, and so many bytes.
async fn message(from: &mut OwnedReadHalf, has_letter: bool) -> io::Result<Vec<u8>> {
    let mut head = vec![0; if has_letter { 5 } else { 4 }];
    from.read_exact(&mut head).await?;
    let length = u32::from_be_bytes(*head.last_chunk().expect("four bytes")) as usize;
    let mut body = vec![0; length - 4];
    from.read_exact(&mut body).await?;
    Ok([head, body].concat())
}

/// Takes the store's messages as they come.
async fn take(mut from_store: OwnedReadHalf, messages: mpsc::UnboundedSender<Vec<u8>>, orders: Arc<Orders>) {
    let mut has_letter = false;
    while let Ok(message) = message(&mut from_store, has_letter).await {
        has_letter = true;
        if messages.send(message).is_err() {
            break;
        }
    }
    orders.closed.fetch_add(1, Ordering::SeqCst);
}

/// Passes the store's messages on, even after it has hung up, as a network does.
async fn ask(
    mut passing: mpsc::UnboundedReceiver<Vec<u8>>,
    mut to_server: OwnedWriteHalf,
    number: usize,
    orders: Arc<Orders>,
) {
    while let Some(message) = passing.recv().await {
        if *orders.allowed.borrow() == Some(0) {
            orders.held.send_replace(true);
            let _ = orders.allowed.subscribe().wait_for(|allowed| *allowed != Some(0)).await;
            orders.held.send_replace(false);
        }
        orders.pass(number, &[Still::BothWays]).await;
        // The start, Query, Sync: the server says when it is ready for the next.
        let ends_a_statement = matches!(message[0], 0 | b'Q' | b'S');
        if ends_a_statement {
            orders.owed.send_modify(|owed| *owed += 1);
            orders.allowed.send_modify(|allowed| *allowed = allowed.map(|count| count.saturating_sub(1)));
        }
        if to_server.write_all(&message).await.is_err() {
            return;
        }
    }
}
