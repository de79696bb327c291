//! How does a command talk to a running server?

use super::args::EventRef;
use super::failure::{Failure, Unreachable};
use super::publish::SyncAnswer;
use super::wire::{self, WireAppended};
use crate::config::redact::{redact, shown};
use crate::config::tokens::NamedToken;
use anyhow::{Context, anyhow, bail};
use ensue::event::Entry;
use ensue::{Appended, ChainPage, Direct, EventId, Found, NewestPage, ObjectKey, Pending, Selection, Seq, Wanted};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// More than the largest answer of a server, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How long a server may take to take a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a server may be silent in the middle of an answer; streams have heartbeats well within it.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A running server.
#[derive(Debug, Clone)]
pub struct Remote {
    base: Url,
    /// The address without credentials, for messages.
    shown: String,
    client: Client,
    token: Option<NamedToken>,
}

/// An entry as POST /v1/events takes it.
#[derive(Serialize)]
struct Body<'a> {
    topic: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'a str>,
    payload: &'a ensue::Json,
    metadata: &'a ensue::Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    occurred_at: Option<ensue::Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<ensue::Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

/// What is wanted as the parameters of a query.
fn wanted_query(Wanted { filter, condition, direct }: &Wanted) -> Vec<(&'static str, String)> {
    let topic = filter.topic.as_ref().map(|topic| ("topic", topic.to_string()));
    let object = filter.object.as_ref().map(|object| ("object", object.to_string()));
    let mut query: Vec<_> = topic.into_iter().chain(object).collect();
    match direct {
        Direct::Exclude => {}
        Direct::Include => query.push(("include", "direct".into())),
        Direct::To(id) => query.push(("subscription", id.to_string())),
    }
    if let Some(condition) = condition {
        query.push(("where", condition.source().to_string()));
        query.push(("params", condition.params().as_str().to_string()));
    }
    query
}

impl Remote {
    /// A server at an address; nothing is sent yet.
    pub fn new(url: &str, token: Option<NamedToken>) -> anyhow::Result<Self> {
        let wrong =
            || format!("`{}` is no address of a server: write one such as http://127.0.0.1:4747", redact(shown(url)));
        let base = Url::parse(url).with_context(wrong)?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            bail!(wrong());
        }
        let client = Client::builder()
            .connect_timeout(CONNECT_MAX)
            .read_timeout(SILENCE_MAX)
            // A proxy in the environment is not meant for a server on this machine.
            .no_proxy()
            .build()
            .context("cannot set up the HTTP client")?;
        let shown = redact(base.as_str().trim_end_matches('/'));
        Ok(Self { base, shown, client, token })
    }

    /// The server's address, for messages.
    pub fn url(&self) -> &str {
        &self.shown
    }

    fn at(&self, segments: &[&str], query: &[(&str, String)]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    fn request(&self, method: Method, segments: &[&str], query: &[(&str, String)]) -> RequestBuilder {
        let is_write = method != Method::GET;
        let request = self.client.request(method, self.at(segments, query));
        // The server takes no write without it, also where there is no body.
        let request = if is_write { request.header(CONTENT_TYPE, "application/json") } else { request };
        match &self.token {
            Some(token) => request.bearer_auth(&token.secret),
            None => request,
        }
    }

    /// Sends a request; an error says what to do when nobody answers.
    pub async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        request.send().await.map_err(|error| self.unreachable(error))
    }

    fn unreachable(&self, error: reqwest::Error) -> anyhow::Error {
        let error = error.without_url();
        if error.is_connect() {
            return anyhow!(Unreachable(format!(
                "no server answers at {}: start one with `ensue serve`, name another with --url or ENSUE_URL, \
                 or open a store directly with --store",
                self.url()
            )));
        }
        let text = format!("the server at {} did not answer: try again", self.url());
        anyhow::Error::new(error).context(Unreachable(text))
    }

    async fn text(&self, response: Response) -> anyhow::Result<String> {
        self.bounded_text(response, |error| self.unreachable(error)).await
    }

    /// The text of the body, unless it is larger than any answer of a server.
    async fn bounded_text(
        &self,
        mut response: Response,
        lost: impl Fn(reqwest::Error) -> anyhow::Error,
    ) -> anyhow::Result<String> {
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(&lost)? {
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                bail!("the server at {} answers with more than {ANSWER_BYTES_MAX} bytes: check --url", self.url());
            }
            body.extend_from_slice(&piece);
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// The text of a good answer, or what the server said.
    async fn good(&self, response: Response) -> anyhow::Result<String> {
        if response.status().is_success() { self.text(response).await } else { Err(self.refusal(response).await) }
    }

    /// Sends what changes the log. Where no answer comes, it may have been done.
    async fn change(&self, request: RequestBuilder) -> anyhow::Result<(StatusCode, String)> {
        let lost = |error: reqwest::Error| match error.is_connect() {
            true => self.unreachable(error),
            false => anyhow::Error::new(error.without_url()).context(Unreachable(format!(
                "the server at {} did not answer, and whether it did what was asked is not known: look before you send \
                 it again; an event with --key can be sent again without being stored twice",
                self.url()
            ))),
        };
        let response = request.send().await.map_err(&lost)?;
        let status = response.status();
        if !status.is_success() {
            return Err(self.refusal(response).await);
        }
        Ok((status, self.bounded_text(response, lost).await?))
    }

    /// What a problem in the server's words says, with what to do.
    pub fn detail(text: &str) -> Option<String> {
        Some(serde_json::from_str::<Failure>(text).ok()?.to_string())
    }

    /// What a refusal says, with what to do.
    pub async fn refusal(&self, response: Response) -> anyhow::Error {
        let status = response.status();
        let text = self.text(response).await.unwrap_or_default();
        let answered = serde_json::from_str::<Failure>(&text).unwrap_or_else(|_| {
            let detail = Some(format!("the server at {} answered {status}: check --url", self.url()));
            let title = status.canonical_reason().unwrap_or("Refused").into();
            Failure { kind: None, title, status: None, detail, field: None }
        });
        let detail = match status {
            StatusCode::UNAUTHORIZED => Some(self.unauthorized()),
            _ => answered.detail,
        };
        anyhow!(Failure { status: Some(status.as_u16()), detail, ..answered })
    }

    /// Nothing was sent that could open the server, or the wrong thing.
    pub fn unauthorized(&self) -> String {
        match &self.token {
            None => format!(
                "the server at {} wants a token: give one of those that it was started with by --token, ENSUE_TOKEN or \
                 --token-file",
                self.url()
            ),
            Some(token) => format!(
                "the server at {} does not know this token ({}): give one of those that it was started with",
                self.url(),
                token.name
            ),
        }
    }

    /// Publishes one event.
    pub async fn publish(&self, entry: &Entry) -> anyhow::Result<Appended> {
        Ok(self.publish_with(entry, &[]).await?.0)
    }

    /// Publishes one event and waits for the sync handlers.
    pub async fn publish_and_wait(
        &self,
        entry: &Entry,
        wait_max: Duration,
    ) -> anyhow::Result<(Appended, Option<SyncAnswer>)> {
        let query = [("wait", "sync".to_owned()), ("wait_ms", wait_max.as_millis().to_string())];
        let (appended, text) = self.publish_with(entry, &query).await?;
        Ok((appended, Some(wire::sync_answer(&text)?)))
    }

    async fn publish_with(&self, entry: &Entry, query: &[(&str, String)]) -> anyhow::Result<(Appended, String)> {
        let body = Body {
            topic: entry.topic.as_str(),
            object: entry.object.as_ref().map(ObjectKey::as_str),
            payload: &entry.payload,
            metadata: &entry.metadata,
            occurred_at: entry.occurred_at,
            not_before: entry.not_before,
            key: entry.key.as_ref().map(|key| key.as_str()),
        };
        let request = self.request(Method::POST, &["v1", "events"], query);
        let request = request.body(serde_json::to_string(&body)?);
        let (status, text) = self.change(request).await?;
        let WireAppended { id, seq, prev } = wire::published(&text)?;
        Ok((Appended { id, seq, prev, repeated: status == StatusCode::OK }, text))
    }

    /// Reads a page of the log.
    pub async fn read(&self, after: Seq, limit: usize, wanted: &Wanted) -> anyhow::Result<Selection> {
        let mut query = vec![("after", after.to_string()), ("limit", limit.to_string())];
        query.extend(wanted_query(wanted));
        let response = self.send(self.request(Method::GET, &["v1", "events"], &query)).await?;
        wire::selection(&self.good(response).await?)
    }

    /// Reads a page of the log, newest first.
    pub async fn read_newest(
        &self,
        before: Option<Seq>,
        after: Seq,
        limit: usize,
        wanted: &Wanted,
    ) -> anyhow::Result<NewestPage> {
        let mut query = vec![("order", "desc".into()), ("after", after.to_string()), ("limit", limit.to_string())];
        query.extend(before.map(|before| ("before", before.to_string())));
        query.extend(wanted_query(wanted));
        let response = self.send(self.request(Method::GET, &["v1", "events"], &query)).await?;
        wire::newest(&self.good(response).await?)
    }

    /// Delayed events in the order in which they will enter the log.
    pub async fn pending(&self, limit: usize) -> anyhow::Result<Vec<Pending>> {
        let query = [("state", "pending".to_string()), ("limit", limit.to_string()), ("include", "direct".to_string())];
        let response = self.send(self.request(Method::GET, &["v1", "events"], &query)).await?;
        wire::pending(&self.good(response).await?)
    }

    /// The event of a place or an id, or an error that says why there is none.
    pub async fn event(&self, event: EventRef) -> anyhow::Result<Found> {
        let response = self.send(self.request(Method::GET, &["v1", "events", &event.to_text()], &[])).await?;
        wire::event(&self.good(response).await?)?.found()
    }

    /// An answer as it is.
    pub async fn get_json(&self, segments: &[&str], query: &[(&str, String)]) -> anyhow::Result<Value> {
        let response = self.send(self.request(Method::GET, segments, query)).await?;
        wire::json(&self.good(response).await?)
    }

    /// An answer as it was written: numbers keep their digits.
    pub async fn get_text(&self, segments: &[&str], query: &[(&str, String)]) -> anyhow::Result<String> {
        let response = self.send(self.request(Method::GET, segments, query)).await?;
        self.good(response).await
    }

    /// Asks for something, and answers with what the server says to it.
    pub async fn post_json(&self, segments: &[&str], body: &Value) -> anyhow::Result<Value> {
        let request = self.request(Method::POST, segments, &[]);
        let request = request.body(serde_json::to_string(body)?);
        wire::json(&self.change(request).await?.1)
    }

    /// Posts nothing but a query, and answers with what the server says to it, and how.
    pub async fn post_query(&self, segments: &[&str], query: &[(&str, String)]) -> anyhow::Result<(StatusCode, Value)> {
        let (status, text) = self.change(self.request(Method::POST, segments, query)).await?;
        Ok((status, wire::json(&text)?))
    }

    /// Posts a body that is written as it is, and answers with what the server says to it.
    pub async fn send_json(&self, segments: &[&str], body: &impl Serialize) -> anyhow::Result<Value> {
        let request = self.request(Method::POST, segments, &[]);
        let request = request.body(serde_json::to_string(body)?);
        wire::json(&self.change(request).await?.1)
    }

    /// Puts a body that is written as it is, and answers with what the server says to it.
    pub async fn put_json(&self, segments: &[&str], body: &impl Serialize) -> anyhow::Result<Value> {
        let request = self.request(Method::PUT, segments, &[]);
        let request = request.body(serde_json::to_string(body)?);
        wire::json(&self.change(request).await?.1)
    }

    /// Asks for a change by any method, and answers with what the server says to it; null is no body.
    pub async fn ask_json(&self, method: Method, segments: &[&str], body: &Value) -> anyhow::Result<Value> {
        wire::json(&self.ask_text(method, segments, body).await?)
    }

    /// The same, with the answer as it was written: numbers keep their digits.
    pub async fn ask_text(&self, method: Method, segments: &[&str], body: &Value) -> anyhow::Result<String> {
        let request = self.request(method, segments, &[]);
        let request = match body {
            Value::Null => request,
            body => request.body(serde_json::to_string(body)?),
        };
        Ok(self.change(request).await?.1)
    }

    /// Cancels a delayed event, or says why it cannot be.
    pub async fn cancel(&self, id: EventId) -> anyhow::Result<()> {
        self.change(self.request(Method::DELETE, &["v1", "events", &id.to_string()], &[])).await.map(drop)
    }

    /// The events of one object, newest first.
    pub async fn chain(
        &self,
        object: &ObjectKey,
        before: Option<Seq>,
        limit: usize,
        with_direct: bool,
    ) -> anyhow::Result<ChainPage> {
        let mut query = vec![("limit", limit.to_string())];
        query.extend(with_direct.then(|| ("include", "direct".to_owned())));
        query.extend(before.map(|before| ("before", before.to_string())));
        let path = ["v1", "objects", object.as_str(), "events"];
        let response = self.send(self.request(Method::GET, &path, &query)).await?;
        wire::chain(&self.good(response).await?)
    }

    /// Opens the stream of events. `after` none: what comes from now on.
    pub async fn stream(&self, wanted: &Wanted, after: Option<Seq>) -> anyhow::Result<Response> {
        let query = wanted_query(wanted);
        let request =
            self.request(Method::GET, &["v1", "events", "stream"], &query).header(ACCEPT, "text/event-stream");
        let request = match after {
            Some(after) => request.header("Last-Event-ID", after.to_string()),
            None => request,
        };
        self.send(request).await
    }

    /// What the server says about itself: the status, headers and text of `/health`, `/ready` or `/metrics`.
    pub async fn about(&self, path: &str) -> anyhow::Result<(StatusCode, HeaderMap, String)> {
        let response = self.send(self.request(Method::GET, &[path], &[])).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok((status, headers, self.text(response).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_one_segment_of_the_path_whatever_it_holds() {
        rustls::crypto::ring::default_provider().install_default().ok();
        let remote = Remote::new("http://h:1/base/", None).unwrap();
        let url = remote.at(&["v1", "objects", "a/b c?", "events"], &[("limit", "5".into())]);
        assert_eq!(url.as_str(), "http://h:1/base/v1/objects/a%2Fb%20c%3F/events?limit=5");
    }

    /// A server that takes a request and hangs up may have done it.
    #[tokio::test]
    async fn a_change_that_is_not_answered_is_not_to_be_sent_again_blindly() {
        rustls::crypto::ring::default_provider().install_default().ok();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _request = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4_096]).await;
            }
        });
        let remote = Remote::new(&url, None).unwrap();
        let publish = remote.publish(&ensue::NewEvent::new("t").check().unwrap()).await.unwrap_err().to_string();
        let cancel = remote.cancel(EventId(uuid::Uuid::nil())).await.unwrap_err().to_string();
        for told in [publish, cancel] {
            assert!(told.contains("look before") && !told.contains("try again"), "{told}");
        }
        let read = remote.read(0, 1, &Wanted::default()).await.unwrap_err().to_string();
        assert!(read.contains("try again"), "{read}");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bad in ["", "127.0.0.1:4747", "ftp://h", "postgres://h/db"] {
            let error = format!("{:#}", Remote::new(bad, None).unwrap_err());
            assert!(error.contains("http://127.0.0.1:4747"), "{bad:?}: {error}");
        }
    }
}
