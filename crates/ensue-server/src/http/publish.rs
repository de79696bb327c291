//! How does an event come in?

use super::body::{self, Published};
use super::problem::{Kind, Problem};
use super::query::Query;
use super::responses::{
    BadRequest, DiskFull, Invalid, KeyConflict, StoreProblems, TooLarge, TooSlow, UnsupportedMediaType,
};
use super::shapes::{self, CloudEventShape, OneOrBatchShape, PublishedShape, SyncHandlerShape};
use super::{App, HttpOptions, cloudevents, conflict};
use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use ensue::{Appended, Ensue, Error, Mode, NewEvent, StoreError, SyncReport};
use futures_util::StreamExt;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// A refused body is still read this much further and this long, and thrown away: many clients look for the answer only
/// after they have sent everything, and would see a reset connection instead of the reason.
const DISCARD_BYTES_MAX: usize = 16 << 20;
const DISCARD_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a publish waits for sync handlers unless told, and at most.
const SYNC_WAIT: Duration = Duration::from_secs(10);
const SYNC_WAIT_MS_MAX: u64 = 60_000;

/// A header by which other APIs know a repeated request.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The forms in which events can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Lines,
    Structured,
    StructuredBatch,
    Binary,
}

impl Form {
    /// Which form a request has: by its content type, or by the headers of CloudEvents' binary mode.
    fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let full = headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let full = full.unwrap_or_default().to_ascii_lowercase();
        let (media, parameters) = full.split_once(';').unwrap_or((&full, ""));
        let form = match media.trim() {
            "application/cloudevents+json" => Form::Structured,
            "application/cloudevents-batch+json" => Form::StructuredBatch,
            _ if headers.contains_key(cloudevents::BINARY_MARK) => return Ok(Form::Binary),
            "application/json" => Form::Json,
            "application/x-ndjson" | "application/ndjson" => Form::Lines,
            media => return Err(not_understood(media)),
        };
        let charset = parameters.split(';').find_map(|parameter| parameter.trim().strip_prefix("charset="));
        match charset.map(|charset| charset.trim_matches('"')) {
            None | Some("utf-8" | "utf8" | "us-ascii") => Ok(form),
            Some(_) => Err(not_understood(&full)),
        }
    }

    fn read(self, headers: &HeaderMap, body: &[u8]) -> Result<Published, Problem> {
        let text = || {
            let not_utf_8 = |_| Problem::field(Kind::NotJson, "body", "is not UTF-8; send JSON in UTF-8");
            std::str::from_utf8(body).map_err(not_utf_8)
        };
        match self {
            Form::Json => body::one_or_batch(text()?, body::event),
            Form::Lines => body::lines(text()?, body::event),
            Form::Structured => {
                let published = body::one_or_batch(text()?, cloudevents::structured)?;
                match published {
                    Published::One(_) => Ok(published),
                    Published::Batch(_) => {
                        let reason = "is an array; send it as application/cloudevents-batch+json";
                        Err(Problem::invalid("body", reason))
                    }
                }
            }
            Form::StructuredBatch => body::batch_or_empty(text()?, cloudevents::structured),
            Form::Binary => Ok(Published::One(cloudevents::binary(headers, body)?)),
        }
    }

    /// How this form calls a field of ours.
    fn name(self, field: &str) -> Cow<'static, str> {
        match self {
            Form::Json | Form::Lines => field.to_string().into(),
            Form::Structured | Form::StructuredBatch => cloudevents::structured_name(field),
            Form::Binary => cloudevents::binary_name(field),
        }
    }
}

fn not_understood(media: &str) -> Problem {
    let given = match media {
        "" => "is missing".to_string(),
        media => format!("is `{}`", media.chars().take(80).collect::<String>()),
    };
    let reason = format!(
        "{given}; send application/json, application/x-ndjson, application/cloudevents+json or \
         application/cloudevents-batch+json in UTF-8, or CloudEvents' binary mode"
    );
    Problem::field(Kind::UnsupportedMediaType, "content-type", reason)
}

/// Publishes one event or a batch
///
/// A batch is atomic and its events get consecutive `seq`s. The answer comes when everything is on disk. A CloudEvent's
/// `type` is the topic, `subject` the object, `time` is `occurred_at`, `source` and `id` make the key; the other
/// attributes go to `metadata`. In binary mode JSON data becomes the payload, other text a JSON string, and anything
/// else a string of base64 with `metadata.data_encoding` set to `base64`.
#[utoipa::path(
    post,
    path = "/v1/events",
    operation_id = "publish",
    tag = "events",
    params(
        ("wait" = Option<String>, Query, description = "`sync`: wait for the sync handlers \
            of this server that want the events, also where another process runs them and for events that were stored \
            before. The answer comes when each is `done`, has `failed` for good or is `blocked` until a person acts; \
            what is not known in time is `pending` and continues durably. The answer then has `sync` and `handlers`"),
        ("wait_ms" = Option<u64>, Query, minimum = 1, maximum = 60000, description = "How long to wait for them. Default: 10,000. \
            Only with `wait`"),
    ),
    request_body(
        description = "At most 1,000 events and 1 MiB. With `ce-*` headers any content type: CloudEvents' binary mode",
        content(
            (OneOrBatchShape = "application/json"),
            (String = "application/x-ndjson"),
            (CloudEventShape = "application/cloudevents+json"),
            (Vec<CloudEventShape> = "application/cloudevents-batch+json")
        )
    ),
    responses(
        (status = 201, description = "Stored, on disk", body = PublishedShape),
        (status = 200, description = "All of it was stored before, under the same keys: the first answer again. Also for an \
            empty batch of CloudEvents",
            body = PublishedShape),
        BadRequest,
        TooSlow,
        KeyConflict,
        TooLarge,
        UnsupportedMediaType,
        Invalid,
        DiskFull,
        StoreProblems,
    )
)]
pub(super) async fn publish(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let wait_max = sync_wait(&Query::parse(request.uri().query(), &["wait", "wait_ms"])?)?;
    // Whoever sends it counts on it: passed over in silence it would have the event stored twice.
    if request.headers().contains_key(IDEMPOTENCY_KEY) {
        return Err(Problem::bad_request(IDEMPOTENCY_KEY, "is not read here; put it into the event, as its `key`"));
    }
    let form = Form::of(request.headers())?;
    let (parts, body) = request.into_parts();
    let bytes_max = app.options.body_bytes_max;
    // Who asks before it sends is told at once, and sends nothing.
    if body.size_hint().lower() > bytes_max as u64 && parts.headers.contains_key(header::EXPECT) {
        return Err(too_large(bytes_max));
    }
    let body = read_body(body, &app.options).await?;
    let published = form.read(&parts.headers, &body)?;
    if let Published::Batch(events) = &published
        && events.is_empty()
    {
        return Ok(shapes::json(StatusCode::OK, &PublishedShape { events: &[], sync: None, handlers: None }));
    }
    // Checked twice where somebody waits for handlers, which need to know what was published.
    let waited_for = wait_max.map(|_| published.clone());
    let answers = match append(&app.bus, published).await {
        Ok(answers) => answers,
        Err(Error::Store(StoreError::KeyConflict { key })) => {
            // The events are with the store: reading the body again costs who made the mistake, and nobody else.
            let problem = conflict::of_key(form.read(&parts.headers, &body)?, &key);
            return Err(problem.rename(|field| form.name(field)));
        }
        Err(error) => return Err(Problem::from(error).rename(|field| form.name(field))),
    };
    let status = match answers.iter().all(|answer| answer.repeated) {
        true => StatusCode::OK,
        false => StatusCode::CREATED,
    };
    let reports = match (wait_max, waited_for) {
        (Some(wait_max), Some(published)) => Some(wait_for_handlers(&app, published, &answers, wait_max).await?),
        (Some(_), None) | (None, _) => None,
    };
    let sync = reports.as_deref().map(SyncReport::overall);
    let handlers = reports.as_ref().map(|reports| reports.iter().map(SyncHandlerShape::from).collect());
    Ok(shapes::json(status, &PublishedShape { events: &answers, sync, handlers }))
}

/// How long to wait for sync handlers, if they are to be waited for.
fn sync_wait(query: &Query) -> Result<Option<Duration>, Problem> {
    match (query.text("wait"), query.text("wait_ms")) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Problem::bad_request("wait_ms", "goes with `wait=sync`; add that, or leave it out")),
        (Some("sync"), None) => Ok(Some(SYNC_WAIT)),
        (Some("sync"), Some(millis)) => match millis.parse() {
            Ok(millis @ 1..=SYNC_WAIT_MS_MAX) => Ok(Some(Duration::from_millis(millis))),
            _ => Err(Problem::bad_request("wait_ms", format!("must be a whole number from 1 to {SYNC_WAIT_MS_MAX}"))),
        },
        (Some(_), _) => Err(Problem::bad_request("wait", "must be `sync`, or be left out")),
    }
}

/// Waits for the sync handlers of this server; when the server stops meanwhile, all are pending.
async fn wait_for_handlers(
    app: &App,
    published: Published,
    answers: &[Appended],
    wait_max: Duration,
) -> Result<Vec<SyncReport>, Problem> {
    let entries = match published {
        Published::One(event) => vec![event.check()?],
        Published::Batch(events) => NewEvent::check_all(events)?,
    };
    let mut stop = app.options.stop.clone();
    tokio::select! {
        reports = app.bus.wait_for_sync(&entries, answers, wait_max) => Ok(reports),
        () = super::stop::stopped(&mut stop) => {
            let sync = app.bus.handlers().into_iter().filter(|handler| handler.mode == Mode::Sync);
            Ok(sync.map(|handler| SyncReport::pending(handler.key)).collect())
        }
    }
}

async fn append(bus: &Ensue, published: Published) -> Result<Vec<Appended>, Error> {
    Ok(match published {
        Published::One(event) => vec![bus.publish(event).await?],
        Published::Batch(events) => bus.publish_all(events).await?,
    })
}

/// The whole body, if it is not too large, comes in time and fits into the budget of all bodies.
pub(super) async fn read_body(body: Body, options: &HttpOptions) -> Result<Bytes, Problem> {
    let bytes_max = options.body_bytes_max;
    let announced = body.size_hint().lower();
    if announced > bytes_max as u64 {
        return Err(discard(body.into_data_stream(), too_large(bytes_max), options).await);
    }
    let mut reservation = options.body_budget.start();
    let end = Instant::now() + options.body_time_max;
    let mut chunks = body.into_data_stream();
    let mut whole = Vec::new();
    let mut first = Bytes::new();
    loop {
        let wait_until = end.min(Instant::now() + options.body_silence_max);
        let chunk = match timeout_at(wait_until, chunks.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(Some(Err(_))) => return Err(Problem::bad_request("body", "ended too early; send the whole of it")),
            Ok(None) => return Ok(reservation.keep(if whole.is_empty() { first } else { whole.into() })),
            Err(_late) => return Err(too_slow(options)),
        };
        let bytes = first.len() + whole.len() + chunk.len();
        if bytes > bytes_max {
            return Err(discard(chunks, too_large(bytes_max), options).await);
        }
        let is_first = first.is_empty() && whole.is_empty();
        // Room grows with what has come, never with what is only announced.
        let room = if is_first { bytes } else { room_for(bytes, whole.capacity(), announced as usize) };
        if !reservation.grow(room) {
            drop((reservation, first, whole, chunk));
            return Err(discard(chunks, no_room(), options).await);
        }
        if is_first {
            // Most bodies come in one piece, which needs no copy.
            first = chunk;
        } else {
            whole.reserve_exact(room - whole.len());
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&chunk);
        }
    }
}

/// Bytes to allocate for a body of which `bytes` have come: twice as many, so that few copies are made.
fn room_for(bytes: usize, capacity: usize, announced: usize) -> usize {
    if bytes <= capacity { capacity } else { announced.clamp(bytes, 2 * bytes) }
}

/// Reads on for a while in a body that is refused; where many are, it is answered at once.
async fn discard(mut chunks: BodyDataStream, problem: Problem, options: &HttpOptions) -> Problem {
    let Some(_place) = options.body_budget.discard() else { return problem };
    let mut discarded = 0;
    let discard = async {
        while let Some(Ok(chunk)) = chunks.next().await
            && discarded < DISCARD_BYTES_MAX
        {
            discarded += chunk.len();
        }
    };
    // Whether it ended or took too long: the answer is the same.
    let _ = tokio::time::timeout(DISCARD_TIME_MAX, discard).await;
    problem
}

fn no_room() -> Problem {
    Problem::overloaded(
        "exceeds the memory that is left for request bodies; nothing was stored; send it again later, or send less",
    )
}

fn too_slow(options: &HttpOptions) -> Problem {
    let reason = format!(
        "did not come in time: {} s passed without a byte of it, or {} s in all; nothing was stored, send it again",
        options.body_silence_max.as_secs_f64(),
        options.body_time_max.as_secs_f64(),
    );
    Problem::field(Kind::TooSlow, "body", reason)
}

fn too_large(bytes_max: usize) -> Problem {
    let reason = format!(
        "has more than {bytes_max} bytes; send smaller batches, or store large content elsewhere and send a reference"
    );
    Problem::field(Kind::TooLarge, "body", reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(pairs: &[(&'static str, &str)]) -> Option<Form> {
        let pair = |(name, value): &(&'static str, &str)| (name.parse().unwrap(), value.parse().unwrap());
        Form::of(&pairs.iter().map(pair).collect::<HeaderMap>()).ok()
    }

    #[test]
    fn the_content_type_tells_the_form_and_other_types_are_refused() {
        assert_eq!(form(&[("content-type", "application/json")]), Some(Form::Json));
        assert_eq!(form(&[("content-type", "Application/JSON; charset=UTF-8")]), Some(Form::Json));
        assert_eq!(form(&[("content-type", "application/x-ndjson")]), Some(Form::Lines));
        assert_eq!(form(&[("content-type", "application/cloudevents+json"), ("ce-id", "1")]), Some(Form::Structured));
        assert_eq!(form(&[("content-type", "application/json"), ("ce-specversion", "1.0")]), Some(Form::Binary));
        assert_eq!(form(&[("content-type", "image/png"), ("ce-specversion", "1.0")]), Some(Form::Binary));
        assert_eq!(form(&[("content-type", "application/json; charset=latin1")]), None);
        assert_eq!(form(&[("content-type", "text/plain")]), None);
        assert_eq!(form(&[]), None);
    }

    fn options(body_bytes_max: usize) -> HttpOptions {
        HttpOptions { body_bytes_max, ..HttpOptions::default() }
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_put_together_and_bounded() {
        let pieces = |count: usize| {
            let pieces = (0..count).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(b"abc")));
            Body::from_stream(futures_util::stream::iter(pieces.collect::<Vec<_>>()))
        };
        assert_eq!(read_body(pieces(3), &options(9)).await.unwrap(), "abcabcabc");
        assert_eq!(read_body(pieces(1), &options(3)).await.unwrap(), "abc");
        assert_eq!(read_body(Body::empty(), &options(3)).await.unwrap(), "");
        assert!(read_body(pieces(4), &options(9)).await.unwrap_err().detail().contains("more than 9 bytes"));
    }

    /// So many bytes, one every `seconds`.
    fn slowly(count: usize, seconds: u64) -> Body {
        let one = move |left: usize| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            (left > 0).then(|| (Ok::<_, std::io::Error>(Bytes::from_static(b"a")), left - 1))
        };
        Body::from_stream(futures_util::stream::unfold(count, one))
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_taken_while_it_comes_and_a_silent_one_is_not() {
        assert_eq!(read_body(slowly(9, 29), &options(99)).await.unwrap().len(), 9);
        assert!(read_body(slowly(3, 31), &options(99)).await.unwrap_err().detail().contains("30 s"));
        assert!(read_body(slowly(11, 29), &options(99)).await.unwrap_err().detail().contains("300 s"));
    }

    #[test]
    fn announced_length_allocates_nothing() {
        const ANNOUNCED: usize = 1 << 20;
        assert_eq!(room_for(2, 0, ANNOUNCED), 4);
        assert_eq!(room_for(3, 4, ANNOUNCED), 4);
        assert_eq!(room_for(600 << 10, 512 << 10, ANNOUNCED), ANNOUNCED, "no more than the body");
        assert_eq!(room_for(10, 0, 0), 10, "a body of unknown length");
    }
}
