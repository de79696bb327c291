//! What does the server do, in figures?

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use ensue::jobs::{JobCount, JobQuery};
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
/// Of how many groups it is told how far they are behind.
const GROUPS_TOLD_MAX: usize = 1_000;
/// Of how many handlers and states it is told how many jobs they have.
const JOB_COUNTS_TOLD_MAX: usize = 1_000;
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

fn describe() {
    metrics::describe_counter!(
        "ensue_delivery_attempts_total",
        "Attempts of handlers that ended, by handler and outcome"
    );
    metrics::describe_counter!("ensue_http_requests_total", "Requests answered, by method, path and status");
    metrics::describe_histogram!("ensue_http_seconds", "Time until the answer began, by method and path");
    metrics::describe_gauge!("ensue_connections", "Connections that are open");
    metrics::describe_gauge!("ensue_streams", "Event streams that are open");
    metrics::describe_counter!(
        "ensue_condition_errors_total",
        "Events on which a condition failed, by group; reads and streams have none"
    );
    metrics::describe_gauge!("ensue_log_first_seq", "The oldest place of the log");
    metrics::describe_gauge!("ensue_log_last_seq", "The newest place of the log");
    metrics::describe_gauge!("ensue_pending_events", "Delayed events that wait for their time");
    metrics::describe_counter!("ensue_append_events_total", "Events that entered the log, by engine");
    metrics::describe_histogram!("ensue_append_batch_events", "Events in one commit, by engine");
    metrics::describe_histogram!("ensue_append_seconds", "Time of one commit, by engine");
    metrics::describe_gauge!("ensue_wal_bytes", "Size of SQLite's write-ahead log");
}

/// Notes how the log stands: asked of the store when somebody wants to know. A store that does not answer in time leaves
/// the figures as they were. What is known of each group is answered as text: a recorder keeps for ever what it was told
/// once, and groups come and go.
pub(super) async fn log(store: &SharedStore, time_max: Duration) -> String {
    let ask = async { (store.bounds().await, store.pending_count().await, store.groups().await) };
    let Ok((bounds, pending, groups)) = tokio::time::timeout(time_max, ask).await else { return String::new() };
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
    lags
}

/// How many jobs there are and how many rules: asked of the store when somebody wants to know, and answered as text as
/// what is known of groups is. A store that does not answer in time leaves them out.
pub(super) async fn jobs(store: &SharedStore, time_max: Duration) -> String {
    let ask = async { tokio::try_join!(store.job_counts(), store.rules(), store.now()) };
    let Ok(Ok((counts, rules, now))) = tokio::time::timeout(time_max, ask).await else { return String::new() };
    counted_jobs(counts) + &counted_rules(&rules, now)
}

/// What waits for somebody, by handler: asked and answered as that is. There may be very many: so many of each kind are counted.
pub(super) async fn held(store: &SharedStore, time_max: Duration) -> String {
    let holding = JobQuery { holding: true, ..JobQuery::default() };
    let stuck = LaneQuery::Stuck { group: None };
    let ask = async { tokio::try_join!(store.lanes(stuck, HELD_COUNTED_MAX), store.jobs(holding, HELD_COUNTED_MAX)) };
    let Ok(Ok((lanes, jobs))) = tokio::time::timeout(time_max, ask).await else { return String::new() };
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let handlers = lanes.iter().map(|row| &row.group).chain(jobs.jobs.iter().map(|job| &job.handler));
    for handler in handlers {
        *counts.entry(handler.as_str()).or_default() += 1;
    }
    let mut text = String::new();
    if !counts.is_empty() {
        text.push_str(&format!(
            "# HELP ensue_held Objects, events and jobs that wait for somebody, by handler; of {HELD_COUNTED_MAX} of each kind\n"
        ));
        text.push_str("# TYPE ensue_held gauge\n");
    }
    for (handler, count) in counts {
        text.push_str(&format!("ensue_held{{handler=\"{handler}\"}} {count}\n"));
    }
    text
}

/// How many jobs are in each state; of very many handlers those with the most.
fn counted_jobs(mut counts: Vec<JobCount>) -> String {
    counts.sort_by(|a, b| (Reverse(a.count), &a.handler, a.state).cmp(&(Reverse(b.count), &b.handler, b.state)));
    let mut text = String::new();
    if !counts.is_empty() {
        text.push_str("# HELP ensue_jobs Jobs that are not over, by handler and state as it is stored\n");
        text.push_str("# TYPE ensue_jobs gauge\n");
    }
    for JobCount { handler, state, count } in counts.into_iter().take(JOB_COUNTS_TOLD_MAX) {
        text.push_str(&format!("ensue_jobs{{handler=\"{handler}\",state=\"{}\"}} {count}\n", state.as_str()));
    }
    text
}

fn counted_rules(rules: &RuleSet, now: Timestamp) -> String {
    let rules = rules.rules();
    let mut text = String::from("# HELP ensue_rules Rules that hold something, by kind\n# TYPE ensue_rules gauge\n");
    for kind in [RuleKind::Pause, RuleKind::Block] {
        let count = rules.iter().filter(|rule| rule.kind == kind && rule.is_live(now)).count();
        text.push_str(&format!("ensue_rules{{kind=\"{}\"}} {count}\n", kind.as_str()));
    }
    text
}

/// How far the groups are behind; of very many those that are furthest.
fn lags(groups: &[GroupState], bounds: Bounds) -> String {
    let mut lags: Vec<(u64, &GroupState)> = groups.iter().map(|group| (group.lag(bounds), group)).collect();
    lags.sort_by_key(|(lag, group)| (Reverse(*lag), group.name.clone()));
    let mut text = String::new();
    if !lags.is_empty() {
        text.push_str("# HELP ensue_group_lag Events of the log that a group has not passed, by group\n");
        text.push_str("# TYPE ensue_group_lag gauge\n");
    }
    // A name has no character that would have to be escaped.
    for (lag, group) in lags.into_iter().take(GROUPS_TOLD_MAX) {
        text.push_str(&format!("ensue_group_lag{{group=\"{}\"}} {lag}\n", group.name));
    }
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
