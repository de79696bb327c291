//! Which schedules does this process declare?
//!
//! Those of a config file live as long as a process declares them: each says again and again which ones it does, and one that nobody
//! has declared for a while is forgotten by whoever says something next. A process that ends says nothing of it, so that a restart
//! finds its schedules where they were, whoever else runs meanwhile; what a process takes out of its list goes at once.

use super::Schedule;
use crate::Ensue;
use crate::error::Error;
use ensue_core::schedules::port::DECLARED_MAX;
use ensue_core::{GroupName, StoreError};
use jiff::SignedDuration;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a schedule is known to be declared, unless it is said again; for as long again nobody removes it.
const LEASE: SignedDuration = SignedDuration::from_secs(120);
/// How often that is said.
const SAY_EVERY: Duration = Duration::from_secs(30);
/// How often a process looks that declares nothing.
const LOOK_EVERY: Duration = Duration::from_secs(300);

impl Ensue {
    /// Declares schedules for as long as this bus runs, in place of those that it declared before: they are made or changed, and what
    /// no process that lives declares is forgotten. Each needs to say who manages it; `managed_by: Some("config")`, say. Answers those
    /// that could not be made, with the reason: these are tried again now and then while the bus runs. The others are made.
    pub async fn declare_schedules(&self, schedules: Vec<Schedule>) -> Result<Vec<(GroupName, Error)>, Error> {
        if let Some(one) = schedules.iter().find(|one| one.managed_by.is_none()) {
            let reason = format!("is not set for `{}`: say who declares it", one.name);
            return Err(ensue_core::Invalid::new("managed_by", reason).into());
        }
        if schedules.len() > DECLARED_MAX {
            let reason = format!("are {}; declare up to {DECLARED_MAX}", schedules.len());
            return Err(ensue_core::Invalid::new("schedules", reason).into());
        }
        // One at a time, and known before it is said: whoever says it again says this.
        let mut unmade = self.inner().schedules.unmade.lock().await;
        *unmade = schedules.iter().map(|one| one.name.clone()).collect();
        *self.inner().schedules.declared.lock().unwrap_or_else(PoisonError::into_inner) = Some(schedules.clone());
        self.inner().schedules.redeclare.notify_one();
        // Before they are made, so that nobody takes them for forgotten.
        let names: Vec<GroupName> = schedules.iter().map(|one| one.name.clone()).collect();
        let declared = self.store().declare_schedules(self.inner().member, &names, LEASE).await?;
        tell_removed(&declared.removed);
        let mut failed = Vec::new();
        for schedule in schedules {
            let name = schedule.name.clone();
            match self.schedule(schedule).await {
                Ok(_) => {
                    unmade.remove(&name);
                }
                Err(error) => failed.push((name, error)),
            }
        }
        Ok(failed)
    }

    fn declared_here(&self) -> Option<Vec<Schedule>> {
        self.inner().schedules.declared.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn tell_removed(removed: &[GroupName]) {
    for name in removed {
        tracing::info!(schedule = %name, "a schedule that nobody declares any more was removed");
    }
}

/// Says again and again what this process declares.
pub(crate) async fn keep_declared(bus: Ensue) {
    while !bus.inner().schedules.closed.load(Ordering::Relaxed) {
        let declared = bus.declared_here();
        let wait = match &declared {
            Some(declared) if !declared.is_empty() => SAY_EVERY,
            Some(_) | None => LOOK_EVERY,
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = bus.inner().schedules.redeclare.notified() => continue,
        }
        match say(&bus).await {
            Ok(()) => {}
            Err(StoreError::Closed) => return,
            Err(error) => tracing::warn!(%error, "the schedules of this process cannot be declared; trying again"),
        }
    }
}

async fn say(bus: &Ensue) -> Result<(), StoreError> {
    let mut unmade = bus.inner().schedules.unmade.lock().await;
    let Some(declared) = bus.declared_here() else { return Ok(()) };
    let names: Vec<GroupName> = declared.iter().map(|one| one.name.clone()).collect();
    let said = bus.store().declare_schedules(bus.inner().member, &names, LEASE).await?;
    tell_removed(&said.removed);
    // This process was away for too long, and somebody took it for gone; or it could not be made before.
    unmade.extend(said.missing);
    for schedule in declared {
        let name = schedule.name.clone();
        if !unmade.contains(&name) {
            continue;
        }
        match bus.schedule(schedule).await {
            Ok(_) => {
                unmade.remove(&name);
            }
            Err(Error::Store(error @ StoreError::Closed)) => return Err(error),
            Err(error) => tracing::warn!(%error, schedule = %name, "a declared schedule cannot be made; trying again"),
        }
    }
    Ok(())
}
