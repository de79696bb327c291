//! Is the server still at work on a statement that it has not answered?
//!
//! A connection may fall silent while the server is well: a proxy or a firewall has forgotten it. The writer has one
//! connection, and everybody who publishes would wait for as long as a statement may take. So after a short while the
//! server is asked over a new connection what the session does. One that waits for its client never got the statement,
//! or its answer is lost: the connection is given up. One that is at work is waited for. A server that answers there
//! neither is taken to be away.

use super::connection::{Connection, within};
use super::doubt::SessionId;
use super::error::{Failure, Trouble};
use super::server::Server;
use std::time::{Duration, Instant};

/// After how long without an answer the server is asked.
const ASKED_AFTER: Duration = Duration::from_secs(2);
/// How often it is asked again.
const ASKED_EVERY: Duration = Duration::from_millis(500);
/// How long it may take to answer that.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// For how long nothing may be heard from it.
const UNHEARD_MAX: Duration = Duration::from_secs(5);

/// What a session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionState {
    AtWork,
    /// It waits for its client.
    AtRest,
    Gone,
}

/// Waits for the answer of this session, but no longer than the limit, nor when it turns out that none will come. Behind a
/// pooler nobody knows the session.
pub(super) async fn within_or_silent<T>(
    server: &Server,
    session: Option<SessionId>,
    limit: Duration,
    answer: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let Some(session) = session else { return within(limit, answer).await };
    tokio::select! {
        biased;
        answer = within(limit, answer) => answer,
        silence = until_silent(server, session) => Err(silence),
    }
}

/// Comes back when nothing more will come from the session.
async fn until_silent(server: &Server, session: SessionId) -> Failure {
    let begun = Instant::now();
    tokio::time::sleep(ASKED_AFTER).await;
    let (mut heard_at, mut was_at_rest, mut asked_on) = (begun, false, None);
    loop {
        match state_of(server, session, &mut asked_on).await {
            Ok(SessionState::AtWork) => (heard_at, was_at_rest) = (Instant::now(), false),
            // The answer may have been on its way.
            Ok(SessionState::AtRest) if !was_at_rest => (heard_at, was_at_rest) = (Instant::now(), true),
            Ok(SessionState::AtRest | SessionState::Gone) => return Failure::Silence(begun.elapsed()),
            Err(failure) => {
                asked_on = None;
                // One that refuses to say it is there.
                if Trouble::of(&failure) != Trouble::Lost {
                    heard_at = Instant::now();
                }
                if heard_at.elapsed() >= UNHEARD_MAX {
                    return Failure::Silence(begun.elapsed());
                }
            }
        }
        tokio::time::sleep(ASKED_EVERY).await;
    }
}

async fn state_of(
    server: &Server,
    session: SessionId,
    asked_on: &mut Option<Connection>,
) -> Result<SessionState, Failure> {
    let connection = match asked_on.take() {
        Some(connection) => connection,
        None => server.connect(ANSWERS_WITHIN).await?,
    };
    let state = within(ANSWERS_WITHIN, session.state(&connection)).await?;
    *asked_on = Some(connection);
    Ok(state)
}
