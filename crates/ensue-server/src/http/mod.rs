//! How does Ensue speak HTTP?
//!
//! [`router`] mounts the API in any axum application; [`router_with`] is what `ensue serve` runs.
//!
//! | question | file |
//! |---|---|
//! | How does an event come in? | `publish.rs`, its body in `body.rs` and `cloudevents.rs`, a refused key in `conflict.rs` |
//! | How are events read, found and cancelled? | `events.rs`, as CloudEvents `cloudevents_out.rs`; the extent of the log `log.rs` |
//! | What happened to one object? | `objects.rs` |
//! | Which handlers are there, and what became of an event for each? | `handlers.rs`, `deliveries.rs` |
//! | How does a handler come, change and go while everything runs? | `handlers_defined.rs` |
//! | What stands still, and how is it brought back? | `held.rs` |
//! | How does a client follow the log? | `stream.rs` |
//! | How does a group come and go, say what it wants, and read? | `groups.rs`, `groups_subscriptions.rs`, `groups_read.rs`; its answers in `groups_shapes.rs` |
//! | How are jobs sent, found, called off and brought back? | `jobs.rs`, bodies in `jobs_body.rs` and `jobs_requests.rs`, answers in `jobs_shapes.rs` |
//! | How does a worker in any language get jobs, and say what became of them? | `jobs_claim.rs`, and who listens `jobs_logs.rs` |
//! | How is a collection brought up to date, and what became of its tasks? | `tasks.rs`, answers in `tasks_shapes.rs` |
//! | How is something paused, blocked and let go on? | `rules.rs` |
//! | How does something happen at a time, again and again? | `schedules.rs`, `schedules_shapes.rs` |
//! | Why is this not running? | `explain.rs` |
//! | What does a body say that is an object of a few fields? | `fields_body.rs` |
//! | How does a task hear that the server stops? | `stop.rs` |
//! | Is the server well, and what does it offer? | `system.rs` |
//! | Who may come in? | `tokens.rs`, and no page of another origin `cross_site.rs` |
//! | How many clients are served at once, and how long does the server wait for each? | `connections.rs`, `patience.rs` |
//! | Byte budgets of all connections | `byte_budget.rs`, for answers `answers.rs` |
//! | How does the server say no? | `problem.rs`, and to what is not even HTTP `polite.rs` |
//! | What does the query ask for? | `query.rs`, `text.rs` |
//! | What do answers look like? | `shapes.rs`, `responses.rs` |
//! | Parts of the OpenAPI description that hold for many operations | `openapi.rs` |
//! | What does the server do, in figures? | `measure.rs` |

mod answers;
mod body;
mod byte_budget;
mod cloudevents;
pub(crate) mod cloudevents_out;
mod conflict;
mod connections;
mod cross_site;
pub(crate) mod deliveries;
mod events;
pub(crate) mod explain;
mod fields_body;
mod groups;
mod groups_read;
pub(crate) mod groups_shapes;
mod groups_subscriptions;
pub(crate) mod handlers;
pub(crate) mod handlers_defined;
pub(crate) mod held;
mod jobs;
mod jobs_body;
mod jobs_claim;
mod jobs_complete;
mod jobs_logs;
mod jobs_requests;
pub(crate) mod jobs_shapes;
mod log;
mod measure;
mod objects;
mod openapi;
mod patience;
mod polite;
pub(crate) mod problem;
mod publish;
mod query;
mod responses;
pub(crate) mod rules;
pub(crate) mod schedules;
pub(crate) mod schedules_shapes;
pub(crate) mod sends;
pub(crate) mod shapes;
mod stop;
mod stream;
mod system;
mod tasks;
pub(crate) mod tasks_shapes;
mod text;
mod tokens;

pub(crate) use events::beyond_end;
pub(crate) use jobs::could_be;
pub(crate) use stream::{CONDITION_FAILED, condition_failed};

pub use byte_budget::{BUDGET_BYTES_MAX, ByteBudget};
pub use connections::{CONNECTIONS_MAX, ConnectionLimits, serve};
pub use cross_site::Hosts;
pub use measure::recorder;
pub use patience::Patience;
pub use tokens::Tokens;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::handler::Handler;
use axum::middleware::{from_fn, from_fn_with_state};
use cross_site::SameSite;
use ensue::Ensue;
use metrics_exporter_prometheus::PrometheusHandle;
use problem::{Kind, Problem, ProblemBody};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::normalize_path::NormalizePath;
use tower_http::validate_request::ValidateRequestHeaderLayer;
use utoipa::OpenApi;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The largest body unless told.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// How long a body may stay away without a byte of it, unless told.
pub const BODY_SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long a body may take in all, unless told: 1 MiB over a line of 30 kbit/s.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(300);
/// How often a silent stream says that it is still there, unless told.
pub const HEARTBEAT: Duration = Duration::from_secs(15);

/// How the API behaves.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Who may come in; everybody unless told.
    pub tokens: Tokens,
    /// The names by which clients may address the server; any by default.
    pub hosts: Hosts,
    /// The largest body.
    pub body_bytes_max: usize,
    /// The bytes that the bodies of all requests hold together.
    pub body_budget: ByteBudget,
    /// The bytes of all answers that clients have not taken yet.
    pub answers_budget: ByteBudget,
    /// How long a body may stay away without a byte of it.
    pub body_silence_max: Duration,
    /// How long a body may take in all.
    pub body_time_max: Duration,
    /// How often a silent stream says that it is still there.
    pub heartbeat: Duration,
    /// Becomes true when the server stops: streams end at once, so that their connections can close.
    pub stop: watch::Receiver<bool>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        let never = watch::channel(false).1;
        Self {
            tokens: Tokens::default(),
            hosts: Hosts::any(),
            body_bytes_max: BODY_BYTES_MAX,
            body_budget: ByteBudget::default(),
            answers_budget: ByteBudget::default(),
            body_silence_max: BODY_SILENCE_MAX,
            body_time_max: BODY_TIME_MAX,
            heartbeat: HEARTBEAT,
            stop: never,
        }
    }
}

/// What every handler has at hand.
struct App {
    bus: Ensue,
    options: HttpOptions,
    recorder: &'static PrometheusHandle,
    openapi: Bytes,
}

/// The HTTP API of a bus, to be mounted in an axum application. It asks for no token: put it behind what guards the
/// application, or use [`router_with`]. Pages of other origins are refused. Against DNS rebinding, check `Host` in the
/// application, or set [`HttpOptions::hosts`].
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let bus = ensue::Ensue::open("ensue.db").await?;
/// let app = axum::Router::new().nest("/events", ensue_server::router(bus));
/// # Ok(()) }
/// ```
pub fn router(bus: Ensue) -> Router {
    router_with(bus, HttpOptions::default())
}

/// The HTTP API of a bus, with options.
pub fn router_with(bus: Ensue, options: HttpOptions) -> Router {
    let (guarded, mut description) = guarded().split_for_parts();
    let (open, open_description) = open().split_for_parts();
    description.merge(open_description);
    // The router's word for the rest of a path is not OpenAPI's.
    let paths = std::mem::take(&mut description.paths.paths);
    description.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    describe(&mut description);
    let openapi = openapi::complete(&description);
    let guard = from_fn_with_state(options.tokens.clone(), tokens::check);
    let same_site = ValidateRequestHeaderLayer::custom(SameSite::new(&options));
    let app = Arc::new(App { bus, options, recorder: recorder(), openapi });
    // The guard stands around the guarded routes and the fallback: who has no token does not learn which paths exist.
    let guarded = guarded.method_not_allowed_fallback(wrong_method);
    let guarded = match app.options.tokens.is_empty() {
        // A guard that lets everybody through would still cost every publish a little.
        true => guarded,
        false => guarded.layer(guard.clone()),
    };
    let routes = guarded.merge(open.method_not_allowed_fallback(wrong_method));
    let layered = |router: Router<Arc<App>>| {
        router
            .layer(same_site.clone())
            .layer(CatchPanicLayer::custom(problem::of_panic))
            .layer(from_fn_with_state(app.options.answers_budget.clone(), answers::bound))
            .layer(from_fn(measure::measure))
            .with_state(app.clone())
    };
    // A path that no route matches is tried again without its trailing slash. Only then: the scope of a rule is the rest of
    // its path, and may end with a slash.
    let without_slash = layered(routes.clone().fallback(unknown_path.layer(guard)));
    layered(routes).fallback_service(NormalizePath::trim_trailing_slash(without_slash))
}

/// The routes that need a token, if there are tokens.
fn guarded() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(publish::publish, events::list))
        .routes(routes!(stream::stream))
        .routes(routes!(log::show))
        .routes(routes!(events::show, events::cancel))
        .routes(routes!(objects::chain))
        .routes(routes!(deliveries::list))
        .routes(routes!(deliveries::logs))
        .routes(routes!(handlers::list))
        .routes(routes!(handlers_defined::show, handlers_defined::define, handlers_defined::undefine))
        .routes(routes!(held::list))
        .routes(routes!(held::retry_object))
        .routes(routes!(held::skip_object))
        .routes(routes!(held::retry_event))
        .routes(routes!(held::skip_event))
        .routes(routes!(groups::list))
        .routes(routes!(groups::create, groups::show, groups::delete))
        .routes(routes!(groups::seek))
        .routes(routes!(groups::replay))
        .routes(routes!(groups_subscriptions::subscribe, groups_subscriptions::list))
        .routes(routes!(groups_subscriptions::unsubscribe))
        .routes(routes!(groups_subscriptions::touch))
        .routes(routes!(groups_read::read))
        .routes(routes!(groups_read::commit))
        .routes(routes!(jobs::send, jobs::list))
        .routes(routes!(jobs::bulk))
        .routes(routes!(jobs_claim::claim))
        .routes(routes!(jobs_complete::complete_many))
        .routes(routes!(jobs::show))
        .routes(routes!(jobs_logs::logs))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::retry))
        .routes(routes!(jobs::skip))
        .routes(routes!(jobs_claim::renew))
        .routes(routes!(jobs_claim::complete))
        .routes(routes!(jobs_claim::fail))
        .routes(routes!(jobs_claim::snooze))
        .routes(routes!(jobs_claim::log))
        .routes(routes!(jobs_claim::progress))
        .routes(routes!(tasks::create, tasks::list))
        .routes(routes!(tasks::show))
        .routes(routes!(tasks::logs))
        .routes(routes!(tasks::cancel))
        .routes(routes!(rules::list))
        .routes(routes!(rules::set, rules::lift))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::show, schedules::put, schedules::delete))
        .routes(routes!(schedules::run))
        .routes(routes!(schedules::runs))
        .routes(routes!(explain::explain))
        .routes(routes!(system::metrics))
        .routes(routes!(system::openapi))
}

/// The routes that anybody may ask.
fn open() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(system::health)).routes(routes!(system::ready))
}

/// What the routes themselves do not say about the API.
fn describe(description: &mut utoipa::openapi::OpenApi) {
    #[derive(OpenApi)]
    #[openapi(
        info(
            title = "Ensue",
            description = "Things that happen after other things, durably and in order. Every refusal is \
                application/problem+json: 400 where the request cannot be read, 422 where it says something impossible. \
                Before a request has reached its route, any path may answer 400 (not HTTP/1.1), 405 (another method), \
                408 (the head did not come in time), 414 (the path is too long) or 431 (the headers are too large). \
                503 with `Retry-After` refuses a read while clients that do not take their answers fill the memory for \
                answers. \
                403 refuses a page of another origin (`Origin`, `Sec-Fetch-Site`), and 421 a `Host` that is no name of a \
                server without tokens. Every POST, PUT and DELETE needs `Content-Type: application/json` (or another type \
                that its body may have), also without a body, or `Authorization: Bearer`, or the header \
                `X-Requested-With`: a web form sends none of them. It is answered 415 otherwise. \
                A field that is null counts as left out."
        ),
        components(schemas(ProblemBody))
    )]
    struct Ensue;

    let mut base = Ensue::openapi();
    base.merge(std::mem::take(description));
    let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    let components = base.components.get_or_insert_default();
    components.add_security_scheme("token", scheme);
    let admin = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new(tokens::ADMIN_HEADER)));
    components.add_security_scheme("admin_token", admin);
    responses::describe(components);
    base.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>("token", [])]);
    *description = base;
}

async fn unknown_path() -> Problem {
    Problem::not_found("there is nothing at this path; /openapi.json lists what there is")
}

async fn wrong_method(request: Request) -> Problem {
    let detail = format!(
        "{} is not possible at this path; the header `allow` says what is, /openapi.json describes it",
        request.method()
    );
    Problem::new(Kind::MethodNotAllowed, detail)
}
