//! Latency of other clients while hostile clients send the costliest conditions that they can.
//!
//! A server runs as a child process. Eight clients send one kind of hostile request as fast as it is answered. Meanwhile one probe asks
//! for `/health`, and another publishes small events and claims the jobs that a handler makes of them. Each case has its own server.

use super::args::{DirArgs, SecondsArgs};
use super::client::Connection;
use super::process::Served;
use super::report::{Report, Target};
use crate::cli::output::OutputArgs;
use anyhow::{Context, ensure};
use clap::Args;
use ensue::condition::{Condition, EventView, ParsedEvent, SubscriptionView};
use ensue::{Event, EventId, Json, Timestamp, Topic};
use hdrhistogram::Histogram;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;

/// How many hostile clients there are.
const CLIENTS: usize = 8;
/// How many streams they open in the case of streams.
const STREAMS: usize = 400;
/// Bytes of a large event.
const EVENT_BYTES: usize = 1_000_000;
/// Bytes of a long condition.
const CONDITION_BYTES: usize = 15_000;
/// Time between two large events of one client, so that writing and sending them is not what is measured.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// Time between two probes.
const PROBE_EVERY: Duration = Duration::from_millis(10);
/// The bounds that the figures are shown with.
const LATENCY_MS_MAX: f64 = 100.0;
const MEMORY_MB_MAX: f64 = 300.0;

/// `ensue bench hostile`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench hostile                    # every case for 10 s
  ensue bench hostile --case containment --seconds 30")]
pub struct HostileArgs {
    /// Only this case
    #[arg(long, value_enum)]
    case: Option<Case>,
    /// Another version of this program, to compare with
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    #[command(flatten)]
    seconds: SecondsArgs,
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What the hostile clients send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    /// Pages with a condition whose constants have many digits
    Constants,
    /// Pages with a containment in an array of 1 MB
    Containment,
    /// Pages with a cast of 1 MB of text to jsonb
    Cast,
    /// Pages with a LIKE that backtracks over 1 MB of text
    Like,
    /// Pages with arithmetic on numbers of many digits
    Numeric,
    /// Subscriptions of a group with costly conditions, and reads of that group
    Groups,
    /// Handlers with costly conditions, and events of 1 MB for them
    Handlers,
    /// 400 streams with a condition, half of which nobody reads, and events of 1 MB for them
    Streams,
}

impl Case {
    const ALL: [Self; 8] = [
        Self::Constants,
        Self::Containment,
        Self::Cast,
        Self::Like,
        Self::Numeric,
        Self::Groups,
        Self::Handlers,
        Self::Streams,
    ];

    /// The condition that is sent.
    fn condition(self) -> String {
        let list =
            |first: &str| format!("{first}{}", format!(",{first}").repeat(CONDITION_BYTES / 2 / (first.len() + 1)));
        match self {
            // Every number that is wanted is the last one, written otherwise; the very last is missing.
            Self::Constants => {
                format!("'[{},10e990]'::jsonb @> '[{},1e992]'::jsonb", list("1e990"), list("1e991"))
            }
            Self::Containment | Self::Groups | Self::Handlers => {
                let last = (EVENT_BYTES / 9 - CONDITION_BYTES / 7..).map(|number| number.to_string() + ",");
                let wanted: String = last.take(CONDITION_BYTES / 7).collect();
                format!("e.payload->'a' @> '[{}]'", wanted.trim_end_matches(','))
            }
            Self::Cast => "((e.payload->>'t')::jsonb) @> '[2]'".into(),
            Self::Like => format!("e.payload->>'s' LIKE '%{}b'", "a".repeat(CONDITION_BYTES)),
            Self::Numeric => {
                let product = " + (e.seq + 1e900) * 7e90 / 3e450".repeat(CONDITION_BYTES / 34);
                format!("0{product} > 1")
            }
            Self::Streams => "(e.payload->>'t')::jsonb @> '[1]' OR e.payload->>'s' LIKE '%b'".into(),
        }
    }
}

/// Events whose payloads are arrays, texts and texts of JSON.
fn large_events() -> [String; 3] {
    let numbers: String = (0..EVENT_BYTES / 9).map(|number| format!("{number},")).collect();
    let ones = "1,".repeat(EVENT_BYTES / 2 - 100);
    [
        format!(r#"{{"topic":"large","payload":{{"a":[{}]}}}}"#, numbers.trim_end_matches(',')),
        format!(r#"{{"topic":"large","payload":{{"t":"[\n{}1]"}}}}"#, ones),
        format!(r#"{{"topic":"large","payload":{{"s":"{}"}}}}"#, "a".repeat(EVENT_BYTES)),
    ]
}

/// Latencies of the probes in microseconds, and the most memory.
struct ProbeResults {
    health: Histogram<u64>,
    publish: Histogram<u64>,
    delivery: Histogram<u64>,
    memory_max: u64,
    hostile: u64,
}

/// Measures and prints.
pub async fn run(args: HostileArgs) -> anyhow::Result<()> {
    let seconds = Duration::from_secs(args.seconds.seconds);
    if args.case.is_none() && args.program.is_none() {
        tokio::task::block_in_place(evaluations)?.print(args.output.json)?;
    }
    let mut report = Report::new(format!(
        "{CLIENTS} hostile clients; latency of others in ms, p99 and most, and the most memory of the server"
    ));
    for case in Case::ALL.into_iter().filter(|case| args.case.is_none_or(|only| only == *case)) {
        let probed = measure(case, seconds, &args).await.with_context(|| format!("{case:?}"))?;
        let milliseconds = |micros: u64| micros as f64 / 1e3;
        let name = format!("{case:?}").to_lowercase();
        for (what, latency) in
            [("/health", &probed.health), ("publish", &probed.publish), ("delivery", &probed.delivery)]
        {
            let p99 = milliseconds(latency.value_at_quantile(0.99));
            report.absolute(format!("{name}: {what}, p99"), p99, "ms", Target::AtMost(LATENCY_MS_MAX));
            report.raw(format!("{name}: {what}, most"), milliseconds(latency.max()), "ms");
        }
        let memory = probed.memory_max as f64 / 1e6;
        report.absolute(format!("{name}: memory, most"), memory, "MB", Target::AtMost(MEMORY_MB_MAX));
        report.raw(format!("{name}: hostile requests answered"), probed.hostile as f64, "");
    }
    report.print(args.output.json)
}

/// The time of one evaluation, without a server, for costly conditions on large events.
fn evaluations() -> anyhow::Result<Report> {
    let repeated = |part: &str, join: &str| vec![part; CONDITION_BYTES / (part.len() + join.len())].join(join);
    let mut conditions: Vec<String> = Case::ALL.into_iter().map(Case::condition).collect();
    conditions.extend([
        "e.payload->>'s' LIKE '%b%'".into(),
        "e.payload->>'s' ILIKE '%a_b%'".into(),
        "e.payload::text LIKE '%b%'".into(),
        "(e.payload || e.payload)::text = ''".into(),
        "e.payload->'a' = (e.payload->'a') || '[1]'".into(),
        "e.payload->'o' @> (e.payload->'o')".into(),
        "e.payload#>'{o,zzz}' = '1' OR e.payload#>'{a,-1}' = '1'".into(),
        "to_jsonb(e.payload->>'s') = e.payload->'s'".into(),
        "(e.payload->>'t')::jsonb = (e.payload->>'t')::jsonb".into(),
        "('{' || (e.payload->>'s') || '}')::text[] IS NULL".into(),
        "(e.payload->>'n')::float8 > 1 OR (e.payload->>'n')::numeric > 1".into(),
        repeated("e.payload->'a' ? 'x'", " OR "),
        repeated("e.payload->'o' ? 'zzzz'", " OR "),
        repeated("e.payload->'a'->-1 = '0'", " OR "),
        repeated("hashtext(e.payload->>'s') = 1", " OR "),
        repeated("lower(e.payload->>'s') = 'x'", " OR "),
        repeated("length(e.payload->>'s') = 1", " OR "),
        repeated("e.payload->>'s' < (e.payload->>'s' || 'a')", " OR "),
        repeated("(e.seq + 1e300::float8)::text = ''", " OR "),
        repeated("(e.seq * 1e900 + 1)::text = ''", " OR "),
        repeated("(e.seq * 1e-900 + 1)::numeric(1000,500) > 9", " OR "),
        repeated("jsonb_build_object('a', e.payload) @> '{\"b\":1}'", " OR "),
    ]);
    let params = Json::empty_object();
    let subscription = SubscriptionView::new(Uuid::nil(), "", &params);
    let (mut most, mut per_step): ((f64, String), (f64, String)) = Default::default();
    let mut parse_most: f64 = 0.0;
    for payload in evaluation_payloads() {
        let event = Event {
            seq: 7,
            prev: None,
            id: EventId(Uuid::nil()),
            topic: Topic::stored("large"),
            object: None,
            payload: Json::parse("payload", payload)?,
            metadata: Json::empty_object(),
            occurred_at: Timestamp::UNIX_EPOCH,
            recorded_at: Timestamp::UNIX_EPOCH,
            to: None,
        };
        let reading = Condition::parse("e.payload->'zzz' = '1'")?;
        let parse = shortest(|| reading.matches(&EventView::new(&event), &subscription));
        parse_most = parse_most.max(parse.as_secs_f64() * 1e3);
        let parsed = ParsedEvent::default();
        for source in &conditions {
            let Ok(condition) = Condition::parse(source) else { continue };
            let mut steps = 0;
            let took = shortest(|| {
                let view = EventView::shared(&event, &parsed);
                let answer = condition.matches(&view, &subscription);
                steps = view.steps().max(1);
                answer
            });
            let shown = source.chars().take(50).collect::<String>();
            let milliseconds = took.as_secs_f64() * 1e3;
            if milliseconds > most.0 {
                most = (milliseconds, shown.clone());
            }
            let nanoseconds = took.as_nanos() as f64 / steps as f64;
            if steps > 100_000 && nanoseconds > per_step.0 {
                per_step = (nanoseconds, shown);
            }
        }
    }
    let mut check_most: f64 = 0.0;
    for source in &conditions {
        let check = shortest(|| Condition::parse(source));
        check_most = check_most.max(check.as_secs_f64() * 1e3);
    }
    let mut report = Report::new(format!("one evaluation of {} costly conditions on events of 1 MB", conditions.len()));
    report.raw(format!("longest evaluation: {}", most.1), most.0, "ms");
    report.raw(format!("most time for a step: {}", per_step.1), per_step.0, "ns");
    report.raw("longest parse of an event", parse_most, "ms");
    report.raw("longest check of a condition", check_most, "ms");
    Ok(report)
}

/// The shortest of three times: others have the processor in between.
fn shortest<T>(mut work: impl FnMut() -> T) -> Duration {
    let time = |_| {
        let start = Instant::now();
        drop(work());
        start.elapsed()
    };
    (0..3).map(time).min().unwrap_or_default()
}

/// Payloads of about 1 MB that are hard to parse, to search or to convert.
fn evaluation_payloads() -> Vec<String> {
    let list = |count: usize, item: &dyn Fn(usize) -> String| (0..count).map(item).collect::<Vec<_>>().join(",");
    let nested = |inner: String| (0..60).fold(inner, |inner, _| format!("{{\"b\":{inner},\"a\":1}}"));
    vec![
        format!(r#"{{"a":[{}]}}"#, list(EVENT_BYTES / 9, &|number| number.to_string())),
        format!(r#"{{"a":[{}]}}"#, list(EVENT_BYTES / 4 - 1_000, &|_| "1".into())),
        format!(r#"{{"t":"[{}]"}}"#, list(EVENT_BYTES / 2 - 100, &|_| "1".into())),
        format!(r#"{{"t":"[\n{}]"}}"#, list(EVENT_BYTES / 5, &|_| r#"\"\""#.into())),
        format!(r#"{{"s":"{}"}}"#, "a".repeat(EVENT_BYTES)),
        format!(r#"{{"s":"{}"}}"#, r"\n".repeat(EVENT_BYTES / 2 - 100)),
        format!(r#"{{"s":"{}"}}"#, list(EVENT_BYTES / 2, &|_| "1".into())),
        format!(r#"{{"n":"{}"}}"#, "9".repeat(EVENT_BYTES)),
        format!(r#"{{"o":{{{}}}}}"#, list(EVENT_BYTES / 16, &|number| format!(r#""{:06}":1"#, EVENT_BYTES - number))),
        format!(r#"{{"o":{{{}}}}}"#, list(100, &|number| format!(r#""{}{:03}":1"#, "k".repeat(9_800), 999 - number))),
        nested(format!("[{}]", list(EVENT_BYTES / 4 - 1_000, &|_| "1".into()))),
        format!(r#"{{"a":[{}]}}"#, list(EVENT_BYTES / 30, &|_| "1e-20".into())),
    ]
}

async fn measure(case: Case, seconds: Duration, args: &HostileArgs) -> anyhow::Result<ProbeResults> {
    let place = args.dir.new_folder()?;
    let this = std::env::current_exe().context("cannot tell which program this is")?;
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", "sqlite:ensue.db"];
    let served = Served::start_program(args.program.as_deref().unwrap_or(&this), &serve, place.path()).await?;
    let address = served.address();
    let mut setup = Connection::open(address).await?;
    let handler = request(address, "PUT", "/v1/handlers/probe", r#"{"on":"probe","ordered":false}"#);
    setup.exchange(&handler).await?;
    if case == Case::Handlers {
        for number in 0..CLIENTS {
            let body = serde_json::json!({"on": "large", "where": case.condition()}).to_string();
            setup.exchange(&request(address, "PUT", &format!("/v1/handlers/costly{number}"), &body)).await?;
        }
    }
    for event in large_events() {
        setup.exchange(&request(address, "POST", "/v1/events", &event)).await?;
    }
    let (stop, hostile) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for client in 0..CLIENTS {
        tasks.push(tokio::spawn(attack(case, client, address, stop.clone(), hostile.clone())));
    }
    let health = tokio::spawn(probe_health(address, stop.clone()));
    let delivery = tokio::spawn(probe_delivery(address, stop.clone()));
    let (start, mut memory_max) = (Instant::now(), 0);
    while start.elapsed() < seconds {
        memory_max = memory_max.max(served.resident_bytes()?);
        tokio::time::sleep(PROBE_EVERY).await;
    }
    stop.store(true, Ordering::Relaxed);
    let health = health.await??;
    let (publish, delivery) = delivery.await??;
    for task in tasks {
        // A client that was in the middle of something does not count.
        task.abort();
    }
    served.end().await?;
    Ok(ProbeResults { health, publish, delivery, memory_max, hostile: hostile.load(Ordering::Relaxed) })
}

/// One hostile client.
async fn attack(
    case: Case,
    client: usize,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let page = format!("/v1/events?where={}", encoded(&case.condition()));
    let mut streams = Vec::new();
    if case == Case::Streams {
        let path = format!("/v1/events/stream?after=0&where={}", encoded(&case.condition()));
        for number in 0..STREAMS / CLIENTS {
            streams.push(stream(address, &path, number % 2 == 0).await?);
        }
    }
    let mut connection = Connection::open(address).await?;
    let events = large_events();
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let event = request(address, "POST", "/v1/events", &events[(client + round) % events.len()]);
        let requests = match case {
            Case::Constants | Case::Containment | Case::Cast | Case::Like | Case::Numeric => {
                vec![request(address, "GET", &page, "")]
            }
            Case::Groups => {
                let condition = format!("{} AND e.seq > {}", case.condition(), round % 50);
                let body = serde_json::json!({ "where": condition }).to_string();
                vec![
                    request(address, "POST", &format!("/v1/groups/g{client}/subscriptions"), &body),
                    event,
                    request(address, "POST", &format!("/v1/groups/g{client}/read"), r#"{"peek":true}"#),
                ]
            }
            // Sending large events to hundreds of streams is costly without any condition, so these are few.
            Case::Streams if client > 0 => Vec::new(),
            Case::Handlers | Case::Streams => vec![event],
        };
        for request in requests {
            connection.status(&request).await?;
            answered.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(case, Case::Groups | Case::Handlers | Case::Streams) {
            tokio::time::sleep(PUBLISH_EVERY).await;
        }
    }
    drop(streams);
    Ok(())
}

/// A stream that is read, or not. It ends when it is dropped.
async fn stream(address: SocketAddr, path: &str, is_read: bool) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&request(address, "GET", path, "")).await?;
    Ok(tokio::spawn(async move {
        let mut buffer = vec![0; 64 << 10];
        while is_read && stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        std::future::pending::<()>().await;
    }))
}

async fn probe_health(address: SocketAddr, stop: Arc<AtomicBool>) -> anyhow::Result<Histogram<u64>> {
    let mut latency = Histogram::new(3)?;
    let mut connection = Connection::open(address).await?;
    let health = request(address, "GET", "/health", "");
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        connection.exchange(&health).await?;
        latency.record(micros(start))?;
        tokio::time::sleep(PROBE_EVERY).await;
    }
    Ok(latency)
}

/// From the publish of an event to its answer, and to the answer of the claim for the job that a handler makes of it.
async fn probe_delivery(
    address: SocketAddr,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<(Histogram<u64>, Histogram<u64>)> {
    let (mut publish, mut delivery) = (Histogram::new(3)?, Histogram::new(3)?);
    let mut connection = Connection::open(address).await?;
    let event = request(address, "POST", "/v1/events", r#"{"topic":"probe"}"#);
    let body = r#"{"handlers":["probe"],"limit":1,"lease_ms":600000,"wait_ms":30000,"worker":"probe"}"#;
    let claim = request(address, "POST", "/v1/jobs/claim", body);
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        connection.exchange(&event).await?;
        publish.record(micros(start))?;
        connection.exchange(&claim).await?;
        ensure!(connection.answer().contains("\"claim\""), "a job did not come within 30 s");
        delivery.record(micros(start))?;
        tokio::time::sleep(PROBE_EVERY).await;
    }
    Ok((publish, delivery))
}

fn micros(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A text as it stands in a URL.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'[' | b']' | b',' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}
