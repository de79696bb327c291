//! Which handlers does the store itself keep?
//!
//! A handler that is bound by a program is known while that runs. One that workers elsewhere serve needs no program: it is
//! *defined*, and whoever runs handlers on the store brings its events to it. A definition is made together with the group
//! of its key and the one subscription of that, and goes with the group: so nobody can find one without the other, and a
//! process that binds what is defined makes nothing that somebody has deleted meanwhile.

use crate::error::{Invalid, StoreError};
use crate::json::Json;
use crate::key::{GroupName, Topic};
use crate::positions::{GroupKind, NewGroup, NewSubscription, Start};
use async_trait::async_trait;
use uuid::Uuid;

/// How many handlers may be defined: each is something that every process runs.
pub const DEFINITIONS_MAX: usize = 1_000;

/// A handler to be defined, checked by who parsed its condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDefinition {
    /// Its key, and the name of its group.
    pub key: GroupName,
    /// Where it begins if it is new.
    pub start: Start,
    /// How many slots its group gets if it is new.
    pub slots: u16,
    /// This topic and those below it; every topic if there is none.
    pub topic: Option<Topic>,
    /// Its condition as it was written; none is always true.
    pub condition: Option<String>,
    /// What that reads as `s.params`.
    pub params: Json,
    /// How it is run, for those who do.
    pub settings: Json,
    /// The process that defines it and serves it, if one does: it goes by what is new once this is answered.
    pub by: Option<Uuid>,
}

impl NewDefinition {
    /// Its group, if it is to be made.
    pub fn group(&self) -> NewGroup {
        NewGroup { name: self.key.clone(), kind: GroupKind::Handler, start: self.start, slots: self.slots }
    }

    /// What it wants.
    pub fn subscription(&self) -> NewSubscription {
        NewSubscription {
            group: self.key.clone(),
            topic: self.topic.clone(),
            condition: self.condition.clone(),
            params: self.params.clone(),
            expires_in: None,
        }
    }
}

/// A handler that is defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Its key, and the name of its group.
    pub key: GroupName,
    /// Its subscription.
    pub subscription: Uuid,
    /// How it is run.
    pub settings: Json,
    /// The version of all definitions with which this one became what it is.
    pub revision: u64,
}

/// Why a handler cannot be defined: a program has bound its key.
pub fn is_bound(key: &GroupName) -> StoreError {
    StoreError::Conflict(format!(
        "`{key}` is a handler that a config file or an application binds: choose another key, or take it out there and delete its group"
    ))
}

/// Why a handler cannot be defined: there are too many.
pub fn too_many() -> StoreError {
    let reason = format!("would be one handler more than the {DEFINITIONS_MAX} that can be kept: delete some first");
    Invalid::new("key", reason).into()
}

/// Handlers that are kept, durably.
#[async_trait]
pub trait Definitions: Send + Sync + 'static {
    /// Defines a handler, or defines it anew, and says whether it is new. Its group is made if it is new, else stays where it
    /// is; its subscription becomes its group's only one, and stays the same if it wants the same; if not, whoever has slots of the group loses
    /// them, but for who defines it, so that nobody passes over what only the new one wants. A group of its name that
    /// is read, or that a program has made, is a [`StoreError::Conflict`]; a start outside of the log, and one handler more than
    /// [`DEFINITIONS_MAX`], [`StoreError::Invalid`].
    async fn define(&self, new: NewDefinition) -> Result<(Definition, bool), StoreError>;

    /// All that are defined, by key, and their version: it counts up with each that is defined, changed or gone.
    async fn definitions(&self) -> Result<(u64, Vec<Definition>), StoreError>;

    /// Their version alone.
    async fn definitions_version(&self) -> Result<u64, StoreError>;

    /// Forgets a handler that is defined, with its group and all that belongs to it; was there one? Whoever deletes its group
    /// does the same ([`Positions::delete_group`](crate::positions::Positions::delete_group)).
    async fn undefine(&self, key: &GroupName) -> Result<bool, StoreError>;
}
