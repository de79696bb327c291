//! May this program still run beside the schema?
//!
//! Another program may bring the schema up to date while this one runs, and says then which older programs may go on. That is looked at with each new
//! connection and with each pulse, which asks anyway. A program that may not go on says so once, and does nothing more: what it would write could be wrong.

use super::migrate::newest;
use super::schema::Schema;
use ensue_core::StoreError;
use std::sync::OnceLock;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

/// The newest version of the schema, and the oldest program that may run beside it.
pub(super) const VERSION: &str =
    "(SELECT ARRAY[version, compatible_from] FROM {schema}.schema_version ORDER BY version DESC LIMIT 1)";

#[derive(Debug, Default)]
pub(super) struct Beside {
    /// Asks for both, once the schema is known to be there.
    ask: OnceLock<String>,
    /// Why this program may not go on.
    refusal: OnceLock<String>,
}

impl Beside {
    /// From now on it is looked at.
    pub fn watch(&self, schema: &Schema) {
        let _ = self.ask.set(schema.fill(&format!("SELECT v[1], v[2] FROM {VERSION} q(v)")));
    }

    /// What a new connection shows. Nothing is prepared for it, so that it can be asked behind any pooler.
    pub async fn look(&self, client: &Client, place: &str) -> Result<(), Error> {
        let Some(ask) = self.ask.get() else { return Ok(()) };
        for message in client.simple_query(ask).await? {
            let SimpleQueryMessage::Row(row) = message else { continue };
            let number = |index: usize| row.get(index).and_then(|text| text.parse::<i32>().ok());
            if let Some((version, compatible_from)) = number(0).zip(number(1)) {
                self.hear(version, compatible_from, place);
            }
        }
        Ok(())
    }

    /// The schema has this version, beside which programs may run that know at least that one.
    pub fn hear(&self, version: i32, compatible_from: i32, place: &str) {
        if compatible_from <= newest() || self.refusal.get().is_some() {
            return;
        }
        let why = format!(
            "the schema at {place} was brought to version {version}, beside which no program may run that knows less than \
             {compatible_from}; this one knows {}: stop it, and start the newer Ensue",
            newest()
        );
        tracing::error!("{why}");
        let _ = self.refusal.set(why);
    }

    /// May this program go on?
    pub fn check(&self) -> Result<(), StoreError> {
        match self.refusal.get() {
            Some(why) => Err(StoreError::Schema(why.clone())),
            None => Ok(()),
        }
    }

    /// Why not, if not.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.get().cloned()
    }
}
