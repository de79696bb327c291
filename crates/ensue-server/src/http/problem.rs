//! How does the server say no?
//!
//! Every refusal is `application/problem+json` (RFC 9457): what kind of fault it is, which field it is about, and what
//! to do. `type` is stable, for programs; `detail` is for people.
//!
//! One scheme of statuses: 400 where the request cannot be read (not JSON, a bad query, path or header), 422 where it
//! can be read and says something that cannot be stored.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ensue::{Error, Invalid, StoreError};
use serde::Serialize;
use std::borrow::Cow;

/// The media type of every refusal.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The kinds of fault, each with its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    NotJson,
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    TooSlow,
    KeyConflict,
    Conflict,
    AlreadyLogged,
    TooLarge,
    Misdirected,
    UriTooLong,
    UnsupportedMediaType,
    Invalid,
    HeadersTooLarge,
    Internal,
    Unavailable,
    Overloaded,
    InDoubt,
    Full,
}

impl Kind {
    fn status(self) -> StatusCode {
        match self {
            Kind::NotJson | Kind::BadRequest => StatusCode::BAD_REQUEST,
            Kind::Unauthorized => StatusCode::UNAUTHORIZED,
            Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Kind::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Kind::KeyConflict | Kind::Conflict | Kind::AlreadyLogged => StatusCode::CONFLICT,
            Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::UriTooLong => StatusCode::URI_TOO_LONG,
            Kind::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Kind::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Kind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Kind::Unavailable | Kind::Overloaded | Kind::InDoubt => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Full => StatusCode::INSUFFICIENT_STORAGE,
        }
    }

    fn uri(self) -> &'static str {
        match self {
            Kind::NotJson => "urn:ensue:problem:not-json",
            Kind::BadRequest => "urn:ensue:problem:bad-request",
            Kind::Unauthorized => "urn:ensue:problem:unauthorized",
            Kind::Forbidden => "urn:ensue:problem:cross-origin",
            Kind::Misdirected => "urn:ensue:problem:unknown-host",
            Kind::NotFound => "urn:ensue:problem:not-found",
            Kind::MethodNotAllowed => "urn:ensue:problem:method-not-allowed",
            Kind::TooSlow => "urn:ensue:problem:too-slow",
            Kind::KeyConflict => "urn:ensue:problem:key-conflict",
            Kind::Conflict => "urn:ensue:problem:conflict",
            Kind::AlreadyLogged => "urn:ensue:problem:already-logged",
            Kind::TooLarge => "urn:ensue:problem:too-large",
            Kind::UriTooLong => "urn:ensue:problem:path-too-long",
            Kind::HeadersTooLarge => "urn:ensue:problem:headers-too-large",
            Kind::UnsupportedMediaType => "urn:ensue:problem:unsupported-media-type",
            Kind::Invalid => "urn:ensue:problem:invalid",
            Kind::Internal => "urn:ensue:problem:internal",
            Kind::Unavailable => "urn:ensue:problem:unavailable",
            Kind::Overloaded => "urn:ensue:problem:overloaded",
            Kind::InDoubt => "urn:ensue:problem:in-doubt",
            Kind::Full => "urn:ensue:problem:disk-full",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Kind::NotJson => "Not JSON",
            Kind::BadRequest => "The request cannot be read",
            Kind::Unauthorized => "A token is needed",
            Kind::Forbidden => "Cross-origin request refused",
            Kind::Misdirected => "Unknown host",
            Kind::NotFound => "Not found",
            Kind::MethodNotAllowed => "Method not allowed",
            Kind::TooSlow => "The request did not come in time",
            Kind::KeyConflict => "The key was used for another event",
            Kind::Conflict => "This does not go with what is there",
            Kind::AlreadyLogged => "The event is already in the log",
            Kind::TooLarge => "The body is too large",
            Kind::UriTooLong => "The path is too long",
            Kind::HeadersTooLarge => "The headers are too large",
            Kind::UnsupportedMediaType => "This content type is not understood",
            Kind::Invalid => "Invalid input",
            Kind::Internal => "The server failed",
            Kind::Unavailable => "The store cannot be reached right now",
            Kind::Overloaded => "Server overloaded",
            Kind::InDoubt => "Whether it was done is not known",
            Kind::Full => "The disk is full",
        }
    }
}

/// A refusal.
#[derive(Debug)]
pub(crate) struct Problem {
    kind: Kind,
    detail: String,
    field: Option<String>,
    retry_after_seconds: Option<u32>,
}

/// Why a request was refused, and what to do.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemBody<'a> {
    /// Which kind of fault it is: stable, for programs.
    #[schema(value_type = String, format = "uri", example = "urn:ensue:problem:invalid")]
    r#type: &'static str,
    /// The kind in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What is wrong with this request, and what to do.
    #[schema(example = "`events[3].topic` is empty; write dotted segments such as `order.paid`")]
    detail: &'a str,
    /// The field, parameter or header in question.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    field: Option<&'a str>,
}

impl Problem {
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), field: None, retry_after_seconds: None }
    }

    /// A refusal of one field, parameter or header; `reason` reads on from its name.
    pub fn field(kind: Kind, field: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        let field = field.into();
        Self { detail: format!("`{field}` {reason}"), field: Some(field), kind, retry_after_seconds: None }
    }

    /// A well-formed field that says something impossible.
    pub fn invalid(field: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::field(Kind::Invalid, field, reason)
    }

    /// A part of the request, other than its body, that cannot be read.
    pub fn bad_request(field: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::field(Kind::BadRequest, field, reason)
    }

    /// The same, of something that the core has refused.
    pub fn of_request(invalid: ensue::Invalid) -> Self {
        Self::bad_request(invalid.field, invalid.reason)
    }

    /// A body for which there is no room now.
    pub fn overloaded(reason: impl std::fmt::Display) -> Self {
        Self { retry_after_seconds: Some(1), ..Self::field(Kind::Overloaded, "body", reason) }
    }

    /// A request that finds no room now.
    pub fn busy(detail: impl Into<String>) -> Self {
        Self { retry_after_seconds: Some(1), ..Self::new(Kind::Overloaded, detail) }
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, detail)
    }

    /// The same refusal with the field called as the sender called it.
    pub fn rename(self, name: impl FnOnce(&str) -> Cow<'static, str>) -> Self {
        let is_of_the_event = matches!(self.kind, Kind::Invalid | Kind::NotJson | Kind::KeyConflict);
        let Some(field) = self.field.as_ref().filter(|_| is_of_the_event) else { return self };
        let (place, plain) = match field.rsplit_once("].") {
            Some((place, plain)) => (format!("{place}]."), plain),
            None => (String::new(), field.as_str()),
        };
        let renamed = format!("{place}{}", name(plain));
        let reason = self.detail.strip_prefix(&format!("`{field}`")).unwrap_or(&self.detail);
        Self { detail: format!("`{renamed}`{reason}"), field: Some(renamed), ..self }
    }

    /// The same refusal of a field inside this element of the body.
    pub fn within(self, place: &str) -> Self {
        let Some(field) = &self.field else { return self };
        let inside = format!("{place}.{field}");
        let reason = self.detail.strip_prefix(&format!("`{field}`")).unwrap_or(&self.detail);
        Self { detail: format!("`{inside}`{reason}"), field: Some(inside), ..self }
    }

    /// Is it about this field?
    pub fn is_about(&self, field: &str) -> bool {
        self.field.as_deref() == Some(field)
    }

    /// The type, title and status.
    pub fn kind(&self) -> (&'static str, &'static str, u16) {
        (self.kind.uri(), self.kind.title(), self.kind.status().as_u16())
    }

    /// The field, parameter or header in question.
    pub fn named_field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// What is wrong, and what to do.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        Self::invalid(invalid.field, invalid.reason)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let detail = error.to_string();
        match error {
            StoreError::Invalid(invalid) => invalid.into(),
            StoreError::KeyConflict { .. } => {
                Self { field: Some("key".into()), ..Self::new(Kind::KeyConflict, detail) }
            }
            StoreError::Conflict(_) => Self::new(Kind::Conflict, detail),
            StoreError::Overloaded(_) => Self::busy(detail),
            StoreError::Full(_) => Self::new(Kind::Full, detail),
            StoreError::Unavailable(_) => Self { retry_after_seconds: Some(1), ..Self::new(Kind::Unavailable, detail) },
            // Without Retry-After: a client that obeys it would send again what may be stored.
            StoreError::InDoubt(_) => Self::new(Kind::InDoubt, detail),
            StoreError::Closed | StoreError::Locked(_) | StoreError::Stopped(_) => Self::new(Kind::Unavailable, detail),
            StoreError::Unsupported(_) | StoreError::Schema(_) | StoreError::Engine(_) => {
                Self::new(Kind::Internal, detail)
            }
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(invalid) => invalid.into(),
            Error::Store(error) => error.into(),
            Error::NotFound(detail) => Self::not_found(detail),
            Error::Address(detail) => Self::new(Kind::Internal, detail),
        }
    }
}

impl Problem {
    /// The status and the body that are sent.
    pub fn into_parts(self) -> (StatusCode, Vec<u8>) {
        let status = self.kind.status();
        // An overload has many of these, and each one's cause is a client.
        if self.kind == Kind::Overloaded {
            tracing::debug!("request refused: {}", self.detail);
        } else if status.is_server_error() {
            tracing::error!(status = status.as_u16(), "a request failed: {}", self.detail);
        }
        let body = ProblemBody {
            r#type: self.kind.uri(),
            title: self.kind.title(),
            status: status.as_u16(),
            detail: &self.detail,
            field: self.field.as_deref(),
        };
        let mut body = serde_json::to_vec(&body).expect("text and numbers can always be written as JSON");
        body.push(b'\n');
        (status, body)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let retry_after_seconds = self.retry_after_seconds;
        let (status, body) = self.into_parts();
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        if let Some(seconds) = retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Answers in place of a handler that panicked. The panic itself is reported by the process's panic hook.
pub(super) fn of_panic(_panic: Box<dyn std::any::Any + Send>) -> Response {
    Problem::new(Kind::Internal, "the server failed while it handled this request; its log says more").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_error_has_the_status_that_says_what_to_do() {
        let text = || "x".to_string();
        for (error, status) in [
            (StoreError::KeyConflict { key: text() }, 409),
            (StoreError::Conflict(text()), 409),
            (StoreError::Invalid(Invalid::new("topic", "is bad")), 422),
            (StoreError::Overloaded(text()), 503),
            (StoreError::Full(text()), 507),
            (StoreError::Unavailable(text()), 503),
            (StoreError::InDoubt(text()), 503),
            (StoreError::Closed, 503),
            (StoreError::Locked(text()), 503),
            (StoreError::Stopped(text()), 503),
            (StoreError::Unsupported(text()), 500),
            (StoreError::Schema(text()), 500),
            (StoreError::Engine(text()), 500),
        ] {
            let retry = matches!(error, StoreError::Unavailable(_) | StoreError::Overloaded(_));
            let response = Problem::from(error).into_response();
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(response.headers()["content-type"], PROBLEM_JSON);
            assert_eq!(response.headers().contains_key("retry-after"), retry);
        }
    }

    #[test]
    fn a_renamed_field_keeps_its_place_in_the_batch() {
        let problem = Problem::invalid("events[3].topic", "is empty").rename(|name| format!("ce-{name}").into());
        assert_eq!(problem.detail(), "`events[3].ce-topic` is empty");
        let problem = Problem::invalid("topic", "is empty").rename(|_| "type".into());
        assert_eq!(problem.detail(), "`type` is empty");
    }
}
