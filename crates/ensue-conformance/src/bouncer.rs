//! Where does a test get a pooler from?
//!
//! [`PrivateBouncer`] is a PgBouncer in front of a Postgres, in transaction mode: after each transaction a client's session goes to
//! whoever asks next. It has its own folder and its own port on loopback, runs as a user that is not root, and is gone when dropped.

use crate::postgres::{LOOK_EVERY, PORTS_TRIED_MAX, SystemUser, as_user, signal, unprivileged_user, wait_until};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How long it may take to accept connections, and to end before it is killed.
const START_MAX: Duration = Duration::from_secs(30);
const STOP_MAX: Duration = Duration::from_secs(5);

/// A PgBouncer for tests, alone in its folder.
pub struct PrivateBouncer {
    program: PathBuf,
    folder: TempDir,
    run_as: Option<SystemUser>,
    /// The user, address and database of the server behind it.
    user: String,
    server: String,
    database: String,
    sessions: usize,
    port: u16,
    process: Option<Child>,
}

impl PrivateBouncer {
    /// In front of the server at this address (`postgres://USER@HOST:PORT/DATABASE`), with so many sessions for all clients.
    pub fn start(url: &str, sessions: usize) -> Result<Self> {
        let program = find_program()?;
        let (user, server, database) = parts(url).with_context(|| format!("not an address of a test server: {url}"))?;
        let folder = tempfile::Builder::new().prefix("ensue-bouncer-").tempdir().context("no temporary folder")?;
        let run_as = if fs::metadata(folder.path())?.uid() == 0 { Some(unprivileged_user()?) } else { None };
        if let Some(user) = &run_as {
            chown(folder.path(), Some(user.uid), Some(user.gid)).context("cannot give the folder away")?;
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let mut bouncer = Self { program, folder, run_as, user, server, database, sessions, port: 0, process: None };
        bouncer.run(true)?;
        Ok(bouncer)
    }

    /// The address of the same database through it.
    pub fn url(&self) -> String {
        format!("postgres://{}@127.0.0.1:{}/{}", self.user, self.port, self.database)
    }

    /// Kills it, and with it all connections: its clients' and those to the server.
    pub fn kill9(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.kill().context("cannot kill PgBouncer")?;
        process.wait()?;
        Ok(())
    }

    /// Starts it again on the same port.
    pub fn restart(&mut self) -> Result<()> {
        self.kill9()?;
        self.run(false)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_settings(&self) -> Result<()> {
        let (host, port) = self.server.rsplit_once(':').context("the server's address has no port")?;
        let users = self.path("users");
        fs::write(&users, format!("\"{}\" \"\"\n", self.user))?;
        let settings = format!(
            "[databases]\n* = host={host} port={port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\nmax_client_conn = 1000\n\
             default_pool_size = {}\nserver_connect_timeout = 5\nserver_login_retry = 1\n",
            self.port,
            users.display(),
            self.sessions
        );
        Ok(fs::write(self.path("settings"), settings)?)
    }

    fn run(&mut self, any_port: bool) -> Result<()> {
        for _ in 0..PORTS_TRIED_MAX {
            if any_port {
                self.port = TcpListener::bind("127.0.0.1:0").context("no free port")?.local_addr()?.port();
            }
            self.write_settings()?;
            let log = fs::File::create(self.path("log"))?;
            let mut command = as_user(&self.run_as, &self.program);
            command.arg(self.path("settings")).current_dir(self.folder.path());
            command.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            let mut process = command.spawn().context("cannot start PgBouncer")?;
            let mut ended = None;
            let ready = wait_until(START_MAX, || {
                ended = process.try_wait().ok().flatten();
                ended.is_some() || TcpStream::connect(("127.0.0.1", self.port)).is_ok()
            });
            // Somebody else may have taken the port, and answer on it: then ours ends.
            std::thread::sleep(LOOK_EVERY);
            if ended.or(process.try_wait()?).is_some() {
                continue;
            }
            self.process = Some(process);
            ensure!(ready, "PgBouncer does not accept connections after {START_MAX:?}: {}", self.log());
            return Ok(());
        }
        bail!("PgBouncer does not start: {}", self.log())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

impl Drop for PrivateBouncer {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            signal("TERM", process.id());
            if !wait_until(STOP_MAX, || matches!(process.try_wait(), Ok(Some(_)) | Err(_))) {
                // Nothing can be done about an error here.
                self.kill9().ok();
            }
        }
    }
}

/// User, address and database of `postgres://USER@HOST:PORT/DATABASE`.
fn parts(url: &str) -> Option<(String, String, String)> {
    let bare = url.split('?').next()?;
    let (user, rest) = bare.strip_prefix("postgres://")?.split_once('@')?;
    let (server, database) = rest.split_once('/')?;
    let user = user.split(':').next()?;
    Some((user.to_owned(), server.to_owned(), database.to_owned()))
}

/// The program: on the path, or where Debian puts it, which is not on everybody's.
fn find_program() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders
        .map(|folder| folder.join("pgbouncer"))
        .find(|program: &PathBuf| Path::is_file(program))
        .context("no PgBouncer on this machine: install it (on Debian: apt-get install pgbouncer), or run make test")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart() {
        let expected = ("u".to_owned(), "127.0.0.1:5433".to_owned(), "db".to_owned());
        assert_eq!(parts("postgres://u:p@127.0.0.1:5433/db?schema=x"), Some(expected));
        assert_eq!(parts("sqlite:x.db"), None);
    }
}
