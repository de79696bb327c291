//! Where does a test get a Postgres from?
//!
//! [`PrivatePostgres`] makes one: its own data folder, its own port on loopback, its own user where we are root, durable
//! as in production (`fsync` and `synchronous_commit` on), and gone when dropped. It can be killed with `kill -9` and
//! started again on the same data. A whole test run shares one through the binary `with-postgres`, which puts its
//! address into [`SHARED_URL`]; each test then takes a schema of its own from [`fresh_schema`].
//!
//! Processes are found in `/proc` and ended by their id, so this is for Linux.

mod standby;

use anyhow::{Context, Result, anyhow, bail, ensure};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The variable with the address of the server that the whole run shares.
pub const SHARED_URL: &str = "ENSUE_TEST_POSTGRES";

/// The variable with the folder of the server's programs, for who wants a certain version of them.
pub const BINARIES: &str = "ENSUE_TEST_POSTGRES_BIN";

/// The database user of a private server.
const USER: &str = "ensue";
/// How long a server may take to accept connections, crash recovery included.
const START_MAX: Duration = Duration::from_secs(60);
/// How long a server may take to end before it is killed.
const STOP_MAX: Duration = Duration::from_secs(20);
/// How many ports are tried: another process may take the free one that we found before the server does.
pub(crate) const PORTS_TRIED_MAX: usize = 20;
/// How often a condition is looked at while waiting for it.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A Postgres server for tests, alone in its folder.
pub struct PrivatePostgres {
    binaries: PathBuf,
    folder: TempDir,
    /// The system user it runs as; none if that is the user we are.
    run_as: Option<SystemUser>,
    port: u16,
    is_durable: bool,
    postmaster: Option<Child>,
}

/// A user of the machine that is not root: Postgres refuses to run as root.
pub(crate) struct SystemUser {
    pub uid: u32,
    pub gid: u32,
}

impl PrivatePostgres {
    /// Makes a new empty server and waits until it accepts connections.
    pub fn start() -> Result<Self> {
        Self::make(true)
    }

    /// The same, but it does not wait for the disk, and does not read functions before they are called. What a process that is killed has
    /// written stays written without that too, and no test can cut the power: it is for tests, which make a thousand schemas, never for
    /// figures.
    pub fn start_without_fsync() -> Result<Self> {
        Self::make(false)
    }

    fn make(is_durable: bool) -> Result<Self> {
        let mut server = Self::in_new_folder(is_durable)?;
        server.initdb()?;
        server.run(true)?;
        Ok(server)
    }

    /// Without data.
    fn in_new_folder(is_durable: bool) -> Result<Self> {
        let binaries = find_binaries()?;
        let folder = tempfile::Builder::new().prefix("ensue-pg-").tempdir().context("no temporary folder")?;
        let run_as = if fs::metadata(folder.path())?.uid() == 0 { Some(unprivileged_user()?) } else { None };
        if let Some(user) = &run_as {
            chown(folder.path(), Some(user.uid), Some(user.gid)).context("cannot give the data folder away")?;
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700))?;
        Ok(Self { binaries, folder, run_as, port: 0, is_durable, postmaster: None })
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port)
    }

    /// Its address, with a schema named in it.
    pub fn url_with_schema(&self, schema: &str) -> String {
        with_schema(&self.url(), schema)
    }

    /// The folder that holds its data (`data`), its socket and its log (`log`).
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process id of the postmaster, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.postmaster.as_ref().map(Child::id)
    }

    /// Kills the server as a power cut would: SIGKILL to the postmaster and all its children. Returns when all are gone.
    pub fn kill9(&mut self) -> Result<()> {
        let Some(mut postmaster) = self.postmaster.take() else { return Ok(()) };
        // The postmaster goes first, so that it starts no more children; those it has are known by then.
        signal("STOP", postmaster.id());
        let children = children_of(postmaster.id());
        postmaster.kill().context("cannot kill the postmaster")?;
        for child in &children {
            signal("KILL", *child);
        }
        postmaster.wait()?;
        let all_gone = wait_until(STOP_MAX, || children.iter().all(|child| is_gone(*child)));
        ensure!(all_gone, "children of the killed Postgres are still there after {STOP_MAX:?}: {children:?}");
        Ok(())
    }

    /// Starts the server again, on the same data and port, after [`Self::kill9`] or [`Self::stop`] (or stops it first),
    /// and waits until it accepts connections.
    pub fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.run(false)
    }

    /// Ends the server in order: connections are closed, everything is flushed.
    pub fn stop(&mut self) -> Result<()> {
        self.end("INT")
    }

    fn end(&mut self, with: &str) -> Result<()> {
        let Some(postmaster) = &mut self.postmaster else { return Ok(()) };
        signal(with, postmaster.id());
        if wait_until(STOP_MAX, || matches!(postmaster.try_wait(), Ok(Some(_)) | Err(_))) {
            self.postmaster = None;
            return Ok(());
        }
        self.kill9()
    }

    fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    /// One of the server's programs, to be run as its user.
    fn program(&self, name: &str) -> Command {
        let mut command = as_user(&self.run_as, &self.binaries.join(name));
        command.current_dir(self.folder()).stdin(Stdio::null());
        for variable in ["PGDATA", "PGPORT", "PGHOST", "PGUSER", "PGDATABASE", "PGOPTIONS"] {
            command.env_remove(variable);
        }
        command
    }

    fn initdb(&self) -> Result<()> {
        let output = self
            .program("initdb")
            .args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--username", USER])
            .arg("--pgdata")
            .arg(self.data())
            .output()
            .context("cannot run initdb")?;
        ensure!(output.status.success(), "initdb failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Starts the postmaster. `any_port`: the port may be chosen; otherwise it must be the one clients know.
    fn run(&mut self, any_port: bool) -> Result<()> {
        for _ in 0..PORTS_TRIED_MAX {
            if any_port {
                self.port = TcpListener::bind("127.0.0.1:0").context("no free port")?.local_addr()?.port();
            }
            let mut postmaster = self.spawn()?;
            let pid = postmaster.id();
            let mut ended = None;
            let ready = wait_until(START_MAX, || {
                ended = postmaster.try_wait().ok().flatten();
                ended.is_some() || self.accepts_connections(pid)
            });
            if let Some(status) = ended {
                let log = self.log_tail();
                // Somebody else took the port: try another, or wait until it is free again.
                if log.contains("could not bind") || log.contains("could not create any TCP/IP sockets") {
                    std::thread::sleep(LOOK_EVERY);
                    continue;
                }
                bail!("Postgres ended at its start ({status}): {log}");
            }
            self.postmaster = Some(postmaster);
            ensure!(ready, "Postgres does not accept connections after {START_MAX:?}: {}", self.log_tail());
            return Ok(());
        }
        Err(anyhow!("no port for Postgres after {PORTS_TRIED_MAX} attempts: {}", self.log_tail()))
    }

    fn spawn(&self) -> Result<Child> {
        let log = fs::File::create(self.folder().join("log"))?;
        let socket_folder = self.folder().display().to_string();
        let settings = [
            "listen_addresses=127.0.0.1".to_string(),
            format!("unix_socket_directories={socket_folder}"),
            format!("fsync={}", if self.is_durable { "on" } else { "off" }),
            format!("check_function_bodies={}", if self.is_durable { "on" } else { "off" }),
            "synchronous_commit=on".into(),
            "max_connections=200".into(),
            "shared_buffers=64MB".into(),
            "logging_collector=off".into(),
            "log_destination=stderr".into(),
            "timezone=UTC".into(),
        ];
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.data()).arg("-p").arg(self.port.to_string());
        for setting in settings {
            command.arg("-c").arg(setting);
        }
        // Its own process group: Ctrl-C in a terminal is for the tests, which stop the server themselves.
        command.process_group(0).stdout(log.try_clone()?).stderr(log);
        command.spawn().context("cannot start Postgres")
    }

    /// Postgres writes its state into the eighth line of its lock file; the first line says whose state it is.
    fn accepts_connections(&self, pid: u32) -> bool {
        let lock_file = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = lock_file.lines();
        lines.next().map(str::trim) == Some(pid.to_string().as_str())
            && lines.nth(6).is_some_and(|state| state.trim() == "ready")
    }

    fn log_tail(&self) -> String {
        let log = fs::read(self.folder().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for PrivatePostgres {
    /// Ends it at once: nobody needs the data any more.
    fn drop(&mut self) {
        // Nothing can be done about an error here, and the folder goes in any case.
        self.end("QUIT").ok();
    }
}

/// The address of the server that the whole run shares.
///
/// # Panics
/// When there is none.
pub fn shared_url() -> String {
    std::env::var(SHARED_URL)
        .unwrap_or_else(|_| panic!("run make test, or set {SHARED_URL} to a Postgres you can spare"))
}

/// A schema that nobody else uses, on the shared server: the address that names it, and its name.
pub fn fresh_schema(prefix: &str) -> (String, String) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let schema = format!("{prefix}_{}_{count}_{:08x}", std::process::id(), rand::random::<u32>());
    (with_schema(&shared_url(), &schema), schema)
}

/// A store address with a schema named in it.
fn with_schema(url: &str, schema: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}schema={schema}")
}

/// The folder of the server's programs: the one that [`BINARIES`] names and no other; else what `pg_config` says, Debian's folders (newest
/// first), then the path.
fn find_binaries() -> Result<PathBuf> {
    let is_whole = |folder: &PathBuf| ["initdb", "postgres"].iter().all(|name| folder.join(name).is_file());
    if let Some(folder) = std::env::var_os(BINARIES).map(PathBuf::from) {
        ensure!(is_whole(&folder), "{BINARIES} names {}: there is no initdb and postgres in it", folder.display());
        // Programs are run in the folder of their data.
        return folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()));
    }
    let mut folders = Vec::new();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        folders.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.parse().ok()?;
            Some((version, path.join("bin")))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    folders.extend(versions.into_iter().map(|(_, folder)| folder));
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    folders.into_iter().find(is_whole).context(
        "no Postgres server on this machine: install it (on Debian: apt-get install postgresql), or run make test",
    )
}

/// Whom to run as when we are root: `postgres`, or `nobody` where there is no such user.
pub(crate) fn unprivileged_user() -> Result<SystemUser> {
    let number = |option: &str, name: &str| -> Option<u32> {
        let output = Command::new("id").arg(option).arg(name).output().ok()?;
        String::from_utf8_lossy(&output.stdout).trim().parse().ok()
    };
    ["postgres", "nobody"]
        .into_iter()
        .find_map(|name| Some(SystemUser { uid: number("-u", name)?, gid: number("-g", name)? }))
        .context("Postgres does not run as root, and there is neither a user `postgres` nor `nobody`")
}

/// A program, to be run as this user, or as the one that we are.
pub(crate) fn as_user(user: &Option<SystemUser>, program: &Path) -> Command {
    let Some(user) = user else { return Command::new(program) };
    // setpriv becomes the program: the child that we see is the program itself.
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={}", user.uid)).arg(format!("--regid={}", user.gid));
    command.arg("--clear-groups").arg("--").arg(program);
    command
}

/// Sends a signal to one process.
pub fn signal(name: &str, pid: u32) {
    // The shell has `kill` built in on every machine; a process that is gone already is no failure.
    Command::new("sh").args(["-c", &format!("kill -{name} {pid} 2>/dev/null")]).status().ok();
}

/// State and parent of a process, from the text after its name (which may itself hold blanks and brackets).
fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn children_of(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| state_and_parent(*pid).is_some_and(|(_, its_parent)| its_parent == parent))
        .collect()
}

/// A zombie is gone too: it holds nothing any more and waits only to be counted.
fn is_gone(pid: u32) -> bool {
    state_and_parent(pid).is_none_or(|(state, _)| matches!(state, 'Z' | 'X'))
}

pub(crate) fn wait_until(at_most: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + at_most;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
