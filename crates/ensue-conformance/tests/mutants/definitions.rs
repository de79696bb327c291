//! What is wrong with how a mutant keeps handlers?

use super::{Fault, Mutant};
use async_trait::async_trait;
use ensue_core::definitions::{Definition, Definitions, NewDefinition};
use ensue_core::{GroupName, StoreError};

#[async_trait]
impl Definitions for Mutant {
    async fn define(&self, new: NewDefinition) -> Result<(Definition, bool), StoreError> {
        if self.fault == Fault::BeginsAnewWhenDefinedAnew {
            self.inner.undefine(&new.key).await?;
        }
        self.inner.define(new).await
    }

    async fn definitions(&self) -> Result<(u64, Vec<Definition>), StoreError> {
        let (version, all) = self.inner.definitions().await?;
        Ok((if self.fault == Fault::CountsNoDefinitions { 0 } else { version }, all))
    }

    async fn definitions_version(&self) -> Result<u64, StoreError> {
        self.inner.definitions_version().await
    }

    async fn undefine(&self, key: &GroupName) -> Result<bool, StoreError> {
        self.inner.undefine(key).await
    }
}
