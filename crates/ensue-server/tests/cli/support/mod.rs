//! How does a test run `ensue` as a user does?

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up waiting for it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A command of the built program in a folder, without any variable of the surroundings.
pub fn ensue(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ensue"));
    without_variables(command.args(arguments).current_dir(folder));
    command
}

/// The command without any variable of ours from the surroundings.
pub fn without_variables(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ENSUE_") {
            command.env_remove(name);
        }
    }
    command
}

/// What a command did.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    pub fn of(command: &mut Command) -> Self {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// What it printed, where it must have succeeded.
    pub fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// The JSON it printed, where it must have succeeded.
    pub fn json(self) -> Value {
        let text = self.good();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// What it complained about, where it must have failed.
    pub fn bad(self) -> String {
        assert!(matches!(self.code, Some(1 | 3 | 4 | 5)), "{self:?}");
        self.stderr
    }
}

/// Runs a command to its end.
pub fn run(folder: &Path, arguments: &[&str]) -> Run {
    Run::of(&mut ensue(folder, arguments))
}

/// Runs a command to its end with something on its stdin.
pub fn run_with_stdin(folder: &Path, arguments: &[&str], input: &str) -> Run {
    let mut command = ensue(folder, arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Run { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// A running server. Killed when dropped.
pub struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub url: String,
}

impl Server {
    /// Starts `ensue serve` on a free port with a store in the folder, and waits until it tells its address.
    pub fn start(folder: &Path) -> Self {
        Self::start_with(&mut ensue(folder, &["serve", "--listen", "127.0.0.1:0"]), folder)
    }

    /// Starts this command, its stderr in `serve.log`.
    pub fn start_with(command: &mut Command, folder: &Path) -> Self {
        let log = File::options().create(true).append(true).open(folder.join("serve.log")).unwrap();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (mut said, mut line) = (String::new(), String::new());
        // A server that is a test of its own has the test's name before its address.
        let url = loop {
            line.clear();
            if stdout.read_line(&mut line).unwrap() == 0 {
                let status = child.wait().unwrap();
                let log = std::fs::read_to_string(folder.join("serve.log")).unwrap_or_default();
                panic!("no server: {said:?}, {status}\n{log}");
            }
            if let Some((_, url)) = line.trim().split_once("listening on ") {
                break url.to_string();
            }
            said.push_str(&line);
        };
        Self { child, stdout, url }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it ended by itself?
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Runs a client command against it.
    pub fn run(&self, folder: &Path, arguments: &[&str]) -> Run {
        Run::of(ensue(folder, arguments).env("ENSUE_URL", &self.url))
    }

    /// As a power cut would.
    pub fn kill9(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, name: &str) {
        ensue_conformance::postgres::signal(name, self.pid());
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "the server did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Tells it to stop, and waits until it has.
    pub fn terminate(mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended before; either way it is gone afterwards.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A child whose lines are read one by one. Killed when dropped.
pub struct Lines {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Lines {
    pub fn of(command: &mut Command) -> Self {
        Self::with_stderr(command, Stdio::inherit())
    }

    pub fn with_stderr(command: &mut Command, stderr: impl Into<Stdio>) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    /// The next line, for which a test has patience.
    pub fn next(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("another line")
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Where the commands of a test go.
pub enum Place<'a> {
    Server(&'a Server),
    Store(String),
}

impl Place<'_> {
    pub fn command(&self, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = ensue(folder, arguments);
        match self {
            Place::Server(server) => command.env("ENSUE_URL", &server.url),
            Place::Store(url) => command.args(["--store", url]),
        };
        if let (Place::Store(_), Some(&"publish")) = (self, arguments.first()) {
            command.arg("--create");
        }
        command
    }

    pub fn run(&self, folder: &Path, arguments: &[&str]) -> Run {
        Run::of(&mut self.command(folder, arguments))
    }
}

/// The same scenario through a server, on SQLite itself and on Postgres itself.
pub fn everywhere(scenario: impl Fn(&Path, Place<'_>)) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    scenario(folder.path(), Place::Server(&server));
    let folder = tempfile::tempdir().unwrap();
    scenario(folder.path(), Place::Store("sqlite:my.db".into()));
    let folder = tempfile::tempdir().unwrap();
    let (url, _) = ensue_conformance::postgres::fresh_schema("cli");
    scenario(folder.path(), Place::Store(url));
}
