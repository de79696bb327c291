//! Programs as handlers: what they are given, what their end means, and that nothing of them is left behind.

use crate::handlers_support::{PATIENCE, config, until};
use ensue::positions::{Ask, LaneQuery, LaneState, LogLine};
use ensue::{Ensue, GroupName, NewEvent, ObjectKey, Running, Seq, Standing, Stuck};
use std::time::{Duration, Instant};

/// A bus with one handler of everything under `t`, called `t.h`.
struct Flow {
    bus: Ensue,
    running: Option<Running>,
    folder: tempfile::TempDir,
}

impl Flow {
    /// `script` is run by a shell; `more` are other fields of the handler.
    async fn start(script: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("script.sh"), script).unwrap();
        let path = folder.path().join("script.sh");
        Self::with(folder, &format!("[sh, {:?}]", path.display().to_string()), more).await
    }

    async fn with(folder: tempfile::TempDir, command: &str, more: &str) -> Self {
        let bus = Ensue::memory().await.unwrap();
        let text = format!("handlers:\n  t:\n  - {{ name: h, command: {command}, {more} }}\n");
        config(&text, 30).bind(&bus).unwrap();
        let running = Some(bus.start().await.unwrap());
        Self { bus, running, folder }
    }

    async fn publish(&self, object: &str) -> Seq {
        let event = NewEvent::new("t.x").object(object).payload(&serde_json::json!({"n": 1}));
        self.bus.publish(event).await.unwrap().seq.unwrap()
    }

    /// What became of an event, as soon as that is one of these.
    async fn becomes(&self, seq: Seq, wanted: &[Standing]) -> ensue::Verdict {
        until(async || {
            let verdict = self.bus.deliveries(seq).await.unwrap().unwrap().remove(0).verdict;
            wanted.contains(&verdict.standing).then_some(verdict)
        })
        .await
    }

    async fn lines(&self, seq: Seq) -> Vec<LogLine> {
        let handler = GroupName::parse("handler", "t.h").unwrap();
        self.bus.store().lines(&handler, seq, 0, 100_000).await.unwrap()
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join(name)).ok()
    }
}

/// Is there a process with this id that is not only waiting to be buried?
fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    let state = status.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

/// Is there any process with this id, buried or not?
fn is_known(pid: &str) -> bool {
    std::path::Path::new(&format!("/proc/{}", pid.trim())).exists()
}

#[tokio::test]
async fn a_program_gets_the_event_and_its_words_are_the_log() {
    let script = r#"
cat > "$(dirname "$0")/event.json"
echo "$ENSUE_EVENT_SEQ $ENSUE_EVENT_ID $ENSUE_TOPIC $ENSUE_OBJECT $ENSUE_ATTEMPT $ENSUE_FENCE $ENSUE_HANDLER"
echo complaint >&2
"#;
    let flow = Flow::start(script, "logs: always, audit: true").await;
    let seq = flow.publish("o").await;
    let verdict = flow.becomes(seq, &[Standing::Done]).await;
    assert_eq!((verdict.attempts, verdict.error), (1, None));
    let event = flow.bus.store().event(seq).await.unwrap().unwrap();
    let mut given: serde_json::Value = serde_json::from_str(&flow.read("event.json").unwrap()).unwrap();
    assert_eq!(given["state"], "logged");
    given.as_object_mut().unwrap().remove("state");
    assert_eq!(given, serde_json::to_value(&event).unwrap());
    let mut lines: Vec<(String, &str)> =
        flow.lines(seq).await.into_iter().map(|line| (line.message, line.level.as_str())).collect();
    lines.sort();
    assert_eq!(lines[1], ("complaint".to_string(), "error"));
    let told: Vec<&str> = lines[0].0.split(' ').collect();
    let id = event.id.to_string();
    assert_eq!(told[..5], ["1", id.as_str(), "t.x", "o", "1"]);
    assert!(told[5].parse::<u64>().unwrap() >= 1 && told[6] == "t.h", "{told:?}");
}

#[tokio::test]
async fn another_exit_code_is_a_failure_with_the_last_words() {
    let flow = Flow::start("echo early >&2\necho what went wrong >&2\nexit 3", "retry: { attempts_max: 1 }").await;
    let seq = flow.publish("o").await;
    let error = flow.becomes(seq, &[Standing::Held]).await.error.unwrap();
    assert_eq!(error, "it ended with exit code 3: early\nwhat went wrong");
    let seq = flow.publish("other").await;
    assert_eq!(flow.becomes(seq, &[Standing::Held]).await.attempts, 1);
}

/// "A redriven event runs next in its lane, marked `redriven`": a program is told, too.
#[tokio::test]
async fn a_program_knows_that_its_event_was_brought_back() {
    let flow = Flow::start(
        "echo $ENSUE_ATTEMPT $ENSUE_REDRIVEN\nexit $((1 - ENSUE_REDRIVEN))",
        "retry: { attempts_max: 1 }, logs: always",
    )
    .await;
    let seq = flow.publish("o").await;
    assert!(!flow.becomes(seq, &[Standing::Held]).await.redriven);
    flow.bus.ask_stuck(&Stuck::Object(ObjectKey::parse("o").unwrap()), None, Ask::Retry).await.unwrap();
    let verdict = flow.becomes(seq, &[Standing::Done]).await;
    assert_eq!((verdict.attempts, verdict.redriven), (2, true));
    let lines: Vec<String> = flow.lines(seq).await.into_iter().map(|line| line.message).collect();
    assert_eq!(lines, ["1 0", "1 1"]);
}

#[tokio::test]
async fn a_signal_is_a_failure_too() {
    let flow = Flow::start("kill -9 $$", "retry: { attempts_max: 1 }").await;
    let seq = flow.publish("o").await;
    assert_eq!(flow.becomes(seq, &[Standing::Held]).await.error.unwrap(), "it was ended by signal 9");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let flow = Flow::with(folder, "[/nowhere/program]", "retry: { attempts_max: 1 }").await;
    let seq = flow.publish("o").await;
    let error = flow.becomes(seq, &[Standing::Held]).await.error.unwrap();
    assert!(error.contains("`/nowhere/program` cannot be started") && error.contains("install it"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain");
    std::fs::write(&path, "#!/bin/sh\n").unwrap();
    let flow = Flow::with(folder, &format!("[{:?}]", path.display().to_string()), "retry: { attempts_max: 1 }").await;
    let seq = flow.publish("o").await;
    let error = flow.becomes(seq, &[Standing::Held]).await.error.unwrap();
    assert!(error.contains("chmod +x"), "{error}");
}

/// One that ignores SIGTERM, with a child that does too: both are gone before the event may be tried again.
#[tokio::test]
async fn a_program_that_takes_too_long_is_ended_with_all_that_it_started() {
    let script = r#"
trap '' TERM
at="$(dirname "$0")/$ENSUE_OBJECT"
sh -c 'trap "" TERM; echo $$ > "$0.grandchild"; while :; do sleep 0.1; done' "$at" &
echo $$ > "$at.child"
while :; do sleep 0.1; done
"#;
    let flow = Flow::start(script, "timeout: 500ms, retry: { attempts_max: 1 }").await;
    for round in 0..30 {
        let (begun, object) = (Instant::now(), format!("o{round}"));
        let seq = flow.publish(&object).await;
        let error = flow.becomes(seq, &[Standing::Held]).await.error.unwrap();
        assert!(error.starts_with("it took longer than its timeout of 500ms and was ended"), "{error}");
        let pids = (flow.read(&format!("{object}.child")), flow.read(&format!("{object}.grandchild")));
        let (Some(child), Some(grandchild)) = pids else {
            // The machine was too busy for the two of them to begin in time: they did not yet ignore anything.
            continue;
        };
        assert!(begun.elapsed() >= Duration::from_secs(5), "it had its time to end by itself");
        until(async || (!is_alive(&grandchild)).then_some(())).await;
        until(async || (!is_known(&child)).then_some(())).await;
        return;
    }
    panic!("the program never begins in time");
}

#[tokio::test]
async fn one_that_ends_when_it_is_asked_to_is_not_waited_for() {
    let flow = Flow::start("exec sleep 600", "timeout: 200ms, retry: { attempts_max: 1 }").await;
    // What is waited for takes five seconds longer each time; a busy machine is not busy all the time.
    let mut took = Vec::new();
    for round in 0..10 {
        let begun = Instant::now();
        let seq = flow.publish(&format!("o{round}")).await;
        flow.becomes(seq, &[Standing::Held]).await;
        took.push(begun.elapsed());
        if took[round] < Duration::from_secs(4) {
            return;
        }
    }
    panic!("{took:?}");
}

#[tokio::test]
async fn what_a_program_leaves_running_is_ended_with_it() {
    let script = r#"
sleep 600 &
echo $! > "$(dirname "$0")/left"
echo done
"#;
    let flow = Flow::start(script, "logs: always").await;
    let seq = flow.publish("o").await;
    flow.becomes(seq, &[Standing::Done]).await;
    let left = flow.read("left").unwrap();
    until(async || (!is_alive(&left)).then_some(())).await;
    assert_eq!(flow.lines(seq).await[0].message, "done");
}

/// More than anybody wants to keep, on both ways, faster than it could be kept.
#[tokio::test]
async fn endless_output_is_cut_and_does_not_hold_the_program_up() {
    let script = r#"
head -c 3000000 /dev/zero | tr '\0' 'x'
yes line | head -n 400000
yes complaint | head -n 400000 >&2
echo the last words >&2
exit 1
"#;
    let flow = Flow::start(script, "retry: { attempts_max: 1 }").await;
    let seq = flow.publish("o").await;
    let error = flow.becomes(seq, &[Standing::Held]).await.error.unwrap();
    assert!(error.ends_with("complaint\nthe last words"), "{error}");
    let lines = flow.lines(seq).await;
    let bytes: usize = lines.iter().map(|line| line.message.len()).sum();
    assert!(bytes < 2 << 20 && lines.len() <= 10_001, "{bytes} bytes in {} lines", lines.len());
    let cut = &lines[0].message;
    assert!(cut.len() <= 8 << 10 && cut.contains("bytes were cut"), "{} bytes", cut.len());
    assert!(lines.last().unwrap().message.contains("more lines were dropped"), "{:?}", lines.last());
}

#[tokio::test]
async fn a_program_need_not_read_its_stdin() {
    let flow = Flow::start("exit 0", "").await;
    let large = NewEvent::new("t.x").payload(&"x".repeat(900_000));
    let seq = flow.bus.publish(large).await.unwrap().seq.unwrap();
    flow.becomes(seq, &[Standing::Done]).await;
    let flow = Flow::start("exec <&-\nsleep 0.2\necho fine", "logs: always").await;
    let large = NewEvent::new("t.x").payload(&"x".repeat(900_000));
    let seq = flow.bus.publish(large).await.unwrap().seq.unwrap();
    flow.becomes(seq, &[Standing::Done]).await;
}

/// What the process that stops has to end is run again, and has used up no attempt.
#[tokio::test]
async fn a_program_may_finish_while_the_process_stops_and_else_is_run_again() {
    let quick = r#"
echo $$ > "$(dirname "$0")/begun"
sleep 0.5
echo finished > "$(dirname "$0")/finished"
"#;
    let mut flow = Flow::start(quick, "").await;
    let seq = flow.publish("o").await;
    until(async || flow.read("begun").filter(|text| text.ends_with('\n'))).await;
    flow.running.take().unwrap().shutdown(PATIENCE).await.unwrap();
    assert!(flow.read("finished").is_some());
    assert_eq!(flow.becomes(seq, &[Standing::Done]).await.standing, Standing::Done);

    let folder = tempfile::tempdir().unwrap();
    let script = "echo $$ > \"$(dirname \"$0\")/begun\"\nexec sleep 600";
    std::fs::write(folder.path().join("script.sh"), script).unwrap();
    let bus = Ensue::memory().await.unwrap();
    let text = format!("handlers:\n  t:\n  - {{ name: h, command: [sh, {:?}] }}\n", folder.path().join("script.sh"));
    config(&text, 2).bind(&bus).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(NewEvent::new("t.x").object("o")).await.unwrap();
    let begun = folder.path().join("begun");
    let pid = until(async || std::fs::read_to_string(&begun).ok().filter(|text| text.ends_with('\n'))).await;
    let stopping = Instant::now();
    running.shutdown(Duration::from_secs(2)).await.unwrap();
    assert!(stopping.elapsed() < Duration::from_secs(60), "{:?}", stopping.elapsed());
    until(async || (!is_known(&pid)).then_some(())).await;
    let lanes = bus.store().lanes(LaneQuery::Object(ensue::ObjectKey::parse("o").unwrap()), 9).await.unwrap();
    assert_eq!((lanes[0].lane.state, lanes[0].lane.attempts, lanes[0].lane.position), (LaneState::Waiting, 0, 1));
}

/// A process that loses its handlers leaves no program behind.
#[tokio::test]
async fn a_program_whose_attempt_is_dropped_is_ended_at_once() {
    let mut flow =
        Flow::start("echo $$ > \"$(dirname \"$0\")/begun\"\ntrap '' TERM\nwhile :; do sleep 0.1; done", "").await;
    flow.publish("o").await;
    let pid = until(async || flow.read("begun").filter(|text| text.ends_with('\n'))).await;
    drop(flow.running.take());
    until(async || (!is_known(&pid)).then_some(())).await;
}

/// `::event` and `::job` on stdout are committed with the end of the attempt; of a failed attempt nothing is sent.
#[tokio::test]
async fn program_publishes_and_emits_with_its_end() {
    let script = r#"
echo '::event {"topic":"sent","object":"o","payload":{"attempt":'$ENSUE_ATTEMPT'}}'
echo '::job {"handler":"mail.send","object":"u","payload":[1]}'
echo '::eventually no event'
echo '::event {"topic":"complained"}' >&2
[ "$ENSUE_ATTEMPT" = 2 ]
"#;
    let flow = Flow::start(script, "retry: { delays: [0s] }, logs: always, audit: true").await;
    let seq = flow.publish("o").await;
    assert_eq!(flow.becomes(seq, &[Standing::Done]).await.attempts, 2);
    let read = ensue::store::Read { after: seq, limit: 10, filter: ensue::Filter::default() };
    let events = flow.bus.store().read(read).await.unwrap().events;
    let shown: Vec<_> = events.iter().map(|event| (event.topic.as_str(), event.payload.as_str())).collect();
    assert_eq!(shown, [("sent", r#"{"attempt":2}"#)]);
    let jobs = flow.bus.jobs(ensue::jobs::JobQuery::default(), 10).await.unwrap().jobs;
    let shown: Vec<_> = jobs.iter().map(|job| (job.handler.as_str(), job.payload.as_str())).collect();
    assert_eq!(shown, [("mail.send", "[1]")]);
    let lines: Vec<String> = flow.lines(seq).await.into_iter().map(|line| line.message).collect();
    assert!(lines.contains(&"::eventually no event".to_owned()), "{lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with("::job")), "{lines:?}");
}

#[tokio::test]
async fn line_that_cannot_be_sent_fails_the_attempt_and_sends_nothing() {
    for (line, reason) in [
        (r#"::event {"tpoic":"x"}"#, "`tpoic` is not a field of an event"),
        (r#"::event {"topic":"ensue.mine"}"#, "event 2 cannot be published: `topic`"),
        ("::event nonsense", "its line `::event` cannot be sent, and nothing was: `body` is not JSON"),
        (r#"::job {"handler":"a..b"}"#, "its line `::job` cannot be sent, and nothing was: `handler`"),
    ] {
        let script = format!("echo '::event {{\"topic\":\"sent\"}}'\necho '{line}'\n");
        let flow = Flow::start(&script, "retry: { attempts_max: 1 }").await;
        let seq = flow.publish("o").await;
        let error = flow.becomes(seq, &[Standing::Held]).await.error.unwrap();
        assert!(error.contains(reason), "{line}: {error}");
        let read = ensue::store::Read { after: seq, limit: 10, filter: ensue::Filter::default() };
        let events = flow.bus.store().read(read).await.unwrap().events;
        assert!(events.iter().all(|event| event.topic.as_str() != "sent"), "{line}");
    }
}
