//! How is an event sent to a URL?
//!
//! As a POST of the JSON that `GET /v1/events/{seq}` shows, with the task beside it if it is for one; with `format:
//! cloudevents` as a CloudEvent. An answer of 2xx is success. `webhook-id` is the same however
//! often an event is sent to a handler's URL, so that a receiver can tell a repetition (H18).

use super::authorities::{self, Authorities};
use super::guard::Guard;
use super::input;
use crate::config::handlers::{WebhookAnswer, WebhookFormat};
use crate::config::handlers_check::WebhookTarget;
use crate::http::cloudevents_out::{self, CloudEvent};
use crate::http::sends::{SENT_BYTES_MAX, Sends};
use ensue::{Context, Event, HandlerError, Outcome, Timestamp};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a delivery may take unless told.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a receiver may take to take a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How much of a refusal is told.
const BODY_TOLD_MAX: usize = 500;
/// Bytes of `Location` that an error keeps.
const LOCATION_TOLD_MAX: usize = 200;
/// The longest that a receiver may ask us to wait.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3_600);

/// A URL that events are sent to.
#[derive(Debug)]
pub(super) struct Webhook {
    target: WebhookTarget,
    client: Client,
}

/// What is wrong with a URL, if it cannot be one that events are sent to.
pub fn check_url(url: &Url, guard: &Guard) -> Result<(), String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("begins with `{}:`: write a URL that begins with https:// or http://", url.scheme()));
    }
    // An address is dialled as it is, without being looked up.
    let host = url.host_str().ok_or("names no host: write a URL such as https://example.com/hook")?;
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => guard.check(address).map_err(|reason| format!("is not allowed: {reason}")),
        Err(_) => Ok(()),
    }
}

impl Webhook {
    pub fn new(target: &WebhookTarget, guard: &Guard, trusted: &Authorities) -> Result<Self, String> {
        check_url(&target.url, guard)?;
        let client = Client::builder()
            .dns_resolver(Arc::new(guard.clone()))
            .redirect(redirect::Policy::none())
            // A proxy would dial whatever it likes.
            .no_proxy()
            .tls_certs_merge(trusted.certificates())
            .connect_timeout(CONNECT_MAX)
            .user_agent(concat!("ensue/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| format!("cannot be set up: {}", root_cause(&error)))?;
        Ok(Self { target: target.clone(), client })
    }

    /// Sends one event.
    pub async fn run(&self, event: Event, cx: &Context) -> Result<Outcome, HandlerError> {
        let (media_type, body) = match self.target.format {
            WebhookFormat::Json => ("application/json", input(&event, cx)?),
            WebhookFormat::CloudEvents => (cloudevents_out::ONE, serde_json::to_vec(&CloudEvent::from(&event))?),
        };
        let headers = headers(&event, cx, media_type);
        let request = self.client.post(self.target.url.clone()).headers(headers).body(body);
        let attempt = async {
            let response = request.send().await.map_err(|error| {
                let host = self.target.url.host_str().unwrap_or_default();
                let error = error.without_url();
                let why = authorities::refusal(&error).unwrap_or_else(|| root_cause(&error));
                HandlerError::failed(format!("{host} could not be reached: {why}"))
            })?;
            judge(response, self.target.answer, cx).await
        };
        let timeout = cx.timeout().unwrap_or(TIMEOUT);
        tokio::select! {
            answer = tokio::time::timeout(timeout, attempt) => answer.unwrap_or_else(|_| {
                let error = format!("the receiver took longer than the timeout of {timeout:?}");
                Err(HandlerError::failed(error))
            }),
            // When the process stops, what is under way may come to its end.
            () = cx.called_off() => {
                Ok(Outcome::Cancel("it was called off, and its request was given up; the receiver may have done it".into()))
            }
        }
    }
}

fn headers(event: &Event, cx: &Context, media_type: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    let values = [
        ("webhook-id", format!("{}.{}", event.id, cx.handler())),
        ("webhook-timestamp", Timestamp::now().as_second().to_string()),
        ("ensue-handler", cx.handler().to_owned()),
        ("ensue-attempt", cx.attempt().to_string()),
        ("ensue-redriven", u8::from(cx.redriven()).to_string()),
        ("ensue-fence", cx.fence().to_string()),
    ];
    let claim = cx.claim().map(|claim| ("ensue-claim", claim.to_string()));
    for (name, value) in values.into_iter().chain(claim) {
        // A key has no character that a header could not.
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            headers.insert(name, value);
        }
    }
    headers
}

async fn judge(mut response: Response, answer: WebhookAnswer, cx: &Context) -> Result<Outcome, HandlerError> {
    let status = response.status();
    if status.is_success() {
        return match answer {
            WebhookAnswer::Ignore => Ok(Outcome::Done),
            WebhookAnswer::Send => send(response, cx).await.map(|()| Outcome::Done),
        };
    }
    if status.is_redirection() {
        let to = response.headers().get(LOCATION).map_or(String::new(), |to| {
            let shown = &to.as_bytes()[..to.len().min(LOCATION_TOLD_MAX)];
            format!(" to {}", String::from_utf8_lossy(shown))
        });
        let error = format!("it answered {status}{to}: redirects are not followed, write the final URL in `webhook`");
        return Err(HandlerError::failed(error));
    }
    let wait = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => retry_after(response.headers()),
        _ => None,
    };
    let mut told = Vec::new();
    while told.len() < BODY_TOLD_MAX
        && let Ok(Some(chunk)) = response.chunk().await
    {
        told.extend_from_slice(&chunk[..chunk.len().min(BODY_TOLD_MAX - told.len())]);
    }
    let told = String::from_utf8_lossy(&told);
    let error = match told.trim() {
        "" => format!("it answered {status}"),
        told => format!("it answered {status}: {told}"),
    };
    match (status, wait) {
        (StatusCode::GONE, _) => Err(HandlerError::permanent(error)),
        (_, Some(wait)) => Err(HandlerError::failed(error).retry_after(wait)),
        (_, None) => Err(HandlerError::failed(error)),
    }
}

/// Sends what a receiver's answer names, with the end of this attempt.
async fn send(mut response: Response, cx: &Context) -> Result<(), HandlerError> {
    let wrong = |reason: String| HandlerError::failed(format!("its answer cannot be sent, and nothing was: {reason}"));
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| wrong(root_cause(&error.without_url())))? {
        if answer.len() + chunk.len() > SENT_BYTES_MAX {
            return Err(wrong(format!("it is longer than {SENT_BYTES_MAX} bytes")));
        }
        answer.extend_from_slice(&chunk);
    }
    let text = String::from_utf8(answer).map_err(|_| wrong("it is not UTF-8".into()))?;
    let mut sends = Sends::default();
    sends.answer(&text).and_then(|()| sends.hand_over(cx)).map_err(wrong)
}

/// How long a receiver asks us to wait: seconds, or until a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
            Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default()
        }
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// What an error comes from: the rest only says that a request was sent.
fn root_cause(error: &dyn Error) -> String {
    let mut root = error;
    while let Some(cause) = root.source() {
        root = cause;
    }
    root.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(value: &str) -> Option<Duration> {
        retry_after(&HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(value).unwrap())]))
    }

    #[test]
    fn a_receiver_says_how_long_in_seconds_or_until_when() {
        assert_eq!(wait("120"), Some(Duration::from_secs(120)));
        assert_eq!(wait("999999999"), Some(RETRY_AFTER_MAX));
        assert_eq!(wait("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("Tue, 31 Dec 2999 23:59:59 GMT"), Some(RETRY_AFTER_MAX));
        assert_eq!(wait("soon"), None);
        assert_eq!(wait("-1"), None);
    }

    /// S3: an address in a URL is never looked up, however it is written.
    #[test]
    fn addresses_in_urls_are_looked_at_however_they_are_written() {
        let check = |url: &str| check_url(&Url::parse(url).unwrap(), &Guard::default());
        for bad in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:10.0.0.1]:80/",
            "https://user:pass@169.254.169.254/latest",
        ] {
            assert!(check(bad).unwrap_err().contains("allow_private"), "{bad}");
        }
        assert!(check("ftp://example.com/").unwrap_err().contains("https://"));
        assert_eq!(check("https://example.com/hook"), Ok(()));
        assert_eq!(check("https://8.8.8.8/hook"), Ok(()));
    }
}
