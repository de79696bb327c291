//! Webhooks: what is sent, what an answer means, and where nothing is sent to (S3, H18).

use crate::handlers_support::{guarded, until};
use crate::support::tasks::Tasks;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use ensue::{Ensue, NewEvent, Running, Seq, Standing, Timestamp, Verdict};
use ensue_server::HttpOptions;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// What a receiver is to answer.
#[derive(Clone)]
struct Reply {
    status: u16,
    header: Option<(&'static str, &'static str)>,
    body: &'static str,
}

fn reply(status: u16) -> Reply {
    Reply { status, header: None, body: "" }
}

/// Somebody who receives webhooks.
#[derive(Clone, Default)]
struct Receiver {
    got: Arc<Mutex<Vec<(String, HeaderMap, Bytes)>>>,
    replies: Arc<Mutex<VecDeque<Reply>>>,
    is_silent: bool,
}

impl Receiver {
    async fn listen(self) -> SocketAddr {
        async fn receive(State(receiver): State<Receiver>, request: Request) -> (StatusCode, HeaderMap, &'static str) {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            receiver.got.lock().unwrap().push((format!("{} {}", parts.method, parts.uri), parts.headers, body));
            if receiver.is_silent {
                std::future::pending::<()>().await;
            }
            let reply = receiver.replies.lock().unwrap().pop_front().unwrap_or(reply(204));
            let headers = reply.header.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
            (StatusCode::from_u16(reply.status).unwrap(), headers.into_iter().collect(), reply.body)
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(receive).with_state(self);
        tokio::spawn(async move { axum::serve(listener, app).await });
        address
    }

    fn got(&self) -> Vec<(String, HeaderMap, Bytes)> {
        self.got.lock().unwrap().clone()
    }
}

/// A bus with a webhook on everything under `t`, and what it becomes.
struct Flow {
    bus: Ensue,
    _running: Running,
}

impl Flow {
    async fn start(url: &str, more: &str, allowed: &[&str], dev: bool) -> Self {
        let bus = Ensue::memory().await.unwrap();
        let text = format!("handlers:\n  t:\n  - {{ name: h, webhook: {url:?}, {more} }}\n");
        guarded(&text, 30, allowed, dev).bind(&bus).unwrap();
        let _running = bus.start().await.unwrap();
        Self { bus, _running }
    }

    async fn publish(&self) -> Seq {
        self.publish_on("o").await
    }

    async fn publish_on(&self, object: &str) -> Seq {
        self.bus.publish(NewEvent::new("t.x").object(object).payload(&1)).await.unwrap().seq.unwrap()
    }

    async fn becomes(&self, seq: Seq, wanted: Standing) -> Verdict {
        until(async || {
            let verdict = self.bus.deliveries(seq).await.unwrap().unwrap().remove(0).verdict;
            (verdict.standing == wanted).then_some(verdict)
        })
        .await
    }
}

fn receiver(replies: impl IntoIterator<Item = Reply>) -> Receiver {
    Receiver { replies: Arc::new(Mutex::new(replies.into_iter().collect())), ..Receiver::default() }
}

#[tokio::test]
async fn the_event_is_posted_under_an_id_that_stays_the_same() {
    let receiver = receiver([reply(500), reply(204)]);
    let address = receiver.clone().listen().await;
    let flow =
        Flow::start(&format!("http://{address}/hook?x=1"), "retry: { delays: [0s] }", &["127.0.0.1"], false).await;
    let seq = flow.publish().await;
    assert_eq!(flow.becomes(seq, Standing::Done).await.attempts, 2);
    let event = flow.bus.store().event(seq).await.unwrap().unwrap();
    let got = receiver.got();
    assert_eq!(got.len(), 2);
    for (attempt, (target, headers, body)) in got.iter().enumerate() {
        assert_eq!(target, "POST /hook?x=1");
        let mut sent: serde_json::Value = serde_json::from_slice(body).unwrap();
        sent.as_object_mut().unwrap().remove("state");
        assert_eq!(sent, serde_json::to_value(&event).unwrap());
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(headers["webhook-id"], format!("{}.t.h", event.id));
        assert_eq!(headers["ensue-attempt"], (attempt + 1).to_string());
        assert_eq!(headers["ensue-handler"], "t.h");
        assert_eq!(headers["ensue-redriven"], "0");
        let sent_at: i64 = headers["webhook-timestamp"].to_str().unwrap().parse().unwrap();
        assert!((Timestamp::now().as_second() - sent_at).abs() < 60);
    }
}

#[tokio::test]
async fn webhook_with_the_format_of_cloudevents_gets_a_cloud_event() {
    let receiver = receiver([]);
    let address = receiver.clone().listen().await;
    let flow = Flow::start(&format!("http://{address}/"), "format: cloudevents", &["127.0.0.1"], false).await;
    let seq = flow.publish().await;
    flow.becomes(seq, Standing::Done).await;
    let event = flow.bus.store().event(seq).await.unwrap().unwrap();
    let (_, headers, body) = receiver.got().remove(0);
    assert_eq!(headers["content-type"], "application/cloudevents+json");
    assert_eq!(headers["webhook-id"], format!("{}.t.h", event.id));
    let sent: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let expected = serde_json::json!({"specversion": "1.0", "id": event.id, "source": "/ensue", "type": "t.x", "subject": "o",
        "time": event.occurred_at, "recordedtime": event.recorded_at, "seq": seq.to_string(), "data": 1,
        "datacontenttype": "application/json"});
    assert_eq!(sent, expected);
}

/// S3: a name that leads to this machine.
#[tokio::test]
async fn nothing_is_sent_where_the_guard_does_not_let_it() {
    let receiver = receiver([]);
    let port = receiver.clone().listen().await.port();
    let url = format!("http://localhost:{port}/hook");
    let once = "retry: { attempts_max: 1 }";
    let flow = Flow::start(&url, once, &[], false).await;
    let seq = flow.publish().await;
    let error = flow.becomes(seq, Standing::Held).await.error.unwrap();
    assert!(error.contains("loopback") && error.contains("webhooks.allow_private"), "{error}");
    assert!(receiver.got().is_empty());
    for (allowed, dev) in [(&["127.0.0.1"][..], false), (&[], true)] {
        let flow = Flow::start(&url, once, allowed, dev).await;
        let seq = flow.publish().await;
        flow.becomes(seq, Standing::Done).await;
    }
    assert_eq!(receiver.got().len(), 2);
}

#[tokio::test]
async fn redirect_is_reported_and_not_followed() {
    let location: &'static str = Box::leak(format!("/elsewhere/{}", "x".repeat(4_000)).into_boxed_str());
    let receiver = receiver([Reply { status: 302, header: Some(("location", location)), body: "" }]);
    let address = receiver.clone().listen().await;
    let flow = Flow::start(&format!("http://{address}/"), "retry: { attempts_max: 1 }", &["127.0.0.1"], false).await;
    let seq = flow.publish().await;
    let error = flow.becomes(seq, Standing::Held).await.error.unwrap();
    assert!(error.contains("302") && error.contains("/elsewhere") && error.contains("not followed"), "{error}");
    assert!(error.len() < 400, "a receiver fills the store: {} bytes", error.len());
    assert_eq!(receiver.got().len(), 1);
}

#[tokio::test]
async fn a_receiver_says_when_it_wants_to_be_asked_again() {
    for status in [429, 503] {
        let receiver = receiver([Reply { status, header: Some(("retry-after", "3600")), body: "too much" }]);
        let address = receiver.clone().listen().await;
        let flow = Flow::start(&format!("http://{address}/"), "", &["127.0.0.1"], false).await;
        let seq = flow.publish().await;
        let verdict = flow.becomes(seq, Standing::Retrying).await;
        let wait = verdict.next_at.unwrap().duration_since(Timestamp::now()).as_secs();
        assert!((3_500..=3_600).contains(&wait), "{wait}");
        assert!(verdict.error.unwrap().contains("too much"));
    }
}

#[tokio::test]
async fn what_is_gone_is_not_tried_again() {
    let receiver = receiver([Reply { status: 410, header: None, body: "gone for good" }]);
    let address = receiver.clone().listen().await;
    let flow = Flow::start(&format!("http://{address}/"), "retry: { attempts_max: 9 }", &["127.0.0.1"], false).await;
    let seq = flow.publish().await;
    let verdict = flow.becomes(seq, Standing::Held).await;
    assert_eq!(verdict.error.unwrap(), "it answered 410 Gone: gone for good");
    assert_eq!((verdict.attempts, receiver.got().len()), (1, 1));
}

#[tokio::test]
async fn other_answers_are_told_with_the_start_of_what_they_say() {
    let long: &'static str = Box::leak("ü".repeat(100_000).into_boxed_str());
    let receiver = receiver([Reply { status: 400, header: None, body: long }]);
    let address = receiver.clone().listen().await;
    let flow = Flow::start(&format!("http://{address}/"), "retry: { attempts_max: 1 }", &["127.0.0.1"], false).await;
    let seq = flow.publish().await;
    let error = flow.becomes(seq, Standing::Held).await.error.unwrap();
    assert!(error.starts_with("it answered 400 Bad Request: üü") && error.len() < 1_000, "{} bytes", error.len());
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_is_given_up() {
    let receiver = Receiver { is_silent: true, ..Receiver::default() };
    let address = receiver.clone().listen().await;
    let more = "timeout: 300ms, retry: { attempts_max: 1 }";
    let flow = Flow::start(&format!("http://{address}/"), more, &["127.0.0.1"], false).await;
    let mut sent = 0;
    while receiver.got().is_empty() {
        sent += 1;
        assert!(sent < 100, "nothing ever comes to the receiver");
        // On a busy machine the time may be over before it has come there.
        let seq = flow.publish_on(&format!("o{sent}")).await;
        let verdict = flow.becomes(seq, Standing::Held).await;
        let error = verdict.error.unwrap();
        assert!(verdict.attempts == 1 && error.contains("timeout of 300ms"), "{error}");
    }
    assert_eq!(receiver.got().len(), 1);
}

#[tokio::test]
async fn one_that_cannot_be_reached_is_a_failure_like_any_other() {
    // A port that is taken, and that nobody listens at.
    let taken = tokio::net::TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = taken.local_addr().unwrap();
    let flow =
        Flow::start(&format!("http://user:canary@{address}/"), "retry: { attempts_max: 1 }", &["127.0.0.1"], false)
            .await;
    let seq = flow.publish().await;
    let error = flow.becomes(seq, Standing::Held).await.error.unwrap();
    assert!(error.starts_with("127.0.0.1 could not be reached") && !error.contains("canary"), "{error}");
}

/// A collection may be brought up to date by a URL. What is called off is given up, whatever the receiver does.
#[tokio::test]
async fn a_task_may_be_a_webhook() {
    let (good, silent) = (Receiver::default(), Receiver { is_silent: true, ..Receiver::default() });
    let (one, other) = (good.clone().listen().await, silent.clone().listen().await);
    let config = format!(
        "sources:\n  s:\n    collections:\n    - {{ name: good, webhook: 'http://{one}/sync' }}\n    \
         - {{ name: silent, webhook: 'http://{other}/' }}\n"
    );
    let (bus, folder) = (Ensue::memory().await.unwrap(), tempfile::tempdir().unwrap());
    let tasks = Tasks::of_config(bus, HttpOptions::default(), folder, &config).await;
    let (id, _) = tasks.run("good").await;
    tasks.until(&id, "SUCCESS").await;
    let (request, _, body) = good.got().remove(0);
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((request.as_str(), &body["topic"]), ("POST /sync", &"task.s.good".into()));
    assert!(id.ends_with(body["id"].as_str().unwrap()), "{id}: {body}");
    let (id, _) = tasks.run("silent").await;
    until(async || (!silent.got().is_empty()).then_some(())).await;
    // The receiver knows the task, and may say how far it is.
    let (_, headers, body) = silent.got().remove(0);
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let task = &body["task"];
    assert_eq!((task["id"].as_str(), task["source"].as_str()), (Some(&*id), Some("s")), "{body}");
    assert_eq!((task["collection"].as_str(), task["priority"].as_u64()), (Some("silent"), Some(1_100)), "{body}");
    let claim = headers["ensue-claim"].to_str().unwrap();
    tasks.says_how_far(&id, claim, 2).await;
    assert_eq!(tasks.post(&format!("/tasks/{id}/cancel")).await.status, 200);
    let task = tasks.until(&id, "CANCELED").await;
    assert!(task["error"].as_str().unwrap().contains("its request was given up"), "{task}");
    tasks.stop().await;
}

/// With `answer: send` what a receiver answers is committed with the end of its attempt; else it is not read.
#[tokio::test]
async fn answer_of_a_receiver_is_sent_only_if_the_handler_says_so() {
    let answer = r#"{"events":[{"topic":"sent","object":"o"}],"jobs":[{"handler":"mail.send","payload":1}]}"#;
    for (more, sent) in [("answer: send", 1), ("answer: ignore", 0), ("", 0)] {
        let receiver = receiver([Reply { status: 200, header: None, body: answer }]);
        let address = receiver.clone().listen().await;
        let flow = Flow::start(&format!("http://{address}/"), more, &["127.0.0.1"], false).await;
        let seq = flow.publish().await;
        flow.becomes(seq, Standing::Done).await;
        assert_eq!(flow.bus.store().bounds().await.unwrap().last, seq + sent, "{more}");
        let jobs = flow.bus.jobs(ensue::jobs::JobQuery::default(), 10).await.unwrap().jobs;
        assert_eq!(jobs.len() as u64, sent, "{more}");
    }
}

#[tokio::test]
async fn answer_that_cannot_be_sent_fails_the_attempt() {
    let long: &'static str = Box::leak("x".repeat(3 << 20).into_boxed_str());
    for (body, reason) in [
        (r#"{"events":[{"topic":"a"}],"ok":true}"#, "`ok` is not a field"),
        ("thanks", "`body` is not JSON"),
        (r#"{"jobs":[{"payload":1}]}"#, "`jobs[0].handler` is missing"),
        (long, "longer than"),
    ] {
        let receiver = receiver([Reply { status: 200, header: None, body }]);
        let address = receiver.clone().listen().await;
        let more = "answer: send, retry: { attempts_max: 1 }";
        let flow = Flow::start(&format!("http://{address}/"), more, &["127.0.0.1"], false).await;
        let seq = flow.publish().await;
        let error = flow.becomes(seq, Standing::Held).await.error.unwrap();
        assert!(error.starts_with("its answer cannot be sent") && error.contains(reason), "{error}");
    }
    // An empty answer has nothing to send.
    let receiver = receiver([reply(204)]);
    let address = receiver.clone().listen().await;
    let flow = Flow::start(&format!("http://{address}/"), "answer: send", &["127.0.0.1"], false).await;
    let seq = flow.publish().await;
    flow.becomes(seq, Standing::Done).await;
}
