//! Does the server answer, and does it let us in?

use super::Checks;
use crate::cli::remote::Remote;
use reqwest::StatusCode;

/// Looks at the server, and at whether requests from here are let in.
pub(super) async fn look(remote: &Remote, store_named: bool, checks: &mut Checks) {
    let answers = match (remote.about("health").await, remote.about("ready").await) {
        (Ok((health, _, _)), Ok((ready, _, said))) => (health.is_success(), ready.is_success(), said),
        // Who names a store asks about the store.
        (Err(error), _) | (_, Err(error)) if store_named => {
            return checks.note("server", format!("{error:#}"), "nothing to do if only the store matters here");
        }
        (Err(error), _) | (_, Err(error)) => {
            return checks.problem("server", format!("{error:#}"), "start it, or give its address with --url");
        }
    };
    match answers {
        (true, true, _) => {
            checks.ok("server", format!("{} answers, and its store does", remote.url()));
            access(remote, checks).await;
        }
        (true, false, said) => {
            let found = format!("{} runs, but cannot use its store", remote.url());
            let fix =
                Remote::detail(&said).unwrap_or_else(|| "look after the store; the server's log says more".into());
            checks.problem("server", found, fix);
        }
        (false, _, _) => {
            let found = format!("what answers at {} is not a healthy Ensue server", remote.url());
            checks.problem("server", found, "check --url, and what else listens on that port");
        }
    }
}

/// Does the token open the server? Health and readiness are told without one.
async fn access(remote: &Remote, checks: &mut Checks) {
    match remote.about("openapi.json").await {
        Ok((StatusCode::UNAUTHORIZED, _, _)) => {
            let fix = "by --token-file, ENSUE_TOKEN or --token";
            checks.problem("access", remote.unauthorized(), fix);
        }
        Ok(_) => checks.ok("access", "requests from here are let in"),
        Err(error) => checks.problem("access", format!("{error:#}"), "try again"),
    }
}
