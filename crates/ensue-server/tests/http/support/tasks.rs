//! What a collection's tasks do, on any engine, over HTTP.

use super::{Answer, PATIENCE, Server};
use ensue::jobs::JobState;
use ensue::tasks::job_of_task;
use ensue::{Ensue, Running};
use ensue_server::HttpOptions;
use ensue_server::config::file::ConfigFile;
use ensue_server::config::sources;
use ensue_server::executors::{Executors, Guard};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// A server with the source `s`, whose collections run scripts of a shell in a folder.
pub struct Tasks {
    pub server: Server,
    pub folder: tempfile::TempDir,
    running: Option<Running>,
}

/// All times.
pub const EVER: &str = "start=2020-01-01T00:00:00Z&end=2999-01-01T00:00:00Z";

impl Tasks {
    /// Each collection has a name, a script, and other fields.
    pub async fn start(bus: Ensue, options: HttpOptions, collections: &[(&str, &str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut text = "sources:\n  s:\n    collections:\n".to_owned();
        for (name, script, more) in collections {
            let path = folder.path().join(format!("{name}.sh"));
            std::fs::write(&path, format!("cd '{}'\n{script}\n", folder.path().display())).unwrap();
            text.push_str(&format!("    - {{ name: {name}, command: [sh, {path:?}], {more} }}\n"));
        }
        Self::of_config(bus, options, folder, &text).await
    }

    pub async fn of_config(bus: Ensue, options: HttpOptions, folder: tempfile::TempDir, text: &str) -> Self {
        rustls::crypto::ring::default_provider().install_default().ok();
        let guard = Guard::new([], true);
        let section = ConfigFile::parse("test.yaml", text).unwrap().sources.unwrap();
        let configs = sources::check(section, Path::new("test.yaml"), &guard).unwrap();
        let executors = Executors::new(guard, Duration::from_secs(30));
        bus.set_collections(executors.collections(&configs, bus.collections()).unwrap()).await.unwrap();
        let running = Some(bus.start().await.unwrap());
        Self { server: Server::serve(bus, options).await, folder, running }
    }

    pub async fn post(&self, target: &str) -> Answer {
        self.server.request("POST", target, &[], b"").await
    }

    /// Wants a task; its id, and whether it is new.
    pub async fn run(&self, collection: &str) -> (String, bool) {
        let answer = self.post(&format!("/tasks/?source=s&collection={collection}")).await;
        assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
        (answer.json()["task_id"].as_str().unwrap().to_owned(), answer.status == 201)
    }

    pub async fn show(&self, id: &str) -> Value {
        let answer = self.server.get(&format!("/tasks/{id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// The task, as soon as it has this status.
    pub async fn until(&self, id: &str, status: &str) -> Value {
        self.until_it(id, |task| task["status"] == status).await
    }

    pub async fn until_it(&self, id: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let mut task = Value::Null;
        let looked = async {
            loop {
                task = self.show(id).await;
                if is_it(&task) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let came = tokio::time::timeout(PATIENCE, looked).await.is_ok();
        assert!(came, "it never came about: {task}");
        task
    }

    /// Lines as `level message`.
    pub async fn lines(&self, id: &str, query: &str) -> Vec<String> {
        let answer = self.server.get(&format!("/tasks/{id}/logs{query}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let logs = answer.json()["logs"].as_array().unwrap().clone();
        logs.iter()
            .map(|line| format!("{} {}", line["level"].as_str().unwrap(), line["message"].as_str().unwrap()))
            .collect()
    }

    pub async fn until_lines(&self, id: &str, are: impl Fn(&[String]) -> bool) -> Vec<String> {
        let looked = async {
            loop {
                let lines = self.lines(id, "").await;
                if are(&lines) {
                    return lines;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, looked).await.expect("it never said so")
    }

    pub async fn list(&self, query: &str) -> Vec<String> {
        let answer = self.server.get(&format!("/tasks?source=s&{query}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Who works for a task says how much is done; it is shown.
    pub async fn says_how_far(&self, id: &str, claim: &str, done: u64) {
        let target = format!("/v1/jobs/{}/progress", job_of_task(id).unwrap());
        let body = json!({ "claim": claim, "done": done }).to_string();
        let answer = self.server.request("POST", &target, &["Content-Type: application/json"], body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(self.show(id).await["progress"]["done"], done);
    }

    pub fn write(&self, name: &str) {
        std::fs::write(self.folder.path().join(name), "").unwrap();
    }

    pub async fn until_file(&self, name: &str) -> String {
        let looked = async {
            loop {
                match std::fs::read_to_string(self.folder.path().join(name)) {
                    Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                    _ => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, looked).await.expect("the script did not come so far")
    }

    pub async fn stop(mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown(PATIENCE).await.unwrap();
        }
    }
}

/// A script that goes on until a file is there.
pub fn waits_for(file: &str) -> String {
    format!("while ! [ -e {file} ]; do sleep 0.05; done")
}

fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

async fn until_dead(pid: &str) {
    let gone = async {
        while is_alive(pid) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the process is still there");
}

/// Everything of a task's life, in the words of the API. What it says and how far it is can be seen while it runs.
pub async fn a_task_is_made_runs_and_ends(bus: Ensue) {
    let script = format!(
        "echo \"$ENSUE_TASK_ID $ENSUE_SOURCE $ENSUE_COLLECTION\"\necho ::progress 40 of 100 rows\necho oh >&2\n{}\n\
         printf 'bad \\377 byte\\nno newline'\necho ::progress 100 of 100 rows\n",
        waits_for("go")
    )
    // The mark is one only at the beginning of a line.
    .replace("no newline'\necho", "last\\n'\necho")
        + "printf 'no newline'";
    let tasks = Tasks::start(bus, HttpOptions::default(), &[("c", &script, "priority: 7")]).await;
    let (id, is_new) = tasks.run("c").await;
    assert!(is_new && id.starts_with("s_c_"), "{id}");
    let task = tasks.until(&id, "RUNNING").await;
    assert_eq!(tasks.run("c").await, (id.clone(), false), "one at a time");
    for (field, value) in [
        ("id", json!(id)),
        ("source", json!("s")),
        ("collection", json!("c")),
        ("priority", json!(1_007)),
        ("finished_at", json!("")),
        ("attempts_max", json!(1)),
    ] {
        assert_eq!(task[field], value, "{field}");
    }
    let time = |field: &str| task[field].as_str().unwrap().parse::<ensue::Timestamp>().unwrap();
    assert!(time("started_at") >= time("created_at"), "{task}");
    let said = tasks.until_lines(&id, |lines| lines.len() == 2).await;
    assert!(said.contains(&format!("info {id} s c")) && said.contains(&"error oh".into()), "{said:?}");
    let task = tasks.until_it(&id, |task| !task["progress"].is_null()).await;
    assert_eq!(task["status"], "RUNNING");
    let progress = &task["progress"];
    assert_eq!((&progress["done"], &progress["total"], &progress["unit"]), (&json!(40), &json!(100), &json!("rows")));

    tasks.write("go");
    let task = tasks.until(&id, "SUCCESS").await;
    assert!(!task["finished_at"].as_str().unwrap().is_empty() && task["error"].is_null(), "{task}");
    assert_eq!(task["progress"]["done"], 100);
    let lines = tasks.lines(&id, "").await;
    assert_eq!(lines[2..], ["info bad \u{fffd} byte", "info last", "info no newline"]);
    // Both ends of a period are meant.
    let logs = tasks.server.get(&format!("/tasks/{id}/logs/")).await.json();
    let at = |index: usize| logs["logs"][index]["time"].as_str().unwrap().to_owned();
    let between = tasks.lines(&id, &format!("?start={}&end={}", at(2), at(4))).await;
    assert_eq!(between, lines[2..]);
    assert_eq!(tasks.lines(&id, "?start=2999-01-01T00:00:00Z").await, [] as [&str; 0]);
    assert_eq!(tasks.lines(&id, &format!("?end={}", at(0))).await[..1], lines[..1]);

    // What is over is no reason not to begin again.
    let (next, is_new) = tasks.run("c").await;
    assert!(is_new && next != id);
    tasks.until(&next, "SUCCESS").await;
    assert_eq!(tasks.list(EVER).await, [id.clone(), next.clone()]);
    let created = task["created_at"].as_str().unwrap();
    assert_eq!(tasks.list(&format!("start={created}&end={created}")).await, [&*id]);
    assert_eq!(tasks.list(&format!("{EVER}&status=SUCCESS&collection=c&limit=1")).await, [&*id]);
    assert_eq!(tasks.list(&format!("{EVER}&limit=1&after={id}")).await, [next]);
    assert_eq!(tasks.list(&format!("{EVER}&status=FAILED")).await, [] as [&str; 0]);
    // With a slash at the end, too.
    let slashed = tasks.server.get(&format!("/tasks/?source=s&{EVER}")).await;
    assert_eq!(slashed.json(), tasks.server.get(&format!("/tasks?source=s&{EVER}")).await.json());
    assert_eq!(tasks.server.get(&format!("/tasks/{id}/")).await.json(), tasks.show(&id).await);
    tasks.stop().await;
}

/// What fails says why in its log: its exit code, a program that is not there, its time. It is tried again if that is asked
/// for.
pub async fn a_task_that_fails_says_why(bus: Ensue) {
    let folder = tempfile::tempdir().unwrap();
    let config = "sources:\n  s:\n    collections:\n    - { name: none, command: [./no-such-program] }\n    \
         - { name: code, command: [sh, -c, 'echo boom >&2; exit 3'] }\n    \
         - { name: slow, command: [sh, -c, 'sleep 600'], timeout: 300ms }\n    \
         - { name: again, command: [sh, -c, 'echo $ENSUE_ATTEMPT; exit $((2 - $ENSUE_ATTEMPT))'], retry: { delays: [0s] } }\n";
    let tasks = Tasks::of_config(bus, HttpOptions::default(), folder, config).await;
    for (name, why) in [("none", "cannot be started"), ("code", "exit code 3: boom"), ("slow", "its timeout of 300ms")]
    {
        let (id, _) = tasks.run(name).await;
        let task = tasks.until(&id, "FAILED").await;
        assert!(task["error"].as_str().unwrap().contains(why), "{task}");
        let lines = tasks.lines(&id, "").await;
        let last = lines.last().unwrap();
        assert!(last.starts_with("error ") && last.contains(why), "{lines:?}");
    }
    let (id, _) = tasks.run("again").await;
    let task = tasks.until(&id, "SUCCESS").await;
    assert_eq!((&task["attempts"], &task["attempts_max"]), (&json!(2), &json!(2)));
    let lines = tasks.lines(&id, "").await;
    assert_eq!((lines.len(), &*lines[0], &*lines[2]), (3, "info 1", "info 2"), "{lines:?}");
    assert!(lines[1].contains("exit code 1"), "{lines:?}");
    tasks.stop().await;
}

/// H21: a late finish does not overwrite a cancellation, nor a cancellation a finish. A program that does not listen is ended
/// with all that it has started.
pub async fn a_task_that_is_called_off_is_canceled_however_it_ends(bus: Ensue) {
    let stubborn = "trap '' TERM\nsh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 0.1; done' &\n\
         echo $$ > pid\nwhile :; do sleep 0.1; done";
    let polite = "trap 'exit 0' TERM\necho $$ > begun\nwhile :; do sleep 0.05; done";
    let collections = [("stubborn", stubborn, ""), ("polite", polite, ""), ("quick", "exit 0", "")];
    let tasks = Tasks::start(bus, HttpOptions::default(), &collections).await;
    let (id, _) = tasks.run("polite").await;
    tasks.until_file("begun").await;
    let answer = tasks.post(&format!("/tasks/{id}/cancel")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let task = tasks.until(&id, "CANCELED").await;
    assert!(!task["finished_at"].as_str().unwrap().is_empty());
    // Its log says why, last.
    let told = "info it was called off and its program was ended";
    assert_eq!(tasks.lines(&id, "").await.last().unwrap(), told);
    let refused = tasks.post(&format!("/tasks/{id}/cancel/")).await.problem(409);
    assert!(refused.contains(&format!("task {id}")) && refused.contains("cancelled already"), "{refused}");

    let (id, _) = tasks.run("stubborn").await;
    let (pid, child) = (tasks.until_file("pid").await, tasks.until_file("child").await);
    assert_eq!(tasks.post(&format!("/tasks/{id}/cancel")).await.status, 200);
    tasks.until(&id, "CANCELED").await;
    assert_eq!(tasks.lines(&id, "").await.last().unwrap(), told);
    until_dead(&pid).await;
    until_dead(&child).await;

    let (id, _) = tasks.run("quick").await;
    tasks.until(&id, "SUCCESS").await;
    tasks.post(&format!("/tasks/{id}/cancel")).await.problem(409);
    assert_eq!(tasks.show(&id).await["status"], "SUCCESS");
    tasks.stop().await;
}

/// H21: of many who want it at once, one makes it, and all are told of the same.
pub async fn of_many_requests_one_makes_the_task(bus: Ensue) {
    let waits = waits_for("go");
    let tasks = Tasks::start(bus, HttpOptions::default(), &[("c", &waits, "")]).await;
    let asked = futures_util::future::join_all((0..12).map(|_| tasks.run("c"))).await;
    assert_eq!(asked.iter().filter(|(_, is_new)| *is_new).count(), 1, "{asked:?}");
    assert!(asked.iter().all(|(id, _)| *id == asked[0].0), "{asked:?}");
    tasks.write("go");
    tasks.until(&asked[0].0, "SUCCESS").await;
    assert_eq!(tasks.list(EVER).await.len(), 1);
    tasks.stop().await;
}

/// Higher first, first come first served inside; and one that waits is canceled at once.
pub async fn tasks_run_by_priority_and_in_their_order(bus: Ensue) {
    let note = |name: &str| format!("echo {name} >> order");
    let (first, a, b, c, d) = (waits_for("go"), note("a"), note("b"), note("c"), note("d"));
    let tasks = Tasks::start(
        bus,
        HttpOptions::default(),
        &[
            ("first", &first, ""),
            ("a", &a, ""),
            ("b", &b, "priority: 101"),
            ("c", &c, ""),
            ("d", &d, "priority: 9007199254740993"),
        ],
    )
    .await;
    tasks.server.bus.set_workers(1);
    let (first, _) = tasks.run("first").await;
    tasks.until(&first, "RUNNING").await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c", "d"] {
        ids.push(tasks.run(name).await.0);
    }
    assert_eq!(tasks.show(&ids[0]).await["status"], "SCHEDULED");
    assert_eq!(tasks.show(&ids[0]).await["started_at"], "");
    let canceled = tasks.post(&format!("/tasks/{}/cancel", ids[2])).await;
    assert_eq!(canceled.json()["status"], "CANCELED");
    assert_eq!(tasks.list(&format!("{EVER}&status=CANCELED")).await, ids[2..3]);
    tasks.write("go");
    for id in [&ids[0], &ids[1], &ids[3]] {
        tasks.until(id, "SUCCESS").await;
    }
    let order = std::fs::read_to_string(tasks.folder.path().join("order")).unwrap();
    assert_eq!(order.split_whitespace().collect::<Vec<_>>(), ["d", "b", "a"]);
    tasks.stop().await;
}

/// H11: whoever has taken a task and vanishes leaves it to be found: it has failed, or is tried again, and its log says why.
pub async fn a_task_whose_worker_vanishes_is_found(bus: Ensue) {
    let (retry, quiet) = ("retry: { delays: [0s] }", "");
    let store = bus.store().clone();
    let tasks =
        Tasks::start(bus, HttpOptions::default(), &[("once", "exit 0", quiet), ("twice", "exit 0", retry)]).await;
    // Nobody here takes them before the one who vanishes has.
    let paused = tasks.server.request("PUT", "/v1/rules/pause/handler:task", &[], b"").await;
    assert!(matches!(paused.status, 200 | 201), "{}", paused.text());
    let (once, _) = tasks.run("once").await;
    let (twice, _) = tasks.run("twice").await;
    assert_eq!(tasks.show(&once).await["status"], "SCHEDULED", "what a rule holds waits");
    tasks.server.bus.set_collections(Vec::new()).await.unwrap();
    tasks.server.delete("/v1/rules/pause/handler:task").await;
    for name in ["once", "twice"] {
        let wants = format!(r#"{{"handlers":["task.s.{name}"],"lease_ms":300,"worker":"gone"}}"#);
        let json = ["Content-Type: application/json"];
        let taken = tasks.server.request("POST", "/v1/jobs/claim", &json, wants.as_bytes()).await.json();
        assert_eq!(taken["jobs"].as_array().map(Vec::len), Some(1), "{name}: {taken}");
    }
    let failed = tasks.until(&once, "FAILED").await;
    assert!(failed["error"].as_str().unwrap().contains("\"gone\" was not heard of"), "{failed}");
    let lines = tasks.lines(&once, "").await;
    assert!(lines.len() == 1 && lines[0].starts_with("error its worker \"gone\" was not heard of"), "{lines:?}");
    let again = tasks.until(&twice, "SCHEDULED").await;
    assert_eq!(again["attempts"], 1);
    assert_eq!(tasks.lines(&twice, "").await.len(), 1);
    let state = store.job(job_of_task(&twice).unwrap()).await.unwrap().unwrap().state;
    assert!(matches!(state, JobState::Retrying | JobState::Available), "{state:?}");
    tasks.stop().await;
}

/// A task that waits for its next attempt has said something: its last line says that there is none.
pub async fn a_task_that_is_called_off_between_two_attempts_says_so(bus: Ensue) {
    let tasks = Tasks::start(bus, HttpOptions::default(), &[("c", "exit 1", "retry: { delays: [1h] }")]).await;
    let (id, _) = tasks.run("c").await;
    tasks.until_it(&id, |task| task["status"] == "SCHEDULED" && task["error"].is_string()).await;
    assert_eq!(tasks.post(&format!("/tasks/{id}/cancel")).await.status, 200);
    tasks.until(&id, "CANCELED").await;
    let lines = tasks.lines(&id, "").await;
    assert_eq!(lines.last().map(String::as_str), Some("info it was called off"), "{lines:?}");
    tasks.stop().await;
}
