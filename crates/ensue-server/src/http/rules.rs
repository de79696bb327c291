//! How is something paused, blocked and let go on?

use super::App;
use super::fields_body::FieldsBody;
use super::problem::Problem;
use super::query::NoQuery;
use super::responses::{BadRequest, BodyProblems, DiskFull, StoreProblems};
use super::shapes;
use super::tokens::{Author, LOCAL};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{Extensions, StatusCode};
use axum::response::Response;
use ensue::rules::{NewRule, Rule, RuleKind, RuleSet, Scope, warning_of};
use ensue::{Ensue, Timestamp};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;
use uuid::Uuid;

/// A rule.
#[derive(Serialize, ToSchema)]
#[schema(as = Rule)]
pub(crate) struct RuleShape<'a> {
    #[schema(value_type = String, format = "uuid")]
    id: Uuid,
    /// `pause` (a user's) or `block` (an operator's).
    kind: &'static str,
    /// `handler:KEY`, `object:KEY` or `schedule:NAME`.
    scope: String,
    /// Why.
    #[schema(required = true)]
    reason: Option<&'a str>,
    /// Who set it: the name of the token, or `local` where no token is needed.
    author: &'a str,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it lifts itself; null if it stays.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    expires_at: Option<Timestamp>,
}

/// A rule that was set.
#[derive(Serialize, ToSchema)]
#[schema(as = SetRuleAnswer)]
pub(crate) struct RuleSetShape<'a> {
    #[serde(flatten)]
    rule: RuleShape<'a>,
    /// Says that nothing has this key yet, so that it may be mistyped; null if something has.
    #[schema(required = true)]
    warning: Option<String>,
}

impl<'a> RuleSetShape<'a> {
    /// The rule, with a warning if its scope names nothing. The rule is set: if the store does not tell
    /// what there is, there is no warning.
    pub async fn of(bus: &Ensue, rule: &'a Rule) -> Self {
        let names_nothing = bus.names_nothing(&rule.scope).await.unwrap_or(false);
        Self { rule: rule.into(), warning: names_nothing.then(|| warning_of(&rule.scope)) }
    }
}

/// The outcome of lifting a rule.
#[derive(Serialize, ToSchema)]
#[schema(as = LiftedRule)]
pub(crate) struct LiftedShape<'a> {
    /// Was there such a rule?
    lifted: bool,
    /// The rule as it was; null if there was none.
    #[schema(required = true)]
    rule: Option<RuleShape<'a>>,
}

impl<'a> From<Option<&'a Rule>> for LiftedShape<'a> {
    fn from(rule: Option<&'a Rule>) -> Self {
        Self { lifted: rule.is_some(), rule: rule.map(RuleShape::from) }
    }
}

impl<'a> From<&'a Rule> for RuleShape<'a> {
    fn from(rule: &'a Rule) -> Self {
        Self {
            id: rule.id,
            kind: rule.kind.as_str(),
            scope: rule.scope.to_string(),
            reason: rule.reason.as_deref(),
            author: &rule.author,
            created_at: rule.created_at,
            expires_at: rule.expires_at,
        }
    }
}

/// The rules that hold something now, by scope and kind.
#[derive(Serialize, ToSchema)]
#[schema(as = Rules)]
pub(crate) struct RulesShape<'a> {
    rules: Vec<RuleShape<'a>>,
}

impl<'a> RulesShape<'a> {
    pub fn at(rules: &'a RuleSet, now: Timestamp) -> Self {
        Self { rules: rules.rules().into_iter().filter(|rule| rule.is_live(now)).map(RuleShape::from).collect() }
    }
}

/// Why, and for how long. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = SetRule)]
#[expect(dead_code, reason = "describes what `fields_body.rs` reads by hand")]
pub(super) struct SetRuleShape {
    /// For whoever looks at what stands still.
    #[schema(max_length = 4096)]
    reason: Option<String>,
    /// When it lifts itself; it stays unless told.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    /// The same as a length of time from now on, such as `10m`.
    expires_in: Option<String>,
}

/// What the path names: a kind, and a scope that may have slashes in it.
type Named = Result<Path<(String, String)>, PathRejection>;

fn named(path: Named) -> Result<(RuleKind, Scope), Problem> {
    let unreadable = |_| Problem::bad_request("scope", "in the path is not UTF-8; percent-encode it as UTF-8");
    let Path((kind, scope)) = path.map_err(unreadable)?;
    let Some(kind) = RuleKind::parse(&kind) else {
        return Err(Problem::bad_request("kind", "in the path must be `pause` or `block`"));
    };
    let scope = Scope::parse(&scope).map_err(Problem::of_request)?;
    Ok((kind, scope))
}

fn author(extensions: &Extensions) -> String {
    extensions.get::<Author>().map_or_else(|| LOCAL.to_owned(), |Author(name)| name.to_string())
}

/// Lists the rules
///
/// Those that hold something now. What was set, changed and lifted before is in the log, as `ensue.rule.set` and
/// `ensue.rule.lifted`.
#[utoipa::path(
    get,
    path = "/v1/rules",
    operation_id = "list_rules",
    tag = "rules",
    responses(
        (status = 200, description = "All of them", body = RulesShape),
        BadRequest,
        StoreProblems,
    )
)]
pub(super) async fn list(State(app): State<Arc<App>>, _: NoQuery) -> Result<Response, Problem> {
    let (rules, now) = (app.bus.rules().await?, app.bus.store().now().await?);
    Ok(shapes::json(StatusCode::OK, &RulesShape::at(&rules, now)))
}

/// Pauses or blocks something
///
/// A handler and all whose keys are below its own (`handler:KEY`), an object whoever handles it (`object:KEY`), or a
/// schedule (`schedule:NAME`). The answer comes when nothing more will start, in any process; what runs goes on to its end.
/// Both kinds coexist, and lift separately. Set again, a rule has a new reason, author and expiry. A rule
/// on a key that nothing has yet is set, too; its `warning` says so.
#[utoipa::path(
    put,
    path = "/v1/rules/{kind}/{*scope}",
    operation_id = "set_rule",
    tag = "rules",
    params(
        ("kind" = String, Path, description = "`pause` or `block`"),
        ("scope" = String, Path, description = "`handler:KEY`, `object:KEY` or `schedule:NAME`; slashes may stand as they are"),
    ),
    request_body(content = SetRuleShape, description = "May be left out"),
    responses(
        (status = 201, description = "It is new, and nothing more will start", body = RuleSetShape),
        (status = 200, description = "It was there, and is as told now", body = RuleSetShape),
        BodyProblems,
    )
)]
pub(super) async fn set(
    State(app): State<Arc<App>>,
    path: Named,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let (kind, scope) = named(path)?;
    let author = author(request.extensions());
    let body = FieldsBody::take(request, &app.options, &["reason", "expires_at", "expires_in"]).await?;
    let fields = body.fields()?;
    let expires_at = match (fields.time("expires_at")?, fields.span("expires_in")?) {
        (Some(_), Some(_)) => {
            return Err(Problem::invalid("expires_in", "stands beside `expires_at`: leave one of them out"));
        }
        (at, None) => at,
        (None, Some(span)) => {
            let at = app.bus.store().now().await?.checked_add(span);
            Some(at.map_err(|_| Problem::invalid("expires_in", "is too long; leave it out for a rule that stays"))?)
        }
    };
    let rule = NewRule { kind, scope, reason: fields.text("reason")?, author, expires_at };
    let (rule, is_new) = app.bus.set_rule(rule).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(shapes::json(status, &RuleSetShape::of(&app.bus, &rule).await))
}

/// Lifts a rule
///
/// Everything that waited for it runs, however much that is. If there is no such rule, nothing changes and
/// `lifted` is false: a repeat succeeds.
#[utoipa::path(
    delete,
    path = "/v1/rules/{kind}/{*scope}",
    operation_id = "lift_rule",
    tag = "rules",
    params(
        ("kind" = String, Path, description = "`pause` or `block`"),
        ("scope" = String, Path, description = "`handler:KEY`, `object:KEY` or `schedule:NAME`; slashes may stand as they are"),
    ),
    responses(
        (status = 200, description = "The rule as it was, if there was one", body = LiftedShape),
        BadRequest,
        DiskFull,
        StoreProblems,
    )
)]
pub(super) async fn lift(
    State(app): State<Arc<App>>,
    path: Named,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let (kind, scope) = named(path)?;
    let rule = app.bus.lift_rule(kind, &scope, &author(request.extensions())).await?;
    Ok(shapes::json(StatusCode::OK, &LiftedShape::from(rule.as_ref())))
}
