//! Rules over HTTP, on the embedded engine. What must hold on any engine is in `support/jobs.rs`.

use crate::support::{Server, jobs};
use ensue_server::{HttpOptions, Tokens};

macro_rules! on_sqlite {
    ($($name:ident;)+) => {
        $(
            #[tokio::test]
            async fn $name() {
                jobs::$name(&Server::start().await).await;
            }
        )+
    };
}

on_sqlite! {
    a_paused_handler_gives_out_nothing_and_its_jobs_are_parked;
    a_held_object_waits_and_its_scope_may_have_slashes;
    a_rule_lifts_itself_when_its_time_has_come;
}

/// The author of a rule is the name of the token that set it.
#[tokio::test]
async fn the_author_is_the_tokens_name() {
    let tokens = Tokens::named([("ann", "secret-of-ann"), ("bob", "secret-of-bob")]);
    let server = Server::start_with(HttpOptions { tokens, ..HttpOptions::default() }).await;
    let [ann, bob] = ["ann", "bob"].map(|name| format!("Authorization: Bearer secret-of-{name}"));
    let set = server.request("PUT", "/v1/rules/pause/handler:h", &[&bob], b"").await;
    assert_eq!((set.status, set.json()["author"].as_str()), (201, Some("bob")));
    let lifted = server.request("DELETE", "/v1/rules/pause/handler:h", &[&ann], b"").await;
    assert_eq!((lifted.status, lifted.json()["author"].as_str()), (200, Some("bob")));
    let audit = server.request("GET", "/v1/events?topic=ensue.rule.lifted", &[&ann], b"").await.json();
    assert_eq!(audit["events"][0]["payload"]["lifted_by"], "ann");
    server.request("PUT", "/v1/rules/pause/handler:h", &[], b"").await.problem(401);
}
