//! A job is sent straight to a handler; a rule keeps it from running, the bus says why, and it runs when the rule is lifted.
//!
//! `cargo run -p ensue --example jobs_and_rules`

use ensue::jobs::JobState;
use ensue::rules::{NewRule, RuleKind, Scope};
use ensue::{Context, Emit, Ensue, Event, HandlerError, JobOptions};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What was sent.
#[derive(Clone, Default)]
struct Outbox(Arc<Mutex<Vec<String>>>);

async fn send_mail(job: Event, cx: Context) -> Result<(), HandlerError> {
    let (user, text) = (job.object.ok_or(HandlerError::permanent("to nobody"))?, job.payload.as_str());
    cx.state::<Outbox>().0.lock().expect("nobody panics with it").push(format!("{user}: {text}"));
    Ok(())
}

/// What this example prints.
pub async fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let bus = Ensue::memory().await?;
    let outbox = Outbox::default();
    bus.state(outbox.clone());
    let say = |line: String| outbox.0.lock().expect("nobody panics with it").push(line);
    // One at a time here, so that the order can be seen; jobs of one user would be in order anyway.
    bus.register_with("acme.mail", JobOptions { concurrency: Some(1), ..JobOptions::default() }, send_mail)?;
    let running = bus.start().await?;

    let scope = Scope::parse("handler:acme")?;
    let reason = Some("the relay is down".to_owned());
    let pause = NewRule { kind: RuleKind::Pause, scope: scope.clone(), reason, author: "ann".into(), expires_at: None };
    bus.set_rule(pause).await?; // nothing below `acme` starts any more, in any process

    bus.emit(Emit::to("acme.mail").object("user:1").payload(&"hello")).await?;
    bus.emit(Emit::to("acme.mail").object("user:1").payload(&"again")).await?;
    let urgent = bus.emit(Emit::to("acme.mail").object("user:2").payload(&"urgent").priority(9)).await?;
    let explanation = bus.explain_job(urgent.id).await?;
    say(format!("why not? {}", explanation.because[0].detail));

    bus.lift_rule(RuleKind::Pause, &scope, "ann").await?;
    bus.drain().await?;
    let job = bus.job(urgent.id).await?.ok_or("it is kept for a while")?;
    assert_eq!(job.state, JobState::Succeeded);
    running.shutdown(Duration::from_secs(30)).await?;
    let printed = outbox.0.lock().expect("nobody panics with it").clone();
    Ok(printed)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in run().await? {
        println!("{line}");
    }
    Ok(())
}
