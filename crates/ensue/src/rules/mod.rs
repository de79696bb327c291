//! How is something paused, blocked and let go on?
//!
//! A change is on disk before anything else. Then this process takes it over, and waits for every other that lives: each
//! says which version of the rules it goes by, or its lease passes. So nothing starts any more when the answer comes.

mod gate;
mod target;

pub use ensue_core::rules::{NewRule, REASON_BYTES_MAX, Rule, RuleKind, RuleSet, Rules, Scope};

pub(crate) use gate::Gate;
pub use target::warning_of;

use crate::Ensue;
use crate::error::Error;
use ensue_core::{Invalid, StoreError};
use std::time::Duration;

/// How often is asked who has not taken over a change yet.
const ASK_EVERY: Duration = Duration::from_millis(20);

impl Ensue {
    /// Pauses or blocks a handler and all below it, an object or a schedule. When it comes back, nothing that the rule holds
    /// starts any more, in any process; what runs goes on to its end. Setting it anew changes its reason, author and expiry.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ensue::rules::{NewRule, RuleKind, Scope};
    /// let bus = ensue::Ensue::memory().await?;
    /// let scope = Scope::parse("handler:acme.mail")?;
    /// let pause = NewRule { kind: RuleKind::Pause, scope: scope.clone(), reason: Some("the relay is down".into()), author: "ann".into(), expires_at: None };
    /// bus.set_rule(pause).await?;
    /// assert_eq!(bus.rules().await?.rules().len(), 1);
    /// bus.lift_rule(RuleKind::Pause, &scope, "ann").await?;
    /// # Ok(()) }
    /// ```
    pub async fn set_rule(&self, rule: NewRule) -> Result<(Rule, bool), Error> {
        rule.check(self.store().now().await?)?;
        let set = self.store().set_rule(rule).await?;
        self.rules_changed().await?;
        Ok(set)
    }

    /// Lifts a rule, so that everything that waited for it runs. `None` if there is no such rule: a repeat
    /// succeeds.
    pub async fn lift_rule(&self, kind: RuleKind, scope: &Scope, by: &str) -> Result<Option<Rule>, Error> {
        ensue_core::text::check_text("author", by, ensue_core::rules::AUTHOR_BYTES_MAX)?;
        let lifted = self.store().lift_rule(kind, scope, by).await?;
        if lifted.is_some() {
            self.rules_changed().await?;
        }
        Ok(lifted)
    }

    /// All rules.
    pub async fn rules(&self) -> Result<RuleSet, Error> {
        Ok(self.store().rules().await?)
    }

    /// Comes back when every process that lives goes by the rules as they are now.
    async fn rules_changed(&self) -> Result<(), StoreError> {
        let rules = self.take_over_rules().await?;
        loop {
            let awaited = self.store().rules_awaited(rules).await?;
            if awaited.iter().all(|member| member.id == self.inner().member) {
                return Ok(());
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Goes by the rules as they are now, and says so; answers their version.
    ///
    /// In a task of its own: who stops waiting leaves nothing half done.
    pub(crate) async fn take_over_rules(&self) -> Result<u64, StoreError> {
        let bus = self.clone();
        let ended = |_| Err(StoreError::InDoubt("the task that takes over rules was ended".into()));
        tokio::spawn(async move { bus.take_over_rules_here().await }).await.unwrap_or_else(ended)
    }

    async fn take_over_rules_here(&self) -> Result<u64, StoreError> {
        let rules = self.store().rules().await?;
        let version = rules.version();
        let inner = self.inner();
        inner.gate.put(rules).await;
        // The log has something new about it, and what was held may go on.
        inner.tail.look_now();
        inner.jobs.ring();
        inner.schedules.ring();
        // One of them may lift itself before the clock would look.
        inner.jobs.sooner.ring();
        self.store().report_rules(inner.member, version).await?;
        inner.gate.has_reported(version);
        Ok(version)
    }

    /// Lifts the rules that have expired.
    pub(crate) async fn expire_rules(&self) -> Result<(), StoreError> {
        let Some(next) = self.inner().gate.rules().next_expiry() else { return Ok(()) };
        if next > self.store().now().await? {
            return Ok(());
        }
        // Another process may have been first.
        self.store().expire_rules().await?;
        self.take_over_rules().await?;
        Ok(())
    }
}

/// A scope as somebody writes it, or a handler's key alone.
pub fn scope_or_handler(text: &str) -> Result<Scope, Invalid> {
    match text.contains(':') {
        true => Scope::parse(text),
        false => Scope::parse(&format!("handler:{text}")),
    }
}
