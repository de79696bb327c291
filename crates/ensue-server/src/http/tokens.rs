//! Who may come in?
//!
//! A token is hashed as soon as it is read and only its digest is kept. All digests are compared in constant time, none
//! skipped, so an answer's time tells nothing. The check reads one header and happens before the body is looked at.

use super::problem::{Kind, Problem};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;
use subtle::{Choice, ConstantTimeEq};

/// The tokens that open the API. None at all: it is open to everybody who can reach it.
#[derive(Clone, Default)]
pub struct Tokens {
    digests: Arc<[[u8; 32]]>,
}

impl Tokens {
    /// The tokens with these secrets.
    pub fn of<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Self {
        Self { digests: secrets.into_iter().map(|secret| Sha256::digest(secret.as_ref()).into()).collect() }
    }

    /// Is the API open to everybody?
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    fn admit(&self, secret: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(secret).into();
        let known = self.digests.iter().fold(Choice::from(0), |known, one| known | one.ct_eq(&digest));
        known.into()
    }
}

/// Tells how many there are and nothing of what they are.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.digests.len())
    }
}

/// Lets a request through if it carries a token, or if none is needed.
pub(super) async fn check(State(tokens): State<Tokens>, request: Request, next: Next) -> Response {
    match judge(&tokens, request.headers()) {
        Ok(()) => next.run(request).await,
        Err((problem, challenge)) => {
            let mut response = problem.into_response();
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            response
        }
    }
}

fn judge(tokens: &Tokens, headers: &HeaderMap) -> Result<(), (Problem, &'static str)> {
    let refusal = |reason: &str| Problem::field(Kind::Unauthorized, "authorization", reason);
    if tokens.is_empty() {
        return Ok(());
    }
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        let reason = "is missing; send the header `Authorization: Bearer TOKEN` with a token of this server";
        return Err((refusal(reason), "Bearer realm=\"ensue\""));
    };
    match value.as_bytes().split_at_checked(7) {
        Some((scheme, secret)) if scheme.eq_ignore_ascii_case(b"bearer ") && tokens.admit(secret.trim_ascii()) => {
            Ok(())
        }
        _ => {
            let reason =
                "has no token of this server; send `Authorization: Bearer TOKEN` with one that it was started with";
            Err((refusal(reason), "Bearer realm=\"ensue\", error=\"invalid_token\""))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(tokens: &Tokens, value: &str) -> bool {
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())]);
        judge(tokens, &headers).is_ok()
    }

    #[test]
    fn any_of_the_tokens_opens_and_nothing_else_does() {
        let tokens = Tokens::of(["first", "second"]);
        for good in ["Bearer first", "bearer second", "Bearer  second"] {
            assert!(admitted(&tokens, good), "{good}");
        }
        for bad in
            ["", "Bearer", "Bearer ", "first", "Basic first", "Bearer firs", "Bearer first second", "Bearerfirst"]
        {
            assert!(!admitted(&tokens, bad), "{bad}");
        }
        assert!(judge(&tokens, &HeaderMap::new()).is_err());
        assert!(judge(&Tokens::default(), &HeaderMap::new()).is_ok());
    }

    #[test]
    fn a_token_is_not_shown() {
        let tokens = Tokens::of(["canary"]);
        assert_eq!(format!("{tokens:?}"), "Tokens(1)");
    }
}
