//! How does a list that comes in pages become one?

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

/// The most that a page has.
const PAGE_MAX: usize = 1_000;

/// How much of a list is wanted.
#[derive(Debug, Clone, Copy, Args)]
pub struct LimitArgs {
    /// At most this many [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

impl LimitArgs {
    /// The list of this name, page after page. `page` is asked for what comes after a place, at most so many; the answer's
    /// `next` says where to go on, and is null at the end.
    pub async fn list(
        self,
        name: &str,
        mut page: impl AsyncFnMut(Option<&str>, usize) -> anyhow::Result<Value>,
    ) -> anyhow::Result<Value> {
        let limit = self.limit.map_or(usize::MAX, |limit| limit as usize);
        let (mut all, mut next): (Vec<Value>, Option<String>) = (Vec::new(), None);
        loop {
            let mut answer = page(next.as_deref(), (limit - all.len()).min(PAGE_MAX)).await?;
            let Value::Array(items) = answer[name].take() else {
                return Err(anyhow::anyhow!("the answer has no list `{name}`"))
                    .context("this is not an Ensue server; check --url");
            };
            // A server that does not know pages answers with all at once.
            let after = answer["next"].as_str().map(str::to_owned).filter(|after| next.as_ref() != Some(after));
            all.extend(items);
            next = after;
            if next.is_none() || all.len() >= limit {
                return Ok(json!({ name: all, "next": next }));
            }
        }
    }
}

/// The parameters of a page.
pub fn query(after: Option<&str>, limit: usize) -> Vec<(&'static str, String)> {
    let after = after.map(|after| ("after", after.to_owned()));
    after.into_iter().chain([("limit", limit.to_string())]).collect()
}
