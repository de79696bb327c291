//! What do many streams cost a server?
//!
//! Thousands of SSE clients with conditions of their own on one server, a child process of this same program. Every event is
//! for some of them; it is counted that each client gets exactly what is for it.

use super::args::DirArgs;
use super::client::{Connection, post};
use super::process::Served;
use super::report::Report;
use crate::cli::output::OutputArgs;
use anyhow::{Context, bail, ensure};
use clap::Args;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// How many customers the clients are spread over: each wants the events of one.
const CUSTOMERS: usize = 500;
/// How many events are published; each customer has as many.
const EVENTS: usize = 1_000;
/// How many events go into one request.
const BATCH: usize = 100;
/// How many clients connect at once.
const CONNECTING: usize = 64;
/// How long everything may take to arrive.
const WITHIN: Duration = Duration::from_secs(300);
/// `e.payload->>'customer' = s.params->>'customer'`, as it stands in a URL.
const WHERE: &str = "e.payload-%3E%3E'customer'%20%3D%20s.params-%3E%3E'customer'";

/// `ensue bench streams`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench streams                    # 10,000 clients; needs as many open files (ulimit -n)
  ensue bench streams --clients 1000")]
pub struct StreamsArgs {
    /// How many clients
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=15_000))]
    clients: u64,
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Measures and prints.
pub async fn run(args: StreamsArgs) -> anyhow::Result<()> {
    let place = args.dir.new_folder()?;
    let served =
        Served::start(&["serve", "--listen", "127.0.0.1:0", "--store", "sqlite:ensue.db"], place.path()).await?;
    let (address, clients) = (served.address(), args.clients as usize);
    let before = served.resident_bytes()?;
    let (received, wrong) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let turns = Arc::new(Semaphore::new(CONNECTING));
    let connecting = (0..clients).map(|client| {
        let (turns, received, wrong) = (turns.clone(), received.clone(), wrong.clone());
        tokio::spawn(async move {
            let _turn = turns.acquire_owned().await?;
            listen(address, client % CUSTOMERS, received, wrong).await
        })
    });
    for client in connecting.collect::<Vec<_>>() {
        client.await?.context("a client cannot connect: is the limit of open files (ulimit -n) high enough?")?;
    }
    let (connected, cpu) = (served.resident_bytes()?, served.cpu_time()?);

    let expected: u64 = (0..clients)
        .map(|client| (0..EVENTS).filter(|event| event % CUSTOMERS == client % CUSTOMERS).count() as u64)
        .sum();
    let mut publisher = Connection::open(address).await?;
    let start = Instant::now();
    for first in (0..EVENTS).step_by(BATCH) {
        let event = |number: usize| format!(r#"{{"topic":"t","payload":{{"customer":"c{}"}}}}"#, number % CUSTOMERS);
        let events: Vec<String> = (first..first + BATCH).map(event).collect();
        publisher.exchange(&post(address, &format!("[{}]", events.join(",")))).await?;
    }
    while received.load(Ordering::Relaxed) < expected {
        if start.elapsed() > WITHIN {
            bail!("{} of {expected} events have arrived within {WITHIN:?}", received.load(Ordering::Relaxed));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (took, spent) = (start.elapsed(), served.cpu_time()? - cpu);
    ensure!(wrong.load(Ordering::Relaxed) == 0, "events came to clients that they are not for");
    ensure!(received.load(Ordering::Relaxed) == expected, "events came twice");
    let after = served.resident_bytes()?;
    served.end().await?;

    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let mut report = Report::new(format!(
        "{clients} SSE clients, each with the events of one of {CUSTOMERS} customers; {EVENTS} events, each client got exactly its own"
    ));
    report.raw("memory of the idle server", megabytes(before), "MB");
    report.raw("memory with all clients connected", megabytes(connected), "MB");
    report.raw("memory for each client", connected.saturating_sub(before) as f64 / 1e3 / clients as f64, "kB");
    report.raw("memory after the events", megabytes(after), "MB");
    report.raw("from the first publish to the last arrival", took.as_secs_f64(), "s");
    report.raw("processor time of the server for them", spent.as_secs_f64(), "s");
    report.raw("the same, for each event and client", spent.as_nanos() as f64 / (EVENTS * clients) as f64, "ns");
    report.print(args.output.json)
}

/// Connects a client and comes back when it listens; it counts what it gets from then on.
async fn listen(
    address: SocketAddr,
    customer: usize,
    received: Arc<AtomicU64>,
    wrong: Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let params = format!("%7B%22customer%22:%22c{customer}%22%7D");
    let request =
        format!("GET /v1/events/stream?after=0&where={WHERE}&params={params} HTTP/1.1\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut lines = BufReader::with_capacity(1_024, stream).lines();
    let head = lines.next_line().await?.unwrap_or_default();
    ensure!(head.starts_with("HTTP/1.1 200"), "the server refused a stream: {head}");
    while let Some(line) = lines.next_line().await? {
        if line.contains("caught up") {
            break;
        }
    }
    tokio::spawn(async move {
        let mine = format!("\"customer\":\"c{customer}\"");
        while let Ok(Some(line)) = lines.next_line().await {
            if line.starts_with("data:") {
                received.fetch_add(1, Ordering::Relaxed);
                wrong.fetch_add(u64::from(!line.contains(&mine)), Ordering::Relaxed);
            }
        }
    });
    Ok(())
}
