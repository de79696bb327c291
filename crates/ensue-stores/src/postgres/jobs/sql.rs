//! Which SQL keeps jobs and rules?

use super::super::schema::Schema;

/// What is told of a job, in the order in which [`job_at`](super::row::job_at) reads it, with the types of a function's
/// answer.
pub(super) const COLUMNS: [(&str, &str); 33] = [
    ("number", "bigint"),
    ("stamp", "bigint"),
    ("rank", "bigint"),
    ("turn", "bigint"),
    ("fence", "bigint"),
    ("enqueued_at", "timestamptz"),
    ("not_before", "timestamptz"),
    ("locked_at", "timestamptz"),
    ("started_at", "timestamptz"),
    ("finished_at", "timestamptz"),
    ("lease_until", "timestamptz"),
    ("event_seq", "bigint"),
    ("event_prev", "bigint"),
    ("event_id", "uuid"),
    ("attempts", "int"),
    ("attempts_max", "int"),
    ("ordered", "boolean"),
    ("cancel_asked", "boolean"),
    ("redriven", "boolean"),
    ("state", "text"),
    ("on_exhausted", "text"),
    ("handler", "text"),
    ("object", "text"),
    ("unique_key", "text"),
    ("worker", "text"),
    ("event_topic", "text"),
    ("payload", "text"),
    ("metadata", "text"),
    ("result", "text"),
    ("error_attempts", "int[]"),
    ("error_times", "timestamptz[]"),
    ("error_texts", "text[]"),
    ("settled", "text"),
];

/// The columns of a job in a table or alias `j`.
pub(in super::super) fn columns_of_j() -> String {
    COLUMNS.map(|(name, _)| format!("j.{name}")).join(", ")
}

/// The columns of a job as a function's answer.
pub(in super::super) fn columns_with_types() -> String {
    COLUMNS.map(|(name, kind)| format!("{name} {kind}")).join(", ")
}

/// The statements of the verbs of `Jobs` and `Rules`, for one schema.
#[derive(Debug)]
pub(in super::super) struct JobsSql {
    pub enqueue: String,
    pub send_alike: String,
    pub send_in: String,
    /// By an injected clock, $11.
    pub send_in_at: String,
    pub claim: String,
    pub enqueue_and_claim: String,
    pub renew: String,
    pub succeed: String,
    pub succeeded: String,
    pub settle: String,
    pub say: String,
    pub wake: String,
    pub steer: String,
    pub job: String,
    pub jobs: String,
    pub jobs_of_object: String,
    pub jobs_holding: String,
    pub predecessor: String,
    pub lines: String,
    pub counts: String,
    pub serve: String,
    pub servers: String,
    pub purge: String,
    pub rules: String,
    pub rules_version: String,
    pub rule_set: String,
    pub rules_lift: String,
    pub rules_report: String,
    pub rules_awaited: String,
}

/// What a job must be to be on a page: in one of the states $4, if they are given, of the handler $5 or below it, of the object
/// $6, and from the event $7.
const WANTED: &str = "($4::text[] IS NULL OR j.state = ANY ($4)) \
                      AND ($5::text IS NULL OR j.handler = $5 OR starts_with(j.handler, $5 || '.')) \
                      AND ($6::text IS NULL OR j.object = $6) AND ($7::bigint IS NULL OR j.event_seq = $7)";

impl JobsSql {
    pub fn of(schema: &Schema) -> Self {
        let sql = |template: &str| schema.fill(template);
        // A page: `last` is the last job that is looked at, if there are more behind it; `before` the job before each.
        let page = |scanned: &str| {
            sql(&format!(
                "SELECT s.last, s.beyond, (SELECT b.number FROM {{schema}}.jobs b WHERE b.number < j.number \
                 ORDER BY b.number DESC LIMIT 1), {{job_j}} \
                 FROM (SELECT ({scanned} OFFSET $2::bigint - 1 LIMIT 1) AS last, ({scanned} OFFSET $2::bigint LIMIT 1) AS beyond) s \
                 LEFT JOIN LATERAL (SELECT * FROM {{schema}}.jobs j WHERE j.number > $1 \
                 AND (s.beyond IS NULL OR j.number <= s.last) AND {WANTED} \
                 ORDER BY j.number LIMIT $3::bigint + 1) j ON true ORDER BY j.number"
            ))
        };
        let send_in = |send: &str| sql(&include_str!("../sql/jobs_send_in.sql").replace("{send}(", send));
        Self {
            send_in: send_in("{schema}.enqueue("),
            send_in_at: send_in("{schema}.jobs_send($11, "),
            // Others are woken in the same commit, if $19 says that there are some.
            enqueue: sql(
                "SELECT e.*, CASE WHEN $19 THEN {schema}.outbox_ring() END FROM {schema}.jobs_enqueue($1, $2, $3, $4, $5, $6, $7, \
                 $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) e",
            ),
            // They are woken here if $9 says so.
            send_alike: sql(
                "SELECT e.*, CASE WHEN $9 THEN {schema}.outbox_ring() END FROM {schema}.jobs_send_alike($1, $2, $3, $4, $5, $6, $7, $8) e",
            ),
            claim: sql(include_str!("../sql/jobs_fetch.sql")),
            enqueue_and_claim: sql(include_str!("../sql/jobs_enqueue_and_fetch.sql")),
            renew: sql(&function("jobs_renew", 5)),
            succeed: sql(&function("jobs_succeed", 6)),
            succeeded: sql("SELECT j.number FROM {schema}.jobs j \
                 WHERE j.number = ANY ($1) AND j.call = $2 AND coalesce(j.state, '') = 'succeeded'"),
            settle: sql(&function_and_ring("jobs_settle", 49, "f.o_ready_handlers IS NOT NULL")),
            say: sql(&function("job_say", 9)),
            wake: sql(&function("jobs_wake", 3)),
            steer: sql(&function_and_ring("jobs_steer", 7, "true")),
            job: sql("SELECT {job_j} FROM {schema}.jobs j WHERE j.number = $1 AND j.stamp = $2"),
            jobs: page("SELECT x.number FROM {schema}.jobs x WHERE x.number > $1 ORDER BY x.number"),
            jobs_of_object: page(
                "SELECT x.number FROM {schema}.jobs x WHERE x.object || '' = $6 AND x.object IS NOT NULL AND x.number > $1 ORDER BY x.number",
            ),
            // Few of many: found among those that died. $2, how far a page looks, is of no interest there.
            jobs_holding: sql(&format!(
                "SELECT NULL::bigint, nullif($2::bigint, $2), lag(j.number) OVER (ORDER BY j.number), {{job_j}} \
                 FROM {{schema}}.jobs j WHERE j.state = 'dead' AND j.turn IS NOT NULL AND j.number > $1 AND {WANTED} \
                 ORDER BY j.number LIMIT $3::bigint + 1"
            )),
            predecessor: sql(include_str!("../sql/job_predecessor.sql")),
            lines: sql("SELECT l.line, l.attempt, l.at, l.level, l.message FROM {schema}.jobs j \
                 JOIN {schema}.job_lines l ON l.number = j.number \
                 WHERE j.number = $1 AND j.stamp = $2 AND l.line > $3 ORDER BY l.line LIMIT $4"),
            counts: sql(include_str!("../sql/job_counts.sql")),
            serve: sql(
                "SELECT {schema}.jobs_served($3::text[], coalesce($1::timestamptz, clock_timestamp()) + $2::bigint * interval '1 microsecond')",
            ),
            servers: sql("SELECT handler, until FROM {schema}.job_servers ORDER BY handler"),
            purge: sql(&function("jobs_purge", 4)),
            rules: sql(
                "SELECT s.version, r.kind, r.scope, r.id, r.reason, r.author, r.created_at, r.expires_at, r.set_by \
                 FROM {schema}.rules_state s LEFT JOIN {schema}.rules r ON true",
            ),
            rules_version: sql("SELECT version FROM {schema}.rules_state"),
            rule_set: sql(&function_and_ring("rule_set", 15, "true")),
            rules_lift: sql(&function_and_ring("rules_lift", 10, "true")),
            rules_report: sql(&function("rules_report", 2)),
            rules_awaited: sql("SELECT m.id, m.name, m.kind FROM {schema}.members m \
                 LEFT JOIN {schema}.rule_reports r ON r.member = m.id \
                 WHERE m.kind = 'handler' AND m.lease_until >= coalesce($1::timestamptz, clock_timestamp()) \
                 AND coalesce(r.version, -1) < $2 ORDER BY m.id"),
        }
    }
}

/// A call of a function with so many parameters.
fn function(name: &str, params: usize) -> String {
    let params: Vec<String> = (1..=params).map(|n| format!("${n}")).collect();
    format!("SELECT * FROM {{schema}}.{name}({})", params.join(", "))
}

/// The same, and others are woken in the same commit, if the last parameter says that there are some, and if there is something for them.
fn function_and_ring(name: &str, params: usize, is_for_others: &str) -> String {
    let call = function(name, params);
    let from = call.trim_start_matches("SELECT * ");
    format!(
        "SELECT f.*, CASE WHEN ${} AND {is_for_others} THEN {{schema}}.outbox_ring() END, {{logged}} AS logged {from} f",
        params + 1
    )
}
