//! How does something happen at a time, again and again?
//!
//! | question | file |
//! |---|---|
//! | How is a schedule made, looked at and fired by hand? | `mod.rs` |
//! | Who fires what is due? | `scheduler.rs`; how much in one commit: `batch.rs` |
//! | Which schedules does this process declare? | `declared.rs` |

mod batch;
mod declared;
mod scheduler;

pub use ensue_core::schedules::{
    Declared, Declarer, Fired, Firing, Kept, Misfire, Moves, NewRun, Overlap, PutSchedule, Run, RunOutcome, Schedule,
    Schedules, Target, Timing, When, firing, meaning, port, timing,
};

pub(crate) use declared::keep_declared;
pub(crate) use scheduler::{SchedulesHere, fire_now, run};

use crate::Ensue;
use crate::error::Error;
use ensue_core::explain::{Explanation, ScheduleFacts, explain_schedule};
use ensue_core::{GroupName, Invalid, StoreError, Timestamp};

/// How many of the next times are told.
const UPCOMING: usize = 5;

/// A schedule as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenSchedule {
    /// As it is kept.
    pub kept: Kept,
    /// What it is; or why this program cannot read it.
    pub schedule: Result<Schedule, String>,
    /// Its next five times, by the store's clock; without jitter.
    pub next: Vec<Timestamp>,
    /// Why it probably does not mean what its author intended.
    pub warning: Option<String>,
}

impl SeenSchedule {
    fn of(kept: Kept, now: Timestamp) -> Self {
        let schedule = Schedule::stored(&kept.name, &kept.definition, kept.managed_by.as_deref());
        let schedule = schedule.map_err(|error| error.to_string());
        let readable = schedule.as_ref().ok();
        let timing = readable.map(|schedule| &schedule.timing);
        let next = timing.map(|timing| timing.upcoming(now.max(kept.watermark), UPCOMING)).unwrap_or_default();
        let warning = readable.and_then(|schedule| schedule.warning(now));
        Self { kept, schedule, next, warning }
    }
}

fn no_schedule(name: &GroupName) -> Error {
    Error::NotFound(format!("there is no schedule `{name}`: look at the list of schedules"))
}

fn named(name: impl AsRef<str>) -> Result<GroupName, Invalid> {
    GroupName::parse("name", name.as_ref())
}

impl Ensue {
    /// Makes a schedule, or changes the one of its name; says whether it is new. While its times stay what they are, nothing is
    /// missed or doubled by that: it goes on where it was. With other times it begins now.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ensue::schedules::{Schedule, Target, Timing};
    /// let bus = ensue::Ensue::memory().await?;
    /// let times = Timing::cron("30 2 * * *", Some("Europe/Berlin"))?;
    /// let nightly = Schedule::named("nightly", times, Target::topic("report.nightly")?)?;
    /// let (made, is_new) = bus.schedule(nightly).await?;
    /// assert!(is_new && made.next.len() == 5);
    /// bus.run_schedule("nightly").await?; // now, too
    /// assert_eq!(bus.store().event(1).await?.map(|event| event.topic.to_string()).as_deref(), Some("report.nightly"));
    /// # Ok(()) }
    /// ```
    pub async fn schedule(&self, schedule: Schedule) -> Result<(SeenSchedule, bool), Error> {
        let store = self.store();
        // Also of one that is there already: what was kept once may be refused by now.
        schedule.check_settings()?;
        loop {
            let (there, now) = (store.schedule(&schedule.name).await?, store.now().await?);
            if let Some(there) = &there {
                may_replace(there, &schedule)?;
                let is_same = there.definition == schedule.kept() && there.managed_by == schedule.managed_by;
                if is_same && !firing::is_ahead(there.watermark, now) {
                    return Ok((SeenSchedule::of(there.clone(), now), false));
                }
            }
            if schedule.managed_by.is_none() {
                schedule.check(now)?;
            }
            let is_new = there.is_none();
            // Decided over what was there: if somebody changes or fires it meanwhile, it is decided again.
            if let Some(kept) = store.put_schedule(put(&schedule, there.as_ref(), now)).await? {
                self.inner().schedules.ring();
                return Ok((SeenSchedule::of(kept, now), is_new));
            }
        }
    }

    /// A schedule as it stands.
    pub async fn find_schedule(&self, name: impl AsRef<str>) -> Result<Option<SeenSchedule>, Error> {
        let name = &named(name)?;
        let (kept, now) = (self.store().schedule(name).await?, self.store().now().await?);
        Ok(kept.map(|kept| SeenSchedule::of(kept, now)))
    }

    /// Schedules by name, after this one: at most `limit` of them.
    pub async fn schedules(&self, after: Option<&GroupName>, limit: usize) -> Result<Vec<SeenSchedule>, Error> {
        let (page, now) = (self.store().schedules(after, limit).await?, self.store().now().await?);
        Ok(page.into_iter().map(|kept| SeenSchedule::of(kept, now)).collect())
    }

    /// Forgets a schedule with its runs. One that somebody who lives declares is refused: it would come back.
    pub async fn delete_schedule(&self, name: impl AsRef<str>) -> Result<(), Error> {
        let name = &named(name)?;
        if let Some(there) = self.store().schedule(name).await?.filter(|there| there.managed_by.is_some())
            && self.is_declared(name).await?
        {
            return Err(StoreError::Conflict(is_declared(&there)).into());
        }
        match self.store().delete_schedule(name).await? {
            true => Ok(()),
            false => Err(no_schedule(name)),
        }
    }

    /// Fires a schedule now, whatever its times say. A rule on it holds this, too; and its overlap policy decides, so look at
    /// what came of it.
    pub async fn run_schedule(&self, name: impl AsRef<str>) -> Result<Run, Error> {
        let name = &named(name)?;
        loop {
            let kept = self.store().schedule(name).await?.ok_or_else(|| no_schedule(name))?;
            let schedule = Schedule::stored(name, &kept.definition, kept.managed_by.as_deref())?;
            let mut run = firing::by_hand(&schedule, self.store().now().await?);
            self.inner().as_handlers_say(&schedule, std::slice::from_mut(&mut run));
            let firing = Firing { name: name.clone(), version: kept.version, moves: None, runs: vec![run] };
            let fired = self.store().fire(vec![firing]).await?;
            self.inner().announce_fired(&fired);
            match fired.into_iter().next() {
                Some(Fired::Done(runs)) => {
                    let unanswered = || StoreError::Engine("a run was not answered".into());
                    return Ok(runs.into_iter().next().ok_or_else(unanswered)?);
                }
                Some(Fired::Held) => {
                    let reason = format!("`schedule:{name}` is paused or blocked: lift the rule first, then run it");
                    return Err(StoreError::Conflict(reason).into());
                }
                // Somebody has changed it at this moment.
                Some(Fired::Lost) | None => {}
            }
        }
    }

    /// What became of the occurrences of a schedule, the newest first, before this number: at most `limit` of the last 100.
    pub async fn schedule_runs(
        &self,
        name: impl AsRef<str>,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Run>, Error> {
        let name = &named(name)?;
        if self.store().schedule(name).await?.is_none() {
            return Err(no_schedule(name));
        }
        Ok(self.store().schedule_runs(name, before, limit).await?)
    }

    /// Why a schedule does or does not fire.
    pub async fn explain_schedule(&self, name: impl AsRef<str>) -> Result<Explanation, Error> {
        let name = &named(name)?;
        let store = self.store();
        let kept = store.schedule(name).await?.ok_or_else(|| no_schedule(name))?;
        let (rules, now) = (store.rules().await?, store.now().await?);
        let runs = store.schedule_runs(name, None, 1).await?;
        let read = Schedule::stored(name, &kept.definition, None).map_err(|error| error.to_string());
        Ok(explain_schedule(&ScheduleFacts {
            kept: &kept,
            unreadable: read.as_ref().err().map(String::as_str),
            rules: &rules.all_holding_schedule(name, now),
            last: runs.first(),
            now,
        }))
    }
}

fn is_declared(there: &Kept) -> String {
    let manager = there.managed_by.as_deref().unwrap_or_default();
    format!("the schedule `{}` is declared by {manager}: change it there, or take it out there", there.name)
}

/// A schedule of the API and one of a config file do not replace each other.
fn may_replace(there: &Kept, new: &Schedule) -> Result<(), StoreError> {
    match (&there.managed_by, &new.managed_by) {
        (Some(_), None) => Err(StoreError::Conflict(is_declared(there))),
        (None, Some(_)) => {
            let reason = format!(
                "the schedule `{}` was made over the API: delete it there, or give the declared one another name",
                there.name
            );
            Err(StoreError::Conflict(reason))
        }
        (Some(_), Some(_)) | (None, None) => Ok(()),
    }
}

/// What to keep over what is there.
fn put(schedule: &Schedule, there: Option<&Kept>, now: Timestamp) -> PutSchedule {
    let before = there.and_then(|there| Schedule::stored(&there.name, &there.definition, None).ok());
    let same_times = before.is_some_and(|before| before.timing.has_times_of(&schedule.timing));
    let watermark = match there {
        Some(there) if firing::is_ahead(there.watermark, now) => now,
        // What was missed under the same times is still to be decided.
        Some(there) if same_times => there.watermark,
        Some(there) => there.watermark.max(now),
        None => now,
    };
    PutSchedule {
        name: schedule.name.clone(),
        definition: schedule.kept(),
        managed_by: schedule.managed_by.clone(),
        over: there.map(|there| (there.version, there.watermark)),
        watermark,
        due: firing::due_after(schedule, watermark),
    }
}
