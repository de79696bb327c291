//! How is a group asked of a server, or of a store?
//!
//! Both answer with the same JSON: a server sends it, and for a store it is made here by the same shapes.

use super::output::as_json;
use super::pages::{self, LimitArgs};
use super::target::Target;
use crate::config::units::Span;
use crate::http::groups_shapes::{
    CommittedShape, DeletedGroupShape, GroupShape, GroupsShape, PulledShape, SubscriptionShape,
};
use ensue::Seq;
use ensue::groups::{Pull, Wants};
use ensue::positions::Start;
use reqwest::Method;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A subscription as POST /v1/groups/{group}/subscriptions takes it.
#[derive(Serialize)]
struct SubscribeBody<'a> {
    topic: Option<&'a str>,
    r#where: Option<&'a str>,
    params: &'a RawValue,
    expires_in: Option<String>,
}

fn place(start: Start) -> Value {
    match start {
        Start::Now => json!("now"),
        Start::Beginning => json!("beginning"),
        Start::After(seq) => json!(seq),
    }
}

/// The groups, page after page.
pub async fn list(target: &Target, limit: LimitArgs) -> anyhow::Result<Value> {
    let page = async |after: Option<&str>, limit: usize| match target {
        Target::Server(remote) => remote.get_json(&["v1", "groups"], &pages::query(after, limit)).await,
        Target::Store(bus) => as_json(&GroupsShape::page(&bus.groups().page(after, limit + 1).await?, limit)),
    };
    limit.list("groups", page).await
}

/// One group.
pub async fn show(target: &Target, name: &str) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => remote.get_json(&["v1", "groups", name], &[]).await,
        Target::Store(bus) => as_json(&GroupShape::from(&bus.groups().get(name).await?)),
    }
}

/// Makes a group.
pub async fn create(target: &Target, name: &str, start: Start) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => {
            remote.ask_json(Method::PUT, &["v1", "groups", name], &json!({ "start": place(start) })).await
        }
        Target::Store(bus) => as_json(&GroupShape::from(&bus.groups().create(name, start).await?.0)),
    }
}

/// Moves a group.
pub async fn seek(target: &Target, name: &str, to: Start) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => {
            remote.ask_json(Method::POST, &["v1", "groups", name, "seek"], &json!({ "to": place(to) })).await
        }
        Target::Store(bus) => as_json(&GroupShape::from(&bus.groups().seek(name, to).await?)),
    }
}

/// Has a handler's group run a range again.
pub async fn replay(target: &Target, name: &str, from: Seq, to: Seq) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => {
            let body = json!({ "from": from, "to": to });
            remote.ask_json(Method::POST, &["v1", "groups", name, "replay"], &body).await
        }
        Target::Store(bus) => as_json(&GroupShape::from(&bus.groups().replay(name, from, to).await?)),
    }
}

/// Deletes a group.
pub async fn delete(target: &Target, name: &str) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => remote.ask_json(Method::DELETE, &["v1", "groups", name], &Value::Null).await,
        Target::Store(bus) => {
            bus.groups().delete(name).await?;
            as_json(&DeletedGroupShape { name, state: "deleted" })
        }
    }
}

/// Says what a group wants.
pub async fn subscribe(target: &Target, name: &str, wants: Wants) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => {
            // As it stands: a number in it may have more digits than this program counts with.
            let params: Box<RawValue> = serde_json::from_str(wants.params.as_str())?;
            let body = SubscribeBody {
                topic: wants.topic.as_deref(),
                r#where: wants.condition.as_deref(),
                params: &params,
                expires_in: wants.expires_in.map(|expiry| Span(expiry).to_string()),
            };
            remote.send_json(&["v1", "groups", name, "subscriptions"], &body).await
        }
        Target::Store(bus) => as_json(&SubscriptionShape::from(&bus.groups().subscribe(name, wants).await?.0)),
    }
}

/// Reads what is next for a group. The answer is a text: an event is to be printed as it was published, digit by digit.
pub async fn read(target: &Target, name: &str, pull: Pull) -> anyhow::Result<String> {
    match target {
        Target::Server(remote) => {
            let body = json!({
                "limit": pull.limit,
                "wait_ms": pull.wait.as_millis() as u64,
                "lease_ms": pull.lease.as_millis() as u64,
                "peek": pull.peek,
                "cursor": pull.cursor,
                "lease": pull.under,
            });
            remote.ask_text(Method::POST, &["v1", "groups", name, "read"], &body).await
        }
        Target::Store(bus) => Ok(serde_json::to_string(&PulledShape::from(&bus.groups().pull(name, pull).await?))?),
    }
}

/// Says that everything up to a place is done, and gives the lease back.
pub async fn commit(target: &Target, name: &str, lease: &str, cursor: Seq) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => {
            let body = json!({ "cursor": cursor, "lease": lease, "release": true });
            remote.ask_json(Method::POST, &["v1", "groups", name, "commit"], &body).await
        }
        Target::Store(bus) => {
            as_json(&CommittedShape::from(bus.groups().commit(name, lease, Some(cursor), true).await?))
        }
    }
}
