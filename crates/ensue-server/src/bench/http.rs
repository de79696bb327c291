//! How fast are single-event POSTs, beside a handler that does nothing?
//!
//! Two child processes of this same program, one with a log and one that only answers, take turns under the same load
//! of 64 keep-alive connections.

use super::args::{DirArgs, SecondsArgs};
use super::client::{Connection, post};
use super::process::Served;
use super::report::{Report, Target};
use super::rounds::{self, Rates, SLICE, slice};
use super::sample::{Objects, Sample, TOPIC};
use crate::cli::output::OutputArgs;
use axum::http::{StatusCode, header};
use axum::routing;
use axum::serve::ListenerExt;
use bytes::Bytes;
use clap::Args;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

/// How many keep-alive connections send one event at a time.
const CONNECTIONS: usize = 64;
/// How long an idle server is watched before its memory is read.
const IDLE: Duration = Duration::from_secs(1);

/// `ensue bench http`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench http
  ensue bench http --dir /mnt/data --seconds 30
  ensue bench http --store postgres://me@localhost/test?schema=bench   # keeps what it wrote")]
pub struct HttpArgs {
    /// The store of the measured server [default: a SQLite file in a new folder]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    time: SecondsArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Measures and prints.
pub async fn run(args: HttpArgs) -> anyhow::Result<()> {
    let place = args.dir.new_folder()?;
    let store = args.store.as_deref().unwrap_or("sqlite:ensue.db");
    let ours = Served::start(&["serve", "--listen", "127.0.0.1:0", "--store", store], place.path()).await?;
    let noop = Served::start(&["bench", "noop"], place.path()).await?;
    tokio::time::sleep(IDLE).await;
    let idle_bytes = ours.resident_bytes()?;

    let sample = Arc::new(Sample::new(Objects::Half));
    let noop_load = Load::open(noop.address(), &sample).await?;
    let ours_load = Load::open(ours.address(), &sample).await?;
    let mut rates: [Rates; 2] = Default::default();
    // The first round warms up and is not counted.
    for round in 0..=rounds::count(args.time.seconds, rates.len()) {
        let results = [noop_load.slice().await?, ours_load.slice().await?];
        for (rates, (count, took)) in rates.iter_mut().zip(results).filter(|_| round > 0) {
            rates.add(count, took);
        }
    }
    let loaded_bytes = ours.resident_bytes()?;
    ours.end().await?;
    noop.end().await?;

    let mut report = Report::new(format!(
        "POST /v1/events, one event each, over {CONNECTIONS} keep-alive connections: 200-byte payloads, half of the events \
         on 10,000 objects, {} rounds of {} ms each; client and server share the machine",
        rounds::count(args.time.seconds, rates.len()),
        SLICE.as_millis(),
    ));
    let [noop, ours] = &rates;
    report.raw_rates("a handler that does nothing", noop, "requests/s");
    report.rates("ensue, one event on disk each", ours, "requests/s", noop, Some(Target::AtLeast(0.4)));
    report.absolute("memory of the idle server", idle_bytes as f64 / 1e6, "MB", Target::AtMost(40.0));
    report.raw("memory of the server after the load", loaded_bytes as f64 / 1e6, "MB");
    report.print(args.output.json)
}

/// Many connections to one server.
struct Load {
    connections: Arc<Vec<Mutex<Connection>>>,
    address: SocketAddr,
    sample: Arc<Sample>,
}

impl Load {
    async fn open(address: SocketAddr, sample: &Arc<Sample>) -> anyhow::Result<Self> {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Mutex::new(Connection::open(address).await?));
        }
        Ok(Self { connections: Arc::new(connections), address, sample: sample.clone() })
    }

    async fn slice(&self) -> anyhow::Result<(u64, Duration)> {
        let (connections, sample, address) = (self.connections.clone(), self.sample.clone(), self.address);
        let before = Instant::now();
        let (count, _) = slice(CONNECTIONS, move |caller| {
            let (connections, sample) = (connections.clone(), sample.clone());
            async move {
                let (object, payload) = sample.row();
                let object = object.map_or(String::new(), |object| format!("\"object\":\"{object}\","));
                let body = format!("{{\"topic\":\"{TOPIC}\",{object}\"payload\":{payload}}}");
                // Nobody else takes this one: the lock only tells the compiler so.
                connections[caller].lock().await.exchange(&post(address, &body)).await?;
                Ok(1)
            }
        })
        .await?;
        Ok((count, before.elapsed()))
    }
}

/// The raw limit: takes the body, answers as a publish would, and does nothing.
pub async fn serve_noop() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let handler = |_body: Bytes| async {
        let answer = r#"{"events":[{"id":"01890a5d-ac96-774b-bcce-b302099a8057","seq":1000000,"prev":999999}]}"#;
        (StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], answer)
    };
    let app = axum::Router::new().route("/v1/events", routing::post(handler));
    crate::cli::output::line(format_args!("listening on http://{address}"))?;
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY was not set");
        }
    });
    Ok(axum::serve(listener, app).await?)
}
