//! Which schedules does this process declare?
//!
//! Those of a config file live as long as a process declares them: each says again and again which ones it does, and one that nobody
//! has declared for a while is forgotten by whoever says something next. A process that ends says nothing of it, so that a restart
//! finds its schedules where they were, whoever else runs meanwhile; what a process takes out of its list goes at once. On an engine of
//! one process nobody else runs: there what it does not declare when it starts goes at once, too.
//!
//! Of two that declare one name differently the one that came last has its way, and both tell of it. When that one is gone, it becomes again
//! what is declared here.

use super::{Declarer, Kept, Schedule};
use crate::Ensue;
use crate::error::Error;
use ensue_core::schedules::port::DECLARED_MAX;
use ensue_core::{GroupName, StoreError};
use jiff::SignedDuration;
use std::collections::{HashMap, HashSet};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;
use uuid::Uuid;

/// How long a schedule is known to be declared, unless it is said again; for as long again nobody removes it.
const LEASE: SignedDuration = SignedDuration::from_secs(120);
/// How often that is said.
const SAY_EVERY: Duration = Duration::from_secs(30);
/// Every how many times is looked whether somebody else has declared it differently: more often than who did is known to live.
const COMPARE_EVERY: u32 = 3;
/// How many schedules are read at once.
const PAGE: usize = 500;
/// How often a process looks that declares nothing.
const LOOK_EVERY: Duration = Duration::from_secs(300);

/// What is known of what this process declares.
#[derive(Default)]
pub(crate) struct Declaring {
    /// Those that could not be made yet.
    unmade: HashSet<GroupName>,
    /// Those that are what somebody else declares: the version of which that was told, and who declared it then.
    told: HashMap<GroupName, (u64, HashSet<Uuid>)>,
    /// How often it was said.
    times: u32,
}

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
        let mut declaring = self.inner().schedules.declaring.lock().await;
        declaring.unmade = schedules.iter().map(|one| one.name.clone()).collect();
        let before = {
            let mut declared = self.inner().schedules.declared.lock().unwrap_or_else(PoisonError::into_inner);
            declared.replace(schedules.clone())
        };
        if before.is_none() && self.store().handler_slots() == 1 {
            for other in self.store().declarers(None).await?.iter().filter(|one| one.process != self.inner().member) {
                self.store().undeclare_schedules(other.process).await?;
            }
        }
        self.inner().schedules.redeclare.notify_one();
        // Before they are made, so that nobody takes them for forgotten.
        let names: Vec<GroupName> = schedules.iter().map(|one| one.name.clone()).collect();
        let declared = self.store().declare_schedules(self.inner().member, &names, LEASE).await?;
        tell_removed(&declared.removed);
        let mut failed = Vec::new();
        for schedule in schedules {
            let name = schedule.name.clone();
            let there = self.store().schedule(&name).await?;
            let definition = schedule.kept();
            match self.schedule(schedule).await {
                Ok(_) => {
                    declaring.unmade.remove(&name);
                    let is_other = there.is_some_and(|there| there.definition != definition);
                    if is_other && !self.declared_elsewhere(&name).await?.is_empty() {
                        tracing::warn!(schedule = %name, "another process declares this schedule differently, and it is now as this one declares it: let them say the same");
                    }
                }
                Err(error) => failed.push((name, error)),
            }
        }
        Ok(failed)
    }

    /// Who else declares a schedule and lives, as far as can be told.
    pub(super) async fn declared_elsewhere(&self, name: &GroupName) -> Result<Vec<Declarer>, StoreError> {
        if self.store().handler_slots() == 1 {
            return Ok(Vec::new());
        }
        let (mut declarers, now) = (self.store().declarers(Some(name)).await?, self.store().now().await?);
        declarers.retain(|one| one.process != self.inner().member && one.until > now);
        Ok(declarers)
    }

    /// Does somebody who lives declare a schedule?
    pub(super) async fn is_declared(&self, name: &GroupName) -> Result<bool, StoreError> {
        let is_here = self.declared_here().is_some_and(|all| all.iter().any(|one| one.name == *name));
        Ok(is_here || !self.declared_elsewhere(name).await?.is_empty())
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
    let mut declaring = bus.inner().schedules.declaring.lock().await;
    let Some(declared) = bus.declared_here() else { return Ok(()) };
    let names: Vec<GroupName> = declared.iter().map(|one| one.name.clone()).collect();
    let said = bus.store().declare_schedules(bus.inner().member, &names, LEASE).await?;
    tell_removed(&said.removed);
    // This process was away for too long, and somebody took it for gone; or it could not be made before.
    declaring.unmade.extend(said.missing);
    declaring.times = declaring.times.wrapping_add(1);
    if declaring.times.is_multiple_of(COMPARE_EVERY) {
        compare(bus, &declared, &mut declaring).await?;
    }
    for schedule in declared {
        let name = schedule.name.clone();
        if !declaring.unmade.contains(&name) {
            continue;
        }
        match bus.schedule(schedule).await {
            Ok(_) => {
                declaring.unmade.remove(&name);
            }
            Err(Error::Store(error @ StoreError::Closed)) => return Err(error),
            Err(error) => tracing::warn!(%error, schedule = %name, "a declared schedule cannot be made; trying again"),
        }
    }
    Ok(())
}

/// Finds schedules that are not what is declared here: they are told, and made again when one who declared them then is gone. Whose form it is
/// nobody knows; if it was that of another, that one tells of it now.
async fn compare(bus: &Ensue, declared: &[Schedule], declaring: &mut Declaring) -> Result<(), StoreError> {
    if bus.store().handler_slots() == 1 {
        return Ok(());
    }
    let here: HashMap<&GroupName, &Schedule> = declared.iter().map(|one| (&one.name, one)).collect();
    for kept in kept_otherwise(bus, &here).await? {
        let elsewhere = bus.declared_elsewhere(&kept.name).await?;
        let live: HashSet<Uuid> = elsewhere.iter().map(|one| one.process).collect();
        let told = declaring.told.get(&kept.name).filter(|(version, _)| *version == kept.version);
        match told {
            Some((_, then)) if then.is_subset(&live) => {}
            None if !live.is_empty() => {
                tracing::warn!(schedule = %kept.name, "another process declares this schedule differently, and it is as that one declares it: let them say the same");
                declaring.told.insert(kept.name, (kept.version, live));
            }
            Some(_) | None => {
                tracing::info!(schedule = %kept.name, "who declared this schedule differently is gone: it is made as this process declares it");
                declaring.told.remove(&kept.name);
                declaring.unmade.insert(kept.name);
            }
        }
    }
    Ok(())
}

/// Those of these that somebody declares, and that are kept as something else.
async fn kept_otherwise(bus: &Ensue, here: &HashMap<&GroupName, &Schedule>) -> Result<Vec<Kept>, StoreError> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = bus.store().schedules(after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some(last.name.clone());
        let is_other = |kept: &Kept| {
            kept.managed_by.is_some() && here.get(&kept.name).is_some_and(|one| one.kept() != kept.definition)
        };
        found.extend(page.into_iter().filter(is_other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedules::{PutSchedule, Target, Timing};
    use ensue_conformance::postgres::fresh_schema;
    use ensue_core::Topic;

    fn named(schedule: &str, mins: i64) -> Schedule {
        let timing = Timing::every(SignedDuration::from_mins(mins), None).unwrap();
        let target = Target::Topic(Topic::parse("tick").unwrap());
        let schedule = Schedule::new(GroupName::parse("name", schedule).unwrap(), timing, target);
        Schedule { managed_by: Some("config".into()), ..schedule }
    }

    /// Two declare one name differently: while both live it stays as the last of them has it, and then it is as it is declared here.
    #[tokio::test]
    async fn what_is_declared_here_comes_back_when_the_other_is_gone() {
        let (url, _schema) = fresh_schema("declared");
        let bus = Ensue::open(&url).await.unwrap();
        let (here, there) = (named("a", 5), named("a", 7));
        assert!(bus.declare_schedules(vec![here.clone()]).await.unwrap().is_empty());
        let (other, third) = (Uuid::from_u128(7), Uuid::from_u128(8));
        for process in [other, third] {
            bus.store().declare_schedules(process, std::slice::from_ref(&here.name), LEASE).await.unwrap();
        }
        let before = bus.store().schedule(&here.name).await.unwrap().unwrap();
        let put = PutSchedule {
            name: there.name.clone(),
            definition: there.kept(),
            managed_by: there.managed_by.clone(),
            over: Some((before.version, before.watermark)),
            watermark: before.watermark,
            due: None,
        };
        bus.store().put_schedule(put).await.unwrap().unwrap();
        let definition = async || bus.store().schedule(&here.name).await.unwrap().unwrap().definition;
        for _ in 0..2 * COMPARE_EVERY {
            say(&bus).await.unwrap();
            assert_eq!(definition().await, there.kept());
        }
        assert_eq!(bus.inner().schedules.declaring.lock().await.told.len(), 1, "it is told");
        // Whoever else declares it: it may declare the same as this process does.
        bus.store().undeclare_schedules(other).await.unwrap();
        for _ in 0..COMPARE_EVERY {
            say(&bus).await.unwrap();
        }
        assert_eq!(definition().await, here.kept());
        assert!(bus.delete_schedule(&here.name).await.is_err(), "it is declared here");
        bus.close().await;
    }
}
