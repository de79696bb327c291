//! Who of a group wants an event, without asking the store each time?
//!
//! A group may have hundreds of thousands of subscriptions. They are read once for each version of the group and kept,
//! indexed, for as many groups as are read at a time.

use ensue_core::condition::Condition;
use ensue_core::matching::{Index, Subscription, Want};
use ensue_core::store::SharedStore;
use ensue_core::{GroupName, StoreError};
use jiff::SignedDuration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// For how many groups the subscriptions are kept; those that were asked for longest ago go.
const GROUPS_MAX: usize = 64;
/// How many subscriptions are read from the store at once.
const PAGE: usize = 1_000;

/// The subscriptions of a group at one version.
pub(super) struct Wanting {
    pub version: u64,
    pub index: Index,
    /// The shortest time after which one of them goes; none if all of them stay.
    pub expires_first: Option<SignedDuration>,
}

/// What is kept of a group. Who builds it holds the lock: others who read the same group wait and share it.
type Kept = Arc<tokio::sync::Mutex<Option<Arc<Wanting>>>>;

/// The subscriptions of the groups that are read in this process.
#[derive(Default)]
pub(crate) struct WantingCache {
    kept: Mutex<Groups>,
}

#[derive(Default)]
struct Groups {
    by_name: HashMap<GroupName, (Kept, u64)>,
    /// Counts up with every question: who was asked for last?
    asked: u64,
}

impl WantingCache {
    /// The subscriptions of a group at this version or a later one.
    pub(super) async fn at(
        &self,
        store: &SharedStore,
        group: &GroupName,
        version: u64,
    ) -> Result<Arc<Wanting>, StoreError> {
        let kept = self.kept_of(group);
        let mut kept = kept.lock().await;
        // A group that is made again under this name goes on counting where the former one ended.
        if let Some(wanting) = kept.as_ref().filter(|wanting| wanting.version >= version) {
            return Ok(wanting.clone());
        }
        let wanting = Arc::new(read(store, group, version).await?);
        *kept = Some(wanting.clone());
        Ok(wanting)
    }

    /// The subscriptions of a group at this version, if they are at hand.
    pub(super) async fn at_hand(&self, group: &GroupName, version: u64) -> Option<Arc<Wanting>> {
        let kept = self.kept_of(group);
        let kept = kept.lock().await;
        kept.as_ref().filter(|wanting| wanting.version == version).cloned()
    }

    fn kept_of(&self, group: &GroupName) -> Kept {
        let mut groups = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        groups.asked += 1;
        let asked = groups.asked;
        let (kept, last) = groups.by_name.entry(group.clone()).or_default();
        *last = asked;
        let kept = kept.clone();
        if groups.by_name.len() > GROUPS_MAX {
            let oldest = groups.by_name.iter().min_by_key(|(_, (_, asked))| *asked).map(|(name, _)| name.clone());
            oldest.and_then(|name| groups.by_name.remove(&name));
        }
        kept
    }
}

/// Reads all subscriptions of a group. What changes meanwhile counts up the version, and is read again.
async fn read(store: &SharedStore, group: &GroupName, version: u64) -> Result<Wanting, StoreError> {
    let mut wanting = Wanting { version, index: Index::new(), expires_first: None };
    let name: Arc<str> = group.as_str().into();
    // Many have the same condition, which is parsed once.
    let mut conditions: HashMap<Option<String>, Option<Arc<Condition>>> = HashMap::new();
    let mut after: Option<Uuid> = None;
    loop {
        let page = store.subscriptions(group, after, PAGE).await?;
        let is_last = page.len() < PAGE;
        after = page.last().map(|subscription| subscription.id);
        for one in page {
            wanting.expires_first = match (wanting.expires_first, one.expires_in) {
                (Some(first), Some(expiry)) => Some(first.min(expiry)),
                (only, None) | (None, only) => only,
            };
            let condition = conditions.entry(one.condition).or_insert_with_key(|text| parse(text.as_deref()));
            // One that a newer version let in wants what this one cannot tell: nobody else is kept from reading.
            let Some(condition) = condition.clone() else {
                tracing::warn!(group = %group, id = %one.id, "a subscription's condition is not understood: it gets nothing");
                continue;
            };
            let want = Want { topic: one.topic, condition };
            wanting.index.add(&want, Subscription { id: one.id, group: name.clone(), params: one.params });
        }
        if is_last {
            return Ok(wanting);
        }
        tokio::task::yield_now().await;
    }
}

fn parse(condition: Option<&str>) -> Option<Arc<Condition>> {
    Condition::parse(condition.unwrap_or("true")).ok().map(Arc::new)
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::Ensue;
    use crate::groups::Wants;

    #[tokio::test]
    async fn subscriptions_are_read_once_for_a_version_and_for_few_groups() {
        let bus = Ensue::memory().await.unwrap();
        let cache = WantingCache::default();
        for n in 0..2_500 {
            let wants = Wants { params: crate::Json::of("params", &n).unwrap(), ..Wants::topic("t") };
            bus.groups().subscribe("g", wants).await.unwrap();
        }
        let group = GroupName::stored("g");
        let version = bus.store().group(&group).await.unwrap().unwrap().version;
        let first = cache.at(bus.store(), &group, version).await.unwrap();
        assert_eq!(first.index.len(), 2_500, "pages of {PAGE} are put together");
        assert!(Arc::ptr_eq(&first, &cache.at(bus.store(), &group, version).await.unwrap()));
        bus.groups().subscribe("g", Wants::topic("u")).await.unwrap();
        assert_eq!(cache.at(bus.store(), &group, version + 1).await.unwrap().index.len(), 2_501);
        for n in 0..2 * GROUPS_MAX {
            cache.at(bus.store(), &GroupName::stored(&format!("other.{n}")), 1).await.unwrap();
        }
        assert_eq!(cache.kept.lock().unwrap().by_name.len(), GROUPS_MAX);
        assert!(cache.at_hand(&group, version + 1).await.is_none());
    }
}
