//! Can the store be used, is it durable, and does anything wait in it that should not?

use super::{Checks, groups, held, jobs};
use crate::cli::output;
use crate::cli::target::open_to_read;
use crate::config::units::human_bytes;
use ensue::{
    Address, Drift, Ensue, Error, Place, PostgresOptions, PostgresStore, Retention, ServerSettings, SqliteStore,
    StoreError, Timestamp, rusqlite,
};
use jiff::SignedDuration;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// How long a store may take to open before it counts as unreachable.
const OPEN_MAX: Duration = Duration::from_secs(15);
/// How far two clocks may differ.
const CLOCK_SKEW_MAX: SignedDuration = SignedDuration::from_secs(5);
/// How long a delayed event may be overdue while somebody releases them.
const OVERDUE_MAX: SignedDuration = SignedDuration::from_secs(10);
/// How long a transaction may hold a lock for which others wait.
const LOCK_HELD_MAX: Duration = Duration::from_secs(1);
/// How many differences of the schema are told of by name.
const DRIFT_NAMED_MAX: usize = 10;
/// Less room than this on the disk is a problem.
const FREE_BYTES_MIN: u64 = 500_000_000;

/// Looks at the store: its place, its engine, its log.
pub(super) async fn look(address: &Address, retention: &Retention, checks: &mut Checks) {
    match address.place() {
        Place::Memory => return checks.ok("store", "in memory: there is nothing to look at from outside"),
        Place::File(path) => {
            disk(Path::new(path), checks);
            if !Path::new(path).exists() {
                return checks.note("store", format!("{address} is not there yet"), "`ensue serve` makes it");
            }
            mode(Path::new(path), checks);
            match SqliteStore::lock_holder(path) {
                Ok(Some(holder)) => checks.ok("lock", format!("{holder} writes to it; others may read")),
                Ok(None) => checks.ok("lock", "nobody writes to it right now"),
                Err(error) => checks.problem("lock", error.to_string(), "check the path and its permissions"),
            }
        }
        Place::Postgres => {}
    }
    let bus = match tokio::time::timeout(OPEN_MAX, open_to_read(address)).await {
        Ok(Ok(bus)) => bus,
        Ok(Err(error)) => {
            let fix = match error.downcast_ref() {
                Some(Error::Store(StoreError::Schema(_))) => "do what it says",
                Some(Error::Store(_) | Error::Invalid(_) | Error::NotFound(_) | Error::Address(_)) | None => {
                    "check the address, and that the store's server runs"
                }
            };
            return checks.problem("store", format!("{error:#}"), fix);
        }
        Err(_late) => {
            let found = format!("{address} did not answer within {} s", OPEN_MAX.as_secs());
            return checks.problem("store", found, "check that its server runs and can be reached from here");
        }
    };
    checks.ok("store", format!("{address} answers"));
    engine(address, checks).await;
    schema(address, checks).await;
    locks(address, checks).await;
    log(&bus, checks).await;
    groups::look(&bus, retention, checks).await;
    jobs::look(&bus, checks).await;
    held::look(&bus, checks).await;
    bus.close().await;
}

async fn engine(address: &Address, checks: &mut Checks) {
    match address.place() {
        Place::Memory | Place::File(_) => checks.ok("engine", format!("sqlite {}", rusqlite::version())),
        Place::Postgres => match postgres_settings(address).await {
            Ok(settings) if settings.fsync => {
                checks.ok("engine", format!("postgres {}", settings.version));
            }
            Ok(settings) => checks.problem(
                "engine",
                format!("postgres {} may lose what it has acknowledged: fsync is off", settings.version),
                "set fsync = on in postgresql.conf, and reload",
            ),
            Err(error) => checks.note(
                "engine",
                format!("postgres; its settings cannot be read ({error})"),
                "look at them with psql",
            ),
        },
    }
}

/// Is all that is in the schema as this program has it? A store with a schema from another program or a newer version does not
/// open.
async fn schema(address: &Address, checks: &mut Checks) {
    let drift = match address.place() {
        Place::Memory | Place::File(_) => Ok(Vec::new()),
        Place::Postgres => drift(address).await,
    };
    match drift {
        Ok(drift) if drift.is_empty() => checks.ok("schema", "as this program knows it"),
        Ok(drift) => {
            let more = drift.len().saturating_sub(DRIFT_NAMED_MAX);
            for Drift { found, fix, is_harmless } in drift.into_iter().take(DRIFT_NAMED_MAX) {
                match is_harmless {
                    true => checks.note("schema", found, fix),
                    false => checks.problem("schema", found, fix),
                }
            }
            if more > 0 {
                checks.problem("schema", format!("and {more} more differences"), "see the first of them");
            }
        }
        Err(error) => checks.note("schema", format!("what is in it cannot be seen ({error})"), "look at it with psql"),
    }
}

async fn drift(address: &Address) -> Result<Vec<Drift>, StoreError> {
    let options = PostgresOptions { read_only: true, ..PostgresOptions::default() };
    PostgresStore::open(address.as_str(), options).await?.drift().await
}

/// Does one transaction keep others waiting for a lock of ours? A session that is there twice has not moved in between.
async fn locks(address: &Address, checks: &mut Checks) {
    if !matches!(address.place(), Place::Postgres) {
        return;
    }
    let options = PostgresOptions { read_only: true, ..PostgresOptions::default() };
    let looking = async {
        let store = PostgresStore::open(address.as_str(), options).await?;
        let before = store.lock_holders().await?;
        if before.iter().all(|holder| holder.waiting == 0) {
            return Ok(Vec::new());
        }
        tokio::time::sleep(LOCK_HELD_MAX).await;
        let mut held = store.lock_holders().await?;
        held.retain(|now| now.waiting > 0 && before.iter().any(|before| before.transaction == now.transaction));
        Ok::<_, StoreError>(held)
    };
    match looking.await {
        Ok(held) if held.is_empty() => checks.ok("locks", "no session waits for a lock"),
        Ok(held) => {
            for holder in held {
                let waiting = output::counted(holder.waiting, "session");
                let found = format!("{} keeps {waiting} waiting for a lock", holder.who);
                checks.problem("locks", found, "end that transaction, with pg_terminate_backend(pid) if need be");
            }
        }
        Err(error) => checks.note("locks", format!("cannot be seen ({error})"), "look at pg_locks with psql"),
    }
}

/// What the server is set to, over a connection like those of `serve`, TLS and all.
async fn postgres_settings(address: &Address) -> Result<ServerSettings, StoreError> {
    let options = PostgresOptions { read_only: true, ..PostgresOptions::default() };
    PostgresStore::open(address.as_str(), options).await?.settings().await
}

async fn log(bus: &Ensue, checks: &mut Checks) {
    let store = bus.store();
    let here = Timestamp::now();
    let asked =
        tokio::try_join!(store.bounds(), store.now(), store.pending(1), store.pending_count(), store.outbox_rejected());
    let (bounds, now, pending, pending_count, rejected) = match asked {
        Ok(answers) => answers,
        Err(error) => return checks.problem("log", error.to_string(), "run `ensue verify`"),
    };
    let newest = match store.event(bounds.last).await {
        Ok(newest) => newest,
        Err(error) => return checks.problem("log", error.to_string(), "run `ensue verify`"),
    };
    match bounds.count() {
        0 => checks.ok("log", format!("empty; the next event is seq {}", bounds.last + 1)),
        count => {
            let found = format!("{}, seq {} to {}", output::events(count), bounds.first, bounds.last);
            checks.ok("log", found);
        }
    }
    if rejected > 0 {
        checks.problem(
            "outbox",
            format!("{} cannot enter the log", output::counted(rejected, "row")),
            "see reason in the table outbox_rejected; call requeue_rejected(number), or delete the row",
        );
    }
    match pending.first() {
        None => checks.ok("pending", "no delayed event waits"),
        Some(first) if now.duration_since(first.not_before) > OVERDUE_MAX => checks.problem(
            "pending",
            format!("delayed events are overdue, the first since {}", first.not_before),
            "start `ensue serve` on this store: it lets them into the log",
        ),
        Some(first) => {
            let wait = output::counted(pending_count, "delayed event");
            checks.ok("pending", format!("{wait} waiting, the first until {}", first.not_before));
        }
    }
    let skew = now.duration_since(here).abs();
    let ahead = newest.map_or(SignedDuration::ZERO, |newest| newest.recorded_at.duration_since(now));
    if skew > CLOCK_SKEW_MAX {
        let found = format!("the store's clock and this machine's differ by {skew:#}");
        checks.problem("clock", found, "synchronise both (NTP)");
    } else if ahead > CLOCK_SKEW_MAX {
        let found = format!("the newest event was recorded {ahead:#} after the present time: the clock was set back");
        checks.problem(
            "clock",
            found,
            "check the clock; recorded_at stands still until it has caught up, and order is kept",
        );
    } else {
        checks.ok("clock", "the store's clock and this machine's agree");
    }
}

/// Notes that others than the owner can read the log.
fn mode(path: &Path, checks: &mut Checks) {
    let Ok(mode) = path.metadata().map(|file| file.permissions().mode() & 0o777) else { return };
    if mode & 0o044 != 0 {
        let path = path.display();
        let found = format!("{path} can be read by others than its owner (mode {mode:o})");
        checks.note("file", found, format!("chmod 600 {path} {path}-wal {path}-shm, unless that is meant"));
    }
}

fn disk(path: &Path, checks: &mut Checks) {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    match rustix::fs::statvfs(folder) {
        Ok(room) => {
            let free = room.f_bavail * room.f_frsize;
            let found = format!("{} free in {}", human_bytes(free), folder.display());
            if free < FREE_BYTES_MIN {
                checks.problem("disk", found, "free some space, or set retention so that the log stays small");
            } else {
                checks.ok("disk", found);
            }
        }
        Err(error) => {
            let found = format!("cannot look at {}: {error}", folder.display());
            checks.problem("disk", found, "make the folder, or choose another path for the store");
        }
    }
}
