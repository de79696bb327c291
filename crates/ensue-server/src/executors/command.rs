//! How is a program run for an event?
//!
//! It gets the event as JSON on its stdin, with the task beside it if it is run for one, what it says becomes the log, and its exit code says whether it succeeded. One
//! that takes too long is asked to end (SIGTERM) and, if it does not, ended (SIGKILL), with everything that it has
//! started; only then the attempt has failed and the event may be tried again. It ends with this process (`starter.rs`).

use super::input;
use super::output::Output;
use super::process_group::ProcessGroup;
use super::starter;
use ensue::{Context, Event, HandlerError, Level, Outcome};
use rustix::io::Errno;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::pin::{Pin, pin};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};

/// How long a program may take to end once it is asked to.
const END_MAX: Duration = Duration::from_secs(5);
/// How long the rest of its output may take to come when it has ended.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);
/// How long until a program is started again for which the system had no room.
const START_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// What a program is told about its event, by these names.
pub const VARIABLES: [&str; 8] = [
    "ENSUE_EVENT_SEQ",
    "ENSUE_EVENT_ID",
    "ENSUE_TOPIC",
    "ENSUE_OBJECT",
    "ENSUE_ATTEMPT",
    "ENSUE_REDRIVEN",
    "ENSUE_FENCE",
    "ENSUE_HANDLER",
];
/// What a program that is run for a job is told, to say over HTTP how far it is.
pub const CLAIM_VARIABLE: &str = "ENSUE_CLAIM";
/// What a program is told about its task, beside these.
pub const TASK_VARIABLES: [&str; 3] = ["ENSUE_TASK_ID", "ENSUE_SOURCE", "ENSUE_COLLECTION"];
/// Settings of this server that hold secrets, and are none of a program's business.
pub const SECRET_VARIABLES: [&str; 2] = ["ENSUE_TOKEN", "ENSUE_STORE"];

/// A program and its arguments.
#[derive(Debug)]
pub(super) struct Program {
    command: Vec<String>,
    /// How long it may go on when this process stops, and how long it may take to end after that.
    stop_after: Duration,
    stop_max: Duration,
}

/// A program that was to be started.
enum Start {
    Child(Child),
    /// The system has no room for it now. No attempt is used up.
    Later(Duration),
}

/// Why a program was asked to end.
#[derive(Debug, Clone, Copy)]
enum Asked {
    TimedOut(Duration),
    Stopping,
    CalledOff,
}

impl Program {
    /// When the process stops, it has `drain_max` in all.
    pub fn new(command: &[String], drain_max: Duration) -> Self {
        let margin = (drain_max / 4).min(END_MAX + LAST_WORDS_MAX);
        Self { command: command.to_vec(), stop_after: drain_max - margin, stop_max: margin * 5 / 6 }
    }

    /// Runs it for one event.
    pub async fn run(&self, event: Event, cx: &Context) -> Result<Outcome, HandlerError> {
        let mut child = match self.start(&event, cx)? {
            Start::Child(child) => child,
            Start::Later(wait) => return Ok(Outcome::Snooze(wait)),
        };
        let group = ProcessGroup::of(&child);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let input = input(&event, cx)?;
        let output = Output::new(cx);
        let mut talk = pin!(async {
            let said = async {
                if let Some(stdout) = stdout {
                    output.read(stdout, Level::Info).await;
                }
            };
            let complained = async {
                if let Some(stderr) = stderr {
                    output.read(stderr, Level::Error).await;
                }
            };
            tokio::join!(feed(stdin, &input), said, complained);
        });
        let mut talks = true;
        let (status, asked) = match until(&mut child, talk.as_mut(), &mut talks, self.must_end(cx)).await {
            Ok(status) => (status, None),
            Err(asked) => {
                group.terminate();
                let end_max = match asked {
                    Asked::TimedOut(_) | Asked::CalledOff => END_MAX,
                    Asked::Stopping => self.stop_max,
                };
                let status = match until(&mut child, talk.as_mut(), &mut talks, tokio::time::sleep(end_max)).await {
                    Ok(status) => status,
                    Err(()) => {
                        group.kill();
                        child.wait().await
                    }
                };
                (status, Some(asked))
            }
        };
        // Whatever it has left running holds its output open, and would be nobody's.
        group.end();
        if talks {
            let _rest_or_late = tokio::time::timeout(LAST_WORDS_MAX, talk).await;
        }
        let outcome = judge(status?, asked, &output)?;
        if matches!(outcome, Outcome::Done) {
            let handed_over = output.take_sends().and_then(|sends| sends.hand_over(cx));
            handed_over.map_err(HandlerError::failed)?;
        }
        Ok(outcome)
    }

    fn start(&self, event: &Event, cx: &Context) -> Result<Start, HandlerError> {
        let (program, arguments) = self.command.split_first().ok_or_else(|| HandlerError::failed("no program"))?;
        let values = [
            event.seq.to_string(),
            event.id.to_string(),
            event.topic.to_string(),
            event.object.as_ref().map_or_else(String::new, ToString::to_string),
            cx.attempt().to_string(),
            u8::from(cx.redriven()).to_string(),
            cx.fence().to_string(),
            cx.handler().to_owned(),
        ];
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(VARIABLES.into_iter().zip(values))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        match cx.claim() {
            Some(claim) => command.env(CLAIM_VARIABLE, claim.to_string()),
            None => command.env_remove(CLAIM_VARIABLE),
        };
        if let Some(task) = cx.task() {
            let values = [&task.id(), task.collection.source(), task.collection.name()];
            command.envs(TASK_VARIABLES.into_iter().zip(values));
        }
        for name in SECRET_VARIABLES {
            command.env_remove(name);
        }
        match starter::start(command) {
            Ok(child) => Ok(Start::Child(child)),
            Err(error) if is_shortage(&error) => {
                let handler = cx.handler();
                tracing::warn!(handler, program, %error, "program not started for lack of resources; retrying");
                Ok(Start::Later(START_AGAIN_AFTER))
            }
            Err(error) => Err(cannot_start(program, &error)),
        }
    }

    /// Comes back when it is to end.
    async fn must_end(&self, cx: &Context) -> Asked {
        let timed_out = async {
            match cx.timeout() {
                Some(timeout) => {
                    tokio::time::sleep(timeout).await;
                    Asked::TimedOut(timeout)
                }
                None => std::future::pending().await,
            }
        };
        let stopping = async {
            cx.cancelled().await;
            tokio::time::sleep(self.stop_after).await;
            Asked::Stopping
        };
        tokio::select! {
            asked = timed_out => asked,
            () = cx.called_off() => Asked::CalledOff,
            asked = stopping => asked,
        }
    }
}

/// Comes back when the program has ended, or before that when `limit` does. Meanwhile it is talked to.
async fn until<T>(
    child: &mut Child,
    mut talk: Pin<&mut impl Future<Output = ()>>,
    talks: &mut bool,
    limit: impl Future<Output = T>,
) -> Result<std::io::Result<ExitStatus>, T> {
    let mut limit = pin!(limit);
    loop {
        tokio::select! {
            status = child.wait() => return Ok(status),
            () = talk.as_mut(), if *talks => *talks = false,
            reached = limit.as_mut() => return Err(reached),
        }
    }
}

/// Hands the event over. A program that does not want it closes its end, which is its right.
async fn feed(stdin: Option<ChildStdin>, input: &[u8]) {
    let Some(mut stdin) = stdin else { return };
    let _taken_or_not_wanted = stdin.write_all(input).await;
}

fn judge(status: ExitStatus, asked: Option<Asked>, output: &Output<'_>) -> Result<Outcome, HandlerError> {
    let failed = |what: String| Err(HandlerError::failed(format!("{what}{}", output.last_errors())));
    match (asked, status.success(), status.code(), status.signal()) {
        (Some(Asked::TimedOut(timeout)), ..) => {
            failed(format!("it took longer than its timeout of {timeout:?} and was ended"))
        }
        // However it ended: it was told to.
        (Some(Asked::CalledOff), ..) => Ok(Outcome::Cancel("it was called off and its program was ended".into())),
        (_, true, ..) => Ok(Outcome::Done),
        // Nothing is wrong with it: it is run again by whoever comes next.
        (Some(Asked::Stopping), false, ..) => Ok(Outcome::Snooze(Duration::ZERO)),
        (None, false, Some(code), _) => failed(format!("it ended with exit code {code}")),
        (None, false, None, Some(signal)) => failed(format!("it was ended by signal {signal}")),
        (None, false, None, None) => failed("it ended in a way that is not known".into()),
    }
}

/// Does the process or the system lack descriptors, processes or memory? It is contention, which ends by itself.
fn is_shortage(error: &std::io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| shortages.iter().any(|shortage| shortage.raw_os_error() == code))
}

fn cannot_start(program: &str, error: &std::io::Error) -> HandlerError {
    let advice = match error.kind() {
        ErrorKind::NotFound => {
            "install it, or write its path in `command`; a relative path is looked up in the folder that the server was started in"
        }
        ErrorKind::PermissionDenied => "make it executable (chmod +x), or check who may read its folder",
        _ => "check that it can be run by hand as the user of the server",
    };
    HandlerError::failed(format!("the program `{program}` cannot be started ({error}): {advice}"))
}
