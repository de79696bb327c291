//! Which jobs can this process run, and how?

use crate::handlers::{ErasedHandler, Registry, Spec};
use ensue_core::handling::{OnExhausted, Retry};
use ensue_core::{GroupName, Invalid};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How the jobs of a registered handler are run.
#[derive(Debug, Clone, Default)]
pub struct JobOptions {
    /// How often a job is attempted, and after how long.
    pub retry: Retry,
    /// An attempt that takes longer is ended and has failed; there is no limit unless told.
    pub timeout: Option<Duration>,
    /// How many run at once in this process; unless told, as many as the pool has workers, or three quarters of them where it
    /// runs jobs of other handlers, too.
    pub concurrency: Option<usize>,
    /// What happens to the other jobs of its object when one has died.
    pub on_exhausted: OnExhausted,
    /// Keeps the lines of attempts that succeed, too.
    pub logs_always: bool,
}

impl JobOptions {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if self.concurrency == Some(0) {
            return Err(Invalid::new(
                "concurrency",
                "is 0, so that nothing would ever run; leave it out, or choose more",
            ));
        }
        if self.timeout == Some(Duration::ZERO) {
            let reason = "is zero, so that nothing could ever succeed; leave it out for no limit";
            return Err(Invalid::new("timeout", reason));
        }
        self.retry.check()
    }
}

/// A handler whose jobs this process runs.
pub(crate) struct Served {
    pub key: GroupName,
    pub code: Arc<dyn ErasedHandler>,
    pub options: JobOptions,
    /// It sees to its timeout itself.
    pub ends_itself: bool,
}

impl Served {
    fn of_spec(spec: &Spec) -> Self {
        let limits = spec.limits();
        let options = JobOptions {
            retry: limits.retry.clone(),
            timeout: limits.timeout,
            concurrency: Some(limits.concurrency),
            on_exhausted: limits.on_exhausted,
            logs_always: limits.logs_always,
        };
        Self { key: spec.key.clone(), code: spec.code.clone(), options, ends_itself: spec.ends_itself }
    }
}

/// Everything that this process can run jobs of: what was registered, every handler of events under its own key, and the tasks
/// of every collection.
pub(crate) fn all(registry: &Registry) -> HashMap<GroupName, Arc<Served>> {
    let bound = registry.bound().into_iter().filter(|spec| spec.runs_jobs()).map(|spec| Served::of_spec(&spec));
    let registered = registry.all_registered().into_iter().map(|(name, code, options)| Served {
        key: GroupName::stored(&name),
        code,
        options,
        ends_itself: false,
    });
    let collected = registry.collections().into_iter().filter_map(|one| {
        Some(Served {
            key: one.collection.handler(),
            options: one.job_options(),
            ends_itself: one.options.ends_itself,
            code: one.code?,
        })
    });
    bound.chain(registered).chain(collected).map(|served| (served.key.clone(), Arc::new(served))).collect()
}
