//! What does each verb about handlers that are kept mean?

use super::{Model, State};
use async_trait::async_trait;
use ensue_core::definitions::{DEFINITIONS_MAX, Definition, Definitions, NewDefinition};
use ensue_core::{GroupName, Invalid, Positions, StoreError, Timestamp};

/// Handlers that are kept, by key.
#[derive(Debug, Clone)]
pub(super) struct Defined {
    pub version: u64,
    pub all: Vec<Definition>,
}

impl Defined {
    pub const EMPTY: Defined = Defined { version: 0, all: Vec::new() };

    /// A group is gone, and with it what is defined of it.
    pub fn forget(&mut self, key: &GroupName) {
        let before = self.all.len();
        self.all.retain(|one| one.key != *key);
        self.version += (before - self.all.len()) as u64;
    }
}

impl State {
    fn define(&mut self, new: &NewDefinition, now: Timestamp) -> Result<(Definition, bool), StoreError> {
        let there = self.known.defined.all.iter().find(|one| one.key == new.key).cloned();
        if there.is_none() {
            if self.known.group(&new.key).is_some() {
                return Err(StoreError::Conflict(format!("`{}` is somebody else's", new.key)));
            }
            if self.known.defined.all.len() >= DEFINITIONS_MAX {
                return Err(Invalid::new("key", "is one too many").into());
            }
            self.create(new.group(), now)?;
        }
        let (wanted, _) = self.subscribe(new.subscription(), now)?;
        let of_group = self.known.subscriptions.iter().map(|(one, _)| one.clone());
        let others: Vec<_> = of_group.filter(|one| one.group == new.key && one.id != wanted.id).collect();
        others.iter().for_each(|one| self.known.forget_subscription(one));
        if there.as_ref().is_some_and(|there| there.subscription != wanted.id) {
            self.known.take_slots(&new.key, new.by, now);
        }
        let defined = &mut self.known.defined;
        if let Some(there) = &there
            && there.subscription == wanted.id
            && there.settings == new.settings
        {
            return Ok((there.clone(), false));
        }
        defined.version += 1;
        let (key, settings, revision) = (new.key.clone(), new.settings.clone(), defined.version);
        let definition = Definition { key, subscription: wanted.id, settings, revision };
        defined.all.retain(|one| one.key != new.key);
        defined.all.push(definition.clone());
        defined.all.sort_by(|one, other| one.key.cmp(&other.key));
        Ok((definition, there.is_none()))
    }
}

#[async_trait]
impl Definitions for Model {
    async fn define(&self, new: NewDefinition) -> Result<(Definition, bool), StoreError> {
        let (mut state, now) = (self.state()?, self.positions_now());
        // On a copy, so that it is all or nothing.
        let mut changed = state.clone();
        let answer = changed.define(&new, now)?;
        *state = changed;
        Ok(answer)
    }

    async fn definitions(&self) -> Result<(u64, Vec<Definition>), StoreError> {
        let defined = self.state()?.known.defined.clone();
        Ok((defined.version, defined.all))
    }

    async fn definitions_version(&self) -> Result<u64, StoreError> {
        Ok(self.state()?.known.defined.version)
    }

    async fn undefine(&self, key: &GroupName) -> Result<bool, StoreError> {
        let is_defined = self.state()?.known.defined.all.iter().any(|one| one.key == *key);
        if is_defined { self.delete_group(key).await } else { Ok(false) }
    }
}
