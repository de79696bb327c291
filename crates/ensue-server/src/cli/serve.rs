//! How is a server started on the command line?

use super::Outcome;
use super::settings::SettingsArgs;
use clap::Args;

/// `ensue serve`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue serve                                                # ./ensue.db, http://127.0.0.1:4747
  ensue serve --dev                                          # in memory: gone when it ends
  ensue serve --store postgres://ensue@db/app?schema=ensue
  ENSUE_TOKEN=$(openssl rand -hex 32) ensue serve --listen 0.0.0.0:4747
  ensue serve --retention-age 7d --retention-size 10GB

A flag wins over its ENSUE_… variable, that over the config file (./ensue.yaml if it is there);
`ensue config check` shows what comes out of it. A store that is not there is made.
The first line on stdout is `listening on http://ADDR:PORT`; port 0 picks a free one.
Handlers of the config file (key `handlers`, see `ensue config check`) run here.
SIGHUP: reads the config file again, and takes over handlers, their limits and workers; with --dev
this happens by itself when the file changes.
SIGTERM or Ctrl-C: finishes the requests (at most 10 s) and the handlers under way (--drain-max, at
most 30 s unless told; what is not finished is run again by the next server), then exits with 0.
Exit code other than 0: it could not start, or ended by itself; stderr says why.")]
pub struct ServeArgs {
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Runs a server until it is told to stop.
pub async fn run(args: ServeArgs) -> anyhow::Result<Outcome> {
    let settings = args.settings.resolve()?;
    for warning in settings.warnings() {
        tracing::warn!("{warning}");
    }
    crate::serve::run(settings).await?;
    Ok(Outcome::Done)
}
