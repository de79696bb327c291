//! How does somebody outside of the process read the log, durably?
//!
//! A group is a place in the log and a set of subscriptions. Whoever reads it takes its lease, gets the events that a
//! subscription wants, and commits how far it has come: what was not committed comes again, to whoever reads next. One
//! reader at a time; the lease of one who has gone runs out by itself.
//!
//! | question | file |
//! |---|---|
//! | Which groups are there, and where do they stand? | `verbs.rs` |
//! | What does a group want? | `subscribe.rs` |
//! | What is next for a group, and who may read it? | `pull.rs` |
//! | Which events of the log are for the group? | `scan.rs` |
//! | Who of a group wants an event, without asking the store each time? | `wanting.rs` |
//! | How far is the reader? | `commit.rs` |
//! | What does a reader hold in its hand? | `lease.rs` |

mod commit;
mod lease;
mod pull;
mod scan;
mod subscribe;
mod verbs;
mod wanting;

pub use commit::Committed;
pub use pull::{LEASE_MAX, LEASE_MIN, LIMIT_MAX, Pull, Pulled, WAIT_MAX};
pub(crate) use scan::Answer;
pub use scan::{PullFailure, PulledEvent};
pub use subscribe::Wants;
pub use verbs::Group;
pub(crate) use wanting::WantingCache;

use crate::Ensue;
use crate::error::Error;
use ensue_core::positions::{GroupKind, GroupState};
use ensue_core::{GroupName, StoreError};

/// The groups of a bus: see [`Ensue::groups`].
pub struct Groups<'b> {
    pub(crate) bus: &'b Ensue,
}

impl Ensue {
    /// The groups of this log: durable readers, each with its own place and its own subscriptions.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ensue::groups::{Pull, Wants};
    /// use ensue::{Ensue, NewEvent};
    ///
    /// let bus = Ensue::memory().await?;
    /// let groups = bus.groups();
    /// // Makes the group, from now on, if it is not there.
    /// let (subscription, _new) = groups.subscribe("billing", Wants::when("e.topic = 'order.paid'")).await?;
    /// bus.publish(NewEvent::new("order.placed").object("order:1")).await?;
    /// bus.publish(NewEvent::new("order.paid").object("order:1")).await?;
    ///
    /// let pulled = groups.pull("billing", Pull::default()).await?;
    /// assert_eq!(pulled.events[0].event.seq, 2);
    /// assert_eq!(pulled.events[0].subscriptions, [subscription.id]);
    ///
    /// // What is not committed comes again. With `release`, somebody else may read at once.
    /// let lease = pulled.lease.expect("only a peek has none");
    /// groups.commit("billing", &lease, Some(pulled.cursor), true).await?;
    /// assert_eq!(groups.get("billing").await?.lag(), 0);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    pub fn groups(&self) -> Groups<'_> {
        Groups { bus: self }
    }
}

fn named(name: &str) -> Result<GroupName, Error> {
    Ok(GroupName::parse("group", name)?)
}

fn unknown(name: &GroupName) -> Error {
    Error::NotFound(format!("there is no group `{name}`: create it, or subscribe to it, which makes it"))
}

/// Nobody reads what a handler reads: the two would take events from each other.
fn check_is_pulled(state: &GroupState) -> Result<(), Error> {
    match state.kind {
        GroupKind::Pull => Ok(()),
        GroupKind::Handler => {
            let name = &state.name;
            let told = format!(
                "the group `{name}` belongs to the handler of that name, which alone reads it: choose another group"
            );
            Err(StoreError::Conflict(told).into())
        }
    }
}

impl Groups<'_> {
    /// A group that can be read from outside, as it is.
    async fn pulled_group(&self, name: &GroupName) -> Result<GroupState, Error> {
        let state = self.bus.store().group(name).await?.ok_or_else(|| unknown(name))?;
        check_is_pulled(&state)?;
        Ok(state)
    }
}
