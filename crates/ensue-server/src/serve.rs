//! How does a server begin, and how does it end?
//!
//! It begins by listening before it opens the store, so that a taken port costs nothing, and tells its address on
//! stdout once requests are answered. On a full disk it answers reads, refuses writes, and begins the rest when there
//! is room. It ends on SIGTERM or SIGINT: no new connections, no new deliveries, streams are
//! ended, requests under way are finished within ten seconds, handlers that run are waited for (`drain_max`), what is done
//! is written down, the store is closed. On SIGHUP it reads its config file again (`reload.rs`).

use crate::cli::output;
use crate::config::{Settings, handlers_on_store};
use crate::http::{self, CONNECTIONS_MAX, ConnectionLimits, Hosts, HttpOptions, Tokens};
use crate::reload::{self, Reloading};
use anyhow::{Context, anyhow, bail};
use ensue::schedules::Schedule;
use ensue::{Bounds, Ensue, Error, Options, Running, StoreError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// How long requests under way may take to finish when the server is told to stop.
const GRACE_MAX: Duration = Duration::from_secs(10);

/// How often to look whether a full disk has room again.
const ROOM_INTERVAL: Duration = Duration::from_secs(1);

/// How many files the server has open beside its connections, at most. With few files it has half of them.
const FILES_RESERVED: usize = 128;

/// Runs a server until it is told to stop.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    run_with(settings, |_| Ok(())).await
}

/// Runs a server of an application with code of its own: `prepare` registers what the config file names
/// ([`Ensue::register`]), binds handlers and gives them state, before anything is delivered.
pub async fn run_with(settings: Settings, prepare: impl FnOnce(&Ensue) -> anyhow::Result<()>) -> anyhow::Result<()> {
    // Figures from before the recorder is there would go nowhere.
    http::recorder();
    let (mut signals, hang_up) = (Signals::install()?, reload::hang_up()?);
    let listener = listen(&settings).await?;
    let address = listener.local_addr().context("cannot tell the address that was bound")?;
    let opened = tokio::select! {
        opened = open(&settings) => opened,
        () = signals.next() => return Ok(()),
    };
    let bus = opened?;
    let bounds = bus.store().bounds().await?;
    prepare(&bus)?;
    let executors = settings.executors();
    executors.bind(&bus, &settings.handlers)?;
    handlers_on_store::check(&bus, &settings.handlers).await?;
    bus.set_collections(executors.collections(&settings.collections, bus.collections())?).await?;
    bus.set_workers(settings.workers);
    bus.set_read_ahead(settings.read_ahead)?;
    let begun = match begin(&bus, &settings).await {
        Err(error) if is_full(&error) => {
            tracing::error!(%error, "disk is full; handlers, jobs and schedules start when there is room");
            None
        }
        begun => Some(begun?),
    };

    let stop = watch::Sender::new(false);
    let options = HttpOptions {
        tokens: Tokens::named(settings.tokens.iter().map(|token| (&token.name, &token.secret))),
        // Without tokens the name by which a browser came is all that tells a rebound page from a local client.
        hosts: if settings.tokens.is_empty() { Hosts::local(&settings.listen) } else { Hosts::any() },
        stop: stop.subscribe(),
        ..HttpOptions::default()
    };
    let app = http::router_with(bus.clone(), options);
    let limits = ConnectionLimits { connections_max: room_for_connections(), ..ConnectionLimits::default() };
    let mut server = tokio::spawn(http::serve(listener, app, limits, stop.subscribe()));
    // Before the address is known: a change of the file after that is noticed.
    let reloading = Reloading::new(bus.clone(), executors, settings.clone(), hang_up);
    announce(&settings, address, bus.store().engine(), bounds)?;

    let work = async {
        let running = match begun {
            Some(running) => running,
            None => begin_when_there_is_room(&bus, &settings).await?,
        };
        Ok::<_, anyhow::Error>(running)
    };
    let running = tokio::select! {
        // What has started is ended in order, even if the signal has come already.
        biased;
        running = work => Some(running?),
        () = signals.next() => None,
        ended = &mut server => bail!("the server ended by itself: {ended:?}"),
    };
    if running.is_some() {
        let reloading = tokio::spawn(reloading.run());
        tokio::select! {
            () = signals.next() => {}
            ended = &mut server => bail!("the server ended by itself: {ended:?}"),
        }
        reloading.abort();
    }
    tracing::info!("stopping: finishing the requests and handlers under way");
    stop.send_replace(true);
    let requests = async {
        if let Ok(ended) = tokio::time::timeout(GRACE_MAX, &mut server).await {
            return ended.context("the server's task failed");
        }
        tracing::warn!("some requests were still under way after {} s: they are cut off", GRACE_MAX.as_secs());
        server.abort();
        Ok(())
    };
    let ended = async {
        let handlers = async {
            match running {
                Some(running) => running.shutdown(settings.drain_max).await,
                None => Ok(()),
            }
        };
        let (requests, handlers) = tokio::join!(requests, handlers);
        requests.and(handlers.context("what is done could not be written down: it is done again"))
    };
    tokio::select! {
        () = signals.next() => bail!("told to stop twice: stopped at once, without waiting for what was under way"),
        ended = ended => ended?,
    }
    if tokio::time::timeout(GRACE_MAX, bus.close()).await.is_err() {
        bail!("the store did not close within {} s; what was acknowledged is on disk", GRACE_MAX.as_secs());
    }
    tracing::info!("stopped");
    Ok(())
}

/// Starts what follows from events.
async fn begin(bus: &Ensue, settings: &Settings) -> anyhow::Result<Running> {
    let running = bus.start().await?;
    declare(bus, &settings.schedules).await?;
    Ok(running)
}

/// The same, as soon as the store has no fault and the disk has room for it.
async fn begin_when_there_is_room(bus: &Ensue, settings: &Settings) -> anyhow::Result<Running> {
    loop {
        tokio::time::sleep(ROOM_INTERVAL).await;
        if bus.store().ready().await.is_err() {
            continue;
        }
        match begin(bus, settings).await {
            Err(error) if is_full(&error) => tracing::debug!(%error, "disk is still full"),
            begun => {
                return begun.inspect(|_| tracing::info!("there is room again; handlers, jobs and schedules start"));
            }
        }
    }
}

fn is_full(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Store(StoreError::Full(_))))
}

/// Declares the schedules of the config file; one that cannot be made is told, and does not stop the others.
pub(crate) async fn declare(bus: &Ensue, schedules: &[Schedule]) -> anyhow::Result<()> {
    for (name, error) in bus.declare_schedules(schedules.to_vec()).await? {
        tracing::error!(%error, schedule = %name, "a schedule of the config file is not made");
    }
    Ok(())
}

/// How many connections may be open: the default, or fewer if the system allows the process fewer files. It is asked for
/// as many as needed, as most systems let a process have more than they give it at first.
fn room_for_connections() -> usize {
    let wanted = (CONNECTIONS_MAX + FILES_RESERVED) as u64;
    let mut files = getrlimit(Resource::Nofile);
    if files.current.is_some_and(|current| current < wanted) {
        let raised = files.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: files.maximum }) {
            Ok(()) => files.current = Some(raised),
            Err(error) => tracing::debug!(%error, "the limit of open files was not raised"),
        }
    }
    match files.current {
        Some(current) if current < wanted => {
            let room = connections_within(current as usize);
            tracing::warn!("at most {room} connections at once: the system allows {current} open files (ulimit -n)");
            room
        }
        Some(_) | None => CONNECTIONS_MAX,
    }
}

/// How many connections leave enough of so many open files to the store and to programs.
fn connections_within(files: usize) -> usize {
    (files - FILES_RESERVED.min(files / 2)).max(1)
}

/// SIGTERM and SIGINT.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens for them from now on.
    pub fn install() -> anyhow::Result<Self> {
        let listen_to = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { terminate: listen_to(SignalKind::terminate())?, interrupt: listen_to(SignalKind::interrupt())? })
    }

    /// The next time somebody wants us to stop.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Binds the address, after everything was checked that can be without opening anything.
async fn listen(settings: &Settings) -> anyhow::Result<TcpListener> {
    let wanted = &settings.listen;
    let addresses = settings.check().await?;
    TcpListener::bind(&addresses[..]).await.map_err(|error| {
        anyhow!("cannot listen on {wanted}: {error}; choose another with --listen, port 0 for any free one")
    })
}

pub(crate) async fn open(settings: &Settings) -> anyhow::Result<Ensue> {
    let options = Options { retention: settings.retention, history: settings.history, ..Options::default() };
    Ensue::open_with(settings.store.as_str(), options)
        .await
        .with_context(|| format!("cannot open the store {}", settings.store))
}

/// The address on stdout for programs, the rest on stderr for people.
fn announce(settings: &Settings, address: SocketAddr, engine: &str, bounds: Bounds) -> anyhow::Result<()> {
    let log = match bounds.count() {
        0 if bounds.last == 0 => "empty".to_string(),
        0 => format!("empty, goes on at seq {}", bounds.last + 1),
        count => format!("{}, seq {} to {}", output::events(count), bounds.first, bounds.last),
    };
    let access = match settings.tokens.len() {
        0 => "no token needed: only this machine can reach it".to_string(),
        1 => "needs a token (Authorization: Bearer …)".to_string(),
        count => format!("needs one of {count} tokens (Authorization: Bearer …)"),
    };
    let handlers = match settings.handlers.len() as u64 {
        0 => None,
        count => Some(("runs", output::counted(count, "handler"))),
    };
    let collections = match settings.collections.len() as u64 {
        0 => None,
        count => Some(("tasks", format!("of {}", output::counted(count, "collection")))),
    };
    let config = settings.file.as_ref().map(|file| ("config", file.display().to_string()));
    output::note(format_args!("ensue {}", env!("CARGO_PKG_VERSION")));
    let keeps = settings.keeps();
    let facts =
        [("store", format!("{} ({engine})", settings.store)), ("log", log), ("keeps", keeps), ("access", access)];
    for (name, fact) in facts.into_iter().chain(handlers).chain(collections).chain(config) {
        output::note(format_args!("  {name:6}  {fact}"));
    }
    output::line(format_args!("listening on http://{address}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_to_the_store() {
        let rooms = [0, 16, 64, 256, 1_024].map(connections_within);
        assert_eq!(rooms, [1, 8, 32, 128, 896]);
    }
}
