//! A page of another origin, in a real Chromium, neither changes nor reads anything of a server without tokens.
//!
//! The test serves the page itself. `evil.test` leads to this machine by a flag of the browser, so that the page has a
//! foreign site. DNS rebinding is a page whose own origin suddenly is the server: the page's port passes every other
//! request on, byte for byte, with the `Host` that the browser wrote.

mod site;

use crate::support::Server;
use serde_json::{Value, json};
use site::{Site, visit};
use std::path::Path;

/// A server with a task, a schedule, a group and a job that a page can attack.
struct Victim {
    server: Server,
    folder: tempfile::TempDir,
    job: String,
}

impl Victim {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = "sources:\n  s:\n    collections:\n    - { name: c, command: [touch, ran] }\n";
        std::fs::write(folder.path().join("ensue.yaml"), config).unwrap();
        let server = Server::start(folder.path());
        let run = |arguments: &[&str]| server.run(folder.path(), arguments);
        run(&["schedule", "set", "beat", "--cron", "@yearly", "--topic", "beat"]).good();
        run(&["group", "create", "g", "--start", "beginning"]).good();
        let job = run(&["emit", "mail.send", "--json"]).json();
        let job = job["jobs"][0]["id"].as_str().or(job["id"].as_str()).unwrap().to_owned();
        Self { server, folder, job }
    }

    fn run(&self, arguments: &[&str]) -> Value {
        self.server.run(self.folder.path(), arguments).json()
    }

    fn port(&self) -> u16 {
        self.server.url.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    #[track_caller]
    fn assert_untouched(&self) {
        assert!(!self.folder().join("ran").exists(), "a task's command ran");
        assert_eq!(self.run(&["task", "list", "s", "--json"])["tasks"], json!([]), "a task was made");
        let schedule = self.run(&["schedule", "show", "beat", "--json"]);
        assert_eq!(schedule["runs"].as_array().map_or(0, Vec::len), 0, "the schedule fired: {schedule}");
        let groups = self.run(&["group", "list", "--json"]);
        assert_eq!(groups["groups"].as_array().unwrap().len(), 1, "{groups}");
        let group = self.run(&["group", "show", "g", "--json"]);
        assert_eq!(group["served_at"], group["created_at"], "the group's lease was taken: {group}");
        assert_eq!(self.run(&["job", "show", &self.job, "--json"])["state"], "available", "the job was cancelled");
        let log = self.run(&["event", "list", "--json"]);
        assert_eq!(log["events"], json!([]), "something was published");
    }
}

/// Opens the attack page at `origin` and returns what it could read.
fn attack(victim: &Victim, site: &Site, origin: &str, base: &str) -> Vec<String> {
    let page = include_str!("attack.html")
        .replace("{{base}}", base)
        .replace("{{job}}", &victim.job)
        .replace("{{report}}", &format!("{origin}/report"));
    visit(site, &format!("{origin}/page"), &page)
}

/// From another site, from another port of this machine, and from a sandboxed frame (`Origin: null`).
#[test]
fn page_of_another_origin_changes_and_reads_nothing() {
    let victim = Victim::start();
    let site = Site::start(None);
    for origin in [format!("http://evil.test:{}", site.port), format!("http://127.0.0.1:{}", site.port)] {
        let readable = attack(&victim, &site, &origin, &victim.server.url);
        assert_eq!(readable, [] as [&str; 0], "from {origin}");
        victim.assert_untouched();
    }
    let origin = format!("http://127.0.0.1:{}", site.port);
    site.sandbox(true);
    let readable = attack(&victim, &site, &origin, &victim.server.url);
    assert_eq!(readable, [] as [&str; 0], "from a sandboxed page");
    victim.assert_untouched();
}

#[test]
fn rebound_name_changes_and_reads_nothing() {
    let victim = Victim::start();
    let site = Site::start(Some(victim.port()));
    let readable = attack(&victim, &site, &format!("http://evil.test:{}", site.port), "");
    assert_eq!(readable, [] as [&str; 0]);
    victim.assert_untouched();
}

/// The counterpart: a page of the server's own origin may do everything, forms excepted.
#[test]
fn page_of_the_same_origin_reads_streams_and_publishes() {
    let victim = Victim::start();
    let site = Site::start(Some(victim.port()));
    let readable = attack(&victim, &site, &format!("http://127.0.0.1:{}", site.port), "");
    for allowed in ["json /v1/events", "get /v1/events", "get /health", "EventSource /v1/events/stream", "put "] {
        assert!(readable.iter().any(|entry| entry.starts_with(allowed)), "{allowed}: {readable:?}");
    }
    for refused in ["empty ", "text ", "delete "] {
        assert!(!readable.iter().any(|entry| entry.starts_with(refused)), "{refused}: {readable:?}");
    }
}
