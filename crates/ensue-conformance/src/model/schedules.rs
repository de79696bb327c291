//! What does each verb about schedules mean?

use super::{Model, State};
use async_trait::async_trait;
use ensue_core::event::whole_microseconds;
use ensue_core::room::Room;
use ensue_core::rules::Scope;
use ensue_core::schedules::port::{DECLARED_MAX, RUNS_MAX, SCHEDULES_MAX, check, too_many};
use ensue_core::schedules::{
    Declared, Declarer, Fired, Firing, Kept, Makes, NewRun, PutSchedule, Run, RunOutcome, Schedules, What,
};
use ensue_core::{GroupName, Invalid, StoreError, Timestamp};
use jiff::SignedDuration;
use std::collections::BTreeMap;
use uuid::Uuid;

/// All that is known of schedules.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub version: u64,
    /// By name; whether a rule holds one is found when somebody looks.
    pub all: Vec<Kept>,
    /// In the order in which they were written.
    pub runs: Vec<(GroupName, Run)>,
    /// Who declares what, until when.
    pub declared: Vec<(Uuid, GroupName, Timestamp)>,
}

impl Planned {
    pub const EMPTY: Planned = Planned { version: 0, all: Vec::new(), runs: Vec::new(), declared: Vec::new() };

    fn forget(&mut self, name: &GroupName) {
        self.all.retain(|one| one.name != *name);
        self.runs.retain(|(of, _)| of != name);
    }
}

impl State {
    fn seen(&self, kept: &Kept) -> Kept {
        let scope = Scope::Schedule(kept.name.clone());
        Kept { held: self.work.rules.iter().any(|rule| rule.scope == scope), ..kept.clone() }
    }

    fn kept(&self, name: &GroupName) -> Option<Kept> {
        self.planned.all.iter().find(|one| one.name == *name).map(|one| self.seen(one))
    }

    fn put(&mut self, put: PutSchedule, now: Timestamp) -> Result<Option<Kept>, StoreError> {
        let there = self.kept(&put.name);
        if there.as_ref().map(|there| (there.version, there.watermark)) != put.over {
            return Ok(None);
        }
        if there.is_none() && self.planned.all.len() >= SCHEDULES_MAX {
            return Err(too_many());
        }
        self.planned.version += 1;
        let kept = Kept {
            created_at: there.map_or(now, |there| there.created_at),
            updated_at: now,
            version: self.planned.version,
            name: put.name,
            definition: put.definition,
            managed_by: put.managed_by,
            watermark: put.watermark,
            due: put.due,
            held: false,
        };
        self.planned.all.retain(|one| one.name != kept.name);
        self.planned.all.push(kept.clone());
        self.planned.all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Some(self.seen(&kept)))
    }

    fn fire_one(&mut self, firing: Firing, clock: Timestamp) -> Result<Fired, StoreError> {
        let Some(there) = self.kept(&firing.name).filter(|there| there.version == firing.version) else {
            return Ok(Fired::Lost);
        };
        if firing.moves.is_some_and(|moves| moves.from != there.watermark) {
            return Ok(Fired::Lost);
        }
        if there.held {
            return Ok(Fired::Held);
        }
        let mut done = Vec::new();
        for run in firing.runs {
            done.push(self.run(&firing.name, run, clock)?);
        }
        let kept = self.planned.all.iter_mut().find(|one| one.name == firing.name).expect("it is there");
        if let Some(moves) = firing.moves {
            kept.watermark = whole_microseconds(moves.to);
            kept.due = moves.due.map(whole_microseconds);
        }
        Ok(Fired::Done(done))
    }

    fn run(&mut self, name: &GroupName, run: NewRun, clock: Timestamp) -> Result<Run, StoreError> {
        let (at, now) = (self.time(clock), whole_microseconds(clock));
        let outcome = match run.what {
            What::Skipped(reason) => RunOutcome::Skipped(reason),
            What::Fires(Makes::Event(entry)) => {
                let appended = self.accept(entry, at)?;
                RunOutcome::Event(appended.seq.expect("it is not delayed"))
            }
            What::Fires(Makes::Job(job)) => {
                let sent = self.work.enqueue(vec![job], now)?[0];
                if sent.is_new { RunOutcome::Job(sent.id) } else { RunOutcome::Overlapped(sent.id) }
            }
        };
        let mine =
            |runs: &[(GroupName, Run)]| runs.iter().filter(|(of, _)| of == name).map(|(_, run)| run.number).max();
        let number = mine(&self.planned.runs).unwrap_or(0) + 1;
        let occurrence = whole_microseconds(run.occurrence);
        let run = Run { number, occurrence, at: now, manual: run.manual, outcome };
        self.planned.runs.push((name.clone(), run.clone()));
        self.planned.runs.retain(|(of, run)| of != name || run.number + RUNS_MAX > number);
        Ok(run)
    }

    fn declare(&mut self, process: Uuid, names: &[GroupName], lapsed: Timestamp, until: Timestamp) -> Declared {
        let planned = &mut self.planned;
        planned.declared.retain(|(by, _, until)| *by != process && *until > lapsed);
        planned.declared.extend(names.iter().map(|name| (process, name.clone(), until)));
        let is_declared = |name: &GroupName| planned.declared.iter().any(|(_, declared, _)| declared == name);
        let gone = planned.all.iter().filter(|one| one.managed_by.is_some() && !is_declared(&one.name));
        let removed: Vec<GroupName> = gone.map(|one| one.name.clone()).collect();
        removed.iter().for_each(|name| planned.forget(name));
        let mut missing: Vec<GroupName> = names.to_vec();
        missing.retain(|name| planned.all.iter().all(|one| one.name != *name));
        missing.sort();
        missing.dedup();
        Declared { missing, removed }
    }
}

#[async_trait]
impl Schedules for Model {
    async fn put_schedule(&self, put: PutSchedule) -> Result<Option<Kept>, StoreError> {
        let (mut state, now) = (self.state()?, self.positions_now());
        state.put(put.in_microseconds(), now)
    }

    async fn schedule(&self, name: &GroupName) -> Result<Option<Kept>, StoreError> {
        Ok(self.state()?.kept(name))
    }

    async fn schedules(&self, after: Option<&GroupName>, limit: usize) -> Result<Vec<Kept>, StoreError> {
        let state = self.state()?;
        let after = state.planned.all.iter().filter(|one| after.is_none_or(|after| one.name > *after));
        Ok(after.take(limit).map(|one| state.seen(one)).collect())
    }

    async fn delete_schedule(&self, name: &GroupName) -> Result<bool, StoreError> {
        let mut state = self.state()?;
        let is_there = state.kept(name).is_some();
        state.planned.forget(name);
        Ok(is_there)
    }

    async fn due_schedules(&self, now: Timestamp, limit: usize) -> Result<Vec<Kept>, StoreError> {
        let state = self.state()?;
        let seen = state.planned.all.iter().map(|one| state.seen(one));
        let mut due: Vec<Kept> = seen.filter(|one| !one.held && one.due.is_some_and(|due| due <= now)).collect();
        due.sort_by(|one, other| (one.due, &one.name).cmp(&(other.due, &other.name)));
        due.truncate(limit);
        let mut room = Room::of_a_page();
        Ok(due.into_iter().take_while(|one| room.take(one.definition.as_str().len())).collect())
    }

    async fn next_schedule(&self) -> Result<Option<Timestamp>, StoreError> {
        let state = self.state()?;
        let free = state.planned.all.iter().map(|one| state.seen(one)).filter(|one| !one.held);
        Ok(free.filter_map(|one| one.due).min())
    }

    async fn fire(&self, firings: Vec<Firing>) -> Result<Vec<Fired>, StoreError> {
        check(&firings)?;
        let mut state = self.state()?;
        // On a copy, so that it is all or nothing.
        let mut changed = state.clone();
        let clock = (self.clock)();
        let fired = firings.into_iter().map(|firing| changed.fire_one(firing, clock)).collect::<Result<_, _>>()?;
        *state = changed;
        Ok(fired)
    }

    async fn schedule_runs(&self, name: &GroupName, before: Option<u64>, limit: usize) -> Result<Vec<Run>, StoreError> {
        let state = self.state()?;
        let runs =
            state.planned.runs.iter().rev().filter(|(of, run)| of == name && before.is_none_or(|n| run.number < n));
        Ok(runs.take(limit).map(|(_, run)| run.clone()).collect())
    }

    async fn declare_schedules(
        &self,
        process: Uuid,
        names: &[GroupName],
        lease: SignedDuration,
    ) -> Result<Declared, StoreError> {
        if names.len() > DECLARED_MAX {
            return Err(Invalid::new("names", "are too many").into());
        }
        let now = self.positions_now();
        Ok(self.state()?.declare(process, names, now - lease, whole_microseconds(now + lease)))
    }

    async fn declarers(&self, name: Option<&GroupName>) -> Result<Vec<Declarer>, StoreError> {
        let state = self.state()?;
        let meant = state.planned.declared.iter().filter(|(_, of, _)| name.is_none_or(|name| of == name));
        let all: BTreeMap<Uuid, Timestamp> = meant.map(|(process, _, until)| (*process, *until)).collect();
        Ok(all.into_iter().map(|(process, until)| Declarer { process, until }).collect())
    }

    async fn undeclare_schedules(&self, process: Uuid) -> Result<(), StoreError> {
        self.state()?.planned.declared.retain(|(by, ..)| *by != process);
        Ok(())
    }
}
