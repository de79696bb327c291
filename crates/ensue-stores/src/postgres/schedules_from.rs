//! From where on is looked for schedules that are due?
//!
//! What has fired leaves its entry in the index while somebody holds a snapshot from before, so that a look from the beginning would take
//! longer with each that fires. A firing moves a schedule on; so before the first that a look has found there is nothing, until one is put or
//! let go by a rule: that changes the state, and who looks with another one looks from the beginning
//! (`sql/fn_schedules_due.sql`).

use super::types::Micros;
use ensue_core::schedules::{Firing, Kept};
use ensue_core::{GroupName, Timestamp};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// After so long a look is from the beginning again: a server that was promoted may lack what was fired last.
const WHOLE_EVERY: Duration = Duration::from_secs(60);

/// Where there is nothing before.
#[derive(Debug, Clone)]
struct From {
    state: i64,
    due: Timestamp,
    name: GroupName,
    /// When all was looked at.
    whole_at: Instant,
}

/// From where on is looked.
#[derive(Debug, Default)]
pub(super) struct SchedulesFrom(Mutex<Option<From>>);

impl SchedulesFrom {
    fn lock(&self) -> MutexGuard<'_, Option<From>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a look says: the state that it holds for, and from where on. Nothing if all is to be looked at.
    pub fn params(&self) -> (Option<i64>, Option<Micros>, Option<String>) {
        let mut from = self.lock();
        if from.as_ref().is_some_and(|from| from.whole_at.elapsed() > WHOLE_EVERY) {
            *from = None;
        }
        match from.as_ref() {
            Some(from) => (Some(from.state), Some(Micros(from.due)), Some(from.name.to_string())),
            None => (None, None, None),
        }
    }

    /// A look that said `asked` found these due by `now`, when the state was this one.
    pub fn found(&self, asked: Option<i64>, state: i64, now: Timestamp, due: &[Kept]) {
        let (due, name) = match due.first() {
            Some(Kept { due: Some(due), name, .. }) => (*due, name.clone()),
            // Nothing is due by now; what is due at this very moment from now on was put.
            Some(Kept { due: None, .. }) | None => (now, GroupName::stored("")),
        };
        let mut from = self.lock();
        let whole_at = match from.as_ref() {
            Some(before) if asked == Some(state) && before.state == state => before.whole_at,
            Some(_) | None => Instant::now(),
        };
        *from = Some(From { state, due, name, whole_at });
    }

    /// These are fired: one that is to be looked at before where looks begin makes them begin anew.
    pub fn fired(&self, firings: &[Firing]) {
        let earliest = firings.iter().filter_map(|firing| firing.moves?.due).min();
        let mut from = self.lock();
        if from.as_ref().is_some_and(|from| earliest.is_some_and(|due| due <= from.due)) {
            *from = None;
        }
    }
}
