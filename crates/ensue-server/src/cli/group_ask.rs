//! How is a group asked of a server, or of a store?
//!
//! Both answer with the same JSON: a server sends it, and for a store it is made here by the same shapes.

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

fn value(shape: &impl Serialize) -> anyhow::Result<Value> {
    Ok(serde_json::to_value(shape)?)
}

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

/// All groups.
pub async fn list(target: &Target) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => remote.get_json(&["v1", "groups"], &[]).await,
        Target::Store(bus) => {
            let groups = bus.groups().list().await?;
            value(&GroupsShape { groups: groups.iter().map(GroupShape::from).collect() })
        }
    }
}

/// One group.
pub async fn show(target: &Target, name: &str) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => remote.get_json(&["v1", "groups", name], &[]).await,
        Target::Store(bus) => value(&GroupShape::from(&bus.groups().get(name).await?)),
    }
}

/// Makes a group.
pub async fn create(target: &Target, name: &str, start: Start) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => {
            remote.ask_json(Method::PUT, &["v1", "groups", name], &json!({ "start": place(start) })).await
        }
        Target::Store(bus) => value(&GroupShape::from(&bus.groups().create(name, start).await?.0)),
    }
}

/// Moves a group.
pub async fn seek(target: &Target, name: &str, to: Start) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => {
            remote.ask_json(Method::POST, &["v1", "groups", name, "seek"], &json!({ "to": place(to) })).await
        }
        Target::Store(bus) => value(&GroupShape::from(&bus.groups().seek(name, to).await?)),
    }
}

/// Deletes a group.
pub async fn delete(target: &Target, name: &str) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => remote.ask_json(Method::DELETE, &["v1", "groups", name], &Value::Null).await,
        Target::Store(bus) => {
            bus.groups().delete(name).await?;
            value(&DeletedGroupShape { name, state: "deleted" })
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
        Target::Store(bus) => value(&SubscriptionShape::from(&bus.groups().subscribe(name, wants).await?.0)),
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
        Target::Store(bus) => value(&CommittedShape::from(bus.groups().commit(name, lease, Some(cursor), true).await?)),
    }
}
