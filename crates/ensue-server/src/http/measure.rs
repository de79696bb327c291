//! Metrics in the Prometheus text format. docs/metrics.md lists all of them.
//!
//! The recorder keeps a series for the life of the process. Series that come and go with groups, jobs and handlers are
//! therefore read from the store at each scrape and written as text. Names past [`LABELS_MAX`] share the label `other`.

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use ensue::jobs::{JobCount, JobQuery, seen_counts};
use ensue::labels::{LABELS_MAX, OTHER};
use ensue::positions::{GroupState, LaneQuery};
use ensue::rules::{RuleKind, RuleSet};
use ensue::{Bounds, SharedStore, Timestamp};
use metrics::{Counter, Histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::{LazyLock, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Bounds of the buckets that durations are counted in: from a cached answer to a client that gave up.
const BUCKETS_SECONDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];
/// Bounds of the buckets that numbers of events are counted in: from one to the largest batch.
const BUCKETS_EVENTS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0];
/// Of how many that wait for somebody it is told whose they are.
const HELD_COUNTED_MAX: usize = 1_000;
/// How often recorded durations are put into their buckets; between, each takes a few bytes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The process's recorder of figures. The first call makes it the global one; call it before anything is measured, as
/// figures from before go nowhere. An application that has a recorder of its own keeps it, and `/metrics` stays empty.
pub fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &BUCKETS_SECONDS)
            .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_events".into()), &BUCKETS_EVENTS))
            .expect("there are buckets")
            .build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::info!("this process has a metrics recorder of its own; /metrics stays empty");
            return handle;
        }
        describe();
        let upkeep = handle.clone();
        let keep_up = move || {
            loop {
                std::thread::sleep(UPKEEP_INTERVAL);
                upkeep.run_upkeep();
            }
        };
        let spawned = std::thread::Builder::new().name("ensue-metrics".into()).spawn(keep_up);
        if let Err(error) = spawned {
            tracing::warn!("figures are only put in order when /metrics is read: {error}");
        }
        handle
    })
}

/// The type of a metric.
#[derive(Debug, Clone, Copy)]
enum Type {
    Counter,
    Gauge,
    Histogram,
}

/// The metrics that the recorder keeps.
const RECORDED: [(&str, Type, &str); 20] = [
    ("ensue_append_batch_events", Type::Histogram, "Events in one commit of published events, by engine"),
    ("ensue_append_events_total", Type::Counter, "Events that this process added to the log, by engine"),
    ("ensue_append_seconds", Type::Histogram, "Duration of one commit of published events, by engine"),
    (
        "ensue_checkpoint_failures_total",
        Type::Counter,
        "Failed attempts to move the write-ahead log of SQLite into the database",
    ),
    (
        "ensue_condition_errors_total",
        Type::Counter,
        "Events on which a condition failed, by group; empty for reads and streams",
    ),
    ("ensue_connections", Type::Gauge, "Open connections"),
    ("ensue_damaged_events_total", Type::Counter, "Stored events that could not be decoded whole, by engine"),
    ("ensue_delivery_attempts_total", Type::Counter, "Ended attempts of deliveries, by handler and outcome"),
    ("ensue_http_requests_total", Type::Counter, "Answered requests, by method, path and status"),
    ("ensue_http_seconds", Type::Histogram, "Time until a response began, by method and path"),
    (
        "ensue_job_attempts_total",
        Type::Counter,
        "Ended attempts of jobs, by handler and outcome, of remote workers too",
    ),
    ("ensue_job_claims_total", Type::Counter, "Claimed jobs, by handler, of remote workers too"),
    ("ensue_job_seconds", Type::Histogram, "Time from the claim of a job to the end of its attempt, by handler"),
    ("ensue_log_first_seq", Type::Gauge, "Seq of the oldest event in the log"),
    ("ensue_log_last_seq", Type::Gauge, "Seq of the newest event in the log"),
    ("ensue_pending_events", Type::Gauge, "Delayed events that are not in the log yet"),
    ("ensue_outbox_rejected", Type::Gauge, "Rows of the outbox that cannot enter the log"),
    ("ensue_streams", Type::Gauge, "Open event streams"),
    ("ensue_wal_bytes", Type::Gauge, "Size of the write-ahead log of SQLite"),
    ("ensue_build_info", Type::Gauge, "1, with the version of this program"),
];

fn describe() {
    for (name, kind, help) in RECORDED {
        match kind {
            Type::Counter => metrics::describe_counter!(name, help),
            Type::Gauge => metrics::describe_gauge!(name, help),
            Type::Histogram => metrics::describe_histogram!(name, help),
        }
    }
    // A counter of faults starts at zero, so that its first increase is seen.
    metrics::counter!("ensue_damaged_events_total", "engine" => "sqlite").absolute(0);
    metrics::counter!("ensue_checkpoint_failures_total").absolute(0);
    metrics::gauge!("ensue_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}

/// Writes a metric as text, unless it has no series.
fn write_metric(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    series: impl IntoIterator<Item = (String, f64)>,
) {
    let mut series = series.into_iter().peekable();
    if series.peek().is_some() {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }
    for (labels, value) in series {
        text.push_str(&format!("{name}{labels} {value}\n"));
    }
}

/// Keeps the [`LABELS_MAX`] largest values by name and adds the others up under `other`. Names need no escaping.
fn folded(values: impl IntoIterator<Item = (String, u64)>) -> BTreeMap<String, u64> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (name, value) in values {
        *sums.entry(name).or_default() += value;
    }
    if sums.len() <= LABELS_MAX {
        return sums;
    }
    let mut sorted: Vec<(String, u64)> = sums.into_iter().collect();
    sorted.sort_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
    let rest: u64 = sorted.drain(LABELS_MAX..).map(|(_, value)| value).sum();
    let mut folded: BTreeMap<String, u64> = sorted.into_iter().collect();
    *folded.entry(OTHER.into()).or_default() += rest;
    folded
}

/// Processor time, memory, file descriptors and start time of the process, by the names that Prometheus clients share.
/// Linux only.
#[cfg(target_os = "linux")]
pub(super) fn process() -> String {
    use procfs::process::{LimitValue, Process};
    let mut text = String::new();
    let Ok(process) = Process::myself() else { return text };
    let mut write = |name: &str, kind: &str, help: &str, value: Option<f64>| {
        write_metric(&mut text, name, kind, help, value.map(|value| (String::new(), value)));
    };
    if let Ok(stat) = process.stat() {
        let ticks = procfs::ticks_per_second() as f64;
        let cpu = (stat.utime + stat.stime) as f64 / ticks;
        let started = procfs::boot_time_secs().ok().map(|boot| boot as f64 + stat.starttime as f64 / ticks);
        let resident = stat.rss * procfs::page_size();
        write("process_cpu_seconds_total", "counter", "Processor time of the process, user and system", Some(cpu));
        write("process_start_time_seconds", "gauge", "Start of the process as a Unix time", started);
        write("process_resident_memory_bytes", "gauge", "Resident memory of the process", Some(resident as f64));
    }
    write("process_open_fds", "gauge", "Open file descriptors", process.fd_count().ok().map(|count| count as f64));
    let limit = process.limits().ok().map(|limits| match limits.max_open_files.soft_limit {
        LimitValue::Value(limit) => limit as f64,
        LimitValue::Unlimited => f64::INFINITY,
    });
    write("process_max_fds", "gauge", "Limit of open file descriptors", limit);
    text
}

#[cfg(not(target_os = "linux"))]
pub(super) fn process() -> String {
    String::new()
}

/// Notes how the log stands: asked of the store when somebody wants to know. A store that does not answer in time leaves
/// the figures as they were. What is known of each group is answered as text: a recorder keeps for ever what it was told
/// once, and groups come and go.
pub(super) async fn log(store: &SharedStore, time_max: Duration) -> String {
    let ask = async {
        (store.bounds().await, store.pending_count().await, store.groups().await, store.outbox_rejected().await)
    };
    let Ok((bounds, pending, groups, rejected)) = tokio::time::timeout(time_max, ask).await else {
        return String::new();
    };
    let lags = match (&bounds, groups) {
        (Ok(bounds), Ok(groups)) => lags(&groups, *bounds),
        (Err(_), _) | (_, Err(_)) => String::new(),
    };
    if let Ok(bounds) = bounds {
        metrics::gauge!("ensue_log_first_seq").set(bounds.first as f64);
        metrics::gauge!("ensue_log_last_seq").set(bounds.last as f64);
    }
    if let Ok(pending) = pending {
        metrics::gauge!("ensue_pending_events").set(pending as f64);
    }
    if let Ok(rejected) = rejected {
        metrics::gauge!("ensue_outbox_rejected").set(rejected as f64);
    }
    lags
}

/// How many jobs there are and how many rules: asked of the store when somebody wants to know, and answered as text as
/// what is known of groups is. A store that does not answer in time leaves them out.
pub(super) async fn jobs(store: &SharedStore, time_max: Duration) -> String {
    let ask = async { tokio::try_join!(store.job_counts(), store.rules(), store.now()) };
    let Ok(Ok((counts, rules, now))) = tokio::time::timeout(time_max, ask).await else { return String::new() };
    counted_jobs(seen_counts(counts, &rules, now)) + &counted_rules(&rules, now)
}

/// What waits for somebody, by handler: asked and answered as that is. There may be very many: so many of each kind are counted.
pub(super) async fn held(store: &SharedStore, time_max: Duration) -> String {
    let holding = JobQuery { holding: true, ..JobQuery::default() };
    let stuck = LaneQuery::Stuck { group: None };
    let ask = async { tokio::try_join!(store.lanes(stuck, HELD_COUNTED_MAX), store.jobs(holding, HELD_COUNTED_MAX)) };
    let Ok(Ok((lanes, jobs))) = tokio::time::timeout(time_max, ask).await else { return String::new() };
    let handlers = lanes.iter().map(|row| &row.group).chain(jobs.jobs.iter().map(|job| &job.handler));
    let held = folded(handlers.map(|handler| (handler.to_string(), 1)));
    let help =
        format!("Blocked objects, events and jobs, by handler; at most {HELD_COUNTED_MAX} of each kind are counted");
    let mut text = String::new();
    write_metric(&mut text, "ensue_held", "gauge", &help, by_label("handler", held));
    text
}

/// Series with one label.
fn by_label(label: &str, values: BTreeMap<String, u64>) -> impl Iterator<Item = (String, f64)> {
    values.into_iter().map(move |(name, value)| (format!("{{{label}=\"{name}\"}}"), value as f64))
}

/// Unfinished jobs by handler and state.
fn counted_jobs(counts: Vec<JobCount>) -> String {
    let handlers = folded(counts.iter().map(|count| (count.handler.to_string(), count.count)));
    let mut jobs: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for JobCount { handler, state, count } in counts {
        let handler = if handlers.contains_key(handler.as_str()) { handler.to_string() } else { OTHER.into() };
        *jobs.entry((handler, state.as_str())).or_default() += count;
    }
    let mut text = String::new();
    let series = |((handler, state), count): ((String, &str), u64)| {
        (format!("{{handler=\"{handler}\",state=\"{state}\"}}"), count as f64)
    };
    let help = "Unfinished jobs, by handler and state; those that a rule holds are parked";
    write_metric(&mut text, "ensue_jobs", "gauge", help, jobs.into_iter().map(series));
    text
}

fn counted_rules(rules: &RuleSet, now: Timestamp) -> String {
    let live =
        |kind: RuleKind| rules.rules().iter().filter(|rule| rule.kind == kind && rule.is_live(now)).count() as u64;
    let kinds = [RuleKind::Pause, RuleKind::Block].map(|kind| (kind.as_str().to_owned(), live(kind)));
    let mut text = String::new();
    write_metric(&mut text, "ensue_rules", "gauge", "Live rules, by kind", by_label("kind", kinds.into()));
    text
}

/// Lag of the groups.
fn lags(groups: &[GroupState], bounds: Bounds) -> String {
    let lags = folded(groups.iter().map(|group| (group.name.to_string(), group.lag(bounds))));
    let mut text = String::new();
    let help = "Events after the cursor of a group and lanes that were set aside, by group";
    write_metric(&mut text, "ensue_group_lag", "gauge", help, by_label("group", lags));
    text
}

/// Counts a request and measures how long its answer took to begin.
pub(super) async fn measure(request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = method(request.method());
    // The template, never the path itself: paths have objects and ids in them, without end.
    let path = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    Answered { method, path, status: response.status() }.count(began.elapsed());
    response
}

/// What is counted together. There are few: methods and templates are known ones.
#[derive(Debug, Clone)]
struct Answered {
    method: &'static str,
    path: Option<MatchedPath>,
    status: StatusCode,
}

/// Where it is counted.
struct Figures {
    seconds: Histogram,
    requests: Counter,
}

impl Answered {
    fn path(&self) -> &str {
        self.path.as_ref().map_or("unknown", MatchedPath::as_str)
    }

    /// The figures are found by their labels once and kept: to make and look up the labels anew takes a dozen allocations.
    fn count(self, took: Duration) {
        static KEPT: LazyLock<RwLock<HashMap<Answered, Figures>>> = LazyLock::new(RwLock::default);
        if let Some(figures) = KEPT.read().unwrap_or_else(PoisonError::into_inner).get(&self) {
            return figures.add(took);
        }
        let mut kept = KEPT.write().unwrap_or_else(PoisonError::into_inner);
        kept.entry(self).or_insert_with_key(Figures::of).add(took);
    }
}

impl PartialEq for Answered {
    fn eq(&self, other: &Self) -> bool {
        (self.status, self.method, self.path()) == (other.status, other.method, other.path())
    }
}

impl Eq for Answered {}

impl Hash for Answered {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.status, self.method, self.path()).hash(state);
    }
}

impl Figures {
    fn of(answered: &Answered) -> Self {
        let (method, path) = (answered.method, answered.path().to_string());
        let status = answered.status.as_str().to_string();
        Self {
            seconds: metrics::histogram!("ensue_http_seconds", "method" => method, "path" => path.clone()),
            requests: metrics::counter!("ensue_http_requests_total", "method" => method, "path" => path, "status" => status),
        }
    }

    fn add(&self, took: Duration) {
        self.seconds.record(took);
        self.requests.increment(1);
    }
}

/// Counts something in a gauge while it lives.
pub(super) struct Counted(&'static str);

impl Counted {
    pub fn new(gauge: &'static str) -> Self {
        metrics::gauge!(gauge).increment(1);
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        metrics::gauge!(self.0).decrement(1);
    }
}

/// Anybody can invent methods; only the known ones are counted by name.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "OTHER",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_past_the_limit_of_labels_add_up_under_other() {
        let many = |count: usize| (0..count).map(|n| (format!("g{n:04}"), 1_000_000 - n as u64));
        assert!(!folded(many(LABELS_MAX)).contains_key(OTHER));
        let folded_many = folded(many(LABELS_MAX + 3).chain([(OTHER.to_owned(), 5_000_000)]));
        assert_eq!(folded_many.len(), LABELS_MAX);
        let small: u64 = (0..4).map(|n| 1_000_000 - (LABELS_MAX as u64 - 1 + n)).sum();
        assert_eq!(folded_many[OTHER], 5_000_000 + small, "a group that is named `other` has the same series");
    }
}
