//! Existence of what a rule names. A rule may be set before its handler, object or schedule exists.

use crate::Ensue;
use crate::error::Error;
use ensue_core::GroupName;
use ensue_core::jobs::JobQuery;
use ensue_core::key::is_under;
use ensue_core::positions::GroupKind;
use ensue_core::rules::Scope;

impl Ensue {
    /// Does the scope name nothing yet: no handler, schedule, event or job? False where a bounded search does
    /// not answer it. A rule on such a scope is valid; a mistyped key is the usual reason.
    pub async fn names_nothing(&self, scope: &Scope) -> Result<bool, Error> {
        match scope {
            Scope::Handler(prefix) => Ok(!self.has_handler_under(prefix).await?),
            Scope::Schedule(name) => Ok(self.store().schedule(name).await?.is_none()),
            Scope::Object(object) => {
                if !self.store().chain(object, None, 1).await?.is_empty() {
                    return Ok(false);
                }
                let query = JobQuery { object: Some(object.clone()), ..JobQuery::default() };
                let page = self.store().jobs(query, 1).await?;
                Ok(page.jobs.is_empty() && page.next.is_none())
            }
        }
    }

    /// Is a handler of this key, or below it, known to this process or to the store?
    async fn has_handler_under(&self, prefix: &GroupName) -> Result<bool, Error> {
        let (store, key) = (self.store(), prefix.as_str());
        if self.inner().handlers.has_under(prefix) {
            return Ok(true);
        }
        if store.group(prefix).await?.is_some_and(|group| group.kind == GroupKind::Handler) {
            return Ok(true);
        }
        // The first key behind `key.` is below it, if any is.
        let children = GroupName::stored(&format!("{key}."));
        let child = store.groups_after(Some(GroupKind::Handler), Some(&children), 1).await?;
        if child.first().is_some_and(|group| is_under(key, group.name.as_str())) {
            return Ok(true);
        }
        let (servers, counts) = tokio::try_join!(store.job_servers(), store.job_counts())?;
        let mut handlers = servers.iter().map(|server| &server.handler).chain(counts.iter().map(|one| &one.handler));
        Ok(handlers.any(|handler| is_under(key, handler.as_str())))
    }
}

/// What a rule says that names nothing.
pub fn warning_of(scope: &Scope) -> String {
    let (what, fix) = match scope {
        Scope::Handler(_) => ("no handler or job has this key, nor one below it", "`ensue handler list`"),
        Scope::Object(_) => ("no event and no job has this object", "`ensue event list`"),
        Scope::Schedule(_) => ("no schedule has this name", "`ensue schedule list`"),
    };
    format!("{what} yet; the rule holds what comes. If it is mistyped, lift it and see {fix}")
}
