//! How is a server measured from outside?

use anyhow::{Context, bail};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A child of this program that serves HTTP. It ends with its owner.
pub struct Served {
    child: Child,
    address: SocketAddr,
}

impl Served {
    /// Starts this same program with these arguments in a folder, and waits until it tells its address.
    pub async fn start(arguments: &[&str], folder: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot tell which program this is")?;
        Self::start_program(&program, arguments, folder).await
    }

    /// Starts another version of this program.
    pub async fn start_program(program: &Path, arguments: &[&str], folder: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(folder)
            // The measurement sets everything itself: variables meant for a server of the user would change it.
            .env_clear()
            .env("ENSUE_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a server to measure")?;
        let stdout = child.stdout.take().context("the server has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).await?;
        let Some(address) = line.trim().strip_prefix("listening on http://") else {
            bail!("the server to measure did not start: run `ensue {}` to see why", arguments.join(" "));
        };
        let address = address.parse().context("the server told no address")?;
        Ok(Self { child, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How much memory it holds, in bytes.
    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        resident_bytes(self.child.id().context("the server has ended")?)
    }

    /// How much processor time it has had.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        cpu_time_of(self.child.id().context("the server has ended")?)
    }

    /// Ends it.
    pub async fn end(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }
}

/// How much processor time a process has had.
pub fn cpu_time_of(process: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))
        .context("processor time is read from /proc, which only Linux has")?;
    // After the name, which may have blanks: user and system time are the 12th and 13th.
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 = fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    // Linux tells them in hundredths of a second.
    Ok(Duration::from_millis(ticks * 10))
}

/// How much memory a process holds, in bytes.
pub fn resident_bytes(process: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))
        .context("memory is read from /proc, which only Linux has")?;
    let kilobytes =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    kilobytes.map(|kilobytes: u64| kilobytes * 1_024).context("/proc tells no VmRSS")
}
