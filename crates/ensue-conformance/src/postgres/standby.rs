//! Asynchronous standbys, and their promotion.

use super::PrivatePostgres;
use anyhow::{Context, Result, ensure};

impl PrivatePostgres {
    /// Makes an asynchronous standby of this server and waits until it can be read. It listens on this port, or on any.
    pub fn standby(&self, port: Option<u16>) -> Result<Self> {
        let mut standby = Self::in_new_folder(self.is_durable)?;
        let output = standby
            .program("pg_basebackup")
            .args([
                "--host=127.0.0.1",
                "--wal-method=stream",
                "--checkpoint=fast",
                "--no-sync",
                "--write-recovery-conf",
            ])
            .arg(format!("--port={}", self.port))
            .arg(format!("--username={}", super::USER))
            .arg("--pgdata")
            .arg(standby.data())
            .output()
            .context("cannot run pg_basebackup")?;
        ensure!(output.status.success(), "pg_basebackup failed: {}", String::from_utf8_lossy(&output.stderr));
        standby.port = port.unwrap_or_default();
        standby.run(port.is_none())?;
        Ok(standby)
    }

    /// Makes a primary of a standby and waits until it can be written to.
    pub fn promote(&self) -> Result<()> {
        let mut promote = self.program("pg_ctl");
        let output = promote.args(["promote", "--wait", "--pgdata"]).arg(self.data()).output();
        let output = output.context("cannot run pg_ctl")?;
        ensure!(output.status.success(), "pg_ctl promote failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }
}
