//! Who of a group wants an event, without asking the store each time?
//!
//! A group may have hundreds of thousands of subscriptions. They are read once and kept, indexed, for as many groups as are
//! read at a time; when the group's version has counted up, only what has changed is read.

use crate::evaluation::{self, EvaluationClass};
use crate::wanted::Turn;
use ensue_core::condition::Condition;
use ensue_core::matching::{Index, Subscription, Want};
use ensue_core::positions::SubscriptionState;
use ensue_core::store::SharedStore;
use ensue_core::{GroupName, StoreError};
use jiff::SignedDuration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use uuid::Uuid;

/// For how many groups the subscriptions are kept; those that were asked for longest ago go.
const GROUPS_MAX: usize = 64;
/// How many subscriptions are read from the store at once.
const PAGE: usize = 1_000;
/// How many changes are taken over; beyond that all subscriptions are read.
const CHANGES_MAX: usize = 1_000;

/// The subscriptions of a group at one version.
pub(super) struct Wanting {
    pub version: u64,
    /// The store's session before they were read.
    session: u64,
    pub index: Index,
    /// The shortest time after which one of them goes; none if all of them stay. It may have been that of one that is gone.
    pub expires_first: Option<SignedDuration>,
    /// As `s.group_id` has it.
    group: Arc<str>,
}

/// What is kept of a group. Who brings it up to date has it alone: others who read the same group wait and share it.
type Kept = Arc<RwLock<Option<Wanting>>>;

/// The subscriptions of a group, for as long as somebody looks at them.
pub(super) type Shared = OwnedRwLockReadGuard<Option<Wanting>, Wanting>;

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
    pub(super) async fn at(&self, store: &SharedStore, group: &GroupName, version: u64) -> Result<Shared, StoreError> {
        let kept = self.kept_of(group);
        // A group that is made again under this name goes on counting where the former one ended.
        // In another session the log may be another one, with other subscriptions under the same version (H35).
        let session = store.session();
        let is_current = move |wanting: &&Wanting| wanting.version >= version && wanting.session == session;
        let is_new_enough = |kept: &Option<Wanting>| kept.as_ref().filter(is_current).is_some();
        loop {
            if let Ok(shared) =
                OwnedRwLockReadGuard::try_map(kept.clone().read_owned().await, |kept| kept.as_ref().filter(is_current))
            {
                return Ok(shared);
            }
            let mut kept = kept.write().await;
            if !is_new_enough(&kept) {
                // Taken out while it is changed: who stops waiting for it leaves nothing half done.
                let known = kept.take().filter(|known| known.session == session);
                *kept = Some(brought_to(store, group, known, version).await?);
            }
        }
    }

    /// The shortest time after which a subscription of a group goes, if those of this version are at hand.
    pub(super) async fn expires_first(&self, group: &GroupName, version: u64) -> Option<Option<SignedDuration>> {
        let kept = self.kept_of(group);
        let kept = kept.read().await;
        kept.as_ref().filter(|wanting| wanting.version == version).map(|wanting| wanting.expires_first)
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

/// Takes over what has changed, if that is known; reads all subscriptions if not.
async fn brought_to(
    store: &SharedStore,
    group: &GroupName,
    known: Option<Wanting>,
    version: u64,
) -> Result<Wanting, StoreError> {
    let Some(mut wanting) = known else { return read(store, group, version).await };
    let changes = store.subscription_changes(group, wanting.version, CHANGES_MAX).await?;
    // One that ends before the version that is wanted is of another log.
    let Some(changes) = changes.filter(|changes| changes.version >= version) else {
        return read(store, group, version).await;
    };
    for id in changes.gone {
        wanting.index.remove(id);
    }
    let (mut wanting, _) = with(wanting, changes.there, Conditions::default()).await?;
    wanting.version = changes.version;
    Ok(wanting)
}

/// Reads all subscriptions of a group. What changes meanwhile counts up the version, and is taken over after it.
async fn read(store: &SharedStore, group: &GroupName, version: u64) -> Result<Wanting, StoreError> {
    let session = store.session();
    let mut wanting =
        Wanting { version, session, index: Index::new(), expires_first: None, group: group.as_str().into() };
    let mut conditions = Conditions::default();
    let mut after: Option<Uuid> = None;
    loop {
        let page = store.subscriptions(group, after, PAGE).await?;
        let is_last = page.len() < PAGE;
        after = page.last().map(|subscription| subscription.id);
        (wanting, conditions) = with(wanting, page, conditions).await?;
        if is_last {
            return Ok(wanting);
        }
    }
}

/// Adds subscriptions, for one turn after the other: to parse conditions and to index params takes time.
async fn with(
    mut wanting: Wanting,
    subscriptions: Vec<SubscriptionState>,
    mut conditions: Conditions,
) -> Result<(Wanting, Conditions), StoreError> {
    let mut rest = subscriptions.into_iter();
    while !rest.as_slice().is_empty() {
        let add = move || {
            let turn = Turn::begin();
            while !turn.is_over()
                && let Some(one) = rest.next()
            {
                wanting.add(one, &mut conditions);
            }
            (wanting, conditions, rest)
        };
        (wanting, conditions, rest) = evaluation::run(EvaluationClass::Stream, add).await?;
    }
    Ok((wanting, conditions))
}

/// Many have the same condition, which is parsed once.
type Conditions = HashMap<Option<String>, Option<Arc<Condition>>>;

impl Wanting {
    fn add(&mut self, one: SubscriptionState, conditions: &mut Conditions) {
        self.expires_first = match (self.expires_first, one.expires_in) {
            (Some(first), Some(expiry)) => Some(first.min(expiry)),
            (only, None) | (None, only) => only,
        };
        let condition = conditions.entry(one.condition).or_insert_with_key(|text| parse(text.as_deref()));
        // One that a newer version let in wants what this one cannot tell: nobody else is kept from reading.
        let Some(condition) = condition.clone() else {
            tracing::warn!(group = %self.group, id = %one.id, "a subscription's condition is not understood: it gets nothing");
            return;
        };
        let want = Want { topic: one.topic, condition };
        self.index.add(&want, Subscription { id: one.id, group: self.group.clone(), params: one.params });
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
    use std::time::Instant;

    async fn version(bus: &Ensue) -> u64 {
        bus.store().group(&GroupName::stored("g")).await.unwrap().unwrap().version
    }

    fn numbered(n: usize) -> Wants {
        Wants { params: crate::Json::of("params", &n).unwrap(), ..Wants::topic("t") }
    }

    #[tokio::test]
    async fn subscriptions_are_read_once_and_then_what_changes_and_for_few_groups() {
        let bus = Ensue::memory().await.unwrap();
        let (cache, group) = (WantingCache::default(), GroupName::stored("g"));
        for n in 0..2_500 {
            bus.groups().subscribe("g", numbered(n)).await.unwrap();
        }
        let at = async |version: u64| cache.at(bus.store(), &group, version).await.unwrap().index.len();
        assert_eq!(at(version(&bus).await).await, 2_500, "pages of {PAGE} are put together");
        let (one, _) = bus.groups().subscribe("g", Wants::topic("u")).await.unwrap();
        assert_eq!(at(version(&bus).await).await, 2_501);
        bus.groups().unsubscribe("g", one.id).await.unwrap();
        assert_eq!(at(version(&bus).await).await, 2_500);
        // More than is known of: all are read again. So are those of another group of the same name.
        for n in 2_500..4_000 {
            bus.groups().subscribe("g", numbered(n)).await.unwrap();
        }
        assert_eq!(at(version(&bus).await).await, 4_000);
        bus.groups().delete("g").await.unwrap();
        for n in 0..5 {
            bus.groups().subscribe("g", numbered(n)).await.unwrap();
        }
        assert_eq!(at(version(&bus).await).await, 5);
        for n in 0..2 * GROUPS_MAX {
            drop(cache.at(bus.store(), &GroupName::stored(&format!("other.{n}")), 0).await.unwrap());
        }
        assert_eq!(cache.kept.lock().unwrap().by_name.len(), GROUPS_MAX);
        assert!(cache.expires_first(&group, version(&bus).await).await.is_none());
    }

    /// How long a reader is kept from its group by one subscription more, at so many that are there.
    #[tokio::test]
    #[ignore = "prints figures: cargo test --release -p ensue --lib one_more -- --ignored --nocapture"]
    async fn one_more_of_very_many() {
        for count in [20_000, 200_000] {
            let bus = Ensue::memory().await.unwrap();
            let (cache, group) = (WantingCache::default(), GroupName::stored("g"));
            for n in 0..count {
                bus.groups().subscribe("g", numbered(n)).await.unwrap();
            }
            let began = Instant::now();
            drop(cache.at(bus.store(), &group, version(&bus).await).await.unwrap());
            let all = began.elapsed();
            let mut each = Vec::new();
            for n in 0..20 {
                bus.groups().subscribe("g", numbered(count + n)).await.unwrap();
                let (version, began) = (version(&bus).await, Instant::now());
                drop(cache.at(bus.store(), &group, version).await.unwrap());
                each.push(began.elapsed());
            }
            each.sort_unstable();
            println!("{count} subscriptions: all are read in {all:?}, one more is taken over in {:?}", each[10]);
        }
    }
}
