//! How does a server begin, and how does it end?
//!
//! It begins by listening before it opens the store, so that a taken port costs nothing, and tells its address on
//! stdout once requests are answered. It ends on SIGTERM or SIGINT: no new connections, streams are ended, requests
//! under way are finished within ten seconds, the store is closed.

use crate::config::units::human_bytes;
use crate::config::{Settings, without_password};
use crate::http::{self, HttpOptions, Polite, Tokens};
use anyhow::{Context, anyhow, bail};
use axum::serve::ListenerExt;
use ensue::{Bounds, Ensue, Options, Retention};
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// How long requests under way may take to finish when the server is told to stop.
const GRACE: Duration = Duration::from_secs(10);

/// Runs a server until it is told to stop.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    // Figures from before the recorder is there would go nowhere.
    http::recorder();
    let mut signals = Signals::install()?;
    let listener = listen(&settings).await?;
    let address = listener.local_addr().context("cannot tell the address that was bound")?;
    let opened = tokio::select! {
        opened = open(&settings) => opened,
        () = signals.next() => return Ok(()),
    };
    let bus = opened?;
    let bounds = bus.store().bounds().await?;
    let running = bus.start().await?;

    let stop = watch::Sender::new(false);
    let options = HttpOptions {
        tokens: Tokens::of(settings.tokens.iter().map(|token| &token.secret)),
        stop: stop.subscribe(),
        ..HttpOptions::default()
    };
    let app = http::router_with(bus.clone(), options);
    // An answer is one small write: waiting for more to send with it would only delay it.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY was not set");
        }
    });
    let mut stopped = stop.subscribe();
    let served = axum::serve(Polite(listener), app).with_graceful_shutdown(async move {
        // An error means that the sender is gone, which is the end too.
        let _told_or_gone = stopped.wait_for(|stopped| *stopped).await;
    });
    let mut server = tokio::spawn(served.into_future());
    announce(&settings, address, bus.store().engine(), bounds)?;

    tokio::select! {
        () = signals.next() => {}
        ended = &mut server => bail!("the server ended by itself: {ended:?}"),
    }
    tracing::info!("stopping: finishing the requests under way");
    stop.send_replace(true);
    tokio::select! {
        () = signals.next() => bail!("told to stop twice: stopped at once, without waiting for requests under way"),
        finished = tokio::time::timeout(GRACE, &mut server) => match finished {
            Ok(ended) => ended.context("the server's task failed")?.context("the server failed")?,
            Err(_late) => {
                tracing::warn!("some requests were still under way after {} s: they are cut off", GRACE.as_secs());
                server.abort();
            }
        },
    }
    running.shutdown(GRACE).await?;
    if tokio::time::timeout(GRACE, bus.close()).await.is_err() {
        bail!("the store did not close within {} s; what was acknowledged is on disk", GRACE.as_secs());
    }
    tracing::info!("stopped");
    Ok(())
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn install() -> anyhow::Result<Self> {
        let listen_to = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { terminate: listen_to(SignalKind::terminate())?, interrupt: listen_to(SignalKind::interrupt())? })
    }

    /// The next time somebody wants us to stop.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Binds the address. One that others can reach needs a token (S5).
async fn listen(settings: &Settings) -> anyhow::Result<TcpListener> {
    let wanted = &settings.listen;
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(wanted)
        .await
        .with_context(|| format!("`{wanted}` is no address to listen on: write one such as 127.0.0.1:4747"))?
        .collect();
    if settings.tokens.is_empty() && addresses.iter().any(|address| !address.ip().is_loopback()) {
        bail!(
            "refusing to listen on {wanted} without a token: everybody who can reach it could read and write the log. \
             Set ENSUE_TOKEN (such as the output of `openssl rand -hex 32`) or --token-file, or listen on 127.0.0.1"
        );
    }
    TcpListener::bind(&addresses[..]).await.map_err(|error| {
        anyhow!("cannot listen on {wanted}: {error}; choose another with --listen, port 0 for any free one")
    })
}

async fn open(settings: &Settings) -> anyhow::Result<Ensue> {
    let options = Options { retention: settings.retention, ..Options::default() };
    Ensue::open_with(&settings.store, options)
        .await
        .with_context(|| format!("cannot open the store {}", without_password(&settings.store)))
}

/// The address on stdout for programs, the rest on stderr for people.
fn announce(settings: &Settings, address: SocketAddr, engine: &str, bounds: Bounds) -> anyhow::Result<()> {
    let log = match bounds.count() {
        0 if bounds.last == 0 => "empty".to_string(),
        0 => format!("empty, goes on at seq {}", bounds.last + 1),
        count => format!("{count} events, seq {} to {}", bounds.first, bounds.last),
    };
    let access = match settings.tokens.len() {
        0 => "no token needed: only this machine can reach it".to_string(),
        1 => "needs a token (Authorization: Bearer …)".to_string(),
        count => format!("needs one of {count} tokens (Authorization: Bearer …)"),
    };
    let config = settings.file.as_ref().map_or(String::new(), |file| format!("\n  config  {}", file.display()));
    eprintln!(
        "ensue {}\n  store   {} ({engine})\n  log     {log}\n  keeps   {}\n  access  {access}{config}",
        env!("CARGO_PKG_VERSION"),
        without_password(&settings.store),
        keeps(&settings.retention),
    );
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on http://{address}")?;
    Ok(out.flush()?)
}

fn keeps(retention: &Retention) -> String {
    match (retention.age, retention.bytes) {
        (None, None) => "everything".into(),
        (Some(age), None) => format!("what is younger than {age:#}"),
        (None, Some(bytes)) => format!("the newest {}", human_bytes(bytes)),
        (Some(age), Some(bytes)) => format!("the newest {} of what is younger than {age:#}", human_bytes(bytes)),
    }
}
