//! How does a process make sure that nothing starts any more?
//!
//! Whoever starts something enters first, then looks at the rules, then begins, and leaves when the code of the handler has
//! been given its first turn. Whoever brings new rules puts them in place and waits for those who entered before: who enters
//! later sees the new ones.

use ensue_core::rules::{Rule, RuleSet};
use ensue_core::{GroupName, ObjectKey, Timestamp};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;

/// How often is looked whether those who entered have left.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The rules of a process, and those who are about to start something.
#[derive(Default)]
pub(crate) struct Gate {
    rules: RwLock<Arc<RuleSet>>,
    /// Who enters in an even or an odd epoch is counted apart.
    epoch: AtomicUsize,
    inside: [AtomicUsize; 2],
    /// One who brings new rules at a time.
    changing: tokio::sync::Mutex<()>,
    version: watch::Sender<u64>,
    /// The version that the store was told of.
    reported: AtomicU64,
}

/// Somebody is about to start something.
pub(crate) struct Inside<'g> {
    gate: &'g Gate,
    at: usize,
    rules: Arc<RuleSet>,
}

impl Gate {
    /// Enters; to be left as soon as the handler's code has had its first turn.
    pub fn enter(&self) -> Inside<'_> {
        loop {
            if let Some(inside) = self.enter_at(self.epoch.load(Ordering::SeqCst)) {
                return inside;
            }
        }
    }

    /// Enters in this epoch, if it has not passed meanwhile: who is counted in one that has is waited for by nobody.
    fn enter_at(&self, epoch: usize) -> Option<Inside<'_>> {
        self.inside[epoch % 2].fetch_add(1, Ordering::SeqCst);
        if self.epoch.load(Ordering::SeqCst) != epoch {
            self.inside[epoch % 2].fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        // Read after entering: who puts new rules in place waits for those who may have read the old ones.
        Some(Inside { gate: self, at: epoch % 2, rules: self.rules() })
    }

    /// The rules as they are known here.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Follows the version of the rules.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The version that the store was told of; none if it was told of none.
    pub fn reported(&self) -> Option<u64> {
        self.reported.load(Ordering::SeqCst).checked_sub(1)
    }

    /// The store was told of this version.
    pub fn has_reported(&self, version: u64) {
        self.reported.fetch_max(version + 1, Ordering::SeqCst);
    }

    /// Puts rules in place, unless newer ones are; when it comes back, nothing starts any more that they hold.
    pub async fn put(&self, rules: RuleSet) {
        let _one_at_a_time = self.changing.lock().await;
        let version = rules.version();
        {
            let mut known = self.rules.write().unwrap_or_else(PoisonError::into_inner);
            if known.version() >= version {
                return;
            }
            *known = Arc::new(rules);
        }
        let before = self.epoch.fetch_add(1, Ordering::SeqCst) % 2;
        while self.inside[before].load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.version.send_replace(version);
    }
}

impl Inside<'_> {
    /// What keeps a handler from running something about an object. A rule that has expired holds until it is lifted, which
    /// happens at once.
    pub fn held_by(&self, handler: &GroupName, object: Option<&ObjectKey>) -> Option<&Rule> {
        self.rules.holding(handler, object, Timestamp::MIN)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.gate.inside[self.at].fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue_core::rules::{NewRule, RuleKind, Scope};
    use uuid::Uuid;

    fn paused(version: u64) -> RuleSet {
        let scope = Scope::parse("handler:h").unwrap();
        let rule = NewRule { kind: RuleKind::Pause, scope, reason: None, author: "me".into(), expires_at: None };
        RuleSet::new(version, [rule.over(None, Uuid::nil(), Timestamp::UNIX_EPOCH)])
    }

    /// H17: a barrier between the look at the rules and the start.
    #[tokio::test]
    async fn new_rules_are_in_place_when_those_who_saw_the_old_ones_have_started() {
        let gate = Arc::new(Gate::default());
        let handler = GroupName::stored("h");
        let starting = gate.enter();
        assert!(starting.held_by(&handler, None).is_none());
        let put = tokio::spawn({
            let gate = gate.clone();
            async move { gate.put(paused(1)).await }
        });
        while gate.rules().version() < 1 {
            tokio::task::yield_now().await;
        }
        // Others who come now see the new rules, and the one who brought them still waits.
        assert!(gate.enter().held_by(&handler, None).is_some());
        assert!(!put.is_finished() && *gate.watch().borrow() == 0);
        drop(starting);
        put.await.unwrap();
        assert_eq!(*gate.watch().borrow(), 1);
    }

    /// H17: it read the epoch, and was held up; rules came, and others after them.
    #[tokio::test]
    async fn who_comes_too_late_for_its_epoch_enters_the_next() {
        let gate = Gate::default();
        let epoch = gate.epoch.load(Ordering::SeqCst);
        gate.put(paused(1)).await;
        assert!(gate.enter_at(epoch).is_none(), "nobody would wait for it");
        let starting = gate.enter();
        assert_eq!(gate.inside.each_ref().map(|count| count.load(Ordering::SeqCst)).iter().sum::<usize>(), 1);
        let waits = tokio::time::timeout(LOOK_EVERY * 20, gate.put(RuleSet::new(2, []))).await;
        assert!(waits.is_err(), "who entered is waited for");
        drop(starting);
    }

    #[tokio::test]
    async fn older_rules_do_not_replace_newer_ones() {
        let gate = Gate::default();
        gate.put(paused(2)).await;
        gate.put(RuleSet::new(1, [])).await;
        assert!(gate.enter().held_by(&GroupName::stored("h"), None).is_some());
        gate.put(RuleSet::new(3, [])).await;
        assert!(gate.enter().held_by(&GroupName::stored("h"), None).is_none());
    }
}
